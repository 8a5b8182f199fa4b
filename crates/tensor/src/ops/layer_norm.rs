//! `out = x̂·w + b` with `x̂ = (x − mean)·rstd`, `rstd = 1/√(var + ε)`, over the last dimension
//! (Ba et al. 2016, arXiv:1607.06450): (…, C) → (…, C).
//!
//! Write g = dout·w for the gradient of x̂. A change of one element moves x̂ directly, through the
//! mean and through the deviation: `∂x̂ⱼ/∂xᵢ = rstd·([i = j] − 1/C − x̂ᵢx̂ⱼ/C)`, so
//! 1. `dx = rstd·(g − mean(g) − x̂·mean(g·x̂))`
//! 2. `dw = Σ dout·x̂` over rows
//! 3. `db = Σ dout` over rows
//!
//! Saves `x` (in the storage of the moment), mean and rstd of each row, and a handle to `w`.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::{Write, norm};

/// Each row of `x` brought to mean 0 and variance 1, then times `weight` plus `bias`.
pub fn layer_norm(x: &Var, weight: Option<&Var>, bias: Option<&Var>, eps: f32) -> Var {
    let shape = x.shape();
    for (name, parameter) in [("weight", weight), ("bias", bias)] {
        let Some(parameter) = parameter else { continue };
        assert!(
            parameter.shape().dims() == [shape.width()] && shape.rank() > 0,
            "a {name} of shape {} does not fit a norm over {shape}",
            parameter.shape()
        );
    }
    let mut out = Tensor::unset(shape);
    let (mut mean, mut rstd) = (Tensor::unset([shape.rows()]), Tensor::unset([shape.rows()]));
    norm::layer_norm(
        shape.width(),
        eps,
        x.value().data(),
        weight.map(|w| w.value().data()),
        bias.map(|b| b.value().data()),
        out.data_mut(),
        mean.data_mut(),
        rstd.data_mut(),
    );
    let none = Var::constant(Tensor::zeros([0])); // holds the place of a parameter that is not there
    let inputs = [x, weight.unwrap_or(&none), bias.unwrap_or(&none)];
    Var::from_op(out, &inputs, || LayerNormBackward {
        x: Saved::new(x.value()),
        mean,
        rstd,
        weight: weight.map(|w| w.value().clone()),
    })
}

struct LayerNormBackward {
    x: Saved,
    mean: Tensor, // (rows)
    rstd: Tensor, // (rows)
    weight: Option<Tensor>,
}

impl Backward for LayerNormBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let x = self.x.get();
        let mut unwanted = if gradients.wanted(0) { None } else { Some(Tensor::unset(x.shape())) };
        gradients.write_many([0, 1, 2], |[dx, dw, db]| {
            let dx = dx.or_else(|| unwanted.as_mut().map(|dx| (dx.data_mut(), Write::Set)));
            norm::layer_norm_backward(
                x.shape().width(),
                x.data(),
                self.mean.data(),
                self.rstd.data(),
                self.weight.as_ref().map(Tensor::data),
                dout.data(),
                dx.expect("one of the two is there"), // 1
                dw,                                   // 2
                db,                                   // 3
            );
        });
    }
}

/// `eps` as f32 has it.
fn reference(inputs: &[Array], weight: bool, bias: bool, eps: f32) -> Array {
    let x = &inputs[0];
    let width = x.shape.width();
    let weight_of = |j: usize| if weight { inputs[1].data[j] } else { 1.0 };
    let bias_of = |j: usize| if bias { inputs[inputs.len() - 1].data[j] } else { 0.0 };
    Array::build(x.shape, |i| {
        let row = x.row(i / width);
        let mean = row.iter().sum::<f64>() / width as f64;
        let var = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        let normed = (x.data[i] - mean) / (var + f64::from(eps)).sqrt();
        normed * weight_of(i % width) + bias_of(i % width)
    })
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 6e-7,
        backward: 2e-6,
        reason: "means of up to 65 numbers and a root; weight gradients are sums of up to 300 rows",
    };
    let case = |name, shape: &[usize], weight: bool, bias: bool, eps: f32| {
        let width = shape[shape.len() - 1];
        let forward = move |v: &[Var]| {
            layer_norm(&v[0], weight.then(|| &v[1]), bias.then(|| &v[v.len() - 1]), eps)
        };
        let reference = move |a: &[Array]| reference(a, weight, bias, eps);
        let mut case = Case::new("layer_norm", name, tolerance, forward, reference)
            .normal("x", shape)
            .extra("eps", Array::scalar(f64::from(eps)));
        if weight {
            case = case.normal("w", [width]);
        }
        if bias {
            case = case.normal("b", [width]);
        }
        case.torch(match (weight, bias) {
            (true, true) => "F.layer_norm(x, x.shape[-1:], w, b, eps.item())",
            (true, false) => "F.layer_norm(x, x.shape[-1:], w, None, eps.item())",
            (false, true) => "F.layer_norm(x, x.shape[-1:], None, b, eps.item())",
            (false, false) => "F.layer_norm(x, x.shape[-1:], None, None, eps.item())",
        })
    };
    vec![
        case("plain", &[3, 7], false, false, 1e-5),
        case("weight", &[5, 16], true, false, 1e-5),
        case("weight_and_bias", &[2, 3, 17], true, true, 1e-5),
        case("large_eps", &[4, 9], true, true, 0.5),
        case("many_rows", &[300, 65], true, true, 1e-5),
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
        let _ = layer_norm(&x, Some(&w), None, 1e-5);
    }

    #[test]
    fn a_parameter_learns_even_when_the_input_does_not() {
        let x = Var::constant(Tensor::new([2, 2], &[1.0, 3.0, 0.0, 4.0]));
        let w = Var::leaf(Tensor::full([2], 1.0));
        layer_norm(&x, Some(&w), None, 0.0).sum().backward();
        assert_eq!(w.gradient().unwrap().data(), &[-2.0, 2.0]);
    }

    #[test]
    fn no_rows_a_constant_row_one_column_and_nan_are_defined() {
        let w = Var::leaf(Tensor::full([3], 1.0));
        layer_norm(&Var::leaf(Tensor::zeros([0, 3])), Some(&w), None, 1e-5).sum().backward();
        assert_eq!(w.gradient().unwrap().data(), &[0.0; 3]);

        let constant = layer_norm(&Var::leaf(Tensor::full([1, 4], 7.0)), None, None, 1e-5);
        assert_eq!(constant.value().data(), &[0.0; 4]);
        let column = layer_norm(&Var::leaf(Tensor::full([3, 1], 7.0)), None, None, 1e-5);
        assert_eq!(column.value().data(), &[0.0; 3]);

        let rows = Tensor::new([3, 2], &[f32::NAN, 1.0, f32::INFINITY, 1.0, 1.0, 3.0]);
        let out = layer_norm(&Var::leaf(rows), None, None, 0.0);
        assert!(out.value().data()[..4].iter().all(|x| x.is_nan()));
        assert_eq!(out.value().data()[4..], [-1.0, 1.0]);
    }
}
