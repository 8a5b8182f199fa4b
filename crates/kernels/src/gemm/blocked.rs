//! The blocked product: C (M, N) = or += A (M, K) · B (K, N), for operands of any size.
//!
//! The plain algorithm is three loops. This one cuts all three so that what is used again is
//! still near:
//!
//! ```text
//! for a range of the shared operand's lanes and of K:       at most SHARED floats
//!     pack the shared operand (all threads)                 last-level cache
//!     for each strip of the other operand (threads share these out):
//!         for each block of K:
//!             pack the strip                                second-level cache
//!             for each group of B's panels, panel of A, panel of B:
//!                 tile product                              panel of A in the first-level cache
//!                 after the last block of K: the epilogue on the rows just finished
//! ```
//!
//! The operand with fewer lanes (rows of A, columns of B) is the shared one, so each operand is
//! packed once and threads meet twice per range. K is cut by [`depth_block`], from K alone; and
//! each thread sums whole elements. So an element's sum is
//! `(((0 + block₀) + block₁) + …)`, each block one chain of multiply-adds: its bits depend on
//! its row of A, its column of B and K, and on nothing else.

use super::epilogue::Tail;
use super::micro::Tile;
use super::{Matrix, pack};
use crate::threads::{self, SharedMut};
use crate::{Write, dispatch, scratch};
use std::ops::Range;

/// Most steps of depth in one block of K. A panel of A of 14 × 256 floats is 14 KiB, which stays
/// in a first-level cache of 32 KiB while panels of B stream past it.
const DEPTH: usize = 256;
/// Columns of B per group: 192 × 256 floats are 192 KiB, well inside a second-level cache of
/// 512 KiB beside a strip of A as large.
const GROUP_COLUMNS: usize = 192;
/// Rows of A per strip.
const STRIP_ROWS: usize = 168;
/// Most floats of the shared operand that are packed at a time: 4 MiB of the last-level cache.
const SHARED: usize = 1 << 20;
/// Most lanes of the shared operand that are packed at a time, so that a block of K fits.
const SHARED_LANES: usize = SHARED / DEPTH;
/// Multiply-adds below which a second thread is not worth waking: some 10 µs of one thread.
const WORTH_SHARING: usize = 1 << 19;

/// Steps of depth per block: K cut evenly into as few blocks as [`DEPTH`] allows.
pub(super) fn depth_block(k: usize) -> usize {
    k.div_ceil(k.div_ceil(DEPTH).max(1)).next_multiple_of(8)
}

/// What all tasks of one range need to know.
pub(super) struct Job<'a> {
    /// A, (M, K)
    pub(super) a: Matrix<'a>,
    /// Bᵀ, (N, K)
    pub(super) b: Matrix<'a>,
    pub(super) out: SharedMut<'a>,
    pub(super) out_stride: usize,
    pub(super) write: Write,
    pub(super) tail: Tail<'a>,
}

/// The part of the shared operand that is packed now.
struct Packed<'a> {
    shared_is_a: bool,
    lanes: Range<usize>,
    /// Range of K, of whole blocks but for the last.
    depth: Range<usize>,
    block: usize,
    /// Rows and columns of a tile.
    tile: (usize, usize),
    data: &'a [f32],
}

impl Packed<'_> {
    /// The blocks of K in this range.
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (end, block) = (self.depth.end, self.block);
        self.depth.clone().step_by(block).map(move |start| start..(start + block).min(end))
    }

    /// The packed panels of one block.
    fn panels(&self, block: &Range<usize>) -> &[f32] {
        let width = if self.shared_is_a { self.tile.0 } else { self.tile.1 };
        let lanes = self.lanes.len().next_multiple_of(width);
        let start = (block.start - self.depth.start) * lanes;
        &self.data[start..start + block.len() * lanes]
    }
}

