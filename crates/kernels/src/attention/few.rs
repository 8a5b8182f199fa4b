//! Forward for a few queries: decoding, where one token asks a long cache.
//!
//! Every key and value is used once per query, so packing them would cost as much as the
//! products. Scores are dot products with the keys where they lie, and memory is read once, in
//! order. Keys are cut into spans of fixed length, so that one sequence keeps several threads
//! busy; each span gives its own maximum, sum and weighted values, which are merged in order.

use super::products::{Left, Out, PAD, padded, product};
use super::scores::Visibility;
use super::tiles::{Drop, KEYS, block, dots, finish, merge, pack_rows, soften};
use super::{Attention, Scores, Shape};
use crate::Write;
use crate::scratch;
use crate::threads::{self, SharedMut};

/// Up to so many queries, packing does not pay.
pub(super) const FEW: usize = 8;
/// Keys in a span; 512 of 64 floats, with their values, are 256 KiB to read.
const SPAN: usize = 512;

pub(super) fn forward<M: Scores>(attention: &Attention<'_, M>, out: &mut [f32], lse: &mut [f32]) {
    let Shape { batch, queries, keys, heads, kv_heads, value_width, .. } = attention.shape;
    let group = attention.shape.group();
    let stride = padded(value_width);
    let spans = keys.div_ceil(SPAN).max(1);
    let pairs = batch * kv_heads;
    // For each (head, query): values (Dv padded), sums by lane, largest.
    let state = stride + PAD + 1;
    let rows = group * queries;
    let (out, lse) = (SharedMut::new(out), SharedMut::new(lse));
    scratch::with(pairs * spans * rows * state, |memory| {
        let parts = [(&mut *memory, rows * state)];
        threads::for_row_chunks(pairs * spans, 1, parts, |task, [memory]| {
            // All heads of a span before the next span: rows of several heads share pages.
            let (span, pair) = (task.start / pairs, task.start % pairs);
            span_of_keys(attention, pair, block(span, SPAN, keys), memory);
        });
        threads::for_each(pairs * rows, |task| {
            let (pair, row) = (task / rows, task % rows);
            let (b, h) = (pair / kv_heads, pair % kv_heads * group + row / queries);
            let i = row % queries;
            scratch::with(state, |sum| {
                for span in 0..spans {
                    let (values, sums, largest) = state_of(
                        &memory[(span * pairs + pair) * rows * state..],
                        rows,
                        stride,
                        row,
                    );
                    if span == 0 {
                        sum[..stride].copy_from_slice(values);
                        sum[stride..stride + PAD].copy_from_slice(sums);
                        sum[stride + PAD] = largest;
                    } else {
                        merge(sum, values, sums, largest);
                    }
                }
                let start = ((b * queries + i) * heads + h) * value_width;
                // SAFETY: each (b, i, h) belongs to one task.
                let out = unsafe { out.range(start..start + value_width) };
                let start = (b * heads + h) * queries + i;
                // SAFETY: as above.
                let lse = unsafe { lse.range(start..start + 1) };
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

/// One task: all queries of the heads that share the key/value head `pair`, on some keys.
fn span_of_keys<M: Scores>(
    attention: &Attention<'_, M>,
    pair: usize,
    span: std::ops::Range<usize>,
    memory: &mut [f32],
) {
    let Shape { queries, kv_heads, width, value_width, .. } = attention.shape;
    let group = attention.shape.group();
    let (b, kv_head) = (pair / kv_heads, pair % kv_heads);
    let stride = padded(value_width);
    let rows = group * queries;
    let (values, memory) = memory.split_at_mut(rows * stride);
    let (sums, largest) = memory.split_at_mut(rows * PAD);
    values.fill(0.0);
    sums.fill(0.0);
    largest.fill(f32::NEG_INFINITY);
    let lens = [rows * width, queries * KEYS, KEYS * stride];
    scratch::with(lens.iter().sum(), |memory| {
        let (q, memory) = memory.split_at_mut(lens[0]); // (group, T, D), scaled
        let (s, v) = memory.split_at_mut(lens[1]); // (T, KEYS) and (KEYS, Dv padded)
        for (g, q) in q.chunks_exact_mut((queries * width).max(1)).enumerate() {
            let (rows, stride) = attention.queries.strided(b, 0..queries, kv_head * group + g);
            pack_rows(rows, stride, width, attention.scale, width, q);
        }
        for j in 0..span.len().div_ceil(KEYS) {
            let keys = block(j, KEYS, span.len());
            let keys = span.start + keys.start..span.start + keys.end;
            // Values of whole cache lines are read where they lie.
            let (v, v_stride) = if stride == value_width {
                attention.values.strided(b, keys.clone(), kv_head)
            } else {
                let (rows, row_stride) = attention.values.strided(b, keys.clone(), kv_head);
                let v = &mut v[..keys.len() * stride];
                pack_rows(rows, row_stride, value_width, 1.0, stride, v);
                (&*v, stride)
            };
            let (k, k_stride) = attention.keys.strided(b, keys.clone(), kv_head);
            for g in 0..group {
                let h = kv_head * group + g;
                let visibility = attention.scores.tile(b, h, 0..queries, keys.clone());
                if visibility == Visibility::Empty {
                    continue;
                }
                let rows = g * queries..(g + 1) * queries;
                for (i, s) in s.chunks_exact_mut(KEYS).enumerate() {
                    let row = rows.start + i;
                    dots(&q[row * width..(row + 1) * width], k, k_stride, &mut s[..keys.len()]);
                }
                if visibility == Visibility::Partial {
                    attention.scores.apply_tile(b, h, 0..queries, keys.clone(), KEYS, s);
                }
                let drop = Drop::new(attention, b, h, 0, keys.start);
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
