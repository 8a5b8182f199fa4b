//! `hearken inspect`, end to end.

use crate::common::run;
use crate::{CHARACTERS, model_directory, parse, with_model, write_model};
use hearken::nn::config::{CellKind, ConvolutionConfig, ModelConfig, RecurrentConfig};
use hearken::nn::models::{Model, PredictsTokens, Tokens};
use hearken::nn::pass::Pass;
use hearken::nn::scope::Weights;
use hearken::store::TensorFile;
use hearken::tensor::Tensor;
use hearken::tensor::ops::cross_entropy::{IGNORED, Options};

#[test]
fn logits_are_those_of_the_model() {
    let directory = model_directory();
    let model = write_model(directory.path());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("logits.safetensors");
    let rest = ["--ids", "1,2,3", "--ids", "4,5,6", "--out", out.to_str().unwrap()];
    let ran = run(&mut with_model(&["inspect", "logits"], directory.path(), &rest)).succeeded();
    assert!(ran.stdout.starts_with("logits (2, 3, 29) in "), "{}", ran.stdout);
    let logits = TensorFile::open(&out).unwrap().tensor("logits").unwrap();
    assert_eq!(logits.shape().dims(), [2, 3, CHARACTERS.len()]);
    assert_eq!(logits.data(), model.logits(&Tokens::new(&[1, 2, 3, 4, 5, 6], 2)).data());
    let json = run(&mut with_model(
        &["inspect", "logits"],
        directory.path(),
        &[&rest[..], &["--json"]].concat(),
    ));
    assert_eq!(parse(&json.succeeded().stdout)["shape"], serde_json::json!([2, 3, 29]));
}

#[test]
fn gradients_come_with_the_loss_and_the_names_of_the_directory() {
    let directory = model_directory();
    let model = write_model(directory.path());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("gradients.safetensors");
    let rest =
        ["--ids", "1,2,3", "--targets", "-100,3,4", "--out", out.to_str().unwrap(), "--json"];
    let ran = run(&mut with_model(&["inspect", "gradients"], directory.path(), &rest));
    let json = parse(&ran.succeeded().stdout);
    let (ids, targets) = ([1, 2, 3], [IGNORED, 3, 4]);
    let tokens = Tokens::new(&ids, 1);
    let loss = model.loss(&tokens, &targets, &Pass::evaluate(), Options::default()).mean();
    loss.backward();
    let file = TensorFile::open(&out).unwrap();
    assert_eq!(file.tensor("loss").unwrap().item(), loss.value().item());
    assert_eq!(json["loss"].as_f64().unwrap() as f32, loss.value().item());
    // GPT-2's names, and its matrices are ours transposed.
    let ours = model.parameters();
    let own = ours.iter().find(|p| p.name() == "blocks.1.feed_forward.up.weight").unwrap();
    let own = own.gradient().unwrap();
    let theirs = file.tensor("transformer.h.1.mlp.c_fc.weight").unwrap();
    let [wide, narrow] = own.dims();
    assert_eq!(theirs.dims(), [narrow, wide]);
    for (i, x) in own.data().iter().enumerate() {
        assert_eq!(*x, theirs.data()[i % narrow * wide + i / narrow]);
    }
    assert_eq!(file.entries().len(), ours.len() + 1);
    assert_eq!(json["gradients"].as_array().unwrap().len(), ours.len());
}

