//! The decoder-only Transformer: tokens in, the next token's distribution out.
//!
//! ```text
//! x = E[ids] + P[positions]        (B, T, C)
//! x = block(x), L times
//! x = norm(x)                      (pre-norm models)
//! logits = x·Eᵀ or x·Wᵀ            (B, T, V)
//! ```

use crate::block::Block;
use crate::cache::{Cache, CacheKind, CacheShape};
use crate::config::{DecoderConfig, Placement};
use crate::init::{Init, Role};
use crate::layers::{Norm, Pass, Positions};
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::ops::head_cross_entropy::{head_cross_entropy, last_logits, token_losses};
use hearken_tensor::{Param, Tensor, Var, checkpoint, no_grad, ops, side_by_side};
use std::sync::Arc;

/// A decoder-only Transformer.
#[derive(Clone, Debug)]
pub struct Decoder {
    config: DecoderConfig,
    /// (V, C)
    embedding: Param,
    positions: Arc<Positions>,
    blocks: Vec<Arc<Block>>,
    norm: Option<Norm>,
    /// (V, C), unless it is the embedding.
    head: Option<Param>,
    checkpointing: bool,
}

impl Decoder {
    /// With weights that start as configured. Panics if the configuration is not valid.
    pub fn new(config: DecoderConfig, seed: u64) -> Self {
        let init = Init::new(seed, config.init, config.layers);
        Self::build(config, &init)
    }

    /// With all weights zero, to be filled from a file.
    pub fn empty(config: DecoderConfig) -> Self {
        let init = Init::zeros(config.init, config.layers);
        Self::build(config, &init)
    }

    fn build(config: DecoderConfig, init: &Init) -> Self {
        if let Err(error) = config.validate() {
            panic!("{error}");
        }
        let positions = Positions::new(init, &config);
        let token_width = config.width - positions.beside();
        let pre = config.norm.placement == Placement::Pre;
        Self {
            embedding: init.matrix("embedding.weight", config.vocabulary, token_width, Role::Table),
            positions: Arc::new(positions),
            blocks: (0..config.layers).map(|i| Arc::new(Block::new(init, &config, i))).collect(),
            norm: pre.then(|| Norm::new(init, "norm", config.norm, config.width, config.bias)),
            head: (!config.tied)
                .then(|| init.matrix("head.weight", config.vocabulary, config.width, Role::Table)),
            checkpointing: false,
            config,
        }
    }

    /// What it is made of.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Computes blocks again in backward instead of keeping what is inside them.
    pub fn set_checkpointing(&mut self, on: bool) {
        self.checkpointing = on;
    }

    /// All parameters, in a fixed order.
    pub fn parameters(&self) -> Vec<Param> {
        let mut all = vec![self.embedding.clone()];
        all.extend(self.positions.parameters());
        all.extend(self.blocks.iter().flat_map(|block| block.parameters()));
        all.extend(self.norm.iter().flat_map(Norm::parameters));
        all.extend(self.head.clone());
        all
    }

    fn head(&self) -> &Param {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// The last hidden state, (B, T, C). `ids` are B sequences of equal length, one after the
    /// other; with a cache they continue what is in it.
    pub fn hidden(
        &self,
        ids: &[u32],
        batch: usize,
        pass: &Pass,
        mut cache: Option<&mut Cache>,
    ) -> Var {
        assert!(
            batch > 0 && ids.len().is_multiple_of(batch),
            "{} tokens are not {batch} sequences of equal length",
            ids.len()
        );
        let tokens = ids.len() / batch;
        let start = cache.as_ref().map_or(0, |cache| cache.len());
        let x = ops::embedding::embedding(&self.embedding.var(), ids, [batch, tokens]);
        let x = self.positions.join(x, start);
        let mut x = pass.dropout(x, self.config.dropout.embedding, 0);
        for block in &self.blocks {
            x = if self.checkpointing && cache.is_none() {
                let (block, positions, pass) =
                    (block.clone(), self.positions.clone(), pass.clone());
                checkpoint(&[&x], move |x| block.forward(&x[0], &positions, &pass, None))
            } else {
                block.forward(&x, &self.positions, pass, cache.as_deref_mut())
            };
        }
        if let Some(cache) = cache {
            cache.advance(tokens);
        }
        match &self.norm {
            Some(norm) => norm.forward(&x),
            None => x,
        }
    }

    /// The loss of predicting `targets`, each the token after the one of `ids` at its place.
    pub fn loss(
        &self,
        ids: &[u32],
        targets: &[u32],
        batch: usize,
        pass: &Pass,
        options: Options,
    ) -> Var {
        let hidden = self.hidden(ids, batch, pass, None); // (B, T, C)
        head_cross_entropy(&hidden, self.head().weight(), None, targets, options)
    }

    /// The mean of the losses of `parts` [side by side](side_by_side), and its gradients added to
    /// those of the parameters: the loss of the batch, if as many targets count in each part.
    /// Dropout hits the same places of each. Panics if they do not share the batch evenly.
    pub fn loss_and_gradients(
        &self,
        ids: &[u32],
        targets: &[u32],
        batch: usize,
        parts: usize,
        pass: &Pass,
        options: Options,
    ) -> f32 {
        assert!(
            parts > 0 && batch.is_multiple_of(parts),
            "{batch} sequences in {parts} equal parts"
        );
        let (each, weight) = (ids.len() / parts, 1.0 / parts as f32);
        let losses = side_by_side(parts, &self.parameters(), |part| {
            let at = part * each..(part + 1) * each;
            let loss = self.loss(&ids[at.clone()], &targets[at], batch / parts, pass, options);
            loss.backward_with(Tensor::full(loss.shape(), weight));
            loss.value().item() * weight
        });
        losses.iter().sum()
    }

    /// The loss of every target by itself (N), without gradients; 0 where it is ignored.
    pub fn token_losses(&self, ids: &[u32], targets: &[u32], batch: usize) -> Tensor {
        no_grad(|| {
            let hidden = self.hidden(ids, batch, &Pass::evaluate(), None);
            token_losses(hidden.value(), self.head().weight(), None, targets)
        })
    }

    /// All logits, (B, T, V), without gradients.
    pub fn logits(&self, ids: &[u32], batch: usize) -> Tensor {
        no_grad(|| {
            let hidden = self.hidden(ids, batch, &Pass::evaluate(), None);
            ops::linear::linear(&hidden, self.head().weight(), None).into_value()
        })
    }

    /// The logits after the last token of each sequence, (B, V), continuing the cache.
    pub fn step(&self, ids: &[u32], batch: usize, cache: &mut Cache) -> Tensor {
        no_grad(|| {
            let hidden = self.hidden(ids, batch, &Pass::evaluate(), Some(cache));
            last_logits(hidden.value(), self.head().weight(), None)
        })
    }

    /// The logits after the last token of each sequence, (B, V), computed from scratch.
    pub fn next_logits(&self, ids: &[u32], batch: usize) -> Tensor {
        no_grad(|| {
            let hidden = self.hidden(ids, batch, &Pass::evaluate(), None);
            last_logits(hidden.value(), self.head().weight(), None)
        })
    }

    /// An empty cache that fits this model.
    pub fn cache(&self, batch: usize, capacity: usize, kind: CacheKind) -> Cache {
        let shape = CacheShape {
            layers: self.config.layers,
            batch,
            capacity,
            kv_heads: self.config.kv_heads(),
            head_width: self.config.head_width(),
        };
        Cache::new(shape, kind)
    }
}
