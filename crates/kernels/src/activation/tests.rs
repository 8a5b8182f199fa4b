//! Against f64, on every instruction set, over lengths that straddle the lanes.

use super::*;
use crate::math::erf_reference;
use crate::testing::{LENGTHS, assert_close, on_every_isa, samples, to_f64};
use crate::threads::with_threads;

dispatch! {
    fn forward_and_slope_chunk(activation: Activation, x: &mut [f32], out: &mut [f32])
        => forward_and_slope_on
}

fn reference(activation: Activation, x: f64) -> (f64, f64) {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match activation {
        Activation::Relu => (x.max(0.0), f64::from(x > 0.0)),
        Activation::SquaredRelu => (x.max(0.0).powi(2), 2.0 * x.max(0.0)),
        Activation::Gelu => {
            let cdf = 0.5 * (1.0 + erf_reference(x / 2_f64.sqrt()));
            let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
            (x * cdf, cdf + x * density)
        }
        Activation::GeluTanh => {
            let root = (2.0 / std::f64::consts::PI).sqrt();
            let t = (root * (x + 0.044715 * x.powi(3))).tanh();
            let du = root * (1.0 + 3.0 * 0.044715 * x * x);
            (0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * du)
        }
        Activation::Silu => (x * sigmoid(x), sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)))),
        Activation::Tanh => (x.tanh(), 1.0 / x.cosh().powi(2)),
        Activation::EluPlusOne if x > 0.0 => (x + 1.0, 1.0),
        Activation::EluPlusOne => (x.exp(), x.exp()),
    }
}

/// A few roundings, and that of e's exponent u, which counts u times over (u < 20 where the result
/// matters), in units of f32's spacing at 1, scaled by |x|.
fn bound(x: f32) -> f64 {
    12.0 * f64::from(f32::EPSILON) * f64::from(x.abs().max(1.0))
}

#[test]
fn the_reference_derivative_matches_central_differences() {
    for activation in Activation::ALL {
        for i in -300..300 {
            let (x, step) = (f64::from(i) * 0.0237 + 0.001, 1e-5);
            let difference = (reference(activation, x + step).0
                - reference(activation, x - step).0)
                / (2.0 * step);
            // Central differences: step² times a third derivative below 2, and rounding/step.
            let error = (difference - reference(activation, x).1).abs();
            assert!(error < 1e-9 * x.abs().max(1.0), "{activation:?} at {x}: off by {error:e}");
        }
    }
}

#[test]
fn forward_matches_reference() {
    on_every_isa(|isa| {
        for activation in Activation::ALL {
            for len in LENGTHS.into_iter().chain([40_000]) {
                let x = samples(len, 12.0, 1);
                let want: Vec<f64> =
                    x.iter().map(|&x| reference(activation, f64::from(x)).0).collect();
                // |x|² for the square.
                let bound = |i: usize| bound(x[i]) * f64::from(x[i].abs().max(1.0));
                let what = format!("{activation:?} on {isa:?}, {len}");
                let mut out = vec![f32::NAN; len];
                forward(activation, &x, &mut out);
                assert_close(&what, &out, &want, bound);
                let mut in_place = x.clone();
                forward_in_place(activation, &mut in_place);
                assert_eq!(in_place, out, "{what}");
            }
        }
    });
}

#[test]
fn backward_matches_reference_and_accumulates() {
    on_every_isa(|isa| {
        for activation in Activation::ALL {
            for len in LENGTHS {
                let (x, dout) = (samples(len, 12.0, 2), samples(len, 3.0, 3));
                let before = samples(len, 1.0, 4);
                let gradient =
                    |i: usize| f64::from(dout[i]) * reference(activation, f64::from(x[i])).1;
                let set: Vec<f64> = (0..len).map(gradient).collect();
                let added: Vec<f64> = (0..len).map(|i| set[i] + f64::from(before[i])).collect();
                let bound = |i: usize| 4.0 * bound(x[i]);
                let what = format!("backward of {activation:?} on {isa:?}, {len}");
                let mut dx = vec![f32::NAN; len];
                backward(activation, &x, &dout, &mut dx, Write::Set);
                assert_close(&what, &dx, &set, bound);
                let mut in_place = dout.clone();
                backward_in_place(activation, &x, &mut in_place);
                assert_eq!(in_place, dx, "{what}");
                dx.copy_from_slice(&before);
                backward(activation, &x, &dout, &mut dx, Write::Add);
                assert_close(&what, &dx, &added, bound);
            }
        }
    });
}

