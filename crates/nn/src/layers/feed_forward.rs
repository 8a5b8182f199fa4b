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
        self.forward_onto(x, pass, None)
    }

    /// (…, C) → (…, C), added to `residual`.
    pub fn forward_onto(&self, x: &Var, pass: &Pass, residual: Option<&Var>) -> Var {
        match self.kind {
            FeedForwardKind::Relu => self.plain(x, Activation::Relu, pass, residual),
            FeedForwardKind::SquaredRelu => self.plain(x, Activation::SquaredRelu, pass, residual),
            FeedForwardKind::Gelu => self.plain(x, Activation::Gelu, pass, residual),
            FeedForwardKind::GeluTanh => self.plain(x, Activation::GeluTanh, pass, residual),
            FeedForwardKind::Silu => self.plain(x, Activation::Silu, pass, residual),
            FeedForwardKind::Swiglu => self.gated(x, Activation::Silu, pass, residual),
            FeedForwardKind::Geglu => self.gated(x, Activation::Gelu, pass, residual),
            FeedForwardKind::GegluTanh => self.gated(x, Activation::GeluTanh, pass, residual),
        }
    }

    fn plain(&self, x: &Var, f: Activation, pass: &Pass, residual: Option<&Var>) -> Var {
        let up = self.up.weight.weight();
        let biases = [&self.up, &self.down].map(|layer| layer.bias.as_ref().map(Param::var));
        let drops = pass.key(self.dropout, self.site).is_some();
        let biases = match &biases {
            [Some(up), Some(down)] if !drops => Some([up, down]),
            [None, None] if !drops => None,
            [up_bias, _] => {
                let hidden = ops::linear::linear_activation(x, up, up_bias.as_ref(), f); // (…, F)
                let hidden = pass.dropout(hidden, self.dropout, self.site);
                return self.down.forward_onto(&hidden, residual);
            }
        };
        ops::feed_forward::feed_forward_onto(x, up, f, self.down.weight.weight(), biases, residual)
    }

    fn gated(&self, x: &Var, f: Activation, pass: &Pass, residual: Option<&Var>) -> Var {
        let hidden = ops::gated::gated(&self.up.forward(x), f); // (…, F)
        let hidden = pass.dropout(hidden, self.dropout, self.site);
        self.down.forward_onto(&hidden, residual)
    }

    /// Its parameters.
    pub fn parameters(&self) -> impl Iterator<Item = Param> {
        self.up.parameters().chain(self.down.parameters())
    }
}
