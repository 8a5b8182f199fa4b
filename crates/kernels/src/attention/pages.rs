//! Attention of a few queries per sequence to caches that lie in pages, each sequence with a
//! length of its own: one step of decoding.
//!
//! A page holds [`PAGE`] rows of every head, (K, PAGE, D), as f32, f16 or 8-bit numbers. Narrow
//! numbers are widened a page of one head at a time, in memory that stays in the first-level
//! cache; so what is read from memory is what is kept.

use super::few::{Asking, Common, Tiles, ask};
use super::products::padded;
use super::tiles::{KEYS, pack_rows};
use super::{Rows, Scores};
use crate::convert::from_f16_on;
use crate::dispatch;
use crate::simd::Simd;
use std::ops::Range;

/// Rows of a page.
pub const PAGE: usize = KEYS;
/// Up to so many queries per sequence, [`Decoding`] is the faster way; beyond, keys are better
/// [gathered](gather) and packed.
pub const FEW_QUERIES: usize = super::few::FEW;

/// The keys or the values of a page: (K, [`PAGE`], D) numbers.
#[derive(Clone, Copy, Debug)]
pub enum Kept<'a> {
    /// As they are.
    F32(&'a [f32]),
    /// In IEEE half precision, as bits.
    F16(&'a [u16]),
    /// In 8 bits, and what the numbers of each row are multiplied by, (K, [`PAGE`]).
    Int8(&'a [i8], &'a [f32]),
}

impl<'a> Kept<'a> {
    /// The first `count` rows of a head, `width` numbers each, where they lie if they can be read
    /// there, else in `memory` with `stride` floats from row to row.
    fn rows<'m>(
        self,
        head: usize,
        count: usize,
        width: usize,
        stride: usize,
        memory: &'m mut [f32],
    ) -> (&'m [f32], usize)
    where
        'a: 'm,
    {
        let numbers = head * PAGE * width..(head * PAGE + count) * width;
        if let (Self::F32(data), true) = (self, width == stride) {
            return (&data[numbers], stride);
        }
        let memory = &mut memory[..count * stride];
        match self {
            Self::F32(data) => pack_rows(&data[numbers], width, width, 1.0, stride, memory),
            Self::F16(data) => widen_f16(&data[numbers], width, stride, memory),
            Self::Int8(data, scales) => {
                let scales = &scales[head * PAGE..head * PAGE + count];
                widen_i8(&data[numbers], scales, width, stride, memory);
            }
        }
        (memory, stride)
    }
}

/// The cache of one sequence.
pub trait Pages: Sync {
    /// Keys and values of [`PAGE`] tokens, from token `index` · PAGE on.
    fn page(&self, index: usize) -> [Kept<'_>; 2];
}

/// The queries of one sequence and its cache.
pub struct Sequence<'a, P, M> {
    /// Which rows of the queries are its own.
    pub rows: Range<usize>,
    /// How many keys there are.
    pub keys: usize,
    /// Where they are.
    pub pages: &'a P,
    /// What is visible and what is added; it is asked about batch 0.
    pub scores: &'a M,
}

/// A step of decoding.
pub struct Decoding<'a> {
    /// H
    pub heads: usize,
    /// K; divides H
    pub kv_heads: usize,
    /// D
    pub width: usize,
    /// Dv
    pub value_width: usize,
    /// (1, rows of all sequences, H, D)
    pub queries: Rows<'a>,
    /// Factor of q·k; 1/√D unless there is a reason.
    pub scale: f32,
}

