//! What a configuration costs, before anything runs: parameters, arithmetic, memory.
//!
//! Parameters are exact. Arithmetic is counted as the literature does: a product with a matrix of
//! N numbers costs 2N operations per token forward and 4N backward; scores and their weighted
//! sums cost 2·2·T·H·D forward and twice that backward, as if nothing were masked (so that
//! figures compare; causal attention really does half). Memory counts what this implementation
//! holds, by rehearsing a step: see [`Memory`].

mod memory;
mod rehearsal;

pub use memory::{Memory, States, Training};

use crate::cache::CacheKind;
use crate::config::{
    DecoderConfig, EncoderConfig, ModelConfig, NormKind, Placement, PositionConfig,
};
use crate::models::{Encoder, Model};
use crate::scope::Weights;

/// One row of the parameter table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub name: &'static str,
    /// How many numbers it has, in the whole model.
    pub parameters: u64,
}

/// What a decoder costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Parameters by part.
    pub parts: Vec<Part>,
    config: DecoderConfig,
}

impl Plan {
    /// Counts.
    pub fn new(config: &ModelConfig) -> Self {
        let config = match config {
            ModelConfig::Decoder(config) => config,
            ModelConfig::Encoder(config) => return Self::of_encoder(config),
        };
        let c = &config.stack;
        let n = |x: usize| x as u64;
        let bias = |has: bool| n(usize::from(has));
        let (width, layers, heads) = (n(c.width), n(c.layers), n(c.heads));
        let (kv, head_width, value_width) =
            (n(c.kv_heads()), n(c.head_width()), n(c.value_width()));
        let position = match &c.position {
            PositionConfig::Learned { combine } => {
                n(config.context) * n(c.position_width(*combine))
            }
            PositionConfig::T5 { buckets, .. } => n(*buckets) * heads,
            PositionConfig::Relative { max_distance } => (2 * n(*max_distance) + 1) * heads,
            _ => 0,
        };
        let qkv_rows = (heads + kv) * head_width + kv * value_width;
        let attention = qkv_rows * (width + bias(c.bias.attention_in))
            + width * (heads * value_width + bias(c.bias.attention_out));
        let wide = n(c.feed_forward_width());
        let up_rows = if c.feed_forward.kind.is_gated() { 2 * wide } else { wide };
        let inner = bias(c.bias.feed_forward);
        let feed_forward = up_rows * (width + inner) + width * (wide + inner);
        let norm = width * if c.norm.kind == NormKind::Layer { 1 + bias(c.bias.norm) } else { 1 };
        let norms = 2 * layers + u64::from(c.norm.placement == Placement::Pre);
        let parts = [
            ("token embedding", n(config.vocabulary) * n(c.token_width())),
            ("positions", position),
            ("attention", layers * attention),
            ("feed-forward", layers * feed_forward),
            ("norms", norms * norm),
            ("output head", if config.tied { 0 } else { n(config.vocabulary) * width }),
        ];
        Self {
            parts: parts.map(|(name, parameters)| Part { name, parameters }).to_vec(),
            config: config.clone(),
        }
    }

    /// Counts what an encoder registers. Operations and memory are those of a decoder with the same
    /// stack, whose head predicts a token at every place.
    fn of_encoder(config: &EncoderConfig) -> Self {
        let model = Encoder::new(config.clone(), Weights::Unset);
        let parts = [
            ("token embedding", &["embedding.", "types."][..]),
            ("positions", &["position."]),
            ("attention", &["attention."]),
            ("feed-forward", &["feed_forward."]),
            ("norms", &["norm"]),
            ("output head", &["pooler.", "head."]),
        ];
        let mut counts = [0; 6];
        for parameter in model.parameters() {
            let name = parameter.name();
            // The part within a block, or within the model.
            let within = name.splitn(3, '.').nth(2).filter(|_| name.starts_with("blocks."));
            let within = within.unwrap_or(name);
            let is_in = |(_, starts): &(_, &[&str])| starts.iter().any(|s| within.starts_with(s));
            let part = parts.iter().position(is_in).unwrap_or(4); // embedding_norm
            counts[part] += parameter.shape().len() as u64;
        }
        let named = parts.iter().zip(counts);
        let EncoderConfig { vocabulary, context, tied, stack, .. } = config.clone();
        Self {
            parts: named.map(|((name, _), parameters)| Part { name, parameters }).collect(),
            config: DecoderConfig { vocabulary, context, tied, stack },
        }
    }

    /// All parameters.
    pub fn parameters(&self) -> u64 {
        self.parts.iter().map(|part| part.parameters).sum()
    }

