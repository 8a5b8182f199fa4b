//! `out = a − b`, element by element, shapes equal.
//!
//! Derivation: `∂outᵢ/∂aᵢ = 1` and `∂outᵢ/∂bᵢ = −1`, so
//! 1. `da = dout`
//! 2. `db = −dout`
//!
//! Saves nothing.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::tensor::Tensor;
use hearken_kernels::elementwise;

/// `a − b`. The memory of `a` is reused if nobody else holds it.
pub fn sub(a: Var, b: &Var) -> Var {
    assert_eq!(a.shape(), b.shape(), "cannot subtract {} from {}", b.shape(), a.shape());
    let (mut out, a) = a.into_parts();
    elementwise::axpy(out.data_mut(), -1.0, b.value().data());
    Var::from_op(out, &[&a, b], || SubBackward)
}

struct SubBackward;

impl Backward for SubBackward {
    fn backward(self: Box<Self>, mut dout: Tensor, gradients: &mut Gradients<'_>) {
        gradients.add(0, dout.clone()); // 1
        if gradients.wanted(1) {
            elementwise::scale(dout.data_mut(), -1.0);
            gradients.add(1, dout); // 2
        }
    }
}

impl std::ops::Sub<&Var> for Var {
    type Output = Var;
    fn sub(self, b: &Var) -> Var {
        sub(self, b)
    }
}
impl std::ops::Sub<Var> for Var {
    type Output = Var;
    fn sub(self, b: Var) -> Var {
        sub(self, &b)
    }
}
impl std::ops::Sub<&Var> for &Var {
    type Output = Var;
    fn sub(self, b: &Var) -> Var {
        sub(self.clone(), b)
    }
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance { forward: 1e-7, backward: 1e-7, reason: "one rounding" };
    let case = |name, shape: &[usize]| {
        Case::new("sub", name, tolerance, |v| &v[0] - &v[1], |a| a[0].zip(&a[1], |a, b| a - b))
            .normal("a", shape)
            .normal("b", shape)
            .torch("a - b")
    };
    vec![case("small", &[3, 7]), case("many", &[70, 333])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    #[should_panic(expected = "cannot subtract (3) from (2)")]
    fn shapes_must_fit() {
        let _ = Var::constant(Tensor::zeros([2])) - &Var::constant(Tensor::zeros([3]));
    }

    #[test]
    fn a_value_minus_itself_has_no_gradient() {
        let x = Var::leaf(Tensor::new([2], &[3.0, 4.0]));
        (&x - &x).sum().backward();
        assert_eq!(x.gradient().unwrap().data(), &[0.0; 2]);
    }

    #[test]
    fn an_unshared_operand_lends_its_memory() {
        let a = Var::constant(Tensor::new([2], &[1.0, 2.0]));
        let address = a.value().data().as_ptr();
        let out = a - &Var::constant(Tensor::new([2], &[3.0, 5.0]));
        assert_eq!(out.value().data(), &[-2.0, -3.0]);
        assert_eq!(out.value().data().as_ptr(), address);
    }
}
