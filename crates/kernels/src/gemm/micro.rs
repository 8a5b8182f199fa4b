//! The register-blocked tile product that every matrix product here is made of:
//! `C (R, W·LANES) = or += Aᵖ · Bᵖ`, over operands packed so that memory is read in order.
//!
//! The plain algorithm, for one tile:
//!
//! ```text
//! sum (R × columns) = 0
//! for p in 0..depth:  for i:  for j:  sum[i][j] += A[i][p] · B[p][j]
//! C = sum            or            C += sum
//! ```
//!
//! What makes it fast is that `sum` stays in registers, `B[p]` is loaded once for all R rows and
//! `A[i][p]` is broadcast once for all columns. So a step of R·W multiply-adds needs R + W loads.
//!
//! **Packed operands.** A is cut into panels of [`Tile::ROWS`] rows, B into panels of
//! [`Tile::COLUMNS`] columns. A panel holds, step of depth by step of depth, one number for each
//! of its rows (columns): `panel[p · ROWS + i] = A[i][p]`, `panel[p · COLUMNS + j] = B[p][j]`.
//! Panels follow each other; the last is padded ([`super::pack`] makes them).
//!
//! **Order of summation.** Each element is one chain of multiply-adds from zero over `p`
//! ascending, wherever it sits in whatever tile.

use crate::Write;
use crate::simd::Simd;

/// How an instruction set tiles a product.
pub(crate) trait Tile: Simd {
    /// Rows of a whole tile: numbers per step of a packed panel of A.
    const ROWS: usize;
    /// Vectors in a row of a whole tile.
    const VECTORS: usize;
    /// Columns of a whole tile: numbers per step of a packed panel of B.
    const COLUMNS: usize = Self::VECTORS * Self::LANES;

    /// `out = a·b` or `out += a·b` for one tile of `rows × columns`.
    ///
    /// # Safety
    /// `1 ≤ rows ≤ ROWS` and `1 ≤ columns ≤ COLUMNS`; `a` is valid for reading `depth · ROWS`
    /// floats, `b` for `depth · COLUMNS`; for each row `i` and column `j` of the tile
    /// `out + i · out_stride + j` is valid for writing (and reading, to add).
    unsafe fn tile(
        self,
        size: (usize, usize),
        depth: usize,
        a: *const f32,
        b: *const f32,
        out: *mut f32,
        out_stride: usize,
        write: Write,
    );

    /// `LANES` vectors of a square block, transposed: lane `j` of vector `i` becomes lane `i` of
    /// vector `j`. Vectors from `LANES` on are left alone.
    fn transpose(self, block: &mut [Self::V; 16]);

    /// The transpose of a square block in memory: lane `r` of vector `c` is `p[r · stride + c]`.
    ///
    /// # Safety
    /// Each of the `LANES` rows `p + r · stride` must be valid for reading `LANES` floats.
    #[inline(always)]
    unsafe fn load_transposed(self, p: *const f32, stride: usize) -> [Self::V; 16] {
        let mut block = [self.zero(); 16];
        for r in 0..Self::LANES {
            // SAFETY: row r is readable by the caller's promise.
            block[r] = unsafe { self.load(p.add(r * stride)) };
        }
        self.transpose(&mut block);
        block
    }
}

