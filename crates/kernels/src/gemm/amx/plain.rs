//! Sums of multiply-adds in f32, for what has no parts in bfloat16: infinities, NaN, and numbers
//! above 3.39·10³⁸.

use super::tiles::Amx;
use crate::gemm::blocked::Job;
use crate::gemm::{Data, Matrix};
use half::{bf16, f16};
use std::ops::Range;

/// Columns that are summed at a time.
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
    for first in columns.clone().step_by(COLUMNS) {
        let count = COLUMNS.min(columns.end - first);
        for row in rows.clone() {
            // SAFETY: the token shows that the CPU has AVX-512 and all before it.
            let sum = unsafe { sums(job, row, first, count, steps) };
            let start = row * job.out_stride + first;
            // SAFETY: these elements are this task's alone.
            let out = unsafe { job.out.range(start..start + count) };
            for (out, sum) in out.iter_mut().zip(sum) {
                *out = if add { *out + sum } else { sum };
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx2,fma")]
fn sums(
    job: &Job<'_>,
    row: usize,
    first: usize,
    count: usize,
    steps: &Range<usize>,
) -> [f32; COLUMNS] {
    let mut sum = [0.0_f32; COLUMNS];
    for p in steps.clone() {
        let x = at(&job.a, row, p);
        for (j, sum) in sum.iter_mut().enumerate().take(count) {
            *sum = x.mul_add(at(&job.b, first + j, p), *sum);
        }
    }
    sum
}

/// An element, widened.
#[inline(always)]
fn at(x: &Matrix<'_>, i: usize, j: usize) -> f32 {
    let index = i * x.row_stride + j * x.column_stride;
    match x.data {
        Data::F32(d) => d[index],
        Data::F16(d) => f16::from_bits(d[index]).to_f32(),
        Data::Bf16(d) => bf16::from_bits(d[index]).to_f32(),
    }
}
