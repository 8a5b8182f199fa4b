//! Dropout: in training, a share of the numbers is set to 0 and the others grow to make up for it.

use crate::pass::Pass;
use hearken_tensor::Var;
use hearken_tensor::ops::dropout::dropout;
use hearken_tensor::rng::Key;

/// A place where numbers are dropped.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    p: f32,
    /// A number for the place in the model, which keys its noise.
    site: u64,
}

impl Dropout {
    /// With chance `p`; [`Scope::dropout`](crate::scope::Scope::dropout) knows the site.
    pub fn new(p: f32, site: u64) -> Self {
        Self { p, site }
    }

    /// The chance and the key, if this pass drops anything here.
    pub fn noise(&self, pass: &Pass) -> Option<(f32, Key)> {
        let key = pass.key(self.site).filter(|_| self.p > 0.0)?;
        Some((self.p, key))
    }

    /// Drops elements of `x`, if this is a pass with noise.
    pub fn forward(&self, x: Var, pass: &Pass) -> Var {
        match self.noise(pass) {
            Some((p, key)) => dropout(x, p, key),
            None => x,
        }
    }
}
