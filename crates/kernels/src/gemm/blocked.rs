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
//!             for each group of B's panels, R rows of A (or twice R), panel of B:
//!                 tile product                              both in the first-level cache, if K is small
//!                 after the last block of K: the epilogue on the rows just finished
//! ```
//!
//! The operand with fewer lanes (rows of A, columns of B) is the shared one, or A where a packed B
//! would be large, so each operand is packed once and threads meet twice per range. A small B each
//! thread packs for itself instead, and threads meet once. A in rows of f32 is used in place, and
//! so is a narrow matrix. With A in place and many rows and columns, a task is a strip of columns
//! for a chunk of rows, with its own copy of the strip: nothing is shared, and threads meet once.
//! How narrow that is, and the rest of this, depends on the instruction set ([`Tile::NEAR`],
//! [`Tile::PACKS_STEPS`], [`Tile::PACKS_ON_THE_WAY`]): an A whose columns lie in one piece each is
//! packed in rows or by steps, and a B in rows of f32 is packed beforehand or [on the
//! way](super::micro), by the strip that uses it, a group at a time, unless A is in place and strips
//! are of rows: then they are many, and each would do it again.
//!
//! **Order of summation.** K is cut by [`depth_block`], from K alone, and a thread sums whole
//! elements. So an element is `((block₀ + block₁) + block₂) + …`, each block one chain of
//! multiply-adds: its bits depend on its row of A, its column of B and K, and on nothing else.

use super::epilogue::Tail;
use super::micro::{self, Lanes, Tile};
use super::pack::{self, Packing, TileShape};
use super::{Data, Matrix};
use crate::threads::{self, SharedMut};
use crate::{Write, dispatch, dry, scratch};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most steps of depth in one block of K: as many as leave a group of B in the second-level cache,
/// since C is read and written once per block.
const DEPTH: usize = 768;
/// Rows of A per strip, if it is in place. A strip that is packed has as many as a group of B has
/// columns: either is inside the second-level cache.
const STRIP_ROWS: usize = 180;
/// Least rows in a chunk: packing the strip of B is then some 3 % of a task.
const CHUNK_ROWS: usize = 512;
/// Columns from which on chunks of rows are worth it.
const CHUNKS_FROM_COLUMNS: usize = 384;
/// Most floats of the shared operand that are packed at a time: 4 MiB of the last-level cache.
pub(super) const SHARED: usize = 1 << 20;
/// Most lanes of the shared operand that are packed at a time: so many with a block of K.
const SHARED_LANES: usize = SHARED / DEPTH;
/// Most floats in the rows of a block of K, for an operand that is read in place across them.
const IN_PLACE: usize = 256 * IN_PLACE_STEPS;
/// The same where the other operand has no more than `FEW` lanes to make up for packing.
const IN_PLACE_FOR_FEW: usize = 400 * IN_PLACE_STEPS;
const FEW: usize = 512;
/// Steps that a shorter block counts for: rows should not be far apart either.
const IN_PLACE_STEPS: usize = 384;
/// Multiply-adds below which a second thread is not worth waking: some 10 µs of one thread.
pub(super) const WORTH_SHARING: usize = 1 << 19;

/// Most floats of B that each thread packs for itself, 256 KiB: packing them once more costs less
/// than to wait for the other threads and to fetch the half that is in their caches.
const PACKED_BY_EACH: usize = 1 << 16;
/// As long as there are no more threads than this: each needs memory of its own.
const MOST_PACKERS: usize = 8;

/// Steps of depth per block: K cut evenly into as few blocks as [`DEPTH`] allows, in multiples of
/// a cache line.
pub(super) fn depth_block(k: usize) -> usize {
    even_blocks(k, DEPTH, 16)
}

/// K cut evenly into as few blocks as `most` steps allow, in multiples of `unit`.
pub(super) fn even_blocks(k: usize, most: usize, unit: usize) -> usize {
    k.div_ceil(k.div_ceil(most).max(1)).next_multiple_of(unit)
}

/// Is an operand near enough for tiles to read it in place, `stride` floats from one step of depth
/// to the next?
fn is_near(stride: usize, k: usize, lanes_of_the_other: usize) -> bool {
    let most = if lanes_of_the_other <= FEW { IN_PLACE_FOR_FEW } else { IN_PLACE };
    let small = || stride.saturating_mul(depth_block(k).max(IN_PLACE_STEPS)) <= most;
    stride == 1 || stride <= tile_shape().near && small()
}

