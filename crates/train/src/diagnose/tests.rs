use super::*;
use crate::task::{LayerAttention, LayerExperts};
use hearken_tensor::rng::Rng;

fn watch() -> Watch {
    Watch::new(&TrainConfig::default())
}

/// A loss that falls from 4 to 1.5 with the noise of a small batch.
fn healthy_loss(step: u64, rng: &mut Rng) -> f64 {
    1.5 + 2.5 * (-(step as f64) / 300.0).exp() + 0.08 * rng.normal_one()
}

fn healthy_norm(rng: &mut Rng) -> f64 {
    (0.4 * rng.normal_one()).exp()
}

fn names() -> Vec<String> {
    ["embedding", "layers.0", "layers.1"].map(str::to_owned).into()
}

fn facts<'a>(names: &'a [String], norms: &'a [f64], ratios: &'a [f64]) -> LayerFacts<'a> {
    LayerFacts { names, sizes: &[100, 100, 100], gradient_norms: norms, update_ratios: ratios }
}

fn attention(entropy: &[f32]) -> Observation {
    let layer =
        LayerAttention { layer: "layers.1".to_owned(), entropy: entropy.to_vec(), most: 3.0 };
    Observation { attention: vec![layer], ..Observation::default() }
}

#[test]
fn a_healthy_run_is_silent() {
    let (mut watch, mut rng, names) = (watch(), Rng::new(1), names());
    for step in 1..=2000 {
        let (loss, norm) = (healthy_loss(step, &mut rng), healthy_norm(&mut rng));
        assert_eq!(watch.step(step, loss, norm, None), []);
        if step % 50 == 0 {
            let (norms, ratios) = ([norm, 0.3 * norm, 0.5 * norm], [1e-2, 2e-3, 1e-3]);
            assert_eq!(watch.layers(step, &facts(&names, &norms, &ratios)), []);
            assert_eq!(watch.attention(step, &attention(&[0.01, 1.2, 2.5, 0.4])), []);
            // The whole validation set has no noise of batches, but ends a little higher.
            let val_loss = 1.6 + 2.5 * (-(step as f64) / 300.0).exp();
            assert_eq!(watch.evaluation(step, &Metric::loss(val_loss)), []);
        }
    }
}

/// A watch that has seen 100 healthy steps.
fn after_healthy_steps() -> Watch {
    let (mut watch, mut rng) = (watch(), Rng::new(2));
    for step in 1..=100 {
        watch.step(step, 2.0 + 0.05 * rng.normal_one(), healthy_norm(&mut rng), None);
    }
    watch
}

#[track_caller]
fn assert_one(warnings: &[Warning], kind: Kind, message: &str, hint: &str) {
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let warning = &warnings[0];
    assert_eq!(warning.kind, kind);
    assert!(warning.message.contains(message), "{}", warning.message);
    assert!(warning.hint.contains(hint), "{}", warning.hint);
}

#[test]
fn a_spike_is_seen_once() {
    let mut watch = after_healthy_steps();
    for step in [101, 102] {
        assert_eq!(watch.step(step, 3.5, 1.0, None), [], "a batch or two may be odd");
    }
    assert_one(&watch.step(103, 3.5, 1.0, None), Kind::LossSpike, "3.5000", "train.lr");
    assert_eq!(watch.step(104, 3.5, 1.0, None), [], "repeated at once");
    for step in [101, 102] {
        watch.step(step + SILENCE, 9.5, 1.0, None);
    }
    let again = watch.step(103 + SILENCE, 9.5, 1.0, None);
    assert_one(&again, Kind::LossSpike, "9.5000", "train.lr");
}

#[test]
fn noise_with_long_tails_is_no_spike() {
    let (mut watch, mut rng) = (watch(), Rng::new(5));
    for step in 1..=5000 {
        // Squares of normal numbers: often near 0, now and then ten times the median.
        let loss = 0.01 + rng.normal_one().powi(2);
        let spikes = watch.step(step, loss, 1.0, None);
        assert_eq!(spikes, [], "at {step}");
    }
}

#[test]
fn nan_names_the_layer_and_the_setting() {
    let names = names();
    let norms = [1.0, f64::NAN, 1.0];
    let bad = facts(&names, &norms, &[]);
    let seen = after_healthy_steps().step(101, 2.0, f64::NAN, Some(&bad));
    assert_one(&seen, Kind::NotFinite, "first in layers.0", "warmup (now 100)");
    let seen = after_healthy_steps().step(101, f64::INFINITY, 1.0, None);
    assert_one(&seen, Kind::NotFinite, "the loss is inf", "train.lr");
    let config = TrainConfig { precision: Precision::F16, ..TrainConfig::default() };
    let mut f16 = Watch::new(&config);
    for step in 1..u64::from(SEARCH) {
        assert_eq!(f16.step(step, 4.0, f64::INFINITY, None), [], "the scale is being found");
    }
    let seen = f16.step(u64::from(SEARCH), 4.0, f64::INFINITY, None);
    assert_one(&seen, Kind::NotFinite, "a gradient is inf", "bf16");
    let config = TrainConfig { clip: 0.0, ..TrainConfig::default() };
    let seen = Watch::new(&config).step(1, f64::NAN, 1.0, None);
    assert_one(&seen, Kind::NotFinite, "the loss is NaN", "train.clip = 1.0");
}

