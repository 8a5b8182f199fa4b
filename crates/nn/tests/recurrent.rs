//! Language models without attention, whole: gradients, decoding, threads, and states that are
//! carried along.

use hearken_kernels::isa::{Isa, with_isa};
use hearken_kernels::threads::with_threads;
use hearken_nn::cache::CacheKind;
use hearken_nn::config::{CellKind, ModelConfig, RecurrentConfig, SourceAttention};
use hearken_nn::gradcheck::gradient_error;
use hearken_nn::layers::RecurrentStack;
use hearken_nn::models::{self, Model, Recurrent, Tokens};
use hearken_nn::pass::{Layout, Noise, Pass};
use hearken_nn::scope::{Scope, Weights};
use hearken_nn::slot::{Feed, Slot};
use hearken_nn::taps::Taps;
use hearken_nn::variants;
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Tensor, Var};
use std::sync::Arc;

const BATCH: usize = 2;
const TOKENS: usize = 11;
const VOCABULARY: usize = 13;

fn ids(seed: u64, count: usize) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..count).map(|_| rng.below(VOCABULARY) as u32).collect()
}

fn drawn(config: &ModelConfig) -> Box<dyn Model> {
    models::build(config, Weights::Drawn { seed: 7 })
}

fn loss_of(model: &dyn Model, pass: &Pass) -> Var {
    let (ids, targets) = (ids(1, BATCH * TOKENS), ids(2, BATCH * TOKENS));
    let model = model.predicts_tokens().unwrap();
    model.loss(&Tokens::new(&ids, BATCH), &targets, pass, Options::default()).mean()
}

#[test]
fn gradients_match_differences_of_the_loss() {
    for (name, config) in variants::without_attention() {
        let model = drawn(&config);
        let loss = || loss_of(model.as_ref(), &Pass::evaluate());
        let error = gradient_error(model.parameters(), loss, 2e-3);
        // The loss is good to about 3e-7 in f32: over a step of 2e-3 that is 1.5e-4.
        assert!(error < 2e-3, "{name}: off by {error}");
    }
}

/// Loss and gradients of a step with dropout.
fn step(config: &ModelConfig, checkpointing: bool) -> (f32, Vec<Vec<f32>>) {
    let mut config = config.clone();
    match &mut config {
        ModelConfig::Recurrent(config) => config.dropout = 0.2,
        ModelConfig::Convolution(config) => config.dropout = 0.2,
        _ => panic!("a model with attention"),
    }
    let mut model = drawn(&config);
    model.set_checkpointing(checkpointing);
    let loss = loss_of(model.as_ref(), &Pass::train(Noise { seed: 1, step: 2 }));
    loss.backward();
    let gradients = model.parameters().iter().map(|p| p.gradient().unwrap().data().to_vec());
    (loss.value().item(), gradients.collect())
}

#[test]
fn threads_and_checkpointing_give_the_same_bits() {
    for (name, config) in variants::without_attention() {
        let want = with_threads(1, || step(&config, false));
        assert!(step(&config, true) == want, "{name}, checkpointing");
        for threads in 2..=4 {
            assert!(with_threads(threads, || step(&config, false)) == want, "{name}, {threads}");
        }
    }
}

#[test]
fn wide_layers_give_the_same_bits_on_any_number_of_threads() {
    // Products that threads share.
    for cell in [CellKind::Rnn, CellKind::Gru, CellKind::Lstm] {
        let config = RecurrentConfig::new(cell, 24, 1, 520);
        let config = ModelConfig::from(RecurrentConfig { vocabulary: VOCABULARY, ..config });
        let want = with_threads(1, || step(&config, false));
        for threads in 2..=4 {
            assert!(with_threads(threads, || step(&config, false)) == want, "{cell:?}, {threads}");
        }
    }
}

