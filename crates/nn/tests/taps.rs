//! Taps: the step-by-step ways equal the usual ones, and what is recorded, replaced and measured is
//! what happens.

use hearken_nn::block::Memory;
use hearken_nn::config::{
    AttentionConfig, DecoderConfig, DropoutConfig, Placement, PositionConfig, StackConfig,
};
use hearken_nn::layers::Direction;
use hearken_nn::models::{Decoder, Generates, Model, PredictsTokens, Tokens};
use hearken_nn::pass::{Layout, Noise, Pass};
use hearken_nn::scope::{Scope, Weights};
use hearken_nn::stack::Stack;
use hearken_nn::taps::{self, Taps};
use hearken_nn::variants;
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Tensor, Var, no_grad};
use std::collections::BTreeMap;
use std::sync::Arc;

const BATCH: usize = 2;
const TOKENS: usize = 11;

fn ids(seed: u64, vocabulary: usize) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..BATCH * TOKENS).map(|_| rng.below(vocabulary) as u32).collect()
}

fn loss_of(model: &Decoder, pass: &Pass) -> Var {
    let vocabulary = model.vocabulary();
    let (ids, targets) = (ids(1, vocabulary), ids(2, vocabulary));
    model.loss(&Tokens::new(&ids, BATCH), &targets, pass, Options::default()).mean()
}

fn evaluated(model: &Decoder, taps: Taps) -> f64 {
    let pass = Pass::evaluate().watched(&Arc::new(taps));
    f64::from(no_grad(|| loss_of(model, &pass)).value().item())
}

fn everything() -> Arc<Taps> {
    Arc::new(Taps::new().record("*").record_gradient("*"))
}

/// The largest difference as a share of the largest number; hidden scores are the same on both sides.
fn off(got: &Tensor, want: &Tensor) -> f32 {
    assert_eq!(got.shape(), want.shape());
    let largest = want.data().iter().filter(|x| x.is_finite()).fold(0.0_f32, |m, x| m.max(x.abs()));
    let pairs = got.data().iter().zip(want.data());
    let differences = pairs.map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() });
    let worst = differences.fold(0.0, |m: f32, d| if d > m || d.is_nan() { d } else { m });
    worst / largest.max(f32::MIN_POSITIVE)
}

/// Sums of up to 26 numbers in another order, through two layers that sharpen differences: some 30
/// roundings of 6e-8. Gradients are differences of such sums.
const BOUND: f32 = 2e-5;

/// Value and gradients of all parameters.
fn gradients(parameters: &[Param], value: &Var) -> (Tensor, Vec<(String, Tensor)>) {
    value.backward();
    let gradient = |p: &Param| {
        let gradient = p.gradient().expect("every parameter takes part");
        p.set_gradient(None);
        (p.name().to_owned(), gradient)
    };
    let learning = parameters.iter().filter(|p| p.is_trainable());
    (value.value().clone(), learning.map(gradient).collect())
}

fn assert_equal(what: &str, parameters: &[Param], usual: &Var, watched: &Var) {
    let (usual, want) = gradients(parameters, usual);
    let (watched, got) = gradients(parameters, watched);
    assert!(off(&watched, &usual) <= BOUND, "{what}: {watched:?}, usually {usual:?}");
    // A gradient that is 0 but for rounding (of the biases of keys, say) is compared with the others.
    let largest = |g: &Tensor| g.data().iter().fold(0.0_f32, |m, x| m.max(x.abs()));
    let all = want.iter().map(|(_, g)| largest(g)).fold(0.0, f32::max);
    for ((name, got), (_, want)) in got.iter().zip(&want) {
        let size = largest(want);
        let off = off(got, want) * size / size.max(1e-2 * all);
        assert!(off <= BOUND, "{what}, gradient of {name}: off by {off} of the largest");
    }
}

