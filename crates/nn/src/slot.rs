//! The state of one sequence that is being decoded: a slot.
//!
//! Each sequence has a length of its own and, for each layer, what that layer remembers. A step
//! takes the new tokens of several sequences, a whole prompt of one and a single token of another,
//! as rows next to each other (1, rows, C), without padding: all layers but attention work on rows,
//! and attention on each sequence by itself.

use crate::cache::{CacheKind, KeyValues};
use crate::models::{Generates, Tokens, Translates};
use hearken_kernels::attention::pages::PAGE;
use hearken_tensor::Tensor;
use std::ops::Range;
use std::sync::Arc;

/// What a layer remembers of a sequence. Another kind of layer has another kind of state.
#[derive(Clone, Debug)]
pub enum LayerState {
    /// Keys and values of all tokens.
    KeyValues(KeyValues),
    /// What a recurrent layer carries from token to token, or the last inputs of a convolution;
    /// nothing before the first token, which stands for zeros.
    Carried(Vec<Tensor>),
    /// Hidden states of a source (S, M) and what they are compared by (S, A), which stay.
    Source([Tensor; 2]),
    /// Sums over all tokens.
    Sums(Sums),
    /// The tokens themselves, of a model that reads everything again for every new one: this is the
    /// only state of all its layers.
    Tokens(Vec<u32>),
}

/// Running sums of a sequence: as large after a million tokens as after one.
#[derive(Clone, Debug)]
pub struct Sums {
    len: usize,
    /// Nothing before the first token.
    sums: Option<Tensor>,
}

impl Sums {
    /// So many numbers, all 0.
    pub fn new(len: usize) -> Self {
        Self { len, sums: None }
    }

    /// The sums, to be added to.
    pub fn data_mut(&mut self) -> &mut [f32] {
        self.sums.get_or_insert_with(|| Tensor::zeros([self.len])).data_mut()
    }
}

impl LayerState {
    fn bytes(&self) -> usize {
        match self {
            Self::KeyValues(kept) => kept.bytes(),
            Self::Carried(kept) => kept.iter().map(|state| 4 * state.shape().len()).sum(),
            Self::Source(kept) => kept.iter().map(|state| 4 * state.shape().len()).sum(),
            Self::Sums(Sums { sums, .. }) => sums.as_ref().map_or(0, |x| 4 * x.shape().len()),
            Self::Tokens(ids) => size_of_val(ids.as_slice()),
        }
    }

    fn clear(&mut self) {
        match self {
            Self::KeyValues(kept) => kept.clear(),
            Self::Carried(kept) => kept.clear(),
            Self::Source(_) => {}
            Self::Sums(kept) => kept.sums = None,
            Self::Tokens(ids) => ids.clear(),
        }
    }

    /// Keys and values, for a layer that keeps these.
    pub fn key_values(&mut self) -> &mut KeyValues {
        match self {
            Self::KeyValues(kept) => kept,
            _ => panic!("this layer keeps no keys and values"),
        }
    }

    /// Sums, for a layer that keeps these.
    pub fn sums(&mut self) -> &mut Sums {
        match self {
            Self::Sums(kept) => kept,
            _ => panic!("this layer keeps no sums"),
        }
    }

    /// What is carried along, for a layer that does so.
    pub fn carried(&mut self) -> &mut Vec<Tensor> {
        match self {
            Self::Carried(kept) => kept,
            _ => panic!("something else where a recurrent state was expected"),
        }
    }
}

/// A source that a sequence attends to: its keys and values in every layer.
#[derive(Clone, Debug)]
pub struct Source {
    /// How many tokens it has.
    pub tokens: usize,
    /// One of each layer.
    pub layers: Vec<KeyValues>,
}

/// The state of a sequence. A copy continues as another sequence; what both have read is shared.
#[derive(Clone, Debug)]
pub struct Slot {
    length: usize,
    /// How many of the first tokens are seen by all.
    prefix: usize,
    layers: Vec<LayerState>,
    source: Option<Arc<Source>>,
}

impl Slot {
    /// An empty sequence, with the states of all layers.
    pub fn new(layers: Vec<LayerState>) -> Self {
        Self { length: 0, prefix: 0, layers, source: None }
    }

    /// The same sequence, which attends to this source.
    pub fn attending_to(self, source: Source) -> Self {
        assert_eq!(source.layers.len(), self.layers.len(), "layers of the source and the sequence");
        Self { source: Some(Arc::new(source)), ..self }
    }

    /// How many tokens were read.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Was nothing read yet?
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes that the states take, those shared with copies included.
    pub fn bytes(&self) -> usize {
        let source = self.source.iter().flat_map(|source| &source.layers);
        let source: usize = source.map(KeyValues::bytes).sum();
        source + self.layers.iter().map(LayerState::bytes).sum::<usize>()
    }

    /// What every layer remembers.
    pub(crate) fn layers_mut(&mut self) -> &mut [LayerState] {
        &mut self.layers
    }

    /// Counts tokens that every layer has taken into its state.
    pub(crate) fn advance(&mut self, tokens: usize) {
        self.length += tokens;
    }

    /// Makes the first so many tokens a prefix, which is seen by all of it and by what follows: for
    /// prefix language models. They must be read in one step, and nothing before.
    pub fn set_prefix(&mut self, tokens: usize) {
        assert!(
            self.is_empty(),
            "a prefix begins a sequence, and {} tokens were read",
            self.length
        );
        self.prefix = tokens;
    }

