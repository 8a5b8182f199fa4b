//! Two rules at once.

use super::{Position, Scores, Visibility};
use std::ops::Range;

/// Both rules: seen is what both show, and what both add is added. Learned numbers of the first
/// come first.
#[derive(Clone, Copy, Debug)]
pub struct And<A, B>(pub A, pub B);

impl<A: Scores, B: Scores> Scores for And<A, B> {
    #[inline(always)]
    fn tile(&self, b: usize, h: usize, queries: Range<usize>, keys: Range<usize>) -> Visibility {
        let first = self.0.tile(b, h, queries.clone(), keys.clone());
        if first == Visibility::Empty {
            return Visibility::Empty;
        }
        match self.1.tile(b, h, queries, keys) {
            Visibility::Empty => Visibility::Empty,
            Visibility::Full => first,
            Visibility::Partial => Visibility::Partial,
        }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        self.0.apply(at, keys.clone(), scores);
        self.1.apply(at, keys, scores);
    }

    fn apply_tile(
        &self,
        b: usize,
        h: usize,
        queries: Range<usize>,
        keys: Range<usize>,
        stride: usize,
        scores: &mut [f32],
    ) {
        self.0.apply_tile(b, h, queries.clone(), keys.clone(), stride, scores);
        self.1.apply_tile(b, h, queries, keys, stride, scores);
    }

    fn gradient_len(&self) -> usize {
        self.0.gradient_len() + self.1.gradient_len()
    }

    fn partial_len(&self) -> usize {
        self.0.partial_len() + self.1.partial_len()
    }

    #[inline(always)]
    fn backward(&self, at: Position, keys: Range<usize>, dscores: &[f32], partial: &mut [f32]) {
        let (first, second) = partial.split_at_mut(self.0.partial_len());
        self.0.backward(at, keys.clone(), dscores, first);
        self.1.backward(at, keys, dscores, second);
    }

    fn backward_tile(
        &self,
        b: usize,
        h: usize,
        queries: Range<usize>,
        keys: Range<usize>,
        stride: usize,
        dscores: &[f32],
        partial: &mut [f32],
    ) {
        let (first, second) = partial.split_at_mut(self.0.partial_len());
        if !first.is_empty() {
            self.0.backward_tile(b, h, queries.clone(), keys.clone(), stride, dscores, first);
        }
        if !second.is_empty() {
            self.1.backward_tile(b, h, queries, keys, stride, dscores, second);
        }
    }

    fn collect(&self, b: usize, h: usize, partial: &[f32], gradient: &mut [f32]) {
        let (first, second) = partial.split_at(self.0.partial_len());
        let (first_gradient, second_gradient) = gradient.split_at_mut(self.0.gradient_len());
        self.0.collect(b, h, first, first_gradient);
        self.1.collect(b, h, second, second_gradient);
    }
}

/// Either mask: seen is what one of them shows.
///
/// For rules that only hide; were something added, it would be unclear whose.
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A: Scores, B: Scores> Or<A, B> {
    /// Panics if a rule has learned numbers, since then it is not a mask.
    pub fn new(first: A, second: B) -> Self {
        let learned = first.gradient_len() + second.gradient_len();
        assert!(learned == 0, "Or joins masks, but a rule has {learned} learned numbers");
        Self { first, second }
    }
}

impl<A: Scores, B: Scores> Scores for Or<A, B> {
    #[inline(always)]
    fn tile(&self, b: usize, h: usize, queries: Range<usize>, keys: Range<usize>) -> Visibility {
        let first = self.first.tile(b, h, queries.clone(), keys.clone());
        if first == Visibility::Full {
            return Visibility::Full;
        }
        match self.second.tile(b, h, queries, keys) {
            Visibility::Full => Visibility::Full,
            Visibility::Empty => first,
            Visibility::Partial => Visibility::Partial,
        }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        // A second copy of some scores, on the stack.
        let mut copy = [0.0; 64];
        for (chunk, scores) in scores.chunks_mut(copy.len()).enumerate() {
            let start = keys.start + chunk * copy.len();
            let keys = start..start + scores.len();
            let copy = &mut copy[..scores.len()];
            copy.copy_from_slice(scores);
            self.first.apply(at, keys.clone(), scores);
            self.second.apply(at, keys, copy);
            for (score, &other) in scores.iter_mut().zip(&*copy) {
                if *score == f32::NEG_INFINITY {
                    *score = other;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_mask;
    use super::super::{Causal, Padding, Window};
    use super::*;

    #[test]
    fn and_hides_what_either_hides() {
        let lengths = [70, 130];
        let rule = And(Causal::new(130, 130), Padding::new(lengths.to_vec()));
        assert_mask(&rule, [2, 1, 130, 130], |b, _, i, j| j <= i && j < lengths[b]);
    }

    #[test]
    fn or_shows_what_either_shows() {
        let lengths = [70, 0];
        let rule = Or::new(Window::symmetric(5, 130, 130), Padding::new(lengths.to_vec()));
        assert_mask(&rule, [2, 1, 130, 130], |b, _, i, j| i.abs_diff(j) < 5 || j < lengths[b]);
    }
}