/// The whole product. M, N and K are not zero.
pub(super) fn run(job: &Job<'_>) {
    let ((m, k), n) = (job.a.shape(), job.b.rows);
    let tile = tile_shape();
    let (tile_rows, tile_columns) = tile;
    let shared_is_a = m <= n;
    let (shared, width) = if shared_is_a { (&job.a, tile_rows) } else { (&job.b, tile_columns) };
    let (strip_lanes, strip_tile) = if shared_is_a { (n, tile_columns) } else { (m, tile_rows) };
    let threads = if m * n * k < WORTH_SHARING { 1 } else { threads::count() };
    let most = if shared_is_a { GROUP_COLUMNS } else { STRIP_ROWS };
    let strip = strip_size(strip_lanes, strip_tile, most, threads);
    let strips = strip_lanes.div_ceil(strip);

    let block = depth_block(k);
    let lane_step = (SHARED_LANES - SHARED_LANES % width).min(shared.rows.next_multiple_of(width));
    let depth_step = (SHARED / lane_step / block).max(1) * block;
    let room = pack::packed_len(lane_step, width, depth_step.min(k.next_multiple_of(block)));
    scratch::with(room, |buffer| {
        for lane in (0..shared.rows).step_by(lane_step) {
            let lanes = lane..(lane + lane_step).min(shared.rows);
            for start in (0..k).step_by(depth_step) {
                let depth = start..(start + depth_step).min(k);
                pack_shared(shared, &lanes, &depth, block, width, threads, buffer);
                let packed =
                    Packed { shared_is_a, lanes: lanes.clone(), depth, block, tile, data: buffer };
                let task = |i: usize| {
                    run_strip(job, &packed, &(i * strip..((i + 1) * strip).min(strip_lanes)));
                };
                for_each(threads, strips, task);
            }
        }
    });
}

fn for_each(threads: usize, tasks: usize, task: impl Fn(usize) + Sync) {
    if threads == 1 { (0..tasks).for_each(task) } else { threads::for_each(tasks, task) }
}

/// Lanes per strip: about four strips per thread, of whole tiles, at most `most` lanes. The bits
/// of the result do not depend on it.
fn strip_size(lanes: usize, tile: usize, most: usize, threads: usize) -> usize {
    let wanted = lanes.div_ceil(4 * threads).next_multiple_of(tile);
    wanted.clamp(tile, most - most % tile)
}

/// Packs lanes × depth of the shared operand, block of K by block of K.
fn pack_shared(
    shared: &Matrix<'_>,
    lanes: &Range<usize>,
    depth: &Range<usize>,
    block: usize,
    width: usize,
    threads: usize,
    buffer: &mut [f32],
) {
    let padded = lanes.len().next_multiple_of(width);
    // Pieces of whole panels, some 16 thousand floats each.
    let piece = (16 * 1024 / block).next_multiple_of(width);
    let pieces = lanes.len().div_ceil(piece);
    let blocks = depth.len().div_ceil(block);
    let out = SharedMut::new(buffer);
    for_each(threads, pieces * blocks, |task| {
        let first = lanes.start + task % pieces * piece;
        let piece = first..(first + piece).min(lanes.end);
        let start = depth.start + task / pieces * block;
        let steps = start..(start + block).min(depth.end);
        let at = (start - depth.start) * padded + (first - lanes.start) * steps.len();
        let len = pack::packed_len(piece.len(), width, steps.len());
        // SAFETY: block b takes padded · steps floats from (start of b) · padded on, and within
        // it the piece takes its lanes, whole panels, times steps: tasks do not overlap.
        let panels = unsafe { out.range(at..at + len) };
        pack_panels(shared, piece, steps, width, panels);
    });
}

