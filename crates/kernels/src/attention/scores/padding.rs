//! Sequences of different lengths in one batch: nobody sees beyond the end.

use super::{Position, Scores, Visibility, hide_from};
use std::ops::Range;

/// In sequence b, only the first `lengths[b]` keys are seen.
#[derive(Clone, Debug)]
pub struct Padding {
    lengths: Vec<usize>,
}

impl Padding {
    /// One length per sequence of the batch.
    pub fn new(lengths: Vec<usize>) -> Self {
        Self { lengths }
    }
}

impl Scores for Padding {
    #[inline(always)]
    fn tile(&self, b: usize, _: usize, _: Range<usize>, keys: Range<usize>) -> Visibility {
        if keys.end <= self.lengths[b] {
            Visibility::Full
        } else if keys.start >= self.lengths[b] {
            Visibility::Empty
        } else {
            Visibility::Partial
        }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        hide_from(self.lengths[at.batch], keys, scores);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_sharp_mask;
    use super::*;

    #[test]
    fn keys_beyond_the_length_are_hidden() {
        let lengths = [0, 1, 64, 70, 200];
        let rule = Padding::new(lengths.to_vec());
        assert_sharp_mask(&rule, [lengths.len(), 1, 3, 130], |b, _, _, j| j < lengths[b]);
    }
}
