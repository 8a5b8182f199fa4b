//! The product on AMX tiles: C (M, N) = or += A (M, K) · B (K, N), for operands of any size, as
//! precise as multiply-adds of f32 and with 2.2 times their peak.
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
//! The operand with fewer lanes (rows of A, columns of B) is the shared one. Everything is packed, so
//! that tiles read only what is near: with 128 columns that is a sixth to a quarter of the time, with
//! 1,024 a tenth.
//!
//! **Order of summation.** An element starts from zero, or from what is added to, and has products of
//! 32 steps added to it, six times for each 32, in the order of K. Wherever K is cut, a sum goes to
//! memory and comes back as it was. So its bits depend on its row of A, its column of B and K, as with
//! [the other sets](super::blocked), among products that are computed here: those with at least
//! [`LEAST_ROWS`], since one row would wait for all of B to be split.
//!
//! **What is not finite** is computed by [`plain`] multiply-adds, and with it the panels of 32 rows or
//! columns that it is in: beside it, bits depend on neighbours, but never on threads.

mod plain;
mod split;
pub(crate) mod tiles;

use super::Matrix;
use super::blocked::{Job, Operand, SHARED, Strips, WORTH_SHARING, even_blocks, for_each};
use crate::isa::{self, Isa};
use crate::threads::{self, SharedMut};
use crate::{Write, scratch};
use split::{PANEL, STEPS, is_finite, parts};
use std::ops::Range;
use tiles::{Amx, Place};

/// Most steps in a block of K: a panel is then 96 KiB.
const DEPTH: usize = 512;
/// Most floats of B in a group, 768 KiB: with a strip and what they leave, inside of the 2 MiB of
/// second-level cache that processors with AMX have.
const GROUP: usize = 192 << 10;
/// Most lanes in a strip: 384 KiB.
const STRIP: usize = 128;
/// Least rows: with 32, splitting B takes about as long as tiles save.
const LEAST_ROWS: usize = 48;
/// Least columns and steps: less leaves most of a tile empty.
const LEAST: usize = 16;

/// Is the product to be computed here?
pub(super) fn suits(job: &Job<'_>) -> Option<Amx> {
    let ((m, k), n) = (job.a.shape(), job.b.rows);
    let worth_it = m >= LEAST_ROWS && n >= LEAST && k >= LEAST;
    if worth_it && isa::current() == Isa::Amx { Amx::detect() } else { None }
}

/// The whole product. M, N and K are not zero.
pub(super) fn run(amx: Amx, job: &Job<'_>) {
    let ((m, k), n) = (job.a.shape(), job.b.rows);
    let threads = if m * n * k < WORTH_SHARING { 1 } else { threads::count() };
    let (shared, other) = if m >= n { (Operand::B, Operand::A) } else { (Operand::A, Operand::B) };
    let (x, y) = (job.operand(shared), job.operand(other));
    let depth = depth_block(k);
    let panels = x.rows.div_ceil(PANEL);
    let most = (SHARED / panel_len(x, depth)).max(1);
    let lane_step = panels.div_ceil(panels.div_ceil(most)) * PANEL;
    let strips = Strips::new(y.rows, PANEL, STRIP, threads);
    scratch::with(lane_step / PANEL * panel_len(x, depth), |buffer| {
        for lanes in groups(&(0..x.rows), lane_step) {
            for steps in groups(&(0..k), depth) {
                pack_shared(amx, shared, x, &lanes, &steps, threads, buffer);
                let shared = Packed { x, lanes: lanes.clone(), data: buffer };
                for_each(threads, strips.count, |i| {
                    run_strip(amx, job, &shared, other, strips.get(i), &steps);
                });
            }
        }
    });
}

/// Steps of depth per block: K cut evenly into as few blocks as [`DEPTH`] allows.
fn depth_block(k: usize) -> usize {
    even_blocks(k, DEPTH, STEPS)
}

/// Floats of a panel.
fn panel_len(x: &Matrix<'_>, steps: usize) -> usize {
    split::panel_len(parts(x.data), steps)
}

