//! A residual connection with its norm: `x + α·f(norm(x))`, or `norm(x + α·f(x))`.

use super::{Dropout, Norm};
use crate::config::{Placement, StackConfig};
use crate::pass::Pass;
use crate::scope::Scope;
use hearken_tensor::{Var, ops};

/// What surrounds each layer of a block.
#[derive(Clone, Debug)]
pub struct Residual {
    norm: Norm,
    placement: Placement,
    /// α
    scale: f32,
    dropout: Dropout,
}

impl Residual {
    /// With the parameters of its norm.
    pub fn new(scope: &Scope, config: &StackConfig) -> Self {
        Self {
            norm: Norm::new(scope, config.norm, config.width, config.bias.norm),
            placement: config.norm.placement,
            scale: config.residual_scale,
            dropout: scope.dropout("residual", config.dropout.residual),
        }
    }

    /// `x` and the `layer` around it. The layer is given its input and what to add its result to,
    /// which its last product does by itself; nothing, if the result is scaled or dropped first.
    pub fn around(
        &self,
        x: &Var,
        pass: &Pass,
        layer: impl FnOnce(&Var, Option<&Var>) -> Var,
    ) -> Var {
        match self.placement {
            Placement::Pre => self.join(x, &self.norm.forward(x), pass, layer),
            Placement::Post => self.norm.forward(&self.join(x, x, pass, layer)),
        }
    }

    fn join(
        &self,
        x: &Var,
        input: &Var,
        pass: &Pass,
        layer: impl FnOnce(&Var, Option<&Var>) -> Var,
    ) -> Var {
        if self.scale == 1.0 && self.dropout.noise(pass).is_none() {
            return layer(input, Some(x));
        }
        let branch = self.dropout.forward(layer(input, None), pass);
        x + if self.scale == 1.0 { branch } else { ops::scale::scale(branch, self.scale) }
    }
}