#[test]
fn step_by_step_equals_the_usual_way_for_every_variant() {
    for (name, config) in variants::all() {
        let model = Decoder::drawn(config, 7);
        let usual = loss_of(&model, &Pass::evaluate());
        let watched = loss_of(&model, &Pass::evaluate().watched(&everything()));
        assert_equal(&name, model.parameters(), &usual, &watched);
    }
}

#[test]
fn dropout_hits_the_same_places_in_a_watched_pass() {
    for (name, mut config) in variants::all().into_iter().step_by(3) {
        config.stack.dropout = DropoutConfig::everywhere(0.2);
        let model = Decoder::drawn(config, 7);
        let pass = Pass::train(Noise { seed: 1, step: 2 });
        let usual = loss_of(&model, &pass);
        let watched = loss_of(&model, &pass.watched(&everything()));
        assert_equal(&name, model.parameters(), &usual, &watched);
    }
}

/// A stack whose output is weighted into a scalar.
fn weighted(stack: &Stack, width: usize, source: Option<usize>, pass: &Pass) -> Var {
    let x = Var::constant(Rng::new(1).normal([BATCH, 9, width], 1.0));
    let memory = source.map(|width| Memory {
        hidden: Var::constant(Rng::new(2).normal([BATCH, 6, width], 1.0)),
        layout: Layout::padded(&[6, 4]),
    });
    let out = stack.forward(x, memory.as_slice(), pass, None);
    let weights = Rng::new(9).normal(out.shape(), 1.0);
    (&out * &Var::constant(weights)).sum()
}

#[test]
fn step_by_step_equals_the_usual_way_for_every_layout_and_direction() {
    let base = variants::base().stack;
    let t5 = PositionConfig::T5 { buckets: 6, max_distance: 10 };
    let window = AttentionConfig::Window { size: 4 };
    let mut post = StackConfig { position: t5.clone(), kv_heads: Some(2), ..base.clone() };
    post.norm.placement = Placement::Post;
    let segments = [1, 1, 1, 1, 2, 2, 2, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2];
    let positions = [0, 1, 2, 3, 0, 1, 2, 0, 0, 0, 1, 0, 1, 2, 3, 4, 5, 6];
    let layouts = [
        Layout::default(),
        Layout::padded(&[5, 9]),
        Layout::packed(&segments, &positions),
        Layout { prefixes: Some([5, 2].into()), ..Layout::default() },
    ];
    for config in [StackConfig { attention: window, ..base }, post] {
        for layout in &layouts {
            for (direction, source) in [
                (Direction::Causal, None),
                (Direction::Bidirectional, None),
                (Direction::Causal, Some(10)),
            ] {
                if direction == Direction::Bidirectional && layout.prefixes.is_some() {
                    continue;
                }
                let scope = Scope::root(Weights::Drawn { seed: 5 });
                let stack = Stack::new(&scope, &config, 9, direction, source);
                let pass = Pass::evaluate().over(layout.clone());
                let usual = weighted(&stack, config.token_width(), source, &pass);
                let pass = pass.watched(&everything());
                let watched = weighted(&stack, config.token_width(), source, &pass);
                let what = format!("{:?}, {direction:?}, {layout:?}", config.attention);
                assert_equal(&what, &scope.parameters(), &usual, &watched);
            }
        }
    }
}

fn llama() -> DecoderConfig {
    variants::all().into_iter().find(|(name, _)| name == "llama").unwrap().1
}

