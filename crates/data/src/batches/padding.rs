//! Rows of different length in one batch (A5): padded with their lengths, packed, or as pairs of
//! source and target.

use super::Batch;

/// Rows filled up to the longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padded {
    /// B.
    pub rows: usize,
    /// The longest row.
    pub length: usize,
    /// (B, length).
    pub ids: Vec<u32>,
    /// How much of each row is not padding: (B).
    pub lengths: Vec<usize>,
}

/// Fills rows up to the longest with `pad`.
pub fn pad<R: AsRef<[u32]>>(sequences: &[R], pad: u32) -> Padded {
    let lengths: Vec<usize> = sequences.iter().map(|row| row.as_ref().len()).collect();
    let length = lengths.iter().copied().max().unwrap_or(0);
    let mut ids = Vec::with_capacity(sequences.len() * length);
    for row in sequences {
        let end = ids.len() + length;
        ids.extend_from_slice(row.as_ref());
        ids.resize(end, pad);
    }
    Padded { rows: sequences.len(), length, ids, lengths }
}

impl Padded {
    /// Where there is a token and not padding: (B, length).
    pub fn mask(&self) -> Vec<bool> {
        self.lengths.iter().flat_map(|&n| (0..self.length).map(move |at| at < n)).collect()
    }

    /// Next-token prediction: inputs without the last token, targets without the first, padding
    /// ignored.
    pub fn shifted(&self) -> Batch {
        let length = self.length.saturating_sub(1).max(1);
        Batch::build(self.rows, length, 0, |row, inputs, targets| {
            let ids = &self.ids[row * self.length..][..self.length];
            let count = ids.len().min(length);
            inputs[..count].copy_from_slice(&ids[..count]);
            let n = self.lengths[row].saturating_sub(1);
            targets[..n].copy_from_slice(ids.get(1..=n).unwrap_or_default());
            length
        })
    }
}

/// Source sequences and the targets that a decoder learns, with the right answer so far as its
/// input (teacher forcing).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs {
    /// (B, S).
    pub source: Padded,
    /// (B, T): the decoder sees `begin y₁ … yₙ` and answers `y₁ … yₙ end`.
    pub target: Batch,
    /// How much of each target row counts: n + 1 each.
    pub target_lengths: Vec<usize>,
}

/// Makes a batch of source and target pairs.
pub fn teacher_forced<R: AsRef<[u32]>>(
    pairs: &[(R, R)],
    begin: u32,
    end: u32,
    pad_id: u32,
) -> Pairs {
    let sources: Vec<&[u32]> = pairs.iter().map(|(source, _)| source.as_ref()).collect();
    let target_lengths: Vec<usize> =
        pairs.iter().map(|(_, target)| target.as_ref().len() + 1).collect();
    let length = target_lengths.iter().copied().max().unwrap_or(1);
    let target = Batch::build(pairs.len(), length, 0, |row, inputs, targets| {
        let answer = pairs[row].1.as_ref();
        let n = answer.len();
        inputs.fill(pad_id);
        inputs[0] = begin;
        inputs[1..=n].copy_from_slice(answer);
        targets[..n].copy_from_slice(answer);
        targets[n] = end;
        length
    });
    Pairs { source: pad(&sources, pad_id), target, target_lengths }
}

/// Documents one after the other, each followed by `separator`: one stream, to be cut into
/// windows anywhere.
pub fn joined<D: AsRef<[u32]>>(documents: &[D], separator: u32) -> Vec<u32> {
    let total = documents.iter().map(|document| document.as_ref().len() + 1).sum();
    let mut ids = Vec::with_capacity(total);
    for document in documents {
        ids.extend_from_slice(document.as_ref());
        ids.push(separator);
    }
    ids
}

/// Whole documents side by side in rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Inputs and targets; no target lies in another document than its input.
    pub batch: Batch,
    /// (B, T): which document of its row a token is of, from 1; 0 is padding. Attention within
    /// equal numbers keeps documents apart.
    pub segments: Vec<u32>,
    /// (B, T): the place in its document.
    pub positions: Vec<u32>,
}

