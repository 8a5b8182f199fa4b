//! A few keys per query, chosen one by one: top-k attention.

use super::{Position, Scores, Visibility};
use std::ops::Range;
use std::sync::Arc;

/// In sequence b and head h, query i sees the keys that are listed for it. Which these are is fixed
/// when the rule is made, so that forward and backward, which round differently, agree on them.
#[derive(Clone, Debug)]
pub struct Chosen {
    heads: usize,
    queries: usize,
    /// Keys per query.
    most: usize,
    /// (B, H, T, most): rising, and what is not used is [`Chosen::UNUSED`].
    keys: Arc<[u32]>,
}

impl Chosen {
    /// Fills what a query with fewer keys does not use.
    pub const UNUSED: u32 = u32::MAX;

    /// Keys (B, H, T, most), rising for each query.
    pub fn new([heads, queries, most]: [usize; 3], keys: Vec<u32>) -> Self {
        let rows = heads * queries * most;
        assert!(rows > 0 && keys.len().is_multiple_of(rows), "{} keys of rows", keys.len());
        debug_assert!(keys.chunks_exact(most).all(<[u32]>::is_sorted), "keys rise");
        Self { heads, queries, most, keys: keys.into() }
    }

    /// The keys that a query sees, from the first of `keys` on.
    #[inline(always)]
    fn from(&self, at: Position, start: usize) -> &[u32] {
        let row = (at.batch * self.heads + at.head) * self.queries + at.query;
        let seen = &self.keys[row * self.most..(row + 1) * self.most];
        &seen[seen.partition_point(|key| (*key as usize) < start)..]
    }
}

impl Scores for Chosen {
    #[inline(always)]
    fn tile(
        &self,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        keys: Range<usize>,
    ) -> Visibility {
        let seen = |query: usize| {
            let first = self.from(Position { batch, head, query }, keys.start).first();
            first.is_some_and(|key| (*key as usize) < keys.end)
        };
        if queries.into_iter().any(seen) { Visibility::Partial } else { Visibility::Empty }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        let mut hidden = 0;
        for key in self.from(at, keys.start) {
            let place = (*key as usize).min(keys.end) - keys.start;
            scores[hidden..place].fill(f32::NEG_INFINITY);
            hidden = (place + 1).min(scores.len());
            if place == scores.len() {
                return;
            }
        }
        scores[hidden..].fill(f32::NEG_INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_mask;
    use super::*;

    #[test]
    fn what_is_listed_is_seen() {
        let [batches, heads, queries, keys] = [2, 3, 40, 150];
        let seen = |b: usize, h: usize, i: usize, j: usize| {
            (7 * b + 5 * h + 3 * i + j * j).is_multiple_of(31) && i != 11
        };
        let row = |n: usize| {
            let (b, h, i) = (n / queries / heads, n / queries % heads, n % queries);
            let mut own: Vec<u32> =
                (0..keys).filter(|j| seen(b, h, i, *j)).map(|j| j as u32).collect();
            assert!(own.len() <= 20);
            own.resize(20, Chosen::UNUSED);
            own
        };
        let listed: Vec<u32> = (0..batches * heads * queries).flat_map(row).collect();
        let rule = Chosen::new([heads, queries, 20], listed);
        assert_mask(&rule, [batches, heads, queries, keys], seen);
    }
}
