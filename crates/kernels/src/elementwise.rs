//! Element by element: sums, products, and the reductions that gradients need.
//!
//! All of these are bound by memory. Reductions to one number run over fixed chunks: f32 sums of
//! 1024 elements in at least 32 lanes, whose results are added up in f64, in order.

use crate::simd::Simd;
use crate::simd::reduce::{self, fold_spans};
use crate::threads::{for_each, for_row_chunks, rows_per_chunk, sum_over_row_chunks};
use crate::{Write, dispatch, each_span};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// out += x
pub fn add_assign(out: &mut [f32], x: &[f32]) {
    assert_eq!(out.len(), x.len(), "adding {} elements to {}", x.len(), out.len());
    for_chunks(out, |at, out| add_assign_chunk(out, &x[at]));
}

/// out = out · x
pub fn mul_assign(out: &mut [f32], x: &[f32]) {
    assert_eq!(out.len(), x.len(), "multiplying {} elements by {}", out.len(), x.len());
    for_chunks(out, |at, out| mul_assign_chunk(out, &x[at]));
}

/// out += factor · x
pub fn axpy(out: &mut [f32], factor: f32, x: &[f32]) {
    assert_eq!(out.len(), x.len(), "adding {} elements to {}", x.len(), out.len());
    for_chunks(out, |at, out| axpy_chunk(out, factor, &x[at]));
}

/// out = a + b, or out += a + b
pub fn add(a: &[f32], b: &[f32], out: &mut [f32], write: Write) {
    check_lengths("a sum", a, b, out);
    for_chunks(out, |at, out| add_chunk(&a[at.clone()], &b[at], out, write));
}

/// out = a · b, or out += a · b
pub fn mul(a: &[f32], b: &[f32], out: &mut [f32], write: Write) {
    check_lengths("a product", a, b, out);
    for_chunks(out, |at, out| mul_chunk(&a[at.clone()], &b[at], out, write));
}

/// x = factor · x
pub fn scale(x: &mut [f32], factor: f32) {
    for_chunks(x, |_, x| linear_chunk(x, factor, 0.0));
}

/// x += value
pub fn add_scalar(x: &mut [f32], value: f32) {
    for_chunks(x, |_, x| linear_chunk(x, 1.0, value));
}

/// x = value
pub fn fill(x: &mut [f32], value: f32) {
    for_chunks(x, |_, x| x.fill(value));
}

/// out = x
pub fn copy(x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "copying {} elements to {}", x.len(), out.len());
    for_chunks(out, |at, out| out.copy_from_slice(&x[at]));
}

/// Adds `row` to every row of `out`, whose rows are as long as `row`.
pub fn add_rows(out: &mut [f32], row: &[f32]) {
    let width = row.len();
    let rows = whole_rows(out.len(), width);
    for_row_chunks(rows, rows_per_chunk(width), [(out, width)], |_, [out]| {
        add_rows_chunk(out, row);
    });
}

/// The sum of the rows of `x`, which are as long as `out`.
pub fn column_sums(x: &[f32], out: &mut [f32], write: Write) {
    let width = out.len();
    let rows = whole_rows(x.len(), width);
    sum_over_row_chunks(rows, out, write, |at, partial| {
        column_sums_chunk(&x[at.start * width..at.end * width], partial);
    });
}

/// The sum of all elements.
pub fn sum(x: &[f32]) -> f32 {
    reduce_chunks(x.len(), 0.0, |at| sum_chunk(&x[at]), |a, b| a + b) as f32
}

/// Σ a·b
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len(), "the dot product of {} and {} elements", a.len(), b.len());
    reduce_chunks(a.len(), 0.0, |at| dot_chunk(&a[at.clone()], &b[at]), |a, b| a + b)
}

/// Σ x², the square of a norm.
pub fn sum_of_squares(x: &[f32]) -> f64 {
    dot(x, x)
}

/// max |x|, 0 of nothing; NaN if there is one.
pub fn largest_magnitude(x: &[f32]) -> f32 {
    let join = |a: f64, b: f64| if a.is_nan() || a > b { a } else { b };
    reduce_chunks(x.len(), 0.0, |at| f64::from(magnitude_chunk(&x[at])), join) as f32
}

/// Is no element NaN or infinite?
pub fn all_finite(x: &[f32]) -> bool {
    largest_magnitude(x).is_finite()
}

