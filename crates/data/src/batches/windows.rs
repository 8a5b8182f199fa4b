//! Windows of a text for next-token prediction: T inputs, and the ids that follow each of them.

use super::{Batch, Batches, Examples, key};
use crate::corpus::Ids;
use crate::error::{self, Result};
use hearken_tensor::rng::Rng;
use std::ops::Range;

const POSITION_SITE: u64 = 0x706f_7369_7469_6f6e; // "position"

/// Training batches of windows that begin anywhere, independent of each other (nanoGPT's way).
#[derive(Clone, Debug)]
pub struct RandomWindows {
    ids: Ids,
    rows: usize,
    length: usize,
    seed: u64,
}

impl RandomWindows {
    /// Batches of `rows` windows of `length` + 1 ids.
    pub fn new(ids: Ids, rows: usize, length: usize, seed: u64) -> Result<Self> {
        check_length(&ids, length)?;
        Ok(Self { ids, rows, length, seed })
    }
}

impl Batches for RandomWindows {
    fn rows(&self) -> usize {
        self.rows
    }

    fn length(&self) -> usize {
        self.length
    }

    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch {
        let starts = self.ids.len() - self.length;
        Batch::build(rows.len(), self.length, 0, |row, inputs, targets| {
            // Row r has the r-th draw of the step.
            let draw = (rows.start + row) as u64;
            let start = Rng::at(key(self.seed, step, POSITION_SITE), draw).below(starts);
            self.ids.read(start, inputs);
            self.ids.read(start + 1, targets);
            inputs.len()
        })
    }
}

/// Training batches whose rows go on from step to step: the text is cut into as many parts as there
/// are rows, and each row reads its part from beginning to end, then again. For models that carry a
/// state along.
#[derive(Clone, Debug)]
pub struct ConsecutiveWindows {
    ids: Ids,
    rows: usize,
    length: usize,
    /// Windows in a part.
    windows: usize,
}

impl ConsecutiveWindows {
    /// Batches of `rows` windows of `length` + 1 ids. What is left over at the end of the text is
    /// left out.
    pub fn new(ids: Ids, rows: usize, length: usize) -> Result<Self> {
        assert!(length > 0 && rows > 0, "{rows} windows of {length} tokens");
        let windows = ids.len().saturating_sub(1) / rows / length;
        if windows == 0 {
            let (have, need) = (ids.len(), rows.saturating_mul(length).saturating_add(1));
            return Err(error::too_short_for_rows(have, need, rows));
        }
        Ok(Self { ids, rows, length, windows })
    }

    /// Which window of its part a row reads.
    fn window(&self, step: u64) -> usize {
        (step % self.windows as u64) as usize
    }
}

impl Batches for ConsecutiveWindows {
    fn rows(&self) -> usize {
        self.rows
    }

    fn length(&self) -> usize {
        self.length
    }

    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch {
        let window = self.window(step);
        Batch::build(rows.len(), self.length, 0, |row, inputs, targets| {
            let start = ((rows.start + row) * self.windows + window) * self.length;
            self.ids.read(start, inputs);
            self.ids.read(start + 1, targets);
            inputs.len()
        })
    }

    fn epoch(&self) -> Option<u64> {
        Some((self.rows * self.windows) as u64)
    }

    fn continues(&self, step: u64) -> bool {
        self.window(step) > 0
    }
}

/// The windows of a text that begin every `stride` ids, as examples.
#[derive(Clone, Debug)]
pub struct Windows {
    ids: Ids,
    length: usize,
    stride: usize,
    count: usize,
}

impl Windows {
    /// For training: the ⌊(ids − 1) / `length`⌋ windows that do not overlap. What is left at the
    /// end is left out, so that every row is full.
    pub fn full(ids: Ids, length: usize) -> Result<Self> {
        check_length(&ids, length)?;
        let count = (ids.len() - 1) / length;
        Ok(Self { ids, length, stride: length, count })
    }

