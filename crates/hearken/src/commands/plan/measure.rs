//! Two steps of training, to hold the plan against what they really take.

use super::Report;
use crate::failure::Failure;
use crate::machine;
use hearken::nn::models::{self, loss_and_gradients};
use hearken::nn::pass::{Noise, Pass};
use hearken::nn::scope::Weights;
use hearken::tensor::ops::cross_entropy::Options;
use hearken::tensor::{pool, with_storage};
use hearken::train::{DecayRule, Optimizer};
use serde::Serialize;
use std::time::Instant;

/// What two steps took.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Measured {
    /// The most bytes of tensors at any one time.
    pub(super) in_use: usize,
    /// Bytes of tensors that the process holds on to.
    pub(super) reserved: usize,
    /// What the process grew by, where the system tells.
    pub(super) resident: Option<usize>,
    /// Of the second step.
    pub(super) seconds: f64,
}

/// Trains on arbitrary tokens: memory does not depend on which.
pub(super) fn measure(report: &Report) -> Result<Measured, Failure> {
    let chosen = report.training;
    if report.available.is_some_and(|free| report.memory.total > free as u64) {
        return Err(Failure::input(
            "this model does not fit the memory that is free, so it cannot be measured",
            "a smaller --batch-size or --checkpointing takes less",
        ));
    }
    pool::release();
    pool::reset_peak();
    machine::reset_peak_resident();
    let before = machine::peak_resident_bytes();
    let mut model = models::build(&report.model, Weights::Drawn { seed: 1 });
    model.set_checkpointing(chosen.checkpointing);
    let config = chosen.optimizer.config()?;
    let parameters = model.parameters().iter().cloned();
    let mut optimizer = Optimizer::new(config, DecayRule::default(), parameters);
    let vocabulary = report.model.vocabulary();
    let ids: Vec<u32> =
        (0..chosen.batch_size * chosen.tokens).map(|i| (i * 7 % vocabulary) as u32).collect();
    let Some(predictor) = model.predicts_tokens() else {
        return Err(Failure::input("only models that predict tokens can be measured", ""));
    };
    let mut seconds = 0.0;
    for step in 0..2 {
        let start = Instant::now();
        let pass = Pass::train(Noise { seed: 1, step });
        let (_, weight) = with_storage(chosen.precision.precision().storage(), || {
            let (batch, parts) = (chosen.batch_size, chosen.side_by_side);
            loss_and_gradients(predictor, &ids, &ids, batch, parts, &pass, Options::default())
        });
        optimizer.step(1e-4, (1.0 / weight) as f32);
        optimizer.zero_gradients();
        seconds = start.elapsed().as_secs_f64();
    }
    let usage = pool::usage();
    let resident = machine::peak_resident_bytes().zip(before);
    Ok(Measured {
        in_use: usage.peak,
        reserved: usage.in_use + usage.kept,
        resident: resident.map(|(most, before)| most.saturating_sub(before)),
        seconds,
    })
}
