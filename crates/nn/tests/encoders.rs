//! Every variant of an encoder, whole: gradients, checkpointing, threads, padding, taps.

use hearken_kernels::threads::with_threads;
use hearken_nn::config::{
    DropoutConfig, EncoderConfig, HeadConfig, ModelConfig, PoolerConfig, Pooling,
};
use hearken_nn::gradcheck::gradient_error;
use hearken_nn::models::{
    Classifies, Embedded, Encoder, Encodes, FindsSpans, Model, PredictsTokens, TargetKind, Targets,
    Tokens, loss, outputs,
};
use hearken_nn::pass::{Layout, Noise, Pass};
use hearken_nn::taps::Taps;
use hearken_nn::trace::{TraceOptions, trace_model};
use hearken_nn::variants;
use hearken_tensor::ops::cross_entropy::{IGNORED, Options, cross_entropy};
use hearken_tensor::rng::Rng;
use hearken_tensor::{Var, no_grad};
use std::sync::Arc;

const BATCH: usize = 3;
const TOKENS: usize = 11;
/// Tokens of each row without padding.
const LENGTHS: [usize; BATCH] = [11, 4, 7];

fn below(seed: u64, count: usize, limit: usize) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..count).map(|_| rng.below(limit) as u32).collect()
}

/// A padded batch.
struct Input {
    ids: Vec<u32>,
    types: Option<Vec<u32>>,
}

impl Input {
    fn new(config: &EncoderConfig) -> Self {
        let ids = below(1, BATCH * TOKENS, config.vocabulary);
        let types = (config.types > 0).then(|| below(2, BATCH * TOKENS, config.types));
        Self { ids, types }
    }

    fn tokens(&self) -> Tokens<'_> {
        let tokens = Tokens::new(&self.ids, BATCH).of_types(self.types.as_deref());
        tokens.laid_out(Layout::padded(&LENGTHS))
    }
}

/// Targets of the model's kind, some of which do not count.
fn targets(model: &dyn Model) -> Option<Targets> {
    let per_token = |labels: usize| {
        let mut targets = below(3, BATCH * TOKENS, labels);
        for (i, target) in targets.iter_mut().enumerate() {
            if i % 3 == 1 || i % TOKENS >= LENGTHS[i / TOKENS] {
                *target = IGNORED;
            }
        }
        Targets::Tokens(targets)
    };
    Some(match TargetKind::of(model)? {
        TargetKind::Tokens => per_token(model.config().vocabulary()),
        TargetKind::Tags(labels) => per_token(labels),
        TargetKind::Classes(labels) => {
            let mut targets = below(3, BATCH, labels);
            targets[1] = IGNORED;
            Targets::Classes(targets)
        }
        TargetKind::Several(labels) => {
            Targets::Several(below(3, BATCH * labels, 2).iter().map(|x| *x as f32).collect())
        }
        TargetKind::Numbers(outputs) => {
            Targets::Numbers(Rng::new(3).normal([BATCH, outputs], 1.0).data().to_vec())
        }
        TargetKind::Spans => {
            Targets::Spans { starts: below(3, BATCH, 4), ends: below(4, BATCH, 4) }
        }
    })
}

/// The loss of a model's head, or numbers of its own for everything that comes out of it.
fn loss_of(model: &Encoder, pass: &Pass) -> Var {
    let input = Input::new(model.sizes());
    if let Some(targets) = targets(model) {
        return loss(model, &input.tokens(), &targets, pass, Options::default()).unwrap().mean();
    }
    let weighted = |(i, out): (usize, &Var)| {
        let mut weights = Rng::new(9 + i as u64).normal(out.shape(), 1.0);
        // Hidden states of padding mean nothing.
        if out.shape().rank() == 3 {
            let width = out.shape().width();
            for (row, weights) in weights.data_mut().chunks_mut(width).enumerate() {
                if row % TOKENS >= LENGTHS[row / TOKENS] {
                    weights.fill(0.0);
                }
            }
        }
        (out * &Var::constant(weights)).mean()
    };
    let found: Vec<Var> =
        outputs(model, &input.tokens(), pass).into_iter().map(|(_, out)| out).collect();
    let sums: Vec<Var> = found.iter().enumerate().map(weighted).collect();
    sums.into_iter().reduce(|a, b| a + b).unwrap()
}

