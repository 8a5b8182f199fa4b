//! Every kind of encoder learns, can be stopped and resumed, and is judged by its measures.

use hearken_data::corpus::Stop;
use hearken_kernels::threads::with_threads;
use hearken_tasks::data::FILES;
use hearken_tasks::prepared::first_model;
use hearken_tasks::{Prepared, RunConfig};
use hearken_train::{Moment, RunDirectory, Setup, Summary, Task, train};
use std::fmt::Write;
use std::fs;
use std::path::Path;

const BASE: &str = r#"
[model]
kind = "encoder"
context = 96
layers = 2
width = 32
heads = 2
norm = { kind = "rms", placement = "pre" }
position = { kind = "rope" }
feed_forward = { kind = "swiglu" }
dropout = 0.1

[data]
stories = 20
tokenizer = "word"

[train]
steps = 6
batch_size = 8
lr = 3e-3
schedule = { kind = "constant", warmup = 0 }
evaluate_every = 3
checkpoint_every = 3
observe_every = 4
"#;

/// Rows that a small model learns quickly: the first word decides.
fn rows(kind: &str) -> String {
    let mut text = "text,label\n".to_owned();
    for i in 0..60 {
        let (word, other) = (["good", "bad", "so so"][i % 3], ["cat", "dog"][i % 2]);
        let label = match kind {
            "several" => {
                format!("{}{}", ["up", "down", ""][i % 3], if i % 2 == 0 { ";cat" } else { "" })
            }
            "numbers" => [1.0, -1.0, 0.0][i % 3].to_string(),
            _ => ["up", "down", "even"][i % 3].to_owned(),
        };
        let label = label.trim_start_matches(';');
        let _ = writeln!(text, "{word} {other} number {i},{label}");
    }
    text
}

