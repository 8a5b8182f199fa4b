//! The attention layer: one projection to queries, keys and values, attention, one projection
//! back.

use super::{Linear, Pass, Positions, ScoreBias};
use crate::cache::Cache;
use crate::config::{AttentionConfig, DecoderConfig};
use crate::init::{Init, Role};
use hearken_kernels::attention as kernel;
use hearken_kernels::attention::scores::{
    Alibi, And, Buckets, Causal, Global, Or, Relative, Strided, T5, Window,
};
use hearken_kernels::attention::{Rows, Scores};
use hearken_tensor::ops::attention::{Attend, attention_packed};
use hearken_tensor::{Param, Tensor, Var};

/// Causal self-attention with H query heads and K key/value heads.
#[derive(Clone, Debug)]
pub struct Attention {
    /// ((H + 2K)·D, C)
    pub qkv: Linear,
    /// (C, H·D)
    pub out: Linear,
    heads: usize,
    kv_heads: usize,
    head_width: usize,
    pattern: AttentionConfig,
    dropout: f32,
    site: u64,
}

type Rule = Box<dyn Scores + Send>;

impl Attention {
    /// Parameters `{name}.qkv.*` and `{name}.out.*`; `site` is where its noise comes from.
    pub fn new(init: &Init, name: &str, config: &DecoderConfig, site: u64) -> Self {
        let (heads, kv_heads, head_width) = (config.heads, config.kv_heads(), config.head_width());
        let rows = (heads + 2 * kv_heads) * head_width;
        let qkv = format!("{name}.qkv");
        let weight = format!("{qkv}.weight");
        let query_key_rows = (heads + kv_heads) * head_width;
        Self {
            qkv: Linear {
                weight: init.query_key_value(&weight, rows, config.width, query_key_rows),
                bias: config.bias.then(|| init.constant(&format!("{qkv}.bias"), rows, 0.0)),
            },
            out: Linear::new(
                init,
                &format!("{name}.out"),
                config.width,
                heads * head_width,
                config.bias,
                Role::Residual,
            ),
            heads,
            kv_heads,
            head_width,
            pattern: config.attention,
            dropout: config.dropout.attention,
            site,
        }
    }

    /// (B, T, C) → (B, T, C). With a cache, the tokens follow what is in it.
    pub fn forward(
        &self,
        x: &Var,
        layer: usize,
        positions: &Positions,
        pass: &Pass,
        cache: Option<&mut Cache>,
        residual: Option<&Var>,
    ) -> Var {
        let start = cache.as_ref().map_or(0, |cache| cache.len());
        let packed = self.qkv.forward(x); // (B, T, (H + 2K)·D)
        let packed = positions.rotate(packed, self.heads + self.kv_heads, start);
        let bias = positions.score_bias();
        let mixed = match cache {
            Some(cache) => Var::constant(self.cached(packed.value(), layer, &bias, cache)),
            None => self.whole(&packed, layer, &bias, pass),
        }; // (B, T, H·D)
        self.out.forward_onto(&mixed, residual)
    }

    fn whole(&self, packed: &Var, layer: usize, bias: &ScoreBias, pass: &Pass) -> Var {
        let [_, tokens, _] = packed.value().dims();
        pass.note(
            || format!("blocks.{layer}.attention.entropy"),
            || self.entropy(packed.value(), &self.rule(bias, tokens, tokens)),
        );
        let mut attend =
            Attend::new(self.heads).kv_heads(self.kv_heads).rule(self.rule(bias, tokens, tokens));
        if let Some(key) = pass.key(self.dropout, self.site) {
            attend = attend.dropout(self.dropout, key);
        }
        let learned = bias.learned().map(Param::var);
        let learned: Vec<&Var> = learned.iter().collect();
        attention_packed(packed, &learned, &attend)
    }