#[test]
fn names_and_shapes_are_those_of_the_table() {
    let model = Decoder::drawn(llama(), 7);
    let taps = everything();
    loss_of(&model, &Pass::evaluate().watched(&taps)).backward();
    assert!(taps.unmet().is_empty() && taps.overflow().is_none());
    let seen: BTreeMap<String, Tensor> = taps.take().into_iter().collect();
    assert!(taps.take().is_empty());
    let mut want: Vec<(String, Vec<usize>)> = vec![
        ("embedding".to_owned(), vec![2, 11, 16]),
        ("norm".to_owned(), vec![2, 11, 16]),
        ("logits".to_owned(), vec![2, 11, 13]),
    ];
    for block in 0..2 {
        for (name, dims) in [
            ("residual_before", &[2, 11, 16][..]),
            ("norm1", &[2, 11, 16]),
            ("attention.queries", &[2, 4, 11, 4]),
            ("attention.keys", &[2, 2, 11, 4]),
            ("attention.values", &[2, 2, 11, 4]),
            ("attention.rotated_queries", &[2, 4, 11, 4]),
            ("attention.rotated_keys", &[2, 2, 11, 4]),
            ("attention.scores", &[2, 4, 11, 11]),
            ("attention.weights", &[2, 4, 11, 11]),
            ("attention.mixed", &[2, 4, 11, 4]),
            ("attention.out", &[2, 11, 16]),
            ("residual_middle", &[2, 11, 16]),
            ("norm2", &[2, 11, 16]),
            ("feed_forward.up", &[2, 11, 20]),
            ("feed_forward.gate", &[2, 11, 20]),
            ("feed_forward.active", &[2, 11, 20]),
            ("feed_forward.out", &[2, 11, 16]),
            ("residual_after", &[2, 11, 16]),
        ] {
            want.push((format!("blocks.{block}.{name}"), dims.to_vec()));
        }
    }
    assert_eq!(seen.len(), 2 * want.len(), "{:?}", seen.keys());
    for (name, dims) in want {
        for name in [name.clone(), format!("d.{name}")] {
            assert_eq!(seen[&name].shape().dims(), dims, "{name}");
        }
    }
    for (name, weights) in seen.iter().filter(|(name, _)| name.ends_with(".weights")) {
        let sums = weights.data().chunks(11).map(|row| row.iter().sum::<f32>());
        let right = |sum: f32| (sum - 1.0).abs() < 1e-6;
        assert!(name.starts_with("d.") || sums.into_iter().all(right), "{name}");
    }
    assert_eq!(seen["blocks.0.residual_after"].data(), seen["blocks.1.residual_before"].data());
    let logits = model.logits(&Tokens::new(&ids(1, 13), BATCH));
    assert!(off(&seen["logits"], &logits) <= BOUND);
}

#[test]
fn models_without_rotation_or_gate_have_no_such_values() {
    let model = Decoder::drawn(variants::base(), 7);
    let taps = Arc::new(Taps::new().record("*"));
    loss_of(&model, &Pass::evaluate().watched(&taps));
    let names: Vec<String> = taps.take().into_iter().map(|(name, _)| name).collect();
    assert!(names.iter().any(|name| name == "positions"));
    assert!(!names.iter().any(|name| name.contains("rotated") || name.contains("gate")));
}

#[test]
fn post_norm_shows_sums_before_their_norms() {
    let mut config = variants::base();
    config.stack.norm.placement = Placement::Post;
    let model = Decoder::drawn(config, 7);
    let taps = Arc::new(Taps::new().record("*"));
    loss_of(&model, &Pass::evaluate().watched(&taps));
    let value = |name: &str| taps.get(name).unwrap();
    let sum = |a: &str, b: &str| {
        let (a, b) = (value(a), value(b));
        let sum: Vec<f32> = a.data().iter().zip(b.data()).map(|(a, b)| a + b).collect();
        Tensor::new(a.shape(), &sum)
    };
    let middle = sum("blocks.0.residual_before", "blocks.0.attention.out");
    assert_eq!(value("blocks.0.residual_middle").data(), middle.data());
    let after = sum("blocks.0.norm1", "blocks.0.feed_forward.out");
    assert_eq!(value("blocks.0.residual_after").data(), after.data());
    assert_eq!(value("blocks.1.residual_before").data(), value("blocks.0.norm2").data());
    assert!(taps.get("norm").is_none());
}

