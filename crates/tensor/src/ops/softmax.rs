//! `y = softmax(c·x)` of every row, with a constant scale `c` (the inverse of a temperature).
//!
//! With `yⱼ = e^(c·xⱼ) / Σₖ e^(c·xₖ)`, `∂yₖ/∂xⱼ = c·yₖ·([j = k] − yⱼ)`, so
//! 1. `dxⱼ = c·yⱼ·(dyⱼ − Σₖ yₖ·dyₖ)`
//!
//! Saves `y`. A row that is all −∞, where everything is hidden, gives zeros and zero gradients; a
//! row with NaN or +∞ gives NaN.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::reference::Array;
use crate::rng::Rng;
use crate::tensor::Tensor;
use hearken_kernels::softmax::{softmax_backward_in_place, softmax_in_place};

/// `softmax(scale·x)` over the last dimension. The memory of `x` is reused if nobody else holds it.
pub fn softmax(x: Var, scale: f32) -> Var {
    let shape = x.shape();
    let (mut y, x) = x.into_parts();
    softmax_in_place(shape.rows(), shape.width(), scale, y.data_mut());
    let value = y.clone();
    Var::from_op(value, &[&x], || SoftmaxBackward { y: Saved::new(&y), scale })
}

struct SoftmaxBackward {
    y: Saved,
    scale: f32,
}

impl Backward for SoftmaxBackward {
    fn backward(self: Box<Self>, mut dout: Tensor, gradients: &mut Gradients<'_>) {
        let shape = dout.shape();
        let y = self.y.get();
        let (rows, width) = (shape.rows(), shape.width());
        softmax_backward_in_place(rows, width, self.scale, y.data(), dout.data_mut()); // 1
        gradients.add(0, dout);
    }
}

fn reference(x: &Array, scale: f64) -> Array {
    let mut data = Vec::new();
    for row in (0..x.shape.rows()).map(|i| x.row(i)) {
        let top = row.iter().fold(f64::NEG_INFINITY, |top, x| top.max(scale * x));
        let powers: Vec<f64> = row.iter().map(|x| (scale * x - top).exp()).collect();
        let sum: f64 = powers.iter().sum();
        data.extend(powers.iter().map(|power| power / sum));
    }
    Array::new(x.shape, data)
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 1e-6,
        backward: 1e-6,
        reason: "the exponent c·x − m, up to about 8, is off by 5e-7, and so is e to it",
    };
    let case = |name, x: Tensor, scale: f32, torch| {
        let forward = move |v: &[Var]| softmax(v[0].clone(), scale);
        let reference = move |a: &[Array]| reference(&a[0], f64::from(scale));
        Case::new("softmax", name, tolerance, forward, reference).input("x", x).torch(torch)
    };
    let normal = |seed, shape: &[usize]| Rng::new(seed).normal(shape, 1.0);
    let mut hidden = normal(34, &[3, 8]);
    for at in [1, 5, 9, 10, 11, 12, 13, 14, 15] {
        hidden.data_mut()[at] = f32::NEG_INFINITY; // the second row sees one alone
    }
    vec![
        case("plain", normal(31, &[2, 3, 7]), 1.0, "x.softmax(-1)"),
        case("scaled", normal(32, &[5, 33]), 0.125, "(x * 0.125).softmax(-1)"),
        case("one", normal(33, &[4, 1]), 1.0, "x.softmax(-1)"),
        case("hidden", hidden, 1.0, "x.softmax(-1)"),
        case("sharp", normal(35, &[3, 65]), 2.0, "(x * 2).softmax(-1)"),
        case("many", normal(36, &[300, 70]), 1.0, "x.softmax(-1)"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::no_grad;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    fn a_row_that_sees_nothing_is_zero_and_has_no_gradient() {
        let x = Var::leaf(Tensor::new([2, 2], &[f32::NEG_INFINITY, f32::NEG_INFINITY, 1.0, 1.0]));
        let y = softmax(x.clone(), 1.0);
        assert_eq!(y.value().data(), &[0.0, 0.0, 0.5, 0.5]);
        y.backward_with(Tensor::new([2, 2], &[1.0, 2.0, 3.0, 1.0]));
        assert_eq!(x.gradient().unwrap().data(), &[0.0, 0.0, 0.5, -0.5]);
    }

    #[test]
    fn nan_and_infinity_stay_in_their_row() {
        let x = Tensor::new([3, 2], &[f32::NAN, 0.0, f32::INFINITY, 0.0, 0.0, 0.0]);
        let y = softmax(Var::constant(x), 1.0);
        assert!(y.value().data()[..4].iter().all(|y| y.is_nan()));
        assert_eq!(y.value().data()[4..], [0.5, 0.5]);
    }

    #[test]
    fn large_numbers_do_not_overflow() {
        let y = softmax(Var::constant(Tensor::new([1, 2], &[3e38, -3e38])), 1.0);
        assert_eq!(y.value().data(), &[1.0, 0.0]);
    }

    #[test]
    fn an_unshared_operand_lends_its_memory() {
        let x = Var::leaf(Rng::new(1).normal([3, 5], 1.0));
        let address = x.value().data().as_ptr();
        assert_eq!(no_grad(|| softmax(x, 1.0)).value().data().as_ptr(), address);
    }

    #[test]
    fn nothing_gives_nothing() {
        for shape in [[0, 3], [3, 0]] {
            let x = Var::leaf(Tensor::zeros(shape));
            let y = softmax(x.clone(), 1.0);
            assert_eq!(y.shape(), x.shape());
            y.sum().backward();
            assert_eq!(x.gradient().unwrap().shape(), x.shape());
        }
    }
}
