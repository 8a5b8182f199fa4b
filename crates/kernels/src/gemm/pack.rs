//! Packing: copies part of an operand into the layout that the [tile product](super::micro)
//! reads, widening 16-bit numbers on the way.
//!
//! Both operands are seen as X (lanes × depth), the lanes being the rows of A or the columns of
//! B. [`rows`] or [`steps`] is for A, [`panels`] makes panels of B:
//!
//! ```text
//! rows:    out[l · row_stride + p]                 = X[lane + l][depth + p]
//! steps:   out[(l / ROWS) · step_panel + p · ROWS + l % ROWS]         = the same
//! panels:  out[(l − l % COLUMNS) · steps + p · COLUMNS + l % COLUMNS] = the same, 0 past the end
//! ```
//!
//! One of X's strides is 1. Where the order in memory is that of the result, vectors are copied;
//! otherwise square blocks are transposed in registers. Zeros stand in for lanes past the end, so
//! what lies in memory there is never read. (`steps` writes whole vectors: what is too much of one is
//! written over by the next, or lies behind the last step, where nobody reads.)

use super::micro::{CACHE_LINE, Lanes, Tile, prefetch, prefetch_second_level};
use super::{Data, Matrix};
use std::ops::Range;

/// How an operand is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// A, row by row.
    Rows,
    /// A, as many rows as a tile has next to each other for each step of depth.
    Steps,
    /// B, in panels of as many columns as a tile has.
    Panels,
}

/// The size of a tile, and the lanes of a vector, of the instruction set in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileShape {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) lanes: usize,
    /// See [`Tile::GROUP`].
    pub(crate) group: usize,
    /// See [`Tile::NEAR`].
    pub(crate) near: usize,
    /// See [`Tile::PACKS_STEPS`].
    pub(crate) packs_steps: bool,
    /// See [`Tile::PACKS_ON_THE_WAY`].
    pub(crate) packs_on_the_way: bool,
}

impl Packing {
    /// Floats that `lanes × steps` take up when packed. But for rows, lanes are padded to whole
    /// panels.
    pub(crate) fn len(self, lanes: usize, steps: usize, tile: TileShape) -> usize {
        match self {
            Packing::Rows => lanes * row_stride(steps),
            Packing::Steps => lanes.div_ceil(tile.rows) * step_panel(steps, tile.rows),
            Packing::Panels => lanes.next_multiple_of(tile.columns) * steps,
        }
    }

    /// How tiles read what was packed.
    pub(crate) fn read(self, data: &[f32], steps: usize, tile: TileShape) -> Lanes<'_> {
        match self {
            Packing::Rows => {
                let lane = row_stride(steps);
                Lanes { data, panel: tile.rows * lane, lane, step: 1 }
            }
            Packing::Steps => {
                Lanes { data, panel: step_panel(steps, tile.rows), lane: 1, step: tile.rows }
            }
            Packing::Panels => {
                Lanes { data, panel: tile.columns * steps, lane: 1, step: tile.columns }
            }
        }
    }

    /// Pieces that are packed apart from each other are so many lanes or a multiple of it: whole
    /// panels, and for rows, which could be cut anywhere, pieces of the same size.
    pub(crate) fn unit(self, tile: TileShape) -> usize {
        match self {
            Packing::Steps => tile.rows,
            Packing::Rows | Packing::Panels => tile.columns,
        }
    }
}

/// Floats from one packed row of A to the next. A cache line is left out between rows: where both
/// sides of a transpose have strides that are powers of two, loads wait for unrelated stores that
/// have the same last 12 bits of the address.
pub(crate) fn row_stride(steps: usize) -> usize {
    steps.next_multiple_of(16) + 16
}

/// Floats from one panel of A packed by steps, of so many rows, to the next. The cache line behind
/// the steps belongs to the panel: the last vector reaches into it.
fn step_panel(steps: usize, rows: usize) -> usize {
    steps * rows + CACHE_LINE
}

/// Copies rows `lanes` and columns `depth` of A into rows with [`row_stride`].
#[inline(always)]
pub(crate) fn rows<S: Tile>(
    s: S,
    a: &Matrix<'_>,
    lanes: Range<usize>,
    depth: Range<usize>,
    out: &mut [f32],
) {
    assert!(out.len() >= lanes.len() * row_stride(depth.len()), "rows do not fit");
    let Some(source) = Source::new(a, lanes, depth) else { return };
    match a.data {
        Data::F32(d) => rows_of(s, &source, d, &Single, out),
        Data::F16(d) => rows_of(s, &source, d, &Half, out),
        Data::Bf16(d) => rows_of(s, &source, d, &Brain, out),
    }
}

