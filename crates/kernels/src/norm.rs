//! LayerNorm and RMSNorm of rows, forward and backward.
//!
//! ```text
//! LayerNorm (Ba et al. 2016, arXiv:1607.06450):   x̂ = (x − mean)·rstd,  rstd = 1/√(var + ε)
//! RMSNorm (Zhang, Sennrich 2019, arXiv:1910.07467): x̂ = x·rstd,         rstd = 1/√(mean(x²) + ε)
//! out = x̂·weight + bias        x (rows, C); weight, bias (C); mean, rstd (rows), saved
//!
//! g = dout·weight              (1) through the weight
//! dx = rstd·(g                 (2) through x̂ directly
//!          − mean(g)           (3) through the mean (LayerNorm only)
//!          − x̂·mean(g·x̂))     (4) through the deviation
//! dweight = Σ_rows dout·x̂,  dbias = Σ_rows dout
//! ```
//! The mean comes first and then the sum of squared distances from it, so that a large mean does
//! not swallow the variance; what rounding left in the mean shows up as the mean of the distances
//! and is taken off again. Gradients of the weights are summed over fixed chunks of rows.

use crate::simd::Simd;
use crate::simd::reduce::{fold_spans, sum};
use crate::threads::{SharedMut, for_each, for_row_chunks, rows_per_chunk, sum_over_row_chunks};
use crate::{Write, dispatch, each_span, elementwise, scratch};

/// out = LayerNorm(x); writes the mean and 1/deviation of each row too.
pub fn layer_norm(
    width: usize,
    epsilon: f32,
    x: &[f32],
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    out: &mut [f32],
    mean: &mut [f32],
    rstd: &mut [f32],
) {
    let rows = mean.len();
    check(rows, width, x.len(), weight, bias);
    for_row_chunks(
        rows,
        rows_per_chunk(width),
        [(out, width), (mean, 1), (rstd, 1)],
        |at, [out, mean, rstd]| {
            let x = &x[at.start * width..at.end * width];
            layer_chunk(epsilon, x, weight, bias, out, mean, rstd);
        },
    );
}

/// out_sum = x + residual; out = LayerNorm(out_sum), while the sum is in cache.
pub fn add_layer_norm(
    width: usize,
    epsilon: f32,
    x: &[f32],
    residual: &[f32],
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    out_sum: &mut [f32],
    out: &mut [f32],
    mean: &mut [f32],
    rstd: &mut [f32],
) {
    let rows = mean.len();
    check(rows, width, x.len(), weight, bias);
    assert_eq!(residual.len(), x.len(), "a residual should be as long as x");
    for_row_chunks(
        rows,
        rows_per_chunk(width),
        [(out_sum, width), (out, width), (mean, 1), (rstd, 1)],
        |at, [out_sum, out, mean, rstd]| {
            let part = at.start * width..at.end * width;
            add_chunk(&x[part.clone()], &residual[part], out_sum);
            layer_chunk(epsilon, out_sum, weight, bias, out, mean, rstd);
        },
    );
}

/// out = RMSNorm(x); writes 1/(root mean square) of each row too.
pub fn rms_norm(
    width: usize,
    epsilon: f32,
    x: &[f32],
    weight: Option<&[f32]>,
    out: &mut [f32],
    rstd: &mut [f32],
) {
    let rows = rstd.len();
    check(rows, width, x.len(), weight, None);
    for_row_chunks(rows, rows_per_chunk(width), [(out, width), (rstd, 1)], |at, [out, rstd]| {
        rms_chunk(epsilon, &x[at.start * width..at.end * width], weight, out, rstd);
    });
}

/// out_sum = x + residual; out = RMSNorm(out_sum), while the sum is in cache.
pub fn add_rms_norm(
    width: usize,
    epsilon: f32,
    x: &[f32],
    residual: &[f32],
    weight: Option<&[f32]>,
    out_sum: &mut [f32],
    out: &mut [f32],
    rstd: &mut [f32],
) {
    let rows = rstd.len();
    check(rows, width, x.len(), weight, None);
    assert_eq!(residual.len(), x.len(), "a residual should be as long as x");
    for_row_chunks(
        rows,
        rows_per_chunk(width),
        [(out_sum, width), (out, width), (rstd, 1)],
        |at, [out_sum, out, rstd]| {
            let part = at.start * width..at.end * width;
            add_chunk(&x[part.clone()], &residual[part], out_sum);
            rms_chunk(epsilon, out_sum, weight, out, rstd);
        },
    );
}

