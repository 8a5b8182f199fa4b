//! One pass through a model: the noise of dropout, the layout of the batch, and who watches.

use crate::taps::{Interest, Place, Taps};
use hearken_tensor::rng::Key;
use hearken_tensor::{Tensor, Var};
use std::sync::{Arc, Mutex, PoisonError};

/// One pass through a model.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    noise: Option<Noise>,
    layout: Layout,
    taps: Option<Arc<Taps>>,
    auxiliary: Option<Auxiliary>,
}

/// Losses of layers themselves, beside that of the targets: those of routers. Each is the mean over
/// the tokens of the micro-batch.
#[derive(Clone, Debug, Default)]
pub struct Auxiliary(Arc<Mutex<Vec<Var>>>);

impl Auxiliary {
    /// The sum of those that were collected, in order, which are forgotten; nothing, if no layer has
    /// any.
    pub fn take(&self) -> Option<Var> {
        let mut collected = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        collected.drain(..).reduce(|sum, loss| sum + loss)
    }
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
    /// Which of B rows of T tokens are no padding, (B, T); `None` if all are.
    pub fn real(&self, [batch, tokens]: [usize; 2]) -> Option<Arc<[bool]>> {
        if let Some(packing) = &self.packing {
            return Some(packing.segments.iter().map(|segment| *segment != 0).collect());
        }
        let lengths = self.lengths.as_ref()?;
        let real = |i: usize| i % tokens < lengths[i / tokens];
        Some((0..batch * tokens).map(real).collect())
    }

    /// Rows of these lengths, padded to the longest.
    pub fn padded(lengths: &[usize]) -> Self {
        Self { lengths: Some(lengths.into()), ..Self::default() }
    }

    /// Rows whose first tokens, so many of each, are a prefix that all see.
    pub fn prefixed(prefixes: &[usize]) -> Self {
        Self { prefixes: Some(prefixes.into()), ..Self::default() }
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

    /// The same pass with other noise.
    pub fn with_noise(&self, noise: Noise) -> Self {
        Self { noise: Some(noise), ..self.clone() }
    }

    /// The same pass over a batch that is laid out like this.
    pub fn over(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// The same pass, with what happens inside shown to `taps`.
    pub fn watched(mut self, taps: &Arc<Taps>) -> Self {
        self.taps = Some(taps.clone());
        self
    }

    /// Is this a pass with noise: one of training?
    pub fn is_training(&self) -> bool {
        self.noise.is_some()
    }

    /// The same pass, with losses of layers collected.
    pub fn collecting(&self) -> (Self, Auxiliary) {
        let auxiliary = Auxiliary::default();
        (Self { auxiliary: Some(auxiliary.clone()), ..self.clone() }, auxiliary)
    }

    /// Should layers compute losses of their own? Only in training, and if somebody adds them up.
    pub fn wants_auxiliary(&self) -> bool {
        self.is_training() && self.auxiliary.is_some()
    }

    /// Hands over the loss of a layer.
    pub fn add_auxiliary(&self, loss: Var) {
        if let Some(Auxiliary(collected)) = &self.auxiliary {
            collected.lock().unwrap_or_else(PoisonError::into_inner).push(loss);
        }
    }

    /// Does anybody watch?
    pub fn is_watched(&self) -> bool {
        self.taps.is_some()
    }

    /// How the batch is laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The key of the noise at `site`, if this is a pass with noise.
    pub fn key(&self, site: u64) -> Option<Key> {
        self.noise.map(|Noise { seed, step }| Key { seed, step, site })
    }

    /// Shows a value of the layer at `at`, and gives what to go on with: `x` itself, unless somebody
    /// replaces it.
    pub fn tap(&self, at: &Place, value: &str, x: Var) -> Var {
        match &self.taps {
            Some(taps) => taps.apply(&at.name(value), x, false),
            None => x,
        }
    }

    /// As [`Pass::tap`], of the layer's own result, under the path of the layer.
    pub fn tap_result(&self, at: &Place, x: Var) -> Var {
        self.tap(at, "", x)
    }

    /// As [`Pass::tap`], of a value (B, heads, …).
    pub fn tap_heads(&self, at: &Place, value: &str, x: Var) -> Var {
        match &self.taps {
            Some(taps) => taps.apply(&at.name(value), x, true),
            None => x,
        }
    }

    /// Is any of these values wanted?
    pub fn wants(&self, at: &Place, values: &[&str]) -> bool {
        self.interest(at, values) != Interest::None
    }

    /// How much is wanted of these values, of the one of which most is.
    pub(crate) fn interest(&self, at: &Place, values: &[&str]) -> Interest {
        let Some(taps) = &self.taps else { return Interest::None };
        let each = values.iter().map(|value| taps.interest(&at.name(value)));
        each.max().unwrap_or(Interest::None)
    }

    /// Is this head of a value wanted by itself?
    pub(crate) fn reads_head(&self, at: &Place, value: &str, head: usize) -> bool {
        self.taps.as_ref().is_some_and(|taps| taps.reads_head(&at.name(value), head))
    }

    /// Shows a head of a value that was computed by itself.
    pub(crate) fn show_head(&self, at: &Place, value: &str, head: usize, x: &Tensor) {
        if let Some(taps) = &self.taps {
            taps.show_head(&at.name(value), head, x);
        }
    }
}
