//! Up to 16 rows times a weight matrix, y (M, N) = x (M, K) · Wᵀ with W stored (N, K), as in
//! generating: W is read once, so its 64 rows at a time are split on the way, as they lie, and yᵀ is
//! computed. The order of summation is that of [the blocked product](super), to the bit: a token
//! generated from a cache gets the values that it had in a batch.

use super::split::{self, LANES, Role, STEPS, TILE, is_finite, panel_len, parts};
use super::tiles::{self, Amx};
use super::{WORTH_SHARING, plain};
use crate::gemm::Data;
use crate::gemm::blocked::{Job, for_each};
use crate::{Write, scratch, threads};

/// Tiles in a panel of W: as many sums can be in tiles at a time, which hides how long a product of
/// tiles takes.
const TILES: usize = 4;
/// Rows of W in a panel.
const PANEL: usize = TILES * LANES;
/// Steps that are split before they are multiplied: a panel of them is 48 KiB, about the first-level
/// cache.
const DEPTH: usize = 4 * STEPS;

/// Does the product suit this path?
pub(super) fn suits(job: &Job<'_>) -> bool {
    job.a.rows <= LANES
        && matches!(job.a.data, Data::F32(_))
        && job.a.column_stride == 1
        && job.b.column_stride == 1
}

/// The whole product. M, N and K are not zero.
pub(super) fn run(amx: Amx, job: &Job<'_>) {
    let ((m, k), n) = (job.a.shape(), job.b.rows);
    let x_len = panel_len(1, 3, k);
    let threads = if m * n * k < WORTH_SHARING { 1 } else { threads::count() };
    scratch::with(x_len, |x| {
        split::pack::<1>(amx, Role::B, &job.a, 0..m, 0..k, x);
        let x = &*x;
        for_each(threads, n.div_ceil(PANEL), |i| {
            run_panel(amx, job, x, i * PANEL..((i + 1) * PANEL).min(n));
        });
    });
}

/// All rows of some columns of the result.
fn run_panel(amx: Amx, job: &Job<'_>, x: &[f32], columns: std::ops::Range<usize>) {
    let (m, k) = job.a.shape();
    let parts = parts(job.b.data);
    let place = |i: usize, j: usize| i * job.out_stride + columns.start + j;
    let mut sums = Sums([0.0; TILES * TILE]); // (N, M)
    let sums = &mut sums.0;
    if job.write == Write::Add {
        for i in 0..m {
            // SAFETY: a row of these columns, which are this task's alone.
            let out = unsafe { job.out.range(place(i, 0)..place(i, columns.len())) };
            for (j, out) in out.iter().enumerate() {
                sums[j * LANES + i] = *out;
            }
        }
    }
    let finite = is_finite(x) && scratch::with(panel_len(TILES, parts, DEPTH), |w| {
        (0..k).step_by(DEPTH).all(|p| {
            let steps = p..(p + DEPTH).min(k);
            let w = &mut w[..panel_len(TILES, parts, steps.len())];
            split::pack::<TILES>(amx, Role::A, &job.b, columns.clone(), steps.clone(), w);
            let x = x[p / STEPS * 3 * TILE..].as_ptr();
            let blocks = steps.len().div_ceil(STEPS);
            // SAFETY: both panels have so many blocks, W from its start and x from step p on.
            unsafe { tiles::product_of_few(amx, parts, w.as_ptr(), x, blocks, sums) };
            is_finite(w)
        })
    });
    if finite {
        for i in 0..m {
            // SAFETY: as above.
            let out = unsafe { job.out.range(place(i, 0)..place(i, columns.len())) };
            for (j, out) in out.iter_mut().enumerate() {
                *out = sums[j * LANES + i];
            }
        }
    } else {
        // SAFETY: no other task works on these columns.
        unsafe { plain::block(amx, job, &(0..m), &columns, &(0..k), job.write == Write::Add) };
    }
    if !job.tail.is_empty() {
        // SAFETY: no other task works on these columns.
        unsafe { job.finish(0..m, columns) };
    }
}

/// On a cache line, as the rows of tiles are.
#[repr(align(64))]
struct Sums([f32; TILES * TILE]);
