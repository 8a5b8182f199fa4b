//! The product on AMX tiles: C (M, N) = or += A (M, K) · B (K, N), for operands of any size, as
//! precise as multiply-adds of f32 and with 2.6 times their peak.
//!
//! Tiles multiply numbers of bfloat16, sixteen times as fast as a vector unit multiplies those of f32.
//! [`split`] makes three of each f32, and [`tiles`] adds up the six products of them that matter. A
//! matrix of bfloat16 needs no splitting: then three products are enough, or one.
//!
//! ```text
//! for a range of the shared operand:                        at most SHARED floats
//!     for each block of K:
//!         split and pack the shared operand (all threads)
//!         for each strip of the other operand (threads share these out):
//!             split and pack the strip                      second-level cache
//!             for each group of B's panels, panel of A:     second-level cache
//!                 32 × 32 sums at a time in four tiles
//!                 after the last block of K: the epilogue on the rows just finished
//! ```
//!
//! The operand with fewer lanes (rows of A, columns of B) is the shared one. Everything is packed:
//! it costs a twentieth of a product and takes nothing from tiles, which read only what is near.
//!
//! **Order of summation.** An element starts from zero, or from what is added to, and has products of
//! 32 steps added to it, six times for each 32, in the order of K. Wherever K is cut, a sum goes to
//! memory and comes back as it was. So its bits depend on its row of A, its column of B and K, and on
//! nothing else, as with [the other sets](super::blocked); also through the path for [`few`] rows.
//!
//! **What is not finite** is computed by [`plain`] multiply-adds, together with its panels.

mod few;
mod plain;
mod split;
pub(crate) mod tiles;

use super::blocked::{Job, Strips, WORTH_SHARING, for_each};
use super::Matrix;
use crate::isa::{self, Isa};
use crate::threads::{self, SharedMut};
use crate::{Write, scratch};
use split::{LANES, Role, STEPS, is_finite, parts};
use std::ops::Range;
use tiles::{Amx, Place};

/// Tiles in a panel, of either operand: two of A and two of B are multiplied while their four
/// products are summed, and that is all eight.
const TILES: usize = 2;
/// Lanes of a panel.
const PANEL: usize = TILES * LANES;
/// Most steps in a block of K: a panel is then 96 KiB.
const DEPTH: usize = 512;
/// Most floats of the shared operand that are packed at a time: 4 MiB of the last-level cache.
const SHARED: usize = 1 << 20;
/// Most floats of B in a group, 768 KiB: with a strip and what they leave, inside of the 2 MiB of
/// second-level cache that processors with AMX have.
const GROUP: usize = 192 << 10;
/// Most lanes in a strip: 384 KiB.
const STRIP: usize = 128;
/// Least columns and steps: less leaves most of a tile empty. Not rows: the bits of one must not
/// depend on how many there are.
const LEAST: usize = 16;

/// Is the product to be computed here?
pub(super) fn suits(job: &Job<'_>) -> Option<Amx> {
    let worth_it = job.b.rows >= LEAST && job.a.columns >= LEAST;
    if worth_it && isa::current() == Isa::Amx { Amx::detect() } else { None }
}

/// The whole product. M, N and K are not zero.
pub(super) fn run(amx: Amx, job: &Job<'_>) {
    if few::suits(job) {
        few::run(amx, job);
        return;
    }
    let ((m, k), n) = (job.a.shape(), job.b.rows);
    let threads = if m * n * k < WORTH_SHARING { 1 } else { threads::count() };
    let (shared, other) =
        if m >= n { (Role::B, Role::A) } else { (Role::A, Role::B) };
    let (x, y) = (job.operand(shared), job.operand(other));
    let depth = depth_block(k);
    let panels = x.rows.div_ceil(PANEL);
    let most = (SHARED / panel_len(x, depth)).max(1);
    let lane_step = panels.div_ceil(panels.div_ceil(most)) * PANEL;
    let strips = Strips::new(y.rows, PANEL, STRIP, threads);
    scratch::with(lane_step / PANEL * panel_len(x, depth), |buffer| {
        for lane in (0..x.rows).step_by(lane_step) {
            let lanes = lane..(lane + lane_step).min(x.rows);
            for start in (0..k).step_by(depth) {
                let steps = start..(start + depth).min(k);
                pack_shared(amx, shared, x, &lanes, &steps, threads, buffer);
                let shared = Packed { x, role: shared, lanes: lanes.clone(), data: buffer };
                for_each(threads, strips.count, |i| {
                    run_strip(amx, job, &shared, other, strips.get(i), &steps);
                });
            }
        }
    });
}

