//! Batched products of matrices: `out = A·B`, (…, M, K)·(…, K, N) → (…, M, N), or `out = A·Bᵀ` with
//! B of shape (…, N, K).
//!
//! The leading dimensions of A and B are equal, or B has none and is the same for all of A: then
//! all rows of A are one tall matrix. With `out = A·B`, `outᵢⱼ = Σₖ Aᵢₖ Bₖⱼ`:
//! 1. `dA = dout·Bᵀ`
//! 2. `dB = Aᵀ·dout`
//!
//! and with `out = A·Bᵀ`, `outᵢⱼ = Σₖ Aᵢₖ Bⱼₖ`:
//!
//! 3. `dA = dout·B`
//! 4. `dB = doutᵀ·A`
//!
//! Saves A and B.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::reference::Array;
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::{Write, dry};
use hearken_kernels::gemm::{Epilogue, Matrix, gemm};
use hearken_kernels::threads::for_row_chunks;

/// `A·B`
pub fn matmul(a: &Var, b: &Var) -> Var {
    product(a, b, false)
}

/// `A·Bᵀ`
pub fn matmul_transposed(a: &Var, b: &Var) -> Var {
    product(a, b, true)
}

fn product(a: &Var, b: &Var, transposed: bool) -> Var {
    let size = Size::new(a.shape(), b.shape(), transposed);
    let mut out = Tensor::unset(a.shape().with_width(size.n)); // (…, M, N)
    let (a_data, b_data) = (a.value().data(), b.value().data());
    size.for_each_matrix(out.data_mut(), size.m * size.n, |i, out| {
        let a = Matrix::new(&a_data[i * size.m * size.k..], size.m, size.k);
        let b = &b_data[i * size.k * size.n..];
        let b = if transposed {
            Matrix::new(b, size.n, size.k).transposed()
        } else {
            Matrix::new(b, size.k, size.n)
        };
        gemm(a, b, out, size.n, Write::Set, Epilogue::default());
    });
    Var::from_op(out, &[a, b], || MatmulBackward {
        a: Saved::new(a.value()),
        b: Saved::new(b.value()),
        size,
        transposed,
    })
}

struct MatmulBackward {
    a: Saved,
    b: Saved,
    size: Size,
    transposed: bool,
}

impl Backward for MatmulBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let Self { a, b, size, transposed } = *self;
        let Size { m, k, n, .. } = size;
        let dout = |i: usize| Matrix::new(&dout.data()[i * m * n..], m, n);
        let a = |i: usize| a.matrix_of(i * m..(i + 1) * m);
        let b_rows = if transposed { n } else { k };
        let b = |i: usize| b.matrix_of(i * b_rows..(i + 1) * b_rows);
        gradients.write(0, |da, write| {
            size.for_each_matrix(da, m * k, |i, da| {
                let b = if transposed { b(i) } else { b(i).transposed() };
                gemm(dout(i), b, da, k, write, Epilogue::default()); // 1, 3
            });
        });
        gradients.write(1, |db, write| {
            size.for_each_matrix(db, k * n, |i, db| {
                if transposed {
                    gemm(dout(i).transposed(), a(i), db, k, write, Epilogue::default()); // 4
                } else {
                    gemm(a(i).transposed(), dout(i), db, n, write, Epilogue::default()); // 2
                }
            });
        });
    }
}

/// `count` products of M×K by K×N.
#[derive(Clone, Copy)]
struct Size {
    count: usize,
    m: usize,
    k: usize,
    n: usize,
}

impl Size {
    fn new(a: Shape, b: Shape, transposed: bool) -> Self {
        let misfit = || -> ! {
            let operator = if transposed { "the transpose of " } else { "" };
            panic!("cannot multiply {a} by {operator}{b}")
        };
        let ([batch_a @ .., m, k], [batch_b @ .., b_rows, b_width]) = (a.dims(), b.dims()) else {
            misfit()
        };
        let (inner, n) = if transposed { (*b_width, *b_rows) } else { (*b_rows, *b_width) };
        if inner != *k || !(batch_b.is_empty() || batch_a == batch_b) {
            misfit();
        }
        let count: usize = batch_a.iter().product();
        if batch_b.is_empty() {
            Self { count: 1, m: count * m, k: *k, n }
        } else {
            Self { count, m: *m, k: *k, n }
        }
    }

    /// Calls `f(i, part i of out)` for every product. Many small products are shared out among
    /// the threads; a few are each computed by all of them. The bits are the same.
    fn for_each_matrix(self, out: &mut [f32], len: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
        const MANY: usize = 16;
        if len == 0 {
            return;
        }
        // In a dry pass each product is counted, and regions are not run.
        if self.count >= MANY && !dry::is_on() {
            for_row_chunks(self.count, 1, [(out, len)], |at, [out]| f(at.start, out));
        } else {
            out.chunks_exact_mut(len).enumerate().for_each(|(i, out)| f(i, out));
        }
    }
}