#[test]
fn gradients_match_differences_of_the_loss() {
    for (name, mut config) in variants::encoders() {
        // As for decoders; kinks need a shorter step and perhaps another start.
        let kinks = variants::prepare_for_differences(&mut config.stack, TOKENS)
            || config.pooler == PoolerConfig::Relu;
        let (step, bound, mut starts) = if variants::chooses(&config.stack) {
            (1e-4, 1e-2, 1..65)
        } else if kinks {
            (3e-4, 1e-2, 1..9)
        } else {
            (2e-3, 2e-3, 7..8)
        };
        let mut errors = Vec::new();
        let right = starts.any(|seed| {
            let model = Encoder::drawn(config.clone(), seed);
            let loss = || loss_of(&model, &Pass::evaluate());
            errors.push(gradient_error(model.parameters(), loss, step));
            errors.last().is_some_and(|error| *error < bound)
        });
        assert!(right, "{name}: off by {errors:?}");
    }
}

fn loss_and_gradients(model: &Encoder) -> (f32, Vec<Vec<f32>>) {
    let loss = loss_of(model, &Pass::train(Noise { seed: 1, step: 2 }));
    loss.backward();
    let learning = model.parameters().iter().filter(|p| p.is_trainable());
    let gradients = learning.map(|p| p.gradient().unwrap().data().to_vec());
    (loss.value().item(), gradients.collect())
}

#[test]
fn checkpointing_and_threads_give_the_same_bits() {
    for (name, mut config) in variants::encoders() {
        config.stack.dropout = DropoutConfig::everywhere(0.2);
        let run = |checkpointing, threads| {
            let mut model = Encoder::drawn(config.clone(), 7);
            model.set_checkpointing(checkpointing);
            with_threads(threads, || loss_and_gradients(&model))
        };
        let usual = run(false, 1);
        assert!(run(true, 1) == usual, "{name}: checkpointing");
        assert!(run(false, 3) == usual, "{name}: threads");
    }
}

#[test]
fn a_text_alone_is_what_it_is_beside_longer_ones() {
    for (name, config) in variants::encoders() {
        let model = Encoder::drawn(config.clone(), 7);
        let input = Input::new(&config);
        let run = |tokens: &Tokens<'_>| no_grad(|| outputs(&model, tokens, &Pass::evaluate()));
        let together = run(&input.tokens());
        for (row, length) in LENGTHS.into_iter().enumerate() {
            let at = row * TOKENS..row * TOKENS + length;
            let types = input.types.as_ref().map(|types| &types[at.clone()]);
            let alone = run(&Tokens::new(&input.ids[at], 1).of_types(types));
            for ((what, alone), (_, together)) in alone.iter().zip(&together) {
                let (alone, together) = (alone.value(), together.value());
                let each = together.shape().len() / BATCH;
                let together = &together.data()[row * each..row * each + alone.shape().len()];
                for (a, b) in alone.data().iter().zip(together) {
                    // Sums in another order, of states of size 1.
                    assert!((a - b).abs() < 1e-5, "{name}, {what}: {a} alone, {b} in a batch");
                }
            }
        }
    }
}

#[test]
fn what_stands_in_padding_changes_nothing() {
    for (name, config) in variants::encoders() {
        let model = Encoder::drawn(config.clone(), 7);
        let mut input = Input::new(&config);
        let before = loss_and_gradients(&model);
        for (i, id) in input.ids.iter_mut().enumerate() {
            if i % TOKENS >= LENGTHS[i / TOKENS] {
                *id = (*id + 1) % config.vocabulary as u32;
            }
        }
        // The model's own loss, on the changed ids.
        let Some(targets) = targets(&model) else { continue };
        let pass = Pass::train(Noise { seed: 1, step: 2 });
        let after = loss(&model, &input.tokens(), &targets, &pass, Options::default()).unwrap();
        if model.finds_spans().is_none() {
            assert_eq!(after.mean().value().item(), before.0, "{name}");
        }
    }
}

#[test]
fn a_token_sees_what_comes_behind_it() {
    let model = Encoder::drawn(variants::encoder(), 7);
    let encode = |ids: &[u32]| {
        no_grad(|| model.encode(&Tokens::new(ids, 1), &Pass::evaluate())).into_value()
    };
    let width = model.sizes().stack.width;
    let (one, other) = (encode(&[1, 2, 3, 4]), encode(&[1, 2, 3, 5]));
    assert_ne!(one.data()[..width], other.data()[..width]);
}

