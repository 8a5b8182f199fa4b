//! A mixture of experts: several feed-forward layers, of which each token uses a few.
//!
//! ```text
//! p = softmax(x·Rᵀ)                         (…, E): the router
//! out = Σ over the k largest pₑ of wₑ·fₑ(x)  w = p, or divided by their sum
//! ```
//! Tokens are grouped by expert: each computes one product on its own rows, and what nobody has
//! chosen costs nothing. Tokens of padding go nowhere. In training, experts may have a capacity, and
//! the router has losses of its own ([`Pass::add_auxiliary`]).

use super::{FeedForward, Linear};
use crate::config::{ExpertsConfig, StackConfig};
use crate::pass::Pass;
use crate::scope::Scope;
use crate::taps::Place;
use hearken_tensor::graph::is_recording;
use hearken_tensor::ops::combine::combine;
use hearken_tensor::ops::embedding::embedding;
use hearken_tensor::ops::reshape::reshape;
use hearken_tensor::ops::router_loss::{RouterLoss, router_loss};
use hearken_tensor::ops::routing::routing;
use hearken_tensor::ops::softmax::softmax;
use hearken_tensor::{Role, Routes, Tensor, Var};
use std::sync::Arc;

/// The layer between attentions: one feed-forward layer, or experts.
#[derive(Clone, Debug)]
pub enum AnyFeedForward {
    /// One for all tokens.
    Dense(FeedForward),
    /// Several, of which each token uses a few.
    Experts(Experts),
}

impl AnyFeedForward {
    /// As the configuration says.
    pub fn new(scope: &Scope, config: &StackConfig) -> Self {
        match config.experts {
            Some(experts) => Self::Experts(Experts::new(scope, config, experts)),
            None => Self::Dense(FeedForward::new(scope, config)),
        }
    }

    /// (B, T, C) → (B, T, C), added to `residual`.
    pub fn forward(&self, x: &Var, residual: Option<&Var>, pass: &Pass) -> Var {
        match self {
            Self::Dense(layer) => layer.forward(x, residual, pass),
            Self::Experts(layer) => layer.forward(x, residual, pass),
        }
    }
}

/// A router and its experts.
#[derive(Clone, Debug)]
pub struct Experts {
    config: ExpertsConfig,
    /// (E, C)
    router: Linear,
    layers: Vec<FeedForward>,
    place: Place,
}

impl Experts {
    /// Parameters `router.weight` and `experts.N.*`, as those of a feed-forward layer.
    pub fn new(scope: &Scope, config: &StackConfig, experts: ExpertsConfig) -> Self {
        let router = &(scope / "router");
        let expert = |e| FeedForward::new(&(&(scope / "experts") / e), config);
        Self {
            config: experts,
            router: Linear::new(router, experts.count, config.width, false, Role::Head),
            layers: (0..experts.count).map(expert).collect(),
            place: scope.place(),
        }
    }

    /// (B, T, C) → (B, T, C), added to `residual`.
    pub fn forward(&self, x: &Var, residual: Option<&Var>, pass: &Pass) -> Var {
        let ExpertsConfig { count, top, normalised, capacity, balance, z_loss } = self.config;
        let [batch, tokens, width] = x.value().dims();
        let rows = batch * tokens;
        let logits = self.router.forward(x); // (B, T, E)
        let router = pass.tap(&self.place, "router", softmax(logits.clone(), 1.0)); // (B, T, E)
        let real = pass.layout().real([batch, tokens]);
        let capacity = capacity.filter(|_| pass.is_training());
        let routes = Routes::new(router.value().data(), count, top, real.as_deref(), capacity);
        let routes = Arc::new(routes);
        if pass.wants_auxiliary() {
            let how = RouterLoss { balance, z_loss, shares: routes.shares(), real };
            pass.add_auxiliary(router_loss(&logits, &how));
        }
        let weights = routing(&router, &routes, normalised); // (B·T, k)
        let flat = reshape(x.clone(), [rows, width]);
        let parts: Vec<Var> = self
            .layers
            .iter()
            .enumerate()
            .map(|(e, expert)| own_rows(expert, &flat, &routes.tokens_of(e), pass))
            .collect();
        if !pass.wants(&self.place, &["out"]) {
            return combine(&parts, &weights, &routes, residual, x.shape());
        }
        let out = combine(&parts, &weights, &routes, None, x.shape());
        let out = pass.tap(&self.place, "out", out);
        match residual {
            Some(residual) => residual + out,
            None => out,
        }
    }
}

/// What an expert makes of its tokens, of all (N, C): (1, tokens, C). One without tokens has nothing to
/// show to taps, and still gets its gradient, 0.
fn own_rows(expert: &FeedForward, x: &Var, tokens: &[u32], pass: &Pass) -> Var {
    if !tokens.is_empty() {
        return expert.forward(&embedding(x, tokens, [1, tokens.len()]), None, pass);
    }
    if is_recording() {
        return expert.forward(&embedding(x, &[], [1, 0]), None, &Pass::evaluate());
    }
    Var::constant(Tensor::zeros([1, 0, x.shape().width()]))
}
