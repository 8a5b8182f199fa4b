//! The best evaluation so far, and when to give up on a better one. Evaluations are compared by
//! their first metric.

use crate::config::in_range;
use crate::evaluation::{Evaluation, Metric};
use hearken_base::settings::{Setting, Value};
use hearken_base::{Error, Result};
use serde::{Deserialize, Serialize};

/// The `early_stopping` table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EarlyStoppingConfig {
    /// Stop after this many evaluations in a row without improvement.
    pub patience: u32,
    /// By how much the deciding metric must improve to count, in its own unit.
    pub least_improvement: f64,
}

impl Setting for EarlyStoppingConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.table(|t| {
            Ok(Self {
                patience: t.required("patience")?,
                least_improvement: t.or("least_improvement", 0.0)?,
            })
        })
    }
}

impl EarlyStoppingConfig {
    /// What the types alone do not rule out.
    pub fn validate(&self) -> Result<()> {
        if self.patience == 0 {
            return Err(Error::new(
                "train.early_stopping.patience is 0, expected at least 1",
                "omit the table to train all steps",
            ));
        }
        let least = ("train.early_stopping.least_improvement", self.least_improvement);
        in_range(least, 0.0, f64::MAX, "for a loss in nats, 0.001 is a small improvement")
    }
}

/// The best evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "SavedBest")]
pub struct Best {
    /// When.
    pub step: u64,
    /// Its metrics that are finite; the first is the one that decides.
    pub metrics: Vec<Metric>,
    /// Are the values of the whole validation set?
    pub whole: bool,
}

/// [`Best`] as checkpoints have it.
#[derive(Deserialize)]
#[serde(untagged)]
enum SavedBest {
    Metrics {
        step: u64,
        metrics: Vec<Metric>,
        whole: bool,
    },
    /// Format 1, which knew the loss alone.
    Loss {
        step: u64,
        val_loss: f64,
        /// If it differs from `val_loss`.
        #[serde(default)]
        sample_loss: Option<f64>,
        /// Missing in runs from before there were samples.
        #[serde(default)]
        whole: Option<bool>,
    },
}

impl From<SavedBest> for Best {
    fn from(saved: SavedBest) -> Self {
        match saved {
            SavedBest::Metrics { step, metrics, whole } => Self { step, metrics, whole },
            SavedBest::Loss { step, val_loss, sample_loss, whole } => {
                let loss = Metric::loss(val_loss).with_sample(sample_loss.unwrap_or(val_loss));
                Self { step, metrics: vec![loss], whole: whole.unwrap_or(true) }
            }
        }
    }
}

impl Best {
    fn of(step: u64, evaluation: &Evaluation) -> Self {
        // JSON has no other numbers.
        let finite = evaluation.metrics.iter().filter(|metric| metric.is_finite());
        Self { step, metrics: finite.cloned().collect(), whole: evaluation.whole }
    }

    /// The metric that decided.
    pub fn deciding(&self) -> Option<&Metric> {
        self.metrics.first()
    }
}

/// What evaluations have shown so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluations {
    /// The best.
    pub best: Option<Best>,
    /// The value that an improvement is measured against.
    pub reference: Option<f64>,
    /// Evaluations since the last improvement that counts.
    pub without_improvement: u32,
    /// `train.evaluate_tokens` of these evaluations; not known of older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<u64>,
}

impl Evaluations {
    /// The metric that decides, of the best evaluation so far.
    pub fn deciding(&self) -> Option<&Metric> {
        self.best.as_ref()?.deciding()
    }

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

    /// Takes note of an evaluation; gives whether it is the best so far, on what all of them look at.
    /// One that is not finite never is. What another metric has decided before is forgotten.
    pub fn record(
        &mut self,
        step: u64,
        evaluation: &Evaluation,
        config: Option<EarlyStoppingConfig>,
    ) -> bool {
        let Some(metric) = evaluation.deciding() else { return false };
        let better = metric.better;
        let same = |before: &Metric| before.name == metric.name && before.better == better;
        if self.deciding().is_some_and(|before| !same(before)) {
            *self = Self { sample: self.sample, ..Self::default() };
        }
        let beats = self.best.as_ref().is_none_or(|best| beats(&evaluation.metrics, &best.metrics));
        let is_best = metric.is_finite() && beats;
        if is_best {
            self.best = Some(Best::of(step, evaluation));
        }
        let least = config.map_or(0.0, |config| config.least_improvement);
        if better.is_better(metric.sample, self.reference.unwrap_or(better.worst()), least) {
            self.reference = Some(metric.sample);
            self.without_improvement = 0;
        } else {
            self.without_improvement += 1;
        }
        is_best
    }

    /// The evaluation of `step` has been repeated on everything: if it is the best, these are its
    /// values.
    pub fn complete(&mut self, step: u64, evaluation: &Evaluation) {
        if let Some(best) = self.best.as_mut().filter(|best| best.step == step)
            && evaluation.deciding().is_some_and(Metric::is_finite)
        {
            *best = Best::of(step, evaluation);
        }
    }

