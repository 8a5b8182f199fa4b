//! BERT's masking (A5): of all tokens 15 % are to be guessed. Of these 80 % are replaced by
//! the mask token, 10 % become a random token, and 10 % stay, so that the model cannot know which
//! of the tokens it sees are right. Padding and special tokens are left alone.

use super::{Batch, Batches, Examples, IGNORED, key};
use hearken_tensor::rng::Rng;
use std::ops::Range;

const MASK_SITE: u64 = 0x6d61_736b_0000_0000; // "mask"

/// What is masked, and how often.
#[derive(Clone, Debug)]
pub struct Masking {
    /// The mask token.
    pub mask: u32,
    /// V: random tokens are drawn from these ids, the special ones left out.
    pub vocabulary: usize,
    /// Ids that are never masked and never drawn, in order.
    pub special: Vec<u32>,
    /// The share that is to be guessed.
    pub share: f64,
    /// The run's seed.
    pub seed: u64,
}

impl Masking {
    /// BERT's settings.
    pub fn new(mask: u32, vocabulary: usize, special: Vec<u32>, seed: u64) -> Self {
        assert!(special.len() < vocabulary, "all {vocabulary} ids are special");
        assert!(special.is_sorted(), "special ids out of order: {special:?}");
        Self { mask, vocabulary, special, share: 0.15, seed }
    }

    /// Masks one row: hides some of its `inputs`, and makes them the only `targets`. `step` and
    /// `row` choose which.
    fn apply(&self, inputs: &mut [u32], targets: &mut [u32], step: u64, row: u64) {
        let mut rng = Rng::new(key(self.seed, step, MASK_SITE + row));
        for (input, target) in inputs.iter_mut().zip(targets) {
            // Two draws per token, whatever they are used for: the draws of a token do not
            // depend on those before it.
            let (chosen, what) = (rng.unit(), rng.unit());
            if chosen >= self.share || self.special.binary_search(input).is_ok() {
                *target = IGNORED;
                continue;
            }
            *target = *input;
            if what < 0.8 {
                *input = self.mask;
            } else if what < 0.9 {
                *input = self.ordinary((what - 0.8) / 0.1);
            }
        }
    }

    /// Masks the rows of a batch, each with the number that `number_of` gives it.
    fn mask(&self, mut batch: Batch, step: u64, number_of: impl Fn(usize) -> usize) -> Batch {
        for row in 0..batch.rows {
            let tokens = row * batch.length..row * batch.length + batch.length_of(row);
            let inputs = &mut batch.inputs[tokens.clone()];
            self.apply(inputs, &mut batch.targets[tokens], step, number_of(row) as u64);
        }
        batch
    }

    /// The ordinary token at `unit` in [0, 1) of them all.
    fn ordinary(&self, unit: f64) -> u32 {
        let count = self.vocabulary - self.special.len();
        let mut id = ((unit * count as f64) as usize).min(count - 1) as u32;
        // Step over the special ids, which are in order.
        for &special in &self.special {
            id += u32::from(id >= special);
        }
        id
    }
}

/// The rows of another source, masked. Only inputs and targets change.
///
/// Of training batches ([`Batches`]) a row is masked anew at every step; of [`Examples`] each has
/// one mask, so that evaluations can be compared.
#[derive(Clone, Debug)]
pub struct Masked<I> {
    inner: I,
    masking: Masking,
}

impl<I> Masked<I> {
    /// `inner` is a [`Batches`] or an [`Examples`].
    pub fn new(inner: I, masking: Masking) -> Self {
        Self { inner, masking }
    }
}

impl<B: Batches> Batches for Masked<B> {
    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn length(&self) -> usize {
        self.inner.length()
    }

    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch {
        let batch = self.inner.rows_of(step, rows.clone());
        self.masking.mask(batch, step, |row| rows.start + row)
    }

    fn epoch(&self) -> Option<u64> {
        self.inner.epoch()
    }
}

impl<E: Examples> Examples for Masked<E> {
    fn count(&self) -> usize {
        self.inner.count()
    }

    fn longest(&self) -> usize {
        self.inner.longest()
    }

    fn tokens_of(&self, example: usize) -> usize {
        self.inner.tokens_of(example)
    }

