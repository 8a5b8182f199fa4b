//! A run that is stopped, killed or damaged anywhere ends like one that was not: the same bits.

mod common;

use common::{Network, bits, config, setup, untimed};
use hearken_kernels::threads::with_threads;
use hearken_store::TensorFile;
use hearken_train::ema::EmaConfig;
use hearken_train::files::{self, checksum};
use hearken_train::interrupt::Stop;
use hearken_train::optimizer::{Beta2Warmup, MuonAdjust};
use hearken_train::{Kind, OptimizerConfig, Outcome, Precision, TrainConfig, train};
use std::fs;
use std::path::Path;

fn network() -> Network {
    Network { dropout: 0.2, ..Network::new() }
}

/// Trains in `path` to the end, from wherever it is, and gives the final bits.
fn finish(config: &TrainConfig, path: &Path) -> Vec<u32> {
    let mut network = network();
    let summary = train(&mut network, config, setup(path)).unwrap();
    assert_eq!(summary.outcome, Outcome::Finished);
    bits(&network)
}

/// Trains until the stop flag is set during step `step` (from 1).
fn interrupt_in(config: &TrainConfig, path: &Path, step: u64) {
    let stop = Stop::default();
    let mut network = network();
    network.stop_in = Some((step, stop.clone()));
    let mut setup = setup(path);
    setup.stop = stop;
    let summary = train(&mut network, config, setup).unwrap();
    assert_eq!((summary.outcome, summary.step), (Outcome::Interrupted, step));
}

#[track_caller]
fn assert_same_files(a: &Path, b: &Path, what: &str) {
    for name in ["metrics.jsonl", "diagnostics.jsonl"] {
        assert_eq!(untimed(&a.join(name)), untimed(&b.join(name)), "{what}: {name}");
    }
    let samples = |dir: &Path| fs::read_to_string(dir.join("samples.txt")).unwrap();
    assert_eq!(samples(a), samples(b), "{what}: samples.txt");
}

#[test]
fn stopping_after_any_step_changes_no_bit() {
    let dir = tempfile::tempdir().unwrap();
    let config = TrainConfig { steps: 20, ..config() };
    let whole = dir.path().join("whole");
    let want = finish(&config, &whole);
    for step in 1..config.steps {
        let path = dir.path().join(format!("stopped-{step}"));
        interrupt_in(&config, &path, step);
        // Another number of threads must not matter either.
        let got = with_threads(1 + step as usize % 4, || finish(&config, &path));
        assert_eq!(got, want, "stopped after step {step}");
        assert_same_files(&whole, &path, &format!("stopped after step {step}"));
    }
}

#[test]
fn every_part_of_the_state_is_saved() {
    let muon = OptimizerConfig::Muon {
        momentum: 0.9,
        nesterov: true,
        iterations: 5,
        adjust: MuonAdjust::MatchAdamw,
        lr_factor: 1.0,
        weight_decay: 0.1,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
    };
    let warmup = Some(Beta2Warmup { from: 0.9, steps: 30 });
    let adam = OptimizerConfig::Adam {
        beta1: 0.9,
        beta2: 0.99,
        eps: 1e-8,
        l2: 0.01,
        beta2_warmup: warmup,
    };
    let base = config();
    let variants = [
        (
            "sgd",
            TrainConfig {
                optimizer: OptimizerConfig::Sgd {
                    momentum: 0.0,
                    nesterov: false,
                    averaged: false,
                    l2: 0.0,
                },
                ..base.clone()
            },
        ),
        (
            "momentum",
            TrainConfig {
                optimizer: OptimizerConfig::Sgd {
                    momentum: 0.9,
                    nesterov: true,
                    averaged: false,
                    l2: 0.1,
                },
                lr: 1e-4,
                ..base.clone()
            },
        ),
        ("adam with beta2 warm-up", TrainConfig { optimizer: adam, ..base.clone() }),
        (
            "lion",
            TrainConfig {
                optimizer: OptimizerConfig::Lion { beta1: 0.9, beta2: 0.99, weight_decay: 0.1 },
                lr: 1e-3,
                ..base.clone()
            },
        ),
        ("muon", TrainConfig { optimizer: muon, ..base.clone() }),
        ("average", TrainConfig { ema: Some(EmaConfig { decay: 0.9 }), ..base.clone() }),
        ("accumulation", TrainConfig { accumulate: 4, ..base.clone() }),
        ("in parallel", TrainConfig { accumulate: 2, parallel_parts: 2, ..base.clone() }),
        ("bf16", TrainConfig { precision: Precision::Bf16, ..base.clone() }),
        ("f16", TrainConfig { precision: Precision::F16, ..base.clone() }),
    ];
    for (name, config) in variants {
        let dir = tempfile::tempdir().unwrap();
        let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
        let want = finish(&config, &whole);
        for step in [3, 14, 29] {
            interrupt_in(&config, &parts, step);
        }
        assert_eq!(finish(&config, &parts), want, "{name}");
        assert_same_files(&whole, &parts, name);
    }
}

