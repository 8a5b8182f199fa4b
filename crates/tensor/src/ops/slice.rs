//! `out = x[…, range, …]`: a range of one dimension.
//!
//! An element of `x` is in `out` once or not at all, so
//! 1. `dx = dout` inside of the range,
//! 2. `dx = 0` outside of it.
//!
//! Saves nothing but where the range lies.

use crate::columns::{At, Cut, copy, resized};
use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::{Write, elementwise};
use std::ops::Range;

/// The part of `x` whose index in dimension `dim` is in `range`.
pub fn slice(x: &Var, dim: usize, range: Range<usize>) -> Var {
    let shape = x.shape();
    let whole = Cut::new(shape, dim);
    assert!(
        range.start <= range.end && range.end <= shape.dims()[dim],
        "{range:?} is not within dimension {dim} of {shape}"
    );
    let mut out = Tensor::unset(resized(shape, dim, range.len()));
    let at = At { column: range.start * whole.step, width: whole.width };
    let count = range.len() * whole.step;
    let to = (out.data_mut(), At { column: 0, width: count });
    copy(whole.rows, count, (x.value().data(), at), to, Write::Set);
    Var::from_op(out, &[x], || SliceBackward { rows: whole.rows, at, count })
}

struct SliceBackward {
    rows: usize,
    at: At,
    count: usize,
}

impl Backward for SliceBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        gradients.write(0, |dx, write| {
            if write == Write::Set {
                elementwise::fill(dx, 0.0); // 2
            }
            let from = (dout.data(), At { column: 0, width: self.count });
            copy(self.rows, self.count, from, (dx, self.at), write); // 1
        });
    }
}

fn reference(x: &Array, dim: usize, range: Range<usize>) -> Array {
    let cut = Cut::new(x.shape, dim);
    let columns = range.start * cut.step..range.end * cut.step;
    let rows = (0..cut.rows).map(|row| &x.data[row * cut.width..(row + 1) * cut.width]);
    let data = rows.flat_map(|row| row[columns.clone()].to_vec()).collect();
    Array::new(resized(x.shape, dim, range.len()), data)
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance { forward: 0.0, backward: 1e-9, reason: "numbers are only moved" };
    let case = |name, shape: &[usize], dim: usize, range: Range<usize>, torch| {
        let other = range.clone();
        let forward = move |v: &[Var]| slice(&v[0], dim, range.clone());
        let reference = move |a: &[Array]| reference(&a[0], dim, other.clone());
        Case::new("slice", name, tolerance, forward, reference).normal("x", shape).torch(torch)
    };
    vec![
        case("rows", &[5, 3], 0, 1..3, "x[1:3]"),
        case("middle", &[2, 6, 5], 1, 2..6, "x[:, 2:6]"),
        case("last", &[2, 3, 9], 2, 4..5, "x[:, :, 4:5]"),
        case("all", &[2, 3], 1, 0..3, "x[:, 0:3]"),
        case("many", &[300, 70], 1, 3..64, "x[:, 3:64]"),
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
    #[should_panic(expected = "2..5 is not within dimension 1 of (3, 4)")]
    fn the_range_must_fit() {
        let _ = slice(&Var::constant(Tensor::zeros([3, 4])), 1, 2..5);
    }

    #[test]
    #[should_panic(expected = "(3, 4) has no dimension 2")]
    fn the_dimension_must_exist() {
        let _ = slice(&Var::constant(Tensor::zeros([3, 4])), 2, 0..1);
    }

    #[test]
    fn slices_of_one_value_fill_its_gradient() {
        let x = Var::leaf(Tensor::new([4], &[1.0, 2.0, 3.0, 4.0]));
        let (left, right) = (slice(&x, 0, 0..3), slice(&x, 0, 2..4));
        (left.sum() + right.sum()).backward();
        assert_eq!(x.gradient().unwrap().data(), &[1.0, 1.0, 2.0, 1.0]);
    }

    #[test]
    fn an_empty_range_gives_nothing_and_zero_gradients() {
        let x = Var::leaf(Tensor::zeros([2, 3]));
        let out = slice(&x, 1, 3..3);
        assert_eq!(out.shape().dims(), [2, 0]);
        out.sum().backward();
        assert_eq!(x.gradient().unwrap().data(), &[0.0; 6]);
    }
}
