//! The stages of a prompt, in the order in which they are computed.

use crate::{checked, target_at};
use hearken_base::Result;
use hearken_nn::config::{MechanismConfig, ModelConfig, NormKind};
use hearken_nn::models::Model;
use hearken_nn::taps::Pattern;
use hearken_nn::trace::{Trace, TraceOptions, trace_model};
use hearken_tensor::Tensor;
use std::collections::HashMap;

/// One stage: a value of the model by its name of [`hearken_nn::taps`].
#[derive(Clone, Debug)]
pub struct Stage {
    /// Such as `blocks.0.attention.weights`.
    pub name: String,
    /// What happens here.
    pub sentence: &'static str,
    /// How it is computed.
    pub formula: &'static str,
    /// Its dimensions, without that of the only sequence.
    pub shape: Vec<usize>,
    /// Its numbers, with a leading dimension of 1.
    pub value: Tensor,
    /// The gradient of the loss with respect to it, if there is a target.
    pub gradient: Option<Tensor>,
}

/// Which number of each stage is looked at. What is beyond a stage's dimensions is its last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Focus {
    /// Of queries.
    pub head: usize,
    /// The row.
    pub token: usize,
    /// The column: a dimension of a vector, or a key.
    pub column: usize,
}

/// A prompt on its way through a model and, with a target, the way back.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The tokens.
    pub ids: Vec<u32>,
    /// Those of the source, of an encoder-decoder.
    pub source: Vec<u32>,
    /// −ln p of the target.
    pub loss: Option<f32>,
    /// In the order in which they are computed.
    pub stages: Vec<Stage>,
}

impl Flow {
    /// Takes tokens through a model. A target is what should come at a place: (place, token), or of
    /// a model that labels texts (any place, label).
    pub fn of(
        model: &dyn Model,
        ids: &[u32],
        target: Option<(usize, u32)>,
        most_bytes: Option<usize>,
    ) -> Result<Self> {
        Self::only(model, ids, target, Vec::new(), most_bytes)
    }

    /// As [`Flow::of`], with these stages alone; all, if none are given.
    pub fn only(
        model: &dyn Model,
        ids: &[u32],
        target: Option<(usize, u32)>,
        only: Vec<Pattern>,
        most_bytes: Option<usize>,
    ) -> Result<Self> {
        let tokens = checked(model, ids)?;
        let targets = match target {
            Some((place, token)) => Some(target_at(model, ids.len(), place, token)?),
            None => None,
        };
        let options = TraceOptions { only, most_bytes };
        let Trace { loss, tensors } = trace_model(model, &tokens, targets.as_ref(), &options)?;
        let mut gradients = HashMap::new();
        let mut values = Vec::new();
        for (name, tensor) in tensors {
            match name.strip_prefix("d.") {
                Some(name) => drop(gradients.insert(name.to_owned(), tensor)),
                None => values.push((name, tensor)),
            }
        }
        let config = model.config();
        let stages = values.into_iter().map(|(name, value)| {
            let (sentence, _) = words(&name);
            let formula = formula(&name, &config);
            let shape = value.shape().dims().get(1..).unwrap_or_default().to_vec();
            let gradient = gradients.remove(&name);
            Stage { name, sentence, formula, shape, value, gradient }
        });
        Ok(Self { ids: ids.to_vec(), source: Vec::new(), loss, stages: stages.collect() })
    }

    /// The same, of an encoder-decoder that has read this source.
    #[must_use]
    pub fn about(self, source: Vec<u32>) -> Self {
        Self { source, ..self }
    }

    /// The tokens that the rows of a stage are of: of the source, in the encoder and where the decoder
    /// looks at it.
    pub fn rows_of(&self, stage: &str) -> &[u32] {
        let crossed = |part| stage.ends_with(part);
        let of_source = stage.starts_with("encoder.")
            || crossed("cross_attention.keys")
            || crossed("cross_attention.values");
        if of_source { &self.source } else { &self.ids }
    }

    /// Do the queries of an attention layer meet mixtures of keys in place of tokens?
    pub fn mixes_keys(&self, site: &str) -> bool {
        self.stage(&format!("{site}.mixed_keys")).is_some()
    }

    /// A stage by its name.
    pub fn stage(&self, name: &str) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.name == name)
    }

    /// Its numbers.
    pub fn value(&self, name: &str) -> Option<&Tensor> {
        self.stage(name).map(|stage| &stage.value)
    }
}

