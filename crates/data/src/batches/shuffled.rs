//! Every example once per epoch, in an order that is new each time.
//!
//! The rows of all steps are numbered through: row r of step s has the number n = s·B + r, and
//! lies in epoch ⌊n / count⌋ at place n mod count. A permutation that belongs to (seed, epoch) says
//! which example stands at a place. It is computed, not stored, so any row of any step is found at
//! once. A batch may end one epoch and begin the next.
//!
//! **Grouped by length.** Rows of one batch are padded to the longest of them, so a batch of
//! similar lengths wastes little. The steps are cut into pools of some batches each. Within a
//! pool, and within an epoch, examples are sorted by length and dealt out to the batches in
//! runs; which batch gets which run is random. An example can thus stand in any batch with any
//! other of about its length, and an epoch still has every example once.

use super::permutation::Permutation;
use super::{Batch, Batches, Examples, key};
use std::ops::Range;

const ORDER_SITE: u64 = 0x6f72_6465_7200_0000; // "order"
const GROUP_SITE: u64 = 0x6772_6f75_7000_0000; // "group"

/// Training batches of examples, shuffled anew each epoch.
#[derive(Clone, Debug)]
pub struct Shuffled<E> {
    examples: E,
    rows: usize,
    seed: u64,
    /// Batches of a pool, where rows are grouped by length.
    pool: Option<u64>,
}

impl<E: Examples> Shuffled<E> {
    /// Batches of `rows` examples. Panics if there are no examples or no rows.
    pub fn new(examples: E, rows: usize, seed: u64) -> Self {
        let count = examples.count();
        assert!(count > 0 && rows > 0, "{count} examples in batches of {rows} rows");
        Self { examples, rows, seed, pool: None }
    }

    /// Puts examples of similar length into the same batch, by sorting pools of `batches` batches.
    /// The larger a pool, the less padding and the less chance who is in a batch with whom; 50 is
    /// usual. Panics if `batches` is 0.
    pub fn grouped_by_length(mut self, batches: usize) -> Self {
        assert!(batches > 0, "pools of 0 batches");
        self.pool = Some(batches as u64);
        self
    }

    /// What the batches are made of.
    pub fn examples(&self) -> &E {
        &self.examples
    }

    /// The example that a row with this number has before any grouping.
    fn example(&self, number: u64) -> usize {
        let count = self.examples.count() as u64;
        let order = Permutation::new(count, key(self.seed, number / count, ORDER_SITE));
        order.image(number % count) as usize
    }

    /// The examples of these rows, grouped in pools of `pool` batches.
    fn grouped(&self, pool: u64, rows: Range<u64>) -> Vec<usize> {
        let (count, size) = (self.examples.count() as u64, pool * self.rows as u64);
        let mut examples = Vec::new();
        let mut at = rows.start;
        while at < rows.end {
            let (start, epoch) = (at / size * size, at / count * count);
            let pool = start.max(epoch)..(start + size).min(epoch + count);
            let end = pool.end.min(rows.end);
            let dealt = self.deal(pool.clone());
            examples.extend(&dealt[(at - pool.start) as usize..(end - pool.start) as usize]);
            at = end;
        }
        examples
    }

    /// The examples of one pool in the order of its rows: sorted, and a run for each batch.
    fn deal(&self, pool: Range<u64>) -> Vec<usize> {
        let mut sorted: Vec<usize> = pool.clone().map(|number| self.example(number)).collect();
        sorted.sort_by_key(|&example| self.examples.tokens_of(example));
        let each = self.rows as u64;
        // The first and the last batch may have rows in another epoch too.
        let batches: Vec<Range<u64>> = (pool.start / each..pool.end.div_ceil(each))
            .map(|step| (step * each).max(pool.start)..((step + 1) * each).min(pool.end))
            .collect();
        let order = Permutation::new(batches.len() as u64, key(self.seed, pool.start, GROUP_SITE));
        let mut dealt = vec![0; sorted.len()];
        let mut rest = sorted.as_slice();
        for turn in 0..batches.len() as u64 {
            let batch = &batches[order.image(turn) as usize];
            let (run, after) = rest.split_at((batch.end - batch.start) as usize);
            dealt[(batch.start - pool.start) as usize..][..run.len()].copy_from_slice(run);
            rest = after;
        }
        dealt
    }
}

