//! What happens to a tile between the products: packing, the rule, and softmax or its gradient.
//!
//! A tile of scores is row-major, [`KEYS`] floats from row to row, whatever its true size.

use super::products::{Out, PAD};
use super::scores::Position;
use super::{Attention, Scores, Shape};
use crate::gemm::micro::prefetch;
use crate::gemm::transpose::Transpose;
use crate::math::{exp, ln};
use crate::random::{Dropout, Stream};
use crate::simd::{Simd, Span};
use crate::{dispatch, each_span};
use std::ops::Range;

/// Queries in a tile.
pub(super) const QUERIES: usize = 64;
/// Keys in a tile.
pub(super) const KEYS: usize = 64;

/// Dropout of a tile: the factor of (query row, key) is number `key` of the stream of the row, and
/// a row is one (batch, head, query).
#[derive(Clone, Copy)]
pub(super) struct Drop {
    pub(super) dropout: Dropout,
    /// Number of the tile's first row.
    pub(super) row: u32,
    /// Its first key.
    pub(super) key: u32,
}

impl Drop {
    /// For the tile of (b, h) that starts at `query` and `key`.
    pub(super) fn new<M: Scores>(
        attention: &Attention<'_, M>,
        b: usize,
        h: usize,
        query: usize,
        key: usize,
    ) -> Option<Self> {
        let Shape { queries, heads, .. } = attention.shape;
        let row = ((b * heads + h) * queries + query) as u32;
        attention.dropout.map(|dropout| Self { dropout, row, key: key as u32 })
    }

    fn stream(&self, row: usize) -> Stream {
        Stream::new(self.dropout.key, self.row.wrapping_add(row as u32))
    }
}

/// The blocks of `size` that `len` is cut into.
pub(super) fn block(index: usize, size: usize, len: usize) -> Range<usize> {
    index * size..((index + 1) * size).min(len)
}

dispatch! {
    /// Changes a tile of scores as the rule says, row by row. Rules are plain loops; compiled
    /// here for each instruction set, they are vectorised by the compiler.
    pub(super) fn apply_rows<M: Scores>(
        rule: &M,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        keys: Range<usize>,
        stride: usize,
        scores: &mut [f32],
    ) => apply_rows_on

    /// Gives the gradient of a tile of scores to the rule, row by row.
    pub(super) fn backward_rows<M: Scores>(
        rule: &M,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        keys: Range<usize>,
        stride: usize,
        dscores: &[f32],
        partial: &mut [f32],
    ) => backward_rows_on
}

#[inline(always)]
fn apply_rows_on<S: Simd, M: Scores>(
    _: S,
    rule: &M,
    batch: usize,
    head: usize,
    queries: Range<usize>,
    keys: Range<usize>,
    stride: usize,
    scores: &mut [f32],
) {
    for (query, row) in queries.zip(scores.chunks_mut(stride)) {
        rule.apply(Position { batch, head, query }, keys.clone(), &mut row[..keys.len()]);
    }
}

#[inline(always)]
fn backward_rows_on<S: Simd, M: Scores>(
    _: S,
    rule: &M,
    batch: usize,
    head: usize,
    queries: Range<usize>,
    keys: Range<usize>,
    stride: usize,
    dscores: &[f32],
    partial: &mut [f32],
) {
    for (query, row) in queries.zip(dscores.chunks(stride)) {
        let at = Position { batch, head, query };
        rule.backward(at, keys.clone(), &row[..keys.len()], partial);
    }
}

