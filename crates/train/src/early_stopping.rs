//! The best validation loss so far, and when to give up on a better one.

use crate::error::Error;
use crate::task::Evaluation;
use serde::{Deserialize, Serialize};

/// The `early_stopping` table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlyStoppingConfig {
    /// Stop after this many evaluations in a row without improvement.
    pub patience: u32,
    /// By how much the loss must fall to count.
    #[serde(default)]
    pub least_improvement: f64,
}

impl EarlyStoppingConfig {
    /// What the types alone do not rule out.
    pub fn validate(&self) -> Result<(), Error> {
        if self.patience == 0 {
            return Err(Error::config(
                "train.early_stopping.patience is 0, expected at least 1",
                "leave the table away to train all steps",
            ));
        }
        if !(self.least_improvement >= 0.0 && self.least_improvement.is_finite()) {
            return Err(Error::config(
                format!(
                    "train.early_stopping.least_improvement is {}, expected 0 or more",
                    self.least_improvement
                ),
                "0.001 nats is a small improvement",
            ));
        }
        Ok(())
    }
}

/// The evaluation with the lowest loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// When.
    pub step: u64,
    /// How low.
    pub val_loss: f64,
    /// How low on the sample that all evaluations look at, if `val_loss` is not of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_loss: Option<f64>,
    /// Is `val_loss` of the whole validation set?
    #[serde(default = "before_there_were_samples")]
    pub whole: bool,
}

fn before_there_were_samples() -> bool {
    true
}

impl Best {
    fn of(step: u64, evaluation: &Evaluation) -> Self {
        let Evaluation { loss, sample_loss, whole, .. } = *evaluation;
        let sample_loss = (sample_loss != loss).then_some(sample_loss);
        Self { step, val_loss: loss, sample_loss, whole }
    }

    /// What other evaluations are compared with.
    fn compared(&self) -> f64 {
        self.sample_loss.unwrap_or(self.val_loss)
    }
}

/// What evaluations have shown so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluations {
    /// The lowest.
    pub best: Option<Best>,
    /// The loss that an improvement is measured against.
    pub reference: Option<f64>,
    /// Evaluations since the last improvement that counts.
    pub without_improvement: u32,
    /// `train.evaluate_tokens` of these evaluations; not known of older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<u64>,
}

impl Evaluations {
    /// From now on evaluations look at a sample of so many tokens. What others have shown is forgotten
    /// if theirs was another: gives whether that is so.
    pub fn compare_on(&mut self, sample: u64) -> bool {
        let changed = self.best.is_some() && self.sample.is_some_and(|before| before != sample);
        if changed {
            *self = Self::default();
        }
        self.sample = Some(sample);
        changed
    }

    /// Takes note of an evaluation; gives whether its loss is the lowest so far, on what all of them
    /// look at. One that is not finite never is.
    pub fn record(
        &mut self,
        step: u64,
        evaluation: &Evaluation,
        config: Option<EarlyStoppingConfig>,
    ) -> bool {
        let compared = evaluation.sample_loss;
        let least = config.map_or(0.0, |config| config.least_improvement);
        let is_best = evaluation.loss.is_finite()
            && compared < self.best.map_or(f64::INFINITY, |best| best.compared());
        if is_best {
            self.best = Some(Best::of(step, evaluation));
        }
        if compared < self.reference.map_or(f64::INFINITY, |reference| reference - least) {
            self.reference = Some(compared);
            self.without_improvement = 0;
        } else {
            self.without_improvement += 1;
        }
        is_best
    }

    /// The evaluation of `step` has been repeated on everything: if it is the best, that is its loss.
    pub fn complete(&mut self, step: u64, evaluation: &Evaluation) {
        if let Some(best) = self.best.as_mut().filter(|best| best.step == step)
            && evaluation.loss.is_finite()
        {
            *best = Best::of(step, evaluation);
        }
    }

    /// Is it time to give up?
    pub fn should_stop(&self, config: Option<EarlyStoppingConfig>) -> bool {
        config.is_some_and(|config| self.without_improvement >= config.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_all(loss: f64) -> Evaluation {
        Evaluation { loss, tokens: 10, sample_loss: loss, whole: true }
    }

    const CONFIG: Option<EarlyStoppingConfig> =
        Some(EarlyStoppingConfig { patience: 2, least_improvement: 0.1 });

    #[test]
    fn stops_after_patience_evaluations_that_do_not_count() {
        let mut seen = Evaluations::default();
        let mut stops = Vec::new();
        // 0.95 is the best but no improvement of 0.1; so the second after 1.0 ends it.
        for (step, loss) in [(1, 2.0), (2, 2.1), (3, 1.0), (4, 0.95), (5, 0.94)] {
            seen.record(step, &of_all(loss), CONFIG);
            stops.push(seen.should_stop(CONFIG));
        }
        assert_eq!(stops, [false, false, false, false, true]);
        assert_eq!(seen.best, Some(Best::of(5, &of_all(0.94))));
        assert!(!seen.should_stop(None));
    }

    #[test]
    fn many_small_improvements_add_up_to_one_that_counts() {
        let mut seen = Evaluations::default();
        for step in 0..100 {
            seen.record(step, &of_all(5.0 - 0.06 * step as f64), CONFIG);
            assert!(!seen.should_stop(CONFIG), "at {step}");
        }
    }

    /// The whole may be harder or easier than the sample: that says nothing about the weights.
    #[test]
    fn samples_are_compared_with_samples() {
        let mut seen = Evaluations::default();
        assert!(seen.record(1, &of_all(2.0), CONFIG));
        let last = Evaluation { loss: 2.1, tokens: 100, sample_loss: 1.9, whole: true };
        assert!(seen.record(2, &last, CONFIG));
        let best = Best { step: 2, val_loss: 2.1, sample_loss: Some(1.9), whole: true };
        assert_eq!(seen.best, Some(best));
        assert!(!seen.record(3, &of_all(2.0), CONFIG));
        // Repeated on everything, it is still of that step.
        seen.complete(1, &of_all(7.0));
        assert_eq!(seen.best, Some(best));
        let repeated = Evaluation { loss: 2.2, ..last };
        seen.complete(2, &repeated);
        assert_eq!(seen.best, Some(Best::of(2, &repeated)));
        // Another sample is nothing to compare with.
        let mut other = seen;
        assert!(!other.compare_on(100) && !other.compare_on(100));
        assert!(other.compare_on(200));
        assert_eq!(other, Evaluations { sample: Some(200), ..Evaluations::default() });
        // A state of a run from before there were samples.
        let old: Evaluations = serde_json::from_str(
            r#"{"best":{"step":2,"val_loss":2.1},"reference":2.1,"without_improvement":1}"#,
        )
        .unwrap();
        assert_eq!(old.best, Some(Best { sample_loss: None, ..best }));
        assert_eq!(old.sample, None);
    }

    #[test]
    fn nan_is_never_best() {
        let mut seen = Evaluations::default();
        assert!(!seen.record(0, &of_all(f64::NAN), CONFIG));
        assert!(seen.record(1, &of_all(3.0), CONFIG));
        assert!(!seen.record(2, &of_all(f64::NAN), CONFIG));
        // A checkpoint could not say NaN of the whole.
        let whole = Evaluation { loss: f64::NAN, ..of_all(1.0) };
        assert!(!seen.record(3, &whole, CONFIG));
        assert_eq!(seen.best.unwrap().step, 1);
    }
}
