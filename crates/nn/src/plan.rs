//! What a configuration costs, before anything runs: parameters, arithmetic, memory.
//!
//! Parameters are exact. Arithmetic is counted as the literature does: a product with a matrix of
//! N numbers costs 2N operations per token forward and 4N backward; scores and their weighted
//! sums cost 2·2·T·H·D forward and twice that backward, as if nothing were masked (so that
//! figures compare; causal attention really does half). Memory counts what this implementation
//! holds: see [`Memory`].

use crate::config::{Combine, DecoderConfig, NormKind, Placement, PositionConfig};

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

/// How a model is trained, as far as memory depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Training {
    /// Sequences per micro-batch.
    pub batch: usize,
    /// T
    pub tokens: usize,
    /// Numbers that the optimiser keeps per parameter: 2 for Adam, 1 for momentum, 0 for SGD.
    pub optimizer_states: usize,
    /// Bytes of a saved activation: 4, or 2 with 16-bit storage.
    pub activation_bytes: usize,
    /// Is each block computed again in backward?
    pub checkpointing: bool,
}

/// Bytes that training holds at its peak, by what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The parameters.
    pub parameters: u64,
    /// Their gradients.
    pub gradients: u64,
    /// The optimiser's numbers.
    pub optimizer: u64,
    /// What forward keeps for backward, and the largest working set beside it.
    pub activations: u64,
}

impl Memory {
    /// All together.
    pub fn total(&self) -> u64 {
        self.parameters + self.gradients + self.optimizer + self.activations
    }
}

impl Plan {
    /// Counts.
    pub fn new(config: &DecoderConfig) -> Self {
        let c = config;
        let n = |x: usize| x as u64;
        let bias = n(usize::from(c.bias));
        let (width, layers, heads) = (n(c.width), n(c.layers), n(c.heads));
        let (kv, head_width, wide) =
            (n(c.kv_heads()), n(c.head_width()), n(c.feed_forward_width()));
        let beside = match &c.position {
            PositionConfig::Learned { combine: Combine::Concatenate { width } }
            | PositionConfig::Sinusoidal { combine: Combine::Concatenate { width } } => n(*width),
            _ => 0,
        };
        let position = match &c.position {
            PositionConfig::Learned { combine } => n(c.context) * n(c.position_width(*combine)),
            PositionConfig::T5 { buckets, .. } => n(*buckets) * heads,
            PositionConfig::Relative { max_distance } => (2 * n(*max_distance) + 1) * heads,
            _ => 0,
        };
        let qkv_rows = (heads + 2 * kv) * head_width;
        let attention = qkv_rows * (width + bias) + width * (heads * head_width + bias);
        let up_rows = if c.feed_forward.kind.is_gated() { 2 * wide } else { wide };
        let feed_forward = up_rows * (width + bias) + width * (wide + bias);
        let norm = width * if c.norm.kind == NormKind::Layer { 1 + bias } else { 1 };
        let norms = 2 * layers + u64::from(c.norm.placement == Placement::Pre);
        let parts = [
            ("token embedding", n(c.vocabulary) * (width - beside)),
            ("positions", position),
            ("attention", layers * attention),
            ("feed-forward", layers * feed_forward),
            ("norms", norms * norm),
            ("output head", if c.tied { 0 } else { n(c.vocabulary) * width }),
        ];
        Self {
            parts: parts.map(|(name, parameters)| Part { name, parameters }).to_vec(),
            config: config.clone(),
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
        let c = &self.config;
        let scores = 4 * c.layers * tokens * c.heads * c.head_width();
        (2 * self.multiplied()) as f64 + scores as f64
    }

    /// Operations for one token of training: forward and both gradients.
    pub fn training_flops_per_token(&self, tokens: usize) -> f64 {
        3.0 * self.forward_flops_per_token(tokens)
    }

    /// Bytes of the key/value cache for one sequence of `tokens`, at `bytes` per number.
    pub fn cache_bytes(&self, tokens: usize, bytes: usize) -> u64 {
        let c = &self.config;
        2 * (c.layers * tokens * c.kv_heads() * c.head_width() * bytes) as u64
    }

    /// What training holds at its peak.
    pub fn memory(&self, training: Training) -> Memory {
        let parameters = 4 * self.parameters();
        Memory {
            parameters,
            gradients: parameters,
            optimizer: parameters * training.optimizer_states as u64,
            activations: self.activation_bytes(training),
        }
    }

    /// Per block, for each token: the norms' inputs (2C, on the residual stream) and outputs (2C),
    /// the packed projection, the attention's result, and the feed-forward layer before and after
    /// its function. With checkpointing only the block's input stays, and one block is whole.
    fn activation_bytes(&self, training: Training) -> u64 {
        let c = &self.config;
        let rows = training.batch * training.tokens;
        let inner = c.heads * c.head_width();
        let qkv = inner + 2 * c.kv_heads() * c.head_width();
        let wide = c.feed_forward_width();
        let hidden = if c.feed_forward.kind.is_gated() { 3 * wide } else { 2 * wide };
        let block = 4 * c.width + qkv + inner + hidden;
        let saved =
            if training.checkpointing { c.layers * c.width + block } else { c.layers * block };
        // Backward of the widest layer holds its incoming gradient and the one it makes; the ends
        // of the model hold the last residual, its norm, and the head's gradient.
        let working = (4 * c.width + 2 * wide) * 4;
        (rows * (saved * training.activation_bytes + working)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;
    use crate::presets;

    #[test]
    fn parameters_of_gpt2_are_those_of_the_paper() {
        for (name, want) in [
            ("gpt2-small", 124_439_808),
            ("gpt2-medium", 354_823_168),
            ("gpt2-large", 774_030_080),
            ("gpt2-xl", 1_557_611_200),
        ] {
            let ModelConfig::Decoder(config) =
                presets::model_of(presets::find(name).unwrap(), name).unwrap();
            assert_eq!(Plan::new(&config).parameters(), want, "{name}");
        }
    }
}
