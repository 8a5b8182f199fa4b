//! What models are trained for.
//!
//! - [`config`]: the configuration of a run, `[model]`, `[data]` and `[train]` of one file.
//! - [`data`]: from what a configuration names to tokens, batches and a validation set.
//! - [`next_token`]: language models that predict the next token.
//! - [`rehearsal`]: a task on tokens that mean nothing, for what a configuration costs and how fast it is.
//! - [`open`]: a model directory or run, found, verified, loaded and joined with its tokenizer.
//!
//! A task implements [`hearken_train::Task`]: it says which examples there are and what the loss is.

pub mod config;
pub mod data;
pub mod next_token;
mod observe;
pub mod open;
pub mod rehearsal;

pub use config::{DataConfig, RunConfig};
pub use data::TextData;
pub use next_token::NextToken;
pub use open::OpenModel;