/// Where x is cut, and where powers of 2 end: a result is as precise as its exponent is, however
/// small it is, and 0 where it is too small for f32.
#[test]
fn tails_are_precise_up_to_where_they_vanish() {
    let places = [
        -200.0, -100.5, -99.5, -88.8, -88.6, -87.4, -87.2, -60.0, -30.0, -17.0, -16.0, -15.9,
        -13.3, -13.0, -10.2, -10.0, -9.9, -8.0, -5.0, -1.0, 1.0, 5.0, 9.9, 10.0, 10.1, 13.0, 16.1,
        86.9, 87.1, 100.5_f32,
    ];
    let root = (2.0 / std::f64::consts::PI).sqrt();
    // e^(−…), which Φ, σ and their slopes are of the size of below 0.
    let exponent = |activation, x: f64| match activation {
        Activation::Gelu => 0.5 * x * x,
        Activation::GeluTanh => 2.0 * root * (x + 0.044715 * x.powi(3)).abs(),
        _ => x.abs(),
    };
    on_every_isa(|isa| {
        for activation in [Activation::Gelu, Activation::GeluTanh, Activation::Silu] {
            let (mut slopes, mut values) = (places.to_vec(), vec![f32::NAN; places.len()]);
            forward_and_slope_chunk(activation, &mut slopes, &mut values);
            for (i, &x) in places.iter().enumerate() {
                let (x, u) = (f64::from(x), exponent(activation, f64::from(x)));
                let gate = match activation {
                    // Φ(−z) = e^(−z²/2)/√(2π)·(1/z − 1/z³ + 3/z⁵ − …), for a large z.
                    Activation::Gelu if x.abs() >= 8.0 => {
                        let (z, mut term, mut sum) = (x.abs(), 1.0 / x.abs(), 0.0);
                        for n in 0..12 {
                            sum += term;
                            term *= -f64::from(2 * n + 1) / (z * z);
                        }
                        let tail = (-u).exp() * sum / (2.0 * std::f64::consts::PI).sqrt();
                        if x < 0.0 { tail } else { 1.0 - tail }
                    }
                    Activation::Gelu => 0.5 * (1.0 + erf_reference(x / 2_f64.sqrt())),
                    _ if x < 0.0 => (-u).exp() / (1.0 + (-u).exp()),
                    _ => 1.0 / (1.0 + (-u).exp()),
                };
                let inner = match activation {
                    Activation::Gelu => (-u).exp() / (2.0 * std::f64::consts::PI).sqrt(),
                    Activation::GeluTanh => {
                        let du = 2.0 * root * (1.0 + 3.0 * 0.044715 * x * x);
                        (-u).exp() / (1.0 + (-u).exp()).powi(2) * du
                    }
                    _ => (-u).exp() / (1.0 + (-u).exp()).powi(2),
                };
                let slope = gate + x * inner;
                // 2⁻²⁴ for each of a few roundings, once for each unit of the exponent (twice for
                // that of GELU, which is rounded as x² and again), and for what cancels in a slope.
                let relative = (8.0 + 2.0 * u) * 6e-8;
                // Below 1e-36 f32 and the cuts end it; x and its square are at most 200 and 4e4.
                let value_bound = relative * (x * gate).abs() + 1e-34;
                let slope_bound = relative * (gate + (x * inner).abs()) + 1e-32;
                let errors = (f64::from(values[i]) - x * gate, f64::from(slopes[i]) - slope);
                let what = format!("{activation:?}({x}) on {isa:?}: {errors:?}");
                assert!(errors.0.abs() <= value_bound && errors.1.abs() <= slope_bound, "{what}");
            }
        }
    });
}

/// Training takes value and slope together, everything else takes one of them.
#[test]
fn value_and_slope_together_have_the_bits_of_each() {
    let far = [16.0, 17.5, 40.0, 100.0, 200.0, 1e30, f32::INFINITY];
    on_every_isa(|isa| {
        for activation in Activation::ALL {
            for len in LENGTHS {
                let mut x = samples(len, 12.0, 1);
                x.extend(far.iter().flat_map(|&x| [x, -x]).chain([0.0, -0.0, f32::NAN]));
                let (mut value, mut derivative) = (x.clone(), vec![1.0; x.len()]);
                forward_in_place(activation, &mut value);
                backward_in_place(activation, &x, &mut derivative);
                let (mut slope, mut out) = (x.clone(), vec![0.5; x.len()]);
                forward_and_slope_chunk(activation, &mut slope, &mut out);
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
                let numbers = |x: &[f32]| x.iter().map(|x| x.is_nan()).collect::<Vec<bool>>();
                assert_eq!(numbers(&out), numbers(&value), "{activation:?} on {isa:?}");
                assert_eq!(numbers(&slope), numbers(&derivative), "{activation:?} on {isa:?}");
                for i in (0..x.len()).filter(|&i| !value[i].is_nan()) {
                    assert_eq!(bits(&out[i..=i]), bits(&value[i..=i]), "{activation:?}({})", x[i]);
                }
                for i in (0..x.len()).filter(|&i| !derivative[i].is_nan()) {
                    assert_eq!(slope[i], derivative[i], "{activation:?}′({})", x[i]);
                }
            }
        }
    });
}

