//! `hearken generate`, end to end.

use crate::common::{ran, run};
use crate::{CHARACTERS, model_directory, numbers, parse, with_model, write_model};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

/// JSON of a run with these arguments.
fn generate(directory: &Path, rest: &[&str]) -> Value {
    let rest = [rest, &["--json"]].concat();
    parse(&run(&mut with_model(&["generate"], directory, &rest)).succeeded().stdout)
}

fn text(directory: &Path, rest: &[&str]) -> String {
    run(&mut with_model(&["generate"], directory, rest)).succeeded().stdout
}

#[test]
fn the_same_seed_gives_the_same_text_and_another_gives_another() {
    let directory = model_directory();
    let of = |seed| text(directory.path(), &["--prompt", "once", "--seed", seed, "-n", "40"]);
    let one = of("1");
    assert_eq!(one.chars().count(), 41, "40 characters and the end of the line: {one:?}");
    assert_eq!(one, of("1"));
    assert_ne!(one, of("2"));
    let threads = run(with_model(
        &["generate"],
        directory.path(),
        &["--prompt", "once", "--seed", "1", "-n", "40"],
    )
    .env("HEARKEN_THREADS", "3"));
    assert_eq!(one, threads.succeeded().stdout);
}

#[test]
fn json_has_the_documented_keys() {
    let directory = model_directory();
    let rest = ["--prompt", "ab", "--seed", "5", "-n", "6", "--show-probabilities"];
    let json = generate(directory.path(), &rest);
    assert_eq!(json["model"], directory.path().to_str().unwrap());
    assert_eq!((&json["seed"], &json["finish"]), (&5.into(), &"length".into()));
    let id = |c| CHARACTERS.find(c).unwrap() as u32;
    assert_eq!(numbers(&json["prompt_ids"]), [id('a'), id('b')]);
    let ids = numbers(&json["ids"]);
    let text: String = ids.iter().map(|id| CHARACTERS.chars().nth(*id as usize).unwrap()).collect();
    assert_eq!((json["text"].as_str().unwrap(), ids.len()), (text.as_str(), 6));
    assert!(json["seconds"].as_f64().unwrap() > 0.0);
    assert!(json["tokens_per_second"].as_f64().unwrap() > 0.0);
    for (step, id) in json["steps"].as_array().unwrap().iter().zip(&ids) {
        assert_eq!(step["id"].as_u64().unwrap(), u64::from(*id));
        assert!((0.0..=1.0).contains(&step["probability"].as_f64().unwrap()));
        let candidates = step["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), 5);
        let chances: Vec<f64> =
            candidates.iter().map(|c| c["probability"].as_f64().unwrap()).collect();
        assert!(chances.is_sorted_by(|a, b| a >= b), "{chances:?}");
        assert!(candidates.iter().all(|c| c["text"].is_string() && c["id"].is_u64()));
    }
}

#[test]
fn every_cache_writes_what_no_cache_writes() {
    let directory = model_directory();
    // Longer than the context of 16, so that it is forgotten and read again.
    let of = |cache| {
        let rest = ["--prompt", "once", "--temperature", "0", "-n", "50", "--cache", cache];
        text(directory.path(), &rest)
    };
    let plain = of("none");
    assert_eq!(of("f32"), plain);
    assert_eq!(of("f16").chars().count(), plain.chars().count());
    assert_eq!(of("int8").chars().count(), plain.chars().count());
}

#[test]
fn a_stop_text_ends_the_text_before_it() {
    let directory = model_directory();
    let rest = ["--prompt", "once", "--seed", "1", "-n", "60"];
    let whole = generate(directory.path(), &rest)["text"].as_str().unwrap().to_owned();
    // Two characters from the middle: somewhere they come first.
    let stop = &whole[20..22];
    let json = generate(directory.path(), &[&rest[..], &["--stop", stop]].concat());
    assert_eq!(json["finish"], "stop");
    assert_eq!(json["text"].as_str().unwrap(), &whole[..whole.find(stop).unwrap()]);
    let plain = text(directory.path(), &[&rest[..], &["--stop", stop, "--stop", "?"]].concat());
    assert_eq!(plain, format!("{}\n", &whole[..whole.find(stop).unwrap()]));
}

#[test]
fn the_prompt_may_come_from_a_file_or_stdin_or_be_tokens() {
    let directory = model_directory();
    let path = directory.path();
    let want = text(path, &["--prompt", "once", "--seed", "1"]);
    let file = path.join("prompt.txt");
    std::fs::write(&file, "once").unwrap();
    assert_eq!(want, text(path, &["--prompt-file", file.to_str().unwrap(), "--seed", "1"]));
    let ids: Vec<String> =
        "once".chars().map(|c| CHARACTERS.find(c).unwrap().to_string()).collect();
    assert_eq!(want, text(path, &["--ids", &ids.join(","), "--seed", "1"]));
    let mut command = with_model(&["generate"], path, &["--seed", "1"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"once\n").unwrap();
    assert_eq!(want, ran(child.wait_with_output().unwrap()).succeeded().stdout);
    // An empty prompt begins like a line.
    let empty = generate(path, &["--prompt", "", "-n", "1"]);
    assert_eq!(numbers(&empty["prompt_ids"]), [0]);
}

#[test]
fn without_a_tokenizer_tokens_go_in_and_out() {
    let directory = model_directory();
    std::fs::remove_file(directory.path().join("tokenizer.json")).unwrap();
    let rest = ["--ids", "1,2,3", "--seed", "4", "-n", "5"];
    let line = text(directory.path(), &rest);
    let ids: Vec<u32> = line.trim_end().split(',').map(|id| id.parse().unwrap()).collect();
    let json = generate(directory.path(), &rest);
    assert_eq!(ids, numbers(&json["ids"]));
    assert_eq!(json["text"], Value::Null);
    run(&mut with_model(&["generate"], directory.path(), &["--prompt", "a"]))
        .refused("has no tokenizer.json");
    let stop = [&rest[..], &["--stop", "x"]].concat();
    run(&mut with_model(&["generate"], directory.path(), &stop)).refused("has no tokenizer");
}

#[test]
fn beams_are_sorted_and_one_is_greedy() {
    let directory = model_directory();
    let rest = ["--prompt", "once", "-n", "8"];
    let greedy = generate(directory.path(), &[&rest[..], &["--temperature", "0"]].concat());
    let one = generate(directory.path(), &[&rest[..], &["--beams", "1"]].concat());
    assert_eq!(one["ids"], greedy["ids"]);
    let many = generate(
        directory.path(),
        &[&rest[..], &["--beams", "4", "--length-penalty", "0"]].concat(),
    );
    let beams = many["beams"].as_array().unwrap();
    assert_eq!(
        (beams.len(), &many["ids"], &many["text"]),
        (4, &beams[0]["ids"], &beams[0]["text"])
    );
    let scores: Vec<f64> = beams.iter().map(|beam| beam["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    assert_eq!(beams[0]["score"], beams[0]["log_probability"]);
}

#[test]
fn runs_are_found_with_their_best_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |rest: &[&str]| {
        let mut command = crate::hearken(&[&["generate", "--prompt", "once"], rest].concat());
        run(command.current_dir(folder.path()))
    };
    in_folder(&[]).refused("'runs' does not exist");
    let checkpoints = folder.path().join("runs/mine/checkpoints");
    write_model(&checkpoints.join("step-000010"));
    in_folder(&[]).refused("no run in 'runs' has a checkpoint");
    in_folder(&["--model", "runs/mine"]).refused("has no checkpoint yet");
    hearken::train::files::point(&checkpoints.join("last"), "step-000010").unwrap();
    let of = |rest: &[&str]| {
        let rest = [rest, &["--seed", "1", "--json"]].concat();
        parse(&in_folder(&rest).succeeded().stdout)["model"].as_str().unwrap().to_owned()
    };
    for rest in [&[][..], &["--model", "runs/mine"], &["--model", "mine"]] {
        assert_eq!(Path::new(&of(rest)), Path::new("runs/mine/checkpoints/step-000010"));
    }
    write_model(&checkpoints.join("step-000005"));
    hearken::train::files::point(&checkpoints.join("best"), "step-000005").unwrap();
    assert!(of(&[]).ends_with("step-000005"));
}

#[test]
fn probabilities_and_speed_are_for_the_eye() {
    let directory = model_directory();
    let rest = ["--prompt", "a", "-n", "3", "--show-probabilities", "--verbose", "--seed", "9"];
    let ran = run(&mut with_model(&["generate"], directory.path(), &rest)).succeeded();
    assert_eq!(ran.stdout.lines().count(), 3, "{}", ran.stdout);
    assert!(ran.stdout.lines().all(|line| line.starts_with('"')), "{}", ran.stdout);
    assert!(ran.stderr.contains("wrote 3 in") && ran.stderr.contains("seed 9"), "{}", ran.stderr);
}

#[test]
fn bad_input_is_refused_with_a_hint() {
    let directory = model_directory();
    let refused = |rest: &[&str], what: &str| {
        run(&mut with_model(&["generate"], directory.path(), rest)).refused(what);
    };
    let prompt = ["--prompt", "a"];
    let with = |rest: &[&'static str]| [&prompt[..], rest].concat();
    refused(&with(&["--temperature", "-1"]), "temperature is -1");
    refused(&with(&["--top-p", "1.5"]), "top-p is 1.5");
    refused(&with(&["--top-k", "0"]), "top-k is 0");
    refused(&with(&["--repetition-penalty", "0"]), "repetition penalty is 0");
    refused(&with(&["--beams", "0"]), "0 beams");
    refused(&with(&["--beams", "2", "--seed", "1"]), "--seed");
    refused(&with(&["--beams", "2", "--cache", "none"]), "--cache is none");
    refused(&with(&["--cache", "int4"]), "int4");
    refused(&with(&["--ids", "1"]), "--ids");
    refused(&["--ids", "1,x"], "'x' is no token");
    refused(&["--ids", "29"], "the model knows only 29");
    refused(&["--prompt", "ABC"], "'A'");
    refused(&["--prompt-file", "no-such-file"], "no-such-file");
    let missing = Path::new("no-such-model");
    run(&mut with_model(&["generate"], missing, &prompt)).refused("no-such-model does not exist");
    let empty = tempfile::tempdir().unwrap();
    run(&mut with_model(&["generate"], empty.path(), &prompt)).refused("neither a model nor a run");
    // A tokenizer that knows more than the model.
    let larger: Vec<char> = (' '..='~').collect();
    let tokenizer = hearken::data::tokenizer::Tokenizer::of_characters(&larger);
    tokenizer.save(&directory.path().join("tokenizer.json")).unwrap();
    refused(&prompt, "the tokenizer has 95 tokens, but the model knows only 29");
}

#[test]
fn a_reader_who_leaves_early_is_no_error() {
    let directory = model_directory();
    let mut command =
        with_model(&["generate"], directory.path(), &["--prompt", "a", "-n", "20000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let ran = ran(child.wait_with_output().unwrap()); // stdout is closed by now
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

#[test]
fn what_is_left_out_of_a_long_prompt_is_said() {
    let directory = model_directory();
    let prompt = "abc ".repeat(100);
    let long = ["--prompt", &prompt, "-n", "3", "--temperature", "0"];
    let ran = run(&mut with_model(&["generate"], directory.path(), &long)).succeeded();
    assert!(
        ran.stderr.contains("the prompt has 400 tokens and the model reads "),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("are left out"), "{}", ran.stderr);
    let short = ["--prompt", "abc", "-n", "3"];
    let ran = run(&mut with_model(&["generate"], directory.path(), &short)).succeeded();
    assert_eq!(ran.stderr, "");
}

#[test]
fn samples_are_the_texts_of_their_seeds() {
    let directory = model_directory();
    let base = ["--prompt", "once", "-n", "30", "--stop", "e"];
    let several =
        generate(directory.path(), &[&base[..], &["--samples", "3", "--seed", "5"]].concat());
    let samples = several["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 3);
    for (sample, seed) in samples.iter().zip(["5", "6", "7"]) {
        let alone = generate(directory.path(), &[&base[..], &["--seed", seed]].concat());
        for key in ["seed", "ids", "text", "finish"] {
            assert_eq!(sample[key], alone[key], "{key} of seed {seed}");
        }
    }
    assert_eq!(several["text"], samples[0]["text"]);
    let shown =
        text(directory.path(), &["--prompt", "a", "-n", "4", "--samples", "2", "--seed", "8"]);
    assert!(shown.starts_with("── seed 8 ──\n") && shown.contains("\n── seed 9 ──\n"), "{shown}");
    let both = ["--prompt", "a", "--samples", "2", "--beams", "2"];
    run(&mut with_model(&["generate"], directory.path(), &both)).refused("--beams");
}

#[test]
fn a_draft_writes_the_same_text_and_says_how_much_was_kept() {
    let (directory, draft) = (model_directory(), model_directory());
    let draft = draft.path().to_str().unwrap();
    // Longer than the context of 16.
    let rest = ["--prompt", "once", "--temperature", "0", "-n", "40"];
    let plain = text(directory.path(), &rest);
    let with = ["--draft", draft, "--draft-tokens", "3"];
    let ran = run(&mut with_model(&["generate"], directory.path(), &[&rest[..], &with].concat()));
    let ran = ran.succeeded();
    assert_eq!(ran.stdout, plain);
    assert!(ran.stderr.contains("drafted tokens (100 %)"), "{}", ran.stderr);
    let json = generate(directory.path(), &[&rest[..], &with].concat());
    assert_eq!(json["draft"]["kept"], json["draft"]["drafted"]);
    assert_eq!(json["draft"]["rate"], 1.0);
    let refused = |rest: &[&str], message: &str| {
        run(&mut with_model(&["generate"], directory.path(), rest)).refused(message);
    };
    refused(&["--prompt", "a", "--draft", draft, "--draft-tokens", "8"], "--draft-tokens");
    refused(&["--prompt", "a", "--draft", draft, "--cache", "none"], "--cache is none");
    refused(&["--prompt", "a", "--draft", draft, "--beams", "2"], "--beams");
}

#[test]
fn contrastive_search_is_greedy_without_a_penalty_and_checks_its_settings() {
    let directory = model_directory();
    let of =
        |more: &[&str]| text(directory.path(), &[&["--prompt", "once", "-n", "10"], more].concat());
    // Within the context of 16: beyond it, the search forgets a token earlier, to have room for one.
    let greedy = of(&["--temperature", "0"]);
    assert_eq!(of(&["--contrastive", "0,4"]), greedy);
    assert_ne!(of(&["--contrastive", "0.9,4"]), greedy);
    let json = generate(directory.path(), &["--prompt", "once", "--contrastive", "0.6,3"]);
    assert_eq!(json["seed"], Value::Null);
    let refused = |value: &str, message: &str| {
        let rest = ["--prompt", "a", "--contrastive", value];
        run(&mut with_model(&["generate"], directory.path(), &rest)).refused(message);
    };
    refused("1.5,4", "penalty of contrastive search is 1.5");
    refused("0.5,0", "among 0 candidates");
    refused("0.5", "such as 0.6,4");
}

#[test]
fn a_temperature_that_is_saved_with_the_model_is_used() {
    let directory = model_directory();
    let rest = ["--prompt", "a", "-n", "1", "--seed", "1", "--show-probabilities"];
    let first = |rest: &[&str]| {
        let json = generate(directory.path(), rest);
        json["steps"][0]["candidates"][0]["probability"].as_f64().unwrap()
    };
    let as_trained = first(&[&rest[..], &["--temperature", "1"]].concat());
    let hotter = first(&[&rest[..], &["--temperature", "2"]].concat());
    assert!(hotter < as_trained);
    let file = directory.path().join("calibration.json");
    std::fs::write(&file, "{\"temperature\": 2.0}").unwrap();
    assert_eq!(first(&[&rest[..], &["--temperature", "1"]].concat()), hotter);
    let without = [&rest[..], &["--temperature", "1", "--uncalibrated"]].concat();
    assert_eq!(first(&without), as_trained);
    let ran = run(&mut with_model(&["generate"], directory.path(), &rest)).succeeded();
    assert!(ran.stderr.contains("divided by 2.000"), "{}", ran.stderr);
    std::fs::write(&file, "{\"temperature\": -1}").unwrap();
    run(&mut with_model(&["generate"], directory.path(), &rest)).refused("calibration.json");
}
