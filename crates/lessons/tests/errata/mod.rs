//! The numbers of those entries of `docs/ERRATA.md` that no lesson computes, under their ids.

use hearken_tensor::ops::cross_entropy::{Options, cross_entropy};
use hearken_tensor::ops::matmul::{matmul, matmul_transposed};
use hearken_tensor::ops::softmax::softmax;
use hearken_tensor::ops::transpose::transpose;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Tensor, Var};

/// Is the entry there? Then its number can be held against the text.
fn says(id: &str, what: &str) {
    let errata = include_str!("../../../../docs/ERRATA.md");
    let row = errata.lines().find(|line| line.starts_with(&format!("| {id} |")));
    let row = row.unwrap_or_else(|| panic!("docs/ERRATA.md has no {id}"));
    assert!(row.contains(what), "{id} does not say {what:?}: {row}");
}

#[test]
fn entry_0_2_beta_2_rises() {
    let memory = |beta: f64| (1.0 / (1.0 - beta)).round();
    assert_eq!([memory(0.99), memory(0.999)], [100.0, 1000.0]);
    says("0.2", "from 100 steps to 1,000");
}

#[test]
fn entry_2_22_a_column_times_a_row_is_a_matrix() {
    let [q, k] =
        [[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]].map(|x| Var::constant(Tensor::new([1, 3], &x)));
    let outer = matmul(&transpose(&q, 0, 1), &k);
    assert_eq!(outer.shape().dims(), [3, 3]);
    let score = matmul_transposed(&q, &k);
    assert_eq!((score.shape().dims(), score.value().item()), (&[1, 1][..], 4.5));
    says("2.22", "outer product");
}

#[test]
fn entry_3_26_a_key_between_others_never_wins() {
    let keys = [1.0, 2.0, 3.0_f64];
    for step in -1000..=1000 {
        let q = f64::from(step) / 100.0;
        let best = (0..3).max_by(|a, b| (q * keys[*a]).total_cmp(&(q * keys[*b]))).unwrap();
        assert!(best != 1 || q == 0.0, "q = {q}");
    }
    says("3.26", "1 or 3, never 2");
}

#[test]
fn entry_3_34_what_is_left_out_is_six_times_what_is_kept() {
    let (n, d) = (512.0, 512.0);
    assert_eq!(12.0 * n * d * d / (2.0 * n * n * d), 6.0);
    says("3.34", "six times");
}

#[test]
fn entry_3_40_a_product_of_normals_is_not_normal() {
    let mut rng = Rng::new(8);
    // E[x⁴]/E[x²]² of q·k for D = 1 is 9, for D it is 3 + 6/D.
    let kurtosis = |width: usize, rng: &mut Rng| {
        let draws = 400_000 / width;
        let mut score = || (0..width).map(|_| rng.normal_one() * rng.normal_one()).sum::<f64>();
        let scores: Vec<f64> = (0..draws).map(|_| score()).collect();
        let mean = |power: i32| scores.iter().map(|x| x.powi(power)).sum::<f64>() / draws as f64;
        mean(4) / mean(2).powi(2)
    };
    let (one, many) = (kurtosis(1, &mut rng), kurtosis(16, &mut rng));
    assert!((one - 9.0).abs() < 0.8, "{one}");
    assert!((many - 3.375).abs() < 0.25, "{many}");
    says("3.40", "3 + 6/d_k");
}

#[test]
fn entry_3_41_softmax_of_small_numbers_is_uniform() {
    let of = |x: &[f32]| softmax(Var::constant(Tensor::new([1, 3], x)), 1.0).into_value();
    for (p, want) in of(&[0.001, 0.002, 0.003]).data().iter().zip([0.3330, 0.3333, 0.3337]) {
        assert!((p - want).abs() < 5e-5, "{p}");
    }
    assert!(of(&[10.0, 20.0, 30.0]).data()[2] > 0.9999);
    says("3.41", "[0.3330, 0.3333, 0.3337]");
}

#[test]
fn entry_3_49_layers_of_a_convolution_until_all_is_seen() {
    let n = 1024;
    // With kernel 3 a layer reaches `dilation` further on each side.
    let layers = |dilation: fn(u32) -> usize| {
        let (mut reach, mut layers) = (0, 0);
        while 2 * reach + 1 < n {
            reach += dilation(layers);
            layers += 1;
        }
        layers
    };
    assert_eq!((layers(|_| 1), layers(|layer| 1 << layer)), (512, 10));
    says("3.49", "512 layers");
}

#[test]
fn entry_3_50_the_curve_bends() {
    let loss = |n: f64| 1.7 + 400.0 * n.powf(-0.34);
    let slope = |a: f64, b: f64| (loss(b).ln() - loss(a).ln()) / (b.ln() - a.ln());
    assert!((slope(1e6, 1e7) + 0.20).abs() < 5e-3, "{}", slope(1e6, 1e7));
    assert!((slope(1e9, 1e10) + 0.04).abs() < 5e-3, "{}", slope(1e9, 1e10));
    says("3.50", "−0.20 between N = 10⁶ and 10⁷, −0.04 between 10⁹ and 10¹⁰");
}

#[test]
fn entry_4_2_is_counted() {
    assert_eq!("The cat sat on".chars().count(), 14);
    says("4.2", "14");
}

#[test]
fn entry_4_13_every_step_costs_the_projections() {
    let (t, d) = (100_u64, 768_u64);
    assert_eq!((2 * t * d, 12 * d * d), (153_600, 7_077_888));
    says("4.13", "154 thousand");
}

#[test]
fn entry_4_19_three_matrices_keep_the_parameters() {
    let d = 768_u64;
    assert_eq!(3 * d * (8 * d / 3), 8 * d * d);
    says("4.19", "two give 5.33d²");
}

#[test]
fn entry_4_21_the_gradient_is_divided_by_the_positions() {
    let logits = Var::leaf(Rng::new(3).normal([5, 7], 1.0));
    let targets = [1_u32, 0, 6, 3, 2];
    cross_entropy(logits.clone(), &targets, Options::default()).backward();
    let p = softmax(Var::constant(logits.value().clone()), 1.0).into_value();
    let gradient = logits.gradient().unwrap();
    for (i, (g, p)) in gradient.data().iter().zip(p.data()).enumerate() {
        let y = f32::from(u8::from(targets[i / 7] as usize == i % 7));
        assert!((g - 0.2 * (p - y)).abs() < 1e-6, "{g} and {}", p - y);
    }
    says("4.21", "the ratio is 0.2");
}
