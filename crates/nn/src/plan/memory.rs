//! The memory of a training step, by rehearsal: every tensor that a step takes from the pool and
//! gives back is taken and given back here, in the same order, as sizes alone.
//!
//! A formula would have to know at which moment the peak falls: in the head, where all that was
//! saved is there and a chunk of logits beside it, or in the middle of backward, when gradients
//! have come and activations have not gone. And the pool has two answers. *In use* is what is
//! alive; what the process holds, *reserved*, is all memory that a tensor was ever on, with the
//! gaps that come and go between tensors of different sizes ([`hearken_tensor::pool`]). Both come
//! out of the rehearsal, which keeps the same books.
//!
//! What each operation saves is written at its head (`hearken_tensor::ops`); in f32 a saved value
//! is another handle to the same tensor and costs nothing, in 16 bits it is a copy of half the
//! size, and the f32 original goes when its last user returns.

use super::rehearsal::{Stage, Value, Weight};
use crate::config::{Combine, DecoderConfig, NormKind, Placement, PositionConfig, StackConfig};
use hearken_kernels::threads;
use hearken_tensor::ops::head_cross_entropy;
use std::rc::Rc;

/// How a model is trained, as far as memory depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Training {
    /// Sequences that are computed at the same time.
    pub batch: usize,
    /// Parts of them that are computed in parallel, each with gradients of its own; at least 1.
    pub side_by_side: usize,
    /// T
    pub tokens: usize,
    /// Numbers that the optimiser keeps per weight.
    pub states: States,
    /// Bytes of a saved activation: 4, or 2 with 16-bit storage.
    pub activation_bytes: usize,
    /// Is each block computed again in backward?
    pub checkpointing: bool,
}

/// Numbers that the optimiser keeps per weight: 2 for Adam, 1 for momentum, 0 for SGD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States {
    /// Of matrices inside the model.
    pub hidden: usize,
    /// Of all others.
    pub other: usize,
}

impl States {
    /// As many for all.
    pub fn both(states: usize) -> Self {
        Self { hidden: states, other: states }
    }
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
    /// Everything else that is reserved: what forward keeps for backward, the working set beside
    /// it, 16-bit copies of the weights, and the gaps between tensors.
    pub activations: u64,
    /// What kernels work in beside tensors.
    pub kernels: u64,
    /// The most that tensors take at any one time; less than the total, since not everything is
    /// there at once.
    pub in_use: u64,
}

impl Memory {
    /// A lower bound: the parameters and one activation.
    pub(super) fn at_least(parameters: u64, optimizer_states: u64, activation: f64) -> Self {
        let parameters = size_of::<f32>() as u64 * parameters;
        let optimizer = parameters * optimizer_states;
        // The sum of all must not overflow either.
        let activations = activation.min(2.0_f64.powi(62)) as u64;
        let in_use = 2 * parameters + optimizer + activations;
        Self { parameters, gradients: parameters, optimizer, activations, kernels: 0, in_use }
    }

    /// What the process reserves for tensors.
    pub fn tensors(&self) -> u64 {
        self.parameters + self.gradients + self.optimizer + self.activations
    }

    /// What training adds to the process.
    pub fn total(&self) -> u64 {
        self.tensors() + self.kernels
    }
}

/// Beyond a petabyte of activations nobody needs to know how much exactly, and products of sizes
/// would overflow.
pub(super) const MOST: f64 = 1e15;

/// Rehearses two steps: the second finds free what the first has left, cut in other places.
pub(super) fn rehearse(config: &DecoderConfig, parameters: u64, training: Training) -> Memory {
    let half = training.activation_bytes < size_of::<f32>();
    let stage = Stage::new(half, training.side_by_side);
    let model = Rc::new(Model::new(config, training, &stage));
    step(&model, config.vocabulary, training);
    model.update();
    step(&model, config.vocabulary, training);
    let parameters = size_of::<f32>() as u64 * parameters;
    let optimizer = size_of::<f32>() as u64 * model.optimizer_numbers(training.states);
    let reserved = stage.reserved();
    let gradients = parameters * training.side_by_side as u64;
    Memory {
        parameters,
        gradients,
        optimizer,
        activations: reserved.saturating_sub(parameters + gradients + optimizer),
        kernels: kernels(&config.stack, training),
        in_use: stage.peak(),
    }
}

/// The most that kernels keep for themselves (`hearken_kernels::scratch`), for each part at a time.
/// The backward of attention packs q and dout (if they are more than a tile), sums dq, and keeps
/// two numbers, for each row of as many heads as fit 32 MiB; a product packs one of its operands,
/// up to 4 MiB of it.
fn kernels(c: &StackConfig, training: Training) -> u64 {
    const FLOAT: usize = size_of::<f32>();
    let padded = c.head_width().max(c.value_width()).next_multiple_of(16);
    let head = training.tokens * (3 * padded + 2) * FLOAT;
    let batch = training.batch.div_ceil(training.side_by_side);
    let attention = (batch * c.heads).min(((32 << 20) / head.max(1)).max(1)) * head;
    // The widest is the gradient of the feed-forward layer, (F, rows)·(rows, C).
    let rows = batch * training.tokens;
    let product = (c.width.min(c.feed_forward_width()) * rows * FLOAT).min(4 << 20);
    (training.side_by_side.min(threads::count()) * (attention + product)) as u64
}

