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
    /// How low on what all evaluations look at, if that is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_loss: Option<f64>,
}

impl Best {
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
}

impl Evaluations {
    /// Takes note of an evaluation; gives whether its loss is the lowest so far, on what all of them
    /// look at. A NaN never is.
    pub fn record(
        &mut self,
        step: u64,
        evaluation: &Evaluation,
        config: Option<EarlyStoppingConfig>,
    ) -> bool {
        let Evaluation { loss: val_loss, sample_loss: compared, .. } = *evaluation;
        let least = config.map_or(0.0, |config| config.least_improvement);
        let is_best = compared < self.best.map_or(f64::INFINITY, |best| best.compared());
        if is_best {
            let sample_loss = (compared != val_loss).then_some(compared);
            self.best = Some(Best { step, val_loss, sample_loss });
        }
        if compared < self.reference.map_or(f64::INFINITY, |reference| reference - least) {
            self.reference = Some(compared);
            self.without_improvement = 0;
        } else {
            self.without_improvement += 1;
        }
        is_best
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
        Evaluation { loss, tokens: 10, sample_loss: loss }
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
        assert_eq!(seen.best, Some(Best { step: 5, val_loss: 0.94, sample_loss: None }));
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
        let last = Evaluation { loss: 2.1, tokens: 100, sample_loss: 1.9 };
        assert!(seen.record(2, &last, CONFIG));
        let best = Best { step: 2, val_loss: 2.1, sample_loss: Some(1.9) };
        assert_eq!(seen.best, Some(best));
        assert!(!seen.record(3, &of_all(2.0), CONFIG));
        // A state of a run from before there were samples.
        let old: Best = serde_json::from_str(r#"{"step":2,"val_loss":2.1}"#).unwrap();
        assert_eq!(old, Best { sample_loss: None, ..best });
    }

    #[test]
    fn nan_is_never_best() {
        let mut seen = Evaluations::default();
        assert!(!seen.record(0, &of_all(f64::NAN), CONFIG));
        assert!(seen.record(1, &of_all(3.0), CONFIG));
        assert!(!seen.record(2, &of_all(f64::NAN), CONFIG));
        assert_eq!(seen.best.unwrap().step, 1);
    }
}