/// What a matrix is to a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// Its lanes are rows of the result.
    A,
    /// Its lanes are columns of the result.
    B,
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
pub(super) struct Shared<'a> {
    operand: Operand,
    packing: Packing,
    /// Rows of A or columns of B.
    lanes: Range<usize>,
    /// Range of K, of whole blocks but for the last.
    depth: Range<usize>,
    block: usize,
    tile: TileShape,
    /// Its packed blocks of K, one after the other. Empty if it is used in place, or packed by
    /// the strips on the way.
    data: &'a [f32],
}

impl<'a> Shared<'a> {
    /// These columns of B over all of K, packed in `data`.
    pub(super) fn of_columns(
        k: usize,
        lanes: Range<usize>,
        tile: TileShape,
        data: &'a [f32],
    ) -> Self {
        let (operand, packing, block) = (Operand::B, Packing::Panels, depth_block(k));
        Self { operand, packing, lanes, depth: 0..k, block, tile, data }
    }

    /// These lanes over all of K, with nothing packed yet.
    fn unpacked(job: &Job<'_>, operand: Operand, lanes: Range<usize>, tile: TileShape) -> Self {
        let (k, packing) = (job.a.columns, job.packing(operand));
        Self { operand, packing, lanes, depth: 0..k, block: depth_block(k), tile, data: &[] }
    }

    /// The blocks of K in this range.
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (end, block) = (self.depth.end, self.block);
        self.depth.clone().step_by(block).map(move |start| start..(start + block).min(end))
    }

    /// What is packed of one block.
    fn packed(&self, block: &Range<usize>) -> &[f32] {
        let len = |steps| self.packing.len(self.lanes.len(), steps, self.tile);
        let before = (block.start - self.depth.start) / self.block;
        &self.data[before * len(self.block)..][..len(block.len())]
    }
}

/// The whole product. M, N and K are not zero.
pub(super) fn run(job: &Job<'_>) {
    let ((m, k), n) = (job.a.shape(), job.b.rows);
    let threads = if m * n * k < WORTH_SHARING { 1 } else { threads::count() };
    let tile = tile_shape();
    let block = depth_block(k);
    let (a_in_place, b_in_place) = (job.a_in_place().is_some(), job.b_in_place().is_some());
    if a_in_place && m >= 2 * CHUNK_ROWS && n >= CHUNKS_FROM_COLUMNS {
        let strips = Strips { lanes: n, tile: tile.columns, count: n.div_ceil(tile.group) };
        let chunks = Strips { lanes: m, tile: tile.rows, count: m / CHUNK_ROWS };
        // Enough to share among the threads.
        if chunks.count * strips.count >= 2 * threads {
            run_in_chunks(job, tile, &chunks, &strips, threads);
            return;
        }
    }
    // Each strip of rows that packs its part of A goes through all of B, which does not pay for a
    // large one, unless M is twice N or more.
    let many_rows = match a_in_place {
        true => m > n,
        false if n * k >= SHARED => m >= 2 * n,
        false => m >= n,
    };
    // Rows make more strips than columns do, where a narrow B allows it.
    let by_rows = many_rows || b_in_place && m >= 8 * tile.rows;
    let operand = if by_rows { Operand::B } else { Operand::A };
    let strips = match operand {
        Operand::A => Strips::new(n, tile.columns, tile.group, threads),
        Operand::B if a_in_place => Strips::new(m, tile.rows, STRIP_ROWS, threads),
        Operand::B => Strips::new(m, tile.rows, tile.group, threads),
    };
    let run_strips = |shared: &Shared<'_>| {
        dry::scratch_in_tasks(tile.group.max(STRIP_ROWS) * block, strips.count);
        for_each(threads, strips.count, |i| run_strip(job, shared, &strips.get(i)));
    };
    let strips_pack_b = by_rows && !a_in_place && job.b_on_the_way().is_some();
    let (x, unshared) = match operand {
        Operand::A => (&job.a, a_in_place),
        Operand::B => (&job.b, b_in_place || strips_pack_b),
    };
    if unshared {
        run_strips(&Shared::unpacked(job, operand, 0..x.rows, tile));
        return;
    }
    let packing = job.packing(operand);
    let whole_len = packing.len(x.rows, block, tile) * k.div_ceil(block);
    if by_rows && whole_len <= PACKED_BY_EACH && (2..=MOST_PACKERS).contains(&threads) {
        run_packed_by_each(job, tile, &strips, threads, whole_len);
        return;
    }
    let unit = packing.unit(tile);
    let ranges = x.rows.div_ceil(SHARED_LANES - unit);
    let lane_step = x.rows.div_ceil(ranges).next_multiple_of(unit);
    let block_len = packing.len(lane_step, block, tile);
    let blocks = (SHARED / block_len).clamp(1, k.div_ceil(block));
    scratch::with(blocks * block_len, |buffer| {
        for lane in (0..x.rows).step_by(lane_step) {
            let lanes = lane..(lane + lane_step).min(x.rows);
            for start in (0..k).step_by(blocks * block) {
                let depth = start..(start + blocks * block).min(k);
                let whole = Shared::unpacked(job, operand, lanes.clone(), tile);
                let mut shared = Shared { depth, ..whole };
                pack_shared(x, &shared, threads, buffer);
                shared.data = buffer;
                run_strips(&shared);
            }
        }
    });
}

