//! Softmax and log-sum-exp of rows.
//!
//! ```text
//! softmax:      y_j = exp(a·x_j − m) / Σ_k exp(a·x_k − m),  m = max_k a·x_k
//! log-sum-exp:  m + ln Σ_k exp(a·x_k − m)
//! backward:     dx_j = a·y_j·(dy_j − Σ_k y_k·dy_k)
//! ```
//! x is (rows, width); a is a scale, the inverse of a temperature. A row that is all −∞, where
//! everything is hidden, gives zeros and zero gradients, and −∞ as log-sum-exp. NaN or +∞ in a
//! row makes the row NaN.
//!
//! Three passes over a row that is in cache: its maximum; the exponentials and their sum; the
//! division. An online softmax would save the first pass and pay for it in exponentials.

use crate::math::exp;
use crate::simd::Simd;
use crate::simd::reduce::{dot, fold_spans};
use crate::threads::{for_row_chunks, rows_per_chunk};
use crate::{Write, dispatch, each_span};

/// out = softmax(scale·x), row by row.
pub fn softmax(rows: usize, width: usize, scale: f32, x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), rows * width, "softmax of {rows}×{width}");
    for_row_chunks(rows, rows_per_chunk(width), [(out, width)], |at, [out]| {
        softmax_chunk(width, scale, &x[at.start * width..at.end * width], out);
    });
}

/// x = softmax(scale·x), row by row.
pub fn softmax_in_place(rows: usize, width: usize, scale: f32, x: &mut [f32]) {
    for_row_chunks(rows, rows_per_chunk(width), [(x, width)], |_, [x]| {
        softmax_chunk_in_place(width, scale, x);
    });
}

/// `out[row]` = ln Σ exp(scale·x) of each row
pub fn log_sum_exp(rows: usize, width: usize, scale: f32, x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), rows * width, "log-sum-exp of {rows}×{width}");
    for_row_chunks(rows, rows_per_chunk(width), [(out, 1)], |at, [out]| {
        log_sum_exp_chunk(width, scale, &x[at.start * width..at.end * width], out);
    });
}

/// dx from y = softmax(scale·x) and dy.
pub fn softmax_backward(
    rows: usize,
    width: usize,
    scale: f32,
    y: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    write: Write,
) {
    assert!(
        y.len() == rows * width && dy.len() == rows * width,
        "backward of a softmax of {rows}×{width}: y has {} elements, dy {}",
        y.len(),
        dy.len()
    );
    for_row_chunks(rows, rows_per_chunk(width), [(dx, width)], |at, [dx]| {
        let part = at.start * width..at.end * width;
        backward_chunk(width, scale, &y[part.clone()], &dy[part], dx, write);
    });
}

/// Turns dy into dx.
pub fn softmax_backward_in_place(
    rows: usize,
    width: usize,
    scale: f32,
    y: &[f32],
    gradient: &mut [f32],
) {
    assert_eq!(y.len(), rows * width, "backward of a softmax of {rows}×{width}");
    for_row_chunks(rows, rows_per_chunk(width), [(gradient, width)], |at, [gradient]| {
        backward_chunk_in_place(width, scale, &y[at.start * width..at.end * width], gradient);
    });
}

dispatch! {
    fn softmax_chunk(width: usize, scale: f32, x: &[f32], out: &mut [f32]) => softmax_on
    fn softmax_chunk_in_place(width: usize, scale: f32, x: &mut [f32]) => softmax_in_place_on
    fn log_sum_exp_chunk(width: usize, scale: f32, x: &[f32], out: &mut [f32]) => log_sum_exp_on
    fn backward_chunk(width: usize, scale: f32, y: &[f32], dy: &[f32], dx: &mut [f32],
        write: Write) => backward_on
    fn backward_chunk_in_place(width: usize, scale: f32, y: &[f32], gradient: &mut [f32])
        => backward_in_place_on
}

#[inline(always)]
fn softmax_on<S: Simd>(s: S, width: usize, scale: f32, x: &[f32], out: &mut [f32]) {
    for (x, out) in x.chunks_exact(width.max(1)).zip(out.chunks_exact_mut(width.max(1))) {
        let top = scaled_maximum(s, scale, x);
        if top == f32::NEG_INFINITY && !has_nan(s, x) {
            out.fill(0.0);
            continue;
        }
        let (a, b) = (s.splat(scale), s.splat(-top));
        let mut sum = s.zero();
        each_span!(S, width, |at| {
            let e = exp(s, s.mul_add(s.read(x, at), a, b));
            s.write(out, at, e);
            sum = s.add(sum, s.keep_first(at.count, e, s.zero()));
        });
        multiply(s, out, 1.0 / s.sum(sum));
    }
}

