//! Linear attention: `outᵢ = Σⱼ (qᵢ·kⱼ)·vⱼ / (Σⱼ qᵢ·kⱼ + ε)`, head by head, over all tokens of a
//! sequence or over j ≤ i, for queries and keys that are positive features.
//!
//! Shapes: q (B, T, H·M), k (B, T, K·M), v (B, T, K·Dv), out (B, T, H·Dv). H is a multiple of K:
//! query head h reads key/value head h/(H/K). Sequences are ranges of the B·T rows: whole rows, their
//! parts without padding, or several documents in a row. What is in none gets zeros.
//!
//! With S, R and dm of [`hearken_kernels::attention::linear`]:
//! 1. `dq = S·dm`
//! 2. `dk = R·v′`
//! 3. `dv = Rᵀ·k`
//!
//! Saves q, k, v, out and the normalisers; never T·T of anything.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::reference::Array;
use crate::rng::Rng;
use crate::tensor::Tensor;
use hearken_kernels::attention::linear::{EPSILON, Linear, Results, Shape};
use std::ops::Range;
use std::sync::Arc;

/// How to attend.
#[derive(Clone, Debug)]
pub struct LinearAttend {
    /// H
    pub heads: usize,
    /// K
    pub kv_heads: usize,
    /// Does a token see only itself and those before it?
    pub causal: bool,
    /// Sequences as ranges of the B·T rows; every row of the batch is one, if `None`.
    pub runs: Option<Arc<[Range<usize>]>>,
}

impl LinearAttend {
    /// The sequences of a batch.
    fn runs(&self, batch: usize, tokens: usize) -> Arc<[Range<usize>]> {
        match &self.runs {
            Some(runs) => runs.clone(),
            None => (0..batch).map(|b| b * tokens..(b + 1) * tokens).collect(),
        }
    }
}

/// Attention of features `q` and `k` that mixes `v`.
pub fn linear_attention(q: &Var, k: &Var, v: &Var, attend: &LinearAttend) -> Var {
    let [batch, tokens, columns] = q.value().dims();
    let ([_, _, key_columns], [_, _, value_columns]) = (k.value().dims(), v.value().dims());
    let LinearAttend { heads, kv_heads, causal, .. } = *attend;
    let features = columns / heads.max(1);
    assert!(
        kv_heads > 0
            && heads.is_multiple_of(kv_heads)
            && columns == heads * features
            && key_columns == kv_heads * features
            && value_columns.is_multiple_of(kv_heads)
            && [k, v].iter().all(|x| x.shape().dims()[..2] == [batch, tokens]),
        "queries {}, keys {} and values {} do not fit for {heads} heads on {kv_heads}",
        q.shape(),
        k.shape(),
        v.shape()
    );
    let value_width = value_columns / kv_heads;
    let shape = Shape { heads, kv_heads, features, value_width, causal };
    let runs = attend.runs(batch, tokens);
    let mut out = Tensor::unset([batch, tokens, heads * value_width]);
    let mut normalisers = Tensor::unset([batch, tokens, heads]);
    kernel(shape, &runs, [q.value(), k.value(), v.value()]).forward(
        &mut [],
        out.data_mut(),
        normalisers.data_mut(),
    );
    let value = out.clone();
    Var::from_op(out, &[q, k, v], || LinearAttentionBackward {
        operands: [q, k, v].map(|x| Saved::new(x.value())),
        out: Saved::new(&value),
        normalisers,
        shape,
        runs,
    })
}

fn kernel<'a>(shape: Shape, runs: &'a [Range<usize>], [q, k, v]: [&'a Tensor; 3]) -> Linear<'a> {
    Linear { shape, runs, queries: q.data(), keys: k.data(), values: v.data() }
}

struct LinearAttentionBackward {
    operands: [Saved; 3],
    out: Saved,
    normalisers: Tensor,
    shape: Shape,
    runs: Arc<[Range<usize>]>,
}

impl Backward for LinearAttentionBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let operands = self.operands.each_ref().map(Saved::get);
        let out = self.out.get();
        let results = Results {
            out: out.data(),
            normalisers: self.normalisers.data(),
            dout: dout.data(),
        };
        gradients.write_many([0, 1, 2], |slots| {
            kernel(self.shape, &self.runs, operands.each_ref()).backward(&results, slots); // 1, 2, 3
        });
    }
}

