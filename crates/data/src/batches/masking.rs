//! BERT's masking (A5): of all tokens 15 % are to be guessed. Of these 80 % are hidden behind
//! the mask token, 10 % become a random token, and 10 % stay, so that the model cannot know which
//! of the tokens it sees are right. Special tokens are left alone.

use super::{Batch, IGNORED, key};
use hearken_tensor::rng::Rng;

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

    /// Masks the rows `first_row`, … of step `step`: inputs with tokens hidden, and as targets
    /// the tokens to be guessed. A row is masked the same way whatever batch it comes in.
    pub fn apply(&self, ids: &[u32], length: usize, step: u64, first_row: usize) -> Batch {
        assert!(length > 0 && ids.len().is_multiple_of(length), "{} ids, {length}", ids.len());
        Batch::build(ids.len() / length, length, 0, |row, inputs, targets| {
            inputs.copy_from_slice(&ids[row * length..][..length]);
            let site = MASK_SITE + (first_row + row) as u64;
            let mut rng = Rng::new(key(self.seed, step, site));
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
            length
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proportions_are_those_of_bert() {
        const N: usize = 200_000;
        let masking = Masking::new(4, 1000, vec![0, 2, 4], 1);
        let ids: Vec<u32> = (0..N as u32).map(|i| i % 1000).collect();
        let batch = masking.apply(&ids, 100, 3, 0);
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
    fn rows_are_masked_the_same_in_any_batch() {
        let masking = Masking::new(9, 50, vec![9], 1);
        let ids: Vec<u32> = (0..40).map(|i| i % 9).collect();
        let whole = masking.apply(&ids, 10, 5, 0);
        let half = masking.apply(&ids[20..], 10, 5, 2);
        assert_eq!(whole.inputs[20..], half.inputs);
        assert_eq!(whole.targets[20..], half.targets);
        assert_ne!(whole, masking.apply(&ids, 10, 6, 0));
    }

    #[test]
    fn ordinary_tokens_are_all_but_the_special_ones() {
        let masking = Masking::new(1, 6, vec![0, 1, 4], 0);
        let drawn: Vec<u32> = [0.0, 0.34, 0.67, 0.999].map(|u| masking.ordinary(u)).to_vec();
        assert_eq!(drawn, [2, 3, 5, 5]);
    }
}
