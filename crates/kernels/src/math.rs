//! exp, ln, the logistic function and the normal distribution on vectors, and some over slices.
//!
//! Largest errors in units of the last place (ULP), as the tests below find them over the whole
//! range of f32: with fused multiply-add, and on the portable set, which rounds twice.
//!
//! | function  | fused | portable | outside                                                       |
//! |-----------|-------|----------|---------------------------------------------------------------|
//! | `exp`     | 0.9   | 1.2      | +∞ above 88.7228; 0 where the result is below 2⁻¹²⁶ (no denormals) |
//! | `ln`      | 0.8   | 0.8      | −∞ at ±0, NaN below 0, +∞ at +∞; denormals are read exactly    |
//! | `sigmoid` | 2.4   | 2.4      | 0 where the result is below 2⁻¹²⁸, 1 from x = 17.4 on          |
//!
//! Over slices a NaN gives a NaN. The coefficients are minimax fits of our own (iteratively reweighted least
//! squares on Chebyshev nodes), rounded to f32; the relative error of each exact fit is beside it.

use crate::simd::Simd;
use crate::threads;
use crate::{dispatch, each_span};

/// eˣ
///
/// x = n·ln 2 + r with |r| ≤ ½ ln 2; eʳ by a polynomial; then n is added to the exponent bits.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    let shifted = s.mul_add(x, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    let n = s.sub(shifted, s.splat(ROUND));
    let p = exp_of_small(s, reduce(s, x, n));
    let y = s.from_bits(s.add_i(s.bits(p), s.shift_left::<23>(s.bits(shifted))));
    let y = s.select(s.less(x, s.splat(LEAST_NORMAL_LN)), s.zero(), y);
    // Too large, or NaN: the sum is +∞ or NaN.
    s.select(s.less_equal(x, s.splat(LARGEST_LN)), y, s.add(x, s.splat(f32::INFINITY)))
}

/// 2ʸ for −127 ≤ y ≤ 128, where the ends give 0 and +∞, and what is below 2⁻¹²⁶ only its size.
/// A NaN gives anything.
///
/// As [`exp`], but y is cut by the caller, and in base 2 what is left after n is exact. 2ᶠ for
/// |f| ≤ ½ is 1 + f·q(f), q of degree 5; fit 2.0e-9. Pairs of terms first: that is two thirds of the
/// wait of term by term.
#[inline(always)]
pub(crate) fn exp2_within<S: Simd>(s: S, y: S::V) -> S::V {
    let shifted = s.add(y, s.splat(ROUND));
    let f = s.sub(y, s.sub(shifted, s.splat(ROUND)));
    let square = s.mul(f, f);
    let p = polynomial(s, f, [0.009618437, 0.0013398874]);
    let p = s.mul_add(square, s.splat(0.00015353362), p);
    let p = s.mul_add(square, p, polynomial(s, f, [0.24022648, 0.055503324]));
    let p = s.mul_add(square, p, polynomial(s, f, [1.0, std::f32::consts::LN_2]));
    s.from_bits(s.add_i(s.bits(p), s.shift_left::<23>(s.bits(shifted))))
}

/// At 1.5·2²³ the last bit of a float counts ones: adding it rounds, and leaves n in the low bits,
/// from where a shift by 23 takes it to the exponent (and drops the rest).
const ROUND: f32 = 12_582_912.0;
/// ln 2⁻¹²⁶, rounded up: the smallest x whose exponential is a normal number.
const LEAST_NORMAL_LN: f32 = -87.33654;
/// ln of the largest f32, rounded down.
const LARGEST_LN: f32 = 88.72283;

/// ln 2 in two parts (Cody and Waite): nine bits, so that n times it is exact, and the rest.
const LN2_HIGH: f32 = 0.693359375;
const LN2_LOW: f32 = -2.1219444e-4;

/// x − n·ln 2
#[inline(always)]
fn reduce<S: Simd>(s: S, x: S::V, n: S::V) -> S::V {
    let r = s.neg_mul_add(n, s.splat(LN2_HIGH), x);
    s.neg_mul_add(n, s.splat(LN2_LOW), r)
}

/// eʳ for |r| ≤ ½ ln 2: 1 + r + r²·q(r), q of degree 4; fit 4.4e-9.
#[inline(always)]
fn exp_of_small<S: Simd>(s: S, r: S::V) -> S::V {
    let q = polynomial(s, r, [0.49999994, 0.1666652, 0.041668393, 0.008368781, 0.0013814467]);
    s.mul_add(s.mul_add(q, r, s.splat(1.0)), r, s.splat(1.0))
}

