//! `out = [x₀ | x₁ | …]` along any dimension; the other dimensions are equal.
//!
//! Every element of `out` is one element of one part, so
//! 1. `dxₚ` is the part of `dout` that `xₚ` went to.
//!
//! Saves nothing but where each part lies.

use crate::columns::{At, Cut, copy, resized};
use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::Write;

/// The parts one after the other along dimension `dim`.
pub fn concat(parts: &[&Var], dim: usize) -> Var {
    assert!(!parts.is_empty(), "nothing to concatenate");
    let first = parts[0].shape();
    assert!(dim < first.rank(), "{first} has no dimension {dim}");
    let mut size = 0;
    for part in parts {
        let shape = part.shape();
        assert!(
            shape.rank() == first.rank() && resized(shape, dim, first.dims()[dim]) == first,
            "cannot concatenate {first} and {shape} along dimension {dim}"
        );
        size += shape.dims()[dim];
    }
    let mut out = Tensor::unset(resized(first, dim, size));
    let whole = Cut::new(out.shape(), dim);
    let mut column = 0;
    let mut blocks = Vec::with_capacity(parts.len());
    for part in parts {
        let width = Cut::new(part.shape(), dim).width;
        let from = (part.value().data(), At { column: 0, width });
        let to = (out.data_mut(), At { column, width: whole.width });
        copy(whole.rows, width, from, to, Write::Set);
        blocks.push((column, width));
        column += width;
    }
    Var::from_op(out, parts, || ConcatBackward { whole, blocks })
}

struct ConcatBackward {
    whole: Cut,
    blocks: Vec<(usize, usize)>, // (first column, width) of each part
}

impl Backward for ConcatBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        for (i, (column, width)) in self.blocks.into_iter().enumerate() {
            gradients.write(i, |dx, write| {
                let from = (dout.data(), At { column, width: self.whole.width });
                copy(self.whole.rows, width, from, (dx, At { column: 0, width }), write); // 1
            });
        }
    }
}

/// The (rows, width) of all parts, concatenated.
fn reference(inputs: &[Array], dim: usize) -> Array {
    let size: usize = inputs.iter().map(|x| x.shape.dims()[dim]).sum();
    let shape = resized(inputs[0].shape, dim, size);
    let rows = Cut::new(shape, dim).rows;
    let mut data = Vec::new();
    for row in 0..rows {
        for x in inputs {
            let width = x.data.len() / rows;
            data.extend(&x.data[row * width..(row + 1) * width]);
        }
    }
    Array::new(shape, data)
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance { forward: 0.0, backward: 1e-9, reason: "numbers are only moved" };
    let case = |name, dim: usize, shapes: [&[usize]; 3], torch| {
        let forward = move |v: &[Var]| concat(&[&v[0], &v[1], &v[2]], dim);
        Case::new("concat", name, tolerance, forward, move |a| reference(a, dim))
            .normal("a", shapes[0])
            .normal("b", shapes[1])
            .normal("c", shapes[2])
            .torch(torch)
    };
    vec![
        case("rows", 0, [&[2, 5], &[1, 5], &[3, 5]], "torch.cat([a, b, c], 0)"),
        case("middle", 1, [&[2, 3, 4], &[2, 1, 4], &[2, 5, 4]], "torch.cat([a, b, c], 1)"),
        case("last", 2, [&[2, 3, 7], &[2, 3, 9], &[2, 3, 1]], "torch.cat([a, b, c], 2)"),
        case("with_nothing", 1, [&[3, 2], &[3, 0], &[3, 4]], "torch.cat([a, b, c], 1)"),
        case("many", 1, [&[300, 33], &[300, 64], &[300, 5]], "torch.cat([a, b, c], 1)"),
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
    #[should_panic(expected = "cannot concatenate (2, 3) and (2, 4) along dimension 0")]
    fn shapes_must_fit() {
        let (a, b) = (Tensor::zeros([2, 3]), Tensor::zeros([2, 4]));
        let _ = concat(&[&Var::constant(a), &Var::constant(b)], 0);
    }

    #[test]
    fn one_variable_may_be_several_parts() {
        let x = Var::leaf(Tensor::new([2], &[1.0, 2.0]));
        let out = concat(&[&x, &x], 0);
        assert_eq!(out.value().data(), &[1.0, 2.0, 1.0, 2.0]);
        out.backward_with(Tensor::new([4], &[1.0, 2.0, 10.0, 20.0]));
        assert_eq!(x.gradient().unwrap().data(), &[11.0, 22.0]);
    }

    #[test]
    fn no_rows_are_fine() {
        let x = Var::leaf(Tensor::zeros([0, 3]));
        let out = concat(&[&x, &x], 1);
        assert_eq!(out.shape().dims(), [0, 6]);
        out.sum().backward();
        assert_eq!(x.gradient().unwrap().shape().dims(), [0, 3]);
    }
}
