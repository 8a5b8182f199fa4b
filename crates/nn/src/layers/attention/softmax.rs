//! The mechanism of Vaswani et al. 2017: values mixed by softmax(q·kᵀ/√D), under a rule that says
//! what is visible and what is added to scores.

use super::{Heads, Rule};
use crate::cache::LayerCache;
use crate::layers::{Dropout, ScoreBias};
use crate::pass::Pass;
use crate::scope::Scope;
use hearken_kernels::attention as kernel;
use hearken_kernels::attention::Rows;
use hearken_tensor::ops::attention::{
    Attend, attention, attention_entropy_packed, attention_packed,
};
use hearken_tensor::{Param, Tensor, Var};

/// Softmax attention.
#[derive(Clone, Debug)]
pub(super) struct Softmax {
    pub(super) heads: Heads,
    dropout: Dropout,
    /// The layer's name, for what is noted inside it.
    name: String,
}

impl Softmax {
    pub(super) fn new(scope: &Scope, heads: Heads, dropout: f32) -> Self {
        let dropout = scope.dropout("dropout", dropout);
        Self { heads, dropout, name: scope.path("entropy") }
    }

    fn attend(&self, rule: Rule) -> Attend {
        let Heads { queries, keys, value_width, .. } = self.heads;
        Attend::new(queries).kv_heads(keys).value_width(value_width).rule(rule)
    }

    fn with_noise(&self, attend: Attend, pass: &Pass) -> Attend {
        match self.dropout.noise(pass) {
            Some((p, key)) => attend.dropout(p, key),
            None => attend,
        }
    }

    /// Of a packed projection (B, T, H·D + K·D + K·Dv) to itself: (B, T, H·Dv).
    pub(super) fn whole(
        &self,
        packed: &Var,
        rule: impl Fn() -> Rule,
        bias: Option<&ScoreBias>,
        pass: &Pass,
    ) -> Var {
        let name = || self.name.clone();
        pass.note(name, || entropy(packed.value(), &self.attend(rule())));
        let learned = bias.and_then(ScoreBias::learned).map(Param::var);
        let learned: Vec<&Var> = learned.iter().collect();
        attention_packed(packed, &learned, &self.with_noise(self.attend(rule()), pass))
    }

    /// Of queries (B, T, H·D) to keys (B, S, K·D) and values (B, S, K·Dv): (B, T, H·Dv).
    pub(super) fn apart(&self, [q, k, v]: [&Var; 3], rule: Rule, pass: &Pass) -> Var {
        attention(q, k, v, &[], &self.with_noise(self.attend(rule), pass))
    }

    /// As [`Softmax::whole`] without gradients, of tokens that follow those in the cache.
    pub(super) fn cached(&self, packed: &Tensor, rule: &Rule, mut cache: LayerCache<'_>) -> Tensor {
        let [batch, tokens, row] = packed.dims();
        let Heads { queries: heads, keys: kv_heads, width, value_width } = self.heads;
        let [query_columns, key_columns, _] = self.heads.columns();
        let data = packed.data();
        let (keys, values) = (&data[query_columns..], &data[query_columns + key_columns..]);
        cache.put(tokens, keys, values, row);
        let length = cache.len() + tokens;
        let [keys, values] = cache.get(length);
        let parts = [heads, kv_heads, kv_heads];
        let [queries, ..] = Rows::packed(data, tokens, parts, [width, width, value_width]);
        let attention = kernel::Attention {
            shape: kernel::Shape {
                batch,
                queries: tokens,
                keys: length,
                heads,
                kv_heads,
                width,
                value_width,
            },
            queries,
            keys: Rows::cache(keys.data, kv_heads, keys.capacity, length, width),
            values: Rows::cache(values.data, kv_heads, values.capacity, length, value_width),
            scale: 1.0 / (width as f32).sqrt(),
            dropout: None,
            scores: rule,
        };
        let mut out = Tensor::unset([batch, tokens, heads * value_width]);
        let mut lse = Tensor::unset([batch, heads, tokens]);
        attention.forward(out.data_mut(), lse.data_mut());
        out
    }
}

/// The mean entropy of each head's weights, and behind them the most it could be if every
/// query gave all that it sees the same weight, (H + 1).
fn entropy(packed: &Tensor, attend: &Attend) -> Tensor {
    let own = attention_entropy_packed(packed, attend);
    // With all products 0, only the rule is left; a bias makes this a little less than the
    // most, which is what heads start from.
    let even = attention_entropy_packed(packed, &attend.clone().scale(0.0));
    let most = even.data().iter().copied().fold(0.0, f32::max);
    Tensor::new([own.data().len() + 1], &[own.data(), &[most]].concat())
}
