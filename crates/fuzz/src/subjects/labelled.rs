//! Labelled data in every form.

use super::{Kind, Subject};
use crate::mutate::Form;
use hearken_base::{Error, Result};
use hearken_data::frames::{Feature, Frame, align_tags, locate_answer};
use hearken_data::labelled::{Answer, Ask, Fields, read, read_parallel};
use hearken_data::stories::word_tokenizer;
use std::fs;
use std::path::Path;

pub(super) fn subjects() -> Vec<Subject> {
    let subject = |name, target, prepare, read| Subject {
        name,
        kind: Kind::Training,
        target,
        form: Form::Text,
        prepare,
        read,
    };
    vec![
        subject("labelled-jsonl", "rows.jsonl", json_lines, |d| use_rows(d, Ask::Classes)),
        subject("labelled-csv", "rows.csv", table, |d| use_rows(d, Ask::Several)),
        subject("labelled-tsv", "rows.tsv", numbers, |d| use_rows(d, Ask::Numbers)),
        subject("labelled-columns", "rows.conll", columns, |d| use_rows(d, Ask::Tags)),
        subject("labelled-questions", "rows.jsonl", questions, |d| use_rows(d, Ask::Spans)),
        subject("labelled-pairs", "rows.csv", pairs, |d| use_rows(d, Ask::Pairs)),
        subject("translations-tsv", "rows.tsv", translations, |d| use_rows(d, Ask::Translations)),
        subject("translations-parallel", "rows.es", parallel, use_parallel),
    ]
}

fn put(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    fs::write(&path, text).map_err(Error::io("write", &path))
}

fn json_lines(directory: &Path) -> Result<()> {
    let rows = "{\"text\": \"Mia the fox lost her kite\", \"label\": \"sad\", \"id\": [1, {}]}\n\
                {\"label\": \"glad\", \"text\": \"She \\u00e9 found it \\ud83e\\udd8a\"}\n\
                {\"label\": 3, \"text\": \"at the river\"}\n";
    put(directory, "rows.jsonl", rows)
}

fn table(directory: &Path) -> Result<()> {
    let rows = "id,text,label\r\n1,\"Mia, the \"\"fox\"\"\nlost it\",sad;red\r\n2,found it,glad\n\n\
                3,\"\n\n\",\n";
    put(directory, "rows.csv", &rows.replace("\"\n\n\"", "at\u{a0}last"))
}

fn numbers(directory: &Path) -> Result<()> {
    put(directory, "rows.tsv", "text\tlabel\nMia\t1.5;-2\n\"the\tfox\"\t0;3e4\n")
}

fn columns(directory: &Path) -> Result<()> {
    let rows =
        "-DOCSTART- -X- O\n\nMia NNP B-WHO\nthe DT I-WHO\nfox NN I-WHO\nlost VB O\n\nkite\tO\n";
    put(directory, "rows.conll", rows)
}

fn questions(directory: &Path) -> Result<()> {
    let rows = "{\"question\": \"Who?\", \"context\": \"\\u00e9 the fox\", \"answer\": \"the fox\", \
                \"start\": 2}\n{\"question\": \"What?\", \"context\": \"a red kite\", \"answer\": \
                [\"red kite\", \"kite\"]}\n";
    put(directory, "rows.jsonl", rows)
}

fn pairs(directory: &Path) -> Result<()> {
    put(directory, "rows.csv", "text,second,label\nMia lost it,it was lost,4.5\na,b,0\n")
}

fn translations(directory: &Path) -> Result<()> {
    put(directory, "rows.tsv", "target\tsource\n\"uno\"\tone\n\nd\u{f3}s\ttwo\r\n\tthree\n")
}

fn parallel(directory: &Path) -> Result<()> {
    put(directory, "rows.en", "one\ntwo\n\nfour\n")?;
    put(directory, "rows.es", "uno\nd\u{f3}s\r\ntres\ncuatro")
}

fn use_parallel(directory: &Path) -> Result<()> {
    let data = read_parallel(&[directory.join("rows.en")], &[directory.join("rows.es")])?;
    assert!(data.rows.iter().all(|row| !row.text.trim().is_empty()));
    Ok(())
}

/// Reads, splits and frames the rows as training would.
fn use_rows(directory: &Path, ask: Ask) -> Result<()> {
    let names = ["rows.jsonl", "rows.csv", "rows.tsv", "rows.conll"];
    let files: Vec<_> =
        names.iter().map(|name| directory.join(name)).filter(|path| path.exists()).collect();
    let data = read(&files, ask, &Fields::default(), None)?;
    let split = data.split(0.3, 1);
    assert_eq!(split.train.len() + split.validation.len(), data.rows.len());
    let _ = (data.class_weights(&split.train), data.counts());
    let tokenizer = word_tokenizer();
    let frame = Frame::new(&tokenizer, 12)?;
    for row in data.rows.iter().take(1000) {
        let found = tokenizer.encode_with_places(&row.text)?;
        let (ids, places): (Vec<u32>, Vec<_>) = found.into_iter().unzip();
        let second = tokenizer.encode(row.second.as_deref().unwrap_or_default())?;
        let framed = frame.two(&ids, &second);
        assert!(framed.ids.len() <= 12);
        match &row.answer {
            Answer::Tags(words) => {
                let framed = frame.one(&ids);
                let (tags, _) = align_tags(words, &places, &framed);
                assert_eq!(tags.len(), framed.ids.len());
            }
            Answer::Span(answer, _) => {
                for (framed, held) in frame.windows(&second, &ids, None).rows {
                    let at = framed.second.as_ref().map_or(0, |second| second.start);
                    let _ = locate_answer(answer, &places, &held, at);
                    let _ = Feature::new(framed);
                }
            }
            _ => {}
        }
    }
    Ok(())
}