/// Copies rows `lanes` and columns `depth` of A, whose columns lie in one piece each, so that the
/// [`Tile::ROWS`] rows of a tile are next to each other at each step.
#[inline(always)]
pub(crate) fn steps<S: Tile>(
    s: S,
    a: &Matrix<'_>,
    lanes: Range<usize>,
    depth: Range<usize>,
    out: &mut [f32],
) {
    let needed = lanes.len().div_ceil(S::ROWS) * step_panel(depth.len(), S::ROWS);
    assert!(out.len() >= needed, "steps do not fit");
    let Some(source) = Source::new(a, lanes, depth) else { return };
    match a.data {
        Data::F32(d) => steps_of(s, &source, d, &Single, out),
        Data::F16(d) => steps_of(s, &source, d, &Half, out),
        Data::Bf16(d) => steps_of(s, &source, d, &Brain, out),
    }
}

/// Packs rows `lanes` and columns `depth` of Bᵀ into panels of [`Tile::COLUMNS`] lanes.
#[inline(always)]
pub(crate) fn panels<S: Tile>(
    s: S,
    b: &Matrix<'_>,
    lanes: Range<usize>,
    depth: Range<usize>,
    out: &mut [f32],
) {
    let needed = lanes.len().next_multiple_of(S::COLUMNS) * depth.len();
    assert!(out.len() >= needed, "panels do not fit");
    let Some(source) = Source::new(b, lanes, depth) else { return };
    match b.data {
        Data::F32(d) => panels_of(s, &source, d, &Single, out),
        Data::F16(d) => panels_of(s, &source, d, &Half, out),
        Data::Bf16(d) => panels_of(s, &source, d, &Brain, out),
    }
}

/// A block of a matrix: element (l, p) is at `start + l · lane_stride + p · step_stride`, inside
/// the matrix's data for l < lanes and p < steps.
pub(super) struct Source {
    pub(super) start: usize,
    pub(super) lanes: usize,
    pub(super) steps: usize,
    pub(super) lane_stride: usize,
    pub(super) step_stride: usize,
}

impl Source {
    /// `None` if the block is empty.
    pub(super) fn new(x: &Matrix<'_>, lanes: Range<usize>, depth: Range<usize>) -> Option<Self> {
        assert!(lanes.end <= x.rows && depth.end <= x.columns, "the block is outside the matrix");
        if lanes.is_empty() || depth.is_empty() {
            return None;
        }
        let farthest = (lanes.end - 1) * x.row_stride + (depth.end - 1) * x.column_stride;
        assert!(farthest < x.data.len(), "the block is outside the data");
        assert!(x.row_stride == 1 || x.column_stride == 1, "one of the strides of a matrix is 1");
        Some(Self {
            start: lanes.start * x.row_stride + depth.start * x.column_stride,
            lanes: lanes.len(),
            steps: depth.len(),
            lane_stride: x.row_stride,
            step_stride: x.column_stride,
        })
    }
}

/// How a storage type is read as f32.
pub(super) trait Stored<E: Copy> {
    /// # Safety
    /// `p` must be valid for reading `LANES` numbers.
    unsafe fn load<S: Tile>(&self, s: S, p: *const E) -> S::V;
    /// The first `count` lanes from memory, the others zero.
    /// # Safety
    /// `p` must be valid for reading `count` numbers, and `count ≤ LANES`.
    unsafe fn load_first<S: Tile>(&self, s: S, count: usize, p: *const E) -> S::V;
    /// See [`Tile::load_transposed`].
    /// # Safety
    /// Each of the `LANES` rows `p + r · stride` must be valid for reading `LANES` numbers.
    #[inline(always)]
    unsafe fn load_transposed<S: Tile>(&self, s: S, p: *const E, stride: usize) -> [S::V; 16] {
        let mut block = [s.zero(); 16];
        for r in 0..S::LANES {
            // SAFETY: row r is readable by the caller's promise.
            block[r] = unsafe { self.load(s, p.add(r * stride)) };
        }
        s.transpose(&mut block);
        block
    }
}

pub(super) struct Single;
pub(super) struct Half;
pub(super) struct Brain;

