//! Some columns of a matrix to some columns of another: the copy behind concat and slice.
//!
//! A tensor cut at dimension `dim` is a matrix: the dimensions before are its rows, `dim` and
//! those after it its columns. A range of `dim` is then a range of columns.

use crate::shape::Shape;
use hearken_kernels::threads::{for_row_chunks, rows_per_chunk};
use hearken_kernels::{Write, elementwise};

/// A tensor as (rows, width), cut at a dimension of which one step is `step` columns.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) step: usize,
}

impl Cut {
    /// Panics if `shape` has no dimension `dim`.
    pub(crate) fn new(shape: Shape, dim: usize) -> Self {
        let dims = shape.dims();
        assert!(dim < dims.len(), "{shape} has no dimension {dim}");
        let step = dims[dim + 1..].iter().product();
        Self { rows: dims[..dim].iter().product(), width: dims[dim] * step, step }
    }
}

/// `shape` with dimension `dim` of another size.
pub(crate) fn resized(shape: Shape, dim: usize, size: usize) -> Shape {
    let mut dims = shape.dims().to_vec();
    dims[dim] = size;
    Shape::new(&dims)
}

/// Where a block of columns begins, in a matrix of this width.
#[derive(Clone, Copy)]
pub(crate) struct At {
    pub(crate) column: usize,
    pub(crate) width: usize,
}

/// `to[.., columns] = from[.., columns]`, or `+=`, for `count` columns of each of `rows` rows.
pub(crate) fn copy(
    rows: usize,
    count: usize,
    (from, at): (&[f32], At),
    (to, to_at): (&mut [f32], At),
    write: Write,
) {
    if count == 0 {
        return;
    }
    for_row_chunks(rows, rows_per_chunk(count), [(to, to_at.width)], |chunk, [to]| {
        for (row, to) in chunk.zip(to.chunks_exact_mut(to_at.width)) {
            let from = &from[row * at.width + at.column..][..count];
            let to = &mut to[to_at.column..][..count];
            match write {
                Write::Set => to.copy_from_slice(from),
                Write::Add => elementwise::add_assign(to, from),
            }
        }
    });
}
