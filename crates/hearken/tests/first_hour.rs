//! What a new user does first, as a person runs it: defaults, positional files and prompts, plain
//! flags, resuming what is finished, and the commands that help.

mod common;
mod wrong;

use common::{Ran, hearken, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use tempfile::TempDir;

fn here() -> TempDir {
    let here = tempfile::tempdir().unwrap();
    let text = "The cat sat on the mat. The dog sat on the log. A bird sang.\n".repeat(60);
    std::fs::write(here.path().join("book.txt"), text).unwrap();
    here
}

fn within(here: &TempDir, arguments: &[&str]) -> Command {
    let mut command = hearken(arguments);
    command.current_dir(here.path());
    command
}

fn go(here: &TempDir, arguments: &[&str]) -> Ran {
    run(&mut within(here, arguments)).succeeded()
}

fn config(here: &TempDir, name: &str) -> toml::Table {
    let text = std::fs::read_to_string(here.path().join("runs").join(name).join("config.toml"));
    text.unwrap().parse().unwrap()
}

fn lines(here: &TempDir, name: &str) -> Vec<Value> {
    let path = here.path().join("runs").join(name).join("metrics.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const SMALL: [&str; 10] =
    ["--layers", "1", "--width", "16", "--heads", "2", "--context", "16", "--dropout", "0.1"];

#[test]
fn a_text_a_prompt_and_an_evaluation_without_flags() {
    let here = here();
    go(&here, &[&["train", "book.txt", "--steps", "12"], &SMALL[..]].concat());
    let config = config(&here, "book");
    let model = config["model"].as_table().unwrap();
    let number = |key: &str| model[key].as_integer().unwrap();
    assert_eq!(
        [number("layers"), number("width"), number("heads"), number("context")],
        [1, 16, 2, 16]
    );
    assert_eq!(model["dropout"]["attention"].as_float().map(|p| p as f32), Some(0.1));
    assert_eq!(config["train"]["optimizer"]["kind"].as_str(), Some("muon"), "the better recipe");

    let wrote = go(&here, &["generate", "The cat", "-n", "5", "--seed", "1"]);
    assert_eq!(wrote.stdout.trim_end_matches('\n').chars().count(), 5, "{:?}", wrote.stdout);

    // What the run has held out, as its last evaluation saw it.
    let held: Value = serde_json::from_str(&go(&here, &["eval", "--json"]).stdout).unwrap();
    let last =
        lines(&here, "book").iter().rev().find_map(|line| line["val_loss"].as_f64()).unwrap();
    assert_eq!(held["split"], "validation");
    let off = (held["loss"].as_f64().unwrap() - last).abs();
    assert!(off < 1e-5, "{} and {last}", held["loss"]);
    let whole: Value =
        serde_json::from_str(&go(&here, &["eval", "book.txt", "--json"]).stdout).unwrap();
    assert_eq!(
        (&whole["split"], whole["targets"].as_u64()),
        (&Value::from("all"), Some(60 * 61 - 1))
    );
    // A short text is not gone through a hundred times.
    go(
        &here,
        &[&["train", "book.txt", "--set", "train.batch_size=2", "--minutes", "0.01"], &SMALL[..]]
            .concat(),
    );
}

#[test]
fn stories_begin_by_themselves_and_what_they_do_not_know_is_explained() {
    let here = here();
    let sizes = ["--layers", "1", "--width", "16", "--heads", "2"];
    let few = ["--steps", "3", "--batch-size", "2", "--set", "data.stories=20"];
    go(&here, &[&["train"], &sizes[..], &few[..]].concat());
    let json = go(&here, &["generate", "Mia the fox", "-n", "3", "--json"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["prompt_ids"].as_array().unwrap().len(), 1 + "Mia the fox".len());
    assert_eq!(json["prompt_ids"][0], 0, "the line end before every story");
    let held: Value = serde_json::from_str(&go(&here, &["eval", "--json"]).stdout).unwrap();
    let last = lines(&here, "stories").iter().rev().find_map(|line| line["val_loss"].as_f64());
    let off = (held["loss"].as_f64().unwrap() - last.unwrap()).abs();
    assert!(off < 1e-5, "{} and {last:?}", held["loss"]);

    run(&mut within(&here, &["generate", "Hi!"])).refused("it knows line end space , . A–");
    let note = go(&here, &["generate", "Hello Mia", "-n", "2"]).stderr;
    assert!(note.contains("never say 'Hello'") && note.contains("'So Mia'"), "{note}");
    assert!(!go(&here, &["generate", "So Mia r", "-n", "2"]).stderr.contains("note"));
}

/// Every file below with its content and when it was changed; the lock is taken by whoever looks.
fn files(path: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(path).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_symlink() {
            let target = std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
            found.insert(path.clone(), (target, entry.metadata().unwrap().modified().unwrap()));
        } else if path.is_dir() {
            found.extend(files(&path));
        } else if !path.ends_with("lock") {
            let changed = entry.metadata().unwrap().modified().unwrap();
            found.insert(path.clone(), (std::fs::read(&path).unwrap(), changed));
        }
    }
    found
}

#[test]
fn resuming_a_finished_run_changes_nothing() {
    let here = here();
    let first = go(&here, &[&["train", "book.txt", "--steps", "6"], &SMALL[..]].concat());
    let before = files(&here.path().join("runs/book"));
    for more in [&[][..], &["--set", "train.lr=1e-5"]] {
        let again = go(&here, &[&["train", "--resume", "runs/book"], more].concat());
        assert_eq!(again.stdout, first.stdout);
        assert!(
            again.stderr.contains("all 6 steps are done: nothing is changed"),
            "{}",
            again.stderr
        );
        let after = files(&here.path().join("runs/book"));
        assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
        for (path, file) in &before {
            assert!(after[path] == *file, "{} has changed", path.display());
        }
    }
    // What does not fit is refused all the same.
    let other = ["train", "--resume", "runs/book", "--quiet", "--set", "train.optimizer=lion"];
    run(&mut within(&here, &other)).refused("its optimiser is muon, not lion");
    go(&here, &["train", "--resume", "runs/book", "--steps", "8"]);
    assert_eq!(config(&here, "book")["train"]["steps"].as_integer(), Some(8));
}

#[test]
fn minutes_fix_the_steps_before_the_first() {
    let here = here();
    let started = std::time::Instant::now();
    go(&here, &[&["train", "book.txt", "--minutes", "0.05"], &SMALL[..]].concat());
    let steps = config(&here, "book")["train"]["steps"].as_integer().unwrap();
    assert!(steps > 1, "{steps}");
    let lines = lines(&here, "book");
    assert_eq!(lines.iter().filter(|line| line["train_loss"].is_number()).count() as i64, steps);
    // Three seconds and the preparation, with much room for a busy machine.
    assert!(started.elapsed().as_secs() < 60);
    run(&mut within(&here, &["train", "book.txt", "--minutes", "0"])).refused("--minutes is 0");
    run(&mut within(&here, &["train", "book.txt", "--minutes", "1", "--steps", "2"]))
        .refused("cannot be used with");
}

#[test]
fn presets_completions_and_manual() {
    let presets = run(&mut hearken(&["presets"])).succeeded().stdout;
    for name in ["stories", "shakespeare-fast", "gpt2-small"] {
        assert!(presets.lines().any(|line| line.starts_with(name)), "{presets}");
    }
    let list: Value =
        serde_json::from_str(&run(&mut hearken(&["presets", "--json"])).succeeded().stdout)
            .unwrap();
    assert!(
        list.as_array().unwrap().iter().all(|preset| preset["about"].as_str().unwrap().len() > 19)
    );
    let text = run(&mut hearken(&["presets", "llama-style"])).succeeded().stdout;
    assert!(text.contains("[model]"), "{text}");
    run(&mut hearken(&["presets", "llama-stile"])).refused("there is no preset 'llama-stile'");

    for (shell, has) in
        [("bash", "complete -F"), ("zsh", "#compdef hearken"), ("fish", "complete -c hearken")]
    {
        let text = run(&mut hearken(&["completions", shell])).succeeded().stdout;
        assert!(text.contains(has) && text.contains("minutes"), "{shell}");
    }
    run(&mut hearken(&["completions", "tcsh"])).refused("tcsh");

    let page = run(&mut hearken(&["man"])).succeeded().stdout;
    assert!(page.contains(".TH hearken 1") && page.contains("train"), "{page}");
    let pages = tempfile::tempdir().unwrap();
    run(&mut hearken(&["man", "--out", pages.path().to_str().unwrap()])).succeeded();
    for name in ["hearken.1", "hearken-train.1", "hearken-inspect-trace.1"] {
        let page = std::fs::read_to_string(pages.path().join(name)).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
}

#[test]
fn hints_name_commands_as_they_can_be_run() {
    let empty = tempfile::tempdir().unwrap();
    let ran = run(hearken(&["generate", "--prompt", "x"]).current_dir(empty.path()));
    assert!(
        ran.stderr.contains(&format!("'{} train'", env!("CARGO_BIN_EXE_hearken"))),
        "{}",
        ran.stderr
    );
}

#[test]
fn reports_show_the_model_and_compare_runs() {
    let here = here();
    for (out, lr) in [("runs/a", "1e-3"), ("runs/b", "2e-3")] {
        let train = ["train", "book.txt", "--steps", "4", "--out", out, "--lr", lr];
        go(&here, &[&train[..], &SMALL[..]].concat());
    }
    let read = |name: &str| std::fs::read_to_string(here.path().join(name)).unwrap();
    let report = read("runs/a/report.html");
    for has in [
        "Where heads look",
        "blocks.0 head 1",
        "What surprised it",
        "<dt>perplexity</dt>",
        "<dt>bits per byte</dt>",
        "<dt>last validation − training</dt>",
        "data: book · ",
        "hearken 0.",
        "prefers-color-scheme: dark",
    ] {
        assert!(report.contains(has), "{has}");
    }
    let page = go(&here, &["report", "runs/a", "runs/b", "--out", "both.html"]);
    assert_eq!(page.stdout, "both.html\n");
    let page = read("both.html");
    assert!(page.contains("<td>train.lr</td><td>0.001</td><td>0.002</td>"), "{page}");
    assert!(page.contains("Validation loss by time") && !page.contains("<td>train.steps</td>"));
    assert_eq!(page.matches("<td>parameters</td>").count(), 1);
    assert_eq!(go(&here, &["report", "runs/a"]).stdout, "runs/a/report.html\n");
    let copy = go(&here, &["report", "runs/a", "--out", "one.html"]);
    assert_eq!((copy.stdout.as_str(), read("one.html")), ("one.html\n", report));
    run(&mut within(&here, &["report", "runs/a", "book.txt"])).refused("holds no run");
    run(&mut within(&here, &["report", "nothing"])).refused("holds no run");
}

/// Every wrong usage of [`wrong::USAGES`] is refused, the first line says what is wrong, and what
/// follows says what to do. Nothing is written.
#[test]
fn wrong_usages_are_answered_with_what_to_do() {
    let here = here();
    let at = |name: &str| here.path().join(name);
    let utf16 = |order: fn(u16) -> [u8; 2]| -> Vec<u8> {
        "The cat sat on the mat.\n".encode_utf16().flat_map(order).collect()
    };
    for (name, content) in [
        ("empty.txt", Vec::new()),
        ("utf16.txt", [&[0xFF, 0xFE][..], &utf16(u16::to_le_bytes)].concat()),
        ("utf16be.txt", utf16(u16::to_be_bytes)),
        ("latin.txt", b"Caf\xE9 au lait".to_vec()),
        ("noise.bin", b"\x01\x02\x00\x03\x7f\x45\x4c\x46\x02\x01\x01".to_vec()),
        ("book.pdf", b"%PDF-1.7\n1 0 obj\n".to_vec()),
        ("book.docx", b"PK\x03\x04word/document.xml".to_vec()),
        ("book.txt.gz", b"\x1f\x8b\x08\x00text".to_vec()),
        ("bad.jsonl", b"{\"a\": 1".to_vec()),
        ("nofield.jsonl", b"{\"a\": \"x\"}\n".to_vec()),
        ("typo.toml", b"[model]\nkind = \"decoder\"\nlayerz = 3\n".to_vec()),
        ("kind.toml", b"[model]\nkind = \"mamba\"\n".to_vec()),
        ("broken.toml", b"{\n".to_vec()),
    ] {
        std::fs::write(at(name), content).unwrap();
    }
    std::fs::create_dir_all(at("other")).unwrap();
    std::fs::write(at("other/notes"), "x").unwrap();
    std::fs::create_dir_all(at("fake")).unwrap();
    std::fs::write(at("fake/config.json"), "{\"model_type\": \"rwkv\"}").unwrap();
    go(&here, &[&["train", "book.txt", "--steps", "2", "--out", "tiny"], &SMALL[..]].concat());
    assert!(wrong::USAGES.len() >= 50);
    for (line, message) in wrong::USAGES {
        let ran = run(&mut within(&here, &line.split(' ').collect::<Vec<_>>()));
        let first = ran.stderr.lines().find(|said| said.starts_with("error: "));
        let first = first.unwrap_or_else(|| panic!("hearken {line}: {}", ran.stderr));
        // Clap lists what is missing below its first line.
        println!("hearken {line}\n    {first}");
        assert!(ran.stderr.contains(message), "hearken {line}: {}", ran.stderr);
        ran.refused(message);
    }
    let runs = std::fs::read_dir(at("runs")).map_or(0, Iterator::count);
    assert_eq!(runs, 0, "a wrong usage has left a run behind");
}