#[test]
fn an_explosion_names_the_layer() {
    let names = names();
    let norms = [1.0, 2.0, 400.0];
    let seen = after_healthy_steps().step(101, 2.0, 400.0, Some(&facts(&names, &norms, &[])));
    assert_one(&seen, Kind::GradientExploded, "most of it in layers.1", "train.lr");
}

#[test]
fn vanishing_gradients_are_seen_at_the_second_look() {
    let (mut watch, names) = (watch(), names());
    let norms = [1.0, 1e-7, 1.0];
    assert_eq!(watch.layers(50, &facts(&names, &norms, &[])), []);
    let seen = watch.layers(100, &facts(&names, &norms, &[]));
    assert_one(&seen, Kind::GradientVanished, "in layers.0, against", "placement");
}

#[test]
fn updates_out_of_range_are_seen_after_the_start() {
    let names = names();
    let (large, small) = ([1e-3, 0.9, 1e-3], [1e-9; 3]);
    let norms = [1.0; 3];
    assert_eq!(watch().layers(SETTLING, &facts(&names, &norms, &large)), []);
    let seen = watch().layers(500, &facts(&names, &norms, &large));
    assert_one(&seen, Kind::UpdateTooLarge, "layers.0", "lower train.lr");
    let seen = watch().layers(500, &facts(&names, &norms, &small));
    assert_one(&seen, Kind::UpdateTooSmall, "too low", "raise train.lr");
}

#[test]
fn collapsed_attention_is_seen_when_most_heads_are() {
    assert_eq!(watch().attention(50, &attention(&[0.0, 0.0, 1.0, 1.0])), []);
    let seen = watch().attention(50, &attention(&[0.0, 0.0, 0.01, 1.0]));
    assert_one(&seen, Kind::AttentionCollapsed, "3 of 4 heads", "query_key_scale");
}

#[test]
fn unused_experts_are_seen_where_there_are_choices_enough() {
    let seen = |shares: &[f64], choices| {
        let layer = LayerExperts { layer: "blocks.1".to_owned(), shares: shares.to_vec(), choices };
        watch().experts(BALANCED, &Observation { experts: vec![layer], ..Observation::default() })
    };
    assert_eq!(seen(&[0.5, 0.3, 0.1, 0.1], 400), []);
    assert_eq!(seen(&[0.5, 0.49, 0.01, 0.0], 100), []);
    let seen = seen(&[0.5, 0.49, 0.01, 0.0], 400);
    assert_one(&seen, Kind::ExpertUnused, "2 of 4 experts in blocks.1", "balance");
}

#[test]
fn overfitting_is_seen_after_three_rises() {
    let mut watch = after_healthy_steps();
    let seen: Vec<_> = [2.2, 2.1, 2.3, 2.4]
        .map(|loss| watch.evaluation(101, &Metric::loss(loss)))
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(seen, []);
    let seen = watch.evaluation(101, &Metric::loss(2.5));
    assert_one(&seen, Kind::Overfitting, "loss rises (2.5000, best 2.1000)", "early_stopping");
}

#[test]
fn a_metric_that_should_rise_and_falls_is_overfitting_too() {
    let mut watch = after_healthy_steps();
    let mut seen = Vec::new();
    for accuracy in [0.5, 0.7, 0.6, 0.6, 0.6] {
        assert_eq!(seen, []);
        seen = watch.evaluation(101, &Metric::new("accuracy", Better::Higher, accuracy));
    }
    assert_one(&seen, Kind::Overfitting, "accuracy falls (0.6000, best 0.7000)", "early_stopping");
}

#[test]
fn a_batch_without_targets_is_said_once() {
    let mut watch = after_healthy_steps();
    assert_one(&watch.no_targets(101), Kind::NoTargets, "step 101", "train.batch_size");
    assert_eq!(watch.no_targets(102), []);
}

#[test]
fn a_resumed_watch_warns_like_one_that_never_stopped() {
    let mut rng = Rng::new(3);
    let row = |step: u64, loss: f64, norm: f64| Row {
        step,
        train_loss: Some(loss),
        validation: Vec::new(),
        lr: 1e-3,
        grad_norm: Some(norm),
        tokens_per_second: 0.0,
        elapsed_seconds: 0.0,
    };
    let mut whole = watch();
    let mut rows = Vec::new();
    for step in 1..=150 {
        let loss = if (120..123).contains(&step) { 5.0 } else { 2.0 + 0.05 * rng.normal_one() };
        let norm = healthy_norm(&mut rng);
        whole.step(step, loss, norm, None);
        rows.push(row(step, loss, norm));
    }
    let mut resumed = watch();
    resumed.replay(&rows, &[], &[], Better::Lower);
    for (step, loss) in
        [(151, 5.0), (152, 5.0), (153, 5.0), (200, 2.0), (230, 9.0), (231, 9.0), (232, 9.0)]
    {
        assert_eq!(whole.step(step, loss, 1.0, None), resumed.step(step, loss, 1.0, None));
    }
}
