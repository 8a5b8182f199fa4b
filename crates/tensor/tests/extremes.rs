//! Softmax, cross-entropy and attention at logits of ±10⁴, and with what backward needs in 16 bits
//! (E16): against plain f64, never NaN.

use hearken_tensor::ops::attention::{Attend, attention};
use hearken_tensor::ops::cross_entropy::{Options, cross_entropy};
use hearken_tensor::ops::head_cross_entropy::{head_cross_entropy, last_logits, token_losses};
use hearken_tensor::ops::softmax::softmax;
use hearken_tensor::rng::Rng;
use hearken_tensor::{HalfTensor, Storage, Tensor, Var, Weight, with_storage};

const STORAGES: [(Storage, f64); 3] = [
    // What a saved number may be off by, relative: half a unit in the last of 24, 8 and 11 bits, and
    // for f16 that weights below 6e-5 lose bits.
    (Storage::F32, 2e-6),
    (Storage::Bf16, 5e-3),
    (Storage::F16, 1e-3),
];

/// Rows of logits: large and equal, large and close, large and far apart, all very low, mixed.
fn rows() -> (Tensor, Vec<u32>) {
    let mut data = Vec::new();
    let mut rng = Rng::new(16);
    let width = 37;
    for row in 0..8usize {
        for column in 0..width {
            data.push(match row {
                2 => 1e4 - column as f32 / 8.0,
                3 => -1e4 + column as f32,
                4 if column == 5 => 1e4,
                5 if column == 5 => -1e4,
                0 | 5 => 1e4,
                1 | 4 => -1e4,
                6 => 1e4 * rng.normal_one() as f32,
                _ => rng.normal_one() as f32,
            });
        }
    }
    (Tensor::new([8, width], &data), (0..8).map(|row| row * 4 % 37).collect())
}

fn log_sum_exp(z: &[f64]) -> f64 {
    let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    top + z.iter().map(|z| (z - top).exp()).sum::<f64>().ln()
}

fn probabilities(z: &[f64]) -> Vec<f64> {
    let lse = log_sum_exp(z);
    z.iter().map(|z| (z - lse).exp()).collect()
}

fn wide(row: &[f32]) -> Vec<f64> {
    row.iter().map(|x| f64::from(*x)).collect()
}

