//! Between f32 and 16-bit storage.
//!
//! IEEE half precision (f16: 5 exponent bits, 10 of fraction, largest 65504) and bfloat16 (8
//! exponent bits as f32, 7 of fraction), as bits. Narrowing rounds to nearest, ties to even; what
//! is too large becomes infinite, NaN stays NaN. Widening is exact.

use crate::dispatch;
use crate::simd::Simd;
use crate::threads::{for_row_chunks, rows_per_chunk};

/// Rounds to bfloat16.
pub fn f32_to_bf16(x: &[f32], out: &mut [u16]) {
    convert(x, out, to_bf16_chunk);
}

/// Rounds to IEEE half precision.
pub fn f32_to_f16(x: &[f32], out: &mut [u16]) {
    convert(x, out, to_f16_chunk);
}

/// Widens bfloat16.
pub fn bf16_to_f32(x: &[u16], out: &mut [f32]) {
    convert(x, out, from_bf16_chunk);
}

/// Widens IEEE half precision.
pub fn f16_to_f32(x: &[u16], out: &mut [f32]) {
    convert(x, out, from_f16_chunk);
}

fn convert<A: Sync, B: Send>(x: &[A], out: &mut [B], chunk: fn(&[A], &mut [B])) {
    assert_eq!(x.len(), out.len(), "converting {} elements to {}", x.len(), out.len());
    for_row_chunks(x.len(), rows_per_chunk(1), [(out, 1)], |at, [out]| chunk(&x[at], out));
}

dispatch! {
    fn to_bf16_chunk(x: &[f32], out: &mut [u16]) => to_bf16_on
    fn to_f16_chunk(x: &[f32], out: &mut [u16]) => to_f16_on
    fn from_bf16_chunk(x: &[u16], out: &mut [f32]) => from_bf16_on
    fn from_f16_chunk(x: &[u16], out: &mut [f32]) => from_f16_on
}

/// The most lanes of any set, for the last, shorter vector.
const MOST_LANES: usize = 16;

/// Declares a conversion: whole vectors in place, the rest by way of a vector on the stack.
macro_rules! conversion {
    ($name:ident, $from:ty, $to:ty, |$s:ident, $input:ident, $output:ident| $one:expr) => {
        #[inline(always)]
        pub(crate) fn $name<S: Simd>($s: S, x: &[$from], out: &mut [$to]) {
            assert!(S::LANES <= MOST_LANES && x.len() == out.len());
            let whole = x.len() - x.len() % S::LANES;
            let mut start = 0;
            while start < whole {
                // SAFETY: `whole` is a multiple of LANES not above either length, so LANES
                // elements from `start` lie inside both slices.
                unsafe {
                    let ($input, $output) = (x.as_ptr().add(start), out.as_mut_ptr().add(start));
                    $one;
                }
                start += S::LANES;
            }
            let mut from = [<$from>::default(); MOST_LANES];
            let mut to = [<$to>::default(); MOST_LANES];
            from[..x.len() - whole].copy_from_slice(&x[whole..]);
            // SAFETY: both arrays hold MOST_LANES elements, at least LANES.
            unsafe {
                let ($input, $output) = (from.as_ptr(), to.as_mut_ptr());
                $one;
            }
            out[whole..].copy_from_slice(&to[..x.len() - whole]);
        }
    };
}

conversion!(to_bf16_on, f32, u16, |s, input, output| s.store_bf16(output, s.load(input)));
conversion!(to_f16_on, f32, u16, |s, input, output| s.store_f16(output, s.load(input)));
conversion!(from_bf16_on, u16, f32, |s, input, output| s.store(output, s.load_bf16(input)));
conversion!(from_f16_on, u16, f32, |s, input, output| s.store(output, s.load_f16(input)));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, on_every_isa, samples};
    use half::{bf16, f16};

    #[test]
    fn any_length_matches_the_half_crate() {
        on_every_isa(|isa| {
            for len in LENGTHS.into_iter().chain([40_000]) {
                let x = samples(len, 1000.0, 1);
                let (mut narrow, mut back) = (vec![1; len], vec![f32::NAN; len]);
                f32_to_bf16(&x, &mut narrow);
                bf16_to_f32(&narrow, &mut back);
                for i in 0..len {
                    assert_eq!(narrow[i], bf16::from_f32(x[i]).to_bits(), "{isa:?} {i} of {len}");
                    assert_eq!(back[i], bf16::from_f32(x[i]).to_f32(), "{isa:?} {i} of {len}");
                }
                f32_to_f16(&x, &mut narrow);
                f16_to_f32(&narrow, &mut back);
                for i in 0..len {
                    assert_eq!(narrow[i], f16::from_f32(x[i]).to_bits(), "{isa:?} {i} of {len}");
                    assert_eq!(back[i], f16::from_f32(x[i]).to_f32(), "{isa:?} {i} of {len}");
                }
            }
        });
    }

    #[test]
    fn every_16_bit_number_survives_the_way_there_and_back() {
        on_every_isa(|isa| {
            let all: Vec<u16> = (0..=u16::MAX).collect();
            let (mut wide, mut back) = (vec![0.0; all.len()], vec![0; all.len()]);
            f16_to_f32(&all, &mut wide);
            f32_to_f16(&wide, &mut back);
            assert!((0..all.len()).all(|i| wide[i].is_nan() || back[i] == all[i]), "{isa:?} f16");
            bf16_to_f32(&all, &mut wide);
            f32_to_bf16(&wide, &mut back);
            assert!((0..all.len()).all(|i| wide[i].is_nan() || back[i] == all[i]), "{isa:?} bf16");
        });
    }
}
