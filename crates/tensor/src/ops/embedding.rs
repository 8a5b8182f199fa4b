//! `outᵢ = table[idᵢ]`: a row of the table (V, C) for each id, in whatever shape the ids have.
//!
//! Derivation: a row of the table is the sum of nothing else than itself at each place where its
//! id stands, so
//! 1. `dtable[v] = Σ doutᵢ` over all i with idᵢ = v, added in order of i; 0 for ids that do not
//!    occur.
//!
//! Saves the ids. The first gradient of a table must set all of its rows, later ones (of a tied
//! output head, or of the next micro-batch) touch only those that occur.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::{Saved, Weight};
use crate::reference::Array;
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::{Write, embedding as kernel, threads};

/// The rows of `table` (V, C) for `ids`, which are read in `shape`: (…) → (…, C). The table is a
/// [`Var`] or a 16-bit [`Weight`].
pub fn embedding(table: impl Into<Weight>, ids: &[u32], shape: impl Into<Shape>) -> Var {
    let table = table.into();
    let (shape, dims) = (shape.into(), table.shape());
    assert_eq!(shape.len(), ids.len(), "{} ids do not have the shape {shape}", ids.len());
    assert_eq!(dims.rank(), 2, "a table has rows and columns, not the shape {dims}");
    let width = dims.width();
    if let Some((i, id)) = ids.iter().enumerate().find(|(_, id)| **id as usize >= dims.rows()) {
        panic!("id {id} at {i} is not in a table of shape {dims}");
    }
    let mut out = Tensor::unset(Shape::new(&[shape.dims(), &[width]].concat()));
    match table.stored() {
        Saved::Whole(table) => kernel::gather(table.data(), width, ids, out.data_mut()),
        Saved::Half(table) => {
            for (&id, out) in ids.iter().zip(out.data_mut().chunks_exact_mut(width.max(1))) {
                table.widen_range(id as usize * width..(id as usize + 1) * width, out);
            }
        }
    }
    Var::from_op(out, &[table.master()], || EmbeddingBackward { ids: ids.to_vec() })
}

struct EmbeddingBackward {
    ids: Vec<u32>,
}

impl Backward for EmbeddingBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        gradients.write(0, |dtable, write| {
            if write == Write::Set {
                let chunk = threads::rows_per_chunk(1);
                let rows = dtable.len();
                threads::for_row_chunks(rows, chunk, [(&mut *dtable, 1)], |_, [part]| {
                    part.fill(0.0);
                });
            }
            kernel::scatter_add(dout.data(), dout.shape().width(), &self.ids, dtable); // 1
        });
    }
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 0.0,
        backward: 1e-6,
        reason: "values are copied; a gradient is a sum of up to 100 terms of both signs",
    };
    let case = |name, table: [usize; 2], shape: &[usize], ids: Vec<u32>| {
        let extra = Array::new(shape, ids.iter().map(|&id| f64::from(id)).collect());
        let (own, shape) = (ids.clone(), Shape::new(shape));
        let reference = move |a: &[Array]| {
            let rows: Vec<f64> = ids.iter().flat_map(|&id| a[0].row(id as usize).to_vec()).collect();
            Array::new(&[shape.dims(), &[a[0].shape.width()]].concat()[..], rows)
        };
        Case::new("embedding", name, tolerance, move |v| embedding(&v[0], &own, shape), reference)
            .normal("table", table)
            .extra("ids", extra)
            .torch("F.embedding(ids.long(), table)")
    };
    let often = (0..300).map(|i| i * i % 7).collect();
    let spread = (0..40).map(|i| i * 37 % 300).collect();
    vec![
        case("small", [5, 3], &[2, 3], vec![4, 0, 4, 1, 1, 4]),
        case("repeated", [9, 17], &[300], often),
        case("sparse", [300, 65], &[4, 10], spread),
        case("one", [1, 1], &[1], vec![0]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half::{HalfTensor, Storage};
    use crate::rng::Rng;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    #[should_panic(expected = "3 ids do not have the shape (2, 2)")]
    fn shapes_must_fit() {
        let _ = embedding(&Var::constant(Tensor::zeros([4, 2])), &[0, 1, 2], [2, 2]);
    }

    #[test]
    #[should_panic(expected = "id 4 at 1 is not in a table of shape (4, 2)")]
    fn ids_must_be_in_the_table() {
        let _ = embedding(&Var::constant(Tensor::zeros([4, 2])), &[0, 4], [2]);
    }

    #[test]
    fn no_ids_give_no_rows_and_zero_gradients() {
        let table = Var::leaf(Tensor::full([3, 2], 1.0));
        let out = embedding(&table, &[], [0]);
        assert_eq!(out.shape().dims(), [0, 2]);
        out.sum().backward();
        assert_eq!(table.gradient().unwrap().data(), &[0.0; 6]);
    }

    #[test]
    fn rows_that_do_not_occur_do_not_matter_and_nan_is_copied() {
        let table = Var::leaf(Tensor::new([3, 1], &[f32::NAN, f32::INFINITY, 2.0]));
        let out = embedding(&table, &[2, 1, 2], [3]);
        assert_eq!(out.value().data(), &[2.0, f32::INFINITY, 2.0]);
        out.sum().backward();
        assert_eq!(table.gradient().unwrap().data(), &[0.0, 1.0, 2.0]);
        assert!(embedding(&table, &[0], [1]).value().item().is_nan());
    }

    #[test]
    fn a_sixteen_bit_table_gives_its_rounded_rows() {
        let table = Var::leaf(Rng::new(1).normal([6, 5], 1.0));
        for storage in [Storage::Bf16, Storage::F16] {
            let half = HalfTensor::new(table.value(), storage);
            let widened = half.widen();
            let out = embedding(Weight::rounded(half, table.clone()), &[3, 0], [2]);
            let want = [&widened.data()[15..20], &widened.data()[..5]].concat();
            assert_eq!(out.value().data(), want);
            out.sum().backward();
            assert_eq!(table.take_gradient().unwrap().data()[15], 1.0);
        }
    }
}
