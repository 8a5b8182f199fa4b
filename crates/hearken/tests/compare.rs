//! `hearken compare` as a person runs it.

use std::path::Path;
use std::process::{Command, Output};

fn hearken(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hearken"));
    command.current_dir(directory).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_sketch_writes_a_page_and_its_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = [
        "compare",
        "recall",
        "--quick",
        "--effort",
        "0.003",
        "--only",
        "gru, transformer",
        "--svg",
        "charts",
    ];
    let output = hearken(directory.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("transformer") && shown.contains("gru") && !shown.contains("lstm"));
    assert!(text(&output.stderr).contains("look:    compare-recall.html"));
    let page = std::fs::read_to_string(directory.path().join("compare-recall.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("no winner is claimed"));
    let picture = directory.path().join("charts/recall-copying.svg");
    assert!(std::fs::read_to_string(picture).unwrap().starts_with("<svg"));
    let numbers = std::fs::read(directory.path().join("compare-recall.json")).unwrap();
    let numbers: serde_json::Value = serde_json::from_slice(&numbers).unwrap();
    assert_eq!(numbers["contenders"], serde_json::json!(["transformer", "gru"]));
    assert!(numbers["numbers"]["lookup"]["contenders"]["gru"]["accuracy"][0].is_array());
}

#[test]
fn the_list_names_every_study() {
    let directory = tempfile::tempdir().unwrap();
    let output = hearken(directory.path(), &["compare"]);
    assert!(output.status.success());
    for study in hearken::studies::all() {
        assert!(text(&output.stdout).contains(study.name), "{}", study.name);
    }
}

#[test]
fn bad_requests_are_answered_before_anything_is_trained() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, message, hint) in [
        (&["recal"][..], "no study 'recal'", "did you mean recall?"),
        (&["recall", "--only", "lstm,gpt"], "no contender 'gpt'", "transformer, lstm"),
        (&["recall", "--minutes", "0.0001"], "there is time for", "--quick"),
        (&["recall", "--minutes", "-1"], "--minutes is -1", "how long studies take"),
        (&["recall", "--minutes", "NaN"], "--minutes is NaN", "how long studies take"),
        (&["recall", "--effort", "0"], "--effort is 0", "0.1 a sketch"),
        (&["recall", "--svg", "/dev/null/x"], "cannot make the directory", "name another"),
        (&["recall", "--data", "x.txt"], "reads no text", "leave --data out"),
        (&["recall", "--out", "missing/x.html"], "cannot write", "directory that exists"),
        (&["recall", "--out", "x.json"], "where the numbers go", "report.html"),
    ] {
        let output = hearken(directory.path(), &[&["compare"], arguments].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(message) && said.contains("hint: "), "{arguments:?}: {said}");
        assert!(said.contains(hint), "{arguments:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_is_read_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["book.html", "book.json"] {
        std::fs::write(directory.path().join(name), "a book").unwrap();
        let arguments = ["compare", "tokenizers", "--quick", "--data", name, "--out", "book.html"];
        let output = hearken(directory.path(), &arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("would be replaced"), "{}", text(&output.stderr));
        assert_eq!(std::fs::read(directory.path().join(name)).unwrap(), b"a book");
        std::fs::remove_file(directory.path().join(name)).unwrap();
    }
}
