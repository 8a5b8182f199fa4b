//! A learned bias for each distance (after Shaw et al. 2018, with one number per head and
//! distance, as in Swin and BEiT).

use super::{Position, Scores, Visibility, offset};
use std::ops::Range;

/// s += table\[h\]\[clip(j − p) + reach\] for query i at place p = i + S − T, where clip keeps
/// distances within ±`reach`. The table is (H, 2·reach + 1) and is learned.
#[derive(Clone, Debug)]
pub struct Relative<D> {
    table: D,
    reach: usize,
    offset: isize,
}

impl<D: AsRef<[f32]>> Relative<D> {
    /// The table is (H, 2·reach + 1).
    pub fn new(table: D, reach: usize, queries: usize, keys: usize) -> Self {
        let (len, row) = (table.as_ref().len(), 2 * reach + 1);
        assert!(len % row == 0, "a table of {len} elements is not (H, {row})");
        Self { table, reach, offset: offset(queries, keys) }
    }

    fn row(&self) -> usize {
        2 * self.reach + 1
    }

    /// Place in the table of key `keys.start + n`, for n = 0, 1, …
    #[inline(always)]
    fn places(&self, at: Position, keys: &Range<usize>) -> impl Iterator<Item = usize> {
        let start = keys.start as isize - at.query as isize - self.offset;
        let reach = self.reach as isize;
        (start..start + keys.len() as isize)
            .map(move |distance| (distance.clamp(-reach, reach) + reach) as usize)
    }
}

impl<D: AsRef<[f32]> + Sync> Scores for Relative<D> {
    #[inline(always)]
    fn tile(&self, _: usize, _: usize, _: Range<usize>, _: Range<usize>) -> Visibility {
        Visibility::Partial
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        let table = &self.table.as_ref()[at.head * self.row()..(at.head + 1) * self.row()];
        for (score, place) in scores.iter_mut().zip(self.places(at, &keys)) {
            *score += table[place];
        }
    }

    fn gradient_len(&self) -> usize {
        self.table.as_ref().len()
    }

    fn partial_len(&self) -> usize {
        self.row()
    }

    #[inline(always)]
    fn backward(&self, at: Position, keys: Range<usize>, dscores: &[f32], partial: &mut [f32]) {
        for (ds, place) in dscores.iter().zip(self.places(at, &keys)) {
            partial[place] += ds;
        }
    }

    fn collect(&self, _: usize, head: usize, partial: &[f32], gradient: &mut [f32]) {
        let gradient = &mut gradient[head * self.row()..(head + 1) * self.row()];
        gradient.iter_mut().zip(partial).for_each(|(gradient, partial)| *gradient += partial);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_rule;
    use super::*;

    #[test]
    fn the_bias_of_the_distance_is_added() {
        for (queries, keys) in [(130, 130), (2, 70), (70, 3)] {
            for reach in [0, 3, 100] {
                let row = 2 * reach + 1;
                let table: Vec<f32> = (0..3 * row).map(|n| n as f32).collect();
                let rule = Relative::new(&table, reach, queries, keys);
                assert_rule(&rule, [1, 3, queries, keys], |_, h, i, j| {
                    let distance = (j + queries) as i64 - (i + keys) as i64;
                    let place = distance.clamp(-(reach as i64), reach as i64) + reach as i64;
                    table[h * row + place as usize]
                });
            }
        }
    }
}
