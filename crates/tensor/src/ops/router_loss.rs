//! What keeps a router healthy: a loss that is small if all experts are used alike, and one that is
//! small if its logits are; a scalar of the logits x (N, E) of N tokens.
//!
//! ```text
//! p = softmax(x), z = ln Σₑ e^x        of each token
//! loss = balance · (E · Σₑ fₑ·Pₑ − 1) + z_loss · mean z²
//! ```
//! `fₑ` is the share of choices that expert e has, a constant, and `Pₑ` the mean of its probability.
//! With even shares the first term is 0, whatever the probabilities are; its gradient lowers the
//! probabilities of experts that have more than their share (Fedus et al. 2021, "Switch Transformers",
//! whose loss is larger by the constant `balance`). The second is that of Zoph et al. 2022, "ST-MoE".
//!
//! For each token that counts, of n,
//! 1. `dx = dout · balance · E/n · p·(f − Σₑ fₑ·pₑ)`
//! 2. `dx += dout · z_loss · 2/n · z·p`
//!
//! Saves p and z. Tokens that do not count (padding) have no part in the means and no gradient.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::{Write, elementwise, softmax, threads};
use std::sync::Arc;

/// How much of each loss, and of which tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterLoss {
    /// Of the balance of experts.
    pub balance: f32,
    /// Of the size of logits.
    pub z_loss: f32,
    /// f: the share of choices that each expert has.
    pub shares: Vec<f32>,
    /// Which tokens count; all, if `None`.
    pub real: Option<Arc<[bool]>>,
}

impl RouterLoss {
    fn counts(&self, n: usize) -> bool {
        self.real.as_ref().is_none_or(|real| real[n])
    }

    fn tokens(&self, rows: usize) -> usize {
        (0..rows).filter(|n| self.counts(*n)).count().max(1)
    }
}

/// The loss of a router's logits (…, E).
pub fn router_loss(logits: &Var, how: &RouterLoss) -> Var {
    let shape = logits.shape();
    let (rows, experts) = (shape.rows(), shape.width());
    assert!(
        experts > 0 && how.shares.len() == experts,
        "shares of {} experts, for logits of shape {shape}",
        how.shares.len()
    );
    if let Some(real) = &how.real {
        let count = real.len();
        assert_eq!(count, rows, "which of {count} tokens count, for logits of shape {shape}");
    }
    let mut p = Tensor::unset([rows, experts]);
    softmax::softmax(rows, experts, 1.0, logits.value().data(), p.data_mut());
    let mut z = Tensor::unset([rows]);
    softmax::log_sum_exp(rows, experts, 1.0, logits.value().data(), z.data_mut());
    // Of each token: E·Σ f·p − 1, and z².
    let mut terms = [Tensor::unset([rows]), Tensor::unset([rows])];
    let [balance, squares] = terms.each_mut().map(|terms| (terms.data_mut(), 1));
    let chunk = threads::rows_per_chunk(4 * experts);
    threads::for_row_chunks(rows, chunk, [balance, squares], |at, [balance, squares]| {
        for ((n, balance), square) in at.zip(balance).zip(squares) {
            (*balance, *square) = (0.0, 0.0);
            if how.counts(n) {
                let p = &p.data()[n * experts..(n + 1) * experts];
                *balance = experts as f32 * weighted(&how.shares, p) - 1.0;
                *square = z.data()[n] * z.data()[n];
            }
        }
    });
    let tokens = how.tokens(rows) as f32;
    let [balance, squares] = terms.each_ref().map(|terms| elementwise::sum(terms.data()) / tokens);
    let loss = Tensor::scalar(how.balance * balance + how.z_loss * squares);
    Var::from_op(loss, &[logits], || RouterLossBackward { p, z, how: how.clone() })
}

fn weighted(shares: &[f32], p: &[f32]) -> f32 {
    shares.iter().zip(p).map(|(f, p)| f * p).sum()
}

struct RouterLossBackward {
    p: Tensor,
    z: Tensor,
    how: RouterLoss,
}