    /// For evaluation: every id but the first is a target exactly once. The last window may be
    /// shorter.
    ///
    /// With `stride` = `length` windows do not overlap: the first target of a window is predicted
    /// from one id, the last from T. With a smaller stride they overlap, and only the targets
    /// that no earlier window had count (the last `stride` of them), so that each is predicted
    /// from at least T − `stride` ids: a lower loss for T/`stride` times the work. Panics unless
    /// 0 < `stride` ≤ `length`.
    pub fn sliding(ids: Ids, length: usize, stride: usize) -> Result<Self> {
        assert!(0 < stride && stride <= length, "a stride of {stride} in windows of {length}");
        if ids.len() < 2 {
            let (have, need) = (ids.len(), 2);
            return Err(error::too_short("the validation text", have, need));
        }
        let count = 1 + (ids.len() - 1).saturating_sub(length).div_ceil(stride);
        Ok(Self { ids, length, stride, count })
    }

    /// How many targets count in all.
    pub fn targets(&self) -> usize {
        (self.ids.len() - 1).min((self.count - 1) * self.stride + self.length)
    }
}

impl Examples for Windows {
    fn count(&self) -> usize {
        self.count
    }

    fn longest(&self) -> usize {
        self.length
    }

    fn tokens_of(&self, example: usize) -> usize {
        self.length.min(self.ids.len() - 1 - example * self.stride)
    }

    fn batch_of(&self, examples: &[usize]) -> Batch {
        Batch::build(examples.len(), self.length, 0, |row, inputs, targets| {
            let (start, length) = (examples[row] * self.stride, self.tokens_of(examples[row]));
            self.ids.read(start, &mut inputs[..length]);
            // What the window before this one had is known already.
            let seen = if start == 0 { 0 } else { self.length - self.stride };
            self.ids.read(start + 1 + seen, &mut targets[seen..length]);
            length
        })
    }
}

