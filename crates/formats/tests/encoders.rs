//! Encoders through files: those that `transformers` has written against what PyTorch makes of them
//! (see `fixtures/make_encoders.py`), every variant saved and loaded, and heads on another body.

use hearken_formats::{Family, SpecialTokens, config_of, load, load_body_into, save, to_theirs};
use hearken_nn::config::{
    EncoderConfig, HeadConfig, ModelConfig, NormKind, PoolerConfig, Pooling, StackConfig,
};
use hearken_nn::models::{Encoder, Model, Targets, Tokens, loss, outputs};
use hearken_nn::pass::{Layout, Pass};
use hearken_nn::variants;
use hearken_store::TensorFile;
use hearken_tensor::ops::cross_entropy::{IGNORED, Options};
use hearken_tensor::{Tensor, Var, no_grad};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::tempdir;

/// Of the largest number, for each of the numbers: f32 in another order of summation.
const BOUND: f32 = 1e-4;

#[derive(Deserialize)]
struct Expected {
    ids: Vec<Vec<u32>>,
    types: Option<Vec<Vec<u32>>>,
    lengths: Vec<usize>,
    loss: f32,
    tokens: Option<Vec<Vec<i64>>>,
    classes: Option<Vec<u32>>,
    several: Option<Vec<Vec<f32>>>,
    numbers: Option<Vec<Vec<f32>>>,
    starts: Option<Vec<u32>>,
    ends: Option<Vec<u32>>,
}

impl Expected {
    fn targets(&self) -> Option<Targets> {
        if let Some(tokens) = &self.tokens {
            let target = |t: &i64| u32::try_from(*t).unwrap_or(IGNORED);
            return Some(Targets::Tokens(tokens.concat().iter().map(target).collect()));
        }
        if let (Some(starts), Some(ends)) = (&self.starts, &self.ends) {
            return Some(Targets::Spans { starts: starts.clone(), ends: ends.clone() });
        }
        self.classes
            .clone()
            .map(Targets::Classes)
            .or(self.several.as_ref().map(|rows| Targets::Several(rows.concat())))
            .or(self.numbers.as_ref().map(|rows| Targets::Numbers(rows.concat())))
    }
}

struct Fixture {
    name: String,
    path: PathBuf,
    expected: Expected,
    wanted: TensorFile,
}

fn fixture(name: &str) -> Fixture {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let text = std::fs::read_to_string(path.join("expected.json")).unwrap();
    Fixture {
        name: name.to_owned(),
        expected: serde_json::from_str(&text).unwrap(),
        wanted: TensorFile::open(&path.join("expected.safetensors")).unwrap(),
        path,
    }
}

fn fixtures() -> Vec<Fixture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| ["bert-", "roberta-", "distilbert-"].iter().any(|f| name.starts_with(f)));
    names.sort();
    names.iter().map(|name| fixture(name)).collect()
}

/// The largest difference as a share of the largest number, which is at least `floor`, without what
/// stands in padding.
fn compare(got: &Tensor, want: &Tensor, lengths: &[usize], floor: f32) -> f32 {
    assert_eq!(got.shape(), want.shape());
    let dims = got.shape();
    let padded = |i: usize| match dims.dims() {
        [_, tokens, width] => i / width % tokens >= lengths[i / width / tokens],
        _ => false,
    };
    let pairs = got.data().iter().zip(want.data()).enumerate().filter(|(i, _)| !padded(*i));
    let (mut worst, mut largest) = (0.0_f32, floor);
    for (_, (a, b)) in pairs {
        largest = largest.max(b.abs());
        let difference = if a == b { 0.0 } else { (a - b).abs() };
        // A NaN on either side must not pass as 0.
        worst = if difference > worst || difference.is_nan() { difference } else { worst };
    }
    worst / largest
}

