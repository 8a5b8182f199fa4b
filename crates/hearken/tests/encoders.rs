//! The commands that use encoders, as a person runs them, on tiny ones made here.

#[allow(dead_code, reason = "not every test uses all of it")]
mod common;

use common::{hearken, run};
use hearken::data::tokenizer::{Special, Tokenizer};
use hearken::formats::{SpecialTokens, save};
use hearken::nn::config::{EncoderConfig, HeadConfig, PoolerConfig, Pooling};
use hearken::nn::models::{Encoder, EncoderDecoder, Model, Targets, Tokens, loss, outputs};
use hearken::nn::pass::{Layout, Pass};
use hearken::nn::variants;
use hearken::store::TensorFile;
use hearken::tensor::ops::cross_entropy::Options;
use hearken::tensor::{Tensor, no_grad};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const WORDS: [&str; 12] =
    ["the", "fox", "sees", "a", "red", "kite", "river", "owl", "asks", "who", "is", "here"];

fn tokenizer() -> Tokenizer {
    Tokenizer::of_words(&WORDS.map(str::to_owned))
}

fn labels() -> Vec<String> {
    ["good", "bad", "neither"].map(str::to_owned).to_vec()
}

/// A directory with an encoder and its tokenizer, and the encoder.
fn directory(head: HeadConfig, pooler: PoolerConfig) -> (TempDir, Encoder) {
    let directory = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer();
    let vocabulary = tokenizer.vocabulary_size();
    let config = EncoderConfig { vocabulary, head, pooler, ..variants::encoder() };
    let model = Encoder::drawn(config, 3);
    let special =
        SpecialTokens { pad: tokenizer.special(Special::Pad), ..SpecialTokens::default() };
    save(directory.path(), &model, &special).unwrap();
    tokenizer.save_directory(directory.path()).unwrap();
    (directory, model)
}

fn classifier() -> (TempDir, Encoder) {
    let head = HeadConfig::Classes { labels: labels(), several: false };
    directory(head, PoolerConfig::Tanh)
}

fn with_model(command: &[&str], directory: &Path, rest: &[&str]) -> Command {
    let path = directory.to_str().unwrap();
    hearken(&[command, &["--model", path], rest].concat())
}

/// What a command writes, a JSON value per line.
fn json_lines(command: &mut Command) -> Vec<Value> {
    let ran = run(command).succeeded();
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// `[CLS] text [SEP]`
fn framed(text: &str) -> Vec<u32> {
    let tokenizer = tokenizer();
    let mut ids = vec![tokenizer.special(Special::Cls).unwrap()];
    ids.extend(tokenizer.encode(text).unwrap());
    ids.push(tokenizer.special(Special::Sep).unwrap());
    ids
}

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

fn assert_near(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() < 1e-5, "{what}: {got}, expected {want}");
    }
}

const TEXTS: [&str; 5] =
    ["the fox sees a red kite", "who", "the owl asks who is here", "", "a river"];

