//! Files and streams from strangers, as a person meets them: an error with a hint, soon, and
//! nothing left behind.
#![cfg(unix)]

mod common;

use common::{hearken, ran, run};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TINY: &str = r#"
[model]
kind = "decoder"
context = 16
layers = 1
width = 16
heads = 2
[train]
steps = 2
batch_size = 2
"#;

fn tokenizer(normalizer: &Value, pre_tokenizer: &Value, model: &Value) -> String {
    json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null,
        "decoder": null, "model": model})
    .to_string()
}

#[test]
fn bad_tokenizers_are_refused_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let bpe = json!({"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []});
    let far = json!({"type": "BPE", "vocab": {"a": 0, "b": 2_147_483_647_u32}, "merges": []});
    let prefixed = json!({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
        "merges": [["a", "b"]], "continuing_subword_prefix": "##"});
    let missing = json!({"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]});
    let empty = json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "b"});
    let grow = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(99)});
    let grow = json!({"type": "Sequence", "normalizers": [grow, grow, grow, grow]});
    let fixed = json!({"type": "FixedLength", "length": 0});
    let map = |text| json!({"type": "Precompiled", "precompiled_charsmap": text});
    let none = Value::Null;
    let bad = [
        tokenizer(&none, &none, &far),
        tokenizer(&none, &none, &prefixed),
        tokenizer(&none, &none, &missing),
        tokenizer(&empty, &none, &bpe),
        tokenizer(&grow, &none, &bpe),
        tokenizer(&none, &fixed, &bpe),
        tokenizer(&map("AAAA"), &none, &bpe),
        // Found out only while encoding: the trie points outside of itself.
        tokenizer(&map("BAAAAAD8//8A"), &none, &bpe),
    ];
    for json in bad {
        std::fs::write(&path, &json).unwrap();
        let since = Instant::now();
        let encode = ["tokenizer", "encode", "--text", "abba", "--tokenizer"];
        let arguments = [&encode[..], &[path.to_str().unwrap()]].concat();
        run(&mut hearken(&arguments)).refused("tokenizer.json");
        assert!(since.elapsed() < Duration::from_secs(2), "{:?} for {json}", since.elapsed());
    }
}

#[test]
fn long_words_and_texts_without_words() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.txt");
    let out = folder.path().join("t.json");
    let train = |kind: &str| {
        let (text, out) = (text.to_str().unwrap(), out.to_str().unwrap());
        run(&mut hearken(&["tokenizer", "train", "--kind", kind, "--out", out, text]))
    };
    std::fs::write(&text, "a".repeat(5000)).unwrap();
    let ran = train("bpe").succeeded();
    let note = "note: 1 word of the text has more than 256 bytes, 5000 in all";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    std::fs::write(&text, "<|endoftext|>".repeat(2)).unwrap();
    train("unigram").refused("too short or too uniform");
}

/// `hearken train --data DATA --out run` in `folder`.
fn train(folder: &Path, data: &str) -> Command {
    std::fs::write(folder.join("tiny.toml"), TINY).unwrap();
    let arguments = ["train", "--config", "tiny.toml", "--data", data, "--out", "run"];
    let mut command = hearken(&arguments);
    command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn training_reads_pipes_and_resumes_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let to = pipe.clone();
    let text = "the cat sat on the mat and the dog sat on the log; ".repeat(20);
    let writer = std::thread::spawn(move || std::fs::write(to, text));
    run(&mut train(folder.path(), "pipe")).succeeded();
    writer.join().unwrap().unwrap();
    assert!(folder.path().join("run/pipe-1.txt").exists());
    std::fs::remove_file(&pipe).unwrap();
    let mut resume = hearken(&["train", "--resume", "run", "--steps", "4"]);
    let ran = run(resume.current_dir(folder.path())).succeeded();
    assert!(ran.stdout.contains("after step 4"), "{}", ran.stdout);
    std::fs::remove_dir_all(folder.path().join("run")).unwrap();
    run(&mut train(folder.path(), "/dev/zero")).refused("/dev/zero is a device");
    assert!(!folder.path().join("run").exists());
}

fn wait(child: &mut Child) -> Option<i32> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(since.elapsed() < Duration::from_mins(1), "it does not stop");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ctrl-C while an endless input is kept leaves nothing of it.
#[test]
fn an_endless_input_is_taken_away_when_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = train(folder.path(), "-").stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || while input.write_all(&[b'a'; 4096]).is_ok() {});
    let run = folder.path().join("run");
    let kept = run.join(format!("stdin.txt.{}.tmp", child.id()));
    let since = Instant::now();
    while std::fs::metadata(&kept).map_or(0, |metadata| metadata.len()) == 0 {
        assert!(since.elapsed() < Duration::from_mins(1), "nothing is kept");
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(wait(&mut child), Some(130));
    writer.join().unwrap();
    let ran = ran(child.wait_with_output().unwrap());
    assert!(ran.stderr.contains("stopped before training began"), "{}", ran.stderr);
    assert!(
        !run.exists(),
        "{:?}",
        std::fs::read_dir(&run).map(|d| d.flatten().collect::<Vec<_>>())
    );
}
