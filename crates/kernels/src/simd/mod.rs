//! One small vector trait, and the loops over slices that are written with it.
//!
//! A kernel is an `#[inline(always)]` function generic over [`Simd`]; [`dispatch!`](crate::dispatch) makes the
//! public function that picks the instruction set at run time. Inside, a loop runs over
//! [`Span`]s with [`each_span!`](crate::each_span): whole vectors, then one shorter span at the end.
//!
//! ```
//! use hearken_kernels::simd::{Simd, Span};
//! use hearken_kernels::{dispatch, each_span};
//!
//! dispatch! {
//!     /// out = x²
//!     pub fn square(x: &[f32], out: &mut [f32]) => square_on
//! }
//!
//! #[inline(always)]
//! fn square_on<S: Simd>(s: S, x: &[f32], out: &mut [f32]) {
//!     assert_eq!(x.len(), out.len());
//!     each_span!(S, x.len(), |at| {
//!         let v = s.read(x, at);
//!         s.write(out, at, s.mul(v, v));
//!     });
//! }
//!
//! let mut out = [0.0; 3];
//! square(&[1.0, 2.0, 3.0], &mut out);
//! assert_eq!(out, [1.0, 4.0, 9.0]);
//! ```

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
pub(crate) mod reduce;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use portable::Portable;

/// Consecutive elements that fit in one vector: `count` of them, from `start`.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Index of the first element.
    pub start: usize,
    /// How many; at most the number of lanes.
    pub count: usize,
}

/// Vectors of one instruction set.
///
/// A value of the implementing type is a token: it exists only where the CPU has the
/// instructions, which is what makes the methods safe to call.
///
/// Comparisons follow IEEE 754: with a NaN they are false. `min(a, b)` and `max(a, b)` give `b`
/// when either is NaN.
pub trait Simd: Copy + Send + Sync + 'static {
    /// Number of `f32` in a vector.
    const LANES: usize;
    /// A vector of `f32`.
    type V: Copy;
    /// A vector of 32-bit integers, as many as there are `f32`.
    type I: Copy;
    /// One truth value per lane.
    type M: Copy;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::V;
    /// # Safety
    /// `p` must be valid for reading `LANES` floats; no alignment needed.
    unsafe fn load(self, p: *const f32) -> Self::V;
    /// # Safety
    /// `p` must be valid for writing `LANES` floats; no alignment needed.
    unsafe fn store(self, p: *mut f32, v: Self::V);
    /// The first `count` lanes from memory, the others zero.
    /// # Safety
    /// `p` must be valid for reading `count` floats, and `count ≤ LANES`.
    unsafe fn load_first(self, count: usize, p: *const f32) -> Self::V;
    /// Writes the first `count` lanes.
    /// # Safety
    /// `p` must be valid for writing `count` floats, and `count ≤ LANES`.
    unsafe fn store_first(self, count: usize, p: *mut f32, v: Self::V);

    /// a + b
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// a − b
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// a · b
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// a / b
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// a · b + c, rounded once where the hardware can.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// c − a · b
    fn neg_mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The smaller, lane by lane.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The larger, lane by lane.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// √a
    fn sqrt(self, a: Self::V) -> Self::V;
    /// The nearest whole number, ties to even. Only for |a| < 2²².
    fn round(self, a: Self::V) -> Self::V;

    /// a < b
    fn less(self, a: Self::V, b: Self::V) -> Self::M;
    /// a ≤ b
    fn less_equal(self, a: Self::V, b: Self::V) -> Self::M;
    /// `yes` where `m`, else `no`.
    fn select(self, m: Self::M, yes: Self::V, no: Self::V) -> Self::V;

    /// The sum of all lanes, in a fixed order.
    fn sum(self, a: Self::V) -> f32;
    /// Lanes 0 and 1 exchanged, 2 and 3, and so on.
    fn swap_pairs(self, a: Self::V) -> Self::V;
    /// The largest lane.
    fn largest(self, a: Self::V) -> f32;

    /// The bits as integers.
    fn bits(self, a: Self::V) -> Self::I;
    /// The integers as bits of floats.
    #[expect(clippy::wrong_self_convention, reason = "`self` is the token, not the value")]
    fn from_bits(self, a: Self::I) -> Self::V;
    /// All lanes `x`.
    fn splat_i(self, x: u32) -> Self::I;
    /// 0, 1, 2, …
    fn iota(self) -> Self::I;
    /// Wrapping sum.
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Low 32 bits of the product.
    fn mul_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise and.
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise or.
    fn or_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise exclusive or.
    fn xor_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Towards the high bits, zeros come in.
    fn shift_left<const N: u32>(self, a: Self::I) -> Self::I;
    /// Towards the low bits, zeros come in.
    fn shift_right<const N: u32>(self, a: Self::I) -> Self::I;
    /// The nearest integer of a float within ±2³¹, as two's complement.
    fn to_int(self, a: Self::V) -> Self::I;
    /// The float of a signed integer.
    fn to_float(self, a: Self::I) -> Self::V;

    /// Widens `LANES` IEEE half-precision numbers.
    /// # Safety
    /// `p` must be valid for reading `LANES` 16-bit numbers.
    unsafe fn load_f16(self, p: *const u16) -> Self::V;
    /// Rounds to IEEE half precision, ties to even.
    /// # Safety
    /// `p` must be valid for writing `LANES` 16-bit numbers.
    unsafe fn store_f16(self, p: *mut u16, v: Self::V);
    /// Widens `LANES` bfloat16 numbers.
    /// # Safety
    /// `p` must be valid for reading `LANES` 16-bit numbers.
    unsafe fn load_bf16(self, p: *const u16) -> Self::V;
    /// Rounds to bfloat16, ties to even; NaN stays NaN.
    /// # Safety
    /// `p` must be valid for writing `LANES` 16-bit numbers.
    unsafe fn store_bf16(self, p: *mut u16, v: Self::V);

    /// The elements of `x` at `at`, zeros behind them.
    #[inline(always)]
    fn read(self, x: &[f32], at: Span) -> Self::V {
        let x = &x[at.start..at.start + at.count];
        if at.count == Self::LANES {
            // SAFETY: x holds LANES elements.
            unsafe { self.load(x.as_ptr()) }
        } else {
            assert!(at.count < Self::LANES);
            // SAFETY: x holds `count` elements, and count < LANES.
            unsafe { self.load_first(at.count, x.as_ptr()) }
        }
    }

    /// Writes the elements of `out` at `at`.
    #[inline(always)]
    fn write(self, out: &mut [f32], at: Span, v: Self::V) {
        let out = &mut out[at.start..at.start + at.count];
        if at.count == Self::LANES {
            // SAFETY: out holds LANES elements.
            unsafe { self.store(out.as_mut_ptr(), v) }
        } else {
            assert!(at.count < Self::LANES);
            // SAFETY: out holds `count` elements, and count < LANES.
            unsafe { self.store_first(at.count, out.as_mut_ptr(), v) }
        }
    }

    /// Writes the elements of `out` at `at`, or adds to them.
    #[inline(always)]
    fn put(self, out: &mut [f32], at: Span, v: Self::V, write: crate::Write) {
        let v = match write {
            crate::Write::Set => v,
            crate::Write::Add => self.add(self.read(out, at), v),
        };
        self.write(out, at, v);
    }

    /// |a|
    #[inline(always)]
    fn abs(self, a: Self::V) -> Self::V {
        self.from_bits(self.and_i(self.bits(a), self.splat_i(0x7fff_ffff)))
    }

    /// The size of `a` with the sign of `sign`.
    #[inline(always)]
    fn copy_sign(self, a: Self::V, sign: Self::V) -> Self::V {
        let size = self.and_i(self.bits(a), self.splat_i(0x7fff_ffff));
        let sign = self.and_i(self.bits(sign), self.splat_i(0x8000_0000));
        self.from_bits(self.or_i(size, sign))
    }

    /// All lanes zero.
    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }

    /// `v` in the first `count` lanes, `fill` behind them.
    #[inline(always)]
    fn keep_first(self, count: usize, v: Self::V, fill: Self::V) -> Self::V {
        if count == Self::LANES {
            return v;
        }
        let lane = self.to_float(self.iota());
        self.select(self.less(lane, self.splat(count as f32)), v, fill)
    }
}

