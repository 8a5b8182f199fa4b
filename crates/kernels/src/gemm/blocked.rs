//! The blocked product: C (M, N) = or += A (M, K) · B (K, N), for operands of any size.
//!
//! The plain algorithm is three loops. This one cuts all three so that what is used again is
//! still near:
//!
//! ```text
//! for a range of the shared operand and of K:               at most SHARED floats
//!     pack the shared operand (all threads)                 last-level cache
//!     for each strip of the other operand (threads share these out):
//!         for each block of K:
//!             pack the strip                                second-level cache
//!             for each group of B's panels, R rows of A, panel of B:
//!                 tile product                              rows of A in the first-level cache
//!                 after the last block of K: the epilogue on the rows just finished
//! ```
//!
//! The operand with fewer lanes (rows of A, columns of B) is the shared one, so each operand is
//! packed once and threads meet twice per range. A in rows of f32 is used where it is.
//!
//! **Order of summation.** K is cut by [`depth_block`], from K alone, and a thread sums whole
//! elements. So an element is `((block₀ + block₁) + block₂) + …`, each block one chain of
//! multiply-adds: its bits depend on its row of A, its column of B and K, and on nothing else.

use super::epilogue::Tail;
use super::micro::{self, Tile};
use super::{Data, Matrix, pack};
use crate::threads::{self, SharedMut};
use crate::{Write, dispatch, scratch};
use std::ops::Range;

/// Most steps of depth in one block of K. Nine rows of A are 14 KiB, which stay in a first-level
/// cache of 32 KiB while panels of B stream past; and C is read and written once per block.
const DEPTH: usize = 384;
/// Columns of B per group: 192 × 384 floats are 288 KiB, inside a second-level cache of 512 KiB.
const GROUP_COLUMNS: usize = 192;
/// Rows of A per strip.
const STRIP_ROWS: usize = 180;
/// Most floats of the shared operand that are packed at a time: 4 MiB of the last-level cache.
const SHARED: usize = 1 << 20;
/// Most lanes of the shared operand that are packed at a time, so that a block of K fits.
const SHARED_LANES: usize = SHARED / DEPTH;
/// Multiply-adds below which a second thread is not worth waking: some 10 µs of one thread.
const WORTH_SHARING: usize = 1 << 19;

/// Steps of depth per block: K cut evenly into as few blocks as [`DEPTH`] allows, in multiples of
/// a cache line.
pub(super) fn depth_block(k: usize) -> usize {
    k.div_ceil(k.div_ceil(DEPTH).max(1)).next_multiple_of(16)
}

/// The product that all tasks work on.
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

/// The part of the shared operand that is at hand now.
struct Shared<'a> {
    is_a: bool,
    /// Rows of A or columns of B.
    lanes: Range<usize>,
    /// Range of K, of whole blocks but for the last.
    depth: Range<usize>,
    block: usize,
    /// Columns of a panel of B.
    width: usize,
    /// Its blocks of K, one after the other: rows of A or panels of B. Empty if A is used where
    /// it is.
    data: &'a [f32],
}

impl Shared<'_> {
    /// The blocks of K in this range.
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (end, block) = (self.depth.end, self.block);
        self.depth.clone().step_by(block).map(move |start| start..(start + block).min(end))
    }

    /// What is packed of one block.
    fn packed(&self, block: &Range<usize>) -> &[f32] {
        let lanes = pack::packed_lanes(self.lanes.len(), self.width, self.is_a);
        &self.data[(block.start - self.depth.start) * lanes..][..block.len() * lanes]
    }
}

/// The whole product. M, N and K are not zero.
pub(super) fn run(job: &Job<'_>) {
    let ((m, k), n) = (job.a.shape(), job.b.rows);
    let threads = if m * n * k < WORTH_SHARING { 1 } else { threads::count() };
    let (tile_rows, width) = tile_shape();
    let block = depth_block(k);
    let is_a = m <= n;
    let strips = if is_a {
        Strips::new(n, width, GROUP_COLUMNS, threads)
    } else {
        Strips::new(m, tile_rows, STRIP_ROWS, threads)
    };
    let run_strips = |shared: &Shared<'_>| {
        for_each(threads, strips.count, |i| run_strip(job, shared, &strips.get(i)));
    };
    if is_a && job.rows_of_a().is_some() {
        run_strips(&Shared { is_a, lanes: 0..m, depth: 0..k, block, width, data: &[] });
        return;
    }
    let operand = if is_a { &job.a } else { &job.b };
    let lane_step = operand.rows.min(SHARED_LANES - SHARED_LANES % width);
    let padded = pack::packed_lanes(lane_step, width, is_a);
    let depth_step = ((SHARED / padded / block).max(1) * block).min(k);
    scratch::with(padded * depth_step, |buffer| {
        for lane in (0..operand.rows).step_by(lane_step) {
            let lanes = lane..(lane + lane_step).min(operand.rows);
            for start in (0..k).step_by(depth_step) {
                let depth = start..(start + depth_step).min(k);
                let mut shared =
                    Shared { is_a, lanes: lanes.clone(), depth, block, width, data: &[] };
                pack_shared(operand, &shared, threads, buffer);
                shared.data = buffer;
                run_strips(&shared);
            }
        }
    });
}

fn for_each(threads: usize, tasks: usize, task: impl Fn(usize) + Sync) {
    if threads == 1 { (0..tasks).for_each(task) } else { threads::for_each(tasks, task) }
}

/// Lanes cut into strips of whole tiles, as even as can be. The bits of the result do not depend
/// on how.
struct Strips {
    lanes: usize,
    tile: usize,
    count: usize,
}

