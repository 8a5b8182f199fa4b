//! What models are trained for.
//!
//! - [`config`]: the configuration of a run, `[model]`, `[data]` and `[train]` of one file.
//! - [`data`]: from what a configuration names to tokens, batches and a validation set.
//! - [`metrics`]: how good answers are, by the usual measures.
//! - [`next_token`]: language models that predict the next token.
//! - [`open`]: a model directory or run, found, verified, loaded and joined with its tokenizer.
//!
//! A task implements [`hearken_train::Task`]: it says which examples there are and what the loss is.

pub mod config;
pub mod data;
pub mod metrics;
pub mod next_token;
mod observe;
pub mod open;

pub use config::{DataConfig, RunConfig};
pub use data::TextData;
pub use next_token::NextToken;
pub use open::OpenModel;
