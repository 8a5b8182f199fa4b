//! Texts with answers, read from the user's files: what classifiers, taggers, readers of questions,
//! sentence encoders and translators learn from.
//!
//! | file | a row is |
//! |---|---|
//! | `.jsonl`, `.ndjson` | a line with a JSON object |
//! | `.csv`, `.tsv` | a record under a header line; quoted fields may hold line ends |
//! | a directory | a text file in the folder of its class |
//! | any other, for [`Ask::Tags`] | lines of a word and its tag, up to an empty line |
//! | `.txt`, for [`Ask::Pairs`] | a line: a text without a partner |
//! | `.tsv`, for [`Ask::Translations`] | a line: source, tab, target; names in a first line are optional |
//! | two files ([`read_parallel`]) | line i of both |
//!
//! Labels are found in the data and sorted. Every row is used or refused with its file and line;
//! none is left out silently. All rows are held in memory.
//!
//! ```
//! use hearken_data::labelled::{Ask, Fields, read};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let file = folder.path().join("reviews.csv");
//! std::fs::write(&file, "text,label\n\"Good, very\ngood\",yes\nBad,no\n").unwrap();
//! let data = read(&[file], Ask::Classes, &Fields::default(), None)?;
//! assert_eq!((data.rows.len(), data.labels), (2, vec!["no".to_owned(), "yes".to_owned()]));
//! # Ok::<(), hearken_data::Error>(())
//! ```
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod columns;
mod folders;
mod interpret;
mod lines;
mod record;
mod split;
mod tables;
#[cfg(test)]
mod tests;
mod translations;

pub use split::Split;

use crate::error::{self, Error, Result};
use record::{Reader, Record};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes of all texts together.
const MOST_BYTES: u64 = 8 << 30;
/// Rows.
const MOST_ROWS: usize = 100_000_000;
/// Different labels.
const MOST_LABELS: usize = 100_000;

/// What is asked of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// One of several classes.
    Classes,
    /// Any number of several classes.
    Several,
    /// One number or more.
    Numbers,
    /// A tag for every word.
    Tags,
    /// Where in a context a question is answered.
    Spans,
    /// Another text that means the same, or how similar its meaning is.
    Pairs,
    /// The text that a model should write.
    Translations,
}

/// Which fields of a row are read.
#[derive(Clone, Debug)]
pub struct Fields {
    /// The text; the context of a question.
    pub text: String,
    /// The second text, where a row has two.
    pub second: Option<String>,
    /// The label, the labels, the number, the similarity or the translation.
    pub label: String,
}

impl Default for Fields {
    fn default() -> Self {
        Self { text: "text".to_owned(), second: None, label: "label".to_owned() }
    }
}

/// Where a row was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which of [`Dataset::files`].
    pub file: u32,
    /// The line at which it begins, from 1.
    pub line: u64,
}

/// A text with its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The text, the words joined by spaces, or the context of a question.
    pub text: String,
    /// The second text, or the question.
    pub second: Option<String>,
    /// What a model should say.
    pub answer: Answer,
    /// Where it was found.
    pub place: Place,
}

/// What a model should say of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A class: its place in [`Dataset::labels`].
    Class(u32),
    /// The classes that apply, in order.
    Several(Vec<u32>),
    /// Numbers, as many in every row.
    Numbers(Vec<f32>),
    /// For every word its bytes in the text and its tag.
    Tags(Vec<(Range<usize>, u32)>),
    /// The bytes of the answer in the text, and every answer that counts as right.
    Span(Range<usize>, Vec<String>),
    /// The two texts mean the same, or are as similar as this number says.
    Similar(Option<f32>),
    /// The translation.
    Text(String),
}

/// Rows and the labels that they use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dataset {
    /// All rows, in the order of the files.
    pub rows: Vec<Row>,
    /// The names of classes or tags, sorted: numbers by value, others by their characters. Empty
    /// where answers are not labels.
    pub labels: Vec<String>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// What the user should know of what was read.
    pub notes: Vec<String>,
}

impl Dataset {
    /// The file and the line of a row, for messages.
    pub fn place(&self, row: &Row) -> String {
        describe(&self.files, row.place)
    }

    /// How many rows have each label; of tags, how many words.
    pub fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.labels.len()];
        let mut count = |label: u32| {
            if let Some(count) = counts.get_mut(label as usize) {
                *count += 1;
            }
        };
        for row in &self.rows {
            match &row.answer {
                Answer::Class(class) => count(*class),
                Answer::Several(classes) => classes.iter().for_each(|class| count(*class)),
                Answer::Tags(words) => words.iter().for_each(|(_, tag)| count(*tag)),
                Answer::Numbers(_) | Answer::Span(..) | Answer::Similar(_) | Answer::Text(_) => {}
            }
        }
        counts
    }
}

/// The file and the line of a place, for messages.
pub fn describe(files: &[PathBuf], place: Place) -> String {
    let file = files.get(place.file as usize).map(|file| file.display().to_string());
    format!("{}, line {}", file.unwrap_or_default(), place.line)
}