/// All results of a directory's model on the tokens of a fixture, its loss and its gradients.
fn check(path: &Path, fixture: &Fixture) -> [f32; 2] {
    let Fixture { name, expected, wanted, .. } = fixture;
    let loaded = load(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (ids, types) = (expected.ids.concat(), expected.types.as_ref().map(|types| types.concat()));
    let tokens = Tokens::new(&ids, expected.ids.len())
        .of_types(types.as_deref())
        .laid_out(Layout::padded(&expected.lengths));
    let pass = Pass::evaluate();
    let model = loaded.model.as_ref();
    let found = outputs(model, &tokens, &pass);
    let mut worst = [0.0_f32; 2];
    let mut compared = 0;
    for (what, got) in &found {
        if ["start_logits", "end_logits"].contains(what)
            || (*what == "embedding" && name != "bert-sentences")
            || (*what == "pooled" && wanted.find("pooled").is_none())
        {
            continue; // columns of the logits, or what the class does not give
        }
        let error = compare(got.value(), &wanted.tensor(what).unwrap(), &expected.lengths, 0.0);
        assert!(error <= BOUND, "{name}: {what} off by {error} of the largest");
        worst[0] = worst[0].max(error);
        compared += 1;
    }
    let loss = if let Some(targets) = expected.targets() {
        loss(model, &tokens, &targets, &pass, Options::default()).unwrap().mean()
    } else {
        let weighted = found.iter().filter_map(|(what, out)| {
            let weights = wanted.tensor(&format!("weights.{what}")).ok()?;
            Some((out * &Var::constant(weights)).sum())
        });
        weighted.reduce(|a, b| a + b).unwrap()
    };
    let error = (loss.value().item() - expected.loss).abs();
    assert!(error <= 1e-5 * expected.loss.abs().max(0.1), "{name}: the loss is off by {error}");
    loss.backward();
    let parameters = loaded.model.parameters().iter();
    let gradients: Vec<(String, Tensor)> = parameters
        .map(|p| (p.name().to_owned(), p.gradient().expect("every parameter takes part")))
        .collect();
    let gradients = to_theirs(&loaded.model.config(), loaded.family, &gradients).unwrap();
    // Some gradients are zero but for rounding: a bias of the keys shifts all scores of a query, and
    // what shifts all tokens shifts all logits of a span, which no softmax sees.
    let largest = |most: f32, x: &f32| most.max(x.abs());
    let floor =
        gradients.iter().flat_map(|(_, gradient)| gradient.data()).fold(0.0, largest) * 1e-2;
    for (theirs, gradient) in &gradients {
        let want = wanted.tensor(&format!("gradient.{theirs}")).unwrap();
        let error = compare(gradient, &want, &[], floor);
        assert!(error <= BOUND, "{name}, {theirs}: off by {error} of the largest");
        worst[1] = worst[1].max(error);
    }
    let weights = wanted.entries().iter().filter(|e| e.name.starts_with("weights.")).count();
    assert_eq!(gradients.len() + compared + weights, wanted.entries().len(), "{name}");
    worst
}

#[test]
fn results_loss_and_every_gradient_are_those_of_pytorch() {
    let all = fixtures();
    assert!(all.len() >= 22, "{} fixtures", all.len());
    for fixture in &all {
        let [results, gradients] = check(&fixture.path, fixture);
        let name = &fixture.name;
        println!("{name}: results off by {results:.1e}, gradients by {gradients:.1e}");
    }
}

#[test]
fn saved_again_they_are_the_same_under_the_same_names() {
    for fixture in fixtures() {
        let loaded = load(&fixture.path).unwrap();
        let directory = tempdir().unwrap();
        let family = save(directory.path(), loaded.model.as_ref(), &loaded.special).unwrap();
        assert_eq!(family, loaded.family, "{}", fixture.name);
        check(directory.path(), &fixture);
        let [old, new] = [&fixture.path, directory.path()].map(|path| {
            let file = TensorFile::open(&path.join("model.safetensors")).unwrap();
            let mut all: Vec<_> =
                file.entries().iter().map(|e| (e.name.clone(), e.shape.clone())).collect();
            all.sort();
            all
        });
        assert_eq!(new, old, "{}", fixture.name);
        let read = |path: &Path| -> Value {
            serde_json::from_str(&std::fs::read_to_string(path.join("config.json")).unwrap())
                .unwrap()
        };
        let (old, new) = (read(&fixture.path), read(directory.path()));
        for key in [
            "architectures",
            "model_type",
            "id2label",
            "label2id",
            "type_vocab_size",
            "max_position_embeddings",
            "tie_word_embeddings",
            "layer_norm_eps",
        ] {
            if old.get(key).is_some_and(|old| !old.is_null()) {
                assert_eq!(new.get(key), old.get(key), "{}: {key}", fixture.name);
            }
        }
        assert_eq!(loaded.model.config(), load(directory.path()).unwrap().model.config());
    }
}

#[test]
fn labels_and_kinds_of_problems_are_read() {
    let head = |name: &str| config_of(&fixture(name).path).unwrap().head().cloned().unwrap();
    let names = |names: [&str; 3]| names.map(str::to_owned).to_vec();
    let labels = names(["good", "bad", "so-so"]);
    assert_eq!(head("bert-classes"), HeadConfig::Classes { labels, several: false });
    let labels = names(["LABEL_0", "LABEL_1", "LABEL_2"]);
    assert_eq!(head("bert-several"), HeadConfig::Classes { labels, several: true });
    assert_eq!(head("bert-number"), HeadConfig::Numbers { outputs: 1 });
    assert_eq!(head("bert-numbers"), HeadConfig::Numbers { outputs: 2 });
    let want =
        HeadConfig::Embedding { pooling: Pooling::Mean, normalised: true, most_tokens: Some(7) };
    assert_eq!(head("bert-sentences"), want);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A copy of a fixture whose tensors have other names, or none.
fn renamed(fixture: &Fixture, rename: impl Fn(&str) -> Option<String>) -> tempfile::TempDir {
    let directory = tempdir().unwrap();
    copy(&fixture.path, directory.path());
    let path = directory.path().join("model.safetensors");
    let file = TensorFile::open(&path).unwrap();
    let tensors: Vec<(String, Tensor)> = file
        .entries()
        .iter()
        .filter_map(|e| Some((rename(&e.name)?, file.tensor(&e.name).unwrap())))
        .collect();
    drop(file);
    hearken_store::write(&path, tensors.iter().map(|(n, t)| (n.as_str(), t))).unwrap();
    directory
}

#[test]
fn names_of_older_files_and_tensors_without_use_are_known() {
    let masked = fixture("bert-masked");
    let older = renamed(&masked, |name| {
        Some(name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"))
    });
    check(older.path(), &masked);
    // A bare encoder under the names that it has inside of others.
    let bare = fixture("bert-bare");
    check(renamed(&bare, |name| Some(format!("bert.{name}"))).path(), &bare);
    // The other way round: the body without its prefix.
    let bodiless = renamed(&masked, |name| Some(name.replace("bert.", "")));
    check(bodiless.path(), &masked);
    // Without its pooler a bare encoder is one without a pooler.
    let without = renamed(&bare, |name| (!name.contains("pooler")).then(|| name.to_owned()));
    let ModelConfig::Encoder(config) = load(without.path()).unwrap().model.config() else {
        panic!("an encoder")
    };
    assert_eq!(config.pooler, PoolerConfig::None);
    // A classifier cannot do without it.
    let classes = fixture("bert-classes");
    let without = renamed(&classes, |name| (!name.contains("pooler")).then(|| name.to_owned()));
    let error = load(without.path()).unwrap_err().to_string();
    assert!(error.contains("missing tensors: bert.pooler.dense.weight"), "{error}");
}

fn bits(model: &dyn Model) -> Vec<(String, Vec<u32>)> {
    let numbers =
        |p: &hearken_tensor::Param| p.value().data().iter().map(|x| x.to_bits()).collect();
    model.parameters().iter().map(|p| (p.name().to_owned(), numbers(p))).collect()
}

#[test]
fn every_variant_comes_back_to_the_bit() {
    let special =
        SpecialTokens { begin: None, ends: vec![], pad: Some(1), ..SpecialTokens::default() };
    let mut families = Vec::new();
    let mut all = variants::encoders();
    // What DistilBERT and RoBERTa can express.
    for (name, types, pooler, head) in [
        ("one type", 1, PoolerConfig::None, HeadConfig::Tokens { transform: true }),
        ("one type, spans", 1, PoolerConfig::None, HeadConfig::Spans {}),
        ("distilled", 0, PoolerConfig::Relu, HeadConfig::Numbers { outputs: 3 }),
    ] {
        let mut config = EncoderConfig { types, pooler, head, ..variants::encoder() };
        config.stack.norm.eps = 1e-12;
        all.push((name.to_owned(), config));
    }
    for (name, config) in all {
        let directory = tempdir().unwrap();
        let model = Encoder::drawn(config.clone(), 3);
        let family = save(directory.path(), &model, &special).unwrap();
        let loaded = load(directory.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((loaded.family, &loaded.special), (family, &special), "{name}");
        let ModelConfig::Encoder(same) = loaded.model.config() else { panic!("{name}") };
        // Defaults become explicit, and what only matters for training may be lost.
        let stack = StackConfig {
            kv_heads: config.stack.kv_heads,
            head_width: config.stack.head_width,
            feed_forward: config.stack.feed_forward,
            init: config.stack.init,
            ..same.stack.clone()
        };
        let tied = config.tied || !matches!(config.head, HeadConfig::Tokens { .. });
        let same = EncoderConfig { stack, tied: same.tied && tied, ..same };
        assert_eq!(same, config, "{name}");
        assert_eq!(bits(loaded.model.as_ref()), bits(&model), "{name}");
        let ids: Vec<u32> = (0..10).map(|i| i * 7 % 13).collect();
        let tokens = Tokens::new(&ids, 2).laid_out(Layout::padded(&[5, 3]));
        let run = |model: &dyn Model| no_grad(|| outputs(model, &tokens, &Pass::evaluate()));
        for ((what, a), (_, b)) in run(&model).iter().zip(run(loaded.model.as_ref())) {
            assert_eq!(a.value().data(), b.value().data(), "{name}: {what}");
        }
        families.push(family.model_type);
    }
    for family in ["bert", "roberta", "distilbert", "hearken"] {
        assert!(families.contains(&family), "no variant is written as {family}");
    }
}

#[test]
fn the_family_is_that_of_the_types_and_the_shape() {
    let family = |change: fn(&mut EncoderConfig)| {
        let mut config = variants::encoder();
        change(&mut config);
        Family::expressing(&ModelConfig::Encoder(config)).0.model_type
    };
    assert_eq!(family(|_| ()), "bert");
    assert_eq!(family(|c| c.types = 7), "bert");
    assert_eq!(family(|c| c.types = 1), "roberta");
    assert_eq!(family(|c| c.types = 0), "hearken"); // DistilBERT's eps is fixed
    assert_eq!(family(|c| (c.types, c.stack.norm.eps) = (0, 1e-12)), "distilbert");
    assert_eq!(family(|c| c.pooler = PoolerConfig::Tanh), "hearken"); // nobody reads it
    assert_eq!(family(|c| c.head = HeadConfig::None {}), "bert");
    assert_eq!(family(|c| c.head = HeadConfig::Tokens { transform: false }), "hearken");
    assert_eq!(family(|c| c.stack.norm.kind = NormKind::Rms), "hearken");
    assert_eq!(family(|c| c.embedding_norm = false), "hearken");
}

#[test]
fn a_body_is_loaded_under_another_head() {
    let labels = ["a", "b", "c"].map(str::to_owned).to_vec();
    let classes = HeadConfig::Classes { labels, several: false };
    for source in ["bert-masked", "bert-bare", "bert-classes", "bert-sentences", "bert-spans"] {
        let path = fixture(source).path;
        let ModelConfig::Encoder(body) = config_of(&path).unwrap() else { panic!("{source}") };
        let config = EncoderConfig { head: classes.clone(), pooler: PoolerConfig::Tanh, ..body };
        let model = Encoder::drawn(config, 3);
        let before = bits(&model);
        let found = load_body_into(&path, &model).unwrap();
        let has_pooler = ["bert-bare", "bert-classes", "bert-sentences"].contains(&source);
        let pooler = ["pooler.weight", "pooler.bias"];
        let head = ["head.weight", "head.bias"];
        let want: Vec<&str> = if has_pooler { head.to_vec() } else { [pooler, head].concat() };
        assert_eq!(found.fresh, want, "{source}");
        assert_eq!(found.loaded.len() + found.fresh.len(), model.parameters().len(), "{source}");
        // Of a masked language model: transform, norm and bias.
        let unused = match source {
            "bert-masked" => 5,
            "bert-classes" | "bert-spans" => 2,
            _ => 0,
        };
        assert_eq!(found.unused.len(), unused, "{source}: {:?}", found.unused);
        let theirs = bits(load(&path).unwrap().model.as_ref());
        for ((name, now), (_, before)) in bits(&model).iter().zip(&before) {
            if found.fresh.contains(name) {
                assert_eq!(now, before, "{source}: {name} was drawn");
            } else {
                let (_, theirs) = theirs.iter().find(|(known, _)| known == name).unwrap();
                assert_eq!(now, theirs, "{source}: {name}");
            }
        }
    }
    // The same head comes with its body.
    let path = fixture("bert-masked").path;
    let model = models_like(&path);
    assert!(load_body_into(&path, &model).unwrap().fresh.is_empty());
    assert_eq!(bits(&model), bits(load(&path).unwrap().model.as_ref()));
}

fn models_like(path: &Path) -> Encoder {
    let ModelConfig::Encoder(config) = config_of(path).unwrap() else { panic!("an encoder") };
    Encoder::drawn(config, 3)
}

#[test]
fn a_body_of_another_shape_is_refused_and_nothing_is_changed() {
    let path = fixture("bert-masked").path;
    let mut model = models_like(&path);
    let mut config = model.sizes().clone();
    config.context += 1;
    model = Encoder::drawn(config, 3);
    let before = bits(&model);
    let error = load_body_into(&path, &model).unwrap_err().to_string();
    assert!(error.contains("position.weight is (11, 15)"), "{error}");
    assert_eq!(bits(&model), before);
    let mut config = models_like(&path).sizes().clone();
    config.stack.layers = 3;
    let error = load_body_into(&path, &Encoder::drawn(config, 3)).unwrap_err().to_string();
    assert!(error.contains("has no blocks.2.norm1.weight"), "{error}");
}

/// Why a fixture is refused with a file of it replaced.
fn refused(name: &str, file: &str, change: impl FnOnce(&mut Value)) -> String {
    let directory = tempdir().unwrap();
    copy(&fixture(name).path, directory.path());
    let path = directory.path().join(file);
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut json);
    std::fs::write(&path, json.to_string()).unwrap();
    let error = load(directory.path()).unwrap_err().to_string();
    assert!(error.contains("\nhint: "), "{error}");
    error
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let set = |key: &'static str, value: Value| move |json: &mut Value| json[key] = value;
    for (name, key, value, message) in [
        ("bert-masked", "architectures", json!(["BertLMHeadModel"]), "architectures is"),
        ("bert-masked", "architectures", json!(["GPT2LMHeadModel"]), "expected one of BertModel"),
        ("bert-masked", "architectures", json!("BertModel"), "a list of names"),
        ("bert-masked", "position_embedding_type", json!("relative_key"), "\"absolute\""),
        ("bert-masked", "is_decoder", json!(true), "is_decoder is true, expected false"),
        ("bert-masked", "hidden_act", json!("mish"), "hidden_act is \"mish\""),
        ("bert-masked", "type_vocab_size", json!(1_000_000), "model.types is 1000000"),
        ("bert-classes", "id2label", json!({"0": "a", "2": "b"}), "from 0 on"),
        ("bert-classes", "id2label", json!({"0": "a", "1": "a", "2": "b"}), "\"a\" twice"),
        ("bert-classes", "id2label", json!({}), "from 0 on"),
        ("bert-classes", "id2label", json!({"0": "a", "1": "b"}), "wrong shape"),
        ("bert-classes", "problem_type", json!("clustering"), "problem_type is"),
        ("roberta-masked", "pad_token_id", json!(0), "pad_token_id is 0, expected 1"),
        ("roberta-masked", "max_position_embeddings", json!(2), "more than 2"),
        ("roberta-masked", "hidden_act", json!("relu"), "expected gelu"),
        ("distilbert-tags", "n_heads", json!(4), "does not divide"),
    ] {
        let error = refused(name, "config.json", set(key, value));
        assert!(error.contains(message), "'{message}' is not in: {error}");
    }
    let no_names = refused("bert-classes", "config.json", |json| {
        json.as_object_mut().unwrap().remove("id2label");
        json["num_labels"] = json!(1u64 << 40);
    });
    assert!(no_names.contains("num_labels is 1099511627776"), "{no_names}");
}

#[test]
fn steps_of_sentence_transformers_that_are_not_known_are_refused() {
    let error = refused("bert-sentences", "modules.json", |json| {
        json[2]["type"] = json!("sentence_transformers.models.Dense");
    });
    assert!(error.contains("Dense\" is not known"), "{error}");
    let error = refused("bert-sentences", "modules.json", |json| json[1]["path"] = json!("../x"));
    assert!(error.contains("a folder beside it"), "{error}");
    let error = refused("bert-sentences", "modules.json", |json| *json = json!({}));
    assert!(error.contains("a short list of steps"), "{error}");
    let pooling = "1_Pooling/config.json";
    let error =
        refused("bert-sentences", pooling, |json| json["pooling_mode_max_tokens"] = json!(true));
    assert!(error.contains("pooling_mode_max_tokens is true"), "{error}");
    let error =
        refused("bert-sentences", pooling, |json| json["pooling_mode_cls_token"] = json!(true));
    assert!(error.contains("one way of pooling alone"), "{error}");
    let error = refused("bert-sentences", pooling, |json| *json = json!({}));
    assert!(error.contains("another way of pooling"), "{error}");
    let error = refused("bert-sentences", "sentence_bert_config.json", |json| {
        json["max_seq_length"] = json!(0);
    });
    assert!(error.contains("at least 1"), "{error}");
}
