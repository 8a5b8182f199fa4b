//! `scoreₜₛ = Σₐ vₐ·tanh(qₜₐ + kₛₐ)`: how well queries (B, T, A) fit keys (B, S, A), (B, T, S), with a
//! vector v (A) (Bahdanau et al. 2015). Keys that are padding have the score −∞.
//!
//! q = W₁s and k = W₂h are products outside, so that states of different widths can be compared.
//! With `u = tanh(q + k)` and `g = dscore·v·(1 − u²)`,
//! 1. `dqₜ = Σₛ g`
//! 2. `dkₛ = Σₜ g`
//! 3. `dv = Σₜₛ dscore·u`
//!
//! Saves q, k and v; the B·T·S·A tangents are computed again.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::ops::softmax::softmax;
use crate::reference::Array;
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::additive::{
    Sizes, additive_backward_keys, additive_backward_queries, additive_forward,
};
use hearken_kernels::elementwise;
use std::sync::Arc;

/// The scores (B, T, S) of queries (B, T, A) and keys (B, S, A), of which each row has as many as
/// `lengths` says, with a vector v (A).
pub fn additive_scores(q: &Var, k: &Var, v: &Var, lengths: Option<&Arc<[usize]>>) -> Var {
    let (qs, ks, vs) = (q.shape(), k.shape(), v.shape());
    assert!(
        qs.rank() == 3
            && ks.rank() == 3
            && qs.dims()[0] == ks.dims()[0]
            && [qs.width(), ks.width()] == [vs.len(); 2]
            && vs.rank() == 1,
        "additive scores of queries {qs}, keys {ks} and a vector {vs}"
    );
    let batch = qs.dims()[0];
    assert!(lengths.is_none_or(|n| n.len() == batch), "lengths {lengths:?} of keys {ks}");
    let mut out = Tensor::unset([batch, qs.dims()[1], ks.dims()[1]]);
    let inputs = [q, k, v].map(|x| x.value().data());
    additive_forward(&sizes(qs, ks, lengths), inputs, out.data_mut());
    Var::from_op(out, &[q, k, v], || AdditiveScoresBackward {
        inputs: [q, k, v].map(|x| Saved::new(x.value())),
        lengths: lengths.cloned(),
    })
}

fn sizes(q: Shape, k: Shape, lengths: Option<&Arc<[usize]>>) -> Sizes<'_> {
    let lengths = lengths.map(|lengths| &**lengths);
    Sizes { queries: q.dims()[1], keys: k.dims()[1], width: q.width(), lengths }
}

struct AdditiveScoresBackward {
    /// q, k and v.
    inputs: [Saved; 3],
    lengths: Option<Arc<[usize]>>,
}

impl Backward for AdditiveScoresBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let [q, k, v] = self.inputs.map(Saved::into_value);
        let sizes = sizes(q.shape(), k.shape(), self.lengths.as_ref());
        let given = [q.data(), k.data(), v.data(), dout.data()];
        let mut dv_of_queries = Tensor::unset(q.shape());
        let dv = dv_of_queries.data_mut();
        if gradients.wanted(0) {
            gradients.write(0, |dq, write| {
                additive_backward_queries(&sizes, given, dq, dv, write); // 1, 3
            });
        } else if gradients.wanted(2) {
            let mut unused = Tensor::unset(q.shape());
            let write = hearken_kernels::Write::Set;
            additive_backward_queries(&sizes, given, unused.data_mut(), dv, write); // 3
        }
        gradients.write(1, |dk, write| additive_backward_keys(&sizes, given, dk, write)); // 2
        gradients.write(2, |dv, write| {
            elementwise::column_sums(dv_of_queries.data(), dv, write); // 3
        });
    }
}

/// In f64; `inputs` are q, k and v.
fn reference(inputs: &[Array], lengths: Option<&[usize]>) -> Array {
    let [q, k, v] = [0, 1, 2].map(|i| &inputs[i]);
    let [batch, t, s] = [q.shape.dims()[0], q.shape.dims()[1], k.shape.dims()[1]];
    Array::build([batch, t, s], |i| {
        let (b, key) = (i / (t * s), i % s);
        if lengths.is_some_and(|lengths| key >= lengths[b]) {
            return f64::NEG_INFINITY;
        }
        let pairs = q.row(i / s).iter().zip(k.row(b * s + key));
        pairs.zip(&v.data).map(|((q, k), v)| v * (q + k).tanh()).sum()
    })
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 3e-6,
        backward: 3e-6,
        reason: "sums of up to 60 terms of both signs, each a tangent that is some 1e-7 off",
    };
    let torch = "torch.tanh(q.unsqueeze(2) + k.unsqueeze(1)) @ v";
    let case = |name, [b, t, s, a]: [usize; 4]| {
        let forward = |x: &[Var]| additive_scores(&x[0], &x[1], &x[2], None);
        Case::new("additive_scores", name, tolerance, forward, |x| reference(x, None))
            .normal("q", [b, t, a])
            .normal("k", [b, s, a])
            .normal("v", [a])
            .torch(torch)
    };
    // With padding, behind a softmax: −∞ by itself has no weighted sum.
    let forward = |x: &[Var]| {
        softmax(additive_scores(&x[0], &x[1], &x[2], Some(&[4, 2].into())), 1.0)
    };
    let padded = |x: &[Array]| {
        let scores = reference(x, Some(&[4, 2]));
        let rows = (0..scores.shape.rows()).flat_map(|i| {
            let powers: Vec<f64> = scores.row(i).iter().map(|x| x.exp()).collect();
            let sum: f64 = powers.iter().sum();
            powers.into_iter().map(move |power| power / sum)
        });
        Array::new(scores.shape, rows.collect())
    };
    vec![
        case("one_query", [2, 1, 5, 7]),
        case("many", [3, 4, 6, 17]),
        case("one_key", [2, 3, 1, 3]),
        case("shared", [4, 30, 20, 9]),
        Case::new("additive_scores", "padded", tolerance, forward, padded)
            .normal("q", [2, 3, 5])
            .normal("k", [2, 4, 5])
            .normal("v", [5])
            .torch(
                "y = torch.tanh(q.unsqueeze(2) + k.unsqueeze(1)) @ v\n\
                 y = y.masked_fill(torch.tensor([[[0, 0, 0, 0]], [[0, 0, 1, 1]]]).bool(), -math.inf)\n\
                 out = torch.softmax(y, -1)",
            ),
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&super::cases());
    }
}
