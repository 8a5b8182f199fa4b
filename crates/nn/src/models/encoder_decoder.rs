//! The encoder-decoder: reads a source in both directions, and writes a target in view of it.
//!
//! ```text
//! m = encoder(E[source])           (B, S, C)    each token sees all others
//! h = decoder(E[target], m)        (B, T, C)    each token sees itself, those before, and m
//! logits = h·Eᵀ + b or h·Wᵀ + b    (B, T, V)
//! ```
//! Token vectors may be scaled by √C, and h by 1/√C. Layer by layer, block i of the decoder attends to
//! what block i of the encoder gives.

use super::decoder::{new_tokens, rows_of};
use super::{Generates, Model, PredictsTokens, Tokens, Translates};
use crate::block::Memory;
use crate::cache::CacheKind;
use crate::config::{Cross, EncoderDecoderConfig, ModelConfig};
use crate::layers::{Direction, Embedding, Head, Linear};
use crate::pass::Pass;
use crate::scope::{Scope, Weights};
use crate::slot::{Feed, Sequences, Slot, Source};
use crate::stack::Stack;
use hearken_tensor::ops::scale::scale;
use hearken_tensor::{Param, Role, Shape, Tensor, Var, no_grad};

/// A Transformer that reads a source and writes a target.
#[derive(Clone, Debug)]
pub struct EncoderDecoder {
    config: EncoderDecoderConfig,
    /// Unless it is that of the target.
    source_embedding: Option<Embedding>,
    embedding: Embedding,
    encoder: Stack,
    decoder: Stack,
    /// Unless it is the embedding.
    head: Option<Linear>,
    /// Of a head that is the embedding.
    bias: Option<Param>,
    parameters: Vec<Param>,
}

impl EncoderDecoder {
    /// Parameters `embedding.*`, or `encoder.embedding.*` and `decoder.embedding.*`; `encoder.*`,
    /// `decoder.*` and `head.*`. Panics if the configuration is not valid.
    pub fn new(config: EncoderDecoderConfig, weights: Weights) -> Self {
        if let Err(error) = config.validate() {
            panic!("{error}");
        }
        let (stack, context) = (&config.stack, config.context);
        let root = Scope::root(weights);
        let scope = root.starting(stack.init, 1);
        let [encoder, decoder] = ["encoder", "decoder"].map(|name| &scope / name);
        let (vocabulary, width) = (config.vocabulary, stack.width);
        let table =
            |scope: &Scope| Embedding::new(&(scope / "embedding"), vocabulary, stack.token_width());
        let source_embedding = (!config.shared).then(|| table(&encoder));
        let embedding = table(if config.shared { &scope } else { &decoder });
        let both = Direction::Bidirectional;
        let encoder = Stack::new(&encoder, &config.encoder_stack(), context, both, None);
        let decoder = Stack::new(&decoder, stack, context, Direction::Causal, Some(width));
        let (at, biased) = (&scope / "head", config.logits_bias);
        let head = (!config.tied).then(|| Linear::new(&at, vocabulary, width, biased, Role::Head));
        let bias = (config.tied && biased).then(|| at.vector("bias", vocabulary, 0.0));
        let parameters = root.parameters();
        Self { config, source_embedding, embedding, encoder, decoder, head, bias, parameters }
    }

    /// With weights drawn from a seed, as configured.
    pub fn drawn(config: EncoderDecoderConfig, seed: u64) -> Self {
        Self::new(config, Weights::Drawn { seed })
    }

    /// Its sizes and choices.
    pub fn sizes(&self) -> &EncoderDecoderConfig {
        &self.config
    }

    /// √C
    fn root(&self) -> f32 {
        (self.config.stack.width as f32).sqrt()
    }

    /// Token vectors: (…) → (…, C).
    fn embedded(&self, table: &Embedding, ids: &[u32], shape: impl Into<Shape>) -> Var {
        let x = table.forward(ids, shape);
        if self.config.scaled_embeddings { scale(x, self.root()) } else { x }
    }

