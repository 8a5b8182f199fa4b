//! What stands behind a number of each stage: which values and weights, and how they are put together.

use super::{Right, Terms, activated, name_of, normed, short, softmax_terms, sum_of_products};
use crate::flow::{Flow, Focus, Stage};
use crate::{parameter, row, stack_of};
use hearken_nn::config::{
    Cross, MechanismConfig, ModelConfig, Placement, PositionConfig, StackConfig,
};
use hearken_nn::models::Model;
use hearken_tensor::{Param, Tensor};

/// A stage with all that its sums need.
pub(super) struct Behind<'a> {
    model: &'a dyn Model,
    flow: &'a Flow,
    stage: &'a Stage,
    config: ModelConfig,
    /// Of the stage: an encoder may have heads and widths of its own.
    stack: StackConfig,
    prefix: String,
}

impl<'a> Behind<'a> {
    pub(super) fn of(model: &'a dyn Model, flow: &'a Flow, stage: &'a Stage) -> Option<Self> {
        let (config, prefix) = (model.config(), stage.prefix().to_owned());
        let stack = match &config {
            ModelConfig::EncoderDecoder(config) if prefix.starts_with("encoder.") => {
                config.encoder_stack()
            }
            config => stack_of(config).ok()?.clone(),
        };
        Some(Self { model, flow, stage, config, stack, prefix })
    }

    /// The right-hand side of one number, if this stage is understood.
    pub(super) fn right_side(&self, place: &[usize]) -> Option<Right> {
        match (self.stage.part(), place) {
            ("embedding", &[token, column]) => self.embedded(token, column),
            // The mean of two streams, which is no stage of its own.
            ("norm", _) if self.stack.reversible => None,
            ("norm1" | "norm2" | "norm_cross" | "norm" | "embedding_norm", &[token, column]) => {
                self.normed(token, column)
            }
            ("residual_middle" | "residual_cross" | "residual_after", &[token, column]) => {
                self.added(token, column)
            }
            ("logits", &[token, id]) if self.model.generates().is_some() => self.logit(token, id),
            (part, place) if part.starts_with("feed_forward.") => self.fed_forward(part, place),
            (part, place) => self.attended(part, place),
        }
    }