#[test]
fn weights_are_listed_with_their_norms() {
    let directory = model_directory();
    let model = write_model(directory.path());
    let ran = run(&mut with_model(&["inspect", "weights"], directory.path(), &["--json"]));
    let json = parse(&ran.succeeded().stdout);
    let total: usize = model.parameters().iter().map(|p| p.shape().len()).sum();
    assert_eq!(json["parameters"].as_u64().unwrap() as usize, total);
    let tensors = json["tensors"].as_array().unwrap();
    let row = tensors.iter().find(|t| t["name"] == "transformer.wte.weight").unwrap();
    assert_eq!((&row["dtype"], &row["shape"]), (&"F32".into(), &serde_json::json!([29, 16])));
    let value = model.parameters()[0].value();
    let norm = value.data().iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    assert!((row["norm"].as_f64().unwrap() - norm).abs() < 1e-9);
    assert!((row["rms"].as_f64().unwrap() - norm / (29.0 * 16.0_f64).sqrt()).abs() < 1e-9);
    assert!(row["largest"].as_f64().unwrap() <= norm);
    let table = run(&mut with_model(&["inspect", "weights"], directory.path(), &[])).succeeded();
    assert_eq!(table.stdout.lines().count(), tensors.len() + 2, "{}", table.stdout);
    // Into a pipe, names are whole.
    for (tensor, line) in tensors.iter().zip(table.stdout.lines().skip(1)) {
        assert_eq!(line.split(' ').next(), tensor["name"].as_str(), "{}", table.stdout);
    }
}

#[test]
fn a_trace_has_every_value_and_with_targets_every_gradient() {
    let directory = model_directory();
    let model = write_model(directory.path());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("trace.safetensors");
    let ids = ["--ids", "1,2,3", "--out", out.to_str().unwrap()];
    let trace = |rest: &[&str]| {
        let rest = [&ids[..], rest].concat();
        run(&mut with_model(&["inspect", "trace"], directory.path(), &rest)).succeeded().stdout
    };
    let names = || {
        let file = TensorFile::open(&out).unwrap();
        file.entries().iter().map(|entry| entry.name.clone()).collect::<Vec<_>>()
    };
    let said = trace(&[]);
    assert!(said.starts_with("34 tensors ("), "{said}"); // 4, and 2 × 15 without gate and rotation
    assert_eq!(names().len(), 34);
    let file = TensorFile::open(&out).unwrap();
    let weights = file.tensor("blocks.1.attention.weights").unwrap();
    assert_eq!(weights.shape().dims(), [1, 4, 3, 3]);
    assert_eq!(weights.data()[..3], [1.0, 0.0, 0.0]);
    let hidden = file.tensor("blocks.1.attention.scores").unwrap().data()[1];
    assert_eq!(hidden, f32::NEG_INFINITY);
    let want = model.logits(&Tokens::new(&[1, 2, 3], 1));
    for (got, want) in file.tensor("logits").unwrap().data().iter().zip(want.data()) {
        assert!((got - want).abs() < 1e-5, "{got} and {want}"); // sums in another order
    }

    let json = parse(&trace(&["--targets", "-100,3,4", "--json"]));
    let loss = model.loss(
        &Tokens::new(&[1, 2, 3], 1),
        &[IGNORED, 3, 4],
        &Pass::evaluate(),
        Options::default(),
    );
    let want = loss.mean().value().item();
    assert!((json["loss"].as_f64().unwrap() as f32 - want).abs() < 1e-5, "{json}");
    assert_eq!(json["tensors"].as_array().unwrap().len(), 68);
    assert_eq!(names().len(), 69);
    let file = TensorFile::open(&out).unwrap();
    // The target of the first token does not count.
    let gradient = file.tensor("d.logits").unwrap();
    assert!(gradient.data()[..29].iter().all(|d| *d == 0.0));
    assert!(gradient.data()[29..].iter().any(|d| *d != 0.0));

    trace(&["--only", "blocks.0.norm*", "--only", "blocks.1.attention.weights[2]"]);
    let mut some = names();
    some.sort();
    assert_eq!(some, ["blocks.0.norm1", "blocks.0.norm2", "blocks.1.attention.weights[2]"]);
}

