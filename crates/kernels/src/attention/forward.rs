//! Forward: out and lse.
//!
//! Keys and values of a key/value head are packed once, keys transposed and scaled; then every
//! block of queries walks over the tiles of keys it sees. A task is all of that for one key/value
//! head if there are many, or else one block of queries. What only one block uses is not packed but
//! read where it lies: queries if there is one block of keys, values if there is one of queries.

use super::bands::Tile;
use super::products::{Left, Out, PAD, padded, product};
use super::rows::readable_in_place;
use super::scores::Visibility;
use super::tiles::{Drop, KEYS, QUERIES, block, finish, pack_rows, pack_transposed, soften};
use super::{Attention, Scores, Shape};
use crate::threads::{self, SharedMut};
use crate::{Write, dry, scratch};
use std::ops::Range;

/// Key/value heads are packed together until they take this many floats (16 MiB), so that
/// working memory stays small beside the operands, and in the last cache of a large CPU. (Where a
/// task is a whole head, each thread has one head's, of which there are more than threads.)
const PACKED_FLOATS: usize = 4 << 20;
/// … or until there are this many tasks, enough to share evenly among a few threads.
pub(super) const TASKS: usize = 32;

/// With so many key/value heads for each thread, a task is a whole one: what it packs is in its
/// own cache when it needs it, and threads meet once. With fewer, threads would wait at the end.
const PAIRS_PER_THREAD: usize = 4;

/// How many of `pairs` to take at once, if each needs `floats` and gives `tasks` tasks: even
/// shares that depend on the shape alone.
pub(super) fn wave(pairs: usize, floats: usize, tasks: usize, budget: usize) -> usize {
    let most = (budget / floats.max(1)).max(TASKS.div_ceil(tasks.max(1))).clamp(1, pairs.max(1));
    pairs.div_ceil(pairs.div_ceil(most).max(1))
}

pub(super) fn forward<M: Scores>(attention: &Attention<'_, M>, out: &mut [f32], lse: &mut [f32]) {
    let Shape { batch, queries, keys, kv_heads, width, value_width, .. } = attention.shape;
    let group = attention.shape.group();
    let (query_blocks, key_blocks) = (queries.div_ceil(QUERIES), keys.div_ceil(KEYS));
    let value_stride = padded(value_width);
    let layout = Layout::new(attention);
    let packed_block = layout.packed_block;
    let pairs = batch * kv_heads;
    let (out, lse) = (SharedMut::new(out), SharedMut::new(lse));
    // Kᵀ and V of one block of keys.
    let pack = |pair: usize, j: usize, packed: &mut [f32]| {
        let (b, h) = (pair / kv_heads, pair % kv_heads);
        let keys = block(j, KEYS, keys);
        let (transposed, values) = packed.split_at_mut(width * KEYS);
        let (rows, stride) = attention.keys.strided(b, keys.clone(), h);
        pack_transposed(rows, stride, keys.len(), width, attention.scale, transposed);
        if layout.values_in_place {
            return;
        }
        let (rows, stride) = attention.values.strided(b, keys.clone(), h);
        let (values, rest) = values.split_at_mut(keys.len() * value_stride);
        pack_rows(rows, stride, value_width, 1.0, value_stride, values);
        rest.fill(0.0);
    };
    // Query head `g` of those that share the pair, block `i` of its queries.
    let attend = |pair: usize, g: usize, i: usize, packed: &[f32]| {
        let (b, h) = (pair / kv_heads, pair % kv_heads * group + g);
        query_block(attention, &layout, b, h, block(i, QUERIES, queries), packed, &out, &lse);
    };
    if pairs >= PAIRS_PER_THREAD * threads::count() {
        dry::scratch_in_tasks(key_blocks * packed_block, pairs);
        threads::for_each(pairs, |pair| {
            scratch::with(key_blocks * packed_block, |packed| {
                for (j, packed) in packed.chunks_exact_mut(packed_block.max(1)).enumerate() {
                    pack(pair, j, packed);
                }
                for task in 0..group * query_blocks {
                    attend(pair, task / query_blocks, task % query_blocks, packed);
                }
            });
        });
        return;
    }
    let wave = wave(pairs, key_blocks * packed_block, group * query_blocks, PACKED_FLOATS);
    for first in (0..pairs).step_by(wave.max(1)) {
        let pairs = first..(first + wave).min(pairs);
        scratch::with(pairs.len() * key_blocks * packed_block, |packed| {
            let parts = [(&mut *packed, packed_block)];
            threads::for_row_chunks(pairs.len() * key_blocks, 1, parts, |i, [packed]| {
                pack(first + i.start / key_blocks, i.start % key_blocks, packed);
            });
            let packed = &*packed;
            // The last queries see the most under a causal rule: long and short tasks in turn, so
            // that each thread's share has as many of both.
            let heads = pairs.len() * group;
            threads::for_each(heads * query_blocks, |task| {
                let (turn, head) = (task / heads, task % heads);
                let i = if turn % 2 == 0 { query_blocks - 1 - turn / 2 } else { turn / 2 };
                let packed = &packed[head / group * key_blocks * packed_block..];
                attend(first + head / group, head % group, i, packed);
            });
        });
    }
}

