//! A block of a convolutional model: each token sees itself and a few before it, `dilation` apart.
//!
//! ```text
//! x + W·f(conv(norm(x)))      gated: x + W·(f(a)·b), (a, b) = conv(norm(x))
//! ```

use super::feed_forward::activation;
use super::{Dropout, Linear, Norm};
use crate::config::{ConvolutionConfig, FeedForwardKind};
use crate::pass::Pass;
use crate::scope::Scope;
use crate::taps::Place;
use hearken_tensor::ops::activations::activate;
use hearken_tensor::ops::concat::concat;
use hearken_tensor::ops::conv1d::{Convolution, conv1d};
use hearken_tensor::ops::gated::gated;
use hearken_tensor::ops::slice::slice;
use hearken_tensor::{Param, Role, Tensor, Var};

/// A causal convolution with a norm before it, an activation and a projection after it, added to what
/// goes past it.
#[derive(Clone, Debug)]
pub struct CausalConvolution {
    kernel: usize,
    dilation: usize,
    kind: FeedForwardKind,
    norm: Norm,
    /// (N, kernel, C), kept as a matrix.
    weight: Param,
    /// (N)
    bias: Param,
    out: Linear,
    dropout: Dropout,
    place: Place,
}

impl CausalConvolution {
    /// Block `layer` of a model. Parameters `norm.*`, `convolution.weight`, `convolution.bias`, `out.*`.
    pub fn new(scope: &Scope, config: &ConvolutionConfig, layer: usize) -> Self {
        let (width, kernel) = (config.width, config.kernel);
        let wide = if config.activation.is_gated() { 2 * width } else { width };
        let part = scope / "convolution";
        Self {
            kernel,
            dilation: config.dilation(layer),
            kind: config.activation,
            norm: Norm::new(&(scope / "norm"), config.norm, width, true),
            weight: part.matrix("weight", wide, kernel * width, Role::Hidden),
            bias: part.vector("bias", wide, 0.0),
            out: Linear::new(&(scope / "out"), width, width, true, Role::Residual),
            dropout: scope.dropout("dropout", config.dropout),
            place: scope.place(),
        }
    }

    /// How many tokens before its own a token sees.
    pub fn reach(&self) -> usize {
        (self.kernel - 1) * self.dilation
    }

    /// (B, T, C) → (B, T, C). The tokens before the first are zeros, or `before` (B, reach, C): the
    /// last normed inputs, which are then replaced by those at the end of these.
    pub fn forward(&self, x: &Var, before: Option<&mut Tensor>, pass: &Pass) -> Var {
        let mut normed = self.norm.forward(x, pass);
        let mut how = Convolution::causal(self.kernel, self.dilation);
        if let Some(before) = before {
            normed = concat(&[&Var::constant(before.clone()), &normed], 1); // (B, reach + T, C)
            let all = normed.shape().dims()[1];
            *before = slice(&normed, 1, all - self.reach()..all).into_value();
            how.padding = [0, 0];
        }
        let sums = conv1d(&normed, self.weight.weight(), Some(&self.bias.var()), &how);
        let sums = pass.tap(&self.place, "convolution", sums);
        let f = activation(self.kind);
        let active = if self.kind.is_gated() { gated(&sums, f) } else { activate(sums, f) };
        let active = pass.tap(&self.place, "active", active);
        if self.dropout.noise(pass).is_some() {
            let out = self.out.forward_last(&active, None, &self.place, pass);
            return pass.tap(&self.place, "residual_after", x + self.dropout.forward(out, pass));
        }
        let sum = self.out.forward_last(&active, Some(x), &self.place, pass);
        pass.tap(&self.place, "residual_after", sum)
    }
}
