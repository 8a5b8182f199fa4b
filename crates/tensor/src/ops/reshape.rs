//! `out = x`, read in another shape of as many numbers.
//!
//! Every element of `x` is in `out` once, in the same order, so
//! 1. `dx` is `dout`, read in the shape of `x`.
//!
//! Saves nothing but the shape; no number is moved.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::reference::Array;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// `x` in another shape.
pub fn reshape(x: Var, shape: impl Into<Shape>) -> Var {
    let before = x.shape();
    let (value, x) = x.into_parts();
    Var::from_op(value.reshape(shape), &[&x], || ReshapeBackward { before })
}

struct ReshapeBackward {
    before: Shape,
}

impl Backward for ReshapeBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        gradients.add(0, dout.reshape(self.before)); // 1
    }
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance { forward: 0.0, backward: 1e-9, reason: "no number is changed" };
    let case = |name, from: &[usize], to: &'static [usize], torch| {
        let forward = move |v: &[Var]| reshape(v[0].clone(), Shape::new(to));
        let reference = move |a: &[Array]| Array::new(Shape::new(to), a[0].data.clone());
        Case::new("reshape", name, tolerance, forward, reference).normal("x", from).torch(torch)
    };
    vec![
        case("heads", &[2, 3, 8], &[2, 3, 4, 2], "x.reshape(2, 3, 4, 2)"),
        case("flat", &[5, 7], &[35], "x.flatten()"),
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
    #[should_panic(expected = "cannot read (2, 3) as (7)")]
    fn the_length_is_kept() {
        let _ = reshape(Var::constant(Tensor::zeros([2, 3])), [7]);
    }

    #[test]
    fn numbers_stay_where_they_are() {
        let x = Var::leaf(Tensor::zeros([2, 3]));
        let address = x.value().data().as_ptr();
        assert_eq!(reshape(x, [6]).value().data().as_ptr(), address);
    }
}