    fn batch_of(&self, examples: &[usize]) -> Batch {
        /// No step of training.
        const EVALUATION: u64 = u64::MAX;
        self.masking.mask(self.inner.batch_of(examples), EVALUATION, |row| examples[row])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::testing::{assert_batches, assert_in_order, documents, rows};
    use crate::batches::{
        Documents, PackedDocuments, PaddedDocuments, RandomWindows, Shuffled, TooLong, Windows,
    };

    fn masking(seed: u64) -> Masking {
        Masking::new(4, 1000, vec![0, 2, 4], seed)
    }

    #[test]
    fn proportions_are_those_of_bert() {
        const N: usize = 200_000;
        let ids: Vec<u32> = (0..=N as u32).map(|i| i % 1000).collect();
        let windows = Windows::full(ids.clone().into(), 100).unwrap();
        let all: Vec<usize> = (0..windows.count()).collect();
        let batch = Masked::new(windows, masking(1)).batch_of(&all);
        let (mut chosen, mut hidden, mut kept, mut changed) = (0, 0, 0, 0);
        for ((&input, &target), &id) in batch.inputs.iter().zip(&batch.targets).zip(&ids) {
            if target == IGNORED {
                assert_eq!(input, id);
                continue;
            }
            assert_eq!(target, id);
            assert!(![0, 2, 4].contains(&id), "special token {id} is masked");
            chosen += 1;
            match input {
                4 => hidden += 1,
                _ if input == id => kept += 1,
                _ => {
                    assert!(input < 1000 && ![0, 2].contains(&input));
                    changed += 1;
                }
            }
        }
        // Five standard deviations of a share p of n: 5·√(p(1−p)/n).
        let near = |count: usize, n: usize, p: f64| {
            let share = count as f64 / n as f64;
            let bound = 5.0 * (p * (1.0 - p) / n as f64).sqrt();
            assert!((share - p).abs() < bound, "{share} instead of {p} ± {bound}");
        };
        near(chosen, N - 3 * N / 1000, 0.15);
        near(hidden, chosen, 0.8);
        near(kept, chosen, 0.1 + 0.1 / 997.0); // a random token may be the right one
        near(changed, chosen, 0.1 * 996.0 / 997.0);
    }

    #[test]
    fn batches_depend_on_seed_step_and_row_alone() {
        let ids: Vec<u32> = (0..1000).collect();
        let documents = documents(300, 30);
        let padded = PaddedDocuments::new(&documents, 20, TooLong::Cut, 0).unwrap();
        let packed = PackedDocuments::new(&documents, 40, TooLong::Split, 0).unwrap();
        assert_batches(|seed| {
            let windows = RandomWindows::new(ids.clone().into(), 6, 20, 1).unwrap();
            Masked::new(windows, masking(seed)) // the seed of the masks alone
        });
        assert_batches(|seed| Masked::new(Shuffled::new(&padded, 6, seed), masking(seed)));
        let boxed = |seed| -> Box<dyn Batches> { Box::new(Shuffled::new(packed.clone(), 6, seed)) };
        assert_batches(|seed| Masked::new(boxed(seed), masking(seed)));
    }

    #[test]
    fn nothing_but_inputs_and_targets_changes_and_padding_is_never_masked() {
        let documents = documents(300, 30);
        let packed = PackedDocuments::new(&documents, 40, TooLong::Cut, 7).unwrap();
        let plain = Shuffled::new(packed, 12, 3);
        // All that may be masked is masked; padding is an ordinary id here.
        let masked = Masked::new(plain.clone(), Masking { share: 1.0, ..masking(5) });
        assert_eq!((masked.rows(), masked.length(), masked.epoch()), (12, 40, plain.epoch()));
        for step in 0..4 {
            let (before, after) = (plain.batch(step), masked.batch(step));
            assert!(before.lengths.is_some());
            assert_eq!((&after.lengths, &after.packing), (&before.lengths, &before.packing));
            for (before, after) in rows(&before).iter().zip(rows(&after)) {
                for (&id, &target) in before.inputs.iter().zip(&after.targets) {
                    assert_eq!(target, if [0, 2, 4].contains(&id) { IGNORED } else { id });
                }
            }
        }
    }

    #[test]
    fn an_example_has_one_mask_and_a_step_has_another() {
        let padded = PaddedDocuments::new(&documents(40, 30), 30, TooLong::Cut, 0).unwrap();
        let examples = Masked::new(&padded, masking(1));
        assert_eq!(assert_in_order(&examples).len(), 40);
        let alone = rows(&examples.batch_of(&[7]));
        assert_eq!(rows(&examples.batch_of(&[3, 7, 7]))[1..], [alone.clone(), alone].concat());
        let one: Documents = [(5..40).collect::<Vec<u32>>()].into_iter().collect();
        let one = PaddedDocuments::new(&one, 40, TooLong::Cut, 0).unwrap();
        let one = Masked::new(Shuffled::new(one, 1, 1), masking(1));
        assert_ne!(one.batch(0).targets, one.batch(1).targets);
    }

    #[test]
    fn ordinary_tokens_are_all_but_the_special_ones() {
        let masking = Masking::new(1, 6, vec![0, 1, 4], 0);
        let drawn: Vec<u32> = [0.0, 0.34, 0.67, 0.999].map(|u| masking.ordinary(u)).to_vec();
        assert_eq!(drawn, [2, 3, 5, 5]);
    }
}
