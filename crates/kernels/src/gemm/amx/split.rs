//! Packing for [tiles](super::tiles): numbers split into parts of bfloat16.
//!
//! A number of f32 has 24 significant bits, one of bfloat16 eight and the same range of exponents.
//! So three of them hold it:
//!
//! ```text
//! high = x rounded,  middle = (x − high) rounded,  low = x − high − middle
//! ```
//!
//! with |middle| ≤ 2⁻⁸|x| and |low| ≤ 2⁻¹⁶|x|, both differences exact: what rounding to the nearest
//! leaves has 16 bits, and then at most eight. (Ties away from zero: an addition and a mask.) So
//! x·y is exactly the sum of nine products of parts, and the three smallest are together at most
//! 2⁻²³|x·y|, in the mean far less, as no sign is preferred: no more than rounding does in a chain of
//! multiply-adds.
//!
//! **Layout.** An operand is X (lanes × depth), the lanes being the rows of A or the columns of B.
//! For 32 steps of depth, from p on, a tile of A has a lane in each row, one of B in each column, and
//! a place in either holds two numbers, those of step p + i and p + 16 + i:
//!
//! ```text
//! A:  tile[lane][i] = X[lane][p + i], X[lane][p + 16 + i]          i < 16
//! B:  tile[i][lane] = the same
//! ```
//!
//! Any pairs would do as long as A and B have the same; these are a shift and an or.
//!
//! **What is not finite** has no parts. A panel ends with a line of sums of its low parts, which are
//! NaN if one was not: then [plain sums](super::plain) are to be taken instead.

use super::tiles::Amx;
use crate::gemm::pack::{self, Brain, Half, Single, Source, Stored};
use crate::gemm::{Data, Matrix};
use crate::simd::{Avx512, Simd, Span};
use std::ops::Range;

/// Floats in the memory of a tile.
pub(super) const TILE: usize = 256;
/// Floats in the cache line at the end of a panel.
pub(super) const LINE: usize = 16;
/// Steps of depth in a tile.
pub(super) const STEPS: usize = 32;
/// Lanes of a tile.
pub(super) const LANES: usize = 16;

/// What an operand is to a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Its lanes are rows of the result.
    A,
    /// Its lanes are columns of the result.
    B,
}

/// Parts of a number. (Half precision has two, but is rare: the third is zero.)
pub(super) fn parts(data: Data<'_>) -> usize {
    match data {
        Data::F32(_) | Data::F16(_) => 3,
        Data::Bf16(_) => 1,
    }
}

/// Floats of a panel of so many tiles, for numbers in so many parts.
pub(super) fn panel_len(tiles: usize, parts: usize, steps: usize) -> usize {
    steps.div_ceil(STEPS) * parts * tiles * TILE + LINE
}

/// Is all finite that a panel was packed from?
pub(super) fn is_finite(panel: &[f32]) -> bool {
    !panel[panel.len() - LINE..].iter().any(|x| x.is_nan())
}

/// Packs rows `lanes` and columns `depth` of X into panels of `TILES` tiles each, zeros past the end.
pub(super) fn pack<const TILES: usize>(
    amx: Amx,
    role: Role,
    x: &Matrix<'_>,
    lanes: Range<usize>,
    depth: Range<usize>,
    out: &mut [f32],
) {
    let panels = lanes.len().div_ceil(TILES * LANES);
    let needed = panels * panel_len(TILES, parts(x.data), depth.len());
    assert!(out.len() >= needed, "panels do not fit");
    let Some(source) = Source::new(x, lanes, depth) else { return };
    // SAFETY: the token shows that the CPU has these features.
    unsafe { pack_of_any::<TILES>(amx.0, role, &source, x.data, &mut out[..needed]) };
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn pack_of_any<const TILES: usize>(
    s: Avx512,
    role: Role,
    x: &Source,
    data: Data<'_>,
    out: &mut [f32],
) {
    match data {
        Data::F32(d) => pack_of::<_, _, TILES, 3>(s, role, x, d, &Single, out),
        Data::F16(d) => pack_of::<_, _, TILES, 3>(s, role, x, d, &Half, out),
        Data::Bf16(d) => pack_of::<_, _, TILES, 1>(s, role, x, d, &Brain, out),
    }
}

// With the features spelt out, so that the closure inside has them, too.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn pack_of<E: Copy, L: Stored<E>, const TILES: usize, const PARTS: usize>(
    s: Avx512,
    role: Role,
    x: &Source,
    data: &[E],
    how: &L,
    out: &mut [f32],
) {
    let panel = panel_len(TILES, PARTS, x.steps);
    let (panels, blocks) = (x.lanes.div_ceil(TILES * LANES), x.steps.div_ceil(STEPS));
    for line in out.chunks_exact_mut(panel) {
        line[panel - LINE..].fill(0.0);
    }
    let mut block = |q: usize, b: usize| {
        let panel = &mut out[q * panel..][..panel];
        let (tiles, line) = panel.split_at_mut(panel.len() - LINE);
        let tiles = &mut tiles[b * TILES * PARTS * TILE..][..TILES * PARTS * TILE];
        let mut low = s.zero();
        for t in 0..TILES {
            let lane = (q * TILES + t) * LANES;
            let count = x.lanes.saturating_sub(lane).min(LANES);
            let [u, v] = [0, LANES].map(|p| {
                let p = b * STEPS + p;
                let steps = x.steps.saturating_sub(p).min(LANES);
                load(s, role, x, data, how, (lane, count), (p, steps))
            });
            for r in 0..LANES {
                let row = &mut tiles[t * TILE + r * 16..];
                low = s.add(low, store_parts::<TILES, PARTS>(s, u[r], v[r], row));
            }
        }
        let at = Span { start: 0, count: LINE };
        s.write(line, at, s.add(s.read(line, at), low));
    };
    // In the order of the source.
    if x.step_stride == 1 {
        (0..panels).for_each(|q| (0..blocks).for_each(|b| block(q, b)));
    } else {
        (0..blocks).for_each(|b| (0..panels).for_each(|q| block(q, b)));
    }
}

