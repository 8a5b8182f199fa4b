//! What the loop asks of a model and its data.
//!
//! The loop knows nothing of layers, tokens or files of text: it asks a [`Task`] for losses and
//! changes the parameters. A task is handed the [`Moment`] of every loss and draws all that is
//! random (which windows of text, which dropout) from it, and from nothing else: that is what
//! makes a resumed run equal to an uninterrupted one.

use crate::error::Error;
use crate::optimizer::Role;
use hearken_tensor::{Param, Var};
use std::path::Path;

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
}

/// The loss of one micro-batch.
pub struct MicroLoss {
    /// A scalar, weighted so that the sum over the step's micro-batches is the mean over its
    /// whole batch: for micro-batches of one size, the mean divided by their number.
    pub loss: Var,
    /// Tokens (or examples) that it is the loss of.
    pub tokens: usize,
}

/// How much of the validation set to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// About so many tokens, spread over the set, the same in every evaluation of a run: the sample.
    /// 0 for all.
    pub sample: u64,
    /// All others too.
    pub whole: bool,
}

/// The loss on the validation set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean over all tokens that were looked at, in nats.
    pub loss: f64,
    /// How many tokens.
    pub tokens: usize,
    /// Mean over the sample, which can be compared with that of other evaluations of the run.
    pub sample_loss: f64,
    /// Was everything looked at?
    pub whole: bool,
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

/// What is seen inside the model now and then.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Per layer, from the first to the last.
    pub attention: Vec<LayerAttention>,
}

/// Something that can be trained.
pub trait Task: Sync {
    /// All that is learned, under fixed names in a fixed order; each parameter once.
    fn parameters(&self) -> Vec<Param>;

    /// What a parameter is for, which decides on weight decay and on who Muon is for. The default
    /// guesses from name and shape.
    fn role(&self, parameter: &Param) -> Role {
        Role::of(parameter.name(), parameter.shape().dims())
    }

    /// The loss of a micro-batch, with its graph. All randomness comes from `at`. Called with the
    /// run's 16-bit storage set, if it has one; for several micro-batches at the same time, if the
    /// run has them side by side.
    fn loss(&self, at: Moment) -> Result<MicroLoss, Error>;

    /// The loss on the validation set; `None` if there is none. Called without a graph. `progress`
    /// may be told the share that is done.
    fn evaluate(
        &mut self,
        extent: Extent,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Option<Evaluation>, Error>;

    /// Something the model makes now, for people to look at. Must be a function of the weights
    /// and `step` alone.
    fn sample(&mut self, step: u64) -> Result<Option<String>, Error> {
        let _ = step;
        Ok(None)
    }

    /// What is inside the model now. Called without a graph.
    fn observe(&mut self, step: u64) -> Result<Observation, Error> {
        let _ = step;
        Ok(Observation::default())
    }

    /// Writes the model's files into the directory `dir`, which exists and is empty. The weights
    /// must keep all their bits.
    fn save_model(&self, dir: &Path) -> Result<(), Error>;

    /// Reads the weights back that [`Task::save_model`] wrote.
    fn load_model(&mut self, dir: &Path) -> Result<(), Error>;

    /// Floating-point operations of a training step per token, forward and backward; 0 if
    /// unknown.
    fn flops_per_token(&self) -> f64 {
        0.0
    }
}
