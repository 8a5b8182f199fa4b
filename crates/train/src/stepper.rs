//! One update of the weights: gradients → clip → optimiser. No file is read or written here.
//!
//! ```text
//! for each micro-batch: the sum of its losses, backward (scaled for f16)   gradients add up
//! factor = 1 / (loss scale · total weight of the batch)
//! norm of all gradients · factor → clip                                    not finite: skip
//! optimiser with gradients · factor · clip, then the average of weights
//! ```
//! Gradients are those of the sum of all losses until the norms and the optimiser read them, which
//! multiply by the factor as they do. So the mean over the batch is exact, however many targets each
//! micro-batch counts, and costs no pass of its own.

use crate::config::{Precision, TrainConfig};
use crate::ema::Ema;
use crate::norms;
use crate::optimizer::Optimizer;
use crate::task::{Moment, Task};
use hearken_base::{Error, Result};
use hearken_kernels::elementwise::sum_of_squares;
use hearken_kernels::isa;
use hearken_tensor::half::LossScaler;
use hearken_tensor::{Param, Tensor, Var, parallel_parts, profile, with_storage};
use std::time::Instant;

/// Everything that changes with a step, but for the task's own state.
pub struct Stepper {
    config: TrainConfig,
    /// Those that learn.
    parameters: Vec<Param>,
    pub(crate) optimizer: Optimizer,
    pub(crate) ema: Option<Ema>,
    pub(crate) scaler: Option<LossScaler>,
    /// Steps in a row without finite gradients.
    pub(crate) skipped: u32,
}

/// The loss of a whole batch, whose gradients the parameters have.
#[derive(Clone, Debug)]
pub struct BatchLoss {
    /// The sum of the losses of all targets.
    pub sum: f64,
    /// The weight of all targets. The gradients are to be divided by it, and by the loss scale.
    pub weight: f64,
    /// Tokens that were computed.
    pub tokens: usize,
    /// What the task keeps, by micro-batch.
    carried: Vec<(Moment, Vec<Tensor>)>,
}

/// Whether a step changed the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It did.
    Updated,
    /// The loss or a gradient was not finite: the step was skipped.
    NotFinite,
    /// No target was counted: the step was skipped.
    NoTargets,
}

/// What one step came to.
#[derive(Clone, Debug)]
pub struct StepResult {
    /// Were the weights changed?
    pub change: Change,
    /// Mean loss of the batch before the update; NaN if no target was counted.
    pub loss: f64,
    /// The learning rate.
    pub lr: f64,
    /// Norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// ‖g‖² of every parameter that learns.
    pub gradient_squares: Vec<f64>,
    /// ‖Δθ‖² and ‖θ‖² of every parameter that learns, if they were asked for.
    pub updates: Option<Vec<(f64, f64)>>,
    /// Tokens that were computed.
    pub tokens: usize,
    /// How long it took.
    pub seconds: f64,
}

impl Stepper {
    /// Starts with moments of zero, from the weights as they are. `parameters` are all of the model;
    /// those that are not trainable are left alone.
    pub fn new(config: &TrainConfig, parameters: Vec<Param>) -> Self {
        let parameters: Vec<Param> = parameters.into_iter().filter(Param::is_trainable).collect();
        // Nothing left over from a run that failed.
        for parameter in &parameters {
            parameter.set_gradient(None);
        }
        Self {
            optimizer: Optimizer::new(config.optimizer, config.decay, parameters.iter().cloned()),
            ema: config.ema.map(|ema| Ema::new(ema, &parameters)),
            scaler: (config.precision == Precision::F16).then(LossScaler::default),
            skipped: 0,
            config: config.clone(),
            parameters,
        }
    }

    /// Gives every parameter a learning rate of its own: the run's times `factor`.
    pub fn scale_rates(&mut self, factor: impl Fn(&Param) -> f64) {
        self.optimizer.scale_rates(factor);
    }

    /// The parameters that learn.
    pub fn parameters(&self) -> &[Param] {
        &self.parameters
    }

    /// Bytes of what the optimiser keeps from step to step.
    pub fn optimizer_bytes(&self) -> u64 {
        bytes(self.optimizer.tensors().iter().map(|(_, tensor)| tensor.shape().len()))
    }

    /// Bytes of the averages of the weights, if there are any.
    pub fn average_bytes(&self) -> u64 {
        let learned = || self.parameters.iter().map(|p| p.shape().len());
        self.ema.as_ref().map_or(0, |_| bytes(learned()))
    }

    /// Steps in a row without finite gradients.
    pub fn skipped(&self) -> u32 {
        self.skipped
    }

    /// The step after `step` steps. `observe` asks for the size of the update too. All of it, the
    /// optimiser too, runs on the [set for batches](isa::for_batches).
    pub fn step(&mut self, task: &mut dyn Task, step: u64, observe: bool) -> Result<StepResult> {
        isa::for_batches(|| self.whole_step(task, step, observe))
    }