/// c₀ + c₁x + c₂x² + …
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::V, coefficients: [f32; N]) -> S::V {
    let mut sum = s.splat(coefficients[N - 1]);
    for i in (0..N - 1).rev() {
        sum = s.mul_add(sum, x, s.splat(coefficients[i]));
    }
    sum
}

/// ln x
///
/// x = 2ᵉ·(1 + f) with √½ ≤ 1 + f < √2; ln(1 + f) = f − f²/2 + f³·p(f), p of degree 8; fit 3.2e-9.
#[inline(always)]
pub fn ln<S: Simd>(s: S, x: S::V) -> S::V {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    const ONE: u32 = 0x3f80_0000;
    let denormal = s.less(x, s.splat(f32::MIN_POSITIVE));
    let scaled = s.select(denormal, s.mul(x, s.splat((1 << 23) as f32)), x);
    let bias = s.select(denormal, s.splat(127.0 + 23.0), s.splat(127.0));
    // Moved up by (1 − √½), the exponent field steps at √½ instead of at 1.
    let bits = s.add_i(s.bits(scaled), s.splat_i(ONE - SQRT_HALF));
    let e = s.sub(s.to_float(s.shift_right::<23>(bits)), bias);
    let mantissa = s.add_i(s.and_i(bits, s.splat_i(0x007f_ffff)), s.splat_i(SQRT_HALF));
    let f = s.sub(s.from_bits(mantissa), s.splat(1.0));
    let p = polynomial(
        s,
        f,
        [
            0.33333313,
            -0.2500001,
            0.2000212,
            -0.16667996,
            0.14219552,
            -0.124055892,
            0.11888162,
            -0.11675652,
            0.0674664,
        ],
    );
    let square = s.mul(f, f);
    let y = s.mul(s.mul(f, square), p);
    let y = s.mul_add(e, s.splat(LN2_LOW), y);
    let y = s.neg_mul_add(square, s.splat(0.5), y);
    let y = s.mul_add(e, s.splat(LN2_HIGH), s.add(f, y));
    // Not a positive finite number: +∞ and NaN stay, zero gives −∞, less gives NaN.
    let y = s.select(s.less(x, s.splat(f32::INFINITY)), y, x);
    let y = s.select(s.less_equal(x, s.zero()), s.splat(f32::NEG_INFINITY), y);
    s.select(s.less(x, s.zero()), s.splat(f32::NAN), y)
}

/// 1 / (1 + e⁻ˣ)
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::V) -> S::V {
    let e = exp(s, s.sub(s.zero(), x));
    s.div(s.splat(1.0), s.add(s.splat(1.0), e))
}

/// σ(x) and σ(x)·(1 − σ(x)) of y = −x·log₂e, which is −127 or more.
///
/// With e = 2ʸ = e⁻ˣ, 1 − σ is e·σ: no difference of near numbers where σ is near 1. From 128 on both
/// are 0. A NaN gives anything: who multiplies by x has it back.
#[inline(always)]
pub(crate) fn sigmoid_and_slope<S: Simd>(s: S, y: S::V) -> (S::V, S::V) {
    let e = exp2_within(s, s.min(s.splat(128.0), y));
    let sigmoid = s.div(s.splat(1.0), s.add(s.splat(1.0), e));
    let rest = s.mul(s.min(s.splat(f32::MAX), e), sigmoid); // where e is ∞, σ is 0
    (sigmoid, s.mul(sigmoid, rest))
}

/// Φ(x), the distribution function of the normal distribution, and e^(−x²/2), for |x| ≤ 16.
///
/// With z = |x|, Φ(−z) = e^(−z²/2)·P(z) / Q(z), of degrees 4 and 5 with positive coefficients, so
/// nothing cancels; fit 5.1e-9 up to 13.5, where e^(−z²/2) is about to vanish.
#[inline(always)]
pub(crate) fn normal<S: Simd>(s: S, x: S::V) -> (S::V, S::V) {
    let z = s.abs(x);
    let y = s.mul(s.mul(x, x), s.splat(-0.5 * std::f32::consts::LOG2_E));
    let e = exp2_within(s, s.max(s.splat(-127.0), y));
    let p = polynomial(s, z, [0.5, 0.43614525, 0.181645, 0.04009776, 0.004036948]);
    let q = polynomial(s, z, [1.0, 1.6701754, 1.1958929, 0.46527302, 0.10051739, 0.010118989]);
    let tail = s.div(s.mul(e, p), q);
    let below = s.less_equal(x, s.zero());
    (s.select(below, tail, s.sub(s.splat(1.0), tail)), e)
}