#[test]
fn types_matter_and_the_first_is_the_default() {
    let model = Encoder::drawn(variants::encoder(), 7);
    let ids = [1, 2, 3, 4];
    let encode = |types: Option<&[u32]>| {
        let tokens = Tokens::new(&ids, 1).of_types(types);
        no_grad(|| model.encode(&tokens, &Pass::evaluate())).into_value().data().to_vec()
    };
    assert_eq!(encode(None), encode(Some(&[0; 4])));
    assert_ne!(encode(None), encode(Some(&[0, 0, 1, 1])));
}

#[test]
fn hidden_tokens_alone_go_through_the_head() {
    for (name, config) in variants::encoders() {
        let model = Encoder::drawn(config.clone(), 7);
        if model.predicts_tokens().is_none() {
            continue;
        }
        let input = Input::new(&config);
        let Some(Targets::Tokens(targets)) = targets(&model) else { unreachable!() };
        let tokens = input.tokens();
        let short = model.loss(&tokens, &targets, &Pass::evaluate(), Options::default());
        let logits = model.logits_with(&tokens, &Pass::evaluate());
        let whole = cross_entropy(logits, &targets, Options::default());
        let (short, whole) = (short.mean().value().item(), whole.value().item());
        assert!((short - whole).abs() < 1e-5, "{name}: {short} and {whole}");
        let each = model.token_losses(&tokens, &targets);
        let counted = targets.iter().filter(|target| **target != IGNORED).count();
        let mean = each.data().iter().sum::<f32>() / counted as f32;
        assert!((mean - whole).abs() < 1e-5, "{name}: {mean} and {whole}");
        for (loss, target) in each.data().iter().zip(&targets) {
            assert_eq!(*loss == 0.0, *target == IGNORED, "{name}");
        }
    }
}

#[test]
fn nothing_to_predict_is_a_loss_of_nothing() {
    let model = Encoder::drawn(variants::encoder(), 7);
    let loss = model.loss(
        &Tokens::new(&[1, 2, 3], 1),
        &[IGNORED; 3],
        &Pass::evaluate(),
        Options::default(),
    );
    assert_eq!((loss.sum.value().item(), loss.weight), (0.0, 0.0));
    loss.sum.backward();
    assert_eq!(model.token_losses(&Tokens::new(&[1, 2], 1), &[IGNORED; 2]).data(), &[0.0; 2]);
}

#[test]
fn every_ability_is_that_of_the_head() {
    for (name, head) in variants::heads() {
        let model = Encoder::drawn(EncoderConfig { head: head.clone(), ..variants::encoder() }, 7);
        let abilities = [
            model.predicts_tokens().is_some(),
            model.classifies().is_some(),
            model.tags().is_some(),
            model.finds_spans().is_some(),
            model.predicts_numbers().is_some(),
        ];
        let count = abilities.iter().filter(|has| **has).count();
        assert_eq!(count, usize::from(!head.is_bare()), "{name}: {abilities:?}");
        assert!(model.encodes().is_some() && model.generates().is_none(), "{name}");
    }
}

#[test]
fn probabilities_of_labels_are_what_they_say() {
    for several in [false, true] {
        let labels = ["a", "b", "c"].map(str::to_owned).to_vec();
        let head = HeadConfig::Classes { labels, several };
        let model = Encoder::drawn(EncoderConfig { head, ..variants::encoder() }, 7);
        let input = Input::new(model.sizes());
        let found = model.class_probabilities(&input.tokens());
        assert_eq!(found.shape().dims(), [BATCH, 3]);
        let logits = no_grad(|| model.class_logits(&input.tokens(), &Pass::evaluate()));
        for (row, z) in found.data().chunks(3).zip(logits.value().data().chunks(3)) {
            let sum: f32 = z.iter().map(|z| z.exp()).sum();
            for (p, z) in row.iter().zip(z) {
                let want = if several { 1.0 / (1.0 + (-z).exp()) } else { z.exp() / sum };
                assert!((p - want).abs() < 1e-6, "{p}, expected {want}");
            }
        }
    }
}