dispatch! {
    /// Copies row `r` of `count` rows of `width`, `stride` apart, times `factor`, to column `r` of
    /// `out` (width × KEYS); columns beyond are zero.
    pub(super) fn pack_transposed(
        rows: &[f32],
        stride: usize,
        count: usize,
        width: usize,
        factor: f32,
        out: &mut [f32],
    ) => pack_transposed_on

    /// Copies rows of `width` floats that are `stride` apart, times `factor`, to the rows of `out`,
    /// which are `out_stride` long: zeros behind each. As many as `out` has.
    pub(super) fn pack_rows(
        rows: &[f32],
        stride: usize,
        width: usize,
        factor: f32,
        out_stride: usize,
        out: &mut [f32],
    ) => pack_rows_on

    /// Forward's step on a tile of scores with `keys` true columns. Scores become weights
    /// relative to the new maximum; `largest` (one float a row), `sums` ([`PAD`] a row: partial
    /// sums by lane) and `out` (rows of `out_stride`) follow it.
    pub(super) fn soften(
        keys: usize,
        scores: &mut [f32],
        largest: &mut [f32],
        sums: &mut [f32],
        out: &mut [f32],
        out_stride: usize,
        drop: Option<Drop>,
    ) => soften_on

    /// Forward's last step, on as many rows as `lse` has: out = values / Σ sums, zeros if the sum is
    /// 0, and lse = largest + ln Σ sums. Rows of `values` are `stride` apart, those of `sums`
    /// [`PAD`].
    pub(super) fn finish(
        largest: &[f32],
        sums: &[f32],
        values: &[f32],
        stride: usize,
        out: &mut Out<'_>,
        lse: &mut [f32],
    ) => finish_on

    /// Backward's step on some `columns` of a tile with `keys` true ones, terms (2) and (3):
    /// scores become p̃ and dweights (do·v) become ds. Other columns become zero in both.
    pub(super) fn soften_backward(
        keys: usize,
        columns: Range<usize>,
        scores: &mut [f32],
        dweights: &mut [f32],
        lse: &[f32],
        delta: &[f32],
        drop: Option<Drop>,
    ) => soften_backward_on

    /// Takes another part of the keys into account: `state` is values (as many as `values`), sums
    /// by lane ([`PAD`]) and the maximum; `values`, `sums` and `largest` are those of the part.
    pub(super) fn merge(state: &mut [f32], values: &[f32], sums: &[f32], largest: f32) => merge_on

    /// out\[j\] = q · row j of `keys`, rows `stride` apart.
    pub(super) fn dots(q: &[f32], keys: &[f32], stride: usize, out: &mut [f32]) => dots_on

    /// softmax in place; zeros if all scores are −∞.
    pub(super) fn softmax_row(scores: &mut [f32]) => softmax_row_on

    /// Σ p·(lse − s) over a tile of scores with `keys` true columns.
    pub(super) fn entropy_of_rows(keys: usize, scores: &[f32], lse: &[f32]) -> f32
        => entropy_of_rows_on

    /// out\[i\] = row i of x · row i of y, of `width` floats, `stride` apart.
    pub(super) fn dots_of_rows(x: &[f32], y: &[f32], stride: usize, width: usize, out: &mut [f32])
        => dots_of_rows_on
}

#[inline(always)]
fn pack_transposed_on<S: Transpose>(
    s: S,
    rows: &[f32],
    stride: usize,
    count: usize,
    width: usize,
    factor: f32,
    out: &mut [f32],
) {
    assert!(count <= KEYS && out.len() == width * KEYS);
    assert!(count * width == 0 || rows.len() >= (count - 1) * stride + width);
    let factors = s.splat(factor);
    // Square blocks in registers, the rest one by one.
    let (squares, columns) = (count - count % S::LANES, width - width % S::LANES);
    for r in (0..squares).step_by(S::LANES) {
        for r in r + S::LANES..(r + 2 * S::LANES).min(count) {
            fetch_row(rows.as_ptr().wrapping_add(r * stride), width);
        }
        for c in (0..columns).step_by(S::LANES) {
            // SAFETY: rows r to r + LANES − 1 and columns c to c + LANES − 1 exist, and every
            // row ends inside of `rows` by the assertion above.
            let block = unsafe { s.load_transposed(rows.as_ptr().add(r * stride + c), stride) };
            for (n, &column) in block[..S::LANES].iter().enumerate() {
                let at = Span { start: (c + n) * KEYS + r, count: S::LANES };
                s.write(out, at, s.mul(column, factors));
            }
        }
    }
    for c in 0..width {
        let first = if c < columns { squares } else { 0 };
        for r in first..count {
            out[c * KEYS + r] = rows[r * stride + c] * factor;
        }
        out[c * KEYS + count..(c + 1) * KEYS].fill(0.0);
    }
}

/// How many rows of a head are fetched ahead: they lie far apart, where the hardware does not
/// look ahead.
pub(super) const ROWS_AHEAD: usize = 8;

/// Asks for a row of a head; harmless for any address.
#[inline(always)]
pub(super) fn fetch_row(row: *const f32, width: usize) {
    for line in (0..width).step_by(PAD) {
        prefetch(row.wrapping_add(line));
    }
}

#[inline(always)]
fn pack_rows_on<S: Simd>(
    s: S,
    rows: &[f32],
    stride: usize,
    width: usize,
    factor: f32,
    out_stride: usize,
    out: &mut [f32],
) {
    let factor = s.splat(factor);
    for (r, out) in out.chunks_exact_mut(out_stride.max(1)).enumerate() {
        let row = &rows[r * stride..][..width];
        fetch_row(row.as_ptr().wrapping_add(ROWS_AHEAD * stride), width);
        each_span!(S, width, |at| {
            s.write(out, at, s.mul(s.read(row, at), factor));
        });
        out[width..].fill(0.0);
    }
}

