//! What one training or evaluation step receives.
//!
//! Inputs and targets are always there. The other parts are present only where rows need them:
//! lengths where a row is padded, [`Packing`] where a row holds several documents, [`Source`]
//! where a model reads one sequence and writes another, types where a row holds two sentences,
//! and [`Labels`] where a row has an answer that is not a token.

/// A target that does not count.
pub const IGNORED: u32 = u32::MAX;

/// Inputs and targets of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// B.
    pub rows: usize,
    /// T.
    pub length: usize,
    /// (B, T).
    pub inputs: Vec<u32>,
    /// (B, T): what the model should answer at each input, or [`IGNORED`].
    pub targets: Vec<u32>,
    /// (B): the tokens of each row; what follows them is padding. `None` if no row is padded.
    pub lengths: Option<Vec<usize>>,
    /// Which tokens are of the same document. `None` if every row holds one sequence.
    pub packing: Option<Packing>,
    /// What the encoder reads. `None` if there is no encoder.
    pub source: Option<Source>,
    /// (B, T): which sentence of its row a token is of, 0 or 1. `None` if rows have one sentence.
    pub types: Option<Vec<u32>>,
    /// The answer of each row, where it is not a token.
    pub labels: Option<Labels>,
}

/// An answer per row. Labels of single tokens are [`Batch::targets`].
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// (B): one class each.
    Classes(Vec<u32>),
    /// (B, N): any number of N classes each.
    Several(Vec<bool>),
    /// (B, 2): the first and the last token of an answer.
    Spans(Vec<[u32; 2]>),
    /// (B, N)
    Numbers(Vec<f32>),
}

/// Several documents in one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// (B, T): the number of the document within its row, from 1; 0 is padding. Attention between
    /// equal numbers keeps documents apart.
    pub segments: Vec<u32>,
    /// (B, T): the position within the document, from 0.
    pub positions: Vec<u32>,
}

/// Sequences that an encoder reads, one per row of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// S, the longest.
    pub length: usize,
    /// (B, S).
    pub ids: Vec<u32>,
    /// (B): the tokens of each row; what follows them is padding.
    pub lengths: Vec<usize>,
}

impl Batch {
    /// Rows without padding, one sequence each. Panics unless `inputs` and `targets` are
    /// (`rows`, `length`).
    pub fn new(rows: usize, length: usize, inputs: Vec<u32>, targets: Vec<u32>) -> Self {
        assert!(
            inputs.len() == rows * length && targets.len() == rows * length,
            "{} inputs and {} targets are not ({rows}, {length})",
            inputs.len(),
            targets.len()
        );
        Self {
            rows,
            length,
            inputs,
            targets,
            lengths: None,
            packing: None,
            source: None,
            types: None,
            labels: None,
        }
    }

    /// How many targets count.
    pub fn counted(&self) -> usize {
        self.targets.iter().filter(|&&target| target != IGNORED).count()
    }

    /// How many tokens of a row are not padding.
    pub fn length_of(&self, row: usize) -> usize {
        self.lengths.as_ref().map_or(self.length, |lengths| lengths[row])
    }

    /// A batch whose rows are written one by one: `write(row, inputs, targets)` returns how many
    /// tokens the row has. What it does not write is padding, with no target.
    pub(crate) fn build(
        rows: usize,
        length: usize,
        pad: u32,
        mut write: impl FnMut(usize, &mut [u32], &mut [u32]) -> usize,
    ) -> Self {
        let mut inputs = vec![pad; rows * length]; // (B, T)
        let mut targets = vec![IGNORED; rows * length]; // (B, T)
        let each = length.max(1);
        let parts = inputs.chunks_exact_mut(each).zip(targets.chunks_exact_mut(each));
        let lengths: Vec<usize> =
            parts.enumerate().map(|(row, (inputs, targets))| write(row, inputs, targets)).collect();
        let padded = lengths.iter().any(|&tokens| tokens < length);
        let lengths = padded.then_some(lengths); // (B)
        Self { lengths, ..Self::new(rows, length, inputs, targets) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_given_only_where_a_row_is_padded() {
        let batch = |tokens: [usize; 2]| {
            Batch::build(2, 3, 9, |row, inputs, targets| {
                inputs[..tokens[row]].fill(1);
                targets[..tokens[row]].fill(2);
                tokens[row]
            })
        };
        assert_eq!(batch([3, 3]), Batch::new(2, 3, vec![1; 6], vec![2; 6]));
        let padded = batch([3, 1]);
        assert_eq!(padded.inputs, [1, 1, 1, 1, 9, 9]);
        assert_eq!(padded.targets, [2, 2, 2, 2, IGNORED, IGNORED]);
        assert_eq!((padded.lengths.as_deref(), padded.counted()), (Some(&[3, 1][..]), 4));
        assert_eq!([padded.length_of(0), padded.length_of(1)], [3, 1]);
        assert_eq!(Batch::build(0, 3, 0, |_, _, _| 0).rows, 0);
        assert_eq!(Batch::build(0, 0, 0, |_, _, _| 0).counted(), 0);
    }

    #[test]
    #[should_panic(expected = "5 inputs and 6 targets are not (2, 3)")]
    fn the_shape_must_fit() {
        let _ = Batch::new(2, 3, vec![0; 5], vec![0; 6]);
    }
}