/// The whole product in chunks of rows of an A in place, times strips of columns.
fn run_in_chunks(job: &Job<'_>, tile: TileShape, chunks: &Strips, strips: &Strips, threads: usize) {
    for_each(threads, chunks.count * strips.count, |i| {
        let shared = Shared::unpacked(job, Operand::A, chunks.get(i / strips.count), tile);
        run_strip(job, &shared, &strips.get(i % strips.count));
    });
}

/// The whole product in strips of rows, for which each thread packs all of B, `packed_len` floats.
fn run_packed_by_each(
    job: &Job<'_>,
    tile: TileShape,
    strips: &Strips,
    threads: usize,
    packed_len: usize,
) {
    scratch::with(threads * packed_len, |buffer| {
        let buffers = SharedMut::new(buffer);
        let packed = [const { AtomicBool::new(false) }; MOST_PACKERS];
        threads::for_each_by_thread(threads, strips.count, |thread, i| {
            // SAFETY: each thread has a part of its own, and tasks of one number follow each other.
            let data = unsafe { buffers.range(thread * packed_len..(thread + 1) * packed_len) };
            let mut shared = Shared::unpacked(job, Operand::B, 0..job.b.rows, tile);
            // A flag that no other thread looks at.
            if !packed[thread].swap(true, Ordering::Relaxed) {
                pack_shared(&job.b, &shared, 1, data);
            }
            shared.data = data;
            run_strip(job, &shared, &strips.get(i));
        });
    });
}

/// Tasks of a product, on this thread alone if it is not worth more.
pub(super) fn for_each(threads: usize, tasks: usize, task: impl Fn(usize) + Sync) {
    if threads == 1 && !dry::is_on() {
        (0..tasks).for_each(task);
    } else {
        threads::for_each(tasks, task);
    }
}

/// Lanes cut into strips of whole tiles, as even as can be. The bits of the result do not depend
/// on how.
pub(super) struct Strips {
    lanes: usize,
    tile: usize,
    pub(super) count: usize,
}

impl Strips {
    /// At most `most` lanes each, and at least two for each thread. Among a few such numbers of
    /// strips, the one with which the busiest thread has least to do.
    pub(super) fn new(lanes: usize, tile: usize, most: usize, threads: usize) -> Self {
        let tiles = lanes.div_ceil(tile);
        let least = tiles.div_ceil(most / tile).div_ceil(threads).max(2); // per thread
        let busiest = |each: usize| tiles.div_ceil(each * threads) * each;
        let each = (least..least + 4).min_by_key(|&each| busiest(each)).unwrap_or(least);
        Self { lanes, tile, count: (each * threads).min(tiles) }
    }

    pub(super) fn get(&self, i: usize) -> Range<usize> {
        let tiles = self.lanes.div_ceil(self.tile);
        let cut = |i: usize| (i * tiles / self.count * self.tile).min(self.lanes);
        cut(i)..cut(i + 1)
    }
}

/// Packs lanes × depth of the shared operand, block of K by block of K.
pub(super) fn pack_shared(x: &Matrix<'_>, shared: &Shared<'_>, threads: usize, buffer: &mut [f32]) {
    let Shared { packing, ref lanes, ref depth, block, tile, .. } = *shared;
    let len = |lanes, steps| packing.len(lanes, steps, tile);
    // Pieces of 16 thousand floats or a panel, or as many as keep all threads busy; whole panels.
    let even = lanes.len().div_ceil(2 * threads);
    let piece = (16 * 1024 / block).min(even).next_multiple_of(packing.unit(tile));
    let pieces = lanes.len().div_ceil(piece);
    let out = SharedMut::new(buffer);
    for_each(threads, pieces * depth.len().div_ceil(block), |task| {
        let (index, first) = (task / pieces, task % pieces * piece);
        let piece = lanes.start + first..(lanes.start + first + piece).min(lanes.end);
        let start = depth.start + index * block;
        let steps = start..(start + block).min(depth.end);
        let at = index * len(lanes.len(), block) + len(first, steps.len());
        // SAFETY: blocks follow each other, none longer than the first, and in a block pieces
        // follow each other in whole panels, with what belongs to them: tasks do not overlap.
        let packed = unsafe { out.range(at..at + len(piece.len(), steps.len())) };
        pack(x, piece, steps, packing, packed);
    });
}

