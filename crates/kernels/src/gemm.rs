//! Matrix products: `out = A·B` or `out += A·B`, in every layout that a linear layer and its two
//! gradients need, with what follows the product (bias, activation) done while it is in cache.

use crate::Write;

/// A matrix in memory: element (i, j) is `data[i · row_stride + j · column_stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: Data<'a>,
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

/// The numbers of a [`Matrix`]. 16-bit ones are widened as they are packed; arithmetic is f32.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// IEEE half precision, as bits.
    F16(&'a [u16]),
    /// bfloat16, as bits.
    Bf16(&'a [u16]),
}

impl Data<'_> {
    fn len(&self) -> usize {
        match self {
            Data::F32(x) => x.len(),
            Data::F16(x) | Data::Bf16(x) => x.len(),
        }
    }
}

impl<'a> Matrix<'a> {
    /// Row-major, rows next to each other.
    pub fn new(data: &'a [f32], rows: usize, columns: usize) -> Self {
        Self::strided(data, rows, columns, columns)
    }

    /// Row-major, `row_stride` elements from one row to the next.
    pub fn strided(data: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        Self::of(Data::F32(data), rows, columns, row_stride)
    }

    /// Row-major numbers of any storage type.
    pub fn of(data: Data<'a>, rows: usize, columns: usize, row_stride: usize) -> Self {
        let needed = if rows == 0 || columns == 0 { 0 } else { (rows - 1) * row_stride + columns };
        assert!(
            data.len() >= needed && row_stride >= columns,
            "a {rows}×{columns} matrix with row stride {row_stride} does not fit in {} elements",
            data.len()
        );
        Self { data, rows, columns, row_stride, column_stride: 1 }
    }

    /// The transpose, without moving anything.
    pub fn transposed(self) -> Self {
        Self {
            data: self.data,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// (rows, columns)
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }
}

/// `out = A·B` ([`Write::Set`]) or `out += A·B` ([`Write::Add`]); row `i` of the result starts at
/// `out[i · out_stride]`. If `bias` is given, it is added to every row.
///
/// The sum over the inner dimension runs in an order that depends on the shape alone, so the bits
/// do not depend on the number of threads, nor the bits of a row on the other rows.
pub fn gemm(
    a: Matrix<'_>,
    b: Matrix<'_>,
    out: &mut [f32],
    out_stride: usize,
    write: Write,
    bias: Option<&[f32]>,
) {
    let (m, k) = a.shape();
    let (k2, n) = b.shape();
    assert_eq!(k, k2, "inner dimensions differ: {m}×{k} times {k2}×{n}");
    let at = |x: &Matrix<'_>, i: usize, j: usize| {
        let index = i * x.row_stride + j * x.column_stride;
        match x.data {
            Data::F32(d) => d[index],
            Data::F16(d) => half::f16::from_bits(d[index]).to_f32(),
            Data::Bf16(d) => half::bf16::from_bits(d[index]).to_f32(),
        }
    };
    for i in 0..m {
        for j in 0..n {
            let product: f32 = (0..k).map(|p| at(&a, i, p) * at(&b, p, j)).sum();
            let value = product + bias.map_or(0.0, |b| b[j]);
            let out = &mut out[i * out_stride + j];
            *out = if write == Write::Add { *out + value } else { value };
        }
    }
}
