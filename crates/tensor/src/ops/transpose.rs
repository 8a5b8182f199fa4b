//! `out = x` with two dimensions swapped, by moving the numbers.
//!
//! For use where it is unavoidable only: products read transposed matrices as they are
//! ([`linear`](super::linear), [`matmul`](super::matmul)) and attention reads heads with strides.
//!
//! Every element of `x` is in `out` once, and swapping twice changes nothing, so
//! 1. `dx` is `dout` with the same two dimensions swapped.
//!
//! Saves nothing but the shape.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::reference::Array;
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::Write;
use hearken_kernels::threads::for_row_chunks;

/// `x` with dimensions `a` and `b` swapped.
pub fn transpose(x: &Var, a: usize, b: usize) -> Var {
    let shape = x.shape();
    let dims = shape.dims();
    assert!(a < dims.len() && b < dims.len(), "{shape} has no dimensions {a} and {b} to swap");
    let mut swapped = dims.to_vec();
    swapped.swap(a, b);
    let mut out = Tensor::unset(Shape::new(&swapped));
    let parts = Parts::new(dims, a.min(b), a.max(b));
    parts.swap(x.value().data(), out.data_mut(), Write::Set);
    Var::from_op(out, &[x], || TransposeBackward { parts: parts.swapped() })
}

struct TransposeBackward {
    parts: Parts, // of dout
}

impl Backward for TransposeBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        gradients.write(0, |dx, write| self.parts.swap(dout.data(), dx, write)); // 1
    }
}

/// A shape as (outer, first, middle, second, inner), where first and second are to be swapped.
#[derive(Clone, Copy)]
struct Parts {
    outer: usize,
    first: usize,
    middle: usize,
    second: usize,
    inner: usize,
}

impl Parts {
    fn new(dims: &[usize], a: usize, b: usize) -> Self {
        let product = |dims: &[usize]| dims.iter().product();
        if a == b {
            return Self { outer: 1, first: 1, middle: 1, second: 1, inner: product(dims) };
        }
        Self {
            outer: product(&dims[..a]),
            first: dims[a],
            middle: product(&dims[a + 1..b]),
            second: dims[b],
            inner: product(&dims[b + 1..]),
        }
    }

    fn swapped(self) -> Self {
        Self { first: self.second, second: self.first, ..self }
    }

    /// Plainly, `to[o, s, m, f, ..] = from[o, f, m, s, ..]`. A row of `to` is all (f, inner) of
    /// one (o, s, m); 16 rows are filled together, one f after the other, so that with inner = 1
    /// the 16 numbers of a cache line are all used when it is read.
    fn swap(self, from: &[f32], to: &mut [f32], write: Write) {
        const TOGETHER: usize = 16; // floats in a cache line of 64 bytes
        let Self { outer, first, middle, second, inner } = self;
        let width = first * inner;
        if width == 0 {
            return;
        }
        for_row_chunks(outer * second * middle, TOGETHER, [(to, width)], |rows, [to]| {
            for f in 0..first {
                for (row, to) in rows.clone().zip(to.chunks_exact_mut(width)) {
                    let (o, s, m) = (row / middle / second, row / middle % second, row % middle);
                    let at = (((o * first + f) * middle + m) * second + s) * inner;
                    let to = &mut to[f * inner..(f + 1) * inner];
                    for (to, from) in to.iter_mut().zip(&from[at..at + inner]) {
                        *to = if write == Write::Add { *to + from } else { *from };
                    }
                }
            }
        });
    }
}

fn reference(x: &Array, a: usize, b: usize) -> Array {
    let mut dims = x.shape.dims().to_vec();
    dims.swap(a, b);
    Array::build(Shape::new(&dims), |i| {
        let (mut rest, mut index) = (i, vec![0; dims.len()]);
        for d in (0..dims.len()).rev() {
            index[d] = rest % dims[d];
            rest /= dims[d];
        }
        index.swap(a, b);
        x.at(&index)
    })
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance { forward: 0.0, backward: 1e-9, reason: "numbers are only moved" };
    let case = |name, shape: &[usize], a: usize, b: usize, torch| {
        let forward = move |v: &[Var]| transpose(&v[0], a, b);
        Case::new("transpose", name, tolerance, forward, move |x| reference(&x[0], a, b))
            .normal("x", shape)
            .torch(torch)
    };
    vec![
        case("matrix", &[3, 5], 0, 1, "x.transpose(0, 1)"),
        case("wide", &[37, 70], 1, 0, "x.transpose(0, 1)"),
        case("heads", &[2, 5, 3, 4], 1, 2, "x.transpose(1, 2)"),
        case("outermost_and_innermost", &[3, 2, 4, 5], 0, 3, "x.transpose(0, 3)"),
        case("with_itself", &[2, 3], 1, 1, "x.transpose(1, 1)"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    #[should_panic(expected = "(2, 3) has no dimensions 1 and 2 to swap")]
    fn the_dimensions_must_exist() {
        let _ = transpose(&Var::constant(Tensor::zeros([2, 3])), 1, 2);
    }

    #[test]
    fn empty_tensors_are_fine() {
        let x = Var::leaf(Tensor::zeros([0, 3]));
        let out = transpose(&x, 0, 1);
        assert_eq!(out.shape().dims(), [3, 0]);
        out.sum().backward();
        assert_eq!(x.gradient().unwrap().shape().dims(), [0, 3]);
    }
}
