//! ALiBi: a penalty that grows with distance, faster in some heads than in others
//! (Press et al. 2022, "Train Short, Test Long").

use super::{Position, Scores, Visibility, offset};
use std::ops::Range;

/// s −= slope\[h\] · |p − j| for query i at place p = i + S − T. Causal models compose it with
/// [`Causal`](super::Causal).
#[derive(Clone, Debug)]
pub struct Alibi {
    slopes: Vec<f32>,
    offset: isize,
}

impl Alibi {
    /// The paper's slopes for `heads`, with T queries that are the last of S keys.
    pub fn new(heads: usize, queries: usize, keys: usize) -> Self {
        Self { slopes: Self::slopes(heads), offset: offset(queries, keys) }
    }

    /// For n heads, n a power of two: 2^(−8k/n), k = 1, …, n. For other numbers: those of the
    /// power of two n below, and then every other one of those of 2n.
    pub fn slopes(heads: usize) -> Vec<f32> {
        if heads == 0 {
            return Vec::new();
        }
        let whole = 1 << heads.ilog2();
        let slope = |k: usize, n: usize| (-8.0 * k as f64 / n as f64).exp2() as f32;
        let first = (1..=whole).map(|k| slope(k, whole));
        first.chain((0..).map(|k| slope(2 * k + 1, 2 * whole))).take(heads).collect()
    }
}

impl Scores for Alibi {
    #[inline(always)]
    fn tile(&self, _: usize, _: usize, _: Range<usize>, _: Range<usize>) -> Visibility {
        Visibility::Partial
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        let slope = self.slopes[at.head];
        let start = (at.query as isize + self.offset - keys.start as isize) as i32;
        for (j, score) in scores.iter_mut().enumerate() {
            *score -= slope * (start - j as i32).abs() as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_rule;
    use super::*;

    #[test]
    fn slopes_are_those_of_the_paper() {
        let powers = |exponents: &[f64]| -> Vec<f32> {
            exponents.iter().map(|e| (-e).exp2() as f32).collect()
        };
        assert_eq!(Alibi::slopes(8), powers(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]));
        assert_eq!(
            Alibi::slopes(12),
            powers(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.5, 1.5, 2.5, 3.5])
        );
        assert_eq!(Alibi::slopes(3), powers(&[4.0, 8.0, 2.0]));
        assert_eq!(Alibi::slopes(1), powers(&[8.0]));
    }

    #[test]
    fn the_penalty_grows_with_distance() {
        for (queries, keys) in [(130, 130), (2, 70)] {
            let rule = Alibi::new(3, queries, keys);
            let slopes = Alibi::slopes(3);
            assert_rule(&rule, [1, 3, queries, keys], |_, h, i, j| {
                -slopes[h] * (i + keys).abs_diff(j + queries) as f32
            });
        }
    }
}
