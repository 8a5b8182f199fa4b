//! Backward: the gradients of queries, keys, values, and of what the rule has learned.
//!
//! A task owns some blocks of keys of one key/value head. For each it walks over the blocks of
//! queries that see it, and accumulates dk and dv of the block in cache. Tasks that share a
//! head would all add to its dq; instead each has a dq of its own, and these are added up in
//! order when all are done. How many tasks share a head depends on the shape alone. Where none
//! do, a task does everything for its head, from packing to writing dq.
//!
//! Kᵀ is packed with the scale of the scores in it, which dq and dk get when they are written.
//! Where a head is a single tile, q, k and dout are not packed but read where they lie; if it has its
//! keys for itself and the rule learns nothing, products leave dq, dk and dv where they belong.

use super::bands::Tile;
use super::forward::{TASKS, wave};
use super::products::{Left, Out, padded, product};
use super::rows::readable_in_place;
use super::scores::Visibility;
use super::tiles::{
    Drop, KEYS, QUERIES, block, dots_of_rows, pack_rows, pack_transposed, soften_backward,
};
use super::{Attention, Gradients, RowsMut, Scores, Shape};
use crate::threads::{self, SharedMut};
use crate::{Write, dry, scratch};

/// Working memory of the heads taken at once, in floats (32 MiB), unless more are needed to have
/// enough tasks.
const WORKING_FLOATS: usize = 8 << 20;
/// A rule with partial gradients longer than this gets one task per head: several would each
/// need such a partial.
const LONG_PARTIAL: usize = 1 << 16;

/// Lengths, in floats, of what a head keeps between the phases.
struct Layout {
    /// Tasks that share a key/value head.
    shares: usize,
    /// Is a head a single tile, whose q, k and dout products can read where they lie?
    in_place: bool,
    /// … and whose gradients they can leave where they belong?
    direct: bool,
    /// lse; δ; unless in place, q padded, (T, D padded), and dout padded, (T, Dv padded).
    packed: usize,
    /// dq, (T, D padded), one for each share.
    dq: usize,
    /// The rule's partial, one for each share.
    partial: usize,
}

impl Layout {
    fn head(&self) -> usize {
        self.packed + self.shares * (self.dq + self.partial)
    }
}