impl<E: Examples> Batches for Shuffled<E> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn length(&self) -> usize {
        self.examples.longest()
    }

    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch {
        let first = step * self.rows as u64;
        let numbers = first + rows.start as u64..first + rows.end as u64;
        let examples = match self.pool {
            None => numbers.map(|number| self.example(number)).collect(),
            Some(pool) => self.grouped(pool, numbers),
        };
        self.examples.batch_of(&examples)
    }

    fn epoch(&self) -> Option<u64> {
        Some(self.examples.count() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::testing::{assert_batches, assert_epochs};

    /// Examples of 1, …, 20 tokens, each with a number of its own in its first token.
    #[derive(Clone)]
    struct Lengths(usize);

    impl Examples for Lengths {
        fn count(&self) -> usize {
            self.0
        }

        fn longest(&self) -> usize {
            20
        }

        fn tokens_of(&self, example: usize) -> usize {
            example * 7 % 20 + 1
        }

        fn batch_of(&self, examples: &[usize]) -> Batch {
            let length = examples.iter().map(|&i| self.tokens_of(i)).max().unwrap_or(0);
            Batch::build(examples.len(), length, 0, |row, inputs, _| {
                inputs[0] = examples[row] as u32;
                self.tokens_of(examples[row])
            })
        }
    }

    fn grouped(count: usize, rows: usize, pool: usize, seed: u64) -> Shuffled<Lengths> {
        Shuffled::new(Lengths(count), rows, seed).grouped_by_length(pool)
    }

    #[test]
    fn groups_depend_on_seed_step_and_row_alone() {
        assert_batches(|seed| grouped(1000, 12, 5, seed));
        assert_batches(|seed| grouped(997, 12, 50, seed));
        assert_batches(|seed| Shuffled::new(Lengths(1000), 12, seed));
    }

    #[test]
    fn an_epoch_has_every_example_once_whatever_the_groups() {
        for (count, rows) in [(96, 8), (97, 8), (103, 8), (5, 8), (1, 3), (7, 1), (40, 40)] {
            for pool in [1, 3, 12, 100] {
                assert_epochs(&grouped(count, rows, pool, 4));
            }
        }
    }

    #[test]
    fn rows_of_a_batch_are_of_similar_length() {
        // 30 steps of 10 rows, epochs of 301 examples, so that epochs end anywhere in a step.
        let padding = |source: &dyn Batches| -> usize {
            let batch = |step| source.batch(step);
            let padded = |b: &Batch| (0..b.rows).map(|r| b.length - b.length_of(r)).sum::<usize>();
            (301..331).map(|step| padded(&batch(step))).sum()
        };
        let apart = padding(&Shuffled::new(Lengths(301), 10, 1));
        let together = padding(&grouped(301, 10, 10, 1));
        // Of 300 rows, at random: about 18.2 − 10.5 tokens each. In pools of 100 rows with 20
        // lengths a batch has two or three of them: about 1 each, and more where an epoch ends.
        assert!(apart > 2000 && together < 600, "{apart} and {together}");
    }

    #[test]
    fn long_batches_come_at_any_time() {
        // Were runs dealt out in order, every pool would begin with its shortest batch.
        let source = grouped(1000, 10, 10, 1);
        let shortest = |pool: u64| {
            let length = |step: &u64| source.batch(*step).length;
            (0..10).min_by_key(|step| length(&(pool * 10 + step))).unwrap()
        };
        let mut places: Vec<u64> = (0..10).map(shortest).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() >= 4, "{places:?}"); // 6.5 are expected
    }
}
