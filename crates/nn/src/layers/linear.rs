//! A matrix and perhaps a bias. How the matrix is kept (learning or frozen, in 32 or 16 bits) is
//! known here and nowhere else; adapters and quantised blocks will be, too.

use super::Head;
use crate::pass::Pass;
use crate::scope::Scope;
use crate::taps::Place;
use hearken_kernels::activation::Activation;
use hearken_tensor::{Param, Role, Var, ops};

/// `x·Wᵀ + b`, (…, Cin) → (…, Cout).
#[derive(Clone, Debug)]
pub struct Linear {
    /// (Cout, Cin)
    weight: Param,
    /// (Cout)
    bias: Option<Param>,
}

impl Linear {
    /// Parameters `weight` (outputs, inputs) and perhaps `bias`: takes `inputs` numbers, gives `outputs`.
    pub fn new(scope: &Scope, outputs: usize, inputs: usize, bias: bool, role: Role) -> Self {
        let weight = scope.matrix("weight", outputs, inputs, role);
        Self { weight, bias: bias.then(|| scope.vector("bias", outputs, 0.0)) }
    }

    /// As [`Linear::new`], for a projection whose first rows make queries and keys.
    pub fn query_key(
        scope: &Scope,
        outputs: usize,
        inputs: usize,
        query_key_rows: usize,
        bias: bool,
    ) -> Self {
        let weight = scope.query_key_matrix("weight", outputs, inputs, query_key_rows);
        Self { weight, bias: bias.then(|| scope.vector("bias", outputs, 0.0)) }
    }

    fn bias(&self) -> Option<Var> {
        self.bias.as_ref().map(Param::var)
    }

    /// The product.
    pub fn forward(&self, x: &Var) -> Var {
        self.forward_onto(x, None)
    }

    /// The product, added to `residual`.
    pub fn forward_onto(&self, x: &Var, residual: Option<&Var>) -> Var {
        ops::linear::linear_onto(x, self.weight.weight(), self.bias().as_ref(), residual)
    }

    /// As [`Linear::forward_onto`], as the last step of the layer at `at`; the product by itself is
    /// its value `out`.
    pub fn forward_last(&self, x: &Var, residual: Option<&Var>, at: &Place, pass: &Pass) -> Var {
        if !pass.wants(at, &["out"]) {
            return self.forward_onto(x, residual);
        }
        let out = pass.tap(at, "out", self.forward(x));
        match residual {
            Some(residual) => residual + out,
            None => out,
        }
    }

    /// `f` of the product.
    pub fn forward_activated(&self, x: &Var, f: Activation) -> Var {
        ops::linear::linear_activation(x, self.weight.weight(), self.bias().as_ref(), f)
    }

    /// `down(f(self(x)))`, added to `residual`: one operation, which keeps less for backward than
    /// two, where both layers have a bias or neither has.
    pub fn forward_through(
        &self,
        x: &Var,
        f: Activation,
        down: &Self,
        residual: Option<&Var>,
    ) -> Var {
        let (up_bias, down_bias) = (self.bias(), down.bias());
        let biases = match (&up_bias, &down_bias) {
            (Some(up), Some(down)) => Some([up, down]),
            (None, None) => None,
            _ => return down.forward_onto(&self.forward_activated(x, f), residual),
        };
        let (up, down) = (self.weight.weight(), down.weight.weight());
        ops::feed_forward::feed_forward_onto(x, up, f, down, biases, residual)
    }

    /// The layer as an output head.
    pub fn as_head(&self) -> Head {
        Head::new(self.weight.weight(), self.bias())
    }
}