pub(super) fn backward<M: Scores>(attention: &Attention<'_, M>, gradients: Gradients<'_>) {
    let Shape { batch, queries, keys, heads, kv_heads, width, value_width } = attention.shape;
    let Gradients { out, lse, dout, dqueries, dkeys, dvalues, mut dscores } = gradients;
    let group = attention.shape.group();
    let pairs = batch * kv_heads;
    let (q_stride, o_stride) = (padded(width), padded(value_width));
    let partial = if dscores.is_some() { attention.scores.partial_len() } else { 0 };
    let shares = if partial > LONG_PARTIAL {
        1
    } else {
        TASKS.div_ceil(2 * pairs.max(1)).clamp(1, keys.div_ceil(KEYS).max(1))
    };
    let in_place = (1..=QUERIES).contains(&queries)
        && keys <= KEYS
        && readable_in_place(width, attention.queries.row_stride())
        && readable_in_place(width, attention.keys.row_stride())
        && readable_in_place(value_width, heads * value_width);
    let direct = in_place && keys > 0 && group == 1 && partial == 0;
    let layout = Layout {
        shares,
        in_place,
        direct,
        packed: queries * (2 + if in_place { 0 } else { q_stride + o_stride }),
        dq: if dqueries.is_some() && !direct { queries * q_stride } else { 0 },
        partial,
    };
    if let Some((dscores, Write::Set)) = &mut dscores {
        dscores.fill(0.0);
    }
    let targets =
        Targets { dqueries: dqueries.as_ref(), dkeys: dkeys.as_ref(), dvalues: dvalues.as_ref() };
    if shares == 1 && partial == 0 {
        // A task is the whole of a key/value head: what it prepares is in its own cache when it
        // needs it, and threads meet once.
        dry::scratch_in_tasks(group * layout.head(), pairs);
        threads::for_each(pairs, |pair| {
            let (b, h) = (pair / kv_heads, pair % kv_heads * group);
            scratch::with(group * layout.head(), |memory| {
                let memory = memory.chunks_exact_mut(layout.head().max(1)).enumerate();
                let heads = memory.map(|(g, memory)| {
                    let (packed, dq) = memory.split_at_mut(layout.packed);
                    prepare(attention, &layout, (out, lse, dout), (b, h + g), packed);
                    dq.fill(0.0);
                    Head::new(attention, &layout, dout, (b, h + g), packed, dq, &mut [])
                });
                let mut heads: Vec<Head<'_>> = heads.collect();
                share_of_keys(attention, &layout, b, h, 0, &mut heads, targets);
                if let (Some(dqueries), false) = (&dqueries, layout.direct) {
                    for (g, head) in heads.iter().enumerate() {
                        // SAFETY: (b, h + g) belongs to this task alone.
                        unsafe {
                            dqueries.put(b, 0..queries, h + g, head.dq, q_stride, attention.scale);
                        };
                    }
                }
            });
        });
        return;
    }
    let wave = wave(pairs, group * layout.head(), shares, WORKING_FLOATS);
    for first in (0..pairs).step_by(wave.max(1)) {
        let pairs = first..(first + wave).min(pairs);
        let wave_heads = pairs.len() * group;
        // Head number `i` of the wave.
        let place = |i: usize| {
            let pair = first + i / group;
            (pair / kv_heads, pair % kv_heads * group + i % group)
        };
        scratch::with(wave_heads * layout.head(), |memory| {
            let (packed, memory) = memory.split_at_mut(wave_heads * layout.packed);
            let (dq, partials) = memory.split_at_mut(wave_heads * shares * layout.dq);
            let parts = [(&mut *packed, layout.packed)];
            threads::for_row_chunks(wave_heads, 1, parts, |i, [packed]| {
                prepare(attention, &layout, (out, lse, dout), place(i.start), packed);
            });
            let parts = [(&mut *dq, layout.dq), (&mut *partials, partial)];
            threads::for_row_chunks(wave_heads * shares, 1, parts, |_, [dq, partials]| {
                dq.fill(0.0);
                partials.fill(0.0);
            });
            {
                let (dq, partials) = (SharedMut::new(dq), SharedMut::new(partials));
                threads::for_each(pairs.len() * shares, |task| {
                    let (pair, share) = (task % pairs.len(), task / pairs.len());
                    let (b, h) = place(pair * group);
                    let heads = (0..group).map(|g| {
                        let i = pair * group + g;
                        let own = (i * shares + share) * layout.dq;
                        let own_partial = (i * shares + share) * partial;
                        // SAFETY: (head, share) belongs to this task alone.
                        let dq = unsafe { dq.range(own..own + layout.dq) };
                        // SAFETY: as above.
                        let partial = unsafe { partials.range(own_partial..own_partial + partial) };
                        let packed = &packed[i * layout.packed..(i + 1) * layout.packed];
                        Head::new(attention, &layout, dout, (b, h + g), packed, dq, partial)
                    });
                    let mut heads: Vec<Head<'_>> = heads.collect();
                    share_of_keys(attention, &layout, b, h, share, &mut heads, targets);
                });
            }
            if let Some(dqueries) = &dqueries {
                add_shares(attention, dqueries, dq, place, &layout, wave_heads);
            }
            if let Some((dscores, _)) = &mut dscores {
                for i in 0..wave_heads {
                    let (b, h) = place(i);
                    for share in 0..shares {
                        let start = (i * shares + share) * partial;
                        let partial = &partials[start..start + partial];
                        attention.scores.collect(b, h, partial, dscores);
                    }
                }
            }
        });
    }
}

/// dout of head (b, h), from its first row on, and the distance from row to row.
fn dout_of<'a, M: Scores>(
    attention: &Attention<'_, M>,
    dout: &'a [f32],
    (b, h): (usize, usize),
) -> (&'a [f32], usize) {
    let Shape { queries, heads, value_width, .. } = attention.shape;
    (&dout[(b * queries * heads + h) * value_width..], heads * value_width)
}

