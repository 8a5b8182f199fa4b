//! The same bits everywhere, and no pattern that simple statistics can see.
//!
//! Each statistic is compared with its distribution for true random bits; bounds are five
//! standard deviations, so that a sound generator would fail once in a million tests.

use super::*;
use crate::testing::{LENGTHS, on_every_isa, samples};
use crate::threads::with_threads;

const KEYS: [Key; 6] = [[0, 0], [0, 1], [1, 0], [1, 1], [0xffff_ffff, 0], [123, 456]];

#[test]
fn vectors_and_scalars_give_the_same_bits_on_every_isa() {
    on_every_isa(|isa| {
        for len in LENGTHS.into_iter().chain([40_000]) {
            // The last one crosses a boundary of streams in the middle of a vector.
            for first in [0, 12_345, (7 << 32) - 5] {
                let mut out = vec![f32::NAN; len];
                fill_uniform([1, 2], first, &mut out);
                for i in 0..len {
                    let want = uniform([1, 2], first + i as u64);
                    assert_eq!(out[i], want, "{isa:?} {i} of {len} from {first}");
                    assert!((0.0..1.0).contains(&out[i]));
                }
            }
        }
    });
}

#[test]
fn dropout_keeps_or_drops_on_every_isa() {
    on_every_isa(|isa| {
        for len in LENGTHS {
            let (x, before) = (samples(len, 3.0, 1), samples(len, 1.0, 2));
            for probability in [0.0, 0.1, 0.5, 1.0] {
                let first = (3 << 32) - 9;
                let layer = Dropout::new([4, 5], probability);
                let mut out = vec![f32::NAN; len];
                dropout(layer, first, &x, &mut out, Write::Set);
                let mut added = before.clone();
                dropout(layer, first, &x, &mut added, Write::Add);
                let mut in_place = x.clone();
                dropout_in_place(layer, first, &mut in_place);
                for i in 0..len {
                    let want = x[i] * layer.factor(first + i as u64);
                    assert_eq!(out[i], want, "{isa:?} {i} of {len}");
                    assert_eq!(in_place[i], want, "{isa:?} {i} of {len}");
                    assert_eq!(added[i], before[i] + want, "{isa:?} {i} of {len}");
                    assert!(probability > 0.0 || want == x[i]);
                    assert!(probability < 1.0 || want == 0.0);
                }
            }
        }
    });
}

#[test]
fn dropout_drops_its_share_and_keeps_the_mean() {
    let len = 1_000_000;
    for probability in [0.1_f32, 0.5, 0.9] {
        let mut out = vec![0.0; len];
        dropout(Dropout::new([8, 9], probability), 0, &vec![1.0; len], &mut out, Write::Set);
        let dropped = out.iter().filter(|&&x| x == 0.0).count() as f64;
        let p = f64::from(probability);
        let deviation = (len as f64 * p * (1.0 - p)).sqrt();
        assert!((dropped - len as f64 * p).abs() < 5.0 * deviation);
        let mean = out.iter().map(|&x| f64::from(x)).sum::<f64>() / len as f64;
        assert!((mean - 1.0).abs() < 5.0 * deviation / (1.0 - p) / len as f64);
    }
}

#[test]
fn every_bit_is_balanced_for_neighbouring_counters_keys_and_streams() {
    let count = 100_000_u32;
    let sequences: [fn(u32) -> u32; 4] = [
        |i| bits([0, 0], u64::from(i)),
        |i| bits([i, 0], 0),
        |i| bits([0, i], 0),
        |i| bits([0, 0], u64::from(i) << 32),
    ];
    for (which, sequence) in sequences.into_iter().enumerate() {
        for bit in 0..32 {
            let ones: u32 = (0..count).map(|i| sequence(i) >> bit & 1).sum();
            let off = f64::from(ones) - f64::from(count) / 2.0;
            let deviation = f64::from(count).sqrt() / 2.0;
            assert!(off.abs() < 5.0 * deviation, "sequence {which}, bit {bit}: off by {off}");
        }
    }
}

