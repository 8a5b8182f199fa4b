//! The logit lens, and what every part of a pre-norm decoder adds to one logit.
//!
//! ```text
//! logit = u·(Σ c − mean)/σ·w + u·b      c: embedding, positions, each head, each feed-forward layer
//! ```
//! With σ as the last norm found it, this is a sum over the parts: direct logit attribution.

use crate::flow::{Flow, part};
use crate::{dot, parameter, row, stack_of, stack_prefix};
use hearken_base::{Error, Result};
use hearken_nn::config::{ModelConfig, NormKind, Placement, StackConfig};
use hearken_nn::models::Model;
use hearken_tensor::ops::linear::linear;
use hearken_tensor::{Param, Tensor, Var, no_grad};

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
    /// Hidden states are multiplied by it before the table: by 1/√C in T5.
    scale: f64,
    /// What the head adds to each logit.
    own: Option<Tensor>,
}

impl<'a> Readout<'a> {
    fn of(model: &dyn Model, stack: &'a StackConfig) -> Result<Self> {
        let prefix = stack_prefix(model);
        let value = |name: &str| parameter(model, name).map(Param::value);
        let found = model.generates().and_then(|_| {
            let tables = ["head.weight", "embedding.weight", "decoder.embedding.weight"];
            let table = tables.iter().find_map(|name| value(name))?;
            let norm = |part: &str| value(&format!("{prefix}norm.{part}"));
            let scale = match model.config() {
                ModelConfig::EncoderDecoder(config) if config.scaled_logits => {
                    1.0 / (stack.width as f64).sqrt()
                }
                _ => 1.0,
            };
            let own = value("head.bias");
            Some(Self { stack, gain: norm("weight")?, bias: norm("bias"), table, scale, own })
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
            .sum::<f64>()
            * self.scale
    }

    fn constant(&self, token: usize) -> f64 {
        let normed = |bias: &Tensor| dot(bias.data(), row(&self.table, token)) * self.scale;
        let own = self.own.as_ref().map_or(0.0, |bias| f64::from(bias.data()[token]));
        self.bias.as_ref().map_or(0.0, normed) + own
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
    let prefix = stack_prefix(model);
    let last = |part| {
        let name = format!("{prefix}blocks.{}.{part}", stack.layers - 1);
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
        row(flow.value(&format!("{prefix}blocks.0.residual_before")).ok_or_else(missing)?, place),
    );
    for layer in 0..stack.layers {
        let name = |part: &str| format!("{prefix}blocks.{layer}.{part}");
        let scaled = |x: &[f32]| x.iter().map(|x| x * branch_scale).collect::<Vec<_>>();
        for site in ["attention", "cross_attention"] {
            let mixed = match flow.value(&name(&format!("{site}.mixed"))) {
                None if site == "cross_attention" => continue, // there is no source
                found => found.ok_or_else(missing)?,
            };
            let out = parameter(model, &name(&format!("{site}.out.weight")));
            let out = out.ok_or_else(missing)?.value();
            let width = mixed.shape().width();
            for head in 0..stack.heads {
                let own = row(mixed, head * flow.ids.len() + place);
                let c: Vec<f32> = (0..stack.width)
                    .map(|i| dot(own, &row(&out, i)[head * width..(head + 1) * width]) as f32)
                    .collect();
                add(name(&format!("{site}[{head}]")), &scaled(&c));
            }
            if let Some(bias) = parameter(model, &name(&format!("{site}.out.bias"))) {
                add(name(&format!("{site}.bias")), &scaled(bias.value().data()));
            }
        }
        let fed = flow.value(&name("feed_forward.out")).ok_or_else(missing)?;
        add(name("feed_forward"), &scaled(row(fed, place)));
    }
    parts.push(Contribution { part: format!("{prefix}norm.bias"), logit: readout.constant(token) });
    Ok(parts)
}

/// What would be predicted at `place` from the residual stream of each half-layer.
pub fn lens(model: &dyn Model, flow: &Flow, place: usize, count: usize) -> Result<Vec<Glimpse>> {
    let found = lens_at(model, flow, &[place], count)?;
    Ok(found.into_iter().flatten().collect())
}

/// As [`lens`], at several places: a list per half-layer, with a glimpse per place.
pub fn lens_at(
    model: &dyn Model,
    flow: &Flow,
    places: &[usize],
    count: usize,
) -> Result<Vec<Vec<Glimpse>>> {
    let config = model.config();
    let readout = Readout::of(model, stack_of(&config)?)?;
    if let Some(place) = places.iter().find(|place| **place >= flow.ids.len()) {
        let message = format!("there is no token {place}");
        return Err(Error::new(message, format!("tokens are 0 to {}", flow.ids.len() - 1)));
    }
    let prefix = stack_prefix(model);
    let is_sum =
        |part: &str| ["residual_middle", "residual_cross", "residual_after"].contains(&part);
    let is_stream = |name: &str| name.starts_with(prefix) && is_sum(part(name));
    let first = format!("{prefix}blocks.0.residual_before");
    let first = flow.stages.iter().find(|stage| stage.name == first);
    let rest = flow.stages.iter().filter(|stage| is_stream(&stage.name));
    let stages: Vec<&crate::Stage> = first.into_iter().chain(rest).collect();
    let (width, vocabulary) = (readout.table.shape().width(), readout.table.shape().rows());
    let mut normed = Vec::with_capacity(stages.len() * places.len() * width);
    for stage in &stages {
        for place in places {
            readout.norm_onto(row(&stage.value, *place), &mut normed);
        }
    }
    // All at once, so that the table is read once.
    let rows = Var::constant(Tensor::new([stages.len() * places.len(), width], &normed));
    let own = readout.own.clone().map(Var::constant);
    let logits = no_grad(|| linear(&rows, &Var::constant(readout.table.clone()), own.as_ref())); // (N, V)
    let mut each = logits.value().data().chunks(vocabulary.max(1));
    let glimpse = |stage: &crate::Stage, place: usize, logits: &[f32]| Glimpse {
        stage: stage.name.clone(),
        norm: crate::norm(row(&stage.value, place)),
        likeliest: likeliest(logits, count),
    };
    let mut found = Vec::new();
    for stage in stages {
        let pairs = places.iter().zip(&mut each);
        found.push(pairs.map(|(place, logits)| glimpse(stage, *place, logits)).collect());
    }
    Ok(found)
}

impl Readout<'_> {
    /// Appends a vector of the stream as the last norm would have it.
    fn norm_onto(&self, x: &[f32], onto: &mut Vec<f32>) {
        let (mean, scale) = (self.mean(x), self.scale(x));
        onto.extend(x.iter().enumerate().map(|(i, x)| {
            let bias = self.bias.as_ref().map_or(0.0, |bias| f64::from(bias.data()[i]));
            let normed = (f64::from(*x) - mean) / scale * f64::from(self.gain.data()[i]) + bias;
            (normed * self.scale) as f32
        }));
    }
}

/// The most probable of these logits, with their probabilities; of equal ones the smaller id first.
pub fn likeliest(logits: &[f32], count: usize) -> Vec<(u32, f64)> {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|l| f64::from(l - top).exp()).sum();
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let by_logit =
        |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    let count = count.min(order.len());
    if count < order.len() && count > 0 {
        order.select_nth_unstable_by(count - 1, by_logit);
    }
    order.truncate(count);
    order.sort_by(by_logit);
    order.into_iter().map(|id| (id, f64::from(logits[id as usize] - top).exp() / total)).collect()
}
