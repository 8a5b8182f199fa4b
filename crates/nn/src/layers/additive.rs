//! Bahdanau's attention: a small network says how well each hidden state of a source fits the state of
//! the one who asks.
//!
//! ```text
//! score = vᵀ·tanh(W₁·s + W₂·h)      weights = softmax(score)      context = Σ weight·h
//! ```
//! The state and the hidden states may be of different widths.

use super::Linear;
use crate::scope::Scope;
use hearken_tensor::ops::additive_scores::additive_scores;
use hearken_tensor::ops::matmul::matmul;
use hearken_tensor::ops::reshape::reshape;
use hearken_tensor::ops::softmax::softmax;
use hearken_tensor::{Param, Role, Var};
use std::sync::Arc;

/// Additive attention of states of one width to hidden states of another.
#[derive(Clone, Debug)]
pub struct AdditiveAttention {
    query: Linear,
    key: Linear,
    /// v, (1, A)
    score: Param,
}

impl AdditiveAttention {
    /// States of `state` numbers ask hidden states of `source` numbers, compared in `width` numbers.
    /// Parameters `query.weight`, `key.weight`, `key.bias` and `score`.
    pub fn new(scope: &Scope, state: usize, source: usize, width: usize) -> Self {
        Self {
            query: Linear::new(&(scope / "query"), width, state, false, Role::Hidden),
            key: Linear::new(&(scope / "key"), width, source, true, Role::Hidden),
            score: scope.matrix("score", 1, width, Role::Hidden),
        }
    }

    /// What hidden states (B, S, source) are compared by, (B, S, A): computed once.
    pub fn keys(&self, source: &Var) -> Var {
        self.key.forward(source)
    }

    /// The context (B, T, source) of states (B, T, state) and their weights (B, T, S). Rows of the
    /// source end at `lengths`.
    pub fn forward(
        &self,
        states: &Var,
        source: &Var,
        keys: &Var,
        lengths: Option<&Arc<[usize]>>,
    ) -> (Var, Var) {
        let vector = self.score.var();
        let width = vector.shape().len();
        let vector = reshape(vector, [width]);
        let scores = additive_scores(&self.query.forward(states), keys, &vector, lengths);
        let weights = softmax(scores, 1.0); // (B, T, S)
        (matmul(&weights, source), weights)
    }
}
