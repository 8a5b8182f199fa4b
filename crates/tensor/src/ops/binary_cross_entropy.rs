//! The loss of deciding every label by itself: for a logit z, a target y from 0 to 1 and a weight w,
//! `w · (−y·ln σ(z) − (1 − y)·ln(1 − σ(z)))`, summed over all elements, with σ(z) = 1/(1 + e⁻ᶻ).
//!
//! From −ln σ(z) = ln(1 + e⁻ᶻ) and −ln(1 − σ(z)) = z + ln(1 + e⁻ᶻ), an element's loss is
//! `w · (max(z, 0) − y·z + ln(1 + e^(−|z|)))`, in which no exponential overflows. Since
//! ∂ln(1 + eᶻ)/∂z = σ(z):
//! 1. `dzᵢ = dout · wᵢ·(σ(zᵢ) − yᵢ)`
//!
//! Saves dz for dout = 1. A NaN among the logits makes the loss NaN. There are as many elements as a
//! batch has labels, so that a plain loop on one thread, in f64, is fast enough.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::elementwise;

/// The sum of the losses of `logits` against `targets`, a scalar; each weighted by its number in
/// `weights`, if there are some. Both have a number for every logit.
pub fn binary_cross_entropy(logits: &Var, targets: &[f32], weights: Option<&[f32]>) -> Var {
    let shape = logits.shape();
    let fits = targets.len() == shape.len() && weights.is_none_or(|w| w.len() == shape.len());
    assert!(
        fits,
        "logits of shape {shape} for {} targets and {:?} weights",
        targets.len(),
        weights.map(<[f32]>::len)
    );
    let weight = |i: usize| weights.map_or(1.0, |weights| f64::from(weights[i]));
    let pairs = || logits.value().data().iter().zip(targets).enumerate();
    let loss: f64 = pairs()
        .map(|(i, (&z, &y))| {
            let (z, y) = (f64::from(z), f64::from(y));
            // max() would hide a NaN.
            let positive = if z < 0.0 { 0.0 } else { z };
            weight(i) * (positive - y * z + (-z.abs()).exp().ln_1p())
        })
        .sum();
    Var::from_op(Tensor::scalar(loss as f32), &[logits], || {
        let slope = |(i, (&z, &y)): (usize, (&f32, &f32))| {
            let sigmoid = 1.0 / (1.0 + (-f64::from(z)).exp());
            (weight(i) * (sigmoid - f64::from(y))) as f32
        };
        let slopes: Vec<f32> = pairs().map(slope).collect();
        BinaryCrossEntropyBackward { dlogits: Tensor::new(shape, &slopes) }
    })
}

struct BinaryCrossEntropyBackward {
    dlogits: Tensor, // for dout = 1
}

impl Backward for BinaryCrossEntropyBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let mut dlogits = self.dlogits;
        elementwise::scale(dlogits.data_mut(), dout.item());
        gradients.add(0, dlogits); // 1
    }
}

fn reference(logits: &Array, targets: &[f32], weights: Option<&[f32]>) -> Array {
    let loss = |(i, z): (usize, &f64)| {
        let (sigmoid, y) = (1.0 / (1.0 + (-z).exp()), f64::from(targets[i]));
        let weight = weights.map_or(1.0, |weights| f64::from(weights[i]));
        -weight * (y * sigmoid.ln() + (1.0 - y) * (1.0 - sigmoid).ln())
    };
    Array::scalar(logits.data.iter().enumerate().map(loss).sum())
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 2e-7,
        backward: 2e-7,
        reason: "computed in f64 and rounded once, the gradient twice",
    };
    let case = |name, shape: [usize; 2], weighted: bool, torch| {
        let count = shape[0] * shape[1];
        let targets: Vec<f32> = (0..count).map(|i| [0.0, 1.0, 1.0, 0.25][i * 5 % 4]).collect();
        let weights: Vec<f32> = (0..count).map(|i| (i % 7) as f32 * 0.5).collect();
        let extra = |numbers: &[f32]| Array::build(shape, |i| f64::from(numbers[i]));
        let (y, w) = (extra(&targets), extra(&weights));
        let (own, own_weights) = (targets.clone(), weights.clone());
        let forward = move |v: &[Var]| {
            binary_cross_entropy(&v[0], &own, weighted.then_some(&own_weights[..]))
        };
        let reference =
            move |a: &[Array]| reference(&a[0], &targets, weighted.then_some(&weights[..]));
        let case = Case::new("binary_cross_entropy", name, tolerance, forward, reference);
        case.normal("z", shape).extra("y", y).extra("w", w).torch(torch)
    };
    let plain = "F.binary_cross_entropy_with_logits(z, y, reduction='sum')";
    let weighted = "F.binary_cross_entropy_with_logits(z, y, weight=w, reduction='sum')";
    vec![
        case("plain", [5, 3], false, plain),
        case("weighted", [7, 9], true, weighted),
        case("one", [1, 1], false, plain),
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
    fn large_logits_neither_overflow_nor_hide_a_nan() {
        let z = Var::leaf(Tensor::new([4], &[1e30, -1e30, 100.0, -100.0]));
        let loss = binary_cross_entropy(&z, &[1.0, 0.0, 1.0, 1.0], None);
        assert_eq!(loss.value().item(), 100.0);
        loss.backward();
        assert_eq!(z.gradient().unwrap().data(), &[0.0, 0.0, 0.0, -1.0]);
        let z = Var::constant(Tensor::new([1], &[f32::NAN]));
        assert!(binary_cross_entropy(&z, &[0.0], None).value().item().is_nan());
    }

    #[test]
    #[should_panic(expected = "logits of shape (2, 3) for 5 targets and None weights")]
    fn shapes_must_fit() {
        let z = Var::constant(Tensor::zeros([2, 3]));
        let _ = binary_cross_entropy(&z, &[0.0; 5], None);
    }

    #[test]
    fn the_loss_of_nothing_is_zero() {
        let z = Var::constant(Tensor::zeros([0, 3]));
        assert_eq!(binary_cross_entropy(&z, &[], None).value().item(), 0.0);
    }
}
