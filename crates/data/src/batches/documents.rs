//! Documents: sequences of different lengths, each an example of its own.
//!
//! A document of n tokens has n inputs, and each of them is followed by a target. After the last
//! token comes the end token, if the model is to learn where documents end
//! ([`PaddedDocuments::predict_end`]), else nothing that counts.

use super::permutation::Permutation;
use super::{Batch, Examples, IGNORED, key};
use crate::corpus::Ids;
use crate::error::{self, Result};
use std::ops::Range;
use std::sync::Arc;

const DOCUMENT_SITE: u64 = 0x646f_6375_6d65_6e74; // "document"

/// A list of sequences of ids. Copies share the memory.
#[derive(Clone, Debug)]
pub struct Documents {
    ids: Ids,
    ranges: Arc<[Range<usize>]>,
}

impl Documents {
    /// The documents of a text in which each is followed by `end`, as
    /// [`Corpus`](crate::corpus::Corpus) writes them. The end tokens are left out, and so are
    /// empty documents.
    pub fn from_text(ids: Ids, end: u32) -> Self {
        /// Read at once: 256 KB.
        const CHUNK: usize = 1 << 16;
        let mut ranges = Vec::new();
        let mut start = 0;
        for from in (0..ids.len()).step_by(CHUNK) {
            let chunk = ids.to_vec(from..ids.len().min(from + CHUNK));
            for (at, _) in (from..).zip(&chunk).filter(|&(_, &id)| id == end) {
                ranges.push(start..at);
                start = at + 1;
            }
        }
        ranges.push(start..ids.len());
        ranges.retain(|range| !range.is_empty());
        Self { ids, ranges: ranges.into() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// How many tokens a document has.
    pub fn length_of(&self, document: usize) -> usize {
        self.ranges[document].len()
    }

    /// Copies the tokens of a document from `start` on. Panics beyond its end.
    pub fn read(&self, document: usize, start: usize, out: &mut [u32]) {
        let range = &self.ranges[document];
        assert!(
            start <= range.len() && out.len() <= range.len() - start,
            "{} tokens from {start} on of a document of {}",
            out.len(),
            range.len()
        );
        self.ids.read(range.start + start, out);
    }

    /// The same documents in another order.
    pub fn shuffled(&self, seed: u64) -> Self {
        let count = self.ranges.len() as u64;
        let order = Permutation::new(count, key(seed, 0, DOCUMENT_SITE));
        let ranges = (0..count).map(|place| self.ranges[order.image(place) as usize].clone());
        Self { ids: self.ids.clone(), ranges: ranges.collect() }
    }

    /// One text, each document followed by `end`: to be cut into windows anywhere.
    pub fn joined(&self, end: u32) -> Ids {
        let mut text = Vec::with_capacity(self.ranges.iter().map(|range| range.len() + 1).sum());
        for range in self.ranges.iter() {
            text.extend(self.ids.to_vec(range.clone()));
            text.push(end);
        }
        text.into()
    }

    /// Documents of at most `length` tokens, and one more that is only a target: the first of the
    /// piece that follows.
    fn pieces(&self, length: usize) -> Self {
        let pieces = self.ranges.iter().flat_map(|range| {
            let starts = range.clone().step_by(length);
            starts.map(|start| start..range.end.min(start + length + 1))
        });
        Self { ids: self.ids.clone(), ranges: pieces.collect() }
    }

    /// Refuses an empty list and empty documents; `what` they are is for the message.
    pub(super) fn check(&self, what: &'static str) -> Result<()> {
        let count = self.ranges.len();
        if count == 0 {
            return Err(error::empty(&format!("the list of {what}s")));
        }
        match self.ranges.iter().position(Range::is_empty) {
            Some(index) => Err(error::empty_example(what, index + 1, count)),
            None => Ok(()),
        }
    }
}

impl<D: AsRef<[u32]>> FromIterator<D> for Documents {
    fn from_iter<I: IntoIterator<Item = D>>(documents: I) -> Self {
        let (mut ids, mut ranges) = (Vec::new(), Vec::new());
        for document in documents {
            let start = ids.len();
            ids.extend_from_slice(document.as_ref());
            ranges.push(start..ids.len());
        }
        Self { ids: ids.into(), ranges: ranges.into() }
    }
}

/// What becomes of a document that is longer than a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLong {
    /// Its beginning is kept: for tasks with one answer per document.
    Cut,
    /// It becomes several examples, so that every token counts: for language models.
    Split,
}

/// Documents of at most T tokens with their targets, on the way into rows.
#[derive(Clone, Debug)]
pub(super) struct Sequences {
    documents: Documents,
    /// T.
    pub(super) length: usize,
    pub(super) pad: u32,
    /// The target of a document's last token.
    pub(super) end: u32,
}

impl Sequences {
    pub(super) fn new(
        documents: &Documents,
        length: usize,
        too_long: TooLong,
        pad: u32,
    ) -> Result<Self> {
        assert!(length > 0, "rows of 0 tokens");
        documents.check("document")?;
        let documents = match too_long {
            TooLong::Cut => documents.clone(),
            TooLong::Split => documents.pieces(length),
        };
        Ok(Self { documents, length, pad, end: IGNORED })
    }