/// The gradients of [`layer_norm`]; each that is wanted comes with how it is written.
pub fn layer_norm_backward(
    width: usize,
    x: &[f32],
    mean: &[f32],
    rstd: &[f32],
    weight: Option<&[f32]>,
    dout: &[f32],
    dx: (&mut [f32], Write),
    dweight: Option<(&mut [f32], Write)>,
    dbias: Option<(&mut [f32], Write)>,
) {
    assert_eq!(mean.len(), rstd.len(), "one mean and one rstd per row");
    backward(width, x, Some(mean), rstd, weight, dout, dx, dweight, dbias);
}

/// The gradients of [`rms_norm`]; each that is wanted comes with how it is written.
pub fn rms_norm_backward(
    width: usize,
    x: &[f32],
    rstd: &[f32],
    weight: Option<&[f32]>,
    dout: &[f32],
    dx: (&mut [f32], Write),
    dweight: Option<(&mut [f32], Write)>,
) {
    backward(width, x, None, rstd, weight, dout, dx, dweight, None);
}

fn check(rows: usize, width: usize, len: usize, weight: Option<&[f32]>, bias: Option<&[f32]>) {
    assert_eq!(len, rows * width, "x should be {rows}×{width}, it has {len} elements");
    for (name, x) in [("weight", weight), ("bias", bias)] {
        let len = x.map_or(width, <[f32]>::len);
        assert_eq!(len, width, "the {name} of a norm over {width} has {len} elements");
    }
}

/// Both backward passes: RMSNorm is the one without a mean.
fn backward(
    width: usize,
    x: &[f32],
    mean: Option<&[f32]>,
    rstd: &[f32],
    weight: Option<&[f32]>,
    dout: &[f32],
    (dx, write): (&mut [f32], Write),
    dweight: Option<(&mut [f32], Write)>,
    dbias: Option<(&mut [f32], Write)>,
) {
    let rows = rstd.len();
    check(rows, width, x.len(), weight, None);
    assert_eq!(dout.len(), x.len(), "dout should be {rows}×{width}");
    assert_eq!(dx.len(), x.len(), "dx should be {rows}×{width}");
    let dx = SharedMut::new(dx);
    // The sums of dout·x̂, followed by those of dout, (2C); left out if nobody wants them.
    let wanted = dweight.is_some() || dbias.is_some();
    let rows_of = |at: std::ops::Range<usize>, sums: &mut [f32]| {
        let part = at.start * width..at.end * width;
        // SAFETY: the chunks of rows that this is called with do not overlap.
        let dx = unsafe { dx.range(part.clone()) };
        let (x, dout) = (&x[part.clone()], &dout[part]);
        match mean {
            Some(mean) => {
                let (mean, rstd) = (&mean[at.clone()], &rstd[at]);
                layer_backward_chunk(width, x, mean, rstd, weight, dout, dx, write, sums);
            }
            None => rms_backward_chunk(width, x, &rstd[at], weight, dout, dx, write, sums),
        }
    };
    if !wanted {
        let chunk = rows_per_chunk(width);
        return for_each(rows.div_ceil(chunk), |i| {
            rows_of(i * chunk..((i + 1) * chunk).min(rows), &mut []);
        });
    }
    scratch::with(2 * width, |sums| {
        sum_over_row_chunks(rows, sums, Write::Set, rows_of);
        let (for_weight, for_bias) = sums.split_at(width);
        for (gradient, sums) in [(dweight, for_weight), (dbias, for_bias)] {
            match gradient {
                Some((gradient, Write::Set)) => gradient.copy_from_slice(sums),
                Some((gradient, Write::Add)) => elementwise::add_assign(gradient, sums),
                None => {}
            }
        }
    });
}