/// Fills `packed` of head (b, h): q and dout, unless they are read in place, lse, δ.
fn prepare<M: Scores>(
    attention: &Attention<'_, M>,
    layout: &Layout,
    (out, lse, dout): (&[f32], &[f32], &[f32]),
    (b, h): (usize, usize),
    packed: &mut [f32],
) {
    let Shape { queries, heads, width, value_width, .. } = attention.shape;
    let (q_stride, o_stride) = (padded(width), padded(value_width));
    if queries == 0 {
        return;
    }
    let (numbers, operands) = packed.split_at_mut(2 * queries);
    let (own_lse, delta) = numbers.split_at_mut(queries);
    let (dout, stride) = dout_of(attention, dout, (b, h));
    if !layout.in_place {
        let (q, o) = operands.split_at_mut(queries * q_stride);
        pack_rows(dout, stride, value_width, 1.0, o_stride, o);
        let (rows, stride) = attention.queries.strided(b, 0..queries, h);
        pack_rows(rows, stride, width, 1.0, q_stride, q);
    }
    let (out, _) = dout_of(attention, out, (b, h));
    dots_of_rows(out, dout, stride, value_width, delta);
    let lse = &lse[(b * heads + h) * queries..][..queries];
    for (own, &lse) in own_lse.iter_mut().zip(lse) {
        // Nothing seen: +∞ makes every weight exp(s − ∞) = 0.
        *own = if lse == f32::NEG_INFINITY { f32::INFINITY } else { lse };
    }
}

/// Term (4): the shares of dq added up in order.
fn add_shares<M: Scores>(
    attention: &Attention<'_, M>,
    dqueries: &RowsMut<'_>,
    dq: &[f32],
    place: impl Fn(usize) -> (usize, usize) + Sync,
    layout: &Layout,
    wave_heads: usize,
) {
    let Shape { queries, width, .. } = attention.shape;
    let stride = padded(width);
    let chunks = queries.div_ceil(QUERIES);
    threads::for_each(wave_heads * chunks, |task| {
        let (i, chunk) = (task / chunks, task % chunks);
        let (b, h) = place(i);
        let rows = block(chunk, QUERIES, queries);
        let share = |n: usize| {
            let start = (i * layout.shares + n) * layout.dq;
            &dq[start + rows.start * stride..start + rows.end * stride]
        };
        scratch::with(if layout.shares > 1 { rows.len() * stride } else { 0 }, |sum| {
            let all = if layout.shares > 1 {
                sum.copy_from_slice(share(0));
                for n in 1..layout.shares {
                    sum.iter_mut().zip(share(n)).for_each(|(sum, x)| *sum += x);
                }
                &*sum
            } else {
                share(0)
            };
            // SAFETY: these rows of (b, h) belong to this task alone.
            unsafe { dqueries.put(b, rows.clone(), h, all, stride, attention.scale) };
        });
    });
}

/// What a task has of one query head. Rows of q and dout are as far apart as their strides say.
struct Head<'a> {
    q: (&'a [f32], usize),
    dout: (&'a [f32], usize),
    lse: &'a [f32],
    delta: &'a [f32],
    dq: &'a mut [f32],
    partial: &'a mut [f32],
}

impl<'a> Head<'a> {
    /// Head (b, h), for which [`prepare`] has filled `packed`.
    fn new<M: Scores>(
        attention: &Attention<'a, M>,
        layout: &Layout,
        dout: &'a [f32],
        (b, h): (usize, usize),
        packed: &'a [f32],
        dq: &'a mut [f32],
        partial: &'a mut [f32],
    ) -> Self {
        let Shape { queries, width, value_width, .. } = attention.shape;
        let (numbers, operands) = packed.split_at(2 * queries);
        let (lse, delta) = numbers.split_at(queries);
        let (q, dout) = if layout.in_place {
            (attention.queries.strided(b, 0..queries, h), dout_of(attention, dout, (b, h)))
        } else {
            let (q, dout) = operands.split_at(queries * padded(width));
            ((q, padded(width)), (dout, padded(value_width)))
        };
        Self { q, dout, lse, delta, dq, partial }
    }
}

/// Where gradients belong.
#[derive(Clone, Copy)]
struct Targets<'a> {
    dqueries: Option<&'a RowsMut<'a>>,
    dkeys: Option<&'a RowsMut<'a>>,
    dvalues: Option<&'a RowsMut<'a>>,
}