    fn value(&self, part: &str) -> Option<&'a Tensor> {
        self.flow.value(&format!("{}{part}", self.prefix))
    }

    fn weight(&self, part: &str) -> Option<Tensor> {
        parameter(self.model, &format!("{}{part}", self.prefix)).map(Param::value)
    }

    /// A product with row `r` of a weight, and its bias.
    fn product(&self, x: &[f32], name: &str, r: usize) -> Option<Right> {
        let matrix = self.weight(&format!("{name}.weight"))?;
        let bias = self.weight(&format!("{name}.bias")).map(|bias| bias.data()[r]);
        Some(sum_of_products(x, row(&matrix, r), bias))
    }

    fn embedded(&self, token: usize, column: usize) -> Option<Right> {
        let shared = || parameter(self.model, "embedding.weight").map(Param::value);
        let table = self.weight("embedding.weight").or_else(shared)?;
        let encoder = self.prefix == "encoder.";
        let ids = if encoder { &self.flow.source } else { &self.flow.ids };
        let id = *ids.get(token)?;
        let found = f64::from(*row(&table, id as usize).get(column)?);
        let scaled =
            matches!(&self.config, ModelConfig::EncoderDecoder(config) if config.scaled_embeddings);
        if scaled {
            let text = format!("E[{id}][{column}]·√{}", self.stack.width);
            return Some(Right::plain(text, found * (self.stack.width as f64).sqrt()));
        }
        Some(Right::plain(format!("E[{id}][{column}]"), found))
    }

    fn normed(&self, token: usize, column: usize) -> Option<Right> {
        let input = norm_input(self.flow, self.stage, &self.prefix)?;
        let name = self.stage.part();
        let gain = self.weight(&format!("{name}.weight"))?;
        let bias = self.weight(&format!("{name}.bias"));
        let (x, eps) = (row(input, token), f64::from(self.stack.norm.eps));
        let (gain, bias) = (gain.data()[column], bias.map(|b| b.data()[column]));
        Some(normed(x, column, self.stack.norm.kind, eps, gain, bias))
    }

    /// A sum of the residual stream.
    fn added(&self, token: usize, column: usize) -> Option<Right> {
        let (x, added) = if self.stack.reversible {
            reversible_sum(self.flow, self.stage, &self.prefix)?
        } else {
            sum_of_stream(&|part| self.value(part), self.stage, self.stack.norm.placement)?
        };
        let (x, added) = (f64::from(row(x, token)[column]), f64::from(row(added, token)[column]));
        let scale = f64::from(self.stack.residual_scale);
        let factor = if scale == 1.0 { String::new() } else { format!("{}·", short(scale)) };
        let text = format!("{} + {factor}{}", short(x), short(added));
        Some(Right::plain(text, x + scale * added))
    }

    fn logit(&self, token: usize, id: usize) -> Option<Right> {
        let own = crate::stack_prefix(self.model);
        let hidden = self.flow.value(&format!("{own}norm")).or_else(|| last_hidden(self.flow))?;
        let tables = ["head.weight", "embedding.weight", "decoder.embedding.weight"];
        let table = tables.iter().find_map(|name| self.weight(name))?;
        let scale = match &self.config {
            ModelConfig::EncoderDecoder(config) if config.scaled_logits => {
                1.0 / (self.stack.width as f32).sqrt()
            }
            _ => 1.0,
        };
        let scaled: Vec<f32> = row(hidden, token).iter().map(|x| x * scale).collect();
        let bias = self.weight("head.bias").map(|bias| bias.data()[id]);
        let products = sum_of_products(&scaled, row(&table, id), bias);
        Some(products.called("hidden", "embedding"))
    }

    fn fed_forward(&self, part: &str, place: &[usize]) -> Option<Right> {
        let &[token, column] = place else { return None };
        let kind = self.stack.feed_forward.kind;
        match part {
            "feed_forward.up" | "feed_forward.gate" => {
                let x = row(feed_forward_input(self.flow, &self.prefix)?, token);
                let second = kind.is_gated() && part == "feed_forward.up";
                let at = if second { self.stack.feed_forward_width() } else { 0 };
                self.product(x, "feed_forward.up", at + column)
            }
            "feed_forward.active" => {
                let up = f64::from(row(self.value("feed_forward.up")?, token)[column]);
                if !kind.is_gated() {
                    let text = format!("{}({})", name_of(kind), short(up));
                    return Some(Right::plain(text, activated(kind, up)));
                }
                let gate = f64::from(row(self.value("feed_forward.gate")?, token)[column]);
                let text = format!("{}({})·{}", name_of(kind), short(gate), short(up));
                Some(Right::plain(text, activated(kind, gate) * up))
            }
            "feed_forward.out" => {
                let active = row(self.value("feed_forward.active")?, token);
                self.product(active, "feed_forward.down", column)
            }
            _ => None,
        }
    }

    fn attended(&self, part: &str, place: &[usize]) -> Option<Right> {
        match (part, place) {
            (_, &[head, token, column]) if is_projection(part) => {
                self.projected(part, head, token, column)
            }
            ("attention.scores" | "cross_attention.scores", &[head, token, key]) => {
                self.score(head, token, key)
            }
            ("attention.weights" | "cross_attention.weights", &[head, token, key]) => {
                let scores = self.value(&part.replace("weights", "scores"))?;
                softmax_terms(row(scores, head * self.stage.shape[1] + token), key)
            }
            ("attention.mixed" | "cross_attention.mixed", &[head, token, column]) => {
                let weights = self.value(&part.replace("mixed", "weights"))?;
                let weights = row(weights, head * self.stage.shape[1] + token);
                let values = self.seen(&part.replace("mixed", "values"))?;
                let (group, sources) = (self.group_of(head, values), weights.len());
                let v: Vec<f32> =
                    (0..sources).map(|s| row(values, group * sources + s)[column]).collect();
                Some(sum_of_products(weights, &v, None).called("weight", "value"))
            }
            ("attention.mixed_keys", &[head, r, column]) => {
                self.mixture(["attention.keys", "attention.key_mixtures"], head, r, column)
            }
            ("attention.mixed_values", &[head, r, column]) => {
                self.mixture(["attention.values", "attention.value_mixtures"], head, r, column)
            }
            ("attention.out" | "cross_attention.out", &[token, column]) => {
                let (mixed, tokens) =
                    (self.value(&part.replace("out", "mixed"))?, self.stage.shape[0]);
                let joined: Vec<f32> = (0..self.stack.heads)
                    .flat_map(|h| row(mixed, h * tokens + token))
                    .copied()
                    .collect();
                self.product(&joined, part, column)
            }
            _ => None,
        }
    }

    /// Keys or values as queries meet them: mixtures of them, where there are such.
    fn seen(&self, part: &str) -> Option<&'a Tensor> {
        let mixed = match part {
            "attention.keys" => self.value("attention.mixed_keys"),
            "attention.values" => self.value("attention.mixed_values"),
            _ => None,
        };
        mixed.or_else(|| self.value(part))
    }

    /// A number of mixture `r` of the keys or values of all tokens.
    fn mixture(&self, names: [&str; 2], head: usize, r: usize, column: usize) -> Option<Right> {
        let (of, mixtures) = (self.value(names[0])?, self.weight(names[1])?);
        let tokens = *of.shape().dims().get(2)?;
        let x: Vec<f32> = (0..tokens).map(|t| row(of, head * tokens + t)[column]).collect();
        let shares = row(&mixtures, r).get(..tokens)?;
        Some(sum_of_products(shares, &x, None).called("share", "of the token"))
    }

    /// The head of keys or values (1, K, S, D) that a head of queries shares.
    fn group_of(&self, head: usize, of: &Tensor) -> usize {
        let groups = of.shape().dims().get(1).copied().unwrap_or(1).max(1);
        head / (self.stack.heads / groups).max(1)
    }

    /// A query, a key or a value.
    fn projected(&self, part: &str, head: usize, token: usize, column: usize) -> Option<Right> {
        let stack = &self.stack;
        let (heads, groups) = (stack.heads, stack.kv_heads());
        let (width, value_width) = (stack.head_width(), stack.value_width());
        let shared = stack.shared_projections;
        let own = match part {
            "cross_attention.queries" => {
                let pre = stack.norm.placement == Placement::Pre;
                let x = self.value(if pre { "norm_cross" } else { "norm1" })?;
                return self.product(row(x, token), part, head * width + column);
            }
            "cross_attention.keys" | "cross_attention.values" => {
                let own = if part.ends_with("keys") { width } else { value_width };
                let x = memory(&self.config, self.flow)?;
                return self.product(row(x, token), part, head * own + column);
            }
            "attention.queries" => head * width,
            "attention.keys" => {
                let first = if shared.queries_are_keys() { 0 } else { heads * width };
                first + head * width
            }
            _ => {
                // Under a hash, queries are keys.
                let hashed = matches!(stack.mechanism, MechanismConfig::Lsh { .. });
                let same = (shared.queries_are_keys() || hashed, shared.keys_are_values());
                let first = match same {
                    (false, false) => (heads + groups) * width,
                    (true, false) | (false, true) => heads * width,
                    (true, true) => 0,
                };
                first + head * value_width
            }
        };
        let x = attention_input(self.flow, &self.prefix)?;
        self.product(row(x, token), "attention.qkv", own + column)
    }

    fn score(&self, head: usize, token: usize, key: usize) -> Option<Right> {
        let (stage, stack, width) = (self.stage, &self.stack, self.stack.head_width());
        let at = stage.at(Focus { head, token, column: key }).0;
        let actual = f64::from(stage.value.data()[at]);
        if actual == f64::NEG_INFINITY {
            let text = "−∞: this key is hidden from this query".to_owned();
            return Some(Right::plain(text, actual));
        }
        let crossed = stage.part().starts_with("cross");
        let names = match (crossed, matches!(stack.position, PositionConfig::Rope { .. })) {
            (true, _) => ["cross_attention.queries", "cross_attention.keys"],
            (false, true) => ["attention.rotated_queries", "attention.rotated_keys"],
            (false, false) => ["attention.queries", "attention.keys"],
        };
        let (queries, keys) = (self.value(names[0])?, self.seen(names[1])?);
        let [_, tokens, sources] = stage.shape[..] else { return None };
        let q = row(queries, head * tokens + token);
        let k = row(keys, self.group_of(head, keys) * sources + key);
        let products = sum_of_products(q, k, None).called("query", "key");
        let scaled = products.value * f64::from(stack.score_scale());
        let biased = !crossed
            && matches!(
                stack.position,
                PositionConfig::Alibi {}
                    | PositionConfig::T5 { .. }
                    | PositionConfig::Relative { .. }
            );
        let bias = biased.then_some(actual - scaled);
        let shown = bias.map(|bias| format!(" + bias {}", short(bias))).unwrap_or_default();
        let mut terms = products.terms;
        if let Terms::Products { divisor, plus, .. } = &mut terms {
            (*divisor, *plus) = (1.0 / f64::from(stack.score_scale()), bias);
        }
        // T5 divides by nothing.
        let temperature = stack.softmax.temperature;
        let divided = match (stack.scaled_scores, temperature == 1.0) {
            (true, true) => format!("/√{width}"),
            (true, false) => format!("/(√{width}·{temperature})"),
            (false, true) => String::new(),
            (false, false) => format!("/{temperature}"),
        };
        let text = format!("({}){divided}{shown}", products.text);
        Some(Right { text, value: bias.map_or(scaled, |_| actual), terms })
    }
}

