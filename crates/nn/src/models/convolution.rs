//! The convolutional language model: each layer sees a few tokens, and the dilations double, so that
//! the last one sees as many tokens as 2 to the number of layers (WaveNet, van den Oord et al. 2016;
//! TCN, Bai et al. 2018).
//!
//! ```text
//! x = E[ids]                                   (B, T, C)
//! x = x + W·f(conv(norm(x))), L times          dilations 1, 2, 4, …
//! logits = norm(x)·Eᵀ or norm(x)·Wᵀ            (B, T, V)
//! ```
//! What it keeps of a sequence that is being decoded: the last inputs of every layer.

use super::recurrent::{ENDLESS, read_in_groups};
use super::{Generates, Model, PredictsTokens, Tokens};
use crate::cache::CacheKind;
use crate::config::{ConvolutionConfig, ModelConfig};
use crate::layers::{CausalConvolution, Embedding, Head, Linear, Norm};
use crate::pass::Pass;
use crate::scope::{Scope, Weights};
use crate::slot::{Feed, LayerState, Slot};
use crate::taps::Place;
use hearken_tensor::{Param, Role, Tensor, Var, checkpoint, no_grad};
use std::sync::Arc;

/// A language model of causal convolutions.
#[derive(Clone, Debug)]
pub struct ConvolutionModel {
    config: ConvolutionConfig,
    embedding: Embedding,
    blocks: Vec<Arc<CausalConvolution>>,
    norm: Norm,
    /// Unless it is the embedding.
    head: Option<Linear>,
    checkpointing: bool,
    parameters: Vec<Param>,
}

impl ConvolutionModel {
    /// Panics if the configuration is not valid.
    pub fn new(config: ConvolutionConfig, weights: Weights) -> Self {
        if let Err(error) = config.validate() {
            panic!("{error}");
        }
        let (vocabulary, width) = (config.vocabulary, config.width);
        let root = Scope::root(weights);
        let scope = root.starting(config.init, config.layers);
        let embedding = Embedding::new(&(&scope / "embedding"), vocabulary, width);
        let block = |i| CausalConvolution::new(&(&(&scope / "blocks") / i), &config, i);
        let blocks = (0..config.layers).map(|i| Arc::new(block(i))).collect();
        let norm = Norm::new(&(&scope / "norm"), config.norm, width, true);
        let head = (!config.tied)
            .then(|| Linear::new(&(&scope / "head"), vocabulary, width, false, Role::Head));
        let parameters = root.parameters();
        Self { config, embedding, blocks, norm, head, checkpointing: false, parameters }
    }

    /// With weights drawn from a seed, as configured.
    pub fn drawn(config: ConvolutionConfig, seed: u64) -> Self {
        Self::new(config, Weights::Drawn { seed })
    }

    fn embedded(&self, ids: &[u32], shape: [usize; 2], pass: &Pass) -> Var {
        pass.tap(&Place::ROOT, "embedding", self.embedding.forward(ids, shape))
    }

    /// New tokens of sequences, as many of each: the last hidden state of each.
    fn advance(&self, feeds: &mut [&mut Feed<'_>]) -> Vec<f32> {
        let rows = feeds.len();
        let ids: Vec<u32> = feeds.iter().flat_map(|feed| feed.ids).copied().collect();
        let (width, length) = (self.config.width, ids.len() / rows);
        let pass = Pass::evaluate();
        let mut x = self.embedded(&ids, [rows, length], &pass);
        for (i, block) in self.blocks.iter().enumerate() {
            let size = block.reach() * width;
            let mut before = Tensor::zeros([rows, block.reach(), width]);
            for (row, feed) in feeds.iter_mut().enumerate() {
                if let Some(kept) = feed.slot.layers_mut()[i].carried().first() {
                    before.data_mut()[row * size..(row + 1) * size].copy_from_slice(kept.data());
                }
            }
            x = block.forward(&x, Some(&mut before), &pass);
            for (row, feed) in feeds.iter_mut().enumerate() {
                let part = &before.data()[row * size..(row + 1) * size];
                let part = Tensor::new([block.reach(), width], part);
                *feed.slot.layers_mut()[i].carried() = vec![part];
            }
        }
        for feed in feeds {
            feed.slot.advance(length);
        }
        let hidden = self.norm.forward(&x, &pass);
        hidden.value().data().to_vec()
    }
}

impl Model for ConvolutionModel {
    fn config(&self) -> ModelConfig {
        ModelConfig::Convolution(self.config.clone())
    }

    fn parameters(&self) -> &[Param] {
        &self.parameters
    }

    fn set_checkpointing(&mut self, on: bool) {
        self.checkpointing = on;
    }

    fn predicts_tokens(&self) -> Option<&dyn PredictsTokens> {
        Some(self)
    }

    fn generates(&self) -> Option<&dyn Generates> {
        Some(self)
    }
}

impl PredictsTokens for ConvolutionModel {
    fn hidden(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        assert!(tokens.layout.packing.is_none(), "a convolution reads one text in a row");
        let mut x = self.embedded(tokens.ids, tokens.shape(), pass);
        for block in &self.blocks {
            x = if self.checkpointing {
                let (block, pass) = (block.clone(), pass.clone());
                checkpoint(&[&x], move |inputs| block.forward(&inputs[0], None, &pass))
            } else {
                block.forward(&x, None, pass)
            };
        }
        self.norm.forward(&x, pass)
    }

    fn head(&self) -> Head {
        self.head.as_ref().map_or_else(|| self.embedding.as_head(), Linear::as_head)
    }
}

impl Generates for ConvolutionModel {
    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    /// No end: it keeps as much as it can see.
    fn context(&self) -> usize {
        ENDLESS
    }

    fn slot(&self, _: CacheKind) -> Slot {
        Slot::new(vec![LayerState::Carried(Vec::new()); self.blocks.len()])
    }

    fn step_hidden(&self, feeds: &mut [Feed<'_>]) -> Tensor {
        no_grad(|| read_in_groups(feeds, |group| self.advance(group), self.config.width))
    }
}
