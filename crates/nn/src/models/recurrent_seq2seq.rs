//! Encoder and decoder as recurrent networks: what came before the Transformer.
//!
//! ```text
//! m = encoder(E[source])                 (B, S, M)     in both directions: M is twice its width
//! s₀ = tanh(W·m₀)                        (B, C)        of every layer of the decoder
//! cₜ = attention(sₜ₋₁, m)                (B, M)        a new context for every token, or
//! c  = the encoder's last states         (B, M)        one for all of them: a fixed vector
//! sₜ = layers([E[yₜ₋₁]; cₜ], sₜ₋₁)        (B, C)
//! hₜ = tanh(W·[sₜ; cₜ])                  (B, C)        logits = hₜ·Eᵀ or hₜ·Wᵀ
//! ```
//! With a fixed vector (Sutskever et al. 2014, Cho et al. 2014) all that is known of the source has to
//! fit into M numbers; with attention (Bahdanau et al. 2015) the decoder looks it up. A fixed vector is
//! a source of a single hidden state, so both are the same model from there on.

use super::recurrent::read_in_groups;
use super::{Generates, Model, PredictsTokens, Tokens, Translates};
use crate::block::Memory;
use crate::cache::CacheKind;
use crate::config::{ModelConfig, RecurrentSeq2seqConfig};
use crate::layers::{
    AdditiveAttention, Dropout, Embedding, Head, Linear, RecurrentStack, first_tokens,
};
use crate::pass::{Layout, Pass};
use crate::scope::{Scope, Weights};
use crate::slot::{Feed, LayerState, Slot};
use crate::taps::Place;
use hearken_tensor::ops::activations::activate;
use hearken_tensor::ops::concat::concat;
use hearken_tensor::ops::reshape::reshape;
use hearken_tensor::ops::slice::slice;
use hearken_tensor::{Activation, Param, Role, Tensor, Var, no_grad};
use std::sync::Arc;

/// A recurrent encoder-decoder.
#[derive(Clone, Debug)]
pub struct RecurrentSeq2seq {
    config: RecurrentSeq2seqConfig,
    embedding: Embedding,
    encoder: RecurrentStack,
    /// From the first hidden state of a source to the first states of the decoder.
    start: Linear,
    attention: Option<AdditiveAttention>,
    decoder: RecurrentStack,
    out: Linear,
    dropout: [Dropout; 2],
    /// Unless it is the embedding.
    head: Option<Linear>,
    /// Of the attention, for the names of what happens in it.
    place: Place,
    parameters: Vec<Param>,
}

/// A source that was read, as the decoder uses it.
struct Source {
    /// (B, S, M)
    hidden: Var,
    /// (B, S, A), with attention.
    keys: Option<Var>,
    /// How much of each row is not padding.
    lengths: Option<Arc<[usize]>>,
}

impl RecurrentSeq2seq {
    /// Parameters `embedding.*`, `encoder.layers.*`, `decoder.start.*`, `decoder.attention.*`,
    /// `decoder.layers.*`, `decoder.out.*` and perhaps `head.*`. Panics if the configuration is not
    /// valid.
    pub fn new(config: RecurrentSeq2seqConfig, weights: Weights) -> Self {
        if let Err(error) = config.validate() {
            panic!("{error}");
        }
        let RecurrentSeq2seqConfig { vocabulary, cell, layers, width, dropout, .. } = config;
        let source = 2 * config.encoder_width();
        let root = Scope::root(weights);
        let scope = root.starting(config.init, 1);
        let [encoder, decoder] = ["encoder", "decoder"].map(|name| &scope / name);
        let embedding = Embedding::new(&(&scope / "embedding"), vocabulary, width);
        let widths = [width, config.encoder_width()];
        let tied = config.tied;
        Self {
            embedding,
            encoder: RecurrentStack::new(
                &encoder,
                cell,
                config.encoder_layers(),
                widths,
                true,
                dropout,
            ),
            start: Linear::new(&(&decoder / "start"), layers * width, source, true, Role::Hidden),
            attention: config.attention_width().map(|compared| {
                AdditiveAttention::new(&(&decoder / "attention"), width, source, compared)
            }),
            decoder: RecurrentStack::new(
                &decoder,
                cell,
                layers,
                [width + source, width],
                false,
                dropout,
            ),
            out: Linear::new(&(&decoder / "out"), width, width + source, true, Role::Hidden),
            dropout: [
                scope.dropout("embedding.dropout", dropout),
                decoder.dropout("out.dropout", dropout),
            ],
            head: (!tied)
                .then(|| Linear::new(&(&scope / "head"), vocabulary, width, false, Role::Head)),
            place: (&(&(&decoder / "blocks") / 0) / "cross_attention").place(),
            config,
            parameters: root.parameters(),
        }
    }