fn text_file(folder: &Path) -> String {
    let path = folder.join("texts.txt");
    std::fs::write(&path, TEXTS.join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn labels_are_those_of_the_model_in_order() {
    let (directory, model) = classifier();
    let folder = tempfile::tempdir().unwrap();
    let file = text_file(folder.path());
    let found = json_lines(&mut with_model(&["classify"], directory.path(), &[&file, "--json"]));
    assert_eq!(found.len(), TEXTS.len());
    let table = run(&mut with_model(&["classify"], directory.path(), &[&file])).succeeded();
    for ((text, found), line) in TEXTS.iter().zip(&found).zip(table.stdout.lines()) {
        let ids = framed(text);
        let classifier = model.classifies().unwrap();
        let want = classifier.class_probabilities(&Tokens::new(&ids, 1));
        let by_name: Vec<f32> =
            labels().iter().map(|l| found["labels"][l].as_f64().unwrap() as f32).collect();
        assert_near(&by_name, want.data(), text);
        let best = (0..3).max_by(|a, b| want.data()[*a].total_cmp(&want.data()[*b])).unwrap();
        assert_eq!(found["label"], json!(labels()[best]), "{text}");
        assert_near(&[found["probability"].as_f64().unwrap() as f32], &[want.data()[best]], text);
        let (label, probability) = line.split_once('\t').unwrap();
        assert_eq!(label, labels()[best]);
        assert!((probability.parse::<f32>().unwrap() - want.data()[best]).abs() < 1e-4);
    }
}

#[test]
fn texts_come_from_anywhere() {
    let (directory, _) = classifier();
    let folder = tempfile::tempdir().unwrap();
    let want = run(&mut with_model(&["classify"], directory.path(), &["a river"])).succeeded();
    let same = |rest: &[&str], input: Option<&str>| {
        let mut command = with_model(&["classify"], directory.path(), rest);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.unwrap_or_default().as_bytes()).unwrap();
        let ran = common::ran(child.wait_with_output().unwrap()).succeeded();
        assert_eq!(ran.stdout, want.stdout, "{rest:?}");
    };
    same(&["-"], Some("a river\r\n"));
    same(&["--text", "a river"], None);
    let lines = folder.path().join("texts.jsonl");
    std::fs::write(&lines, "{\"body\": \"a river\"}\n").unwrap();
    same(&[lines.to_str().unwrap(), "--field", "body"], None);
    // Two texts are not one.
    let pair = run(&mut with_model(
        &["classify"],
        directory.path(),
        &["--pairs", "--text", "a river\tthe fox"],
    ));
    assert_ne!(pair.succeeded().stdout, want.stdout);
}

#[test]
fn vectors_are_those_of_the_model_whoever_shares_a_batch() {
    let head =
        HeadConfig::Embedding { pooling: Pooling::Mean, normalised: true, most_tokens: Some(6) };
    let (directory, model) = directory(head, PoolerConfig::None);
    let folder = tempfile::tempdir().unwrap();
    let file = text_file(folder.path());
    let ran = run(&mut with_model(&["embed"], directory.path(), &[&file])).succeeded();
    assert!(ran.stderr.contains("2 texts were longer than 6 tokens, and cut"), "{}", ran.stderr);
    let found: Vec<Vec<f32>> = ran
        .stdout
        .lines()
        .map(|line| numbers(&serde_json::from_str::<Value>(line).unwrap()["embedding"]))
        .collect();
    let encoder = model.encodes().unwrap();
    for (text, found) in TEXTS.iter().zip(&found) {
        let mut ids = framed(text);
        if ids.len() > 6 {
            ids.drain(5..ids.len() - 1);
        }
        let tokens = Tokens::new(&ids, 1);
        let want = no_grad(|| encoder.embed(&tokens, encoder.embedded(), &Pass::evaluate()));
        assert_near(found, want.value().data(), text);
        // A sentence alone.
        let alone = json_lines(&mut with_model(&["embed"], directory.path(), &["--text", text]));
        assert_near(&numbers(&alone[0]["embedding"]), found, text);
        let length: f32 = found.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5);
    }
    // The same in every form.
    for name in ["v.npy", "v.safetensors", "v.jsonl"] {
        let out = folder.path().join(name);
        let rest = [file.as_str(), "--out", out.to_str().unwrap()];
        let ran = run(&mut with_model(&["embed"], directory.path(), &rest)).succeeded();
        assert!(ran.stdout.is_empty() && ran.stderr.contains("(5, 16) in "), "{}", ran.stderr);
    }
    let tensor = TensorFile::open(&folder.path().join("v.safetensors")).unwrap();
    let tensor = tensor.tensor("embeddings").unwrap();
    assert_near(tensor.data(), &found.concat(), "safetensors");
    let npy = std::fs::read(folder.path().join("v.npy")).unwrap();
    assert_eq!(&npy[..8], b"\x93NUMPY\x01\x00");
    let header = u16::from_le_bytes([npy[8], npy[9]]) as usize;
    assert_eq!((10 + header) % 64, 0);
    let text = std::str::from_utf8(&npy[10..10 + header]).unwrap();
    assert!(text.contains("'descr': '<f4'") && text.contains("'shape': (5, 16)"), "{text}");
    let values: Vec<f32> = npy[10 + header..]
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    assert_eq!(values, tensor.data());
    let lines = std::fs::read_to_string(folder.path().join("v.jsonl")).unwrap();
    assert_eq!(lines, ran.stdout);
}

