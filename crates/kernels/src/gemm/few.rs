//! Products of a few rows with a weight matrix: y (M, N) = x (M, K) · Wᵀ, W stored (N, K), as in
//! generating one token at a time. Reading W is all the work, so W is read once and not packed.
//!
//! The plain algorithm is a scalar product for each element. This one takes LANES rows of W at a
//! time, transposes blocks of LANES × LANES in registers, and adds `x[p]` times the vector of
//! step `p` to a vector of sums. So each element is summed in the order of
//! [the blocked product](super::blocked), to the bit: a token generated from a cache gets the
//! values that it had in a batch.

use super::blocked::{Job, depth_block, for_each};
use super::micro::{Tile, prefetch};
use super::pack::{self, Brain, Half, Single, Stored};
use super::{Data, Matrix};
use crate::{Write, dispatch, threads};
use std::ops::Range;

/// Most rows that are worth it: from here on, packing W pays.
pub(super) const FEW: usize = 3;
/// Columns of the result in a task: as many rows of W, some 200 KiB.
const COLUMNS_PER_TASK: usize = 64;
/// Multiply-adds below which a second thread is not worth waking.
const WORTH_SHARING: usize = 1 << 16;
/// How many numbers of a row of W are fetched ahead, which gives a tenth more from memory. Not
/// where rows are a multiple of `ALIASED` bytes apart: they compete for one set of the
/// first-level cache, and what came early would be gone.
const AHEAD: usize = 32;
const ALIASED: usize = 4096;

/// Does the product suit this path?
pub(super) fn suits(job: &Job<'_>) -> bool {
    job.a.rows <= FEW
        && matches!(job.a.data, Data::F32(_))
        && job.a.column_stride == 1
        && job.b.column_stride == 1
}

/// The whole product. M, N and K are not zero.
pub(super) fn run(job: &Job<'_>) {
    let (m, n) = (job.a.rows, job.b.rows);
    let task = |i: usize| {
        let columns = i * COLUMNS_PER_TASK..((i + 1) * COLUMNS_PER_TASK).min(n);
        multiply(job, columns.clone());
        if !job.tail.is_empty() {
            // SAFETY: no other task works on these columns.
            unsafe { job.finish(0..m, columns.clone()) };
        }
    };
    let tasks = n.div_ceil(COLUMNS_PER_TASK);
    let threads = if m * n * job.a.columns < WORTH_SHARING { 1 } else { threads::count() };
    for_each(threads, tasks, task);
}

dispatch! {
    fn multiply(job: &Job<'_>, columns: Range<usize>) => multiply_on
}

#[inline(always)]
fn multiply_on<S: Tile>(s: S, job: &Job<'_>, columns: Range<usize>) {
    match job.b.data {
        Data::F32(w) => multiply_rows(s, job, columns, w, &Single),
        Data::F16(w) => multiply_rows(s, job, columns, w, &Half),
        Data::Bf16(w) => multiply_rows(s, job, columns, w, &Brain),
    }
}

#[inline(always)]
fn multiply_rows<S: Tile, E: Copy, L: Stored<E>>(
    s: S,
    job: &Job<'_>,
    columns: Range<usize>,
    w: &[E],
    how: &L,
) {
    match job.a.rows {
        1 => multiply_of::<S, E, L, 1>(s, job, columns, w, how),
        2 => multiply_of::<S, E, L, 2>(s, job, columns, w, how),
        3 => multiply_of::<S, E, L, 3>(s, job, columns, w, how),
        rows => unreachable!("{rows} rows are not few"),
    }
}

/// `R` rows of C, from so many rows of W.
#[inline(always)]
fn multiply_of<S: Tile, E: Copy, L: Stored<E>, const R: usize>(
    s: S,
    job: &Job<'_>,
    columns: Range<usize>,
    w: &[E],
    how: &L,
) {
    let Data::F32(x) = job.a.data else { unreachable!("x is f32") };
    let Matrix { columns: k, row_stride: stride, .. } = job.b;
    let (x_stride, depth) = (job.a.row_stride, depth_block(k));
    assert!(columns.end <= job.b.rows && (job.b.rows - 1) * stride + k <= w.len());
    assert!((R - 1) * x_stride + k <= x.len());
    let aliased = (stride * size_of::<E>()).is_multiple_of(ALIASED);
    for column in columns.clone().step_by(S::LANES) {
        let lanes = S::LANES.min(columns.end - column); // rows of W in this vector
        let mut total = [s.zero(); R];
        for start in (0..k).step_by(depth) {
            let end = (start + depth).min(k);
            let mut sum = [s.zero(); R];
            for p in (start..end).step_by(S::LANES) {
                let steps = S::LANES.min(end - p);
                // SAFETY: rows column..column + lanes of W, columns p..p + steps, are inside by the
                // first assertion; x likewise by the second. Prefetches may be of anything.
                unsafe {
                    let from = w.as_ptr().add(column * stride + p);
                    for r in 0..if aliased { 0 } else { S::LANES } {
                        prefetch(from.wrapping_add(r * stride + AHEAD).cast());
                    }
                    let x = x.as_ptr().add(p);
                    let block = pack::load_block(s, how, (lanes, steps), from, stride);
                    if steps == S::LANES {
                        for q in 0..S::LANES {
                            for r in 0..R {
                                let x = s.splat(*x.add(r * x_stride + q));
                                sum[r] = s.mul_add(x, block[q], sum[r]);
                            }
                        }
                    } else {
                        for q in 0..steps {
                            for r in 0..R {
                                let x = s.splat(*x.add(r * x_stride + q));
                                sum[r] = s.mul_add(x, block[q], sum[r]);
                            }
                        }
                    }
                }
            }
            for r in 0..R {
                let place = r * job.out_stride + column;
                let out = job.out.pointer(place..place + lanes);
                // SAFETY: `lanes` floats of `out`, which are this task's alone.
                unsafe {
                    total[r] = if start > 0 {
                        s.add(total[r], sum[r])
                    } else if job.write == Write::Add {
                        s.add(s.load_first(lanes, out), sum[r])
                    } else {
                        sum[r]
                    };
                    if end == k {
                        s.store_first(lanes, out, total[r]);
                    }
                }
            }
        }
    }
}
