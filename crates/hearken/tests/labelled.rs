//! Encoders trained, killed, resumed and judged as a person does it; bad rows; the tokenizer report.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Temporary(tempfile::TempDir);

impl Temporary {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    fn hearken(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hearken"));
        command.current_dir(self.0.path()).env_remove("HEARKEN_THREADS").stdin(Stdio::null());
        command.env_remove("CARGO_MANIFEST_DIR"); // Hints name `hearken`, not `cargo run`.
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.hearken().args(arguments).output().unwrap()
    }

    #[track_caller]
    fn good(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}\n{out}\n{err}");
        out
    }

    #[track_caller]
    fn bad(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let err = text(&output.stderr);
        assert!(!output.status.success() && err.contains("hint: "), "{arguments:?}\n{err}");
        assert!(!err.contains("panicked"), "{err}");
        err
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const TINY: &str = r#"
[model]
kind = "encoder"
context = 96
layers = 1
width = 16
heads = 2
position = "rope"
dropout = 0.1
head = { kind = "classes" }
[data]
stories = 12
tokenizer = "word"
[train]
steps = 8
batch_size = 4
schedule = { kind = "constant" }
evaluate_every = 4
checkpoint_every = 2
"#;

const HEADS: [(&str, &str, &str); 5] = [
    ("masks", "tokens", "loss"),
    ("classes", "classes", "accuracy"),
    ("tags", "tags", "f1"),
    ("spans", "spans", "exact_match"),
    ("pairs", "embedding", "recall_at_1"),
];

fn rows() -> String {
    let row = |i: usize| {
        format!("\"a {} thing,\n number {i}\",{}\n", ["good", "bad"][i % 2], ["up", "down"][i % 2])
    };
    "text,label\n".to_owned() + &(0..40).map(row).collect::<String>()
}

#[test]
fn every_kind_is_killed_resumed_and_judged() {
    let dir = Temporary::new();
    dir.file("tiny.toml", TINY);
    for (task, _, metric) in HEADS {
        let whole = format!("{task}-whole");
        dir.good(&["train", "--config", "tiny.toml", "--task", task, "--out", &whole, "--quiet"]);
        // Killed once it has saved something.
        let killed = format!("{task}-killed");
        let long = ["train", "--config", "tiny.toml", "--task", task, "--out", &killed, "--quiet"];
        let mut child = dir
            .hearken()
            .args(long)
            .args(["--steps", "100000", "--set", "train.evaluate_every=0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let saved = dir.0.path().join(&killed).join("checkpoints/last");
        let start = Instant::now();
        while !saved.exists() && start.elapsed() < Duration::from_mins(2) {
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        assert!(saved.exists(), "{task}: nothing was saved");
        // Its last checkpoint is whole, and the run goes on from there.
        let step = newest_step(&dir.0.path().join(&killed));
        let more = (step + 4).to_string();
        let result = dir.good(&["train", "--resume", &killed, "--steps", &more, "--quiet"]);
        assert!(result.contains(&format!("validation {metric} ")), "{task}: {result}");
        let json = dir.good(&["eval", "--model", &whole, "--json"]);
        let json: Value = serde_json::from_str(&json).unwrap();
        assert!(json["metrics"][metric].is_f64(), "{task}: {json}");
        let plain = dir.good(&["eval", "--model", &whole]);
        assert!(plain.starts_with(metric), "{plain}");
    }
}

fn newest_step(run: &Path) -> u64 {
    let names = std::fs::read_dir(run.join("checkpoints")).unwrap().flatten();
    // What the killed run was writing has another name, with the number of its process.
    let step = |name: String| -> Option<u64> { name.strip_prefix("step-")?.parse().ok() };
    let steps = names.filter_map(|entry| step(entry.file_name().into_string().unwrap()));
    steps.max().unwrap()
}

#[test]
fn rows_are_learned_from_judged_by_and_started_from() {
    let dir = Temporary::new();
    dir.file("tiny.toml", TINY);
    dir.file("rows.csv", rows());
    let first =
        dir.run(&["train", "--config", "tiny.toml", "--data", "rows.csv", "--out", "first"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(
        text(&first.stderr).contains("hearken classify --model first"),
        "{}",
        text(&first.stderr)
    );
    let judged = dir.good(&["eval", "--model", "first", "--data", "rows.csv", "--json"]);
    let judged: Value = serde_json::from_str(&judged).unwrap();
    assert_eq!(judged["rows"], 40);
    let held = dir.good(&["eval", "--model", "first", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&held).unwrap()["rows"], 4);
    // A new head on it, three epochs of 36 rows in batches of 32.
    dir.good(&["train", "--init", "first", "--data", "rows.csv", "--out", "second", "--quiet"]);
    let config = std::fs::read_to_string(dir.0.path().join("second/config.toml")).unwrap();
    assert!(config.contains("steps = 4\n") && config.contains("width = 16"), "{config}");
    dir.good(&["train", "--resume", "second", "--steps", "5", "--quiet"]);
    // Other labels than the model's.
    dir.file("other.csv", "text,label\na,sideways\n");
    let error = dir.bad(&["eval", "--model", "first", "--data", "other.csv"]);
    assert!(
        error.contains("other.csv, line 2: the label \"sideways\" is not one of the model's"),
        "{error}"
    );
    // A new head of another kind.
    dir.file("tags.conll", "good B-UP\nthing O\n\nbad B-DOWN\nthing O\n".repeat(10));
    dir.good(&[
        "train",
        "--init",
        "first",
        "--task",
        "tags",
        "--data",
        "tags.conll",
        "--epochs",
        "1",
        "--out",
        "third",
        "--quiet",
    ]);
    let error = dir.bad(&["train", "--init", "first", "--epochs", "2", "--out", "fourth"]);
    assert!(error.contains("there are no epochs"), "{error}");
}

#[test]
fn bad_rows_are_named_and_leave_no_run_behind() {
    let dir = Temporary::new();
    dir.file("tiny.toml", TINY);
    for (name, content, expected) in [
        ("label.csv", &b"text,label\na,x\nb,\n"[..], "label.csv, line 3: the label is empty"),
        (
            "missing.jsonl",
            b"{\"text\":\"a\",\"label\":1}\n{\"text\":\"b\"}\n",
            "missing.jsonl, line 2: the field \"label\" is missing",
        ),
        ("utf8.csv", b"text,label\na\xff,x\n", "utf8.csv, line 2: not UTF-8 text"),
        (
            "quote.csv",
            b"text,label\na,x\n\"b,y\n",
            "quote.csv, line 3: a quoted field that begins here is not closed",
        ),
        ("fields.tsv", b"text\tlabel\na\n", "fields.tsv, line 2: 1 fields, expected 2"),
        ("folder/good/1.txt", b"fine", "the class bad has no texts"),
    ] {
        dir.file(name, content);
        if name.starts_with("folder") {
            std::fs::create_dir_all(dir.0.path().join("folder/bad")).unwrap();
        }
        let path = name.split('/').next().unwrap();
        let error = dir.bad(&["train", "--config", "tiny.toml", "--data", path, "--out", "run"]);
        assert!(error.contains(expected), "{error}");
        assert!(!dir.0.path().join("run").exists(), "{name} left a run behind");
    }
    // Rows that are too long are cut, and counted.
    dir.file("rows.csv", rows());
    let output = dir.run(&[
        "train",
        "--config",
        "tiny.toml",
        "--data",
        "rows.csv",
        "--set",
        "data.most_tokens=5",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(
        said.contains("36 of 36 training rows are longer than 5 tokens and were cut there"),
        "{said}"
    );
}

#[test]
fn tokenizers_are_reported_on() {
    let dir = Temporary::new();
    dir.file("texts/one.txt", "the cat sat on the mat. ".repeat(40));
    dir.file("texts/two.txt", "an unseen dog");
    dir.good(&["tokenizer", "train", "--kind", "word", "--out", "w.json", "texts/one.txt"]);
    let json = dir.good(&[
        "tokenizer",
        "report",
        "--tokenizer",
        "w.json",
        "--kind",
        "bpe",
        "--vocab-size",
        "260,265",
        "texts",
        "--json",
    ]);
    let lines: Vec<Value> = serde_json::from_str(&json).unwrap();
    assert_eq!(lines.len(), 3 * 3);
    let find = |tokenizer: &str, vocabulary: u64, file: Option<&str>| {
        lines
            .iter()
            .find(|line| {
                line["tokenizer"] == tokenizer
                    && line["vocabulary"] == vocabulary
                    && match file {
                        Some(name) => line["file"].as_str().is_some_and(|f| f.ends_with(name)),
                        None => line["file"].is_null(),
                    }
            })
            .unwrap_or_else(|| panic!("no {tokenizer} {vocabulary} {file:?} in {json}"))
    };
    let known = find("w.json", 11, Some("one.txt"));
    assert_eq!((known["unknown_rate"].as_f64(), known["words"].as_u64()), (Some(0.0), Some(240)));
    assert_eq!(find("w.json", 11, Some("two.txt"))["unknown_rate"], 1.0);
    let [small, large] =
        [260, 265].map(|v| find("bpe", v, None)["bytes_per_token"].as_f64().unwrap());
    assert!(small < large, "{small} {large}");
    let table = dir.good(&["tokenizer", "report", "--kind", "byte", "texts/one.txt"]);
    assert!(table.contains("bytes/token") && table.contains("1.000"), "{table}");
    assert!(dir.bad(&["tokenizer", "report", "texts"]).contains("no tokenizer to report on"));
}

/// Rows whose label goes with their first word, but for one in four, where it is wrong: whoever learns
/// a few of them by heart is far too sure of all others.
fn noisy_rows(numbers: std::ops::Range<usize>) -> String {
    let row = |i: usize| {
        let side = i % 2;
        // A quarter, without any pattern that the words could tell.
        let wrong = (i.wrapping_mul(2_654_435_761) >> 7).is_multiple_of(4);
        let label = ["up", "down"][side ^ usize::from(wrong)];
        let word = |k: usize| format!("w{}", i.wrapping_mul(40_503 + 2 * k) >> 4 & 31);
        let [a, b, c] = [1, 2, 3].map(word);
        format!("{} {a} {b} {c},{label}\n", ["good", "bad"][side])
    };
    "text,label\n".to_owned() + &numbers.map(row).collect::<String>()
}

#[test]
fn an_overconfident_classifier_is_calibrated_and_keeps_its_temperature() {
    let dir = Temporary::new();
    let config = TINY.replace("dropout = 0.1\n", "").replace("width = 16", "width = 32");
    dir.file("tiny.toml", config.replace("[data]", "[data]\nvalidation = 0.05"));
    dir.file("few.csv", noisy_rows(0..80));
    dir.file("many.csv", noisy_rows(1000..2200));
    let train = ["train", "--config", "tiny.toml", "--data", "few.csv", "--out", "run", "--quiet"];
    let often = ["--steps", "300", "--set", "train.lr=0.003", "--set", "train.evaluate_every=0"];
    dir.good(&[&train[..], &often, &["--set", "train.checkpoint_every=300"]].concat());
    let judge = ["eval", "--model", "run", "--data", "many.csv", "--calibration"];
    let json = dir.good(&[&judge[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json).unwrap();
    let found = &json["calibration"];
    assert_eq!((&found["fitted_on"], &found["judged_on"]), (&600.into(), &600.into()));
    let number = |value: &Value| value.as_f64().unwrap();
    let (before, after) = (number(&found["before"]["ece"]), number(&found["after"]["ece"]));
    assert!(before > 0.1, "it is not overconfident: {before}");
    assert!(after <= before / 2.0, "{before} before, {after} after");
    assert_eq!(json["metrics"]["ece"], found["before"]["ece"]);
    assert_eq!(found["before"]["accuracy"], found["after"]["accuracy"]);

    // A temperature above 1 is kept, used and said; without it all is as it was.
    let classify = ["classify", "--model", "run", "good w1 w2 w3", "--json"];
    let probability = |arguments: &[&str]| {
        let json: Value = serde_json::from_str(&dir.good(arguments)).unwrap();
        number(&json["probability"])
    };
    let raw = probability(&classify);
    let saved =
        dir.good(&[&judge[..], &["--save-temperature", "--diagram", "diagram.html"]].concat());
    assert!(saved.contains("calibration.json") && saved.contains("█"), "{saved}");
    let page = std::fs::read_to_string(dir.0.path().join("diagram.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("At the fitted temperature"));
    let temperature = number(&found["after"]["temperature"]);
    assert!(temperature > 1.2, "{temperature}");
    let odds = |p: f64| (p / (1.0 - p)).ln();
    let now = probability(&classify);
    assert!((odds(now) - odds(raw) / temperature).abs() < 1e-3 * odds(raw), "{raw} became {now}");
    let said = text(&dir.run(&classify).stderr);
    assert!(said.contains("temperature saved with the model"), "{said}");
    assert_eq!(probability(&[&classify[..], &["--uncalibrated"]].concat()), raw);
    let json = dir.good(&[&judge[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["metrics"]["ece"], json["calibration"]["saved"]["ece"]);

    // Bad input.
    assert!(dir.bad(&[&judge[..], &["--bins", "0"]].concat()).contains("0 bins"));
    let bad = dir.bad(&[&judge[..], &["--diagram", "no/such/folder.svg"]].concat());
    assert!(bad.contains("cannot write"), "{bad}");
}
