//! How good answers are: the measures that evaluations report.
//!
//! All of them are from 0 to 1 and better if higher, but for errors of numbers, the correlation,
//! which is from −1 to 1, and BLEU and chrF, which are from 0 to 100.

mod classes;
mod entities;
mod numbers;
mod retrieval;
mod spans;
mod translation;

pub use classes::{ClassScore, Confusion, several_scores};
pub use entities::{Entity, EntityScore, entities};
pub use numbers::{mean_absolute_error, root_mean_squared_error, spearman};
pub use retrieval::{cosine, recall_at};
pub use spans::{answer_scores, normalised};
pub use translation::TranslationScore;

/// 2·p·r / (p + r) from counts: of `right` and `said` answers, so many are `both`. 0 if there are
/// none of either.
pub fn f1(both: usize, right: usize, said: usize) -> f64 {
    share(2 * both, right + said)
}

/// a / b; 0 of nothing.
fn share(a: usize, b: usize) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}
