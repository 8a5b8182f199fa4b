//! `out = a + b`, shapes equal, or `b` added to every row of `a` (a bias).
//!
//! Derivation: `∂outᵢ/∂aᵢ = ∂outᵢ/∂bᵢ = 1`, so
//! 1. `da = dout`
//! 2. `db = dout`, summed over the rows where `b` was broadcast.
//!
//! Saves nothing.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::elementwise;

/// `a + b`. The memory of `a` is reused if nobody else holds it.
pub fn add(a: Var, b: &Var) -> Var {
    let broadcast = b.shape() != a.shape();
    assert!(
        !broadcast || (b.shape().rank() == 1 && b.shape().width() == a.shape().width()),
        "cannot add {} to {}",
        b.shape(),
        a.shape()
    );
    let (mut out, a) = a.into_parts();
    if broadcast {
        elementwise::add_rows(out.data_mut(), b.value().data());
    } else {
        elementwise::add_assign(out.data_mut(), b.value().data());
    }
    Var::from_op(out, &[&a, b], || AddBackward { broadcast })
}

struct AddBackward {
    broadcast: bool,
}

impl Backward for AddBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        if self.broadcast {
            gradients.write(1, |db, write| elementwise::column_sums(dout.data(), db, write)); // 2
        } else {
            gradients.add(1, dout.clone()); // 2
        }
        gradients.add(0, dout); // 1
    }
}

impl std::ops::Add<&Var> for Var {
    type Output = Var;
    fn add(self, b: &Var) -> Var {
        add(self, b)
    }
}
impl std::ops::Add<Var> for Var {
    type Output = Var;
    fn add(self, b: Var) -> Var {
        add(self, &b)
    }
}
impl std::ops::Add<&Var> for &Var {
    type Output = Var;
    fn add(self, b: &Var) -> Var {
        add(self.clone(), b)
    }
}
impl std::ops::Add<Var> for &Var {
    type Output = Var;
    /// Reuses the memory of `b`: addition commutes, to the bit.
    fn add(self, b: Var) -> Var {
        if self.shape() == b.shape() { add(b, self) } else { add(self.clone(), &b) }
    }
}

fn reference(inputs: &[Array]) -> Array {
    let (a, b) = (&inputs[0], &inputs[1]);
    Array::build(a.shape, |i| a.data[i] + b.data[i % b.data.len()])
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 1e-7,
        backward: 1e-6,
        reason: "one rounding; the bias gradient is a sum of 7 or 600 terms",
    };
    let case = |name, a: &[usize], b: &[usize]| {
        Case::new("add", name, tolerance, |v| &v[0] + &v[1], reference)
            .normal("a", a)
            .normal("b", b)
            .torch("a + b")
    };
    vec![
        case("same_shape", &[2, 3, 5], &[2, 3, 5]),
        case("bias", &[7, 17], &[17]),
        case("bias_many_rows", &[600, 33], &[33]),
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
    #[should_panic(expected = "cannot add (3) to (2, 4)")]
    fn shapes_must_fit() {
        let _ = Var::constant(Tensor::zeros([2, 4])) + &Var::constant(Tensor::zeros([3]));
    }

    #[test]
    fn an_unshared_operand_lends_its_memory() {
        let a = Var::constant(Tensor::new([2], &[1.0, 2.0]));
        let b = Var::constant(Tensor::new([2], &[3.0, 4.0]));
        let address = a.value().data().as_ptr();
        let sum = a + &b;
        assert_eq!(sum.value().data(), &[4.0, 6.0]);
        assert_eq!(sum.value().data().as_ptr(), address);
    }
}
