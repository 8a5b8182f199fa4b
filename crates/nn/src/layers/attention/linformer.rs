//! The mechanism of Wang et al. 2020: softmax attention to a few mixtures of all keys and values.
//!
//! ```text
//! k′ = E·k, v′ = F·v            (rank, …) instead of (T, …); E and F are (rank, context), learned
//! out = softmax(q·k′ᵀ/√D)·v′    T·rank scores instead of T²
//! ```
//! A sequence of T tokens uses the first T columns of E and F; padding is 0 in the mixtures.

use super::Heads;
use super::softmax::Softmax;
use super::watched::{merge, split, unpacked};
use crate::pass::{Layout, Pass};
use crate::scope::Scope;
use crate::taps::Place;
use hearken_kernels::attention::scores::Full;
use hearken_kernels::threads::for_row_chunks;
use hearken_tensor::ops::matmul::matmul_transposed;
use hearken_tensor::ops::slice::slice;
use hearken_tensor::ops::transpose::transpose;
use hearken_tensor::{Param, Role, Tensor, Var};

/// Attention to mixtures.
#[derive(Clone, Debug)]
pub(super) struct Linformer {
    softmax: Softmax,
    /// E and F (rank, context)
    mixtures: [Param; 2],
}

impl Linformer {
    /// Parameters `key_mixtures` and `value_mixtures`.
    pub(super) fn new(scope: &Scope, softmax: Softmax, rank: usize, context: usize) -> Self {
        let mixture = |name| scope.matrix(name, rank, context, Role::Hidden);
        Self { softmax, mixtures: ["key_mixtures", "value_mixtures"].map(mixture) }
    }

    pub(super) fn heads(&self) -> &Heads {
        &self.softmax.heads
    }

    /// Of a packed projection (B, T, H·D + K·D + K·Dv) to itself: (B, T, H·Dv).
    pub(super) fn whole(&self, packed: &Var, at: &Place, pass: &Pass) -> Var {
        let Layout { lengths, prefixes, packing } = pass.layout();
        assert!(prefixes.is_none() && packing.is_none(), "mixtures are of one whole text");
        let [q, k, v] = unpacked(packed, self.heads());
        let mix = |x: &Var, mixture: &Param| {
            let tokens = x.value().dims::<3>()[1];
            let mixture = slice(&mixture.var(), 1, 0..tokens); // (rank, T)
            let columns = transpose(&without_padding(x, lengths.as_deref()), 1, 2); // (B, K·D, T)
            transpose(&matmul_transposed(&columns, &mixture), 1, 2) // (B, rank, K·D)
        };
        let show = |name: &str, x: Var| {
            if !pass.wants(at, &[name]) {
                return x;
            }
            merge(&pass.tap_heads(at, name, split(x, self.heads().keys))) // (B, K, rank, D)
        };
        let [keys, values] = &self.mixtures;
        let (k, v) = (mix(&k, keys), mix(&v, values));
        let parts = [q, show("mixed_keys", k), show("mixed_values", v)];
        self.softmax.apart(parts, || Box::new(Full), at, pass)
    }
}

/// `x` (B, T, N) with zeros where a row is padding.
fn without_padding(x: &Var, lengths: Option<&[usize]>) -> Var {
    let Some(lengths) = lengths else { return x.clone() };
    let [batch, tokens, width] = x.value().dims();
    let mut real = Tensor::unset([batch, tokens, width]);
    for_row_chunks(batch, 1, [(real.data_mut(), tokens * width)], |rows, [real]| {
        for (row, real) in rows.zip(real.chunks_exact_mut((tokens * width).max(1))) {
            let end = lengths[row].min(tokens) * width;
            real[..end].fill(1.0);
            real[end..].fill(0.0);
        }
    });
    x * &Var::constant(real)
}