#[track_caller]
fn check_lengths(what: &str, a: &[f32], b: &[f32], out: &[f32]) {
    assert!(
        a.len() == b.len() && a.len() == out.len(),
        "{what} of {} and {} elements into {}",
        a.len(),
        b.len(),
        out.len()
    );
}

/// How many rows of `width` there are in `len`, which must hold whole ones.
#[track_caller]
fn whole_rows(len: usize, width: usize) -> usize {
    let rows = len.checked_div(width).unwrap_or(0);
    assert_eq!(rows * width, len, "{len} elements are no whole rows of {width}");
    rows
}

/// Cuts `out` into chunks, in parallel.
fn for_chunks(out: &mut [f32], f: impl Fn(Range<usize>, &mut [f32]) + Sync) {
    for_row_chunks(out.len(), rows_per_chunk(1), [(out, 1)], |at, [out]| f(at, out));
}

/// Reduces at most 64 chunks in parallel and joins their results in order.
fn reduce_chunks(
    len: usize,
    start: f64,
    f: impl Fn(Range<usize>) -> f64 + Sync,
    join: impl Fn(f64, f64) -> f64,
) -> f64 {
    const MOST: usize = 64;
    let chunk = rows_per_chunk(1).max(len.div_ceil(MOST));
    let chunks = len.div_ceil(chunk);
    let results = [const { AtomicU64::new(0) }; MOST]; // bits of f64
    for_each(chunks, |i| {
        let result = f(i * chunk..((i + 1) * chunk).min(len));
        results[i].store(result.to_bits(), Ordering::Relaxed);
    });
    let results = results[..chunks].iter().map(|x| f64::from_bits(x.load(Ordering::Relaxed)));
    results.fold(start, join)
}

dispatch! {
    fn axpy_chunk(out: &mut [f32], factor: f32, x: &[f32]) => axpy_on
    /// As [`add_assign`], on this thread alone.
    pub(crate) fn add_assign_chunk(out: &mut [f32], x: &[f32]) => add_assign_on
    /// As [`mul_assign`], on this thread alone.
    pub(crate) fn mul_assign_chunk(out: &mut [f32], x: &[f32]) => mul_assign_on
    fn add_chunk(a: &[f32], b: &[f32], out: &mut [f32], write: Write) => add_on
    fn mul_chunk(a: &[f32], b: &[f32], out: &mut [f32], write: Write) => mul_on
    fn linear_chunk(x: &mut [f32], factor: f32, value: f32) => linear_on
    fn add_rows_chunk(out: &mut [f32], row: &[f32]) => add_rows_on
    fn column_sums_chunk(x: &[f32], sums: &mut [f32]) => column_sums_on
    fn sum_chunk(x: &[f32]) -> f64 => sum_on
    fn dot_chunk(a: &[f32], b: &[f32]) -> f64 => dot_on
    fn magnitude_chunk(x: &[f32]) -> f32 => magnitude_on
}

#[inline(always)]
fn axpy_on<S: Simd>(s: S, out: &mut [f32], factor: f32, x: &[f32]) {
    let factor = s.splat(factor);
    each_span!(S, x.len(), |at| {
        let v = s.mul_add(factor, s.read(x, at), s.read(out, at));
        s.write(out, at, v);
    });
}

#[inline(always)]
pub(crate) fn add_assign_on<S: Simd>(s: S, out: &mut [f32], x: &[f32]) {
    assert_eq!(out.len(), x.len());
    each_span!(S, out.len(), |at| {
        s.write(out, at, s.add(s.read(out, at), s.read(x, at)));
    });
}

#[inline(always)]
pub(crate) fn mul_assign_on<S: Simd>(s: S, out: &mut [f32], x: &[f32]) {
    assert_eq!(out.len(), x.len());
    each_span!(S, out.len(), |at| {
        s.write(out, at, s.mul(s.read(out, at), s.read(x, at)));
    });
}

#[inline(always)]
fn add_on<S: Simd>(s: S, a: &[f32], b: &[f32], out: &mut [f32], write: Write) {
    each_span!(S, a.len(), |at| {
        s.put(out, at, s.add(s.read(a, at), s.read(b, at)), write);
    });
}

