//! The output head: from hidden states to logits, or straight to the loss, without ever holding all
//! logits.

use crate::pass::Pass;
use crate::taps::Place;
use hearken_tensor::half::Weight;
use hearken_tensor::ops::cross_entropy::{IGNORED, Options, Reduction, cross_entropy};
use hearken_tensor::ops::head_cross_entropy::{head_cross_entropy, last_logits, token_losses};
use hearken_tensor::{Tensor, Var, ops};

/// The loss of a batch, as a sum and what it is the sum of: micro-batches that count different
/// numbers of targets add up to the loss of the whole batch.
#[derive(Clone)]
pub struct Loss {
    /// The sum of the losses of all targets that count, a scalar.
    pub sum: Var,
    /// How many targets count.
    pub weight: f64,
}

impl Loss {
    /// The loss that `compute` gives for a pass; in training, with the losses of layers themselves.
    /// These are means over the tokens of this micro-batch, so they count as often as its targets: the
    /// step, which divides by the weight of all micro-batches, has their mean.
    pub fn with_auxiliary(pass: &Pass, compute: impl FnOnce(&Pass) -> Self) -> Self {
        if !pass.is_training() {
            return compute(pass);
        }
        let (pass, auxiliary) = pass.collecting();
        let Self { sum, weight } = compute(&pass);
        match auxiliary.take() {
            Some(loss) => Self { sum: sum + ops::scale::scale(loss, weight as f32), weight },
            None => Self { sum, weight },
        }
    }

    /// The mean over the targets that count; 0 if none does.
    pub fn mean(&self) -> Var {
        ops::scale::scale(self.sum.clone(), (1.0 / self.weight.max(1.0)) as f32)
    }
}

/// A weight that is read as logits = x·Wᵀ + b.
#[derive(Clone)]
pub struct Head {
    /// (V, C)
    weight: Weight,
    /// (V)
    bias: Option<Var>,
}

impl Head {
    /// Of a linear layer, or of a table.
    pub(super) fn new(weight: Weight, bias: Option<Var>) -> Self {
        Self { weight, bias }
    }

    /// The same weight with this bias.
    pub(crate) fn with_bias(self, bias: Option<Var>) -> Self {
        Self { bias, ..self }
    }

    fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref().map(Var::value)
    }

    /// The loss of predicting `targets`, one per row of `hidden` (…, C).
    pub fn loss(&self, hidden: &Var, targets: &[u32], options: Options, pass: &Pass) -> Loss {
        let options = Options { reduction: Reduction::Sum, ..options };
        let sum = if pass.wants(&Place::ROOT, &["logits"]) {
            cross_entropy(self.logits(hidden, pass), targets, options)
        } else {
            head_cross_entropy(hidden, &self.weight, self.bias.as_ref(), targets, options)
        };
        let weight = targets.iter().filter(|target| **target != IGNORED).count() as f64;
        Loss { sum, weight }
    }

    /// The loss of every target by itself (N), without gradients; 0 where it is ignored.
    pub fn token_losses(&self, hidden: &Tensor, targets: &[u32]) -> Tensor {
        token_losses(hidden, &self.weight, self.bias(), targets)
    }

    /// All logits, (…, V).
    pub fn logits(&self, hidden: &Var, pass: &Pass) -> Var {
        let logits = ops::linear::linear(hidden, &self.weight, self.bias.as_ref());
        pass.tap(&Place::ROOT, "logits", logits)
    }

    /// The logits after the last token of each sequence of `hidden` (B, T, C): (B, V).
    pub fn last_logits(&self, hidden: &Tensor) -> Tensor {
        last_logits(hidden, &self.weight, self.bias())
    }
}