impl Backward for RouterLossBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let Self { p, z, how } = *self;
        let (rows, experts) = (p.shape().rows(), p.shape().width());
        let each = dout.item() / how.tokens(rows) as f32;
        let (balance, squares) = (each * how.balance * experts as f32, 2.0 * each * how.z_loss);
        gradients.write(0, |dx, write| {
            let chunk = threads::rows_per_chunk(4 * experts);
            threads::for_row_chunks(rows, chunk, [(dx, experts)], |at, [dx]| {
                for (n, dx) in at.zip(dx.chunks_exact_mut(experts)) {
                    if write == Write::Set {
                        dx.fill(0.0);
                    }
                    if !how.counts(n) {
                        continue;
                    }
                    let p = &p.data()[n * experts..(n + 1) * experts];
                    let mean = weighted(&how.shares, p);
                    let size = squares * z.data()[n];
                    for ((dx, p), f) in dx.iter_mut().zip(p).zip(&how.shares) {
                        *dx += p * (balance * (f - mean) + size); // 1 and 2
                    }
                }
            });
        });
    }
}

fn reference(x: &Array, how: &RouterLoss) -> Array {
    let (rows, experts) = (x.shape.rows(), x.shape.width());
    let mut sum = 0.0;
    for n in (0..rows).filter(|n| how.counts(*n)) {
        let powers: Vec<f64> = x.row(n).iter().map(|x| x.exp()).collect();
        let total: f64 = powers.iter().sum();
        let pairs = how.shares.iter().zip(&powers);
        let even: f64 = pairs.map(|(f, power)| f64::from(*f) * power / total).sum();
        sum += f64::from(how.balance) * (experts as f64 * even - 1.0);
        sum += f64::from(how.z_loss) * total.ln().powi(2);
    }
    Array::scalar(sum / how.tokens(rows) as f64)
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 2e-6,
        backward: 3e-6,
        reason: "differences of sums of probabilities, each good to some 5e-7",
    };
    let case = |name, shape: [usize; 2], [balance, z_loss]: [f32; 2], padded: bool, torch| {
        let [rows, experts] = shape;
        let total = (experts * (experts + 1) / 2) as f32;
        let shares: Vec<f32> = (1..=experts).map(|e| e as f32 / total).collect();
        let real: Vec<bool> = (0..rows).map(|n| !padded || n % 3 != 1).collect();
        let count = |x: &bool| if *x { 1.0 } else { 0.0 };
        let mask = Array::new([rows, 1], real.iter().map(count).collect());
        let wide = Array::new([experts], shares.iter().map(|f| f64::from(*f)).collect());
        let factors = [balance, z_loss].map(f64::from).to_vec();
        let how = RouterLoss { balance, z_loss, shares, real: padded.then(|| real.into()) };
        let own = how.clone();
        let forward = move |v: &[Var]| router_loss(&v[0], &own);
        Case::new("router_loss", name, tolerance, forward, move |a| reference(&a[0], &how))
            .normal("x", shape)
            .extra("f", wide)
            .extra("m", mask)
            .extra("c", Array::new([2], factors))
            .torch(torch)
    };
    let torch = "c[0] * (x.shape[1] * (f * x.softmax(1) * m).sum() / m.sum() - 1) \
                 + c[1] * (x.logsumexp(1, keepdim=True)**2 * m).sum() / m.sum()";
    vec![
        case("both", [7, 4], [0.3, 0.7], false, torch),
        case("padded", [8, 5], [0.3, 0.7], true, torch),
        case("balance", [6, 3], [1.0, 0.0], false, torch),
        case("z", [6, 3], [0.0, 1.0], false, torch),
        case("shared", [3000, 8], [0.5, 0.25], true, torch),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    fn even_shares_have_no_loss_of_balance_and_no_gradient() {
        let how = RouterLoss { balance: 1.0, z_loss: 0.0, shares: vec![0.25; 4], real: None };
        let x = Var::leaf(Rng::new(1).normal([5, 4], 2.0));
        let loss = router_loss(&x, &how);
        assert!(loss.value().item().abs() < 1e-6);
        loss.backward();
        assert!(x.gradient().unwrap().data().iter().all(|dx| dx.abs() < 1e-7));
    }

    #[test]
    fn one_expert_that_has_all_costs_the_most() {
        let shares = vec![1.0, 0.0, 0.0, 0.0];
        let how = RouterLoss { balance: 1.0, z_loss: 0.0, shares, real: None };
        let x = Var::leaf(Tensor::new([1, 4], &[30.0, 0.0, 0.0, 0.0]));
        assert!((router_loss(&x, &how).value().item() - 3.0).abs() < 1e-6); // E − 1
    }
}