/// d.NAME along a direction, against what the loss does when the value is moved along it.
#[test]
fn recorded_gradients_match_differences_of_the_loss() {
    let mut t5 = variants::base();
    t5.stack.position = PositionConfig::T5 { buckets: 6, max_distance: 10 };
    t5.stack.norm.placement = Placement::Post;
    t5.stack.residual_scale = 0.5;
    let sinusoidal = variants::all().into_iter().find(|(name, _)| name == "sinusoidal, window");
    for config in [llama(), t5, sinusoidal.unwrap().1] {
        let model = Decoder::drawn(config, 7);
        let recorded = everything();
        loss_of(&model, &Pass::evaluate().watched(&recorded)).backward();
        let seen: BTreeMap<String, Tensor> = recorded.take().into_iter().collect();
        for (name, value) in seen.iter().filter(|(name, _)| !name.starts_with("d.")) {
            let gradient = &seen[&format!("d.{name}")];
            let direction = Rng::new(3).normal(value.shape(), 1.0);
            let pairs = gradient.data().iter().zip(direction.data());
            let slope: f64 = pairs.map(|(g, d)| f64::from(*g) * f64::from(*d)).sum();
            let at = |step: f32| {
                let mut shift = direction.clone();
                shift.data_mut().iter_mut().for_each(|d| *d *= step);
                let shift = Var::constant(shift);
                evaluated(&model, Taps::new().replace(name.as_str(), move |x| x + &shift))
            };
            let step = 1e-3;
            let near = at(step) - at(-step);
            let far = at(2.0 * step) - at(-2.0 * step);
            let differences = (8.0 * near - far) / (12.0 * f64::from(step));
            // The loss is good to about 3e-7, over a step of 1e-3.
            let off = (slope - differences).abs() / (slope.abs() + 1.0);
            assert!(off < 2e-3, "{name}: {slope}, differences give {differences}");
        }
    }
}

#[test]
fn ablating_a_head_equals_zeroing_its_columns_of_the_projection() {
    for config in [variants::base(), llama()] {
        let (width, head) = (config.stack.head_width(), 2);
        let model = Decoder::drawn(config, 7);
        let plain = evaluated(&model, Taps::new());
        let by_head =
            evaluated(&model, Taps::new().replace("blocks.1.attention.mixed[2]", taps::zero));
        let by_weights =
            evaluated(&model, Taps::new().replace("blocks.1.attention.weights[2]", taps::zero));
        let whole = Taps::new().replace("blocks.1.attention.mixed", move |mixed: &Var| {
            let mut kept = Tensor::full(mixed.shape(), 1.0); // (B, H, T, D)
            let each = TOKENS * width;
            for row in kept.data_mut().chunks_mut(4 * each) {
                row[head * each..(head + 1) * each].fill(0.0);
            }
            mixed * &Var::constant(kept)
        });
        let by_mask = evaluated(&model, whole);
        let out = model.parameters().iter().find(|p| p.name() == "blocks.1.attention.out.weight");
        let out = out.unwrap();
        let mut zeroed = out.value(); // (C, H·D)
        let columns = zeroed.shape().width();
        for row in zeroed.data_mut().chunks_mut(columns) {
            row[head * width..(head + 1) * width].fill(0.0);
        }
        out.set_value(zeroed);
        let want = evaluated(&model, Taps::new());
        assert!((plain - want).abs() > 1e-3, "the head does nothing: {plain} and {want}");
        for got in [by_head, by_weights, by_mask] {
            assert!((got - want).abs() < 1e-6, "{got}, by zeroed weights {want}"); // f32 of 3
        }
    }
}

#[test]
fn a_patched_activation_carries_the_whole_model() {
    let model = Decoder::drawn(llama(), 7);
    let (clean, other) = (ids(1, 13), ids(4, 13));
    let name = "blocks.0.residual_after";
    let taps = Arc::new(Taps::new().record(name));
    let watch = |ids: &[u32], taps: &Arc<Taps>| {
        let pass = Pass::evaluate().watched(taps);
        no_grad(|| model.logits_with(&Tokens::new(ids, BATCH), &pass)).into_value()
    };
    let want = watch(&clean, &taps);
    let value = taps.get(name).unwrap();
    let patch = Arc::new(Taps::new().replace(name, move |_| Var::constant(value.clone())));
    assert_eq!(watch(&other, &patch).data(), want.data());
    assert_ne!(watch(&other, &taps).data(), want.data());
}

