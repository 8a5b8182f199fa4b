//! Square blocks transposed in registers, for packing.

use crate::simd::{Portable, Simd};

/// How an instruction set transposes a block of `LANES × LANES`.
pub(crate) trait Transpose: Simd {
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

impl Transpose for Portable {
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
    use super::Transpose;
    use crate::simd::{Avx2, Avx512};
    // Not `expect`: clippy lets it pass in test builds.
    #[allow(clippy::wildcard_imports, reason = "intrinsics, one by one, would fill a page")]
    use std::arch::x86_64::*;

    impl Transpose for Avx2 {
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

    impl Transpose for Avx512 {
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
                // Rows outside: the four pieces of a line are read while it is sure to be in the
                // first-level cache, where rows a multiple of 4 KiB apart compete for one set.
                for r in 0..4 {
                    for group in 0..4 {
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
