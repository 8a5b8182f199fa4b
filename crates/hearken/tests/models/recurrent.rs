//! Models without attention go through every command as others do.

use crate::common::{hearken, run};
use crate::parse;

#[test]
fn every_kind_is_planned_trained_resumed_evaluated_and_writes() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(
        at("text.txt"),
        "the cat sat on the mat and the dog sat on the log; ".repeat(60),
    )
    .unwrap();
    let text = at("text.txt");
    for preset in ["rnn-small", "gru-small", "lstm-small", "convolution-small"] {
        let plan = run(&mut hearken(&["plan", "--config", preset, "--json"])).succeeded();
        let plan = parse(&plan.stdout);
        assert!(plan["parameters"].as_u64().unwrap() > 100_000, "{preset}");
        let out = at(preset);
        let train = |steps: &str, more: &[&str]| {
            let sets = ["--set", "model.width=24", "--set", "model.layers=2"];
            let rest =
                ["--set", "model.context=16", "--set", "train.batch_size=4", "--steps", steps];
            let base = ["train", "--config", preset, "--data", &text, "--out", &out];
            run(&mut hearken(&[&base[..], &sets, &rest, more].concat())).succeeded();
        };
        train("4", &[]);
        train("6", &["--resume"]);
        let eval = run(&mut hearken(&["eval", "--model", &out, "--json"])).succeeded();
        let loss = &parse(&eval.stdout)["metrics"]["loss"];
        assert!(loss.as_f64().is_some_and(f64::is_finite), "{preset}: {}", eval.stdout);
        let write = ["generate", "--model", &out, "--prompt", "the ", "-n", "40", "--seed", "1"];
        let written = run(&mut hearken(&write)).succeeded().stdout;
        assert_eq!(written.chars().count(), 41, "{preset}: longer than a window");
        assert_eq!(run(&mut hearken(&write)).succeeded().stdout, written, "{preset}");
        let trace = ["inspect", "trace", "--model", &out, "--ids", "1,2,3"];
        run(&mut hearken(&[&trace[..], &["--out", &at("trace.safetensors")]].concat())).succeeded();
        let explain = ["explain", "--model", &out, "--prompt", "the cat"];
        run(&mut hearken(&explain)).refused("a model without attention");
    }
}

#[test]
fn bad_configurations_are_refused() {
    for (preset, set, message) in [
        ("lstm-small", "model.cell=lstn", "lstm"),
        ("lstm-small", "model.width=0", "model.width is 0"),
        ("lstm-small", "model.heads=4", "heads"),
        ("lstm-small", "model.dropout=1.5", "model.dropout is 1.5"),
        ("convolution-small", "model.kernel=0", "model.kernel is 0"),
        ("convolution-small", "model.layers=40", "model.cycle is 40"),
        ("convolution-small", "model.cycle=0", "model.cycle is 0"),
    ] {
        run(&mut hearken(&["plan", "--config", preset, "--set", set])).refused(message);
    }
}
