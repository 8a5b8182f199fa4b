//! Hearken as a library: one name for what its crates offer.
//!
//! - [`data`]: tokenizers, corpora, batches, and stories whose entropy is known.
//! - [`tasks`]: what models are trained for: configurations of runs, data, tasks, open models.
//! - [`train`]: the training loop, optimisers, run directories and checkpoints.
//! - [`show`]: numbers, tables, progress, charts and pages for people to look at.
//! - [`explain`]: every number of a prompt's way through a model, with the arithmetic behind it.
//! - [`infer`]: text from a model, token by token.
//! - [`formats`]: model directories and the files in them.
//! - [`store`]: safetensors, read and written piece by piece.
//! - [`nn`]: what a model is made of, as data; layers, decoders and their cost.
//! - [`tensor`]: tensors, the graph that differentiates them, every operation with its proof,
//!   and the checker that proves operations of your own.
//! - [`kernels`]: the loops beneath, over plain slices: matrix products, vector functions,
//!   threads, and which instruction set they run on.
//! - [`base`]: the error type, and settings that are read with errors that help.
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
//! The binary `hearken` is built from this library; `hearken doctor` proves every operation on
//! the machine it runs on.

pub use hearken_base as base;
pub use hearken_data as data;
pub use hearken_explain as explain;
pub use hearken_formats as formats;
pub use hearken_infer as infer;
pub use hearken_kernels as kernels;
pub use hearken_nn as nn;
pub use hearken_show as show;
pub use hearken_store as store;
pub use hearken_tasks as tasks;
pub use hearken_tensor as tensor;
pub use hearken_train as train;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
