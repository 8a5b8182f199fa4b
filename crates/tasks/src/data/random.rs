//! Random tokens, for what depends on sizes alone.

use super::evaluation_rows;
use hearken_data::batches::{Batch, Batches, Examples};
use hearken_tensor::rng::Rng;
use std::ops::Range;
use std::sync::Arc;

/// The same batch of random tokens in every step.
pub(super) struct RandomTokens {
    rows: usize,
    length: usize,
    inputs: Vec<u32>,
    targets: Vec<u32>,
}

impl RandomTokens {
    pub(super) fn new(rows: usize, length: usize, vocabulary: usize) -> Self {
        let mut rng = Rng::new(1);
        let mut draw = || (0..rows * length).map(|_| rng.below(vocabulary) as u32).collect();
        let (inputs, targets) = (draw(), draw());
        Self { rows, length, inputs, targets }
    }
}

/// For training.
pub(super) struct Training(pub(super) Arc<RandomTokens>);

impl Batches for Training {
    fn rows(&self) -> usize {
        self.0.rows
    }

    fn length(&self) -> usize {
        self.0.length
    }

    fn rows_of(&self, _step: u64, rows: Range<usize>) -> Batch {
        let at = rows.start * self.0.length..rows.end * self.0.length;
        let [inputs, targets] =
            [&self.0.inputs, &self.0.targets].map(|ids| ids[at.clone()].to_vec());
        Batch::new(rows.len(), self.0.length, inputs, targets)
    }
}

/// The first row again and again: a whole batch of an evaluation, and half of one, since a validation set
/// seldom ends with a whole one.
pub(super) struct HeldOut(pub(super) Arc<RandomTokens>);

impl Examples for HeldOut {
    fn count(&self) -> usize {
        let rows = evaluation_rows(self.0.length);
        rows + rows / 2
    }

    fn longest(&self) -> usize {
        self.0.length
    }

    fn tokens_of(&self, _example: usize) -> usize {
        self.0.length
    }

    fn batch_of(&self, examples: &[usize]) -> Batch {
        let (rows, length) = (examples.len(), self.0.length);
        let [inputs, targets] =
            [&self.0.inputs, &self.0.targets].map(|ids| ids[..length].repeat(rows));
        Batch::new(rows, length, inputs, targets)
    }
}
