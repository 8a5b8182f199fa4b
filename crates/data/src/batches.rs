//! Which ids a training step sees.
//!
//! A batch is a function of (seed, step, row) and of nothing else: to resume a run, its step is
//! enough, and a large batch cut into micro-batches has the same rows. Rows are windows of T + 1
//! ids; the targets are the inputs, one further (A5).
//!
//! - [`RandomWindows`]: windows anywhere, independent of each other (nanoGPT's way).
//! - [`ShuffledWindows`]: windows side by side, each once per epoch, in a new order every time.
//! - [`evaluation`]: every target once, in order.
//! - [`padding`]: rows of different length; whole documents packed; source and target pairs.
//! - [`masking`]: what BERT has to guess.

pub mod evaluation;
pub mod masking;
pub mod padding;
mod permutation;

use crate::corpus::Ids;
use crate::error::{self, Result};
use hearken_tensor::rng::{Key, Rng};
use permutation::Permutation;
use std::ops::Range;

/// A target that does not count.
pub const IGNORED: u32 = u32::MAX;

/// Inputs and targets of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// B.
    pub rows: usize,
    /// T.
    pub length: usize,
    /// (B, T).
    pub inputs: Vec<u32>,
    /// (B, T): the id that follows each input, or [`IGNORED`].
    pub targets: Vec<u32>,
}

impl Batch {
    /// How many targets count.
    pub fn counted(&self) -> usize {
        self.targets.iter().filter(|&&target| target != IGNORED).count()
    }

    /// A batch whose rows are written one by one.
    fn build(
        rows: usize,
        length: usize,
        mut write: impl FnMut(usize, &mut [u32], &mut [u32]),
    ) -> Self {
        let mut inputs = vec![0; rows * length]; // (B, T)
        let mut targets = vec![IGNORED; rows * length]; // (B, T)
        let pairs = inputs.chunks_exact_mut(length).zip(targets.chunks_exact_mut(length));
        pairs.enumerate().for_each(|(row, (inputs, targets))| write(row, inputs, targets));
        Self { rows, length, inputs, targets }
    }
}

/// Where training batches come from.
pub trait Batches: Send + Sync {
    /// B, the rows of a step.
    fn rows(&self) -> usize;

    /// T.
    fn length(&self) -> usize;

    /// The given rows of a step's batch.
    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch;

    /// The whole batch of a step.
    fn batch(&self, step: u64) -> Batch {
        self.rows_of(step, 0..self.rows())
    }

    /// Part `index` of `count` equal parts of a step's batch, for gradient accumulation. Panics
    /// if the rows cannot be shared out.
    fn micro_batch(&self, step: u64, index: usize, count: usize) -> Batch {
        let rows = self.rows();
        assert!(
            count > 0 && rows.is_multiple_of(count) && index < count,
            "part {index} of {count} of {rows} rows"
        );
        let each = rows / count;
        self.rows_of(step, index * each..(index + 1) * each)
    }

    /// How many targets an epoch has, where there is such a thing.
    fn epoch(&self) -> Option<u64> {
        None
    }
}

/// What the draws of this file are for; dropout uses the sites of its layers, which are small.
const POSITION_SITE: u64 = 0x706f_7369_7469_6f6e; // "position"
const ORDER_SITE: u64 = 0x6f72_6465_7200_0000; // "order"

/// (seed, step, site) as the seed of a generator.
pub(crate) fn key(seed: u64, step: u64, site: u64) -> u64 {
    let [low, high] = Key { seed, step, site }.words();
    u64::from(high) << 32 | u64::from(low)
}

/// Windows that begin anywhere.
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
        windows(&self.ids, self.length, rows, |row| {
            // Row r has the r-th draw of the step.
            Rng::at(key(self.seed, step, POSITION_SITE), row as u64).below(starts)
        })
    }
}

/// Windows side by side, each once per epoch.
#[derive(Clone, Debug)]
pub struct ShuffledWindows {
    ids: Ids,
    rows: usize,
    length: usize,
    seed: u64,
}

