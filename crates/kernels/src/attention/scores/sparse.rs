//! Sparse patterns: every n-th key, and global tokens (Child et al. 2019, "Generating Long
//! Sequences with Sparse Transformers"; Beltagy et al. 2020). Joined with a window by
//! [`Or`](super::Or), and with [`Causal`](super::Causal) by [`And`](super::And):
//!
//! ```
//! use hearken_kernels::attention::scores::{And, Causal, Global, Or, Strided, Window};
//! let (t, s) = (1000, 1000);
//! let near_or_far = Or::new(Window::causal(32, t, s), Or::new(Strided::new(32, t, s), Global::new(4, t, s)));
//! let rule = And(Causal::new(t, s), near_or_far);
//! # let _ = rule;
//! ```

use super::{Position, Scores, Visibility, offset};
use std::ops::Range;

/// Query i, at place p = i + S − T, sees the keys j with p − j a multiple of the stride.
#[derive(Clone, Copy, Debug)]
pub struct Strided {
    stride: usize,
    offset: isize,
}

impl Strided {
    /// Every `stride`-th key, counted from the query.
    pub fn new(stride: usize, queries: usize, keys: usize) -> Self {
        assert!(stride > 0, "a stride of 0 keys leads nowhere");
        Self { stride, offset: offset(queries, keys) }
    }
}

impl Scores for Strided {
    #[inline(always)]
    fn tile(&self, _: usize, _: usize, queries: Range<usize>, keys: Range<usize>) -> Visibility {
        // All differences p − j from `low` to `high` occur in the tile.
        let low = queries.start as isize + self.offset - (keys.end as isize - 1);
        let high = queries.end as isize - 1 + self.offset - keys.start as isize;
        let stride = self.stride as isize;
        if stride == 1 {
            Visibility::Full
        } else if high.div_euclid(stride) * stride < low {
            Visibility::Empty
        } else {
            Visibility::Partial
        }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        let distance = at.query as isize + self.offset - keys.start as isize;
        let mut next = distance.rem_euclid(self.stride as isize) as usize; // next seen key
        for (j, score) in scores.iter_mut().enumerate() {
            if j == next {
                next += self.stride;
            } else {
                *score = f32::NEG_INFINITY;
            }
        }
    }
}

/// The first `count` tokens see all and are seen by all.
#[derive(Clone, Copy, Debug)]
pub struct Global {
    count: usize,
    /// How many of the queries are among the first `count` tokens.
    queries: usize,
}

impl Global {
    /// The first `count` tokens, with T queries that are the last of S keys.
    pub fn new(count: usize, queries: usize, keys: usize) -> Self {
        let among = (count as isize - offset(queries, keys)).clamp(0, queries as isize);
        Self { count, queries: among as usize }
    }
}

impl Scores for Global {
    #[inline(always)]
    fn tile(&self, _: usize, _: usize, queries: Range<usize>, keys: Range<usize>) -> Visibility {
        if queries.end <= self.queries || keys.end <= self.count {
            Visibility::Full
        } else if queries.start >= self.queries && keys.start >= self.count {
            Visibility::Empty
        } else {
            Visibility::Partial
        }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        if at.query >= self.queries {
            super::hide_from(self.count, keys, scores);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_mask, assert_sharp_mask};
    use super::super::{And, Causal, Or, Window};
    use super::*;

    #[test]
    fn every_nth_key_is_seen() {
        for (queries, keys) in [(130, 130), (3, 150), (80, 20)] {
            for stride in [1, 2, 7, 64, 100] {
                let rule = Strided::new(stride, queries, keys);
                assert_mask(&rule, [1, 1, queries, keys], |_, _, i, j| {
                    (i + keys).abs_diff(j + queries) % stride == 0
                });
            }
        }
    }

    #[test]
    fn global_tokens_see_all_and_are_seen() {
        for count in [0, 1, 64, 65, 300] {
            for (queries, keys) in [(130, 130), (3, 150), (80, 20)] {
                let rule = Global::new(count, queries, keys);
                assert_sharp_mask(&rule, [1, 1, queries, keys], |_, _, i, j| {
                    i + keys < count + queries || j < count
                });
            }
        }
    }

    #[test]
    fn patterns_join() {
        let n = 200;
        let near_or_far = Or::new(
            Window::causal(10, n, n),
            Or::new(Strided::new(30, n, n), Global::new(2, n, n)),
        );
        let rule = And(Causal::new(n, n), near_or_far);
        assert_mask(&rule, [1, 1, n, n], |_, _, i, j| {
            j <= i && (i - j < 10 || (i - j) % 30 == 0 || i < 2 || j < 2)
        });
    }
}
