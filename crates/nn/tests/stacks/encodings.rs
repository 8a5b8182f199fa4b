//! What is said of positions and scores, each statement as a test.

use hearken_kernels::rope::Pairing;
use hearken_nn::config::{FeedForwardConfig, FeedForwardKind, StackConfig};
use hearken_nn::layers::FeedForward;
use hearken_nn::pass::Pass;
use hearken_nn::scope::{Scope, Weights};
use hearken_nn::variants;
use hearken_tensor::ops::rope::rope_at;
use hearken_tensor::positions::sinusoidal;
use hearken_tensor::rng::Rng;
use hearken_tensor::rope_table::{RopeTable, Scaling};
use hearken_tensor::{Tensor, Var, no_grad};

const WIDTH: usize = 24;

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

#[test]
fn the_sinusoidal_encoding_of_a_shifted_position_is_linear_in_that_of_the_position() {
    let table = sinusoidal(200, WIDTH);
    let pair =
        |p: usize, i: usize| [2 * i, 2 * i + 1].map(|c| f64::from(table.data()[p * WIDTH + c]));
    for k in [1, 7, 100] {
        for i in 0..WIDTH / 2 {
            // The matrix depends on k alone: it is read off at position 0, where PE is (0, 1).
            let [sin, cos] = pair(k, i);
            for p in 0..100 {
                let ([s, c], [want_s, want_c]) = (pair(p, i), pair(p + k, i));
                let (got_s, got_c) = (cos * s + sin * c, cos * c - sin * s);
                assert!((got_s - want_s).abs() < 1e-6 && (got_c - want_c).abs() < 1e-6);
            }
        }
    }
}

#[test]
fn the_product_of_two_sinusoidal_encodings_depends_on_their_distance_only() {
    let table = sinusoidal(200, WIDTH);
    let row = |p: usize| &table.data()[p * WIDTH..(p + 1) * WIDTH];
    for distance in [0, 1, 5, 60] {
        let want = dot(row(0), row(distance));
        for p in 0..200 - distance {
            assert!((dot(row(p), row(p + distance)) - want).abs() < 1e-5);
            assert!((dot(row(p + distance), row(p)) - want).abs() < 1e-5);
        }
    }
    assert!(
        (dot(row(3), row(3)) - WIDTH as f64 / 2.0).abs() < 1e-5,
        "sin² + cos² = 1 in each pair"
    );
}

#[test]
fn rope_scores_depend_on_the_difference_of_positions_only_and_norms_are_kept() {
    let vector = |seed| Rng::new(seed).normal([1, 1, WIDTH], 1.0);
    let (query, key) = (vector(1), vector(2));
    for pairing in [Pairing::Halves, Pairing::Neighbours] {
        let table = RopeTable::new(WIDTH, WIDTH, 10_000.0, Scaling::None, pairing, 512);
        let at = |x: &Tensor, position: u32| -> Vec<f32> {
            let turned = no_grad(|| rope_at(Var::constant(x.clone()), &table, 1, &[position]));
            turned.value().data().to_vec()
        };
        for difference in [0, 1, 9, 100] {
            let want = dot(&at(&query, difference), &at(&key, 0));
            for n in [1, 2, 50, 333] {
                let got = dot(&at(&query, n + difference), &at(&key, n));
                assert!((got - want).abs() < 1e-4, "{pairing:?}, m − n = {difference}, n = {n}");
            }
        }
        // Otherwise it would be no position at all.
        assert!(
            (dot(&at(&query, 5), &at(&key, 0)) - dot(&at(&query, 0), &at(&key, 0))).abs() > 1e-2
        );
        for position in [0, 1, 77, 511] {
            let turned = at(&query, position);
            assert!((dot(&turned, &turned) - dot(query.data(), query.data())).abs() < 1e-4);
        }
    }
}

#[test]
fn the_feed_forward_layer_is_shift_equivariant() {
    for kind in [FeedForwardKind::Gelu, FeedForwardKind::Swiglu] {
        let stack = variants::base().stack;
        let feed_forward = FeedForwardConfig { kind, ..stack.feed_forward };
        let config = StackConfig { feed_forward, ..stack };
        let scope = Scope::root(Weights::Drawn { seed: 4 });
        let layer = FeedForward::new(&scope, &config);
        let run = |x: Tensor| {
            no_grad(|| layer.forward(&Var::constant(x), None, &Pass::evaluate())).into_value()
        };
        let (tokens, width, shift) = (9, config.width, 3);
        let x = Rng::new(8).normal([1, tokens, width], 1.0);
        let mut moved = x.data().to_vec();
        moved.rotate_right(shift * width);
        let mut want = run(x).data().to_vec();
        want.rotate_right(shift * width);
        let got = run(Tensor::new([1, tokens, width], &moved));
        for (got, want) in got.data().iter().zip(&want) {
            assert!((got - want).abs() < 1e-6, "{kind:?}: {got} and {want}");
        }
    }
}

#[test]
fn the_variance_of_a_score_before_scaling_is_the_width_of_a_head() {
    const SAMPLES: usize = 20_000;
    for width in [4, 16, 64] {
        let mut rng = Rng::new(width as u64);
        let q = rng.normal([SAMPLES, width], 1.0);
        let k = rng.uniform([SAMPLES, width], -f64::sqrt(3.0), f64::sqrt(3.0)); // variance 1, too
        let products = q.data().chunks(width).zip(k.data().chunks(width)).map(|(q, k)| dot(q, k));
        let products: Vec<f64> = products.collect();
        let mean = products.iter().sum::<f64>() / SAMPLES as f64;
        let variance = products.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / SAMPLES as f64;
        // The deviation of a sample variance is about √(3/N) of it for these tails: 0.012 here.
        assert!((variance / width as f64 - 1.0).abs() < 0.06, "D = {width}: {variance}");
        assert!(mean.abs() < 5.0 * (width as f64 / SAMPLES as f64).sqrt());
    }
}
