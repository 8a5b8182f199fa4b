//! Where the heads of queries, keys, values and their gradients lie in memory.
//!
//! Attention reads its operands straight out of what a projection wrote: three tensors
//! (B, T, H·D), (B, S, K·D), (B, S, K·Dv), or column ranges of one packed (B, T, (H + 2K)·D), or
//! a cache (B, K, capacity, D) of which the first S rows are filled. All of these are one rule:
//! head `h` of row (b, t) starts at
//! `offset + b · batch_stride + t · row_stride + h · head_stride`.

use super::products::{Out, PAD};
use super::tiles::{ROWS_AHEAD, fetch_row};
use crate::simd::Simd;
use crate::threads::SharedMut;
use crate::{Write, dispatch, each_span};
use std::ops::Range;

/// The rule, without the memory.
#[derive(Clone, Copy, Debug)]
struct Places {
    rows: usize,
    heads: usize,
    width: usize,
    offset: usize,
    batch_stride: usize,
    row_stride: usize,
    head_stride: usize,
}

impl Places {
    #[inline]
    fn start(&self, batch: usize, row: usize, head: usize) -> usize {
        self.offset + batch * self.batch_stride + row * self.row_stride + head * self.head_stride
    }

    /// Panics unless these are (rows, heads, width), and `batch` of them fit in `len` floats.
    fn check(&self, len: usize, what: &str, batch: usize, shape: (usize, usize, usize)) {
        let given = (self.rows, self.heads, self.width);
        assert_eq!(
            given, shape,
            "{what} given as (rows, heads, width) {given:?}, expected {shape:?}"
        );
        if batch * self.rows * self.heads * self.width > 0 {
            let end = self.start(batch - 1, self.rows - 1, self.heads - 1) + self.width;
            assert!(end <= len, "{what}: {batch} × {self:?} end at {end}, but there are {len}");
        }
    }
}

/// One rule for each part of rows that hold several parts next to each other.
fn columns<const N: usize>(rows: usize, heads: [usize; N], width: [usize; N]) -> [Places; N] {
    let row_stride = (0..N).map(|i| heads[i] * width[i]).sum();
    let mut end = 0;
    std::array::from_fn(|i| {
        let offset = end;
        end += heads[i] * width[i];
        Places {
            rows,
            heads: heads[i],
            width: width[i],
            offset,
            batch_stride: rows * row_stride,
            row_stride,
            head_stride: width[i],
        }
    })
}

/// Heads to read.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    data: &'a [f32],
    places: Places,
}

impl<'a> Rows<'a> {
    /// A tensor (B, `rows`, `heads` · `width`) of its own.
    pub fn new(data: &'a [f32], rows: usize, heads: usize, width: usize) -> Self {
        let [part] = Self::packed(data, rows, [heads], [width]);
        part
    }

    /// Parts of one packed tensor (B, `rows`, Σ heads · width), in order: queries, keys and
    /// values of a fused projection, or keys and values.
    pub fn packed<const N: usize>(
        data: &'a [f32],
        rows: usize,
        heads: [usize; N],
        width: [usize; N],
    ) -> [Self; N] {
        columns(rows, heads, width).map(|places| Self { data, places })
    }

    /// The first `rows` of a cache (B, K, `capacity`, `width`), which keeps each head's rows
    /// next to each other.
    pub fn cache(
        data: &'a [f32],
        heads: usize,
        capacity: usize,
        rows: usize,
        width: usize,
    ) -> Self {
        assert!(rows <= capacity, "{rows} rows of a cache for {capacity}");
        let head_stride = capacity * width;
        let places = Places {
            rows,
            heads,
            width,
            offset: 0,
            batch_stride: heads * head_stride,
            row_stride: width,
            head_stride,
        };
        Self { data, places }
    }

    pub(super) fn check(&self, what: &str, batch: usize, shape: (usize, usize, usize)) {
        self.places.check(self.data.len(), what, batch, shape);
    }

    /// One head of consecutive rows: a slice that starts with the first, and the distance from
    /// row to row.
    pub(super) fn strided(
        &self,
        batch: usize,
        rows: Range<usize>,
        head: usize,
    ) -> (&'a [f32], usize) {
        let Places { row_stride, width, .. } = self.places;
        if rows.is_empty() || width == 0 {
            return (&[], row_stride);
        }
        let start = self.places.start(batch, rows.start, head);
        let end = self.places.start(batch, rows.end - 1, head) + width;
        (&self.data[start..end], row_stride)
    }

    /// Floats from a row to the next.
    pub(super) fn row_stride(&self) -> usize {
        self.places.row_stride
    }

    /// One head of one row.
    #[inline]
    pub(super) fn head(&self, batch: usize, row: usize, head: usize) -> &'a [f32] {
        let start = self.places.start(batch, row, head);
        &self.data[start..start + self.places.width]
    }
}

/// Rows so many floats apart, 16 cache lines, begin in four of the 64 sets of a first-level cache:
/// 64 rows are 16 to a set, and push each other out. At most half as far apart, or at other
/// distances, there are no more than 8 to a set.
const CROWDED: usize = 256;

/// Can products read the rows of a block where they lie, `stride` floats apart? They need whole
/// cache lines, and rows that stay in cache together.
pub(super) fn readable_in_place(width: usize, stride: usize) -> bool {
    width > 0 && width.is_multiple_of(PAD) && !stride.is_multiple_of(CROWDED)
}

