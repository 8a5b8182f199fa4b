//! The logit lens, and what every part of a pre-norm decoder adds to one logit.
//!
//! ```text
//! logit = u·(Σ c − mean)/σ·w + u·b      c: embedding, positions, each head, each feed-forward layer
//! ```
//! With σ as the last norm found it, this is a sum over the parts: direct logit attribution.

use crate::flow::Flow;
use crate::{dot, parameter, row, stack_of};
use hearken_base::{Error, Result};
use hearken_nn::config::{NormKind, Placement, StackConfig};
use hearken_nn::models::Model;
use hearken_tensor::{Param, Tensor};

/// What a part adds to a logit.
#[derive(Clone, Debug, PartialEq)]
pub struct Contribution {
    /// `embedding`, `blocks.0.attention[2]`, `blocks.0.feed_forward`, `bias`, …
    pub part: String,
    /// What it adds.
    pub logit: f64,
}

/// What would be predicted from the residual stream at one point.
#[derive(Clone, Debug, PartialEq)]
pub struct Glimpse {
    /// The stage.
    pub stage: String,
    /// The length of the stream's vector.
    pub norm: f64,
    /// The most probable tokens.
    pub likeliest: Vec<(u32, f64)>,
}

/// The last norm and the output head of a pre-norm decoder.
struct Readout<'a> {
    stack: &'a StackConfig,
    gain: Tensor,
    bias: Option<Tensor>,
    /// (V, C)
    table: Tensor,
}

impl<'a> Readout<'a> {
    fn of(model: &dyn Model, stack: &'a StackConfig) -> Result<Self> {
        let value = |name: &str| parameter(model, name).map(Param::value);
        let found = model.generates().and_then(|_| {
            let table = value("head.weight").or_else(|| value("embedding.weight"))?;
            Some(Self { stack, gain: value("norm.weight")?, bias: value("norm.bias"), table })
        });
        found.filter(|_| stack.norm.placement == Placement::Pre).ok_or_else(|| {
            Error::new(
                "only the logits of decoders with pre-norm are sums of parts",
                "look at hidden states with 'inspect trace' instead",
            )
        })
    }

    /// Mean and deviation of a vector, as the norm has them.
    fn scale(&self, x: &[f32]) -> f64 {
        let n = x.len() as f64;
        let mean = self.mean(x);
        let square = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n;
        (square + f64::from(self.stack.norm.eps)).sqrt()
    }

    fn mean(&self, x: &[f32]) -> f64 {
        if self.stack.norm.kind == NormKind::Rms {
            return 0.0;
        }
        x.iter().map(|x| f64::from(*x)).sum::<f64>() / x.len() as f64
    }

    /// u·(c − mean(c))/σ·w
    fn read(&self, c: &[f32], scale: f64, token: usize) -> f64 {
        let mean = self.mean(c);
        let terms = c.iter().zip(self.gain.data()).zip(row(&self.table, token));
        terms
            .map(|((c, w), u)| (f64::from(*c) - mean) / scale * f64::from(*w) * f64::from(*u))
            .sum()
    }

    fn constant(&self, token: usize) -> f64 {
        self.bias.as_ref().map_or(0.0, |bias| dot(bias.data(), row(&self.table, token)))
    }
}

/// What each part of the model adds to the logit of `token` at `place`. The parts add up to it.
pub fn contributions(
    model: &dyn Model,
    flow: &Flow,
    place: usize,
    token: u32,
) -> Result<Vec<Contribution>> {
    let config = model.config();
    let stack = stack_of(&config)?;
    let readout = Readout::of(model, stack)?;
    let token = token as usize;
    let missing = || Error::new("the trace is incomplete", "trace everything");
    if token >= config.vocabulary() || place >= flow.ids.len() {
        return Err(Error::new(format!("no token {token} or no place {place}"), "count from 0"));
    }
    let last = |part| {
        let name = format!("blocks.{}.{part}", stack.layers - 1);
        flow.value(&name).map(|x| row(x, place)).ok_or_else(missing)
    };
    // Reversible layers end as the mean of two streams, each of which has one half of the parts.
    let share = if stack.reversible { 0.5 } else { 1.0 };
    let end: Vec<f32> = if stack.reversible {
        let streams = last("residual_middle")?.iter().zip(last("residual_after")?);
        streams.map(|(a, b)| 0.5 * (a + b)).collect()
    } else {
        last("residual_after")?.to_vec()
    };
    let scale = readout.scale(&end);
    let branch_scale = share * stack.residual_scale;
    let mut parts = Vec::new();
    let mut add = |part: String, c: &[f32]| {
        parts.push(Contribution { part, logit: readout.read(c, scale, token) });
    };
    // The stream as the first block finds it: embeddings and positions, however they were joined.
    add(
        "embedding".to_owned(),
        row(flow.value("blocks.0.residual_before").ok_or_else(missing)?, place),
    );
    for layer in 0..stack.layers {
        let name = |part: &str| format!("blocks.{layer}.{part}");
        let mixed = flow.value(&name("attention.mixed")).ok_or_else(missing)?;
        let out = parameter(model, &name("attention.out.weight")).ok_or_else(missing)?.value();
        let width = mixed.shape().width();
        for head in 0..stack.heads {
            let own = row(mixed, head * flow.ids.len() + place);
            let c: Vec<f32> = (0..stack.width)
                .map(|i| dot(own, &row(&out, i)[head * width..(head + 1) * width]) as f32)
                .map(|x| x * branch_scale)
                .collect();
            add(name(&format!("attention[{head}]")), &c);
        }
        let scaled = |x: &[f32]| x.iter().map(|x| x * branch_scale).collect::<Vec<_>>();
        if let Some(bias) = parameter(model, &name("attention.out.bias")) {
            add(name("attention.bias"), &scaled(bias.value().data()));
        }
        let fed = flow.value(&name("feed_forward.out")).ok_or_else(missing)?;
        add(name("feed_forward"), &scaled(row(fed, place)));
    }
    parts.push(Contribution { part: "norm.bias".to_owned(), logit: readout.constant(token) });
    Ok(parts)
}

/// What would be predicted at `place` from the residual stream of each half-layer.
pub fn lens(model: &dyn Model, flow: &Flow, place: usize, count: usize) -> Result<Vec<Glimpse>> {
    let config = model.config();
    let readout = Readout::of(model, stack_of(&config)?)?;
    let is_stream =
        |name: &str| name.ends_with("residual_middle") || name.ends_with("residual_after");
    let first = flow.stages.iter().find(|stage| stage.name == "blocks.0.residual_before");
    let rest = flow.stages.iter().filter(|stage| is_stream(&stage.name));
    let glimpse = |stage: &crate::Stage| {
        let x = row(&stage.value, place);
        let scale = readout.scale(x);
        let logits: Vec<f64> = (0..config.vocabulary())
            .map(|token| readout.read(x, scale, token) + readout.constant(token))
            .collect();
        let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = logits.iter().map(|l| (l - top).exp()).sum();
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
        let likeliest = order.into_iter().take(count);
        let likeliest = likeliest.map(|id| (id, (logits[id as usize] - top).exp() / total));
        Glimpse { stage: stage.name.clone(), norm: crate::norm(x), likeliest: likeliest.collect() }
    };
    Ok(first.into_iter().chain(rest).map(glimpse).collect())
}
