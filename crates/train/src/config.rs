//! The `[train]` table of a configuration.
//!
//! ```toml
//! [train]
//! steps = 2000
//! batch_size = 12
//! lr = 1e-3
//! optimizer = { kind = "adamw", beta2 = 0.99, weight_decay = 0.1 }
//! schedule = { kind = "cosine", warmup = 100, floor = 0.1 }
//! clip = 1.0
//! evaluate_every = 250
//! ```
//! Every key has a default; one that is not known is an error.

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

use crate::early_stopping::EarlyStoppingConfig;
use crate::ema::EmaConfig;
use crate::optimizer::{DecayRule, OptimizerConfig};
use crate::schedule::{ScheduleConfig, usual_warmup};
use hearken_base::settings::{self, Setting, Value};
use hearken_base::{Error, Result, names};
use hearken_tensor::Storage;
use serde::Serialize;

/// How to train.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainConfig {
    /// Updates of the weights.
    pub steps: u64,
    /// Sequences per step.
    pub batch_size: usize,
    /// Parts that a step's batch is computed in, one after the other, to save memory. Changes
    /// nothing but rounding.
    pub accumulate: usize,
    /// Parts that each of those is cut into again, to be computed at the same time, a thread each;
    /// fewer, if so many do not share its sequences evenly. For small models. Changes nothing but
    /// rounding and which activations dropout hits.
    pub parallel_parts: usize,
    /// The learning rate that the schedule scales.
    pub lr: f64,
    /// Which random numbers.
    pub seed: u64,
    /// From gradients to new weights.
    pub optimizer: OptimizerConfig,
    /// Which parameters shrink.
    pub decay: DecayRule,
    /// How the learning rate changes.
    pub schedule: ScheduleConfig,
    /// The largest norm of all gradients together; 0 for no limit.
    pub clip: f64,
    /// How weights are read and activations saved.
    pub precision: Precision,
    /// ε of label smoothing.
    pub label_smoothing: f32,
    /// The weight of (ln Z)² in the loss.
    pub z_loss: f32,
    /// Recompute each layer in the backward pass instead of saving its activations.
    pub gradient_checkpointing: bool,
    /// Averages of the weights, used for evaluation and saved as the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema: Option<EmaConfig>,
    /// When to give up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_stopping: Option<EarlyStoppingConfig>,
    /// Steps from one evaluation to the next; 0 for the end only.
    pub evaluate_every: u64,
    /// About so many tokens of the validation set, spread over it, are what evaluations on the way
    /// look at; 0 for all. The last looks at all.
    pub evaluate_tokens: u64,
    /// Steps from one checkpoint to the next; 0 for the end, and the best, only.
    pub checkpoint_every: u64,
    /// Steps from one sample to the next; 0 for the end only.
    pub sample_every: u64,
    /// Steps from one look inside to the next; 0 for never.
    pub observe_every: u64,
    /// How many of the newest checkpoints stay, beside the best.
    pub keep: usize,
}

impl Setting for TrainConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.table(|t| {
            Ok(Self {
                steps: t.or("steps", 2000)?,
                batch_size: t.or("batch_size", 12)?,
                accumulate: t.or("accumulate", 1)?,
                // Runs of version 0.1 call it `side_by_side`.
                parallel_parts: match t.optional("side_by_side")? {
                    Some(parts) => parts,
                    None => t.or("parallel_parts", 1)?,
                },
                lr: t.or("lr", 1e-3)?,
                seed: t.or("seed", 1337)?,
                optimizer: t.or("optimizer", OptimizerConfig::default())?,
                decay: t.or("decay", DecayRule::default())?,
                schedule: t.or("schedule", ScheduleConfig::default())?,
                clip: t.or("clip", 1.0)?,
                precision: t.or("precision", Precision::default())?,
                label_smoothing: t.or("label_smoothing", 0.0)?,
                z_loss: t.or("z_loss", 0.0)?,
                gradient_checkpointing: t.or("gradient_checkpointing", false)?,
                ema: t.optional("ema")?,
                early_stopping: t.optional("early_stopping")?,
                evaluate_every: t.or("evaluate_every", 250)?,
                evaluate_tokens: t.or("evaluate_tokens", 1 << 20)?,
                checkpoint_every: t.or("checkpoint_every", 250)?,
                sample_every: t.or("sample_every", 500)?,
                observe_every: t.or("observe_every", 50)?,
                keep: t.or("keep", 2)?,
            })
        })
    }
}