#[test]
fn the_way_of_pooling_can_be_chosen() {
    let (directory, model) = directory(HeadConfig::None {}, PoolerConfig::None);
    let embed = |rest: &[&str]| {
        let all = [&["a red kite"], rest].concat();
        numbers(&json_lines(&mut with_model(&["embed"], directory.path(), &all))[0]["embedding"])
    };
    let ids = framed("a red kite");
    let hidden =
        no_grad(|| model.encodes().unwrap().encode(&Tokens::new(&ids, 1), &Pass::evaluate()));
    let hidden = hidden.value().data();
    assert_near(&embed(&["--pooling", "cls"]), &hidden[..16], "cls");
    assert_near(&embed(&["--pooling", "last"]), &hidden[hidden.len() - 16..], "last");
    let mean = embed(&[]);
    let first: f32 = hidden.chunks(16).map(|h| h[0]).sum::<f32>() / 5.0;
    assert_near(&mean[..1], &[first], "mean, which is the default");
    let norm = mean.iter().map(|x| x * x).sum::<f32>().sqrt();
    let unit: Vec<f32> = mean.iter().map(|x| x / norm).collect();
    assert_near(&embed(&["--normalised"]), &unit, "normalised");
    assert_near(&embed(&["--normalised", "false"]), &mean, "not normalised");
}

#[test]
fn gaps_are_filled_with_the_most_probable_words() {
    let (directory, model) = directory(HeadConfig::Tokens { transform: true }, PoolerConfig::None);
    let text = "the fox [MASK] a red [MASK]";
    let found =
        json_lines(&mut with_model(&["fill"], directory.path(), &[text, "--json", "--top", "20"]));
    let tokenizer = tokenizer();
    let mask = tokenizer.special(Special::Mask).unwrap();
    let mut ids = framed("the fox sees a red kite");
    (ids[3], ids[6]) = (mask, mask);
    let logits = model.predicts_tokens().unwrap().logits(&Tokens::new(&ids, 1));
    let vocabulary = tokenizer.vocabulary_size();
    let masks = found[0]["masks"].as_array().unwrap();
    assert_eq!((masks.len(), &masks[0]), (2, &found[0]["candidates"]));
    for (place, candidates) in [3, 6].into_iter().zip(masks) {
        let candidates = candidates.as_array().unwrap();
        // Special tokens are no answer.
        assert_eq!(candidates.len(), WORDS.len());
        let row = &logits.data()[place * vocabulary..(place + 1) * vocabulary];
        let total: f32 = row.iter().map(|z| z.exp()).sum();
        let mut before = 1.0;
        for candidate in candidates {
            let id = tokenizer.id(candidate["token"].as_str().unwrap()).unwrap();
            assert_eq!(candidate["id"], json!(id));
            let probability = candidate["probability"].as_f64().unwrap() as f32;
            assert_near(&[probability], &[row[id as usize].exp() / total], "probability");
            assert!(probability <= before);
            before = probability;
        }
    }
    let best = |i: usize| masks[i][0]["token"].as_str().unwrap().to_owned();
    let want = format!("the fox {} a red {}", best(0), best(1));
    assert_eq!(found[0]["text"], json!(want));
    let table = run(&mut with_model(&["fill"], directory.path(), &[text])).succeeded();
    assert!(table.stdout.starts_with(&format!("{want}\n[MASK] 1\n")), "{}", table.stdout);
    assert_eq!(table.stdout.lines().count(), 1 + 2 * 6);
}

#[test]
fn numbers_and_several_labels_are_written_too() {
    let (numbers_directory, model) =
        directory(HeadConfig::Numbers { outputs: 2 }, PoolerConfig::Tanh);
    let rest = ["a river", "--json"];
    let found = json_lines(&mut with_model(&["classify"], numbers_directory.path(), &rest));
    let ids = framed("a river");
    let numbers_of = model.predicts_numbers().unwrap();
    let want = no_grad(|| numbers_of.predicted(&Tokens::new(&ids, 1), &Pass::evaluate()));
    assert_near(&numbers(&found[0]["numbers"]), want.value().data(), "numbers");
    let head = HeadConfig::Classes { labels: labels(), several: true };
    let (several, model) = directory(head, PoolerConfig::Tanh);
    let found = json_lines(&mut with_model(&["classify"], several.path(), &rest));
    let want = model.classifies().unwrap().class_probabilities(&Tokens::new(&ids, 1));
    let chosen: Vec<String> =
        (0..3).filter(|i| want.data()[*i] >= 0.5).map(|i| labels()[i].clone()).collect();
    assert_eq!(found[0]["chosen"], json!(chosen));
}

