//! `hearken tokenizer report`: how well tokenizers suit a text.

use super::KindName;
use crate::failure::Failure;
use crate::terminal::say;
use clap::Args;
use hearken::data::corpus::Source;
use hearken::data::tokenizer::{Kind, TextReport, Tokenizer, Training};
use hearken::show::StatusLine;
use hearken::show::number::thousands;
use hearken::show::table::Columns;
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Compare tokenizers on text: bytes per token, tokens per word, unknown tokens, and how much of
/// the vocabulary is used, for every file.
///
/// Tokenizers are given with --tokenizer, or trained on the text itself with --kind, one for each
/// size of --vocab-size.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken tokenizer report --tokenizer gpt2/ book.txt
  hearken tokenizer report --tokenizer a.json --tokenizer b.json texts/ --json
  hearken tokenizer report --kind bpe --kind word --vocab-size 1000,4000,16000 book.txt

Keys of --json, one object per tokenizer and file, and one for all files of a tokenizer:
  tokenizer, vocabulary, file (null for all), bytes, words, tokens, bytes_per_token,
  tokens_per_word, unknown, unknown_rate, used, use_of_vocabulary")]
pub(super) struct Arguments {
    /// Text files, directories and .jsonl files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// A tokenizer.json or a directory that holds one (may be given several times)
    #[arg(long, value_name = "PATH")]
    tokenizer: Vec<PathBuf>,
    /// Train one of this kind on the files (may be given several times)
    #[arg(long, value_enum)]
    kind: Vec<KindName>,
    /// The sizes of those that are trained
    #[arg(long, value_name = "N,…", value_delimiter = ',', requires = "kind")]
    vocab_size: Vec<usize>,
    /// The field of .jsonl files that holds the text
    #[arg(long, value_name = "FIELD", default_value = "text")]
    field: String,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
    tokenizer: String,
    vocabulary: usize,
    file: Option<PathBuf>,
    bytes: u64,
    words: u64,
    tokens: u64,
    bytes_per_token: f64,
    tokens_per_word: f64,
    unknown: u64,
    unknown_rate: f64,
    used: usize,
    use_of_vocabulary: f64,
}

impl Line {
    fn new(name: &str, tokenizer: &Tokenizer, file: Option<&Path>, report: &TextReport) -> Self {
        Self {
            tokenizer: name.to_owned(),
            vocabulary: tokenizer.vocabulary_size(),
            file: file.map(Path::to_owned),
            bytes: report.bytes,
            words: report.words,
            tokens: report.tokens,
            bytes_per_token: report.bytes_per_token(),
            tokens_per_word: report.tokens_per_word(),
            unknown: report.unknown,
            unknown_rate: report.unknown_rate(),
            used: report.used(),
            use_of_vocabulary: report.use_of_vocabulary(),
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.tokenizer.is_empty() && arguments.kind.is_empty() {
        return Err(Failure::input(
            "no tokenizer to report on",
            "name one with --tokenizer, or train some with --kind",
        ));
    }
    let whole = Source::open(&arguments.files, &arguments.field)?;
    let files: Vec<PathBuf> = whole.paths().map(Path::to_owned).collect();
    let mut line = StatusLine::new();
    let mut lines = Vec::new();
    let mut each = |name: &str, tokenizer: &Tokenizer, line: &mut StatusLine| {
        let mut all = TextReport::default();
        for file in &files {
            line.show(&format!("{name}: {}", file.display()));
            let source = Source::open(std::slice::from_ref(file), &arguments.field)?;
            let report = TextReport::of(tokenizer, &source)?;
            all.merge(&report);
            lines.push(Line::new(name, tokenizer, Some(file), &report));
        }
        if files.len() > 1 {
            lines.push(Line::new(name, tokenizer, None, &all));
        }
        Ok::<(), Failure>(())
    };
    for path in &arguments.tokenizer {
        each(&path.display().to_string(), &Tokenizer::load(path)?, &mut line)?;
    }
    let mut notes = Vec::new();
    for kind in &arguments.kind {
        let kind = Kind::from(*kind);
        let usual = Training::new(kind);
        let sizes: Vec<Option<usize>> = match (usual.vocabulary, arguments.vocab_size.as_slice()) {
            (None, _) | (_, []) => vec![usual.vocabulary],
            (_, sizes) => sizes.iter().copied().map(Some).collect(),
        };
        for vocabulary in sizes {
            let training = Training { vocabulary, ..usual.clone() };
            line.show(&format!("{}: choosing the vocabulary", kind.name()));
            let (texts, length) = (whole.texts(), Some(whole.length()));
            let quiet = &mut hearken::data::quiet;
            let tokenizer =
                training.train_noting(texts, length, quiet, &mut |note| notes.push(note))?;
            each(kind.name(), &tokenizer, &mut line)?;
        }
    }
    line.clear();
    notes.dedup();
    for note in notes {
        say!("note: {note}");
    }
    write(&lines, arguments.json)
}

fn write(lines: &[Line], json: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(lines).map_err(io::Error::from)?)?;
        return Ok(());
    }
    let row = |line: &Line| {
        let file = line.file.as_ref().map_or("all".to_owned(), |file| file.display().to_string());
        [
            line.tokenizer.clone(),
            thousands(line.vocabulary as f64),
            file,
            thousands(line.tokens as f64),
            format!("{:.3}", line.bytes_per_token),
            format!("{:.3}", line.tokens_per_word),
            format!("{:.2} %", 100.0 * line.unknown_rate),
            format!("{:.1} %", 100.0 * line.use_of_vocabulary),
        ]
    };
    let rows: Vec<[String; 8]> = lines.iter().map(row).collect();
    let columns = Columns::new()
        .left("tokenizer", 0)
        .right("tokens known", 0)
        .left("file", 0)
        .right("tokens", 0)
        .right("bytes/token", 0)
        .right("tokens/word", 0)
        .right("unknown", 0)
        .right("used", 0)
        .holding(&rows);
    writeln!(out, "{}", columns.head())?;
    for row in &rows {
        writeln!(out, "{}", columns.row(row))?;
    }
    Ok(())
}