impl Job<'_> {
    fn operand(&self, role: Operand) -> &Matrix<'_> {
        match role {
            Operand::A => &self.a,
            Operand::B => &self.b,
        }
    }
}

/// Some lanes of an operand in panels, for a block of K.
struct Packed<'a> {
    x: &'a Matrix<'a>,
    lanes: Range<usize>,
    data: &'a [f32],
}

impl Packed<'_> {
    /// Floats of all panels.
    fn len(&self, steps: &Range<usize>) -> usize {
        self.lanes.len().div_ceil(PANEL) * panel_len(self.x, steps.len())
    }

    /// The panels of some lanes, of which the first begins one.
    fn panels(&self, lanes: &Range<usize>, steps: &Range<usize>) -> &[f32] {
        let len = panel_len(self.x, steps.len());
        let first = (lanes.start - self.lanes.start) / PANEL;
        &self.data[first * len..][..lanes.len().div_ceil(PANEL) * len]
    }
}

/// Packs a block of K of the shared operand.
fn pack_shared(
    amx: Amx,
    role: Operand,
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
        let lanes =
            lanes.start + first * PANEL..(lanes.start + (first + piece) * PANEL).min(lanes.end);
        let end = (first + piece).min(panels);
        // SAFETY: pieces are of different panels.
        let packed = unsafe { out.range(first * len..end * len) };
        split::pack(amx, role, x, lanes, steps.clone(), packed);
    });
}

/// What a block of K of the shared operand contributes to one strip of C.
fn run_strip(
    amx: Amx,
    job: &Job<'_>,
    shared: &Packed<'_>,
    role: Operand,
    strip: Range<usize>,
    steps: &Range<usize>,
) {
    let x = job.operand(role);
    let len = panel_len(x, steps.len());
    // If the shared operand stays in the second-level cache by itself, a panel at a time is packed,
    // which then stays in the first.
    let lanes = if shared.len(steps) <= GROUP { PANEL } else { strip.len() };
    scratch::with(lanes.div_ceil(PANEL) * len, |buffer| {
        for lanes in groups(&strip, lanes) {
            split::pack(amx, role, x, lanes.clone(), steps.clone(), buffer);
            let local = Packed { x, lanes, data: buffer };
            match role {
                Operand::A => multiply(amx, job, &local, shared, steps),
                Operand::B => multiply(amx, job, shared, &local, steps),
            }
        }
    });
}

/// What the `steps` of K contribute to the rows that A has times the columns that B has, which are
/// this task's alone; after the last also the epilogue.
fn multiply(amx: Amx, job: &Job<'_>, a: &Packed<'_>, b: &Packed<'_>, steps: &Range<usize>) {
    let block = Block { amx, job, steps };
    let several_rows = b.lanes.len() <= PANEL;
    let (a_group, b_group) =
        if several_rows { (a.lanes.len(), PANEL) } else { (PANEL, group_lanes(b.x, steps)) };
    for columns in groups(&b.lanes, b_group) {
        let b_panels = b.panels(&columns, steps);
        for rows in groups(&a.lanes, a_group) {
            block.multiply(&rows, a.panels(&rows, steps), &columns, b_panels);
        }
    }
}

/// Ranges of so many lanes; the last may have less.
fn groups(lanes: &Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let end = lanes.end;
    lanes.clone().step_by(len).map(move |start| start..(start + len).min(end))
}

/// Columns of B in a group.
fn group_lanes(b: &Matrix<'_>, steps: &Range<usize>) -> usize {
    (GROUP / panel_len(b, steps.len())).max(1) * PANEL
}

/// A block of K of a product, by a task that has the rows and columns that it is asked for to itself.
struct Block<'a> {
    amx: Amx,
    job: &'a Job<'a>,
    steps: &'a Range<usize>,
}

