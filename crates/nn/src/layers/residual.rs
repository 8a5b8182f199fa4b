//! A residual connection with its norm: `x + α·f(norm(x))`, or `norm(x + α·f(x))`.

use super::{Dropout, Norm};
use crate::config::{Placement, StackConfig};
use crate::pass::Pass;
use crate::scope::Scope;
use crate::taps::Place;
use hearken_tensor::{Var, ops};

/// What surrounds each layer of a block.
#[derive(Clone, Debug)]
pub struct Residual {
    norm: Norm,
    placement: Placement,
    /// α
    scale: f32,
    dropout: Dropout,
    /// The block, and what the sum is called there.
    block: Place,
    sum: &'static str,
}

impl Residual {
    /// Of a block, with the parameters of its norm under the name of that. The sum before a norm is
    /// shown to taps as `sum`.
    pub fn new(block: &Scope, norm: &str, sum: &'static str, config: &StackConfig) -> Self {
        let scope = &(block / norm);
        Self {
            norm: Norm::new(scope, config.norm, config.width, config.bias.norm),
            placement: config.norm.placement,
            scale: config.residual_scale,
            dropout: scope.dropout("residual", config.dropout.residual),
            block: block.place(),
            sum,
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
            Placement::Pre => self.join(x, &self.norm.forward(x, pass), pass, layer),
            Placement::Post => self.norm.forward(&self.join(x, x, pass, layer), pass),
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
            return pass.tap(&self.block, self.sum, layer(input, Some(x)));
        }
        self.tap_sum(x + self.scaled(layer(input, None), pass), pass)
    }

    fn scaled(&self, branch: Var, pass: &Pass) -> Var {
        let branch = self.dropout.forward(branch, pass);
        if self.scale == 1.0 { branch } else { ops::scale::scale(branch, self.scale) }
    }

    /// What the layer adds to the sum, by itself: `α·f(norm(x))`.
    pub fn branch(&self, x: &Var, pass: &Pass, layer: impl FnOnce(&Var) -> Var) -> Var {
        assert_eq!(self.placement, Placement::Pre, "only with pre-norm is there a sum by itself");
        self.scaled(layer(&self.norm.forward(x, pass)), pass)
    }

    /// Shows the sum.
    pub fn tap_sum(&self, sum: Var, pass: &Pass) -> Var {
        pass.tap(&self.block, self.sum, sum)
    }
}
