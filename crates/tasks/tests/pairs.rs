//! Encoder-decoders learn from every kind of pairs, can be stopped and resumed, and are judged.

use hearken_data::corpus::Stop;
use hearken_kernels::threads::with_threads;
use hearken_tasks::data::FILES;
use hearken_tasks::prepared::first_model;
use hearken_tasks::{Prepared, RunConfig};
use hearken_train::{RunDirectory, Setup, Summary, train};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const BASE: &str = r#"
[model]
kind = "encoder-decoder"
context = 48
layers = 1
width = 32
heads = 2
norm = { kind = "rms", placement = "pre" }
position = { kind = "rope" }
feed_forward = { kind = "swiglu" }
dropout = 0.1

[data]
stories = 20
tokenizer = "bpe"
vocabulary = 400

[train]
steps = 6
batch_size = 8
lr = 3e-3
label_smoothing = 0.1
schedule = { kind = "constant", warmup = 0 }
evaluate_every = 3
checkpoint_every = 3
observe_every = 4
"#;

/// Words and the same words backwards.
fn rows() -> Vec<[String; 2]> {
    let words = ["one", "two", "three", "four", "five"];
    let row = |i: usize| {
        let mut said: Vec<&str> = (0..=i % 4).map(|j| words[(i * 3 + j) % 5]).collect();
        let source = format!("{} {i}", said.join(" "));
        said.reverse();
        [source, said.join(" ")]
    };
    (0..60).map(row).collect()
}

const KINDS: [&str; 4] = ["made", "pairs", "parallel", "text"];

fn config(dir: &Path, kind: &str) -> RunConfig {
    let mut config = RunConfig::parse(BASE, "base", &[]).unwrap();
    let file = |name: &str, lines: Vec<String>| -> Vec<PathBuf> {
        let path = dir.join(name);
        fs::write(&path, lines.join("\n")).unwrap();
        vec![path]
    };
    match kind {
        "pairs" => {
            let lines = rows().iter().map(|pair| pair.join("\t")).collect();
            config.data.paths = file("rows.tsv", lines);
        }
        "parallel" => {
            let [sources, targets] =
                [0, 1].map(|side| rows().iter().map(|pair| pair[side].clone()).collect());
            config.data.paths = file("rows.en", sources);
            config.data.targets = file("rows.es", targets);
        }
        "text" => {
            config.data.paths =
                file("book.txt", rows().iter().map(|pair| pair.join(" ")).collect());
            config.task.denoise = true;
        }
        // Dates, whose tokens are known.
        _ => config.data.vocabulary = None,
    }
    config
}

/// Trains so many steps, from wherever the run is; gives the weights at the end.
fn run(mut config: RunConfig, path: &Path, steps: u64) -> (Summary, Vec<u32>, Vec<String>) {
    config.train.steps = steps;
    let directory = if path.join("config.toml").exists() {
        RunDirectory::open(path).unwrap()
    } else {
        RunDirectory::create(path, &FILES).unwrap()
    };
    let data = Prepared::prepare(&mut config, &directory, &Stop::default(), &mut |_| ()).unwrap();
    let notes = data.notes().to_vec();
    let goes_on = directory.checkpoints().join("last").exists();
    let (model, _) = first_model(&config, goes_on).unwrap();
    let mut task = data.into_task(model, &config).unwrap();
    let setup = Setup::new(directory, config.to_toml().unwrap());
    let summary = train(task.as_mut(), &config.train, setup).unwrap();
    let parameters = task.parameters();
    let bits = parameters.iter().flat_map(|p| p.value().data().to_vec()).map(f32::to_bits);
    (summary, bits.collect(), notes)
}

#[test]
fn a_run_that_was_stopped_ends_with_the_same_bits_on_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let config = config(dir.path(), kind);
        let whole = dir.path().join(format!("{kind}-whole"));
        let (summary, want, _) = with_threads(2, || run(config.clone(), &whole, 6));
        let stopped = dir.path().join(format!("{kind}-stopped"));
        with_threads(1, || run(config.clone(), &stopped, 3));
        let (again, got, _) = with_threads(3, || run(config.clone(), &stopped, 6));
        assert!(want == got, "{kind}: the weights differ");
        assert_eq!(summary.validation, again.validation, "{kind}");
        let names: Vec<&str> = summary.validation.iter().map(|score| score.name.as_str()).collect();
        let expected: &[&str] = match kind {
            "made" => &["exact_match", "loss", "bleu", "chrf"],
            "text" => &["loss"],
            _ => &["loss", "exact_match", "bleu", "chrf"],
        };
        assert_eq!(names, expected, "{kind}");
        let report = fs::read_to_string(whole.join("report.html")).unwrap();
        assert!(report.contains("Alignment"), "{kind}");
        assert_eq!(report.contains("What the model writes"), kind != "text", "{kind}");
        let samples = fs::read_to_string(whole.join("samples.txt")).unwrap();
        assert!(samples.contains("→ "), "{kind}: {samples}");
    }
}

#[test]
fn a_small_model_learns_to_turn_words_around() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), "pairs");
    config.model.set_context(24);
    config.train.evaluate_every = 0;
    config.train.batch_size = 16;
    config.train.lr = 1e-2;
    let (summary, _, _) = run(config, &dir.path().join("run"), 150);
    // ln 260 = 5.6 at first; with smoothing of 0.1 the floor of the training loss is about 0.9.
    assert!(summary.train_loss.unwrap() < 2.0, "{:?}", summary.train_loss);
}

#[test]
fn what_cannot_be_used_is_counted_or_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for [source, target] in rows() {
        let _ = writeln!(lines, "{source}\t{target}");
    }
    let long = "word ".repeat(100);
    let _ = write!(lines, "nothing\t\n{long}\tshort\nshort\t{long}\n");
    let path = dir.path().join("rows.tsv");
    fs::write(&path, lines).unwrap();
    let mut config = config(dir.path(), "made");
    config.data.paths = vec![path];
    config.data.validation = 0.0;
    let (_, _, notes) = run(config.clone(), &dir.path().join("run"), 1);
    let [empty, cut] = &notes[..] else { panic!("{notes:?}") };
    assert!(
        empty.starts_with("1 pair has an empty side and is left out; the first is "),
        "{empty}"
    );
    assert!(empty.ends_with("rows.tsv, line 61"), "{empty}");
    assert!(cut.starts_with("2 of 62 training pairs are longer than 48 tokens on a side"), "{cut}");
    assert!(cut.ends_with("rows.tsv, line 62"), "{cut}");

    let refuse = |change: &dyn Fn(&mut RunConfig)| {
        let mut config = config.clone();
        change(&mut config);
        let run = RunDirectory::create(&dir.path().join("refused"), &FILES).unwrap();
        let context = config.model.context();
        let refused = Prepared::prepare(&mut config, &run, &Stop::default(), &mut |_| ());
        run.abandon(&FILES);
        let Err(error) = refused else { panic!("a context of {context} was not refused") };
        error.to_string()
    };
    let why = refuse(&|config| config.model.set_context(2));
    assert!(why.starts_with("62 of 62 training pairs are longer than 2 tokens"), "{why}");
    let why = refuse(&|config| {
        config.data.paths.clear();
        config.data.vocabulary = Some(400);
    });
    assert!(why.starts_with("the configuration is for pairs of your own"), "{why}");
    let why = refuse(&|config| {
        config.data.paths.clear();
        config.model.set_context(8);
    });
    assert!(why.starts_with("a context of 8 tokens does not hold all dates"), "{why}");
}
