//! `out = x · m`, where `m` is 0 with probability p and 1/(1 − p) otherwise, so that the mean of
//! `out` is `x` (Srivastava et al. 2014; scaled while training, as everyone does since).
//!
//! Derivation: `∂outᵢ/∂xᵢ = mᵢ`, so
//! 1. `dx = dout · m`
//!
//! Saves nothing: `mᵢ` is a function of the key and of i alone, and is computed again.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::reference::Array;
use crate::rng::Key;
use crate::tensor::Tensor;
use hearken_kernels::random::{self, Dropout};

/// `x` with a share `p` of its elements dropped, which ones decided by `key`. With p = 0 it is `x`
/// itself, with p = 1 zeros. The memory of `x` is reused if nobody else holds it. A dropped NaN
/// or infinity is a NaN, as in PyTorch.
pub fn dropout(x: Var, p: f32, key: Key) -> Var {
    let dropout = Dropout::new(key.words(), p);
    if p == 0.0 {
        return x;
    }
    let (mut out, x) = x.into_parts();
    random::dropout_in_place(dropout, 0, out.data_mut());
    Var::from_op(out, &[&x], || DropoutBackward { dropout })
}

struct DropoutBackward {
    dropout: Dropout,
}

impl Backward for DropoutBackward {
    fn backward(self: Box<Self>, mut dout: Tensor, gradients: &mut Gradients<'_>) {
        random::dropout_in_place(self.dropout, 0, dout.data_mut()); // 1
        gradients.add(0, dout);
    }
}

const KEY: Key = Key { seed: 1, step: 2, site: 3 };

/// The multipliers of `len` elements.
fn mask(p: f32, len: usize) -> Array {
    let dropout = Dropout::new(KEY.words(), p);
    Array::build([len], |i| f64::from(dropout.factor(i as u64)))
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance { forward: 1e-7, backward: 1e-7, reason: "one rounding" };
    let case = |name, p: f32, shape: &[usize]| {
        let len = shape.iter().product();
        let forward = move |v: &[Var]| dropout(v[0].clone(), p, KEY);
        let reference = move |a: &[Array]| {
            let mask = mask(p, len);
            Array::build(a[0].shape, |i| a[0].data[i] * mask.data[i])
        };
        Case::new("dropout", name, tolerance, forward, reference)
            .normal("x", shape)
            .extra("mask", mask(p, len))
            .torch("x * mask.view(x.shape)")
    };
    vec![
        case("tenth", 0.1, &[3, 41]),
        case("half_of_many", 0.5, &[67, 501]),
        case("none", 0.0, &[5]),
        case("all", 1.0, &[5, 4]),
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
    fn the_share_and_the_mean_are_kept() {
        const N: usize = 100_000;
        let x = Var::constant(Tensor::full([N], 1.0));
        for p in [0.1, 0.5, 0.9_f32] {
            let out = dropout(x.clone(), p, KEY).into_value();
            let dropped = out.data().iter().filter(|&&x| x == 0.0).count() as f64 / N as f64;
            // Four standard errors of a share.
            let bound = 4.0 * (f64::from(p * (1.0 - p)) / N as f64).sqrt();
            assert!((dropped - f64::from(p)).abs() < bound, "{p}: {dropped}");
            let kept = 1.0 / (1.0 - p);
            assert!(out.data().iter().all(|&x| x == 0.0 || x == kept));
        }
    }

    #[test]
    fn steps_and_sites_drop_different_elements_and_equal_keys_the_same() {
        let run = |key| dropout(Var::constant(Tensor::full([64], 1.0)), 0.5, key).into_value();
        assert_eq!(run(KEY).data(), run(KEY).data());
        assert_ne!(run(KEY).data(), run(Key { step: 3, ..KEY }).data());
        assert_ne!(run(KEY).data(), run(Key { site: 4, ..KEY }).data());
    }

    #[test]
    fn nothing_dropped_is_no_node_and_no_copy() {
        let x = Var::leaf(Tensor::full([3], 1.0));
        let out = dropout(x.clone(), 0.0, KEY);
        assert_eq!(out.value().data().as_ptr(), x.value().data().as_ptr());
        out.sum().backward();
        assert_eq!(x.gradient().unwrap().data(), &[1.0; 3]);
    }

    #[test]
    fn empty_and_not_finite_inputs_are_defined() {
        assert_eq!(dropout(Var::constant(Tensor::zeros([0])), 0.5, KEY).shape().len(), 0);
        let odd = Tensor::new([2], &[f32::NAN, f32::INFINITY]);
        let all = dropout(Var::constant(odd), 1.0, KEY).into_value();
        assert!(all.data().iter().all(|x| x.is_nan()));
    }

    #[test]
    #[should_panic(expected = "a dropout probability lies in 0..=1, not 1.5")]
    fn the_probability_must_be_one() {
        let _ = dropout(Var::constant(Tensor::zeros([1])), 1.5, KEY);
    }
}
