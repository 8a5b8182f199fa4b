//! A query sees the keys up to its own place.

use super::{Position, Scores, Visibility};
use std::ops::Range;

/// Query i sees keys j ≤ i + `offset`.
///
/// With as many keys as queries the offset is 0. When the last T of S tokens are queried against
/// a cache of all S, query i is token i + S − T, and that is the offset.
#[derive(Clone, Copy, Debug)]
pub struct Causal {
    offset: isize,
}

impl Causal {
    /// For T queries that are the last of S keys (the first T, where T > S).
    pub fn new(queries: usize, keys: usize) -> Self {
        Self { offset: keys as isize - queries as isize }
    }

    /// How many keys query `i` sees, of those below `end`.
    #[inline(always)]
    fn seen(&self, query: usize, end: usize) -> usize {
        (query as isize + 1 + self.offset).clamp(0, end as isize) as usize
    }
}

impl Scores for Causal {
    #[inline(always)]
    fn tile(&self, _: usize, _: usize, queries: Range<usize>, keys: Range<usize>) -> Visibility {
        if self.seen(queries.start, keys.end) >= keys.end {
            Visibility::Full
        } else if self.seen(queries.end - 1, keys.end) <= keys.start {
            Visibility::Empty
        } else {
            Visibility::Partial
        }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        let seen = self.seen(at.query, keys.end).max(keys.start) - keys.start;
        scores[seen..].fill(f32::NEG_INFINITY);
    }
}
