//! `hearken eval`, end to end.

use crate::common::run;
use crate::{CHARACTERS, config, model_directory, parse, with_model, write_model};
use hearken::data::tokenizer::Tokenizer;
use hearken::formats::SpecialTokens;
use hearken::nn::config::{DecoderConfig, PositionConfig, RopeScaling, StackConfig};
use hearken::nn::models::{Decoder, Generates, Model, PredictsTokens, Tokens};
use hearken::nn::pass::Pass;
use hearken::nn::taps::{Pattern, Taps, zero};
use hearken::tensor::Tensor;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

const TEXT: &str = "once upon a time there was a cat.\nit sat on the mat and looked at the moon.\n";

fn evaluate(directory: &Path, rest: &[&str]) -> Value {
    let data = directory.join("text.txt");
    std::fs::write(&data, TEXT).unwrap();
    let rest = [&["--data", data.to_str().unwrap(), "--json"], rest].concat();
    parse(&run(&mut with_model(&["eval"], directory, &rest)).succeeded().stdout)
}

/// Mean of −ln p of every character but the first: from its window's beginning if the windows lie
/// `stride` apart.
fn by_hand(text: &str, stride: usize) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let model = write_model(folder.path());
    let ids: Vec<u32> = text.chars().map(|c| CHARACTERS.find(c).unwrap() as u32).collect();
    let context = config().context;
    let mut sum = 0.0;
    for target in 1..ids.len() {
        // The first window that has the target.
        let index = target.saturating_sub(context).div_ceil(stride);
        let seen = &ids[index * stride..target];
        let logits = model.next_logits(seen, 1);
        let exp: Vec<f64> = logits.data().iter().map(|l| f64::from(*l).exp()).collect();
        sum -= (exp[ids[target] as usize] / exp.iter().sum::<f64>()).ln();
    }
    sum / (ids.len() - 1) as f64
}

#[test]
fn the_loss_is_that_of_every_token_but_the_first() {
    let directory = model_directory();
    let json = evaluate(directory.path(), &[]);
    let number = |key: &str| json[key].as_f64().unwrap();
    let want = by_hand(TEXT, 16);
    // f32 logits, and sums in another order.
    assert!((number("loss") - want).abs() < 1e-5, "{} and {want}", number("loss"));
    assert!((number("perplexity") - number("loss").exp()).abs() < 1e-9);
    // One byte per token here.
    assert!((number("bits_per_byte") - number("loss") / std::f64::consts::LN_2).abs() < 1e-9);
    assert_eq!(number("targets") as usize, TEXT.len() - 1);
    assert_eq!(number("bytes") as usize, TEXT.len() - 1);
    assert_eq!((number("context"), number("stride")), (16.0, 16.0));
    assert_eq!(number("windows") as usize, (TEXT.len() - 1).div_ceil(16));
    assert!(number("seconds") > 0.0 && number("tokens_per_second") > 0.0);
}

#[test]
fn windows_may_overlap_and_come_in_any_batches() {
    let directory = model_directory();
    let json = evaluate(directory.path(), &["--stride", "5", "--batch-size", "3"]);
    let want = by_hand(TEXT, 5);
    assert!((json["loss"].as_f64().unwrap() - want).abs() < 1e-5, "{json} and {want}");
    let again = evaluate(directory.path(), &["--stride", "5", "--batch-size", "1"]);
    let (a, b) = (json["loss"].as_f64().unwrap(), again["loss"].as_f64().unwrap());
    // Rows do not see each other; only the order of the sum differs.
    assert!((a - b).abs() < 1e-9, "{a} and {b}");
}

#[test]
fn the_split_is_that_of_training() {
    let directory = model_directory();
    let json = evaluate(directory.path(), &["--split", "validation"]);
    let train = (0.9 * TEXT.len() as f64) as usize;
    assert_eq!(json["targets"].as_u64().unwrap() as usize, TEXT.len() - train - 1);
    let want = by_hand(&TEXT[train..], 16);
    assert!((json["loss"].as_f64().unwrap() - want).abs() < 1e-5);
    let json = evaluate(directory.path(), &["--split", "train"]);
    assert_eq!(json["targets"].as_u64().unwrap() as usize, train - 1);
}

