//! Encoder-decoders through files: those that `transformers` has written against what PyTorch makes of
//! them (see `fixtures/make_encoder_decoders.py`), and every variant saved and loaded.

use hearken_formats::{Family, SpecialTokens, config_of, load, save, to_theirs};
use hearken_nn::config::{
    Cross, DropoutConfig, EncoderDecoderConfig, EncoderSizes, FeedForwardKind, ModelConfig,
    PositionConfig,
};
use hearken_nn::constraints::Constraints;
use hearken_nn::models::{EncoderDecoder, Model, PredictsTokens, Targets, Tokens, loss, outputs};
use hearken_nn::pass::{Layout, Pass};
use hearken_nn::variants;
use hearken_store::TensorFile;
use hearken_tensor::Tensor;
use hearken_tensor::ops::cross_entropy::{IGNORED, Options};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::tempdir;

/// Of the largest number, for each of the numbers: f32 in another order of summation.
const BOUND: f32 = 1e-4;

#[derive(Deserialize)]
struct Expected {
    ids: Vec<Vec<u32>>,
    lengths: Vec<usize>,
    decoder_ids: Vec<Vec<u32>>,
    targets: Vec<Vec<i64>>,
    target_lengths: Vec<usize>,
    loss: f32,
}

const NAMES: [&str; 7] = [
    "t5-first",
    "t5-gated",
    "t5-gated-tied",
    "t5-untied",
    "marian-shared",
    "marian-apart",
    "marian-sizes",
];

fn path_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The largest difference as a share of the largest number, which is at least `floor`, without what
/// stands in padding.
fn compare(got: &Tensor, want: &Tensor, lengths: Option<&[usize]>, floor: f32) -> f32 {
    assert_eq!(got.shape(), want.shape());
    let dims = got.shape();
    let padded = |i: usize| match (lengths, dims.dims()) {
        (Some(lengths), [_, tokens, width]) => i / width % tokens >= lengths[i / width / tokens],
        _ => false,
    };
    let (mut worst, mut largest) = (0.0_f32, floor);
    for (i, (a, b)) in got.data().iter().zip(want.data()).enumerate() {
        if !padded(i) {
            largest = largest.max(b.abs());
            // A NaN on either side must not pass as 0.
            let difference = (a - b).abs();
            worst = if difference > worst || difference.is_nan() { difference } else { worst };
        }
    }
    worst / largest
}