/// The parameters of a model as sizes, and the sizes of a batch.
struct Model {
    config: StackConfig,
    stage: Stage,
    /// Numbers in matrices inside the model, and in all others.
    numbers: [u64; 2],
    rows: usize,
    /// B·H·T
    sums: usize,
    embedding: Weight,
    position: Option<Weight>,
    blocks: Vec<BlockWeights>,
    norm: Option<Weight>,
    head: Option<Weight>,
    _sinusoids: Option<Value>,
}

/// Norms have their scale as weight; all have their biases with them.
struct BlockWeights {
    norm1: Weight,
    qkv: Weight,
    out: Weight,
    norm2: Weight,
    up: Weight,
    down: Weight,
}

impl BlockWeights {
    fn all(&self) -> [&Weight; 6] {
        [&self.norm1, &self.qkv, &self.out, &self.norm2, &self.up, &self.down]
    }
}

impl Model {
    /// What the optimiser does after a step.
    fn update(&self) {
        let outside = [Some(&self.embedding), self.position.as_ref(), self.norm.as_ref()];
        let blocks = self.blocks.iter().flat_map(BlockWeights::all);
        let all = outside.into_iter().chain([self.head.as_ref()]).flatten().chain(blocks);
        all.for_each(Weight::update);
    }

    /// What the optimiser keeps.
    fn optimizer_numbers(&self, states: States) -> u64 {
        self.numbers[0] * states.hidden as u64 + self.numbers[1] * states.other as u64
    }

    fn new(config: &DecoderConfig, training: Training, stage: &Stage) -> Self {
        let c = &config.stack;
        let numbers = std::cell::Cell::new([0; 2]);
        let count = |which: usize, n: usize| {
            let mut all = numbers.get();
            all[which] += n as u64;
            numbers.set(all);
        };
        let hidden = |wide: usize, narrow: usize, bias: bool| {
            let bias = if bias { wide } else { 0 };
            count(0, wide * narrow);
            count(1, bias);
            stage.weight(wide * narrow, bias, 1 + training.states.hidden)
        };
        let other = |numbers: usize, bias: usize| {
            count(1, numbers + bias);
            stage.weight(numbers, bias, 1 + training.states.other)
        };
        let layer = c.norm.kind == NormKind::Layer;
        let norm = || other(c.width, if layer && c.bias.norm { c.width } else { 0 });
        let (keys, values) = (c.head_width(), c.value_width());
        let packed = (c.heads + c.kv_heads()) * keys + c.kv_heads() * values;
        let mixed = c.heads * values;
        let wide = c.feed_forward_width();
        let up = if c.feed_forward.kind.is_gated() { 2 * wide } else { wide };
        let beside = |combine: &Combine| match combine {
            Combine::Add => (c.width, 0),
            Combine::Concatenate { width } => (*width, *width),
        };
        let (position, sinusoids, beside) = match &c.position {
            PositionConfig::Learned { combine } => {
                let (width, beside) = beside(combine);
                (Some(other(config.context * width, 0)), None, beside)
            }
            PositionConfig::Sinusoidal { combine } => {
                let (width, beside) = beside(combine);
                (None, Some(stage.value(config.context * width)), beside)
            }
            PositionConfig::T5 { buckets, .. } => (Some(other(*buckets * c.heads, 0)), None, 0),
            PositionConfig::Relative { max_distance } => {
                (Some(other((2 * max_distance + 1) * c.heads, 0)), None, 0)
            }
            _ => (None, None, 0),
        };
        let block = |_| BlockWeights {
            norm1: norm(),
            qkv: hidden(packed, c.width, c.bias.attention_in),
            out: hidden(c.width, mixed, c.bias.attention_out),
            norm2: norm(),
            up: hidden(up, c.width, c.bias.feed_forward),
            down: hidden(c.width, wide, c.bias.feed_forward),
        };
        let model = Self {
            numbers: [0; 2],
            stage: stage.clone(),
            rows: training.batch * training.tokens,
            sums: training.batch * c.heads * training.tokens,
            embedding: other(config.vocabulary * (c.width - beside), 0),
            position,
            blocks: (0..c.layers).map(block).collect(),
            norm: (c.norm.placement == Placement::Pre).then(norm),
            head: (!config.tied).then(|| other(config.vocabulary * c.width, 0)),
            _sinusoids: sinusoids,
            config: c.clone(),
        };
        Self { numbers: numbers.get(), ..model }
    }