#[test]
fn decoding_with_a_state_gives_the_logits_of_reading_everything() {
    for (name, config) in variants::without_attention() {
        let model = drawn(&config);
        let model = model.generates().unwrap();
        let ids = ids(1, BATCH * TOKENS);
        let all = model.logits(&Tokens::new(&ids, BATCH)); // (B, T, V)
        let mut slots = [(); BATCH].map(|()| model.slot(CacheKind::F32));
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
                let from = (b * TOKENS + at - 1) * VOCABULARY;
                let want = &all.data()[from..from + VOCABULARY];
                let got = &logits.data()[b * VOCABULARY..(b + 1) * VOCABULARY];
                let off = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
                assert!(off <= 1e-5, "{name}: {off}");
            }
        }
        assert!(slots[0].len() == TOKENS && slots[0].bytes() > 0, "{name}");
        let after = slots[0].bytes();
        model.step(&mut [Feed { ids: &ids, slot: &mut slots[0] }]);
        assert_eq!(slots[0].bytes(), after, "{name}: a state does not grow");
    }
}

#[test]
fn prompts_together_give_the_bits_of_each_alone() {
    let texts: Vec<Vec<u32>> =
        [1, 7, 1, 3, 1].iter().zip(3..).map(|(&n, seed)| ids(seed, n)).collect();
    for isa in Isa::all_available().filter(|isa| *isa != Isa::Amx) {
        with_isa(isa, || {
            for (name, config) in variants::without_attention() {
                let model = drawn(&config);
                let model = model.generates().unwrap();
                let run = |texts: &[Vec<u32>]| {
                    let mut slots: Vec<Slot> =
                        texts.iter().map(|_| model.slot(CacheKind::F32)).collect();
                    let mut rows = Vec::new();
                    for _ in 0..2 {
                        let feeds = slots.iter_mut().zip(texts);
                        let mut feeds: Vec<Feed<'_>> =
                            feeds.map(|(slot, ids)| Feed { ids, slot }).collect();
                        rows.extend_from_slice(model.step(&mut feeds).data());
                    }
                    let half = rows.len() / 2;
                    let row = |i: usize| {
                        let at = i * VOCABULARY..(i + 1) * VOCABULARY;
                        [&rows[..half][at.clone()], &rows[half..][at]].concat()
                    };
                    (0..texts.len()).map(row).collect::<Vec<_>>()
                };
                let together = run(&texts);
                for (text, together) in texts.iter().zip(together) {
                    let alone = run(std::slice::from_ref(text)).remove(0);
                    assert!(alone == together, "{isa:?}, {name}, {} tokens", text.len());
                }
            }
        });
    }
}

#[test]
fn a_copy_of_a_slot_goes_its_own_way() {
    for (name, config) in variants::without_attention() {
        let model = drawn(&config);
        let model = model.generates().unwrap();
        let step =
            |ids: &[u32], slot: &mut Slot| model.step(&mut [Feed { ids, slot }]).data().to_vec();
        let prompt = ids(5, 9);
        let mut one = model.slot(CacheKind::F32);
        step(&prompt, &mut one);
        let mut two = one.clone();
        assert_ne!(step(&[1], &mut one), step(&[2], &mut two), "{name}");
        let (first, second) = (step(&[3], &mut one), step(&[3], &mut two));
        for (token, want) in [(1, first), (2, second)] {
            let mut slot = model.slot(CacheKind::F32);
            step(&prompt, &mut slot);
            step(&[token], &mut slot);
            assert_eq!(step(&[3], &mut slot), want, "{name}");
        }
        one.clear();
        assert!(one.is_empty() && one.bytes() == 0);
        let mut fresh = model.slot(CacheKind::F32);
        assert_eq!(step(&prompt, &mut one), step(&prompt, &mut fresh), "{name}");
    }
}

