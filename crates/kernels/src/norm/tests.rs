//! Against f64 and its central differences, on every instruction set.

use super::*;
use crate::testing::{LENGTHS, assert_close, on_every_isa, samples, to_f64};
use crate::threads::with_threads;

const EPSILON: f32 = 1e-5;
const ROWS: usize = 4;

/// x̂ of one row, with the mean taken off (LayerNorm) or not (RMSNorm), and 1/deviation.
fn normed(x: &[f64], centred: bool) -> (Vec<f64>, f64, f64) {
    let n = x.len() as f64;
    let mean = if centred { x.iter().sum::<f64>() / n } else { 0.0 };
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let rstd = 1.0 / (variance + f64::from(EPSILON)).sqrt();
    (x.iter().map(|x| (x - mean) * rstd).collect(), mean, rstd)
}

/// (dx of one row, x̂) by the formula of the module.
fn gradient(x: &[f64], weight: &[f64], dout: &[f64], centred: bool) -> (Vec<f64>, Vec<f64>) {
    let n = x.len() as f64;
    let (hat, _, rstd) = normed(x, centred);
    let g: Vec<f64> = dout.iter().zip(weight).map(|(d, w)| d * w).collect();
    let a = if centred { g.iter().sum::<f64>() / n } else { 0.0 };
    let b = g.iter().zip(&hat).map(|(g, h)| g * h).sum::<f64>() / n;
    ((0..x.len()).map(|i| rstd * (g[i] - a - hat[i] * b)).collect(), hat)
}

#[test]
fn the_reference_gradient_matches_central_differences() {
    for centred in [true, false] {
        let (x, dout) = (to_f64(&samples(9, 2.0, 1)), to_f64(&samples(9, 1.0, 2)));
        let weight = to_f64(&samples(9, 1.5, 3));
        let (dx, _) = gradient(&x, &weight, &dout, centred);
        for i in 0..x.len() {
            let value = |by: f64| {
                let mut x = x.clone();
                x[i] += by;
                let (hat, ..) = normed(&x, centred);
                (0..x.len()).map(|j| hat[j] * weight[j] * dout[j]).sum::<f64>()
            };
            let step = 1e-5;
            let want = (value(step) - value(-step)) / (2.0 * step);
            // step² times third derivatives of size about 1, and 1e-16/step of rounding.
            assert!((dx[i] - want).abs() < 1e-8, "{i}: {} ≠ {want}", dx[i]);
        }
    }
}

fn run_forward(
    centred: bool,
    width: usize,
    x: &[f32],
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let (mut out, mut mean, mut rstd) =
        (vec![f32::NAN; x.len()], vec![0.0; ROWS], vec![f32::NAN; ROWS]);
    if centred {
        layer_norm(width, EPSILON, x, weight, bias, &mut out, &mut mean, &mut rstd);
    } else {
        rms_norm(width, EPSILON, x, weight, &mut out, &mut rstd);
    }
    (out, mean, rstd)
}

#[test]
fn forward_matches_reference() {
    on_every_isa(|isa| {
        for centred in [true, false] {
            for width in LENGTHS.into_iter().filter(|&w| w > 0) {
                let (weight, bias) = (samples(width, 2.0, 4), samples(width, 1.0, 5));
                let x = samples(ROWS * width, 3.0, 6);
                for which in 0..4 {
                    let weight = (which & 1 != 0).then_some(&weight[..]);
                    let bias = (which & 2 != 0 && centred).then_some(&bias[..]);
                    let (out, mean, rstd) = run_forward(centred, width, &x, weight, bias);
                    for row in 0..ROWS {
                        let part = row * width..(row + 1) * width;
                        let (hat, m, r) = normed(&to_f64(&x[part.clone()]), centred);
                        let want: Vec<f64> = (0..width)
                            .map(|j| {
                                hat[j] * weight.map_or(1.0, |w| f64::from(w[j]))
                                    + bias.map_or(0.0, |b| f64::from(b[j]))
                            })
                            .collect();
                        let what = format!("{width} wide, centred {centred}, on {isa:?}");
                        // x̂ ≤ √1000 in size; width 1 has x̂ = 0 by cancellation against ε.
                        let largest = hat.iter().fold(1.0_f64, |m, h| m.max(h.abs()));
                        assert_close(&what, &out[part], &want, |_| 2e-6 * largest);
                        assert_close(&what, &mean[row..=row], &[m], |_| 1e-6);
                        assert_close(&what, &rstd[row..=row], &[r], |_| 1e-6 * r);
                    }
                }
            }
        }
    });
}

