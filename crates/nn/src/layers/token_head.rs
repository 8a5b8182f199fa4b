//! The head of a masked language model: from hidden states to logits of tokens.
//!
//! ```text
//! plain:        logits = h·Eᵀ or h·Wᵀ
//! transformed:  logits = norm(f(h·Dᵀ + d))·Eᵀ + b        f as in the feed-forward layers
//! ```

use super::{Embedding, Head, Linear, Norm};
use crate::config::EncoderConfig;
use crate::layers::feed_forward::activation;
use crate::pass::Pass;
use crate::scope::Scope;
use hearken_kernels::activation::Activation;
use hearken_tensor::{Param, Role, Var};

/// What stands between hidden states and logits of tokens.
#[derive(Clone, Debug)]
pub struct TokenHead {
    transform: Option<Transform>,
    /// Unless it is the embedding.
    own: Option<Linear>,
    /// Of a head that is the embedding.
    bias: Option<Param>,
}

#[derive(Clone, Debug)]
struct Transform {
    dense: Linear,
    f: Activation,
    norm: Norm,
}

impl TokenHead {
    /// Parameters `transform.*`, `norm.*`, `weight` and `bias`, as far as it has them.
    pub fn new(scope: &Scope, config: &EncoderConfig, transform: bool) -> Self {
        let (stack, vocabulary) = (&config.stack, config.vocabulary);
        let width = stack.width;
        let transformed = transform.then(|| Transform {
            dense: Linear::new(&(scope / "transform"), width, width, true, Role::Hidden),
            f: activation(stack.feed_forward.kind),
            norm: Norm::new(&(scope / "norm"), stack.norm, width, true),
        });
        let own =
            (!config.tied).then(|| Linear::new(scope, vocabulary, width, transform, Role::Head));
        let bias = (config.tied && transform).then(|| scope.vector("bias", vocabulary, 0.0));
        Self { transform: transformed, own, bias }
    }

    /// What logits are the product of: (…, C) → (…, C).
    pub fn forward(&self, hidden: &Var, pass: &Pass) -> Var {
        match &self.transform {
            Some(Transform { dense, f, norm }) => {
                norm.forward(&dense.forward_activated(hidden, *f), pass)
            }
            None => hidden.clone(),
        }
    }

    /// The last product, of the embedding if they are tied.
    pub fn as_head(&self, embedding: &Embedding) -> Head {
        match &self.own {
            Some(own) => own.as_head(),
            None => embedding.as_head().with_bias(self.bias.as_ref().map(Param::var)),
        }
    }
}
