//! For looking inside: the weights themselves, and how spread they are.

use super::products::{Left, Out, padded, product};
use super::scores::{Position, Visibility};
use super::tiles::{
    KEYS, QUERIES, block, dots, entropy_of_rows, pack_rows, pack_transposed, softmax_row,
};
use super::{Attention, Scores, Shape};
use crate::Write;
use crate::scratch;
use crate::threads;

impl<M: Scores> Attention<'_, M> {
    /// Writes the weights p (B, H, T, S), before dropout: T·S of them, so for short sequences. A
    /// query that sees nothing has weights of zero.
    ///
    /// Computed row by row, without tiles; a test holds the two ways equal.
    pub fn weights(&self, out: &mut [f32]) {
        self.check();
        let Shape { batch, queries, keys, heads, width, .. } = self.shape;
        let all = batch * heads * queries * keys;
        assert_eq!(out.len(), all, "weights are (B, H, T, S) of {:?}", self.shape);
        threads::for_row_chunks(batch * heads * queries, 1, [(out, keys)], |row, [out]| {
            let row = row.start;
            let (batch, head) = (row / (heads * queries), row / queries % heads);
            let query = row % queries;
            scratch::with(width, |q| {
                let of_query = self.queries.head(batch, query, head);
                pack_rows(of_query, width, width, self.scale, width, q);
                let kv_head = head / self.shape.group();
                let (k, stride) = self.keys.strided(batch, 0..keys, kv_head);
                dots(q, k, stride, out);
            });
            self.scores.apply(Position { batch, head, query }, 0..keys, out);
            softmax_row(out);
        });
    }

    /// Writes for each head (H) the mean over batches and queries of −Σⱼ pⱼ ln pⱼ: between 0, all
    /// weight on one key, and ln S, the same weight on all. Queries that see nothing do not
    /// count. Needs forward's `lse`, and no memory that grows with T·S.
    ///
    /// A head whose entropy falls towards 0 while training has collapsed.
    pub fn entropy(&self, lse: &[f32], out: &mut [f32]) {
        self.check();
        let Shape { batch, queries, heads, .. } = self.shape;
        assert_eq!(lse.len(), batch * heads * queries, "lse is (B, H, T) of {:?}", self.shape);
        assert_eq!(out.len(), heads, "entropy is (H) of {:?}", self.shape);
        threads::for_row_chunks(heads, 1, [(out, 1)], |h, [out]| {
            let h = h.start;
            let of = |b: usize| &lse[(b * heads + h) * queries..(b * heads + h + 1) * queries];
            let sum: f64 = (0..batch).map(|b| self.entropy_of_head(b, h, of(b))).sum();
            let counted = |b| of(b).iter().filter(|&&lse| lse != f32::NEG_INFINITY).count();
            let rows: usize = (0..batch).map(counted).sum();
            out[0] = if rows == 0 { 0.0 } else { (sum / rows as f64) as f32 };
        });
    }

    /// Σᵢⱼ pᵢⱼ (lseᵢ − sᵢⱼ), tile by tile. Scores have the bits of forward's tiles, so that a key
    /// that has all the weight adds exactly 0.
    fn entropy_of_head(&self, b: usize, h: usize, lse: &[f32]) -> f64 {
        let Shape { queries: all_queries, keys: all_keys, width, .. } = self.shape;
        let mut sum = 0.0;
        let (q, q_stride) = self.queries.strided(b, 0..all_queries, h);
        scratch::with(width * KEYS + QUERIES * KEYS, |memory| {
            let (k, s) = memory.split_at_mut(width * KEYS); // Kᵀ · scale, and (QUERIES, KEYS)
            for j in 0..all_keys.div_ceil(KEYS) {
                let keys = block(j, KEYS, all_keys);
                let kv_head = h / self.shape.group();
                let (rows, stride) = self.keys.strided(b, keys.clone(), kv_head);
                pack_transposed(rows, stride, keys.len(), width, self.scale, k);
                for i in 0..all_queries.div_ceil(QUERIES) {
                    let queries = block(i, QUERIES, all_queries);
                    let visibility = self.scores.tile(b, h, queries.clone(), keys.clone());
                    if visibility == Visibility::Empty {
                        continue;
                    }
                    let q = q.get(queries.start * q_stride..).unwrap_or(&[]); // without a width
                    let (rows, columns) = (queries.len(), padded(keys.len()));
                    let s = &mut s[..rows * KEYS];
                    let left = Left::rows(q, q_stride);
                    product(rows, columns, width, left, k, KEYS, &Out::new(s, KEYS, Write::Set));
                    if visibility == Visibility::Partial {
                        self.scores.apply_tile(b, h, queries.clone(), keys.clone(), KEYS, s);
                    }
                    sum += f64::from(entropy_of_rows(keys.len(), s, &lse[queries]));
                }
            }
        });
        sum
    }
}