#[test]
fn a_constant_stops_gradients_and_a_function_passes_them_on() {
    let model = Decoder::drawn(llama(), 7);
    let gradient_of = |name: &str| {
        let found = model.parameters().iter().find(|p| p.name() == name).unwrap();
        let gradient = found.gradient();
        model.parameters().iter().for_each(|p| p.set_gradient(None));
        gradient
    };
    let run = |f: fn(&Var) -> Var| {
        let taps = Taps::new().replace("blocks.0.residual_after", f).record_gradient("embedding");
        let taps = Arc::new(taps);
        loss_of(&model, &Pass::evaluate().watched(&taps)).backward();
        (gradient_of("blocks.0.norm1.weight").is_some(), taps.get("d.embedding").is_some())
    };
    assert_eq!(run(taps::zero), (false, false));
    assert_eq!(run(|x| x * 0.5), (true, true));
}

#[test]
fn what_nobody_wants_is_computed_the_usual_way() {
    let model = Decoder::drawn(llama(), 7);
    let usual = loss_of(&model, &Pass::evaluate());
    let (_, want) = gradients(model.parameters(), &usual);
    for names in ["blocks.*.residual_after", "blocks.*.norm1", "*.attention.weights[1]", "nothing"]
    {
        let taps = Arc::new(Taps::new().record(names));
        let watched = loss_of(&model, &Pass::evaluate().watched(&taps));
        assert_eq!(watched.value().item(), usual.value().item(), "{names}");
        let (_, got) = gradients(model.parameters(), &watched);
        for ((name, got), (_, want)) in got.iter().zip(&want) {
            assert_eq!(got.data(), want.data(), "{names}, gradient of {name}");
        }
    }
}

#[test]
fn a_head_by_itself_is_a_part_of_the_whole() {
    for (name, config) in variants::all() {
        let model = Decoder::drawn(config, 7);
        let run = |taps: Taps| {
            let taps = Arc::new(taps);
            loss_of(&model, &Pass::evaluate().watched(&taps)).backward();
            taps
        };
        let patterns = ["*.attention.scores", "*.attention.weights", "*.attention.queries"];
        let whole = run(patterns.iter().fold(Taps::new(), |taps, name| taps.record(*name)));
        let each = |name: &str| format!("{name}[*]");
        let heads = run(patterns.iter().fold(Taps::new(), |t, n| t.record(each(n).as_str())));
        let whole: BTreeMap<String, Tensor> = whole.take().into_iter().collect();
        let heads = heads.take();
        assert_eq!(heads.len(), whole.values().map(|x| x.shape().dims()[1]).sum::<usize>());
        for (full, got) in &heads {
            let (of, head) = full.strip_suffix(']').unwrap().split_once('[').unwrap();
            let [batch, count, t, s] = whole[of].dims();
            let plane = t * s;
            let at = |b: usize| (b * count + head.parse::<usize>().unwrap()) * plane;
            let want: Vec<f32> =
                (0..batch).flat_map(|b| whole[of].data()[at(b)..at(b) + plane].to_vec()).collect();
            let off = off(got, &Tensor::new([batch, t, s], &want));
            assert!(off <= BOUND, "{name}, {full}: off by {off}");
        }
    }
}

#[test]
fn the_gradient_of_a_head_is_a_part_of_the_whole() {
    let model = Decoder::drawn(llama(), 7);
    let taps = Taps::new().record_gradient("blocks.1.attention.weights");
    let taps = Arc::new(taps.record_gradient("blocks.1.attention.weights[3]"));
    loss_of(&model, &Pass::evaluate().watched(&taps)).backward();
    let whole = taps.get("d.blocks.1.attention.weights").unwrap(); // (2, 4, 11, 11)
    let head = taps.get("d.blocks.1.attention.weights[3]").unwrap();
    assert_eq!(head.data()[..121], whole.data()[3 * 121..4 * 121]);
    assert_eq!(head.data()[121..], whole.data()[7 * 121..]);
}

