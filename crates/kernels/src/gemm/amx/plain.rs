//! Sums of multiply-adds in f32, for what has no parts in bfloat16: infinities, NaN, and numbers
//! above 3.39·10³⁸. Not fast, but as fast as it takes to notice that a run has diverged.

use super::tiles::Amx;
use crate::gemm::blocked::Job;
use crate::gemm::{Data, Matrix};
use half::{bf16, f16};
use std::array::from_fn;
use std::ops::Range;

/// Rows and columns that are summed at a time: a vector of sums for each row.
const ROWS: usize = 16;
const COLUMNS: usize = 16;

/// `out = A·B` or `out += A·B` for some rows, columns and steps of depth.
///
/// # Safety
/// No other task may work on these elements meanwhile.
pub(super) unsafe fn block(
    _: Amx,
    job: &Job<'_>,
    rows: &Range<usize>,
    columns: &Range<usize>,
    steps: &Range<usize>,
    add: bool,
) {
    for column in columns.clone().step_by(COLUMNS) {
        for row in rows.clone().step_by(ROWS) {
            let columns = column..(column + COLUMNS).min(columns.end);
            let rows = row..(row + ROWS).min(rows.end);
            // SAFETY: the token shows that the CPU has AVX-512 and all before it.
            let sums = unsafe { sums(job, &rows, &columns, steps) };
            for (row, sums) in rows.zip(sums) {
                let start = row * job.out_stride;
                // SAFETY: these elements are this task's alone.
                let out = unsafe { job.out.range(start + columns.start..start + columns.end) };
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = if add { *out + sum } else { sum };
                }
            }
        }
    }
}

/// Zeros past the last row and column.
#[target_feature(enable = "avx512f,avx2,fma")]
fn sums(
    job: &Job<'_>,
    rows: &Range<usize>,
    columns: &Range<usize>,
    steps: &Range<usize>,
) -> [[f32; COLUMNS]; ROWS] {
    let mut sums = [[0.0_f32; COLUMNS]; ROWS];
    for p in steps.clone() {
        let a: [f32; ROWS] = numbers(&job.a, rows, p);
        let b: [f32; COLUMNS] = numbers(&job.b, columns, p);
        for (a, sums) in a.into_iter().zip(&mut sums) {
            for (b, sum) in b.into_iter().zip(sums) {
                *sum = a.mul_add(b, *sum);
            }
        }
    }
    sums
}

/// One step of some lanes, widened, zeros past the last.
#[inline(always)]
fn numbers<const N: usize>(x: &Matrix<'_>, lanes: &Range<usize>, step: usize) -> [f32; N] {
    let at = |i: usize| (lanes.start + i) * x.row_stride + step * x.column_stride;
    let there = |i: usize| lanes.start + i < lanes.end;
    match x.data {
        Data::F32(d) => from_fn(|i| if there(i) { d[at(i)] } else { 0.0 }),
        Data::F16(d) => from_fn(|i| if there(i) { f16::from_bits(d[at(i)]).to_f32() } else { 0.0 }),
        Data::Bf16(d) => {
            from_fn(|i| if there(i) { bf16::from_bits(d[at(i)]).to_f32() } else { 0.0 })
        }
    }
}
