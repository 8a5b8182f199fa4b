//! The product against a plain loop in f64.

use super::{Data, Epilogue, Matrix, gemm, gemm_batched};
use crate::Write;
use crate::activation::{self, Activation};
use crate::isa::{self, Isa, with_isa};
use crate::threads::with_threads;
use half::{bf16, f16};

mod special_numbers;

/// Numbers in ±1 that look random, the same for the same seed.
fn numbers(len: usize, seed: u32) -> Vec<f32> {
    (0..len as u32)
        .map(|i| {
            let x = (i ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
            let x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
            ((x ^ (x >> 16)) >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// Element (i, j), widened.
fn at(x: &Matrix<'_>, i: usize, j: usize) -> f64 {
    let index = i * x.row_stride + j * x.column_stride;
    f64::from(match x.data {
        Data::F32(d) => d[index],
        Data::F16(d) => f16::from_bits(d[index]).to_f32(),
        Data::Bf16(d) => bf16::from_bits(d[index]).to_f32(),
    })
}

/// A·B in f64, and Σ|a||b| for each element.
struct Reference {
    shape: (usize, usize, usize),
    product: Vec<f64>,
    sizes: Vec<f64>,
}

impl Reference {
    fn new(a: &Matrix<'_>, b: &Matrix<'_>) -> Self {
        let ((m, k), n) = (a.shape(), b.columns);
        let (mut product, mut sizes) = (vec![0.0; m * n], vec![0.0; m * n]);
        for i in 0..m {
            for p in 0..k {
                let x = at(a, i, p);
                for j in 0..n {
                    let term = x * at(b, p, j);
                    product[i * n + j] += term;
                    sizes[i * n + j] += term.abs();
                }
            }
        }
        Self { shape: (m, n, k), product, sizes }
    }

    /// Holds `out` (M, N) against `before` + A·B.
    ///
    /// A chain of multiply-adds over n steps is off by at most n roundings, each of at most ε/2
    /// times a partial sum, and no partial sum is larger than Σ|a||b|. Adding up blocks and
    /// `before` are fewer than K + 2 further roundings, and without FMA there are twice as many.
    /// So |error| ≤ (K + 2)·ε·(|before| + Σ|a||b|).
    fn check(&self, before: &[f32], out: &[f32], stride: usize, what: &str) {
        let (m, n, k) = self.shape;
        for i in 0..m {
            for j in 0..n {
                let before = f64::from(before[i * stride + j]);
                let want = before + self.product[i * n + j];
                let size = before.abs() + self.sizes[i * n + j];
                let bound = (k as f64 + 2.0) * f64::from(f32::EPSILON) * size;
                let got = f64::from(out[i * stride + j]);
                let error = (got - want).abs();
                assert!(
                    error <= bound,
                    "{what}, {m}×{k} times {k}×{n} at ({i}, {j}): {got}, expected {want}, \
                     off by {error:e} > {bound:e}"
                );
            }
        }
    }
}

/// All four layouts of an m × k by k × n product, in rows `gap` longer than needed and filled
/// with NaN between.
fn each_layout(
    (m, n, k): (usize, usize, usize),
    gap: usize,
    mut f: impl FnMut(Matrix<'_>, Matrix<'_>, &str),
) {
    let spaced = |rows: usize, columns: usize, seed: u32| -> Vec<f32> {
        let mut data = numbers(rows * (columns + gap), seed);
        data.chunks_mut(columns + gap).for_each(|row| row[columns..].fill(f32::NAN));
        data
    };
    let (a, a_t) = (spaced(m, k, 1), spaced(k, m, 2));
    let (b, b_t) = (spaced(k, n, 3), spaced(n, k, 4));
    let a = Matrix::strided(&a, m, k, k + gap);
    let a_t = Matrix::strided(&a_t, k, m, m + gap).transposed();
    let b = Matrix::strided(&b, k, n, n + gap);
    let b_t = Matrix::strided(&b_t, n, k, k + gap).transposed();
    f(a, b, "NN");
    f(a, b_t, "NT");
    f(a_t, b, "TN");
    f(a_t, b_t, "TT");
}

/// M, N, K around the tiles of all sets, the blocks of K and the strips, and degenerate.
const SIZES: [(usize, usize, usize); 44] = [
    (48, 16, 16),
    (64, 32, 32),
    (65, 33, 33),
    (96, 64, 512),
    (50, 100, 1030),
    (129, 31, 97),
    (6, 20, 33),
    (6, 130, 7),
    (12, 20, 40),
    (18, 33, 24),
    (24, 144, 400),
    (100, 24, 40),
    (70, 16, 900),
    (1370, 1376, 3),
    (1, 1, 1),
    (1, 65, 33),
    (1, 300, 700),
    (2, 3, 5),
    (3, 100, 257),
    (4, 8, 16),
    (5, 17, 8),
    (6, 16, 15),
    (7, 31, 17),
    (13, 33, 64),
    (14, 32, 256),
    (15, 31, 255),
    (16, 64, 257),
    (28, 65, 128),
    (29, 48, 1025),
    (65, 1, 40),
    (65, 128, 31),
    (170, 14, 100),
    (100, 200, 1),
    (200, 100, 2),
    (337, 193, 300),
    (190, 400, 260),
    (2, 70, 800),
    (3, 129, 1600),
    (61, 272, 90),
    (70, 256, 800),
    (214, 208, 1530),
    (40, 240, 1530),
    (1030, 400, 18),
    (1540, 387, 5),
];

#[test]
fn every_layout_set_and_size_matches_the_reference() {
    // An Aᵀ of six columns without a gap lies as if it were packed by steps.
    let gaps = SIZES.iter().map(|&size| (size, 3));
    let gaps = gaps.chain(SIZES.into_iter().filter(|size| size.0 == 6).map(|size| (size, 0)));
    for (size, gap) in gaps {
        let (m, n, _) = size;
        each_layout(size, gap, |a, b, layout| {
            let reference = Reference::new(&a, &b);
            let stride = n + 5;
            // Rows below the last, as many as could be computed too many.
            let start = numbers((m + 12) * stride, 9);
            let zeros = vec![0.0; start.len()];
            for isa in Isa::all_available() {
                for write in [Write::Set, Write::Add] {
                    let mut out = start.clone();
                    if write == Write::Set {
                        out.fill(f32::NAN); // must not be read
                    }
                    with_isa(isa, || gemm(a, b, &mut out, stride, write, Epilogue::default()));
                    let before = if write == Write::Add { &start } else { &zeros };
                    reference.check(before, &out, stride, &format!("{isa:?} {layout} {write:?}"));
                    for i in 0..m + 12 {
                        for j in (if i < m { n } else { 0 })..stride {
                            let (x, old) = (out[i * stride + j], start[i * stride + j]);
                            let kept = if write == Write::Set { x.is_nan() } else { x == old };
                            assert!(kept, "wrote between the rows or below: ({i}, {j})");
                        }
                    }
                }
            }
        });
    }
}

fn product(a: Matrix<'_>, b: Matrix<'_>) -> Vec<f32> {
    let (m, n) = (a.rows, b.columns);
    let mut out = vec![f32::NAN; m * n];
    gemm(a, b, &mut out, n, Write::Set, Epilogue::default());
    out
}

#[test]
fn bits_do_not_depend_on_threads() {
    let wide = [(500, 480, 800), (100, 480, 800), (1100, 400, 90)]; // B is packed on the way
    let others = [
        (300, 500, 300),
        (500, 300, 300),
        (1, 5000, 800),
        (3, 900, 800),
        (70, 70, 3000),
        (1370, 1376, 20),
    ];
    for size in wide.into_iter().chain(others) {
        each_layout(size, 0, |a, b, layout| {
            for isa in [isa::current(), Isa::Amx].into_iter().filter(|isa| isa.available()) {
                let of = |threads| with_isa(isa, || with_threads(threads, || product(a, b)));
                let one = of(1);
                for threads in 2..=4 {
                    assert!(one == of(threads), "{isa:?} {layout}, {threads}");
                }
            }
        });
    }
}

/// Both operands have more lanes than are packed at a time on tiles.
#[test]
fn bits_do_not_depend_on_ranges_of_the_shared_operand() {
    if !Isa::Amx.available() {
        println!("skipped: no AMX here");
        return;
    }
    let (m, n, k) = (1400, 1410, 512);
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let (a, b) = (Matrix::new(&a, m, k), Matrix::new(&b, k, n));
    with_isa(Isa::Amx, || {
        let all = product(a, b);
        for first in [0, 600, m - 64] {
            let some = product(rows_of(a, first, 64), b);
            assert!(some == all[first * n..(first + 64) * n], "rows from {first}");
        }
    });
}

/// As A·Bᵀ these have a B that each thread packs for itself, unless there are more than eight; the
/// second has several blocks of K.
#[test]
fn bits_do_not_depend_on_who_packs() {
    for isa in Isa::all_available() {
        for size in [(500, 100, 384), (600, 64, 900)] {
            with_isa(isa, || {
                each_layout(size, 0, |a, b, layout| {
                    let one = with_threads(1, || product(a, b));
                    let same = |threads| one == with_threads(threads, || product(a, b));
                    for threads in [2, 3, 4, 8, 9] {
                        assert!(same(threads), "{isa:?} {layout}, {threads}");
                    }
                    // From several threads at once: most of them do not get the pool.
                    std::thread::scope(|scope| {
                        let others = [(); 4].map(|()| scope.spawn(|| with_isa(isa, || same(2))));
                        assert!(others.into_iter().all(|other| other.join().unwrap()), "{layout}");
                    });
                });
            });
        }
    }
}

#[test]
fn bits_of_a_row_do_not_depend_on_other_rows() {
    for isa in Isa::all_available() {
        with_isa(isa, || {
            for n in [130, 448] {
                each_layout((45, n, 1600), 0, |a, b, layout| {
                    let all = product(a, b);
                    for rows in [1, 2, 3, 5, 8, 14, 17, 33] {
                        for first in [0, 45 - rows] {
                            let some = product(rows_of(a, first, rows), b);
                            let same = some == all[first * n..(first + rows) * n];
                            assert!(same, "{isa:?} {layout}, {n}: {rows} rows from {first}");
                        }
                    }
                });
            }
        });
    }
}

/// Few rows, strips and chunks, each over two blocks of K.
#[test]
fn bits_of_a_row_are_those_of_every_path() {
    let (m, n, k) = (1030, 400, 800);
    for isa in Isa::all_available() {
        with_isa(isa, || {
            each_layout((m, n, k), 0, |a, b, layout| {
                let all = product(a, b);
                // Tiles are for many rows only.
                let some = if isa == Isa::Amx { [48, 75, 600] } else { [3, 45, 600] };
                for rows in some {
                    let some = product(rows_of(a, 0, rows), b);
                    assert!(some == all[..rows * n], "{isa:?} {layout}: {rows} rows");
                }
            });
        });
    }
}

/// Rows `first..first + rows` of a matrix of f32.
fn rows_of(x: Matrix<'_>, first: usize, rows: usize) -> Matrix<'_> {
    let Data::F32(data) = x.data else { unreachable!() };
    Matrix { data: Data::F32(&data[first * x.row_stride..]), rows, ..x }
}

#[test]
fn sixteen_bit_operands_are_widened() {
    [(19, 37, 300), (70, 37, 300)].into_iter().for_each(check_sixteen_bits);
}

fn check_sixteen_bits((m, n, k): (usize, usize, usize)) {
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let f16s = |x: &[f32]| x.iter().map(|&x| f16::from_f32(x).to_bits()).collect::<Vec<_>>();
    let bf16s = |x: &[f32]| x.iter().map(|&x| bf16::from_f32(x).to_bits()).collect::<Vec<_>>();
    let (a16, b16, a_bf, b_bf) = (f16s(&a), f16s(&b), bf16s(&a), bf16s(&b));
    let datas = |x, y, z| [Data::F32(x), Data::F16(y), Data::Bf16(z)];
    for isa in Isa::all_available() {
        for a in datas(&a, &a16, &a_bf) {
            for b in datas(&b, &b16, &b_bf) {
                let pairs = [
                    (Matrix::of(a, m, k, k), Matrix::of(b, k, n, n)),
                    (Matrix::of(a, m, k, k), Matrix::of(b, n, k, k).transposed()),
                    (Matrix::of(a, k, m, m).transposed(), Matrix::of(b, k, n, n)),
                    (Matrix::of(a, 1, k, k), Matrix::of(b, n, k, k).transposed()),
                    (Matrix::of(a, 2, k, k), Matrix::of(b, n, k, k).transposed()),
                ];
                for (a, b) in pairs {
                    let out = with_isa(isa, || product(a, b));
                    Reference::new(&a, &b).check(&vec![0.0; out.len()], &out, n, "16 bits");
                }
            }
        }
    }
}

/// An A packed by steps, as the shared operand and strip by strip, over two blocks of K.
#[test]
fn sixteen_bit_columns_have_the_bits_of_the_same_numbers_in_f32() {
    for (m, n, k) in [(100, 200, 900), (200, 100, 900)] {
        let f16s: Vec<u16> =
            numbers(m * k, 1).iter().map(|&x| f16::from_f32(x).to_bits()).collect();
        let f32s: Vec<f32> = f16s.iter().map(|&x| f16::from_bits(x).to_f32()).collect();
        let b = numbers(k * n, 2);
        let b = Matrix::new(&b, k, n);
        let a = |data| Matrix::of(data, k, m, m).transposed();
        for isa in Isa::all_available() {
            for threads in [1, 3] {
                let of = |a| with_isa(isa, || with_threads(threads, || product(a, b)));
                let same = of(a(Data::F16(&f16s))) == of(a(Data::F32(&f32s)));
                assert!(same, "{isa:?}, {m}×{n}, {threads} threads");
            }
        }
    }
}

#[test]
fn epilogue_adds_bias_activates_multiplies_and_adds_the_residual() {
    let sizes = [(1, 70, 40), (30, 70, 900), (70, 33, 16), (3, 600, 20), (5, 9, 0)];
    // Whole rows of tiles, two, three and four of them.
    for (m, n, k) in sizes.into_iter().chain([(12, 40, 24), (18, 40, 24), (24, 40, 24)]) {
        for isa in Isa::all_available() {
            with_isa(isa, || {
                let (a, b) = (numbers(m * k, 1), numbers(n * k, 2));
                let b = Matrix::new(&b, n, k).transposed();
                check_epilogue(Matrix::new(&a, m, k), b);
                check_epilogue(Matrix::new(&a, k, m).transposed(), b);
            });
        }
    }
}

/// All parts of an epilogue against each other, in rows with a gap between.
fn check_epilogue(a: Matrix<'_>, b: Matrix<'_>) {
    let (m, n) = (a.rows, b.columns);
    let stride = n + 3;
    let len = m * stride;
    let (bias, residual, factor) = (numbers(n, 3), numbers(len, 4), numbers(len, 6));
    for write in [Write::Set, Write::Add] {
        let start = numbers(len, 5);
        let f = Activation::Gelu;
        let mut sum = start.clone();
        gemm(a, b, &mut sum, stride, write, Epilogue::bias(&bias));
        let (mut slope, mut apart) = (start.clone(), vec![f32::NAN; len]);
        let epilogue = Epilogue {
            bias: Some(&bias),
            activation: Some(f),
            activated: Some(&mut apart),
            factor: Some(&factor),
            residual: Some(&residual),
        };
        gemm(a, b, &mut slope, stride, write, epilogue);
        let mut in_place = start.clone();
        let epilogue = Epilogue {
            bias: Some(&bias),
            activation: Some(f),
            factor: Some(&factor),
            residual: Some(&residual),
            ..Epilogue::default()
        };
        gemm(a, b, &mut in_place, stride, write, epilogue);
        let (mut value, mut derivative) = (sum.clone(), vec![1.0; len]);
        activation::forward_in_place(f, &mut value);
        activation::backward_in_place(f, &sum, &mut derivative);
        let mut plain = start.clone();
        gemm(a, b, &mut plain, stride, write, Epilogue::default());
        for i in 0..len {
            if i % stride < n {
                assert_eq!(sum[i], plain[i] + bias[i % stride]);
                assert_eq!(slope[i], derivative[i]);
                assert_eq!(apart[i], value[i] * factor[i] + residual[i]);
                assert_eq!(in_place[i], apart[i]);
            } else {
                let kept = [sum[i], slope[i], in_place[i]] == [start[i]; 3] && apart[i].is_nan();
                assert!(kept, "wrote between the rows: {i}");
            }
        }
    }
}

#[test]
fn epilogue_goes_through_an_activation_and_back() {
    for isa in Isa::all_available() {
        with_isa(isa, check_activations);
    }
}

fn check_activations() {
    let small = [(1, 70, 40), (30, 70, 900), (70, 33, 16), (3, 600, 20), (5, 9, 0)];
    // Several groups of columns and blocks of depth, and three rows over several blocks.
    for (m, n, k) in
        small.into_iter().chain([(214, 208, 1530), (100, 480, 800), (1030, 400, 18), (3, 70, 1600)])
    {
        let (a, b, factor) = (numbers(m * k, 1), numbers(n * k, 2), numbers(m * n, 3));
        let a = Matrix::new(&a, m, k);
        let layouts = [Matrix::new(&b, n, k).transposed(), Matrix::new(&b, k, n)];
        for b in layouts {
            let product = |epilogue| {
                let mut out = vec![f32::NAN; m * n];
                gemm(a, b, &mut out, n, Write::Set, epilogue);
                out
            };
            let sum = product(Epilogue::default());
            let times = product(Epilogue { factor: Some(&factor), ..Epilogue::default() });
            let want: Vec<f32> = sum.iter().zip(&factor).map(|(x, y)| x * y).collect();
            assert_eq!(times, want, "{m}×{n}×{k}");

            for f in Activation::ALL {
                let (mut value, mut derivative) = (sum.clone(), vec![1.0; m * n]);
                activation::forward_in_place(f, &mut value);
                activation::backward_in_place(f, &sum, &mut derivative);
                let (mut activated, mut slope) = (vec![f32::NAN; m * n], vec![f32::NAN; m * n]);
                let epilogue = Epilogue {
                    activation: Some(f),
                    activated: Some(&mut activated),
                    ..Epilogue::default()
                };
                gemm(a, b, &mut slope, n, Write::Set, epilogue);
                assert_eq!((activated, slope), (value, derivative), "{f:?}, {m}×{n}×{k}");
            }
        }
    }
}

#[test]
fn empty_dimensions() {
    let none = Matrix::new(&[], 0, 0);
    gemm(none, none, &mut [], 0, Write::Set, Epilogue::default());
    gemm(
        Matrix::new(&[], 0, 3),
        Matrix::new(&[0.0; 6], 3, 2),
        &mut [],
        2,
        Write::Set,
        Epilogue::default(),
    );
    let (a, b) = (Matrix::new(&[], 2, 0), Matrix::new(&[], 0, 3));
    let mut out = [f32::NAN; 6];
    gemm(a, b, &mut out, 3, Write::Set, Epilogue::default());
    assert_eq!(out, [0.0; 6]);
    gemm(a, b, &mut out, 3, Write::Set, Epilogue::bias(&[1.0, 2.0, 3.0]));
    assert_eq!(out, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    gemm(a, b, &mut out, 3, Write::Add, Epilogue::bias(&[1.0, 1.0, 1.0]));
    assert_eq!(out, [2.0, 3.0, 4.0, 2.0, 3.0, 4.0]);
}

#[test]
#[should_panic(expected = "inner dimensions differ: 2×3 times 4×5")]
fn inner_dimensions_must_agree() {
    let x = [0.0; 20];
    gemm(
        Matrix::new(&x, 2, 3),
        Matrix::new(&x, 4, 5),
        &mut [0.0; 10],
        5,
        Write::Set,
        Epilogue::default(),
    );
}

#[test]
fn a_batch_gives_the_bits_of_its_products() {
    let (m, n, k) = (7, 20, 33);
    for batch in [0, 1, 3, 40] {
        let (a, b) = (numbers(batch * m * k, 1), numbers(batch * n * k, 2));
        let a = |i: usize| Matrix::new(&a[i * m * k..], m, k);
        let b = |i: usize| Matrix::new(&b[i * n * k..], n, k).transposed();
        let stride = m * n + 3;
        let mut out = vec![0.5; batch * stride];
        gemm_batched(batch, a, b, &mut out, stride, Write::Add);
        for i in 0..batch {
            let mut one = vec![0.5; m * n];
            gemm(a(i), b(i), &mut one, n, Write::Add, Epilogue::default());
            assert_eq!(out[i * stride..i * stride + m * n], one, "product {i} of {batch}");
            assert_eq!(out[i * stride + m * n..(i + 1) * stride], [0.5; 3], "between products");
        }
    }
}
