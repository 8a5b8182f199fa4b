//! Steps without finite gradients: what waits while they are skipped, and when they end the run.
//!
//! While steps are skipped, nothing is evaluated or saved. What falls due waits for a step that goes
//! well, so that the checkpoints from before stay.

use super::Trainer;
use crate::config::{Precision, TrainConfig};
use crate::stepper::StepResult;
use hearken_base::{Error, Kind};
use hearken_kernels::elementwise::all_finite;
use hearken_tensor::Param;

/// Steps in a row without a finite gradient after which it makes no sense to go on. With f16 the
/// scale may have to fall from 2²⁴ to 2⁻¹⁴ first.
pub(super) fn most_skipped(precision: Precision) -> u32 {
    if precision == Precision::F16 { 40 } else { 10 }
}

/// What is to be done after a step.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) evaluation: bool,
    pub(super) sample: bool,
    pub(super) checkpoint: bool,
}

impl Trainer<'_> {
    /// Are the weights worth a look and a checkpoint? Those that give no finite gradient are not. With
    /// f16, gradients overflow now and then while the weights are good: a run may `end` so.
    pub(super) fn is_sound(&self, result: &StepResult, end: bool) -> bool {
        let overflow = self.config.precision == Precision::F16 && result.loss.is_finite();
        if self.stepper.skipped() > 0 && !(end && overflow) {
            return false;
        }
        let finite = |p: &Param| all_finite(p.value().data());
        let looked_at = end || self.waiting != Waiting::default();
        !looked_at || self.stepper.parameters().iter().all(finite)
    }

    pub(super) fn diverged(&self, loss: f64, most: u32) -> Error {
        self.unsound(&format!(
            "{most} steps in a row had no finite gradient (the loss is {loss} at step {}): \
             training has diverged",
            self.step
        ))
    }

    /// The run ends, or is asked to, with weights that are not worth saving.
    pub(super) fn ended_unsound(&self) -> Error {
        let what = match self.stepper.skipped() {
            0 => "weights that are not finite".to_owned(),
            1 => "a step without a finite gradient".to_owned(),
            n => format!("{n} steps without a finite gradient"),
        };
        self.unsound(&format!("the run ends at step {} with {what}: nothing is saved", self.step))
    }

    fn unsound(&self, message: &str) -> Error {
        let before = match self.checkpoints.last() {
            Some(path) => format!("; {} is from before", path.display()),
            None => String::new(),
        };
        let TrainConfig { lr, clip, schedule, .. } = self.config;
        Error::of(
            Kind::Diverged,
            format!("{message}{before}"),
            format!(
                "lower train.lr (now {lr:.1e}), lengthen train.schedule.warmup (now {}), and keep \
                 train.clip at 1.0 or below (now {clip})",
                schedule.warmup(),
            ),
        )
    }
}