impl Default for TrainConfig {
    fn default() -> Self {
        settings::default()
    }
}

/// How weights are read by products and activations saved for backward. Arithmetic, master
/// weights and gradients are f32 always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// As they are.
    #[default]
    F32,
    /// bfloat16: the range of f32 with 8 bits of precision.
    Bf16,
    /// IEEE half: 11 bits of precision, a small range; the loss is scaled.
    F16,
}

names!(Precision { "f32" => F32, "bf16" => Bf16, "f16" => F16 });

impl Precision {
    /// The storage it stands for.
    pub fn storage(self) -> Storage {
        match self {
            Self::F32 => Storage::F32,
            Self::Bf16 => Storage::Bf16,
            Self::F16 => Storage::F16,
        }
    }
}

/// Most parallel parts.
const MOST_PARTS: usize = 256;
/// The largest batch. With [`MOST_STEPS`], the counters of micro-batches stay below 2⁶⁰.
const MOST_ROWS: usize = 1 << 20;
/// The longest run: 30,000 years of one step a second.
pub(crate) const MOST_STEPS: u64 = 1 << 40;
/// Beyond these factors f32 overflows within a few steps.
pub(crate) const LARGEST_FACTOR: f64 = 1e6;

/// Checks that a named number is at least `least` and at most `most`, which is not said if it is
/// [`f64::MAX`].
pub(crate) fn in_range((name, x): (&str, f64), least: f64, most: f64, hint: &str) -> Result<()> {
    if (least..=most).contains(&x) {
        return Ok(());
    }
    let expected = match most {
        f64::MAX => format!("a number of {least} or more"),
        _ => format!("a number from {least} to {most}"),
    };
    Err(Error::new(format!("{name} is {x}, expected {expected}"), hint))
}

/// Checks that a named number is 0 or more and below 1, in f32 too.
pub(crate) fn below_one((name, x): (&str, f64), hint: &str) -> Result<()> {
    if (0.0..1.0).contains(&x) && (x as f32) < 1.0 {
        return Ok(());
    }
    let expected = if x < 1.0 && x > 0.0 { "at most 0.9999999" } else { "0 or more and below 1" };
    Err(Error::new(format!("{name} is {x}, expected {expected}"), hint))
}

/// Checks that a named whole number is at least `least` and at most `most`.
pub(crate) fn whole_in_range(name: &str, x: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&x) {
        return Ok(());
    }
    let expected = if x < least { format!("at least {least}") } else { format!("at most {most}") };
    Err(Error::new(format!("{name} is {x}, expected {expected}"), format!("set {name}")))
}

/// The most parts, up to `wanted`, that share `rows` evenly.
pub fn even_parts(rows: usize, wanted: usize) -> usize {
    (1..=wanted.min(MOST_PARTS)).rev().find(|&parts| rows.is_multiple_of(parts)).unwrap_or(1)
}

impl TrainConfig {
    /// So many steps, with a warm-up of a tenth of them at most and all else at its default.
    pub fn with_steps(steps: u64) -> Self {
        let default = Self::default();
        let schedule = default.schedule.with_warmup_at_most(usual_warmup(steps));
        Self { steps, schedule, ..default }
    }

    /// Sequences that are computed at the same time.
    pub fn rows_at_once(&self) -> usize {
        self.batch_size / self.accumulate.max(1)
    }

    /// The parallel parts that those are computed in.
    pub fn parts_at_once(&self) -> usize {
        even_parts(self.rows_at_once(), self.parallel_parts)
    }

