//! What models are trained for.
//!
//! - [`config`]: the configuration of a run, `[model]`, `[data]` and `[train]` of one file.
//! - [`data`]: from what a configuration names to tokens, batches and a validation set.
//! - [`encoder`]: guess hidden words, label texts and words, answer questions, embed.
//! - [`metrics`]: how good answers are, by the usual measures.
//! - [`next_token`]: language models that predict the next token.
//! - [`text_run`]: a whole run on text, from a configuration to a trained model.
//! - [`rehearsal`]: a task on tokens that mean nothing, for what a configuration costs and how fast it is.
//! - [`open`]: a model directory or run, found, verified, loaded and joined with its tokenizer.
//! - [`mod@write`]: text from an open model.
//! - [`reader`]: texts through an encoder: labels, vectors, hidden words.
//! - [`self_check`]: what must hold for any model, whatever its weights.
//! - [`prepared`]: a run that is about to begin: the data that fits its model, and the task of both.
//!
//! A task implements [`hearken_train::Task`]: it says which examples there are and what the loss is.

mod batch;
pub mod config;
pub mod data;
pub mod encoder;
mod exhibits;
pub mod metrics;
pub mod next_token;
mod observe;
pub mod open;
pub mod prepared;
pub mod reader;
pub mod rehearsal;
pub mod self_check;
pub mod text_run;
pub mod write;

pub use config::{DataConfig, RunConfig, TaskConfig};
pub use data::TextData;
pub use encoder::{EncoderData, EncoderTask};
pub use next_token::NextToken;
pub use open::OpenModel;
pub use prepared::Prepared;
pub use reader::Reader;
pub use text_run::{TextRun, Trained};
pub use write::{TextWriter, Writing};