/// Steps of depth per block: K cut evenly into as few blocks as [`DEPTH`] allows.
fn depth_block(k: usize) -> usize {
    k.div_ceil(k.div_ceil(DEPTH).max(1)).next_multiple_of(STEPS)
}

/// Floats of a panel.
fn panel_len(x: &Matrix<'_>, steps: usize) -> usize {
    split::panel_len(TILES, parts(x.data), steps)
}

impl Job<'_> {
    fn operand(&self, role: Role) -> &Matrix<'_> {
        match role {
            Role::A => &self.a,
            Role::B => &self.b,
        }
    }
}

/// Some lanes of an operand in panels, for a block of K.
struct Packed<'a> {
    x: &'a Matrix<'a>,
    role: Role,
    lanes: Range<usize>,
    data: &'a [f32],
}

/// Packs a block of K of the shared operand.
fn pack_shared(
    amx: Amx,
    role: Role,
    x: &Matrix<'_>,
    lanes: &Range<usize>,
    steps: &Range<usize>,
    threads: usize,
    buffer: &mut [f32],
) {
    let len = panel_len(x, steps.len());
    let panels = lanes.len().div_ceil(PANEL);
    // At least two pieces for each thread, of whole panels.
    let piece = panels.div_ceil(2 * threads);
    let out = SharedMut::new(buffer);
    for_each(threads, panels.div_ceil(piece), |i| {
        let first = i * piece;
        let lanes = lanes.start + first * PANEL..(lanes.start + (first + piece) * PANEL).min(lanes.end);
        let end = (first + piece).min(panels);
        // SAFETY: pieces are of different panels.
        let packed = unsafe { out.range(first * len..end * len) };
        split::pack::<TILES>(amx, role, x, lanes, steps.clone(), packed);
    });
}

/// What a block of K of the shared operand contributes to one strip of C.
fn run_strip(
    amx: Amx,
    job: &Job<'_>,
    shared: &Packed<'_>,
    role: Role,
    strip: Range<usize>,
    steps: &Range<usize>,
) {
    let x = job.operand(role);
    let len = strip.len().div_ceil(PANEL) * panel_len(x, steps.len());
    scratch::with(len, |buffer| {
        split::pack::<TILES>(amx, role, x, strip.clone(), steps.clone(), buffer);
        let local = Packed { x, role, lanes: strip, data: buffer };
        match shared.role {
            Role::A => multiply(amx, job, shared, &local, steps),
            Role::B => multiply(amx, job, &local, shared, steps),
        }
    });
}

/// What the `steps` of K contribute to the rows that A has times the columns that B has, which are
/// this task's alone; after the last also the epilogue.
fn multiply(amx: Amx, job: &Job<'_>, a: &Packed<'_>, b: &Packed<'_>, steps: &Range<usize>) {
    let (a_len, b_len) = (panel_len(a.x, steps.len()), panel_len(b.x, steps.len()));
    let finish = steps.end == job.a.columns && !job.tail.is_empty();
    let group = (GROUP / b_len).max(1) * PANEL;
    for first in b.lanes.clone().step_by(group) {
        let columns = first..(first + group).min(b.lanes.end);
        let b_panels = &b.data[(first - b.lanes.start) / PANEL * b_len..];
        let b_panels = &b_panels[..columns.len().div_ceil(PANEL) * b_len];
        let b_is_finite = b_panels.chunks_exact(b_len).all(is_finite);
        for (row, a_panel) in a.lanes.clone().step_by(PANEL).zip(a.data.chunks_exact(a_len)) {
            let rows = row..(row + PANEL).min(a.lanes.end);
            let block = Block { amx, job, steps, rows: rows.clone(), a_panel };
            let whole = rows.len() == PANEL && b_is_finite && is_finite(a_panel);
            let whole = if whole { columns.len() / PANEL } else { 0 };
            if whole > 0 {
                block.whole_panels(first, &b_panels[..whole * b_len], whole);
            }
            for (q, b_panel) in b_panels.chunks_exact(b_len).enumerate().skip(whole) {
                let column = first + q * PANEL;
                block.part_of_a_panel(column..(column + PANEL).min(columns.end), b_panel);
            }
            if finish {
                // SAFETY: these rows and columns are this task's alone.
                unsafe { job.finish(rows, columns.clone()) };
            }
        }
    }
}

