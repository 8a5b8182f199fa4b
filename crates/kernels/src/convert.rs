//! Between f32 and 16-bit storage.
//! (First plain version; helper `math` replaces the bodies and keeps these names.)

use half::{bf16, f16};

/// Rounds to bfloat16, ties to even.
pub fn f32_to_bf16(x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len());
    out.iter_mut().zip(x).for_each(|(o, &x)| *o = bf16::from_f32(x).to_bits());
}

/// Rounds to IEEE half precision, ties to even.
pub fn f32_to_f16(x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len());
    out.iter_mut().zip(x).for_each(|(o, &x)| *o = f16::from_f32(x).to_bits());
}

/// Widens bfloat16, exactly.
pub fn bf16_to_f32(x: &[u16], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    out.iter_mut().zip(x).for_each(|(o, &x)| *o = bf16::from_bits(x).to_f32());
}

/// Widens IEEE half precision, exactly.
pub fn f16_to_f32(x: &[u16], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    out.iter_mut().zip(x).for_each(|(o, &x)| *o = f16::from_bits(x).to_f32());
}