fn reference(a: &Array, b: &Array, transposed: bool) -> Array {
    let Size { m, k, n, .. } = Size::new(a.shape, b.shape, transposed);
    Array::build(a.shape.with_width(n), |at| {
        let (batch, i, j) = (at / (m * n), at / n % m, at % n);
        let b_at = |p: usize| if transposed { j * k + p } else { p * n + j };
        let (a, b) = (&a.data[batch * m * k..], &b.data[batch * k * n..]);
        (0..k).map(|p| a[i * k + p] * b[b_at(p)]).sum()
    })
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 2e-6,
        backward: 2e-6,
        reason: "dot products of up to 70 terms of both signs: about √70 roundings of 6e-8",
    };
    let plain = |name, a: &[usize], b: &[usize]| {
        let reference = |x: &[Array]| reference(&x[0], &x[1], false);
        Case::new("matmul", name, tolerance, |v| matmul(&v[0], &v[1]), reference)
            .normal("a", a)
            .normal("b", b)
            .torch("a @ b")
    };
    let transposed = |name, a: &[usize], b: &[usize]| {
        let reference = |x: &[Array]| reference(&x[0], &x[1], true);
        Case::new("matmul", name, tolerance, |v| matmul_transposed(&v[0], &v[1]), reference)
            .normal("a", a)
            .normal("b", b)
            .torch("a @ b.transpose(-1, -2)")
    };
    vec![
        plain("one", &[3, 5], &[5, 4]),
        plain("batch", &[2, 3, 4, 7], &[2, 3, 7, 5]),
        plain("shared", &[2, 5, 33], &[33, 17]),
        plain("many", &[20, 9, 17], &[20, 17, 7]),
        // Enough rows for products on tiles.
        plain("rows", &[50, 17], &[17, 34]),
        transposed("rows_transposed", &[2, 30, 33], &[49, 33]),
        transposed("one_transposed", &[3, 5], &[4, 5]),
        transposed("batch_transposed", &[2, 2, 4, 33], &[2, 2, 5, 33]),
        transposed("shared_transposed", &[2, 35, 9], &[7, 9]),
        transposed("many_transposed", &[18, 5, 3], &[18, 4, 3]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half::{HalfTensor, Storage, with_storage};
    use crate::rng::Rng;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    #[should_panic(expected = "cannot multiply (2, 3, 4) by (3, 4, 5)")]
    fn leading_dimensions_must_fit() {
        let (a, b) = (Tensor::zeros([2, 3, 4]), Tensor::zeros([3, 4, 5]));
        let _ = matmul(&Var::constant(a), &Var::constant(b));
    }

    #[test]
    #[should_panic(expected = "cannot multiply (3, 4) by the transpose of (4, 5)")]
    fn inner_dimensions_must_fit() {
        let (a, b) = (Tensor::zeros([3, 4]), Tensor::zeros([4, 5]));
        let _ = matmul_transposed(&Var::constant(a), &Var::constant(b));
    }

    #[test]
    fn an_empty_inner_dimension_gives_zeros() {
        let (a, b) = (Var::leaf(Tensor::zeros([2, 2, 0])), Var::leaf(Tensor::zeros([2, 0, 3])));
        let out = matmul(&a, &b);
        assert_eq!(out.value().data(), &[0.0; 12]);
        out.sum().backward();
        assert_eq!(b.gradient().unwrap().shape().dims(), [2, 0, 3]);
    }

    #[test]
    fn no_matrices_are_fine() {
        let (a, b) = (Var::leaf(Tensor::zeros([0, 2, 3])), Var::leaf(Tensor::zeros([0, 3, 4])));
        let out = matmul(&a, &b);
        assert_eq!(out.shape().dims(), [0, 2, 4]);
        out.sum().backward();
        assert_eq!(a.gradient().unwrap().shape().dims(), [0, 2, 3]);
    }

    #[test]
    fn gradients_from_16_bit_storage_are_those_of_rounded_factors() {
        let (a, b) = (Rng::new(1).normal([3, 5, 40], 1.0), Rng::new(2).normal([3, 40, 6], 1.0));
        let run = |a: &Tensor, b: &Tensor, storage| {
            let (a, b) = (Var::leaf(a.clone()), Var::leaf(b.clone()));
            let out = with_storage(storage, || matmul(&a, &b));
            out.backward_with(Rng::new(3).normal([3, 5, 6], 1.0));
            [a, b].map(|x| x.gradient().unwrap().data().to_vec())
        };
        for storage in [Storage::Bf16, Storage::F16] {
            let [a_rounded, b_rounded] = [&a, &b].map(|x| HalfTensor::new(x, storage).widen());
            let want = run(&a_rounded, &b_rounded, Storage::F32);
            assert_eq!(run(&a, &b, storage), want);
            assert_ne!(run(&a, &b, Storage::F32), want);
        }
    }
}
