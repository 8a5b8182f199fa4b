//! Keys and values of one sequence in one layer: what attention has seen, so that a new token costs
//! O(t) and not O(t²).
//!
//! They lie in pages of [`PAGE`] tokens, in f32, f16 or int8, and grow page by page with the text.
//! A copy shares its pages with the original; whoever writes first into a shared page, which can
//! only be the last one, copies that page. 8-bit numbers have one scale per token and head:
//! `x ≈ q · scale` with `scale = max|x| / 127`, so an error of at most half a step, max|x| / 254.

use hearken_kernels::attention::pages::{Kept, PAGE, Pages};
use hearken_kernels::{convert, dry};
use hearken_tensor::Tensor;
use std::sync::Arc;

/// How numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheKind {
    /// Four bytes, exact.
    #[default]
    F32,
    /// Two bytes, 11 bits of precision.
    F16,
    /// One byte, and a scale per position and head.
    Int8,
}

/// Keys and values of a sequence in one layer.
#[derive(Clone, Debug)]
pub struct KeyValues {
    kind: CacheKind,
    /// K
    heads: usize,
    /// D of keys and of values.
    widths: [usize; 2],
    pages: Vec<Arc<Page>>,
}

/// Keys and values of [`PAGE`] tokens.
#[derive(Clone, Debug)]
struct Page([Store; 2]);

/// (K, PAGE, D) numbers: each head's rows lie next to each other.
#[derive(Clone, Debug)]
enum Store {
    F32(Tensor),
    F16(Vec<u16>),
    Int8 {
        numbers: Vec<i8>,
        scales: Vec<f32>,
    },
    /// What a dry pass would keep: how many bytes.
    Dry {
        bytes: usize,
    },
}

impl Store {
    fn new(kind: CacheKind, heads: usize, width: usize) -> Self {
        let len = heads * PAGE * width;
        match kind {
            CacheKind::F16 if dry::is_on() => Self::Dry { bytes: 2 * len },
            CacheKind::Int8 if dry::is_on() => Self::Dry { bytes: len + 4 * heads * PAGE },
            CacheKind::F32 => Self::F32(Tensor::zeros([heads, PAGE, width])),
            CacheKind::F16 => Self::F16(vec![0; len]),
            CacheKind::Int8 => {
                Self::Int8 { numbers: vec![0; len], scales: vec![0.0; heads * PAGE] }
            }
        }
    }

    /// Writes head `head` of token `row` of the page.
    fn write(&mut self, head: usize, row: usize, x: &[f32]) {
        let place = head * PAGE + row;
        let at = place * x.len()..(place + 1) * x.len();
        match self {
            Self::Dry { .. } => {}
            Self::F32(kept) => kept.data_mut()[at].copy_from_slice(x),
            Self::F16(kept) => convert::f32_to_f16(x, &mut kept[at]),
            Self::Int8 { numbers, scales } => {
                let largest = x.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
                scales[place] = largest / 127.0;
                let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
                for (q, x) in numbers[at].iter_mut().zip(x) {
                    *q = (x * inverse).round_ties_even() as i8;
                }
            }
        }
    }

    fn kept(&self) -> Kept<'_> {
        match self {
            Self::F32(kept) => Kept::F32(kept.data()),
            Self::Dry { .. } => Kept::F32(&[]),
            Self::F16(kept) => Kept::F16(kept),
            Self::Int8 { numbers, scales } => Kept::Int8(numbers, scales),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::F32(x) => 4 * x.data().len(),
            Self::Dry { bytes } => *bytes,
            Self::F16(x) => 2 * x.len(),
            Self::Int8 { numbers, scales } => numbers.len() + 4 * scales.len(),
        }
    }
}

impl KeyValues {
    /// Nothing yet, of `heads` keys and values that are `widths` wide.
    pub fn new(kind: CacheKind, heads: usize, widths: [usize; 2]) -> Self {
        Self { kind, heads, widths, pages: Vec::new() }
    }

    /// K
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// D of keys and of values.
    pub fn widths(&self) -> [usize; 2] {
        self.widths
    }

    /// Bytes that the kept numbers take, shared ones included.
    pub fn bytes(&self) -> usize {
        self.pages.iter().flat_map(|page| &page.0).map(Store::bytes).sum()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.pages.clear();
    }

    /// Writes tokens `start..start + tokens`. `keys` and `values` are rows of a projection, packed or
    /// their own: token i starts at `i · stride`, K·D numbers each (values: K times their own width).
    pub fn put(
        &mut self,
        start: usize,
        tokens: usize,
        keys: &[f32],
        values: &[f32],
        strides: [usize; 2],
    ) {
        let (kind, heads, widths) = (self.kind, self.heads, self.widths);
        let end = start + tokens;
        while self.pages.len() * PAGE < end {
            let stores = widths.map(|width| Store::new(kind, heads, width));
            self.pages.push(Arc::new(Page(stores)));
        }
        if dry::is_on() {
            return; // the pages are counted; there is nothing to put there
        }
        for (index, page) in self.pages.iter_mut().enumerate().skip(start / PAGE) {
            let here = (index * PAGE).max(start)..((index + 1) * PAGE).min(end);
            if here.is_empty() {
                break;
            }
            let page = Arc::make_mut(page);
            let parts = page.0.iter_mut().zip([keys, values]).zip(widths.into_iter().zip(strides));
            for ((store, new), (width, stride)) in parts {
                for token in here.clone() {
                    let row = &new[(token - start) * stride..][..heads * width];
                    for (head, x) in row.chunks_exact(width.max(1)).enumerate() {
                        store.write(head, token - index * PAGE, x);
                    }
                }
            }
        }
    }
}

