//! Which ids a training or evaluation step sees.
//!
//! Whatever the model learns, a step receives a [`Batch`], and training takes it from a
//! [`Batches`]: a function of (seed, step, row) and of nothing else. So a run is resumed from its
//! step alone, and a large batch cut into micro-batches has the same rows.
//!
//! [`Examples`] is a finite list. [`Shuffled`] makes training batches of it, each example once
//! per epoch; [`InOrder`] goes through it once, for evaluation.
//!
//! | a row is | type | used by |
//! |---|---|---|
//! | a window of a text that begins anywhere | [`RandomWindows`] | language models, no epochs |
//! | a window, each at its place | [`Windows`], an `Examples` | language models |
//! | a document, padded | [`PaddedDocuments`], an `Examples` | classifiers, encoders |
//! | several documents | [`PackedDocuments`], an `Examples` | language models of short texts |
//! | a source and its target | [`Pairs`], an `Examples`; [`MadePairs`] | encoder–decoders |
//! | any of these, with tokens hidden | [`Masked`], what it wraps | masked language models |
//! | windows, with spans taken out | [`Denoised`], what it wraps | pre-training of encoder–decoders |
//!
//! ```
//! use hearken_data::batches::{Batches, Documents, Frame, InOrder, Pairs, Shuffled};
//!
//! let sources: Documents = [vec![5, 6, 7], vec![8, 9]].into_iter().collect();
//! let targets: Documents = [vec![15, 16], vec![18]].into_iter().collect();
//! let pairs = Pairs::new(sources, targets, Frame { begin: 1, end: 2, pad: 0 })?;
//!
//! let training = Shuffled::new(&pairs, 4, 42).grouped_by_length(50);
//! assert_eq!(training.batch(1000).rows, 4); // any step, without those before it
//!
//! let evaluation = InOrder::new(&pairs, 2);
//! assert_eq!(evaluation.batches(), 1);
//! # Ok::<(), hearken_data::Error>(())
//! ```

mod batch;
mod documents;
mod examples;
mod in_order;
mod masking;
mod packing;
mod pairs;
mod permutation;
mod shuffled;
mod spans;
#[cfg(test)]
pub(crate) mod testing;
mod windows;

pub use batch::{Batch, IGNORED, Labels, Packing, Source};
pub use documents::{Documents, PaddedDocuments, TooLong};
pub use examples::Examples;
pub use in_order::InOrder;
pub use masking::{Masked, Masking};
pub use packing::PackedDocuments;
pub use pairs::{Frame, MadePairs, Pairs};
pub use shuffled::Shuffled;
pub use spans::{Corruption, Denoised};
pub use windows::{ConsecutiveWindows, RandomWindows, Windows};

use hearken_tensor::rng::Key;
use std::ops::Range;

/// Where training batches come from.
pub trait Batches: Send + Sync {
    /// B, the rows of a step.
    fn rows(&self) -> usize;

    /// The longest that a row can be: T.
    fn length(&self) -> usize;

    /// The given rows of a step's batch. Where rows differ in length they are padded to the
    /// longest of those asked for.
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

    /// How many rows an epoch has, where there is such a thing.
    fn epoch(&self) -> Option<u64> {
        None
    }

    /// Does every row of this step go on where the same row of the step before ended?
    fn continues(&self, step: u64) -> bool {
        let _ = step;
        false
    }
}

impl<B: Batches + ?Sized> Batches for Box<B> {
    fn rows(&self) -> usize {
        (**self).rows()
    }

    fn length(&self) -> usize {
        (**self).length()
    }

    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch {
        (**self).rows_of(step, rows)
    }

    fn epoch(&self) -> Option<u64> {
        (**self).epoch()
    }

    fn continues(&self, step: u64) -> bool {
        (**self).continues(step)
    }
}

/// (seed, step, site) as the seed of a generator. A site says what the draws are for; dropout uses
/// hashes of its layers' paths.
pub(crate) fn key(seed: u64, step: u64, site: u64) -> u64 {
    let [low, high] = Key { seed, step, site }.words();
    u64::from(high) << 32 | u64::from(low)
}