impl Stage {
    /// The index of a number, and its coordinates within the shape.
    pub fn at(&self, focus: Focus) -> (usize, Vec<usize>) {
        let wanted: &[usize] = match self.shape.len() {
            0 => &[],
            1 => &[focus.column],
            2 => &[focus.token, focus.column],
            _ => &[focus.head, focus.token, focus.column],
        };
        // Keys and values may have fewer heads: those of a group share one, as their numbers say.
        let place: Vec<usize> = wanted
            .iter()
            .zip(&self.shape)
            .map(|(want, size)| (*want).min(size.saturating_sub(1)))
            .collect();
        let index = place.iter().zip(&self.shape).fold(0, |sum, (at, size)| sum * size + at);
        (index, place)
    }

    /// The part of the name behind the block: `attention.weights`.
    pub fn part(&self) -> &str {
        part(&self.name)
    }

    /// What stands before that part: `blocks.0.`, or `decoder.blocks.0.` in a model with two stacks.
    pub fn prefix(&self) -> &str {
        &self.name[..self.name.len() - self.part().len()]
    }

    /// The number of the block.
    pub fn block(&self) -> Option<usize> {
        block(&self.name)
    }

    /// The norm of the gradient, if there is one.
    pub fn gradient_norm(&self) -> Option<f64> {
        self.gradient.as_ref().map(|gradient| crate::norm(gradient.data()))
    }
}

/// The name without the stack, in a model with two of them.
fn within_stack(name: &str) -> &str {
    name.strip_prefix("encoder.").or_else(|| name.strip_prefix("decoder.")).unwrap_or(name)
}

/// The number of the block in a stage's name.
pub fn block(name: &str) -> Option<usize> {
    within_stack(name).strip_prefix("blocks.")?.split('.').next()?.parse().ok()
}

/// The part of a stage's name behind its stack and block.
pub fn part(name: &str) -> &str {
    let name = within_stack(name);
    match name.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) {
        Some((_, part)) => part,
        None => name,
    }
}

/// The formula of a stage in this model: without biases that it does not have, and with its own
/// norm.
pub fn formula(name: &str, config: &ModelConfig) -> &'static str {
    let (_, general) = words(name);
    let Ok(stack) = crate::stack_of(config) else { return general };
    let part = part(name);
    let mixes = matches!(stack.mechanism, MechanismConfig::Linformer { .. });
    match part {
        "norm1" | "norm2" | "norm_cross" | "norm" | "embedding_norm" => match stack.norm.kind {
            NormKind::Layer if stack.bias.norm => "(x − mean)/√(var + ε)·w + b",
            NormKind::Layer => "(x − mean)/√(var + ε)·w",
            NormKind::Rms => "x/√(mean of x² + ε)·w",
        },
        "attention.scores" if mixes => "s = q·k′/√D",
        "attention.mixed" if mixes => "Σ w·v′ over the mixtures",
        "feed_forward.active" if stack.feed_forward.kind.is_gated() => "a = f(g)·u",
        "feed_forward.active" => "a = f(u)",
        "logits" => match config {
            ModelConfig::Decoder(config) if config.tied => "logit = h·E[token]",
            ModelConfig::Decoder(_) => "logit = h·W[token]",
            _ => general,
        },
        _ => {
            let biases = &stack.bias;
            let has_bias = match part.rsplit_once('.') {
                Some(("attention" | "cross_attention", "out")) => biases.attention_out,
                Some(("attention" | "cross_attention", _)) => biases.attention_in,
                Some(("feed_forward", _)) => biases.feed_forward,
                _ => true,
            };
            let without = general.strip_suffix(" + b").filter(|_| !has_bias);
            without.unwrap_or(general)
        }
    }
}

