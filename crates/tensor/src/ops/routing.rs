//! `w[n, j] = p[n, chosen[n, j]]`: how much each chosen expert counts, (N, E) → (N, k); normalised,
//! `w[n, j] = p[n, chosen[n, j]] / Σᵢ p[n, chosen[n, i]]`, so that the chosen ones sum to 1.
//!
//! Normalised probabilities of a softmax are the softmax over the chosen logits alone, as Mixtral has
//! it (Jiang et al. 2024, "Mixtral of Experts"). The choice itself has no gradient: it is held fixed.
//!
//! With `P = Σᵢ p[chosen i]`, or 1 if it is not normalised,
//! 1. `dp[chosen j] = (dw[j] − Σᵢ w[i]·dw[i]) / P`, without the sum if it is not normalised
//! 2. `dp = 0` for all others
//!
//! Saves the weights, the sums P and the routes.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::reference::Array;
use crate::rng::Rng;
use crate::routes::Routes;
use crate::tensor::Tensor;
use hearken_kernels::{Write, threads};
use std::sync::Arc;

/// The weights (N, k) of the chosen experts, of the probabilities (…, E) of N tokens.
pub fn routing(probabilities: &Var, routes: &Arc<Routes>, normalised: bool) -> Var {
    let shape = probabilities.shape();
    let (rows, experts, top) = (routes.rows(), routes.experts(), routes.top());
    assert_eq!(
        (shape.rows(), shape.width()),
        (rows, experts),
        "routes of {rows} tokens to {experts} experts do not fit {shape}"
    );
    let mut weights = Tensor::unset([rows, top]);
    let mut sums = Tensor::unset([rows]);
    let p = probabilities.value().data();
    let outputs = [(weights.data_mut(), top), (sums.data_mut(), 1)];
    threads::for_row_chunks(rows, threads::rows_per_chunk(4 * top), outputs, |at, [out, sums]| {
        for ((n, out), sum) in at.zip(out.chunks_exact_mut(top)).zip(sums) {
            let chosen = &routes.chosen()[n * top..(n + 1) * top];
            let own = chosen.iter().map(|e| p[n * experts + *e as usize]);
            *sum = if normalised { own.clone().sum() } else { 1.0 };
            for (out, p) in out.iter_mut().zip(own) {
                *out = p / *sum;
            }
        }
    });
    let kept = weights.clone();
    Var::from_op(weights, &[probabilities], || RoutingBackward {
        routes: routes.clone(),
        weights: kept,
        sums,
        normalised,
    })
}

struct RoutingBackward {
    routes: Arc<Routes>,
    weights: Tensor,
    sums: Tensor,
    normalised: bool,
}

impl Backward for RoutingBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let Self { routes, weights, sums, normalised } = *self;
        let (rows, experts, top) = (routes.rows(), routes.experts(), routes.top());
        let (weights, sums, dout) = (weights.data(), sums.data(), dout.data());
        gradients.write(0, |dp, write| {
            let chunk = threads::rows_per_chunk(4 * experts);
            threads::for_row_chunks(rows, chunk, [(dp, experts)], |at, [dp]| {
                for (n, dp) in at.zip(dp.chunks_exact_mut(experts)) {
                    let own = n * top..(n + 1) * top;
                    let (w, dw) = (&weights[own.clone()], &dout[own.clone()]);
                    let mean: f32 = w.iter().zip(dw).map(|(w, dw)| w * dw).sum();
                    let mean = if normalised { mean } else { 0.0 };
                    if write == Write::Set {
                        dp.fill(0.0); // 2
                    }
                    for (e, dw) in routes.chosen()[own].iter().zip(dw) {
                        dp[*e as usize] += (dw - mean) / sums[n]; // 1
                    }
                }
            });
        });
    }
}

fn reference(p: &Array, routes: &Routes, normalised: bool) -> Array {
    let (experts, top) = (routes.experts(), routes.top());
    let chosen = |i: usize| p.data[i / top * experts + routes.chosen()[i] as usize];
    Array::build([routes.rows(), top], |i| {
        let sum: f64 = (0..top).map(|j| chosen(i / top * top + j)).sum();
        chosen(i) / if normalised { sum } else { 1.0 }
    })
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 3e-7,
        backward: 1e-6,
        reason: "a quotient by a sum of up to three; its gradient is a difference of such",
    };
    let case = |name, rows: usize, experts: usize, top: usize, normalised: bool, torch| {
        let mut p = Rng::new(61).normal([rows, experts], 1.0);
        p.data_mut().iter_mut().for_each(|x| *x = 0.1 + x.abs());
        let routes = Arc::new(Routes::new(p.data(), experts, top, None, None));
        let ids = routes.chosen().iter().map(|e| f64::from(*e)).collect();
        let ids = Array::new([rows, top], ids);
        let own = routes.clone();
        let forward = move |v: &[Var]| routing(&v[0], &own, normalised);
        let reference = move |a: &[Array]| reference(&a[0], &routes, normalised);
        Case::new("routing", name, tolerance, forward, reference)
            .input("p", p)
            .extra("ids", ids)
            .torch(torch)
    };
    let normalised = "p.gather(1, ids.long()) / p.gather(1, ids.long()).sum(1, keepdim=True)";
    let plain = "p.gather(1, ids.long())";
    vec![
        case("two_of_four", 7, 4, 2, true, normalised),
        case("three_of_nine", 5, 9, 3, true, normalised),
        case("all", 3, 3, 3, true, normalised),
        case("plain", 7, 4, 2, false, plain),
        case("one_of_three", 4, 3, 1, false, plain),
        case("shared", 3000, 8, 2, true, normalised),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::softmax::softmax;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    fn normalised_weights_are_the_softmax_of_the_chosen_logits() {
        let logits = Rng::new(3).normal([6, 5], 2.0);
        let routes = Arc::new(Routes::new(logits.data(), 5, 2, None, None));
        let weights = routing(&softmax(Var::constant(logits.clone()), 1.0), &routes, true);
        let pairs = routes.chosen().chunks(2).zip(weights.value().data().chunks(2)).enumerate();
        for (n, (chosen, weights)) in pairs {
            let [a, b] = [0, 1].map(|j| logits.data()[n * 5 + chosen[j] as usize]);
            assert!((weights[0] - 1.0 / (1.0 + (b - a).exp())).abs() < 1e-6);
            assert!((weights[0] + weights[1] - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    #[should_panic(expected = "routes of 2 tokens to 3 experts do not fit (3, 2)")]
    fn shapes_must_fit() {
        let routes = Arc::new(Routes::new(&[0.0; 6], 3, 1, None, None));
        let _ = routing(&Var::constant(Tensor::zeros([3, 2])), &routes, true);
    }
}
