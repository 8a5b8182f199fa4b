//! The sum behind one number of a stage, with the numbers put in.
//!
//! Every line is computed here, in f64, from the stage before and the weights, and not read off the
//! stage: so it is also a check of what it explains.

use crate::flow::{Flow, Focus, Stage};
use crate::{dot, parameter, row, stack_of};
use hearken_nn::config::{
    Cross, FeedForwardKind, MechanismConfig, ModelConfig, NormKind, Placement, PositionConfig,
};
use hearken_nn::models::Model;
use hearken_tensor::{Param, Tensor};

/// One number and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Such as `0.36 = e^0.58 / (e^0.58 + e^1.15)`.
    pub text: String,
    /// What the right-hand side comes to.
    pub computed: f64,
    /// What the engine computed.
    pub actual: f32,
    /// All numbers that went in.
    pub terms: Terms,
}

/// The numbers behind a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Terms {
    /// The text says it all.
    #[default]
    Plain,
    /// Σ a·b, divided by a number, with what is added.
    Products {
        /// What a says: `x`, `query`, …
        names: [&'static str; 2],
        /// a
        left: Vec<f32>,
        /// b
        right: Vec<f32>,
        /// √D of scores, else 1.
        divisor: f64,
        /// A bias, if there is one.
        plus: Option<f64>,
    },
    /// e^s / Σ e^s
    Softmax {
        /// All of s.
        scores: Vec<f32>,
        /// Which of them.
        at: usize,
    },
    /// (x − mean)/deviation·gain + bias
    Norm {
        /// The vector.
        x: Vec<f32>,
        /// 0 for an RMS norm.
        mean: f64,
        /// √(var + ε), or the root of the mean square.
        deviation: f64,
        /// w
        gain: f64,
        /// b, if there is one.
        bias: Option<f64>,
    },
}

/// The right-hand side of a line.
struct Right {
    text: String,
    value: f64,
    terms: Terms,
}

impl Right {
    fn plain(text: String, value: f64) -> Self {
        Self { text, value, terms: Terms::Plain }
    }

    /// Says what the factors of its products are.
    fn called(mut self, a: &'static str, b: &'static str) -> Self {
        if let Terms::Products { names, .. } = &mut self.terms {
            *names = [a, b];
        }
        self
    }
}

/// How many terms of a long sum are shown.
const TERMS: usize = 3;

/// The line of a stage's number, if this stage is understood.
pub fn line(model: &dyn Model, flow: &Flow, stage: &Stage, focus: Focus) -> Option<Line> {
    let (index, place) = stage.at(focus);
    let actual = *stage.value.data().get(index)?;
    let Right { text, value, terms } = right_side(model, flow, stage, &place)?;
    let text = format!("{} = {text}", short(f64::from(actual)));
    Some(Line { text, computed: value, actual, terms })
}

