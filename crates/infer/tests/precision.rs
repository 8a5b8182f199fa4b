//! What a cache of 16 or 8 bits costs: the perplexity of a small trained model, reading a text
//! token by token through each kind of cache.

use hearken_kernels::optimizer::{Adam, Decay, adam_step};
use hearken_nn::cache::CacheKind;
use hearken_nn::config::{DecoderConfig, InitConfig, PositionConfig, RopeScaling, StackConfig};
use hearken_nn::models::{Decoder, Generates, Model, PredictsTokens, Tokens};
use hearken_nn::pass::Pass;
use hearken_nn::slot::Feed;
use hearken_nn::variants;
use hearken_tensor::Tensor;
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::rng::Rng;

const VOCABULARY: usize = 13;
const TOKENS: usize = 48;
const BATCH: usize = 8;

/// Each token is the one five before, but one in five is any token at all: attention has to look
/// at a certain place, and the best loss there is is the entropy of (0.2/13 + 0.8, 12 × 0.2/13),
/// 0.94 nats.
fn text(rng: &mut Rng, len: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..5).map(|_| rng.below(VOCABULARY) as u32).collect();
    while ids.len() < len {
        let earlier = ids[ids.len() - 5];
        ids.push(if rng.below(5) == 0 { rng.below(VOCABULARY) as u32 } else { earlier });
    }
    ids
}

fn trained(config: DecoderConfig) -> Decoder {
    let model = Decoder::drawn(config, 1);
    let parameters = model.parameters();
    let zeros = || parameters.iter().map(|p| Tensor::zeros(p.shape())).collect::<Vec<_>>();
    let (mut means, mut squares) = (zeros(), zeros());
    let mut rng = Rng::new(2);
    for step in 1..=400 {
        let rows: Vec<Vec<u32>> = (0..BATCH).map(|_| text(&mut rng, TOKENS + 1)).collect();
        let ids: Vec<u32> = rows.iter().flat_map(|row| row[..TOKENS].to_vec()).collect();
        let targets: Vec<u32> = rows.iter().flat_map(|row| row[1..].to_vec()).collect();
        let tokens = Tokens::new(&ids, BATCH);
        let loss = model.loss(&tokens, &targets, &Pass::evaluate(), Options::default());
        loss.mean().backward();
        let adam = Adam {
            learning_rate: 3e-3,
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            weight_decay: 0.0,
            decay: Decay::Decoupled,
            correction1: 1.0 - 0.9_f64.powi(step),
            correction2: 1.0 - 0.99_f64.powi(step),
        };
        for ((parameter, mean), square) in parameters.iter().zip(&mut means).zip(&mut squares) {
            parameter.update(|value, gradient| {
                adam_step(adam, 1.0, gradient, value, mean.data_mut(), square.data_mut());
            });
            parameter.set_gradient(None);
        }
    }
    model
}

/// Mean of −ln p over 16 texts.
fn loss(model: &Decoder, kind: CacheKind) -> f64 {
    let mut rng = Rng::new(3);
    let (mut sum, mut count) = (0.0, 0);
    for _ in 0..16 {
        let ids = text(&mut rng, TOKENS + 1);
        let mut slot = model.slot(kind);
        for t in 0..TOKENS {
            let logits = model.step(&mut [Feed { ids: &ids[t..=t], slot: &mut slot }]);
            let exp: Vec<f64> = logits.data().iter().map(|l| f64::from(*l).exp()).collect();
            sum -= (exp[ids[t + 1] as usize] / exp.iter().sum::<f64>()).ln();
            count += 1;
        }
    }
    sum / f64::from(count)
}

#[test]
fn fewer_bits_change_the_perplexity_by_less_than_the_stated_share() {
    let rope = PositionConfig::Rope { base: 100.0, share: 1.0, scaling: RopeScaling::None };
    let (width, init) = (32, InitConfig::default());
    let stack = StackConfig { width, init, ..variants::base().stack };
    let grouped = StackConfig { position: rope, kv_heads: Some(2), ..stack.clone() };
    for (name, stack) in [("learned positions", stack), ("rope, grouped heads", grouped)] {
        let config =
            DecoderConfig { vocabulary: VOCABULARY, context: TOKENS, stack, ..variants::base() };
        let model = trained(config);
        let exact = loss(&model, CacheKind::F32);
        // Nothing learned would be ln 13 = 2.56.
        assert!(exact < 1.5, "{name}: {exact}");
        // Relative errors of 2⁻¹² and about 2⁻⁸ per number, of both signs: see docs/guide/generate.md.
        for (kind, bound) in [(CacheKind::F16, 1e-4), (CacheKind::Int8, 5e-3)] {
            let change = (loss(&model, kind) - exact).exp_m1();
            println!("{name}, {kind:?}: perplexity {:.4} · (1 + {change:.1e})", exact.exp());
            assert!(change.abs() < bound, "{name}, {kind:?}: perplexity changes by {change}");
        }
    }
}
