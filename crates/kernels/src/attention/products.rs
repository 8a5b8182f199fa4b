//! Products of tiles that are in cache: `out = A·B` or `out += A·B`.
//!
//! The plain algorithm is `out[m][n] += a[m][k]·b[k][n]` for all m, n, k. Here six rows by
//! `VECTORS` vectors of the result are one [tile](crate::gemm::micro), which stays in registers
//! while k runs.
//!
//! A tile reads a one element at a time, so it may lie in rows or in columns: the five products
//! of attention's backward read Pᵀ and dSᵀ without a transpose. Only b has its rows contiguous.
//!
//! The sum over k runs in order, in one accumulator per element: the bits of an element depend
//! on nothing but its own row of a and column of b.

use crate::Write;
use crate::dispatch;
use crate::gemm::micro::{Layout, Operands, Tile, tile_of};

/// Widths of tiles in memory are rounded up to this many floats, one cache line: whole vectors
/// of every instruction set.
pub(super) const PAD: usize = 16;

/// `width` rounded up to whole cache lines.
pub(super) fn padded(width: usize) -> usize {
    width.next_multiple_of(PAD)
}

/// The left factor: element (m, k) is `data[m · row_stride + k · inner_stride]`. One of the strides
/// is 1.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    data: &'a [f32],
    row_stride: usize,
    inner_stride: usize,
}

impl<'a> Left<'a> {
    /// Row-major.
    pub(super) fn rows(data: &'a [f32], row_stride: usize) -> Self {
        Self { data, row_stride, inner_stride: 1 }
    }

    /// The transpose of a row-major matrix.
    pub(super) fn transposed(data: &'a [f32], row_stride: usize) -> Self {
        Self { data, row_stride: 1, inner_stride: row_stride }
    }
}

/// Where a product goes, and times what: to `width` floats of each row, and rows are `stride` apart,
/// all of them in `len` floats from `start` on.
pub(super) struct Out<'a> {
    start: *mut f32,
    len: usize,
    width: usize,
    stride: usize,
    write: Write,
    factor: f32,
    life: std::marker::PhantomData<&'a mut [f32]>,
}

impl<'a> Out<'a> {
    pub(super) fn new(data: &'a mut [f32], stride: usize, write: Write) -> Self {
        // SAFETY: the slice is borrowed for as long.
        unsafe { Self::shared(data.as_mut_ptr(), data.len(), (stride, stride), write, 1.0) }
    }

    /// In between what others write.
    ///
    /// # Safety
    /// As long as this lives, `len` floats from `start` on exist, and nobody else uses the first
    /// `width` of each `stride` of them.
    pub(super) unsafe fn shared(
        start: *mut f32,
        len: usize,
        (width, stride): (usize, usize),
        write: Write,
        factor: f32,
    ) -> Self {
        Self { start, len, width, stride, write, factor, life: std::marker::PhantomData }
    }

    /// Row `r`, for who writes it without a product.
    #[inline(always)]
    pub(super) fn row(&mut self, r: usize) -> &mut [f32] {
        let start = r * self.stride;
        assert!(self.width <= self.stride && start + self.width <= self.len);
        // SAFETY: inside, and this one's alone by the promise of `shared`.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), self.width) }
    }
}

dispatch! {
    /// `out` (rows × width) = or += `left` (rows × inner) · `right` (inner × width), times its factor,
    /// where `width` is a multiple of [`PAD`] and rows of `right` are `right_stride` floats apart.
    pub(super) fn product(
        rows: usize,
        width: usize,
        inner: usize,
        left: Left<'_>,
        right: &[f32],
        right_stride: usize,
        out: &Out<'_>,
    ) => product_on
}

