//! `hearken train` as a person runs it: files, resume after a kill, and bad input.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A directory that is gone when dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("hearken-train-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn hearken(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hearken"));
        command.current_dir(&self.0).env_remove("HEARKEN_THREADS").stdin(Stdio::null());
        command
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const TINY: &str = r#"
[model]
kind = "decoder"
context = 16
layers = 2
width = 16
heads = 2
dropout = { residual = 0.1, attention = 0.1 }
[train]
steps = 12
batch_size = 4
accumulate = 2
parallel_parts = 2
schedule = { kind = "constant" }
evaluate_every = 4
checkpoint_every = 3
sample_every = 6
"#;

fn text() -> String {
    "the cat sat on the mat and the dog sat on the log; ".repeat(40)
}

fn run(command: &mut Command) -> Output {
    command.output().expect("the binary starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The lines of metrics.jsonl without what depends on the clock.
fn metrics(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &mut lines {
        let line = line.as_object_mut().unwrap();
        line.remove("tokens_per_second");
        line.remove("elapsed_seconds");
    }
    lines
}

fn last_weights(run: &Path) -> Vec<u8> {
    std::fs::read(run.join("checkpoints/step-000012/model.safetensors")).unwrap()
}

#[test]
fn a_run_leaves_its_files() {
    let here = Temporary::new("files");
    here.file("tiny.toml", TINY);
    here.file("cats.txt", text());
    let output = run(here.hearken().args(["train", "--config", "tiny.toml", "--data", "cats.txt"]));
    assert!(output.status.success(), "{}", stderr(&output));
    let directory = here.0.join("runs/cats");
    for name in ["config.toml", "metrics.jsonl", "loss.svg", "report.html", "samples.txt"] {
        assert!(directory.join(name).is_file(), "{name}");
    }
    for name in ["config.json", "model.safetensors", "tokenizer.json", "optimizer.safetensors"] {
        assert!(directory.join("checkpoints/step-000012").join(name).is_file(), "{name}");
    }
    let lines = metrics(&directory);
    assert_eq!(lines.iter().filter(|line| line["train_loss"].is_number()).count(), 12);
    for key in ["step", "train_loss", "lr", "grad_norm"] {
        assert!(lines[0].get(key).is_some(), "{key}");
    }
    let first = lines[0]["train_loss"].as_f64().unwrap();
    let last = lines.iter().rev().find_map(|line| line["train_loss"].as_f64()).unwrap();
    assert!(last < first, "{first} → {last}");
    // A second run with the same name gets a directory of its own.
    let again = run(here.hearken().args(["train", "--config", "tiny.toml", "--data", "cats.txt"]));
    assert!(again.status.success() && here.0.join("runs/cats-2").is_dir());
    assert_eq!(last_weights(&directory), last_weights(&here.0.join("runs/cats-2")));
}

/// 4,096 tokens at a time: of three times as many held out, a sample is the first third.
#[test]
fn evaluations_on_the_way_look_at_a_sample_and_the_last_at_everything() {
    let here = Temporary::new("sample");
    here.file("tiny.toml", TINY);
    let word = |i: usize| ["cat ", "dog ", "mat ", "the ", "sat "][i * i / 7 % 5];
    here.file("cats.txt", (0..6_000).map(word).collect::<String>());
    let losses = |out: &str, tokens: &str| {
        let mut train = here.hearken();
        train.args(["train", "--config", "tiny.toml", "--data", "cats.txt", "--out", out]);
        train.args(["--set", "data.validation=0.5", "--set", tokens]);
        let output = run(&mut train);
        assert!(output.status.success(), "{}", stderr(&output));
        let lines = metrics(&here.0.join(out));
        lines.iter().filter_map(|line| line["val_loss"].as_f64()).collect::<Vec<f64>>()
    };
    let (all, some) =
        (losses("all", "train.evaluate_tokens=0"), losses("some", "train.evaluate_tokens=5000"));
    assert_eq!((all.len(), some.len()), (3, 3));
    assert!(all[0] != some[0] && all[1] != some[1], "{all:?} {some:?}");
    assert_eq!(all[2], some[2]);
    assert_eq!(all, losses("enough", "train.evaluate_tokens=13000"));
}

#[test]
fn a_killed_run_goes_on_as_if_nothing_had_been() {
    let here = Temporary::new("kill");
    here.file("tiny.toml", TINY);
    here.file("cats.txt", text());
    let arguments = ["train", "--config", "tiny.toml", "--data", "cats.txt", "--out"];
    assert!(run(here.hearken().args(arguments).arg("whole")).status.success());
    for (i, after) in ["step-000003", "step-000006", "step-000009"].into_iter().enumerate() {
        let out = format!("killed-{i}");
        let mut child =
            here.hearken().args(arguments).arg(&out).stderr(Stdio::null()).spawn().unwrap();
        let checkpoint = here.0.join(&out).join("checkpoints").join(after);
        let start = Instant::now();
        while !checkpoint.exists() && child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_mins(2), "no checkpoint came");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        // With another number of threads, too.
        let threads = (i + 1).to_string();
        let mut resume = here.hearken();
        let output = run(resume.env("HEARKEN_THREADS", threads).args(["train", "--resume", &out]));
        assert!(output.status.success(), "{}", stderr(&output));
        let (whole, killed) = (here.0.join("whole"), here.0.join(&out));
        assert_eq!(metrics(&whole), metrics(&killed));
        assert_eq!(last_weights(&whole), last_weights(&killed));
    }
}

#[test]
fn bad_input_is_named_with_a_hint_and_exit_code_2() {
    let here = Temporary::new("bad");
    here.file("tiny.toml", TINY);
    here.file("cats.txt", text());
    here.file("empty.txt", "");
    here.file("binary.txt", [0_u8, 159, 146, 150, 0, 1, 2, 3]);
    here.file("short.txt", "abc");
    here.file("key.toml", TINY.replace("heads", "haeds"));
    here.file("type.toml", TINY.replace("width = 16", "width = \"wide\""));
    here.file("heads.toml", TINY.replace("heads = 2", "heads = 3"));
    here.file("vocabulary.toml", TINY.replace("context = 16", "context = 16\nvocabulary = 5"));
    for (config, data, named) in [
        ("tiny.toml", "missing.txt", "missing.txt"),
        ("tiny.toml", "empty.txt", "empty"),
        ("tiny.toml", "binary.txt", "binary.txt"),
        ("tiny.toml", "short.txt", ""),
        ("key.toml", "cats.txt", "did you mean heads?"),
        ("type.toml", "cats.txt", "type.toml"),
        ("heads.toml", "cats.txt", "heads"),
        ("vocabulary.toml", "cats.txt", "vocabulary"),
        ("missing.toml", "cats.txt", "missing.toml"),
    ] {
        let output = run(here.hearken().args(["train", "--config", config, "--data", data]));
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{config} {data}: {text}");
        assert!(text.contains(named) && text.contains("hint: "), "{config} {data}: {text}");
        assert!(!text.contains("panicked"), "{text}");
    }
    for arguments in [
        ["--resume", "nowhere"].as_slice(),
        &["--data", "cats.txt", "./cats.txt"],
        &["--data", "cats.txt", "--steps", "5", "--set", "train.schedule.warmup=6"],
        &["--data", "cats.txt", "--set", "model.width=0"],
        &["--data", "cats.txt", "--set", "model.layers=1000000"],
        &["--data", "cats.txt", "--set", "model.width=33554432"],
        &["--data", "cats.txt", "--batch-size", "1000000000000000000"],
        &["--data", "cats.txt", "--batch-size", "999999999999999999"],
        &["--data", "cats.txt", "--set", "train.parallel_parts=0"],
        &["--data", "cats.txt", "--set", "train.parallel_parts=1000000000000"],
        &[
            "--data",
            "cats.txt",
            "--set",
            "data.tokenizer=bpe",
            "--set",
            "data.vocabulary=9999999999",
        ],
        &["--config", "."],
        &["--resume", "cats.txt"],
        &["--data", "cats.txt", "--lr", "-1"],
        &["--data", "cats.txt", "--set", "train.lrr=1"],
        &["--data", "cats.txt", "--out", "cats.txt"],
    ] {
        let output = run(here.hearken().arg("train").args(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains("hint: "), "{}", stderr(&output));
    }
    // Runs that could not begin leave nothing behind.
    let left = std::fs::read_dir(here.0.join("runs")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "run directories stay behind");
}

#[test]
fn a_short_run_warms_up_shortly_unless_told_otherwise() {
    let here = Temporary::new("short");
    // The defaults, but for a model that is quick.
    let model = TINY.split("[train]").next().unwrap();
    here.file("model.toml", format!("{model}[train]\nbatch_size = 4\n"));
    here.file(
        "warm.toml",
        format!("{model}[train]\nschedule = {{ kind = \"linear\", warmup = 30 }}\n"),
    );
    here.file("cats.txt", text());
    let train = |config: &str, more: &[&str]| {
        let mut command = here.hearken();
        run(command.args(["train", "--config", config, "--data", "cats.txt"]).args(more))
    };
    for steps in ["1", "25"] {
        let output = train("model.toml", &["--steps", steps, "--out", steps]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let config = std::fs::read_to_string(here.0.join("25/config.toml")).unwrap();
    assert!(config.contains("warmup = 2\n"), "{config}"); // a tenth
    let lines = metrics(&here.0.join("25"));
    let rates: Vec<f64> = lines.iter().map(|line| line["lr"].as_f64().unwrap()).collect();
    assert!(rates[0] < rates[1] && rates[1] < rates[2] && rates[2] > rates[3], "{rates:?}");
    for (config, more) in [
        ("warm.toml", ["--steps", "25"].as_slice()),
        ("model.toml", &["--steps", "25", "--set", "train.schedule.warmup=30"]),
    ] {
        let output = train(config, more);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let hint = "hint: a tenth is usual: --set train.schedule.warmup=2";
        assert!(stderr(&output).contains(hint), "{}", stderr(&output));
    }
}

/// A directory with a finished run of twelve steps in `run`.
fn with_a_run(name: &str) -> Temporary {
    let here = Temporary::new(name);
    here.file("tiny.toml", TINY);
    here.file("cats.txt", text());
    let train = ["train", "--config", "tiny.toml", "--data", "cats.txt", "--out", "run"];
    assert!(run(here.hearken().args(train)).status.success());
    here
}

fn config_of_run(here: &Temporary) -> String {
    std::fs::read_to_string(here.0.join("run/config.toml")).unwrap()
}

#[test]
fn a_run_cannot_be_resumed_to_fewer_steps_than_it_has() {
    let here = with_a_run("fewer");
    let before = config_of_run(&here);
    let resume =
        |steps: &str| run(here.hearken().args(["train", "--resume", "run", "--steps", steps]));
    let output = resume("5");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("error: 12 steps are done already"), "{}", stderr(&output));
    assert!(stderr(&output).contains("hint: to go on"), "{}", stderr(&output));
    assert_eq!(config_of_run(&here), before);
    assert!(resume("12").status.success(), "all are done, and that is no error");
    assert!(resume("14").status.success());
    assert_eq!(metrics(&here.0.join("run")).len(), 14);
}

#[test]
fn a_resume_that_is_refused_changes_nothing() {
    let here = with_a_run("refused");
    let before = config_of_run(&here);
    for set in ["model.width=32", "train.optimizer.kind=muon"] {
        let more = ["train", "--resume", "run", "--steps", "14", "--set", set];
        let output = run(here.hearken().args(more));
        assert_eq!(output.status.code(), Some(2), "{set}: {}", stderr(&output));
        assert!(stderr(&output).contains("hint: "), "{}", stderr(&output));
        assert_eq!(config_of_run(&here), before, "{set}");
    }
    let output = run(here.hearken().args(["train", "--resume", "run", "--steps", "14"]));
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn files_of_others_are_not_overwritten() {
    let here = Temporary::new("others");
    here.file("tiny.toml", TINY);
    here.file("samples.txt", text());
    let train = ["train", "--config", "tiny.toml", "--data", "samples.txt", "--out", "."];
    let output = run(here.hearken().args(train));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("samples.txt is there already"), "{}", stderr(&output));
    assert!(stderr(&output).contains("hint: choose another --out"), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(here.0.join("samples.txt")).unwrap(), text());
}

/// As in `hearken train 2>&1 | head -1`: the run goes on, since its files are what matters.
#[test]
fn a_reader_who_leaves_early_does_not_end_the_run() {
    let here = Temporary::new("pipe");
    here.file("tiny.toml", TINY);
    here.file("cats.txt", text());
    let arguments = ["train", "--config", "tiny.toml", "--data", "cats.txt", "--out", "run"];
    let mut command = here.hearken();
    let mut child =
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(metrics(&here.0.join("run")).len(), 12);
}

#[test]
fn the_report_of_the_stories_says_why_training_lies_above() {
    let here = Temporary::new("stories");
    let tiny = TINY.replace("context = 16", "context = 256").replace("steps = 12", "steps = 2");
    here.file("tiny.toml", format!("{tiny}[data]\nstories = 5\n"));
    let output = run(here.hearken().args(["train", "--config", "tiny.toml", "--out", "run"]));
    assert!(output.status.success(), "{}", stderr(&output));
    let report = std::fs::read_to_string(here.0.join("run/report.html")).unwrap();
    let lines = metrics(&here.0.join("run"));
    let loss = |key: &str| lines[1][key].as_f64().unwrap();
    let is_above = loss("train_loss") > loss("val_loss");
    assert_eq!(report.contains("Training lies above validation because"), is_above);
}

/// What a first try in the same directory has left there must not be taken for this run's own.
#[test]
fn a_run_that_never_began_leaves_no_tokens_to_the_next() {
    let here = Temporary::new("stale");
    here.file("tiny.toml", TINY);
    here.file("cats.txt", text());
    let bad = ["train", "--config", "tiny.toml", "--set", "model.vocabulary=5", "--data"];
    let output = run(here.hearken().args(bad).args(["cats.txt", "--out", "run"]));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    here.file("dogs.txt", text().replace('c', "x"));
    let good = ["train", "--config", "tiny.toml", "--data", "dogs.txt", "--out", "run"];
    let output = run(here.hearken().args(good));
    assert!(output.status.success(), "{}", stderr(&output));
    let tokenizer = std::fs::read_to_string(here.0.join("run/tokenizer.json")).unwrap();
    assert!(tokenizer.contains("\"x\"") && !tokenizer.contains("\"c\""), "{tokenizer}");
}

#[test]
fn a_directory_in_use_is_refused() {
    let here = Temporary::new("lock");
    here.file("tiny.toml", TINY.replace("steps = 12", "steps = 100000"));
    here.file("cats.txt", text());
    let arguments = ["train", "--config", "tiny.toml", "--data", "cats.txt", "--out", "run"];
    let mut child = here.hearken().args(arguments).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while !here.0.join("run/metrics.jsonl").exists() {
        assert!(start.elapsed() < Duration::from_mins(2), "the run does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let again = [&["train", "--resume", "run"][..], &arguments]
        .map(|again| run(here.hearken().args(again)));
    child.kill().unwrap();
    child.wait().unwrap();
    for output in again {
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let told = stderr(&output);
        assert!(told.contains("in use by another run") && told.contains("hint: "), "{told}");
    }
}

#[test]
fn a_model_with_room_for_more_tokens_trains_and_writes() {
    let here = Temporary::new("room");
    here.file("tiny.toml", TINY.replace("context = 16", "context = 16\nvocabulary = 500"));
    here.file("cats.txt", text());
    let train = ["train", "--config", "tiny.toml", "--data", "cats.txt", "--out", "run"];
    let output = run(here.hearken().args(train));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("different tokens"), "{}", stderr(&output));
    assert!(here.0.join("run/checkpoints/step-000012/model.safetensors").is_file());
    let samples = std::fs::read_to_string(here.0.join("run/samples.txt")).unwrap();
    assert!(samples.contains("=== step 12 ==="), "{samples}");
}

#[test]
fn a_resumed_run_keeps_its_tokenizer_and_its_text() {
    let here = Temporary::new("kept");
    here.file("tiny.toml", TINY);
    here.file("cats.txt", text());
    let tokenizer = |kind: &str| {
        let train = ["tokenizer", "train", "--kind", kind, "--out", "mine.json", "cats.txt"];
        let output = run(here.hearken().args(train));
        assert!(output.status.success(), "{}", stderr(&output));
    };
    tokenizer("bpe");
    let train = ["train", "--config", "tiny.toml", "--data", "cats.txt", "--out", "run"];
    let set = ["--set", "data.tokenizer_file=mine.json"];
    let output = run(here.hearken().args(train).args(set));
    assert!(output.status.success(), "{}", stderr(&output));
    let kept = std::fs::read(here.0.join("run/tokenizer.json")).unwrap();
    std::fs::remove_file(here.0.join("mine.json")).unwrap();
    tokenizer("byte");
    let resume =
        |steps: &str| run(here.hearken().args(["train", "--resume", "run", "--steps", steps]));
    let output = resume("14");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(std::fs::read(here.0.join("run/tokenizer.json")).unwrap(), kept);
    // Another text is another run; the old one put back goes on.
    here.file("cats.txt", text().replace("cat", "rat"));
    let output = resume("16");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("the text has changed since this run began"));
    assert!(stderr(&output).contains("hint: "), "{}", stderr(&output));
    here.file("cats.txt", text());
    let output = resume("16");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(metrics(&here.0.join("run")).len(), 16);
}

#[test]
fn a_damaged_checkpoint_is_not_written_with() {
    let here = with_a_run("damaged");
    let flip = |step: &str| {
        let path = here.0.join("run/checkpoints").join(step).join("model.safetensors");
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    };
    let generate = || {
        run(here.hearken().args(["generate", "--model", "run", "--prompt", "the", "--tokens", "3"]))
    };
    assert!(generate().status.success());
    // The best is another than the last.
    let best = here.0.join("run/checkpoints/best");
    std::fs::remove_file(&best).unwrap();
    std::fs::write(&best, "step-000009").unwrap();
    flip("step-000009");
    let output = generate();
    let told = stderr(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("step-000009 is damaged: model.safetensors"), "{told}");
    assert!(told.contains("step-000012 instead"), "{told}");
    flip("step-000012");
    let output = generate();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("step-000012 is damaged: model.safetensors"), "{told}");
    assert!(told.contains("hint: use another checkpoint"), "{told}");
}