#[test]
fn checkpointing_records_the_same_once() {
    let run = |checkpointing| {
        let mut model = Decoder::drawn(llama(), 7);
        model.set_checkpointing(checkpointing);
        let taps = everything();
        loss_of(&model, &Pass::evaluate().watched(&taps)).backward();
        let seen: BTreeMap<String, Vec<f32>> =
            taps.take().into_iter().map(|(name, x)| (name, x.data().to_vec())).collect();
        seen
    };
    assert!(run(true) == run(false));
}

#[test]
fn gradients_add_up_until_they_are_taken_and_values_are_the_last() {
    let model = Decoder::drawn(llama(), 7);
    let taps = Arc::new(Taps::new().record("norm").record_gradient("norm"));
    let pass = Pass::evaluate().watched(&taps);
    loss_of(&model, &pass).backward();
    let (value, once) = (taps.get("norm").unwrap(), taps.get("d.norm").unwrap());
    loss_of(&model, &pass).backward();
    assert_eq!(taps.get("norm").unwrap().data(), value.data());
    let doubled: Vec<f32> = once.data().iter().map(|x| 2.0 * x).collect();
    assert_eq!(taps.get("d.norm").unwrap().data(), doubled);
    assert_eq!(taps.take().len(), 2);
    loss_of(&model, &pass).backward();
    assert_eq!(taps.get("d.norm").unwrap().data(), once.data());
}

#[test]
fn a_constant_has_a_gradient_if_it_is_asked_for() {
    let config = variants::all().into_iter().find(|(name, _)| name == "sinusoidal, full");
    let model = Decoder::drawn(config.unwrap().1, 7);
    let taps = Arc::new(Taps::new().record_gradient("positions").record_gradient("embedding"));
    loss_of(&model, &Pass::evaluate().watched(&taps)).backward();
    let [positions, embedding] = ["d.positions", "d.embedding"].map(|name| taps.get(name).unwrap());
    assert_eq!(positions.data(), embedding.data());
}

#[test]
fn measures_keep_what_the_function_gives() {
    let model = Decoder::drawn(llama(), 7);
    let largest = |x: &Tensor| Tensor::scalar(x.data().iter().copied().fold(0.0, f32::max));
    let taps = Arc::new(Taps::new().measure("blocks.*.attention.weights[*]", largest));
    no_grad(|| loss_of(&model, &Pass::evaluate().watched(&taps)));
    let seen = taps.take();
    assert_eq!(seen.len(), 2 * 4);
    // The first token sees itself alone.
    assert!(seen.iter().all(|(_, most)| most.item() == 1.0), "{seen:?}");
}

#[test]
fn more_than_there_is_room_for_is_not_held() {
    let model = Decoder::drawn(llama(), 7);
    let run = |bytes| {
        let taps = Arc::new(Taps::new().record("*").record_gradient("norm").holding(bytes));
        loss_of(&model, &Pass::evaluate().watched(&taps)).backward();
        (taps.overflow(), taps.take().len())
    };
    // An embedding (2, 11, 16) of f32, and the same again.
    assert_eq!(run(2 * 2 * 11 * 16 * 4), (Some("blocks.0.norm1".to_owned()), 2));
    assert_eq!(run(1 << 20).0, None);
}

#[test]
fn patterns_that_name_nothing_are_known() {
    let model = Decoder::drawn(llama(), 7);
    let taps = Taps::new().record("blocks.0.*").record("blocks.7.*").record("blocks.0.norm1[0]");
    let taps = Arc::new(taps.record("*.attention.weights[4]").record_gradient("norm"));
    no_grad(|| loss_of(&model, &Pass::evaluate().watched(&taps)));
    let unmet: Vec<String> = taps.unmet().iter().map(ToString::to_string).collect();
    assert_eq!(unmet, ["blocks.7.*", "blocks.0.norm1[0]", "*.attention.weights[4]"]);
}
