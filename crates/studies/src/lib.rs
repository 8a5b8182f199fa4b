//! Comparisons that are run and not believed: contenders are trained or timed on the same task with
//! the same budget, and the outcome is drawn, tabulated and said in sentences that its numbers bear out.
//!
//! - [`study`]: what a study is; [`all`] lists them.
//! - [`request`]: what is asked of it: quick or in full, which contenders, how many seeds.
//! - [`trials`]: many trainings, one per core at a time, with progress and a way to stop.
//! - [`statistics`]: means, ranges, when a difference may be called one, slopes in log–log.
//! - [`outcome`]: charts, tables, findings and numbers; [`page`] makes one page of them.
//! - [`rows`]: rows of tokens that are made from a seed, as a task.
//! - [`text`]: a text as tokens; [`contest`]: small decoders that learn it.
//! - [`mechanisms`], [`timing`]: kinds of attention that can be timed, and times that can be compared.
//!
//! A claim needs three seeds, and a difference above the spread between them
//! ([`statistics::Verdict`]). A time is that of one core where trainings run in parallel.

pub mod contest;
mod lookup;
pub mod mechanisms;
pub mod outcome;
pub mod page;
pub mod request;
pub mod rows;
pub mod sizes;
pub mod statistics;
pub mod studies;
pub mod study;
pub mod text;
pub mod timing;
pub mod trials;

pub use outcome::{Drawing, Listing, Outcome};
pub use request::Request;
pub use statistics::Sample;
pub use study::{Contender, Study, all, find};
