//! Vectors in plain Rust, for CPUs without AVX2. Arrays of eight, which the compiler turns into
//! whatever the target's baseline has.

use super::Simd;
use half::{bf16, f16};

/// The token of the portable set; always available.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

const LANES: usize = 8;
type F = [f32; LANES];
type U = [u32; LANES];

#[inline(always)]
fn map2(a: F, b: F, f: impl Fn(f32, f32) -> f32) -> F {
    std::array::from_fn(|i| f(a[i], b[i]))
}

#[inline(always)]
fn map2_i(a: U, b: U, f: impl Fn(u32, u32) -> u32) -> U {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Portable {
    const LANES: usize = LANES;
    type V = F;
    type I = U;
    /// All bits set, or none: what the compiler turns into compare and blend.
    type M = U;

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> F {
        // SAFETY: the caller gives LANES readable floats.
        unsafe { p.cast::<F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: F) {
        // SAFETY: the caller gives LANES writable floats.
        unsafe { p.cast::<F>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_first(self, count: usize, p: *const f32) -> F {
        // SAFETY: only lanes below `count` are read.
        std::array::from_fn(|i| if i < count { unsafe { *p.add(i) } } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn store_first(self, count: usize, p: *mut f32, v: F) {
        // SAFETY: the caller gives `count` writable floats, and count ≤ LANES.
        unsafe { std::ptr::copy_nonoverlapping(v.as_ptr(), p, count) }
    }

    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        map2(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        map2(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        map2(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        map2(a, b, |a, b| a / b)
    }
    // Rounded twice: without the instruction, `f32::mul_add` would call a slow library function.
    #[inline(always)]
    fn mul_add(self, a: F, b: F, c: F) -> F {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn neg_mul_add(self, a: F, b: F, c: F) -> F {
        std::array::from_fn(|i| c[i] - a[i] * b[i])
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        map2(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        map2(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn sqrt(self, a: F) -> F {
        a.map(f32::sqrt)
    }
    #[inline(always)]
    fn round(self, a: F) -> F {
        // Adding 1.5·2²³ leaves no bits for the fraction, and the addition rounds to even.
        const SHIFT: f32 = 12_582_912.0;
        a.map(|a| (a + SHIFT) - SHIFT)
    }

    #[inline(always)]
    fn less(self, a: F, b: F) -> U {
        std::array::from_fn(|i| if a[i] < b[i] { !0 } else { 0 })
    }
    #[inline(always)]
    fn less_equal(self, a: F, b: F) -> U {
        std::array::from_fn(|i| if a[i] <= b[i] { !0 } else { 0 })
    }
    #[inline(always)]
    fn select(self, m: U, yes: F, no: F) -> F {
        std::array::from_fn(|i| {
            f32::from_bits((yes[i].to_bits() & m[i]) | (no[i].to_bits() & !m[i]))
        })
    }

    #[inline(always)]
    fn sum(self, a: F) -> f32 {
        let four: [f32; 4] = std::array::from_fn(|i| a[i] + a[i + 4]);
        (four[0] + four[2]) + (four[1] + four[3])
    }
    #[inline(always)]
    fn swap_pairs(self, a: F) -> F {
        std::array::from_fn(|i| a[i ^ 1])
    }
    #[inline(always)]
    fn largest(self, a: F) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, |m, x| if x > m { x } else { m })
    }

    #[inline(always)]
    fn bits(self, a: F) -> U {
        a.map(f32::to_bits)
    }
    #[inline(always)]
    fn from_bits(self, a: U) -> F {
        a.map(f32::from_bits)
    }
    #[inline(always)]
    fn splat_i(self, x: u32) -> U {
        [x; LANES]
    }
    #[inline(always)]
    fn iota(self) -> U {
        std::array::from_fn(|i| i as u32)
    }
    #[inline(always)]
    fn add_i(self, a: U, b: U) -> U {
        map2_i(a, b, u32::wrapping_add)
    }
    #[inline(always)]
    fn mul_i(self, a: U, b: U) -> U {
        map2_i(a, b, u32::wrapping_mul)
    }
    #[inline(always)]
    fn and_i(self, a: U, b: U) -> U {
        map2_i(a, b, |a, b| a & b)
    }
    #[inline(always)]
    fn or_i(self, a: U, b: U) -> U {
        map2_i(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn xor_i(self, a: U, b: U) -> U {
        map2_i(a, b, |a, b| a ^ b)
    }
    #[inline(always)]
    fn shift_left<const N: u32>(self, a: U) -> U {
        a.map(|a| a << N)
    }
    #[inline(always)]
    fn shift_right<const N: u32>(self, a: U) -> U {
        a.map(|a| a >> N)
    }
    #[inline(always)]
    fn to_int(self, a: F) -> U {
        a.map(|a| (a.round_ties_even() as i32) as u32)
    }
    #[inline(always)]
    fn to_float(self, a: U) -> F {
        a.map(|a| (a as i32) as f32)
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> F {
        // SAFETY: the caller gives LANES readable numbers.
        let raw = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        raw.map(|b| f16::from_bits(b).to_f32())
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: F) {
        let raw = v.map(|x| f16::from_f32(x).to_bits());
        // SAFETY: the caller gives LANES writable numbers.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(raw) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> F {
        // SAFETY: the caller gives LANES readable numbers.
        let raw = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        raw.map(|b| bf16::from_bits(b).to_f32())
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16, v: F) {
        let raw = v.map(|x| bf16::from_f32(x).to_bits());
        // SAFETY: the caller gives LANES writable numbers.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(raw) }
    }
}
