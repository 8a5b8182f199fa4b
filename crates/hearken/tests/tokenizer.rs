//! `hearken tokenizer`, end to end.

mod common;

use common::{Ran, hearken, ran, run};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

/// Runs with `input` on stdin.
fn piped(arguments: &[&str], input: &[u8]) -> Ran {
    let mut command = hearken(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    // Written while the output is read, so that neither side waits for the other; a child that
    // refuses its arguments does not read at all.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("the binary ends");
    writer.join().expect("the writer ends");
    ran(output)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary path is UTF-8")
}

const TEXT: &str = "The sea wrote back.\r\n\tÜber 7 Wellen 🌊: the sea, the sea, the sea\n\n";

#[test]
fn every_kind_is_trained_encodes_and_decodes_through_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let book = folder.path().join("book.txt");
    fs::write(&book, TEXT).unwrap();
    for kind in ["character", "byte", "bpe", "wordpiece", "unigram"] {
        let out = folder.path().join(format!("{kind}.json"));
        let train = ["tokenizer", "train", "--kind", kind, "--out", text(&out), text(&book)];
        let trained = run(&mut hearken(&train)).succeeded();
        assert!(trained.stdout.contains(&format!("{kind} tokenizer, ")), "{}", trained.stdout);
        assert_eq!(trained.stderr, "", "progress is for terminals only");
        let encode = ["tokenizer", "encode", "--tokenizer", text(&out)];
        let ids = piped(&encode, TEXT.as_bytes()).succeeded().stdout;
        let from_file = run(hearken(&encode).arg(&book)).succeeded().stdout;
        assert_eq!(ids, from_file);
        let decode = ["tokenizer", "decode", "--tokenizer", text(&out)];
        assert_eq!(piped(&decode, ids.as_bytes()).succeeded().stdout, TEXT, "{kind}");
        let json = run(hearken(&encode).args(["--json", "--text", "the sea"])).succeeded().stdout;
        assert_eq!(piped(&decode, json.as_bytes()).succeeded().stdout, "the sea");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["ids"].as_array().unwrap().len(), json["tokens"].as_array().unwrap().len());
        // From stdin, the same tokenizer comes out.
        let again = folder.path().join("again.json");
        let train = ["tokenizer", "train", "--kind", kind, "--out", text(&again)];
        piped(&train, TEXT.as_bytes()).succeeded();
        assert_eq!(fs::read(&again).unwrap(), fs::read(&out).unwrap(), "{kind}");
    }
}

#[test]
fn special_tokens_are_special_when_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let train = ["tokenizer", "train", "--kind", "byte", "--special", "eos", "--special"];
    let train = [&train[..], &["pad=<pad>", "--out", text(&out)]].concat();
    piped(&train, b"a").succeeded();
    assert!(out.join("tokenizer.json").is_file() && out.join("tokenizer_config.json").is_file());
    let encode = ["tokenizer", "encode", "--tokenizer", text(&out), "--text", "a<pad>"];
    assert_eq!(run(&mut hearken(&encode)).succeeded().stdout, "97 60 112 97 100 62\n");
    let allowed = run(hearken(&encode).arg("--allow-special")).succeeded();
    assert_eq!(allowed.stdout, "97 257\n");
    let decode = ["tokenizer", "decode", "--tokenizer", text(&out), "97", "256,257"];
    assert_eq!(run(&mut hearken(&decode)).succeeded().stdout, "a<|endoftext|><pad>");
    assert_eq!(run(hearken(&decode).arg("--skip-special")).succeeded().stdout, "a");
}

#[test]
fn bad_input_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let train = |kind: &str, more: &[&str]| {
        let out = at("t.json");
        let arguments = [&["tokenizer", "train", "--kind", kind, "--out", &out], more].concat();
        run(&mut hearken(&arguments))
    };
    train("bpe", &[&at("nowhere.txt")]).refused("nowhere.txt does not exist");
    fs::write(at("empty.txt"), "").unwrap();
    train("bpe", &[&at("empty.txt")]).refused("is empty");
    train("bpe", &[]).refused("is empty");
    fs::write(at("binary"), b"\x7fELF\0\0").unwrap();
    train("bpe", &[&at("binary")]).refused("a NUL byte at byte 4");
    fs::write(at("book.txt"), TEXT).unwrap();
    train("bpe", &[&at("book.txt"), "--vocab-size", "200"]).refused("200 is too small");
    train("bpe", &[&at("book.txt"), "--vocab-size", "10000000000"]).refused("is too large");
    train("morse", &[&at("book.txt")]).refused("morse");
    train("bpe", &[&at("book.txt"), "--special", "end"]).refused("no special token 'end'");
    assert!(!Path::new(&at("t.json")).exists(), "a refused training leaves a file");
    train("character", &[&at("book.txt")]).succeeded();
    let encode = ["tokenizer", "encode", "--tokenizer", &at("t.json")];
    run(hearken(&encode).args(["--text", "The xylophone"])).refused("'x' (U+0078) at byte 4");
    piped(&encode, b"T\xff").refused("stdin is not a text file");
    let decode = ["tokenizer", "decode", "--tokenizer", &at("t.json")];
    run(hearken(&decode).arg("99999")).refused("token id 99999 is not in the vocabulary");
    run(hearken(&decode).arg("1,x")).refused("'x' is not a token id");
    let no_tokenizer = ["tokenizer", "encode", "--text", "a", "--tokenizer", &at("book.txt")];
    run(&mut hearken(&no_tokenizer)).refused("is not a tokenizer");
}