#[test]
fn windows_with_a_carried_state_are_the_whole_text() {
    for (name, config) in variants::without_attention() {
        let model = drawn(&config);
        let ModelConfig::Recurrent(_) = config else {
            assert!(model.carries_state().is_none(), "{name}");
            continue;
        };
        let model = model.carries_state().unwrap();
        let ids = ids(1, BATCH * TOKENS);
        let pass = Pass::evaluate();
        let whole = model.hidden(&Tokens::new(&ids, BATCH), &pass);
        let width = whole.shape().width();
        let mut states = model.first_states(BATCH);
        let mut at = 0;
        for tokens in [5, 1, TOKENS - 6] {
            let rows = (0..BATCH).flat_map(|b| &ids[b * TOKENS + at..b * TOKENS + at + tokens]);
            let window: Vec<u32> = rows.copied().collect();
            let (hidden, last) = model.hidden_after(&states, &Tokens::new(&window, BATCH), &pass);
            states = last;
            for b in 0..BATCH {
                let got = &hidden.value().data()[b * tokens * width..(b + 1) * tokens * width];
                let want = &whole.value().data()[(b * TOKENS + at) * width..][..tokens * width];
                let off = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
                assert!(off <= 1e-6, "{name}: {off}");
            }
            at += tokens;
        }
    }
}

#[test]
fn the_forget_gate_of_an_lstm_starts_open() {
    let config = RecurrentConfig::new(CellKind::Lstm, 8, 1, 4);
    let model = Recurrent::drawn(RecurrentConfig { vocabulary: 5, ..config }, 1);
    let bias = model.parameters().iter().find(|p| p.name() == "layers.0.hidden.bias").unwrap();
    let want = [0.0, 1.0, 0.0, 0.0].map(|x| [x; 4]).concat();
    assert_eq!(bias.value().data(), want);
}

#[test]
fn a_stack_in_both_directions_ignores_padding_and_has_right_gradients() {
    let root = Scope::root(Weights::Drawn { seed: 3 });
    let init = hearken_nn::config::InitConfig::for_width(2);
    let stack = RecurrentStack::new(&root.starting(init, 1), CellKind::Gru, 2, [3, 4], true, 0.0);
    let x = Param::new("x", hearken_tensor::Role::Hidden, Rng::new(1).normal([2, 5, 3], 1.0));
    let run = |x: Var, lengths: &[usize]| {
        let zeros = stack.zeros(x.shape().dims()[0]);
        stack.forward(x, &zeros, Some(&lengths.into()), &Pass::evaluate()).0 // (B, T, 8)
    };
    // The second row is two tokens long: it gives what these two give alone.
    let both = run(x.var(), &[5, 2]);
    let alone = run(Var::constant(Tensor::new([1, 2, 3], &x.value().data()[15..21])), &[2]);
    assert_eq!(&both.value().data()[5 * 8..7 * 8], alone.value().data());
    assert!(both.value().data()[7 * 8..].iter().all(|x| *x == 0.0));
    let mut all = root.parameters();
    all.push(x.clone());
    let weights = Var::constant(Rng::new(2).normal([2, 5, 8], 1.0));
    let error = gradient_error(&all, || (&run(x.var(), &[5, 2]) * &weights).sum(), 2e-3);
    assert!(error < 2e-3, "off by {error}");
}

/// The loss of targets, each row with a source of its own length.
fn translation_loss(model: &dyn Model, pass: &Pass) -> Var {
    let (source, ids, targets) = (ids(1, 2 * 7), ids(2, 2 * 5), ids(3, 2 * 5));
    let source = Tokens::new(&source, 2).laid_out(Layout::padded(&[7, 4]));
    let tokens = Tokens::new(&ids, 2).about(&source);
    model.translates().unwrap().loss(&tokens, &targets, pass, Options::default()).mean()
}

