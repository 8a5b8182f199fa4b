//! `hearken doctor --model`, end to end.

use crate::common::run;
use crate::{model_directory, parse, with_model};
use hearken::store::TensorFile;
use hearken::tensor::Tensor;

const CHECKS: [&str; 6] = ["weights", "future", "padding", "cache", "gradients", "save"];

#[test]
fn a_sound_model_passes_every_check() {
    let directory = model_directory();
    let table = run(&mut with_model(&["doctor"], directory.path(), &[])).succeeded().stdout;
    for check in CHECKS {
        let row = table.lines().find(|line| line.starts_with(check)).unwrap_or_default();
        assert!(row.split_whitespace().nth(1) == Some("ok"), "{check} in\n{table}");
    }
    assert!(table.contains("6 checks passed"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let json = run(&mut with_model(&["doctor"], directory.path(), &["--json"])).succeeded();
    let json = parse(&json.stdout);
    assert_eq!((&json["ok"], &json["failed"]), (&true.into(), &serde_json::json!([])));
    assert_eq!(json["model"]["type"], "gpt2");
    let checks = json["checks"].as_array().unwrap();
    assert_eq!(checks.iter().map(|c| c["check"].as_str().unwrap()).collect::<Vec<_>>(), CHECKS);
    for check in &checks[1..] {
        assert!(check["error"].as_f64().unwrap() <= check["bound"].as_f64().unwrap(), "{check}");
    }
}

#[test]
fn weights_that_are_not_finite_fail_with_exit_code_1() {
    let directory = model_directory();
    let path = directory.path().join("model.safetensors");
    let file = TensorFile::open(&path).unwrap();
    let mut tensors: Vec<(String, Tensor)> = file
        .entries()
        .iter()
        .map(|entry| (entry.name.clone(), file.tensor(&entry.name).unwrap()))
        .collect();
    tensors[0].1.data_mut()[0] = f32::INFINITY;
    hearken::store::write(&path, tensors.iter().map(|(n, t)| (n.as_str(), t))).unwrap();
    let ran = run(&mut with_model(&["doctor"], directory.path(), &[]));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stdout.contains("FAILED") && ran.stdout.contains("skipped"), "{}", ran.stdout);
    let said = "the model fails this check: weights";
    assert!(ran.stderr.contains(said) && ran.stderr.contains("hint: "), "{}", ran.stderr);
    run(&mut with_model(&["doctor"], directory.path(), &["--op", "add"])).refused("--op");
}