/// What happens in a stage, and its formula in general.
pub fn words(name: &str) -> (&'static str, &'static str) {
    match part(name) {
        "embedding" => ("Each token's id chooses a row of the table of embeddings.", "x = E[id]"),
        "types" => ("Each token's type chooses a row of another table.", "x = x + Y[type]"),
        "positions" => ("A vector says where the token stands.", "x = x + P[position]"),
        "embedding_norm" => ("The sum of the embeddings is normed.", "(x − mean)/√(var + ε)·w + b"),
        "residual_before" => {
            ("The residual stream as the block finds it.", "x, of the block before")
        }
        "norm1" | "norm2" | "norm_cross" => (
            "Each token's vector is brought to one scale.",
            "(x − mean)/√(var + ε)·w + b, or x/rms(x)·w",
        ),
        "norm" => ("The last norm, before the logits.", "(x − mean)/√(var + ε)·w + b"),
        "attention.queries" | "cross_attention.queries" => {
            ("What each token looks for, head by head.", "q = x·Wqᵀ + b")
        }
        "attention.keys" | "cross_attention.keys" => {
            ("What each token offers to be found by.", "k = x·Wkᵀ + b")
        }
        "attention.values" | "cross_attention.values" => {
            ("What each token gives if it is found.", "v = x·Wvᵀ + b")
        }
        "attention.rotated_queries" => {
            ("Queries are turned by an angle that grows with the position.", "q ← R(position)·q")
        }
        "attention.rotated_keys" => {
            ("Keys are turned in the same way, so scores know distances.", "k ← R(position)·k")
        }
        "attention.mixed_keys" => {
            ("The keys of all tokens, mixed into a few by learned shares.", "k′ = E·k")
        }
        "attention.mixed_values" => ("Values are mixed in the same way.", "v′ = F·v"),
        "attention.scores" | "cross_attention.scores" => (
            "How well each query fits each key; hidden keys get −∞.",
            "s = q·k/√D + bias, −∞ where hidden",
        ),
        "attention.weights" | "cross_attention.weights" => {
            ("Scores become shares that add up to 1.", "w = e^s / Σ e^s")
        }
        "attention.mixed" | "cross_attention.mixed" => {
            ("Each head's values, mixed by its weights.", "Σ w·v over the keys")
        }
        "attention.out" | "cross_attention.out" => {
            ("The heads are joined and projected back to the stream.", "o = concat(heads)·Woᵀ + b")
        }
        "residual_middle" => ("What attention found is added to the stream.", "x ← x + o"),
        "residual_cross" => ("What was found in the source is added.", "x ← x + o"),
        "feed_forward.up" => ("Each token by itself, out to more dimensions.", "u = x·Wupᵀ + b"),
        "feed_forward.gate" => ("A gate for each of these dimensions.", "g = x·Wgateᵀ + b"),
        "feed_forward.active" => ("The nonlinear function.", "a = f(u), or f(g)·u"),
        "feed_forward.router" => ("How well each expert fits each token.", "p = softmax(x·Rᵀ)"),
        part if part.starts_with("feed_forward.experts.") => {
            ("What one expert makes of the tokens that chose it.", "as of a feed-forward layer")
        }
        "feed_forward.out" => ("Back to the width of the stream.", "o = a·Wdownᵀ + b"),
        "residual_after" => ("The feed-forward layer's result is added.", "x ← x + o"),
        "pooled" => ("One vector for the whole text.", "f(W·h₀ + b)"),
        "head.norm" => ("The head's own layer and norm.", "norm(f(h·Dᵀ + d))"),
        "logits" => ("A score for each possible answer.", "logit = h·E[token] (+ b)"),
        _ => ("A value of the model.", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_nn::config::{BiasConfig, DecoderConfig, NormConfig, StackConfig};

    #[test]
    fn formulas_name_no_bias_and_no_norm_that_the_model_does_not_have() {
        let llama = StackConfig { norm: NormConfig::rms(), ..StackConfig::new(1, 8, 2) };
        let of = |stack: &StackConfig, name: &str| {
            formula(name, &DecoderConfig::new(5, stack.clone()).into())
        };
        assert_eq!(of(&llama, "blocks.0.norm1"), "x/√(mean of x² + ε)·w");
        assert_eq!(of(&llama, "norm"), "x/√(mean of x² + ε)·w");
        for (bias, end) in [(true, " + b"), (false, "")] {
            let mut stack = StackConfig::new(1, 8, 2);
            stack.bias = if bias { BiasConfig::ALL } else { BiasConfig::NONE };
            let of = |name: &str| of(&stack, name);
            assert_eq!(of("norm"), format!("(x − mean)/√(var + ε)·w{end}"));
            assert_eq!(of("blocks.0.attention.queries"), format!("q = x·Wqᵀ{end}"));
            assert_eq!(of("blocks.0.attention.out"), format!("o = concat(heads)·Woᵀ{end}"));
            assert_eq!(of("blocks.0.feed_forward.up"), format!("u = x·Wupᵀ{end}"));
            assert_eq!(of("blocks.0.residual_after"), "x ← x + o");
        }
    }
}
