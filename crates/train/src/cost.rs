//! What training takes, found by running the same code dry.
//!
//! A [`Task`] that is built and stepped in a [dry pass](hearken_kernels::dry) takes and gives back the
//! buffers of a real one, in the same order, without memory behind them, and counts its products instead
//! of computing them. So this file knows nothing of layers: what any model costs is what its own code does.
//!
//! [`short_run`] does what a run does: it takes steps, looks inside, evaluates and goes on. Each finds free
//! what those before it have left, cut in other places.

use crate::config::TrainConfig;
use crate::evaluation::Portion;
use crate::stepper::Stepper;
use crate::task::{Moment, Task};
use hearken_base::{Error, Result};
use hearken_kernels::dry::{Dry, Exhausted, Operations};
use hearken_kernels::isa;
use hearken_tensor::{Param, no_grad, with_storage};

/// Bytes that training holds at its peak, by what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The parameters.
    pub parameters: u64,
    /// Their gradients, for each part of the batch that is computed in parallel.
    pub gradients: u64,
    /// The optimiser's numbers.
    pub optimizer: u64,
    /// The averages of the weights.
    pub averages: u64,
    /// Everything else that is reserved: what forward keeps for backward, the working set beside
    /// it, 16-bit copies of the weights, and the gaps between tensors.
    pub activations: u64,
    /// What kernels work in beside tensors.
    pub kernels: u64,
    /// The most that tensors take at any one time; less than the total, since not everything is
    /// there at once.
    pub in_use: u64,
}

impl Memory {
    /// What the process reserves for tensors.
    pub fn tensors(&self) -> u64 {
        self.parameters + self.gradients + self.optimizer + self.averages + self.activations
    }

    /// What training adds to the process.
    pub fn total(&self) -> u64 {
        self.tensors() + self.kernels
    }
}

/// A part of a model and how many numbers it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is, from the names of its parameters.
    pub name: String,
    /// How many numbers it has, in the whole model.
    pub parameters: u64,
}

/// What training takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Parameters by part.
    pub parts: Vec<Part>,
    /// Bytes.
    pub memory: Memory,
    /// Operations of a forward pass, per token.
    pub forward: Operations,
    /// Operations of forward and backward, per token; what checkpointing computes again is not counted,
    /// so that figures compare.
    pub training: Operations,
    /// Operations of a whole step, all that are done: with what is computed again, and the optimiser.
    pub step: f64,
    /// Tokens of a step.
    pub tokens: usize,
}

impl Cost {
    /// Of training as `config` says. `make` gives a task whose data are as large as the real ones; it is
    /// called in a dry pass, where nothing is drawn and nothing computed.
    pub fn of(
        config: &TrainConfig,
        make: impl Fn(&TrainConfig) -> Result<Box<dyn Task>>,
    ) -> Result<Self> {
        let Steps { parts, memory, step } = steps(config, &make)?;
        let Counted { forward, training, tokens } = operations(config, &make)?;
        let tokens = tokens.saturating_mul(config.micro_batches());
        Ok(Self { parts, memory, forward, training, step, tokens })
    }

    /// All parameters.
    pub fn parameters(&self) -> u64 {
        self.parts.iter().map(|part| part.parameters).sum()
    }
}

struct Steps {
    parts: Vec<Part>,
    memory: Memory,
    step: f64,
}

/// A short run.
fn steps(
    config: &TrainConfig,
    make: &impl Fn(&TrainConfig) -> Result<Box<dyn Task>>,
) -> Result<Steps> {
    let dry = Dry::new();
    let run = || {
        let mut task = make(config)?;
        let parameters = task.parameters();
        let mut stepper = Stepper::new(config, parameters.clone());
        short_run(&mut stepper, &mut *task, config)?;
        let usage = dry.usage();
        stepper.step(&mut *task, 4, false)?;
        let step = dry.usage().operations.since(usage.operations).all();
        let bytes = |parameters: &[Param]| size_of::<f32>() as u64 * numbers(parameters);
        let mut memory = Memory {
            parameters: bytes(&parameters),
            gradients: bytes(stepper.parameters()) * config.parts_at_once() as u64,
            optimizer: stepper.optimizer_bytes(),
            averages: stepper.average_bytes(),
            activations: 0,
            kernels: usage.scratch,
            in_use: usage.peak,
        };
        memory.activations = usage.touched.saturating_sub(memory.tensors());
        Ok(Steps { parts: parts(&parameters), memory, step })
    };
    dry.run(run).map_err(exhausted)?
}

