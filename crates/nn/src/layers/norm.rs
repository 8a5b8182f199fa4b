//! LayerNorm or RMSNorm with their learned scale.

use crate::config::{NormConfig, NormKind};
use crate::init::Init;
use hearken_tensor::{Param, Var, ops};

/// A norm over the last dimension.
#[derive(Clone, Debug)]
pub struct Norm {
    config: NormConfig,
    /// (C)
    pub weight: Param,
    /// (C); only LayerNorm has one.
    pub bias: Option<Param>,
}

impl Norm {
    /// Parameters `{name}.weight` and, for a LayerNorm in a model with biases, `{name}.bias`.
    pub fn new(init: &Init, name: &str, config: NormConfig, width: usize, bias: bool) -> Self {
        let bias = bias && config.kind == NormKind::Layer;
        Self {
            config,
            weight: init.constant(&format!("{name}.weight"), width, 1.0),
            bias: bias.then(|| init.constant(&format!("{name}.bias"), width, 0.0)),
        }
    }

    /// (…, C) → (…, C)
    pub fn forward(&self, x: &Var) -> Var {
        let weight = self.weight.var();
        match self.config.kind {
            NormKind::Layer => {
                let bias = self.bias.as_ref().map(Param::var);
                ops::layer_norm::layer_norm(x, Some(&weight), bias.as_ref(), self.config.eps)
            }
            NormKind::Rms => ops::rms_norm::rms_norm(x, Some(&weight), self.config.eps),
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> impl Iterator<Item = Param> {
        [Some(self.weight.clone()), self.bias.clone()].into_iter().flatten()
    }
}