#[track_caller]
fn assert_close(got: &[f32], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let size = want.iter().fold(1.0f64, |most, x| most.max(x.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let off = (f64::from(*g) - w).abs() / size;
        assert!(off <= tolerance, "{what}, at {i}: {g}, expected {w}, off by {off:.1e}");
    }
}

#[test]
fn softmax_and_its_gradient() {
    let (z, _) = rows();
    for (storage, tolerance) in STORAGES {
        with_storage(storage, || {
            let x = Var::leaf(z.clone());
            let y = softmax(x.clone(), 1.0);
            let dout = Rng::new(3).normal(z.shape(), 1.0);
            y.backward_with(dout.clone());
            let dx = x.gradient().unwrap();
            for (row, (z, dy)) in z.data().chunks(37).zip(dout.data().chunks(37)).enumerate() {
                let p = probabilities(&wide(z));
                let at = row * 37..(row + 1) * 37;
                assert_close(&y.value().data()[at.clone()], &p, 2e-6, "softmax");
                let mean: f64 = p.iter().zip(dy).map(|(p, d)| p * f64::from(*d)).sum();
                let want: Vec<f64> =
                    p.iter().zip(dy).map(|(p, d)| p * (f64::from(*d) - mean)).collect();
                assert_close(&dx.data()[at], &want, 2.0 * tolerance, "its gradient");
            }
        });
    }
}

#[test]
fn cross_entropy_and_its_gradient() {
    let (z, targets) = rows();
    for label_smoothing in [0.0f32, 0.1] {
        for (storage, _) in STORAGES {
            with_storage(storage, || {
                let options = Options { label_smoothing, ..Options::default() };
                let x = Var::leaf(z.clone());
                let loss = cross_entropy(x.clone(), &targets, options);
                loss.backward();
                let (mut sum, mut gradient) = (0.0, Vec::new());
                let epsilon = f64::from(label_smoothing);
                for (z, target) in z.data().chunks(37).zip(&targets) {
                    let z = wide(z);
                    let mean = z.iter().sum::<f64>() / 37.0;
                    let target = *target as usize;
                    sum += log_sum_exp(&z) - (1.0 - epsilon) * z[target] - epsilon * mean;
                    let y = |i| f64::from(u8::from(i == target)) * (1.0 - epsilon) + epsilon / 37.0;
                    let p = probabilities(&z).into_iter().enumerate();
                    gradient.extend(p.map(|(i, p)| (p - y(i)) / 8.0));
                }
                assert_close(&[loss.value().item()], &[sum / 8.0], 1e-6, "the loss");
                // The gradient is computed in the forward pass and kept in 32 bits.
                assert_close(x.gradient().unwrap().data(), &gradient, 1e-6, "its gradient");
            });
        }
    }
}

/// The head makes logits of ±10⁴ from a weight in 32 or 16 bits.
#[test]
fn the_head_in_16_bits() {
    let mut rng = Rng::new(4);
    let h = rng.normal([6, 8], 30.0);
    let w = rng.normal([19, 8], 100.0);
    let targets = [0u32, 3, 7, 18, 2, 11];
    for (storage, tolerance) in STORAGES {
        let stored = HalfTensor::new(&w, storage_or_bf16(storage));
        let weight = match storage {
            Storage::F32 => Weight::from(&Var::leaf(w.clone())),
            _ => Weight::frozen(stored.clone()),
        };
        let rounded = if storage == Storage::F32 { w.clone() } else { stored.widen() };
        let logits: Vec<f64> = h
            .data()
            .chunks(8)
            .flat_map(|h| {
                let dot =
                    |w: &[f32]| h.iter().zip(w).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                rounded.data().chunks(8).map(dot).collect::<Vec<f64>>()
            })
            .collect();
        let largest = logits.iter().fold(0.0f64, |most, z| most.max(z.abs()));
        assert!((1e4..1e5).contains(&largest), "{largest}");
        let want: Vec<f64> = logits
            .chunks(19)
            .zip(&targets)
            .map(|(z, target)| log_sum_exp(z) - z[*target as usize])
            .collect();
        let losses = token_losses(&h, weight.clone(), None, &targets);
        assert_close(losses.data(), &want, 1e-5, "token losses");
        let last = last_logits(&h.clone().reshape([1, 6, 8]), weight.clone(), None);
        assert_close(last.data(), &logits[5 * 19..], 1e-5, "last logits");

        let x = Var::leaf(h.clone());
        let loss = with_storage(storage, || {
            head_cross_entropy(&x, weight.clone(), None, &targets, Options::default())
        });
        assert_close(&[loss.value().item()], &[want.iter().sum::<f64>() / 6.0], 1e-5, "the loss");
        loss.backward();
        let mut gradient = Vec::new();
        for (z, target) in logits.chunks(19).zip(&targets) {
            let p = probabilities(z);
            for c in 0..8 {
                let part = |(i, p): (usize, &f64)| {
                    let y = f64::from(u8::from(i == *target as usize));
                    (p - y) / 6.0 * f64::from(rounded.data()[i * 8 + c])
                };
                gradient.push(p.iter().enumerate().map(part).sum::<f64>());
            }
        }
        assert_close(x.gradient().unwrap().data(), &gradient, 2.0 * tolerance, "its gradient");
    }
}

fn storage_or_bf16(storage: Storage) -> Storage {
    if storage == Storage::F32 { Storage::Bf16 } else { storage }
}

/// Queries and keys whose scaled products reach ±10⁴: the weights are 0 and 1, outputs are values.
#[test]
fn attention_with_scores_of_ten_thousand() {
    let mut rng = Rng::new(9);
    let (t, d) = (40, 16);
    let q = rng.normal([1, t, d], 60.0);
    let k = rng.normal([1, t, d], 60.0);
    let v = rng.normal([1, t, d], 1.0);
    for (storage, tolerance) in STORAGES {
        with_storage(storage, || {
            let [q, k, v] = [&q, &k, &v].map(|x| Var::leaf(x.clone()));
            let out = attention(&q, &k, &v, &[], &Attend::new(1));
            let mut largest = 0.0f64;
            let mut want = Vec::new();
            for query in q.value().data().chunks(d) {
                let scores: Vec<f64> = k
                    .value()
                    .data()
                    .chunks(d)
                    .map(|key| {
                        let products = query.iter().zip(key);
                        products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() / 4.0
                    })
                    .collect();
                largest = scores.iter().fold(largest, |most, s| most.max(s.abs()));
                let p = probabilities(&scores);
                for c in 0..d {
                    let values = v.value().data().chunks(d).map(|v| f64::from(v[c]));
                    want.push(p.iter().zip(values).map(|(p, v)| p * v).sum::<f64>());
                }
            }
            assert!(largest > 1e4, "{largest}");
            // A score of 10⁴ in 32 bits is good to 1e-3; that is what a weight may be off by.
            assert_close(out.value().data(), &want, 2e-3, "attention");
            out.backward_with(Rng::new(1).normal([1, t, d], 1.0));
            for x in [&q, &k, &v] {
                let gradient = x.gradient().unwrap();
                assert!(gradient.data().iter().all(|x| x.is_finite()), "{storage:?} {tolerance}");
            }
        });
    }
}