/// Four steps, two looks inside and an evaluation in a run's order; gives the seconds of the fastest step
/// but the first, which finds no memory prepared.
pub fn short_run(stepper: &mut Stepper, task: &mut dyn Task, config: &TrainConfig) -> Result<f64> {
    let mut fastest = f64::INFINITY;
    for step in 0..4 {
        // The first is looked at, and the one before the evaluation, which may be the last of a run.
        let observe = config.observe_every > 0 && step % 2 == 0;
        let seconds = stepper.step(task, step, observe)?.seconds;
        if observe {
            no_grad(|| task.observe(step))?;
        }
        if step == 2 {
            stepper.with_judged_weights(|| {
                let portion = Portion { sample: 0, whole: true };
                no_grad(|| isa::for_batches(|| task.evaluate(portion, &mut |_| {})))
            })?;
        }
        if step > 0 {
            fastest = fastest.min(seconds);
        }
    }
    Ok(fastest)
}

struct Counted {
    forward: Operations,
    training: Operations,
    /// Of a micro-batch.
    tokens: usize,
}

/// The operations of the first micro-batch, per token.
fn operations(
    config: &TrainConfig,
    make: &impl Fn(&TrainConfig) -> Result<Box<dyn Task>>,
) -> Result<Counted> {
    let config = TrainConfig { gradient_checkpointing: false, ..config.clone() };
    let dry = Dry::new();
    let run = || {
        let task = make(&config)?;
        let at = first(&config);
        let count = |recorded: bool| {
            let before = dry.usage().operations;
            let tokens = with_storage(config.precision.storage(), || {
                let micro = if recorded { task.loss(at)? } else { no_grad(|| task.loss(at))? };
                if recorded {
                    micro.sum.backward();
                }
                Ok::<usize, Error>(micro.tokens)
            })?;
            let Operations { products, attention } = dry.usage().operations.since(before);
            let each = tokens.max(1) as f64;
            let each = Operations { products: products / each, attention: attention / each };
            Ok((each, tokens))
        };
        let (forward, tokens) = count(false)?;
        Ok(Counted { forward, training: count(true)?.0, tokens })
    };
    dry.run(run).map_err(exhausted)?
}

fn first(config: &TrainConfig) -> Moment {
    let micro_batches = config.micro_batches();
    Moment { seed: config.seed, step: 0, micro_batch: 0, micro_batches }
}

fn exhausted(_: Exhausted) -> Error {
    Error::new(
        "training would need more memory than a process has addresses for",
        "a smaller batch with train.accumulate, or a smaller model; if the system limits the addresses \
         of a process (ulimit -v), raise the limit",
    )
}

fn numbers(parameters: &[Param]) -> u64 {
    parameters.iter().map(|parameter| parameter.shape().len() as u64).sum()
}

/// Parameters by part, in the order of their first.
pub fn parts(parameters: &[Param]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for parameter in parameters {
        let (name, count) = (part_of(parameter.name()), parameter.shape().len() as u64);
        match parts.iter_mut().find(|part| part.name == name) {
            Some(part) => part.parameters += count,
            None => parts.push(Part { name, parameters: count }),
        }
    }
    parts
}

/// The part that a parameter belongs to: its path without the list it is in, without numbers, and without
/// what is inside the part. `encoder.blocks.3.feed_forward.up.weight` is of the encoder's feed-forward,
/// `blocks.0.norm2.weight` of the norms.
fn part_of(name: &str) -> String {
    let path: Vec<&str> = name.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (before, rest) = match path.iter().position(is_number) {
        Some(at) => (&path[..at.saturating_sub(1)], &path[at + 1..]),
        None => (&path[..0], &path[..]),
    };
    let part =
        rest.first().map_or(name, |part| part.trim_end_matches(|c: char| c.is_ascii_digit()));
    let words: Vec<&str> = before.iter().copied().chain([part]).collect();
    words.join(" ").replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::part_of;

    #[test]
    fn parts_are_named_after_paths() {
        for (name, part) in [
            ("embedding.weight", "embedding"),
            ("blocks.11.attention.qkv.weight", "attention"),
            ("blocks.0.norm1.weight", "norm"),
            ("norm.weight", "norm"),
            ("encoder.blocks.3.feed_forward.up.weight", "encoder feed-forward"),
            ("blocks.3.feed_forward.experts.7.up.weight", "feed-forward"),
            ("head", "head"),
            ("", ""),
        ] {
            assert_eq!(part_of(name), part, "{name}");
        }
    }
}
