//! Packing: copies an operand into the panels that the [tile product](super::micro) reads in
//! order, widening 16-bit numbers on the way.
//!
//! Both operands are packed by the same code. Seen as X (lanes × depth), where the lanes are the
//! rows of A or the columns of B, a panel of `WIDTH` lanes is
//!
//! ```text
//! for p in depth:  for l in 0..WIDTH:  panel[p · WIDTH + l] = X[lane + l][p], or 0 past the end
//! ```
//!
//! One of X's strides is 1. Where neighbouring lanes are next to each other, a step is a copy of
//! a few vectors; where neighbouring depths are, square blocks are transposed in registers.
//! Zeros stand in for lanes past the end, so what lies in memory there is never read.

use super::micro::Tile;
use super::{Data, Matrix};
use std::ops::Range;

/// Floats that [`panels`] writes for so many lanes.
pub(crate) fn packed_len(lanes: usize, width: usize, depth: usize) -> usize {
    lanes.next_multiple_of(width) * depth
}

/// Packs the rows `lanes` and columns `depth` of `x` into panels of `width` rows. For B, give its
/// transpose. `width` is [`Tile::ROWS`] or [`Tile::COLUMNS`].
#[inline(always)]
pub(crate) fn panels<S: Tile>(
    s: S,
    x: &Matrix<'_>,
    lanes: Range<usize>,
    depth: Range<usize>,
    width: usize,
    out: &mut [f32],
) {
    assert!(lanes.end <= x.rows && depth.end <= x.columns, "the block is outside the matrix");
    assert!(out.len() >= packed_len(lanes.len(), width, depth.len()), "panels do not fit");
    assert!(width < S::LANES || width.is_multiple_of(S::LANES));
    if lanes.is_empty() || depth.is_empty() {
        return;
    }
    match x.data {
        Data::F32(d) => panels_of(s, d, &Single, x, lanes, depth, width, out),
        Data::F16(d) => panels_of(s, d, &Half, x, lanes, depth, width, out),
        Data::Bf16(d) => panels_of(s, d, &Brain, x, lanes, depth, width, out),
    }
}

/// How a storage type is read as f32.
trait Stored<E: Copy> {
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

struct Single;
struct Half;
struct Brain;

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
fn panels_of<S: Tile, E: Copy, L: Stored<E>>(
    s: S,
    data: &[E],
    how: &L,
    x: &Matrix<'_>,
    lanes: Range<usize>,
    depth: Range<usize>,
    width: usize,
    out: &mut [f32],
) {
    let farthest = (lanes.end - 1) * x.row_stride + (depth.end - 1) * x.column_stride;
    assert!(farthest < data.len(), "the block is outside the data");
    let steps = depth.len();
    // SAFETY: the element of the first lane at the first depth; inside, as it is not beyond the
    // farthest one.
    let start =
        unsafe { data.as_ptr().add(lanes.start * x.row_stride + depth.start * x.column_stride) };
    if x.row_stride == 1 {
        // SAFETY: every element (l, p) with l < lanes.len() and p < steps is at
        // start + l + p · column_stride, not beyond the farthest; `out` holds all panels.
        unsafe {
            copy_lanes(s, how, start, x.column_stride, lanes.len(), steps, width, out.as_mut_ptr());
        }
    } else {
        assert_eq!(x.column_stride, 1, "one of the strides of a matrix is 1");
        for lane in (0..lanes.len()).step_by(width) {
            let filled = width.min(lanes.len() - lane);
            let panel = &mut out[lane * steps..(lane + width) * steps];
            // SAFETY: every element (l, p) with l < filled and p < steps is at
            // start + (lane + l) · row_stride + p, not beyond the farthest; `panel` holds
            // width · steps floats.
            unsafe {
                let start = start.add(lane * x.row_stride);
                transpose_lanes(s, how, start, x.row_stride, filled, steps, width, panel);
            }
        }
    }
}

/// Panels of an operand whose neighbouring lanes are next to each other in memory.
///
/// # Safety
/// `start + l + p · stride` must be readable for `l < lanes` and `p < steps`, and `out` valid for
/// writing [`packed_len`] floats.
#[inline(always)]
unsafe fn copy_lanes<S: Tile, E: Copy, L: Stored<E>>(
    s: S,
    how: &L,
    start: *const E,
    stride: usize,
    lanes: usize,
    steps: usize,
    width: usize,
    out: *mut f32,
) {
    let whole = lanes - lanes % width;
    let vectors = width.div_ceil(S::LANES);
    // Step by step through memory, so that a row of the source is read in one go for all panels.
    for p in 0..steps {
        for lane in (0..lanes).step_by(width) {
            let filled = if lane < whole { width } else { lanes - whole };
            for v in 0..vectors {
                let at = v * S::LANES; // first lane of this vector within the panel
                let wanted = (width - at).min(S::LANES);
                // SAFETY: reads lanes lane + at.. of step p, at most as many as are filled;
                // writes lanes at..at + wanted of step p of this panel, or, when not at the
                // last step, possibly some lanes of step p + 1, which is written later.
                unsafe {
                    let from = start.wrapping_add(p * stride + lane + at);
                    let x = if filled >= at + S::LANES {
                        how.load(s, from)
                    } else {
                        how.load_first(s, filled.saturating_sub(at).min(S::LANES), from)
                    };
                    let to = out.add(lane * steps + p * width + at);
                    if wanted == S::LANES || p + 1 < steps {
                        s.store(to, x);
                    } else {
                        s.store_first(wanted, to, x);
                    }
                }
            }
        }
    }
}

/// One panel of an operand whose neighbouring depths are next to each other in memory.
///
/// # Safety
/// `start + l · stride + p` must be readable for `l < filled` and `p < steps`; `panel` holds
/// `width · steps` floats.
#[inline(always)]
unsafe fn transpose_lanes<S: Tile, E: Copy, L: Stored<E>>(
    s: S,
    how: &L,
    start: *const E,
    stride: usize,
    filled: usize,
    steps: usize,
    width: usize,
    panel: &mut [f32],
) {
    let out = panel.as_mut_ptr();
    for at in (0..width).step_by(S::LANES) {
        let rows = filled.saturating_sub(at).min(S::LANES); // lanes of this block that exist
        let wanted = (width - at).min(S::LANES);
        for p in (0..steps).step_by(S::LANES) {
            let here = (steps - p).min(S::LANES);
            // SAFETY: rows below `rows` are readable for `here` numbers from p on. A store of a
            // whole vector at step q of a panel narrower than a vector spills into step q + 1,
            // which is written later; the last step of the panel is stored in part.
            unsafe {
                let block = if rows == S::LANES && here == S::LANES {
                    how.load_transposed(s, start.add(at * stride + p), stride)
                } else {
                    let mut block = [s.zero(); 16];
                    for r in 0..S::LANES {
                        if r < rows {
                            let from = start.add((at + r) * stride + p);
                            block[r] = if here == S::LANES {
                                how.load(s, from)
                            } else {
                                how.load_first(s, here, from)
                            };
                        }
                    }
                    s.transpose(&mut block);
                    block
                };
                for q in 0..S::LANES {
                    if q < here {
                        let to = out.add((p + q) * width + at);
                        if wanted == S::LANES || p + q + 1 < steps {
                            s.store(to, block[q]);
                        } else {
                            s.store_first(wanted, to, block[q]);
                        }
                    }
                }
            }
        }
    }
}
