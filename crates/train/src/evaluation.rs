//! What an evaluation measures: named metrics, each with the direction in which it is better.
//!
//! Records, curves, early stopping and the best checkpoint know metrics by name. The first metric
//! of an evaluation decides which checkpoint is the best and when to stop early.

use hearken_base::{Error, Result};
use serde::{Deserialize, Serialize};

/// How much of the validation set to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// About so many tokens, spread over the set, the same in every evaluation of a run: the sample.
    /// 0 for all.
    pub sample: u64,
    /// All others too.
    pub whole: bool,
}

/// The direction in which a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// A loss, an error.
    Lower,
    /// An accuracy, a score.
    Higher,
}

impl Better {
    /// Is `a` better than `b` by more than `least`? Never, if `a` is NaN.
    pub fn is_better(self, a: f64, b: f64, least: f64) -> bool {
        match self {
            Self::Lower => a < b - least,
            Self::Higher => a > b + least,
        }
    }

    /// What every number is better than.
    pub fn worst(self) -> f64 {
        match self {
            Self::Lower => f64::INFINITY,
            Self::Higher => f64::NEG_INFINITY,
        }
    }
}

/// A number that says how good a model is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Its name: lower-case letters, digits and `_`. The name `loss` stands for the same quantity as
    /// the training loss, the mean of what [`Task::loss`](crate::Task::loss) sums.
    pub name: String,
    /// On all that was looked at.
    pub value: f64,
    /// On the sample, which can be compared with that of other evaluations of the run.
    pub sample: f64,
    /// Which direction is better.
    pub better: Better,
}

impl Metric {
    /// The name of the metric that can be compared with the training loss.
    pub const LOSS: &str = "loss";

    /// A metric whose value is that of the sample too.
    pub fn new(name: impl Into<String>, better: Better, value: f64) -> Self {
        Self { name: name.into(), value, sample: value, better }
    }

    /// The validation loss.
    pub fn loss(value: f64) -> Self {
        Self::new(Self::LOSS, Better::Lower, value)
    }

    /// The same with another value on the sample.
    pub fn with_sample(self, sample: f64) -> Self {
        Self { sample, ..self }
    }

    /// Are both numbers finite?
    pub fn is_finite(&self) -> bool {
        self.value.is_finite() && self.sample.is_finite()
    }
}

/// What was measured on the validation set.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The metrics, in a fixed order. The first decides which checkpoint is the best.
    pub metrics: Vec<Metric>,
    /// How many tokens (or examples) were looked at.
    pub tokens: usize,
    /// Was everything looked at?
    pub whole: bool,
}

impl Evaluation {
    /// The metric that decides which checkpoint is the best.
    pub fn deciding(&self) -> Option<&Metric> {
        self.metrics.first()
    }

    /// The metric of this name.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// Checks that there are metrics, with names that can be written down and read back.
    pub fn validate(&self) -> Result<()> {
        let hint =
            "names are lower-case letters, digits and _, each once, and none begins with sample_";
        if self.metrics.is_empty() {
            return Err(Error::new("an evaluation has no metrics", "return none instead"));
        }
        for (i, Metric { name, .. }) in self.metrics.iter().enumerate() {
            let letters = name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
            if name.is_empty() || !letters || name.starts_with("sample_") {
                return Err(Error::new(format!("{name:?} cannot be the name of a metric"), hint));
            }
            if self.metrics[..i].iter().any(|other| other.name == *name) {
                return Err(Error::new(format!("two metrics are called {name}"), hint));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions() {
        assert!(Better::Lower.is_better(1.0, 2.0, 0.5) && !Better::Lower.is_better(1.6, 2.0, 0.5));
        assert!(
            Better::Higher.is_better(2.0, 1.0, 0.5) && !Better::Higher.is_better(1.4, 1.0, 0.5)
        );
        for better in [Better::Lower, Better::Higher] {
            assert!(!better.is_better(f64::NAN, better.worst(), 0.0));
            assert!(better.is_better(3.0, better.worst(), 0.0));
        }
    }

    #[test]
    fn names_that_cannot_be_read_back_are_refused() {
        let check = |names: &[&str]| {
            let metrics = names.iter().map(|name| Metric::new(*name, Better::Lower, 0.0)).collect();
            Evaluation { metrics, tokens: 0, whole: true }.validate()
        };
        assert!(check(&["loss", "top_5", "bleu"]).is_ok());
        for names in [&[] as &[&str], &[""], &["F1"], &["sample_loss"], &["loss", "loss"], &["a b"]]
        {
            assert!(check(names).is_err(), "{names:?}");
        }
    }
}