#[test]
fn spans_are_the_two_columns_of_the_head() {
    let head = HeadConfig::Spans {};
    let model = Encoder::drawn(EncoderConfig { head, ..variants::encoder() }, 7);
    let input = Input::new(model.sizes());
    let found = no_grad(|| outputs(&model, &input.tokens(), &Pass::evaluate()));
    let of = |name: &str| found.iter().find(|(known, _)| *known == name).unwrap().1.value().clone();
    let (logits, start, end) = (of("logits"), of("start_logits"), of("end_logits"));
    assert_eq!(logits.shape().dims(), [BATCH, TOKENS, 2]);
    for (i, both) in logits.data().chunks(2).enumerate() {
        assert_eq!(both, [start.data()[i], end.data()[i]]);
    }
    let [first, _] = no_grad(|| model.span_logits(&input.tokens(), &Pass::evaluate()));
    assert_eq!(first.value().data(), start.data());
}

#[test]
fn vectors_of_texts_are_of_length_one_where_they_should_be() {
    let model = Encoder::drawn(variants::modern_encoder(), 7);
    let input = Input::new(model.sizes());
    for pooling in [Pooling::Cls, Pooling::Mean, Pooling::Last] {
        let how = |normalised| Embedded { pooling, normalised, most_tokens: TOKENS };
        let embed = |normalised| {
            no_grad(|| model.embed(&input.tokens(), how(normalised), &Pass::evaluate()))
        };
        let (raw, unit) = (embed(false), embed(true));
        let width = raw.shape().width();
        for (raw, unit) in raw.value().data().chunks(width).zip(unit.value().data().chunks(width)) {
            let norm = raw.iter().map(|x| x * x).sum::<f32>().sqrt();
            for (raw, unit) in raw.iter().zip(unit) {
                assert!((raw / norm - unit).abs() < 1e-6, "{pooling:?}");
            }
        }
    }
}

#[test]
fn watching_changes_nothing() {
    for (name, config) in variants::encoders() {
        let model = Encoder::drawn(config, 7);
        let usual = loss_of(&model, &Pass::evaluate()).value().item();
        let taps = Arc::new(Taps::new().record("*"));
        let watched = loss_of(&model, &Pass::evaluate().watched(&taps)).value().item();
        // Step by step, sums come in another order.
        assert!(
            (usual - watched).abs() < 1e-5 * usual.abs().max(1.0),
            "{name}: {usual}, {watched}"
        );
    }
}

#[test]
fn a_trace_has_every_name_and_its_gradient() {
    let labels = ["a", "b"].map(str::to_owned).to_vec();
    let head = HeadConfig::Classes { labels, several: false };
    let config = EncoderConfig { head, pooler: PoolerConfig::Tanh, ..variants::encoder() };
    let model = Encoder::drawn(config, 7);
    let input = Input::new(model.sizes());
    let options = TraceOptions::default();
    let targets = Targets::Classes(vec![0, 1, IGNORED]);
    let traced = trace_model(&model, &input.tokens(), Some(&targets), &options).unwrap();
    let shape = |name: &str| {
        let found = traced.tensors.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("no {name}")).1.shape().dims().to_vec()
    };
    let (b, t, c, h) = (BATCH, TOKENS, 16, 4);
    for (name, want) in [
        ("embedding", vec![b, t, c]),
        ("types", vec![b, t, c]),
        ("positions", vec![b, t, c]),
        ("embedding_norm", vec![b, t, c]),
        ("blocks.0.residual_before", vec![b, t, c]),
        ("blocks.1.attention.scores", vec![b, h, t, t]),
        ("blocks.1.attention.weights", vec![b, h, t, t]),
        ("blocks.1.norm2", vec![b, t, c]),
        ("pooled", vec![b, c]),
        ("logits", vec![b, 2]),
    ] {
        assert_eq!(shape(name), want, "{name}");
        assert_eq!(shape(&format!("d.{name}")), want, "d.{name}");
    }
    let without = trace_model(&model, &input.tokens(), None, &options).unwrap();
    assert_eq!(2 * without.tensors.len(), traced.tensors.len());
    // Targets of another kind are refused.
    let wrong = Targets::Numbers(vec![0.0; BATCH]);
    assert!(trace_model(&model, &input.tokens(), Some(&wrong), &options).is_err());
}

#[test]
fn configurations_are_read_back() {
    for (name, config) in variants::encoders() {
        let config = ModelConfig::Encoder(config);
        let text = toml::to_string_pretty(&config).unwrap();
        let settings = hearken_base::settings::Settings::parse(&text, "m").unwrap();
        assert_eq!(settings.read::<ModelConfig>().unwrap(), config, "{name}:\n{text}");
    }
}
