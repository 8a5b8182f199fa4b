//! Model directories, in and out, as Hugging Face's `transformers` reads and writes them.
//!
//! - [`directory`]: loads and saves a whole directory.
//! - [`families`]: the architectures that a directory can hold, one file each: how `config.json`
//!   describes a model, and a table of the names of its tensors.
//! - [`weights`]: the files of a directory that hold tensors.
//! - [`special`]: tokens with a meaning of their own.

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod directory;
pub mod families;
mod json;
mod sentences;
pub mod special;
pub mod weights;

pub use directory::{
    Initialised, Loaded, config_of, load, load_as, load_body_into, load_into, save,
    special_tokens_of, to_theirs,
};
pub use families::Family;
pub use json::Fields;
pub use special::SpecialTokens;