    /// With weights drawn from a seed, as configured.
    pub fn drawn(config: RecurrentSeq2seqConfig, seed: u64) -> Self {
        Self::new(config, Weights::Drawn { seed })
    }

    fn source(&self, memory: &Memory) -> Source {
        let keys = self.attention.as_ref().map(|attention| attention.keys(&memory.hidden));
        Source { hidden: memory.hidden.clone(), keys, lengths: memory.layout.lengths.clone() }
    }

    /// The states of the decoder before the first token.
    fn first_states(&self, source: &Var) -> Vec<Vec<Var>> {
        let (width, batch) = (self.config.width, source.shape().dims()[0]);
        let all = activate(self.start.forward(&first_tokens(source)), Activation::Tanh); // (B, L·C)
        let mut states = self.decoder.zeros(batch);
        for (layer, states) in states.iter_mut().enumerate() {
            states[0] = slice(&all, 1, layer * width..(layer + 1) * width);
        }
        states
    }

    /// What the head is multiplied with (B, T, C) for target tokens (B, T) that follow `states`, and
    /// the states after them.
    fn decode(
        &self,
        ids: &[u32],
        [batch, times]: [usize; 2],
        source: &Source,
        states: Vec<Vec<Var>>,
        pass: &Pass,
    ) -> (Var, Vec<Vec<Var>>) {
        let x = self.embedding.forward(ids, [batch, times]); // (B, T, C)
        let x = self.dropout[0].forward(pass.tap(&Place::ROOT, "embedding", x), pass);
        let (top, contexts, states) = if let Some(keys) = &source.keys {
            self.decode_looking(&x, source, keys, states, pass)
        } else {
            let one: Vec<&Var> = vec![&source.hidden; times]; // (B, 1, M) each
            let contexts = concat(&one, 1);
            let x = concat(&[&x, &contexts], 2);
            let (top, last) = self.decoder.forward(x, &states, None, pass);
            (top, contexts, last)
        };
        let out = self.out.forward_activated(&concat(&[&top, &contexts], 2), Activation::Tanh);
        (self.dropout[1].forward(out, pass), states)
    }

    /// Token by token, each with a context of its own: what the last layer gives (B, T, C), the contexts
    /// (B, T, M), and the states after them.
    fn decode_looking(
        &self,
        x: &Var,
        source: &Source,
        keys: &Var,
        mut states: Vec<Vec<Var>>,
        pass: &Pass,
    ) -> (Var, Var, Vec<Vec<Var>>) {
        let [batch, times, width] = x.value().dims();
        let attention = self.attention.as_ref().expect("keys are made by attention");
        let (mut tops, mut contexts, mut seen) = (Vec::new(), Vec::new(), Vec::new());
        for t in 0..times {
            let asks = &states.last().expect("a layer")[0]; // (B, C)
            let asks = reshape(asks.clone(), [batch, 1, width]);
            let (context, weights) =
                attention.forward(&asks, &source.hidden, keys, source.lengths.as_ref());
            let now = concat(&[&slice(x, 1, t..t + 1), &context], 2);
            let (top, last) = self.decoder.forward(now, &states, None, pass);
            states = last;
            tops.push(top);
            contexts.push(context);
            seen.push(weights);
        }
        self.show(&seen, pass);
        (joined(&tops), joined(&contexts), states)
    }

    /// The weights of all times (B, 1, T, S), for those who watch.
    fn show(&self, weights: &[Var], pass: &Pass) {
        if pass.wants(&self.place, &["weights"]) && !weights.is_empty() {
            let all = joined(weights); // (B, T, S)
            let [batch, times, keys] = all.value().dims();
            pass.tap_heads(&self.place, "weights", reshape(all, [batch, 1, times, keys]));
        }
    }