#[inline(always)]
fn dots_of_rows_on<S: Simd>(
    s: S,
    x: &[f32],
    y: &[f32],
    stride: usize,
    width: usize,
    out: &mut [f32],
) {
    for (r, out) in out.iter_mut().enumerate() {
        let (x, y) = (&x[r * stride..][..width], &y[r * stride..][..width]);
        let mut sum = s.zero();
        each_span!(S, width, |at| {
            sum = s.mul_add(s.read(x, at), s.read(y, at), sum);
        });
        *out = s.sum(sum);
    }
}

/// `largest`, or 0 where nothing has been seen: −∞ − (−∞) would be NaN.
#[inline(always)]
fn finite_or_zero(largest: f32) -> f32 {
    if largest == f32::NEG_INFINITY { 0.0 } else { largest }
}

#[inline(always)]
fn soften_on<S: Simd>(
    s: S,
    keys: usize,
    scores: &mut [f32],
    largest: &mut [f32],
    sums: &mut [f32],
    out: &mut [f32],
    out_stride: usize,
    drop: Option<Drop>,
) {
    let scale = drop.map_or(1.0, |drop| drop.dropout.scale());
    let rows = scores.chunks_exact_mut(KEYS).zip(largest).zip(sums.chunks_exact_mut(PAD));
    for (r, ((scores, largest), sums)) in rows.enumerate() {
        let scores = &mut scores[..keys];
        let mut high = s.splat(*largest);
        each_span!(S, keys, |at| {
            let v = s.keep_first(at.count, s.read(scores, at), s.splat(f32::NEG_INFINITY));
            high = s.max(v, high); // a NaN is left out here and comes in through exp
        });
        let high = s.largest(high);
        let lanes = Span { start: 0, count: S::LANES };
        if high > *largest {
            if *largest > f32::NEG_INFINITY {
                let factor = exp(s, s.splat(*largest - high));
                s.write(sums, lanes, s.mul(s.read(sums, lanes), factor));
                let out = &mut out[r * out_stride..(r + 1) * out_stride];
                each_span!(S, out.len(), |at| {
                    s.write(out, at, s.mul(s.read(out, at), factor));
                });
            }
            *largest = high;
        }
        let high = s.splat(finite_or_zero(high));
        let mut sum = s.read(sums, lanes);
        each_span!(S, keys, |at| {
            let p = exp(s, s.sub(s.read(scores, at), high));
            s.write(scores, at, p);
            sum = s.add(sum, s.keep_first(at.count, p, s.zero()));
        });
        s.write(sums, lanes, sum);
        if let Some(drop) = drop {
            let stream = drop.stream(r);
            each_span!(S, keys, |at| {
                let factors = drop.dropout.factors(s, &stream, drop.key + at.start as u32, scale);
                s.write(scores, at, s.mul(s.read(scores, at), factors));
            });
        }
    }
}

#[inline(always)]
fn finish_on<S: Simd>(
    s: S,
    largest: &[f32],
    sums: &[f32],
    values: &[f32],
    stride: usize,
    out: &mut Out<'_>,
    lse: &mut [f32],
) {
    for (r, lse) in lse.iter_mut().enumerate() {
        let sum = s.sum(s.read(&sums[r * PAD..], Span { start: 0, count: S::LANES }));
        let (values, out) = (&values[r * stride..], out.row(r));
        *lse = sum;
        if sum == 0.0 {
            out.fill(0.0);
            continue;
        }
        let factor = s.splat(1.0 / sum);
        each_span!(S, out.len(), |at| {
            s.write(out, at, s.mul(s.read(values, at), factor));
        });
    }
    logarithms_on(s, largest, lse);
}

/// lse = ln Σ e^score of each row, of which it has the sum of e^(score − largest).
#[inline(always)]
fn logarithms_on<S: Simd>(s: S, largest: &[f32], lse: &mut [f32]) {
    assert_eq!(largest.len(), lse.len());
    each_span!(S, largest.len(), |at| {
        let high = s.read(largest, at);
        // Nothing seen: 0 + ln 0 = −∞.
        let seen = s.less(s.splat(f32::NEG_INFINITY), high);
        let sum = ln(s, s.read(lse, at));
        s.write(lse, at, s.add(s.select(seen, high, s.zero()), sum));
    });
}