impl Stored<f32> for Single {
    #[inline(always)]
    unsafe fn load<S: Tile>(&self, s: S, p: *const f32) -> S::V {
        // SAFETY: the same promise.
        unsafe { s.load(p) }
    }
    #[inline(always)]
    unsafe fn load_first<S: Tile>(&self, s: S, count: usize, p: *const f32) -> S::V {
        // SAFETY: the same promise.
        unsafe { s.load_first(count, p) }
    }
    #[inline(always)]
    unsafe fn load_transposed<S: Tile>(&self, s: S, p: *const f32, stride: usize) -> [S::V; 16] {
        // SAFETY: the same promise.
        unsafe { s.load_transposed(p, stride) }
    }
}

/// The first `count` 16-bit numbers from memory and zeros behind them: zero bits are zero in both
/// formats.
#[inline(always)]
unsafe fn first_of_16(count: usize, p: *const u16) -> [u16; 16] {
    let mut some = [0; 16];
    for i in 0..count.min(16) {
        // SAFETY: the caller gives `count` readable numbers.
        some[i] = unsafe { *p.add(i) };
    }
    some
}

impl Stored<u16> for Half {
    #[inline(always)]
    unsafe fn load<S: Tile>(&self, s: S, p: *const u16) -> S::V {
        // SAFETY: the same promise.
        unsafe { s.load_f16(p) }
    }
    #[inline(always)]
    unsafe fn load_first<S: Tile>(&self, s: S, count: usize, p: *const u16) -> S::V {
        // SAFETY: `count` are readable by the caller's promise; LANES ≤ 16.
        unsafe { s.load_f16(first_of_16(count, p).as_ptr()) }
    }
}

impl Stored<u16> for Brain {
    #[inline(always)]
    unsafe fn load<S: Tile>(&self, s: S, p: *const u16) -> S::V {
        // SAFETY: the same promise.
        unsafe { s.load_bf16(p) }
    }
    #[inline(always)]
    unsafe fn load_first<S: Tile>(&self, s: S, count: usize, p: *const u16) -> S::V {
        // SAFETY: `count` are readable by the caller's promise; LANES ≤ 16.
        unsafe { s.load_bf16(first_of_16(count, p).as_ptr()) }
    }
}

#[inline(always)]
fn rows_of<S: Tile, E: Copy, L: Stored<E>>(s: S, x: &Source, data: &[E], how: &L, out: &mut [f32]) {
    let start = data[x.start..].as_ptr();
    let stride = row_stride(x.steps);
    if x.step_stride == 1 {
        for l in 0..x.lanes {
            let row = &mut out[l * stride..l * stride + x.steps];
            crate::each_span!(S, x.steps, |at| {
                // SAFETY: `at` is within the steps of lane l, which are next to each other.
                let v = unsafe {
                    let from = start.add(l * x.lane_stride + at.start);
                    if at.count == S::LANES {
                        how.load(s, from)
                    } else {
                        how.load_first(s, at.count, from)
                    }
                };
                s.write(row, at, v);
            });
        }
    } else {
        // A block of steps at a time, along the rows of the source, which hold the lanes.
        for p in (0..x.steps).step_by(S::LANES) {
            for l in (0..x.lanes).step_by(S::LANES) {
                let size = ((x.steps - p).min(S::LANES), (x.lanes - l).min(S::LANES));
                // SAFETY: rows p.. and columns l.. of the source, as many as there are; written
                // to lanes l.. and steps p.. of `out`, which holds lanes · stride. Prefetches
                // may be of anything.
                unsafe {
                    let from = start.add(p * x.step_stride + l);
                    for r in STEPS_AHEAD..STEPS_AHEAD + S::LANES {
                        prefetch_second_level(from.wrapping_add(r * x.step_stride).cast());
                    }
                    let to = out.as_mut_ptr().add(l * stride + p);
                    move_transposed(s, how, size, from, x.step_stride, to, stride);
                }
            }
        }
    }
}

