//! Model files, in and out.
//!
//! - [`safetensors`]: named tensors in one file.
//! - [`family`]: which well-known architecture a configuration is, and how that one names and
//!   lays out its parameters.
//! - [`directory`]: a whole model directory as Hugging Face's `transformers` reads and writes it.

pub mod directory;
mod error;
pub mod family;
pub mod safetensors;

pub use directory::{load, save};
pub use error::FormatError;
pub use family::Family;
