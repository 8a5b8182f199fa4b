//! Attention, forward and backward, in memory that grows with T and not with T².
//!
//! ```text
//! sᵢⱼ = scale · qᵢ·kⱼ            (changed by a rule of `scores`: masks, biases)
//! pᵢⱼ = exp(sᵢⱼ − lseᵢ)          lseᵢ = ln Σⱼ exp(sᵢⱼ)
//! oᵢ  = Σⱼ p̃ᵢⱼ vⱼ                p̃ᵢⱼ = pᵢⱼ · keepᵢⱼ / (1 − rate), or pᵢⱼ without dropout
//! ```
//!
//! Shapes: queries (B, T, H·D), keys (B, S, K·D), values (B, S, K·Dv), out (B, T, H·Dv),
//! lse (B, H, T). H is a multiple of K: query head h reads key/value head h / (H/K).
//!
//! **Forward** walks over tiles of queries × keys with a running maximum m and sum l per query
//! (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"): when a tile
//! raises the maximum, what was accumulated so far is scaled by exp(m_old − m_new).
//!
//! **Backward** recomputes p from lse, tile by tile (Dao et al. 2022, "FlashAttention"):
//!
//! ```text
//! (1) dvⱼ = Σᵢ p̃ᵢⱼ doᵢ
//! (2) dpᵢⱼ = (doᵢ·vⱼ) · keepᵢⱼ / (1 − rate)
//! (3) dsᵢⱼ = pᵢⱼ (dpᵢⱼ − δᵢ),   δᵢ = Σⱼ pᵢⱼ dpᵢⱼ = doᵢ·oᵢ
//! (4) dqᵢ = scale · Σⱼ dsᵢⱼ kⱼ
//! (5) dkⱼ = scale · Σᵢ dsᵢⱼ qᵢ
//! ```
//!
//! **What comes of extremes.** A query that sees nothing gives zeros, lse = −∞ and no gradient.
//! A score of −∞ is a weight of exactly zero. A score of +∞ or NaN makes the whole row of `out`
//! NaN. Hidden keys and values may still enter products, with weight zero: they must be finite, or
//! else rows that share a tile with them may become NaN.

mod backward;
mod bands;
pub mod features;
mod few;
mod forward;
mod inspect;
pub mod linear;
pub mod pages;
mod products;
mod rows;
pub mod scores;
mod select;
#[cfg(test)]
mod tests;
mod tiles;

pub use rows::{Rows, RowsMut};
pub use scores::Scores;

use crate::Write;
use crate::dry::{self, Operations};
use crate::random::Dropout;

/// The dimensions of one attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// B
    pub batch: usize,
    /// T
    pub queries: usize,
    /// S
    pub keys: usize,
    /// H
    pub heads: usize,
    /// K; divides H
    pub kv_heads: usize,
    /// D
    pub width: usize,
    /// Dv
    pub value_width: usize,
}

impl Shape {
    /// How many query heads share a key/value head.
    pub(crate) fn group(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }

    /// Operations of a forward pass, as if nothing were masked: so the literature counts, and figures
    /// compare.
    pub(crate) fn operations(&self) -> Operations {
        let Self { batch, queries, keys, heads, width, value_width, .. } = *self;
        let factors = [2, batch, heads, queries, keys, width + value_width];
        Operations { products: 0.0, attention: factors.iter().map(|&x| x as f64).product() }
    }
}

/// What attention reads: operands and rule.
#[derive(Clone, Copy)]
pub struct Attention<'a, M: Scores> {
    /// All dimensions.
    pub shape: Shape,
    /// (B, T, H, D)
    pub queries: Rows<'a>,
    /// (B, S, K, D)
    pub keys: Rows<'a>,
    /// (B, S, K, Dv)
    pub values: Rows<'a>,
    /// Factor of q·k; 1/√D unless there is a reason.
    pub scale: f32,
    /// Of the weights; element (b, h, i, j) is decided by number j of stream (b·H + h)·T + i.
    pub dropout: Option<Dropout>,
    /// What is visible and what is added.
    pub scores: &'a M,
}

/// What backward reads beside the operands, and where it writes. What is `None` is not computed.
pub struct Gradients<'a> {
    /// Forward's result, (B, T, H·Dv)
    pub out: &'a [f32],
    /// Forward's log-sum-exp, (B, H, T)
    pub lse: &'a [f32],
    /// The incoming gradient, (B, T, H·Dv)
    pub dout: &'a [f32],
    /// (B, T, H, D)
    pub dqueries: Option<RowsMut<'a>>,
    /// (B, S, K, D)
    pub dkeys: Option<RowsMut<'a>>,
    /// (B, S, K, Dv)
    pub dvalues: Option<RowsMut<'a>>,
    /// Gradient of the rule's learned numbers; as long as [`Scores::gradient_len`].
    pub dscores: Option<(&'a mut [f32], Write)>,
}

impl<M: Scores> Attention<'_, M> {
    fn check(&self) {
        let Shape { batch, queries, keys, heads, kv_heads, width, value_width } = self.shape;
        assert!(
            kv_heads > 0 && heads % kv_heads == 0,
            "{heads} query heads cannot share {kv_heads} key/value heads evenly"
        );
        assert!(keys < 1 << 24 && queries < 1 << 24, "more than 2²⁴ tokens: {:?}", self.shape);
        self.queries.check("queries", batch, (queries, heads, width));
        self.keys.check("keys", batch, (keys, kv_heads, width));
        self.values.check("values", batch, (keys, kv_heads, value_width));
    }

    fn check_saved(&self, out: &[f32], lse: &[f32]) {
        let Shape { batch, queries, heads, value_width, .. } = self.shape;
        let (out_len, lse_len) = (batch * queries * heads * value_width, batch * heads * queries);
        assert_eq!(out.len(), out_len, "out is (B, T, H·Dv) of {:?}", self.shape);
        assert_eq!(lse.len(), lse_len, "lse is (B, H, T) of {:?}", self.shape);
    }

    /// Writes out (B, T, H·Dv) and lse (B, H, T).
    pub fn forward(&self, out: &mut [f32], lse: &mut [f32]) {
        self.check();
        self.check_saved(out, lse);
        if self.shape.queries == 0 {
            return; // rules are asked about at least one query
        }
        dry::count(|| self.shape.operations());
        if self.shape.queries <= few::FEW {
            few::forward(self, out, lse);
        } else {
            forward::forward(self, out, lse);
        }
    }

    /// Writes or adds the gradients of queries, keys, values and of what the rule has learned.
    pub fn backward(&self, gradients: Gradients<'_>) {
        self.check();
        self.check_saved(gradients.out, gradients.lse);
        let Shape { batch, queries, keys, heads, kv_heads, width, value_width } = self.shape;
        assert_eq!(gradients.dout.len(), gradients.out.len(), "dout is not as long as out");
        let rows = [
            ("dqueries", &gradients.dqueries, (queries, heads, width)),
            ("dkeys", &gradients.dkeys, (keys, kv_heads, width)),
            ("dvalues", &gradients.dvalues, (keys, kv_heads, value_width)),
        ];
        for (name, rows, shape) in rows {
            if let Some(rows) = rows {
                rows.check(name, batch, shape);
            }
        }
        if let Some((dscores, _)) = &gradients.dscores {
            let learned = self.scores.gradient_len();
            assert_eq!(dscores.len(), learned, "dscores is not as long as what the rule learned");
        }
        dry::count(|| {
            let Operations { products, attention } = self.shape.operations();
            Operations { products, attention: 2.0 * attention }
        });
        backward::backward(self, gradients);
    }
}
