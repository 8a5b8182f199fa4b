//! What models are trained for.
//!
//! - [`calibration`]: is a model right as often as it is sure; a temperature, fitted and kept.
//! - [`config`]: the configuration of a run, `[model]`, `[data]` and `[train]` of one file.
//! - [`data`]: from what a configuration names to tokens, batches and a validation set.
//! - [`encoder`]: guess hidden words, label texts and words, answer questions, embed.
//! - [`few_shot`]: accuracy by how many examples stand in the prompt.
//! - [`metrics`]: how good answers are, by the usual measures.
//! - [`next_token`]: language models that predict the next token.
//! - [`text_run`]: a whole run on text, from a configuration to a trained model.
//! - [`rehearsal`]: a task on tokens that mean nothing, for what a configuration costs and how fast it is.
//! - [`open`]: a model directory or run, found, verified, loaded and joined with its tokenizer.
//! - [`mod@write`]: text from an open model.
//! - [`seq2seq`]: encoder-decoders that read one text and write another.
//! - [`translate`]: texts through an encoder-decoder, and where it looks.
//! - [`reader`]: texts through an encoder: labels, vectors, hidden words.
//! - [`prefix`]: what a prefix language model is given of a row.
//! - [`probe`]: what can be read off the residual stream after each layer.
//! - [`self_check`]: what must hold for any model, whatever its weights.
//! - [`prepared`]: a run that is about to begin: the data that fits its model, and the task of both.
//!
//! A task implements [`hearken_train::Task`]: it says which examples there are and what the loss is.

mod batch;
pub mod calibration;
mod carried;
pub mod config;
pub mod cut;
pub mod data;
pub mod encoder;
mod exhibits;
mod expert_use;
pub mod few_shot;
mod held_out;
pub mod metrics;
pub mod next_token;
pub mod observe;
pub mod open;
pub mod prefix;
pub mod prepared;
pub mod probe;
pub mod reader;
pub mod rehearsal;
pub mod self_check;
pub mod seq2seq;
pub mod text_run;
pub mod translate;
pub mod write;

pub use config::{DataConfig, RunConfig, TaskConfig};
pub use data::TextData;
pub use encoder::{EncoderData, EncoderTask};
pub use next_token::NextToken;
pub use open::OpenModel;
pub use prepared::Prepared;
pub use reader::Reader;
pub use seq2seq::{PairData, Seq2Seq};
pub use text_run::{TextRun, Trained};
pub use translate::Translator;
pub use write::{TextWriter, Writing};