#[inline(always)]
fn steps_of<S: Tile, E: Copy, L: Stored<E>>(
    s: S,
    x: &Source,
    data: &[E],
    how: &L,
    out: &mut [f32],
) {
    const { assert!(S::ROWS <= S::LANES, "a vector holds the rows of a tile") };
    const { assert!(S::LANES <= S::ROWS + CACHE_LINE, "the last vector stays in its panel") };
    assert_eq!(x.lane_stride, 1, "columns of A are not in one piece");
    let start = data[x.start..].as_ptr();
    let panel = step_panel(x.steps, S::ROWS);
    let out = out[..x.lanes.div_ceil(S::ROWS) * panel].as_mut_ptr();
    // A few steps at a time, so that whole cache lines are written, and read while they are near.
    for p in (0..x.steps).step_by(S::LANES) {
        let steps = (x.steps - p).min(S::LANES);
        for (q, l) in (0..x.lanes).step_by(S::ROWS).enumerate() {
            let lanes = (x.lanes - l).min(S::LANES);
            for p in p..p + steps {
                // SAFETY: `lanes` lanes from l on exist at step p, and a vector is read where that
                // many are left; it is written from step p of panel q on, which has room for all
                // steps and a line. Steps are written in order, so what it leaves in the next is
                // written over. Prefetches may be of anything.
                unsafe {
                    let from = start.add(p * x.step_stride + l);
                    prefetch_second_level(from.wrapping_add(STEPS_AHEAD * x.step_stride).cast());
                    let v = if lanes == S::LANES {
                        how.load(s, from)
                    } else {
                        how.load_first(s, lanes, from)
                    };
                    s.store(out.add(q * panel + p * S::ROWS), v);
                }
            }
        }
    }
}

#[inline(always)]
fn panels_of<S: Tile, E: Copy, L: Stored<E>>(
    s: S,
    x: &Source,
    data: &[E],
    how: &L,
    out: &mut [f32],
) {
    let start = data[x.start..].as_ptr();
    let padded = x.lanes.next_multiple_of(S::COLUMNS);
    let out = out[..padded * x.steps].as_mut_ptr();
    // Where lane l of step 0 goes; l is a multiple of LANES, and so is COLUMNS.
    let place = |l: usize| (l - l % S::COLUMNS) * x.steps + l % S::COLUMNS;
    if x.lane_stride == 1 {
        let whole = x.lanes - x.lanes % S::COLUMNS;
        // Step by step, so that a row of the source is read in one go for all panels.
        for p in 0..x.steps {
            // SAFETY: lanes below `whole` exist at step p and are written to step p of their
            // panel; past it, only the `count` lanes that exist are read, and whole vectors are
            // written, inside the padded panel. Prefetches may be of anything.
            unsafe {
                let from = start.add(p * x.step_stride);
                let to = out.add(p * S::COLUMNS);
                for l in (0..whole).step_by(S::COLUMNS) {
                    for w in (0..S::COLUMNS).step_by(S::LANES) {
                        prefetch(from.wrapping_add(l + w + ROWS_AHEAD * x.step_stride).cast());
                        s.store(to.add(l * x.steps + w), how.load(s, from.add(l + w)));
                    }
                }
                for w in (0..padded - whole).step_by(S::LANES) {
                    let count = (x.lanes - whole).saturating_sub(w).min(S::LANES);
                    let v = how.load_first(s, count, from.wrapping_add(whole + w));
                    s.store(to.add(whole * x.steps + w), v);
                }
            }
        }
    } else {
        for l in (0..padded).step_by(S::LANES) {
            let count = x.lanes.saturating_sub(l).min(S::LANES);
            for p in (0..x.steps).step_by(S::LANES) {
                let size = (count, (x.steps - p).min(S::LANES));
                // SAFETY: lanes l.. and steps p.. of the source, as many as there are; written to
                // steps p.. of a panel, LANES lanes from l on, inside the padded panels.
                unsafe {
                    let from = start.wrapping_add(l * x.lane_stride + p);
                    for r in STEPS_AHEAD..STEPS_AHEAD + S::LANES {
                        prefetch_second_level(from.wrapping_add(r * x.lane_stride).cast());
                    }
                    let to = out.add(place(l) + p * S::COLUMNS);
                    transpose_padded(s, how, size, from, x.lane_stride, to);
                }
            }
        }
    }
}

/// How many rows of the source are fetched ahead of a copy: the hardware does not follow from one
/// row, on a page of its own, to the next.
const ROWS_AHEAD: usize = 8;

/// The same where a block of rows is read at once, for a transpose or by steps. Into the second-level cache
/// only: rows a multiple of 4 KiB apart would push each other out of the first.
const STEPS_AHEAD: usize = 16;

/// A `rows × columns` block, at most LANES × LANES, as the rows of a transposed block.
///
/// # Safety
/// `rows` rows of `columns` numbers must be readable, `stride` apart.
#[inline(always)]
pub(super) unsafe fn load_block<S: Tile, E: Copy, L: Stored<E>>(
    s: S,
    how: &L,
    (rows, columns): (usize, usize),
    from: *const E,
    stride: usize,
) -> [S::V; 16] {
    // SAFETY: whole vectors are read only where the block has them, by the caller's promise.
    unsafe {
        if rows == S::LANES && columns == S::LANES {
            return how.load_transposed(s, from, stride);
        }
        let mut block = [s.zero(); 16];
        for r in 0..S::LANES {
            if r < rows {
                block[r] = if columns == S::LANES {
                    how.load(s, from.add(r * stride))
                } else {
                    how.load_first(s, columns, from.add(r * stride))
                };
            }
        }
        s.transpose(&mut block);
        block
    }
}