#[inline(always)]
fn softmax_in_place_on<S: Simd>(s: S, width: usize, scale: f32, x: &mut [f32]) {
    for x in x.chunks_exact_mut(width.max(1)) {
        let top = scaled_maximum(s, scale, x);
        if top == f32::NEG_INFINITY && !has_nan(s, x) {
            x.fill(0.0);
            continue;
        }
        let sum = exponentials_in_place(s, scale, top, x);
        multiply(s, x, 1.0 / sum);
    }
}

/// x = exp(scale·x − top); gives the sum.
#[inline(always)]
pub(crate) fn exponentials_in_place<S: Simd>(s: S, scale: f32, top: f32, x: &mut [f32]) -> f32 {
    let (a, b) = (s.splat(scale), s.splat(-top));
    let mut sum = s.zero();
    each_span!(S, x.len(), |at| {
        let e = exp(s, s.mul_add(s.read(x, at), a, b));
        s.write(x, at, e);
        sum = s.add(sum, s.keep_first(at.count, e, s.zero()));
    });
    s.sum(sum)
}

#[inline(always)]
fn multiply<S: Simd>(s: S, x: &mut [f32], factor: f32) {
    let factor = s.splat(factor);
    each_span!(S, x.len(), |at| {
        let v = s.mul(s.read(x, at), factor);
        s.write(x, at, v);
    });
}

/// max scale·x, NaN passed over.
#[inline(always)]
fn scaled_maximum<S: Simd>(s: S, scale: f32, x: &[f32]) -> f32 {
    let (a, lowest) = (s.splat(scale), s.splat(f32::NEG_INFINITY));
    let top = fold_spans!(
        S,
        x.len(),
        lowest,
        |top, at| s.max(s.keep_first(at.count, s.mul(s.read(x, at), a), lowest), top),
        |a, b| s.max(a, b)
    );
    s.largest(top)
}

/// Only asked of rows whose maximum is −∞.
#[inline(always)]
fn has_nan<S: Simd>(_: S, x: &[f32]) -> bool {
    x.iter().any(|x| x.is_nan())
}

#[inline(always)]
fn log_sum_exp_on<S: Simd>(s: S, width: usize, scale: f32, x: &[f32], out: &mut [f32]) {
    if width == 0 {
        return out.fill(f32::NEG_INFINITY);
    }
    for (x, out) in x.chunks_exact(width).zip(out) {
        *out = log_sum_exp_of(s, scale, x) as f32;
    }
}

/// ln Σ exp(scale·x) of one row.
#[inline(always)]
pub(crate) fn log_sum_exp_of<S: Simd>(s: S, scale: f32, x: &[f32]) -> f64 {
    let top = scaled_maximum(s, scale, x);
    if top == f32::NEG_INFINITY && !has_nan(s, x) {
        return f64::NEG_INFINITY;
    }
    let (a, b) = (s.splat(scale), s.splat(-top));
    let sum = fold_spans!(
        S,
        x.len(),
        s.zero(),
        |sum, at| {
            let e = exp(s, s.mul_add(s.read(x, at), a, b));
            s.add(sum, s.keep_first(at.count, e, s.zero()))
        },
        |a, b| s.add(a, b)
    );
    f64::from(top) + f64::from(s.sum(sum)).ln()
}

#[inline(always)]
fn backward_on<S: Simd>(
    s: S,
    width: usize,
    scale: f32,
    y: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    write: Write,
) {
    let width = width.max(1);
    let rows = y.chunks_exact(width).zip(dy.chunks_exact(width));
    for ((y, dy), dx) in rows.zip(dx.chunks_exact_mut(width)) {
        let (mean, a) = (s.splat(dot(s, y, dy)), s.splat(scale));
        each_span!(S, y.len(), |at| {
            let v = s.mul(s.mul(a, s.read(y, at)), s.sub(s.read(dy, at), mean));
            s.put(dx, at, v, write);
        });
    }
}