#[test]
fn a_large_mean_does_not_swallow_the_variance() {
    on_every_isa(|isa| {
        let width = 768;
        let x: Vec<f32> = samples(ROWS * width, 1.0, 7).iter().map(|x| 10_000.0 + x).collect();
        let (out, _, rstd) = run_forward(true, width, &x, None, None);
        for row in 0..ROWS {
            let part = row * width..(row + 1) * width;
            let (hat, _, r) = normed(&to_f64(&x[part.clone()]), true);
            // The mean of x is 10⁴, where floats are 1e-3 apart: a mean rounded to f32, or
            // E[x²] − E[x]², would be off by 5e-4 or far more.
            assert_close(&format!("{isa:?}"), &out[part], &hat, |_| 1e-5);
            assert_close("rstd", &rstd[row..=row], &[r], |_| 1e-5 * r);
        }
    });
}

#[test]
fn backward_matches_reference_and_accumulates() {
    on_every_isa(|isa| {
        for centred in [true, false] {
            for width in LENGTHS.into_iter().filter(|&w| w > 1) {
                let x = samples(ROWS * width, 3.0, 8);
                let dout = samples(ROWS * width, 1.0, 9);
                let weight = samples(width, 2.0, 10);
                for weight in [None, Some(&weight[..])] {
                    let (_, mean, rstd) = run_forward(centred, width, &x, weight, None);
                    let run = |start: f32, write: Write| {
                        let mut dx = vec![start; x.len()];
                        let (mut dw, mut db) = (vec![start; width], vec![start; width]);
                        let (to_dx, to_dw) = ((&mut dx[..], write), Some((&mut dw[..], write)));
                        if centred {
                            let to_db = Some((&mut db[..], write));
                            layer_norm_backward(
                                width, &x, &mean, &rstd, weight, &dout, to_dx, to_dw, to_db,
                            );
                        } else {
                            rms_norm_backward(width, &x, &rstd, weight, &dout, to_dx, to_dw);
                        }
                        (dx, dw, db)
                    };
                    let (dx, dw, db) = run(f32::NAN, Write::Set);
                    let (added, dw_added, _) = run(0.5, Write::Add);
                    let what = format!("{width} wide, centred {centred}, on {isa:?}");
                    let ones = vec![1.0; width];
                    let weight64 = weight.map_or(ones, to_f64);
                    let (mut want_dw, mut want_db) = (vec![0.0; width], vec![0.0; width]);
                    for row in 0..ROWS {
                        let part = row * width..(row + 1) * width;
                        let dout = to_f64(&dout[part.clone()]);
                        let (want, hat) =
                            gradient(&to_f64(&x[part.clone()]), &weight64, &dout, centred);
                        for j in 0..width {
                            want_dw[j] += dout[j] * hat[j];
                            want_db[j] += dout[j];
                        }
                        // Terms of size up to rstd·|g|·x̂², of which differences are taken.
                        let bound = 4e-6 * (1.0 + f64::from(rstd[row]));
                        assert_close(&what, &dx[part.clone()], &want, |_| bound);
                        let plus: Vec<f64> = want.iter().map(|x| x + 0.5).collect();
                        assert_close(&what, &added[part], &plus, |_| bound);
                    }
                    assert_close(&what, &dw, &want_dw, |_| 1e-5);
                    let plus: Vec<f64> = want_dw.iter().map(|x| x + 0.5).collect();
                    assert_close(&what, &dw_added, &plus, |_| 1e-5);
                    if centred {
                        assert_close(&what, &db, &want_db, |_| 1e-6);
                    }
                    // Without the sums, the same dx.
                    let mut alone = vec![f32::NAN; x.len()];
                    let to_dx = (&mut alone[..], Write::Set);
                    if centred {
                        layer_norm_backward(
                            width, &x, &mean, &rstd, weight, &dout, to_dx, None, None,
                        );
                    } else {
                        rms_norm_backward(width, &x, &rstd, weight, &dout, to_dx, None);
                    }
                    assert_eq!(alone, dx, "{what}");
                }
            }
        }
    });
}