/// What kill −9 leaves: files from a later step than the last checkpoint, half a line, half a
/// checkpoint.
#[test]
fn what_a_kill_leaves_behind_does_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let config = config();
    let whole = dir.path().join("whole");
    let want = finish(&config, &whole);
    let path = dir.path().join("killed");
    interrupt_in(&config, &path, 23);
    let checkpoints = path.join("checkpoints");
    fs::remove_dir_all(checkpoints.join("step-000023")).unwrap();
    let half = checkpoints.join(".unfinished-step-000025-1");
    fs::create_dir(&half).unwrap();
    fs::write(half.join("model.safetensors"), "half").unwrap();
    for name in ["metrics.jsonl", "diagnostics.jsonl"] {
        let mut text = fs::read_to_string(path.join(name)).unwrap();
        text.push_str("{\"step\": 24, \"train_lo");
        fs::write(path.join(name), text).unwrap();
    }
    assert_eq!(finish(&config, &path), want);
    assert_same_files(&whole, &path, "killed");
    assert!(!half.exists());
}

#[test]
fn a_kill_before_the_first_checkpoint_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = config();
    let whole = dir.path().join("whole");
    let want = finish(&config, &whole);
    let path = dir.path().join("killed");
    interrupt_in(&config, &path, 3);
    fs::remove_dir_all(path.join("checkpoints")).unwrap();
    assert_eq!(finish(&config, &path), want);
    assert_same_files(&whole, &path, "killed at the start");
}

#[test]
fn damaged_checkpoints_are_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let config = config();
    let whole = dir.path().join("whole");
    let want = finish(&config, &whole);
    for file in ["model.safetensors", "optimizer.safetensors", "trainer_state.json"] {
        let path = dir.path().join(file);
        interrupt_in(&config, &path, 22);
        let damaged = path.join("checkpoints/last").join(file);
        let bytes = fs::read(&damaged).unwrap();
        fs::write(&damaged, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(finish(&config, &path), want, "{file}");
        assert_same_files(&whole, &path, file);
        assert!(path.join("checkpoints/damaged-step-000022").exists());
    }
}

#[test]
fn a_full_disk_leaves_the_checkpoint_before() {
    let dir = tempfile::tempdir().unwrap();
    let config = config();
    let want = finish(&config, &dir.path().join("whole"));
    let path = dir.path().join("full");
    let mut full = network();
    full.full_from = Some(20);
    let error = train(&mut full, &config, setup(&path)).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), Kind::Io(std::io::ErrorKind::StorageFull), "{text}");
    assert!(error.message().starts_with("cannot save "), "{text}");
    assert!(
        text.contains("is whole")
            && text.contains("hint: free some space, then continue with --resume"),
        "{text}"
    );
    assert_eq!(finish(&config, &path), want, "after making room");
}

#[test]
fn another_seed_or_optimiser_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    interrupt_in(&config(), dir.path(), 10);
    let before = fs::read_dir(dir.path().join("checkpoints")).unwrap().count();
    let lion = OptimizerConfig::Lion { beta1: 0.9, beta2: 0.99, weight_decay: 0.1 };
    let variants =
        [TrainConfig { seed: 8, ..config() }, TrainConfig { optimizer: lion, ..config() }];
    for (other, what) in variants.into_iter().zip(["seed is 7, not 8", "adamw, not lion"]) {
        let error = train(&mut network(), &other, setup(dir.path())).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("hint: "), "{error}");
    }
    assert_eq!(fs::read_dir(dir.path().join("checkpoints")).unwrap().count(), before);
}

#[test]
fn more_steps_can_be_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    finish(&config(), dir.path());
    let more = TrainConfig { steps: 50, ..config() };
    finish(&more, dir.path());
    assert_eq!(untimed(&dir.path().join("metrics.jsonl")).len(), 50);
    // Asked again, there is nothing left to do.
    finish(&more, dir.path());
    assert_eq!(untimed(&dir.path().join("metrics.jsonl")).len(), 50);
}