#[inline(always)]
fn backward_in_place_on<S: Simd>(s: S, width: usize, scale: f32, y: &[f32], gradient: &mut [f32]) {
    let width = width.max(1);
    for (y, gradient) in y.chunks_exact(width).zip(gradient.chunks_exact_mut(width)) {
        let (mean, a) = (s.splat(dot(s, y, gradient)), s.splat(scale));
        each_span!(S, y.len(), |at| {
            let v = s.mul(s.mul(a, s.read(y, at)), s.sub(s.read(gradient, at), mean));
            s.write(gradient, at, v);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, assert_close, on_every_isa, samples, to_f64};
    use crate::threads::with_threads;

    const SCALE: f32 = 0.7;
    /// Exponentials of rounded arguments (up to 2·20, half an ulp each, so 40·6e-8), their own
    /// error, and that of a sum of up to 1000 terms in 64 partial sums.
    const RELATIVE: f64 = 6e-6;

    fn reference(x: &[f32]) -> (Vec<f64>, f64) {
        let a = f64::from(SCALE);
        let top = x.iter().fold(f64::NEG_INFINITY, |m, &x| m.max(a * f64::from(x)));
        let e: Vec<f64> = x.iter().map(|&x| (a * f64::from(x) - top).exp()).collect();
        let sum: f64 = e.iter().sum();
        (e.iter().map(|e| e / sum).collect(), top + sum.ln())
    }

    #[test]
    fn forward_matches_reference() {
        on_every_isa(|isa| {
            for width in LENGTHS {
                let rows = 3;
                let x = samples(rows * width, 20.0, 1);
                let what = format!("{rows}×{width} on {isa:?}");
                let mut out = vec![f32::NAN; rows * width];
                softmax(rows, width, SCALE, &x, &mut out);
                let mut in_place = x.clone();
                softmax_in_place(rows, width, SCALE, &mut in_place);
                assert_eq!(in_place, out, "{what}");
                let mut lse = vec![f32::NAN; rows];
                log_sum_exp(rows, width, SCALE, &x, &mut lse);
                for row in 0..rows {
                    let part = row * width..(row + 1) * width;
                    let (y, want) = reference(&x[part.clone()]);
                    assert_close(&what, &out[part], &y, |i| RELATIVE * y[i] + 1e-38);
                    // Rounded once at up to 16, besides the error of the sum.
                    assert_close(&what, &lse[row..=row], &[want], |_| 2e-6 + RELATIVE);
                }
            }
        });
    }

    #[test]
    fn backward_matches_reference_and_accumulates() {
        on_every_isa(|isa| {
            for width in LENGTHS {
                let rows = 3;
                let (x, dy) = (samples(rows * width, 3.0, 2), samples(rows * width, 1.0, 3));
                let before = samples(rows * width, 1.0, 4);
                let mut y = x.clone();
                softmax_in_place(rows, width, SCALE, &mut y);
                let mut dx = vec![f32::NAN; rows * width];
                softmax_backward(rows, width, SCALE, &y, &dy, &mut dx, Write::Set);
                let mut in_place = dy.clone();
                softmax_backward_in_place(rows, width, SCALE, &y, &mut in_place);
                assert_eq!(dx, in_place);
                let mut added = before.clone();
                softmax_backward(rows, width, SCALE, &y, &dy, &mut added, Write::Add);
                for i in 0..rows * width {
                    assert_eq!(added[i], before[i] + dx[i]);
                }
                for row in 0..rows {
                    let part = row * width..(row + 1) * width;
                    let (y, dy) = (to_f64(&y[part.clone()]), to_f64(&dy[part.clone()]));
                    let mean: f64 = y.iter().zip(&dy).map(|(y, dy)| y * dy).sum();
                    let gradient = |i: usize| f64::from(SCALE) * y[i] * (dy[i] - mean);
                    let want: Vec<f64> = (0..width).map(gradient).collect();
                    let what = format!("backward of {rows}×{width} on {isa:?}");
                    // The mean is a sum of terms that add up to less than 1 in size.
                    assert_close(&what, &dx[part], &want, |i| 1e-6 * y[i] + 1e-12);
                }
            }
        });
    }

    #[test]
    fn special_rows_are_defined() {
        on_every_isa(|_| {
            for width in [1, 5, 16, 40] {
                let mut hidden = vec![f32::NEG_INFINITY; width];
                let mut lse = [0.0];
                log_sum_exp(1, width, 1.0, &hidden, &mut lse);
                assert_eq!(lse[0], f32::NEG_INFINITY);
                softmax_in_place(1, width, 1.0, &mut hidden);
                assert!(hidden.iter().all(|&y| y == 0.0));
                let mut dx = vec![f32::NAN; width];
                softmax_backward(1, width, 1.0, &hidden, &vec![2.0; width], &mut dx, Write::Set);
                assert!(dx.iter().all(|&dx| dx == 0.0));
                for bad in [f32::NAN, f32::INFINITY] {
                    for rest in [0.5, f32::NEG_INFINITY] {
                        let mut row = vec![rest; width];
                        row[width / 2] = bad;
                        softmax_in_place(1, width, 1.0, &mut row);
                        assert!(row[width / 2].is_nan());
                    }
                }
                // All but one hidden; and numbers so large that their exponentials are not finite.
                let mut row = vec![f32::NEG_INFINITY; width];
                row[width - 1] = 1e30;
                softmax_in_place(1, width, 1.0, &mut row);
                assert!(row[width - 1] == 1.0 && row[..width - 1].iter().all(|&y| y == 0.0));
            }
        });
    }

    #[test]
    fn threads_do_not_change_bits() {
        let x = samples(300 * 257, 5.0, 5);
        let run = |threads| {
            let mut out = x.clone();
            with_threads(threads, || softmax_in_place(300, 257, 1.0, &mut out));
            out
        };
        let one = run(1);
        assert!([2, 3, 4].into_iter().all(|threads| run(threads) == one));
    }
}
