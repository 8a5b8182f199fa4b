//! LayerNorm or RMSNorm with their learned scale.

use crate::config::{NormConfig, NormKind};
use crate::pass::Pass;
use crate::scope::Scope;
use crate::taps::Place;
use hearken_tensor::{Param, Var, ops};

/// A norm over the last dimension.
#[derive(Clone, Debug)]
pub struct Norm {
    config: NormConfig,
    place: Place,
    /// (C)
    weight: Param,
    /// (C); only LayerNorm has one.
    bias: Option<Param>,
}

impl Norm {
    /// Parameters `weight` and, for a LayerNorm with one, `bias`.
    pub fn new(scope: &Scope, config: NormConfig, width: usize, bias: bool) -> Self {
        let weight = scope.vector("weight", width, 1.0);
        let bias = bias && config.kind == NormKind::Layer;
        let place = scope.place();
        Self { config, place, weight, bias: bias.then(|| scope.vector("bias", width, 0.0)) }
    }

    /// (…, C) → (…, C)
    pub fn forward(&self, x: &Var, pass: &Pass) -> Var {
        let (weight, eps) = (self.weight.var(), self.config.eps);
        let normed = match self.config.kind {
            NormKind::Layer => {
                let bias = self.bias.as_ref().map(Param::var);
                ops::layer_norm::layer_norm(x, Some(&weight), bias.as_ref(), eps)
            }
            NormKind::Rms => ops::rms_norm::rms_norm(x, Some(&weight), eps),
        };
        pass.tap_result(&self.place, normed)
    }
}
