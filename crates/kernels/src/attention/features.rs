//! Positive random features of the softmax kernel (Choromanski et al. 2020, "Rethinking Attention
//! with Performers"): for ω normal, E[exp(ω·x − |x|²/2)·exp(ω·y − |y|²/2)] = exp(x·y). With x =
//! q/D^¼ and y = k/D^¼ that is exp(q·k/√D), so M samples of ω give features whose products are the
//! weights of attention on average.
//!
//! Of a vector x and its products pᵣ = ωᵣ·x, with s = D^(−¼):
//!
//! ```text
//! eᵣ = s·pᵣ − s²·|x|²/2          keys, and no more than MOST
//! eᵣ = s·(pᵣ − max p)            queries: a factor of the whole row cancels in the normaliser
//! φᵣ = (exp(eᵣ) + ε) / √M
//! ```
//!
//! Backward, with tᵣ = exp(eᵣ)/√M·dφᵣ (0 where e was cut):
//!
//! ```text
//! (1) dpᵣ = s·tᵣ                 queries: the largest also gets −s·Σ t
//! (2) dx = −s²·Σ t·x             keys; the rest of dx comes through p
//! ```

use crate::math;
use crate::simd::Simd;
use crate::threads::{for_row_chunks, rows_per_chunk};
use crate::{dispatch, each_span};

/// Added to every exponential, so that no normaliser vanishes.
pub const EPSILON: f32 = 1e-6;
/// The largest exponent of a key: e⁶⁰ ≈ 10²⁶, so that sums of products stay far from infinity.
pub const MOST: f32 = 60.0;

/// Whose features?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Scaled by a factor of their own, so that the largest is 1/√M.
    Queries,
    /// Scaled alike, since they are added up.
    Keys,
}

fn scale(width: usize) -> f32 {
    (width as f32).powf(-0.25)
}

/// Turns the products (rows, M) of rows `x` (rows, D) with all ω into features, in place.
pub fn forward(side: Side, width: usize, x: &[f32], features: usize, products: &mut [f32]) {
    dispatch! {
        fn chunk(side: Side, width: usize, x: &[f32], features: usize, out: &mut [f32]) => forward_on
    }
    let rows = check(width, x, features, products);
    for_row_chunks(rows, rows_per_chunk(features), [(products, features)], |at, [out]| {
        chunk(side, width, &x[at.start * width..at.end * width], features, out);
    });
}

fn check(width: usize, x: &[f32], features: usize, products: &[f32]) -> usize {
    assert!(width > 0 && features > 0, "vectors of {width} with {features} features");
    let rows = x.len() / width;
    assert_eq!(x.len(), rows * width, "{} numbers are not rows of {width}", x.len());
    assert_eq!(products.len(), rows * features, "products are (rows, {features})");
    rows
}

#[inline(always)]
fn half_square<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut sum = s.zero();
    each_span!(S, x.len(), |at| {
        let v = s.read(x, at);
        sum = s.mul_add(v, v, sum);
    });
    0.5 * s.sum(sum)
}

#[inline(always)]
fn largest<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut most = s.splat(f32::NEG_INFINITY);
    each_span!(S, x.len(), |at| {
        if at.count == S::LANES {
            most = s.max(most, s.read(x, at));
        } else {
            let rest = x[at.start..].iter().copied().fold(f32::NEG_INFINITY, f32::max);
            most = s.max(most, s.splat(rest));
        }
    });
    s.largest(most)
}

#[inline(always)]
fn forward_on<S: Simd>(
    s: S,
    side: Side,
    width: usize,
    x: &[f32],
    features: usize,
    out: &mut [f32],
) {
    let by = scale(width);
    let root = 1.0 / (features as f32).sqrt();
    for (x, row) in x.chunks_exact(width).zip(out.chunks_exact_mut(features)) {
        let (shift, most) = match side {
            Side::Queries => (by * largest(s, row), 0.0),
            Side::Keys => (by * by * half_square(s, x), MOST),
        };
        each_span!(S, features, |at| {
            let e = s.sub(s.mul(s.read(row, at), s.splat(by)), s.splat(shift));
            let e = math::exp(s, s.min(s.splat(most), e));
            s.write(row, at, s.mul(s.add(e, s.splat(EPSILON)), s.splat(root)));
        });
    }
}

