//! What experts, top keys, temperatures, shared projections and prefixes do.

use hearken_kernels::threads::with_threads;
use hearken_nn::config::{DecoderConfig, ExpertsConfig, Shared, SoftmaxConfig};
use hearken_nn::models::{Decoder, Generates, Model, PredictsTokens, Tokens, loss_and_gradients};
use hearken_nn::pass::{Layout, Noise, Pass};
use hearken_nn::taps::Taps;
use hearken_nn::variants;
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::{Routes, Tensor, Var};
use std::sync::Arc;

const IDS: [u32; 22] = [1, 5, 2, 9, 12, 0, 3, 3, 7, 11, 4, 8, 6, 2, 10, 1, 1, 5, 0, 9, 12, 7];

fn with(change: impl FnOnce(&mut DecoderConfig)) -> Decoder {
    let mut config = variants::base();
    change(&mut config);
    Decoder::drawn(config, 7)
}

fn seen(model: &Decoder, tokens: &Tokens<'_>, pass: Pass, name: &str) -> Tensor {
    let taps = Arc::new(Taps::new().record(name));
    model.hidden(tokens, &pass.watched(&taps));
    taps.get(name).unwrap()
}

fn largest_difference(a: &Tensor, b: &Tensor) -> f32 {
    let pairs = a.data().iter().zip(b.data());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn a_query_keeps_its_largest_scores() {
    let all = with(|_| ());
    let top = with(|config| config.stack.softmax.top = Some(3));
    let tokens = Tokens::new(&IDS, 2);
    let name = "blocks.0.attention.scores";
    let [all, top] = [&all, &top].map(|model| seen(model, &tokens, Pass::evaluate(), name));
    for (row, (all, top)) in all.data().chunks(11).zip(top.data().chunks(11)).enumerate() {
        let kept: Vec<f32> = top.iter().copied().filter(|score| score.is_finite()).collect();
        assert_eq!(kept.len(), (row % 11 + 1).min(3), "row {row}");
        let mut sorted: Vec<f32> = all.iter().copied().filter(|score| score.is_finite()).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let least = kept.iter().copied().fold(f32::INFINITY, f32::min);
        assert_eq!(least, sorted[kept.len() - 1], "row {row}");
    }
}

#[test]
fn as_many_keys_as_there_are_change_nothing() {
    let tokens = Tokens::new(&IDS, 2);
    let all = with(|_| ()).logits(&tokens);
    let top = with(|config| config.stack.softmax.top = Some(11)).logits(&tokens);
    assert_eq!(all.data(), top.data());
}

/// As the temperature falls, the weight of the best key rises to 1: attention becomes a lookup.
#[test]
fn towards_a_temperature_of_zero_attention_is_a_lookup() {
    let tokens = Tokens::new(&IDS, 2);
    let weights = |temperature, top| {
        let softmax = SoftmaxConfig { top, temperature };
        let model = with(|config| config.stack.softmax = softmax);
        seen(&model, &tokens, Pass::evaluate(), "blocks.0.attention.weights")
    };
    let hard = weights(1.0, Some(1)); // (2, 4, 11, 11): one 1 in each row
    assert!(hard.data().iter().all(|weight| [0.0, 1.0].contains(weight)));
    let mut before = f32::INFINITY;
    for temperature in [1.0, 0.3, 0.1, 0.01, 1e-3, 1e-5] {
        let off = largest_difference(&weights(temperature, None), &hard);
        assert!(off <= before, "{temperature}: {off} after {before}");
        before = off;
    }
    assert!(before < 1e-6, "off by {before}");
}

#[test]
fn shared_projections_have_fewer_rows_and_the_same_values() {
    let tokens = Tokens::new(&IDS, 2);
    for (shared, rows) in
        [(Shared::None, 48), (Shared::QueryKey, 32), (Shared::KeyValue, 32), (Shared::All, 16)]
    {
        let model = with(|config| config.stack.shared_projections = shared);
        let weight =
            model.parameters().iter().find(|p| p.name() == "blocks.0.attention.qkv.weight");
        assert_eq!(weight.unwrap().shape().dims(), [rows, 16], "{shared:?}");
        let [q, k, v] = ["queries", "keys", "values"].map(|name| {
            seen(&model, &tokens, Pass::evaluate(), &format!("blocks.1.attention.{name}"))
        });
        assert_eq!(q.data() == k.data(), shared.queries_are_keys(), "{shared:?}");
        assert_eq!(k.data() == v.data(), shared.keys_are_values(), "{shared:?}");
    }
}

#[test]
fn a_prefix_is_read_in_both_directions_and_the_rest_in_one() {
    let model = with(|config| config.stack.prefix = true);
    assert!(model.reads_prefix());
    let logits = |ids: &[u32]| {
        model.logits(&Tokens::new(ids, 1).laid_out(Layout::prefixed(&[5]))) // (1, 11, 13)
    };
    let ids = &IDS[..11];
    let before = logits(ids);
    let change = |at: usize| {
        let mut changed = ids.to_vec();
        changed[at] = (changed[at] + 1) % 13;
        let after = logits(&changed);
        let rows = before.data().chunks(13).zip(after.data().chunks(13));
        rows.map(|(a, b)| a != b).collect::<Vec<bool>>()
    };
    assert_eq!(change(4), [true; 11]);
    let behind = change(7);
    assert_eq!(behind, (0..11).map(|i| i >= 7).collect::<Vec<bool>>());
}

/// A mixture in which each token uses all experts, against the sum over all of them, one by one.
#[test]
fn experts_are_weighted_by_their_router() {
    let experts = ExpertsConfig { top: 3, ..ExpertsConfig::new(3) };
    let model = with(|config| config.stack.experts = Some(experts));
    let tokens = Tokens::new(&IDS, 2);
    let name = |part: &str| format!("blocks.0.feed_forward.{part}");
    let of = |part: &str| seen(&model, &tokens, Pass::evaluate(), &name(part));
    let (router, out) = (of("router"), of("out")); // (2, 11, 3) and (2, 11, 16)
    let routes = Routes::new(router.data(), 3, 3, None, None);
    let parts: Vec<Tensor> = (0..3).map(|e| of(&format!("experts.{e}.out"))).collect();
    let mut want = vec![0.0; out.data().len()];
    for (e, part) in parts.iter().enumerate() {
        for (row, token) in part.data().chunks(16).zip(routes.tokens_of(e)) {
            let weight = router.data()[token as usize * 3 + e];
            let sum = &mut want[token as usize * 16..(token as usize + 1) * 16];
            sum.iter_mut().zip(row).for_each(|(sum, y)| *sum += weight * y);
        }
    }
    assert!(largest_difference(&out, &Tensor::new(out.shape(), &want)) < 1e-5);
}

#[test]
fn full_experts_drop_tokens_in_training_alone() {
    let experts = ExpertsConfig { capacity: Some(0.5), ..ExpertsConfig::new(4) };
    let full = with(|config| config.stack.experts = Some(experts));
    let roomy = with(|config| config.stack.experts = Some(ExpertsConfig::new(4)));
    let tokens = Tokens::new(&IDS, 2);
    let train = || Pass::train(Noise { seed: 1, step: 1 });
    let rows = |model: &Decoder, pass: Pass| {
        let each = (0..4).map(|e| {
            let name = format!("blocks.0.feed_forward.experts.{e}.out");
            seen(model, &tokens, pass.clone(), &name).shape().rows()
        });
        each.collect::<Vec<usize>>()
    };
    // 0.5 · 2 · 22 / 4 = 5.5: six tokens each at most.
    let dropped = rows(&full, train());
    assert!(dropped.iter().all(|rows| *rows <= 6) && dropped.iter().sum::<usize>() < 44);
    assert_eq!(rows(&full, Pass::evaluate()), rows(&roomy, train()));
    assert_eq!(rows(&full, Pass::evaluate()).iter().sum::<usize>(), 44);
    assert_eq!(full.logits(&tokens).data(), roomy.logits(&tokens).data());
}

#[test]
fn padding_does_not_change_what_real_tokens_get() {
    let model = with(|config| config.stack.experts = Some(ExpertsConfig::new(4)));
    let pass = Pass::train(Noise { seed: 1, step: 1 });
    let loss = |ids: &[u32], targets: &[u32], layout: Layout| {
        let tokens = Tokens::new(ids, 1).laid_out(layout);
        let loss = model.loss(&tokens, targets, &pass, Options::default());
        (loss.mean().value().item(), loss.weight)
    };
    let ignored = u32::MAX;
    let short = loss(&IDS[..6], &IDS[1..7], Layout::default());
    let mut targets = IDS[1..7].to_vec();
    targets.resize(11, ignored);
    let padded = loss(&IDS[..11], &targets, Layout::padded(&[6]));
    assert_eq!(short.1, padded.1);
    assert!((short.0 - padded.0).abs() < 1e-5, "{short:?} and {padded:?}");
}

#[test]
fn mixtures_have_the_same_bits_on_any_number_of_threads() {
    for (name, config) in variants::all().into_iter().filter(|(_, c)| c.stack.experts.is_some()) {
        let mut config = config;
        config.context = 64;
        let ids: Vec<u32> = (0..4 * 64).map(|i| i * i % 13).collect();
        let run = |threads| {
            let model = Decoder::drawn(config.clone(), 7);
            let pass = Pass::train(Noise { seed: 1, step: 2 });
            let loss = with_threads(threads, || {
                loss_and_gradients(&model, &ids, &ids, 4, 2, &pass, Options::default())
            });
            let gradients = model.parameters().iter().map(|p| p.gradient().unwrap());
            let gradients: Vec<Vec<f32>> = gradients.map(|g: Tensor| g.data().to_vec()).collect();
            (loss, gradients)
        };
        let one = run(1);
        assert!([2, 3, 4].into_iter().all(|threads| run(threads) == one), "{name}");
    }
}

/// The losses of routers count as often as targets do: the mean over the weight has their mean.
#[test]
fn losses_of_routers_are_added_to_the_mean() {
    let experts = ExpertsConfig { balance: 0.0, z_loss: 1.0, ..ExpertsConfig::new(4) };
    let model = with(|config| config.stack.experts = Some(experts));
    let tokens = Tokens::new(&IDS, 2);
    let mean = |pass: &Pass| {
        let loss: Var = model.loss(&tokens, &IDS, pass, Options::default()).mean();
        f64::from(loss.value().item())
    };
    let train = Pass::train(Noise { seed: 1, step: 1 });
    let added = mean(&train) - mean(&Pass::evaluate());
    let routers = model.parameters().iter().filter(|p| p.name().contains("router"));
    let mut want = 0.0;
    for (block, router) in routers.enumerate() {
        let x = seen(&model, &tokens, Pass::evaluate(), &format!("blocks.{block}.norm2"));
        for x in x.data().chunks(16) {
            let logits = router
                .value()
                .data()
                .chunks(16)
                .map(|row| row.iter().zip(x).map(|(w, x)| f64::from(w * x)).sum::<f64>())
                .collect::<Vec<f64>>();
            let z = logits.iter().map(|x| x.exp()).sum::<f64>().ln();
            want += z * z / 22.0;
        }
    }
    assert!((added - want).abs() < 1e-4, "{added}, expected {want}");
}
