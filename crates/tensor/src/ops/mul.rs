//! `out = a · b`, element by element, shapes equal.
//!
//! Derivation: `∂outᵢ/∂aᵢ = bᵢ` and the other way round, so
//! 1. `da = dout · b`
//! 2. `db = dout · a`
//!
//! Saves both factors.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::tensor::Tensor;
use hearken_kernels::{Write, elementwise};

/// `a · b`
pub fn mul(a: &Var, b: &Var) -> Var {
    assert_eq!(a.shape(), b.shape(), "cannot multiply {} by {}", a.shape(), b.shape());
    let mut out = Tensor::unset(a.shape());
    elementwise::mul(a.value().data(), b.value().data(), out.data_mut(), Write::Set);
    Var::from_op(out, &[a, b], || MulBackward {
        a: Saved::new(a.value()),
        b: Saved::new(b.value()),
    })
}

struct MulBackward {
    a: Saved,
    b: Saved,
}

impl Backward for MulBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        for (input, factor) in [(0, &self.b), (1, &self.a)] {
            gradients.write(input, |d, write| {
                elementwise::mul(dout.data(), factor.get().data(), d, write); // 1, 2
            });
        }
    }
}

impl std::ops::Mul<&Var> for &Var {
    type Output = Var;
    fn mul(self, b: &Var) -> Var {
        mul(self, b)
    }
}
impl std::ops::Mul<&Var> for Var {
    type Output = Var;
    fn mul(self, b: &Var) -> Var {
        mul(&self, b)
    }
}
impl std::ops::Mul<Var> for Var {
    type Output = Var;
    fn mul(self, b: Var) -> Var {
        mul(&self, &b)
    }
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance { forward: 1e-7, backward: 1e-7, reason: "one rounding" };
    let case = |name, shape: &[usize]| {
        Case::new("mul", name, tolerance, |v| &v[0] * &v[1], |a| a[0].zip(&a[1], |a, b| a * b))
            .normal("a", shape)
            .normal("b", shape)
            .torch("a * b")
    };
    vec![case("small", &[3, 7]), case("many", &[9, 333]), case("shared", &[9, 3333])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    #[should_panic(expected = "cannot multiply (2) by (3)")]
    fn shapes_must_fit() {
        let _ = mul(&Var::constant(Tensor::zeros([2])), &Var::constant(Tensor::zeros([3])));
    }
}