/// Heads to write, or to add to. Parts of one packed tensor are written at the same time: their
/// columns are disjoint.
pub struct RowsMut<'a> {
    data: SharedMut<'a>,
    len: usize,
    write: Write,
    places: Places,
}

impl<'a> RowsMut<'a> {
    /// A tensor (B, `rows`, `heads` · `width`) of its own.
    pub fn new(data: &'a mut [f32], write: Write, rows: usize, heads: usize, width: usize) -> Self {
        let [part] = Self::packed(data, write, rows, [heads], [width]);
        part
    }

    /// Parts of one packed tensor (B, `rows`, Σ heads · width), in order.
    pub fn packed<const N: usize>(
        data: &'a mut [f32],
        write: Write,
        rows: usize,
        heads: [usize; N],
        width: [usize; N],
    ) -> [Self; N] {
        let len = data.len();
        let data = SharedMut::new(data);
        columns(rows, heads, width).map(|places| Self { data, len, write, places })
    }

    pub(super) fn check(&self, what: &str, batch: usize, shape: (usize, usize, usize)) {
        self.places.check(self.len, what, batch, shape);
    }

    /// Writes one head of some rows, which are `stride` apart in `x`, times `factor`.
    ///
    /// # Safety
    /// The same head of the same row may not be written by two threads at once. (Other heads and
    /// other parts are apart: offsets and strides come from `columns`, which lays them side by
    /// side, and there is no way to copy a part.)
    pub(super) unsafe fn put(
        &self,
        batch: usize,
        rows: Range<usize>,
        head: usize,
        x: &[f32],
        stride: usize,
        factor: f32,
    ) {
        assert!(rows.end <= self.places.rows && head < self.places.heads);
        put_rows(Exclusive { to: self, batch, rows, head }, x, stride, factor);
    }

    /// One head of some rows, for a product times `factor`. Rows must be whole cache lines wide.
    ///
    /// # Safety
    /// As for [`Self::put`], as long as the result lives.
    pub(super) unsafe fn out(
        &self,
        batch: usize,
        rows: Range<usize>,
        head: usize,
        factor: f32,
    ) -> Out<'_> {
        let Places { row_stride, width, .. } = self.places;
        assert!(rows.end <= self.places.rows && head < self.places.heads && !rows.is_empty());
        assert!(width.is_multiple_of(PAD), "rows are not whole cache lines");
        let start = self.places.start(batch, rows.start, head);
        let end = self.places.start(batch, rows.end - 1, head) + width;
        let first = self.data.pointer(start..end);
        for row in 0..rows.len() {
            fetch_row(first.wrapping_add(row * row_stride), width);
        }
        // SAFETY: `pointer` has shown that these are inside, and the caller has the rows alone.
        unsafe { Out::shared(first, end - start, (width, row_stride), self.write, factor) }
    }
}

/// One head of some rows that nobody else writes: made by [`RowsMut::put`] alone, whose caller
/// vouches for it.
struct Exclusive<'a> {
    to: &'a RowsMut<'a>,
    batch: usize,
    rows: Range<usize>,
    head: usize,
}

dispatch! {
    fn put_rows(place: Exclusive<'_>, x: &[f32], stride: usize, factor: f32) => put_rows_on
}

#[inline(always)]
fn put_rows_on<S: Simd>(s: S, place: Exclusive<'_>, x: &[f32], stride: usize, factor: f32) {
    let Exclusive { to, batch, rows, head } = place;
    let factor = s.splat(factor);
    let width = to.places.width;
    for (r, row) in rows.enumerate() {
        let x = &x[r * stride..][..width];
        let start = to.places.start(batch, row, head);
        let ahead = to.data.pointer(start..start).wrapping_add(ROWS_AHEAD * to.places.row_stride);
        fetch_row(ahead, width);
        // SAFETY: distinct (batch, row, head, part) are distinct ranges, these are written by
        // this thread alone, and the slice ends with this round.
        let out = unsafe { to.data.range(start..start + width) };
        each_span!(S, width, |at| {
            s.put(out, at, s.mul(s.read(x, at), factor), to.write);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_packed_row_are_found() {
        // B = 2, T = 3, two query heads of 2, one key head of 2, one value head of 3
        let data: Vec<f32> = (0..2 * 3 * 9).map(|i| i as f32).collect();
        let [q, k, v] = Rows::packed(&data, 3, [2, 1, 1], [2, 2, 3]);
        assert_eq!(q.head(1, 2, 1), &[47.0, 48.0]);
        assert_eq!(k.head(0, 1, 0), &[13.0, 14.0]);
        assert_eq!(v.head(1, 0, 0), &[33.0, 34.0, 35.0]);
        let cache = Rows::cache(&data, 2, 6, 4, 2);
        assert_eq!(cache.head(1, 3, 1), &[42.0, 43.0]);
    }

    #[test]
    #[should_panic(expected = "keys given as (rows, heads, width) (3, 1, 4), expected (3, 2, 4)")]
    fn a_wrong_shape_is_named() {
        Rows::new(&[0.0; 24], 3, 1, 4).check("keys", 2, (3, 2, 4));
    }

    #[test]
    #[should_panic(expected = "end at 24, but there are 23")]
    fn too_little_memory_is_named() {
        Rows::new(&[0.0; 23], 3, 1, 4).check("keys", 2, (3, 1, 4));
    }
}
