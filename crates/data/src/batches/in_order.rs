//! Every example exactly once, for evaluation.

use super::{Batch, Examples};

/// The examples in their order, in batches; the last one may be smaller.
#[derive(Clone, Debug)]
pub struct InOrder<E> {
    examples: E,
    rows: usize,
    /// The first example of the next batch.
    next: usize,
}

impl<E: Examples> InOrder<E> {
    /// `rows` examples at a time. Panics if `rows` is 0.
    pub fn new(examples: E, rows: usize) -> Self {
        assert!(rows > 0, "batches of 0 rows");
        Self { examples, rows, next: 0 }
    }

    /// How many batches there are in all.
    pub fn batches(&self) -> usize {
        self.examples.count().div_ceil(self.rows)
    }
}

impl<E: Examples> Iterator for InOrder<E> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let end = self.next.saturating_add(self.rows).min(self.examples.count());
        let chosen: Vec<usize> = (self.next..end).collect();
        self.next = end;
        (!chosen.is_empty()).then(|| self.examples.batch_of(&chosen))
    }

    /// Reads nothing of the batches it skips.
    fn nth(&mut self, n: usize) -> Option<Batch> {
        let skipped = n.saturating_mul(self.rows);
        self.next = self.next.saturating_add(skipped).min(self.examples.count());
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.examples.count() - self.next).div_ceil(self.rows);
        (left, Some(left))
    }
}

impl<E: Examples> ExactSizeIterator for InOrder<E> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Five examples of one token that count how often they are read.
    #[derive(Default)]
    struct Five {
        read: AtomicUsize,
    }

    impl Examples for Five {
        fn count(&self) -> usize {
            5
        }

        fn longest(&self) -> usize {
            1
        }

        fn tokens_of(&self, _: usize) -> usize {
            1
        }

        fn batch_of(&self, examples: &[usize]) -> Batch {
            self.read.fetch_add(examples.len(), Ordering::Relaxed);
            let ids: Vec<u32> = examples.iter().map(|&example| example as u32).collect();
            Batch::new(ids.len(), 1, ids.clone(), ids)
        }
    }

    #[test]
    fn skipped_batches_are_not_read() {
        let five = Five::default();
        let mut batches = InOrder::new(&five, 2);
        assert_eq!((batches.batches(), batches.len()), (3, 3));
        assert_eq!(batches.nth(1).unwrap().inputs, [2, 3]);
        assert_eq!((batches.batches(), batches.len()), (3, 1));
        assert_eq!(batches.next().unwrap().inputs, [4]);
        assert!(batches.next().is_none() && batches.nth(usize::MAX).is_none());
        assert_eq!(five.read.into_inner(), 3);
    }
}
