//! Training: from a [`Task`] that can compute its loss to a run directory with a trained model.
//!
//! - [`task`]: what the loop asks of a model and its data.
//! - [`config`]: the `[train]` table.
//! - [`optimizer`], [`schedule`], [`norms`], [`ema`], [`early_stopping`]: the parts of a step.
//! - [`evaluation`]: what is measured on the validation set, as named metrics.
//! - [`stepper`]: from the gradients of a batch to new weights, without any file.
//! - [`cost`]: what training takes, found by a dry run of the same steps.
//! - [`timing`]: how many steps fit into a time.
//! - [`trainer`]: the loop; [`progress`] reports its progress, [`diagnose`] finds problems.
//! - [`exhibit`]: what a task shows in the report; [`compare`]: several runs on one page.
//! - [`run_dir`], [`metrics`], [`tensorboard`], [`plot`], [`report`]: what a run leaves behind.
//! - [`weights`]: parameters in a file under their own names.
//! - [`checkpoint`]: saved states that survive power cuts and are verified when read.
//!
//! Everything random is keyed by (seed, step, micro-batch), every sum has a fixed order, and
//! every number that the next step depends on is in the checkpoint: a run that was killed and
//! resumed has the same bits as one that was not, on any number of threads.

pub mod checkpoint;
pub mod compare;
pub mod config;
pub mod cost;
pub mod diagnose;
pub mod early_stopping;
pub mod ema;
pub mod error;
pub mod evaluation;
pub mod exhibit;
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
pub mod stepper;
pub mod task;
pub mod tensorboard;
pub mod timing;
pub mod trainer;
pub mod weights;

pub use config::{Precision, TrainConfig};
pub use cost::{Cost, Memory};
pub use evaluation::{Better, Evaluation, Metric, Portion};
pub use exhibit::{Exhibit, Exhibits};
pub use hearken_base::{Error, Kind, Result};
pub use metrics::{Row, Score};
pub use optimizer::{DecayRule, Optimizer, OptimizerConfig};
pub use run_dir::RunDirectory;
pub use schedule::ScheduleConfig;
pub use stepper::Stepper;
pub use task::{LayerAttention, LayerExperts, MicroLoss, Moment, Observation, Task};
pub use trainer::{Outcome, Setup, Summary, train};