#[inline(always)]
fn soften_backward_on<S: Simd>(
    s: S,
    keys: usize,
    columns: Range<usize>,
    scores: &mut [f32],
    dweights: &mut [f32],
    lse: &[f32],
    delta: &[f32],
    drop: Option<Drop>,
) {
    let scale = drop.map_or(1.0, |drop| drop.dropout.scale());
    let rows = scores.chunks_exact_mut(KEYS).zip(dweights.chunks_exact_mut(KEYS));
    for (r, ((scores, dweights), (&lse, &delta))) in rows.zip(lse.iter().zip(delta)).enumerate() {
        for row in [&mut *scores, &mut *dweights] {
            row[..columns.start].fill(0.0);
            row[columns.end..keys].fill(0.0);
        }
        let (scores, dweights) = (&mut scores[columns.clone()], &mut dweights[columns.clone()]);
        let keys = columns.len();
        let (lse, delta) = (s.splat(lse), s.splat(delta));
        if let Some(drop) = drop {
            let stream = drop.stream(r);
            each_span!(S, keys, |at| {
                let factors = drop.dropout.factors(s, &stream, drop.key + at.start as u32, scale);
                let p = exp(s, s.sub(s.read(scores, at), lse));
                let dp = s.mul(s.read(dweights, at), factors);
                s.write(scores, at, s.mul(p, factors));
                s.write(dweights, at, s.mul(p, s.sub(dp, delta)));
            });
            continue;
        }
        each_span!(S, keys, |at| {
            let p = exp(s, s.sub(s.read(scores, at), lse));
            let ds = s.mul(p, s.sub(s.read(dweights, at), delta));
            s.write(scores, at, p);
            s.write(dweights, at, ds);
        });
    }
}

#[inline(always)]
fn merge_on<S: Simd>(s: S, state: &mut [f32], values: &[f32], sums: &[f32], largest: f32) {
    let (own, rest) = state.split_at_mut(values.len());
    let (own_sums, own_largest) = rest.split_at_mut(PAD);
    let high = if largest > own_largest[0] { largest } else { own_largest[0] };
    if high == f32::NEG_INFINITY && own_sums.iter().chain(sums).all(|&x| x == 0.0) {
        return; // neither has seen anything
    }
    let factor = |x: f32| exp(s, s.splat(x - finite_or_zero(high)));
    let (first, second) = (factor(own_largest[0]), factor(largest));
    each_span!(S, own.len(), |at| {
        s.write(own, at, s.mul_add(s.read(values, at), second, s.mul(s.read(own, at), first)));
    });
    each_span!(S, PAD, |at| {
        let sum = s.mul_add(s.read(sums, at), second, s.mul(s.read(own_sums, at), first));
        s.write(own_sums, at, sum);
    });
    own_largest[0] = high;
}

#[inline(always)]
fn dots_on<S: Simd>(s: S, q: &[f32], keys: &[f32], stride: usize, out: &mut [f32]) {
    // Four keys at a time, for four independent sums.
    let mut j = 0;
    while j < out.len() {
        let count = (out.len() - j).min(4);
        // Missing rows repeat the last.
        let row: [&[f32]; 4] = std::array::from_fn(|n| {
            let start = (j + n.min(count - 1)) * stride;
            &keys[start..][..q.len()]
        });
        let mut sums = [s.zero(); 4];
        each_span!(S, q.len(), |at| {
            let x = s.read(q, at);
            for n in 0..4 {
                sums[n] = s.mul_add(x, s.read(row[n], at), sums[n]);
            }
        });
        for n in 0..count {
            out[j + n] = s.sum(sums[n]);
        }
        j += count;
    }
}

#[inline(always)]
fn softmax_row_on<S: Simd>(s: S, scores: &mut [f32]) {
    let mut high = s.splat(f32::NEG_INFINITY);
    each_span!(S, scores.len(), |at| {
        let v = s.keep_first(at.count, s.read(scores, at), s.splat(f32::NEG_INFINITY));
        high = s.max(v, high);
    });
    let high = s.splat(finite_or_zero(s.largest(high)));
    let mut sum = s.zero();
    each_span!(S, scores.len(), |at| {
        let p = exp(s, s.sub(s.read(scores, at), high));
        s.write(scores, at, p);
        sum = s.add(sum, s.keep_first(at.count, p, s.zero()));
    });
    let sum = s.sum(sum);
    if sum != 0.0 {
        let factor = s.splat(1.0 / sum);
        each_span!(S, scores.len(), |at| {
            s.write(scores, at, s.mul(s.read(scores, at), factor));
        });
    }
}

#[inline(always)]
fn entropy_of_rows_on<S: Simd>(s: S, keys: usize, scores: &[f32], lse: &[f32]) -> f32 {
    let mut sum = s.zero();
    for (scores, &lse) in scores.chunks_exact(KEYS).zip(lse) {
        if lse == f32::NEG_INFINITY {
            continue;
        }
        let lse = s.splat(lse);
        each_span!(S, keys, |at| {
            let information = s.sub(lse, s.read(scores, at)); // −ln p
            let p = exp(s, s.sub(s.zero(), information));
            // A hidden key has p = 0 and −ln p = ∞.
            let seen = s.less(information, s.splat(f32::INFINITY));
            let term = s.select(seen, s.mul(p, information), p);
            sum = s.add(sum, s.keep_first(at.count, term, s.zero()));
        });
    }
    s.sum(sum)
}