#[test]
fn one_changed_input_bit_changes_half_of_the_output_bits() {
    let trials = 4000_u32;
    for input in 0..128 {
        let mut flips = [0_u32; 32];
        for trial in 0..trials {
            let r = |i: u64| bits([77, 78], u64::from(trial) * 8 + i);
            let (key, counter) = ([r(0), r(1)], u64::from(r(2)) << 32 | u64::from(r(3)));
            let changed = match input {
                0..32 => bits([key[0] ^ 1 << input, key[1]], counter),
                32..64 => bits([key[0], key[1] ^ 1 << (input - 32)], counter),
                _ => bits(key, counter ^ 1 << (input - 64)),
            };
            let difference = bits(key, counter) ^ changed;
            flips.iter_mut().enumerate().for_each(|(i, flips)| *flips += difference >> i & 1);
        }
        let deviation = f64::from(trials).sqrt() / 2.0;
        for (output, &flips) in flips.iter().enumerate() {
            let off = f64::from(flips) - f64::from(trials) / 2.0;
            // 4,096 pairs of bits are tested here: six deviations keep the chance small.
            assert!(off.abs() < 6.0 * deviation, "bit {input} → {output}: off by {off}");
        }
    }
}

#[test]
fn neighbouring_counters_keys_and_streams_are_not_correlated() {
    let count = 200_000_u64;
    let centred = |key, counter| f64::from(uniform(key, counter)) - 0.5;
    for key in KEYS {
        let next_key = [key[0], key[1].wrapping_add(1)];
        let other_key = [key[0].wrapping_add(1), key[1]];
        let lags: [&dyn Fn(u64) -> f64; 6] = [
            &|i| centred(key, i + 1),
            &|i| centred(key, i + 2),
            &|i| centred(key, i + 64),
            &|i| centred(key, i + (1 << 32)),
            &|i| centred(next_key, i),
            &|i| centred(other_key, i),
        ];
        for (which, lag) in lags.into_iter().enumerate() {
            // The product of two independent uniform numbers has variance 1/144.
            let sum: f64 = (0..count).map(|i| centred(key, i) * lag(i)).sum();
            let deviation = (count as f64 / 144.0).sqrt();
            assert!(sum.abs() < 5.0 * deviation, "{key:?} against {which}: {}", sum / deviation);
        }
    }
}

#[test]
fn uniform_numbers_fill_their_interval_evenly() {
    for key in KEYS {
        let mut out = vec![0.0; 1_000_000];
        fill_uniform(key, 1 << 40, &mut out);
        let mut cells = [0_u32; 256];
        for x in &out {
            cells[(x * 256.0) as usize] += 1;
        }
        let expected = out.len() as f64 / 256.0;
        let chi2: f64 = cells.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
        // χ² with 255 degrees of freedom has mean 255 and variance 510.
        assert!((chi2 - 255.0).abs() < 5.0 * 510_f64.sqrt(), "{key:?}: χ² = {chi2}");
    }
}

#[test]
fn normal_numbers_have_the_moments_of_the_normal_distribution() {
    let count = 400_000;
    let mut out = vec![0.0; count];
    fill_normal([3, 4], 0, 2.0, &mut out);
    let moment =
        |k: i32| out.iter().map(|&x| (f64::from(x) / 2.0).powi(k)).sum::<f64>() / count as f64;
    // Moment k has mean m(k) and variance m(2k) − m(k)², with m = 0, 1, 0, 3, …, m(8) = 105.
    for (k, mean, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
        let off = moment(k) - mean;
        let deviation: f64 = f64::sqrt(variance / count as f64);
        assert!(off.abs() < 5.0 * deviation, "moment {k} is off by {off}");
    }
}

#[test]
fn threads_do_not_change_bits() {
    let x = samples(100_000, 1.0, 1);
    let run = |threads| {
        with_threads(threads, || {
            let mut out = vec![0.0; x.len()];
            fill_normal([1, 1], 5, 1.0, &mut out);
            dropout(Dropout::new([5, 6], 0.3), 7, &x, &mut out, Write::Add);
            out
        })
    };
    let one = run(1);
    assert!([2, 3, 4].into_iter().all(|threads| run(threads) == one));
}