/// Turns the gradient of features (rows, M) into that of products, in place, and writes what a row
/// of `x` is multiplied by for its own part of the gradient to `factors` (rows), 0 for queries.
pub fn backward(
    side: Side,
    width: usize,
    features: usize,
    values: &[f32],
    gradients: &mut [f32],
    factors: &mut [f32],
) {
    dispatch! {
        fn chunk(
            side: Side, width: usize, features: usize, values: &[f32], gradients: &mut [f32],
            factors: &mut [f32],
        ) => backward_on
    }
    let rows = factors.len();
    assert_eq!(values.len(), rows * features, "features are (rows, {features})");
    let chunk_rows = rows_per_chunk(features);
    let outputs = [(gradients, features), (factors, 1)];
    for_row_chunks(rows, chunk_rows, outputs, |at, [gradients, factors]| {
        let values = &values[at.start * features..at.end * features];
        chunk(side, width, features, values, gradients, factors);
    });
}

#[inline(always)]
fn backward_on<S: Simd>(
    s: S,
    side: Side,
    width: usize,
    features: usize,
    values: &[f32],
    gradients: &mut [f32],
    factors: &mut [f32],
) {
    let by = scale(width);
    let root = 1.0 / (features as f32).sqrt();
    // What was cut gets no gradient; a little less, for the rounding of the exponential.
    let cut = if side == Side::Keys { 0.9999 * MOST.exp() * root } else { f32::INFINITY };
    let rows = values.chunks_exact(features).zip(gradients.chunks_exact_mut(features));
    for ((values, row), factor) in rows.zip(factors) {
        let mut sum = s.zero();
        each_span!(S, features, |at| {
            let value = s.sub(s.read(values, at), s.splat(EPSILON * root));
            let t = s.mul(value, s.read(row, at));
            let t = s.select(s.less(value, s.splat(cut)), t, s.zero());
            sum = s.add(sum, t);
            s.write(row, at, s.mul(t, s.splat(by))); // 1
        });
        let sum = s.sum(sum);
        *factor = match side {
            Side::Queries => {
                let most = largest(s, values);
                if let Some(at) = values.iter().position(|value| *value == most) {
                    row[at] -= by * sum; // 1
                }
                0.0
            }
            Side::Keys => -by * by * sum, // 2
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, on_every_isa, samples};

    /// Products, features and their gradients in f64.
    fn reference(side: Side, x: &[f32], products: &[f32], dout: &[f32]) -> [Vec<f64>; 3] {
        let by = (x.len() as f64).powf(-0.25);
        let p: Vec<f64> = products.iter().map(|p| f64::from(*p)).collect();
        let root = (p.len() as f64).sqrt();
        let most = p.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let square: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
        let shift = match side {
            Side::Queries => by * most,
            Side::Keys => by * by * square / 2.0,
        };
        let e: Vec<f64> = p.iter().map(|p| (by * p - shift).exp()).collect();
        let values = e.iter().map(|e| (e + f64::from(EPSILON)) / root).collect();
        let t: Vec<f64> = e.iter().zip(dout).map(|(e, d)| e / root * f64::from(*d)).collect();
        let sum: f64 = t.iter().sum();
        let mut dp: Vec<f64> = t.iter().map(|t| by * t).collect();
        let factor = match side {
            Side::Queries => {
                let at = p.iter().position(|p| *p == most).unwrap();
                dp[at] -= by * sum;
                0.0
            }
            Side::Keys => -by * by * sum,
        };
        [values, dp, vec![factor]]
    }

    #[test]
    fn features_and_gradients_match_the_reference() {
        on_every_isa(|isa| {
            for (width, count) in [(1, 1), (3, 5), (16, 16), (17, 33), (64, 70)] {
                for side in [Side::Queries, Side::Keys] {
                    let rows = 5;
                    let x = samples(rows * width, 1.5, 1);
                    let products = samples(rows * count, 4.0, 2);
                    let dout = samples(rows * count, 2.0, 3);
                    let (mut values, mut dp) = (products.clone(), dout.clone());
                    let mut factors = vec![f32::NAN; rows];
                    forward(side, width, &x, count, &mut values);
                    backward(side, width, count, &values, &mut dp, &mut factors);
                    for row in 0..rows {
                        let at = row * count..(row + 1) * count;
                        let x = &x[row * width..(row + 1) * width];
                        let [want, want_dp, want_factor] =
                            reference(side, x, &products[at.clone()], &dout[at.clone()]);
                        let what = format!("{side:?} on {isa:?}, {width} wide, {count}");
                        // Exponents below 8 that are good to a few roundings; sums of up to 70.
                        let bound = |largest: f64| move |_| 2e-5 * largest.max(1.0);
                        let most = want.iter().copied().fold(0.0, f64::max);
                        assert_close(&what, &values[at.clone()], &want, bound(most));
                        assert_close(&what, &dp[at], &want_dp, bound(10.0 * most));
                        assert_close(&what, &factors[row..=row], &want_factor, bound(10.0 * most));
                    }
                }
            }
        });
    }
}
