//! Against plain f64 loops over several steps, on every instruction set.

use super::*;
use crate::testing::{LENGTHS, assert_close, on_every_isa, samples, to_f64};
use crate::threads::with_threads;

const SCALE: f32 = 0.5;
const STEPS: u32 = 5;

/// State of the oracle: parameter and two moments, in f64.
struct Oracle {
    parameter: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
}

/// Runs `f` and the oracle `g` for a few steps with fresh gradients; parameters and the first
/// moment must agree. `g(step, gradient, θ, m, v)` gives the new (θ, m, v) of one element.
#[track_caller]
fn compare(
    name: &str,
    f: impl Fn(u32, &[f32], &mut [f32], &mut [f32], &mut [f32]),
    g: impl Fn(u32, f64, f64, f64, f64) -> (f64, f64, f64),
) {
    on_every_isa(|isa| {
        for len in LENGTHS.into_iter().chain([20_000]) {
            let mut parameter = samples(len, 1.0, 1);
            let (mut first, mut second) = (vec![0.0; len], vec![0.0; len]);
            let mut oracle = Oracle {
                parameter: to_f64(&parameter),
                first: vec![0.0; len],
                second: vec![0.0; len],
            };
            for step in 1..=STEPS {
                let gradient = samples(len, 2.0, 1 + step);
                f(step, &gradient, &mut parameter, &mut first, &mut second);
                for i in 0..len {
                    let scaled = f64::from(gradient[i]) * f64::from(SCALE);
                    let (theta, m, v) =
                        g(step, scaled, oracle.parameter[i], oracle.first[i], oracle.second[i]);
                    (oracle.parameter[i], oracle.first[i], oracle.second[i]) = (theta, m, v);
                }
            }
            let what = format!("{name}, {len} on {isa:?}");
            // Five steps of some five roundings each, of numbers up to 5.
            assert_close(&what, &parameter, &oracle.parameter, |_| 4e-6);
            assert_close(&what, &first, &oracle.first, |_| 4e-6);
        }
    });
}

#[test]
fn adam_matches_reference() {
    for decay in [Decay::Decoupled, Decay::Gradient] {
        let adam = |step| Adam {
            learning_rate: 0.01,
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-6,
            weight_decay: 0.1,
            decay,
            correction1: bias_correction(0.9, step),
            correction2: bias_correction(0.99, step),
        };
        compare(
            &format!("{decay:?}"),
            |step, g, p, m, v| adam_step(adam(step), SCALE, g, p, m, v),
            |step, g, p, m, v| {
                let (b1, b2) = (f64::from(0.9_f32), f64::from(0.99_f32));
                let (rate, lambda) = (f64::from(0.01_f32), f64::from(0.1_f32));
                let g = if decay == Decay::Gradient { g + lambda * p } else { g };
                let (m, v) = (b1 * m + (1.0 - b1) * g, b2 * v + (1.0 - b2) * g * g);
                let (t1, t2) = (1.0 - b1.powi(step as i32), 1.0 - b2.powi(step as i32));
                let mut update = m / t1 / ((v / t2).sqrt() + f64::from(1e-6_f32));
                if decay == Decay::Decoupled {
                    update += lambda * p;
                }
                (p - rate * update, m, v)
            },
        );
    }
}

#[test]
fn sgd_and_momentum_match_reference() {
    let (rate, beta, lambda) = (f64::from(0.05_f32), f64::from(0.8_f32), f64::from(0.01_f32));
    for variant in 0..8 {
        let (classic, nesterov) = (variant & 1 == 1, variant & 2 == 2);
        let decay = if variant & 4 == 4 { Decay::Gradient } else { Decay::Decoupled };
        let sgd = Sgd {
            learning_rate: 0.05,
            momentum: 0.8,
            classic,
            nesterov,
            weight_decay: 0.01,
            decay,
        };
        compare(
            "sgd",
            |_, g, p, _, _| sgd_step(sgd, SCALE, g, p),
            |_, g, p, m, v| (p - rate * (g + lambda * p), m, v),
        );
        compare(
            &format!("{sgd:?}"),
            |_, g, p, m, _| momentum_step(sgd, SCALE, g, p, m),
            |_, g, p, m, v| {
                let (l2, decoupled) =
                    if decay == Decay::Gradient { (lambda, 0.0) } else { (0.0, lambda) };
                let g = (g + l2 * p) * if classic { 1.0 } else { 1.0 - beta };
                let m = beta * m + g;
                let direction = if nesterov { g + beta * m } else { m };
                (p - rate * (direction + decoupled * p), m, v)
            },
        );
    }
}

#[test]
fn lion_matches_reference() {
    let lion = Lion { learning_rate: 0.01, beta1: 0.9, beta2: 0.95, weight_decay: 0.1 };
    let (rate, b1) = (f64::from(0.01_f32), f64::from(0.9_f32));
    let (b2, lambda) = (f64::from(0.95_f32), f64::from(0.1_f32));
    compare(
        "lion",
        |_, g, p, m, _| lion_step(lion, SCALE, g, p, m),
        |_, g, p, m, v| {
            let sign = (b1 * m + (1.0 - b1) * g).signum();
            (p - rate * (sign + lambda * p), b2 * m + (1.0 - b2) * g, v)
        },
    );
    let (mut parameter, mut mean) = ([1.0, 1.0], [0.0, 0.0]);
    lion_step(lion, 1.0, &[0.0, f32::NAN], &mut parameter, &mut mean);
    assert_eq!(parameter[0], 1.0 - 0.01 * 0.1);
    assert!(parameter[1].is_nan());
}

#[test]
fn the_momentum_of_muon_matches_reference() {
    let beta = f64::from(0.95_f32);
    for nesterov in [false, true] {
        compare(
            "muon",
            // The update is put where the parameter is compared.
            |_, g, p, m, _| muon_momentum(0.95, nesterov, SCALE, g, m, p),
            |_, g, _, m, v| {
                let m = beta * m + g;
                (if nesterov { g + beta * m } else { m }, m, v)
            },
        );
    }
}

#[test]
fn threads_do_not_change_bits() {
    let gradient = samples(100_000, 1.0, 9);
    let adam = Adam {
        learning_rate: 0.01,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.1,
        decay: Decay::Decoupled,
        correction1: bias_correction(0.9, 1),
        correction2: bias_correction(0.999, 1),
    };
    let run = |threads| {
        let (mut p, mut m, mut v) =
            (samples(100_000, 1.0, 10), vec![0.0; 100_000], vec![0.0; 100_000]);
        with_threads(threads, || adam_step(adam, 1.0, &gradient, &mut p, &mut m, &mut v));
        (p, m, v)
    };
    let one = run(1);
    assert!([2, 3, 4].into_iter().all(|threads| run(threads) == one));
}
