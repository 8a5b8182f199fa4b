//! Infinities, NaN, the largest and the smallest numbers, and how precise products on tiles are.

use super::{Reference, numbers, product};
use crate::Write;
use crate::gemm::{Data, Epilogue, Matrix, gemm};
use crate::isa::{Isa, with_isa};
use crate::threads::with_threads;
use half::bf16;

#[test]
fn infinities_and_nan_reach_exactly_the_elements_they_belong_to() {
    for (m, n, k) in [(17, 35, 20), (70, 67, 20), (70, 67, 600)] {
        let (mut a, mut b) = (numbers(m * k, 1), numbers(k * n, 2));
        a[3 * k + 7] = f32::NAN; // row 3
        b[7 * n + 34] = f32::INFINITY; // column 34
        for isa in Isa::all_available() {
            let out = with_isa(isa, || product(Matrix::new(&a, m, k), Matrix::new(&b, k, n)));
            for i in 0..m {
                for j in 0..n {
                    let x = out[i * n + j];
                    assert_eq!(x.is_nan(), i == 3, "({i}, {j})");
                    assert_eq!(x.is_finite(), i != 3 && j != 34, "({i}, {j})");
                }
            }
        }
    }
}

/// In every layout and storage type, where results are added to, on any number of threads.
#[test]
fn what_is_not_finite_is_found_in_every_layout() {
    let (m, n, k) = (100, 90, 70);
    for at in [0, 33 * k + 5, 89 * k + 69] {
        let (mut x, y) = (numbers(m * k, 1), numbers(m * k, 2));
        x[at] = f32::INFINITY;
        let bits = |x: &[f32]| x.iter().map(|&x| bf16::from_f32(x).to_bits()).collect::<Vec<_>>();
        let (x16, y16) = (bits(&x), bits(&y));
        for (x, y) in [
            (Data::F32(&x), Data::F32(&y)),
            (Data::Bf16(&x16), Data::F32(&y)),
            (Data::F32(&x), Data::Bf16(&y16)),
            (Data::Bf16(&x16), Data::Bf16(&y16)),
        ] {
            // As A and as B, in rows and in columns.
            let pairs = [
                (Matrix::of(x, m, k, k), Matrix::of(y, k, n, n)),
                (Matrix::of(x, k, m, m).transposed(), Matrix::of(y, n, k, k).transposed()),
                (Matrix::of(y, m, k, k), Matrix::of(x, k, n, n)),
                (Matrix::of(y, m, k, k), Matrix::of(x, n, k, k).transposed()),
            ];
            for (a, b) in pairs {
                let of = |isa, threads| {
                    let mut out = numbers(m * n, 3);
                    let add = || gemm(a, b, &mut out, n, Write::Add, Epilogue::default());
                    with_isa(isa, || with_threads(threads, add));
                    out
                };
                let want = of(Isa::Portable, 1);
                assert!(want.iter().any(|x| x.is_infinite()));
                for isa in Isa::all_available() {
                    let one = of(isa, 1);
                    for (got, want) in one.iter().zip(&want) {
                        // 70 products of at most 1, and what is there.
                        let close = (got - want).abs() <= 1e-5;
                        assert!(got == want || close && want.is_finite(), "{isa:?}: {got}, {want}");
                    }
                    assert!(one == of(isa, 3), "{isa:?}");
                }
            }
        }
    }
}

/// On tiles a number, a part of one or a product of two that is below the least normal number counts
/// as zero: at most six such products, and twice such a part times the other number.
#[test]
fn the_largest_and_the_smallest_numbers_are_multiplied() {
    let (m, n, k) = (70, 40, 64);
    for (x, y) in [(f32::MAX, 0.25), (3e38, 1e-3), (1e25, -1e13), (1e-30, 1e-8), (1e-38, 1e30)] {
        let (a, mut b) = (vec![x; m * k], vec![y; k * n]);
        b[n..].fill(0.0); // one product each
        let bound = 1e-6 * (x * y).abs() + f32::MIN_POSITIVE * (6.0 + 2.0 * y.abs().max(x.abs()));
        for isa in Isa::all_available() {
            let out = with_isa(isa, || product(Matrix::new(&a, m, k), Matrix::new(&b, k, n)));
            assert!(out.iter().all(|z| (z - x * y).abs() <= bound), "{isa:?}: {x}·{y}: {}", out[0]);
        }
    }
}

/// The error of a product, over the root of Σ(a·b)², as a root of the mean square: six products of
/// parts are to be no worse than a multiply-add.
#[test]
fn tiles_are_as_precise_as_multiply_adds() {
    if !Isa::Amx.available() {
        println!("skipped: no AMX here");
        return;
    }
    for (m, n, k) in [(64, 64, 16), (64, 64, 128), (64, 64, 1000)] {
        let (a, b) = (numbers(m * k, 5), numbers(k * n, 6));
        let (a, b) = (Matrix::new(&a, m, k), Matrix::new(&b, k, n));
        let reference = Reference::new(&a, &b);
        let error = |isa| {
            let out = with_isa(isa, || product(a, b));
            let square = |(x, y): (&f32, &f64)| (f64::from(*x) - y).powi(2);
            let sum: f64 = out.iter().zip(&reference.product).map(square).sum();
            (sum / (m * n * k) as f64).sqrt()
        };
        let (tiles, vectors) = (error(Isa::Amx), error(Isa::Avx512));
        println!("{m}×{n}×{k}: {tiles:.2e} on tiles, {vectors:.2e} by vectors");
        assert!(tiles <= 1.1 * vectors, "{k}: {tiles:e} > {vectors:e}");
    }
}
