//! Rows of tokens that are made from a seed, as a task: which tokens, and which of them are to be
//! predicted, is all that a study says.

use hearken_base::Result;
use hearken_nn::models::{Model, PredictsTokens, Tokens};
use hearken_nn::pass::{Noise, Pass};
use hearken_tensor::ops::cross_entropy::{IGNORED, Options};
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, no_grad};
use hearken_train::{MicroLoss, Moment, Task};
use std::ops::RangeInclusive;

/// Rows of equal length with their targets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// (B, T)
    pub inputs: Vec<u32>,
    /// (B, T): the token to be predicted at each place, or [`IGNORED`].
    pub targets: Vec<u32>,
    /// B
    pub rows: usize,
}

impl Rows {
    /// Adds a row, of the length of those that are there.
    pub fn push(&mut self, inputs: &[u32], targets: &[u32]) {
        assert_eq!(inputs.len(), targets.len(), "inputs and targets of a row");
        assert!(
            self.rows == 0 || self.inputs.len() == self.rows * inputs.len(),
            "a row of {} tokens beside others of {}",
            inputs.len(),
            self.inputs.len() / self.rows.max(1)
        );
        self.inputs.extend_from_slice(inputs);
        self.targets.extend_from_slice(targets);
        self.rows += 1;
    }

    /// The tokens as models read them.
    pub fn tokens(&self) -> Tokens<'_> {
        Tokens::new(&self.inputs, self.rows)
    }
}

/// The share of the steps in which [`growing`] reaches its end.
pub const CURRICULUM: f64 = 0.6;

/// A length for a step of training, out of `range`: easy rows first. The longest that may come grows with
/// the square of the steps, so that what is learned at short distances is learned on short rows, until it
/// is the end of the range.
pub fn growing(at: Moment, steps: u64, range: RangeInclusive<usize>, rng: &mut Rng) -> usize {
    let (shortest, most) = range.into_inner();
    let share = at.step as f64 / (CURRICULUM * steps as f64);
    let limit = shortest + (share.min(1.0).powi(2) * (most - shortest) as f64) as usize;
    shortest + rng.below(limit - shortest + 1)
}

/// A model that learns rows which `make` makes for every step.
pub struct RowTask<F> {
    model: Box<dyn Model>,
    make: F,
    options: Options,
}

impl<F: Fn(Moment) -> Rows + Sync> RowTask<F> {
    /// Panics if the model does not predict tokens.
    pub fn new(model: Box<dyn Model>, make: F) -> Self {
        assert!(model.predicts_tokens().is_some(), "{:?} predicts no tokens", model.config());
        Self { model, make, options: Options::default() }
    }

    /// The model.
    pub fn model(&self) -> &dyn PredictsTokens {
        self.model.predicts_tokens().expect("checked when it was made")
    }
}

impl<F: Fn(Moment) -> Rows + Sync> Task for RowTask<F> {
    fn parameters(&self) -> Vec<Param> {
        self.model.parameters().to_vec()
    }

    fn loss(&self, at: Moment) -> Result<MicroLoss> {
        let rows = (self.make)(at);
        let pass = Pass::train(Noise { seed: at.seed, step: at.counter() });
        let loss = self.model().loss(&rows.tokens(), &rows.targets, &pass, self.options);
        Ok(MicroLoss::new(loss.sum, loss.weight, rows.inputs.len()))
    }
}

/// What a model is judged by on rows: how often its likeliest token is the target, and the mean loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// Right targets over all targets.
    pub accuracy: f64,
    /// The mean of −ln p of the targets.
    pub loss: f64,
}

/// Judges a model on rows, a few at a time. Panics if there is no target.
pub fn judge(model: &dyn PredictsTokens, rows: &Rows) -> Judged {
    let length = rows.inputs.len() / rows.rows.max(1);
    let each = (2048 / length.max(1)).max(1);
    let (mut right, mut count, mut loss) = (0_usize, 0_usize, 0.0);
    for first in (0..rows.rows).step_by(each) {
        let at = first * length..(first + each).min(rows.rows) * length;
        let (inputs, targets) = (&rows.inputs[at.clone()], &rows.targets[at]);
        let tokens = Tokens::new(inputs, inputs.len() / length);
        let logits = no_grad(|| model.logits_with(&tokens, &Pass::evaluate()).into_value()); // (B, T, V)
        let width = logits.shape().width();
        for (row, target) in logits.data().chunks(width).zip(targets) {
            if *target == IGNORED {
                continue;
            }
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let best = row.iter().position(|x| *x == most);
            right += usize::from(best == Some(*target as usize));
            let sum: f64 = row.iter().map(|x| f64::from(x - most).exp()).sum();
            loss += sum.ln() - f64::from(row[*target as usize] - most);
            count += 1;
        }
    }
    assert!(count > 0, "rows without a target");
    Judged { accuracy: right as f64 / count as f64, loss: loss / count as f64 }
}