/// Reads all rows of `paths`. With `known` labels a row with another one is an error; without, the
/// labels are those that the rows have.
pub fn read(
    paths: &[PathBuf],
    ask: Ask,
    fields: &Fields,
    known: Option<&[String]>,
) -> Result<Dataset> {
    let mut all = Vec::new();
    for path in paths {
        all.extend(readers(path, ask, fields)?);
    }
    read_all(all, interpret::Interpreter::new(ask, fields, known))
}

/// Reads texts and their translations from files in pairs: line i of the one belongs to line i of
/// the other.
pub fn read_parallel(sources: &[PathBuf], targets: &[PathBuf]) -> Result<Dataset> {
    if sources.len() != targets.len() {
        let (sources, targets) = (sources.len(), targets.len());
        return Err(Error::new(
            format!("{sources} files of sources and {targets} of targets"),
            "every file of sources has one of targets, in the same order",
        ));
    }
    let mut all: Vec<(Box<dyn Reader>, PathBuf)> = Vec::new();
    for (source, target) in sources.iter().zip(targets) {
        let files = [plain_file(source)?, plain_file(target)?];
        let names = [source.clone(), target.clone()];
        all.push((Box::new(translations::Parallel::new(files, names)), source.clone()));
    }
    let fields = Fields::default();
    read_all(all, interpret::Interpreter::new(Ask::Translations, &fields, None))
}

fn plain_file(path: &Path) -> Result<fs::File> {
    let metadata = fs::metadata(path).map_err(error::on("read", path))?;
    if metadata.is_dir() {
        let message = format!("{} is a directory", path.display());
        return Err(Error::new(message, "expected a text file with a text per line"));
    }
    hearken_store::files::open(path)
}

fn read_all(
    readers: Vec<(Box<dyn Reader>, PathBuf)>,
    mut interpreter: interpret::Interpreter<'_>,
) -> Result<Dataset> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut bytes = 0_u64;
    for (reader, file) in readers {
        files.push(file);
        let number = (files.len() - 1) as u32;
        read_file(reader, number, &files, &mut interpreter, &mut bytes)?;
    }
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let mut data = interpreter.finish(files)?;
    if data.rows.is_empty() {
        return Err(match data.notes.first() {
            Some(note) => {
                Error::new(format!("no pair can be used: {note}"), "is it the right file?")
            }
            None => error::empty(&names.join(", ")),
        });
    }
    data.notes.dedup();
    Ok(data)
}

fn read_file(
    mut reader: Box<dyn Reader>,
    number: u32,
    files: &[PathBuf],
    interpreter: &mut interpret::Interpreter<'_>,
    bytes: &mut u64,
) -> Result<()> {
    loop {
        let mut at = Place { file: number, line: 0 };
        let bad = |place: Place, problem: Problem| {
            Error::new(format!("{}: {}", describe(files, place), problem.what), problem.hint)
        };
        let record: Record = match reader.next(&mut at.line) {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(()),
            Err(problem) => return Err(bad(at, problem)),
        };
        *bytes += record.bytes();
        if *bytes > MOST_BYTES || interpreter.rows() >= MOST_ROWS {
            let what = format!("more than {MOST_BYTES} bytes or {MOST_ROWS} rows of labelled data");
            return Err(bad(at, Problem::new(what, "labelled rows are held in memory: use fewer")));
        }
        interpreter.take(record, at).map_err(|problem| bad(at, problem))?;
    }
}

/// What is wrong with a row, and what to do about it; the caller knows where.
#[derive(Debug)]
struct Problem {
    what: String,
    hint: String,
}

impl Problem {
    fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }
}

/// The readers of a path, each with the name of its file.
fn readers(path: &Path, ask: Ask, fields: &Fields) -> Result<Vec<(Box<dyn Reader>, PathBuf)>> {
    let metadata = fs::metadata(path).map_err(error::on("read", path))?;
    if metadata.is_dir() {
        if ask != Ask::Classes {
            return Err(Error::new(
                format!("{} is a directory", path.display()),
                "a directory per class holds one label per text; other data are files, such as \
                 .jsonl or .csv",
            ));
        }
        return folders::readers(path, fields);
    }
    if !metadata.is_file() {
        return Err(error::device(path).with_hint("labelled data are files or directories"));
    }
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let file = hearken_store::files::open(path)?;
    let reader: Box<dyn Reader> = match extension.to_ascii_lowercase().as_str() {
        "jsonl" | "ndjson" => Box::new(lines::Lines::new(file, interpret::wanted(ask, fields))),
        "csv" => Box::new(tables::Table::new(file, b',')),
        "tsv" if ask == Ask::Translations => Box::new(translations::Tabbed::new(file, fields)),
        "tsv" => Box::new(tables::Table::new(file, b'\t')),
        "txt" if ask == Ask::Pairs => Box::new(lines::Sentences::new(file, &fields.text)),
        _ if ask == Ask::Tags => Box::new(columns::Columns::new(file)),
        _ if ask == Ask::Translations => {
            return Err(Error::new(
                format!("{} holds no pairs of source and target", path.display()),
                "expected .tsv, .jsonl or .csv; two files whose lines belong together are given \
                 with --source and --target",
            ));
        }
        _ => {
            return Err(Error::new(
                format!("{} is not labelled data", path.display()),
                "expected .jsonl, .csv, .tsv or a directory with a folder per class",
            ));
        }
    };
    Ok(vec![(reader, path.to_owned())])
}
