//! The recurrent language model: a state that is carried from token to token.
//!
//! ```text
//! x = E[ids]                       (B, T, C)
//! h = layer(x), L times            each with a state of its own
//! logits = h·Eᵀ or h·Wᵀ            (B, T, V)
//! ```
//! Training on windows of a text, one after the other, the states at the end of a window are those at
//! the beginning of the next, without gradients: truncated backpropagation through time.

use super::{CarriesState, Generates, Model, PredictsTokens, Tokens};
use crate::cache::CacheKind;
use crate::config::{ModelConfig, RecurrentConfig};
use crate::layers::{Dropout, Embedding, Head, Linear, RecurrentStack};
use crate::pass::Pass;
use crate::scope::{Scope, Weights};
use crate::slot::{Feed, LayerState, Slot};
use crate::taps::Place;
use hearken_tensor::{Param, Role, Tensor, Var, no_grad};

/// Reads so many tokens: no end to it.
pub(super) const ENDLESS: usize = usize::MAX / 4;

/// A recurrent language model.
#[derive(Clone, Debug)]
pub struct Recurrent {
    config: RecurrentConfig,
    embedding: Embedding,
    stack: RecurrentStack,
    dropout: Dropout,
    /// Unless it is the embedding.
    head: Option<Linear>,
    parameters: Vec<Param>,
}

impl Recurrent {
    /// Panics if the configuration is not valid.
    pub fn new(config: RecurrentConfig, weights: Weights) -> Self {
        if let Err(error) = config.validate() {
            panic!("{error}");
        }
        let RecurrentConfig { vocabulary, cell, layers, width, dropout, .. } = config;
        let root = Scope::root(weights);
        let scope = root.starting(config.init, 1);
        let embedding = Embedding::new(&(&scope / "embedding"), vocabulary, width);
        let stack = RecurrentStack::new(&scope, cell, layers, [width, width], false, dropout);
        let head = (!config.tied)
            .then(|| Linear::new(&(&scope / "head"), vocabulary, width, false, Role::Head));
        let dropout = scope.dropout("head.dropout", dropout);
        Self { config, embedding, stack, dropout, head, parameters: root.parameters() }
    }

    /// With weights drawn from a seed, as configured.
    pub fn drawn(config: RecurrentConfig, seed: u64) -> Self {
        Self::new(config, Weights::Drawn { seed })
    }

    /// The last hidden states (B, T, C) of tokens that follow `states`, and the states after them.
    fn run(
        &self,
        ids: &[u32],
        shape: [usize; 2],
        states: &[Vec<Var>],
        pass: &Pass,
    ) -> (Var, Vec<Vec<Var>>) {
        let x = self.embedding.forward(ids, shape); // (B, T, C)
        let x = pass.tap(&Place::ROOT, "embedding", x);
        let (x, last) = self.stack.forward(x, states, None, pass);
        (self.dropout.forward(x, pass), last)
    }

    /// One token of each of these sequences, or many tokens of one: the last hidden state of each.
    fn advance(&self, feeds: &mut [&mut Feed<'_>]) -> Vec<f32> {
        let rows = feeds.len();
        let ids: Vec<u32> = feeds.iter().flat_map(|feed| feed.ids).copied().collect();
        let (width, length) = (self.config.width, ids.len() / rows);
        let mut states = self.stack.zeros(rows);
        for (layer, states) in states.iter_mut().enumerate() {
            for (i, state) in states.iter_mut().enumerate() {
                let mut all = state.value().clone(); // (rows, C)
                for (feed, row) in feeds.iter_mut().zip(all.data_mut().chunks_exact_mut(width)) {
                    if let Some(kept) = feed.slot.layers_mut()[layer].carried().get(i) {
                        row.copy_from_slice(kept.data());
                    }
                }
                *state = Var::constant(all);
            }
        }
        let (hidden, last) = self.run(&ids, [rows, length], &states, &Pass::evaluate());
        for (row, feed) in feeds.iter_mut().enumerate() {
            for (layer, states) in feed.slot.layers_mut().iter_mut().zip(&last) {
                let part = |state: &Var| {
                    Tensor::new([width], &state.value().data()[row * width..(row + 1) * width])
                };
                *layer.carried() = states.iter().map(part).collect();
            }
            feed.slot.advance(length);
        }
        hidden.value().data().to_vec()
    }
}

impl Model for Recurrent {
    fn config(&self) -> ModelConfig {
        ModelConfig::Recurrent(self.config.clone())
    }