    pub(super) fn count(&self) -> usize {
        self.documents.count()
    }

    pub(super) fn length_of(&self, example: usize) -> usize {
        self.documents.length_of(example).min(self.length)
    }

    /// Writes an example to the front of `inputs` and `targets`, and returns its length.
    pub(super) fn write(&self, example: usize, inputs: &mut [u32], targets: &mut [u32]) -> usize {
        let n = self.length_of(example);
        self.documents.read(example, 0, &mut inputs[..n]);
        // Of a document that was cut, even the last target is known.
        let known = n.min(self.documents.length_of(example) - 1);
        self.documents.read(example, 1, &mut targets[..known]);
        targets[known..n].fill(self.end);
        n
    }
}

/// One document per row, padded to the longest of the batch.
#[derive(Clone, Debug)]
pub struct PaddedDocuments {
    sequences: Sequences,
    longest: usize,
}

impl PaddedDocuments {
    /// Rows of at most `length` tokens, filled up with `pad`. Panics if `length` is 0.
    pub fn new(documents: &Documents, length: usize, too_long: TooLong, pad: u32) -> Result<Self> {
        let sequences = Sequences::new(documents, length, too_long, pad)?;
        let lengths = (0..sequences.count()).map(|example| sequences.length_of(example));
        let longest = lengths.max().unwrap_or(0);
        Ok(Self { sequences, longest })
    }

