//! The loss of predicting targets: `−ln softmax(z)ₜ` for logits z (…, V) and a target t per row.
//!
//! With `lse = ln Σⱼ eᶻʲ`, `p = e^(z − lse)`, smoothing ε and z-loss coefficient c, a row's loss is
//! `lse − (1 − ε)·zₜ − ε·mean(z) + c·lse²`, and the result is their mean or sum over the n rows
//! whose target is not [`IGNORED`]. From `∂lse/∂zⱼ = pⱼ`:
//! 1. `dzⱼ = dout/n · ((1 + 2c·lse)·pⱼ − (1 − ε)·[j = t] − ε/V)`, for a sum without 1/n;
//!    0 in an ignored row.
//!
//! Computed for dout = 1 during the forward, over the logits where nobody else holds them; that
//! is all it saves. A row of logits that is NaN or all −∞ makes the loss NaN; a target whose
//! logit is −∞ makes it +∞. Where logits come from a weight, [`head_cross_entropy`] does not
//! hold them at all.
//!
//! [`head_cross_entropy`]: crate::ops::head_cross_entropy

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var, is_recording};
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::cross_entropy as kernel;
use hearken_kernels::elementwise;

pub use hearken_kernels::cross_entropy::IGNORED;

/// What becomes of the losses of single rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reduction {
    /// Their mean over the rows that count; 0 if none does.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

/// How the loss departs from the plain mean cross-entropy, which is the default.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Options {
    /// ε: this share of a target's probability is spread evenly over the vocabulary.
    pub label_smoothing: f32,
    /// c: keeps ln Σ eᶻ near 0.
    pub z_loss: f32,
    /// Mean or sum.
    pub reduction: Reduction,
}

impl Options {
    /// What the kernel takes, and what the sum of the rows' losses is multiplied by.
    pub(crate) fn kernel(self, targets: &[u32]) -> (kernel::CrossEntropy, f32) {
        assert!(
            (0.0..=1.0).contains(&self.label_smoothing),
            "label smoothing lies in 0..=1, not {}",
            self.label_smoothing
        );
        let factor = match self.reduction {
            Reduction::Sum => 1.0,
            Reduction::Mean => {
                let count = targets.iter().filter(|&&t| t != IGNORED).count();
                1.0 / count.max(1) as f32
            }
        };
        let Self { label_smoothing, z_loss, .. } = self;
        (kernel::CrossEntropy { label_smoothing, z_loss, scale: factor }, factor)
    }
}

/// The loss of `logits` (…, V) against one target per row, a scalar. The memory of the logits is
/// reused if nobody else holds them.
pub fn cross_entropy(logits: Var, targets: &[u32], options: Options) -> Var {
    let shape = logits.shape();
    assert!(
        shape.rank() > 0 && shape.rows() == targets.len(),
        "logits of shape {shape} for targets of shape ({})",
        targets.len()
    );
    let (kernel_options, factor) = options.kernel(targets);
    let vocabulary = shape.width();
    let mut losses = Tensor::unset([targets.len()]);
    let wanted = is_recording() && logits.wants_gradient();
    let (mut dlogits, logits) = logits.into_parts();
    if wanted {
        let (gradient, losses) = (dlogits.data_mut(), losses.data_mut());
        kernel::cross_entropy_in_place(kernel_options, targets, vocabulary, gradient, losses);
    } else {
        let (values, losses) = (dlogits.data(), losses.data_mut());
        kernel::cross_entropy(kernel_options, targets, vocabulary, values, losses);
    }
    let loss = elementwise::sum(losses.data()) * factor;
    Var::from_op(Tensor::scalar(loss), &[&logits], || CrossEntropyBackward { dlogits })
}

struct CrossEntropyBackward {
    dlogits: Tensor, // for dout = 1
}

impl Backward for CrossEntropyBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let mut dlogits = self.dlogits;
        if dout.item() != 1.0 {
            elementwise::scale(dlogits.data_mut(), dout.item());
        }
        gradients.add(0, dlogits); // 1
    }
}

/// The naive loss of rows of logits.
pub(crate) fn reference(logits: &Array, targets: &[u32], options: Options) -> Array {
    let (epsilon, c) = (f64::from(options.label_smoothing), f64::from(options.z_loss));
    let (mut sum, mut count) = (0.0, 0.0);
    for (row, &target) in targets.iter().enumerate().filter(|(_, t)| **t != IGNORED) {
        let z = logits.row(row);
        let lse = z.iter().map(|z| z.exp()).sum::<f64>().ln();
        let mean = z.iter().sum::<f64>() / z.len() as f64;
        sum += lse - (1.0 - epsilon) * z[target as usize] - epsilon * mean + c * lse * lse;
        count += 1.0;
    }
    Array::scalar(match options.reduction {
        Reduction::Sum => sum,
        Reduction::Mean => sum / f64::max(count, 1.0),
    })
}

/// Targets for cases: spread over the vocabulary, every fourth ignored if so wanted.
pub(crate) fn case_targets(rows: usize, vocabulary: usize, ignore: bool) -> Vec<u32> {
    (0..rows)
        .map(|i| if ignore && i % 4 == 1 { IGNORED } else { (i * 7 + 3) as u32 % vocabulary as u32 })
        .collect()
}