fn right_side(model: &dyn Model, flow: &Flow, stage: &Stage, place: &[usize]) -> Option<Right> {
    let config = model.config();
    let prefix = stage.prefix().to_owned();
    let stack = &match &config {
        // The encoder may have heads and widths of its own.
        ModelConfig::EncoderDecoder(config) if prefix.starts_with("encoder.") => {
            config.encoder_stack()
        }
        config => stack_of(config).ok()?.clone(),
    };
    let value = |part: &str| flow.value(&format!("{prefix}{part}"));
    let weight = |part: &str| parameter(model, &format!("{prefix}{part}")).map(Param::value);
    let (heads, groups) = (stack.heads, stack.kv_heads());
    let (width, value_width) = (stack.head_width(), stack.value_width());
    // A product with row `r` of a weight and its bias.
    let product = |x: &[f32], name: &str, r: usize| {
        let matrix = weight(&format!("{name}.weight"))?;
        let bias = weight(&format!("{name}.bias")).map(|bias| bias.data()[r]);
        Some(sum_of_products(x, row(&matrix, r), bias))
    };
    match (stage.part(), place) {
        ("embedding", &[token, column]) => {
            let shared = || parameter(model, "embedding.weight").map(Param::value);
            let table = weight("embedding.weight").or_else(shared)?;
            let ids = if prefix == "encoder." { &flow.source } else { &flow.ids };
            let id = *ids.get(token)?;
            let found = f64::from(*row(&table, id as usize).get(column)?);
            if matches!(&config, ModelConfig::EncoderDecoder(config) if config.scaled_embeddings) {
                let text = format!("E[{id}][{column}]·√{}", stack.width);
                return Some(Right::plain(text, found * (stack.width as f64).sqrt()));
            }
            Some(Right::plain(format!("E[{id}][{column}]"), found))
        }
        // The mean of two streams, which is no stage of its own.
        ("norm", _) if stack.reversible => None,
        ("norm1" | "norm2" | "norm_cross" | "norm" | "embedding_norm", &[token, column]) => {
            let input = norm_input(flow, stage, &prefix)?;
            let name = stage.part();
            let gain = weight(&format!("{name}.weight"))?;
            let bias = weight(&format!("{name}.bias"));
            let (x, eps) = (row(input, token), f64::from(stack.norm.eps));
            let (gain, bias) = (gain.data()[column], bias.map(|b| b.data()[column]));
            Some(normed(x, column, stack.norm.kind, eps, gain, bias))
        }
        ("attention.queries", &[head, token, column]) => product(
            row(attention_input(flow, &prefix)?, token),
            "attention.qkv",
            head * width + column,
        ),
        ("attention.keys", &[head, token, column]) => {
            let own = if stack.shared_projections.queries_are_keys() { 0 } else { heads * width };
            let at = own + head * width + column;
            product(row(attention_input(flow, &prefix)?, token), "attention.qkv", at)
        }
        ("attention.values", &[head, token, column]) => {
            // Under a hash, queries are keys.
            let hashed = matches!(stack.mechanism, MechanismConfig::Lsh { .. });
            let shared = stack.shared_projections;
            let same = (shared.queries_are_keys() || hashed, shared.keys_are_values());
            let behind = match same {
                (false, false) => (heads + groups) * width,
                (true, false) | (false, true) => heads * width,
                (true, true) => 0,
            };
            let at = behind + head * value_width + column;
            product(row(attention_input(flow, &prefix)?, token), "attention.qkv", at)
        }
        (part @ "cross_attention.queries", &[head, token, column]) => {
            let norms = if stack.norm.placement == Placement::Pre { "norm_cross" } else { "norm1" };
            product(row(value(norms)?, token), part, head * width + column)
        }
        (part @ ("cross_attention.keys" | "cross_attention.values"), &[head, source, column]) => {
            let own = if part.ends_with("keys") { width } else { value_width };
            product(row(memory(&config, flow)?, source), part, head * own + column)
        }
        ("attention.scores" | "cross_attention.scores", &[head, token, key]) => {
            let crossed = stage.part().starts_with("cross");
            let actual =
                f64::from(stage.value.data()[stage.at(Focus { head, token, column: key }).0]);
            if actual == f64::NEG_INFINITY {
                let text = "−∞: this key is hidden from this query".to_owned();
                return Some(Right::plain(text, actual));
            }
            let names = match (crossed, matches!(stack.position, PositionConfig::Rope { .. })) {
                (true, _) => ["cross_attention.queries", "cross_attention.keys"],
                (false, true) => ["attention.rotated_queries", "attention.rotated_keys"],
                (false, false) => ["attention.queries", "attention.keys"],
            };
            let (queries, keys) = (value(names[0])?, value(names[1])?);
            let [_, tokens, sources] = stage.shape[..] else { return None };
            let q = row(queries, head * tokens + token);
            let groups = keys.shape().dims().get(1).copied().unwrap_or(groups);
            let k = row(keys, head / (heads / groups) * sources + key);
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
            let divided = if stack.scaled_scores { format!("/√{width}") } else { String::new() };
            let text = format!("({}){divided}{shown}", products.text);
            Some(Right { text, value: bias.map_or(scaled, |_| actual), terms })
        }
        (part @ ("attention.weights" | "cross_attention.weights"), &[head, token, key]) => {
            let scores = value(&part.replace("weights", "scores"))?;
            let scores = row(scores, head * stage.shape[1] + token);
            softmax_terms(scores, key)
        }
        (part @ ("attention.mixed" | "cross_attention.mixed"), &[head, token, column]) => {
            let weights = value(&part.replace("mixed", "weights"))?;
            let weights = row(weights, head * stage.shape[1] + token);
            let (values, sources) = (value(&part.replace("mixed", "values"))?, weights.len());
            let groups = values.shape().dims().get(1).copied().unwrap_or(groups);
            let group = head / (heads / groups);
            let v: Vec<f32> =
                (0..sources).map(|s| row(values, group * sources + s)[column]).collect();
            Some(sum_of_products(weights, &v, None).called("weight", "value"))
        }
        (part @ ("attention.out" | "cross_attention.out"), &[token, column]) => {
            let (mixed, tokens) = (value(&part.replace("out", "mixed"))?, stage.shape[0]);
            let joined: Vec<f32> =
                (0..heads).flat_map(|h| row(mixed, h * tokens + token)).copied().collect();
            product(&joined, part, column)
        }
        ("residual_middle" | "residual_cross" | "residual_after", &[token, column]) => {
            let (x, added) = if stack.reversible {
                reversible_sum(flow, stage, &prefix)?
            } else {
                sum_of_stream(&value, stage, stack.norm.placement)?
            };
            let (x, added) =
                (f64::from(row(x, token)[column]), f64::from(row(added, token)[column]));
            let scale = f64::from(stack.residual_scale);
            let factor = if scale == 1.0 { String::new() } else { format!("{}·", short(scale)) };
            let text = format!("{} + {factor}{}", short(x), short(added));
            Some(Right::plain(text, x + scale * added))
        }
        ("feed_forward.up" | "feed_forward.gate", &[token, column]) => {
            let x = row(feed_forward_input(flow, &prefix)?, token);
            let gated = stack.feed_forward.kind.is_gated();
            let second = gated && stage.part() == "feed_forward.up";
            let at = if second { stack.feed_forward_width() + column } else { column };
            product(x, "feed_forward.up", at)
        }
        ("feed_forward.active", &[token, column]) => {
            let kind = stack.feed_forward.kind;
            let up = f64::from(row(value("feed_forward.up")?, token)[column]);
            if !kind.is_gated() {
                let text = format!("{}({})", name_of(kind), short(up));
                return Some(Right::plain(text, activated(kind, up)));
            }
            let gate = f64::from(row(value("feed_forward.gate")?, token)[column]);
            let text = format!("{}({})·{}", name_of(kind), short(gate), short(up));
            Some(Right::plain(text, activated(kind, gate) * up))
        }
        ("feed_forward.out", &[token, column]) => {
            product(row(value("feed_forward.active")?, token), "feed_forward.down", column)
        }
        ("logits", &[token, id]) if model.generates().is_some() => {
            let own = crate::stack_prefix(model);
            let hidden = flow.value(&format!("{own}norm")).or_else(|| last_hidden(flow))?;
            let tables = ["head.weight", "embedding.weight", "decoder.embedding.weight"];
            let table = tables.iter().find_map(|name| weight(name))?;
            let scale = match &config {
                ModelConfig::EncoderDecoder(config) if config.scaled_logits => {
                    1.0 / (stack.width as f32).sqrt()
                }
                _ => 1.0,
            };
            let scaled: Vec<f32> = row(hidden, token).iter().map(|x| x * scale).collect();
            let bias = weight("head.bias").map(|bias| bias.data()[id]);
            let products = sum_of_products(&scaled, row(&table, id), bias);
            Some(products.called("hidden", "embedding"))
        }
        _ => None,
    }
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

/// Σ a·b + bias: the largest terms, and how many there are.
fn sum_of_products(a: &[f32], b: &[f32], bias: Option<f32>) -> Right {
    let term = |(a, b): (&f32, &f32)| format!("{}·{}", short((*a).into()), short((*b).into()));
    let mut terms: Vec<String> = a.iter().zip(b).take(TERMS).map(term).collect();
    if a.len() > TERMS {
        terms.push(format!("… {} products", a.len()));
    }
    let bias = bias.map(f64::from);
    if let Some(bias) = bias {
        terms.push(format!("bias {}", short(bias)));
    }
    let products = Terms::Products {
        names: ["x", "weight"],
        left: a.to_vec(),
        right: b.to_vec(),
        divisor: 1.0,
        plus: bias,
    };
    Right { text: terms.join(" + "), value: dot(a, b) + bias.unwrap_or(0.0), terms: products }
}

/// e^s / Σ e^s. Scores are taken as they are: the largest is subtracted only where e^s would
/// overflow.
pub fn softmax(scores: &[f32], at: usize) -> Option<(String, f64)> {
    let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = scores.iter().map(|s| f64::from(s - top).exp()).sum();
    let own = *scores.get(at)?;
    if own == f32::NEG_INFINITY {
        return Some(("e^−∞ / …: hidden".to_owned(), 0.0));
    }
    let seen: Vec<f32> = scores.iter().copied().filter(|s| *s != f32::NEG_INFINITY).collect();
    let mut terms: Vec<String> =
        seen.iter().take(2 * TERMS).map(|s| format!("e^{}", short((*s).into()))).collect();
    if seen.len() > 2 * TERMS {
        terms.push(format!("… {} terms", seen.len()));
    }
    let text = format!("e^{} / ({})", short(own.into()), terms.join(" + "));
    Some((text, f64::from(own - top).exp() / total))
}

fn softmax_terms(scores: &[f32], at: usize) -> Option<Right> {
    let (text, value) = softmax(scores, at)?;
    Some(Right { text, value, terms: Terms::Softmax { scores: scores.to_vec(), at } })
}

fn normed(
    x: &[f32],
    column: usize,
    kind: NormKind,
    eps: f64,
    gain: f32,
    bias: Option<f32>,
) -> Right {
    let n = x.len() as f64;
    let (own, gain) = (f64::from(x[column]), f64::from(gain));
    if kind == NormKind::Rms {
        let rms = (dot(x, x) / n + eps).sqrt();
        let text = format!("{} / {}·{}", short(own), short(rms), short(gain));
        let terms = Terms::Norm { x: x.to_vec(), mean: 0.0, deviation: rms, gain, bias: None };
        return Right { text, value: own / rms * gain, terms };
    }
    let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / n;
    let variance = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n;
    let deviation = (variance + eps).sqrt();
    let plus = bias.map(|b| format!(" + {}", short(b.into()))).unwrap_or_default();
    let text =
        format!("({} − {}) / {}·{}{plus}", short(own), short(mean), short(deviation), short(gain));
    let bias = bias.map(f64::from);
    let terms = Terms::Norm { x: x.to_vec(), mean, deviation, gain, bias };
    Right { text, value: (own - mean) / deviation * gain + bias.unwrap_or(0.0), terms }
}

fn name_of(kind: FeedForwardKind) -> &'static str {
    match kind {
        FeedForwardKind::Relu => "relu",
        FeedForwardKind::SquaredRelu => "relu²",
        FeedForwardKind::Gelu | FeedForwardKind::Geglu => "gelu",
        FeedForwardKind::GeluTanh | FeedForwardKind::GegluTanh => "gelu_tanh",
        FeedForwardKind::Silu | FeedForwardKind::Swiglu => "silu",
    }
}

fn activated(kind: FeedForwardKind, x: f64) -> f64 {
    use std::f64::consts::{PI, SQRT_2};
    match kind {
        FeedForwardKind::Relu => x.max(0.0),
        FeedForwardKind::SquaredRelu => x.max(0.0).powi(2),
        FeedForwardKind::Gelu | FeedForwardKind::Geglu => 0.5 * x * (1.0 + erf(x / SQRT_2)),
        FeedForwardKind::GeluTanh | FeedForwardKind::GegluTanh => {
            0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        FeedForwardKind::Silu | FeedForwardKind::Swiglu => x / (1.0 + (-x).exp()),
    }
}

/// By its Taylor series, which converges everywhere and is exact enough where |x| < 4.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..80 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// Three digits after the point, or an exponent for what would vanish.
pub fn short(x: f64) -> String {
    if x == 0.0 {
        "0".to_owned()
    } else if x.abs() < 5e-4 || x.abs() >= 1e5 {
        format!("{x:.2e}")
    } else {
        format!("{x:.3}")
    }
}