fn is_projection(part: &str) -> bool {
    let last = part.strip_prefix("cross_").unwrap_or(part);
    ["attention.queries", "attention.keys", "attention.values"].contains(&last)
}

/// What is added up in the stream: what the branch has read it as, and what the branch gives.
fn sum_of_stream<'a>(
    value: &dyn Fn(&str) -> Option<&'a Tensor>,
    stage: &Stage,
    placement: Placement,
) -> Option<(&'a Tensor, &'a Tensor)> {
    let [norms, sums] =
        [["norm1", "norm_cross"], ["residual_middle", "residual_cross"]].map(|[first, second]| {
            // Of a block without a source there is no second one.
            (value(first), value(second).or(value(first)))
        });
    let (before, behind) = if placement == Placement::Pre { sums } else { norms };
    match stage.part() {
        "residual_middle" => Some((value("residual_before")?, value("attention.out")?)),
        "residual_cross" => Some((before?, value("cross_attention.out")?)),
        _ => Some((behind?, value("feed_forward.out")?)),
    }
}

/// What the decoder attends to: the last that the encoder gives, unless each block reads one of its own.
fn memory<'a>(config: &ModelConfig, flow: &'a Flow) -> Option<&'a Tensor> {
    let ModelConfig::EncoderDecoder(config) = config else { return None };
    let last = flow.stages.iter().rev().find(|stage| stage.name.starts_with("encoder."));
    last.filter(|_| config.cross == Cross::Last).map(|stage| &stage.value)
}