/// Declares the function over slices of each vector function: in parallel over chunks of fixed
/// size, the last vector of each filled up with zeros.
macro_rules! over_slices {
    ($($(#[$meta:meta])* $name:ident = $chunk:ident = $function:ident)+) => {$(
        $(#[$meta])*
        pub fn $name(x: &[f32], out: &mut [f32]) {
            dispatch! { fn chunk(x: &[f32], out: &mut [f32]) => $chunk }
            assert_eq!(x.len(), out.len(), "{} of {} elements into {}", stringify!($function), x.len(), out.len());
            threads::for_row_chunks(x.len(), threads::rows_per_chunk(1), [(out, 1)], |at, [out]| {
                chunk(&x[at], out);
            });
        }

        #[inline(always)]
        fn $chunk<S: Simd>(s: S, x: &[f32], out: &mut [f32]) {
            each_span!(S, x.len(), |at| {
                s.write(out, at, $function(s, s.read(x, at)));
            });
        }
    )+};
}

over_slices! {
    /// out = eˣ
    exp_slice = exp_chunk = exp
    /// out = ln x
    ln_slice = ln_chunk = ln
    /// out = 1 / (1 + e⁻ˣ)
    sigmoid_slice = sigmoid_chunk = sigmoid
}

/// erf in f64, for oracles: (2/√π)·e^(−x²)·Σ 2ⁿx²ⁿ⁺¹ / (1·3·5⋯(2n+1)). All terms have one sign,
/// so nothing cancels; beyond 6 the result is 1 to the last bit of an f64.
pub fn erf_reference(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() > 6.0 {
        return 1_f64.copysign(x);
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    sum * (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::testing::{LENGTHS, on_every_isa, samples, ulps};

    type OverSlices = fn(&[f32], &mut [f32]);

    /// Every 997th bit pattern of f32 (4.3 million numbers of all sizes, infinities and NaN),
    /// and a dense sweep of ±100, where these functions do something.
    fn sweep() -> Vec<f32> {
        let patterns = (0..u32::MAX / 997).map(|i| f32::from_bits(i * 997));
        let dense = (0..1_000_000).map(|i| (i as f32 - 500_000.0) * 2e-4);
        let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN];
        let ends = [88.72283, 88.72284, -87.33654, -87.33655, f32::MIN_POSITIVE, 1e-45];
        patterns.chain(dense).chain(special).chain(ends).collect()
    }

    #[track_caller]
    fn assert_ulps(name: &str, f: OverSlices, oracle: impl Fn(f64) -> f64, bounds: [f64; 2]) {
        let x = sweep();
        let want: Vec<f64> = x.iter().map(|&x| oracle(f64::from(x))).collect();
        on_every_isa(|isa| {
            let [fused, portable] = bounds;
            let bound = if isa == Isa::Portable { portable } else { fused };
            let mut got = vec![0.5; x.len()];
            f(&x, &mut got);
            let mut worst = (0.0, 0);
            for i in 0..x.len() {
                let error = ulps(got[i], want[i]);
                assert!(!error.is_nan(), "{name}({}) on {isa:?}: {} ≠ {}", x[i], got[i], want[i]);
                if error > worst.0 {
                    worst = (error, i);
                }
            }
            let (error, i) = worst;
            println!("{name} on {isa:?}: {error:.2} ULP at {}", x[i]);
            assert!(
                error <= bound,
                "{name}({}) on {isa:?}: {} ≠ {}, {error:.2} ULP",
                x[i],
                got[i],
                want[i]
            );
        });
    }

    /// f32 has no results between these: the oracle rounds as the function promises to.
    fn without_denormals(y: f64) -> f64 {
        if y < f64::from(f32::MIN_POSITIVE) {
            0.0
        } else if y > f64::from(f32::MAX) {
            f64::INFINITY
        } else {
            y
        }
    }

    #[test]
    fn exp_is_within_its_bound() {
        assert_ulps("exp", exp_slice, |x| without_denormals(x.exp()), [0.9, 1.2]);
    }

    /// Over all y, and where it ends: 0 and +∞ keep what is infinite from becoming a number.
    #[test]
    fn exp2_within_is_within_its_bound_and_has_its_ends() {
        dispatch! { fn exp2(x: &[f32], out: &mut [f32]) => exp2_on }
        fn exp2_on<S: Simd>(s: S, x: &[f32], out: &mut [f32]) {
            each_span!(S, x.len(), |at| {
                s.write(out, at, exp2_within(s, s.read(x, at)));
            });
        }
        let y: Vec<f32> = (0..1_000_000).map(|i| i as f32 * 253.9e-6 - 126.0).collect();
        on_every_isa(|isa| {
            let mut got = vec![0.5; y.len()];
            exp2(&y, &mut got);
            let errors = y.iter().zip(&got).map(|(&y, &got)| ulps(got, f64::from(y).exp2()));
            let errors: Vec<f64> = errors.collect();
            assert!(errors.iter().all(|error| error.is_finite()), "{isa:?}");
            let worst = errors.into_iter().fold(0.0, f64::max);
            // Half for the last rounding, up to half for that of the pair before it, and a little
            // from the others.
            let bound = if isa == Isa::Portable { 1.5 } else { 1.2 };
            println!("exp2 on {isa:?}: {worst:.2} ULP");
            assert!(worst <= bound, "{worst:.2} ULP on {isa:?}");
            let mut ends = [0.5; 3];
            exp2(&[-127.0, 128.0, -126.7], &mut ends);
            assert_eq!(ends[..2], [0.0, f32::INFINITY], "{isa:?}");
            assert!((0.0..1.2e-38).contains(&ends[2]), "{isa:?}: {}", ends[2]);
        });
    }

    /// Φ is as precise far below 0, where it is small, as near 0.
    #[test]
    fn the_normal_distribution_is_precise_in_its_tail() {
        dispatch! { fn cdf(x: &[f32], out: &mut [f32]) => cdf_on }
        fn cdf_on<S: Simd>(s: S, x: &[f32], out: &mut [f32]) {
            each_span!(S, x.len(), |at| {
                s.write(out, at, normal(s, s.read(x, at)).0);
            });
        }
        // Known to 10 digits (Φ(−z) is half of erfc(z/√2)).
        let known = [
            (0.0, 0.5),
            (-1.0, 0.158_655_253_9),
            (-2.0, 0.022_750_131_95),
            (-5.0, 2.866_515_719e-7),
            (-8.0, 6.220_960_574e-16),
            (1.0, 0.841_344_746_1),
            (5.0, 0.999_999_713_3),
        ];
        let x: Vec<f32> = known.iter().map(|&(x, _)| x).collect();
        on_every_isa(|isa| {
            let mut got = vec![0.0; x.len()];
            cdf(&x, &mut got);
            for (&(x, want), &got) in known.iter().zip(&got) {
                // The exponent, x²/2·log₂e, is rounded once or twice before it counts.
                let bound = (3.0 + x.powi(2)) * f32::EPSILON;
                let error = (f64::from(got) / want - 1.0).abs();
                assert!(error < f64::from(bound), "Φ({x}) on {isa:?}: {got:e}, off by {error:e}");
            }
            cdf(&[-16.0, 16.0], &mut got[..2]);
            assert_eq!(got[..2], [0.0, 1.0], "{isa:?}");
        });
    }

    #[test]
    fn ln_is_within_its_bound() {
        assert_ulps("ln", ln_slice, f64::ln, [0.8, 0.8]);
    }

    #[test]
    fn sigmoid_is_within_its_bound() {
        let oracle = |x: f64| {
            let y = 1.0 / (1.0 + (-x).exp());
            if y < (-128_f64).exp2() { 0.0 } else { y }
        };
        assert_ulps("sigmoid", sigmoid_slice, oracle, [2.4, 2.4]);
    }

    /// Values of erf to 16 digits (DLMF table 7.23 gives the first ten of them).
    #[test]
    fn the_reference_of_erf_matches_known_values() {
        for (x, want) in [
            (0.5, 0.5204998778130465),
            (1.0, 0.8427007929497149),
            (2.0, 0.9953222650189527),
            (3.0, 0.9999779095030014),
        ] {
            assert!(
                (erf_reference(x) - want).abs() < 4e-16 && erf_reference(-x) == -erf_reference(x)
            );
        }
    }

    #[test]
    fn slices_of_any_length_match_their_scalars() {
        let functions: [OverSlices; 3] = [exp_slice, ln_slice, sigmoid_slice];
        on_every_isa(|isa| {
            for f in functions {
                for len in LENGTHS.into_iter().chain([50_000]) {
                    let x = samples(len, 5.0, 1);
                    let mut got = vec![f32::NAN; len];
                    f(&x, &mut got);
                    for i in (0..len).step_by(1 + len / 500) {
                        let mut alone = [0.0];
                        f(&x[i..=i], &mut alone);
                        assert_eq!(got[i].to_bits(), alone[0].to_bits(), "{isa:?} {i} of {len}");
                    }
                }
            }
        });
    }
}
