//! A table of vectors, one per token.

use super::Head;
use crate::scope::Scope;
use hearken_tensor::{Param, Role, Shape, Var, ops};

/// The rows of a table by their numbers.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// (V, C)
    table: Param,
}

impl Embedding {
    /// Parameter `weight`: `rows` vectors of `width` numbers.
    pub fn new(scope: &Scope, rows: usize, width: usize) -> Self {
        Self { table: scope.matrix("weight", rows, width, Role::Table) }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.table.shape().rows()
    }

    /// The vectors of `ids`, which are read in `shape`: (…) → (…, C).
    pub fn forward(&self, ids: &[u32], shape: impl Into<Shape>) -> Var {
        ops::embedding::embedding(self.table.weight(), ids, shape)
    }

    /// The table as an output head: logits = x·Eᵀ.
    pub fn as_head(&self) -> Head {
        Head::new(self.table.weight(), None)
    }
}
