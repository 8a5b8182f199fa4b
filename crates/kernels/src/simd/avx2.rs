//! Eight lanes: AVX2 with FMA and F16C.

use super::Simd;
#[allow(clippy::wildcard_imports, reason = "the intrinsics are this file's vocabulary")]
use std::arch::x86_64::*;

/// Shows that this CPU has AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    /// The token, if the CPU has the instructions.
    #[inline(always)]
    pub fn detect() -> Option<Self> {
        crate::isa::Isa::Avx2.available().then_some(Self(()))
    }
}

/// Calls intrinsics of the set that the token `self` stands for.
macro_rules! here {
    ($e:expr) => {{
        // SAFETY: an `Avx2` exists only where `detect` found the instructions; memory, where it
        // is touched, is what the caller of the trait's unsafe method vouches for.
        unsafe { $e }
    }};
}

/// Sixteen words of which eight start at `8 − count`: the first `count` lanes are switched on.
static FIRST: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

#[inline(always)]
fn first(count: usize) -> __m256i {
    debug_assert!(count <= 8);
    // SAFETY: 8 − count is within 0..=8, so eight words lie inside the sixteen; called only from
    // methods of `Avx2`, so the CPU has the load.
    unsafe { _mm256_loadu_si256(FIRST.as_ptr().add(8 - count).cast()) }
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    type V = __m256;
    type I = __m256i;
    type M = __m256;

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        here!(_mm256_set1_ps(x))
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        here!(_mm256_loadu_ps(p))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m256) {
        here!(_mm256_storeu_ps(p, v));
    }
    #[inline(always)]
    unsafe fn load_first(self, count: usize, p: *const f32) -> __m256 {
        here!(_mm256_maskload_ps(p, first(count)))
    }
    #[inline(always)]
    unsafe fn store_first(self, count: usize, p: *mut f32, v: __m256) {
        here!(_mm256_maskstore_ps(p, first(count), v));
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        here!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        here!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        here!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        here!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        here!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn neg_mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        here!(_mm256_fnmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        here!(_mm256_min_ps(a, b))
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        here!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn sqrt(self, a: __m256) -> __m256 {
        here!(_mm256_sqrt_ps(a))
    }
    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        here!(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn less(self, a: __m256, b: __m256) -> __m256 {
        here!(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    fn less_equal(self, a: __m256, b: __m256) -> __m256 {
        here!(_mm256_cmp_ps::<_CMP_LE_OQ>(a, b))
    }
    #[inline(always)]
    fn select(self, m: __m256, yes: __m256, no: __m256) -> __m256 {
        here!(_mm256_blendv_ps(no, yes, m))
    }

    #[inline(always)]
    fn sum(self, a: __m256) -> f32 {
        here!({
            let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        })
    }
    #[inline(always)]
    fn swap_pairs(self, a: __m256) -> __m256 {
        here!(_mm256_permute_ps::<0b10_11_00_01>(a))
    }
    #[inline(always)]
    fn largest(self, a: __m256) -> f32 {
        here!({
            let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        })
    }

    #[inline(always)]
    fn bits(self, a: __m256) -> __m256i {
        here!(_mm256_castps_si256(a))
    }
    #[inline(always)]
    fn from_bits(self, a: __m256i) -> __m256 {
        here!(_mm256_castsi256_ps(a))
    }
    #[inline(always)]
    fn splat_i(self, x: u32) -> __m256i {
        here!(_mm256_set1_epi32(x as i32))
    }
    #[inline(always)]
    fn iota(self) -> __m256i {
        here!(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
    }
    #[inline(always)]
    fn add_i(self, a: __m256i, b: __m256i) -> __m256i {
        here!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn mul_i(self, a: __m256i, b: __m256i) -> __m256i {
        here!(_mm256_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn and_i(self, a: __m256i, b: __m256i) -> __m256i {
        here!(_mm256_and_si256(a, b))
    }
    #[inline(always)]
    fn or_i(self, a: __m256i, b: __m256i) -> __m256i {
        here!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn xor_i(self, a: __m256i, b: __m256i) -> __m256i {
        here!(_mm256_xor_si256(a, b))
    }
    #[inline(always)]
    fn shift_left<const N: u32>(self, a: __m256i) -> __m256i {
        here!(_mm256_sllv_epi32(a, _mm256_set1_epi32(N as i32)))
    }
    #[inline(always)]
    fn shift_right<const N: u32>(self, a: __m256i) -> __m256i {
        here!(_mm256_srlv_epi32(a, _mm256_set1_epi32(N as i32)))
    }
    #[inline(always)]
    fn to_int(self, a: __m256) -> __m256i {
        here!(_mm256_cvtps_epi32(a))
    }
    #[inline(always)]
    fn to_float(self, a: __m256i) -> __m256 {
        here!(_mm256_cvtepi32_ps(a))
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> __m256 {
        here!(_mm256_cvtph_ps(_mm_loadu_si128(p.cast())))
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: __m256) {
        here!(_mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)));
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> __m256 {
        here!({
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        })
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16, v: __m256) {
        here!({
            // Ties to even: add half of the last kept bit, less one if that bit is zero.
            let bits = _mm256_castps_si256(v);
            let last = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let half = _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff));
            let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half));
            // A NaN could round to infinity; keep its top bits and make it quiet.
            let nan = _mm256_or_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(0x40));
            let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
            let picked = _mm256_blendv_epi8(rounded, nan, is_nan);
            let low = _mm256_castsi256_si128(picked);
            let high = _mm256_extracti128_si256::<1>(picked);
            _mm_storeu_si128(p.cast(), _mm_packus_epi32(low, high));
        });
    }
}