/// One task: every `shares`-th block of keys from `share` on, so that under a causal rule each
/// task has long and short ones. `heads` are those that share the keys, from number `h` on.
fn share_of_keys<M: Scores>(
    attention: &Attention<'_, M>,
    layout: &Layout,
    b: usize,
    h: usize,
    share: usize,
    heads: &mut [Head<'_>],
    targets: Targets<'_>,
) {
    let Shape { queries: all_queries, keys: all_keys, width, value_width, .. } = attention.shape;
    let kv_head = h / attention.shape.group();
    let Layout { shares, in_place, direct, .. } = *layout;
    let Targets { dqueries, dkeys, dvalues } = targets;
    let (q_stride, o_stride) = (padded(width), padded(value_width));
    let lens = [
        width * KEYS,
        value_width * KEYS,
        if in_place { 0 } else { KEYS * q_stride },
        if direct { 0 } else { KEYS * q_stride },
        if direct { 0 } else { KEYS * o_stride },
        QUERIES * KEYS,
        QUERIES * KEYS,
    ];
    scratch::with(lens.iter().sum(), |memory| {
        let (k_transposed, memory) = memory.split_at_mut(lens[0]); // (D, KEYS)
        let (v_transposed, memory) = memory.split_at_mut(lens[1]); // (Dv, KEYS)
        let (k_packed, memory) = memory.split_at_mut(lens[2]); // (KEYS, D padded)
        let (dk, memory) = memory.split_at_mut(lens[3]); // (KEYS, D padded)
        let (dv, memory) = memory.split_at_mut(lens[4]); // (KEYS, Dv padded)
        let (s, dp) = memory.split_at_mut(lens[5]); // (QUERIES, KEYS) each
        for j in (share..all_keys.div_ceil(KEYS)).step_by(shares) {
            let keys = block(j, KEYS, all_keys);
            let (rows, stride) = attention.keys.strided(b, keys.clone(), kv_head);
            pack_transposed(rows, stride, keys.len(), width, attention.scale, k_transposed);
            let (k, k_stride) = if in_place {
                (rows, stride)
            } else {
                let k = &mut k_packed[..keys.len() * q_stride];
                pack_rows(rows, stride, width, 1.0, q_stride, k);
                (&*k, q_stride)
            };
            let (rows, stride) = attention.values.strided(b, keys.clone(), kv_head);
            pack_transposed(rows, stride, keys.len(), value_width, 1.0, v_transposed);
            dk.fill(0.0);
            dv.fill(0.0);
            for (g, head) in heads.iter_mut().enumerate() {
                let ((q, q_step), (dout, dout_step)) = (head.q, head.dout);
                let (lse, delta) = (head.lse, head.delta);
                for i in 0..all_queries.div_ceil(QUERIES) {
                    let queries = block(i, QUERIES, all_queries);
                    let rule = attention.scores;
                    let visibility = rule.tile(b, h + g, queries.clone(), keys.clone());
                    if visibility == Visibility::Empty && !direct {
                        continue;
                    }
                    let (q, dout) =
                        (&q[queries.start * q_step..], &dout[queries.start * dout_step..]);
                    let full = visibility == Visibility::Full;
                    let tile = Tile {
                        rule,
                        batch: b,
                        head: h + g,
                        queries: queries.clone(),
                        keys: keys.clone(),
                        full,
                    };
                    for (rows, columns) in tile.rows() {
                        let (count, inner) = (rows.len(), columns.len());
                        let place = rows.start * KEYS..rows.end * KEYS;
                        let (s, dp) = (&mut s[place.clone()], &mut dp[place]);
                        let first = columns.start;
                        let (queries, keys_seen) = tile.place(&rows, &columns);
                        if inner > 0 {
                            let wide = padded(inner);
                            let (s, dp) = (&mut s[first..], &mut dp[first..]);
                            // Empty without a width.
                            let k = k_transposed.get(first..).unwrap_or(&[]);
                            let v = v_transposed.get(first..).unwrap_or(&[]);
                            let left = Left::rows(&q[rows.start * q_step..], q_step);
                            let out = Out::new(s, KEYS, Write::Set);
                            product(count, wide, width, left, k, KEYS, &out);
                            if !full {
                                let (queries, keys) = (queries.clone(), keys_seen.clone());
                                rule.apply_tile(b, h + g, queries, keys, KEYS, s);
                            }
                            let left = Left::rows(&dout[rows.start * dout_step..], dout_step);
                            let out = Out::new(dp, KEYS, Write::Set);
                            product(count, wide, value_width, left, v, KEYS, &out);
                        }
                        let drop = Drop::new(attention, b, h + g, queries.start, keys_seen.start);
                        let (lse, delta) = (&lse[queries.clone()], &delta[queries.clone()]);
                        soften_backward(keys.len(), columns, s, dp, lse, delta, drop);
                        let out = match dqueries {
                            // SAFETY: these rows of (b, h + g) belong to this task alone.
                            Some(dqueries) if direct => unsafe {
                                Some(dqueries.out(b, queries, h + g, attention.scale))
                            },
                            Some(_) if inner > 0 => {
                                let rows = queries.start * q_stride..queries.end * q_stride;
                                Some(Out::new(&mut head.dq[rows], q_stride, Write::Add))
                            }
                            _ => None,
                        };
                        if let Some(out) = out {
                            let left = Left::rows(&dp[first..], KEYS); // (4)
                            let k = &k[first * k_stride..];
                            product(count, q_stride, inner, left, k, k_stride, &out);
                        }
                    }
                    if !full && !head.partial.is_empty() {
                        let (of_queries, of_keys) = (queries.clone(), keys.clone());
                        rule.backward_tile(b, h + g, of_queries, of_keys, KEYS, dp, head.partial);
                    }
                    for (columns, rows) in tile.columns() {
                        let (count, inner) = (columns.len(), rows.len());
                        let place = rows.start * KEYS + columns.start;
                        let (_, of_keys) = tile.place(&rows, &columns);
                        if let (true, Some(dvalues)) = (direct || inner > 0, dvalues) {
                            let left = Left::transposed(&s[place..], KEYS); // (1)
                            let dout = &dout[rows.start * dout_step..];
                            let out = if direct {
                                // SAFETY: these rows of (b, kv_head) belong to this task alone.
                                unsafe { dvalues.out(b, of_keys.clone(), kv_head, 1.0) }
                            } else {
                                let rows = columns.start * o_stride..columns.end * o_stride;
                                Out::new(&mut dv[rows], o_stride, Write::Add)
                            };
                            product(count, o_stride, inner, left, dout, dout_step, &out);
                        }
                        if let (true, Some(dkeys)) = (direct || inner > 0, dkeys) {
                            let left = Left::transposed(&dp[place..], KEYS); // (5)
                            let q = &q[rows.start * q_step..];
                            let out = if direct {
                                // SAFETY: as above.
                                unsafe { dkeys.out(b, of_keys, kv_head, attention.scale) }
                            } else {
                                let rows = columns.start * q_stride..columns.end * q_stride;
                                Out::new(&mut dk[rows], q_stride, Write::Add)
                            };
                            product(count, q_stride, inner, left, q, q_step, &out);
                        }
                    }
                }
            }
            if direct {
                continue;
            }
            // SAFETY: these rows of (b, kv_head) belong to this task alone.
            unsafe {
                if let Some(dkeys) = dkeys {
                    dkeys.put(b, keys.clone(), kv_head, dk, q_stride, attention.scale);
                }
                if let Some(dvalues) = dvalues {
                    dvalues.put(b, keys, kv_head, dv, o_stride, 1.0);
                }
            }
        }
    });
}