#[test]
fn bad_input_is_refused_with_a_hint() {
    let (directory, _) = classifier();
    let folder = tempfile::tempdir().unwrap();
    let refused = |command: &str, rest: &[&str], message: &str| {
        run(&mut with_model(&[command], directory.path(), rest)).refused(message);
    };
    refused("classify", &[], "there is no text");
    refused("classify", &["no/such/file.txt"], "there is no file no/such/file.txt");
    refused("classify", &["a", "--most-tokens", "1000"], "exceed the model's context of 24");
    refused("classify", &["a", "--most-tokens", "2"], "no room");
    refused("classify", &["--pairs", "a b"], "has no tab");
    refused("fill", &["a [MASK]"], "cannot predict tokens");
    refused("embed", &["a", "--pooling", "max"], "expected cls, mean or last");
    refused("embed", &["a", "--out", "x.csv"], "ends in nothing that is known");
    refused("generate", &["--prompt", "a"], "cannot write text");
    let bytes = folder.path().join("bytes.txt");
    std::fs::write(&bytes, b"fine\n\xff\xfe\n").unwrap();
    refused("classify", &[bytes.to_str().unwrap()], "line 2 is not UTF-8");
    let lines = folder.path().join("lines.jsonl");
    std::fs::write(&lines, "{\"text\": \"a\"}\n{\"other\": 1}\n").unwrap();
    refused("classify", &[lines.to_str().unwrap()], "line 2 has no text 'text'");
    std::fs::write(&lines, "{\"text\": \"a\"}\nnot json\n").unwrap();
    refused("classify", &[lines.to_str().unwrap()], "line 2 is not JSON");
    let (masked, _) = self::directory(HeadConfig::Tokens { transform: true }, PoolerConfig::None);
    run(&mut with_model(&["fill"], masked.path(), &["a river"])).refused("no [MASK] in the text");
    run(&mut with_model(&["classify"], masked.path(), &["a"])).refused("cannot label texts");
    std::fs::remove_file(masked.path().join("tokenizer.json")).unwrap();
    run(&mut with_model(&["embed"], masked.path(), &["a"])).refused("has no tokenizer.json");
}

/// The tensors that `inspect` writes.
fn inspected(what: &str, directory: &Path, rest: &[&str]) -> (TempDir, TensorFile) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.safetensors");
    let rest = [rest, &["--out", out.to_str().unwrap()]].concat();
    run(&mut with_model(&["inspect", what], directory, &rest)).succeeded();
    let file = TensorFile::open(&out).unwrap();
    (folder, file)
}

const IDS: [&str; 8] =
    ["--ids", "1,2,3,4", "--ids", "5,6,7,0", "--type-ids", "0,0,1,1", "--type-ids", "0,1,1,0"];
const MASKS: [&str; 4] = ["--mask", "1,1,1,1", "--mask", "1,1,1,0"];

