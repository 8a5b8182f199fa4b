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

use crate::early_stopping::EarlyStoppingConfig;
use crate::ema::EmaConfig;
use crate::error::Error;
use crate::optimizer::{DecayRule, OptimizerConfig};
use crate::schedule::ScheduleConfig;
use hearken_tensor::Storage;
use serde::{Deserialize, Serialize};

/// How to train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
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
    pub side_by_side: usize,
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

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            steps: 2000,
            batch_size: 12,
            accumulate: 1,
            side_by_side: 1,
            lr: 1e-3,
            seed: 1337,
            optimizer: OptimizerConfig::default(),
            decay: DecayRule::default(),
            schedule: ScheduleConfig::default(),
            clip: 1.0,
            precision: Precision::default(),
            label_smoothing: 0.0,
            z_loss: 0.0,
            gradient_checkpointing: false,
            ema: None,
            early_stopping: None,
            evaluate_every: 250,
            evaluate_tokens: 1 << 20,
            checkpoint_every: 250,
            sample_every: 500,
            observe_every: 50,
            keep: 2,
        }
    }
}

/// How weights are read by products and activations saved for backward. Arithmetic, master
/// weights and gradients are f32 always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// Most parts side by side.
const MOST_PARTS: usize = 256;

/// The most parts, up to `wanted`, that share `rows` evenly.
pub fn even_parts(rows: usize, wanted: usize) -> usize {
    (1..=wanted.min(MOST_PARTS)).rev().find(|&parts| rows.is_multiple_of(parts)).unwrap_or(1)
}

impl TrainConfig {
    /// Sequences that are computed at the same time.
    pub fn rows_at_once(&self) -> usize {
        self.batch_size / self.accumulate.max(1)
    }

    /// The parts that those are computed in, side by side.
    pub fn parts_at_once(&self) -> usize {
        even_parts(self.rows_at_once(), self.side_by_side)
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
    pub fn validate(&self) -> Result<(), Error> {
        for (name, value) in [
            ("steps", self.steps),
            ("batch_size", self.batch_size as u64),
            ("accumulate", self.accumulate as u64),
            ("side_by_side", self.side_by_side as u64),
            ("keep", self.keep as u64),
        ] {
            if value == 0 {
                return Err(Error::config(
                    format!("train.{name} is 0, expected at least 1"),
                    format!("set train.{name}"),
                ));
            }
        }
        if self.side_by_side > MOST_PARTS {
            return Err(Error::config(
                format!("train.side_by_side is {}, expected 1 to {MOST_PARTS}", self.side_by_side),
                "as many as the machine has cores",
            ));
        }
        if !self.batch_size.is_multiple_of(self.accumulate) {
            // Not far off, if the number is large.
            let near = self.accumulate.saturating_sub(1000)..=self.accumulate.saturating_add(1000);
            let fitting = near.filter(|&n| n > 0 && self.batch_size.is_multiple_of(n));
            let near = fitting.min_by_key(|n| n.abs_diff(self.accumulate)).unwrap_or(1);
            return Err(Error::config(
                format!(
                    "train.accumulate is {}, which does not divide train.batch_size {}",
                    self.accumulate, self.batch_size
                ),
                format!("{near} would"),
            ));
        }
        for (name, value, usual) in [
            ("lr", self.lr, "1e-3 is usual for small models"),
            ("clip", self.clip, "1.0 is usual; 0 switches it off"),
            ("z_loss", f64::from(self.z_loss), "1e-4 is usual; 0 switches it off"),
        ] {
            if !(value >= 0.0 && value.is_finite()) {
                let message = format!("train.{name} is {value}, expected a number of 0 or more");
                return Err(Error::config(message, usual));
            }
        }
        if !(0.0..1.0).contains(&self.label_smoothing) {
            return Err(Error::config(
                format!("train.label_smoothing is {}, expected 0 to 1", self.label_smoothing),
                "0.1 is usual",
            ));
        }
        self.optimizer.validate()?;
        self.schedule.validate(self.steps)?;
        self.ema.as_ref().map_or(Ok(()), EmaConfig::validate)?;
        self.early_stopping.as_ref().map_or(Ok(()), EarlyStoppingConfig::validate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_survives_a_round_trip() {
        let config = TrainConfig::default();
        config.validate().unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<TrainConfig>(&text).unwrap(), config);
        assert_eq!(serde_json::from_str::<TrainConfig>("{}").unwrap(), config);
        assert!(serde_json::from_str::<TrainConfig>(r#"{"learning_rate": 1}"#).is_err());
    }

    #[test]
    fn what_does_not_divide_is_refused_with_what_would() {
        let config = TrainConfig { batch_size: 12, accumulate: 5, ..TrainConfig::default() };
        let text = config.validate().unwrap_err().to_string();
        assert!(text.contains("accumulate is 5") && text.contains("hint: 4 would"), "{text}");
        // Two large numbers, quickly.
        let config = TrainConfig { batch_size: 999_999_999_999_999_989, ..config };
        let config = TrainConfig { accumulate: 999_999_999_999_999_988, ..config };
        assert!(config.validate().unwrap_err().to_string().contains("99989 would"));
    }

    #[test]
    fn parts_share_evenly() {
        let parts = |batch_size, accumulate, side_by_side| {
            let config =
                TrainConfig { batch_size, accumulate, side_by_side, ..TrainConfig::default() };
            config.validate().unwrap();
            (config.parts_at_once(), config.micro_batches())
        };
        assert_eq!(parts(12, 1, 2), (2, 2));
        assert_eq!(parts(12, 4, 2), (1, 4)); // three sequences at once
        assert_eq!(parts(12, 2, 4), (3, 6));
        assert_eq!(parts(7, 1, 2), (1, 1));
        assert_eq!(parts(1, 1, 256), (1, 1));
        for side_by_side in [0, 257, usize::MAX] {
            let config = TrainConfig { side_by_side, ..TrainConfig::default() };
            let text = config.validate().unwrap_err().to_string();
            assert!(text.contains("side_by_side is") && text.contains("\nhint: "), "{text}");
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
            TrainConfig { keep: 0, ..default() },
        ] {
            let text = config.validate().unwrap_err().to_string();
            assert!(text.contains("expected") && text.contains("\nhint: "), "{text}");
        }
    }

    #[test]
    fn nanogpts_rates() {
        let config = TrainConfig::default(); // 1e-3, cosine, 100 of warm-up, floor a tenth
        assert_eq!(config.lr_at(100), 1e-3);
        assert!((config.lr_at(2000) - 1e-4).abs() < 1e-15);
    }
}