/// Runs a block for each [`Span`](crate::simd::Span) of a length: `each_span!(S, len, |at| { … })`.
///
/// The block is expanded twice, once for whole vectors, where `at.count` is a constant and its
/// branches fold away, and once for what is left. It is a macro and not a function over a
/// closure because a closure that is not inlined would lose the instruction set.
#[macro_export]
macro_rules! each_span {
    ($S:ty, $len:expr, |$at:ident| $body:block) => {{
        let lanes = <$S as $crate::simd::Simd>::LANES;
        let len: usize = $len;
        let mut start = 0;
        while start + lanes <= len {
            let $at = $crate::simd::Span { start, count: lanes };
            $body
            start += lanes;
        }
        if start < len {
            let $at = $crate::simd::Span { start, count: len - start };
            $body
        }
    }};
}

/// Declares functions that run a generic kernel on the instruction set of the moment:
/// `dispatch! { pub fn name(x: &[f32]) -> f32 => generic_name }` calls
/// `generic_name(s, x)`, an `#[inline(always)]` function generic over
/// [`Simd`](crate::simd::Simd). One type parameter more may be given, `fn name<M: Bound>(…)`.
#[macro_export]
macro_rules! dispatch {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident $(<$type:ident : $bound:path>)?
        ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? => $generic:path)+) => {$(
        $(#[$meta])*
        $vis fn $name $(<$type: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
                fn on_avx512 $(<$type: $bound>)? (s: $crate::simd::Avx512, $($arg: $ty),*) $(-> $ret)? {
                    $generic(s, $($arg),*)
                }
                #[target_feature(enable = "avx2,fma,f16c")]
                fn on_avx2 $(<$type: $bound>)? (s: $crate::simd::Avx2, $($arg: $ty),*) $(-> $ret)? {
                    $generic(s, $($arg),*)
                }
                match $crate::isa::current() {
                    $crate::isa::Isa::Amx | $crate::isa::Isa::Avx512 => {
                        if let Some(s) = $crate::simd::Avx512::detect() {
                            // SAFETY: the token shows that the CPU has these features.
                            return unsafe { on_avx512(s, $($arg),*) };
                        }
                    }
                    $crate::isa::Isa::Avx2 => {
                        if let Some(s) = $crate::simd::Avx2::detect() {
                            // SAFETY: the token shows that the CPU has these features.
                            return unsafe { on_avx2(s, $($arg),*) };
                        }
                    }
                    $crate::isa::Isa::Portable => {}
                }
            }
            $generic($crate::simd::Portable, $($arg),*)
        }
    )+};
}

#[cfg(test)]
mod tests;
