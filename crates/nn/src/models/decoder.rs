//! The decoder-only Transformer: tokens in, the next token's distribution out.
//!
//! ```text
//! x = E[ids]                       (B, T, C)
//! h = stack(x)                     each token sees itself and those before
//! logits = h·Eᵀ or h·Wᵀ            (B, T, V)
//! ```

use super::{Generates, Model, PredictsTokens, Tokens};
use crate::cache::CacheKind;
use crate::config::{DecoderConfig, ModelConfig};
use crate::layers::{Direction, Embedding, Head, Linear};
use crate::pass::Pass;
use crate::scope::{Scope, Weights};
use crate::slot::{Feed, Sequences, Slot};
use crate::stack::Stack;
use hearken_tensor::{Param, Role, Tensor, Var, no_grad};

/// A decoder-only Transformer.
#[derive(Clone, Debug)]
pub struct Decoder {
    config: DecoderConfig,
    embedding: Embedding,
    stack: Stack,
    /// Unless it is the embedding.
    head: Option<Linear>,
    parameters: Vec<Param>,
}

impl Decoder {
    /// Panics if the configuration is not valid.
    pub fn new(config: DecoderConfig, weights: Weights) -> Self {
        if let Err(error) = config.validate() {
            panic!("{error}");
        }
        let stack = &config.stack;
        let root = Scope::root(weights);
        let scope = root.starting(stack.init, 1);
        let (vocabulary, width) = (config.vocabulary, stack.width);
        let embedding = Embedding::new(&(&scope / "embedding"), vocabulary, stack.token_width());
        let stack = Stack::new(&scope, stack, config.context, Direction::Causal, None);
        let head = (!config.tied)
            .then(|| Linear::new(&(&scope / "head"), vocabulary, width, false, Role::Head));
        Self { config, embedding, stack, head, parameters: root.parameters() }
    }

    /// With weights drawn from a seed, as configured.
    pub fn drawn(config: DecoderConfig, seed: u64) -> Self {
        Self::new(config, Weights::Drawn { seed })
    }

    /// Its sizes and choices.
    pub fn sizes(&self) -> &DecoderConfig {
        &self.config
    }
}

impl Model for Decoder {
    fn config(&self) -> ModelConfig {
        ModelConfig::Decoder(self.config.clone())
    }

    fn parameters(&self) -> &[Param] {
        &self.parameters
    }

    fn set_checkpointing(&mut self, on: bool) {
        self.stack.set_checkpointing(on);
    }

    fn predicts_tokens(&self) -> Option<&dyn PredictsTokens> {
        Some(self)
    }

    fn generates(&self) -> Option<&dyn Generates> {
        Some(self)
    }
}

impl PredictsTokens for Decoder {
    fn hidden(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        let x = self.embedding.forward(tokens.ids, tokens.shape()); // (B, T, C)
        self.stack.forward(x, None, &pass.clone().over(tokens.layout.clone()), None)
    }

    fn head(&self) -> Head {
        self.head.as_ref().map_or_else(|| self.embedding.as_head(), Linear::as_head)
    }
}

impl Generates for Decoder {
    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    fn context(&self) -> usize {
        self.config.context
    }

    fn slot(&self, kind: CacheKind) -> Slot {
        self.stack.slot(kind)
    }

    fn recomputes(&self) -> bool {
        self.stack.recomputes()
    }

    fn step(&self, feeds: &mut [Feed<'_>]) -> Tensor {
        let ends: Vec<usize> = ends(feeds).collect();
        let hidden = self.read(feeds);
        let (data, width) = (hidden.data(), hidden.shape().width());
        let last = ends.iter().flat_map(|end| &data[(end - 1) * width..end * width]);
        let last: Vec<f32> = last.copied().collect();
        self.logits_after(&Tensor::new([ends.len(), width], &last))
    }

    fn hidden_after(&self, feeds: &mut [Feed<'_>]) -> Option<Tensor> {
        Some(self.read(feeds))
    }
}

/// Where the rows of each sequence end.
fn ends(feeds: &[Feed<'_>]) -> impl Iterator<Item = usize> {
    feeds.iter().scan(0, |end, feed| {
        *end += feed.ids.len();
        Some(*end)
    })
}

impl Decoder {
    /// The last hidden states of all new tokens (rows, C).
    fn read(&self, feeds: &mut [Feed<'_>]) -> Tensor {
        no_grad(|| {
            if self.stack.recomputes() {
                return self.read_again(feeds);
            }
            let ids: Vec<u32> = feeds.iter().flat_map(|feed| feed.ids).copied().collect();
            let x = self.embedding.forward(&ids, [1, ids.len()]); // (1, rows, C)
            let sequences = Sequences::new(feeds);
            let hidden = self.stack.forward(x, None, &Pass::evaluate(), Some(sequences));
            let (rows, width) = (hidden.shape().rows(), hidden.shape().width());
            hidden.into_value().reshape([rows, width])
        })
    }

    /// The same, with every sequence read from its beginning.
    fn read_again(&self, feeds: &mut [Feed<'_>]) -> Tensor {
        let width = self.config.stack.width;
        let mut rows = Vec::new();
        for feed in feeds {
            let new = feed.ids.len();
            assert!(new > 0, "a sequence without a new token");
            let ids = feed.slot.read_again(feed.ids);
            let hidden = self.hidden(&Tokens::new(ids, 1), &Pass::evaluate());
            rows.extend_from_slice(&hidden.value().data()[(ids.len() - new) * width..]);
        }
        Tensor::new([rows.len() / width, width], &rows)
    }
}
