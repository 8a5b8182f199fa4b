//! Prefix language models: the prefix is seen by all, what follows is causal
//! (Raffel et al. 2020, figure 3).

use super::{Causal, Position, Scores, Visibility, hide_from};
use std::ops::Range;

/// In sequence b, query i sees keys j < `lengths[b]` and keys j ≤ i + S − T.
#[derive(Clone, Debug)]
pub struct Prefix {
    lengths: Vec<usize>,
    causal: Causal,
}

impl Prefix {
    /// One prefix length per sequence of the batch, for T queries that are the last of S keys.
    pub fn new(lengths: Vec<usize>, queries: usize, keys: usize) -> Self {
        Self { lengths, causal: Causal::new(queries, keys) }
    }
}

impl Scores for Prefix {
    #[inline(always)]
    fn tile(&self, b: usize, h: usize, queries: Range<usize>, keys: Range<usize>) -> Visibility {
        if keys.end <= self.lengths[b] {
            Visibility::Full
        } else if keys.start < self.lengths[b] {
            // Not empty, thanks to the prefix; full if the causal part is.
            match self.causal.tile(b, h, queries, keys) {
                Visibility::Full => Visibility::Full,
                _ => Visibility::Partial,
            }
        } else {
            self.causal.tile(b, h, queries, keys)
        }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        hide_from(self.causal.seen(at.query).max(self.lengths[at.batch]), keys, scores);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_sharp_mask;
    use super::*;

    #[test]
    fn the_prefix_is_seen_and_the_rest_is_causal() {
        let lengths = [0, 3, 64, 90, 500];
        for (queries, keys) in [(130, 130), (7, 100)] {
            let rule = Prefix::new(lengths.to_vec(), queries, keys);
            assert_sharp_mask(&rule, [lengths.len(), 1, queries, keys], |b, _, i, j| {
                j < lengths[b] || j + queries <= i + keys
            });
        }
    }
}
