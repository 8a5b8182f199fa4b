//! Sixteen lanes: AVX-512 F, BW, DQ and VL.

use super::Simd;
#[allow(clippy::wildcard_imports, reason = "the intrinsics are this file's vocabulary")]
use std::arch::x86_64::*;

/// Shows that this CPU has AVX-512 F, BW, DQ and VL.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Avx512 {
    /// The token, if the CPU has the instructions.
    #[inline(always)]
    pub fn detect() -> Option<Self> {
        crate::isa::Isa::Avx512.available().then_some(Self(()))
    }
}

/// Calls intrinsics of the set that the token `self` stands for.
macro_rules! here {
    ($e:expr) => {{
        // SAFETY: an `Avx512` exists only where `detect` found the instructions; memory, where it
        // is touched, is what the caller of the trait's unsafe method vouches for.
        unsafe { $e }
    }};
}

/// The first `count` lanes switched on.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    debug_assert!(count <= 16);
    ((1_u32 << count) - 1) as __mmask16
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    type V = __m512;
    type I = __m512i;
    type M = __mmask16;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        here!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        here!(_mm512_loadu_ps(p))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m512) {
        here!(_mm512_storeu_ps(p, v));
    }
    #[inline(always)]
    unsafe fn load_first(self, count: usize, p: *const f32) -> __m512 {
        here!(_mm512_maskz_loadu_ps(first(count), p))
    }
    #[inline(always)]
    unsafe fn store_first(self, count: usize, p: *mut f32, v: __m512) {
        here!(_mm512_mask_storeu_ps(p, first(count), v));
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        here!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        here!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        here!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        here!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        here!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn neg_mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        here!(_mm512_fnmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        here!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        here!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        here!(_mm512_sqrt_ps(a))
    }
    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        here!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn less(self, a: __m512, b: __m512) -> __mmask16 {
        here!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    fn less_equal(self, a: __m512, b: __m512) -> __mmask16 {
        here!(_mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b))
    }
    #[inline(always)]
    fn select(self, m: __mmask16, yes: __m512, no: __m512) -> __m512 {
        here!(_mm512_mask_blend_ps(m, no, yes))
    }

    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        here!({
            let low = _mm512_castps512_ps256(a);
            let eight = _mm256_add_ps(low, _mm512_extractf32x8_ps::<1>(a));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        })
    }
    #[inline(always)]
    fn swap_pairs(self, a: __m512) -> __m512 {
        here!(_mm512_permute_ps::<0b10_11_00_01>(a))
    }
    #[inline(always)]
    fn largest(self, a: __m512) -> f32 {
        here!({
            let low = _mm512_castps512_ps256(a);
            let eight = _mm256_max_ps(low, _mm512_extractf32x8_ps::<1>(a));
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        })
    }

    #[inline(always)]
    fn bits(self, a: __m512) -> __m512i {
        here!(_mm512_castps_si512(a))
    }
    #[inline(always)]
    fn from_bits(self, a: __m512i) -> __m512 {
        here!(_mm512_castsi512_ps(a))
    }
    #[inline(always)]
    fn splat_i(self, x: u32) -> __m512i {
        here!(_mm512_set1_epi32(x as i32))
    }
    #[inline(always)]
    fn iota(self) -> __m512i {
        here!(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
    }
    #[inline(always)]
    fn add_i(self, a: __m512i, b: __m512i) -> __m512i {
        here!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn mul_i(self, a: __m512i, b: __m512i) -> __m512i {
        here!(_mm512_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn and_i(self, a: __m512i, b: __m512i) -> __m512i {
        here!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn or_i(self, a: __m512i, b: __m512i) -> __m512i {
        here!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn xor_i(self, a: __m512i, b: __m512i) -> __m512i {
        here!(_mm512_xor_si512(a, b))
    }
    #[inline(always)]
    fn shift_left<const N: u32>(self, a: __m512i) -> __m512i {
        here!(_mm512_sllv_epi32(a, _mm512_set1_epi32(N as i32)))
    }
    #[inline(always)]
    fn shift_right<const N: u32>(self, a: __m512i) -> __m512i {
        here!(_mm512_srlv_epi32(a, _mm512_set1_epi32(N as i32)))
    }
    #[inline(always)]
    fn to_int(self, a: __m512) -> __m512i {
        here!(_mm512_cvtps_epi32(a))
    }
    #[inline(always)]
    fn to_float(self, a: __m512i) -> __m512 {
        here!(_mm512_cvtepi32_ps(a))
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> __m512 {
        here!(_mm512_cvtph_ps(_mm256_loadu_si256(p.cast())))
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: __m512) {
        here!(_mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)));
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> __m512 {
        here!({
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        })
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16, v: __m512) {
        here!({
            // Ties to even: add half of the last kept bit, less one if that bit is zero.
            let bits = _mm512_castps_si512(v);
            let last = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff));
            let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half));
            // A NaN could round to infinity; keep its top bits and make it quiet.
            let nan = _mm512_or_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(0x40));
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
            let picked = _mm512_mask_blend_epi32(is_nan, rounded, nan);
            _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(picked));
        });
    }
}
