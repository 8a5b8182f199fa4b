//! What a recurrent cell does at one point in time, apart from its products of matrices: gates,
//! states and their gradients, on all rows of a batch.
//!
//! | file   | cell                                                                              |
//! |--------|-----------------------------------------------------------------------------------|
//! | `rnn`  | h ← f(a), f = tanh or max(·, 0)                                                   |
//! | `gru`  | r, z = σ(a), n = tanh(a + r·u), h ← (1 − z)·n + z·h                               |
//! | `lstm` | i, f, o = σ(a), g = tanh(a), c ← f·c + i·g, h ← o·tanh(c)                         |
//!
//! Buffers over time are (B, T, …); states are (B, C). A [`Walk`] says in which order times are
//! visited and where a row is padding: there its state stays, what it gives is 0, and its
//! gradients are 0.

mod gru;
mod lstm;
mod rnn;
#[cfg(test)]
mod tests;

pub use gru::{gru_backward, gru_forward};
pub use lstm::{lstm_backward, lstm_forward};
pub use rnn::{rnn_backward, rnn_forward};

use crate::simd::Simd;
use crate::threads::{for_row_chunks, rows_per_chunk};

/// The way of a recurrent layer through a batch (B, T, C).
#[derive(Clone, Copy, Debug)]
pub struct Walk<'a> {
    /// B
    pub batch: usize,
    /// T
    pub length: usize,
    /// C
    pub width: usize,
    /// From the last time to the first?
    pub backwards: bool,
    /// How much of each row is not padding (B); all of it, if `None`.
    pub lengths: Option<&'a [usize]>,
}

impl Walk<'_> {
    /// The `step`-th time that is visited.
    pub fn time(&self, step: usize) -> usize {
        if self.backwards { self.length - 1 - step } else { step }
    }

    /// Is there a token, and not padding?
    #[inline]
    fn is_real(&self, row: usize, time: usize) -> bool {
        self.lengths.is_none_or(|lengths| time < lengths[row])
    }

    /// The time that was visited before this one; `None` if the row starts here.
    #[inline]
    fn before(&self, row: usize, time: usize) -> Option<usize> {
        if self.backwards {
            Some(time + 1).filter(|&before| before < self.length && self.is_real(row, before))
        } else {
            time.checked_sub(1)
        }
    }

    /// Row `row` of the state before `time`: of `kept` (B, T, C), or of `first` (B, C).
    #[inline]
    fn state_before<'a>(
        &self,
        row: usize,
        time: usize,
        kept: &'a [f32],
        first: &'a [f32],
    ) -> &'a [f32] {
        match self.before(row, time) {
            Some(before) => &kept[(row * self.length + before) * self.width..][..self.width],
            None => &first[row * self.width..][..self.width],
        }
    }

    /// Rows per task, for cells with `gates` numbers per unit.
    fn chunk(&self, gates: usize) -> usize {
        rows_per_chunk(gates * self.width)
    }
}

/// The state before each time, (B, T, C); 0 where there is padding.
pub fn states_before(walk: &Walk<'_>, kept: &[f32], first: &[f32], out: &mut [f32]) {
    let (t, c) = (walk.length, walk.width);
    for_row_chunks(walk.batch * t, rows_per_chunk(c), [(out, c)], |places, [out]| {
        for (i, place) in places.enumerate() {
            let (row, time, out) = (place / t, place % t, &mut out[i * c..][..c]);
            if walk.is_real(row, time) {
                out.copy_from_slice(walk.state_before(row, time, kept, first));
            } else {
                out.fill(0.0);
            }
        }
    });
}

/// σ′ where σ is x: x·(1 − x).
#[inline(always)]
fn sigmoid_slope<S: Simd>(s: S, x: S::V) -> S::V {
    s.neg_mul_add(x, x, x)
}
