//! Encoders: guess hidden words, label texts and words, answer questions, predict numbers, embed.
//!
//! - [`Purpose`]: what a model learns, by its head.
//! - [`EncoderData`]: from files or generated stories to batches and a part that is held out.
//! - `Objective`, one per purpose: the loss of a batch, and how answers are judged.
//! - [`EncoderTask`]: both as a task that can be trained.
//! - [`evaluate`]: the measures of a model on any data; [`calibrated`]: is a classifier as often right
//!   as it is sure?

mod classes;
mod confidence;
mod data;
mod encoding;
mod masks;
mod numbers;
mod objective;
mod pairs;
mod spans;
mod tags;
mod task;

pub use crate::held_out::HoldOut;
pub use confidence::calibrated;
pub use data::{EncoderData, Held};
pub use encoding::Purpose;
pub(crate) use objective::{shortened, table};
pub use task::{EncoderTask, Evaluated, evaluate};