    fn parameters(&self) -> &[Param] {
        &self.parameters
    }

    /// It keeps what is inside: the length of a window bounds that.
    fn set_checkpointing(&mut self, _: bool) {}

    fn predicts_tokens(&self) -> Option<&dyn PredictsTokens> {
        Some(self)
    }

    fn generates(&self) -> Option<&dyn Generates> {
        Some(self)
    }

    fn carries_state(&self) -> Option<&dyn CarriesState> {
        Some(self)
    }
}

impl PredictsTokens for Recurrent {
    fn hidden(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        assert!(tokens.layout.packing.is_none(), "a recurrent model reads one text in a row");
        self.run(tokens.ids, tokens.shape(), &self.stack.zeros(tokens.rows), pass).0
    }

    fn head(&self) -> Head {
        self.head.as_ref().map_or_else(|| self.embedding.as_head(), Linear::as_head)
    }
}

impl CarriesState for Recurrent {
    fn first_states(&self, rows: usize) -> Vec<Tensor> {
        self.stack.zeros(rows).into_iter().flatten().map(Var::into_value).collect()
    }

    fn hidden_after(
        &self,
        states: &[Tensor],
        tokens: &Tokens<'_>,
        pass: &Pass,
    ) -> (Var, Vec<Tensor>) {
        let states: Vec<Var> = states.iter().cloned().map(Var::constant).collect();
        let states: Vec<Vec<Var>> =
            states.chunks(self.config.cell.states()).map(<[Var]>::to_vec).collect();
        let (hidden, last) = self.run(tokens.ids, tokens.shape(), &states, pass);
        (hidden, last.into_iter().flatten().map(Var::into_value).collect())
    }
}

impl Generates for Recurrent {
    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    /// No end: the state has one size whatever was read.
    fn context(&self) -> usize {
        ENDLESS
    }

    fn slot(&self, _: CacheKind) -> Slot {
        Slot::new(vec![LayerState::Carried(Vec::new()); self.stack.states()])
    }

    fn step_hidden(&self, feeds: &mut [Feed<'_>]) -> Tensor {
        no_grad(|| read_in_groups(feeds, |group| self.advance(group), self.config.width))
    }
}

/// The hidden states (rows, C) of all new tokens of sequences: of those with one new token together,
/// of the others one by one, so that nothing is computed for padding.
pub(super) fn read_in_groups(
    feeds: &mut [Feed<'_>],
    mut advance: impl FnMut(&mut [&mut Feed<'_>]) -> Vec<f32>,
    width: usize,
) -> Tensor {
    assert!(feeds.iter().all(|feed| !feed.ids.is_empty()), "a sequence without a new token");
    let mut rows = vec![Vec::new(); feeds.len()];
    let (mut places, mut singles) = (Vec::new(), Vec::new());
    for (place, feed) in feeds.iter_mut().enumerate() {
        if feed.ids.len() == 1 {
            places.push(place);
            singles.push(feed);
        } else {
            rows[place] = advance(&mut [feed]);
        }
    }
    if !singles.is_empty() {
        let found = advance(&mut singles);
        for (place, row) in places.into_iter().zip(found.chunks_exact(width)) {
            rows[place] = row.to_vec();
        }
    }
    let rows = rows.concat();
    Tensor::new([rows.len() / width, width], &rows)
}
