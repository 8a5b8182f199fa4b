//! Several whole documents per row, so that little of a row is padding.
//!
//! Documents are packed once, in the order in which they are given: each goes into the row with
//! the least free space that still holds it ("best fit"), or begins a new one. So which documents
//! share a row never changes; what an epoch shuffles is the rows. That keeps the number of rows of
//! an epoch, and with it the row of every step, independent of the epoch, and it takes nothing
//! away: documents of one row do not see each other ([`Packing`]).

use super::documents::{Documents, Sequences, TooLong};
use super::{Batch, Examples, Packing};
use crate::error::Result;
use std::collections::BTreeSet;

/// Rows of several documents each.
#[derive(Clone, Debug)]
pub struct PackedDocuments {
    sequences: Sequences,
    /// The documents of each row, in order.
    rows: Vec<Vec<usize>>,
}

impl PackedDocuments {
    /// Rows of `length` tokens, filled up with `pad`. Panics if `length` is 0.
    ///
    /// If neighbouring documents are alike (sorted by date or by label, say), shuffle them first
    /// ([`Documents::shuffled`]), or rows will be alike within.
    pub fn new(documents: &Documents, length: usize, too_long: TooLong, pad: u32) -> Result<Self> {
        let sequences = Sequences::new(documents, length, too_long, pad)?;
        let mut rows: Vec<Vec<usize>> = Vec::new();
        let mut free: BTreeSet<(usize, usize)> = BTreeSet::new(); // (free tokens, row)
        for document in 0..sequences.count() {
            let n = sequences.length_of(document);
            let best = free.range((n, 0)..).next().copied();
            let (space, row) = best.unwrap_or((length, rows.len()));
            if best.is_some() {
                free.remove(&(space, row));
            } else {
                rows.push(Vec::new());
            }
            rows[row].push(document);
            if space > n {
                free.insert((space - n, row));
            }
        }
        Ok(Self { sequences, rows })
    }

    /// Makes `end` the target of a document's last token.
    pub fn predict_end(mut self, end: u32) -> Self {
        self.sequences.end = end;
        self
    }
}

impl Examples for PackedDocuments {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn longest(&self) -> usize {
        self.sequences.length
    }

    fn tokens_of(&self, example: usize) -> usize {
        self.rows[example].iter().map(|&document| self.sequences.length_of(document)).sum()
    }

