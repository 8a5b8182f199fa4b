//! Transformers on an ordinary CPU, as a library: train, write, look inside, and build your own.
//!
//! # The shortest program
//!
//! It trains on a text file, shows its progress, saves the model and writes with it.
//! `cargo run --release --example train_text -- book.txt runs/first` runs it.
//!
#![doc = concat!("```no_run\n", include_str!("../../../examples/train_text.rs"), "```")]
//!
//! # The course
//!
//! The programs of `examples/`, in order; each is
//! tested.
//!
//! 1. `train_text`: the program above. [`RunConfig`](tasks::RunConfig) says what is trained on what,
//!    [`TextRun`](tasks::TextRun) trains it.
//! 2. `generate`: [`OpenModel`](tasks::OpenModel) loads a run or a model that `transformers` saved;
//!    [`TextWriter`](tasks::TextWriter) writes, [`infer`] has beam search and probabilities.
//! 3. `own_model`: two blocks and a head of its own. Layers ([`nn::layers`], [`nn::stack::Stack`])
//!    ask a [`Scope`](nn::scope::Scope) for their parameters.
//! 4. `own_task`: what is learned. A [`Task`](train::Task) gives the loss of a batch, and
//!    [`train()`](train::train) does the rest: records, checkpoints, curves.
//! 5. `taps`: values inside a model by name, recorded, measured and replaced ([`nn::taps`]).
//! 6. `own_op`: an operation with its gradient, checked by [`tensor::gradcheck`].
//! 7. `induction`: heads that repeat what followed before, found by patching ([`explain::intervene`]).
//!
//! Beside them, `own_head` gives the library's decoder a second head, continues a run and loads it.
//!
//! # Crates
//!
//! - [`tasks`]: what models are trained for: configurations of runs, data, tasks, open models.
//! - [`train`]: the training loop, optimisers, run directories and checkpoints.
//! - [`explain`]: every number of a prompt's way through a model, with the arithmetic behind it.
//! - [`infer`]: text from a model, token by token.
//! - [`nn`]: what a model is made of, as data; layers, models, taps and cost.
//! - [`data`]: tokenizers, corpora, batches, and stories whose entropy is known.
//! - [`lessons`]: a course whose numbers are computed by all of these.
//! - [`formats`]: model directories and the files in them.
//! - [`tensor`]: tensors, the graph that differentiates them, every operation with its checks.
//! - [`kernels`]: the loops beneath, over plain slices: matrix products, vector functions,
//!   threads, and which instruction set they run on.
//! - [`show`]: numbers, tables, progress, charts and pages for people to look at.
//! - [`studies`]: contenders trained on the same task with the same budget, and a report of it.
//! - [`store`]: safetensors, read and written piece by piece.
//! - [`base`]: the error type, and settings that are read with errors that help.
//!
//! At the bottom there are tensors and gradients:
//!
//! ```
//! use hearken::tensor::{Tensor, Var, ops::linear::linear};
//!
//! let x = Var::constant(Tensor::new([1, 2], &[1.0, 2.0]));
//! let weight = Var::leaf(Tensor::new([3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]));
//! let out = linear(&x, &weight, None); // (1, 3)
//! assert_eq!(out.value().data(), &[1.0, 2.0, 3.0]);
//!
//! out.sum().backward();
//! // Every row of the weight met the same x.
//! assert_eq!(weight.gradient().unwrap().data(), &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
//! ```
//!
//! # Features
//!
//! `command`, on by default, is what the binary `hearken` needs (clap, ctrlc, and the server of
//! `explain --page`). A program that uses the library does without: `hearken = { path = "…", default-features = false }`. Programs should compile
//! with `opt-level = 2` or more, also while they are developed.

pub use hearken_base as base;
pub use hearken_base::{Error, Result};
pub use hearken_data as data;
pub use hearken_explain as explain;
pub use hearken_formats as formats;
pub use hearken_infer as infer;
pub use hearken_kernels as kernels;
pub use hearken_lessons as lessons;
pub use hearken_nn as nn;
pub use hearken_show as show;
pub use hearken_store as store;
pub use hearken_studies as studies;
pub use hearken_tasks as tasks;
pub use hearken_tensor as tensor;
pub use hearken_train as train;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
