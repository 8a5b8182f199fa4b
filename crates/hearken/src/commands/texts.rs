//! The texts of commands that read many: lines of files or of standard input, or texts on the command
//! line.

use crate::failure::Failure;
use crate::terminal::say;
use hearken::tasks::cut::Cut;
use hearken::tasks::reader::Text;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes of a line: far more than any model reads.
const LONGEST_LINE: u64 = 64 << 20;

/// Which texts: one per line.
#[derive(clap::Args)]
pub(crate) struct LineArguments {
    /// Files with a text per line, - for standard input, or a text itself. In files that end in
    /// .jsonl, the field --field of each line
    #[arg(value_name = "FILE|-|TEXT")]
    inputs: Vec<String>,

    /// A text, whatever it looks like (may be given several times)
    #[arg(long, value_name = "TEXT")]
    text: Vec<String>,

    /// The key of the text in JSON lines; with it, standard input and pipes have JSON lines, too
    /// [default: text]
    #[arg(long, value_name = "KEY")]
    field: Option<String>,
}

/// Which texts: one per line, or two.
#[derive(clap::Args)]
pub(crate) struct TextArguments {
    #[command(flatten)]
    lines: LineArguments,

    /// Each line holds two texts, with a tab between them
    #[arg(long)]
    pairs: bool,
}

/// A text, and where it comes from.
pub(crate) struct Given {
    pub(crate) texts: Vec<Text>,
    places: Vec<String>,
}

impl Given {
    /// Where text i comes from, for messages.
    pub(crate) fn place(&self, i: usize) -> String {
        self.places.get(i).cloned().unwrap_or_default()
    }
}

impl TextArguments {
    /// The files among them.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.lines.files()
    }

    /// All of them, at least one.
    pub(crate) fn read(&self) -> Result<Given, Failure> {
        self.lines.read_texts(self.pairs)
    }
}

impl LineArguments {
    /// Is none named?
    pub(crate) fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.text.is_empty()
    }

    /// The files among them.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.inputs.iter().map(PathBuf::from).filter(|path| path.is_file()).collect()
    }

    /// All of them, at least one.
    pub(crate) fn read(&self) -> Result<Given, Failure> {
        self.read_texts(false)
    }

    /// All lines of standard input.
    pub(crate) fn read_stdin(&self) -> Result<Given, Failure> {
        let mut given = Given { texts: Vec::new(), places: Vec::new() };
        self.read_stdin_into(false, &mut given)?;
        Ok(given)
    }

    fn read_texts(&self, pairs: bool) -> Result<Given, Failure> {
        let has_fields = |input: &String| {
            let path = Path::new(input);
            input == "-" || is_json(path) || is_pipe(path)
        };
        if self.field.is_some() && !self.inputs.iter().any(has_fields) {
            return Err(Failure::input(
                "--field names a key of JSON lines, and no file of them is given",
                "give a file that ends in .jsonl, or - for standard input",
            ));
        }
        let mut given = Given { texts: Vec::new(), places: Vec::new() };
        for input in &self.inputs {
            let path = Path::new(input);
            if input == "-" {
                self.read_stdin_into(pairs, &mut given)?;
            } else if path.is_file() || is_pipe(path) {
                let file = File::open(path).map_err(|error| cannot_read(path, &error))?;
                let json = is_json(path) || self.field.is_some() && is_pipe(path);
                self.read_lines(BufReader::new(file), input, json, pairs, &mut given)?;
            } else if path.is_dir() {
                return Err(Failure::input(
                    format!("{input} is a directory, expected a file with a text per line"),
                    "name its files; a text that looks like a path is given with --text",
                ));
            } else if looks_like_a_path(input) {
                return Err(Failure::input(
                    format!("there is no file {input}"),
                    "check the path; a text that looks like one is given with --text",
                ));
            } else {
                put(pairs, input, format!("'{}'", shortened(input)), &mut given)?;
            }
        }
        for text in &self.text {
            put(pairs, text, format!("'{}'", shortened(text)), &mut given)?;
        }
        if given.texts.is_empty() {
            return Err(Failure::input(
                "there is no text",
                "give a file with a text per line, - for standard input, or a text in quotes",
            ));
        }
        Ok(given)
    }

    fn read_stdin_into(&self, pairs: bool, given: &mut Given) -> Result<(), Failure> {
        self.read_lines(io::stdin().lock(), "standard input", self.field.is_some(), pairs, given)
    }

    fn read_lines(
        &self,
        mut from: impl BufRead,
        name: &str,
        json: bool,
        pairs: bool,
        given: &mut Given,
    ) -> Result<(), Failure> {
        for number in 1.. {
            let place = || format!("{name}, line {number}");
            let mut line = Vec::new();
            let read = from.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut line);
            if read.map_err(|error| cannot_read(Path::new(name), &error))? == 0 {
                return Ok(());
            }
            if line.len() as u64 > LONGEST_LINE {
                let message = format!("{} has more than {LONGEST_LINE} bytes", place());
                return Err(Failure::input(message, "give a text per line"));
            }
            while line.last().is_some_and(|byte| *byte == b'\n' || *byte == b'\r') {
                line.pop();
            }
            let mut line = String::from_utf8(line).map_err(|_| {
                Failure::input(format!("{} is not UTF-8 text", place()), "convert the file first")
            })?;
            if number == 1 && line.starts_with('\u{feff}') {
                line.remove(0); // a byte order mark is no text
            }
            if json && line.trim().is_empty() {
                continue; // as everywhere in JSON lines: no record
            }
            if json {
                let text = self.field_of(&line, &place())?;
                put(pairs, &text, place(), given)?;
            } else {
                put(pairs, &line, place(), given)?;
            }
        }
        Ok(())
    }

    fn field_of(&self, line: &str, place: &str) -> Result<String, Failure> {
        let value: Value = serde_json::from_str(line).map_err(|error| {
            Failure::input(format!("{place} is not JSON: {error}"), "write an object per line")
        })?;
        let field = self.field.as_deref().unwrap_or("text");
        let text = value.get(field).and_then(Value::as_str).map(str::to_owned);
        text.ok_or_else(|| {
            let message = format!("{place} has no text '{field}'");
            Failure::input(message, "name the key of the text with --field")
        })
    }
}

