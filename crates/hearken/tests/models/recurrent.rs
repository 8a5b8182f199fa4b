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
        let train = ["train", "--config", preset, "--data", &text, "--out", &out, "--steps", "4"];
        let sets = ["--set", "model.width=24", "--set", "model.layers=2"];
        let more = ["--set", "model.context=16", "--set", "train.batch_size=4", "--quiet"];
        run(&mut hearken(&[&train[..], &sets, &more].concat())).succeeded();
        run(&mut hearken(&["train", "--resume", &out, "--steps", "6", "--quiet"])).succeeded();
        let eval = run(&mut hearken(&["eval", "--model", &out, "--json"])).succeeded();
        let loss = &parse(&eval.stdout)["loss"];
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
fn recurrent_translators_learn_from_pairs_and_show_where_they_looked() {
    let dir = tempfile::tempdir().unwrap();
    for preset in ["numbers-bahdanau", "numbers-fixed"] {
        let plan = run(&mut hearken(&["plan", "--config", preset, "--json"])).succeeded();
        assert!(parse(&plan.stdout)["parameters"].as_u64().unwrap() > 100_000, "{preset}");
        let out = dir.path().join(preset).to_str().unwrap().to_owned();
        let sets = ["--set", "model.width=16", "--set", "data.stories=20"];
        let train = ["train", "--config", preset, "--out", &out, "--steps", "4", "--quiet"];
        run(&mut hearken(&[&train[..], &sets].concat())).succeeded();
        let eval = run(&mut hearken(&["eval", "--model", &out, "--json"])).succeeded();
        assert!(parse(&eval.stdout)["metrics"]["exact_match"].is_number(), "{}", eval.stdout);
        let translate = ["translate", "--model", &out, "--tokens", "6", "one hundred and five"];
        run(&mut hearken(&translate)).succeeded();
        let aligned =
            run(&mut hearken(&[&translate[..], &["--show-alignment", "--json"]].concat()));
        if preset == "numbers-fixed" {
            aligned.refused("attends to the source");
            continue;
        }
        let found = &parse(&aligned.succeeded().stdout)["alignment"];
        let (source, target) = (&found["source"], &found["target"]);
        let weights = found["weights"].as_array().unwrap();
        assert_eq!(weights.len(), target.as_array().unwrap().len());
        for row in weights {
            let row: Vec<f64> =
                row.as_array().unwrap().iter().map(|w| w.as_f64().unwrap()).collect();
            assert_eq!(row.len(), source.as_array().unwrap().len());
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-4, "{row:?}");
        }
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
        ("convolution-small", "model.layers=40", "model.layers is 40"),
        ("convolution-small", "model.cycle=0", "model.cycle is 0"),
    ] {
        run(&mut hearken(&["plan", "--config", preset, "--set", set])).refused(message);
    }
}
