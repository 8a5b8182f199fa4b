//! Element by element: sums, products and the reductions that gradients need.
//! (First plain version; helper `math` replaces the bodies and keeps these names.)

use crate::Write;

/// out += x
pub fn add_assign(out: &mut [f32], x: &[f32]) {
    assert_eq!(out.len(), x.len());
    out.iter_mut().zip(x).for_each(|(o, x)| *o += x);
}

/// out = a · b, or out += a · b
pub fn mul(a: &[f32], b: &[f32], out: &mut [f32], write: Write) {
    assert!(a.len() == b.len() && a.len() == out.len());
    for i in 0..a.len() {
        let old = if write == Write::Add { out[i] } else { 0.0 };
        out[i] = old + a[i] * b[i];
    }
}

/// x = factor · x
pub fn scale(x: &mut [f32], factor: f32) {
    x.iter_mut().for_each(|x| *x *= factor);
}

/// x += value
pub fn add_scalar(x: &mut [f32], value: f32) {
    x.iter_mut().for_each(|x| *x += value);
}

/// out += factor · x
pub fn axpy(out: &mut [f32], factor: f32, x: &[f32]) {
    assert_eq!(out.len(), x.len());
    out.iter_mut().zip(x).for_each(|(o, x)| *o += factor * x);
}

/// Adds `row` to every row of `out`, whose rows are as long as `row`.
pub fn add_rows(out: &mut [f32], row: &[f32]) {
    for out in out.chunks_exact_mut(row.len().max(1)) {
        add_assign(out, row);
    }
}

/// The sum of the rows of `x`, which are as long as `out`.
pub fn column_sums(x: &[f32], out: &mut [f32], write: Write) {
    let width = out.len();
    let rows = if width == 0 { 0 } else { x.len() / width };
    crate::threads::sum_over_row_chunks(rows, out, write, |range, partial| {
        for row in x[range.start * width..range.end * width].chunks_exact(width) {
            add_assign(partial, row);
        }
    });
}

/// The sum of all elements, in fixed chunks.
pub fn sum(x: &[f32]) -> f32 {
    x.chunks(4096).map(|chunk| chunk.iter().map(|&x| f64::from(x)).sum::<f64>()).sum::<f64>() as f32
}
