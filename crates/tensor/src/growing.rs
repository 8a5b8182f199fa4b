//! Tables of computed rows that grow as rows are asked for: a model with room for a million positions
//! takes memory for those that a text has.

use crate::tensor::Tensor;
use hearken_kernels::dry;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A row of a table: its number, and where its numbers go.
type Fill = dyn Fn(usize, &mut [f32]) + Send + Sync;

/// Up to `most` rows of `width` numbers, which depend on the number of the row alone. Clones share
/// their memory.
#[derive(Clone)]
pub struct GrowingTable {
    width: usize,
    most: usize,
    fill: Arc<Fill>,
    /// (rows so far, width)
    rows: Arc<RwLock<Tensor>>,
}

impl GrowingTable {
    /// An empty table; `fill` computes a row.
    pub fn new(
        most: usize,
        width: usize,
        fill: impl Fn(usize, &mut [f32]) + Send + Sync + 'static,
    ) -> Self {
        let rows = Arc::new(RwLock::new(Tensor::zeros([0, width])));
        Self { width, most, fill: Arc::new(fill), rows }
    }

    /// The number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The most rows.
    pub fn most(&self) -> usize {
        self.most
    }

    /// A tensor (n or more, width). Panics if the table cannot have `n` rows.
    pub fn first(&self, n: usize) -> Tensor {
        assert!(n <= self.most, "{n} rows of a table of {}", self.most);
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner).clone();
        if n <= rows.shape().rows() {
            return rows;
        }
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let had = rows.shape().rows(); // another thread may have been here
        if n > had {
            // Twice as many as before: each row is computed and copied a few times at most.
            let dims = [n.max(2 * had).min(self.most), self.width];
            let mut grown = dry::shared(|| Tensor::unset(dims));
            if !grown.is_dry() {
                let (kept, new) = grown.data_mut().split_at_mut(had * self.width);
                kept.copy_from_slice(rows.data());
                for (i, row) in new.chunks_exact_mut(self.width.max(1)).enumerate() {
                    (self.fill)(had + i, row);
                }
            }
            *rows = grown;
        }
        rows.clone()
    }
}

impl fmt::Debug for GrowingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrowingTable(at most {}, {})", self.most, self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool;

    #[test]
    fn rows_are_the_same_however_the_table_grew() {
        let fill = |i: usize, row: &mut [f32]| row.fill(i as f32);
        let (at_once, by_and_by) =
            (GrowingTable::new(100, 3, fill), GrowingTable::new(100, 3, fill));
        let whole = at_once.first(100);
        for n in [0, 1, 2, 30, 31, 100] {
            assert!(by_and_by.first(n).shape().rows() >= n);
        }
        assert_eq!(by_and_by.first(1).data(), whole.data());
        assert_eq!(whole.data()[3 * 99], 99.0);
    }

    #[test]
    fn memory_is_taken_for_what_is_asked_for() {
        let before = pool::usage().in_use;
        let table = GrowingTable::new(1 << 40, 1 << 10, |_, row| row.fill(0.0));
        assert_eq!(table.first(10).shape().rows(), 10);
        // Other tests run beside this one: far less than the whole.
        assert!(pool::usage().in_use < before + (1 << 30));
    }

    #[test]
    #[should_panic(expected = "11 rows of a table of 10")]
    fn there_is_an_end() {
        let _ = GrowingTable::new(10, 1, |_, _| {}).first(11);
    }
}
