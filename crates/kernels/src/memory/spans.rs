//! Which parts of a space of addresses are free: the books of a memory allocator, without the
//! memory.
//!
//! The space is made of chunks. A request is cut from the smallest free span that fits (of two as
//! small, the lower): from one that was in use before, if there is one, else from a fresh one. A
//! span that comes back grows together with its free neighbours. So what one tensor leaves serves
//! another of any other size. A training step asks for the same sizes in the same order as the one
//! before it; once a step has touched nothing new, the next gets the same addresses, as long as one
//! thread asks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bytes of a chunk, unless one request is larger. Pages that nothing was ever put on cost nothing.
const CHUNK: usize = 128 << 20;
/// Requests are rounded up to this, a cache line.
const UNIT: usize = 64;
/// Left free behind each request, so that tensors of one size do not all start at the same place
/// in a page: a load is held up by a store to the same place in another page.
const GAP: usize = 192;

/// Free and used parts of some chunks of addresses.
#[derive(Debug, Default)]
pub struct Spans {
    /// start → (end, how far it was ever used)
    chunks: BTreeMap<usize, (usize, usize)>,
    /// start → length
    free: BTreeMap<usize, usize>,
    /// (length, start)
    by_length: BTreeSet<(usize, usize)>,
    touched: usize,
    in_use: usize,
}

impl Spans {
    /// No chunks.
    pub const fn new() -> Self {
        Self {
            chunks: BTreeMap::new(),
            free: BTreeMap::new(),
            by_length: BTreeSet::new(),
            touched: 0,
            in_use: 0,
        }
    }

    /// What a request of so many bytes takes.
    fn span(bytes: usize) -> usize {
        (bytes + GAP).next_multiple_of(UNIT)
    }

    /// How large a chunk should be that is added for a request of `bytes`, in multiples of `page`.
    pub fn chunk_for(bytes: usize, page: usize) -> usize {
        Self::span(bytes).max(CHUNK).next_multiple_of(page)
    }

    /// Adds a chunk of so many bytes behind the last, on which nothing was put yet; says where.
    pub fn append_chunk(&mut self, size: usize) -> usize {
        let start = self.chunks.last_key_value().map_or(0, |(_, &(end, _))| end);
        self.add_chunk(start..start + size);
        start
    }

    fn add_chunk(&mut self, chunk: Range<usize>) {
        self.chunks.insert(chunk.start, (chunk.end, chunk.start));
        self.insert(chunk.start, chunk.len());
    }

    /// An address for `bytes`, if some chunk has one. Memory that was in use before is preferred to
    /// what would be touched for the first time.
    pub fn take(&mut self, bytes: usize) -> Option<usize> {
        let wanted = Self::span(bytes);
        let mut fitting = self.by_length.range((wanted, 0)..);
        let used_before = |&&(_, start): &&(usize, usize)| start + wanted <= self.used_until(start);
        let &(length, start) = fitting.clone().find(used_before).or_else(|| fitting.next())?;
        self.remove(start, length);
        if length > wanted {
            self.insert(start + wanted, length - wanted);
        }
        self.in_use += wanted;
        if let Some((_, (_, touched))) = self.chunks.range_mut(..=start).next_back() {
            let more = (start + wanted).saturating_sub(*touched);
            *touched += more;
            self.touched += more;
        }
        Some(start)
    }

    /// How far the chunk of this address was ever used.
    fn used_until(&self, address: usize) -> usize {
        self.chunks.range(..=address).next_back().map_or(0, |(_, &(_, touched))| touched)
    }

    /// Gives back what [`Spans::take`] gave for `bytes`.
    pub fn give(&mut self, start: usize, bytes: usize) {
        let (mut first, mut length) = (start, Self::span(bytes));
        self.in_use -= length;
        // Neighbours grow together inside a chunk, not across two that happen to touch.
        if let Some((&before, &its)) = self.free.range(..start).next_back()
            && before + its == start
            && !self.chunks.contains_key(&start)
        {
            self.remove(before, its);
            (first, length) = (before, its + length);
        }
        let end = first + length;
        if let Some(&its) = self.free.get(&end)
            && !self.chunks.contains_key(&end)
        {
            self.remove(end, its);
            length += its;
        }
        self.insert(first, length);
    }