#[test]
fn results_gradients_and_traces_of_every_head_can_be_looked_at() {
    let ids = [1, 2, 3, 4, 5, 6, 7, 0];
    let types = [0, 0, 1, 1, 0, 1, 1, 0];
    let tokens = Tokens::new(&ids, 2).of_types(Some(&types)).laid_out(Layout::padded(&[4, 3]));
    let given = [&IDS[..], &MASKS[..]].concat();
    let class = |several| HeadConfig::Classes { labels: labels(), several };
    for (head, pooler, texts, targets) in [
        (class(false), PoolerConfig::Tanh, vec!["bad", "2"], Targets::Classes(vec![1, 2])),
        (
            class(true),
            PoolerConfig::Tanh,
            vec!["1,0,1", "0,0,1"],
            Targets::Several(vec![1.0, 0.0, 1.0, 0.0, 0.0, 1.0]),
        ),
        (
            HeadConfig::Numbers { outputs: 2 },
            PoolerConfig::Tanh,
            vec!["0.5,-1", "2,3"],
            Targets::Numbers(vec![0.5, -1.0, 2.0, 3.0]),
        ),
        (
            HeadConfig::Tags { labels: labels() },
            PoolerConfig::None,
            vec!["good,bad,0,1", "2,2,neither,-100"],
            Targets::Tokens(vec![0, 1, 0, 1, 2, 2, 2, u32::MAX]),
        ),
        (
            HeadConfig::Spans {},
            PoolerConfig::None,
            vec!["1,2", "0,2"],
            Targets::Spans { starts: vec![1, 0], ends: vec![2, 2] },
        ),
        (
            HeadConfig::Tokens { transform: true },
            PoolerConfig::None,
            vec!["-100,5,-100,6", "7,-100,-100,-100"],
            Targets::Tokens(vec![u32::MAX, 5, u32::MAX, 6, 7, u32::MAX, u32::MAX, u32::MAX]),
        ),
    ] {
        let (directory, model) = directory(head.clone(), pooler);
        let (_folder, file) = inspected("logits", directory.path(), &given);
        let want = no_grad(|| outputs(&model, &tokens, &Pass::evaluate()));
        assert_eq!(file.entries().len(), want.len(), "{head:?}");
        for (name, want) in &want {
            assert_eq!(file.tensor(name).unwrap().data(), want.value().data(), "{head:?}, {name}");
        }
        let mut rest = given.clone();
        for text in &texts {
            rest.extend(["--targets", text]);
        }
        let (_folder, file) = inspected("gradients", directory.path(), &rest);
        let want = loss(&model, &tokens, &targets, &Pass::evaluate(), Options::default());
        let want = want.unwrap().mean();
        assert_eq!(file.tensor("loss").unwrap().item(), want.value().item(), "{head:?}");
        want.backward();
        let own = model.parameters().iter().find(|p| p.name() == "types.weight").unwrap();
        let theirs = file.tensor("bert.embeddings.token_type_embeddings.weight").unwrap();
        assert_eq!(theirs.data(), own.gradient().unwrap().data(), "{head:?}");
        let (_folder, file) = inspected("trace", directory.path(), &rest);
        for name in ["types", "embedding_norm", "d.blocks.0.attention.weights", "d.logits"] {
            assert!(file.find(name).is_some(), "{head:?}: no {name}");
        }
        assert!(file.find("pooled").is_some() == (pooler != PoolerConfig::None), "{head:?}");
    }
}

#[test]
fn a_bare_encoder_shows_its_hidden_states() {
    let (directory, model) = directory(HeadConfig::None {}, PoolerConfig::Tanh);
    let (_folder, file) = inspected("logits", directory.path(), &["--ids", "1,2,3"]);
    let mut names: Vec<&str> = file.entries().iter().map(|e| e.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["embedding", "hidden", "pooled"]);
    let hidden = file.tensor("hidden").unwrap();
    let tokens = Tokens::new(&[1, 2, 3], 1);
    let want = no_grad(|| model.encodes().unwrap().encode(&tokens, &Pass::evaluate()));
    let want: &Tensor = want.value();
    assert_eq!(hidden.data(), want.data());
    let out = directory.path().join("../out.safetensors");
    let out = out.to_str().unwrap();
    let refused = |rest: &[&str], message: &str| {
        let rest = [rest, &["--out", out]].concat();
        run(&mut with_model(&["inspect", "gradients"], directory.path(), &rest)).refused(message);
    };
    refused(&["--ids", "1,2", "--targets", "1"], "has no head");
    refused(&["--ids", "1,2", "--mask", "0,1", "--targets", "1"], "ones and then zeros");
    refused(
        &["--ids", "1,2", "--mask", "1", "--targets", "1"],
        "--ids are 1 × 2, but --mask 1 × 1",
    );
    refused(&["--ids", "1,2", "--type-ids", "0,2", "--targets", "1"], "there is no type 2");
    let (classes, _) = classifier();
    let refused = |rest: &[&str], message: &str| {
        let rest = [rest, &["--out", out]].concat();
        run(&mut with_model(&["inspect", "gradients"], classes.path(), &rest)).refused(message);
    };
    refused(&["--ids", "1,2", "--targets", "ugly"], "there is no label 'ugly'");
    refused(&["--ids", "1,2", "--targets", "1,2"], "1 sequences, but 2 targets");
}