impl Strips {
    /// At most `most` lanes each; a multiple of the number of threads, about four for each.
    fn new(lanes: usize, tile: usize, most: usize, threads: usize) -> Self {
        let tiles = lanes.div_ceil(tile);
        let wanted = tiles.div_ceil(most / tile).max(4 * threads).next_multiple_of(threads);
        Self { lanes, tile, count: wanted.min(tiles) }
    }

    fn get(&self, i: usize) -> Range<usize> {
        let tiles = self.lanes.div_ceil(self.tile);
        let cut = |i: usize| (i * tiles / self.count * self.tile).min(self.lanes);
        cut(i)..cut(i + 1)
    }
}

/// Packs lanes × depth of the shared operand, block of K by block of K.
fn pack_shared(operand: &Matrix<'_>, shared: &Shared<'_>, threads: usize, buffer: &mut [f32]) {
    let Shared { is_a, ref lanes, ref depth, block, width, .. } = *shared;
    let padded = pack::packed_lanes(lanes.len(), width, is_a);
    // Pieces of some 16 thousand floats, whole panels each.
    let piece = (16 * 1024 / block).next_multiple_of(if is_a { 16 } else { width });
    let pieces = lanes.len().div_ceil(piece);
    let out = SharedMut::new(buffer);
    for_each(threads, pieces * depth.len().div_ceil(block), |task| {
        let first = lanes.start + task % pieces * piece;
        let piece = first..(first + piece).min(lanes.end);
        let start = depth.start + task / pieces * block;
        let steps = start..(start + block).min(depth.end);
        let at = (start - depth.start) * padded + (first - lanes.start) * steps.len();
        let len = pack::packed_lanes(piece.len(), width, is_a) * steps.len();
        // SAFETY: block b takes padded · steps floats from (start of b) · padded on, and within
        // it the piece takes its lanes, whole panels of them, times steps: tasks do not overlap.
        let packed = unsafe { out.range(at..at + len) };
        pack(operand, piece, steps, is_a, packed);
    });
}

/// All that the shared range contributes to one strip of C.
fn run_strip(job: &Job<'_>, shared: &Shared<'_>, strip: &Range<usize>) {
    let direct = job.rows_of_a();
    let (local, room) = if shared.is_a {
        (Some(&job.b), pack::packed_lanes(strip.len(), shared.width, false))
    } else {
        (direct.is_none().then_some(&job.a), strip.len())
    };
    scratch::with(if local.is_some() { room * shared.block } else { 0 }, |buffer| {
        for steps in shared.blocks() {
            if let Some(local) = local {
                pack(local, strip.clone(), steps.clone(), !shared.is_a, buffer);
            }
            let (rows, columns) =
                if shared.is_a { (&shared.lanes, strip) } else { (strip, &shared.lanes) };
            let a = match direct {
                Some((data, stride)) => (&data[rows.start * stride + steps.start..], stride),
                None if shared.is_a => (shared.packed(&steps), steps.len()),
                None => (&*buffer, steps.len()),
            };
            let b = if shared.is_a { &*buffer } else { shared.packed(&steps) };
            multiply(job, rows, columns, &steps, a, b);
        }
    });
}

dispatch! {
    fn tile_shape() -> (usize, usize) => tile_shape_on
    fn pack(
        x: &Matrix<'_>, lanes: Range<usize>, depth: Range<usize>, is_a: bool, out: &mut [f32],
    ) => pack_on
    fn multiply(
        job: &Job<'_>, rows: &Range<usize>, columns: &Range<usize>, steps: &Range<usize>,
        a: (&[f32], usize), b: &[f32],
    ) => multiply_on
}

#[inline(always)]
fn tile_shape_on<S: Tile>(_: S) -> (usize, usize) {
    (S::ROWS, S::COLUMNS)
}

#[inline(always)]
fn pack_on<S: Tile>(
    s: S,
    x: &Matrix<'_>,
    lanes: Range<usize>,
    depth: Range<usize>,
    is_a: bool,
    out: &mut [f32],
) {
    if is_a {
        pack::rows(s, x, lanes, depth, out);
    } else {
        pack::panels(s, x, lanes, depth, out);
    }
}

/// What the `steps` of K contribute to rows × columns of C; after the last also the epilogue.
#[inline(always)]
fn multiply_on<S: Tile>(
    s: S,
    job: &Job<'_>,
    rows: &Range<usize>,
    columns: &Range<usize>,
    steps: &Range<usize>,
    a: (&[f32], usize),
    b: &[f32],
) {
    let write = if steps.start == 0 { job.write } else { Write::Add };
    let finish = steps.end == job.a.columns && !job.tail.is_empty();
    let (stride, depth) = (job.out_stride, steps.len());
    let group = GROUP_COLUMNS - GROUP_COLUMNS % S::COLUMNS;
    for first in (0..columns.len()).step_by(group) {
        let count = group.min(columns.len() - first);
        let start = rows.start * stride + columns.start + first;
        let out = job.out.pointer(start..start + (rows.len() - 1) * stride + count);
        let size = (rows.len(), count, depth);
        // SAFETY: `pointer` has shown that the block is inside, and rows × columns of C are this
        // task's alone.
        unsafe {
            micro::block(s, size, a, &b[first * depth..], out, stride, write, |done| {
                if finish {
                    let columns = columns.start + first..columns.start + first + count;
                    for row in done {
                        job.finish(rows.start + row, columns.clone());
                    }
                }
            });
        }
    }
}

impl Job<'_> {
    /// A as rows of f32 and their stride, if that is how it is stored.
    fn rows_of_a(&self) -> Option<(&[f32], usize)> {
        match self.a.data {
            Data::F32(data) if self.a.column_stride == 1 => Some((data, self.a.row_stride)),
            _ => None,
        }
    }

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