/// The product of packed operands on this thread: `out = A·B` or `out += A·B` with A
/// `rows × depth` in panels of [`Tile::ROWS`] and B `depth × columns` in panels of
/// [`Tile::COLUMNS`]. Row `i` of the result starts at `out[i · out_stride]`.
///
/// For operands that fit in the second-level cache together; loops over larger ones are the
/// caller's.
#[allow(dead_code, reason = "for attention")]
#[inline(always)]
pub(crate) fn product<S: Tile>(
    s: S,
    (rows, columns, depth): (usize, usize, usize),
    a: &[f32],
    b: &[f32],
    out: &mut [f32],
    out_stride: usize,
    write: Write,
) {
    if rows == 0 || columns == 0 {
        return;
    }
    assert!(a.len() >= rows.div_ceil(S::ROWS) * S::ROWS * depth, "A is packed for fewer rows");
    assert!(b.len() >= columns.div_ceil(S::COLUMNS) * S::COLUMNS * depth, "B has fewer columns");
    assert!(out.len() >= (rows - 1) * out_stride + columns, "{rows}×{columns} does not fit");
    for i in (0..rows).step_by(S::ROWS) {
        for j in (0..columns).step_by(S::COLUMNS) {
            let size = ((rows - i).min(S::ROWS), (columns - j).min(S::COLUMNS));
            // SAFETY: panel i / ROWS of A starts at i · depth and ends within the padded length
            // asserted above; likewise B; the tile ends at row i + size.0 ≤ rows and column
            // j + size.1 ≤ columns of `out`, inside by the last assertion.
            unsafe {
                let (a, b) = (a.as_ptr().add(i * depth), b.as_ptr().add(j * depth));
                let out = out.as_mut_ptr().add(i * out_stride + j);
                s.tile(size, depth, a, b, out, out_stride, write);
            }
        }
    }
}

/// One tile with `R` rows and `W` vectors, both known to the compiler so that `sum` lives in
/// registers. The safety contract is that of [`Tile::tile`], with `rows = R` and
/// `(W − 1) · LANES < columns ≤ W · LANES`.
#[inline(always)]
unsafe fn tile_of<S: Tile, const R: usize, const W: usize>(
    s: S,
    columns: usize,
    depth: usize,
    a: *const f32,
    b: *const f32,
    out: *mut f32,
    out_stride: usize,
    write: Write,
) {
    // The tile of C will be needed when the sum is done: have it come meanwhile.
    for i in 0..R {
        for w in 0..W {
            prefetch(out.wrapping_add(i * out_stride + w * S::LANES));
        }
    }
    let mut sum = [[s.zero(); W]; R];
    let (mut a, mut b) = (a, b);
    for _ in 0..depth {
        // SAFETY: step p of `depth` reads a[p · ROWS + i] with i < R ≤ ROWS and
        // b[p · COLUMNS + w · LANES..][..LANES] with w < W ≤ VECTORS, inside the panels.
        unsafe {
            let mut row = [s.zero(); W];
            for w in 0..W {
                row[w] = s.load(b.add(w * S::LANES));
            }
            for i in 0..R {
                let x = s.splat(*a.add(i));
                for w in 0..W {
                    sum[i][w] = s.mul_add(x, row[w], sum[i][w]);
                }
            }
            a = a.add(S::ROWS);
            b = b.add(S::COLUMNS);
        }
    }
    let last = columns - (W - 1) * S::LANES; // columns in the last vector
    // SAFETY: row i, columns from w · LANES: LANES of them, or `last` in the last vector, all
    // inside the tile that the caller vouches for. Each loop is small enough to be unrolled,
    // without which `sum` would not stay in registers.
    unsafe {
        if write == Write::Add {
            for i in 0..R {
                for w in 0..W - 1 {
                    let p = out.add(i * out_stride + w * S::LANES);
                    sum[i][w] = s.add(s.load(p), sum[i][w]);
                }
            }
            if last == S::LANES {
                for i in 0..R {
                    let p = out.add(i * out_stride + (W - 1) * S::LANES);
                    sum[i][W - 1] = s.add(s.load(p), sum[i][W - 1]);
                }
            } else {
                for i in 0..R {
                    let p = out.add(i * out_stride + (W - 1) * S::LANES);
                    sum[i][W - 1] = s.add(s.load_first(last, p), sum[i][W - 1]);
                }
            }
        }
        for i in 0..R {
            for w in 0..W - 1 {
                s.store(out.add(i * out_stride + w * S::LANES), sum[i][w]);
            }
        }
        if last == S::LANES {
            for i in 0..R {
                s.store(out.add(i * out_stride + (W - 1) * S::LANES), sum[i][W - 1]);
            }
        } else {
            for i in 0..R {
                s.store_first(last, out.add(i * out_stride + (W - 1) * S::LANES), sum[i][W - 1]);
            }
        }
    }
}