/// Adds the text or the two texts of a line.
fn put(pairs: bool, line: &str, place: String, given: &mut Given) -> Result<(), Failure> {
    let text = if pairs {
        let Some((first, second)) = line.split_once('\t') else {
            let message = format!("{place} has no tab, expected two texts");
            return Err(Failure::input(message, "put a tab between them, or leave --pairs out"));
        };
        Text { first: first.to_owned(), second: Some(second.to_owned()) }
    } else {
        Text { first: line.to_owned(), second: None }
    };
    given.texts.push(text);
    given.places.push(place);
    Ok(())
}

/// Does a file have JSON lines?
fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "jsonl" || end == "ndjson")
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    Failure::input(format!("cannot read {}: {error}", path.display()), "give a text file")
}

/// A pipe, as of `<(…)`: there, and neither a file nor a directory.
fn is_pipe(path: &Path) -> bool {
    path.exists() && !path.is_file() && !path.is_dir()
}

/// One word with a slash or an ending of a file.
fn looks_like_a_path(input: &str) -> bool {
    let ending = PathBuf::from(input).extension().and_then(|end| end.to_str().map(str::len));
    !input.contains(char::is_whitespace)
        && (input.contains('/') || ending.is_some_and(|n| (2..=11).contains(&n)))
}

fn shortened(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// Says how many texts were cut, and where the first is.
pub(crate) fn note_cut(cut: Cut, given: &Given, most: usize) {
    let Cut { count, first } = cut;
    let Some(first) = first else { return };
    if count == 1 && given.texts.len() == 1 {
        say!("note: the text is longer than {most} tokens, and was cut");
        return;
    }
    let texts = if count == 1 { "text was" } else { "texts were" };
    let place = given.place(first);
    say!("note: {count} {texts} longer than {most} tokens, and cut; the first is {place}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_paths_are_told_apart() {
        for text in ["Hello", "a [MASK] b", "Who?", "3.5", "the end.", "[MASK]"] {
            assert!(!looks_like_a_path(text), "{text}");
        }
        for path in ["reviews.txt", "data/reviews", "./x", "a.jsonl"] {
            assert!(looks_like_a_path(path), "{path}");
        }
    }
}