/// Packs whole documents, each followed by `separator`, into rows of `length` inputs, in order:
/// a document that does not fit begins a row, and the rest of the row before is padding. One that
/// is longer than a row is cut to it.
pub fn packed<D: AsRef<[u32]>>(
    documents: &[D],
    length: usize,
    separator: u32,
    pad_id: u32,
) -> Packed {
    assert!(length > 0, "rows of 0 tokens");
    // A document of n tokens takes n inputs: the last one predicts the separator.
    let mut rows: Vec<Vec<usize>> = Vec::new();
    let mut free = 0;
    for (index, document) in documents.iter().enumerate() {
        let n = document.as_ref().len().min(length);
        if n == 0 {
            continue;
        }
        if n > free || rows.is_empty() {
            rows.push(Vec::new());
            free = length;
        }
        if let Some(row) = rows.last_mut() {
            row.push(index);
        }
        free -= n;
    }
    let mut segments = vec![0; rows.len() * length]; // (B, T)
    let mut positions = vec![0; rows.len() * length]; // (B, T)
    let batch = Batch::build(rows.len(), length, 0, |row, inputs, targets| {
        inputs.fill(pad_id);
        let mut at = 0;
        for (number, &index) in (1..).zip(&rows[row]) {
            let document = documents[index].as_ref();
            let n = document.len().min(length);
            inputs[at..at + n].copy_from_slice(&document[..n]);
            let following = document[1..].iter().copied().chain([separator]);
            targets[at..at + n].iter_mut().zip(following).for_each(|(t, id)| *t = id);
            segments[row * length + at..][..n].fill(number);
            positions[row * length + at..][..n].iter_mut().zip(0..).for_each(|(p, i)| *p = i);
            at += n;
        }
        length
    });
    Packed { batch, segments, positions }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::IGNORED as I;

    #[test]
    fn padding_is_masked_and_never_a_target() {
        let padded = pad(&[vec![1, 2, 3], vec![4], vec![], vec![5, 6]], 0);
        assert_eq!((padded.rows, padded.length), (4, 3));
        assert_eq!(padded.ids, [1, 2, 3, 4, 0, 0, 0, 0, 0, 5, 6, 0]);
        assert_eq!(padded.lengths, [3, 1, 0, 2]);
        let mask: Vec<u8> = padded.mask().into_iter().map(u8::from).collect();
        assert_eq!(mask, [1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0]);
        let batch = padded.shifted();
        assert_eq!(batch.inputs, [1, 2, 4, 0, 0, 0, 5, 6]);
        assert_eq!(batch.targets, [2, 3, I, I, I, I, 6, I]);
        assert!(pad::<Vec<u32>>(&[], 0).ids.is_empty());
        assert_eq!(pad(&[vec![], Vec::<u32>::new()], 0).shifted().counted(), 0);
    }

    #[test]
    fn a_decoder_sees_the_answer_one_step_late() {
        let pairs = teacher_forced(&[(vec![7, 8], vec![1, 2, 3]), (vec![9], vec![])], 100, 101, 0);
        assert_eq!(pairs.source.ids, [7, 8, 9, 0]);
        assert_eq!(pairs.target.inputs, [100, 1, 2, 3, 100, 0, 0, 0]);
        assert_eq!(pairs.target.targets, [1, 2, 3, 101, 101, I, I, I]);
        assert_eq!(pairs.target_lengths, [4, 1]);
    }

    #[test]
    fn packed_documents_stay_whole_and_apart() {
        let documents = [vec![1, 2], vec![3, 4, 5], vec![6], vec![], vec![7, 8, 9, 10, 11, 12]];
        assert_eq!(joined(&documents[..3], 99), [1, 2, 99, 3, 4, 5, 99, 6, 99]);
        let packed = packed(&documents, 5, 99, 0);
        assert_eq!(packed.batch.inputs, [1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 7, 8, 9, 10, 11]);
        assert_eq!(packed.batch.targets, [2, 99, 4, 5, 99, 99, I, I, I, I, 8, 9, 10, 11, 12]);
        assert_eq!(packed.segments, [1, 1, 2, 2, 2, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
        assert_eq!(packed.positions, [0, 1, 0, 1, 2, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
    }
}