    /// Parameters that take part in products: without tables that are only looked up.
    fn multiplied(&self) -> u64 {
        let c = &self.config;
        let looked_up =
            |part: &&Part| part.name == "positions" || (part.name == "token embedding" && !c.tied);
        self.parameters() - self.parts.iter().filter(looked_up).map(|p| p.parameters).sum::<u64>()
    }

    /// Operations for one token of a sequence of `tokens`, forward only.
    pub fn forward_flops_per_token(&self, tokens: usize) -> f64 {
        let c = &self.config.stack;
        let widths = (c.head_width() + c.value_width()) as f64;
        let pairs = [c.layers, tokens, c.heads].map(|n| n as f64).iter().product::<f64>();
        let scores = 2.0 * pairs * widths;
        2.0 * self.multiplied() as f64 + scores
    }

    /// Operations for one token of training: forward and both gradients.
    pub fn training_flops_per_token(&self, tokens: usize) -> f64 {
        3.0 * self.forward_flops_per_token(tokens)
    }

    /// Bytes of the key/value cache for one sequence of `tokens`: L·K·(D + Dv) numbers per token, and
    /// in 8 bits a scale for each head of them.
    pub fn cache_bytes(&self, tokens: usize, kind: CacheKind) -> u64 {
        let c = &self.config.stack;
        let heads = 2 * c.layers as u128 * tokens as u128 * c.kv_heads() as u128;
        let numbers = heads * (c.head_width() + c.value_width()) as u128 / 2;
        let bytes = match kind {
            CacheKind::F32 => 4 * numbers,
            CacheKind::F16 => 2 * numbers,
            CacheKind::Int8 => numbers + 4 * heads,
        };
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// What training holds at its peak.
    pub fn memory(&self, training: Training) -> Memory {
        let (c, states) = (&self.config.stack, training.states.hidden as u64);
        let widest = c.width.max(c.feed_forward_width()).max(c.heads * c.head_width());
        // One layer's activation: less than any training takes.
        let rows = training.batch as f64 * training.tokens as f64;
        let activation = training.activation_bytes as f64 * rows * widest as f64;
        if activation > memory::MOST {
            return Memory::at_least(self.parameters(), states, activation);
        }
        memory::rehearse(&self.config, self.parameters(), training)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{Decoder, Generates};
    use crate::presets;
    use crate::slot::Feed;
    use hearken_kernels::attention::pages::PAGE;

    #[test]
    fn parameters_of_gpt2_are_those_of_the_paper() {
        for (name, want) in [
            ("gpt2-small", 124_439_808),
            ("gpt2-medium", 354_823_168),
            ("gpt2-large", 774_030_080),
            ("gpt2-xl", 1_557_611_200),
        ] {
            let config = presets::model_of(presets::find(name).unwrap(), name).unwrap();
            assert_eq!(Plan::new(&config).parameters(), want, "{name}");
        }
    }

    #[test]
    fn parameters_of_bert_are_those_of_transformers() {
        for (name, want) in [("bert-base", 109_482_240), ("bert-large", 335_141_888)] {
            let config = presets::model_of(presets::find(name).unwrap(), name).unwrap();
            assert_eq!(Plan::new(&config).parameters(), want, "{name}");
            let model = crate::models::build(&config, Weights::Unset);
            let registered: usize = model.parameters().iter().map(|p| p.shape().len()).sum();
            assert_eq!(registered as u64, want, "{name}");
        }
    }

    #[test]
    fn absurd_sizes_are_planned_without_overflow() {
        let config = presets::model_of(presets::find("gpt2-small").unwrap(), "gpt2-small").unwrap();
        let plan = Plan::new(&config);
        let memory = plan.memory(Training {
            batch: usize::MAX,
            tokens: 1 << 28,
            side_by_side: 1,
            states: States::both(2),
            activation_bytes: 4,
            checkpointing: false,
        });
        assert!(memory.total() > 1 << 60, "{memory:?}");
        assert!(plan.training_flops_per_token(1 << 60).is_finite());
        assert_eq!(plan.cache_bytes(usize::MAX, CacheKind::F32), u64::MAX);
    }

    #[test]
    fn the_cache_takes_what_is_planned() {
        for (name, config) in crate::variants::all() {
            let plan = Plan::new(&config.clone().into());
            let model = Decoder::drawn(config, 1);
            for kind in [CacheKind::F32, CacheKind::F16, CacheKind::Int8] {
                let mut slot = model.slot(kind);
                model.step(&mut [Feed { ids: &[1; 17], slot: &mut slot }]);
                let planned = plan.cache_bytes(PAGE, kind); // it grows by whole pages
                assert_eq!(slot.bytes() as u64, planned, "{name}, {kind:?}");
            }
        }
    }
}