#[inline(always)]
fn product_on<S: Tile>(
    s: S,
    rows: usize,
    width: usize,
    inner: usize,
    left: Left<'_>,
    right: &[f32],
    right_stride: usize,
    out: &Out<'_>,
) {
    if rows == 0 || width == 0 {
        return;
    }
    assert!(width.is_multiple_of(PAD) && width <= out.width && out.width <= out.stride);
    assert!((rows - 1) * out.stride + width <= out.len);
    assert!(left.row_stride == 1 || left.inner_stride == 1, "neither rows nor columns");
    if inner > 0 {
        let last = (rows - 1) * left.row_stride + (inner - 1) * left.inner_stride;
        assert!(last < left.data.len());
        assert!((inner - 1) * right_stride + width <= right.len());
    }
    let all = Product {
        inner,
        left: left.data.as_ptr(),
        row_stride: left.row_stride,
        inner_stride: left.inner_stride,
        right: right.as_ptr(),
        right_stride,
        out: out.start,
        out_stride: out.stride,
        write: out.write,
        factor: out.factor,
    };
    let vectors = width / S::LANES;
    // As even as can be: five vectors are three and two, not four and one.
    let groups = vectors.div_ceil(S::VECTORS);
    let mut first = 0;
    for group in 0..groups {
        let count = (vectors - first).div_ceil(groups - group);
        // SAFETY: the asserts above cover rows × width of all three operands, and the columns of
        // this group, `count` vectors from `first` on, lie within the width.
        unsafe {
            let part = all.columns(first * S::LANES);
            match count {
                4 if S::VECTORS >= 4 => part.strips::<S, 4>(s, rows),
                3 if S::VECTORS >= 3 => part.strips::<S, 3>(s, rows),
                2 if S::VECTORS >= 2 => part.strips::<S, 2>(s, rows),
                _ => part.strips::<S, 1>(s, rows), // one is left
            }
        }
        first += count;
    }
}

/// The operands, from their first element on.
#[derive(Clone, Copy)]
struct Product {
    inner: usize,
    left: *const f32,
    row_stride: usize,
    inner_stride: usize,
    right: *const f32,
    right_stride: usize,
    out: *mut f32,
    out_stride: usize,
    write: Write,
    factor: f32,
}

impl Product {
    /// From column `first` on.
    ///
    /// # Safety
    /// The right factor and the result must have more than `first` columns.
    #[inline(always)]
    unsafe fn columns(self, first: usize) -> Self {
        // SAFETY: inside the operands, as the caller promises. Without inner steps `right` is
        // never read, and wrapping keeps the unused pointer well defined.
        unsafe { Self { right: self.right.wrapping_add(first), out: self.out.add(first), ..self } }
    }

    /// All `rows` of `N` vectors' columns.
    ///
    /// # Safety
    /// The operands must hold `rows` rows of `N` vectors.
    #[inline(always)]
    unsafe fn strips<S: Tile, const N: usize>(self, s: S, rows: usize) {
        const ROWS: u8 = Layout::A_IN_ROWS + Layout::NEAR;
        const COLUMNS: u8 = Layout::A_IN_COLUMNS + Layout::NEAR;
        // SAFETY: passed on; one of the strides is 1, as `product` has asserted.
        unsafe {
            match (self.inner_stride == 1, self.factor == 1.0) {
                (true, true) => self.strips_of::<S, N, ROWS>(s, rows),
                (false, true) => self.strips_of::<S, N, COLUMNS>(s, rows),
                (true, false) => self.strips_of::<S, N, { ROWS + Layout::SCALED }>(s, rows),
                (false, false) => self.strips_of::<S, N, { COLUMNS + Layout::SCALED }>(s, rows),
            }
        }
    }

    /// Six rows at a time, and what is left in fours, twos and ones. With 8 lanes in two registers
    /// of four (portable), 6·2 sums, 2 of b and a broadcast are 15 of 16 registers.
    ///
    /// # Safety
    /// As for [`Self::strips`], and the layout must be true.
    #[inline(always)]
    unsafe fn strips_of<S: Tile, const N: usize, const LAYOUT: u8>(self, s: S, rows: usize) {
        let mut row = 0;
        // SAFETY: rows from `row` on are left, at least as many as each call takes.
        unsafe {
            while rows - row >= 6 {
                self.block::<S, 6, N, LAYOUT>(s, row);
                row += 6;
            }
            if rows - row >= 4 {
                self.block::<S, 4, N, LAYOUT>(s, row);
                row += 4;
            }
            if rows - row >= 2 {
                self.block::<S, 2, N, LAYOUT>(s, row);
                row += 2;
            }
            if rows - row >= 1 {
                self.block::<S, 1, N, LAYOUT>(s, row);
            }
        }
    }