/// All that the shared range contributes to one strip of C.
pub(super) fn run_strip(job: &Job<'_>, shared: &Shared<'_>, strip: &Range<usize>) {
    let (rows, columns) = match shared.operand {
        Operand::A => (&shared.lanes, strip),
        Operand::B => (strip, &shared.lanes),
    };
    let b_on_the_way = match shared.operand {
        Operand::B if !shared.data.is_empty() => None,
        _ => job.b_on_the_way(),
    };
    // Where tiles find A and B, if not packed.
    let (a_in_place, b_in_place) = (job.a_in_place(), job.b_in_place().or(b_on_the_way));
    let (local, local_in_place) = match shared.operand {
        Operand::A => (Operand::B, b_in_place.is_some()),
        Operand::B => (Operand::A, a_in_place.is_some()),
    };
    let local_packing = job.packing(local);
    let local_len = local_packing.len(strip.len(), shared.block, shared.tile);
    let local_len = if local_in_place { 0 } else { local_len };
    let group = shared.tile.group.min(columns.len());
    let group_len = Packing::Panels.len(group, shared.block, shared.tile);
    let room_len = if b_on_the_way.is_some() { group_len } else { 0 };
    scratch::with(local_len + room_len, |buffer| {
        let (buffer, room) = buffer.split_at_mut(local_len);
        for steps in shared.blocks() {
            if !local_in_place {
                let x = if local == Operand::A { &job.a } else { &job.b };
                pack(x, strip.clone(), steps.clone(), local_packing, buffer);
            }
            let lanes = |operand: Operand| {
                let (x, first, panel, in_place) = match operand {
                    Operand::A => (&job.a, rows.start, shared.tile.rows, a_in_place),
                    Operand::B => (&job.b, columns.start, shared.tile.columns, b_in_place),
                };
                if let Some(data) = in_place {
                    let (lane, step) = (x.row_stride, x.column_stride);
                    let data = &data[first * lane + steps.start * step..];
                    Lanes { data, panel: panel * lane, lane, step }
                } else if operand == local {
                    local_packing.read(buffer, steps.len(), shared.tile)
                } else {
                    shared.packing.read(shared.packed(&steps), steps.len(), shared.tile)
                }
            };
            let room = b_on_the_way.map(|_| &mut *room);
            let (a, b) = (lanes(Operand::A), lanes(Operand::B));
            multiply(job, rows, columns, &steps, a, b, room);
        }
    });
}