    fn whole_step(&mut self, task: &mut dyn Task, step: u64, observe: bool) -> Result<StepResult> {
        let started = Instant::now();
        let lr = self.config.lr_at(step);
        let scale = self.scaler.as_ref().map_or(1.0, LossScaler::scale);
        let batch = self.gradients(task, step)?;
        profile::mark("(parts added up)");
        let mut updates = observe.then(|| vec![(0.0, 0.0); self.parameters.len()]);
        let (change, loss, gradient_squares) = if batch.weight == 0.0 {
            (Change::NoTargets, f64::NAN, vec![0.0; self.parameters.len()])
        } else {
            let loss = batch.sum / batch.weight;
            let factor = 1.0 / (f64::from(scale) * batch.weight);
            let squares = norms::gradient_squares(&self.parameters, factor);
            profile::mark("(gradient norm)");
            (self.update(lr, loss, factor, &squares, updates.as_deref_mut()), loss, squares)
        };
        self.optimizer.zero_gradients();
        profile::mark("(optimiser)");
        if batch.sum.is_finite() {
            for (at, carried) in batch.carried {
                task.carry(at, carried);
            }
        }
        Ok(StepResult {
            change,
            loss,
            lr,
            gradient_norm: norm(&gradient_squares),
            gradient_squares,
            updates,
            tokens: batch.tokens,
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// Adds the gradients of the batch of the step after `step` steps to those of the parameters:
    /// gradients of the sum of its losses, times the loss scale.
    pub fn gradients(&self, task: &dyn Task, step: u64) -> Result<BatchLoss> {
        let config = &self.config;
        let scale = self.scaler.as_ref().map_or(1.0, LossScaler::scale);
        let parts = config.parts_at_once();
        let mut batch = BatchLoss { sum: 0.0, weight: 0.0, tokens: 0, carried: Vec::new() };
        for round in 0..config.accumulate {
            let moment = |part| Moment {
                seed: config.seed,
                step,
                micro_batch: round * parts + part,
                micro_batches: config.micro_batches(),
            };
            let results = with_storage(config.precision.storage(), || {
                parallel_parts(parts, &self.parameters, |part| {
                    let at = moment(part);
                    let micro = task.loss(at)?;
                    let mut sum = 0.0;
                    if micro.weight != 0.0 {
                        check_loss(&micro.sum)?;
                        micro.sum.backward_with(Tensor::full(micro.sum.shape(), scale));
                        sum = f64::from(micro.sum.value().item());
                    }
                    Ok((at, sum, micro.weight, micro.tokens, micro.carried))
                })
            });
            for result in results {
                let (at, sum, weight, tokens, carried) = result?;
                batch.sum += sum;
                batch.weight += weight;
                batch.tokens += tokens;
                if !carried.is_empty() {
                    batch.carried.push((at, carried));
                }
            }
        }
        Ok(batch)
    }

    /// Changes the weights, if everything is finite. `factor` makes the gradients those of the mean
    /// loss; `updates` takes ‖Δθ‖² and ‖θ‖².
    fn update(
        &mut self,
        lr: f64,
        loss: f64,
        factor: f64,
        squares: &[f64],
        updates: Option<&mut [(f64, f64)]>,
    ) -> Change {
        let norm = norm(squares);
        let finite = loss.is_finite() && norm.is_finite();
        if let Some(scaler) = &mut self.scaler {
            scaler.after_backward(finite);
        }
        if !finite {
            self.skipped += 1;
            return Change::NotFinite;
        }
        let factor = (factor * norms::clip_factor(norm, self.config.clip)) as f32;
        match updates {
            None => self.optimizer.step(lr, factor),
            Some(updates) => {
                let mut next = updates.iter_mut();
                self.optimizer.step_seen(lr, factor, |parameter, before| {
                    if let Some((update, weight)) = next.next() {
                        let after = parameter.value();
                        *update = norms::difference_square(after.data(), before.data());
                        *weight = sum_of_squares(before.data());
                    }
                });
            }
        }
        if let Some(ema) = &mut self.ema {
            ema.update(&self.parameters);
        }
        self.skipped = 0;
        Change::Updated
    }

    /// Runs `f` with the weights that are judged and saved: the averages, if there are any.
    pub fn with_judged_weights<R>(&self, f: impl FnOnce() -> R) -> R {
        match &self.ema {
            Some(ema) => ema.with_averages(&self.parameters, f),
            None => f(),
        }
    }
}

/// Bytes of so many numbers.
fn bytes(lengths: impl Iterator<Item = usize>) -> u64 {
    lengths.map(|len| (len * size_of::<f32>()) as u64).sum()
}

/// Is this a number that gradients can start from? Without the second question, a run whose loss was
/// computed without a graph would end well and have learned nothing.
fn check_loss(sum: &Var) -> Result<()> {
    if sum.shape().len() != 1 {
        return Err(Error::new(
            format!("the loss has the shape {}, expected one number", sum.shape()),
            "add it up: .sum(), or Reduction::Sum",
        ));
    }
    if !sum.wants_gradient() {
        return Err(Error::new(
            "the loss does not depend on a parameter that learns",
            "compute it from the parameters, outside of no_grad and without detach",
        ));
    }
    Ok(())
}

/// The norm of all gradients together.
fn norm(squares: &[f64]) -> f64 {
    squares.iter().sum::<f64>().sqrt()
}