#[test]
fn the_table_names_what_was_counted() {
    let directory = model_directory();
    let data = directory.path().join("text.txt");
    std::fs::write(&data, TEXT).unwrap();
    let rest = ["--data", data.to_str().unwrap()];
    let ran = run(&mut with_model(&["eval"], directory.path(), &rest)).succeeded();
    for name in ["loss", "perplexity", "bits/byte", "counted", "windows", "time"] {
        assert!(ran.stdout.lines().any(|line| line.starts_with(name)), "{}", ran.stdout);
    }
    assert_eq!(ran.stderr, "", "progress is for terminals only");
}

#[test]
fn bad_input_is_refused_with_a_hint() {
    let directory = model_directory();
    let refused = |rest: &[&str], what: &str| {
        run(&mut with_model(&["eval"], directory.path(), rest)).refused(what);
    };
    let file = |name: &str, content: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let text = file("text.txt", TEXT.as_bytes());
    refused(&[], "is not of a run");
    refused(&["--data", "no-such-file"], "no-such-file does not exist");
    refused(&["--data", &file("empty.txt", b"")], "empty");
    refused(&["--data", &file("binary.txt", &[0, 159, 146, 150])], "not a text file");
    refused(&["--data", &file("short.txt", b"a")], "one window takes 2");
    refused(&["--data", &file("other.txt", b"ABC")], "'A'");
    refused(&["--data", &text, "--stride", "17"], "a stride of 17, expected 1 to 16");
    refused(&["--data", &text, "--stride", "0"], "a stride of 0");
    refused(&["--data", &text, "--context", "17"], "a window of 17");
    refused(&["--data", &text, "--batch-size", "0"], "a batch size of 0");
    refused(&["--data", &text, "--split", "validation", "--validation", "2"], "2");
    std::fs::remove_file(directory.path().join("tokenizer.json")).unwrap();
    refused(&["--data", &text], "has no tokenizer.json");
}

/// Windows are as long as the text, not as the context that a stranger's file claims.
#[test]
fn a_claimed_context_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let config = DecoderConfig {
        stack: StackConfig {
            position: PositionConfig::Rope { base: 1e4, share: 1.0, scaling: RopeScaling::None },
            ..config().stack
        },
        context: 100_000_000,
        ..config()
    };
    let model = Decoder::drawn(config, 3);
    hearken::formats::save(directory.path(), &model, &SpecialTokens::default()).unwrap();
    let characters: Vec<char> = CHARACTERS.chars().collect();
    let tokenizer = Tokenizer::of_characters(&characters);
    tokenizer.save(&directory.path().join("tokenizer.json")).unwrap();
    let text = directory.path().join("text.txt");
    std::fs::write(&text, TEXT).unwrap();
    let options = ["--data", text.to_str().unwrap(), "--json"];
    let ran = run(&mut with_model(&["eval"], directory.path(), &options)).succeeded();
    let report = parse(&ran.stdout);
    assert_eq!(report["targets"], TEXT.len() - 1);
    assert_eq!(report["context"], TEXT.len() - 1);
}

#[test]
fn weights_that_give_nan_are_an_error() {
    let directory = model_directory();
    let model = Decoder::drawn(config(), 3);
    let weight = &model.parameters()[0];
    weight.set_value(Tensor::full(weight.value().shape(), f32::NAN));
    hearken::formats::save(directory.path(), &model, &SpecialTokens::default()).unwrap();
    let text = directory.path().join("text.txt");
    std::fs::write(&text, TEXT).unwrap();
    let options = ["--data", text.to_str().unwrap()];
    let ran = run(&mut with_model(&["eval"], directory.path(), &options));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("NaN") && ran.stderr.contains("hint: "), "{}", ran.stderr);
}