/// Name, head, and whether it learns from rows in place of stories.
const KINDS: [(&str, &str, bool); 8] = [
    ("masks", r#"{ kind = "tokens" }"#, false),
    ("labels", r#"{ kind = "classes" }"#, false),
    ("classes", r#"{ kind = "classes" }"#, true),
    ("several", r#"{ kind = "classes", several = true }"#, true),
    ("tags", r#"{ kind = "tags" }"#, false),
    ("spans", r#"{ kind = "spans" }"#, false),
    ("numbers", r#"{ kind = "numbers" }"#, true),
    ("pairs", r#"{ kind = "embedding" }"#, false),
];

fn config(dir: &Path, (name, head, from_rows): (&str, &str, bool), sets: &[&str]) -> RunConfig {
    let mut all = vec![format!("model.head={head}")];
    all.extend(sets.iter().map(|set| (*set).to_owned()));
    let mut config = RunConfig::parse(BASE, "base", &all).unwrap();
    if from_rows {
        let file = dir.join(format!("{name}.csv"));
        fs::write(&file, rows(name)).unwrap();
        config.data.paths = vec![file];
    }
    config
}

/// The task of a configuration, in a new run or one that goes on.
fn task(config: &mut RunConfig, run: &RunDirectory) -> (Box<dyn Task>, Option<f64>) {
    let data = Prepared::prepare(config, run, &Stop::default(), &mut |_| ()).unwrap();
    let goes_on = run.checkpoints().join("last").exists();
    let (model, _) = first_model(config, goes_on).unwrap();
    let floor = data.floor();
    (data.into_task(model, config).unwrap(), floor)
}

/// Trains so many steps, from wherever the run is; gives the weights at the end.
fn run(mut config: RunConfig, path: &Path, steps: u64) -> (Summary, Vec<u32>) {
    config.train.steps = steps;
    let directory = if path.join("config.toml").exists() {
        RunDirectory::open(path).unwrap()
    } else {
        RunDirectory::create(path, &FILES).unwrap()
    };
    let (mut task, floor) = task(&mut config, &directory);
    let mut setup = Setup::new(directory, config.to_toml().unwrap());
    setup.entropy_floor = floor;
    let summary = train(task.as_mut(), &config.train, setup).unwrap();
    let parameters = task.parameters();
    let bits = parameters.iter().flat_map(|p| p.value().data().to_vec()).map(f32::to_bits);
    (summary, bits.collect())
}

#[test]
fn a_run_that_was_stopped_ends_with_the_same_bits_on_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let name = kind.0;
        let config = config(dir.path(), kind, &[]);
        let whole = dir.path().join(format!("{name}-whole"));
        let (summary, want) = with_threads(2, || run(config.clone(), &whole, 6));
        let stopped = dir.path().join(format!("{name}-stopped"));
        with_threads(1, || run(config.clone(), &stopped, 3));
        let (again, got) = with_threads(3, || run(config.clone(), &stopped, 6));
        assert!(want == got, "{name}: the weights differ");
        assert_eq!(summary.validation, again.validation, "{name}");
        assert!(!summary.validation.is_empty(), "{name}");
        assert!(summary.train_loss.is_some_and(f64::is_finite), "{name}");
        // What was written can be read again.
        let report = fs::read_to_string(whole.join("report.html")).unwrap();
        assert!(
            report.contains(&format!("Validation {}", summary.validation.last().unwrap().name))
                || name == "masks",
            "{name}"
        );
    }
}

/// Decoders whose training has something of its own: routers, and drawn prefixes.
#[test]
fn experts_and_prefixes_go_on_with_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let experts = "model.experts={ count = 4, top = 2, capacity = 1.0 }";
    let prefix = ["model.prefix=true", "data.prefix={ kind = \"share\", most = 0.75 }"];
    let separator = ["model.prefix=true", "data.prefix={ kind = \"separator\", text = \". \" }"];
    for (name, sets) in
        [("experts", &[experts][..]), ("prefix", &prefix[..]), ("separator", &separator[..])]
    {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let text = BASE.replace("\"encoder\"", "\"decoder\"").replace("tokenizer = \"word\"\n", "");
        let text = text.replace("context = 96", "context = 240"); // the longest story has 235 characters
        let config = RunConfig::parse(&text, "base", &sets).unwrap();
        let whole = dir.path().join(format!("{name}-whole"));
        let (summary, want) = with_threads(2, || run(config.clone(), &whole, 6));
        let stopped = dir.path().join(format!("{name}-stopped"));
        with_threads(1, || run(config.clone(), &stopped, 3));
        let (again, got) = with_threads(3, || run(config, &stopped, 6));
        assert!(want == got, "{name}: the weights differ");
        assert_eq!(summary.validation, again.validation, "{name}");
        let report = fs::read_to_string(whole.join("report.html")).unwrap();
        assert_eq!(report.contains("Use of experts"), name == "experts", "{name}");
    }
}

#[test]
fn metrics_are_those_of_the_purpose_and_the_report_has_details() {
    let dir = tempfile::tempdir().unwrap();
    for (kind, names, shown) in [
        (KINDS[0], &["loss"][..], "floor"),
        (KINDS[1], &["accuracy", "loss", "f1"], "Confusion matrix"),
        (KINDS[3], &["f1", "loss", "micro_f1", "accuracy"], "Labels"),
        (KINDS[4], &["f1", "loss", "accuracy"], "Entities"),
        (KINDS[5], &["exact_match", "loss", "f1"], "Best possible"),
        (KINDS[6], &["mae", "loss", "rmse", "spearman"], "Worst mistakes"),
        (KINDS[7], &["recall_at_1", "recall_at_5", "recall_at_10"], "The least similar partners"),
    ] {
        let path = dir.path().join(kind.0);
        let (summary, _) = run(config(dir.path(), kind, &[]), &path, 2);
        let found: Vec<&str> = summary.validation.iter().map(|score| score.name.as_str()).collect();
        assert_eq!(found, names, "{}", kind.0);
        let report = fs::read_to_string(path.join("report.html")).unwrap();
        assert!(report.contains(shown), "{}: {shown}", kind.0);
    }
}

#[test]
fn accumulated_parts_are_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    // Of pairs, fewer parts mean more negatives: they are no part of this.
    for kind in KINDS.into_iter().filter(|kind| kind.0 != "pairs") {
        let mut config = config(dir.path(), kind, &["model.dropout=0"]);
        let path = dir.path().join(kind.0);
        let directory = RunDirectory::create(&path, &FILES).unwrap();
        let (task, _) = task(&mut config, &directory);
        let sum = |parts: usize| {
            let moments = (0..parts).map(|micro_batch| Moment {
                seed: 1,
                step: 5,
                micro_batch,
                micro_batches: parts,
            });
            moments.fold((0.0, 0.0), |(sum, weight), at| {
                let loss = task.loss(at).unwrap();
                (sum + f64::from(loss.sum.value().item()), weight + loss.weight)
            })
        };
        let ((whole, weight), (parts, weights)) = (sum(1), sum(4));
        assert_eq!(weight, weights, "{}", kind.0);
        // Padding differs with the rows of a part, and takes no part in the loss.
        assert!((whole - parts).abs() < 1e-4 * whole.abs(), "{}: {whole} {parts}", kind.0);
    }
}

#[test]
fn a_new_head_starts_from_a_trained_body_with_its_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join("first");
    run(config(dir.path(), KINDS[0], &[]), &first, 3);
    let mut second =
        config(dir.path(), KINDS[2], &["task.freeze=1", "task.body_lr=1e-5", "model.width=8"]);
    for set in ["model.width=8", "model = {}", "data.vocabulary=9", "data.tokenizer=\"bpe\""] {
        let error = second.start_from(&first, &[set.to_owned()]).unwrap_err().to_string();
        assert!(error.contains("is taken as it is"), "{set}: {error}");
    }
    let sets = ["model.dropout=0.25", "model.head={ kind = \"classes\" }", "train.lr=1"];
    second.start_from(&first, &sets.map(str::to_owned)).unwrap();
    let shown = second.to_toml().unwrap();
    assert!(shown.contains("attention = 0.25") && !shown.contains("lr = 1.0"), "{shown}");
    second.start_from(&first, &[]).unwrap();
    let directory = RunDirectory::create(&dir.path().join("second"), &FILES).unwrap();
    let mut config = second.clone();
    let data = Prepared::prepare(&mut config, &directory, &Stop::default(), &mut |_| ()).unwrap();
    // The words of the rows are not learned: those of the stories are kept.
    assert_eq!(
        data.tokenizer().vocabulary_size(),
        hearken_data::stories::word_tokenizer().vocabulary_size()
    );
    assert_eq!(data.steps_of(2.0, 8).unwrap(), 14); // 54 of 60 rows
    let (model, start) = first_model(&config, false).unwrap();
    let start = start.unwrap();
    assert!(start.fresh.iter().all(|name| name.starts_with("head.")) && !start.fresh.is_empty());
    assert!(start.loaded.iter().any(|name| name == "embedding.weight"));
    let task = data.into_task(model, &config).unwrap();
    for parameter in task.parameters() {
        let name = parameter.name();
        let frozen = name.starts_with("embedding") || name.starts_with("blocks.0.");
        assert_eq!(parameter.is_trainable(), !frozen, "{name}");
        let rate = task.rate(&parameter);
        let want = if name.starts_with("head.") { 1.0 } else { 1e-5 / 3e-3 };
        assert!((rate - want).abs() < 1e-12, "{name}: {rate}");
    }
    drop(directory);
    // The same in a run, which changes what is not frozen and resumes to the same bits.
    let path = dir.path().join("third");
    let (_, want) = run(second.clone(), &path, 4);
    let stopped = dir.path().join("fourth");
    run(second.clone(), &stopped, 2);
    assert!(run(second, &stopped, 4).1 == want);
}

#[test]
fn data_that_changed_is_refused_when_a_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut config = config(dir.path(), KINDS[2], &[]);
    run(config.clone(), &path, 3);
    fs::write(&config.data.paths[0], rows("classes").replace("number 7", "number 700")).unwrap();
    let directory = RunDirectory::open(&path).unwrap();
    let result = Prepared::prepare(&mut config, &directory, &Stop::default(), &mut |_| ());
    let error = result.err().unwrap();
    assert!(error.message().contains("has changed since this run began"), "{error}");
}

#[test]
fn what_is_cut_or_cannot_be_learned_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let prepare = |text: &str, kind, sets: &[&str]| {
        let mut config = config(dir.path(), kind, sets);
        fs::write(&config.data.paths[0], text).unwrap();
        let directory = RunDirectory::create(&dir.path().join("run"), &FILES).unwrap();
        let result = Prepared::prepare(&mut config, &directory, &Stop::default(), &mut |_| ());
        let result = result.map(|data| data.notes().join("\n"));
        directory.abandon(&FILES);
        result
    };
    let notes = prepare(&rows("classes"), KINDS[2], &["data.most_tokens=6"]).unwrap();
    assert!(notes.contains("training rows are longer than 6 tokens and were cut there"), "{notes}");
    assert!(notes.contains("held-out rows are longer than 6 tokens"), "{notes}");
    let error = prepare(
        &rows("classes"),
        KINDS[2],
        &["model.head.labels=[\"up\", \"down\", \"even\", \"odd\"]"],
    )
    .unwrap_err();
    assert!(error.message().contains("the class \"odd\" has no rows to learn from"), "{error}");
    let error = prepare("text,label\na,x\nb\n", KINDS[2], &[]).unwrap_err();
    assert!(error.message().contains("classes.csv, line 3: 1 fields"), "{error}");
    let error = prepare("text,label\na,1\nb,1;2\n", KINDS[6], &[]).unwrap_err();
    assert!(error.message().contains("numbers.csv, line 3: 2 numbers"), "{error}");
    let alone = ("pairs", KINDS[7].1, true);
    let error = prepare("text\na\nb\nc\n", alone, &["model.dropout=0"]).unwrap_err();
    assert!(error.message().contains("3 texts have no partner"), "{error}");
    let notes = prepare("text\na b\na c\nb c\n", alone, &[]).unwrap();
    assert!(notes.contains("dropout makes the difference"), "{notes}");
    let mut few = config(dir.path(), KINDS[6], &[]);
    few.data.paths.clear();
    let directory = RunDirectory::create(&dir.path().join("none"), &FILES).unwrap();
    let error =
        Prepared::prepare(&mut few, &directory, &Stop::default(), &mut |_| ()).err().unwrap();
    assert!(error.message().contains("no stories are made for this head"), "{error}");
}
