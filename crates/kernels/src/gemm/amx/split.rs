//! Packing for [tiles](super::tiles): numbers split into parts of bfloat16.
//!
//! A number of f32 has 24 significant bits, one of bfloat16 eight and the same range of exponents.
//! So three of them hold it:
//!
//! ```text
//! high = x rounded,  middle = (x − high) rounded,  low = x − high − middle
//! ```
//!
//! with |middle| ≤ 2⁻⁸|x| and |low| ≤ 2⁻¹⁷|x|, both differences exact: what rounding to the nearest
//! leaves has 16 bits, and then at most eight. (Ties away from zero: an addition and a mask.) So
//! x·y is exactly the sum of nine products of parts, and the three smallest are together at most
//! (2⁻²⁴ + 2⁻³⁴)|x·y|, in the mean far less, as no sign is preferred: no more than rounding one product
//! to f32 takes away.
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
//! **The smallest and the largest.** Tiles take what is below 1.2·10⁻³⁸ for zero, be it a part, a product
//! of parts or a sum. So a product is off by up to a few times that, and by as much times the other
//! number where a part is lost: an x below 10⁻³³ keeps its 16 highest bits, one below 10⁻³⁶ eight. Near
//! the largest number a product may be infinite that was not quite, and one that is beyond it NaN.
//!
//! **What is not finite** has no parts, nor has what rounds to infinity. Then its low part is NaN, and so
//! is the sum of low parts in the line at the end of its panel: [plain sums](super::plain) are to be
//! taken instead.

use super::tiles::Amx;
use crate::gemm::blocked::Operand;
use crate::gemm::micro::prefetch_second_level;
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
const LANES: usize = 16;
/// Tiles in a panel, of either operand: two of A and two of B are multiplied while their four
/// products are summed, and that is all eight.
const TILES: usize = 2;
/// Lanes of a panel.
pub(super) const PANEL: usize = TILES * LANES;

/// Parts of a number. (Half precision has two, but is rare: the third is zero.)
pub(super) fn parts(data: Data<'_>) -> usize {
    match data {
        Data::F32(_) | Data::F16(_) => 3,
        Data::Bf16(_) => 1,
    }
}

/// Floats of a panel, for numbers in so many parts.
pub(super) fn panel_len(parts: usize, steps: usize) -> usize {
    steps.div_ceil(STEPS) * parts * TILES * TILE + LINE
}

/// Is all finite that a panel was packed from?
pub(super) fn is_finite(panel: &[f32]) -> bool {
    !panel[panel.len() - LINE..].iter().any(|x| x.is_nan())
}

