//! A matrix and perhaps a bias.

use crate::init::{Init, Role};
use hearken_tensor::{Param, Var, ops};

/// `x·Wᵀ + b`, (…, Cin) → (…, Cout).
#[derive(Clone, Debug)]
pub struct Linear {
    /// (Cout, Cin)
    pub weight: Param,
    /// (Cout)
    pub bias: Option<Param>,
}

impl Linear {
    /// Parameters `{name}.weight` and `{name}.bias`.
    pub fn new(
        init: &Init,
        name: &str,
        wide: usize,
        narrow: usize,
        bias: bool,
        role: Role,
    ) -> Self {
        Self {
            weight: init.matrix(&format!("{name}.weight"), wide, narrow, role),
            bias: bias.then(|| init.constant(&format!("{name}.bias"), wide, 0.0)),
        }
    }

    /// The product.
    pub fn forward(&self, x: &Var) -> Var {
        self.forward_onto(x, None)
    }

    /// The product, and what it is added to.
    pub fn forward_onto(&self, x: &Var, residual: Option<&Var>) -> Var {
        let bias = self.bias.as_ref().map(Param::var);
        ops::linear::linear_onto(x, self.weight.weight(), bias.as_ref(), residual)
    }

    /// Its parameters.
    pub fn parameters(&self) -> impl Iterator<Item = Param> {
        [Some(self.weight.clone()), self.bias.clone()].into_iter().flatten()
    }
}
