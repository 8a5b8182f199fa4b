//! Forward for a few queries: decoding, where one token asks a long cache.
//!
//! Every key and value is used once per query, so packing them would cost as much as the
//! products. Scores are dot products with the keys where they lie, and memory is read once, in
//! order. Keys are cut into spans of fixed length, so that one sequence keeps several threads
//! busy; each span gives its own maximum, sum and weighted values, which are merged in order.
//!
//! Sequences are [`Asking`]s, each with as many queries and keys as it has. What a sequence gets
//! does not depend on the others.

use super::products::{Left, Out, PAD, padded, product};
use super::scores::Visibility;
use super::tiles::{Drop, KEYS, block, dots, finish, merge, pack_rows, soften};
use super::{Attention, Rows, Scores, Shape};
use crate::Write;
use crate::random::Dropout;
use crate::scratch;
use crate::threads::{self, SharedMut};
use std::ops::Range;

/// Up to so many queries, packing does not pay.
pub(super) const FEW: usize = 8;
/// Keys in a span; 512 of 64 floats, with their values, are 256 KiB to read.
const SPAN: usize = 512;

/// What all sequences share.
pub(super) struct Common<'a> {
    /// H
    pub(super) heads: usize,
    /// K
    pub(super) kv_heads: usize,
    /// D
    pub(super) width: usize,
    /// Dv
    pub(super) value_width: usize,
    /// Where queries lie.
    pub(super) queries: Rows<'a>,
    /// Factor of q·k.
    pub(super) scale: f32,
    /// Of the weights.
    pub(super) dropout: Option<Dropout>,
}

impl Common<'_> {
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}

/// The queries of one sequence, and whom they ask.
pub(super) struct Asking<'a, M, T> {
    /// Its index in the batch of queries, and to the rule.
    pub(super) batch: usize,
    /// Its rows there.
    pub(super) rows: Range<usize>,
    /// Where its first query is in the result.
    pub(super) out: usize,
    /// How many keys there are.
    pub(super) keys: usize,
    /// Where they are, and their values.
    pub(super) tiles: T,
    /// What is visible and what is added.
    pub(super) scores: &'a M,
}

impl<M, T> Asking<'_, M, T> {
    fn spans(&self) -> usize {
        self.keys.div_ceil(SPAN).max(1)
    }
}

/// Where keys and values of a sequence come from, up to [`KEYS`] at a time.
pub(super) trait Tiles: Sync {
    /// The rows of `keys`, D floats each, and the distance from row to row. Rows that are not kept
    /// as f32 go to `memory`, which has room for them.
    fn keys<'m>(
        &'m self,
        head: usize,
        keys: Range<usize>,
        memory: &'m mut [f32],
    ) -> (&'m [f32], usize);

    /// The same of values, in rows of Dv floats padded to whole cache lines.
    fn values<'m>(
        &'m self,
        head: usize,
        keys: Range<usize>,
        memory: &'m mut [f32],
    ) -> (&'m [f32], usize);
}

/// Rows of f32, of one sequence of a batch.
struct Plain<'a> {
    batch: usize,
    keys: Rows<'a>,
    values: Rows<'a>,
    value_width: usize,
}

impl Tiles for Plain<'_> {
    fn keys<'m>(&'m self, head: usize, keys: Range<usize>, _: &'m mut [f32]) -> (&'m [f32], usize) {
        self.keys.strided(self.batch, keys, head)
    }

    fn values<'m>(
        &'m self,
        head: usize,
        keys: Range<usize>,
        memory: &'m mut [f32],
    ) -> (&'m [f32], usize) {
        let stride = padded(self.value_width);
        let count = keys.len();
        let (rows, row_stride) = self.values.strided(self.batch, keys, head);
        if stride == self.value_width {
            return (rows, row_stride); // whole cache lines are read where they lie
        }
        let memory = &mut memory[..count * stride];
        pack_rows(rows, row_stride, self.value_width, 1.0, stride, memory);
        (memory, stride)
    }
}

