//! Sums and means: of everything, to a scalar, or over one dimension.
//!
//! With `out = c · Σᵢ xᵢ` (c = 1 for a sum, 1/n for a mean), `∂out/∂xᵢ = c`, so
//! 1. `dxᵢ = c · dout`, the same for all elements that were summed.
//!
//! Saves nothing but the shape.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::reference::Array;
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::{Write, elementwise};

impl Var {
    /// The sum of all elements, as a scalar.
    pub fn sum(&self) -> Var {
        reduce_all(self, 1.0)
    }

    /// The mean of all elements, as a scalar; NaN for an empty tensor.
    pub fn mean(&self) -> Var {
        reduce_all(self, 1.0 / self.shape().len() as f32)
    }
}

fn reduce_all(x: &Var, factor: f32) -> Var {
    let sum = elementwise::sum(x.value().data()) * factor;
    Var::from_op(Tensor::scalar(sum), &[x], || MeanBackward {
        outer: 1,
        middle: x.shape().len(),
        inner: 1,
        factor,
    })
}

/// The mean over dimension `dim`, which disappears: (B, T, C) → (B, C) for `dim` = 1.
pub fn mean_over(x: &Var, dim: usize) -> Var {
    let shape = x.shape();
    let dims = shape.dims();
    assert!(dim < dims.len(), "{shape} has no dimension {dim}");
    let outer: usize = dims[..dim].iter().product();
    let middle = dims[dim];
    let inner: usize = dims[dim + 1..].iter().product();
    let factor = 1.0 / middle as f32;
    let kept: Vec<usize> = [&dims[..dim], &dims[dim + 1..]].concat();
    let mut out = Tensor::zeros(Shape::new(&kept));
    if inner > 0 && middle > 0 {
        let blocks = x.value().data().chunks_exact(middle * inner);
        for (out, block) in out.data_mut().chunks_exact_mut(inner).zip(blocks) {
            elementwise::column_sums(block, out, Write::Set);
            elementwise::scale(out, factor);
        }
    }
    Var::from_op(out, &[x], || MeanBackward { outer, middle, inner, factor })
}

struct MeanBackward {
    outer: usize,
    middle: usize,
    inner: usize,
    factor: f32,
}

impl Backward for MeanBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let Self { outer, middle, inner, factor } = *self;
        gradients.write(0, |dx, write| {
            for o in 0..outer {
                let dout = &dout.data()[o * inner..(o + 1) * inner];
                let block = &mut dx[o * middle * inner..(o + 1) * middle * inner];
                if write == Write::Set {
                    elementwise::fill(block, 0.0);
                }
                if inner == 1 {
                    elementwise::add_scalar(block, factor * dout[0]); // 1
                } else if inner > 1 {
                    for dx in block.chunks_exact_mut(inner) {
                        elementwise::axpy(dx, factor, dout); // 1
                    }
                }
            }
        });
    }
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 2e-6,
        backward: 1e-6,
        reason: "a sum of up to 3,000 terms of both signs, in chunks",
    };
    let all = |name, shape: &[usize], mean: bool| {
        let forward = move |v: &[Var]| if mean { v[0].mean() } else { v[0].sum() };
        let reference = move |a: &[Array]| {
            let sum: f64 = a[0].data.iter().sum();
            Array::scalar(if mean { sum / a[0].data.len() as f64 } else { sum })
        };
        Case::new("mean", name, tolerance, forward, reference)
            .normal("x", shape)
            .torch(if mean { "x.mean()" } else { "x.sum()" })
    };
    let over = Case::new(
        "mean",
        "over_middle",
        tolerance,
        |v| mean_over(&v[0], 1),
        |a| {
            let (b, t, c) = (2, 5, 7);
            Array::build([b, c], |i| {
                (0..t).map(|t| a[0].at(&[i / c, t, i % c])).sum::<f64>() / t as f64
            })
        },
    )
    .normal("x", [2, 5, 7])
    .torch("x.mean(1)");
    let last = Case::new(
        "mean",
        "over_last",
        tolerance,
        |v| mean_over(&v[0], 1),
        |a| Array::build([4], |i| a[0].row(i).iter().sum::<f64>() / 9.0),
    )
    .normal("x", [4, 9])
    .torch("x.mean(1)");
    vec![all("sum", &[3, 7], false), all("mean", &[9, 333], true), all("shared", &[9, 3333], true), over, last]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    fn the_sum_of_nothing_is_zero() {
        assert_eq!(Var::constant(Tensor::zeros([0])).sum().value().item(), 0.0);
    }
}
