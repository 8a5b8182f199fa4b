//! Orthogonalisation by Newton–Schulz, the heart of Muon (Jordan et al. 2024).
//!
//! A matrix `G = U·S·Vᵀ` is replaced by about `U·Vᵀ`: every direction of the step gets the same
//! size. With `X = G/‖G‖` all singular values lie in (0, 1], and
//!
//! `X ← aX + b(XXᵀ)X + c(XXᵀ)²X`, (a, b, c) = (3.4445, −4.7750, 2.0315),
//!
//! maps each singular value `s` to `as + bs³ + cs⁵`. The coefficients are Jordan's: chosen for the
//! steepest slope at 0, so that five rounds bring small values up, at the price of ending between
//! about 0.7 and 1.2 rather than at 1. XXᵀ is the smaller of the two Gram matrices if the
//! matrix is not higher than wide; otherwise it is transposed first.

use hearken_kernels::gemm::{Epilogue, Matrix, gemm};
use hearken_kernels::{Write, dry, elementwise};
use hearken_tensor::Tensor;

/// a, b, c
const COEFFICIENTS: (f32, f32, f32) = (3.4445, -4.7750, 2.0315);
/// Added to the norm, so that a zero gradient gives a zero step.
const SMALLEST_NORM: f64 = 1e-7;

/// Replaces the rows × columns matrix in `g` by about the nearest orthogonal one.
pub fn orthogonalize(g: &mut [f32], rows: usize, columns: usize, iterations: usize) {
    assert_eq!(g.len(), rows * columns, "a {rows}×{columns} matrix has other {} numbers", g.len());
    if g.is_empty() {
        return;
    }
    let norm = elementwise::sum_of_squares(g).sqrt() + SMALLEST_NORM;
    let scale = (1.0 / norm) as f32;
    // (m, n) with m ≤ n
    let (m, n) = (rows.min(columns), rows.max(columns));
    let mut x = Tensor::unset([m, n]);
    if rows <= columns {
        elementwise::copy(g, x.data_mut());
    } else {
        transpose(g, rows, columns, x.data_mut());
    }
    elementwise::scale(x.data_mut(), scale);
    let (a, b, c) = COEFFICIENTS;
    let mut gram = Tensor::unset([m, m]);
    let mut poly = Tensor::unset([m, m]);
    let mut next = Tensor::unset([m, n]);
    for _ in 0..iterations {
        let matrix = Matrix::new(x.data(), m, n);
        product(matrix, matrix.transposed(), gram.data_mut(), m); // A = XXᵀ
        let square = Matrix::new(gram.data(), m, m);
        product(square, square, poly.data_mut(), m); // A²
        elementwise::scale(poly.data_mut(), c);
        elementwise::axpy(poly.data_mut(), b, gram.data()); // bA + cA²
        product(Matrix::new(poly.data(), m, m), matrix, next.data_mut(), n); // (bA + cA²)X
        elementwise::axpy(next.data_mut(), a, x.data());
        std::mem::swap(&mut x, &mut next);
    }
    if rows <= columns {
        elementwise::copy(x.data(), g);
    } else {
        transpose(x.data(), columns, rows, g);
    }
}

fn product(a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32], columns: usize) {
    gemm(a, b, out, columns, Write::Set, Epilogue::default());
}

/// out (columns, rows) = xᵀ for x (rows, columns), by blocks that stay in the first-level cache.
fn transpose(x: &[f32], rows: usize, columns: usize, out: &mut [f32]) {
    const BLOCK: usize = 32; // 2 · 32 · 32 floats are 8 KiB of the usual 32
    if dry::is_on() {
        return;
    }
    for i0 in (0..rows).step_by(BLOCK) {
        for j0 in (0..columns).step_by(BLOCK) {
            for i in i0..(i0 + BLOCK).min(rows) {
                for j in j0..(j0 + BLOCK).min(columns) {
                    out[j * rows + i] = x[i * columns + j];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_tensor::rng::Rng;

    /// Largest deviation of the smaller Gram matrix from the identity.
    fn distance_from_orthogonal(x: &[f32], rows: usize, columns: usize) -> f32 {
        let matrix = Matrix::new(x, rows, columns);
        let m = rows.min(columns);
        let mut gram = vec![0.0; m * m];
        if rows <= columns {
            product(matrix, matrix.transposed(), &mut gram, m);
        } else {
            product(matrix.transposed(), matrix, &mut gram, m);
        }
        let identity = |i: usize| if i.is_multiple_of(m + 1) { 1.0 } else { 0.0 };
        gram.iter().enumerate().map(|(i, g)| (g - identity(i)).abs()).fold(0.0, f32::max)
    }

    #[test]
    fn makes_about_orthogonal_matrices() {
        for (rows, columns) in [(1, 7), (7, 1), (16, 16), (20, 65), (65, 20)] {
            let mut g = Rng::new(7).normal([rows, columns], 3.0);
            orthogonalize(g.data_mut(), rows, columns, 5);
            let distance = distance_from_orthogonal(g.data(), rows, columns);
            // Singular values end within 0.7 … 1.2; their squares are off 1 by at most 0.51.
            assert!(distance < 0.55, "{rows}×{columns}: {distance}");
        }
    }

    #[test]
    fn transposing_commutes() {
        let (rows, columns) = (37, 70);
        let mut g = Rng::new(8).normal([rows, columns], 1.0);
        let mut transposed = Tensor::unset([columns, rows]);
        transpose(g.data(), rows, columns, transposed.data_mut());
        orthogonalize(g.data_mut(), rows, columns, 5);
        orthogonalize(transposed.data_mut(), columns, rows, 5);
        let mut back = Tensor::unset([rows, columns]);
        transpose(transposed.data(), columns, rows, back.data_mut());
        // The order of the sum of the norm differs; the iteration widens its last bit.
        for (a, b) in g.data().iter().zip(back.data()) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }

    #[test]
    fn nothing_stays_nothing() {
        let mut zeros = [0.0; 12];
        orthogonalize(&mut zeros, 3, 4, 5);
        assert_eq!(zeros, [0.0; 12]);
        orthogonalize(&mut [], 0, 4, 5);
    }
}