#[test]
fn bad_input_is_refused_with_a_hint() {
    let directory = model_directory();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.safetensors");
    let out = path.to_str().unwrap();
    let refused = |what: &str, rest: &[&str], message: &str| {
        run(&mut with_model(&["inspect", what], directory.path(), rest)).refused(message);
    };
    refused("logits", &["--out", out], "--ids");
    refused("logits", &["--ids", "1,2", "--prompt", "a"], "cannot be used with");
    refused("logits", &["--prompt", "A"], "not in the vocabulary");
    refused("logits", &["--ids", "1,2", "--out", "x.bin"], "does not say its format");
    refused("gradients", &["--prompt", "ab", "--only", "nothing"], "no parameter of this model");
    refused("gradients", &["--prompt", "ab", "--out", "x.npy"], "a .npy file holds one tensor");
    refused("gradients", &["--prompt", "a"], "no target counts");
    refused("logits", &["--ids", "1,,2", "--out", out], "'' is no token");
    refused("logits", &["--ids", "29", "--out", out], "there is no token 29");
    refused("logits", &["--ids", "1,2", "--ids", "1", "--out", out], "sequences of 2 and 1");
    let long = ["1"; 17].join(",");
    refused("logits", &["--ids", &long, "--out", out], "exceed the model's context of 16");
    refused("logits", &["--ids", "1", "--out", "no/such/directory/x"], "no/such/directory/x");
    refused("gradients", &["--ids", "1,2", "--targets", "1", "--out", out], "1 × 2 tokens");
    refused("gradients", &["--ids", "1", "--targets", "40", "--out", out], "no token 40");
    refused("trace", &["--ids", "1,2", "--targets", "1", "--out", out], "1 × 2 tokens");
    refused("trace", &["--ids", "1", "--only", "a[", "--out", out], "'a[' is no pattern");
    refused("trace", &["--ids", "1", "--only", "blocks.2.*", "--out", out], "called 'blocks.2.*'");
    refused("trace", &["--ids", "1", "--only", "d.norm", "--out", out], "there are no targets");
    refused("trace", &["--ids", "1", "--memory", "0", "--out", out], "--memory");
    refused("trace", &["--ids", "1", "--memory", "1e-7", "--out", out], "no room for");
    assert!(!path.exists(), "nothing is written when the input is wrong");
    for name in ["model.safetensors", "new.safetensors"] {
        let own = directory.path().join(name);
        let own = own.to_str().unwrap();
        refused("trace", &["--ids", "1", "--out", own], "is inside the model directory");
        refused("logits", &["--ids", "1", "--out", own], "is inside the model directory");
    }
    std::fs::write(directory.path().join("model.safetensors"), b"junk").unwrap();
    refused("weights", &[], "model.safetensors");
    refused("logits", &["--ids", "1", "--out", out], "model.safetensors");
}

#[test]
fn names_of_strangers_do_not_command_the_terminal() {
    let directory = model_directory();
    let long = "x".repeat(65_536);
    let tensors = [("\x1b[2Jgone", Tensor::zeros([2])), (long.as_str(), Tensor::zeros([3]))];
    let path = directory.path().join("model.safetensors");
    hearken::store::write(&path, tensors.iter().map(|(name, tensor)| (*name, tensor))).unwrap();
    let table = run(&mut with_model(&["inspect", "weights"], directory.path(), &[])).succeeded();
    assert!(table.stdout.contains("\\u{1b}[2Jgone") && !table.stdout.contains('\x1b'));
    assert!(table.stdout.contains(&long[..1000]));
    let missing = directory.path().join("\x1b]0;title\x07");
    let ran = run(&mut with_model(&["inspect", "weights"], &missing, &[]));
    assert!(
        !ran.stderr.contains('\x1b') && ran.stderr.contains("\\u{1b}]0;title"),
        "{}",
        ran.stderr
    );
}

