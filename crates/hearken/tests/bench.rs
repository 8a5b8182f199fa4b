//! `hearken bench`, end to end: that it measures and answers, not how fast.

mod common;

use common::{hearken, ran, run};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

/// Sends these lines to stdin.
fn answers(arguments: &[&str], lines: &str) -> common::Ran {
    let mut command = hearken(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    ran(child.wait_with_output().unwrap())
}

#[test]
fn gemm_times_a_shape_of_your_own() {
    let own = ["bench", "gemm", "--shape", "33x17x65", "--layout", "nt", "--seconds", "0.01"];
    let table = run(&mut hearken(&own)).succeeded();
    assert!(table.stdout.contains("\n33×17×65  NT "), "{}", table.stdout);
    assert!(!table.stdout.contains('\x1b'));

    let ran = run(hearken(&own).arg("--json")).succeeded();
    let report: Value = serde_json::from_str(&ran.stdout).expect("stdout is one JSON value");
    assert!(report["peak"]["gflops"].as_f64().unwrap() > 0.0);
    let result = &report["results"][0];
    assert_eq!([&result["m"], &result["n"], &result["k"]], [&json!(33), &json!(17), &json!(65)]);
    assert!(result["layout"] == "NT" && result["write"] == "set");
    let (median, min) = (&result["seconds"]["median"], &result["seconds"]["min"]);
    assert!(median.as_f64().unwrap() >= min.as_f64().unwrap() && min.as_f64().unwrap() > 0.0);
    assert!(result["seconds"]["calls"].as_u64().unwrap() >= 3);
    assert!(result["gflops"].as_f64().unwrap() > 0.0);
    assert!(result["share_of_peak"].as_f64().unwrap() > 0.0);
    // Three matrices of f32, each on a buffer of its own.
    let least = 4 * (33 * 65 + 17 * 65 + 33 * 17);
    assert!(result["memory"]["tensors"].as_u64().unwrap() >= least);
    #[cfg(target_os = "linux")]
    assert!(result["memory"]["resident"].as_u64().unwrap() > least);
}

#[test]
fn gemm_answers_requests() {
    let request = json!({"m": 8, "n": 9, "k": 10, "layout": "TN", "write": "add", "calls": 4});
    let ran = answers(&["bench", "gemm", "--requests"], &format!("{request}\n\n{request}\n"));
    let ran = ran.succeeded();
    assert_eq!(ran.stdout.lines().count(), 2);
    for line in ran.stdout.lines() {
        let answer: Value = serde_json::from_str(line).unwrap();
        assert_eq!(answer["seconds"].as_array().unwrap().len(), 4);
    }
}

#[test]
fn bad_input_is_refused_with_a_hint() {
    run(&mut hearken(&["bench", "gemm", "--group", "gpt9"])).refused("the groups are square, gpt2");
    run(&mut hearken(&["bench", "gemm", "--shape", "3x4"])).refused("512x768x64");
    run(&mut hearken(&["bench", "gemm", "--seconds", "-1"])).refused("--seconds");
    run(&mut hearken(&["bench", "gemm", "--shape", "99999999x99999999x9"])).refused(" are free");
    answers(&["bench", "gemm", "--requests"], "{\"m\": 1}\n").refused("missing field");
}

#[test]
fn attention_times_each_length() {
    let small = ["bench", "attention", "--tokens", "33,65", "--heads", "4", "--head-width", "8"];
    let more = ["--kv-heads", "2", "--window", "16", "--backward", "--seconds", "0.01"];
    let table = run(hearken(&small).args(more)).succeeded();
    let head = "4 heads of 8 on 2 of keys, window 16, forward and backward\npeak ";
    assert!(table.stdout.starts_with(head), "{}", table.stdout);
    assert!(table.stdout.lines().all(|line| line.chars().count() <= 80), "{}", table.stdout);
    assert!(!table.stdout.contains('\x1b'));

    let ran = run(hearken(&small).args(more).arg("--json")).succeeded();
    let report: Value = serde_json::from_str(&ran.stdout).expect("stdout is one JSON value");
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    for (result, tokens) in results.iter().zip([33, 65]) {
        assert_eq!(result["tokens"], tokens);
        assert!(result["causal"] == true && result["window"] == 16);
        for times in ["forward_seconds", "backward_seconds", "seconds"] {
            assert!(result[times]["median"].as_f64().unwrap() > 0.0);
        }
        assert!(result["gflops"].as_f64().unwrap() > 0.0);
        // Queries and result of 4 heads, keys and values of 2, of 8 floats each.
        let operands = tokens * (4 + 4 + 2 + 2) * 8 * 4;
        assert_eq!(result["operand_bytes"], operands);
        assert!(result["memory"]["tensors"].as_u64().unwrap() >= operands);
    }
}

#[test]
fn every_mechanism_of_attention_is_timed() {
    for kind in ["linear", "performer", "lsh"] {
        let small = ["--tokens", "33,70", "--heads", "2", "--head-width", "8", "--seconds", "0.01"];
        let mut command = hearken(&["bench", "attention", "--causal", "--backward"]);
        let table = run(command.args(small).args(["--mechanism", kind])).succeeded().stdout;
        let head = format!("2 heads of 8, causal, {kind}, forward and backward\n");
        assert!(table.starts_with(&head), "{table}");
        assert!(table.contains("time grows as tokens to the power of "), "{table}");
    }
}

#[test]
fn attention_answers_requests() {
    let request = json!({
        "tokens": 20, "heads": 2, "kv_heads": 1, "head_width": 4, "causal": true, "window": null,
        "backward": true, "calls": 2,
    });
    let ran = answers(&["bench", "attention", "--requests"], &format!("{request}\n{request}\n"));
    let ran = ran.succeeded();
    assert_eq!(ran.stdout.lines().count(), 2);
    for line in ran.stdout.lines() {
        let answer: Value = serde_json::from_str(line).unwrap();
        assert_eq!(answer["forward_seconds"].as_array().unwrap().len(), 2);
        assert_eq!(answer["backward_seconds"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn bad_attention_is_refused_with_a_hint() {
    let attention = |arguments: &[&str]| run(hearken(&["bench", "attention"]).args(arguments));
    attention(&["--heads", "12", "--kv-heads", "5"]).refused("12 heads cannot share 5");
    attention(&["--tokens", "0"]).refused("--tokens");
    attention(&["--tokens", "10,twenty"]).refused("twenty");
    attention(&["--heads", "0"]).refused("expected a number from 1");
    attention(&["--mechanism", "linear", "--window", "9"]).refused("only softmax computes");
    attention(&["--mechanism", "lsh", "--kv-heads", "1"]).refused("queries and keys are one");
    attention(&["--tokens", "16000000", "--heads", "1000"]).refused(" are free");
}

const TINY: &str = r#"
[model]
kind = "decoder"
vocabulary = 17
context = 16
layers = 2
width = 32
heads = 2
position = { kind = "learned" }
feed_forward = { kind = "gelu-tanh" }
[bench]
batch = 3
"#;

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no number '{key}' in {value}"))
}

#[test]
fn train_has_the_documented_keys() {
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("tiny.toml"), TINY).unwrap();
    let bench = |arguments: &[&str]| {
        let mut command = hearken(&["bench", "train", "--config", "tiny.toml", "--steps", "4"]);
        run(command.args(arguments).current_dir(here.path())).succeeded().stdout
    };
    let json = bench(&["--json", "--profile", "--svg", "tiny.svg"]);
    let report: Value = serde_json::from_str(&json).expect("stdout is one JSON value");
    for key in ["ms_per_step", "ms_min", "tokens_per_second", "gflops", "peak_fraction"] {
        assert!(number(&report, key) > 0.0, "{key} in {report}");
    }
    #[cfg(target_os = "linux")]
    assert!(number(&report, "peak_rss_bytes") > number(&report, "peak_tensor_bytes"));
    assert!(number(&report, "spread") >= 0.0 && number(&report, "allocations_per_step") >= 0.0);
    assert_eq!([&report["batch"], &report["tokens"], &report["steps"]], [3, 16, 4]);
    // 48 tokens in the median time of a step.
    let tokens = number(&report, "tokens_per_second") * number(&report, "ms_per_step") / 1e3;
    assert!((tokens - 48.0).abs() < 1e-6, "{tokens}");
    let losses: Vec<f64> =
        report["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect();
    assert!(losses.len() == 4 && losses[3] < losses[0], "{losses:?}");
    let ops = report["profile"].as_array().unwrap();
    let linear = ops.iter().find(|op| op["op"] == "linear").expect("a model has linear layers");
    assert!(number(linear, "forward_ms") > 0.0 && number(linear, "backward_ms") > 0.0);
    assert!(std::fs::read_to_string(here.path().join("tiny.svg")).unwrap().starts_with("<svg"));

    let table = bench(&[]);
    assert!(
        table.contains(" ms per step (best ") && table.contains("% of the measured"),
        "{table}"
    );
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

#[test]
fn scaling_measures_and_has_the_documented_keys() {
    let here = tempfile::tempdir().unwrap();
    let scaling = |arguments: &[&str]| {
        let mut command = hearken(&["bench", "scaling", "--only", "width", "--seconds", "0.01"]);
        run(command.args(arguments).current_dir(here.path())).succeeded().stdout
    };
    let json = scaling(&["--at", "32,16", "--json", "--svg", "drawn"]);
    let report: Value = serde_json::from_str(&json).expect("stdout is one JSON value");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert!(report["machine"]["cpu"].is_string() && number(&report["peak"], "gflops") > 0.0);
    let series = report["series"].as_array().unwrap();
    assert_eq!(series.len(), 1);
    assert!(series[0]["against"] == "width" && series[0]["model"].is_string());
    let points = series[0]["points"].as_array().unwrap();
    assert_eq!(points.iter().map(|point| &point["x"]).collect::<Vec<_>>(), [16, 32]);
    for point in points {
        for key in ["us_per_token", "gflops", "peak_fraction", "expected_us_per_token"] {
            assert!(number(point, key) > 0.0, "{key} in {point}");
        }
        assert!(number(point, "median_us_per_token") >= number(point, "us_per_token"));
        assert!(number(point, "spread") >= 0.0 && number(point, "threads") >= 1.0);
        assert_eq!([&point["batch"], &point["tokens"]], [16, 64]);
    }
    assert!(points[0]["exponent"].is_null() && points[1]["exponent"].is_number());
    // Between C and C²: the head and attention weigh something beside so narrow layers.
    assert!((1.0..2.0).contains(&number(&points[1], "expected_exponent")), "{report}");
    let drawn = std::fs::read_to_string(here.path().join("drawn/scaling-width.svg")).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.ends_with("</svg>\n"));

    let table = scaling(&["--at", "16"]);
    assert!(table.starts_with("time of a token against width\n  2 layers"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

#[test]
fn bad_steps_and_sizes_are_refused_with_a_hint() {
    let bench = |arguments: &[&str]| run(hearken(&["bench"]).args(arguments));
    bench(&["train", "--config", "nowhere.toml"]).refused("nowhere.toml");
    bench(&["train", "--config", "gpt2-smal"]).refused("did you mean gpt2-small?");
    bench(&["train", "--config", "nanogpt-cpu", "--steps", "0"]).refused("--steps");
    bench(&["scaling", "--at", "64"]).refused("--only");
    bench(&["scaling", "--only", "width", "--at", "0"]).refused("--at");
    bench(&["scaling", "--only", "threads", "--at", "9999"]).refused("at most 256");
    bench(&["scaling", "--only", "width", "--at", "100000"]).refused(" are free");
}

#[test]
fn generate_times_sequences_together_and_tokens_at_places() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("small.toml");
    let model = "[model]\nvocabulary = 50\ncontext = 128\nlayers = 1\nwidth = 16\nheads = 2\n";
    std::fs::write(&config, model).unwrap();
    let bench = |rest: &[&str]| {
        let mut command = hearken(&["bench", "generate", "--config", config.to_str().unwrap()]);
        run(command.args(["--sequences", "1,3", "--at", "5,90", "--tokens", "9"]).args(rest))
    };
    let report: Value = serde_json::from_str(&bench(&["--json"]).succeeded().stdout).unwrap();
    let together = report["together"].as_array().unwrap();
    assert_eq!(together.iter().map(|t| &t["sequences"]).collect::<Vec<_>>(), [1, 3]);
    assert!(together.iter().all(|t| t["tokens_per_second"].as_f64().unwrap() > 0.0));
    let at = report["at"].as_array().unwrap();
    assert_eq!(at.len(), 6);
    // Two pages of 64 tokens, 2 heads of 8 keys and 8 values, 2 bytes each.
    assert_eq!((&at[4]["cache"], &at[4]["cache_bytes"]), (&json!("f16"), &json!(2 * 64 * 32 * 2)));
    assert_eq!(report["sampling"].as_array().unwrap().len(), 5);
    let table = bench(&[]).succeeded().stdout;
    assert!(table.contains("\nsequences ") && table.contains("\nint8 "), "{table}");
    bench(&["--at", "120"]).refused("the model's context is 128");
    run(&mut hearken(&["bench", "generate", "--config", "gpt5"])).refused("gpt5");
}