    fn batch_of(&self, examples: &[usize]) -> Batch {
        let length = self.sequences.length;
        let mut segments = vec![0; examples.len() * length]; // (B, T)
        let mut positions = vec![0; examples.len() * length]; // (B, T)
        let write = |row: usize, inputs: &mut [u32], targets: &mut [u32]| {
            let mut at = 0;
            for (number, &document) in (1..).zip(&self.rows[examples[row]]) {
                let n = self.sequences.write(document, &mut inputs[at..], &mut targets[at..]);
                let tokens = row * length + at..row * length + at + n;
                segments[tokens.clone()].fill(number);
                positions[tokens].iter_mut().zip(0..).for_each(|(p, position)| *p = position);
                at += n;
            }
            at
        };
        let batch = Batch::build(examples.len(), length, self.sequences.pad, write);
        Batch { packing: Some(Packing { segments, positions }), ..batch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::testing::{assert_batches, assert_epochs, assert_in_order, documents};
    use crate::batches::{IGNORED as I, Shuffled};
    use hearken_kernels::attention::scores::{Position, Scores, Segments};

    #[test]
    fn packed_documents_stay_whole_and_apart() {
        let documents = [vec![1, 2], vec![3, 4, 5, 6], vec![7, 8, 9], vec![10], vec![11; 6]];
        let documents: Documents = documents.into_iter().collect();
        let packed = PackedDocuments::new(&documents, 5, TooLong::Cut, 0).unwrap();
        let batch = packed.predict_end(99).batch_of(&[0, 1, 2]);
        assert_eq!(batch.inputs, [1, 2, 7, 8, 9, 3, 4, 5, 6, 10, 11, 11, 11, 11, 11]);
        assert_eq!(batch.targets, [2, 99, 8, 9, 99, 4, 5, 6, 99, 99, 11, 11, 11, 11, 11]);
        let packing = batch.packing.unwrap();
        assert_eq!(packing.segments, [1, 1, 2, 2, 2, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1]);
        assert_eq!(packing.positions, [0, 1, 0, 1, 2, 0, 1, 2, 3, 0, 0, 1, 2, 3, 4]);
        assert_eq!(batch.lengths, None);
    }

    #[test]
    fn what_is_free_is_padding() {
        let documents: Documents = [vec![1, 2], vec![3, 4, 5]].into_iter().collect();
        let packed = PackedDocuments::new(&documents, 4, TooLong::Cut, 0).unwrap();
        let batch = packed.batch_of(&[1, 0]);
        assert_eq!(batch.inputs, [3, 4, 5, 0, 1, 2, 0, 0]);
        assert_eq!(batch.targets, [4, 5, I, I, 2, I, I, I]);
        assert_eq!(batch.lengths, Some(vec![3, 2]));
        assert_eq!(batch.packing.unwrap().segments, [1, 1, 1, 0, 1, 1, 0, 0]);
        assert_eq!([packed.tokens_of(0), packed.tokens_of(1)], [2, 3]);
    }

    #[test]
    fn attention_between_segments_stays_within_a_document() {
        let packed = PackedDocuments::new(&documents(40, 9), 12, TooLong::Cut, 0).unwrap();
        let batch = packed.batch_of(&(0..packed.count()).collect::<Vec<_>>());
        let packing = batch.packing.as_ref().unwrap();
        let rule = Segments::new(&packing.segments, 12, 12);
        for (place, &position) in packing.positions.iter().enumerate() {
            let at = Position { batch: place / 12, head: 0, query: place % 12 };
            let mut scores = [0.0; 12];
            rule.apply(at, 0..12, &mut scores);
            let before = scores[..=at.query].iter().filter(|&&score| score == 0.0).count();
            let is_token = at.query < batch.length_of(at.batch);
            assert_eq!(before, if is_token { position as usize + 1 } else { 0 });
        }
    }

    #[test]
    fn every_document_is_in_one_row_and_little_is_padding() {
        let documents = documents(500, 64);
        let packed = PackedDocuments::new(&documents, 64, TooLong::Cut, 0).unwrap();
        let mut all = packed.rows.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..500));
        let tokens: usize = (0..500).map(|document| documents.length_of(document)).sum();
        let share = tokens as f64 / (packed.count() * 64) as f64;
        // One after the other, lengths that are uniform up to T fill three quarters of the rows.
        assert!(share > 0.95, "{share}");
    }

    #[test]
    fn a_split_document_keeps_every_target() {
        let documents: Documents = [(0..100).collect::<Vec<u32>>()].into_iter().collect();
        let packed = PackedDocuments::new(&documents, 8, TooLong::Split, 0).unwrap();
        let mut targets = packed.predict_end(100).batch_of(&(0..13).collect::<Vec<_>>()).targets;
        targets.retain(|&target| target != I);
        assert!(targets.into_iter().eq(1..=100));
    }

    #[test]
    fn batches_depend_on_seed_step_and_row_alone() {
        let packed = PackedDocuments::new(&documents(900, 9), 16, TooLong::Split, 0).unwrap();
        assert_batches(|seed| Shuffled::new(&packed, 6, seed));
        assert_batches(|seed| Shuffled::new(&packed, 1, seed));
    }

    #[test]
    fn an_epoch_has_every_row_once() {
        for (count, length) in [(1, 3), (5, 9), (60, 17), (60, 9)] {
            let documents = documents(count, 9);
            let packed = PackedDocuments::new(&documents, length, TooLong::Split, 0).unwrap();
            assert_in_order(&packed);
            for rows in [1, 3, 30] {
                assert_epochs(&Shuffled::new(&packed, rows, 1));
            }
        }
    }

    #[test]
    fn empty_lists_and_documents_are_named() {
        let none: Documents = Vec::<Vec<u32>>::new().into_iter().collect();
        let error = PackedDocuments::new(&none, 4, TooLong::Cut, 0).unwrap_err().to_string();
        assert!(error.starts_with("the list of documents is empty\nhint: "), "{error}");
        let empty: Documents = [vec![1], vec![]].into_iter().collect();
        let error = PackedDocuments::new(&empty, 4, TooLong::Cut, 0).unwrap_err().to_string();
        assert!(error.starts_with("document 2 of 2 has no tokens\nhint: "), "{error}");
    }
}
