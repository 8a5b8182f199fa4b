//! Pairs of source and target.

use super::super::*;
use super::{fault, read_file};

fn pairs(name: &str, content: &str) -> Result<Dataset> {
    read_file(name, content, Ask::Translations, &Fields::default())
}

fn texts(data: &Dataset) -> Vec<(&str, &str, u64)> {
    data.rows
        .iter()
        .map(|row| {
            let Answer::Text(answer) = &row.answer else { panic!("{row:?}") };
            (row.text.as_str(), answer.as_str(), row.place.line)
        })
        .collect()
}

#[test]
fn pairs_are_read_from_every_form() {
    let json = "{\"source\": \"one\", \"target\": \"\\\"uno\\\"\"}\n{\"target\": 2, \"source\": \"two\"}\n";
    let csv = "target,id,source\n\"\"\"uno\"\"\",7,one\n2,8,two\n";
    let tabs = "one\t\"uno\"\r\ntwo\t2\n";
    let named = "id\tsource\ttarget\n7\tone\t\"uno\"\n8\ttwo\t2";
    for (name, content, first) in
        [("a.jsonl", json, 1), ("a.csv", csv, 2), ("a.tsv", tabs, 1), ("a.tsv", named, 2)]
    {
        let data = pairs(name, content).unwrap();
        assert_eq!(texts(&data), [("one", "\"uno\"", first), ("two", "2", first + 1)], "{name}");
        assert!(data.notes.is_empty() && data.labels.is_empty());
    }
    let fields = Fields { text: "en".into(), label: "es".into(), second: None };
    let named = ["{\"en\": \"one\", \"es\": \"uno\"}", "es\ten\nuno\tone\n"];
    for (name, content) in ["a.jsonl", "a.tsv"].into_iter().zip(named) {
        let data = read_file(name, content, Ask::Translations, &fields).unwrap();
        assert_eq!((data.rows[0].text.as_str(), data.rows.len()), ("one", 1), "{name}");
    }
    // Fields that were chosen must be there: their order would be guessed.
    for (text, label, missing) in
        [("EN", "es", "EN"), ("en", "ES", "ES"), ("source", "ES", "source")]
    {
        let fields = Fields { text: text.into(), label: label.into(), second: None };
        let why = read_file("a.tsv", "es\ten\nuno\tone\n", Ask::Translations, &fields).unwrap_err();
        assert!(
            why.message().contains(&format!("line 1: no field is called '{missing}'")),
            "{why}"
        );
    }
    let split = pairs("a.tsv", &"one\tuno\ntwo\tdos\n".repeat(20)).unwrap().split(0.25, 3);
    assert_eq!((split.train.len(), split.validation.len()), (30, 10));
}

#[test]
fn lines_of_two_files_belong_together() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        vec![path]
    };
    let (a, b) = (file("a.en", "one\ntwo\n\nfour\n"), file("a.es", "uno\r\n \ntres\ncuatro"));
    let data = read_parallel(&a, &b).unwrap();
    assert_eq!(texts(&data), [("one", "uno", 1), ("four", "cuatro", 4)]);
    let [note] = &data.notes[..] else { panic!("{:?}", data.notes) };
    let place = format!("{}, line 2", a[0].display());
    assert_eq!(*note, format!("2 pairs have an empty side and are left out; the first is {place}"));

    let short = file("b.es", "uno\n");
    let error = read_parallel(&a, &short).unwrap_err();
    assert!(error.message().starts_with(&place), "{error}");
    assert!(error.message().contains("b.es has no line 2, and "), "{error}");
    assert!(error.message().ends_with("a.en has"), "{error}");
    let why = read_parallel(&short, &a).unwrap_err();
    assert!(why.message().contains("b.es has no line 2, and "), "{why}");
    let many = [a.clone(), b.clone()].concat();
    let why = fault(read_parallel(&many, &b));
    assert_eq!(why, "2 files of sources and 1 of targets");
    let nothing = file("c.es", "\n\n\n\n");
    let why = fault(read_parallel(&a, &nothing));
    assert!(why.starts_with("no pair can be used: 4 pairs have an empty side"), "{why}");
    let folder = vec![folder.path().to_owned()];
    assert!(read_parallel(&a, &folder).unwrap_err().message().ends_with("is a directory"));
}

#[test]
fn what_is_no_pair_is_named_with_its_line() {
    let why = |name, content| fault(pairs(name, content));
    assert_eq!(why("a.tsv", "one\tuno\ntwo\n"), "a.tsv, line 2: 1 fields, expected 2: \"two\"");
    assert!(why("a.tsv", "a\tb\tc\n").starts_with("a.tsv, line 1: 3 fields, expected 2"));
    let missing = "{\"source\": \"a\", \"target\": \"b\"}\n{\"source\": \"a\"}\n";
    assert_eq!(why("a.jsonl", missing), "a.jsonl, line 2: the field \"target\" is missing");
    let list = "{\"source\": [\"a\"], \"target\": \"b\"}";
    assert_eq!(why("a.jsonl", list), "a.jsonl, line 1: the field \"source\" is not a text");
    assert!(why("a.txt", "a\tb\n").ends_with("a.txt holds no pairs of source and target"));
    let data = pairs("a.tsv", "one\tuno\n\ntwo\t\n").unwrap();
    assert_eq!((data.rows.len(), data.notes.len()), (1, 1));
    assert!(data.notes[0].starts_with("2 pairs have an empty side"), "{:?}", data.notes);
    assert!(data.notes[0].ends_with("a.tsv, line 2"), "{:?}", data.notes);
}