impl Pages for KeyValues {
    fn page(&self, index: usize) -> [Kept<'_>; 2] {
        let Page([keys, values]) = &*self.pages[index];
        [keys.kept(), values.kept()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_kernels::attention::pages::gather;
    use hearken_tensor::rng::Rng;

    const KINDS: [CacheKind; 3] = [CacheKind::F32, CacheKind::F16, CacheKind::Int8];
    const HEADS: usize = 3;
    const WIDTHS: [usize; 2] = [4, 5];
    const ROW: usize = HEADS * (WIDTHS[0] + WIDTHS[1]);

    fn packed(tokens: usize, seed: u64) -> Vec<f32> {
        Rng::new(seed).normal([tokens * ROW], 1.0).data().to_vec()
    }

    /// Puts `tokens` rows of keys, then values.
    fn put(kept: &mut KeyValues, start: usize, packed: &[f32]) {
        let values = &packed[HEADS * WIDTHS[0]..];
        kept.put(start, packed.len() / ROW, packed, values, [ROW; 2]);
    }

    fn read(kept: &KeyValues, rows: usize) -> [Vec<f32>; 2] {
        let mut out = WIDTHS.map(|width| vec![0.0; HEADS * rows * width]);
        let [keys, values] = &mut out;
        gather(kept, HEADS, rows, WIDTHS, [keys, values]);
        out
    }

    #[test]
    fn what_was_put_comes_back_within_the_precision_of_the_kind() {
        for (kind, bound) in [
            (CacheKind::F32, 0.0),
            (CacheKind::F16, 4.0 * 2.0_f32.powi(-11)), // numbers below 4, 11 bits
            (CacheKind::Int8, 4.0 / 254.0),            // half a step of a head's largest
        ] {
            let rows = 2 * PAGE + 7;
            let packed = packed(rows, 1);
            let mut kept = KeyValues::new(kind, HEADS, WIDTHS);
            // A beginning, one more, up to the end of a page, and the rest.
            for part in [0..30, 30..31, 31..PAGE, PAGE..rows] {
                put(&mut kept, part.start, &packed[part.start * ROW..part.end * ROW]);
            }
            let read = read(&kept, rows);
            let offset = [0, HEADS * WIDTHS[0]];
            for (part, width) in WIDTHS.into_iter().enumerate() {
                for (i, got) in read[part].iter().enumerate() {
                    let (head, row, column) = (i / width / rows, i / width % rows, i % width);
                    let want = packed[row * ROW + offset[part] + head * width + column];
                    assert!((got - want).abs() <= bound, "{kind:?}: {got} for {want}");
                }
            }
        }
    }

    #[test]
    fn copies_share_pages_until_one_of_them_is_written() {
        for kind in KINDS {
            let (first, second, third) = (packed(PAGE + 3, 1), packed(2, 2), packed(2, 3));
            let mut one = KeyValues::new(kind, HEADS, WIDTHS);
            put(&mut one, 0, &first);
            let mut two = one.clone();
            let common = read(&one, PAGE + 3);
            put(&mut one, PAGE + 3, &second);
            put(&mut two, PAGE + 3, &third);
            assert!(Arc::ptr_eq(&one.pages[0], &two.pages[0]), "a full page is copied");
            assert!(!Arc::ptr_eq(&one.pages[1], &two.pages[1]));
            assert_eq!(read(&one, PAGE + 3), common);
            assert_eq!(read(&two, PAGE + 3), common);
            assert_ne!(read(&one, PAGE + 5), read(&two, PAGE + 5));
        }
    }

    #[test]
    fn a_cache_grows_with_the_text() {
        for (kind, page) in KINDS.into_iter().zip([4, 2, 1].map(|bytes| bytes * PAGE * ROW)) {
            let scales = if kind == CacheKind::Int8 { 2 * 4 * HEADS * PAGE } else { 0 };
            let mut kept = KeyValues::new(kind, HEADS, WIDTHS);
            assert_eq!(kept.bytes(), 0);
            put(&mut kept, 0, &packed(1, 1));
            assert_eq!(kept.bytes(), page + scales);
            put(&mut kept, 1, &packed(PAGE, 1));
            assert_eq!(kept.bytes(), 2 * (page + scales));
            kept.clear();
            assert_eq!(kept.bytes(), 0);
        }
    }
}