    /// Parts of a step's batch in all.
    pub fn micro_batches(&self) -> usize {
        self.accumulate.saturating_mul(self.parts_at_once())
    }

    /// The learning rate of the step after `step` steps.
    pub fn lr_at(&self, step: u64) -> f64 {
        self.lr * self.schedule.factor(step, self.steps)
    }

    /// What the types alone do not rule out.
    pub fn validate(&self) -> Result<()> {
        for (name, value, least, most) in [
            ("train.steps", self.steps, 1, MOST_STEPS),
            ("train.batch_size", self.batch_size as u64, 1, MOST_ROWS as u64),
            ("train.accumulate", self.accumulate as u64, 1, MOST_ROWS as u64),
            ("train.parallel_parts", self.parallel_parts as u64, 1, u64::MAX),
            ("train.evaluate_every", self.evaluate_every, 0, MOST_STEPS),
            ("train.evaluate_tokens", self.evaluate_tokens, 0, MOST_STEPS),
            ("train.checkpoint_every", self.checkpoint_every, 0, MOST_STEPS),
            ("train.sample_every", self.sample_every, 0, MOST_STEPS),
            ("train.observe_every", self.observe_every, 0, MOST_STEPS),
            ("train.keep", self.keep as u64, 1, MOST_STEPS),
        ] {
            whole_in_range(name, value, least, most)?;
        }
        if self.parallel_parts > MOST_PARTS {
            return Err(Error::new(
                format!(
                    "train.parallel_parts is {}, expected 1 to {MOST_PARTS}",
                    self.parallel_parts
                ),
                "as many as the machine has cores",
            ));
        }
        if !self.batch_size.is_multiple_of(self.accumulate) {
            // Not far off, if the number is large.
            let near = self.accumulate.saturating_sub(1000)..=self.accumulate.saturating_add(1000);
            let fitting = near.filter(|&n| n > 0 && self.batch_size.is_multiple_of(n));
            let near = fitting.min_by_key(|n| n.abs_diff(self.accumulate)).unwrap_or(1);
            return Err(Error::new(
                format!(
                    "train.accumulate is {}, which does not divide train.batch_size {}",
                    self.accumulate, self.batch_size
                ),
                format!("{near} would"),
            ));
        }
        let lr = ("train.lr", self.lr);
        in_range(lr, 0.0, LARGEST_FACTOR, "1e-3 is usual for small models")?;
        in_range(("train.clip", self.clip), 0.0, f64::MAX, "1.0 is usual; 0 switches it off")?;
        let z_loss = ("train.z_loss", f64::from(self.z_loss));
        in_range(z_loss, 0.0, LARGEST_FACTOR, "1e-4 is usual; 0 switches it off")?;
        below_one(("train.label_smoothing", f64::from(self.label_smoothing)), "0.1 is usual")?;
        self.optimizer.validate()?;
        self.schedule.validate(self.steps)?;
        self.ema.as_ref().map_or(Ok(()), EmaConfig::validate)?;
        self.early_stopping.as_ref().map_or(Ok(()), EarlyStoppingConfig::validate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_base::settings::Settings;

    fn read(text: &str) -> Result<TrainConfig> {
        Settings::parse(text, "t.toml")?.read()
    }

    #[test]
    fn the_default_is_valid_and_survives_a_round_trip() {
        let config = TrainConfig::default();
        config.validate().unwrap();
        assert_eq!(read(&toml::to_string(&config).unwrap()).unwrap(), config);
        assert_eq!(read("").unwrap(), config);
        let error = read("batchsize = 1").unwrap_err();
        assert_eq!(error.hint(), Some("did you mean batch_size?"));
    }

    #[test]
    fn tables_that_may_be_missing_and_names_survive_a_round_trip() {
        for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
            for decay in [DecayRule::Hidden, DecayRule::Matrices, DecayRule::All] {
                let config = TrainConfig {
                    precision,
                    decay,
                    ema: Some(EmaConfig { decay: 0.9 }),
                    early_stopping: Some(EarlyStoppingConfig {
                        patience: 3,
                        least_improvement: 0.5,
                    }),
                    ..TrainConfig::default()
                };
                assert_eq!(read(&toml::to_string(&config).unwrap()).unwrap(), config);
            }
        }
        let error = read("early_stopping = {}").unwrap_err();
        assert!(error.message().contains("early_stopping.patience is missing"), "{error}");
    }

    #[test]
    fn another_kind_of_schedule_keeps_its_warm_up_and_floor() {
        let mut settings = Settings::parse("[train]\nsteps = 9\n", "t.toml").unwrap();
        settings.set("train.schedule.kind=linear").unwrap();
        let config = settings.read_only::<TrainConfig>("train").unwrap().unwrap();
        assert_eq!(config.schedule, ScheduleConfig::Linear { warmup: 100, floor: 0.1 });
        settings.set("train.optimizer=lion").unwrap();
        let config = settings.read_only::<TrainConfig>("train").unwrap().unwrap();
        assert_eq!(config.optimizer.name(), "lion");
    }

    #[test]
    fn what_does_not_divide_is_refused_with_what_would() {
        let config = TrainConfig { batch_size: 12, accumulate: 5, ..TrainConfig::default() };
        let text = config.validate().unwrap_err().to_string();
        assert!(text.contains("accumulate is 5") && text.contains("hint: 4 would"), "{text}");
        // Two large numbers, quickly.
        let config = TrainConfig { batch_size: 999_983, accumulate: 999_979, ..config };
        assert!(config.validate().unwrap_err().to_string().contains("999983 would"));
    }

    #[test]
    fn parts_share_evenly() {
        let parts = |batch_size, accumulate, parallel_parts| {
            let config =
                TrainConfig { batch_size, accumulate, parallel_parts, ..TrainConfig::default() };
            config.validate().unwrap();
            (config.parts_at_once(), config.micro_batches())
        };
        assert_eq!(parts(12, 1, 2), (2, 2));
        assert_eq!(parts(12, 4, 2), (1, 4)); // three sequences at once
        assert_eq!(parts(12, 2, 4), (3, 6));
        assert_eq!(parts(7, 1, 2), (1, 1));
        assert_eq!(parts(1, 1, 256), (1, 1));
        for parallel_parts in [0, 257, usize::MAX] {
            let config = TrainConfig { parallel_parts, ..TrainConfig::default() };
            let text = config.validate().unwrap_err().to_string();
            assert!(text.contains("parallel_parts is") && text.contains("\nhint: "), "{text}");
        }
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        let default = TrainConfig::default;
        for config in [
            TrainConfig { lr: -1.0, ..default() },
            TrainConfig { clip: f64::INFINITY, ..default() },
            TrainConfig { z_loss: f32::NAN, ..default() },
            TrainConfig { label_smoothing: 1.0, ..default() },
            TrainConfig { lr: 1e300, ..default() },
            TrainConfig { keep: 0, ..default() },
            TrainConfig { steps: 0, ..default() },
            TrainConfig { steps: u64::MAX, ..default() },
            TrainConfig { batch_size: usize::MAX, ..default() },
            TrainConfig { evaluate_tokens: u64::MAX, ..default() },
        ] {
            let text = config.validate().unwrap_err().to_string();
            assert!(text.contains("expected") && text.contains("\nhint: "), "{text}");
        }
    }

    #[test]
    fn a_short_run_has_a_short_warm_up() {
        let config = TrainConfig::with_steps(60);
        config.validate().unwrap();
        assert_eq!(config.schedule, ScheduleConfig::Cosine { warmup: 6, floor: 0.1 });
        assert_eq!(TrainConfig::with_steps(2000), TrainConfig::default());
    }

    #[test]
    fn nanogpts_rates() {
        let config = TrainConfig::default(); // 1e-3, cosine, 100 of warm-up, floor a tenth
        assert_eq!(config.lr_at(100), 1e-3);
        assert!((config.lr_at(2000) - 1e-4).abs() < 1e-15);
    }
}
