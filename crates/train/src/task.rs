//! What the loop asks of a model and its data.
//!
//! The loop knows nothing of layers, tokens or files of text: it asks a [`Task`] for losses and
//! changes the parameters. A task is handed the [`Moment`] of every loss and draws all that is
//! random (which windows of text, which dropout) from it, and from nothing else: that is what
//! makes a resumed run equal to an uninterrupted one.

use crate::evaluation::{Evaluation, Portion};
use crate::exhibit::Exhibits;
use crate::report::Table;
use crate::weights;
use hearken_base::Result;
use hearken_tensor::rng::{Key, Rng};
use hearken_tensor::{Param, Tensor, Var};
use std::path::Path;

/// The site of [`Moment::rng`]: "examples".
const EXAMPLES: u64 = 0x6578_616d_706c_6573;

/// Which micro-batch of which step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The run's seed.
    pub seed: u64,
    /// Steps done before this one.
    pub step: u64,
    /// Which part of the step's batch, from 0.
    pub micro_batch: usize,
    /// How many parts the batch has.
    pub micro_batches: usize,
}

impl Moment {
    /// A number of its own for every micro-batch of a run: the `step` of dropout's key.
    pub fn counter(&self) -> u64 {
        self.step * self.micro_batches as u64 + self.micro_batch as u64
    }

    /// Random numbers of this micro-batch's own, for a task that draws its examples.
    pub fn rng(&self) -> Rng {
        let [low, high] = Key { seed: self.seed, step: self.counter(), site: EXAMPLES }.words();
        Rng::new(u64::from(high) << 32 | u64::from(low))
    }
}

/// The loss of one micro-batch, as a sum.
pub struct MicroLoss {
    /// A scalar: the sum of the losses of all targets that count.
    pub sum: Var,
    /// How many targets count, or their weight. The step divides by the total over its batch, so that
    /// micro-batches may count different numbers of targets. With 0 the sum is ignored.
    pub weight: f64,
    /// Tokens (or examples) processed, from which the speed is computed.
    pub tokens: usize,
    /// What the task keeps for later steps; handed to [`Task::carry`].
    pub carried: Vec<Tensor>,
}

impl MicroLoss {
    /// A loss that keeps nothing for later steps.
    pub fn new(sum: Var, weight: f64, tokens: usize) -> Self {
        Self { sum, weight, tokens, carried: Vec::new() }
    }
}

/// How one layer attends.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerAttention {
    /// The layer's name, as in the names of its parameters.
    pub layer: String,
    /// Mean entropy of the attention weights of each head, in nats.
    pub entropy: Vec<f32>,
    /// The entropy if all that is visible got the same weight: the most there can be.
    pub most: f32,
}

/// How one layer uses its experts.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerExperts {
    /// The layer's name, as in the names of its parameters.
    pub layer: String,
    /// The share of choices that each expert has; they sum to 1.
    pub shares: Vec<f64>,
    /// How many choices were looked at.
    pub choices: usize,
}

/// What is seen inside the model now and then.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Per layer, from the first to the last.
    pub attention: Vec<LayerAttention>,
    /// Per layer that has experts.
    pub experts: Vec<LayerExperts>,
}

/// Something that can be trained.
pub trait Task: Sync {
    /// All parameters of the model, under fixed names in a fixed order; each parameter once. Which of
    /// them are [trainable](Param::is_trainable) must not change during a run.
    fn parameters(&self) -> Vec<Param>;

    /// The learning rate of a parameter, as a multiple of the run's. Must not change during a run.
    fn rate(&self, parameter: &Param) -> f64 {
        let _ = parameter;
        1.0
    }

    /// The loss of a micro-batch, with its graph. All randomness comes from `at`. Called with the
    /// run's 16-bit storage set, if it has one; for several micro-batches at the same time, if the
    /// run computes them in parallel.
    fn loss(&self, at: Moment) -> Result<MicroLoss>;

    /// Takes [`MicroLoss::carried`] of a micro-batch back. Called after the backward pass of a step,
    /// for its micro-batches in order; not if the loss of the step was not finite.
    fn carry(&mut self, at: Moment, carried: Vec<Tensor>) {
        let _ = (at, carried);
    }

    /// What later steps depend on beside the weights and the step, under names of their own; it is
    /// saved in checkpoints.
    fn state(&self) -> Vec<(String, Tensor)> {
        Vec::new()
    }

    /// Takes back what [`Task::state`] gave, sorted by name. Called after [`Task::load_model`], also
    /// if the checkpoint has no such state.
    fn restore_state(&mut self, state: Vec<(String, Tensor)>) -> Result<()> {
        let _ = state;
        Ok(())
    }

    /// The unit of the loss, for the curves; empty if it has none.
    fn loss_unit(&self) -> &'static str {
        ""
    }

    /// The metrics on the validation set; `None` if there is none. Called without a graph. `progress`
    /// may be told the share that is done.
    fn evaluate(
        &mut self,
        portion: Portion,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Option<Evaluation>> {
        let _ = (portion, progress);
        Ok(None)
    }

    /// For the report: what the last evaluation looked like in detail.
    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }

    /// Something the model makes now, for people to look at. Must be a function of the weights
    /// and `step` alone.
    fn sample(&mut self, step: u64) -> Result<Option<String>> {
        let _ = step;
        Ok(None)
    }

    /// What is inside the model now. Called without a graph.
    fn observe(&mut self, step: u64) -> Result<Observation> {
        let _ = step;
        Ok(Observation::default())
    }

    /// Figures and pictures of the model for the report, at the end of the run. Called without a
    /// graph.
    fn exhibits(&mut self) -> Result<Exhibits> {
        Ok(Exhibits::default())
    }

    /// Writes the model's files into the directory `dir`, which exists and is empty. The weights
    /// must keep all their bits. Unless the task does it in its own way, this is `model.safetensors`
    /// with the parameters under their names.
    fn save_model(&self, dir: &Path) -> Result<()> {
        weights::save(&dir.join(weights::FILE), &self.parameters())
    }

    /// Reads the weights back that [`Task::save_model`] wrote.
    fn load_model(&mut self, dir: &Path) -> Result<()> {
        weights::load(&dir.join(weights::FILE), &self.parameters())
    }

    /// Floating-point operations of a training step per token, forward and backward; 0 if
    /// unknown.
    fn flops_per_token(&self) -> f64 {
        0.0
    }
}