    /// `M` rows from `row` on, of `N` vectors' columns.
    ///
    /// # Safety
    /// The operands must hold these rows and columns, and the layout must be true.
    #[inline(always)]
    unsafe fn block<S: Tile, const M: usize, const N: usize, const LAYOUT: u8>(
        self,
        s: S,
        row: usize,
    ) {
        let operands = Operands {
            depth: self.inner,
            a: self.left.wrapping_add(row * self.row_stride),
            a_lane: self.row_stride,
            a_step: self.inner_stride,
            b: self.right,
            b_step: self.right_stride,
            b_panel: 0,
            keep: std::ptr::null_mut(),
            fetches: std::ptr::null(),
            fetches_len: 0,
            further: 0,
            ahead: self.left,
            ahead_tiles: 0,
            factor: self.factor,
        };
        // SAFETY: every address is that of an element (m, k), (k, n) or (m, n) with m < row + M,
        // k < inner and n < N · LANES, which the caller vouches for.
        unsafe {
            let out = self.out.add(row * self.out_stride);
            let columns = N * S::LANES;
            tile_of::<S, M, N, LAYOUT>(s, columns, operands, out, self.out_stride, self.write);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, with_isa};

    /// Small integers: products and sums are exact, so equality is exact on every set.
    fn integers(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7 + seed * 13) % 11) as f32 - 5.0).collect()
    }

    /// Into part of the rows, in between what others write.
    #[test]
    fn a_factor_multiplies_the_product_and_gaps_stay() {
        let (rows, width, inner, stride) = (17, 32, 21, 48);
        let (a, b) = (integers(inner * 64, 1), integers(inner * width, 2));
        let before = integers(rows * stride, 3);
        for left in [Left::rows(&a, 30), Left::transposed(&a, 20)] {
            for write in [Write::Set, Write::Add] {
                let mut want = before.clone();
                for (i, x) in want.iter_mut().enumerate().filter(|(i, _)| i % stride < width) {
                    let (m, n) = (i / stride, i % stride);
                    let at = |k| a[m * left.row_stride + k * left.inner_stride];
                    let sum: f32 = (0..inner).map(|k| at(k) * b[k * width + n]).sum();
                    *x = if write == Write::Add { *x + 0.5 * sum } else { 0.5 * sum };
                }
                for isa in Isa::all_available() {
                    let mut out = before.clone();
                    let (start, len) = (out.as_mut_ptr(), out.len());
                    // SAFETY: `out` is used by this product alone.
                    let place = unsafe { Out::shared(start, len, (width, stride), write, 0.5) };
                    with_isa(isa, || product(rows, width, inner, left, &b, width, &place));
                    assert_eq!(out, want, "{isa:?}");
                }
            }
        }
    }

    #[test]
    fn products_of_every_shape_match_the_plain_loop() {
        for rows in [0, 1, 2, 3, 5, 6, 7, 11, 12, 17, 64] {
            for width in [0, 16, 32, 48, 64, 80, 112, 128] {
                for inner in [0, 1, 5, 13, 64, 71] {
                    let (left_stride, right_stride, out_stride) = (inner + 3, width + 16, width);
                    let a = integers(rows.max(inner) * (rows.max(inner) + 3), 1);
                    let b = integers(inner * right_stride, 2);
                    let before = integers(rows * out_stride, 3);
                    for transposed in [false, true] {
                        let left = if transposed {
                            Left::transposed(&a, rows.max(1))
                        } else {
                            Left::rows(&a, left_stride)
                        };
                        for write in [Write::Set, Write::Add] {
                            let mut want = before.clone();
                            for i in 0..rows * out_stride {
                                let (m, n) = (i / out_stride, i % out_stride);
                                let at = |k| a[m * left.row_stride + k * left.inner_stride];
                                let sum: f32 =
                                    (0..inner).map(|k| at(k) * b[k * right_stride + n]).sum();
                                want[i] = if write == Write::Add { want[i] + sum } else { sum };
                            }
                            for isa in Isa::all_available() {
                                let mut out = before.clone();
                                with_isa(isa, || {
                                    product(
                                        rows,
                                        width,
                                        inner,
                                        left,
                                        &b,
                                        right_stride,
                                        &Out::new(&mut out, out_stride, write),
                                    );
                                });
                                assert_eq!(out, want, "{rows}×{width}, inner {inner}, {isa:?}");
                            }
                        }
                    }
                }
            }
        }
    }
}
