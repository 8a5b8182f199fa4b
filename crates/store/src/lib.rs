//! Files on disk, read with an eye on what they claim.
//!
//! - [`TensorFile`] and [`Writer`]: named tensors in one file ([safetensors]), read and written piece
//!   by piece, so that no file is ever in memory as a whole.
//! - [`write_npy`]: one array, as NumPy writes it.
//! - [`disk`]: changes to the disk, which tests can let fail.
//! - [`files`]: regular files, text of bounded size, and leftovers of killed processes.
//!
//! [safetensors]: https://huggingface.co/docs/safetensors

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod disk;
pub mod files;
mod header;
mod npy;
mod reader;
mod writer;

pub use header::Entry;
pub use npy::write_npy;
pub use reader::TensorFile;
pub use writer::{Writer, write};

#[cfg(test)]
mod tests;
