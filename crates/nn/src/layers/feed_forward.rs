//! The feed-forward layer: each token by itself, out to F and back.
//!
//! ```text
//! plain: down(act(up(x)))                  gated: down(act(gate(x)) · up(x))
//! ```
//! Gate and up are one matrix of 2F rows, gate first: one product instead of two.

use super::{Dropout, Linear};
use crate::config::{FeedForwardKind, StackConfig};
use crate::pass::Pass;
use crate::scope::Scope;
use crate::taps::Place;
use hearken_kernels::activation::Activation;
use hearken_tensor::ops::activations::activate;
use hearken_tensor::ops::slice::slice;
use hearken_tensor::{Role, Var, ops};

/// Two matrices with a function between them.
#[derive(Clone, Debug)]
pub struct FeedForward {
    kind: FeedForwardKind,
    /// (F, C), or gate and up as (2F, C).
    up: Linear,
    /// (C, F)
    down: Linear,
    dropout: Dropout,
    place: Place,
}

impl FeedForward {
    /// Parameters `up.*` and `down.*`.
    pub fn new(scope: &Scope, config: &StackConfig) -> Self {
        let (hidden, width, bias) =
            (config.feed_forward_width(), config.width, config.bias.feed_forward);
        let kind = config.feed_forward.kind;
        let rows = if kind.is_gated() { 2 * hidden } else { hidden };
        Self {
            kind,
            up: Linear::new(&(scope / "up"), rows, width, bias, Role::Hidden),
            down: Linear::new(&(scope / "down"), width, hidden, bias, Role::Residual),
            dropout: scope.dropout("dropout", config.dropout.feed_forward),
            place: scope.place(),
        }
    }

    /// (…, C) → (…, C), added to `residual`.
    pub fn forward(&self, x: &Var, residual: Option<&Var>, pass: &Pass) -> Var {
        let f = activation(self.kind);
        let hidden = if pass.wants(&self.place, &["up", "gate", "active"]) {
            self.step_by_step(x, pass) // (…, F)
        } else if self.kind.is_gated() {
            ops::gated::gated(&self.up.forward(x), f) // (…, F)
        } else if self.dropout.noise(pass).is_some() || pass.wants(&self.place, &["out"]) {
            self.up.forward_activated(x, f) // (…, F)
        } else {
            return self.up.forward_through(x, f, &self.down, residual);
        };
        self.down.forward_last(&self.dropout.forward(hidden, pass), residual, &self.place, pass)
    }

    /// What `down` gets, with every value shown to taps.
    fn step_by_step(&self, x: &Var, pass: &Pass) -> Var {
        let (at, f) = (&self.place, activation(self.kind));
        let up = self.up.forward(x); // (…, F or 2F)
        let active = if self.kind.is_gated() {
            let (last, hidden) = (up.shape().rank() - 1, up.shape().width() / 2);
            let gate = pass.tap(at, "gate", slice(&up, last, 0..hidden));
            let up = pass.tap(at, "up", slice(&up, last, hidden..2 * hidden));
            &activate(gate, f) * &up
        } else {
            activate(pass.tap(at, "up", up), f)
        };
        pass.tap(at, "active", active)
    }
}

/// The function of a kind, of the gate where it has one.
pub(super) fn activation(kind: FeedForwardKind) -> Activation {
    match kind {
        FeedForwardKind::Relu => Activation::Relu,
        FeedForwardKind::SquaredRelu => Activation::SquaredRelu,
        FeedForwardKind::Gelu | FeedForwardKind::Geglu => Activation::Gelu,
        FeedForwardKind::GeluTanh | FeedForwardKind::GegluTanh => Activation::GeluTanh,
        FeedForwardKind::Silu | FeedForwardKind::Swiglu => Activation::Silu,
    }
}