#[test]
fn gated_products_match_reference_and_accumulate() {
    on_every_isa(|isa| {
        for activation in [Activation::Silu, Activation::Gelu, Activation::GeluTanh] {
            for (rows, width) in [(0, 4), (3, 0), (1, 1), (2, 7), (5, 17), (3, 100), (40, 1000)] {
                let gate_up = samples(rows * 2 * width, 4.0, 5);
                let dout = samples(rows * width, 2.0, 6);
                let before = samples(rows * 2 * width, 1.0, 7);
                let values = to_f64(&gate_up);
                let mut want = vec![0.0; rows * width];
                let mut want_gradient: Vec<f64> = before.iter().map(|&x| f64::from(x)).collect();
                for row in 0..rows {
                    for j in 0..width {
                        let (i, at) = (row * width + j, row * 2 * width + j);
                        let (value, slope) = reference(activation, values[at]);
                        want[i] = value * values[at + width];
                        want_gradient[at] += f64::from(dout[i]) * values[at + width] * slope;
                        want_gradient[at + width] += f64::from(dout[i]) * value;
                    }
                }
                let what = format!("gated {activation:?} on {isa:?}, {rows}×{width}");
                let mut out = vec![f32::NAN; rows * width];
                gated_forward(activation, rows, width, &gate_up, &mut out);
                // |gate|, |up| ≤ 4 and |dout| ≤ 2.
                assert_close(&what, &out, &want, |_| 4.0 * bound(4.0));
                let mut dgate_up = before.clone();
                gated_backward(activation, rows, width, &gate_up, &dout, &mut dgate_up, Write::Add);
                assert_close(&what, &dgate_up, &want_gradient, |_| 8.0 * bound(4.0));
                let mut set = vec![f32::NAN; rows * 2 * width];
                gated_backward(activation, rows, width, &gate_up, &dout, &mut set, Write::Set);
                let sum: Vec<f64> =
                    set.iter().zip(&before).map(|(a, b)| f64::from(a + b)).collect();
                // One more rounding of numbers below 16.
                assert_close(&what, &dgate_up, &sum, |_| 1e-6);
            }
        }
    });
}

#[test]
fn special_values_are_defined() {
    on_every_isa(|isa| {
        for activation in Activation::ALL {
            let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, 1e30, -1e30];
            let (mut out, mut dx) = ([0.0; 6], [0.0; 6]);
            forward(activation, &x, &mut out);
            backward(activation, &x, &[1.0; 6], &mut dx, Write::Set);
            let what = format!("{activation:?} on {isa:?}: {out:?} {dx:?}");
            if activation == Activation::Tanh {
                assert!(out[0].is_nan() && dx[0].is_nan(), "{what}");
                assert_eq!(out[1..], [1.0, -1.0, 0.0, 1.0, -1.0], "{what}");
                assert_eq!(dx[1..], [0.0, 0.0, 1.0, 0.0, 0.0], "{what}");
                continue;
            }
            let at_zero = if activation == Activation::EluPlusOne { 1.0 } else { 0.0 };
            assert!(out[0].is_nan() && out[1] == f32::INFINITY && out[3] == at_zero, "{what}");
            assert_eq!(out[5], 0.0, "{what}");
            if activation == Activation::SquaredRelu {
                assert!(dx[1] == f32::INFINITY && dx[4] == 2e30 && dx[5] == 0.0, "{what}");
            } else {
                assert!(dx[1] == 1.0 && dx[4] == 1.0, "{what}");
                assert!(dx[2] == 0.0 && dx[5] == 0.0, "{what}");
            }
        }
    });
}

#[test]
fn threads_do_not_change_bits() {
    let x = samples(100_000, 5.0, 8);
    let run = |threads| {
        let mut out = vec![0.0; x.len()];
        with_threads(threads, || forward(Activation::Gelu, &x, &mut out));
        out
    };
    let one = run(1);
    assert!([2, 3, 4].into_iter().all(|threads| run(threads) == one));
}
