//! `out = c · x` for a constant number `c`.
//!
//! Derivation: `∂outᵢ/∂xᵢ = c`, so
//! 1. `dx = c · dout`
//!
//! Saves `c`.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::tensor::Tensor;
use hearken_kernels::elementwise;

/// `c · x`. The memory of `x` is reused if nobody else holds it.
pub fn scale(x: Var, c: f32) -> Var {
    let (mut out, x) = x.into_parts();
    elementwise::scale(out.data_mut(), c);
    Var::from_op(out, &[&x], || ScaleBackward { c })
}

struct ScaleBackward {
    c: f32,
}

impl Backward for ScaleBackward {
    fn backward(self: Box<Self>, mut dout: Tensor, gradients: &mut Gradients<'_>) {
        elementwise::scale(dout.data_mut(), self.c); // 1
        gradients.add(0, dout);
    }
}

impl std::ops::Mul<f32> for Var {
    type Output = Var;
    fn mul(self, c: f32) -> Var {
        scale(self, c)
    }
}
impl std::ops::Mul<f32> for &Var {
    type Output = Var;
    fn mul(self, c: f32) -> Var {
        scale(self.clone(), c)
    }
}
impl std::ops::Neg for Var {
    type Output = Var;
    fn neg(self) -> Var {
        scale(self, -1.0)
    }
}
impl std::ops::Neg for &Var {
    type Output = Var;
    fn neg(self) -> Var {
        scale(self.clone(), -1.0)
    }
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance { forward: 1e-7, backward: 1e-7, reason: "one rounding" };
    let by = |name, shape: &[usize]| {
        let reference = |a: &[crate::reference::Array]| a[0].map(|x| x * 0.375);
        Case::new("scale", name, tolerance, |v| &v[0] * 0.375, reference)
            .normal("x", shape)
            .torch("x * 0.375")
    };
    let negated = Case::new("scale", "negated", tolerance, |v| -&v[0], |a| a[0].map(|x| -x))
        .normal("x", [3, 5])
        .torch("-x");
    vec![by("small", &[3, 7]), by("many", &[70, 333]), negated]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    fn an_unshared_operand_lends_its_memory_and_a_shared_one_stays() {
        let x = Var::constant(Tensor::new([2], &[1.0, 2.0]));
        let address = x.value().data().as_ptr();
        let held = x.clone();
        let doubled = x * 2.0;
        assert_eq!(held.value().data(), &[1.0, 2.0]);
        assert_eq!((held * 3.0).value().data().as_ptr(), address);
        assert_eq!(doubled.value().data(), &[2.0, 4.0]);
    }

    #[test]
    fn zero_times_infinity_is_nan() {
        let x = Var::constant(Tensor::new([2], &[f32::INFINITY, 1.0]));
        let out = x * 0.0;
        assert!(out.value().data()[0].is_nan());
        assert_eq!(out.value().data()[1], 0.0);
    }
}