    /// Makes `end` the target of a document's last token.
    pub fn predict_end(mut self, end: u32) -> Self {
        self.sequences.end = end;
        self
    }
}

impl Examples for PaddedDocuments {
    fn count(&self) -> usize {
        self.sequences.count()
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn tokens_of(&self, example: usize) -> usize {
        self.sequences.length_of(example)
    }

    fn batch_of(&self, examples: &[usize]) -> Batch {
        let lengths = examples.iter().map(|&example| self.sequences.length_of(example));
        let length = lengths.max().unwrap_or(0);
        Batch::build(examples.len(), length, self.sequences.pad, |row, inputs, targets| {
            self.sequences.write(examples[row], inputs, targets)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::testing::{assert_batches, assert_epochs, assert_in_order, documents};
    use crate::batches::{Batches, IGNORED as I, Shuffled};

    fn all(documents: &Documents) -> Vec<Vec<u32>> {
        let read = |document| {
            let mut ids = vec![0; documents.length_of(document)];
            documents.read(document, 0, &mut ids);
            ids
        };
        (0..documents.count()).map(read).collect()
    }

    #[test]
    fn documents_are_found_in_a_text_and_joined_to_one() {
        let text = vec![9, 1, 2, 9, 9, 3, 9, 4, 5];
        let documents = Documents::from_text(text.into(), 9);
        assert_eq!(all(&documents), [vec![1, 2], vec![3], vec![4, 5]]);
        let joined = documents.joined(9);
        assert_eq!(joined.to_vec(0..joined.len()), [1, 2, 9, 3, 9, 4, 5, 9]);
        assert_eq!(all(&Documents::from_text(joined, 9)), all(&documents));
        assert_eq!(Documents::from_text(vec![9, 9].into(), 9).count(), 0);
        assert_eq!(Documents::from_text(vec![].into(), 9).count(), 0);
        // More than is read at once, with documents across the seams.
        let long: Vec<u32> = (0..200_000).map(|i| i % 1000).collect();
        let documents = Documents::from_text(long.into(), 999);
        assert_eq!(documents.count(), 200);
        assert!(all(&documents).iter().all(|document| document.iter().copied().eq(0..999)));
    }

    #[test]
    fn another_order_has_the_same_documents() {
        let documents = documents(40, 9);
        let shuffled = documents.shuffled(1);
        assert_ne!(all(&shuffled), all(&documents));
        assert_ne!(all(&shuffled), all(&documents.shuffled(2)));
        let (mut a, mut b) = (all(&shuffled), all(&documents));
        a.sort();
        b.sort();
        assert_eq!(a, b);
    }

    #[test]
    fn rows_are_padded_to_the_longest_of_them() {
        let documents: Documents = [vec![1, 2, 3], vec![4], vec![5, 6]].into_iter().collect();
        let padded = PaddedDocuments::new(&documents, 8, TooLong::Cut, 0).unwrap();
        assert_eq!((padded.count(), padded.longest(), padded.tokens_of(2)), (3, 3, 2));
        let batch = padded.batch_of(&[0, 1, 2]);
        assert_eq!(batch.inputs, [1, 2, 3, 4, 0, 0, 5, 6, 0]);
        assert_eq!(batch.targets, [2, 3, I, I, I, I, 6, I, I]);
        assert_eq!(batch.lengths, Some(vec![3, 1, 2]));
        let padded = padded.predict_end(99);
        assert_eq!(padded.batch_of(&[0, 2]).targets, [2, 3, 99, 6, 99, I]);
        let short = padded.batch_of(&[2, 1]);
        assert_eq!((short.length, short.inputs), (2, vec![5, 6, 4, 0]));
        assert_eq!(padded.batch_of(&[2]).lengths, None);
    }

    #[test]
    fn long_documents_are_cut_or_split() {
        let documents: Documents = [vec![1, 2, 3, 4, 5, 6, 7], vec![8, 9, 10]].iter().collect();
        let rows = |too_long| {
            let padded = PaddedDocuments::new(&documents, 3, too_long, 0).unwrap().predict_end(99);
            let rows = assert_in_order(&padded);
            rows.into_iter().map(|row| (row.inputs, row.targets)).collect::<Vec<_>>()
        };
        let cut = (vec![1, 2, 3], vec![2, 3, 4]);
        let whole = (vec![8, 9, 10], vec![9, 10, 99]);
        assert_eq!(rows(TooLong::Cut), [cut.clone(), whole.clone()]);
        let second = (vec![4, 5, 6], vec![5, 6, 7]);
        assert_eq!(rows(TooLong::Split), [cut, second, (vec![7], vec![99]), whole]);
    }

    #[test]
    fn batches_depend_on_seed_step_and_row_alone() {
        let documents = documents(300, 20);
        for too_long in [TooLong::Cut, TooLong::Split] {
            let padded = PaddedDocuments::new(&documents, 12, too_long, 0).unwrap();
            assert_batches(|seed| Shuffled::new(&padded, 6, seed));
            assert_batches(|seed| Shuffled::new(&padded, 6, seed).grouped_by_length(5));
            assert_batches(|seed| Shuffled::new(&padded, 1, seed));
        }
    }

    #[test]
    fn an_epoch_has_every_document_once() {
        for count in [1, 2, 31] {
            let padded = PaddedDocuments::new(&documents(count, 9), 9, TooLong::Cut, 0).unwrap();
            assert_eq!(assert_in_order(&padded).len(), count);
            for rows in [1, 4, 31, 40] {
                assert_epochs(&Shuffled::new(&padded, rows, 3));
                assert_epochs(&Shuffled::new(&padded, rows, 3).grouped_by_length(2));
            }
        }
    }

    #[test]
    fn one_token_is_a_document() {
        let documents: Documents = [[7]].into_iter().collect();
        let padded = PaddedDocuments::new(&documents, 4, TooLong::Split, 0).unwrap();
        let batch = Shuffled::new(&padded, 3, 1).batch(5);
        assert_eq!((batch.length, batch.inputs, batch.targets), (1, vec![7; 3], vec![I; 3]));
        let batch = Shuffled::new(padded.predict_end(9), 1, 1).batch(5);
        assert_eq!(batch, Batch::new(1, 1, vec![7], vec![9]));
    }

    #[test]
    fn empty_lists_and_documents_are_named() {
        let error = |list: &[&[u32]]| {
            let documents: Documents = list.iter().collect();
            PaddedDocuments::new(&documents, 4, TooLong::Cut, 0).unwrap_err().to_string()
        };
        let empty = error(&[]);
        assert!(empty.starts_with("the list of documents is empty\nhint: "), "{empty}");
        let empty = error(&[&[1], &[], &[2]]);
        assert!(empty.starts_with("document 2 of 3 has no tokens\nhint: "), "{empty}");
    }
}
