//! What models are trained for.
//!
//! - [`config`]: the configuration of a run, `[model]`, `[data]` and `[train]` of one file.
//! - [`data`]: from what a configuration names to tokens, batches and a validation set.
//! - [`next_token`]: language models that predict the next token.
//! - [`text_run`]: a whole run on text, from a configuration to a trained model.
//! - [`open`]: a model directory or run, found, verified, loaded and joined with its tokenizer.
//! - [`mod@write`]: text from an open model.
//!
//! A task implements [`hearken_train::Task`]: it says which examples there are and what the loss is.

pub mod config;
pub mod data;
mod exhibits;
pub mod next_token;
mod observe;
pub mod open;
pub mod text_run;
pub mod write;

pub use config::{DataConfig, RunConfig};
pub use data::TextData;
pub use next_token::NextToken;
pub use open::OpenModel;
pub use text_run::{TextRun, Trained};
pub use write::{TextWriter, Writing};