/// Adds what the PyTorch expressions of the cases read.
pub(crate) fn case_extras(case: Case, targets: &[u32], options: Options) -> Case {
    let ids = |i: usize| if targets[i] == IGNORED { -100.0 } else { f64::from(targets[i]) };
    case.extra("targets", Array::build([targets.len()], ids))
        .extra("smoothing", Array::scalar(f64::from(options.label_smoothing)))
        .extra("c", Array::scalar(f64::from(options.z_loss)))
        .extra("mean", Array::scalar(f64::from(u8::from(options.reduction == Reduction::Mean))))
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 5e-7,
        backward: 5e-7,
        reason: "sums of up to 1,000 exponentials good to 1 ULP, in 16 lanes",
    };
    let case = |name, shape: &[usize], ignore: bool, options: Options| {
        let vocabulary = shape[shape.len() - 1];
        let targets = case_targets(shape.iter().product::<usize>() / vocabulary, vocabulary, ignore);
        let (own, own_too) = (targets.clone(), targets.clone());
        let case = Case::new(
            "cross_entropy",
            name,
            tolerance,
            move |v| cross_entropy(v[0].clone(), &own, options),
            move |a| reference(&a[0], &own_too, options),
        );
        case_extras(case.normal("z", shape), &targets, options).torch(TORCH)
    };
    let smoothed = Options { label_smoothing: 0.1, ..Options::default() };
    let with_z = Options { z_loss: 0.01, ..Options::default() };
    let all = Options { label_smoothing: 0.2, z_loss: 1e-3, reduction: Reduction::Sum };
    vec![
        case("plain", &[5, 7], false, Options::default()),
        case("ignored", &[9, 17], true, Options::default()),
        case("label_smoothing", &[5, 33], true, smoothed),
        case("z_loss", &[5, 33], true, with_z),
        case("everything_summed", &[2, 3, 9], true, all),
        case("large_vocabulary", &[6, 1000], false, all),
        case("shared", &[40, 1000], true, Options::default()),
    ]
}

const TORCH: &str = "
t = targets.long()
rows = z.reshape(-1, z.shape[-1])
lse = torch.logsumexp(rows, -1)[t >= 0]
out = F.cross_entropy(rows, t, label_smoothing=smoothing.item(), reduction='sum') + (c * lse ** 2).sum()
out = out / (t >= 0).sum() if mean.item() else out
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    #[should_panic(expected = "logits of shape (2, 4) for targets of shape (3)")]
    fn shapes_must_fit() {
        let logits = Var::constant(Tensor::zeros([2, 4]));
        let _ = cross_entropy(logits, &[0, 1, 2], Options::default());
    }

    #[test]
    #[should_panic(expected = "target 9 of row 1 is not in a vocabulary of 4")]
    fn targets_must_be_words() {
        let _ = cross_entropy(Var::constant(Tensor::zeros([2, 4])), &[0, 9], Options::default());
    }

    #[test]
    fn uniform_logits_cost_ln_v() {
        let loss = cross_entropy(Var::constant(Tensor::zeros([2, 8])), &[0, 7], Options::default());
        assert!((loss.value().item() - 8_f32.ln()).abs() < 1e-6);
        let certain = Var::leaf(Tensor::full([2, 1], 3.0)); // a vocabulary of one word
        let loss = cross_entropy(certain.clone(), &[0, 0], Options::default());
        loss.backward();
        assert_eq!(loss.value().item(), 0.0);
        assert_eq!(certain.gradient().unwrap().data(), &[0.0; 2]);
    }

    #[test]
    fn nothing_that_counts_costs_nothing_and_teaches_nothing() {
        for rows in [0, 2] {
            let logits = Var::leaf(Tensor::full([rows, 4], 1.0));
            let loss = cross_entropy(logits.clone(), &vec![IGNORED; rows], Options::default());
            assert_eq!(loss.value().item(), 0.0);
            loss.backward();
            assert!(logits.gradient().unwrap().data().iter().all(|&d| d == 0.0));
        }
    }

    #[test]
    fn logits_that_others_hold_are_left_alone() {
        let logits = Var::leaf(Tensor::full([1, 2], 1.0));
        let _ = cross_entropy(logits.clone(), &[0], Options::default());
        assert_eq!(logits.value().data(), &[1.0, 1.0]);
    }

    #[test]
    fn hidden_and_not_finite_logits_are_defined() {
        let loss = |z: [f32; 3], target| {
            let z = Var::leaf(Tensor::new([1, 3], &z));
            let loss = cross_entropy(z.clone(), &[target], Options::default());
            loss.backward();
            (loss.value().item(), z.gradient().unwrap().data().to_vec())
        };
        let hidden = f32::NEG_INFINITY;
        let (value, gradient) = loss([0.0, 0.0, hidden], 0);
        assert!((value - 2_f32.ln()).abs() < 1e-6);
        assert_eq!(gradient, [-0.5, 0.5, 0.0]);
        assert_eq!(loss([0.0, 0.0, hidden], 2).0, f32::INFINITY);
        assert!(loss([f32::NAN, 0.0, 0.0], 1).0.is_nan());
        assert!(loss([hidden; 3], 1).0.is_nan());
    }
}
