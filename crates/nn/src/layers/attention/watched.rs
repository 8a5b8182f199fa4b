//! Attention as taps see it: the same numbers as the tiled kernel gives, step by step, with all T·S
//! scores and weights.
//!
//! ```text
//! scores = q·kᵀ/√D under the rule       (B, H, T, S)
//! weights = softmax(scores)             (B, H, T, S)
//! mixed = dropout(weights)·v            (B, H, T, Dv)
//! ```

use super::{Heads, Rule};
use crate::pass::Pass;
use crate::taps::{Interest, Place};
use hearken_kernels::random::Dropout;
use hearken_tensor::ops::concat::concat;
use hearken_tensor::ops::matmul::{matmul, matmul_transposed};
use hearken_tensor::ops::reshape::reshape;
use hearken_tensor::ops::scores::scores;
use hearken_tensor::ops::slice::slice;
use hearken_tensor::ops::softmax::softmax;
use hearken_tensor::ops::transpose::transpose;
use hearken_tensor::rng::Key;
use hearken_tensor::{Tensor, Var, ops};
use std::sync::Arc;

/// What the projections give.
const PROJECTED: [&str; 3] = ["queries", "keys", "values"];
/// What comes of them, and small beside scores and weights.
const SMALL: [&str; 3] = ["rotated_queries", "rotated_keys", "mixed"];

/// How much of an attention layer's inside is wanted, behind its projections.
pub(super) fn interest(at: &Place, pass: &Pass) -> Interest {
    if pass.wants(at, &SMALL) {
        return Interest::Whole; // also if it is for heads: they are cut out of it
    }
    pass.interest(at, &["scores", "weights"])
}

/// Shows the parts of a packed projection (B, T, H·D + K·D + K·Dv).
pub(super) fn tap_packed(packed: Var, heads: &Heads, at: &Place, pass: &Pass) -> Var {
    if !pass.wants(at, &PROJECTED) {
        return packed;
    }
    let parts = unpacked(&packed, heads);
    let [q, k, v] = tap_apart(parts.each_ref(), heads, at, pass);
    concat(&[&q, &k, &v], 2)
}

/// Shows queries (B, T, H·D), keys (B, S, K·D) and values (B, S, K·Dv).
pub(super) fn tap_apart(parts: [&Var; 3], heads: &Heads, at: &Place, pass: &Pass) -> [Var; 3] {
    if !pass.wants(at, &PROJECTED) {
        return parts.map(Var::clone);
    }
    let counts = [heads.queries, heads.keys, heads.keys];
    std::array::from_fn(|i| {
        let split = split(parts[i].clone(), counts[i]); // (B, heads, T, D)
        merge(&pass.tap_heads(at, PROJECTED[i], split))
    })
}

/// Queries, keys and values of a packed projection.
pub(super) fn unpacked(packed: &Var, heads: &Heads) -> [Var; 3] {
    let [queries, keys, values] = heads.columns();
    let cuts = [0, queries, queries + keys, queries + keys + values];
    std::array::from_fn(|i| slice(packed, 2, cuts[i]..cuts[i + 1]))
}

/// (B, T, N·D) → (B, N, T, D)
pub(super) fn split(x: Var, heads: usize) -> Var {
    let [batch, tokens, columns] = x.value().dims();
    transpose(&reshape(x, [batch, tokens, heads, columns / heads]), 1, 2)
}

/// (B, N, T, D) → (B, T, N·D)
pub(super) fn merge(x: &Var) -> Var {
    let [batch, heads, tokens, width] = x.value().dims();
    reshape(transpose(x, 1, 2), [batch, tokens, heads * width])
}

/// One attention, as it is shown.
pub(super) struct Watched<'a> {
    pub(super) heads: &'a Heads,
    /// What products are multiplied with.
    pub(super) scale: f32,
    pub(super) at: &'a Place,
    pub(super) pass: &'a Pass,
    /// Have queries and keys been rotated?
    pub(super) rotated: bool,
    pub(super) rule: Rule,
    /// What the rule's tables were taken from.
    pub(super) learned: &'a [&'a Var],
    pub(super) dropout: Option<(f32, Key)>,
}

impl Watched<'_> {
    /// All of it, of queries (B, T, H·D), keys (B, S, K·D) and values (B, S, K·Dv): (B, T, H·Dv).
    pub(super) fn step_by_step(self, [q, k, v]: [Var; 3]) -> Var {
        let Self { heads, scale, at, pass, rotated, learned, dropout, .. } = self;
        let Heads { queries: h, keys: groups, width, value_width } = *heads;
        let ([batch, t, _], [_, s, _]) = (q.value().dims(), k.value().dims());
        let (mut q, mut k, v) = (split(q, h), split(k, groups), split(v, groups));
        if rotated {
            q = pass.tap_heads(at, "rotated_queries", q);
            k = pass.tap_heads(at, "rotated_keys", k);
        }
        // Heads that share keys are adjacent: together they are one tall matrix of queries.
        let tall = h / groups * t;
        let products = matmul_transposed(&reshape(q, [batch, groups, tall, width]), &k);
        let products = reshape(products, [batch, h, t, s]);
        let scored = scores(products, scale, 0, learned, &(Arc::new(self.rule) as _));
        let scored = pass.tap_heads(at, "scores", scored); // (B, H, T, S)
        let mut weights = pass.tap_heads(at, "weights", softmax(scored, 1.0)); // (B, H, T, S)
        if let Some((p, key)) = dropout {
            weights = &weights * &Var::constant(kept(Dropout::new(key.words(), p), &weights));
        }
        let mixed = matmul(&reshape(weights, [batch, groups, tall, s]), &v);
        merge(&pass.tap_heads(at, "mixed", reshape(mixed, [batch, h, t, value_width])))
    }

    /// Shows the heads of scores and weights that are read by themselves, one at a time, of queries
    /// (B, T, H·D) and keys (B, S, K·D).
    pub(super) fn show_heads(self, [q, k]: [&Var; 2]) {
        let scale = self.scale;
        let Heads { queries: h, keys: groups, width, .. } = *self.heads;
        let rule: ops::attention::Rule = Arc::new(self.rule);
        let head_of = |x: &Var, head: usize| {
            slice(&x.detach(), 2, head * width..(head + 1) * width) // (B, T, D)
        };
        for head in 0..h {
            let reads = |value| self.pass.reads_head(self.at, value, head);
            if !(reads("scores") || reads("weights")) {
                continue;
            }
            let products = matmul_transposed(&head_of(q, head), &head_of(k, head / (h / groups)));
            let [batch, t, s] = products.value().dims();
            let products = reshape(products, [batch, 1, t, s]);
            let scored = reshape(scores(products, scale, head, &[], &rule), [batch, t, s]);
            self.pass.show_head(self.at, "scores", head, scored.value());
            if reads("weights") {
                let weights = softmax(scored, 1.0);
                self.pass.show_head(self.at, "weights", head, weights.value());
            }
        }
    }
}

/// What dropout multiplies the weights (B, H, T, S) with: the numbers of the tiled kernel, where
/// factor j of a row is number j of the row's own stream.
fn kept(dropout: Dropout, weights: &Var) -> Tensor {
    let keys = weights.shape().width();
    let mut kept = Tensor::unset(weights.shape());
    for (row, factors) in kept.data_mut().chunks_mut(keys.max(1)).enumerate() {
        let stream = u64::from(row as u32) << 32;
        for (j, factor) in factors.iter_mut().enumerate() {
            *factor = dropout.factor(stream | j as u64);
        }
    }
    kept
}
