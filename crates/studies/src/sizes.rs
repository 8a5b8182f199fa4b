//! The models of studies: a Transformer as it is built today, how it is trained, and contenders of
//! equal size.

use hearken_nn::config::{
    DecoderConfig, FeedForwardConfig, FeedForwardKind, InitConfig, ModelConfig, NormConfig,
    PositionConfig, RopeScaling, StackConfig,
};
use hearken_nn::models;
use hearken_nn::scope::Weights;

use hearken_train::optimizer::MuonAdjust;
use hearken_train::{OptimizerConfig, ScheduleConfig, TrainConfig};

/// The Transformer that studies begin with: RMS norm before each layer, rotary positions, SwiGLU, no
/// biases.
pub fn transformer(layers: usize, width: usize, heads: usize) -> StackConfig {
    StackConfig {
        norm: NormConfig::rms(),
        position: PositionConfig::Rope { base: 10_000.0, share: 1.0, scaling: RopeScaling::None },
        feed_forward: FeedForwardConfig { kind: FeedForwardKind::Swiglu, width: None },
        init: InitConfig { scale_residual: true, ..InitConfig::for_width(width) },
        ..StackConfig::new(layers, width, heads)
    }
}

/// A language model of these blocks.
pub fn decoder(stack: StackConfig, vocabulary: usize, context: usize) -> ModelConfig {
    DecoderConfig { vocabulary, ..DecoderConfig::new(context, stack) }.into()
}

/// As [`training`], with Muon for hidden matrices, which needs fewer steps.
pub fn training_by_muon(steps: u64, rows: usize, lr: f64, seed: u64) -> TrainConfig {
    TrainConfig {
        optimizer: OptimizerConfig::Muon {
            momentum: 0.95,
            nesterov: true,
            iterations: 5,
            adjust: MuonAdjust::default(),
            lr_factor: 1.0,
            weight_decay: 0.01,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
        },
        ..training(steps, rows, lr, seed)
    }
}

/// How studies train: AdamW with a short warm-up and half a cosine, clipped at 1.
pub fn training(steps: u64, rows: usize, lr: f64, seed: u64) -> TrainConfig {
    TrainConfig {
        steps,
        batch_size: rows,
        lr,
        seed,
        optimizer: OptimizerConfig::AdamW {
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
            weight_decay: 0.01,
            beta2_warmup: None,
        },
        schedule: ScheduleConfig::Cosine { warmup: (steps / 20).max(1), floor: 0.02 },
        clip: 1.0,
        ..TrainConfig::default()
    }
}

/// How many parameters a model has.
pub fn parameters(config: &ModelConfig) -> usize {
    let model = models::build(config, Weights::Unset);
    model.parameters().iter().map(|parameter| parameter.shape().len()).sum()
}

/// The model whose number of parameters is nearest to `wanted`, of those that `of` makes of the widths
/// `step`, 2·`step`, …, which must grow with the width.
pub fn nearest(wanted: usize, step: usize, of: impl Fn(usize) -> ModelConfig) -> ModelConfig {
    let mut best = of(step);
    let mut distance = parameters(&best).abs_diff(wanted);
    for i in 2.. {
        let next = of(i * step);
        let count = parameters(&next);
        if count.abs_diff(wanted) < distance {
            distance = count.abs_diff(wanted);
            best = next;
        }
        if count > wanted {
            return best;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_nn::config::{CellKind, RecurrentConfig};

    #[test]
    fn the_nearest_is_found() {
        let of = |width| {
            let mut config: ModelConfig = RecurrentConfig::new(CellKind::Lstm, 16, 1, width).into();
            config.set_vocabulary(20);
            config
        };
        let found = nearest(parameters(&of(48)) + 10, 8, of);
        assert_eq!(found, of(48));
        assert_eq!(nearest(1, 8, of), of(8));
    }
}
