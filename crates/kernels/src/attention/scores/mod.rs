//! What a query may see, and what is added to its scores.
//!
//! One trait, one file per rule, and [`And`] to compose them. A rule answers for whole tiles of
//! queries × keys first, so that tiles that nobody sees cost nothing and tiles that need nothing
//! are not touched; where it must, it changes a row of scores in place.
//!
//! A rule with learned numbers (a bias) also has a gradient. To give the same bits on any number
//! of threads, a task never adds to the gradient itself: it owns a *partial* for each
//! (batch, head), and partials are collected in a fixed order.

mod adjacency;
mod alibi;
mod bias;
mod causal;
mod chosen;
mod compose;
mod full;
mod hashed;
mod mask;
mod padding;
mod prefix;
mod relative;
mod segments;
mod sparse;
mod t5;
#[cfg(test)]
pub(crate) mod testing;
mod window;

pub use adjacency::{Adjacency, UNRELATED};
pub use alibi::Alibi;
pub use bias::Bias;
pub use causal::Causal;
pub use chosen::Chosen;
pub use compose::{And, Or};
pub use full::Full;
pub use hashed::{Hashed, ITSELF};
pub use mask::Mask;
pub use padding::Padding;
pub use prefix::Prefix;
pub use relative::Relative;
pub use segments::Segments;
pub use sparse::{Global, Strided};
pub use t5::{Buckets, T5};
pub use window::Window;

use std::ops::Range;
use std::sync::Arc;

/// What a rule says of a tile of queries × keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// No query sees any key.
    Empty,
    /// Every query sees every key, and nothing is added to the scores.
    Full,
    /// Some see some, or something is added: [`Scores::apply`] must be called for each row.
    Partial,
}

/// The row of scores of one query.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// Index in the batch.
    pub batch: usize,
    /// The query's head.
    pub head: usize,
    /// Index of the query, 0 ≤ query < T.
    pub query: usize,
}

/// A rule for scores. All methods must depend on their arguments alone.
pub trait Scores: Sync {
    /// Is this tile empty, full, or in between? `Partial` is always a correct answer.
    fn tile(
        &self,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        keys: Range<usize>,
    ) -> Visibility;

    /// Changes the scores of `keys` in place: adds to them, sets −∞ where hidden.
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]);

    /// [`Scores::apply`] for each query of a tile whose rows are `stride` apart. As given, it is
    /// the loop over rows compiled for every instruction set and for this rule, so that a rule
    /// behind a pointer loses nothing.
    fn apply_tile(
        &self,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        keys: Range<usize>,
        stride: usize,
        scores: &mut [f32],
    ) {
        super::tiles::apply_rows(&self, batch, head, queries, keys, stride, scores);
    }

    /// How many learned numbers there are: the length of the gradient.
    fn gradient_len(&self) -> usize {
        0
    }

    /// How many floats one (batch, head) needs to collect its share of the gradient.
    fn partial_len(&self) -> usize {
        0
    }

    /// Adds the gradient of one row of scores to the partial of its (batch, head).
    fn backward(&self, at: Position, keys: Range<usize>, dscores: &[f32], partial: &mut [f32]) {
        let _ = (at, keys, dscores, partial);
    }

    /// [`Scores::backward`] for each query of a tile, as [`Scores::apply_tile`].
    fn backward_tile(
        &self,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        keys: Range<usize>,
        stride: usize,
        dscores: &[f32],
        partial: &mut [f32],
    ) {
        super::tiles::backward_rows(&self, batch, head, queries, keys, stride, dscores, partial);
    }

    /// Adds the partial of (batch, head) to the gradient. Called in a fixed order, one at a time.
    fn collect(&self, batch: usize, head: usize, partial: &[f32], gradient: &mut [f32]) {
        let _ = (batch, head, partial, gradient);
    }
}

/// Rules chosen at run time, behind a pointer.
macro_rules! behind_a_pointer {
    ($(($($bounds:tt)*) $pointer:ty),*) => {$(
        impl<M: $($bounds)*> Scores for $pointer {
            #[inline(always)]
            fn tile(
                &self,
                batch: usize,
                head: usize,
                queries: Range<usize>,
                keys: Range<usize>,
            ) -> Visibility {
                (**self).tile(batch, head, queries, keys)
            }
            #[inline(always)]
            fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
                (**self).apply(at, keys, scores);
            }
            fn apply_tile(
                &self,
                batch: usize,
                head: usize,
                queries: Range<usize>,
                keys: Range<usize>,
                stride: usize,
                scores: &mut [f32],
            ) {
                (**self).apply_tile(batch, head, queries, keys, stride, scores);
            }
            fn gradient_len(&self) -> usize {
                (**self).gradient_len()
            }
            fn partial_len(&self) -> usize {
                (**self).partial_len()
            }
            #[inline(always)]
            fn backward(
                &self,
                at: Position,
                keys: Range<usize>,
                dscores: &[f32],
                partial: &mut [f32],
            ) {
                (**self).backward(at, keys, dscores, partial);
            }
            fn backward_tile(
                &self,
                batch: usize,
                head: usize,
                queries: Range<usize>,
                keys: Range<usize>,
                stride: usize,
                dscores: &[f32],
                partial: &mut [f32],
            ) {
                (**self).backward_tile(batch, head, queries, keys, stride, dscores, partial);
            }
            fn collect(&self, batch: usize, head: usize, partial: &[f32], gradient: &mut [f32]) {
                (**self).collect(batch, head, partial, gradient);
            }
        }
    )*};
}
behind_a_pointer!((Scores + ?Sized) &M, (Scores + ?Sized) Box<M>, (Scores + Send + ?Sized) Arc<M>);

/// S − T: the place of the first query among the keys, where queries are the last tokens of
/// those that the keys stand for.
fn offset(queries: usize, keys: usize) -> isize {
    keys as isize - queries as isize
}

/// Hides the keys from `end` on.
#[inline(always)]
fn hide_from(end: usize, keys: Range<usize>, scores: &mut [f32]) {
    scores[end.clamp(keys.start, keys.end) - keys.start..].fill(f32::NEG_INFINITY);
}

/// Hides the keys outside `seen`.
#[inline(always)]
fn hide_outside(seen: Range<usize>, keys: Range<usize>, scores: &mut [f32]) {
    let hidden = seen.start.clamp(keys.start, keys.end) - keys.start;
    scores[..hidden].fill(f32::NEG_INFINITY);
    hide_from(seen.end, keys, scores);
}

/// Where the rows of a table (B or 1, H or 1, T, S) are.
#[derive(Clone, Copy, Debug)]
struct Table {
    shape: [usize; 4],
}

impl Table {
    fn new(shape: [usize; 4], len: usize) -> Self {
        let [b, h, t, s] = shape;
        let all = b * h * t * s;
        assert_eq!(all, len, "({b}, {h}, {t}, {s}) has {all} elements, but {len} are given");
        Self { shape }
    }

    /// Elements of one (batch, head).
    fn plane(&self) -> usize {
        self.shape[2] * self.shape[3]
    }

    /// The indices of `keys` in the row of a query.
    #[inline(always)]
    fn row(&self, at: Position, keys: Range<usize>) -> Range<usize> {
        let [batches, heads, queries, all_keys] = self.shape;
        let batch = if batches == 1 { 0 } else { at.batch };
        let head = if heads == 1 { 0 } else { at.head };
        let start = ((batch * heads + head) * queries + at.query) * all_keys;
        start + keys.start..start + keys.end
    }
}