impl Block<'_> {
    /// Some panels of rows times some of columns, one of either.
    fn multiply(&self, rows: &Range<usize>, a: &[f32], columns: &Range<usize>, b: &[f32]) {
        let Self { job, steps, .. } = *self;
        let (a_len, b_len) = (panel_len(&job.a, steps.len()), panel_len(&job.b, steps.len()));
        let finite = a.chunks_exact(a_len).chain(b.chunks_exact(b_len)).all(is_finite);
        // As many as are whole at once, the others one by one.
        let (whole_rows, whole_columns) = (rows.len() / PANEL, columns.len() / PANEL);
        let whole = if finite { whole_rows * whole_columns } else { 0 };
        if whole > 0 {
            let start = rows.start * job.out_stride + columns.start;
            let len = (whole_rows * PANEL - 1) * job.out_stride + whole_columns * PANEL;
            let out = job.out.pointer(start..start + len);
            let (a, b) = (&a[..whole_rows * a_len], &b[..whole_columns * b_len]);
            // SAFETY: so many rows and columns are inside, as `pointer` has shown, and this task's.
            unsafe { self.product(a, b, out, job.out_stride) };
        }
        let mut number = 0;
        for (rows, a) in groups(rows, PANEL).zip(a.chunks_exact(a_len)) {
            for (columns, b) in groups(columns, PANEL).zip(b.chunks_exact(b_len)) {
                if number >= whole {
                    self.any_panels(&rows, a, &columns, b);
                }
                number += 1;
            }
        }
        if steps.end == job.a.columns && !job.tail.is_empty() {
            // SAFETY: these rows and columns are this task's alone.
            unsafe { job.finish(rows.clone(), columns.clone()) };
        }
    }

    /// A panel of rows times one of columns, of which some may be missing, and not all need be finite.
    fn any_panels(&self, rows: &Range<usize>, a: &[f32], columns: &Range<usize>, b: &[f32]) {
        let job = self.job;
        if !is_finite(a) || !is_finite(b) {
            // SAFETY: these rows and columns are this task's alone.
            unsafe { plain::block(self.amx, job, rows, columns, self.steps, self.adds()) };
            return;
        }
        let mut sums = Sums([0.0; PANEL * PANEL]);
        let row = |i: usize| {
            let start = i * job.out_stride;
            // SAFETY: these rows and columns are this task's alone.
            unsafe { job.out.range(start + columns.start..start + columns.end) }
        };
        if self.adds() {
            for (sums, i) in sums.0.chunks_exact_mut(PANEL).zip(rows.clone()) {
                sums[..columns.len()].copy_from_slice(row(i));
            }
        }
        // SAFETY: `sums` has 32 rows of one panel.
        unsafe { self.product(a, b, sums.0.as_mut_ptr(), PANEL) };
        for (sums, i) in sums.0.chunks_exact(PANEL).zip(rows.clone()) {
            row(i).copy_from_slice(&sums[..columns.len()]);
        }
    }

    fn adds(&self) -> bool {
        self.steps.start > 0 || self.job.write == Write::Add
    }

    /// The product of whole panels, one of A or one of B.
    ///
    /// # Safety
    /// So many rows and columns are valid for reading and writing at `out`, by nobody else meanwhile.
    unsafe fn product(&self, a: &[f32], b: &[f32], out: *mut f32, out_stride: usize) {
        let (x, y, steps) = (&self.job.a, &self.job.b, self.steps.len());
        let (rows, columns) = (a.len() / panel_len(x, steps), b.len() / panel_len(y, steps));
        assert!(rows == 1 || columns == 1, "{rows} panels times {columns}");
        let place = Place {
            a: a.as_ptr(),
            b: b.as_ptr(),
            blocks: steps.div_ceil(STEPS),
            several: if rows > 1 { Operand::A } else { Operand::B },
            panels: rows * columns,
            out,
            out_stride,
            add: self.adds(),
        };
        // SAFETY: there are so many whole panels, as the division has shown; the caller vouches for
        // the result.
        unsafe { tiles::product(self.amx, (parts(x.data), parts(y.data)), place) };
    }
}

/// On a cache line, as the rows of tiles are.
#[repr(align(64))]
struct Sums([f32; PANEL * PANEL]);