#[test]
fn gradients_of_recurrent_translators_match_differences() {
    for (name, config) in variants::recurrent_translators() {
        let model = drawn(&config);
        let loss = || translation_loss(model.as_ref(), &Pass::evaluate());
        let error = gradient_error(model.parameters(), loss, 2e-3);
        assert!(error < 2e-3, "{name}: off by {error}");
        let step = |threads| {
            with_threads(threads, || {
                let model = drawn(&config);
                translation_loss(model.as_ref(), &Pass::train(Noise { seed: 1, step: 2 }))
                    .backward();
                let each = model.parameters().iter().map(|p| p.gradient().unwrap());
                each.flat_map(|gradient| gradient.data().to_vec()).collect::<Vec<f32>>()
            })
        };
        let want = step(1);
        assert!((2..=4).all(|threads| step(threads) == want), "{name}: threads");
    }
}

#[test]
fn recurrent_translators_decode_as_they_read() {
    for (name, config) in variants::recurrent_translators() {
        let model = drawn(&config);
        let model = model.translates().unwrap();
        let (sources, ids) = (ids(1, 2 * 7), ids(2, 2 * 5));
        let sources = Tokens::new(&sources, 2).laid_out(Layout::padded(&[7, 4]));
        let all = model.logits(&Tokens::new(&ids, 2).about(&sources)); // (B, T, V)
        let mut slots = model.begin(&sources, CacheKind::F32);
        let copies = slots.clone();
        let mut at = 0;
        for tokens in [1, 3, 1] {
            let feeds = slots.iter_mut().enumerate();
            let mut feeds: Vec<Feed<'_>> = feeds
                .map(|(b, slot)| Feed { ids: &ids[b * 5 + at..b * 5 + at + tokens], slot })
                .collect();
            let logits = model.step(&mut feeds);
            at += tokens;
            for b in 0..2 {
                let want = &all.data()[(b * 5 + at - 1) * VOCABULARY..][..VOCABULARY];
                let got = &logits.data()[b * VOCABULARY..][..VOCABULARY];
                let off = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
                assert!(off <= 1e-5, "{name}: {off}");
            }
        }
        // A cleared slot keeps its source, and a short source has no use for padding.
        slots[1].clear();
        let mut fresh = copies[1].clone();
        let again = |slot| model.step(&mut [Feed { ids: &ids[..3], slot }]).data().to_vec();
        assert_eq!(again(&mut slots[1]), again(&mut fresh), "{name}");
        let alone = Tokens::new(&sources.ids[7..11], 1);
        let mut alone = model.begin(&alone, CacheKind::F32);
        let off = again(&mut alone[0])
            .iter()
            .zip(&again(&mut copies[1].clone()))
            .fold(0.0, |off: f32, (a, b)| off.max((a - b).abs()));
        assert!(off <= 1e-5, "{name}: padding changes {off}");
    }
}

#[test]
fn additive_attention_shows_its_weights() {
    for (name, config) in variants::recurrent_translators() {
        let model = drawn(&config);
        let model = model.translates().unwrap();
        let (sources, ids) = (ids(1, 2 * 7), ids(2, 2 * 5));
        let sources = Tokens::new(&sources, 2).laid_out(Layout::padded(&[7, 4]));
        let taps = Arc::new(Taps::new().record("decoder.blocks.*.cross_attention.weights"));
        model.hidden(&Tokens::new(&ids, 2).about(&sources), &Pass::evaluate().watched(&taps));
        let seen = taps.get("decoder.blocks.0.cross_attention.weights");
        let ModelConfig::RecurrentSeq2seq(config) = &config else { panic!("{name}") };
        assert_eq!(seen.is_some(), config.attention == SourceAttention::Additive, "{name}");
        let Some(weights) = seen else { continue };
        assert_eq!(weights.shape().dims(), [2, 1, 5, 7], "{name}");
        for (i, row) in weights.data().chunks(7).enumerate() {
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{name}");
            assert!(i < 5 || row[4..].iter().all(|weight| *weight == 0.0), "{name}: padding");
        }
    }
}
