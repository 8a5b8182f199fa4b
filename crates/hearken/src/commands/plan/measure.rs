//! A few steps of training and an evaluation, to hold the plan against what they really take.

use super::Report;
use crate::failure::Failure;
use crate::machine;
use hearken::tasks::rehearsal;
use hearken::tensor::pool;
use hearken::train::Stepper;
use hearken::train::cost::short_run;
use serde::Serialize;

/// What a short run took.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Measured {
    /// The most bytes of tensors at any one time.
    pub(super) in_use: usize,
    /// Bytes of tensors that the process holds on to.
    pub(super) reserved: usize,
    /// What the process grew by, where the system tells.
    pub(super) resident: Option<usize>,
    /// Of the fastest step.
    pub(super) seconds: f64,
}

/// Trains on random tokens: memory does not depend on which.
pub(super) fn measure(report: &Report) -> Result<Measured, Failure> {
    if report.available.is_some_and(|free| report.memory.total > free as u64) {
        return Err(Failure::input(
            "this model does not fit the memory that is free, so it cannot be measured",
            "a smaller --batch-size or --checkpointing takes less",
        ));
    }
    let train = &report.train;
    pool::release();
    pool::reset_peak();
    machine::reset_peak_resident();
    let before = machine::peak_resident_bytes();
    let mut task = rehearsal::task(&report.model, train, report.training.tokens)?;
    let mut stepper = Stepper::new(train, task.parameters());
    let seconds = short_run(&mut stepper, &mut *task, train)?;
    let usage = pool::usage();
    let resident = machine::peak_resident_bytes().zip(before);
    Ok(Measured {
        in_use: usage.peak,
        reserved: usage.in_use + usage.kept,
        resident: resident.map(|(most, before)| most.saturating_sub(before)),
        seconds,
    })
}