#[inline(always)]
fn mul_on<S: Simd>(s: S, a: &[f32], b: &[f32], out: &mut [f32], write: Write) {
    each_span!(S, a.len(), |at| {
        s.put(out, at, s.mul(s.read(a, at), s.read(b, at)), write);
    });
}

#[inline(always)]
fn linear_on<S: Simd>(s: S, x: &mut [f32], factor: f32, value: f32) {
    let (factor, value) = (s.splat(factor), s.splat(value));
    each_span!(S, x.len(), |at| {
        let v = s.mul_add(s.read(x, at), factor, value);
        s.write(x, at, v);
    });
}

#[inline(always)]
fn add_rows_on<S: Simd>(s: S, out: &mut [f32], row: &[f32]) {
    for out in out.chunks_exact_mut(row.len().max(1)) {
        add_assign_on(s, out, row);
    }
}

#[inline(always)]
fn column_sums_on<S: Simd>(s: S, x: &[f32], sums: &mut [f32]) {
    let width = sums.len().max(1);
    // Four rows at a time: the sums are read and written a quarter as often.
    let mut groups = x.chunks_exact(4 * width);
    for rows in &mut groups {
        let (front, back) = rows.split_at(2 * width);
        let ((a, b), (c, d)) = (front.split_at(width), back.split_at(width));
        each_span!(S, width, |at| {
            let low = s.add(s.read(a, at), s.read(b, at));
            let high = s.add(s.read(c, at), s.read(d, at));
            let v = s.add(s.read(sums, at), s.add(low, high));
            s.write(sums, at, v);
        });
    }
    for row in groups.remainder().chunks_exact(width) {
        add_assign_on(s, sums, row);
    }
}

/// Elements whose sum is taken in f32 before it goes into one of f64.
const RUN: usize = 1024;

#[inline(always)]
fn sum_on<S: Simd>(s: S, x: &[f32]) -> f64 {
    let mut total = 0.0;
    for x in x.chunks(RUN) {
        total += f64::from(reduce::sum(s, x));
    }
    total
}

#[inline(always)]
fn dot_on<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f64 {
    let mut total = 0.0;
    for (a, b) in a.chunks(RUN).zip(b.chunks(RUN)) {
        total += f64::from(reduce::dot(s, a, b));
    }
    total
}