fn check_length(ids: &Ids, length: usize) -> Result<()> {
    assert!(length > 0, "a window of 0 tokens");
    if ids.len() <= length {
        let (have, need) = (ids.len(), length + 1);
        return Err(error::too_short("the training text", have, need));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::testing::{assert_batches, assert_epochs, assert_in_order};
    use crate::batches::{IGNORED, InOrder, Shuffled};

    fn counting(n: u32) -> Ids {
        (0..n).collect::<Vec<_>>().into()
    }

    #[test]
    fn batches_depend_on_seed_step_and_row_alone() {
        assert_batches(|seed| RandomWindows::new(counting(1000), 12, 5, seed).unwrap());
        assert_batches(|seed| Shuffled::new(Windows::full(counting(500), 4).unwrap(), 12, seed));
        assert_batches(|seed| RandomWindows::new(counting(90), 1, 7, seed).unwrap());
    }

    #[test]
    fn a_target_is_the_id_after_its_input() {
        let random = RandomWindows::new(counting(1000), 8, 5, 1).unwrap();
        let shuffled = Shuffled::new(Windows::full(counting(500), 5).unwrap(), 8, 1);
        for batch in [random.batch(7), shuffled.batch(7)] {
            assert_eq!((batch.counted(), &batch.lengths), (40, &None));
            assert!(batch.inputs.chunks(5).all(|row| row.windows(2).all(|w| w[1] == w[0] + 1)));
            let following: Vec<u32> = batch.inputs.iter().map(|id| id + 1).collect();
            assert_eq!(batch.targets, following);
        }
    }

    #[test]
    fn every_start_is_as_likely_and_the_last_is_reached() {
        // 6 starts, 12,000 draws: 2,000 each, standard deviation √(12000·5/36) = 41; 5 of them.
        let windows = RandomWindows::new(counting(10), 12_000, 4, 3).unwrap();
        let mut counts = [0_i32; 6];
        windows.batch(0).inputs.chunks(4).for_each(|row| counts[row[0] as usize] += 1);
        assert!(counts.iter().all(|&count| (count - 2000).abs() < 205), "{counts:?}");
    }

    #[test]
    fn an_epoch_has_every_window_once() {
        let windows = Windows::full(counting(102), 4).unwrap();
        assert_eq!((windows.count(), windows.targets()), (25, 100));
        for rows in [1, 5, 7, 60] {
            assert_epochs(&Shuffled::new(&windows, rows, 2));
        }
    }

    /// Runs that exist must see the same text when they are resumed.
    #[test]
    fn the_order_is_what_it_was() {
        let shuffled = Shuffled::new(Windows::full(counting(41), 4).unwrap(), 5, 3);
        let starts: Vec<u32> =
            (0..4).flat_map(|step| shuffled.batch(step).inputs).step_by(4).map(|i| i / 4).collect();
        assert_eq!(starts, [4, 5, 6, 7, 9, 0, 8, 3, 2, 1, 4, 3, 5, 1, 2, 7, 8, 9, 6, 0]);
        let random = RandomWindows::new(counting(1000), 5, 4, 3).unwrap();
        let starts: Vec<u32> = random.batch(9).inputs.into_iter().step_by(4).collect();
        assert_eq!(starts, [92, 10, 130, 521, 80]);
    }

    #[test]
    fn every_target_counts_once_with_the_context_that_was_promised() {
        for (n, rows, length, stride) in
            [(2, 1, 4, 4), (21, 2, 4, 4), (22, 3, 4, 4), (20, 2, 6, 2), (23, 4, 6, 5), (5, 2, 9, 3)]
        {
            let windows = Windows::sliding(counting(n), length, stride).unwrap();
            assert_in_order(&windows);
            assert_eq!(windows.targets(), n as usize - 1);
            let mut seen = Vec::new();
            for batch in InOrder::new(&windows, rows) {
                let pairs = batch.inputs.iter().zip(&batch.targets).enumerate();
                for (at, (&input, &target)) in pairs.filter(|(_, (_, t))| **t != IGNORED) {
                    assert_eq!(target, input + 1);
                    let context = at % length + 1;
                    assert!(context == target as usize || context > length - stride, "{target}");
                    seen.push(target);
                }
            }
            assert_eq!(seen, (1..n).collect::<Vec<_>>(), "{n} {length} {stride}");
        }
    }

    #[test]
    fn consecutive_rows_go_on_where_they_ended() {
        let windows = ConsecutiveWindows::new(counting(100), 3, 5).unwrap(); // 99 / 3 / 5 = 6
        assert_eq!(windows.epoch(), Some(18));
        for step in 0..14 {
            let batch = windows.batch(step);
            assert_eq!(windows.continues(step), step % 6 != 0);
            assert_eq!(batch, windows.batch(step + 6), "the next epoch");
            let following: Vec<u32> = batch.inputs.iter().map(|id| id + 1).collect();
            assert_eq!(batch.targets, following);
            let starts: Vec<u32> = batch.inputs.iter().copied().step_by(5).collect();
            let first = 5 * (step as u32 % 6);
            assert_eq!(starts, [first, first + 30, first + 60]);
            assert_eq!(windows.rows_of(step, 1..2).inputs, batch.inputs[5..10]);
        }
        let error = ConsecutiveWindows::new(counting(15), 3, 5).unwrap_err().to_string();
        assert!(error.contains("15 tokens") && error.contains("3 rows"), "{error}");
        ConsecutiveWindows::new(counting(16), 3, 5).unwrap().batch(0);
    }

    #[test]
    fn text_that_is_too_short_says_so() {
        let error = RandomWindows::new(counting(64), 1, 64, 0).unwrap_err().to_string();
        assert!(
            error.contains("the training text has 64 tokens, and one window takes 65\nhint: "),
            "{error}"
        );
        assert!(Windows::full(counting(64), 64).is_err());
        let error = Windows::sliding(counting(1), 64, 64).unwrap_err().to_string();
        assert!(error.contains("the validation text has 1 tokens"), "{error}");
        RandomWindows::new(counting(65), 1, 64, 0).unwrap().batch(0);
        Shuffled::new(Windows::full(counting(65), 64).unwrap(), 1, 0).batch(0);
    }
}
