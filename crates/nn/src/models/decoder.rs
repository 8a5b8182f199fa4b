//! The decoder-only Transformer: tokens in, the next token's distribution out.
//!
//! ```text
//! x = E[ids]                       (B, T, C)
//! h = stack(x)                     each token sees itself and those before
//! logits = h·Eᵀ or h·Wᵀ            (B, T, V)
//! ```

use super::{Generates, Model, PredictsTokens, Tokens};
use crate::cache::{Cache, CacheKind, CacheShape};
use crate::config::{DecoderConfig, ModelConfig};
use crate::layers::{Direction, Embedding, Head, Linear};
use crate::pass::Pass;
use crate::scope::{Scope, Weights};
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

    /// The last hidden state of tokens that continue what is in the cache.
    fn hidden_after(&self, tokens: &Tokens<'_>, pass: &Pass, cache: Option<&mut Cache>) -> Var {
        let x = self.embedding.forward(tokens.ids, tokens.shape()); // (B, T, C)
        self.stack.forward(x, None, &pass.clone().over(tokens.layout.clone()), cache)
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
        self.hidden_after(tokens, pass, None)
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

    fn cache(&self, batch: usize, capacity: usize, kind: CacheKind) -> Cache {
        let stack = &self.config.stack;
        let shape = CacheShape {
            layers: stack.layers,
            batch,
            capacity,
            kv_heads: stack.kv_heads(),
            key_width: stack.head_width(),
            value_width: stack.value_width(),
        };
        Cache::new(shape, kind)
    }

    fn step(&self, ids: &[u32], batch: usize, cache: &mut Cache) -> Tensor {
        no_grad(|| {
            let tokens = Tokens::new(ids, batch);
            let hidden = self.hidden_after(&tokens, &Pass::evaluate(), Some(cache));
            self.head().last_logits(hidden.value())
        })
    }
}