/// All results of a directory's model on the tokens of a fixture, its loss and its gradients.
fn check(path: &Path, name: &str) -> [f32; 2] {
    let fixture = path_of(name);
    let text = std::fs::read_to_string(fixture.join("expected.json")).unwrap();
    let expected: Expected = serde_json::from_str(&text).unwrap();
    let wanted = TensorFile::open(&fixture.join("expected.safetensors")).unwrap();
    let loaded = load(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (ids, decoder_ids) = (expected.ids.concat(), expected.decoder_ids.concat());
    let rows = expected.ids.len();
    let source = Tokens::new(&ids, rows).laid_out(Layout::padded(&expected.lengths));
    let tokens = Tokens::new(&decoder_ids, rows).about(&source);
    let (model, pass) = (loaded.model.as_ref(), Pass::evaluate());
    let mut worst = [0.0_f32; 2];
    let found = outputs(model, &tokens, &pass);
    for (what, got) in &found {
        let lengths =
            if *what == "encoder_hidden" { &expected.lengths } else { &expected.target_lengths };
        let want = wanted.tensor(what).unwrap();
        let error = compare(got.value(), &want, Some(lengths), 0.0);
        assert!(error <= BOUND, "{name}: {what} off by {error} of the largest");
        worst[0] = worst[0].max(error);
    }
    let targets = expected.targets.concat();
    let targets = targets.iter().map(|t| u32::try_from(*t).unwrap_or(IGNORED)).collect();
    let loss = loss(model, &tokens, &Targets::Tokens(targets), &pass, Options::default());
    let loss = loss.unwrap().mean();
    let error = (loss.value().item() - expected.loss).abs();
    assert!(error <= 1e-5 * expected.loss, "{name}: the loss is off by {error}");
    loss.backward();
    let gradients: Vec<(String, Tensor)> = model
        .parameters()
        .iter()
        .map(|p| (p.name().to_owned(), p.gradient().expect("every parameter takes part")))
        .collect();
    let gradients = to_theirs(&model.config(), loaded.family, &gradients).unwrap();
    // The gradient of a bias of keys is zero but for rounding.
    let largest = |most: f32, x: &f32| most.max(x.abs());
    let floor = gradients.iter().flat_map(|(_, g)| g.data()).fold(0.0, largest) * 1e-2;
    for (theirs, gradient) in &gradients {
        let want = wanted.tensor(&format!("gradient.{theirs}")).unwrap();
        let error = compare(gradient, &want, None, floor);
        assert!(error <= BOUND, "{name}, {theirs}: off by {error} of the largest");
        worst[1] = worst[1].max(error);
    }
    assert_eq!(gradients.len() + found.len(), wanted.entries().len(), "{name}");
    worst
}

#[test]
fn results_loss_and_every_gradient_are_those_of_pytorch() {
    for name in NAMES {
        let [results, gradients] = check(&path_of(name), name);
        println!("{name}: results off by {results:.1e}, gradients by {gradients:.1e}");
    }
}

fn names_in(directory: &Path) -> Vec<(String, Vec<usize>)> {
    let file = TensorFile::open(&directory.join("model.safetensors")).unwrap();
    let mut all: Vec<_> =
        file.entries().iter().map(|e| (e.name.clone(), e.shape.clone())).collect();
    all.sort();
    all
}

#[test]
fn saved_again_they_are_the_same_under_the_same_names() {
    for name in NAMES {
        let loaded = load(&path_of(name)).unwrap();
        let directory = tempdir().unwrap();
        let (path, model) = (directory.path(), loaded.model.as_ref());
        let family = save(path, model, &loaded.special).unwrap();
        let ModelConfig::EncoderDecoder(config) = model.config() else { panic!("{name}") };
        // A tied head of unscaled hidden states is nothing that all versions of transformers read.
        let expressed = family.model_type != "t5" || config.tied == config.scaled_logits;
        assert!(expressed, "{name}");
        check(path, name);
        if family == loaded.family {
            assert_eq!(names_in(path), names_in(&path_of(name)), "{name}");
        }
        let again = load(path).unwrap();
        assert_eq!(again.special, loaded.special, "{name}");
        assert_eq!(again.model.config(), model.config(), "{name}");
    }
}

#[test]
fn what_t5_and_marian_say_is_read() {
    let config = |name: &str| match config_of(&path_of(name)).unwrap() {
        ModelConfig::EncoderDecoder(config) => config,
        other => panic!("{name} is {other:?}"),
    };
    let first = config("t5-first");
    assert!(first.tied && first.scaled_logits && !first.stack.scaled_scores);
    assert_eq!(first.stack.position, PositionConfig::T5 { buckets: 6, max_distance: 8 });
    let gated = config("t5-gated");
    assert!(!gated.tied && !gated.scaled_logits);
    assert_eq!(gated.stack.feed_forward.kind, FeedForwardKind::GegluTanh);
    assert_eq!(gated.stack.head_width(), 7);
    assert_eq!(config("t5-untied").encoder.layers, Some(1));
    let shared = config("marian-shared");
    assert!(shared.shared && shared.scaled_embeddings && shared.logits_bias);
    assert!(!config("marian-apart").shared);
    let sizes = EncoderSizes { layers: Some(1), heads: Some(7), feed_forward_width: Some(17) };
    assert_eq!(config("marian-sizes").encoder, sizes);
    let special = |name: &str| load(&path_of(name)).unwrap().special;
    assert_eq!(
        special("marian-shared"),
        SpecialTokens {
            begin: Some(3),
            ends: vec![0],
            pad: Some(28),
            constraints: Constraints { last: vec![0], ..Constraints::default() },
            ..SpecialTokens::default()
        }
    );
    assert_eq!(
        special("t5-first"),
        SpecialTokens { begin: Some(0), ends: vec![1], pad: Some(0), ..SpecialTokens::default() }
    );
}

/// A copy of a fixture with other fields in its config.json.
fn changed(name: &str, fields: &Value) -> tempfile::TempDir {
    let directory = tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(path_of(name).join(file), directory.path().join(file)).unwrap();
    }
    let path = directory.path().join("config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    std::fs::write(&path, config.to_string()).unwrap();
    directory
}

#[test]
fn older_ways_to_say_the_same_are_read_and_other_things_refused() {
    // Up to version 4, `tie_word_embeddings` alone said whether the head is tied and scaled.
    let older = json!({ "tie_word_embeddings": false, "scale_decoder_outputs": null });
    check(changed("t5-gated", &older).path(), "t5-gated");
    for (name, fields, message) in [
        ("t5-first", json!({ "feed_forward_proj": "gated-mish" }), "feed_forward_proj is"),
        ("t5-first", json!({ "is_gated_act": true }), "is_gated_act is true, expected false"),
        ("t5-first", json!({ "d_kv": 1_u64 << 60 }), "head_width is"),
        ("t5-first", json!({ "num_layers": 3 }), "missing tensors"),
        ("marian-shared", json!({ "normalize_before": true }), "normalize_before is true"),
        ("marian-shared", json!({ "decoder_vocab_size": 31 }), "decoder_vocab_size is 31"),
        ("marian-shared", json!({ "tie_word_embeddings": false }), "tie_word_embeddings is false"),
        ("marian-shared", json!({ "encoder_layers": "two" }), "encoder_layers is"),
    ] {
        let error = load(changed(name, &fields).path()).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("hint: "), "{name}, {fields}: {error}");
    }
}

