//! The best validation loss so far, and when to give up on a better one.

use crate::error::Error;
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
    /// Takes note of a loss; gives whether it is the lowest so far. A NaN never is.
    pub fn record(
        &mut self,
        step: u64,
        val_loss: f64,
        config: Option<EarlyStoppingConfig>,
    ) -> bool {
        let least = config.map_or(0.0, |config| config.least_improvement);
        let is_best = val_loss < self.best.map_or(f64::INFINITY, |best| best.val_loss);
        if is_best {
            self.best = Some(Best { step, val_loss });
        }
        if val_loss < self.reference.map_or(f64::INFINITY, |reference| reference - least) {
            self.reference = Some(val_loss);
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

    const CONFIG: Option<EarlyStoppingConfig> =
        Some(EarlyStoppingConfig { patience: 2, least_improvement: 0.1 });

    #[test]
    fn stops_after_patience_evaluations_that_do_not_count() {
        let mut seen = Evaluations::default();
        let mut stops = Vec::new();
        // 0.95 is the best but no improvement of 0.1; so the second after 1.0 ends it.
        for (step, loss) in [(1, 2.0), (2, 2.1), (3, 1.0), (4, 0.95), (5, 0.94)] {
            seen.record(step, loss, CONFIG);
            stops.push(seen.should_stop(CONFIG));
        }
        assert_eq!(stops, [false, false, false, false, true]);
        assert_eq!(seen.best, Some(Best { step: 5, val_loss: 0.94 }));
        assert!(!seen.should_stop(None));
    }

    #[test]
    fn many_small_improvements_add_up_to_one_that_counts() {
        let mut seen = Evaluations::default();
        for step in 0..100 {
            seen.record(step, 5.0 - 0.06 * step as f64, CONFIG);
            assert!(!seen.should_stop(CONFIG), "at {step}");
        }
    }

    #[test]
    fn nan_is_never_best() {
        let mut seen = Evaluations::default();
        assert!(!seen.record(0, f64::NAN, CONFIG));
        assert!(seen.record(1, 3.0, CONFIG));
        assert!(!seen.record(2, f64::NAN, CONFIG));
        assert_eq!(seen.best.unwrap().step, 1);
    }
}