/// Stdin is kept where only its owner can look, and only as long as it is needed.
#[cfg(unix)]
#[test]
fn what_is_read_from_stdin_is_private_and_goes() {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Stdio;
    use std::time::{Duration, Instant};
    let directory = model_directory();
    let temporary = tempfile::tempdir().unwrap();
    let kept = || {
        let entries = std::fs::read_dir(temporary.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let start = |data: &[&str]| {
        let rest = [&["--data"], data].concat();
        let mut command = with_model(&["eval"], directory.path(), &rest);
        command.env("TMPDIR", temporary.path()).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut child = start(&["-", "--json"]);
    child.stdin.as_mut().unwrap().write_all(TEXT.as_bytes()).unwrap();
    let ran = crate::common::ran(child.wait_with_output().unwrap()).succeeded();
    assert_eq!(parse(&ran.stdout)["targets"], TEXT.len() - 1);
    assert_eq!(kept(), Vec::<std::path::PathBuf>::new());
    // One whose input never ends: the directory is there, and its owner's alone.
    let mut child = start(&["-"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(TEXT.as_bytes()).unwrap();
    let since = Instant::now();
    while kept().is_empty() {
        assert!(since.elapsed() < Duration::from_mins(1), "nothing is kept");
        std::thread::sleep(Duration::from_millis(20));
    }
    let [folder] = &kept()[..] else { panic!("{:?}", kept()) };
    assert_eq!(std::fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(!folder.ends_with(format!("hearken-eval-{}", child.id())));
    let deadline = Instant::now() + Duration::from_mins(1);
    // Until the handler is there, Ctrl-C would end the program as ever.
    std::thread::sleep(Duration::from_millis(500));
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it does not stop");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(130));
    assert_eq!(kept(), Vec::<std::path::PathBuf>::new());
    drop(input);
}

#[cfg(unix)]
#[test]
fn text_may_come_from_a_pipe() {
    let directory = model_directory();
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let to = pipe.clone();
    let writer = std::thread::spawn(move || std::fs::write(to, TEXT));
    let rest = ["--data", pipe.to_str().unwrap(), "--json"];
    let ran = run(&mut with_model(&["eval"], directory.path(), &rest)).succeeded();
    writer.join().unwrap().unwrap();
    assert_eq!(parse(&ran.stdout)["targets"], TEXT.len() - 1);
    run(&mut with_model(&["eval"], directory.path(), &["--data", "/dev/zero"]))
        .refused("/dev/zero is a device");
}

/// ECE with bins of equal width over the targets of the odd windows, by its definition.
fn ece_by_hand(text: &str, bins: usize) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let model = write_model(folder.path());
    let ids: Vec<u32> = text.chars().map(|c| CHARACTERS.find(c).unwrap() as u32).collect();
    let context = config().context;
    let mut sums = vec![(0.0, 0.0); bins]; // of confidence, and right answers
    let mut count = 0.0;
    for target in (1..ids.len()).filter(|target| (target - 1) / context % 2 == 1) {
        let start = (target - 1) / context * context;
        let logits = model.next_logits(&ids[start..target], 1);
        let exp: Vec<f64> = logits.data().iter().map(|l| f64::from(*l).exp()).collect();
        let best = (0..exp.len()).max_by(|a, b| exp[*a].total_cmp(&exp[*b])).unwrap();
        let confidence = exp[best] / exp.iter().sum::<f64>();
        let bin = &mut sums[(confidence * bins as f64).ceil() as usize - 1];
        bin.0 += confidence;
        bin.1 += f64::from(u8::from(best == ids[target] as usize));
        count += 1.0;
    }
    sums.into_iter().map(|(confidence, right)| f64::abs(confidence - right)).sum::<f64>() / count
}

#[test]
fn the_calibration_error_is_the_references() {
    let directory = model_directory();
    let json = evaluate(directory.path(), &["--calibration", "--bins", "12"]);
    let want = ece_by_hand(TEXT, 12);
    let got = json["metrics"]["ece"].as_f64().unwrap();
    assert!((got - want).abs() < 1e-6, "{got} and {want}");
    assert_eq!(json["calibration"]["before"]["bins"].as_array().unwrap().len(), 12);
    let counted = |key: &str| json["calibration"][key].as_u64().unwrap() as usize;
    assert_eq!(counted("fitted_on") + counted("judged_on"), TEXT.len() - 1);
    let plain = run(&mut with_model(&["eval", "--save-temperature"], directory.path(), &["x"]));
    plain.refused("--calibration");
}

#[test]
fn examples_in_the_prompt_are_asked_of_any_decoder() {
    let folder = tempfile::tempdir().unwrap();
    let stack = StackConfig::new(1, 16, 2);
    let vocabulary = CHARACTERS.len();
    let config = DecoderConfig { vocabulary, ..DecoderConfig::new(128, stack) };
    let path = folder.path().join("model");
    let model = Decoder::drawn(config, 3);
    hearken::formats::save(&path, &model, &SpecialTokens::default()).unwrap();
    let characters: Vec<char> = CHARACTERS.chars().collect();
    Tokenizer::of_characters(&characters).save(&path.join("tokenizer.json")).unwrap();
    let row = |i: usize| format!("it is {}\t{}\n", ["so", "not"][i % 2], ["yes", "no"][i % 2]);
    let rows = (0..40).map(row).collect::<Vec<_>>().concat();
    let data = folder.path().join("rows.tsv");
    std::fs::write(&data, format!("text\tlabel\n{rows}")).unwrap();
    let curve = folder.path().join("curve.svg");
    let data = data.to_str().unwrap();
    let base = ["--data", data, "--shots", "0,1,4", "--template", "{text} {label}.\\n"];
    let more = ["--questions", "20", "--json", "--diagram", curve.to_str().unwrap()];
    let ran = run(&mut with_model(&["eval"], &path, &[&base[..], &more].concat())).succeeded();
    let json = parse(&ran.stdout);
    let points = json["shots"].as_array().unwrap();
    assert_eq!(points.iter().map(|p| p["shots"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 4]);
    assert!(points.iter().all(|p| (0.0..=1.0).contains(&p["accuracy"].as_f64().unwrap())));
    assert!(std::fs::read_to_string(curve).unwrap().contains("examples in the prompt"));
    // Written answers.
    let pairs = ["--data", data, "--second", "label", "--shots", "2", "--questions", "3"];
    let template = ["--template", "{text} {label}.\\n"];
    let ran = run(&mut with_model(&["eval"], &path, &[&pairs[..], &template].concat())).succeeded();
    assert!(ran.stdout.contains("F1 of words"), "{}", ran.stdout);
    run(&mut with_model(&["eval"], &path, &["--shots", "1"])).refused("few-shot");
    let long = ["--data", data, "--shots", "30", "--template", "{text} {label}.\\n"];
    run(&mut with_model(&["eval"], &path, &long)).refused("do not fit");
}

/// What `--ablate` silences is what the library silences by the same name.
#[test]
fn a_head_or_a_layer_can_be_ablated() {
    let directory = model_directory();
    let model = write_model(directory.path());
    let loss = |rest: &[&str]| evaluate(directory.path(), rest)["loss"].as_f64().unwrap();
    let [head, layer] = ["blocks.0.attention.mixed[1]", "blocks.1.feed_forward.out"];
    let by_library = |names: &[&str]| {
        let mut taps = Taps::new();
        for name in names {
            taps = taps.replace(Pattern::parse(name).unwrap(), zero);
        }
        let taps = Arc::new(taps);
        let ids: Vec<u32> = TEXT.chars().map(|c| CHARACTERS.find(c).unwrap() as u32).collect();
        let context = config().context;
        let mut sum = 0.0;
        for start in (0..ids.len() - 1).step_by(context) {
            let end = (start + context).min(ids.len() - 1);
            let pass = Pass::evaluate().watched(&taps);
            let tokens = Tokens::new(&ids[start..end], 1);
            let losses = model.token_losses_with(&tokens, &ids[start + 1..=end], &pass);
            sum += losses.data().iter().map(|loss| f64::from(*loss)).sum::<f64>();
        }
        sum / (ids.len() - 1) as f64
    };
    let (whole, without) = (loss(&[]), loss(&["--ablate", head]));
    let both = loss(&["--ablate", head, "--ablate", layer]);
    assert!((whole - by_library(&[])).abs() < 1e-5);
    assert!((without - by_library(&[head])).abs() < 1e-5, "{without}");
    assert!((both - by_library(&[head, layer])).abs() < 1e-5, "{both}");
    assert!((without - whole).abs() > 1e-6 && (both - without).abs() > 1e-6);
    let json = evaluate(directory.path(), &["--ablate", head]);
    assert_eq!(json["ablated"], serde_json::json!([head]));
    assert!(evaluate(directory.path(), &[]).get("ablated").is_none());
}
