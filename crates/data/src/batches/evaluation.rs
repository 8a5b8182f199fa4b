//! Every target of a text exactly once, for a loss that means something.
//!
//! Windows begin every `stride` ids. With `stride` = T they do not overlap: the first target of a
//! window is predicted from one id, the last from T. With a smaller stride they overlap, and only
//! the targets that no earlier window had count (the last `stride` of them), so that each is
//! predicted from at least T − `stride` ids: a lower loss for T/`stride` times the work.

use super::Batch;
use crate::corpus::Ids;
use crate::error::{self, Result};

/// The windows of a text, in batches.
#[derive(Clone, Debug)]
pub struct Windows {
    ids: Ids,
    rows: usize,
    length: usize,
    stride: usize,
    next: usize,
}

impl Windows {
    /// Windows of `length` ids that do not overlap, `rows` at a time.
    pub fn side_by_side(ids: Ids, rows: usize, length: usize) -> Result<Self> {
        Self::sliding(ids, rows, length, length)
    }

    /// Windows of `length` ids, each `stride` further than the last. Panics unless
    /// 0 < `stride` ≤ `length`.
    pub fn sliding(ids: Ids, rows: usize, length: usize, stride: usize) -> Result<Self> {
        assert!(rows > 0 && 0 < stride && stride <= length, "{rows} rows, {stride} of {length}");
        if ids.len() < 2 {
            let (have, need) = (ids.len(), 2);
            return Err(error::too_short("the validation text", have, need));
        }
        Ok(Self { ids, rows, length, stride, next: 0 })
    }

    /// How many targets count in all: every id but the first.
    pub fn targets(&self) -> usize {
        self.ids.len() - 1
    }

    /// How many windows there are: the last one reaches the end.
    pub fn windows(&self) -> usize {
        1 + self.targets().saturating_sub(self.length).div_ceil(self.stride)
    }

    /// How many batches there are.
    pub fn batches(&self) -> usize {
        self.windows().div_ceil(self.rows)
    }
}

impl Iterator for Windows {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let rows = self.rows.min(self.windows() - self.next);
        if rows == 0 {
            return None;
        }
        let first = self.next;
        self.next += rows;
        Some(Batch::build(rows, self.length, |row, inputs, targets| {
            let start = (first + row) * self.stride;
            let length = self.length.min(self.targets() - start);
            self.ids.read(start, &mut inputs[..length]);
            // What the window before this one had is known already.
            let seen = if first + row == 0 { 0 } else { self.length - self.stride };
            self.ids.read(start + 1 + seen, &mut targets[seen..length]);
        }))
    }

    /// Reads nothing of the batches it leaves out.
    fn nth(&mut self, n: usize) -> Option<Batch> {
        self.next = self.next.saturating_add(n.saturating_mul(self.rows)).min(self.windows());
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::IGNORED;

    #[test]
    fn every_target_counts_once_with_the_context_that_was_promised() {
        for (n, rows, length, stride) in
            [(2, 1, 4, 4), (21, 2, 4, 4), (22, 3, 4, 4), (20, 2, 6, 2), (23, 4, 6, 5), (5, 2, 9, 3)]
        {
            let ids: Ids = (0..n).collect::<Vec<u32>>().into();
            let windows = Windows::sliding(ids, rows, length, stride).unwrap();
            let batches = windows.batches();
            let all: Vec<Batch> = windows.collect();
            assert_eq!(all.len(), batches);
            let mut seen = Vec::new();
            for batch in &all {
                let pairs = batch.inputs.iter().zip(&batch.targets).enumerate();
                for (at, (&input, &target)) in pairs.filter(|(_, (_, t))| **t != IGNORED) {
                    assert_eq!(target, input + 1);
                    let context = at % length + 1;
                    assert!(context == target as usize || context > length - stride, "{target}");
                    seen.push(target);
                }
            }
            assert_eq!(seen, (1..n).collect::<Vec<_>>(), "{n} {length} {stride}");
            // Leaving some out leaves the others as they are.
            for every in 1..all.len() + 2 {
                let ids: Ids = (0..n).collect::<Vec<u32>>().into();
                let some = Windows::sliding(ids, rows, length, stride).unwrap().step_by(every);
                assert!(some.eq(all.iter().step_by(every).cloned()), "every {every}");
            }
        }
    }
}
