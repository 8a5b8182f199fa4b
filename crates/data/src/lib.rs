//! From text to numbers: tokenizers, corpora, batches, and a language with a known entropy.
//!
//! - [`tokenizer`]: characters, bytes, byte-level BPE, WordPiece and Unigram, trained here or
//!   loaded from Hugging Face's `tokenizer.json` or GPT-2's own files.
//! - [`corpus`]: files, directories, JSON lines and stdin become a memory-mapped file of ids.
//! - [`batches`]: which ids a training step sees, as a function of the seed and the step alone.
//! - [`labelled`]: texts with labels, tags, answers or numbers, from JSON lines, tables and folders.
//! - [`frames`]: one text or two between the special tokens of encoders, and windows of long ones.
//! - [`conversions`]: dates and numbers in words and digits, for models that read and write.
//! - [`shots`]: rows of labelled examples whose rule changes from row to row.
//! - [`repeats`]: random letters, repeated, which only induction predicts.
//! - [`stories`]: an endless supply of small stories whose entropy is computed exactly, so that
//!   a loss can be compared with the floor that no model can beat.
//!
//! Legend: `B` batch, `T` target length, `S` source length, `V` vocabulary.

pub mod batches;
pub mod conversions;
pub mod corpus;
mod digest;
mod error;
pub mod frames;
pub mod labelled;
mod progress;
pub mod repeats;
pub mod shots;
pub mod stories;
mod temporary;
pub mod tokenizer;

pub use digest::Digest;
pub use error::{Error, Result};
pub use progress::{Progress, Report, Stage, quiet};