/// What is packed of keys and values.
struct Layout {
    /// Is V read where it lies? Only if each block of it is used by one block of queries.
    values_in_place: bool,
    /// Floats of a block of keys: Kᵀ · scale (D, KEYS), then V (KEYS, Dv padded), if packed.
    packed_block: usize,
}

impl Layout {
    fn new<M: Scores>(attention: &Attention<'_, M>) -> Self {
        let Shape { queries, width, value_width, .. } = attention.shape;
        let values_in_place = queries <= QUERIES
            && attention.shape.group() == 1
            && readable_in_place(value_width, attention.values.row_stride());
        let values = if values_in_place { 0 } else { padded(value_width) };
        Self { values_in_place, packed_block: KEYS * (width + values) }
    }
}

/// One block of queries of one head against all keys, packed.
fn query_block<M: Scores>(
    attention: &Attention<'_, M>,
    layout: &Layout,
    b: usize,
    h: usize,
    queries: Range<usize>,
    packed: &[f32],
    out: &SharedMut<'_>,
    lse: &SharedMut<'_>,
) {
    let Shape { queries: all_queries, keys, heads, width, value_width, .. } = attention.shape;
    let value_stride = padded(value_width);
    let packed_block = layout.packed_block;
    let (rows, kv_head) = (queries.len(), h / attention.shape.group());
    let (own, own_stride) = attention.queries.strided(b, queries.clone(), h);
    let packs_queries = keys > KEYS;
    let packed_queries = if packs_queries { rows * width } else { 0 };
    let lens = [packed_queries, rows * KEYS, rows * value_stride, rows * PAD, rows];
    scratch::with(lens.iter().sum(), |memory| {
        let (q, memory) = memory.split_at_mut(lens[0]); // (rows, D), if packed
        let (s, memory) = memory.split_at_mut(lens[1]); // (rows, KEYS)
        let (o, memory) = memory.split_at_mut(lens[2]); // (rows, Dv padded)
        let (sums, largest) = memory.split_at_mut(lens[3]);
        let (q, q_stride) = if packs_queries {
            pack_rows(own, own_stride, width, 1.0, width, q);
            (&*q, width)
        } else {
            (own, own_stride)
        };
        o.fill(0.0);
        sums.fill(0.0);
        largest.fill(f32::NEG_INFINITY);
        for j in 0..keys.div_ceil(KEYS) {
            let keys = block(j, KEYS, keys);
            let visibility = attention.scores.tile(b, h, queries.clone(), keys.clone());
            if visibility == Visibility::Empty {
                continue;
            }
            let (k, v) = packed[j * packed_block..(j + 1) * packed_block].split_at(width * KEYS);
            let (v, v_stride) = if layout.values_in_place {
                attention.values.strided(b, keys.clone(), kv_head)
            } else {
                (v, value_stride)
            };
            let full = visibility == Visibility::Full;
            let (rule, queries) = (attention.scores, queries.clone());
            let tile = Tile { rule, batch: b, head: h, queries, keys, full };
            for (rows, columns) in tile.rows() {
                if columns.is_empty() {
                    continue;
                }
                let (count, inner) = (rows.len(), columns.len());
                let s = &mut s[..count * KEYS];
                // Empty without a width.
                let left = Left::rows(q.get(rows.start * q_stride..).unwrap_or(&[]), q_stride);
                let k = k.get(columns.start..).unwrap_or(&[]); // empty without a width
                product(count, padded(inner), width, left, k, KEYS, &Out::new(s, KEYS, Write::Set));
                let (queries, keys) = tile.place(&rows, &columns);
                let drop = Drop::new(attention, b, h, queries.start, keys.start);
                if !full {
                    rule.apply_tile(b, h, queries, keys, KEYS, s);
                }
                let (largest, sums) =
                    (&mut largest[rows.clone()], &mut sums[rows.start * PAD..rows.end * PAD]);
                let stride = value_stride;
                let o = &mut o[rows.start * stride..rows.end * stride];
                soften(inner, s, largest, sums, o, stride, drop);
                let (v, weights) = (&v[columns.start * v_stride..], Left::rows(s, KEYS));
                product(
                    count,
                    stride,
                    inner,
                    weights,
                    v,
                    v_stride,
                    &Out::new(o, stride, Write::Add),
                );
            }
        }
        let first = (b * heads + h) * all_queries;
        // SAFETY: each (b, i, h) belongs to one task.
        let lse = unsafe { lse.range(first + queries.start..first + queries.end) };
        let rows_apart = heads * value_width;
        let start = (b * all_queries + queries.start) * rows_apart + h * value_width;
        let len = (rows - 1) * rows_apart + value_width;
        // SAFETY: all of it is inside, as `pointer` has shown, and the rest as above.
        let mut out = unsafe {
            let start = out.pointer(start..start + len);
            Out::shared(start, len, (value_width, rows_apart), Write::Set, 1.0)
        };
        finish(largest, sums, o, value_stride, &mut out, lse);
    });
}
