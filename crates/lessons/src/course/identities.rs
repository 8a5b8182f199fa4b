//! Identities of matrices that derivations use.

use crate::lesson::lesson;
use crate::maths::{difference, matrix, numbers, row};
use crate::{Lesson, Sheet};
use hearken_tensor::ops::matmul::{matmul, matmul_transposed};
use hearken_tensor::ops::transpose::transpose;
use hearken_tensor::{Tensor, Var};

pub(crate) const LESSONS: &[Lesson] =
    &[lesson!(identities, "identities", "Trace, vec and Kronecker",
    "tr(AB) as a product of vectors, and AXB as one large matrix, for rows and for columns",
    "derivations of operations" => "own-op.md")];

/// A ⊗ B: every number of A times the whole of B.
fn kronecker(a: &Var, b: &Var) -> Var {
    let ([m, n], [p, q]) = (a.value().dims(), b.value().dims());
    let mut out = vec![0.0; m * n * p * q];
    for i in 0..m {
        for j in 0..n {
            for k in 0..p {
                for l in 0..q {
                    out[(i * p + k) * (n * q) + j * q + l] =
                        a.value().data()[i * n + j] * b.value().data()[k * q + l];
                }
            }
        }
    }
    Var::constant(Tensor::new([m * p, n * q], &out))
}

/// The rows of a matrix in a row.
fn by_rows(x: &Var) -> Var {
    row(x.value().data())
}

/// The columns of a matrix in a row.
fn by_columns(x: &Var) -> Var {
    by_rows(&transpose(x, 0, 1))
}

fn identities(s: &mut Sheet) {
    let a = matrix([[1.0, 2.0, 0.0], [-1.0, 0.5, 3.0]]); // (2, 3)
    let b = matrix([[2.0, 1.0], [0.0, -1.0], [1.0, 4.0]]); // (3, 2)
    s.step("The trace of a product is a sum of products");
    s.text("The trace of a square matrix is the sum of its diagonal; vec lists the numbers of a matrix in one \
            column.");
    s.formula("tr(AB) = Σᵢⱼ Aᵢⱼ·Bⱼᵢ = vec(Aᵀ)·vec(B)");
    s.matrix("A", a.value());
    s.matrix("B", b.value());
    let product = numbers(&matmul(&a, &b));
    let trace = product[0] + product[3];
    s.show("tr(AB)", trace);
    let as_vectors =
        numbers(&matmul_transposed(&by_columns(&transpose(&a, 0, 1)), &by_columns(&b)))[0];
    s.show("vec(Aᵀ)·vec(B)", as_vectors);
    let swapped = numbers(&matmul(&b, &a));
    s.show("tr(BA), the same", swapped[0] + swapped[4] + swapped[8]);
    s.text("Gradients are read off it: if dL = tr(Gᵀ·dX), then G is the gradient. That is how the rules for \
            products of matrices are derived.");

    s.step("AXB as one matrix");
    s.text("AXB is linear in X, so there is one large matrix that takes the numbers of X to those of AXB. Which \
            one depends on how the numbers are listed: column by column, as in the textbooks, or row by row, as \
            they lie in memory here. A ⊗ B, the Kronecker product, has the block aᵢⱼ·B in place of each number \
            aᵢⱼ.");
    s.formula("columns: vec(AXB) = (Bᵀ ⊗ A)·vec(X)        rows: vec(AXB) = (A ⊗ Bᵀ)·vec(X)");
    let x = matrix([[1.0, 0.0, 2.0], [3.0, -1.0, 1.0], [0.0, 1.0, 1.0]]); // (3, 3)
    let axb = matmul(&matmul(&a, &x), &b); // (2, 2)
    s.matrix("X", x.value());
    s.matrix("AXB", axb.value());
    let bt = transpose(&b, 0, 1);
    let columns = matmul_transposed(&by_columns(&x), &kronecker(&bt, &a));
    let rows = matmul_transposed(&by_rows(&x), &kronecker(&a, &bt));
    s.show("(Bᵀ ⊗ A)·vec(X), columns", columns.value());
    s.show("(A ⊗ Bᵀ)·vec(X), rows", rows.value());
    s.show(
        "difference by columns",
        difference(columns.value().data(), by_columns(&axb).value().data()),
    );
    s.show("difference by rows", difference(rows.value().data(), by_rows(&axb).value().data()));
    let mixed = matmul_transposed(&by_rows(&x), &kronecker(&bt, &a));
    s.show(
        "the formula for columns, used with rows: difference",
        difference(mixed.value().data(), by_rows(&axb).value().data()),
    );

    s.step("Nobody builds that matrix");
    s.text("For a layer of width 768 it would have 768²·768² numbers. The identity is for proofs: it shows that \
            the gradient of X is AᵀGBᵀ, without a new rule. Check it with G = 1 everywhere:");
    matmul(&matmul(&a, &x), &b).sum().backward();
    let ones = Var::constant(Tensor::full([2, 2], 1.0));
    let by_hand = matmul(&matmul(&transpose(&a, 0, 1), &ones), &bt);
    s.matrix("AᵀGBᵀ", by_hand.value());
    s.show(
        "difference to autograd",
        difference(crate::maths::gradient(&x).data(), by_hand.value().data()),
    );

    s.ask("How large is A ⊗ Bᵀ for A of 2×3 and B of 3×2?");
    let shape = kronecker(&a, &bt).shape();
    for (dims, because) in [
        ([4usize, 9], "It takes the 9 numbers of X to the 4 of AXB."),
        ([2, 2], "That is AXB itself."),
        (
            [6, 6],
            "Numbers of A times numbers of B: 36 in all is right, but they lie in 4 rows of 9.",
        ),
    ] {
        s.answer(format!("{}×{}", dims[0], dims[1]), shape.dims() == dims, because);
    }
    s.wrong(
        "0.11",
        "vec(AXB) = (Bᵀ ⊗ A)·vec(X), without saying how vec lists.",
        "that is for columns; for rows, which the documents declare, it is A ⊗ Bᵀ.",
    );
}