    /// Is it time to give up?
    pub fn should_stop(&self, config: Option<EarlyStoppingConfig>) -> bool {
        config.is_some_and(|config| self.without_improvement >= config.patience)
    }
}

/// Is the first metric that differs from that of `before` better? So an accuracy of 1 is improved on
/// by a lower loss.
fn beats(now: &[Metric], before: &[Metric]) -> bool {
    for metric in now {
        let Some(old) = before.iter().find(|old| old.name == metric.name) else { continue };
        let is_better = |a: &Metric, b: &Metric| metric.better.is_better(a.sample, b.sample, 0.0);
        if is_better(metric, old) || is_better(old, metric) {
            return is_better(metric, old);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::Better;

    fn of_all(loss: f64) -> Evaluation {
        Evaluation { metrics: vec![Metric::loss(loss)], tokens: 10, whole: true }
    }

    fn sampled(loss: f64, sample: f64) -> Evaluation {
        Evaluation { metrics: vec![Metric::loss(loss).with_sample(sample)], ..of_all(loss) }
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
        assert!(seen.record(2, &sampled(2.1, 1.9), CONFIG));
        let loss = Metric::loss(2.1).with_sample(1.9);
        let best = Best { step: 2, metrics: vec![loss], whole: true };
        assert_eq!(seen.best, Some(best.clone()));
        assert!(!seen.record(3, &of_all(2.0), CONFIG));
        // Repeated on everything, it is still of that step.
        seen.complete(1, &of_all(7.0));
        assert_eq!(seen.best, Some(best));
        let repeated = sampled(2.2, 1.9);
        seen.complete(2, &repeated);
        assert_eq!(seen.best, Some(Best::of(2, &repeated)));
        // Another sample is nothing to compare with.
        let mut other = seen;
        assert!(!other.compare_on(100) && !other.compare_on(100));
        assert!(other.compare_on(200));
        assert_eq!(other, Evaluations { sample: Some(200), ..Evaluations::default() });
    }

    #[test]
    fn states_of_format_1_are_read() {
        let read = |best: &str| {
            let text = format!(r#"{{"best":{best},"reference":2.1,"without_improvement":1}}"#);
            serde_json::from_str::<Evaluations>(&text).unwrap()
        };
        // From before there were samples.
        let oldest = read(r#"{"step":2,"val_loss":2.1}"#);
        let best = Best { step: 2, metrics: vec![Metric::loss(2.1)], whole: true };
        assert_eq!((oldest.best, oldest.sample), (Some(best), None));
        let old = read(r#"{"step":2,"val_loss":2.1,"sample_loss":1.9,"whole":false}"#);
        let loss = Metric::loss(2.1).with_sample(1.9);
        assert_eq!(old.best, Some(Best { step: 2, metrics: vec![loss], whole: false }));
        let text = serde_json::to_string(&old).unwrap();
        assert_eq!(serde_json::from_str::<Evaluations>(&text).unwrap(), old);
    }

    #[test]
    fn the_first_metric_decides_in_its_direction() {
        let evaluation = |accuracy: f64, loss: f64| Evaluation {
            metrics: vec![Metric::new("accuracy", Better::Higher, accuracy), Metric::loss(loss)],
            ..of_all(0.0)
        };
        let mut seen = Evaluations::default();
        assert!(seen.record(1, &evaluation(0.5, 1.0), CONFIG));
        assert!(!seen.record(2, &evaluation(0.4, 0.1), CONFIG));
        assert!(seen.record(3, &evaluation(0.7, f64::NAN), CONFIG));
        assert_eq!(seen.without_improvement, 0);
        assert_eq!(seen.best.as_ref().unwrap().metrics.len(), 1, "what is not finite is left out");
        // Another metric is nothing to compare with.
        assert!(seen.record(4, &of_all(9.0), CONFIG));
        assert_eq!((seen.deciding().unwrap().name.as_str(), seen.reference), ("loss", Some(9.0)));
    }

    #[test]
    fn nan_is_never_best() {
        let mut seen = Evaluations::default();
        assert!(!seen.record(0, &of_all(f64::NAN), CONFIG));
        assert!(seen.record(1, &of_all(3.0), CONFIG));
        assert!(!seen.record(2, &of_all(f64::NAN), CONFIG));
        // A checkpoint could not say NaN of the whole.
        assert!(!seen.record(3, &sampled(f64::NAN, 1.0), CONFIG));
        assert_eq!(seen.best.unwrap().step, 1);
    }

    #[test]
    fn a_tie_is_decided_by_the_next_metric() {
        let both = |accuracy, loss| Evaluation {
            metrics: vec![Metric::new("accuracy", Better::Higher, accuracy), Metric::loss(loss)],
            tokens: 10,
            whole: true,
        };
        let mut seen = Evaluations::default();
        let bests: Vec<bool> = [(0.5, 1.0), (1.0, 2.0), (1.0, 1.5), (1.0, 1.5), (0.9, 0.1)]
            .into_iter()
            .zip(1..)
            .map(|((accuracy, loss), step)| seen.record(step, &both(accuracy, loss), None))
            .collect();
        assert_eq!(bests, [true, true, true, false, false]);
        assert_eq!(seen.best.map(|best| best.step), Some(3));
    }
}
