//! The mechanism of the Reformer (Kitaev et al. 2020): queries and keys are one vector, which a hash
//! puts into a bucket; tokens are sorted by bucket, cut into chunks, and see their own chunk and the
//! one before.
//!
//! ```text
//! k = q/|q|, s = q·kᵀ/√D            a token's own score counts only where it sees nothing else
//! bucket(q) = argmax (q·Rᵀ, −q·Rᵀ)   R are random directions, other ones in every round
//! ```

use super::Heads;
use super::drawn::{Drawn, normal};
use super::linear::tap_mixed;
use super::watched::{merge, split};
use crate::config::MechanismConfig;
use crate::layers::Dropout;
use crate::pass::{Layout, Pass};
use crate::scope::Scope;
use crate::taps::Place;
use hearken_tensor::Var;
use hearken_tensor::ops::lsh_attention::{LshAttend, Order, lsh_attention};
use hearken_tensor::ops::reshape::reshape;
use hearken_tensor::ops::rms_norm::rms_norm;
use hearken_tensor::ops::slice::slice;
use std::sync::Arc;

/// The most buckets of a round that are chosen by the length: more cost more to find than they save.
const MOST_BUCKETS: usize = 256;
/// Under the root of a key's norm.
const EPS: f32 = 1e-6;

/// Attention by buckets.
#[derive(Clone, Debug)]
pub(super) struct Lsh {
    heads: Heads,
    causal: bool,
    chunk: usize,
    /// 0: by the length.
    buckets: usize,
    rounds: usize,
    directions: Drawn,
    /// Of what is mixed.
    dropout: Dropout,
}

impl Lsh {
    /// With directions as a parameter `directions` that does not learn. Panics on another mechanism.
    pub(super) fn new(
        scope: &Scope,
        heads: Heads,
        causal: bool,
        dropout: f32,
        config: MechanismConfig,
    ) -> Self {
        let MechanismConfig::Lsh { chunk, buckets, rounds, redraw } = config else {
            panic!("{config:?} has no buckets")
        };
        let half = if buckets == 0 { MOST_BUCKETS } else { buckets } / 2;
        let directions =
            Drawn::new(scope, "directions", [rounds * half, heads.width], redraw, normal);
        let dropout = scope.dropout("dropout", dropout);
        Self { heads, causal, chunk, buckets, rounds, directions, dropout }
    }

    /// Half the number of buckets of each row: by its own tokens, so that padding changes nothing.
    fn halves(&self, layout: &Layout, [batch, tokens]: [usize; 2], most: usize) -> Vec<usize> {
        let half = |tokens: usize| match self.buckets {
            0 => tokens.div_ceil(self.chunk).div_ceil(2).clamp(1, most),
            _ => most,
        };
        match &layout.lengths {
            Some(lengths) => lengths.iter().map(|length| half(*length)).collect(),
            None => vec![half(tokens); batch],
        }
    }

    /// Of a packed projection to shared queries and keys, and values (B, T, H·D + H·Dv), to itself:
    /// (B, T, H·Dv).
    pub(super) fn whole(&self, packed: &Var, at: &Place, pass: &Pass) -> Var {
        let Heads { queries: heads, width, .. } = self.heads;
        let [batch, tokens, columns] = packed.value().dims();
        let [mut q, mut v] =
            [0..heads * width, heads * width..columns].map(|part| slice(packed, 2, part));
        if pass.wants(at, &["queries", "values"]) {
            q = merge(&pass.tap_heads(at, "queries", split(q, heads)));
            v = merge(&pass.tap_heads(at, "values", split(v, heads)));
        }
        // The root mean square is |q|/√D: keys are √D too long, and scores take that back.
        let k = rms_norm(&reshape(q.clone(), [batch, tokens, heads, width]), None, EPS);
        let k = reshape(k, [batch, tokens, heads * width]);
        let segments = segments(pass.layout(), tokens);
        let directions = self.directions.of(pass); // (rounds·N/2, D)
        let most = directions.dims::<2>()[0] / self.rounds;
        let halves = self.halves(pass.layout(), [batch, tokens], most);
        let order = Order::by_first_directions(
            q.value(),
            heads,
            &directions,
            self.rounds,
            &halves,
            segments.as_deref(),
        );
        let (chunk, causal, scale) = (self.chunk, self.causal, 1.0 / width as f32);
        let attend = LshAttend { chunk, causal, scale, segments };
        let mixed = lsh_attention(&q, &k, &v, &order, &attend); // (B, T, H·Dv)
        self.dropout.forward(tap_mixed(mixed, heads, at, pass), pass)
    }
}

/// Which tokens of a row (B, T) see each other; `None` if all do.
fn segments(layout: &Layout, tokens: usize) -> Option<Arc<[u32]>> {
    assert!(layout.prefixes.is_none(), "attention by buckets has no prefix that all tokens see");
    if let Some(packing) = &layout.packing {
        return Some(packing.segments.clone());
    }
    let lengths = layout.lengths.as_ref()?;
    let row = |length: &usize| {
        let length = *length;
        (0..tokens).map(move |t| u32::from(t < length))
    };
    Some(lengths.iter().flat_map(row).collect())
}