    /// Removes the chunks in which nothing is in use, and says where they were.
    pub fn remove_free_chunks(&mut self) -> Vec<Range<usize>> {
        let whole = |(&start, &(end, _)): (&usize, &(usize, usize))| {
            (self.free.get(&start) == Some(&(end - start))).then_some(start..end)
        };
        let gone: Vec<_> = self.chunks.iter().filter_map(whole).collect();
        for chunk in &gone {
            self.remove(chunk.start, chunk.len());
            if let Some((_, touched)) = self.chunks.remove(&chunk.start) {
                self.touched -= touched - chunk.start;
            }
        }
        gone
    }

    /// Bytes that are in use or were once: the memory that stands behind them.
    pub fn touched(&self) -> usize {
        self.touched
    }

    /// Of these, those that are free.
    pub fn kept(&self) -> usize {
        self.touched - self.in_use
    }

    fn insert(&mut self, start: usize, length: usize) {
        self.free.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn remove(&mut self, start: usize, length: usize) {
        self.free.remove(&start);
        self.by_length.remove(&(length, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_chunks(chunks: &[Range<usize>]) -> Spans {
        let mut spans = Spans::new();
        for chunk in chunks {
            spans.add_chunk(chunk.clone());
        }
        spans
    }

    #[test]
    fn what_is_in_use_never_overlaps_and_all_comes_back() {
        let mut spans = with_chunks(&[0..100_000, 100_000..150_000, 300_000..400_000]);
        let mut live: Vec<(usize, usize)> = Vec::new();
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (random >> 33) as usize;
            if number.is_multiple_of(2) || live.is_empty() {
                let bytes = number % 9_000;
                if let Some(start) = spans.take(bytes) {
                    let chunk = [0..100_000, 100_000..150_000, 300_000..400_000]
                        .into_iter()
                        .find(|chunk| chunk.contains(&start))
                        .unwrap();
                    assert!(start % UNIT == chunk.start % UNIT && start + bytes <= chunk.end);
                    let apart = |&(s, b): &(usize, usize)| s + b <= start || start + bytes <= s;
                    assert!(live.iter().all(apart));
                    live.push((start, bytes));
                }
            } else {
                let (start, bytes) = live.swap_remove(number % live.len());
                spans.give(start, bytes);
            }
        }
        for (start, bytes) in live {
            spans.give(start, bytes);
        }
        assert_eq!(spans.kept(), spans.touched());
        assert_eq!(spans.remove_free_chunks().len(), 3);
        assert_eq!((spans.touched(), spans.take(1)), (0, None));
    }

    #[test]
    fn the_smallest_span_that_fits_is_taken() {
        let mut spans = with_chunks(std::slice::from_ref(&(0..100_000)));
        let places: Vec<usize> =
            [5_000, 100, 2_000, 100, 3_000, 100].map(|n| spans.take(n).unwrap()).to_vec();
        spans.give(places[0], 5_000);
        spans.give(places[2], 2_000);
        spans.give(places[4], 3_000);
        assert_eq!(spans.take(1_900), Some(places[2]));
        assert_eq!(spans.take(2_900), Some(places[4]));
        let touched = spans.touched();
        assert_eq!(spans.take(4_900), Some(places[0]));
        assert_eq!(spans.touched(), touched, "what was used before is used first");
    }

    #[test]
    fn memory_from_before_comes_first_although_a_fresh_span_fits_better() {
        let mut spans = with_chunks(&[0..50_000, 100_000..120_000]);
        let large = spans.take(40_000).unwrap(); // only the first chunk has as much
        spans.give(large, 40_000);
        let touched = spans.touched();
        assert_eq!(spans.take(15_000), Some(large)); // the whole second chunk is smaller
        assert_eq!(spans.touched(), touched);
        assert_eq!(spans.take(30_000), Some(large + Spans::span(15_000))); // beyond its end
        assert!(spans.touched() > touched);
    }

    #[test]
    fn chunks_that_touch_stay_apart() {
        let mut spans = with_chunks(&[0..1_024, 1_024..2_048]);
        assert_eq!(spans.take(1_500), None);
        let (a, b) = (spans.take(800).unwrap(), spans.take(800).unwrap());
        spans.give(a, 800);
        spans.give(b, 800);
        assert_eq!(spans.take(1_500), None);
        assert_eq!(spans.remove_free_chunks(), [0..1_024, 1_024..2_048]);
    }
}
