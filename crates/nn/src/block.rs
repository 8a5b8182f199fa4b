//! One layer of a Transformer: attention and feed-forward, each with a norm and a residual
//! connection.

use crate::cache::Cache;
use crate::config::{DecoderConfig, Placement};
use crate::init::Init;
use crate::layers::{Attention, FeedForward, Norm, Pass, Positions};
use hearken_tensor::{Param, Var, ops};

/// Attention, then feed-forward.
#[derive(Clone, Debug)]
pub struct Block {
    index: usize,
    norm1: Norm,
    attention: Attention,
    norm2: Norm,
    feed_forward: FeedForward,
    placement: Placement,
    residual_scale: f32,
    dropout: f32,
}

/// Places of noise in a block; a model gives each block this many.
pub const SITES_PER_BLOCK: u64 = 4;

impl Block {
    /// Block `index` of a model.
    pub fn new(init: &Init, config: &DecoderConfig, index: usize) -> Self {
        let name = format!("blocks.{index}");
        let site = SITES_PER_BLOCK * (index as u64 + 1);
        let norm = |which| {
            Norm::new(init, &format!("{name}.{which}"), config.norm, config.width, config.bias)
        };
        Self {
            index,
            norm1: norm("norm1"),
            attention: Attention::new(init, &format!("{name}.attention"), config, site),
            norm2: norm("norm2"),
            feed_forward: FeedForward::new(init, &format!("{name}.feed_forward"), config, site + 1),
            placement: config.norm.placement,
            residual_scale: config.residual_scale,
            dropout: config.dropout.residual,
        }
    }

    /// (B, T, C) → (B, T, C)
    pub fn forward(
        &self,
        x: &Var,
        positions: &Positions,
        pass: &Pass,
        cache: Option<&mut Cache>,
    ) -> Var {
        let site = SITES_PER_BLOCK * (self.index as u64 + 1);
        let attend = |x: &Var, onto: &Var, cache| {
            self.join(onto, pass, site + 2, |onto| {
                self.attention.forward(x, self.index, positions, pass, cache, onto)
            })
        };
        let feed = |x: &Var, onto: &Var| {
            self.join(onto, pass, site + 3, |onto| self.feed_forward.forward_onto(x, pass, onto))
        };
        match self.placement {
            Placement::Pre => {
                let x = attend(&self.norm1.forward(x), x, cache);
                feed(&self.norm2.forward(&x), &x)
            }
            Placement::Post => {
                let x = self.norm1.forward(&attend(x, x, cache));
                self.norm2.forward(&feed(&x, &x))
            }
        }
    }

    /// `x` and a branch off it together. What is done to a branch before it joins stands between
    /// the two; where nothing is, the last product of the branch adds to `x` itself.
    fn join(
        &self,
        x: &Var,
        pass: &Pass,
        site: u64,
        branch: impl FnOnce(Option<&Var>) -> Var,
    ) -> Var {
        let dropped = pass.key(self.dropout, site).is_some();
        if !dropped && self.residual_scale == 1.0 {
            return branch(Some(x));
        }
        let branch = pass.dropout(branch(None), self.dropout, site);
        let scaled = self.residual_scale != 1.0;
        x + if scaled { ops::scale::scale(branch, self.residual_scale) } else { branch }
    }

    /// Its parameters, in order.
    pub fn parameters(&self) -> Vec<Param> {
        let (norm1, norm2) = (self.norm1.parameters(), self.norm2.parameters());
        let inner = norm1.chain(self.attention.parameters()).chain(norm2);
        inner.chain(self.feed_forward.parameters()).collect()
    }
}
