//! The parts of models. A layer owns its parameters and has one `forward`.

mod attention;
mod feed_forward;
mod linear;
mod norm;
mod positions;

pub use attention::Attention;
pub use feed_forward::FeedForward;
pub use linear::Linear;
pub use norm::Norm;
pub use positions::{Positions, ScoreBias};

use hearken_tensor::ops::dropout::dropout;
use hearken_tensor::rng::Key;
use hearken_tensor::{Tensor, Var};
use std::sync::{Arc, Mutex, PoisonError};

/// One pass through a model: whether there is noise, and who looks on.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    noise: Option<Noise>,
    record: Option<Record>,
}

/// What dropout is keyed by, beside its place in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// The run's seed.
    pub seed: u64,
    /// The step, or micro-batch, of the run.
    pub step: u64,
}

impl Pass {
    /// Without dropout: for evaluation and generation.
    pub fn evaluate() -> Self {
        Self::default()
    }

    /// With dropout.
    pub fn train(noise: Noise) -> Self {
        Self { noise: Some(noise), record: None }
    }

    /// The same pass, with what happens inside written to `record`.
    pub fn recorded(mut self, record: &Record) -> Self {
        self.record = Some(record.clone());
        self
    }

    /// Drops elements of `x` with chance `p`, if this is a pass with noise.
    pub fn dropout(&self, x: Var, p: f32, site: u64) -> Var {
        match self.key(p, site) {
            Some(key) => dropout(x, p, key),
            None => x,
        }
    }

    /// The key of the noise at `site`, if there is any.
    pub fn key(&self, p: f32, site: u64) -> Option<Key> {
        let Noise { seed, step } = self.noise.filter(|_| p > 0.0)?;
        Some(Key { seed, step, site })
    }

    /// Notes a value by name; `make` runs only if somebody looks on.
    pub fn note(&self, name: impl FnOnce() -> String, make: impl FnOnce() -> Tensor) {
        if let Some(record) = &self.record {
            let entry = (name(), make());
            record.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        }
    }
}

/// What a pass has noted, in order.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<Vec<(String, Tensor)>>>);

impl Record {
    /// All that was noted so far; the record is empty afterwards.
    pub fn take(&self) -> Vec<(String, Tensor)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