    /// New tokens of sequences, as many of each: what the head is multiplied with after the last.
    fn advance(&self, feeds: &mut [&mut Feed<'_>]) -> Vec<f32> {
        let rows = feeds.len();
        let ids: Vec<u32> = feeds.iter().flat_map(|feed| feed.ids).copied().collect();
        let (width, length) = (self.config.width, ids.len() / rows);
        let source = self.sources_of(feeds);
        let mut states = self.first_states(&source.hidden);
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
        let (hidden, last) = self.decode(&ids, [rows, length], &source, states, &Pass::evaluate());
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

    /// The sources of sequences, padded to the longest.
    fn sources_of(&self, feeds: &mut [&mut Feed<'_>]) -> Source {
        let layers = self.config.layers;
        let kept: Vec<[Tensor; 2]> = feeds
            .iter_mut()
            .map(|feed| match feed.slot.layers_mut().get(layers) {
                Some(LayerState::Source(kept)) => kept.clone(),
                _ => panic!("a sequence of an encoder-decoder needs a source"),
            })
            .collect();
        let lengths: Vec<usize> = kept.iter().map(|[hidden, _]| hidden.shape().rows()).collect();
        let most = lengths.iter().copied().max().unwrap_or(0);
        let padded = |which: usize| {
            let width = kept[0][which].shape().width();
            let mut all = Tensor::zeros([kept.len(), most, width]);
            for (all, kept) in all.data_mut().chunks_exact_mut((most * width).max(1)).zip(&kept) {
                all[..kept[which].data().len()].copy_from_slice(kept[which].data());
            }
            Var::constant(all)
        };
        let keys = self.attention.is_some().then(|| padded(1));
        Source { hidden: padded(0), keys, lengths: Some(lengths.into()) }
    }
}

/// Values (B, 1, N) one after the other: (B, T, N).
fn joined(values: &[Var]) -> Var {
    concat(&values.iter().collect::<Vec<_>>(), 1)
}

impl Model for RecurrentSeq2seq {
    fn config(&self) -> ModelConfig {
        ModelConfig::RecurrentSeq2seq(self.config.clone())
    }

    fn parameters(&self) -> &[Param] {
        &self.parameters
    }

    /// It keeps what is inside.
    fn set_checkpointing(&mut self, _: bool) {}

    fn translates(&self) -> Option<&dyn Translates> {
        Some(self)
    }
}

impl Translates for RecurrentSeq2seq {
    fn read(&self, sources: &Tokens<'_>, pass: &Pass) -> Vec<Memory> {
        let layout = &sources.layout;
        assert!(layout.packing.is_none(), "each source is a row of its own");
        let x = self.embedding.forward(sources.ids, sources.shape()); // (B, S, C)
        let x = self.dropout[0].forward(x, pass);
        let zeros = self.encoder.zeros(sources.rows);
        let lengths = layout.lengths.as_ref();
        let (hidden, last) = self.encoder.forward(x, &zeros, lengths, pass);
        if self.attention.is_some() {
            return vec![Memory { hidden, layout: layout.clone() }]; // (B, S, M)
        }
        // The last state forwards and the last one backwards, of the last layer.
        let [.., forwards, backwards] = &last[..] else { panic!("an encoder without layers") };
        let fixed = concat(&[&forwards[0], &backwards[0]], 1); // (B, M)
        let width = fixed.shape().width();
        let hidden = reshape(fixed, [sources.rows, 1, width]);
        vec![Memory { hidden, layout: Layout::default() }]
    }

    fn continued(&self, tokens: &Tokens<'_>, sources: &[Memory], pass: &Pass) -> Var {
        let source = self.source(&sources[0]);
        let states = self.first_states(&source.hidden);
        self.decode(tokens.ids, tokens.shape(), &source, states, pass).0
    }

    fn begin(&self, sources: &Tokens<'_>, _: CacheKind) -> Vec<Slot> {
        no_grad(|| {
            let memory = self.read(sources, &Pass::evaluate()).remove(0);
            let Source { hidden, keys, lengths } = self.source(&memory);
            let most = hidden.shape().dims()[1];
            let row = |all: &Var, row: usize, length: usize| {
                let width = all.shape().width();
                let from = row * most * width;
                Tensor::new([length, width], &all.value().data()[from..from + length * width])
            };
            let slots = (0..sources.rows).map(|i| {
                let length = lengths.as_ref().map_or(most, |lengths| lengths[i]);
                let keys =
                    keys.as_ref().map_or_else(|| Tensor::zeros([0]), |keys| row(keys, i, length));
                let mut layers = vec![LayerState::Carried(Vec::new()); self.config.layers];
                layers.push(LayerState::Source([row(&hidden, i, length), keys]));
                Slot::new(layers)
            });
            slots.collect()
        })
    }
}

impl PredictsTokens for RecurrentSeq2seq {
    fn hidden(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        let Some(source) = tokens.source else { panic!("an encoder-decoder needs a source") };
        self.continued(tokens, &self.read(source, pass), pass)
    }

    fn head(&self) -> Head {
        self.head.as_ref().map_or_else(|| self.embedding.as_head(), Linear::as_head)
    }
}

impl Generates for RecurrentSeq2seq {
    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    fn context(&self) -> usize {
        self.config.context
    }

    /// It has no source: [`Translates::begin`] makes those that can be continued.
    fn slot(&self, _: CacheKind) -> Slot {
        Slot::new(vec![LayerState::Carried(Vec::new()); self.config.layers])
    }

    fn step_hidden(&self, feeds: &mut [Feed<'_>]) -> Tensor {
        no_grad(|| read_in_groups(feeds, |group| self.advance(group), self.config.width))
    }
}
