//! Every variant of a decoder, whole: gradients, checkpointing, the cache.

use hearken_nn::cache::CacheKind;
use hearken_nn::config::{DecoderConfig, DropoutConfig};
use hearken_nn::gradcheck::gradient_error;
use hearken_nn::models::{Decoder, Generates, Model, PredictsTokens, Tokens};
use hearken_nn::pass::{Layout, Noise, Pass};
use hearken_nn::scope::Weights;
use hearken_nn::slot::Feed;
use hearken_nn::variants;
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::rng::Rng;

const BATCH: usize = 2;
const TOKENS: usize = 11;

fn ids(seed: u64, vocabulary: usize) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..BATCH * TOKENS).map(|_| rng.below(vocabulary) as u32).collect()
}

fn loss_of(model: &Decoder, pass: &Pass) -> hearken_tensor::Var {
    let vocabulary = model.vocabulary();
    let (ids, targets) = (ids(1, vocabulary), ids(2, vocabulary));
    model.loss(&Tokens::new(&ids, BATCH), &targets, pass, Options::default()).mean()
}

fn error_of(model: &Decoder, step: f32) -> f64 {
    gradient_error(model.parameters(), || loss_of(model, &Pass::evaluate()), step)
}

#[test]
fn gradients_match_differences_of_the_loss() {
    for (name, mut config) in variants::all() {
        // The loss is good to about 3e-7 in f32: over a step of 2e-3 that is 1.5e-4, and what is
        // left of the fourth-order error is of the same size for these sharp little models.
        let kinks = variants::prepare_for_differences(&mut config.stack, TOKENS);
        let (step, bound, mut starts) = if variants::chooses(&config.stack) {
            // Choices jump where two scores are equal, and there are hundreds: as for ReLU, still
            // shorter, with more starts.
            (1e-4, 1e-2, 1..33)
        } else if kinks {
            // ReLU has kinks: a step must be short not to cross one, which makes rounding larger,
            // and a start that happens to lie beside one says nothing: another is tried.
            (3e-4, 1e-2, 1..9)
        } else {
            (2e-3, 2e-3, 7..8)
        };
        let mut errors = Vec::new();
        let right = starts.any(|seed| {
            errors.push(error_of(&Decoder::drawn(config.clone(), seed), step));
            errors.last().is_some_and(|error| *error < bound)
        });
        assert!(right, "{name}: off by {errors:?}");
    }
}

/// In training there are losses of routers and full experts, too.
#[test]
fn gradients_of_routers_match_differences_of_all_losses() {
    let pass = Pass::train(Noise { seed: 1, step: 2 });
    let routed = |(_, config): &(String, DecoderConfig)| config.stack.experts.is_some();
    let mut count = 0;
    for (name, config) in variants::all().into_iter().filter(routed) {
        let errors = (1..9).map(|seed| {
            let model = Decoder::drawn(config.clone(), seed);
            let (with, without) = (loss_of(&model, &pass), loss_of(&model, &Pass::evaluate()));
            assert_ne!(with.value().item(), without.value().item(), "{name}: no loss of its own");
            gradient_error(model.parameters(), || loss_of(&model, &pass), 3e-4)
        });
        let errors: Vec<f64> = errors.collect();
        assert!(errors.iter().any(|error| *error < 1e-2), "{name}: off by {errors:?}");
        count += 1;
    }
    assert!(count >= 4);
}

#[test]
fn checkpointing_gives_the_same_bits() {
    for (name, mut config) in variants::all() {
        config.stack.dropout = DropoutConfig::everywhere(0.2);
        let run = |checkpointing| {
            let mut model = Decoder::drawn(config.clone(), 7);
            model.set_checkpointing(checkpointing);
            let loss = loss_of(&model, &Pass::train(Noise { seed: 1, step: 2 }));
            loss.backward();
            let learning = model.parameters().iter().filter(|p| p.is_trainable());
            let gradients = learning.map(|p| p.gradient().unwrap().data().to_vec());
            (loss.value().item(), gradients.collect::<Vec<_>>())
        };
        assert!(run(true) == run(false), "{name}");
    }
}

#[test]
fn cached_logits_equal_uncached_ones() {
    for (name, config) in variants::all() {
        let vocabulary = config.vocabulary;
        let model = Decoder::drawn(config, 7);
        let ids = ids(1, vocabulary);
        let mut tokens = Tokens::new(&ids, BATCH);
        if model.reads_prefix() {
            tokens = tokens.laid_out(Layout::prefixed(&[4, 4]));
        }
        let all = model.logits(&tokens); // (B, T, V)
        let rounds = !variants::chooses(&model.sizes().stack);
        let kinds = [CacheKind::F32, CacheKind::F16, CacheKind::Int8];
        for kind in kinds.into_iter().filter(|kind| rounds || *kind == CacheKind::F32) {
            let mut slots = [model.slot(kind), model.slot(kind)];
            if model.reads_prefix() {
                for slot in &mut slots {
                    slot.set_prefix(4);
                }
            }
            let mut at = 0;
            // A prompt, one token alone, then the rest.
            for tokens in [4, 1, TOKENS - 5] {
                let part = |b: usize| &ids[b * TOKENS + at..b * TOKENS + at + tokens];
                let feeds = slots.iter_mut().enumerate();
                let mut feeds: Vec<Feed<'_>> =
                    feeds.map(|(b, slot)| Feed { ids: part(b), slot }).collect();
                let logits = model.step(&mut feeds); // (B, V)
                at += tokens;
                for b in 0..BATCH {
                    let from = (b * TOKENS + at - 1) * vocabulary;
                    // A later token may change what a hash has found for this one.
                    let read = model.recomputes();
                    let read = read.then(|| model.next_logits(&ids[b * TOKENS..][..at], 1));
                    let want = match &read {
                        Some(logits) => logits.data(),
                        None => &all.data()[from..from + vocabulary],
                    };
                    let got = &logits.data()[b * vocabulary..(b + 1) * vocabulary];
                    let off = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
                    let size = want.iter().map(|w| w.abs()).fold(0.0, f32::max);
                    // f32: sums in another order; f16 keeps 11 bits, int8 7 bits of each number.
                    let bound = match kind {
                        CacheKind::F32 => 1e-5,
                        CacheKind::F16 => 1e-2,
                        CacheKind::Int8 => 1e-1,
                    };
                    assert!(off <= bound * size, "{name}, {kind:?}: {off} of {size}");
                }
            }
        }
    }
}

#[test]
fn parameters_have_distinct_names() {
    for (name, config) in variants::all() {
        let model = Decoder::new(config, Weights::Unset);
        let mut names: Vec<String> =
            model.parameters().iter().map(|p| p.name().to_owned()).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all, "{name}");
    }
}
