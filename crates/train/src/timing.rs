//! How many steps fit into a time: a few steps and an evaluation are timed, and the weights are put
//! back as they were.

use crate::config::TrainConfig;
use crate::evaluation::Portion;
use crate::stepper::Stepper;
use crate::task::Task;
use hearken_base::Result;
use hearken_kernels::isa;
use hearken_tensor::no_grad;
use std::time::Instant;

/// The first steps fill pools and caches and do not count.
const WARM: u64 = 3;
/// Steps are timed for so long, or a hundredth of the time that is asked for if that is more.
const LEAST_SECONDS: f64 = 1.5;
/// At least so many steps.
const LEAST_STEPS: usize = 3;
/// The share of the time that is planned for: records, samples and checkpoints take the rest.
const SHARE: f64 = 0.95;

/// How many steps of `task` take about `seconds`, evaluations included; at least one. The weights
/// are as before, to the bit.
pub fn steps_within(task: &mut dyn Task, config: &TrainConfig, seconds: f64) -> Result<u64> {
    let parameters = task.parameters();
    let before: Vec<_> = parameters.iter().map(hearken_tensor::Param::value).collect();
    let timed = time(task, config, seconds);
    for (parameter, value) in parameters.iter().zip(before) {
        if parameter.is_trainable() {
            parameter.set_value(value);
            parameter.set_gradient(None);
        }
    }
    let (step, evaluation) = timed?;
    let per_step = match config.evaluate_every {
        0 => step,
        every => step + evaluation / every as f64,
    };
    // The last evaluation comes in any case.
    let steps = (SHARE * seconds - evaluation) / per_step.max(1e-9);
    Ok((steps as u64).max(1))
}

/// Seconds of a step, by the median, and of an evaluation.
fn time(task: &mut dyn Task, config: &TrainConfig, seconds: f64) -> Result<(f64, f64)> {
    let mut stepper = Stepper::new(config, task.parameters());
    for step in 0..WARM {
        stepper.step(task, step, false)?;
    }
    let (started, most) = (Instant::now(), LEAST_SECONDS.max(0.01 * seconds));
    let mut taken = Vec::new();
    while taken.len() < LEAST_STEPS || started.elapsed().as_secs_f64() < most {
        taken.push(stepper.step(task, WARM + taken.len() as u64, false)?.seconds);
    }
    taken.sort_by(f64::total_cmp);
    let portion = Portion { sample: config.evaluate_tokens, whole: false };
    let started = Instant::now();
    no_grad(|| isa::for_batches(|| task.evaluate(portion, &mut |_| {})))?;
    Ok((taken[taken.len() / 2], started.elapsed().as_secs_f64()))
}
