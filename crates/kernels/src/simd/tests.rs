//! Every instruction set against one-line scalar oracles, over lengths that straddle the lanes.

use super::*;
use crate::isa::{Isa, with_isa};

dispatch! {
    fn arithmetic(a: &[f32], b: &[f32], c: &[f32], out: &mut [Vec<f32>]) => arithmetic_on
    fn reductions(a: &[f32]) -> (f32, f32) => reductions_on
    fn integers(a: &[u32], out: &mut [Vec<u32>]) => integers_on
    fn halves(x: &[f32], f16s: &mut [u16], bf16s: &mut [u16], back: &mut [f32]) => halves_on
}

#[inline(always)]
fn arithmetic_on<S: Simd>(s: S, a: &[f32], b: &[f32], c: &[f32], out: &mut [Vec<f32>]) {
    each_span!(S, a.len(), |at| {
        let (x, y, z) = (s.read(a, at), s.read(b, at), s.read(c, at));
        let results = [
            s.add(x, y),
            s.sub(x, y),
            s.mul(x, y),
            s.div(x, y),
            s.mul_add(x, y, z),
            s.neg_mul_add(x, y, z),
            s.min(x, y),
            s.max(x, y),
            s.sqrt(s.abs(x)),
            s.round(x),
            s.select(s.less(x, y), x, z),
            s.select(s.less_equal(x, y), x, z),
            s.copy_sign(x, y),
            s.to_float(s.to_int(x)),
            s.swap_pairs(x),
        ];
        for (out, v) in out.iter_mut().zip(results) {
            s.write(out, at, v);
        }
    });
}

#[inline(always)]
fn reductions_on<S: Simd>(s: S, a: &[f32]) -> (f32, f32) {
    let mut sum = s.zero();
    let mut largest = s.splat(f32::NEG_INFINITY);
    each_span!(S, a.len(), |at| {
        let v = s.read(a, at);
        sum = s.add(sum, v);
        largest = s.max(s.keep_first(at.count, v, s.splat(f32::NEG_INFINITY)), largest);
    });
    (s.sum(sum), s.largest(largest))
}

#[inline(always)]
fn integers_on<S: Simd>(s: S, a: &[u32], out: &mut [Vec<u32>]) {
    let floats: Vec<f32> = a.iter().map(|&x| f32::from_bits(x)).collect();
    let mut result = vec![0.0; a.len()];
    for (which, out) in out.iter_mut().enumerate() {
        each_span!(S, a.len(), |at| {
            let x = s.bits(s.read(&floats, at));
            let y = s.splat_i(0x9e37_79b9);
            let v = match which {
                0 => s.add_i(x, y),
                1 => s.mul_i(x, y),
                2 => s.and_i(x, y),
                3 => s.or_i(x, y),
                4 => s.xor_i(x, y),
                5 => s.shift_left::<7>(x),
                6 => s.shift_right::<9>(x),
                _ => s.add_i(s.iota(), s.splat_i(at.start as u32)),
            };
            s.write(&mut result, at, s.from_bits(v));
        });
        *out = result.iter().map(|x| x.to_bits()).collect();
    }
}

#[inline(always)]
fn halves_on<S: Simd>(s: S, x: &[f32], f16s: &mut [u16], bf16s: &mut [u16], back: &mut [f32]) {
    assert!(x.len().is_multiple_of(16) && f16s.len() == x.len() && bf16s.len() == x.len());
    each_span!(S, x.len(), |at| {
        let v = s.read(x, at);
        // SAFETY: all lengths are multiples of 16, so whole vectors lie inside.
        let wide = unsafe {
            s.store_f16(f16s.as_mut_ptr().add(at.start), v);
            s.store_bf16(bf16s.as_mut_ptr().add(at.start), v);
            s.add(
                s.load_f16(f16s.as_ptr().add(at.start)),
                s.load_bf16(bf16s.as_ptr().add(at.start)),
            )
        };
        s.write(back, at, wide);
    });
}

fn samples(len: usize, seed: u32) -> Vec<f32> {
    (0..len as u32)
        .map(|i| {
            let h = (i.wrapping_mul(2654435761) ^ seed).wrapping_mul(2246822519);
            ((h >> 8) as f32 / 16_777_216.0 - 0.5) * 20.0
        })
        .collect()
}

