//! What all tasks of text share: batches as models read them, and which of them an evaluation sees.

use hearken_data::batches::{Batch, Source};
use hearken_nn::models::Tokens;
use hearken_nn::pass::Layout;
use hearken_train::Portion;

/// Tokens that one batch of an evaluation has, about: enough to keep all threads busy.
const EVALUATION_TOKENS: usize = 4096;

/// The tokens of a batch as a model reads them; without their types, if the model `knows` none.
pub(crate) fn tokens(batch: &Batch, knows_types: bool) -> Tokens<'_> {
    let layout = match (&batch.packing, &batch.lengths) {
        (Some(packing), _) => Layout::packed(&packing.segments, &packing.positions),
        (None, Some(lengths)) => Layout::padded(lengths),
        (None, None) => Layout::default(),
    };
    let types = batch.types.as_deref().filter(|_| knows_types);
    Tokens::new(&batch.inputs, batch.rows).laid_out(layout).of_types(types)
}

/// The second texts of a batch.
pub(crate) fn other_tokens(source: &Source, rows: usize) -> Tokens<'_> {
    Tokens::new(&source.ids, rows).laid_out(Layout::padded(&source.lengths))
}

/// Rows of so many tokens in a batch of an evaluation.
pub(crate) fn evaluation_rows(length: usize) -> usize {
    (EVALUATION_TOKENS / length.max(1)).max(1)
}

/// Which batches of a validation set are looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection {
    /// How many there are.
    count: usize,
    /// How many of them are the sample.
    sampled: usize,
    whole: bool,
}

impl Selection {
    /// Of `count` batches of rows of `length` tokens.
    pub(crate) fn new(portion: Portion, count: usize, length: usize) -> Self {
        let wanted = portion.sample / (evaluation_rows(length) * length).max(1) as u64;
        let sampled = match portion.sample {
            0 => count,
            _ => (count as u64).min(wanted.max(1)) as usize,
        };
        Self { count, sampled, whole: portion.whole }
    }

    /// Is a batch of the sample? As evenly spread as can be, the first among them.
    pub(crate) fn in_sample(self, i: usize) -> bool {
        i as u64 * self.sampled as u64 % (self.count as u64) < self.sampled as u64
    }

    /// The batches that are looked at.
    pub(crate) fn batches(self) -> impl Iterator<Item = usize> {
        (0..self.count).filter(move |&i| self.whole || self.in_sample(i))
    }

    /// Is everything looked at?
    pub(crate) fn is_whole(self) -> bool {
        self.whole || self.sampled == self.count
    }

    /// Is everything the sample?
    pub(crate) fn samples_all(self) -> bool {
        self.sampled == self.count
    }
}