dispatch! {
    fn add_chunk(x: &[f32], y: &[f32], out: &mut [f32]) => add_on
    fn layer_chunk(epsilon: f32, x: &[f32], weight: Option<&[f32]>, bias: Option<&[f32]>,
        out: &mut [f32], mean: &mut [f32], rstd: &mut [f32]) => layer_on
    fn rms_chunk(epsilon: f32, x: &[f32], weight: Option<&[f32]>, out: &mut [f32],
        rstd: &mut [f32]) => rms_on
    fn layer_backward_chunk(width: usize, x: &[f32], mean: &[f32], rstd: &[f32],
        weight: Option<&[f32]>, dout: &[f32], dx: &mut [f32], write: Write, sums: &mut [f32])
        => layer_backward_on
    fn rms_backward_chunk(width: usize, x: &[f32], rstd: &[f32], weight: Option<&[f32]>,
        dout: &[f32], dx: &mut [f32], write: Write, sums: &mut [f32]) => rms_backward_on
}

#[inline(always)]
fn add_on<S: Simd>(s: S, x: &[f32], y: &[f32], out: &mut [f32]) {
    each_span!(S, out.len(), |at| {
        s.write(out, at, s.add(s.read(x, at), s.read(y, at)));
    });
}

#[inline(always)]
fn layer_on<S: Simd>(
    s: S,
    epsilon: f32,
    x: &[f32],
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    out: &mut [f32],
    means: &mut [f32],
    rstds: &mut [f32],
) {
    let width = x.len() / means.len();
    if width == 0 {
        return;
    }
    let rows = x.chunks_exact(width).zip(out.chunks_exact_mut(width));
    for ((x, out), (mean, rstd)) in rows.zip(means.iter_mut().zip(rstds)) {
        *mean = sum(s, x) / width as f32;
        let centre = s.splat(*mean);
        let (left, squares) = fold_spans!(
            S,
            width,
            (s.zero(), s.zero()),
            |sums, at| {
                let distance = s.sub(s.read(x, at), centre);
                let distance = s.keep_first(at.count, distance, s.zero());
                (s.add(sums.0, distance), s.mul_add(distance, distance, sums.1))
            },
            |a, b| (s.add(a.0, b.0), s.add(a.1, b.1))
        );
        // var = mean of squares − (mean of distances)²; the latter is rounding of the mean.
        let left = f64::from(s.sum(left)) / width as f64;
        let variance = (f64::from(s.sum(squares)) / width as f64 - left * left).max(0.0);
        let scale = 1.0 / (variance + f64::from(epsilon)).sqrt();
        *rstd = scale as f32;
        affine(s, x, *mean, *rstd, (-left * scale) as f32, weight, bias, out);
        *mean += left as f32;
    }
}

#[inline(always)]
fn rms_on<S: Simd>(
    s: S,
    epsilon: f32,
    x: &[f32],
    weight: Option<&[f32]>,
    out: &mut [f32],
    rstds: &mut [f32],
) {
    let width = x.len() / rstds.len();
    if width == 0 {
        return;
    }
    let rows = x.chunks_exact(width).zip(out.chunks_exact_mut(width));
    for ((x, out), rstd) in rows.zip(rstds) {
        let mean_square = f64::from(crate::simd::reduce::dot(s, x, x)) / width as f64;
        *rstd = (1.0 / (mean_square + f64::from(epsilon)).sqrt()) as f32;
        affine(s, x, 0.0, *rstd, 0.0, weight, None, out);
    }
}

/// out = ((x − mean)·rstd + shift)·weight + bias
#[inline(always)]
fn affine<S: Simd>(
    s: S,
    x: &[f32],
    mean: f32,
    rstd: f32,
    shift: f32,
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    let (mean, rstd, shift) = (s.splat(mean), s.splat(rstd), s.splat(shift));
    each_span!(S, x.len(), |at| {
        let normed = s.mul_add(s.sub(s.read(x, at), mean), rstd, shift);
        let v = match (weight, bias) {
            (Some(weight), Some(bias)) => s.mul_add(normed, s.read(weight, at), s.read(bias, at)),
            (Some(weight), None) => s.mul(normed, s.read(weight, at)),
            (None, Some(bias)) => s.add(normed, s.read(bias, at)),
            (None, None) => normed,
        };
        s.write(out, at, v);
    });
}

