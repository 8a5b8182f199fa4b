//! Sequence to sequence: read one text, write another.
//!
//! - [`PairData`]: from files, plain text or generated pairs to batches and a part that is held out.
//! - [`Seq2Seq`]: an encoder-decoder with its data, as a task that can be trained.
//! - [`judge`]: the measures of a model on any pairs.
//!
//! The decoder learns with the right answer so far as its input (teacher forcing): the loss is the
//! sum of −ln p(yₜ | source, y₁ … yₜ₋₁) over the tokens of all targets, their ends included. An
//! evaluation also lets the model write by itself, one token after the other (greedily), and
//! compares the texts with the references.

mod data;
mod judge;
mod sides;
mod task;

pub(crate) use data::framed;
pub use data::{HeldPairs, PairData};
pub use judge::{Judged, judge};
pub use task::Seq2Seq;
