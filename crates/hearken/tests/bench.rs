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
    run(&mut hearken(&["bench", "gemm", "--shape", "99999999x99999999x9"])).refused("MB are free");
    answers(&["bench", "gemm", "--requests"], "{\"m\": 1}\n").refused("missing field");
}