#[test]
fn every_variant_comes_back_to_the_bit() {
    let special =
        SpecialTokens { begin: Some(2), ends: vec![1], pad: Some(0), ..SpecialTokens::default() };
    let mut families = Vec::new();
    for (name, config) in variants::encoder_decoders() {
        let directory = tempdir().unwrap();
        let model = EncoderDecoder::drawn(config.clone(), 3);
        let family = save(directory.path(), &model, &special).unwrap();
        let loaded = load(directory.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((loaded.family, &loaded.special), (family, &special), "{name}");
        // Defaults become explicit, and what only matters for training may be lost.
        let ModelConfig::EncoderDecoder(mut same) = loaded.model.config() else { panic!("{name}") };
        assert_eq!(same.encoder_stack().sizes(), config.encoder_stack().sizes(), "{name}");
        same.encoder = config.encoder;
        same.stack.head_width = config.stack.head_width;
        same.stack.feed_forward.width = config.stack.feed_forward.width;
        same.stack.init = config.stack.init;
        same.stack.dropout = DropoutConfig::default();
        assert_eq!(same, config, "{name}");
        for (a, b) in model.parameters().iter().zip(loaded.model.parameters()) {
            assert_eq!(a.name(), b.name(), "{name}");
            assert_eq!(a.value().data(), b.value().data(), "{name}, {}", a.name());
        }
        let (source, ids): (Vec<u32>, Vec<u32>) = ((1..9).collect(), vec![2, 5, 1, 7]);
        let source = Tokens::new(&source, 2);
        let tokens = Tokens::new(&ids, 2).about(&source);
        let again = loaded.model.translates().unwrap().logits(&tokens);
        assert_eq!(model.logits(&tokens).data(), again.data(), "{name}");
        families.push(family.model_type);
    }
    for family in ["t5", "marian", "hearken"] {
        assert!(families.contains(&family), "no variant is written as {family}");
    }
}

#[test]
fn the_family_that_can_express_a_model_is_chosen() {
    let family = |config: EncoderDecoderConfig| {
        Family::expressing(&ModelConfig::EncoderDecoder(config)).0.model_type
    };
    let (vaswani, t5, first) = (variants::encoder_decoder(), variants::t5(), variants::t5_first());
    assert_eq!(family(vaswani.clone()), "marian");
    assert_eq!(family(EncoderDecoderConfig { logits_bias: false, ..vaswani.clone() }), "marian");
    assert_eq!(family(EncoderDecoderConfig { shared: false, ..vaswani.clone() }), "marian");
    assert_eq!(family(EncoderDecoderConfig { tied: false, ..vaswani.clone() }), "hearken");
    assert_eq!(family(EncoderDecoderConfig { cross: Cross::Layers, ..vaswani }), "hearken");
    assert_eq!((family(t5.clone()), family(first.clone())), ("t5", "t5"));
    assert_eq!(family(EncoderDecoderConfig { shared: false, ..t5.clone() }), "hearken");
    assert_eq!(family(EncoderDecoderConfig { tied: true, ..t5 }), "hearken");
    assert_eq!(family(EncoderDecoderConfig { scaled_logits: false, ..first }), "hearken");
}
