//! The training step of `hearken bench train`, written in candle.
//!
//! A decoder with pre-norm LayerNorm, learned positions, tanh GELU, no biases and a tied head;
//! forward, backward, clipping to norm 1 and AdamW, in f32 on the CPU. candle's own fused
//! `LayerNorm` and `softmax_last_dim` pass no gradient on, so both are written out of basic ops
//! here; before timing it is checked that every parameter gets a gradient that is not zero. The
//! largest score is detached in the softmax, which changes no gradient and saves candle a pass.

#[path = "../../measure.rs"]
mod measure;

use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use measure::Shape;

fn main() -> Result<()> {
    let shape = Shape::from_arguments();
    let device = Device::Cpu;
    let model = Model::new(shape, &device)?;
    let rows = shape.batch * shape.context;
    let ids = Tensor::from_vec(shape.random_tokens(1), rows, &device)?;
    let targets = Tensor::from_vec(shape.random_tokens(2), rows, &device)?;
    model.check_gradients(&ids, &targets)?;
    // Weight decay is for matrices alone, as in Hearken.
    let (matrices, vectors) = model.parameters().into_iter().partition(|p| p.rank() > 1);
    let settings =
        |weight_decay| ParamsAdamW { lr: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay };
    let mut decayed = AdamW::new(matrices, settings(0.1))?;
    let mut plain = AdamW::new(vectors, settings(0.0))?;
    shape.measure(|| {
        let mut step = || -> Result<f32> {
            let loss = model.loss(&ids, &targets)?;
            let mut gradients = loss.backward()?;
            model.clip(&mut gradients, 1.0)?;
            decayed.step(&gradients)?;
            plain.step(&gradients)?;
            loss.to_scalar()
        };
        step().expect("a training step")
    });
    Ok(())
}

struct Block {
    norm1: Var,
    qkv: Var,
    out: Var,
    norm2: Var,
    up: Var,
    down: Var,
}

struct Model {
    shape: Shape,
    tokens: Var,
    positions: Var,
    blocks: Vec<Block>,
    norm: Var,
    /// 0 where a key is visible, −∞ where it is in the future. (T, T)
    mask: Tensor,
}

impl Model {
    fn new(shape: Shape, device: &Device) -> Result<Self> {
        let (c, t) = (shape.width, shape.context);
        let matrix = |rows: usize, columns: usize| {
            Var::randn_f64(0.0, 0.02, (rows, columns), DType::F32, device)
        };
        let ones = || Var::ones(c, DType::F32, device);
        let block = |_| {
            Ok(Block {
                norm1: ones()?,
                qkv: matrix(3 * c, c)?,
                out: matrix(c, c)?,
                norm2: ones()?,
                up: matrix(4 * c, c)?,
                down: matrix(c, 4 * c)?,
            })
        };
        let hidden = |i: usize| if i % t > i / t { f32::NEG_INFINITY } else { 0.0 };
        Ok(Self {
            shape,
            tokens: matrix(shape.vocab, c)?,
            positions: matrix(t, c)?,
            blocks: (0..shape.layers).map(block).collect::<Result<_>>()?,
            norm: ones()?,
            mask: Tensor::from_vec((0..t * t).map(hidden).collect(), (t, t), device)?,
        })
    }

    fn parameters(&self) -> Vec<Var> {
        let ends = [&self.tokens, &self.positions, &self.norm];
        let inner =
            self.blocks.iter().flat_map(|b| [&b.norm1, &b.qkv, &b.out, &b.norm2, &b.up, &b.down]);
        ends.into_iter().chain(inner).cloned().collect()
    }

    /// The mean cross-entropy of `targets` after `ids`, both (B·T).
    fn loss(&self, ids: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let Shape { batch, context, width, .. } = self.shape;
        let x = self.tokens.index_select(ids, 0)?.reshape((batch, context, width))?;
        let x = x.broadcast_add(self.positions.as_tensor())?;
        let mut x = x.reshape((batch * context, width))?; // (B·T, C)
        for block in &self.blocks {
            x = (&x + self.attention(block, &layer_norm(&x, &block.norm1)?)?)?;
            let hidden = linear(&layer_norm(&x, &block.norm2)?, &block.up)?.gelu()?; // (B·T, 4C)
            x = (&x + linear(&hidden, &block.down)?)?;
        }
        let logits = linear(&layer_norm(&x, &self.norm)?, &self.tokens)?; // (B·T, V)
        let shifted = logits.broadcast_sub(&logits.max_keepdim(1)?.detach())?;
        let log_sum = shifted.exp()?.sum_keepdim(1)?.log()?; // (B·T, 1)
        let own = shifted.gather(&targets.unsqueeze(1)?, 1)?; // (B·T, 1)
        (log_sum - own)?.mean_all()
    }

    fn attention(&self, block: &Block, x: &Tensor) -> Result<Tensor> {
        let Shape { batch, context, width, heads, .. } = self.shape;
        let qkv = linear(x, &block.qkv)?.reshape((batch, context, 3, heads, width / heads))?;
        let part = |i: usize| qkv.narrow(2, i, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let (q, k, v) = (part(0)?, part(1)?, part(2)?); // (B, H, T, C/H)
        let scale = 1.0 / ((width / heads) as f64).sqrt();
        let scores = (q.matmul(&k.t()?)? * scale)?.broadcast_add(&self.mask)?; // (B, H, T, T)
        let shifted = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?.detach())?;
        let exponentials = shifted.exp()?;
        let weights = exponentials.broadcast_div(&exponentials.sum_keepdim(D::Minus1)?)?;
        let y = weights.matmul(&v)?.transpose(1, 2)?.reshape((batch * context, width))?;
        linear(&y, &block.out)
    }

    /// Scales all gradients so that their common norm is at most `most`.
    fn clip(&self, gradients: &mut candle_core::backprop::GradStore, most: f64) -> Result<()> {
        let parameters = self.parameters();
        let mut squares = 0.0;
        for parameter in &parameters {
            if let Some(gradient) = gradients.get(parameter) {
                squares += f64::from(gradient.sqr()?.sum_all()?.to_scalar::<f32>()?);
            }
        }
        let factor = most / (squares.sqrt() + 1e-6);
        if factor < 1.0 {
            for parameter in &parameters {
                if let Some(gradient) = gradients.remove(parameter) {
                    gradients.insert(parameter, (gradient * factor)?);
                }
            }
        }
        Ok(())
    }

    /// Panics if a parameter gets no gradient, or one that is all zero or not finite: then the
    /// step would be faster than an honest one.
    fn check_gradients(&self, ids: &Tensor, targets: &Tensor) -> Result<()> {
        let gradients = self.loss(ids, targets)?.backward()?;
        for (i, parameter) in self.parameters().iter().enumerate() {
            let shape = parameter.shape();
            let gradient = gradients.get(parameter);
            let gradient =
                gradient.unwrap_or_else(|| panic!("parameter {i} {shape:?}: no gradient"));
            let most = gradient.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
            assert!(most > 0.0 && most.is_finite(), "parameter {i} {shape:?}: gradient {most}");
        }
        Ok(())
    }
}

/// x · weightᵀ, for `x` (rows, in) and `weight` (out, in).
fn linear(x: &Tensor, weight: &Var) -> Result<Tensor> {
    x.matmul(&weight.t()?)
}

/// (x − mean) / √(variance + ε) · weight, out of ops that have a backward.
fn layer_norm(x: &Tensor, weight: &Var) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let deviation = (centred.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
    centred.broadcast_div(&deviation)?.broadcast_mul(weight.as_tensor())
}
