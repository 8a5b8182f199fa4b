//! Run directories and checkpoints of version 0.1: the current code must generate, evaluate, list and
//! resume them as that version did. See `fixtures/runs-0.1/README.md`.
//!
//! The expected values were recorded by version 0.1 with portable code. The tests run on the
//! instruction set named by `HEARKEN_SIMD`, or on the one that the command selects.

#[expect(dead_code, reason = "no command is refused in these tests")]
mod common;

use common::{Ran, hearken, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const FINISHED: [&str; 3] = ["gpt2", "llama", "hearken"];
const STOPPED: [&str; 3] = ["interrupted", "killed", "killed-f16"];

/// Relative tolerance of the loss that `eval` reports. Instruction sets sum in different orders, which
/// changes a logit by a few units of f32's 6e-8 and the mean over 5,666 tokens by less (AVX2: at most
/// 5e-8). Ignoring the scaling of RoPE in `killed-f16` changes it by 5e-6, other settings by more.
const EVALUATION: f64 = 1e-6;

/// Relative tolerance of the losses of up to 20 resumed steps. There is no dropout, so only rounding
/// differs. Each step can amplify it, in particular where an optimiser divides by small moments
/// (AVX2: at most 1e-7). Losing moments, counters or averages changes a loss by at least 3e-3, and
/// ignoring `evaluate_tokens` changes it by 1.7e-4.
const TRAINING: f64 = 1e-4;

/// The same with activations stored as f16: a tiny difference in f32 can change a stored number by
/// one unit in the last place, 2⁻¹⁰ = 1e-3 of it (AVX2: at most 2e-4). Losing the momentum changes a
/// loss by 3e-2.
const TRAINING_F16: f64 = 1e-3;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/runs-0.1")
}

/// A copy of a run in a temporary directory, with its text beside it.
struct OldRun {
    name: &'static str,
    expected: Value,
    folder: TempDir,
}

impl OldRun {
    fn copy(name: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        copy(&fixtures().join(name), &folder.path().join(name));
        copy(&fixtures().join("tale.txt"), &folder.path().join("tale.txt"));
        let expected = std::fs::read_to_string(fixtures().join(format!("{name}.json"))).unwrap();
        Self { name, expected: serde_json::from_str(&expected).unwrap(), folder }
    }

    /// Runs the binary in the directory that holds the run and the text.
    fn hearken(&self, arguments: &[&str]) -> Ran {
        let mut command = hearken(arguments);
        let simd = std::env::var_os("HEARKEN_SIMD").map(|simd| ("HEARKEN_SIMD", simd));
        run(command.current_dir(self.folder.path()).envs(simd)).succeeded()
    }

    /// The JSON output of a command for the run's model.
    fn ask(&self, command: &[&str], rest: &[&str]) -> Value {
        let model = ["--model", self.name, "--json"];
        let ran = self.hearken(&[command, &model, rest].concat());
        serde_json::from_str(&ran.stdout).expect("stdout is one JSON value")
    }

    /// The losses in metrics.jsonl, one element per line.
    fn losses(&self) -> Vec<Losses> {
        let path = self.folder.path().join(self.name).join("metrics.jsonl");
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| Losses::of(&serde_json::from_str(line).unwrap())).collect()
    }
}

/// Copies a file, a symbolic link or a whole directory.
fn copy(from: &Path, to: &Path) {
    if from.is_symlink() {
        let target = std::fs::read_link(from).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(target, to).unwrap();
        #[cfg(not(unix))]
        std::fs::write(to, target.to_str().unwrap()).unwrap();
    } else if from.is_dir() {
        std::fs::create_dir(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        std::fs::copy(from, to).unwrap();
    }
}

/// The losses of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Losses {
    step: u64,
    training: f64,
    validation: Option<f64>,
}

impl Losses {
    fn of(row: &Value) -> Self {
        Self {
            step: row["step"].as_u64().unwrap(),
            training: row["train_loss"].as_f64().unwrap(),
            validation: row["val_loss"].as_f64(),
        }
    }

    /// The larger of the two relative differences.
    fn difference(&self, expected: &Self) -> f64 {
        let training = relative(self.training, expected.training);
        match (self.validation, expected.validation) {
            (None, None) => training,
            (Some(loss), Some(expected)) => training.max(relative(loss, expected)),
            _ => f64::INFINITY,
        }
    }
}

fn relative(got: f64, expected: f64) -> f64 {
    (got / expected - 1.0).abs()
}

/// Greedy, and `make.py` verified that no choice is a near tie, so rounding does not matter.
#[test]
fn old_models_write_the_same_text() {
    for name in FINISHED {
        let old = OldRun::copy(name);
        let expected = &old.expected["generate"];
        let prompt = expected["prompt"].as_str().unwrap();
        let tokens = expected["tokens"].to_string();
        let rest = ["--prompt", prompt, "--tokens", &tokens, "--temperature", "0", "--seed", "1"];
        let written = old.ask(&["generate"], &rest);
        assert_eq!(written["ids"], expected["ids"], "{name}");
        assert_eq!(written["text"], expected["text"], "{name}");
    }
}

#[test]
fn old_models_have_the_same_loss() {
    for name in FINISHED.into_iter().chain(STOPPED) {
        let old = OldRun::copy(name);
        let expected = &old.expected["eval"];
        let evaluated = old.ask(&["eval"], &["--data", "tale.txt"]);
        assert_eq!(evaluated["targets"], expected["targets"], "{name}");
        let losses = [&evaluated["loss"], &expected["loss"]].map(|loss| loss.as_f64().unwrap());
        let difference = relative(losses[0], losses[1]);
        assert!(difference <= EVALUATION, "{name}: loss {losses:?}, difference {difference:.1e}");
    }
}

#[test]
fn old_weights_keep_their_names_and_shapes() {
    for name in FINISHED.into_iter().chain(STOPPED) {
        let old = OldRun::copy(name);
        let listed = old.ask(&["inspect", "weights"], &[]);
        let tensors = listed["tensors"].as_array().unwrap();
        let shapes = tensors
            .iter()
            .map(|tensor| (tensor["name"].as_str().unwrap().to_owned(), tensor["shape"].clone()))
            .collect();
        assert_eq!(Value::Object(shapes), old.expected["weights"], "{name}");
    }
}

#[test]
fn old_runs_resume_to_the_same_losses() {
    for (name, tolerance) in STOPPED.into_iter().zip([TRAINING, TRAINING, TRAINING_F16]) {
        let old = OldRun::copy(name);
        let checkpoint = old.expected["resume"]["checkpoint"].as_u64().unwrap();
        let rest = old.expected["resume"]["rest"].as_array().unwrap();
        let rest: Vec<Losses> = rest.iter().map(Losses::of).collect();
        let mut kept = old.losses();
        kept.retain(|row| row.step <= checkpoint);
        old.hearken(&["train", "--resume", name]);
        let rows = old.losses();
        let (before, after) = rows.split_at(kept.len());
        assert_eq!(before, kept, "{name}: the lines up to the checkpoint are kept");
        let steps = |rows: &[Losses]| rows.iter().map(|row| row.step).collect::<Vec<_>>();
        assert_eq!(steps(after), steps(&rest), "{name}: the lines after it are written");
        for (row, expected) in after.iter().zip(&rest) {
            let difference = row.difference(expected);
            assert!(
                difference <= tolerance,
                "{name}: {row:?}, expected {expected:?}, difference {difference:.1e}"
            );
        }
    }
}