/// Rows of the result that are this task's alone, in the columns that it is asked for.
struct Block<'a> {
    amx: Amx,
    job: &'a Job<'a>,
    steps: &'a Range<usize>,
    rows: Range<usize>,
    a_panel: &'a [f32],
}

impl Block<'_> {
    /// So many panels of columns, all finite, from the first column on; all rows are there.
    fn whole_panels(&self, first: usize, b_panels: &[f32], panels: usize) {
        let (start, stride) = (self.rows.start * self.job.out_stride + first, self.job.out_stride);
        let out = self.job.out.pointer(start..start + (PANEL - 1) * stride + panels * PANEL);
        // SAFETY: 32 rows of so many columns are inside, as `pointer` has shown, and this task's.
        unsafe { self.product(b_panels, panels, out, stride) };
    }

    /// Less than a panel of rows or columns, or something that is not finite.
    fn part_of_a_panel(&self, columns: Range<usize>, b_panel: &[f32]) {
        if !is_finite(self.a_panel) || !is_finite(b_panel) {
            let (job, add) = (self.job, self.adds());
            // SAFETY: these rows and columns are this task's alone.
            unsafe { plain::block(self.amx, job, &self.rows, &columns, self.steps, add) };
            return;
        }
        let mut sums = Sums([0.0; PANEL * PANEL]);
        let row = |i: usize| {
            let start = i * self.job.out_stride;
            // SAFETY: these rows and columns are this task's alone.
            unsafe { self.job.out.range(start + columns.start..start + columns.end) }
        };
        if self.adds() {
            for (sums, i) in sums.0.chunks_exact_mut(PANEL).zip(self.rows.clone()) {
                sums[..columns.len()].copy_from_slice(row(i));
            }
        }
        // SAFETY: `sums` has 32 rows of one panel.
        unsafe { self.product(b_panel, 1, sums.0.as_mut_ptr(), PANEL) };
        for (sums, i) in sums.0.chunks_exact(PANEL).zip(self.rows.clone()) {
            row(i).copy_from_slice(&sums[..columns.len()]);
        }
    }

    fn adds(&self) -> bool {
        self.steps.start > 0 || self.job.write == Write::Add
    }

    /// # Safety
    /// 32 rows of so many panels are valid for reading and writing at `out`, by nobody else meanwhile.
    unsafe fn product(&self, b_panels: &[f32], panels: usize, out: *mut f32, out_stride: usize) {
        let (x, y) = (&self.job.a, &self.job.b);
        let steps = self.steps.len();
        assert!(self.a_panel.len() == panel_len(x, steps) && b_panels.len() == panels * panel_len(y, steps));
        let place = Place {
            a: self.a_panel.as_ptr(),
            b: b_panels.as_ptr(),
            blocks: steps.div_ceil(STEPS),
            panels,
            out,
            out_stride,
            add: self.adds(),
        };
        // SAFETY: the panels are as long as so many blocks take, by the assertion; the caller vouches
        // for the result.
        unsafe { tiles::product(self.amx, (parts(x.data), parts(y.data)), place) };
    }
}

/// On a cache line, as the rows of tiles are.
#[repr(align(64))]
struct Sums([f32; PANEL * PANEL]);