/// Attention of a batch whose sequences have a few queries each.
pub(super) fn forward<M: Scores>(attention: &Attention<'_, M>, out: &mut [f32], lse: &mut [f32]) {
    let Shape { batch, queries, keys, heads, kv_heads, width, value_width } = attention.shape;
    let common = Common {
        heads,
        kv_heads,
        width,
        value_width,
        queries: attention.queries,
        scale: attention.scale,
        dropout: attention.dropout,
    };
    let asking = |batch: usize| Asking {
        batch,
        rows: 0..queries,
        out: batch * queries,
        keys,
        tiles: Plain { batch, keys: attention.keys, values: attention.values, value_width },
        scores: attention.scores,
    };
    ask(&common, &(0..batch).map(asking).collect::<Vec<_>>(), out, Some(lse));
}

/// Writes the result of all sequences to `out` (rows, H·Dv); and to lse (B, H, T), where all have
/// the same number of queries.
pub(super) fn ask<M: Scores, T: Tiles>(
    common: &Common<'_>,
    askings: &[Asking<'_, M, T>],
    out: &mut [f32],
    lse: Option<&mut [f32]>,
) {
    let &Common { heads, kv_heads, value_width, .. } = common;
    let group = common.group();
    let stride = padded(value_width);
    // For each (head, query): values (Dv padded), sums by lane, largest.
    let state = stride + PAD + 1;
    // All spans, all queries, and where the memory of each sequence starts:
    // (spans, K, H/K · queries) states.
    let (mut spans, mut queries, mut starts, mut end) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for (n, asking) in askings.iter().enumerate() {
        spans.extend((0..asking.spans()).map(|span| (n, span)));
        queries.extend((0..asking.rows.len()).map(|i| (n, i)));
        starts.push(end);
        end += asking.spans() * heads * asking.rows.len() * state;
    }
    let (out, lse) = (SharedMut::new(out), lse.map(SharedMut::new));
    scratch::with(end, |memory| {
        let shared = SharedMut::new(memory);
        threads::for_each(spans.len() * kv_heads, |task| {
            // All heads of a span before the next span: rows of several heads share pages.
            let ((n, span), kv_head) = (spans[task / kv_heads], task % kv_heads);
            let asking = &askings[n];
            let len = group * asking.rows.len() * state;
            let start = starts[n] + (span * kv_heads + kv_head) * len;
            // SAFETY: each (sequence, span, head) has a range of its own and belongs to one task.
            let memory = unsafe { shared.range(start..start + len) };
            span_of_keys(common, asking, kv_head, block(span, SPAN, asking.keys), memory);
        });
        let memory = &*memory;
        threads::for_each(queries.len() * heads, |task| {
            let ((n, i), h) = (queries[task / heads], task % heads);
            let asking = &askings[n];
            let (count, kv_head) = (asking.rows.len(), h / group);
            let (rows, row) = (group * count, h % group * count + i);
            scratch::with(state, |sum| {
                for span in 0..asking.spans() {
                    let start = starts[n] + (span * kv_heads + kv_head) * rows * state;
                    let (values, sums, largest) = state_of(&memory[start..], rows, stride, row);
                    if span == 0 {
                        sum[..stride].copy_from_slice(values);
                        sum[stride..stride + PAD].copy_from_slice(sums);
                        sum[stride + PAD] = largest;
                    } else {
                        merge(sum, values, sums, largest);
                    }
                }
                let start = ((asking.out + i) * heads + h) * value_width;
                // SAFETY: each (sequence, query, head) belongs to one task.
                let out = unsafe { out.range(start..start + value_width) };
                let mut unasked = [0.0];
                let lse = match &lse {
                    Some(lse) => {
                        let start = (asking.batch * heads + h) * count + i;
                        // SAFETY: as above.
                        unsafe { lse.range(start..start + 1) }
                    }
                    None => &mut unasked,
                };
                let (values, rest) = sum.split_at(stride);
                let (sums, largest) = rest.split_at(PAD);
                let out = &mut Out::new(out, value_width, Write::Set);
                finish(largest, sums, values, stride, out, lse);
            });
        });
    });
}

/// What `row` of `rows` has in the memory of a span: all values, then all sums, then all maxima.
fn state_of(memory: &[f32], rows: usize, stride: usize, row: usize) -> (&[f32], &[f32], f32) {
    let (values, memory) = memory.split_at(rows * stride);
    let (sums, largest) = memory.split_at(rows * PAD);
    (&values[row * stride..(row + 1) * stride], &sums[row * PAD..(row + 1) * PAD], largest[row])
}

/// One task: all queries of a sequence whose heads share `kv_head`, on some keys.
fn span_of_keys<M: Scores, T: Tiles>(
    common: &Common<'_>,
    asking: &Asking<'_, M, T>,
    kv_head: usize,
    span: Range<usize>,
    memory: &mut [f32],
) {
    let &Common { heads, width, value_width, .. } = common;
    let (b, queries, group) = (asking.batch, asking.rows.len(), common.group());
    let stride = padded(value_width);
    let rows = group * queries;
    let (values, memory) = memory.split_at_mut(rows * stride);
    let (sums, largest) = memory.split_at_mut(rows * PAD);
    values.fill(0.0);
    sums.fill(0.0);
    largest.fill(f32::NEG_INFINITY);
    let lens = [rows * width, queries * KEYS, KEYS * width, KEYS * stride];
    scratch::with(lens.iter().sum(), |memory| {
        let (q, memory) = memory.split_at_mut(lens[0]); // (group, T, D), scaled
        let (s, memory) = memory.split_at_mut(lens[1]); // (T, KEYS)
        let (k, v) = memory.split_at_mut(lens[2]); // (KEYS, D) and (KEYS, Dv padded)
        for (g, q) in q.chunks_exact_mut((queries * width).max(1)).enumerate() {
            let head = kv_head * group + g;
            let (rows, stride) = common.queries.strided(b, asking.rows.clone(), head);
            pack_rows(rows, stride, width, common.scale, width, q);
        }
        for j in 0..span.len().div_ceil(KEYS) {
            let keys = block(j, KEYS, span.len());
            let keys = span.start + keys.start..span.start + keys.end;
            let seen =
                |g: usize| asking.scores.tile(b, kv_head * group + g, 0..queries, keys.clone());
            if (0..group).all(|g| seen(g) == Visibility::Empty) {
                continue;
            }
            let (k, k_stride) = asking.tiles.keys(kv_head, keys.clone(), k);
            let (v, v_stride) = asking.tiles.values(kv_head, keys.clone(), v);
            for g in 0..group {
                let h = kv_head * group + g;
                let visibility = seen(g);
                if visibility == Visibility::Empty {
                    continue;
                }
                let rows = g * queries..(g + 1) * queries;
                for (i, s) in s.chunks_exact_mut(KEYS).enumerate() {
                    let row = rows.start + i;
                    dots(&q[row * width..(row + 1) * width], k, k_stride, &mut s[..keys.len()]);
                }
                if visibility == Visibility::Partial {
                    asking.scores.apply_tile(b, h, 0..queries, keys.clone(), KEYS, s);
                }
                let row = ((b * heads + h) * queries) as u32;
                let drop = |dropout| Drop { dropout, row, key: keys.start as u32 };
                let drop = common.dropout.map(drop);
                let values = &mut values[rows.start * stride..rows.end * stride];
                let sums = &mut sums[rows.start * PAD..rows.end * PAD];
                soften(keys.len(), s, &mut largest[rows], sums, values, stride, drop);
                let weights = Left::rows(s, KEYS);
                let (n, add) = (keys.len(), Write::Add);
                product(queries, stride, n, weights, v, v_stride, &Out::new(values, stride, add));
            }
        }
    });
}