fn last_hidden(flow: &Flow) -> Option<&Tensor> {
    flow.stages.iter().rev().find(|s| s.part() == "norm2").map(|s| &s.value)
}

/// What is added up in a reversible layer: y₁ = x₁ + attention, where x₁ is y₁ of the layer before, and
/// y₂ = x₂ + feed-forward, where x₂ is what attention has read.
fn reversible_sum<'a>(
    flow: &'a Flow,
    stage: &Stage,
    prefix: &str,
) -> Option<(&'a Tensor, &'a Tensor)> {
    let value = |part: &str| flow.value(&format!("{prefix}{part}"));
    if stage.part() == "residual_after" {
        return Some((value("residual_before")?, value("feed_forward.out")?));
    }
    let before = stage.block()?.checked_sub(1);
    let before = before.map(|block| format!("blocks.{block}.residual_middle"));
    let x = flow.value(before.as_deref().unwrap_or("blocks.0.residual_before"))?;
    Some((x, value("attention.out")?))
}

/// What attention reads: the first norm, or with post-norm the stream itself.
fn attention_input<'a>(flow: &'a Flow, prefix: &str) -> Option<&'a Tensor> {
    let value = |part: &str| flow.stage(&format!("{prefix}{part}"));
    branch_input(flow, value("norm1")?, value("attention.queries")?, value("residual_before")?)
}

fn feed_forward_input<'a>(flow: &'a Flow, prefix: &str) -> Option<&'a Tensor> {
    let value = |part: &str| flow.stage(&format!("{prefix}{part}"));
    let before = value("norm_cross").or(value("norm1"))?; // of post-norm
    branch_input(flow, value("norm2")?, value("feed_forward.active")?, before)
}

/// The norm, if it was computed before the branch, else the other.
fn branch_input<'a>(
    flow: &'a Flow,
    norm: &'a Stage,
    branch: &Stage,
    other: &'a Stage,
) -> Option<&'a Tensor> {
    let at = |stage: &Stage| flow.stages.iter().position(|s| s.name == stage.name);
    Some(if at(norm)? < at(branch)? { &norm.value } else { &other.value })
}

/// What a norm reads: the sum that was computed last before it.
fn norm_input<'a>(flow: &'a Flow, stage: &Stage, prefix: &str) -> Option<&'a Tensor> {
    if stage.part() == "embedding_norm" {
        return None; // the sum of the embeddings has no name of its own
    }
    let at = flow.stages.iter().position(|s| s.name == stage.name)?;
    let is_sum = |s: &&Stage| s.part().starts_with("residual_");
    let found = flow.stages[..at].iter().rev().find(is_sum)?;
    (prefix.is_empty() || found.name.starts_with(prefix)).then_some(&found.value)
}
