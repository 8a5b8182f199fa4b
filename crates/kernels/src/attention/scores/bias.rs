//! Any additive bias, with its gradient.

use super::{Position, Scores, Table, Visibility};
use std::ops::Range;

/// s += bias. The bias is (B or 1, H or 1, T, S); −∞ hides.
///
/// Its gradient is the gradient of the scores, summed over batches and heads that share it; like
/// the bias itself it takes T·S floats, and here once more for each head at work.
#[derive(Clone, Debug)]
pub struct Bias<D> {
    table: Table,
    bias: D,
}

impl<D: AsRef<[f32]>> Bias<D> {
    /// `shape` is that of the bias; a leading 1 stands for every batch or head.
    pub fn new(bias: D, shape: [usize; 4]) -> Self {
        Self { table: Table::new(shape, bias.as_ref().len()), bias }
    }
}

impl<D: AsRef<[f32]> + Sync> Scores for Bias<D> {
    #[inline(always)]
    fn tile(&self, _: usize, _: usize, _: Range<usize>, _: Range<usize>) -> Visibility {
        Visibility::Partial
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        let bias = &self.bias.as_ref()[self.table.row(at, keys)];
        scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
    }

    fn gradient_len(&self) -> usize {
        self.bias.as_ref().len()
    }

    fn partial_len(&self) -> usize {
        self.table.plane()
    }

    #[inline(always)]
    fn backward(&self, at: Position, keys: Range<usize>, dscores: &[f32], partial: &mut [f32]) {
        let partial = &mut partial[self.table.row(Position { batch: 0, head: 0, ..at }, keys)];
        partial.iter_mut().zip(dscores).for_each(|(partial, ds)| *partial += ds);
    }

    fn collect(&self, batch: usize, head: usize, partial: &[f32], gradient: &mut [f32]) {
        let start = self.table.row(Position { batch, head, query: 0 }, 0..0).start;
        let gradient = &mut gradient[start..start + self.table.plane()];
        gradient.iter_mut().zip(partial).for_each(|(gradient, partial)| *gradient += partial);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_rule;
    use super::*;

    #[test]
    fn the_bias_is_added() {
        let (t, s) = (66, 70);
        for (batches, heads) in [(1, 1), (2, 1), (1, 3), (2, 3)] {
            let bias: Vec<f32> = (0..batches * heads * t * s).map(|n| n as f32).collect();
            assert_rule(&Bias::new(&bias, [batches, heads, t, s]), [2, 3, t, s], |b, h, i, j| {
                bias[((b % batches * heads + h % heads) * t + i) * s + j]
            });
        }
    }
}