    /// The mean entropy of each head's weights, and behind them the most it could be if every
    /// query gave all that it sees the same weight, (H + 1).
    fn entropy(&self, packed: &Tensor, rule: &Rule) -> Tensor {
        let [batch, tokens, _] = packed.dims();
        let (heads, kv_heads, width) = (self.heads, self.kv_heads, self.head_width);
        let parts = [heads, kv_heads, kv_heads];
        let measure = |scale: f32, out: &mut [f32]| {
            let [queries, keys, values] = Rows::packed(packed.data(), tokens, parts, [width; 3]);
            let shape = kernel::Shape {
                batch,
                queries: tokens,
                keys: tokens,
                heads,
                kv_heads,
                width,
                value_width: width,
            };
            let attention = kernel::Attention {
                shape,
                queries,
                keys,
                values,
                scale,
                dropout: None,
                scores: rule,
            };
            let mut mixed = Tensor::unset([batch, tokens, heads * width]);
            let mut lse = Tensor::unset([batch, heads, tokens]);
            attention.forward(mixed.data_mut(), lse.data_mut());
            attention.entropy(lse.data(), out);
        };
        let mut out = Tensor::unset([heads + 1]);
        let mut even = Tensor::unset([heads]);
        measure(1.0 / (width as f32).sqrt(), &mut out.data_mut()[..heads]);
        // With all products 0, only the rule is left; a bias makes this a little less than the
        // most, which is what heads start from.
        measure(0.0, even.data_mut());
        out.data_mut()[heads] = even.data().iter().copied().fold(0.0, f32::max);
        out
    }

    fn cached(&self, packed: &Tensor, layer: usize, bias: &ScoreBias, cache: &mut Cache) -> Tensor {
        let [batch, tokens, row] = packed.dims();
        let (heads, kv_heads, width) = (self.heads, self.kv_heads, self.head_width);
        let keys_from = heads * width;
        let values_from = keys_from + kv_heads * width;
        let data = packed.data();
        cache.put(layer, tokens, &data[keys_from..], &data[values_from..], row);
        let length = cache.len() + tokens;
        let rule = self.rule(bias, tokens, length);
        let [keys, values] = cache.get(layer, length);
        let [queries, ..] = Rows::packed(data, tokens, [heads, kv_heads, kv_heads], [width; 3]);
        let attention = kernel::Attention {
            shape: kernel::Shape {
                batch,
                queries: tokens,
                keys: length,
                heads,
                kv_heads,
                width,
                value_width: width,
            },
            queries,
            keys: Rows::cache(keys.data, kv_heads, keys.capacity, length, width),
            values: Rows::cache(values.data, kv_heads, values.capacity, length, width),
            scale: 1.0 / (width as f32).sqrt(),
            dropout: None,
            scores: &rule,
        };
        let mut out = Tensor::unset([batch, tokens, heads * width]);
        let mut lse = Tensor::unset([batch, heads, tokens]);
        attention.forward(out.data_mut(), lse.data_mut());
        out
    }

    /// What `queries` see, the last of `keys`, and what is added to their scores.
    pub(crate) fn rule(&self, bias: &ScoreBias, queries: usize, keys: usize) -> Rule {
        let causal = Causal::new(queries, keys);
        let seen: Rule = match self.pattern {
            AttentionConfig::Full {} => Box::new(causal),
            AttentionConfig::Window { size } => Box::new(Window::causal(size, queries, keys)),
            AttentionConfig::Sparse { window, stride, global } => {
                let near = Window::causal(window, queries, keys);
                let global = Global::new(global, queries, keys);
                if stride == 0 {
                    Box::new(And(causal, Or::new(near, global)))
                } else {
                    let far = Or::new(Strided::new(stride, queries, keys), global);
                    Box::new(And(causal, Or::new(near, far)))
                }
            }
        };
        let added: Rule = match bias {
            ScoreBias::None => return seen,
            ScoreBias::Alibi => Box::new(Alibi::new(self.heads, queries, keys)),
            ScoreBias::T5 { table, buckets, max_distance } => {
                let buckets = Buckets::causal(*buckets, *max_distance);
                Box::new(T5::new(table.value(), self.heads, buckets, queries, keys))
            }
            ScoreBias::Relative { table, reach } => {
                Box::new(Relative::new(table.value(), *reach, queries, keys))
            }
        };
        Box::new(And(seen, added))
    }

    /// Its parameters.
    pub fn parameters(&self) -> impl Iterator<Item = Param> {
        self.qkv.parameters().chain(self.out.parameters())
    }
}
