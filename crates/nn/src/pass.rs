//! One pass through a model: the noise of dropout, the layout of the batch, and what is recorded.

use hearken_tensor::Tensor;
use hearken_tensor::rng::Key;
use std::sync::{Arc, Mutex, PoisonError};

/// One pass through a model.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    noise: Option<Noise>,
    layout: Layout,
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

/// What is special about the rows of a batch; by default, nothing: all tokens are real.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The length of each row without its padding, which is masked: (B).
    pub lengths: Option<Arc<[usize]>>,
    /// How many tokens of each row are seen by all of its tokens, even by earlier ones: (B). For
    /// prefix language models.
    pub prefixes: Option<Arc<[usize]>>,
    /// Several documents in each row, which do not see each other.
    pub packing: Option<Packing>,
}

/// Which tokens of a row are of the same document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// (B, T): the number of the document within its row, rising from 1; 0 is padding.
    pub segments: Arc<[u32]>,
    /// (B, T): the position within the document, from 0.
    pub positions: Arc<[u32]>,
}

impl Layout {
    /// Rows of these lengths, padded to the longest.
    pub fn padded(lengths: &[usize]) -> Self {
        Self { lengths: Some(lengths.into()), ..Self::default() }
    }

    /// Rows that hold several documents: see [`Packing`].
    pub fn packed(segments: &[u32], positions: &[u32]) -> Self {
        let packing = Packing { segments: segments.into(), positions: positions.into() };
        Self { packing: Some(packing), ..Self::default() }
    }
}

impl Pass {
    /// Without dropout: for evaluation and generation.
    pub fn evaluate() -> Self {
        Self::default()
    }

    /// With dropout.
    pub fn train(noise: Noise) -> Self {
        Self { noise: Some(noise), ..Self::default() }
    }

    /// The same pass over a batch that is laid out like this.
    pub fn over(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// The same pass, with what happens inside written to `record`.
    pub fn recorded(mut self, record: &Record) -> Self {
        self.record = Some(record.clone());
        self
    }

    /// How the batch is laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The key of the noise at `site`, if this is a pass with noise.
    pub fn key(&self, site: u64) -> Option<Key> {
        self.noise.map(|Noise { seed, step }| Key { seed, step, site })
    }

    /// Records a value by name; `make` runs only if the pass is recorded.
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
