//! `out = x̂·w` with `x̂ = x·rstd`, `rstd = 1/√(mean(x²) + ε)`, over the last dimension (Zhang and
//! Sennrich 2019, arXiv:1910.07467): (…, C) → (…, C).
//!
//! Write g = dout·w for the gradient of x̂; `∂x̂ⱼ/∂xᵢ = rstd·([i = j] − x̂ᵢx̂ⱼ/C)`, so
//! 1. `dx = rstd·(g − x̂·mean(g·x̂))`
//! 2. `dw = Σ dout·x̂` over rows
//!
//! Saves `x` (in the storage of the moment), rstd of each row, and a handle to `w`.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::{Write, norm};

/// Each row of `x` brought to mean square 1, then times `weight`.
pub fn rms_norm(x: &Var, weight: Option<&Var>, eps: f32) -> Var {
    let shape = x.shape();
    if let Some(weight) = weight {
        assert!(
            weight.shape().dims() == [shape.width()] && shape.rank() > 0,
            "a weight of shape {} does not fit a norm over {shape}",
            weight.shape()
        );
    }
    let (mut out, mut rstd) = (Tensor::unset(shape), Tensor::unset([shape.rows()]));
    norm::rms_norm(
        shape.width(),
        eps,
        x.value().data(),
        weight.map(|w| w.value().data()),
        out.data_mut(),
        rstd.data_mut(),
    );
    let none = Var::constant(Tensor::zeros([0])); // holds the place of a weight that is not there
    Var::from_op(out, &[x, weight.unwrap_or(&none)], || RmsNormBackward {
        x: Saved::new(x.value()),
        rstd,
        weight: weight.map(|w| w.value().clone()),
    })
}

struct RmsNormBackward {
    x: Saved,
    rstd: Tensor, // (rows)
    weight: Option<Tensor>,
}

impl Backward for RmsNormBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let x = self.x.get();
        let mut unwanted = if gradients.wanted(0) { None } else { Some(Tensor::unset(x.shape())) };
        gradients.write_many([0, 1], |[dx, dw]| {
            let dx = dx.or_else(|| unwanted.as_mut().map(|dx| (dx.data_mut(), Write::Set)));
            norm::rms_norm_backward(
                x.shape().width(),
                x.data(),
                self.rstd.data(),
                self.weight.as_ref().map(Tensor::data),
                dout.data(),
                dx.expect("one of the two is there"), // 1
                dw,                                   // 2
            );
        });
    }
}

fn reference(inputs: &[Array], eps: f32) -> Array {
    let x = &inputs[0];
    let width = x.shape.width();
    Array::build(x.shape, |i| {
        let square = x.row(i / width).iter().map(|x| x * x).sum::<f64>() / width as f64;
        let normed = x.data[i] / (square + f64::from(eps)).sqrt();
        normed * inputs.get(1).map_or(1.0, |w| w.data[i % width])
    })
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 6e-7,
        backward: 2e-6,
        reason: "means of up to 65 numbers and a root; weight gradients are sums of up to 300 rows",
    };
    let case = |name, shape: &[usize], weight: bool, eps: f32| {
        let forward = move |v: &[Var]| rms_norm(&v[0], v.get(1), eps);
        let case =
            Case::new("rms_norm", name, tolerance, forward, move |a: &[Array]| reference(a, eps))
                .normal("x", shape)
                .extra("eps", Array::scalar(f64::from(eps)));
        if weight {
            let case = case.normal("w", [shape[shape.len() - 1]]);
            case.torch("F.rms_norm(x, x.shape[-1:], w, eps.item())")
        } else {
            case.torch("F.rms_norm(x, x.shape[-1:], None, eps.item())")
        }
    };
    vec![
        case("plain", &[3, 7], false, 1e-6),
        case("weight", &[2, 3, 17], true, 1e-6),
        case("large_eps", &[4, 9], true, 0.5),
        case("one_column", &[4, 1], true, 1e-2),
        case("many_rows", &[300, 65], true, 1e-6),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    #[should_panic(expected = "a weight of shape (3) does not fit a norm over (2, 4)")]
    fn shapes_must_fit() {
        let (x, w) = (Var::constant(Tensor::zeros([2, 4])), Var::constant(Tensor::zeros([3])));
        let _ = rms_norm(&x, Some(&w), 1e-5);
    }

    #[test]
    fn no_rows_zero_rows_and_nan_are_defined() {
        let w = Var::leaf(Tensor::full([3], 1.0));
        rms_norm(&Var::leaf(Tensor::zeros([0, 3])), Some(&w), 1e-5).sum().backward();
        assert_eq!(w.gradient().unwrap().data(), &[0.0; 3]);

        let x = Var::leaf(Tensor::zeros([1, 3]));
        let out = rms_norm(&x, None, 1e-6);
        assert_eq!(out.value().data(), &[0.0; 3]);
        out.sum().backward();
        assert!(x.gradient().unwrap().data().iter().all(|&dx| (dx - 1e3).abs() < 0.1)); // 1/√ε

        let rows = Tensor::new([2, 2], &[f32::NAN, 1.0, 3.0, 3.0]);
        let out = rms_norm(&Var::leaf(rows), None, 0.0);
        assert!(out.value().data()[..2].iter().all(|x| x.is_nan()));
        assert_eq!(out.value().data()[2..], [1.0, 1.0]);
    }
}
