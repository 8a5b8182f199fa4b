//! `hearken doctor`, end to end.

mod common;

use common::{hearken, ran, run};
use hearken::tensor::ops;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn every_operation_is_listed_and_right() {
    let ran = run(&mut hearken(&["doctor"])).succeeded();
    for op in ops::NAMES {
        // On 80 columns a long name is cut, and ends in "…".
        let row = ran.stdout.lines().find(|line| {
            let name = line.split_whitespace().next().unwrap_or_default();
            name == *op || name.strip_suffix('…').is_some_and(|start| op.starts_with(start))
        });
        let row = row.unwrap_or_else(|| panic!("no row for {op} in\n{}", ran.stdout));
        assert!(row.ends_with("  ok"), "{row}");
    }
    for name in ["cpu", "simd", "fma peak", "reads"] {
        assert!(ran.stdout.lines().any(|line| line.starts_with(name)), "{}", ran.stdout);
    }
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\x1b'), "escape codes in a pipe:\n{}", ran.stdout);
    assert_eq!(ran.stderr, "", "progress is for terminals only");
}

#[test]
fn json_has_the_documented_keys() {
    let ran = run(&mut hearken(&["doctor", "--json", "--op", "linear", "--op", "add"])).succeeded();
    let report: Value = serde_json::from_str(&ran.stdout).expect("stdout is one JSON value");
    assert_eq!(report["ok"], true);
    assert_eq!(report["failed"], Value::Array(vec![]));
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
    assert!(report["machine"]["cpu"].is_string() && report["machine"]["simd"].is_string());
    assert!(report["machine"]["features"].is_array());
    assert!(report["machine"]["cores"].as_u64().unwrap() >= 1);
    assert!(report["machine"]["threads"].as_u64().unwrap() >= 1);
    for threads in ["one_thread", "all_threads"] {
        assert!(report["peak"][threads]["gflops"].as_f64().unwrap() > 0.0);
        assert!(report["peak"][threads]["read_gb_per_second"].as_f64().unwrap() > 0.0);
    }
    let ops = report["ops"].as_array().unwrap();
    let names: Vec<&str> = ops.iter().map(|op| op["op"].as_str().unwrap()).collect();
    assert_eq!(names, ["add", "linear"]);
    for op in ops {
        assert!(op["ok"] == true && op["accumulates"] == true && op["same_bits"] == true);
        for way in ["forward", "backward"] {
            let worst = &op[way];
            assert!(worst["error"].as_f64().unwrap() <= worst["bound"].as_f64().unwrap());
            assert!(op["cases"].as_array().unwrap().iter().any(|c| c["case"] == worst["case"]));
        }
        for case in op["cases"].as_array().unwrap() {
            assert!(case["ok"] == true && case["faults"] == Value::Array(vec![]));
            assert!(case["forward"].as_f64().unwrap() <= case["forward_bound"].as_f64().unwrap());
            for input in case["backward"].as_array().unwrap() {
                assert!(input["input"].is_string());
                assert!(input["error"].as_f64() <= case["backward_bound"].as_f64());
            }
            assert!(case["bound_reason"].is_string());
            assert!(case["accumulates"] == true && case["same_bits"] == true);
        }
    }
}

#[test]
fn verbose_lists_cases() {
    let ran = run(&mut hearken(&["doctor", "--op", "linear", "--verbose"])).succeeded();
    for case in ops::linear::cases() {
        assert!(ran.stdout.contains(&format!("\n  {} ", case.name)), "{}", ran.stdout);
    }
}

#[test]
fn a_forced_instruction_set_and_thread_count_are_used_and_shown() {
    let mut command = hearken(&["doctor", "--op", "linear"]);
    let ran = run(command.env("HEARKEN_SIMD", "portable").env("HEARKEN_THREADS", "3")).succeeded();
    assert!(ran.stdout.contains("portable on 3 threads"), "{}", ran.stdout);
}

#[test]
fn empty_variables_are_as_good_as_none() {
    let mut command = hearken(&["doctor", "--op", "add"]);
    run(command.env("HEARKEN_SIMD", "").env("HEARKEN_THREADS", "")).succeeded();
}

#[test]
fn bad_input_is_refused_with_a_hint() {
    run(&mut hearken(&["doctor", "--opp", "add"])).refused("--opp");
    run(&mut hearken(&["doctro"])).refused("doctro");
    run(&mut hearken(&["doctor", "--op", "liner"])).refused("did you mean linear");
    run(&mut hearken(&["doctor", "--op", "zzz"])).refused("the operations are ");
    let simd = |value| run(hearken(&["doctor"]).env("HEARKEN_SIMD", value));
    simd("neon").refused("HEARKEN_SIMD is 'neon'");
    let threads = |value| run(hearken(&["doctor"]).env("HEARKEN_THREADS", value));
    threads("0").refused("HEARKEN_THREADS is '0'");
    threads("many").refused("HEARKEN_THREADS is 'many'");
}

#[test]
fn help_is_on_stdout_with_examples_and_no_arguments_show_it_too() {
    for command in [&["--help"][..], &["doctor", "--help"], &["bench", "gemm", "--help"]] {
        let ran = run(&mut hearken(command)).succeeded();
        assert!(ran.stdout.contains("Examples:\n  hearken "), "{}", ran.stdout);
        assert!(!ran.stdout.contains('\x1b'));
    }
    let nothing = run(&mut hearken(&[]));
    assert_eq!(nothing.code, Some(2));
    assert!(nothing.stderr.contains("Usage: hearken"), "{}", nothing.stderr);
}

#[test]
fn a_reader_who_leaves_early_is_no_error() {
    let mut command = hearken(&["doctor", "--op", "add", "--verbose"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("cpu"), "{first}");
    let ran = ran(child.wait_with_output().unwrap()); // stdout is closed by now
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}
