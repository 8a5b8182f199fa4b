//! From the hidden states of a text's tokens to one vector.

use super::Linear;
use crate::config::{PoolerConfig, Pooling};
use crate::pass::Pass;
use crate::scope::Scope;
use crate::taps::Place;
use hearken_kernels::activation::Activation;
use hearken_tensor::ops::embedding::embedding;
use hearken_tensor::ops::matmul::matmul;
use hearken_tensor::ops::reshape::reshape;
use hearken_tensor::ops::rms_norm::rms_norm;
use hearken_tensor::ops::scale::scale;
use hearken_tensor::{Role, Tensor, Var};

/// Under the root of a mean square of about 1: far below what f32 adds to it.
const EPS: f32 = 1e-12;

/// The rows of `x` (…, C), counted over all dimensions but the last: (N, C).
pub fn select_rows(x: &Var, rows: &[u32]) -> Var {
    let shape = x.shape();
    let table = reshape(x.clone(), [shape.rows(), shape.width()]);
    embedding(&table, rows, [rows.len()])
}

/// The first token of each sequence of `x` (B, T, C): (B, C).
pub fn first_tokens(x: &Var) -> Var {
    let [batch, tokens, _] = x.value().dims();
    let rows: Vec<u32> = (0..batch).map(|row| (row * tokens) as u32).collect();
    select_rows(x, &rows)
}

/// One vector (B, C) for each sequence of `x` (B, T, C), whose lengths without padding are given.
/// Panics if a sequence is empty.
pub fn pool(x: &Var, lengths: Option<&[usize]>, pooling: Pooling) -> Var {
    let [batch, tokens, width] = x.value().dims();
    let length = |row: usize| {
        let length = lengths.map_or(tokens, |lengths| lengths[row]);
        assert!((1..=tokens).contains(&length), "sequence {row} of {tokens} tokens has {length}");
        length
    };
    match pooling {
        Pooling::Cls => first_tokens(x),
        Pooling::Last => {
            let rows: Vec<u32> =
                (0..batch).map(|row| (row * tokens + length(row) - 1) as u32).collect();
            select_rows(x, &rows)
        }
        Pooling::Mean => {
            let mut weights = Tensor::zeros([batch, 1, tokens]);
            for (row, weights) in weights.data_mut().chunks_mut(tokens.max(1)).enumerate() {
                weights[..length(row)].fill(1.0 / length(row) as f32);
            }
            reshape(matmul(&Var::constant(weights), x), [batch, width]) // (B, 1, T)·(B, T, C)
        }
    }
}

/// Every row of `x` (…, C) scaled to length 1; a row of zeros stays.
pub fn normalised(x: &Var) -> Var {
    let width = x.shape().width();
    scale(rms_norm(x, None, EPS), 1.0 / (width as f32).sqrt())
}

/// `f(W·h₀ + b)` of the first token's hidden state h₀.
#[derive(Clone, Debug)]
pub struct Pooler {
    dense: Linear,
    f: Activation,
}

impl Pooler {
    /// Parameters `weight` and `bias`; nothing, if there is to be none.
    pub fn new(scope: &Scope, config: PoolerConfig, width: usize) -> Option<Self> {
        let f = match config {
            PoolerConfig::None => return None,
            PoolerConfig::Tanh => Activation::Tanh,
            PoolerConfig::Relu => Activation::Relu,
        };
        Some(Self { dense: Linear::new(scope, width, width, true, Role::Hidden), f })
    }

    /// (B, T, C) → (B, C)
    pub fn forward(&self, hidden: &Var, pass: &Pass) -> Var {
        let pooled = self.dense.forward_activated(&first_tokens(hidden), self.f);
        pass.tap(&Place::ROOT, "pooled", pooled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_tensor::rng::Rng;

    #[test]
    fn each_way_of_pooling_sees_its_tokens_alone() {
        let (batch, tokens, width) = (2, 4, 3);
        let x = Rng::new(1).normal([batch, tokens, width], 1.0);
        let at = |row: usize, token: usize, c: usize| x.data()[(row * tokens + token) * width + c];
        let lengths = [2, 4];
        for (pooling, want) in [
            (Pooling::Cls, [at(0, 0, 1), at(1, 0, 1)]),
            (Pooling::Last, [at(0, 1, 1), at(1, 3, 1)]),
            (
                Pooling::Mean,
                [
                    f32::midpoint(at(0, 0, 1), at(0, 1, 1)),
                    (0..4).map(|t| at(1, t, 1)).sum::<f32>() / 4.0,
                ],
            ),
        ] {
            let leaf = Var::leaf(x.clone());
            let out = pool(&leaf, Some(&lengths), pooling);
            assert_eq!(out.shape().dims(), [batch, width]);
            let got = [out.value().data()[1], out.value().data()[width + 1]];
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() < 1e-6, "{pooling:?}: {got}, expected {want}");
            }
            out.sum().backward();
            let dx = leaf.gradient().unwrap();
            let padding = &dx.data()[2 * width..4 * width];
            assert!(padding.iter().all(|x| *x == 0.0), "{pooling:?} learns from padding");
            let sum: f32 = dx.data().iter().sum();
            assert!((sum - (batch * width) as f32).abs() < 1e-5, "{pooling:?}: {sum}");
        }
    }

    #[test]
    fn normalised_vectors_have_length_one_and_zero_stays() {
        let x = Tensor::new([2, 3], &[3.0, 0.0, -4.0, 0.0, 0.0, 0.0]);
        let out = normalised(&Var::constant(x));
        let want = [0.6, 0.0, -0.8, 0.0, 0.0, 0.0];
        for (got, want) in out.value().data().iter().zip(want) {
            assert!((got - want).abs() < 1e-6, "{got}, expected {want}");
        }
    }

    #[test]
    #[should_panic(expected = "sequence 1 of 3 tokens has 0")]
    fn nothing_has_no_mean() {
        let _ = pool(&Var::constant(Tensor::zeros([2, 3, 1])), Some(&[1, 0]), Pooling::Mean);
    }
}
