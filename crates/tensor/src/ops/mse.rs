//! `out = (1/n) Σᵢ (xᵢ − yᵢ)²`, the mean squared error of `x` and a target `y` of the same shape.
//!
//! Derivation:
//! 1. `dxᵢ = dout · (2/n)(xᵢ − yᵢ)`
//! 2. `dyᵢ = −dxᵢ`
//!
//! Saves the difference.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::{Write, elementwise};

/// The mean of the squares of `x − target`, a scalar; NaN if they are empty.
pub fn mse(x: &Var, target: &Var) -> Var {
    assert_eq!(x.shape(), target.shape(), "{} predicted, {} wanted", x.shape(), target.shape());
    let mut difference = x.value().clone();
    elementwise::axpy(difference.data_mut(), -1.0, target.value().data());
    let mut squares = Tensor::unset(x.shape());
    elementwise::mul(difference.data(), difference.data(), squares.data_mut(), Write::Set);
    let mean = elementwise::sum(squares.data()) / x.shape().len() as f32;
    Var::from_op(Tensor::scalar(mean), &[x, target], || MseBackward {
        difference: Saved::new(&difference),
    })
}

struct MseBackward {
    difference: Saved,
}

impl Backward for MseBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let Self { difference } = *self;
        let factor = 2.0 * dout.item() / difference.shape().len() as f32;
        let mut scaled = difference.get();
        drop(difference); // so that its memory is the gradient's
        elementwise::scale(scaled.data_mut(), factor);
        if gradients.wanted(1) {
            let mut negative = scaled.clone();
            elementwise::scale(negative.data_mut(), -1.0);
            gradients.add(1, negative); // 2
        }
        gradients.add(0, scaled); // 1
    }
}

fn reference(inputs: &[Array]) -> Array {
    let squares = inputs[0].zip(&inputs[1], |x, y| (x - y) * (x - y));
    Array::scalar(squares.data.iter().sum::<f64>() / squares.data.len() as f64)
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 2e-7,
        backward: 2e-7,
        reason: "three roundings per element, and a sum of squares in f64",
    };
    let case = |name, shape: &[usize]| {
        Case::new("mse", name, tolerance, |v| mse(&v[0], &v[1]), reference)
            .normal("x", shape)
            .normal("y", shape)
            .torch("F.mse_loss(x, y)")
    };
    vec![case("small", &[3, 5]), case("one", &[1]), case("many", &[40, 333]), case("shared", &[40, 833])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    #[should_panic(expected = "(2, 3) predicted, (3, 2) wanted")]
    fn shapes_must_fit() {
        let constant = |shape: [usize; 2]| Var::constant(Tensor::zeros(shape));
        let _ = mse(&constant([2, 3]), &constant([3, 2]));
    }

    #[test]
    fn inputs_are_left_alone_and_odd_ones_are_defined() {
        let x = Var::leaf(Tensor::new([2], &[1.0, f32::INFINITY]));
        let y = Var::constant(Tensor::zeros([2]));
        let loss = mse(&x, &y);
        assert_eq!(loss.value().item(), f32::INFINITY);
        assert_eq!(x.value().data(), &[1.0, f32::INFINITY]);
        loss.backward();
        assert_eq!(x.gradient().unwrap().data(), &[1.0, f32::INFINITY]);
        let nothing = Var::constant(Tensor::zeros([0]));
        assert!(mse(&nothing, &nothing).value().item().is_nan());
    }
}