#[test]
fn the_fused_sum_gives_the_same_bits() {
    on_every_isa(|_| {
        for width in [1, 17, 100] {
            let (x, residual) = (samples(ROWS * width, 1.0, 11), samples(ROWS * width, 1.0, 12));
            let sums: Vec<f32> = x.iter().zip(&residual).map(|(x, r)| x + r).collect();
            let weight = samples(width, 1.0, 13);
            let weight = Some(&weight[..]);
            for centred in [true, false] {
                let (want, want_mean, want_rstd) = run_forward(centred, width, &sums, weight, None);
                let (mut sum, mut out) = (vec![0.0; x.len()], vec![0.0; x.len()]);
                let (mut mean, mut rstd) = (vec![0.0; ROWS], vec![0.0; ROWS]);
                if centred {
                    add_layer_norm(
                        width, EPSILON, &x, &residual, weight, None, &mut sum, &mut out, &mut mean,
                        &mut rstd,
                    );
                } else {
                    add_rms_norm(
                        width, EPSILON, &x, &residual, weight, &mut sum, &mut out, &mut rstd,
                    );
                }
                assert_eq!((sum, out, mean, rstd), (sums.clone(), want, want_mean, want_rstd));
            }
        }
    });
}

#[test]
fn empty_constant_and_not_finite_rows_are_defined() {
    layer_norm(5, EPSILON, &[], None, None, &mut [], &mut [], &mut []);
    layer_norm_backward(5, &[], &[], &[], None, &[], (&mut [], Write::Set), None, None);
    on_every_isa(|_| {
        let (mut out, mut mean, mut rstd) = ([9.0; 20], [0.0; 2], [0.0; 2]);
        let mut x = [3.0; 20];
        x[13] = f32::INFINITY;
        layer_norm(10, EPSILON, &x, None, None, &mut out, &mut mean, &mut rstd);
        // A constant row has no distances; its deviation is √ε.
        assert!(out[..10].iter().all(|&x| x == 0.0) && mean[0] == 3.0);
        assert!((f64::from(rstd[0]) - 1.0 / f64::from(EPSILON).sqrt()).abs() < 1e-3);
        assert!(out[10..].iter().all(|x| x.is_nan()));
    });
}

#[test]
fn threads_do_not_change_bits() {
    let (rows, width) = (517, 96);
    let (x, dout) = (samples(rows * width, 1.0, 14), samples(rows * width, 1.0, 15));
    let run = |threads| {
        with_threads(threads, || {
            let (mut out, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            let (mut mean, mut rstd) = (vec![0.0; rows], vec![0.0; rows]);
            let (mut dw, mut db) = (vec![0.0; width], vec![0.0; width]);
            layer_norm(width, EPSILON, &x, None, None, &mut out, &mut mean, &mut rstd);
            layer_norm_backward(
                width,
                &x,
                &mean,
                &rstd,
                None,
                &dout,
                (&mut dx, Write::Add),
                Some((&mut dw, Write::Add)),
                Some((&mut db, Write::Add)),
            );
            (out, dx, dw, db)
        })
    };
    let one = run(1);
    assert!([2, 3, 4].into_iter().all(|threads| run(threads) == one));
}