    /// `norm(x)` keeps x and one or two numbers per row.
    fn normed(&self, x: &Value, weight: &Weight) -> Value {
        let statistics = if self.config.norm.kind == NormKind::Layer { 2 } else { 1 };
        self.stage.norm(x, weight, self.rows, statistics)
    }

    /// (B, T, C) through attention, as `layers::Attention::whole`.
    fn attend(&self, x: &Value, weights: &BlockWeights) -> Value {
        let (c, stage) = (&self.config, &self.stage);
        let mixed = c.heads * c.value_width();
        let packed_width =
            (c.heads + c.kv_heads()) * c.head_width() + c.kv_heads() * c.value_width();
        // Rotations are done in place.
        let packed = stage.product(x, &weights.qkv, self.rows * packed_width);
        let biased =
            matches!(c.position, PositionConfig::T5 { .. } | PositionConfig::Relative { .. });
        let table = self.position.as_ref().filter(|_| biased);
        let mixed = stage.attention(&packed, self.rows * mixed, self.sums, table);
        let out = stage.product(&mixed, &weights.out, self.rows * c.width);
        self.branch(out)
    }

    /// (B, T, C) through the feed-forward layer, as `layers::FeedForward::forward`.
    fn feed(&self, x: &Value, weights: &BlockWeights) -> Value {
        let (c, stage) = (&self.config, &self.stage);
        let (wide, len) = (self.rows * c.feed_forward_width(), self.rows * c.width);
        if !c.feed_forward.kind.is_gated() && c.dropout.feed_forward == 0.0 {
            let out = stage.feed_forward(x, (&weights.up, &weights.down), wide, len);
            return self.branch(out);
        }
        let hidden = if c.feed_forward.kind.is_gated() {
            let both = stage.product(x, &weights.up, 2 * wide);
            stage.gated(&both, wide)
        } else {
            stage.activated_product(x, &weights.up, wide)
        };
        let hidden = if c.dropout.feed_forward > 0.0 { stage.in_place(hidden) } else { hidden };
        let out = stage.product(&hidden, &weights.down, len);
        self.branch(out)
    }

    fn branch(&self, x: Value) -> Value {
        let c = &self.config;
        let x = if c.dropout.residual > 0.0 { self.stage.in_place(x) } else { x };
        if c.residual_scale == 1.0 { x } else { self.stage.in_place(x) }
    }

    /// As `Block::forward`.
    fn block(&self, x: &Value, index: usize) -> Value {
        let weights = &self.blocks[index];
        let stage = &self.stage;
        match self.config.norm.placement {
            Placement::Pre => {
                let x = stage.sum(self.attend(&self.normed(x, &weights.norm1), weights), x);
                stage.sum(self.feed(&self.normed(&x, &weights.norm2), weights), &x)
            }
            Placement::Post => {
                let x = self.normed(&stage.sum(self.attend(x, weights), x), &weights.norm1);
                self.normed(&stage.sum(self.feed(&x, weights), &x), &weights.norm2)
            }
        }
    }

    /// As `Decoder::hidden`.
    fn hidden(self: &Rc<Self>, checkpointing: bool) -> Value {
        let (c, stage) = (&self.config, &self.stage);
        let combine = match &c.position {
            PositionConfig::Learned { combine } | PositionConfig::Sinusoidal { combine } => {
                Some(combine)
            }
            _ => None,
        };
        let token_width = match combine {
            Some(Combine::Concatenate { width }) => c.width - width,
            _ => c.width,
        };
        let mut x = stage.looked_up(&self.embedding, self.rows * token_width);
        if let Some(combine) = combine {
            let width = if let Combine::Concatenate { width } = combine { *width } else { c.width };
            let positions = match &self.position {
                Some(table) => stage.looked_up(table, self.rows * width),
                None => stage.value(self.rows * width),
            };
            x = match combine {
                Combine::Add => stage.sum(x, &positions),
                Combine::Concatenate { .. } => stage.joined(&x, &positions, self.rows * c.width),
            };
        }
        if c.dropout.embedding > 0.0 {
            x = stage.in_place(x);
        }
        for index in 0..c.layers {
            x = if checkpointing {
                let model = self.clone();
                stage.checkpoint(&x, move |x| model.block(&x, index))
            } else {
                self.block(&x, index)
            };
        }
        match &self.norm {
            Some(norm) => self.normed(&x, norm),
            None => x,
        }
    }
}

/// Forward, the loss, backward.
fn step(model: &Rc<Model>, vocabulary: usize, training: Training) {
    let hidden = model.hidden(training.checkpointing);
    // Each part has a chunk of logits.
    let chunk = head_cross_entropy::rows_per_chunk(vocabulary) * training.side_by_side;
    let chunk = chunk.min(model.rows);
    let head = model.head.as_ref().unwrap_or(&model.embedding);
    model.stage.head(&hidden, head, model.rows, chunk * vocabulary);
    drop(hidden);
    model.stage.backward();
}