#[test]
fn arithmetic_matches_scalars_on_every_isa() {
    for isa in Isa::all_available() {
        for len in (0..40).chain([63, 64, 65]) {
            let (a, b, c) = (samples(len, 1), samples(len, 2), samples(len, 3));
            let mut out = vec![vec![f32::NAN; len]; 15];
            with_isa(isa, || arithmetic(&a, &b, &c, &mut out));
            for i in 0..len {
                let (x, y, z) = (a[i], b[i], c[i]);
                // Unfused, the product is rounded too, and the sum may round the other way.
                let fused = f32::EPSILON * ((x * y).abs() + (x * y).abs() + z.abs());
                let want = [
                    (x + y, 0.0),
                    (x - y, 0.0),
                    (x * y, 0.0),
                    (x / y, 0.0),
                    (x.mul_add(y, z), fused),
                    ((-x).mul_add(y, z), fused),
                    (x.min(y), 0.0),
                    (x.max(y), 0.0),
                    (x.abs().sqrt(), 0.0),
                    (x.round_ties_even(), 0.0),
                    (if x < y { x } else { z }, 0.0),
                    (if x <= y { x } else { z }, 0.0),
                    (x.copysign(y), 0.0),
                    (x.round_ties_even(), 0.0),
                    // Behind the last element zeros are read.
                    (a.get(i ^ 1).copied().unwrap_or(0.0), 0.0),
                ];
                for (which, (want, bound)) in want.into_iter().enumerate() {
                    let got = out[which][i];
                    assert!(
                        (got - want).abs() <= bound,
                        "{isa:?} operation {which} at {i} of {len}: {got} ≠ {want}"
                    );
                }
            }
        }
    }
}

#[test]
fn reductions_match_scalars_on_every_isa() {
    for isa in Isa::all_available() {
        for len in (0..40).chain([63, 64, 65, 1000]) {
            let a = samples(len, 4);
            let (sum, largest) = with_isa(isa, || reductions(&a));
            let want: f64 = a.iter().map(|&x| f64::from(x)).sum();
            // At most `len` additions, each off by half an ulp of a partial sum below 10·len.
            let bound = 1e-6 * (10 * len * len) as f64;
            assert!((f64::from(sum) - want).abs() <= bound, "{isa:?} sum of {len}");
            assert_eq!(largest, a.iter().copied().fold(f32::NEG_INFINITY, f32::max), "{isa:?}");
        }
    }
}

#[test]
fn integers_match_scalars_on_every_isa() {
    for isa in Isa::all_available() {
        for len in 0..40 {
            // Bit patterns of ordinary floats, so that nothing quietens a signalling NaN.
            let a: Vec<u32> = samples(len, 5).iter().map(|x| x.to_bits()).collect();
            let mut out = vec![Vec::new(); 8];
            with_isa(isa, || integers(&a, &mut out));
            for (i, &x) in a.iter().enumerate() {
                let y = 0x9e37_79b9_u32;
                let want = [
                    x.wrapping_add(y),
                    x.wrapping_mul(y),
                    x & y,
                    x | y,
                    x ^ y,
                    x << 7,
                    x >> 9,
                    i as u32,
                ];
                for which in 0..8 {
                    assert_eq!(out[which][i], want[which], "{isa:?} operation {which} at {i}");
                }
            }
        }
    }
}

#[test]
fn halves_round_as_the_half_crate_does_on_every_isa() {
    let mut x = samples(4096, 6);
    x.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 65504.0, 65520.0, 1e-8]);
    x.extend([f32::MAX, f32::MIN_POSITIVE, 1e-40, 3.0e38, 6.1e-5, 5.9e-8, 1.0, -1.0]);
    // Ties: exactly between two neighbours of bfloat16.
    x.extend((0..16_u32).map(|i| f32::from_bits(0x3f80_8000 + (i << 16))));
    for isa in Isa::all_available() {
        let n = x.len();
        let (mut h, mut b, mut back) = (vec![0; n], vec![0; n], vec![0.0; n]);
        with_isa(isa, || halves(&x, &mut h, &mut b, &mut back));
        for i in 0..n {
            let (want_h, want_b) = (half::f16::from_f32(x[i]), half::bf16::from_f32(x[i]));
            if x[i].is_nan() {
                assert!(
                    half::f16::from_bits(h[i]).is_nan() && half::bf16::from_bits(b[i]).is_nan()
                );
            } else {
                assert_eq!(h[i], want_h.to_bits(), "{isa:?} f16 of {}", x[i]);
                assert_eq!(b[i], want_b.to_bits(), "{isa:?} bf16 of {}", x[i]);
                let want = want_h.to_f32() + want_b.to_f32();
                assert!(back[i] == want || (back[i].is_nan() && want.is_nan()));
            }
        }
    }
}
