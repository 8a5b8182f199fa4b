//! Three steps of training and an evaluation, to hold the plan against what they really take.

use super::Report;
use crate::failure::Failure;
use crate::machine;
use hearken::kernels::isa;
use hearken::tasks::rehearsal;
use hearken::tensor::{no_grad, pool};
use hearken::train::{Extent, Stepper};
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
    /// Of the faster of the last two steps.
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
    let observe = train.observe_every > 0;
    stepper.step(&mut *task, 0, observe)?;
    if observe {
        no_grad(|| task.observe(1))?;
    }
    let second = stepper.step(&mut *task, 1, false)?.seconds;
    let extent = Extent { sample: 1, whole: false };
    stepper.with_judged_weights(|| {
        no_grad(|| isa::for_batches(|| task.evaluate(extent, &mut |_| {})))
    })?;
    let third = stepper.step(&mut *task, 2, false)?.seconds;
    let usage = pool::usage();
    let resident = machine::peak_resident_bytes().zip(before);
    Ok(Measured {
        in_use: usage.peak,
        reserved: usage.in_use + usage.kept,
        resident: resident.map(|(most, before)| most.saturating_sub(before)),
        seconds: second.min(third),
    })
}