#[test]
#[cfg(unix)]
fn the_model_is_not_overwritten_by_another_name() {
    // As caches of models keep their files: a link in the directory, the bytes elsewhere.
    let directory = model_directory();
    write_model(directory.path());
    let path = directory.path().join("model.safetensors");
    let elsewhere = tempfile::tempdir().unwrap();
    let (blob, hard) = (elsewhere.path().join("blob"), elsewhere.path().join("hard"));
    std::fs::rename(&path, &blob).unwrap();
    std::os::unix::fs::symlink(&blob, &path).unwrap();
    std::fs::hard_link(&blob, &hard).unwrap();
    let before = std::fs::read(&path).unwrap();
    for out in [&blob, &hard] {
        let options = ["--ids", "1,2", "--out", out.to_str().unwrap()];
        let ran = run(&mut with_model(&["inspect", "logits"], directory.path(), &options));
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains("a file of the model"), "{}", ran.stderr);
    }
    assert_eq!(std::fs::read(&blob).unwrap(), before);
    let folder = elsewhere.path().to_str().unwrap();
    let options = ["--ids", "1,2", "--out", folder];
    let ran = run(&mut with_model(&["inspect", "logits"], directory.path(), &options));
    assert!(ran.stderr.contains("is a directory") && ran.stderr.contains("hint: "));
}

#[test]
fn the_model_that_is_read_is_not_overwritten() {
    let directory = model_directory();
    write_model(directory.path());
    let path = directory.path().join("model.safetensors");
    let before = std::fs::read(&path).unwrap();
    let out = path.to_str().unwrap();
    let rest = ["--ids", "1,2", "--out", out];
    run(&mut with_model(&["inspect", "logits"], directory.path(), &rest)).refused("another --out");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn probes_read_stories_layer_by_layer() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = hearken::data::stories::tokenizer();
    let stack = hearken::nn::config::StackConfig::new(2, 16, 2);
    let config = hearken::nn::config::DecoderConfig {
        vocabulary: tokenizer.vocabulary_size(),
        ..hearken::nn::config::DecoderConfig::new(256, stack)
    };
    let model = hearken::nn::models::Decoder::drawn(config, 3);
    let path = folder.path().join("model");
    hearken::formats::save(&path, &model, &hearken::formats::SpecialTokens::default()).unwrap();
    tokenizer.save(&path.join("tokenizer.json")).unwrap();
    let picture = folder.path().join("probe.svg");
    let rest = ["--stories", "200", "--json", "--svg", picture.to_str().unwrap()];
    let ran = run(&mut with_model(&["inspect", "probe"], &path, &rest)).succeeded();
    let json = parse(&ran.stdout);
    assert_eq!(json["layers"], serde_json::json!(["embedding", "block 0", "block 1", "norm"]));
    for name in ["who", "animal", "colour", "what", "where", "parity"] {
        let fact = &json["facts"][name];
        let number = |key: &str| fact[key].as_f64().unwrap();
        assert_eq!(fact["accuracy"].as_array().unwrap().len(), 4, "{name}");
        // 50 stories judge: three standard deviations are at most 0.21.
        assert!(number("unrelated") < number("chance") + 0.21, "{name}: {fact}");
        assert!(number("shuffled") < number("chance") + 0.21, "{name}: {fact}");
        // Before every fact stands the same blank, whose embedding tells nothing.
        let first = fact["accuracy"][0].as_f64().unwrap();
        assert!(name == "parity" || first <= number("chance") + 1e-9, "{name}: {fact}");
    }
    assert!(std::fs::read_to_string(picture).unwrap().contains("unrelated token"));
    let few = ["--stories", "3"];
    run(&mut with_model(&["inspect", "probe"], &path, &few)).refused("expected 100");
    let vocabulary = tokenizer.vocabulary_size();
    let lstm = RecurrentConfig::new(CellKind::Lstm, 256, 2, 9);
    let convolution = ConvolutionConfig::new(256, 2, 9, 3);
    let kinds: [(ModelConfig, _); 2] = [
        (RecurrentConfig { vocabulary, ..lstm }.into(), ["embedding", "layer 0", "layer 1"]),
        (
            ConvolutionConfig { vocabulary, ..convolution }.into(),
            ["embedding", "block 0", "block 1"],
        ),
    ];
    for (config, layers) in kinds {
        let model = hearken::nn::models::build(&config, Weights::Drawn { seed: 3 });
        let path = folder.path().join(layers[1]);
        let special = hearken::formats::SpecialTokens::default();
        hearken::formats::save(&path, model.as_ref(), &special).unwrap();
        tokenizer.save(&path.join("tokenizer.json")).unwrap();
        let rest = ["--stories", "100", "--json"];
        let ran = run(&mut with_model(&["inspect", "probe"], &path, &rest)).succeeded();
        let shown = parse(&ran.stdout)["layers"].clone();
        assert_eq!(shown.as_array().unwrap()[..3], layers, "{shown}");
    }
    // A context of 16 holds no story, and these characters are too few.
    run(&mut with_model(&["inspect", "probe"], model_directory().path(), &[])).refused("");
}

