//! Random letters, repeated: what makes induction heads grow.
//!
//! > qzkfmbqzkfmbqzkfmb…
//!
//! A row draws a period n and n letters, each equally likely, and repeats them to its end, behind the
//! line end that begins every row. Nothing can be known of the first n letters. Every later one is known
//! to whoever finds the earlier place where the last letters stood and looks at what followed them:
//! that is induction (Olsson et al. 2022). Since the period differs from row to row, a fixed distance
//! back is of no use.

use crate::batches::{Batch, Batches, Examples, key};
use crate::error::{self, Result};
use crate::tokenizer::Tokenizer;
use hearken_tensor::rng::Rng;
use std::ops::{Range, RangeInclusive};

/// What stands before every sequence.
pub const BEGIN: char = '\n';

/// How many letters there are.
pub const LETTERS: usize = 26;

const TRAINING_SITE: u64 = 0x7265_7065_6174_7300; // "repeats"
const VALIDATION_SITE: u64 = 0x7265_7065_6174_7301;

/// The shortest row that holds two repetitions of the shortest period.
const SHORTEST: usize = 24;

/// The line end is token 0, then come the letters.
pub fn tokenizer() -> Tokenizer {
    let characters: Vec<char> = std::iter::once(BEGIN).chain('a'..='z').collect();
    Tokenizer::of_characters(&characters)
}

/// The periods of rows of `length` tokens: from an eighth to a half of them, so that every row holds
/// at least one whole repetition.
pub fn periods(length: usize) -> RangeInclusive<usize> {
    (length / 8).max(4)..=length / 2
}

/// The tokens of one sequence with their begin, `length` + 1 of them, and its period.
pub fn sample(length: usize, rng: &mut Rng) -> (Vec<u32>, usize) {
    let periods = periods(length);
    let period = periods.start() + rng.below(periods.end() - periods.start() + 1);
    let letters: Vec<u32> = (0..period).map(|_| 1 + rng.below(LETTERS) as u32).collect();
    let repeated = letters.iter().copied().cycle().take(length);
    (std::iter::once(0).chain(repeated).collect(), period)
}

/// Training batches: no sequence is met twice but by chance.
#[derive(Clone, Copy, Debug)]
pub struct RepeatWindows {
    rows: usize,
    length: usize,
    seed: u64,
}

impl RepeatWindows {
    /// Batches of `rows` rows of `length` tokens.
    pub fn new(rows: usize, length: usize, seed: u64) -> Result<Self> {
        check(length)?;
        Ok(Self { rows, length, seed })
    }
}

impl Batches for RepeatWindows {
    fn rows(&self) -> usize {
        self.rows
    }

    fn length(&self) -> usize {
        self.length
    }

    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch {
        Batch::build(rows.len(), self.length, 0, |row, inputs, targets| {
            let site = key(self.seed, step, TRAINING_SITE);
            let mut rng = Rng::new(key(site, (rows.start + row) as u64, 0));
            let (ids, _) = sample(self.length, &mut rng);
            inputs.copy_from_slice(&ids[..self.length]);
            targets.copy_from_slice(&ids[1..]);
            self.length
        })
    }
}

/// Sequences that are held out.
#[derive(Clone, Debug)]
pub struct Validation {
    rows: Vec<Vec<u32>>,
    length: usize,
}

impl Validation {
    /// So many sequences, drawn from other numbers than those of training with the same seed.
    pub fn new(rows: usize, length: usize, seed: u64) -> Result<Self> {
        check(length)?;
        let mut rng = Rng::new(key(seed, 0, VALIDATION_SITE));
        Ok(Self { rows: (0..rows).map(|_| sample(length, &mut rng).0).collect(), length })
    }

    /// How many letters count.
    pub fn characters(&self) -> usize {
        self.rows.len() * self.length
    }
}

impl Examples for Validation {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn longest(&self) -> usize {
        self.length
    }

    fn tokens_of(&self, _: usize) -> usize {
        self.length
    }

    fn batch_of(&self, examples: &[usize]) -> Batch {
        Batch::build(examples.len(), self.length, 0, |row, inputs, targets| {
            let ids = &self.rows[examples[row]];
            inputs.copy_from_slice(&ids[..self.length]);
            targets.copy_from_slice(&ids[1..]);
            self.length
        })
    }
}

fn check(length: usize) -> Result<()> {
    if length < SHORTEST { Err(error::context_too_short(length, SHORTEST)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_repeat_themselves_with_periods_of_their_own() {
        let mut rng = Rng::new(7);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let (ids, period) = sample(64, &mut rng);
            assert_eq!((ids.len(), ids[0]), (65, 0));
            assert!((1 + period..ids.len()).all(|i| ids[i] == ids[i - period]));
            assert!(ids[1..].iter().all(|id| (1..=LETTERS as u32).contains(id)));
            seen.insert(period);
        }
        assert!(seen.len() > 20 && *seen.first().unwrap() == 8 && *seen.last().unwrap() == 32);
    }

    #[test]
    fn a_step_is_a_function_of_seed_step_and_row_and_held_out_rows_are_others() {
        let batches = RepeatWindows::new(4, 32, 3).unwrap();
        let whole = batches.batch(5);
        let part = batches.rows_of(5, 2..4);
        assert_eq!(whole.inputs[2 * 32..], part.inputs);
        assert_ne!(whole.inputs, batches.batch(6).inputs);
        let held = Validation::new(4, 32, 3).unwrap().batch_of(&[0, 1, 2, 3]);
        assert!((0..4).all(|r| {
            !whole.inputs.chunks(32).any(|row| row == &held.inputs[r * 32..(r + 1) * 32])
        }));
        assert!(RepeatWindows::new(4, 8, 3).is_err());
        assert_eq!(tokenizer().decode(&[0, 1, 26]).unwrap(), "\naz");
    }
}