/// Packs rows `lanes` and columns `depth` of X into panels, zeros past the end.
pub(super) fn pack(
    amx: Amx,
    role: Operand,
    x: &Matrix<'_>,
    lanes: Range<usize>,
    depth: Range<usize>,
    out: &mut [f32],
) {
    let panels = lanes.len().div_ceil(PANEL);
    let needed = panels * panel_len(parts(x.data), depth.len());
    assert!(out.len() >= needed, "panels do not fit");
    let Some(source) = Source::new(x, lanes, depth) else { return };
    // SAFETY: the token shows that the CPU has these features.
    unsafe { pack_of_any(amx.0, role, &source, x.data, &mut out[..needed]) };
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn pack_of_any(s: Avx512, role: Operand, x: &Source, data: Data<'_>, out: &mut [f32]) {
    match data {
        Data::F32(d) => pack_of::<_, _, 3>(s, role, x, d, &Single, out),
        Data::F16(d) => pack_of::<_, _, 3>(s, role, x, d, &Half, out),
        Data::Bf16(d) => pack_of::<_, _, 1>(s, role, x, d, &Brain, out),
    }
}

// With the features spelt out, so that the closure inside has them, too.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn pack_of<E: Copy, L: Stored<E>, const PARTS: usize>(
    s: Avx512,
    role: Operand,
    x: &Source,
    data: &[E],
    how: &L,
    out: &mut [f32],
) {
    let panel = panel_len(PARTS, x.steps);
    let (panels, blocks) = (x.lanes.div_ceil(PANEL), x.steps.div_ceil(STEPS));
    for line in out.chunks_exact_mut(panel) {
        line[panel - LINE..].fill(0.0);
    }
    let rows_are_lanes = x.step_stride == 1;
    let direct = rows_are_lanes == (role == Operand::A);
    // From one row in memory to the next, and from the first 16 steps of a tile to the others.
    let (stride, further) = if rows_are_lanes {
        (x.lane_stride, LANES)
    } else {
        (x.step_stride, LANES * x.step_stride)
    };
    // What is fetched meanwhile: in the order of the source, a panel or as many steps further.
    let ahead = if rows_are_lanes { PANEL * stride } else { STEPS * stride };
    let mut block = |q: usize, b: usize| {
        let panel = &mut out[q * panel..][..panel];
        let (tiles, line) = panel.split_at_mut(panel.len() - LINE);
        let tiles = &mut tiles[b * TILES * PARTS * TILE..][..TILES * PARTS * TILE];
        let mut check = s.zero();
        for t in 0..TILES {
            let (lane, p) = ((q * TILES + t) * LANES, b * STEPS);
            let tile = &mut tiles[t * TILE..];
            if direct && lane + LANES <= x.lanes && p + STEPS <= x.steps {
                let from = &data[x.start + lane * x.lane_stride + p * x.step_stride..];
                assert!((LANES - 1) * stride + further + LANES <= from.len(), "outside the data");
                for r in 0..LANES {
                    let ahead = from.as_ptr().wrapping_add(r * stride + ahead);
                    prefetch_second_level(ahead.cast());
                    prefetch_second_level(ahead.wrapping_add(further).cast());
                    // SAFETY: two vectors of row r, the farthest of which is inside by the assertion.
                    let (u, v) = unsafe {
                        let row = from.as_ptr().add(r * stride);
                        (how.load(s, row), how.load(s, row.add(further)))
                    };
                    let row = &mut tile[r * LANES..];
                    check = store_parts::<PARTS>(s, u, v, row, check);
                }
                continue;
            }
            let count = x.lanes.saturating_sub(lane).min(LANES);
            let (first, second) =
                ((x.steps - p).min(LANES), (x.steps - p).saturating_sub(LANES).min(LANES));
            let u = load(s, role, x, data, how, (lane, count), (p, first));
            let v = load(s, role, x, data, how, (lane, count), (p + LANES, second));
            for r in 0..LANES {
                let row = &mut tile[r * LANES..];
                check = store_parts::<PARTS>(s, u[r], v[r], row, check);
            }
        }
        let at = Span { start: 0, count: LINE };
        s.write(line, at, s.add(s.read(line, at), check));
    };
    // In the order of the source.
    if rows_are_lanes {
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
    role: Operand,
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
        if (x.step_stride == 1) != (role == Operand::A) {
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

/// Stores the parts of two vectors in a row of a tile, and the same row of each part's, and returns
/// `check` plus a sum that is NaN if one of them is not finite.
#[inline(always)]
fn store_parts<const PARTS: usize>(s: Avx512, u: V, v: V, row: &mut [f32], check: V) -> V {
    if PARTS == 1 {
        store_part(s, 0, u, v, row);
        return s.add(check, s.add(s.sub(u, u), s.sub(v, v)));
    }
    let (high_u, high_v) = (rounded(s, u), rounded(s, v));
    let (rest_u, rest_v) = (s.sub(u, high_u), s.sub(v, high_v));
    let (middle_u, middle_v) = (rounded(s, rest_u), rounded(s, rest_v));
    let (low_u, low_v) = (s.sub(rest_u, middle_u), s.sub(rest_v, middle_v));
    store_part(s, 0, high_u, high_v, row);
    store_part(s, 1, middle_u, middle_v, row);
    store_part(s, 2, low_u, low_v, row);
    s.add(check, s.add(low_u, low_v))
}

/// To bfloat16, ties away from zero. What is not finite, or is beyond its range, becomes something
/// from which it differs by NaN or infinity.
#[inline(always)]
fn rounded(s: Avx512, x: V) -> V {
    let half_up = s.add_i(s.bits(x), s.splat_i(0x8000));
    s.from_bits(s.and_i(half_up, s.splat_i(0xffff_0000)))
}

/// The upper halves of both, next to each other. What they have below is zero, but for denormal numbers.
#[inline(always)]
fn store_part(s: Avx512, part: usize, u: V, v: V, row: &mut [f32]) {
    let upper = s.and_i(s.bits(v), s.splat_i(0xffff_0000));
    let both = s.or_i(s.shift_right::<16>(s.bits(u)), upper);
    let at = Span { start: part * TILES * TILE, count: LANES };
    s.write(row, at, s.from_bits(both));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number at place (row, column) of a tile, which of the two, in part `part` of tile `t`.
    fn at(
        panel: &[f32],
        block: usize,
        part: usize,
        t: usize,
        place: (usize, usize),
        second: bool,
    ) -> f32 {
        let tile = ((block * 3 + part) * TILES + t) * TILE;
        let bits = panel[tile + place.0 * 16 + place.1].to_bits();
        f32::from_bits(if second { bits & 0xffff_0000 } else { bits << 16 })
    }

    #[test]
    fn parts_add_up_to_the_number_where_the_formula_says() {
        let Some(amx) = Amx::detect() else {
            println!("skipped: no AMX here");
            return;
        };
        // 24 bits of every pattern, both signs, far apart; and what rounds up to the next power.
        let number = |lane: usize, step: usize| match (lane * 131 + step) % 7 {
            0 => 0.0,
            1 => 1.999_999_9,
            2 => -3.141_592_7e-20,
            3 => 1.0 + (lane * 97 + step) as f32 * f32::EPSILON,
            4 => -1.7e38 / (step + 1) as f32,
            5 => (step as f32 - 40.3) * 1e10,
            _ => 1.0 / (lane * 100 + step + 1) as f32,
        };
        for (lanes, steps) in [(1, 1), (16, 32), (32, 64), (33, 33), (45, 70), (70, 17)] {
            for transposed in [false, true] {
                let at_of = |i: usize| {
                    if transposed {
                        number(i % lanes, i / lanes)
                    } else {
                        number(i / steps, i % steps)
                    }
                };
                let data: Vec<f32> = (0..lanes * steps).map(at_of).collect();
                let x = if transposed {
                    Matrix::new(&data, steps, lanes).transposed()
                } else {
                    Matrix::new(&data, lanes, steps)
                };
                for role in [Operand::A, Operand::B] {
                    let len = panel_len(3, steps);
                    let mut out = vec![f32::NAN; lanes.div_ceil(PANEL) * len + 3];
                    pack(amx, role, &x, 0..lanes, 0..steps, &mut out);
                    assert!(out[out.len() - 3..].iter().all(|x| x.is_nan()), "wrote behind");
                    for lane in 0..lanes.next_multiple_of(PANEL) {
                        for step in 0..steps.next_multiple_of(STEPS) {
                            let panel = &out[lane / PANEL * len..][..len];
                            let (l, i) = (lane % LANES, step % LANES);
                            let place = if role == Operand::A { (l, i) } else { (i, l) };
                            let second = step % STEPS >= LANES;
                            let [high, middle, low] = [0, 1, 2].map(|part| {
                                at(panel, step / STEPS, part, lane % PANEL / LANES, place, second)
                            });
                            let there = lane < lanes && step < steps;
                            let want = if there { number(lane, step) } else { 0.0 };
                            let what = format!("{lanes}×{steps} {role:?}: ({lane}, {step})");
                            assert_eq!(high + (middle + low), want, "{what}");
                            assert!(middle.abs() <= want.abs() / 256.0, "{what}: {middle}");
                            assert!(low.abs() <= want.abs() / 131_072.0, "{what}: {low}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_finite_is_noticed() {
        let Some(amx) = Amx::detect() else {
            println!("skipped: no AMX here");
            return;
        };
        let (lanes, steps) = (40, 50);
        for bad in [f32::NAN, f32::from_bits(0x7fff_ffff), f32::INFINITY, -f32::INFINITY, f32::MAX]
        {
            for (lane, step) in [(0, 0), (31, 49), (39, 17)] {
                let mut data = vec![0.5; lanes * steps];
                data[lane * steps + step] = bad;
                let x = Matrix::new(&data, lanes, steps);
                let len = panel_len(3, steps);
                let mut out = vec![0.0; 2 * len];
                pack(amx, Operand::A, &x, 0..lanes, 0..steps, &mut out);
                let finite: Vec<bool> = out.chunks(len).map(is_finite).collect();
                assert_eq!(finite, [lane >= PANEL, lane < PANEL], "{bad} at ({lane}, {step})");
            }
        }
    }
}