#[inline(always)]
fn layer_backward_on<S: Simd>(
    s: S,
    width: usize,
    x: &[f32],
    means: &[f32],
    rstds: &[f32],
    weight: Option<&[f32]>,
    dout: &[f32],
    dx: &mut [f32],
    write: Write,
    sums: &mut [f32],
) {
    let width = width.max(1);
    let rows = x.chunks_exact(width).zip(dout.chunks_exact(width));
    for (((x, dout), dx), (&mean, &rstd)) in
        rows.zip(dx.chunks_exact_mut(width)).zip(means.iter().zip(rstds))
    {
        row_backward::<S, true>(s, x, mean, rstd, weight, dout, dx, write, sums);
    }
}

#[inline(always)]
fn rms_backward_on<S: Simd>(
    s: S,
    width: usize,
    x: &[f32],
    rstds: &[f32],
    weight: Option<&[f32]>,
    dout: &[f32],
    dx: &mut [f32],
    write: Write,
    sums: &mut [f32],
) {
    let width = width.max(1);
    let rows = x.chunks_exact(width).zip(dout.chunks_exact(width));
    for (((x, dout), dx), &rstd) in rows.zip(dx.chunks_exact_mut(width)).zip(rstds) {
        row_backward::<S, false>(s, x, 0.0, rstd, weight, dout, dx, write, sums);
    }
}

/// One row: dx, and its part of the sums of dout·x̂ and of dout.
#[inline(always)]
fn row_backward<S: Simd, const CENTRED: bool>(
    s: S,
    x: &[f32],
    mean: f32,
    rstd: f32,
    weight: Option<&[f32]>,
    dout: &[f32],
    dx: &mut [f32],
    write: Write,
    sums: &mut [f32],
) {
    let width = x.len();
    let (mean, rstd) = (s.splat(mean), s.splat(rstd));
    let (mut sum_g, mut sum_gx) = (s.zero(), s.zero());
    // Behind the end dout and the weight read as zeros, so that those lanes add nothing.
    if sums.is_empty() {
        each_span!(S, width, |at| {
            let normed = s.mul(s.sub(s.read(x, at), mean), rstd);
            let dout = s.read(dout, at);
            let g = match weight {
                Some(weight) => s.mul(dout, s.read(weight, at)),
                None => dout,
            };
            sum_g = s.add(sum_g, g);
            sum_gx = s.mul_add(g, normed, sum_gx);
        });
    } else {
        let (for_weight, for_bias) = sums.split_at_mut(width);
        each_span!(S, width, |at| {
            let normed = s.mul(s.sub(s.read(x, at), mean), rstd);
            let dout = s.read(dout, at);
            let so_far = s.read(for_weight, at);
            s.write(for_weight, at, s.mul_add(dout, normed, so_far));
            let so_far = s.read(for_bias, at);
            s.write(for_bias, at, s.add(dout, so_far));
            let g = match weight {
                Some(weight) => s.mul(dout, s.read(weight, at)),
                None => dout,
            };
            sum_g = s.add(sum_g, g);
            sum_gx = s.mul_add(g, normed, sum_gx);
        });
    }
    let mean_g = if CENTRED { s.splat(s.sum(sum_g) / width as f32) } else { s.zero() };
    let mean_gx = s.splat(s.sum(sum_gx) / width as f32);
    each_span!(S, width, |at| {
        let normed = s.mul(s.sub(s.read(x, at), mean), rstd);
        let dout = s.read(dout, at);
        let g = match weight {
            Some(weight) => s.mul(dout, s.read(weight, at)),
            None => dout,
        };
        let inner = s.neg_mul_add(normed, mean_gx, s.sub(g, mean_g)); // (2) − (3) − (4)
        s.put(dx, at, s.mul(inner, rstd), write);
    });
}

#[cfg(test)]
mod tests;
