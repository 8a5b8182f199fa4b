//! The feed-forward layer: each token by itself, out to F and back.
//!
//! ```text
//! plain: down(act(up(x)))                  gated: down(act(gate(x)) · up(x))
//! ```
//! Gate and up are one matrix of 2F rows, gate first: one product instead of two.

use super::{Linear, Pass};
use crate::config::{DecoderConfig, FeedForwardKind};
use crate::init::{Init, Role};
use hearken_kernels::activation::Activation;
use hearken_tensor::{Param, Var, ops};

/// Two matrices with a function between them.
#[derive(Clone, Debug)]
pub struct FeedForward {
    kind: FeedForwardKind,
    /// (F, C), or gate and up as (2F, C).
    pub up: Linear,
    /// (C, F)
    pub down: Linear,
    dropout: f32,
    site: u64,
}

impl FeedForward {
    /// Parameters `{name}.up.*` and `{name}.down.*`; `site` is where its noise comes from.
    pub fn new(init: &Init, name: &str, config: &DecoderConfig, site: u64) -> Self {
        let (wide, width) = (config.feed_forward_width(), config.width);
        let kind = config.feed_forward.kind;
        let rows = if kind.is_gated() { 2 * wide } else { wide };
        Self {
            kind,
            up: Linear::new(init, &format!("{name}.up"), rows, width, config.bias, Role::Hidden),
            down: Linear::new(
                init,
                &format!("{name}.down"),
                width,
                wide,
                config.bias,
                Role::Residual,
            ),
            dropout: config.dropout.feed_forward,
            site,
        }
    }

    /// (…, C) → (…, C)
    pub fn forward(&self, x: &Var, pass: &Pass) -> Var {
        let hidden = match self.kind {
            FeedForwardKind::Relu => self.activated(x, Activation::Relu),
            FeedForwardKind::SquaredRelu => self.activated(x, Activation::SquaredRelu),
            FeedForwardKind::Gelu => self.activated(x, Activation::Gelu),
            FeedForwardKind::GeluTanh => self.activated(x, Activation::GeluTanh),
            FeedForwardKind::Silu => self.activated(x, Activation::Silu),
            FeedForwardKind::Swiglu => self.gated(x, Activation::Silu),
            FeedForwardKind::Geglu => self.gated(x, Activation::Gelu),
            FeedForwardKind::GegluTanh => self.gated(x, Activation::GeluTanh),
        }; // (…, F)
        self.down.forward(&pass.dropout(hidden, self.dropout, self.site))
    }

    fn activated(&self, x: &Var, activation: Activation) -> Var {
        let bias = self.up.bias.as_ref().map(Param::var);
        ops::linear::linear_activation(x, self.up.weight.weight(), bias.as_ref(), activation)
    }

    fn gated(&self, x: &Var, activation: Activation) -> Var {
        ops::gated::gated(&self.up.forward(x), activation)
    }

    /// Its parameters.
    pub fn parameters(&self) -> impl Iterator<Item = Param> {
        self.up.parameters().chain(self.down.parameters())
    }
}
