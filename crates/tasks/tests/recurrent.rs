//! Recurrent and convolutional language models learn, can be stopped and resumed, and carry their
//! state from window to window.

use hearken_data::corpus::Stop;
use hearken_kernels::threads::with_threads;
use hearken_tasks::data::FILES;
use hearken_tasks::prepared::first_model;
use hearken_tasks::{Prepared, RunConfig};
use hearken_train::{Moment, RunDirectory, Setup, Summary, Task, train};
use std::fs;
use std::path::Path;

const BASE: &str = r#"
[model]
kind = "recurrent"
cell = "gru"
context = 12
layers = 2
width = 24
dropout = 0.1

[data]
tokenizer = "character"
windows = "consecutive"

[train]
steps = 9
batch_size = 6
lr = 1e-2
schedule = { kind = "constant", warmup = 0 }
evaluate_every = 4
checkpoint_every = 4
observe_every = 4
"#;

const PAIRS: &str = r#"
[model]
kind = "recurrent-seq2seq"
context = 48
layers = 1
width = 16
dropout = 0.1

[data]
generated = "dates"
stories = 12

[train]
steps = 9
batch_size = 8
lr = 1e-2
schedule = { kind = "constant", warmup = 0 }
parallel_parts = 2
evaluate_every = 4
checkpoint_every = 4
observe_every = 4
"#;

/// Lines that differ only by their first letters, which are far back when the difference counts.
fn text() -> String {
    let words = ["river", "stone", "cloud", "ember"];
    let line = |i: usize| format!("{} and then the {}\n", words[i % 4], words[(i + 1) % 4]);
    (0..120).map(line).collect::<Vec<_>>().concat()
}

fn config(dir: &Path, sets: &[&str]) -> RunConfig {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let mut config = RunConfig::parse(BASE, "base", &sets).unwrap();
    let file = dir.join("text.txt");
    fs::write(&file, text()).unwrap();
    config.data.paths = vec![file];
    config
}

/// Sets of every kind of model.
fn kinds() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("rnn", vec!["model.cell=\"rnn\""]),
        ("gru", vec![]),
        ("lstm", vec!["model.cell=\"lstm\"", "train.accumulate=2"]),
        ("lstm in parts", vec!["model.cell=\"lstm\"", "train.parallel_parts=2"]),
        ("random windows", vec!["data.windows=\"random\""]),
        ("convolution", vec![]),
        ("bahdanau", vec![]),
        ("fixed", vec!["model.attention=\"none\"", "model.cell=\"lstm\""]),
    ]
}

fn of_kind(dir: &Path, name: &str, sets: &[&str]) -> RunConfig {
    if name == "bahdanau" || name == "fixed" {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        return RunConfig::parse(PAIRS, "pairs", &sets).unwrap();
    }
    if name != "convolution" {
        return config(dir, sets);
    }
    let text = BASE
        .replace("kind = \"recurrent\"\ncell = \"gru\"", "kind = \"convolution\"\nkernel = 2")
        .replace("windows = \"consecutive\"", "");
    let mut config = RunConfig::parse(&text, "base", &[] as &[String]).unwrap();
    config.data.paths = vec![dir.join("text.txt")];
    fs::write(&config.data.paths[0], self::text()).unwrap();
    config
}

fn task(config: &mut RunConfig, run: &RunDirectory) -> Box<dyn Task> {
    let data = Prepared::prepare(config, run, &Stop::default(), &mut |_| ()).unwrap();
    let goes_on = run.checkpoints().join("last").exists();
    let (model, _) = first_model(config, goes_on).unwrap();
    data.into_task(model, config).unwrap()
}

/// Trains so many steps, from wherever the run is; gives weights and carried states at the end.
fn run(mut config: RunConfig, path: &Path, steps: u64) -> (Summary, Vec<u32>) {
    config.train.steps = steps;
    let directory = if path.join("config.toml").exists() {
        RunDirectory::open(path).unwrap()
    } else {
        RunDirectory::create(path, &FILES).unwrap()
    };
    let mut task = task(&mut config, &directory);
    let setup = Setup::new(directory, config.to_toml().unwrap());
    let summary = train(task.as_mut(), &config.train, setup).unwrap();
    let weights = task.parameters().into_iter().map(|p| p.value());
    let states = task.state().into_iter().map(|(_, state)| state);
    let numbers = weights.chain(states).flat_map(|tensor| tensor.data().to_vec());
    (summary, numbers.map(f32::to_bits).collect())
}

#[test]
fn a_run_that_was_stopped_ends_with_the_same_bits_on_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    for (name, sets) in kinds() {
        let config = of_kind(dir.path(), name, &sets);
        let whole = dir.path().join(format!("{name}-whole"));
        let (summary, want) = with_threads(2, || run(config.clone(), &whole, 9));
        let stopped = dir.path().join(format!("{name}-stopped"));
        with_threads(1, || run(config.clone(), &stopped, 2));
        with_threads(4, || run(config.clone(), &stopped, 5));
        let (again, got) = with_threads(3, || run(config.clone(), &stopped, 9));
        assert!(want == got, "{name}: weights or states differ");
        assert_eq!(summary.validation, again.validation, "{name}");
        assert!(summary.train_loss.is_some_and(f64::is_finite), "{name}");
    }
}

#[test]
fn a_state_is_carried_where_windows_follow_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let losses = |windows: &str, carries: bool| {
        let mut config = config(dir.path(), &[windows, "model.dropout=0"]);
        let directory = RunDirectory::create(&dir.path().join(windows), &FILES).unwrap();
        let mut task = task(&mut config, &directory);
        let mut losses = Vec::new();
        for step in 0..3 {
            let at = Moment { seed: 1, step, micro_batch: 0, micro_batches: 1 };
            let mut loss = task.loss(at).unwrap();
            losses.push(loss.sum.value().item());
            assert_eq!(!loss.carried.is_empty(), carries, "{windows}");
            if step == 1 {
                loss.carried.clear(); // the loss was not finite, say
            } else if carries {
                task.carry(at, std::mem::take(&mut loss.carried));
            }
        }
        assert_eq!(task.state().len(), if carries { 2 } else { 0 }); // two layers of a GRU
        directory.abandon(&FILES);
        losses
    };
    let carried = losses("data.windows=\"consecutive\"", true);
    assert!(carried.iter().all(|loss| loss.is_finite()));
    losses("data.windows=\"random\"", false);
}

#[test]
fn a_recurrent_model_learns_what_is_further_back_than_its_window() {
    // Windows of 8 characters: which word comes next is decided some 20 characters before.
    let dir = tempfile::tempdir().unwrap();
    let sets = ["model.context=8", "model.dropout=0", "model.width=48", "model.layers=1"];
    let loss = |windows: &'static str| {
        let config = config(dir.path(), &[&sets[..], &[windows]].concat());
        run(config, &dir.path().join(windows), 400).0.train_loss.unwrap()
    };
    let carried = loss("data.windows=\"consecutive\"");
    let random = loss("data.windows=\"random\"");
    assert!(carried < 0.5 * random, "{carried} with a state, {random} without");
}

#[test]
fn a_text_that_is_too_short_for_the_rows_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), &["train.batch_size=500"]);
    let directory = RunDirectory::create(&dir.path().join("run"), &FILES).unwrap();
    let result = Prepared::prepare(&mut config, &directory, &Stop::default(), &mut |_| ());
    let error = result.err().unwrap().to_string();
    assert!(error.contains("consecutive windows of 500 rows") && error.contains("hint"), "{error}");
}
