//! Pairs of source and target, for models that read one sequence and write another.
//!
//! The encoder reads the source. The decoder learns with the right answer so far as its input
//! (teacher forcing): for a target y₁ … yₙ it sees `begin y₁ … yₙ` and answers `y₁ … yₙ end`.

use super::documents::Documents;
use super::{Batch, Batches, Examples, Source};
use crate::error::{self, Result};
use std::ops::Range;

/// The ids that frame a target and fill rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the decoder sees first.
    pub begin: u32,
    /// What the decoder answers last.
    pub end: u32,
    /// What fills rows that are shorter than others.
    pub pad: u32,
}

/// Sources and their targets, one pair per row.
#[derive(Clone, Debug)]
pub struct Pairs {
    sources: Documents,
    targets: Documents,
    frame: Frame,
    longest: usize,
    longest_source: usize,
}

impl Pairs {
    /// Source i belongs to target i. A target may be empty, a source may not.
    pub fn new(sources: Documents, targets: Documents, frame: Frame) -> Result<Self> {
        if sources.count() != targets.count() {
            let (sources, targets) = (sources.count(), targets.count());
            return Err(error::unpaired(sources, targets));
        }
        sources.check("source")?;
        let longest = |of: &Documents| (0..of.count()).map(|i| of.length_of(i)).max().unwrap_or(0);
        let (longest, longest_source) = (longest(&targets) + 1, longest(&sources));
        Ok(Self { sources, targets, frame, longest, longest_source })
    }

    /// The longest source: S is at most this.
    pub fn longest_source(&self) -> usize {
        self.longest_source
    }

    fn pair(&self, example: usize) -> [Vec<u32>; 2] {
        [&self.sources, &self.targets].map(|of| {
            let mut ids = vec![0; of.length_of(example)];
            of.read(example, 0, &mut ids);
            ids
        })
    }
}

/// Sources and targets as the rows of a batch: (B, S) and (B, T), each as long as its longest.
pub(super) fn batch(pairs: &[[Vec<u32>; 2]], frame: Frame) -> Batch {
    let Frame { begin, end, pad } = frame;
    let lengths: Vec<usize> = pairs.iter().map(|[source, _]| source.len()).collect();
    let length = lengths.iter().copied().max().unwrap_or(0);
    let mut ids = vec![pad; pairs.len() * length]; // (B, S)
    for (row, [source, _]) in ids.chunks_exact_mut(length.max(1)).zip(pairs) {
        row[..source.len()].copy_from_slice(source);
    }
    let longest = pairs.iter().map(|[_, target]| target.len() + 1).max().unwrap_or(0);
    let built = Batch::build(pairs.len(), longest, pad, |row, inputs, targets| {
        let target = &pairs[row][1];
        let n = target.len();
        targets[..n].copy_from_slice(target);
        targets[n] = end;
        inputs[0] = begin;
        inputs[1..=n].copy_from_slice(target);
        n + 1
    });
    Batch { source: Some(Source { length, ids, lengths }), ..built }
}

/// Pairs that are made when they are needed, new ones at every step.
pub struct MadePairs<F> {
    make: F,
    rows: usize,
    longest: usize,
    frame: Frame,
}

impl<F: Fn(u64, u64) -> [Vec<u32>; 2] + Send + Sync> MadePairs<F> {
    /// Batches of `rows` pairs: `make(step, row)` gives source and target, the latter of fewer than
    /// `longest` tokens, and always the same for the same step and row.
    pub fn new(rows: usize, longest: usize, frame: Frame, make: F) -> Self {
        Self { make, rows, longest, frame }
    }
}

impl<F: Fn(u64, u64) -> [Vec<u32>; 2] + Send + Sync> Batches for MadePairs<F> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn length(&self) -> usize {
        self.longest
    }

    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch {
        let pairs: Vec<_> = rows.map(|row| (self.make)(step, row as u64)).collect();
        batch(&pairs, self.frame)
    }
}