impl ShuffledWindows {
    /// Batches of `rows` of the ⌊(ids − 1)/`length`⌋ windows.
    pub fn new(ids: Ids, rows: usize, length: usize, seed: u64) -> Result<Self> {
        check_length(&ids, length)?;
        Ok(Self { ids, rows, length, seed })
    }

    /// How many windows there are.
    pub fn windows(&self) -> usize {
        (self.ids.len() - 1) / self.length
    }
}

impl Batches for ShuffledWindows {
    fn rows(&self) -> usize {
        self.rows
    }

    fn length(&self) -> usize {
        self.length
    }

    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch {
        let count = self.windows() as u64;
        windows(&self.ids, self.length, rows, |row| {
            // Steps follow each other through the epochs; a batch may end one and begin the next.
            let number = step * self.rows as u64 + row as u64;
            let (epoch, place) = (number / count, number % count);
            let order = Permutation::new(count, key(self.seed, epoch, ORDER_SITE));
            order.image(place) as usize * self.length
        })
    }

    fn epoch(&self) -> Option<u64> {
        Some((self.windows() * self.length) as u64)
    }
}

fn windows(
    ids: &Ids,
    length: usize,
    rows: Range<usize>,
    start_of: impl Fn(usize) -> usize,
) -> Batch {
    Batch::build(rows.len(), length, |row, inputs, targets| {
        let start = start_of(rows.start + row);
        ids.read(start, inputs);
        ids.read(start + 1, targets);
    })
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

    fn counting(n: u32) -> Ids {
        (0..n).collect::<Vec<_>>().into()
    }

    #[test]
    fn random_windows_depend_on_seed_and_step_alone() {
        let windows = |seed| RandomWindows::new(counting(1000), 8, 5, seed).unwrap();
        let batch = windows(1).batch(7);
        assert_eq!(batch, windows(1).batch(7));
        assert_ne!(batch, windows(1).batch(8));
        assert_ne!(batch, windows(2).batch(7));
        for row in 0..8 {
            let inputs = &batch.inputs[row * 5..][..5];
            assert!(inputs.windows(2).all(|pair| pair[1] == pair[0] + 1));
            assert_eq!(
                batch.targets[row * 5..][..5],
                inputs.iter().map(|id| id + 1).collect::<Vec<_>>()
            );
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
    fn micro_batches_are_the_rows_of_the_batch() {
        let random = RandomWindows::new(counting(500), 12, 4, 9).unwrap();
        let shuffled = ShuffledWindows::new(counting(500), 12, 4, 9).unwrap();
        let sources: [&dyn Batches; 2] = [&random, &shuffled];
        for source in sources {
            let whole = source.batch(3);
            let parts: Vec<Batch> = (0..4).map(|k| source.micro_batch(3, k, 4)).collect();
            assert_eq!(
                parts.iter().flat_map(|part| part.inputs.clone()).collect::<Vec<_>>(),
                whole.inputs
            );
            assert_eq!(
                parts.iter().flat_map(|part| part.targets.clone()).collect::<Vec<_>>(),
                whole.targets
            );
        }
    }

    #[test]
    fn an_epoch_has_every_window_once() {
        let windows = ShuffledWindows::new(counting(102), 5, 4, 2).unwrap();
        assert_eq!((windows.windows(), windows.epoch()), (25, Some(100)));
        let epoch = |from: u64| -> Vec<u32> {
            (from..from + 5).flat_map(|step| windows.batch(step).inputs).collect()
        };
        let (first, second) = (epoch(0), epoch(5));
        assert_ne!(first, second);
        for mut ids in [first, second] {
            ids.sort_unstable();
            assert_eq!(ids, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn text_that_is_too_short_says_so() {
        let error = RandomWindows::new(counting(64), 1, 64, 0).unwrap_err().to_string();
        assert!(
            error.contains("the training text has 64 tokens, and one window takes 65"),
            "{error}"
        );
        RandomWindows::new(counting(65), 1, 64, 0).unwrap().batch(0);
        ShuffledWindows::new(counting(65), 1, 64, 0).unwrap().batch(0);
    }
}