dispatch! {
    pub(super) fn tile_shape() -> TileShape => tile_shape_on
    fn pack(
        x: &Matrix<'_>, lanes: Range<usize>, depth: Range<usize>, packing: Packing, out: &mut [f32],
    ) => pack_on
    fn multiply(
        job: &Job<'_>, rows: &Range<usize>, columns: &Range<usize>, steps: &Range<usize>,
        a: Lanes<'_>, b: Lanes<'_>, room: Option<&mut [f32]>,
    ) => multiply_on
    // One call for some rows: in narrow models a row takes no longer than a call.
    fn finish(own: Own<'_>) => finish_on
}

#[inline(always)]
fn tile_shape_on<S: Tile>(_: S) -> TileShape {
    TileShape {
        rows: S::ROWS,
        columns: S::COLUMNS,
        lanes: S::LANES,
        group: S::GROUP,
        near: S::NEAR,
        packs_steps: S::PACKS_STEPS,
        packs_on_the_way: S::PACKS_ON_THE_WAY,
    }
}

#[inline(always)]
fn pack_on<S: Tile>(
    s: S,
    x: &Matrix<'_>,
    lanes: Range<usize>,
    depth: Range<usize>,
    packing: Packing,
    out: &mut [f32],
) {
    match packing {
        Packing::Rows => pack::rows(s, x, lanes, depth, out),
        Packing::Steps => pack::steps(s, x, lanes, depth, out),
        Packing::Panels => pack::panels(s, x, lanes, depth, out),
    }
}

/// What the `steps` of K contribute to rows × columns of C; after the last also the epilogue. With
/// `room` for a group of B it is packed on the way.
#[inline(always)]
fn multiply_on<S: Tile>(
    s: S,
    job: &Job<'_>,
    rows: &Range<usize>,
    columns: &Range<usize>,
    steps: &Range<usize>,
    a: Lanes<'_>,
    b: Lanes<'_>,
    mut room: Option<&mut [f32]>,
) {
    const { assert!(S::GROUP.is_multiple_of(S::COLUMNS), "a group is whole tiles") };
    let write = if steps.start == 0 { job.write } else { Write::Add };
    let finish = steps.end == job.a.columns && !job.tail.is_empty();
    let (stride, depth) = (job.out_stride, steps.len());
    for first in (0..columns.len()).step_by(S::GROUP) {
        let count = S::GROUP.min(columns.len() - first);
        let start = rows.start * stride + columns.start + first;
        let out = job.out.pointer(start..start + (rows.len() - 1) * stride + count);
        let fetches = finish && S::FETCHES_FOR_EPILOGUE;
        let then = if fetches { job.tail.touches_at(start) } else { [std::ptr::null(); 2] };
        let size = (rows.len(), count, depth);
        let b = Lanes { data: &b.data[first / S::COLUMNS * b.panel..], ..b };
        // SAFETY: `pointer` has shown that the block is inside, and rows × columns of C are this
        // task's alone.
        unsafe {
            micro::block(s, size, a, b, room.as_deref_mut(), out, stride, write, then, |done| {
                if finish {
                    let columns = columns.start + first..columns.start + first + count;
                    job.finish(rows.start + done.start..rows.start + done.end, columns);
                }
            });
        }
    }
}

impl Job<'_> {
    /// The numbers of A, if tiles can read it in place: f32, in rows or not far from one step of
    /// depth to the next.
    fn a_in_place(&self) -> Option<&[f32]> {
        match self.a.data {
            Data::F32(x) if is_near(self.a.column_stride, self.a.columns, self.b.rows) => Some(x),
            _ => None,
        }
    }

    /// The numbers of B, likewise: f32, neighbouring columns next to each other, in whole vectors.
    fn b_in_place(&self) -> Option<&[f32]> {
        let Matrix { data, rows: n, columns: k, row_stride, column_stride } = self.b;
        let tile = tile_shape();
        // A single row of tiles uses B once: there is nothing to make up for packing it.
        let near = is_near(column_stride, k, self.a.rows) || self.a.rows <= tile.rows;
        match data {
            Data::F32(x) if row_stride == 1 && near && n.is_multiple_of(tile.lanes) => Some(x),
            _ => None,
        }
    }

    /// The numbers of B, if it is not used in place but tiles can pack it on the way: f32,
    /// neighbouring columns next to each other, in whole vectors.
    fn b_on_the_way(&self) -> Option<&[f32]> {
        let tile = tile_shape();
        match self.b.data {
            Data::F32(x)
                if tile.packs_on_the_way
                    && self.b.row_stride == 1
                    && self.b.rows.is_multiple_of(tile.lanes)
                    && self.b_in_place().is_none() =>
            {
                Some(x)
            }
            _ => None,
        }
    }

    /// How an operand is packed, if it is.
    fn packing(&self, operand: Operand) -> Packing {
        match operand {
            Operand::A if tile_shape().packs_steps && self.a.column_stride != 1 => Packing::Steps,
            Operand::A => Packing::Rows,
            Operand::B => Packing::Panels,
        }
    }

    /// The epilogue on part of some rows.
    ///
    /// # Safety
    /// No other task may work on these elements meanwhile.
    pub(super) unsafe fn finish(&self, rows: Range<usize>, columns: Range<usize>) {
        finish(Own { job: self, rows, columns });
    }
}

/// Part of the result that a task has for itself, and of what is laid out like it: who makes one
/// promises that, as [`Job::finish`] asks.
struct Own<'a> {
    job: &'a Job<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
}

#[inline(always)]
fn finish_on<S: Tile>(s: S, own: Own<'_>) {
    let Own { job, rows, columns } = own;
    for row in rows {
        let start = row * job.out_stride;
        // SAFETY: these elements are this task's alone.
        unsafe {
            let out = job.out.range(start + columns.start..start + columns.end);
            job.tail.apply(s, start, columns.clone(), out);
        }
    }
}