/// Changes the state of the newest checkpoint, and its checksum with it.
fn edit_state(path: &Path, edit: impl FnOnce(&mut serde_json::Value)) {
    let checkpoint = path.join("checkpoints/last");
    let (file, sums) = (checkpoint.join("trainer_state.json"), checkpoint.join("SHA256SUMS"));
    let before = checksum(&file).unwrap();
    let mut state = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    edit(&mut state);
    fs::write(&file, state.to_string()).unwrap();
    let text = fs::read_to_string(&sums).unwrap();
    fs::write(&sums, text.replace(&before, &checksum(&file).unwrap())).unwrap();
}

#[test]
fn a_run_of_format_1_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let config = TrainConfig { evaluate_tokens: 1, ..config() };
    let whole = dir.path().join("whole");
    let want = finish(&config, &whole);
    let path = dir.path().join("old");
    interrupt_in(&config, &path, 23);
    edit_state(&path, |state| {
        state["format"] = 1.into();
        let best = &mut state["evaluations"]["best"];
        let loss = best["metrics"][0].clone();
        assert_eq!(loss["name"], "loss");
        *best = serde_json::json!({
            "step": best["step"],
            "val_loss": loss["value"],
            "sample_loss": loss["sample"],
            "whole": best["whole"],
        });
    });
    // Its lines knew the loss alone.
    let metrics = path.join("metrics.jsonl");
    let lines = fs::read_to_string(&metrics).unwrap();
    let line = |line: &str| {
        let mut row: serde_json::Value = serde_json::from_str(line).unwrap();
        row.as_object_mut().unwrap().retain(|key, _| !key.contains("score"));
        row.to_string() + "\n"
    };
    fs::write(&metrics, lines.lines().map(line).collect::<String>()).unwrap();
    assert_eq!(finish(&config, &path), want);
    let best = |path: &Path| fs::read_link(path.join("checkpoints/best")).unwrap();
    assert_eq!(best(&path), best(&whole));
    let losses = |path: &Path| {
        let rows = untimed(&path.join("metrics.jsonl"));
        rows.iter()
            .map(|row| (row["val_loss"].clone(), row["train_loss"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(losses(&path), losses(&whole));
}

#[test]
fn a_state_of_a_later_format_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    interrupt_in(&config(), dir.path(), 12);
    edit_state(dir.path(), |state| {
        state["format"] = 3.into();
        state["evaluations"] = "unknown".into();
    });
    let error = train(&mut network(), &config(), setup(dir.path())).unwrap_err();
    assert!(
        error.message().contains("trainer_state.json has format 3, expected 1 to 2"),
        "{error}"
    );
    assert!(error.hint().unwrap().starts_with("resume with the version of hearken"), "{error}");
    assert!(dir.path().join("checkpoints/step-000012").exists());
}

/// Parameters that do not learn stay as they are, and belong to the model's files.
#[test]
fn frozen_parameters_stay_and_resume() {
    let frozen = || {
        let network = network();
        network.parameters[0].set_trainable(false);
        network
    };
    let config = TrainConfig { ema: Some(EmaConfig { decay: 0.9 }), ..config() };
    let run = |path: &Path, config: &TrainConfig| {
        let mut network = frozen();
        train(&mut network, config, setup(path)).unwrap();
        network
    };
    let dir = tempfile::tempdir().unwrap();
    let whole = run(&dir.path().join("whole"), &config);
    assert_eq!(whole.parameters[0].value().data(), network().parameters[0].value().data());
    assert_ne!(whole.parameters[2].value().data(), network().parameters[2].value().data());
    let path = dir.path().join("parts");
    let stop = Stop::default();
    let mut part = frozen();
    part.stop_in = Some((17, stop.clone()));
    let mut setup = setup(&path);
    setup.stop = stop;
    assert_eq!(train(&mut part, &config, setup).unwrap().outcome, Outcome::Interrupted);
    assert_eq!(bits(&run(&path, &config)), bits(&whole));
    let file = TensorFile::open(&path.join("checkpoints/last/optimizer.safetensors")).unwrap();
    let named = |name: &str| files::tensors_with_prefix(&file, name).unwrap().len();
    assert_eq!((named("first.layers.0.bias"), named("weight.layers.0.bias")), (1, 1));
    assert_eq!((named("first.layers.0.weight"), named("weight.layers.0.weight")), (0, 0));
    let model = path.join("checkpoints/last/model.safetensors");
    let model = TensorFile::open(&model).unwrap();
    assert_eq!(files::tensors_with_prefix(&model, "").unwrap().len(), 3);
}
