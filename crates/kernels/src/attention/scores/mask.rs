//! Any boolean mask.

use super::{Position, Scores, Table, Visibility};
use std::ops::Range;

/// Query i sees key j where the mask is true. The mask is (B or 1, H or 1, T, S).
#[derive(Clone, Debug)]
pub struct Mask<D> {
    table: Table,
    visible: D,
}

impl<D: AsRef<[bool]>> Mask<D> {
    /// `shape` is that of the mask; a leading 1 stands for every batch or head.
    pub fn new(visible: D, shape: [usize; 4]) -> Self {
        Self { table: Table::new(shape, visible.as_ref().len()), visible }
    }

    #[inline(always)]
    fn row(&self, at: Position, keys: Range<usize>) -> &[bool] {
        &self.visible.as_ref()[self.table.row(at, keys)]
    }
}

impl<D: AsRef<[bool]> + Sync> Scores for Mask<D> {
    #[inline(always)]
    fn tile(
        &self,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        keys: Range<usize>,
    ) -> Visibility {
        let (mut all, mut any) = (true, false);
        for query in queries {
            let row = self.row(Position { batch, head, query }, keys.clone());
            let seen = row.iter().filter(|&&seen| seen).count();
            all &= seen == row.len();
            any |= seen > 0;
        }
        match (all, any) {
            (true, _) => Visibility::Full,
            (_, false) => Visibility::Empty,
            _ => Visibility::Partial,
        }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        for (score, &seen) in scores.iter_mut().zip(self.row(at, keys)) {
            *score = if seen { *score } else { f32::NEG_INFINITY };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_mask;
    use super::*;

    #[test]
    fn true_is_seen() {
        let (t, s) = (70, 130);
        for (batches, heads) in [(1, 1), (2, 1), (1, 3), (2, 3)] {
            let seen = |b: usize, h: usize, i: usize, j: usize| {
                let (b, h) = (b % batches, h % heads);
                j >= 64 || (i * 31 + j * 17 + b * 5 + h * 3) % 7 < 3
            };
            let mask: Vec<bool> = (0..batches * heads * t * s)
                .map(|n| seen(n / (heads * t * s), n / (t * s) % heads, n / s % t, n % s))
                .collect();
            assert_mask(&Mask::new(mask, [batches, heads, t, s]), [2, 3, t, s], seen);
        }
    }

    #[test]
    #[should_panic(expected = "(1, 1, 2, 3) has 6 elements, but 5 are given")]
    fn the_length_must_fit() {
        let _ = Mask::new([true; 5], [1, 1, 2, 3]);
    }
}