/// Asks for the cache line of `p`; harmless for any address.
#[inline(always)]
fn prefetch(p: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint and does not fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// Implements [`Tile::tile`] as a choice among the sizes `R × W` that are compiled.
macro_rules! tiles {
    (($($feature:literal)?), $set:ty, $($rows:literal)+) => {
        unsafe fn tile(
            self,
            size: (usize, usize),
            depth: usize,
            a: *const f32,
            b: *const f32,
            out: *mut f32,
            out_stride: usize,
            write: Write,
        ) {
            // A function of its own, so that the sizes are compiled once for each set. Where a
            // tile is one vector wide, both columns of the table are the same.
            #[allow(unreachable_patterns)]
            $(#[target_feature(enable = $feature)])?
            unsafe fn choose(
                s: $set,
                (rows, columns): (usize, usize),
                depth: usize,
                a: *const f32,
                b: *const f32,
                out: *mut f32,
                out_stride: usize,
                write: Write,
            ) {
                const W: usize = <$set as Tile>::VECTORS;
                // SAFETY: passed on from the caller of `tile`; the size is the one asked for.
                unsafe {
                    match (rows, columns.div_ceil(<$set>::LANES)) {
                        $(($rows, W) => tile_of::<_, $rows, W>(
                            s, columns, depth, a, b, out, out_stride, write),)+
                        $(($rows, 1) => tile_of::<_, $rows, 1>(
                            s, columns, depth, a, b, out, out_stride, write),)+
                        _ => unreachable!("a tile of {rows}×{columns}"),
                    }
                }
            }
            // SAFETY: the contract is the same, and the token shows that the CPU has the set.
            unsafe { choose(self, size, depth, a, b, out, out_stride, write) }
        }
    };
}

impl Tile for crate::simd::Portable {
    // 4 × 8 sums are eight of the sixteen 4-lane registers of the x86-64 baseline.
    const ROWS: usize = 4;
    const VECTORS: usize = 1;
    tiles!((), crate::simd::Portable, 1 2 3 4);

    #[inline(always)]
    fn transpose(self, block: &mut [Self::V; 16]) {
        for i in 0..Self::LANES {
            for j in 0..i {
                let (x, y) = (block[i][j], block[j][i]);
                block[i][j] = y;
                block[j][i] = x;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Tile, Write, tile_of};
    use crate::simd::{Avx2, Avx512, Simd};
    use std::arch::x86_64::*;

    impl Tile for Avx2 {
        // 6 × 2 sums, 2 vectors of B and 1 broadcast are 15 of 16 registers.
        const ROWS: usize = 6;
        const VECTORS: usize = 2;
        tiles!(("avx2,fma,f16c"), Avx2, 1 2 3 4 5 6);

        #[inline(always)]
        fn transpose(self, block: &mut [__m256; 16]) {
            let v = *block;
            // SAFETY: an `Avx2` exists only where the CPU has the instructions.
            unsafe {
                let mut pairs = [v[0]; 8];
                for i in 0..4 {
                    pairs[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
                    pairs[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
                }
                // fours[4 · half + c]: column c (and c + 4 in the upper lane) of rows 4 · half..
                let mut fours = [v[0]; 8];
                for half in 0..2 {
                    let p = [
                        pairs[4 * half],
                        pairs[4 * half + 1],
                        pairs[4 * half + 2],
                        pairs[4 * half + 3],
                    ];
                    fours[4 * half] = _mm256_shuffle_ps::<0x44>(p[0], p[2]);
                    fours[4 * half + 1] = _mm256_shuffle_ps::<0xee>(p[0], p[2]);
                    fours[4 * half + 2] = _mm256_shuffle_ps::<0x44>(p[1], p[3]);
                    fours[4 * half + 3] = _mm256_shuffle_ps::<0xee>(p[1], p[3]);
                }
                for c in 0..4 {
                    block[c] = _mm256_permute2f128_ps::<0x20>(fours[c], fours[4 + c]);
                    block[4 + c] = _mm256_permute2f128_ps::<0x31>(fours[c], fours[4 + c]);
                }
            }
        }
    }

    impl Tile for Avx512 {
        // 14 × 2 sums, 2 vectors of B and 1 broadcast are 31 of 32 registers.
        const ROWS: usize = 14;
        const VECTORS: usize = 2;
        tiles!(("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"), Avx512,
            1 2 3 4 5 6 7 8 9 10 11 12 13 14);

        #[inline(always)]
        fn transpose(self, block: &mut [__m512; 16]) {
            // SAFETY: an `Avx512` exists only where the CPU has the instructions.
            unsafe {
                // Gather rows r, r + 4, r + 8, r + 12 of one 4-column group into the four lanes
                // of a vector; then 4 × 4 blocks are transposed inside the lanes.
                let mut lanes = [block[0]; 16]; // [4 · group + r]
                for r in 0..4 {
                    let v = [block[r], block[r + 4], block[r + 8], block[r + 12]];
                    let low = _mm512_shuffle_f32x4::<0x44>(v[0], v[1]); // groups 0 1 of both
                    let high = _mm512_shuffle_f32x4::<0xee>(v[0], v[1]); // groups 2 3
                    let low2 = _mm512_shuffle_f32x4::<0x44>(v[2], v[3]);
                    let high2 = _mm512_shuffle_f32x4::<0xee>(v[2], v[3]);
                    lanes[r] = _mm512_shuffle_f32x4::<0x88>(low, low2);
                    lanes[4 + r] = _mm512_shuffle_f32x4::<0xdd>(low, low2);
                    lanes[8 + r] = _mm512_shuffle_f32x4::<0x88>(high, high2);
                    lanes[12 + r] = _mm512_shuffle_f32x4::<0xdd>(high, high2);
                }
                *block = transpose_lanes(lanes);
            }
        }

        #[inline(always)]
        unsafe fn load_transposed(self, p: *const f32, stride: usize) -> [__m512; 16] {
            // SAFETY: rows r, r + 4, r + 8, r + 12 have 16 readable floats, of which four are
            // read at 4 · group; the CPU has the instructions.
            unsafe {
                // An insertion from memory needs no shuffle unit, which `transpose` is bound by.
                let mut lanes = [_mm512_setzero_ps(); 16]; // [4 · group + r]
                for group in 0..4 {
                    for r in 0..4 {
                        let at = |row: usize| _mm_loadu_ps(p.add(row * stride + 4 * group));
                        let v = _mm512_castps128_ps512(at(r));
                        let v = _mm512_insertf32x4::<1>(v, at(r + 4));
                        let v = _mm512_insertf32x4::<2>(v, at(r + 8));
                        lanes[4 * group + r] = _mm512_insertf32x4::<3>(v, at(r + 12));
                    }
                }
                transpose_lanes(lanes)
            }
        }
    }

    /// Transposes 4 × 4 blocks inside the 128-bit lanes of vectors 4g to 4g + 3, for each g.
    #[inline(always)]
    unsafe fn transpose_lanes(v: [__m512; 16]) -> [__m512; 16] {
        let mut out = v;
        for g in 0..4 {
            // SAFETY: called from methods of `Avx512`, so the CPU has the instructions.
            unsafe {
                let low01 = _mm512_unpacklo_ps(v[4 * g], v[4 * g + 1]);
                let high01 = _mm512_unpackhi_ps(v[4 * g], v[4 * g + 1]);
                let low23 = _mm512_unpacklo_ps(v[4 * g + 2], v[4 * g + 3]);
                let high23 = _mm512_unpackhi_ps(v[4 * g + 2], v[4 * g + 3]);
                out[4 * g] = _mm512_shuffle_ps::<0x44>(low01, low23);
                out[4 * g + 1] = _mm512_shuffle_ps::<0xee>(low01, low23);
                out[4 * g + 2] = _mm512_shuffle_ps::<0x44>(high01, high23);
                out[4 * g + 3] = _mm512_shuffle_ps::<0xee>(high01, high23);
            }
        }
        out
    }
}