/// All that the packed range contributes to one strip of C.
fn run_strip(job: &Job<'_>, packed: &Packed<'_>, strip: &Range<usize>) {
    let k = job.a.columns;
    let (local, width) =
        if packed.shared_is_a { (&job.b, packed.tile.1) } else { (&job.a, packed.tile.0) };
    scratch::with(pack::packed_len(strip.len(), width, packed.block), |buffer| {
        for steps in packed.blocks() {
            pack_panels(local, strip.clone(), steps.clone(), width, buffer);
            let shared = packed.panels(&steps);
            let write = if steps.start == 0 { job.write } else { Write::Add };
            let last = steps.end == k;
            if packed.shared_is_a {
                multiply(job, &packed.lanes, strip, steps.len(), shared, buffer, write, last);
            } else {
                multiply(job, strip, &packed.lanes, steps.len(), buffer, shared, write, last);
            }
        }
    });
}

dispatch! {
    fn tile_shape() -> (usize, usize) => tile_shape_on
    fn pack_panels(
        x: &Matrix<'_>, lanes: Range<usize>, depth: Range<usize>, width: usize, out: &mut [f32],
    ) => pack_panels_on
    fn multiply(
        job: &Job<'_>, rows: &Range<usize>, columns: &Range<usize>, depth: usize,
        a: &[f32], b: &[f32], write: Write, last: bool,
    ) => multiply_on
}

#[inline(always)]
fn tile_shape_on<S: Tile>(_: S) -> (usize, usize) {
    (S::ROWS, S::COLUMNS)
}

#[inline(always)]
fn pack_panels_on<S: Tile>(
    s: S,
    x: &Matrix<'_>,
    lanes: Range<usize>,
    depth: Range<usize>,
    width: usize,
    out: &mut [f32],
) {
    // Two calls, so that each is compiled with its width known.
    if width == S::ROWS {
        pack::panels(s, x, lanes, depth, S::ROWS, out);
    } else {
        pack::panels(s, x, lanes, depth, S::COLUMNS, out);
    }
}

/// rows × columns of C from packed panels; after the last block of K also the epilogue.
#[inline(always)]
fn multiply_on<S: Tile>(
    s: S,
    job: &Job<'_>,
    rows: &Range<usize>,
    columns: &Range<usize>,
    depth: usize,
    a: &[f32],
    b: &[f32],
    write: Write,
    last: bool,
) {
    assert!(a.len() >= pack::packed_len(rows.len(), S::ROWS, depth));
    assert!(b.len() >= pack::packed_len(columns.len(), S::COLUMNS, depth));
    let stride = job.out_stride;
    let group = GROUP_COLUMNS - GROUP_COLUMNS % S::COLUMNS;
    for first in (0..columns.len()).step_by(group) {
        let end = (first + group).min(columns.len());
        for i in (0..rows.len()).step_by(S::ROWS) {
            let tile_rows = (rows.len() - i).min(S::ROWS);
            let start = (rows.start + i) * stride + columns.start;
            let out = job.out.pointer(start..start + (tile_rows - 1) * stride + end);
            for j in (first..end).step_by(S::COLUMNS) {
                let size = (tile_rows, (end - j).min(S::COLUMNS));
                // SAFETY: panel i of A starts at i · depth and has depth · ROWS floats, inside by
                // the assertion; likewise B. `out` is inside for tile_rows rows of `end` columns,
                // and rows × columns of C are this task's alone.
                unsafe {
                    let (a, b) = (a.as_ptr().add(i * depth), b.as_ptr().add(j * depth));
                    s.tile(size, depth, a, b, out.add(j), stride, write);
                }
            }
            if last && !job.tail.is_empty() {
                let columns = columns.start + first..columns.start + end;
                for row in rows.start + i..rows.start + i + tile_rows {
                    // SAFETY: as above.
                    unsafe { job.finish(row, columns.clone()) };
                }
            }
        }
    }
}

impl Job<'_> {
    /// The epilogue on part of one row.
    ///
    /// # Safety
    /// No other task may work on these elements meanwhile.
    pub(super) unsafe fn finish(&self, row: usize, columns: Range<usize>) {
        let start = row * self.out_stride;
        // SAFETY: passed on to the caller, for `out` and for what is laid out like it.
        unsafe {
            let out = self.out.range(start + columns.start..start + columns.end);
            self.tail.apply(start, columns, out);
        }
    }
}