impl Examples for Pairs {
    fn count(&self) -> usize {
        self.sources.count()
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn tokens_of(&self, example: usize) -> usize {
        self.sources.length_of(example) + self.targets.length_of(example) + 1
    }

    fn batch_of(&self, examples: &[usize]) -> Batch {
        let pairs: Vec<_> = examples.iter().map(|&example| self.pair(example)).collect();
        batch(&pairs, self.frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::testing::{assert_batches, assert_epochs, assert_in_order, documents};
    use crate::batches::{IGNORED as I, Shuffled, key};
    use hearken_tensor::rng::Rng;

    const FRAME: Frame = Frame { begin: 100, end: 101, pad: 0 };

    fn pairs(count: usize, longest: usize) -> Pairs {
        let (sources, targets) = (documents(count, longest), documents(count, longest).shuffled(1));
        Pairs::new(sources, targets, FRAME).unwrap()
    }

    #[test]
    fn a_decoder_sees_the_answer_one_step_late() {
        let sources: Documents = [vec![7, 8], vec![9]].into_iter().collect();
        let targets: Documents = [vec![1, 2, 3], vec![]].into_iter().collect();
        let pairs = Pairs::new(sources, targets, FRAME).unwrap();
        let batch = pairs.batch_of(&[0, 1]);
        assert_eq!(batch.inputs, [100, 1, 2, 3, 100, 0, 0, 0]);
        assert_eq!(batch.targets, [1, 2, 3, 101, 101, I, I, I]);
        assert_eq!((batch.lengths.as_deref(), batch.counted()), (Some(&[4, 1][..]), 5));
        let source = Source { length: 2, ids: vec![7, 8, 9, 0], lengths: vec![2, 1] };
        assert_eq!(batch.source, Some(source));
        assert_eq!([pairs.longest(), pairs.longest_source(), pairs.tokens_of(0)], [4, 2, 6]);
        let single = pairs.batch_of(&[1]);
        assert_eq!((single.length, single.inputs, single.targets), (1, vec![100], vec![101]));
    }

    #[test]
    fn batches_depend_on_seed_step_and_row_alone() {
        let pairs = pairs(200, 15);
        assert_batches(|seed| Shuffled::new(&pairs, 6, seed));
        assert_batches(|seed| Shuffled::new(&pairs, 6, seed).grouped_by_length(5));
        assert_batches(|seed| Shuffled::new(&pairs, 1, seed));
    }

    #[test]
    fn made_pairs_depend_on_step_and_row_alone() {
        let make = |seed: u64| {
            move |step: u64, row: u64| {
                let mut rng = Rng::new(key(seed, step, row));
                [0, 1].map(|_| (0..=rng.below(9)).map(|_| rng.below(90) as u32).collect())
            }
        };
        assert_batches(|seed| MadePairs::new(6, 10, FRAME, make(seed)));
    }

    #[test]
    fn an_epoch_has_every_pair_once() {
        for count in [1, 2, 31] {
            let pairs = pairs(count, 9);
            assert_eq!(assert_in_order(&pairs).len(), count);
            for rows in [1, 4, 40] {
                assert_epochs(&Shuffled::new(&pairs, rows, 3));
                assert_epochs(&Shuffled::new(&pairs, rows, 3).grouped_by_length(3));
            }
        }
    }

    #[test]
    fn what_does_not_pair_up_is_named() {
        let of = |list: &[&[u32]]| list.iter().collect::<Documents>();
        let error = |sources: &[&[u32]], targets: &[&[u32]]| {
            Pairs::new(of(sources), of(targets), FRAME).unwrap_err().to_string()
        };
        let unpaired = error(&[&[1], &[2]], &[&[1]]);
        assert!(
            unpaired.starts_with("2 sources do not pair up with 1 targets\nhint: "),
            "{unpaired}"
        );
        let none = error(&[], &[]);
        assert!(none.starts_with("the list of sources is empty\nhint: "), "{none}");
        let empty = error(&[&[]], &[&[1]]);
        assert!(empty.starts_with("source 1 of 1 has no tokens\nhint: "), "{empty}");
    }
}