    /// Can it forget its last tokens? Sums and recurrent states cannot be taken apart: go back to a
    /// copy instead.
    pub fn can_be_cut(&self) -> bool {
        let kept =
            |state: &LayerState| matches!(state, LayerState::KeyValues(_) | LayerState::Tokens(_));
        self.layers.iter().all(kept)
    }

    /// Forgets all but the first `length` tokens; says whether it could.
    pub fn truncate(&mut self, length: usize) -> bool {
        if !self.can_be_cut() || length > self.length {
            return false;
        }
        // Keys and values behind `length` are written over by the next ones.
        self.length = length;
        for state in &mut self.layers {
            if let LayerState::Tokens(ids) = state {
                ids.truncate(length);
            }
        }
        true
    }

    /// Adds tokens to the state of a model that reads everything again; gives all of them.
    pub(crate) fn read_again(&mut self, new: &[u32]) -> &[u32] {
        let [LayerState::Tokens(ids)] = self.layers.as_mut_slice() else {
            panic!("this model reads every token once")
        };
        ids.extend_from_slice(new);
        self.length = ids.len();
        ids
    }

    /// Forgets all tokens; a source stays.
    pub fn clear(&mut self) {
        self.length = 0;
        self.prefix = 0;
        self.layers.iter_mut().for_each(LayerState::clear);
    }
}

/// The new tokens of a sequence, at least one, and its state, which they are added to.
#[derive(Debug)]
pub struct Feed<'a> {
    /// The tokens.
    pub ids: &'a [u32],
    /// The state.
    pub slot: &'a mut Slot,
}

/// The sequences of a step.
pub struct Sequences<'a, 'b> {
    feeds: &'a mut [Feed<'b>],
    places: Vec<u32>,
}

impl<'a, 'b> Sequences<'a, 'b> {
    /// Panics if a sequence has no new token.
    pub fn new(feeds: &'a mut [Feed<'b>]) -> Self {
        assert!(feeds.iter().all(|feed| !feed.ids.is_empty()), "a sequence without a new token");
        let places = feeds.iter().flat_map(|feed| {
            let start = feed.slot.length;
            (start..start + feed.ids.len()).map(|place| place as u32)
        });
        Self { places: places.collect(), feeds }
    }

    /// The position of each row in its own sequence.
    pub fn places(&self) -> &[u32] {
        &self.places
    }

    /// All of them, in layer `layer`.
    pub fn layer(&mut self, layer: usize) -> LayerSlots<'_, 'b> {
        LayerSlots { feeds: self.feeds, places: &self.places, layer }
    }

    /// Counts the new tokens, which every layer has taken into its state.
    pub fn advance(self) {
        for feed in self.feeds {
            feed.slot.length += feed.ids.len();
        }
    }
}

/// The sequences of a step in one layer.
pub struct LayerSlots<'a, 'b> {
    feeds: &'a mut [Feed<'b>],
    places: &'a [u32],
    layer: usize,
}

/// One of them.
pub struct LayerSlot<'a> {
    /// Its rows among those of the step.
    pub rows: Range<usize>,
    /// How many tokens came before them.
    pub start: usize,
    /// How many of the sequence's first tokens are seen by all.
    pub prefix: usize,
    /// What the layer remembers of them.
    pub state: &'a mut LayerState,
    /// How many tokens the sequence's source has, and their keys and values in this layer.
    pub source: Option<(usize, &'a KeyValues)>,
}

impl LayerSlots<'_, '_> {
    /// The position of each row in its own sequence.
    pub fn places(&self) -> &[u32] {
        self.places
    }

    /// One after the other.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = LayerSlot<'_>> {
        let layer = self.layer;
        let mut end = 0;
        self.feeds.iter_mut().map(move |feed| {
            let rows = end..end + feed.ids.len();
            end = rows.end;
            let Slot { length, prefix, layers, source } = &mut *feed.slot;
            let source = source.as_ref().map(|source| (source.tokens, &source.layers[layer]));
            LayerSlot { rows, start: *length, prefix: *prefix, state: &mut layers[layer], source }
        })
    }
}

/// Bytes that the state of one sequence of so many tokens takes, to be asked in a
/// [dry pass](hearken_kernels::dry). What two pages of tokens take more than one, all further ones take.
pub fn bytes_for(model: &dyn Generates, tokens: usize, kind: CacheKind) -> u64 {
    bytes_from(model, tokens, |_| model.slot(kind))
}

/// As [`bytes_for`], of a sequence that has a source of as many tokens.
pub fn bytes_with_source(model: &dyn Translates, tokens: usize, kind: CacheKind) -> u64 {
    bytes_from(model, tokens, |tokens| {
        let source = vec![0; tokens.clamp(1, model.context())];
        model.begin(&Tokens::new(&source, 1), kind).remove(0)
    })
}

fn bytes_from(model: &dyn Generates, tokens: usize, slot: impl Fn(usize) -> Slot) -> u64 {
    let after = |tokens: usize| {
        let mut slot = slot(tokens);
        let ids = vec![0; tokens.min(model.context())];
        if !ids.is_empty() {
            model.step(&mut [Feed { ids: &ids, slot: &mut slot }]);
        }
        slot.bytes() as u64
    };
    if tokens <= 2 * PAGE {
        return after(tokens);
    }
    let (one, two) = (after(PAGE), after(2 * PAGE));
    let more = tokens.div_ceil(PAGE) as u64 - 2;
    two.saturating_add(more.saturating_mul(two - one))
}
