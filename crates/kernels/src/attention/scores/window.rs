//! Sliding windows: a query sees only what is near (Beltagy et al. 2020, "Longformer").

use super::{Position, Scores, Visibility, hide_outside, offset};
use std::ops::Range;

/// Query i, at place p = i + S − T, sees the keys p − before ≤ j ≤ p + after.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    before: usize,
    after: usize,
    offset: isize,
}

impl Window {
    /// The last `width` keys, the query's own among them.
    pub fn causal(width: usize, queries: usize, keys: usize) -> Self {
        assert!(width > 0, "a window of 0 keys sees nothing");
        Self { before: width - 1, after: 0, offset: offset(queries, keys) }
    }

    /// The keys less than `width` away on either side.
    pub fn symmetric(width: usize, queries: usize, keys: usize) -> Self {
        assert!(width > 0, "a window of 0 keys sees nothing");
        Self { before: width - 1, after: width - 1, offset: offset(queries, keys) }
    }

    /// The keys that query `i` sees, were there no end to them.
    #[inline(always)]
    fn seen(&self, query: usize) -> Range<usize> {
        let place = query as isize + self.offset;
        let start = (place - self.before as isize).max(0);
        let end = (place + 1 + self.after as isize).max(0);
        start as usize..end as usize
    }
}

impl Scores for Window {
    #[inline(always)]
    fn tile(&self, _: usize, _: usize, queries: Range<usize>, keys: Range<usize>) -> Visibility {
        let (first, last) = (self.seen(queries.start), self.seen(queries.end - 1));
        if first.end >= keys.end && last.start <= keys.start {
            Visibility::Full
        } else if last.end <= keys.start || first.start >= keys.end {
            Visibility::Empty
        } else {
            Visibility::Partial
        }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        hide_outside(self.seen(at.query), keys, scores);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_sharp_mask;
    use super::*;

    #[test]
    fn only_near_keys_are_seen() {
        for (queries, keys) in [(200, 200), (3, 150), (150, 70)] {
            for width in [1, 2, 64, 65, 300] {
                let shape = [1, 1, queries, keys];
                let distance = |i: usize, j: usize| {
                    (i as isize + keys as isize - queries as isize) - j as isize
                };
                assert_sharp_mask(&Window::causal(width, queries, keys), shape, |_, _, i, j| {
                    (0..width as isize).contains(&distance(i, j))
                });
                assert_sharp_mask(&Window::symmetric(width, queries, keys), shape, |_, _, i, j| {
                    distance(i, j).unsigned_abs() < width
                });
            }
        }
    }
}