fn reference(a: &[Array], attend: &LinearAttend) -> Array {
    let LinearAttend { heads, kv_heads, causal, .. } = *attend;
    let [batch, tokens, columns] = [0, 1, 2].map(|i| a[0].shape.dims()[i]);
    let (features, group) = (columns / heads, heads / kv_heads);
    let value_width = a[2].shape.width() / kv_heads;
    let runs = attend.runs(batch, tokens);
    Array::build([batch, tokens, heads * value_width], |at| {
        let (row, head, column) =
            (at / (heads * value_width), at / value_width % heads, at % value_width);
        let Some(run) = runs.iter().find(|run| run.contains(&row)) else { return 0.0 };
        let key_head = head / group;
        let (mut sum, mut total) = (0.0, f64::from(EPSILON));
        for j in run.clone().filter(|j| !causal || *j <= row) {
            let q = &a[0].row(row)[head * features..(head + 1) * features];
            let k = &a[1].row(j)[key_head * features..(key_head + 1) * features];
            let weight: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
            sum += weight * a[2].row(j)[key_head * value_width + column];
            total += weight;
        }
        sum / total
    })
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 5e-6,
        backward: 2e-5,
        reason: "sums of up to 150 products, once more by a product of 33 and a division; a \
                 gradient is the difference of such sums",
    };
    let case = |name, [batch, tokens]: [usize; 2], [heads, kv_heads, features, width]: [usize; 4],
                causal, runs: Option<Vec<Range<usize>>>, torch| {
        let attend = LinearAttend { heads, kv_heads, causal, runs: runs.map(Into::into) };
        // Who sees whom, for PyTorch: (B, T, T).
        let ranges = attend.runs(batch, tokens);
        let mask = Array::build([batch, tokens, tokens], |at| {
            let (row, j) = (at / tokens, at % tokens);
            let (i, key) = (row % tokens, row / tokens * tokens + j);
            let same = ranges.iter().any(|run| run.contains(&row) && run.contains(&key));
            f64::from(same && (!causal || j <= i))
        });
        let own = attend.clone();
        let positive = |seed, columns: usize| {
            Rng::new(seed).uniform([batch, tokens, columns], 0.05, 1.0)
        };
        Case::new(
            "linear_attention",
            name,
            tolerance,
            move |v: &[Var]| linear_attention(&v[0], &v[1], &v[2], &own),
            move |a: &[Array]| reference(a, &attend),
        )
        .input("q", positive(1, heads * features))
        .input("k", positive(2, kv_heads * features))
        .normal("v", [batch, tokens, kv_heads * width])
        .extra("mask", mask)
        .extra("sizes", Array::new([2], vec![heads as f64, kv_heads as f64]))
        .torch(torch)
    };
    let torch = "h, n = int(sizes[0]), int(sizes[1])\n\
                 split = lambda x, n: x.unflatten(-1, (n, -1)).transpose(1, 2)\n\
                 qs = split(q, h)\n\
                 ks, vs = (split(x, n).repeat_interleave(h // n, 1) for x in (k, v))\n\
                 w = (qs @ ks.transpose(-1, -2)) * mask[:, None]\n\
                 out = w @ vs / (w.sum(-1, keepdim=True) + 9.999999974752427e-07)\n\
                 out = out.transpose(1, 2).flatten(-2)";
    vec![
        case("causal", [2, 5], [2, 2, 3, 4], true, None, torch),
        case("full", [2, 5], [2, 2, 3, 4], false, None, torch),
        case("grouped_causal", [1, 9], [4, 2, 5, 3], true, None, torch),
        case("grouped_full", [1, 9], [4, 1, 5, 3], false, None, torch),
        // More than two chunks of the kernel, and a part of one.
        case("chunks_causal", [1, 150], [2, 1, 33, 17], true, None, torch),
        case("chunks_full", [1, 150], [1, 1, 33, 17], false, None, torch),
        // Padding, two documents in a row, and a token by itself.
        case("runs_causal", [2, 8], [2, 2, 3, 2], true, Some(vec![0..6, 8..11, 11..12]), torch),
        case("runs_full", [2, 8], [2, 2, 3, 2], false, Some(vec![0..6, 8..11, 11..12]), torch),
        case("two_tokens", [1, 2], [1, 1, 2, 1], true, None, torch),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "one sequence, not its numbers")]
    fn a_sequence_continues_from_its_running_sums() {
        let shape = Shape { heads: 4, kv_heads: 2, features: 5, value_width: 3, causal: true };
        let tokens = 140;
        let draw = |seed, columns| Rng::new(seed).uniform([1, tokens, columns], 0.05, 1.0);
        let (q, k, v) = (draw(1, 20), draw(2, 10), draw(3, 6));
        let run = |ranges: &[Range<usize>]| {
            let mut state = vec![0.0; shape.state_len()];
            let mut found = Vec::new();
            for at in ranges {
                let runs = [0..at.len()];
                let (mut out, mut totals) = (vec![0.0; at.len() * 12], vec![0.0; at.len() * 4]);
                let linear = Linear {
                    shape,
                    runs: &runs,
                    queries: &q.data()[at.start * 20..at.end * 20],
                    keys: &k.data()[at.start * 10..at.end * 10],
                    values: &v.data()[at.start * 6..at.end * 6],
                };
                linear.forward(&mut [&mut state], &mut out, &mut totals);
                found.extend(out);
            }
            found
        };
        let (whole, parts) = (run(&[0..140]), run(&[0..70, 70..71, 71..78, 78..140]));
        for (a, b) in whole.iter().zip(parts) {
            assert!((a - b).abs() < 1e-5, "{a} and {b}"); // sums in another order
        }
    }
}