/// Writes the transpose of a `rows × columns` block: `columns` rows of `rows` floats.
///
/// # Safety
/// As for [`load_block`]; and the rows must be writable, `to_stride` apart.
#[inline(always)]
unsafe fn move_transposed<S: Tile, E: Copy, L: Stored<E>>(
    s: S,
    how: &L,
    (rows, columns): (usize, usize),
    from: *const E,
    stride: usize,
    to: *mut f32,
    to_stride: usize,
) {
    // SAFETY: as promised by the caller; only `columns` vectors of `rows` lanes are written.
    unsafe {
        let block = load_block(s, how, (rows, columns), from, stride);
        for c in 0..S::LANES {
            if c < columns {
                if rows == S::LANES {
                    s.store(to.add(c * to_stride), block[c]);
                } else {
                    s.store_first(rows, to.add(c * to_stride), block[c]);
                }
            }
        }
    }
}

/// Writes the transpose of a `rows × columns` block into `columns` steps of a panel, zeros for
/// the lanes past `rows`.
///
/// # Safety
/// As for [`load_block`]; and LANES floats must be writable at each of the steps.
#[inline(always)]
unsafe fn transpose_padded<S: Tile, E: Copy, L: Stored<E>>(
    s: S,
    how: &L,
    (rows, columns): (usize, usize),
    from: *const E,
    stride: usize,
    to: *mut f32,
) {
    // SAFETY: as promised by the caller; only `columns` steps are written.
    unsafe {
        let block = load_block(s, how, (rows, columns), from, stride);
        for c in 0..S::LANES {
            if c < columns {
                s.store(to.add(c * S::COLUMNS), block[c]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch;
    use crate::isa::{Isa, with_isa};
    use half::{bf16, f16};

    dispatch! {
        /// Packs part of A, whose numbers end where the part does, by steps, and looks at every
        /// number of the result and at what lies behind it.
        fn check_steps(a: &Matrix<'_>, lanes: Range<usize>, depth: Range<usize>) => check_steps_on
    }

    fn check_steps_on<S: Tile>(s: S, a: &Matrix<'_>, lanes: Range<usize>, depth: Range<usize>) {
        let panel = step_panel(depth.len(), S::ROWS);
        let len = lanes.len().div_ceil(S::ROWS) * panel;
        let mut out = vec![f32::NAN; len + 40];
        steps(s, a, lanes.clone(), depth.clone(), &mut out[..len]);
        for (l, lane) in lanes.clone().enumerate() {
            for (p, step) in depth.clone().enumerate() {
                let got = out[l / S::ROWS * panel + p * S::ROWS + l % S::ROWS];
                assert_eq!(got, number(lane, step), "lane {lane}, step {step}");
            }
        }
        assert!(out[len..].iter().all(|x| x.is_nan()), "wrote behind the panels");
    }

    /// Whole numbers, which 16 bits hold.
    fn number(lane: usize, step: usize) -> f32 {
        (lane * 9 + step) as f32 - 100.0
    }

    #[test]
    fn steps_are_where_the_formula_says_and_nothing_is_behind_them() {
        for lanes in 1..=20 {
            for steps in [1, 2, 7, 8, 9, 16, 17] {
                for (first_lane, first_step) in [(0, 0), (3, 2)] {
                    let (rows, columns) = (first_lane + lanes, first_step + steps);
                    let x: Vec<f32> =
                        (0..columns * rows).map(|i| number(i % rows, i / rows)).collect();
                    let f16s: Vec<u16> = x.iter().map(|&x| f16::from_f32(x).to_bits()).collect();
                    let bf16s: Vec<u16> = x.iter().map(|&x| bf16::from_f32(x).to_bits()).collect();
                    for data in [Data::F32(&x), Data::F16(&f16s), Data::Bf16(&bf16s)] {
                        let a = Matrix::of(data, columns, rows, rows).transposed();
                        for isa in Isa::all_available() {
                            with_isa(isa, || {
                                check_steps(&a, first_lane..rows, first_step..columns);
                            });
                        }
                    }
                }
            }
        }
    }
}
