//! Training: from a [`Task`] that can compute its loss to a run directory with a trained model.
//!
//! - [`task`]: what the loop asks of a model and its data.
//! - [`config`]: the `[train]` table.
//! - [`optimizer`], [`schedule`], [`norms`], [`ema`], [`early_stopping`]: the parts of a step.
//! - [`trainer`]: the loop; [`progress`] says how it goes, [`diagnose`] what is wrong.
//! - [`run_dir`], [`metrics`], [`tensorboard`], [`plot`], [`report`]: what a run leaves behind.
//! - [`checkpoint`]: saved states that survive power cuts and are verified when read.
//!
//! Everything random is keyed by (seed, step, micro-batch), every sum has a fixed order, and
//! every number that the next step depends on is in the checkpoint: a run that was killed and
//! resumed has the same bits as one that was not, on any number of threads.

pub mod checkpoint;
pub mod config;
pub mod diagnose;
pub mod early_stopping;
pub mod ema;
mod error;
pub mod files;
pub mod interrupt;
pub mod metrics;
pub mod norms;
pub mod optimizer;
pub mod plot;
pub mod progress;
pub mod report;
pub mod run_dir;
pub mod schedule;
pub mod task;
pub mod tensorboard;
pub mod trainer;

pub use config::{Precision, TrainConfig};
pub use error::Error;
pub use optimizer::{DecayRule, Optimizer, OptimizerConfig, Role};
pub use run_dir::RunDirectory;
pub use schedule::ScheduleConfig;
pub use task::{Evaluation, Extent, LayerAttention, MicroLoss, Moment, Observation, Task};
pub use trainer::{Outcome, Setup, Summary, train};