impl Decoding<'_> {
    /// Writes the rows of `sequences` to out (rows, H·Dv). What a sequence gets depends on nothing
    /// but its own queries and cache.
    pub fn forward<P: Pages, M: Scores>(&self, sequences: &[Sequence<'_, P, M>], out: &mut [f32]) {
        let &Self { heads, kv_heads, width, value_width, queries, scale } = self;
        assert!(
            kv_heads > 0 && heads % kv_heads == 0,
            "{heads} query heads cannot share {kv_heads} key/value heads evenly"
        );
        let mut end = 0;
        for sequence in sequences {
            assert!(
                sequence.rows.start >= end && !sequence.rows.is_empty(),
                "{:?} are not the rows of a sequence after {end} others",
                sequence.rows
            );
            end = sequence.rows.end;
        }
        let common = Common { heads, kv_heads, width, value_width, queries, scale, dropout: None };
        let askings = sequences.iter().map(|sequence| Asking {
            batch: 0,
            rows: sequence.rows.clone(),
            out: sequence.rows.start,
            keys: sequence.keys,
            tiles: Paged { pages: sequence.pages, width, value_width },
            scores: sequence.scores,
        });
        let askings: Vec<_> = askings.collect();
        ask(&common, &askings, out, None);
    }
}

struct Paged<'a, P> {
    pages: &'a P,
    width: usize,
    value_width: usize,
}

impl<P: Pages> Tiles for Paged<'_, P> {
    fn keys<'m>(
        &'m self,
        head: usize,
        keys: Range<usize>,
        memory: &'m mut [f32],
    ) -> (&'m [f32], usize) {
        let [page, _] = self.pages.page(keys.start / PAGE);
        page.rows(head, keys.len(), self.width, self.width, memory)
    }

    fn values<'m>(
        &'m self,
        head: usize,
        keys: Range<usize>,
        memory: &'m mut [f32],
    ) -> (&'m [f32], usize) {
        let [_, page] = self.pages.page(keys.start / PAGE);
        page.rows(head, keys.len(), self.value_width, padded(self.value_width), memory)
    }
}

/// The first `rows` of a cache as f32 in one piece: keys (K, rows, D) and values (K, rows, Dv).
pub fn gather(
    pages: &impl Pages,
    kv_heads: usize,
    rows: usize,
    widths: [usize; 2],
    [keys, values]: [&mut [f32]; 2],
) {
    for (part, out) in [keys, values].into_iter().enumerate() {
        let width = widths[part];
        assert_eq!(out.len(), kv_heads * rows * width, "room for (K, rows, width)");
        for index in 0..rows.div_ceil(PAGE) {
            let (page, first) = (pages.page(index)[part], index * PAGE);
            let count = PAGE.min(rows - first);
            for head in 0..kv_heads {
                let out = &mut out[(head * rows + first) * width..][..count * width];
                if let Kept::F32(data) = page {
                    out.copy_from_slice(&data[head * PAGE * width..][..count * width]);
                } else {
                    page.rows(head, count, width, width, out);
                }
            }
        }
    }
}

dispatch! {
    /// Widens rows of `width` numbers to rows of `stride` floats, zeros behind each.
    fn widen_f16(numbers: &[u16], width: usize, stride: usize, out: &mut [f32]) => widen_f16_on

    /// The same of 8-bit numbers, times a scale for each row.
    fn widen_i8(
        numbers: &[i8],
        scales: &[f32],
        width: usize,
        stride: usize,
        out: &mut [f32],
    ) => widen_i8_on
}

#[inline(always)]
fn widen_f16_on<S: Simd>(s: S, numbers: &[u16], width: usize, stride: usize, out: &mut [f32]) {
    if width == stride {
        return from_f16_on(s, numbers, out);
    }
    let rows = numbers.chunks_exact(width.max(1));
    for (numbers, out) in rows.zip(out.chunks_exact_mut(stride.max(1))) {
        from_f16_on(s, numbers, &mut out[..width]);
        out[width..].fill(0.0);
    }
}

/// A plain loop, which the compiler vectorises for each instruction set.
#[inline(always)]
fn widen_i8_on<S: Simd>(
    _: S,
    numbers: &[i8],
    scales: &[f32],
    width: usize,
    stride: usize,
    out: &mut [f32],
) {
    let rows = numbers.chunks_exact(width.max(1)).zip(scales);
    for ((numbers, scale), out) in rows.zip(out.chunks_exact_mut(stride.max(1))) {
        for (out, number) in out.iter_mut().zip(numbers) {
            *out = f32::from(*number) * scale;
        }
        out[width..].fill(0.0);
    }
}
