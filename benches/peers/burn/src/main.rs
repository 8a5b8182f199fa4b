//! The training step of `hearken bench train`, written in burn, on its CPU backend `flex`.
//!
//! A decoder with pre-norm LayerNorm, learned positions, tanh GELU, no biases and a tied head;
//! forward, backward, clipping to norm 1 and AdamW, in f32. Two things differ from Hearken's step,
//! neither of weight for the time: AdamW decays the norms' weights too, and burn's own clipping
//! is per tensor, so the common norm is taken by hand.

#[path = "../../measure.rs"]
mod measure;

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{
    Embedding, EmbeddingConfig, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::activation::gelu_approximate;
use burn::tensor::module::{attention, linear};
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, Int, Tensor, TensorData};
use measure::Shape;

fn main() {
    let shape = Shape::from_arguments();
    let device = Device::flex().autodiff();
    let mut model = Some(Model::new(shape, &device));
    let tokens = |seed| {
        let ids: Vec<i64> = shape.random_tokens(seed).into_iter().map(i64::from).collect();
        let data = TensorData::new(ids, [shape.batch, shape.context]);
        Tensor::<2, Int>::from_data(data, &device)
    };
    let (ids, targets) = (tokens(1), tokens(2));
    let settings = AdamWConfig::new().with_beta_2(0.95).with_epsilon(1e-8).with_weight_decay(0.1);
    let mut optimizer = settings.init();
    shape.measure(|| {
        let own = model.take().expect("the model of the last step");
        let loss = own.loss(ids.clone(), targets.clone());
        let value = loss.clone().into_scalar::<f32>();
        let gradients = GradientsParams::from_grads(loss.backward(), &own);
        let gradients = clipped(&own, gradients, 1.0);
        model = Some(optimizer.step(1e-3, own, gradients));
        value
    });
}

#[derive(Module, Debug)]
struct Block {
    norm1: LayerNorm,
    qkv: Linear,
    out: Linear,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
    heads: usize,
}

#[derive(Module, Debug)]
struct Model {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
}

impl Model {
    fn new(shape: Shape, device: &Device) -> Self {
        let c = shape.width;
        let normal = || Initializer::Normal { mean: 0.0, std: 0.02 };
        let table = |rows| EmbeddingConfig::new(rows, c).with_initializer(normal()).init(device);
        let matrix = |from, to| {
            LinearConfig::new(from, to).with_bias(false).with_initializer(normal()).init(device)
        };
        let norm = || LayerNormConfig::new(c).with_bias(false).init(device);
        let block = |_| Block {
            norm1: norm(),
            qkv: matrix(c, 3 * c),
            out: matrix(c, c),
            norm2: norm(),
            up: matrix(c, 4 * c),
            down: matrix(4 * c, c),
            heads: shape.heads,
        };
        Self {
            tokens: table(shape.vocab),
            positions: table(shape.context),
            blocks: (0..shape.layers).map(block).collect(),
            norm: norm(),
        }
    }

    /// The mean cross-entropy of `targets` after `ids`, both (B, T).
    fn loss(&self, ids: Tensor<2, Int>, targets: Tensor<2, Int>) -> Tensor<1> {
        let [b, t] = ids.dims();
        let device = ids.device();
        let mut x = self.tokens.forward(ids) + self.positions.weight.val().unsqueeze(); // (B, T, C)
        for block in &self.blocks {
            x = x.clone() + block.attention(block.norm1.forward(x));
            let hidden = gelu_approximate(block.up.forward(block.norm2.forward(x.clone())));
            x = x + block.down.forward(hidden);
        }
        let weight = self.tokens.weight.val().transpose(); // (C, V)
        let logits = linear(self.norm.forward(x), weight, None); // (B, T, V)
        let [_, _, v] = logits.dims();
        let loss = CrossEntropyLossConfig::new().init(&device);
        loss.forward(logits.reshape([b * t, v]), targets.reshape([b * t]))
    }
}

impl Block {
    fn attention(&self, x: Tensor<3>) -> Tensor<3> {
        let [b, t, c] = x.dims();
        let heads = |x: Tensor<3>| x.reshape([b, t, self.heads, c / self.heads]).swap_dims(1, 2);
        let qkv = self.qkv.forward(x).chunk(3, 2); // three of (B, T, C)
        let [q, k, v] = qkv.try_into().expect("three parts");
        let causal = AttentionModuleOptions { is_causal: true, ..Default::default() };
        let y = attention(heads(q), heads(k), heads(v), None, None, causal); // (B, H, T, C/H)
        self.out.forward(y.swap_dims(1, 2).reshape([b, t, c]))
    }
}

/// The gradients, scaled so that their common norm is at most `most`. Panics if a parameter got
/// none: then the step would be faster than an honest one.
fn clipped(model: &Model, gradients: GradientsParams, most: f32) -> GradientsParams {
    let mut norm = Squares { gradients: &gradients, sum: 0.0 };
    model.visit(&mut norm);
    let factor = most / (norm.sum.sqrt() as f32 + 1e-6);
    if factor >= 1.0 {
        return gradients;
    }
    let mut scaling = Scaling { gradients, factor };
    model.visit(&mut scaling);
    scaling.gradients
}

struct Squares<'a> {
    gradients: &'a GradientsParams,
    sum: f64,
}

impl ModuleVisitor for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let gradient = self.gradients.get::<D>(parameter.id);
        let gradient = gradient.unwrap_or_else(|| panic!("no gradient for {parameter}"));
        let squares = gradient.square().sum().into_scalar::<f32>();
        assert!(squares > 0.0, "the gradient of {parameter} is zero");
        self.sum += f64::from(squares);
    }
}

struct Scaling {
    gradients: GradientsParams,
    factor: f32,
}

impl ModuleVisitor for Scaling {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.remove::<D>(parameter.id) {
            self.gradients.register(parameter.id, gradient.mul_scalar(self.factor));
        }
    }
}