/// 16 × 16 numbers from a lane and a step on, of which `count` and `steps` exist and the others are
/// zero: a vector for each lane of A, and for each step of B.
#[inline(always)]
fn load<E: Copy, L: Stored<E>>(
    s: Avx512,
    role: Role,
    x: &Source,
    data: &[E],
    how: &L,
    (lane, count): (usize, usize),
    (p, steps): (usize, usize),
) -> [V; 16] {
    let mut block = [s.zero(); 16];
    if count == 0 || steps == 0 {
        return block;
    }
    let from = &data[x.start + lane * x.lane_stride + p * x.step_stride..];
    // Rows in memory: how many, how long, how far apart.
    let (rows, columns, stride) = if x.step_stride == 1 {
        (count, steps, x.lane_stride)
    } else {
        (steps, count, x.step_stride)
    };
    assert!((rows - 1) * stride + columns <= from.len(), "the block is outside the data");
    // SAFETY: `rows` rows of `columns` numbers, `stride` apart, are inside by the assertion.
    unsafe {
        if (x.step_stride == 1) != (role == Role::A) {
            return pack::load_block(s, how, (rows, columns), from.as_ptr(), stride);
        }
        for r in 0..16 {
            if r < rows {
                let row = from.as_ptr().add(r * stride);
                block[r] = if columns == LANES {
                    how.load(s, row)
                } else {
                    how.load_first(s, columns, row)
                };
            }
        }
    }
    block
}

type V = <Avx512 as Simd>::V;

/// Stores the parts of two vectors in a row of a tile, and the same row of each part's, and returns the
/// sum of the low parts.
#[inline(always)]
fn store_parts<const TILES: usize, const PARTS: usize>(s: Avx512, u: V, v: V, row: &mut [f32]) -> V {
    if PARTS == 1 {
        store_part::<TILES>(s, 0, u, v, row);
        return s.add(s.sub(u, u), s.sub(v, v));
    }
    let (high_u, high_v) = (rounded(s, u), rounded(s, v));
    let (rest_u, rest_v) = (s.sub(u, high_u), s.sub(v, high_v));
    let (middle_u, middle_v) = (rounded(s, rest_u), rounded(s, rest_v));
    let (low_u, low_v) = (s.sub(rest_u, middle_u), s.sub(rest_v, middle_v));
    store_part::<TILES>(s, 0, high_u, high_v, row);
    store_part::<TILES>(s, 1, middle_u, middle_v, row);
    store_part::<TILES>(s, 2, low_u, low_v, row);
    s.add(low_u, low_v)
}

/// To bfloat16, ties away from zero. What is not finite, or is beyond its range, becomes something
/// from which it differs by NaN or infinity.
#[inline(always)]
fn rounded(s: Avx512, x: V) -> V {
    let half_up = s.add_i(s.bits(x), s.splat_i(0x8000));
    s.from_bits(s.and_i(half_up, s.splat_i(0xffff_0000)))
}

/// The upper halves of both, next to each other. What `v` has below is zero.
#[inline(always)]
fn store_part<const TILES: usize>(s: Avx512, part: usize, u: V, v: V, row: &mut [f32]) {
    let both = s.or_i(s.shift_right::<16>(s.bits(u)), s.bits(v));
    let at = Span { start: part * TILES * TILE, count: LANES };
    s.write(row, at, s.from_bits(both));
}