#[test]
fn a_prompt_gives_tables_and_files_by_their_endings() {
    let directory = model_directory();
    let model = write_model(directory.path());
    let folder = tempfile::tempdir().unwrap();
    let inspect = |what: &str, rest: &[&str]| {
        run(&mut with_model(&["inspect", what], directory.path(), rest)).succeeded().stdout
    };
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let ids: Vec<u32> = "abc".chars().map(|c| CHARACTERS.find(c).unwrap() as u32).collect();
    let want = model.logits(&Tokens::new(&ids, 1)); // (1, 3, V)

    let table = inspect("logits", &["--prompt", "abc"]);
    let rows: Vec<&str> = table.lines().skip(1).collect();
    assert_eq!(rows.len(), 3, "{table}");
    let last = &want.data()[2 * CHARACTERS.len()..];
    let best = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap();
    let best = CHARACTERS.chars().nth(best).unwrap();
    assert!(rows[2].contains("'c'") && rows[2].contains(&format!("  '{best}' ")), "{table}");

    inspect("logits", &["--prompt", "abc", "--out", &file("l.json")]);
    let read = parse(&std::fs::read_to_string(file("l.json")).unwrap());
    let row: Vec<f32> = read["logits"][0][2]
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_f64().unwrap() as f32)
        .collect();
    assert_eq!(row, last);
    let all = parse(&inspect("logits", &["--prompt", "abc", "--json"]));
    assert_eq!(all["logits"], read["logits"]);
    inspect("logits", &["--prompt", "abc", "--out", &file("l.npy")]);
    let bytes = std::fs::read(file("l.npy")).unwrap();
    let numbers: Vec<f32> = bytes[bytes.len() - 4 * want.data().len()..]
        .chunks(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect();
    assert_eq!(numbers, want.data());

    // Prompts of different lengths share a batch: what is padded changes nothing.
    inspect("logits", &["--prompt", "abc", "--prompt", "a", "--out", &file("l.safetensors")]);
    let both = TensorFile::open(&std::path::PathBuf::from(file("l.safetensors"))).unwrap();
    let both = both.tensor("logits").unwrap();
    let short = &both.data()[3 * CHARACTERS.len()..4 * CHARACTERS.len()];
    let alone = model.logits(&Tokens::new(&ids[..1], 1));
    assert!(short.iter().zip(alone.data()).all(|(a, b)| (a - b).abs() < 1e-5));

    // Targets are the tokens that follow.
    let json =
        parse(&inspect("gradients", &["--prompt", "abc", "--out", &file("g.json"), "--json"]));
    let targets = [ids[1], ids[2], IGNORED];
    let loss = model.loss(&Tokens::new(&ids, 1), &targets, &Pass::evaluate(), Options::default());
    assert!((json["loss"].as_f64().unwrap() as f32 - loss.mean().value().item()).abs() < 1e-6);
    let table = inspect("gradients", &["--prompt", "abc", "--only", "*.wte.weight"]);
    assert!(table.starts_with("loss ") && table.lines().count() == 3, "{table}");
    let table = inspect("trace", &["--prompt", "abc"]);
    let scores = table.lines().find(|line| line.starts_with("blocks.0.attention.scores"));
    assert!(
        scores.is_some_and(|row| row.contains("1 × 4 × 3 × 3") && row.contains("−∞")),
        "{table}"
    );
    inspect("trace", &["--prompt", "abc", "--only", "blocks.0.norm1", "--out", &file("t.npy")]);
}
