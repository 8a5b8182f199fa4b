//! A query sees the keys up to its own place.

use super::{Position, Scores, Visibility, hide_from, offset};
use std::ops::Range;

/// Query i sees keys j ≤ i + S − T.
///
/// With as many keys as queries that is j ≤ i. When the last T of S tokens are queried against a
/// cache of all S, query i is token i + S − T.
#[derive(Clone, Copy, Debug)]
pub struct Causal {
    offset: isize,
}

impl Causal {
    /// For T queries that are the last of S keys.
    pub fn new(queries: usize, keys: usize) -> Self {
        Self { offset: offset(queries, keys) }
    }

    /// How many keys query `i` sees, were there no end to them.
    #[inline(always)]
    pub(super) fn seen(self, query: usize) -> usize {
        (query as isize + 1 + self.offset).max(0) as usize
    }
}

impl Scores for Causal {
    #[inline(always)]
    fn tile(&self, _: usize, _: usize, queries: Range<usize>, keys: Range<usize>) -> Visibility {
        if self.seen(queries.start) >= keys.end {
            Visibility::Full
        } else if self.seen(queries.end - 1) <= keys.start {
            Visibility::Empty
        } else {
            Visibility::Partial
        }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        hide_from(self.seen(at.query), keys, scores);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_sharp_mask;
    use super::*;

    #[test]
    fn later_keys_are_hidden() {
        for (queries, keys) in [(130, 130), (1, 70), (5, 68), (70, 66)] {
            let rule = Causal::new(queries, keys);
            assert_sharp_mask(&rule, [1, 1, queries, keys], |_, _, i, j| j + queries <= i + keys);
        }
    }
}
