//! Matrix products: `out = A·B` or `out += A·B`, in every layout that a linear layer and its two
//! gradients need, with what follows the product (bias, activation) done while it is in cache.
//!
//! | file        | what it does                                                                |
//! |-------------|-----------------------------------------------------------------------------|
//! | `micro`     | rows of tiles that stay in registers; all else is loops around them         |
//! | `pack`      | lays operands out as tiles read them; widens 16-bit numbers                 |
//! | `transpose` | blocks transposed in registers                                              |
//! | `sets`      | the size of a tile, and what pays, on each instruction set                  |
//! | `rounds_avx2` | the loop of a tile in assembly                                            |
//! | `fetches`   | what tiles fetch while they are computed                                    |
//! | `blocked`   | cuts M, N and K for the caches and the threads                              |
//! | `few`       | one to three rows times a weight matrix: generation                         |
//! | `packed`    | one matrix times many others, a few rows each: recurrent layers             |
//! | `amx`       | products of many rows on AMX tiles, instead of all of the above but `epilogue` |
//! | `epilogue`  | bias, activation, factor and residual on rows just finished                         |
//!
//! An element is summed in an order that depends on K alone: blocks of at most 768 steps,
//! each a chain of multiply-adds, added up one after the other; `amx` has an order of its own.
//! |error| ≤ (K + 2)·ε·Σ|a||b|.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
mod blocked;
mod epilogue;
mod fetches;
mod few;
pub(crate) mod micro;
pub(crate) mod pack;
pub mod packed;
#[cfg(target_arch = "x86_64")]
mod rounds_avx2;
mod sets;
pub(crate) mod transpose;

pub use epilogue::Epilogue;

use crate::Write;
use crate::dry::{self, Operations};
use crate::threads::{self, SharedMut};
use blocked::Job;
use epilogue::Tail;

#[cfg(test)]
mod tests;

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

/// `out = A·B` ([`Write::Set`]) or `out += A·B` ([`Write::Add`]), then the [`Epilogue`]; row `i`
/// of the result starts at `out[i · out_stride]`.
///
/// Each element is summed in an order that depends on the inner dimension alone. So the bits of
/// a row depend on that row of A and on B: not on the number of threads, nor on the other rows or
/// how many there are (but for [AMX](crate::isa::Isa::Amx), which is for many).
pub fn gemm(
    a: Matrix<'_>,
    b: Matrix<'_>,
    out: &mut [f32],
    out_stride: usize,
    write: Write,
    epilogue: Epilogue<'_>,
) {
    let ((m, k), (k2, n)) = (a.shape(), b.shape());
    assert_eq!(k, k2, "inner dimensions differ: {m}×{k} times {k2}×{n}");
    if m == 0 || n == 0 {
        return;
    }
    dry::count(|| operations(1, m, n, k));
    let needed = (m - 1) * out_stride + n;
    assert!(
        out.len() >= needed && out_stride >= n,
        "a {m}×{n} product with row stride {out_stride} does not fit in {} elements",
        out.len()
    );
    if k == 0 && write == Write::Set {
        out[..needed].chunks_mut(out_stride).for_each(|row| row[..n].fill(0.0));
    }
    let tail = Tail::new(epilogue, n, needed);
    let out = SharedMut::new(out);
    let job = Job { a, b: b.transposed(), out, out_stride, write, tail };
    if k == 0 {
        // SAFETY: nothing else works on `out`.
        unsafe { job.finish(0..m, 0..n) };
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(amx) = amx::suits(&job) {
        amx::run(amx, &job);
        return;
    }
    if few::suits(&job) {
        few::run(&job);
    } else {
        blocked::run(&job);
    }
}

/// Many products of one shape: `out[i] = A[i]·B[i]` or `out[i] += A[i]·B[i]`, where `a(i)` and
/// `b(i)` are M × K and K × N and `out[i]` is M rows of N floats from `i · out_stride` on.
///
/// Many small products are shared out among the threads, a few large ones are each computed by
/// all of them. The bits are those of [`gemm`] either way.
pub fn gemm_batched<'a>(
    batch: usize,
    a: impl Fn(usize) -> Matrix<'a> + Sync,
    b: impl Fn(usize) -> Matrix<'a> + Sync,
    out: &mut [f32],
    out_stride: usize,
    write: Write,
) {
    if batch == 0 {
        return;
    }
    let (m, n) = (a(0).rows, b(0).columns);
    assert!(
        out_stride >= m * n && out.len() >= (batch - 1) * out_stride + m * n,
        "{batch} products of {m}×{n}, {out_stride} apart, do not fit in {} elements",
        out.len()
    );
    if dry::is_on() {
        return dry::count(|| operations(batch, m, n, a(0).columns));
    }
    let shared = SharedMut::new(out);
    let product = |i: usize| {
        let (a, b) = (a(i), b(i));
        assert_eq!((a.rows, b.columns), (m, n), "product {i} is not {m}×{n}");
        // SAFETY: products are at least m · n apart and this one is computed once.
        let out = unsafe { shared.range(i * out_stride..i * out_stride + m * n) };
        gemm(a, b, out, n, write, Epilogue::default());
    };
    if batch >= MANY_PRODUCTS * threads::count() {
        threads::for_each(batch, product);
    } else {
        (0..batch).for_each(product);
    }
}

/// Operations of so many products.
fn operations(count: usize, m: usize, n: usize, k: usize) -> Operations {
    let products = [2, count, m, n, k].iter().map(|&x| x as f64).product();
    Operations { products, attention: 0.0 }
}

/// Products for each thread from which on it is better for each to work alone.
const MANY_PRODUCTS: usize = 4;