#[inline(always)]
fn magnitude_on<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (top, spoilt) = fold_spans!(
        S,
        x.len(),
        (s.zero(), s.zero()),
        |both, at| {
            let v = s.abs(s.read(x, at));
            // x·0 is NaN where x is NaN or infinite, and stays so in the sum.
            (s.max(v, both.0), s.mul_add(v, s.zero(), both.1))
        },
        |a, b| (s.max(a.0, b.0), s.add(a.1, b.1))
    );
    let top = s.largest(top);
    // An infinite maximum explains the NaN; a finite one leaves a NaN among the elements. With
    // both, the answer is infinite: not finite either way.
    if top.is_finite() && s.sum(spoilt).is_nan() { f32::NAN } else { top }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, assert_close, on_every_isa, samples, to_f64};
    use crate::threads::with_threads;

    #[test]
    fn elementwise_operations_match_scalars() {
        on_every_isa(|isa| {
            for len in LENGTHS.into_iter().chain([40_000]) {
                let (a, b, c) = (samples(len, 3.0, 1), samples(len, 3.0, 2), samples(len, 3.0, 3));
                let check = |f: &dyn Fn(&mut [f32]), oracle: fn(f64, f64, f64) -> f64| {
                    let mut out = c.clone();
                    f(&mut out);
                    let want: Vec<f64> = (0..len)
                        .map(|i| oracle(f64::from(a[i]), f64::from(b[i]), f64::from(c[i])))
                        .collect();
                    // At most two roundings of numbers below 16.
                    assert_close(&format!("{len} on {isa:?}"), &out, &want, |_| 2e-6);
                };
                check(&|out| add_assign(out, &a), |a, _, c| a + c);
                check(&|out| mul_assign(out, &a), |a, _, c| a * c);
                check(&|out| axpy(out, 0.3, &a), |a, _, c| 0.3_f32 as f64 * a + c);
                check(&|out| add(&a, &b, out, Write::Set), |a, b, _| a + b);
                check(&|out| add(&a, &b, out, Write::Add), |a, b, c| a + b + c);
                check(&|out| mul(&a, &b, out, Write::Set), |a, b, _| a * b);
                check(&|out| mul(&a, &b, out, Write::Add), |a, b, c| a * b + c);
                check(&|out| scale(out, 0.5), |_, _, c| 0.5 * c);
                check(&|out| add_scalar(out, 0.5), |_, _, c| 0.5 + c);
                check(&|out| fill(out, 0.5), |_, _, _| 0.5);
                check(&|out| copy(&a, out), |a, _, _| a);
            }
        });
    }

    #[test]
    fn rows_and_columns_match_scalars() {
        on_every_isa(|isa| {
            for width in LENGTHS {
                for rows in [0, 1, 3, 4, 5, 70] {
                    let (x, row) = (samples(rows * width, 1.0, 4), samples(width, 1.0, 5));
                    let mut out = x.clone();
                    add_rows(&mut out, &row);
                    assert!((0..out.len()).all(|i| out[i] == x[i] + row[i % width]));
                    let columns = |write: Write, start: f64| {
                        let mut sums = vec![start as f32; width];
                        column_sums(&x, &mut sums, write);
                        let want: Vec<f64> = (0..width)
                            .map(|j| {
                                let sum: f64 = (0..rows).map(|i| f64::from(x[i * width + j])).sum();
                                if write == Write::Add { sum + start } else { sum }
                            })
                            .collect();
                        // Up to 70 roundings of sums below 16.
                        assert_close(&format!("{rows}×{width} on {isa:?}"), &sums, &want, |_| {
                            1e-5
                        });
                    };
                    columns(Write::Set, f64::from(f32::MAX));
                    columns(Write::Add, 0.5);
                }
            }
        });
    }

    #[test]
    fn reductions_match_f64() {
        on_every_isa(|isa| {
            for len in LENGTHS.into_iter().chain([300_000]) {
                let (a, b) = (samples(len, 2.0, 6), samples(len, 2.0, 7));
                let (wa, wb) = (to_f64(&a), to_f64(&b));
                // A run of 1024 in 32 lanes: 32 additions of sums that reach 32 terms, so half
                // an ulp of each relative to the sum of sizes; in practice far less.
                let bound = |sizes: f64| 32.0 * 6e-8 * sizes + 1e-30;
                let sizes: f64 = wa.iter().map(|x| x.abs()).sum();
                assert!((f64::from(sum(&a)) - wa.iter().sum::<f64>()).abs() <= bound(sizes));
                let want: f64 = wa.iter().zip(&wb).map(|(a, b)| a * b).sum();
                let sizes: f64 = wa.iter().zip(&wb).map(|(a, b)| (a * b).abs()).sum();
                assert!((dot(&a, &b) - want).abs() <= bound(sizes), "{isa:?} {len}");
                let want: f64 = wa.iter().map(|a| a * a).sum();
                assert!((sum_of_squares(&a) - want).abs() <= 1e-6 * want, "{isa:?} {len}");
                let top = a.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
                assert_eq!(largest_magnitude(&a), top);
                assert!(all_finite(&a));
            }
        });
    }

    #[test]
    fn what_is_not_finite_is_found_anywhere() {
        on_every_isa(|isa| {
            for len in [1, 7, 16, 33, 100, 20_000] {
                for at in [0, len / 2, len - 1] {
                    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                        let mut x = vec![1.0; len];
                        x[at] = bad;
                        assert!(!all_finite(&x), "{isa:?}: {bad} at {at} of {len}");
                        let size = largest_magnitude(&x);
                        assert!(size.is_nan() == bad.is_nan() && (bad.is_nan() || size > 1e38));
                    }
                }
                assert!(all_finite(&vec![f32::MAX; len]));
            }
        });
    }

    #[test]
    fn threads_do_not_change_bits() {
        let (a, b) = (samples(500_000, 1.0, 8), samples(500_000, 1.0, 9));
        let run = |threads| {
            with_threads(threads, || {
                let mut sums = vec![0.0; 100];
                column_sums(&a, &mut sums, Write::Set);
                (sum(&a), dot(&a, &b), sums)
            })
        };
        let one = run(1);
        assert!([2, 3, 4].into_iter().all(|threads| run(threads) == one));
    }

    #[test]
    #[should_panic(expected = "7 elements are no whole rows of 3")]
    fn rows_must_be_whole() {
        add_rows(&mut [0.0; 7], &[0.0; 3]);
    }
}