    /// What the head is multiplied with, of the last hidden state.
    fn for_head(&self, hidden: Var) -> Var {
        if self.config.scaled_logits { scale(hidden, 1.0 / self.root()) } else { hidden }
    }
}

impl Model for EncoderDecoder {
    fn config(&self) -> ModelConfig {
        ModelConfig::EncoderDecoder(self.config.clone())
    }

    fn parameters(&self) -> &[Param] {
        &self.parameters
    }

    fn set_checkpointing(&mut self, on: bool) {
        self.encoder.set_checkpointing(on);
        self.decoder.set_checkpointing(on);
    }

    fn translates(&self) -> Option<&dyn Translates> {
        Some(self)
    }
}

impl Translates for EncoderDecoder {
    fn read(&self, sources: &Tokens<'_>, pass: &Pass) -> Vec<Memory> {
        let layout = &sources.layout;
        assert!(layout.packing.is_none(), "each source is a row of its own");
        let pass = &pass.clone().over(layout.clone());
        let table = self.source_embedding.as_ref().unwrap_or(&self.embedding);
        let x = self.embedded(table, sources.ids, sources.shape()); // (B, S, C)
        let states = match self.config.cross {
            Cross::Last => vec![self.encoder.forward(x, &[], pass, None)],
            Cross::Layers => self.encoder.forward_layers(x, pass),
        };
        states.into_iter().map(|hidden| Memory { hidden, layout: layout.clone() }).collect()
    }

    fn continued(&self, tokens: &Tokens<'_>, sources: &[Memory], pass: &Pass) -> Var {
        let x = self.embedded(&self.embedding, tokens.ids, tokens.shape()); // (B, T, C)
        self.decoder.forward(x, sources, &pass.clone().over(tokens.layout.clone()), None)
    }

    fn begin(&self, sources: &Tokens<'_>, kind: CacheKind) -> Vec<Slot> {
        no_grad(|| {
            let [rows, tokens] = sources.shape();
            let padded = sources.layout.lengths.as_deref();
            let lengths = padded.map_or_else(|| vec![tokens; rows], <[usize]>::to_vec);
            let memory = self.read(sources, &Pass::evaluate());
            let kept = self.decoder.kept_of(&memory, &lengths, kind); // (B, L)
            let slots = kept.into_iter().zip(lengths).map(|(layers, tokens)| {
                self.decoder.slot(kind).attending_to(Source { tokens, layers })
            });
            slots.collect()
        })
    }
}

impl PredictsTokens for EncoderDecoder {
    fn hidden(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        let Some(source) = tokens.source else { panic!("an encoder-decoder needs a source") };
        self.for_head(self.continued(tokens, &self.read(source, pass), pass))
    }

    fn logits_of(&self, hidden: &Var, pass: &Pass) -> Var {
        self.head().logits(&self.for_head(hidden.clone()), pass)
    }

    fn head(&self) -> Head {
        match &self.head {
            Some(head) => head.as_head(),
            None => self.embedding.as_head().with_bias(self.bias.as_ref().map(Param::var)),
        }
    }
}

impl Generates for EncoderDecoder {
    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    fn context(&self) -> usize {
        self.config.context
    }

    /// It has no source: [`Translates::begin`] makes those that can be continued.
    fn slot(&self, kind: CacheKind) -> Slot {
        self.decoder.slot(kind)
    }

    fn step_hidden(&self, feeds: &mut [Feed<'_>]) -> Tensor {
        no_grad(|| {
            let ids = new_tokens(feeds);
            let x = self.embedded(&self.embedding, &ids, [1, ids.len()]); // (1, rows, C)
            let sequences = Sequences::new(feeds);
            let hidden = self.decoder.forward(x, &[], &Pass::evaluate(), Some(sequences));
            rows_of(self.for_head(hidden))
        })
    }
}