#[test]
fn a_source_and_a_target_go_through_an_encoder_decoder() {
    let directory = tempfile::tempdir().unwrap();
    let model = EncoderDecoder::drawn(variants::t5(), 3);
    save(directory.path(), &model, &SpecialTokens::default()).unwrap();
    let given = ["--ids", "1,2,3", "--ids", "4,5,0", "--mask", "1,1,1", "--mask", "1,1,0"];
    let given = [&given[..], &["--decoder-ids", "0,7", "--decoder-ids", "0,8"]].concat();
    let source = Tokens::new(&[1, 2, 3, 4, 5, 0], 2).laid_out(Layout::padded(&[3, 2]));
    let tokens = Tokens::new(&[0, 7, 0, 8], 2).about(&source);
    let (_folder, file) = inspected("logits", directory.path(), &given);
    let want = no_grad(|| outputs(&model, &tokens, &Pass::evaluate()));
    assert_eq!(file.entries().len(), 3);
    for (name, want) in &want {
        assert_eq!(file.tensor(name).unwrap().data(), want.value().data(), "{name}");
    }
    let given = [&given[..], &["--targets", "7,1", "--targets", "8,-100"]].concat();
    let (_folder, file) = inspected("gradients", directory.path(), &given);
    let targets = Targets::Tokens(vec![7, 1, 8, u32::MAX]);
    let want = loss(&model, &tokens, &targets, &Pass::evaluate(), Options::default()).unwrap();
    want.mean().backward();
    assert_eq!(file.tensor("loss").unwrap().item(), want.mean().value().item());
    let own = model.parameters().iter().find(|p| p.name() == "encoder.position.weight").unwrap();
    let theirs = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";
    assert_eq!(file.tensor(theirs).unwrap().data(), own.gradient().unwrap().data());
    let (_folder, file) = inspected("trace", directory.path(), &given);
    let weights = file.tensor("decoder.blocks.1.cross_attention.weights").unwrap();
    assert_eq!(weights.shape().dims(), [2, 4, 2, 3]);
    for name in ["encoder.blocks.0.attention.weights", "d.encoder.embedding", "d.decoder.norm"] {
        assert!(file.find(name).is_some(), "no {name}");
    }
    let out = directory.path().join("../out.safetensors");
    let out = ["--out", out.to_str().unwrap()];
    let refused = |model: &Path, rest: &[&str], message: &str| {
        let rest = [rest, &out].concat();
        run(&mut with_model(&["inspect", "logits"], model, &rest)).refused(message);
    };
    let path = directory.path();
    refused(path, &["--ids", "1,2"], "needs the tokens of a target");
    refused(path, &["--ids", "1,2", "--decoder-ids", "0", "--decoder-ids", "0"], "1 sequences in");
    refused(path, &["--ids", "1,2", "--decoder-ids", "99"], "there is no token 99");
    let (encoder, _) = classifier();
    refused(encoder.path(), &["--ids", "1,2", "--decoder-ids", "0"], "of no use to this model");
    let explain = |rest: &[&str]| run(&mut with_model(&["explain"], path, rest));
    explain(&["--ids", "0,1"]).refused("needs a source");
    explain(&["--ids", "0,1", "--source-ids", "99"]).refused("there is no token 99");
    let rest = ["--ids", "0,1,2", "--source-ids", "3,4,5,6", "--target", "7", "--layer", "1"];
    let told = explain(&rest).succeeded().stdout;
    for part in [
        "decoder.blocks.1.cross_attention.weights (4, 3, 4)",
        "encoder.blocks.1.norm2 (4,",
        "decoder.blocks.0.cross_attention[0]",
        "encoder block 0 head 0",
        "−ln",
    ] {
        assert!(told.contains(part), "no {part} in {told}");
    }
    let source = ["--ids", "1,2", "--source-ids", "3"];
    run(&mut with_model(&["explain"], encoder.path(), &source)).refused("reads no source");
}
