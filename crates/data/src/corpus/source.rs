//! Where text comes from: files, directories, JSON lines, stdin. Read in chunks, so that memory
//! stays bounded whatever the length.

use crate::error::{self, Result};
use crate::tokenizer::CutRule;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// A chunk has about this many bytes.
const CHUNK: usize = 1 << 20;
/// Text without a place to cut is cut between any two characters after this many bytes.
const LONGEST: usize = 16 << 20;
/// A line of JSON may have this many bytes.
const LONGEST_LINE: u64 = 256 << 20;
const ONE_PER_LINE: &str = "one JSON object per line is expected";

/// Text to be read, found and measured but not yet read.
#[derive(Clone, Debug)]
pub struct Source {
    files: Vec<Entry>,
    field: String,
    documents: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    path: PathBuf,
    json_lines: bool,
    length: u64,
    /// Nanoseconds since 1970.
    modified: u64,
}

/// A piece of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// What it says.
    pub text: String,
    /// Does the document end here?
    pub ends_document: bool,
}

impl Source {
    /// Text files, directories (all files in them, by name, hidden ones and training runs left out)
    /// and JSON lines (`.jsonl`, `.ndjson`: one object per line, whose `field` is the text).
    pub fn open(paths: &[PathBuf], field: &str) -> Result<Self> {
        let mut files = Vec::new();
        let mut documents = paths.len() > 1;
        for path in paths {
            let metadata = fs::metadata(path).map_err(error::on("read", path))?;
            if metadata.is_dir() {
                documents = true;
                let before = files.len();
                collect(path, &mut files)?;
                if files.len() == before {
                    return Err(error::empty(&path.display().to_string()));
                }
            } else {
                files.push(Entry::new(path.clone(), &metadata));
            }
        }
        documents |= files.iter().any(|file| file.json_lines);
        if files.iter().all(|file| file.length == 0) {
            let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            return Err(error::empty(&names.join(", ")));
        }
        Ok(Self { files, field: field.to_owned(), documents })
    }

    /// One file or directory, with the text of JSON lines in `text`.
    pub fn from_path(path: &Path) -> Result<Self> {
        Self::open(&[path.to_owned()], "text")
    }

    /// All of `input` (stdin, as a rule), kept in the file `spool`, since it is read twice.
    pub fn from_reader(input: &mut dyn Read, spool: &Path) -> Result<Self> {
        if let Some(folder) = spool.parent() {
            fs::create_dir_all(folder).map_err(error::on("create", folder))?;
        }
        let copy = |input: &mut dyn Read| {
            let mut file = File::create(spool)?;
            std::io::copy(input, &mut file)?;
            file.flush()
        };
        copy(input).map_err(error::on("write", spool))?;
        if fs::metadata(spool).is_ok_and(|metadata| metadata.len() == 0) {
            return Err(error::empty("stdin"));
        }
        Self::from_path(spool)
    }

    /// The files' bytes; JSON lines are counted whole.
    pub fn length(&self) -> u64 {
        self.files.iter().map(|file| file.length).sum()
    }

    /// Is this more than one stream of text, so that documents should be told apart?
    pub fn has_documents(&self) -> bool {
        self.documents
    }

    /// All the text, in chunks that end where `rule` allows.
    pub fn chunks(&self, rule: CutRule) -> Chunks<'_> {
        Chunks { source: self, rule, next: 0, reader: None }
    }

    /// All the text, to learn a tokenizer from.
    pub fn texts(&self) -> impl Iterator<Item = Result<String>> + Send + '_ {
        self.chunks(CutRule::BeforeSpace).map(|chunk| chunk.map(|chunk| chunk.text))
    }

    /// What tells one source from another without reading it: names, lengths and times.
    pub(super) fn stamp(&self) -> u64 {
        let mut digest = crate::Digest::default();
        digest.update(self.field.as_bytes());
        for file in &self.files {
            let path = fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
            digest.update(path.as_os_str().as_encoded_bytes());
            digest.update(&file.length.to_le_bytes());
            digest.update(&file.modified.to_le_bytes());
        }
        digest.value()
    }
}

impl Entry {
    fn new(path: PathBuf, metadata: &fs::Metadata) -> Self {
        let extension = path.extension().unwrap_or_default();
        let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self {
            json_lines: extension == "jsonl" || extension == "ndjson",
            length: metadata.len(),
            modified: since.map_or(0, |since| since.as_nanos() as u64),
            path,
        }
    }
}

/// Is this the directory of a training run, as `hearken_train::RunDirectory` makes it? Checkpoints
/// are no text, and samples should not be learned from.
fn is_run(folder: &Path) -> bool {
    folder.join("checkpoints").is_dir() && folder.join("lock").is_file()
}

/// The files under `folder`, depth first, by name. Runs in it are passed over.
fn collect(folder: &Path, files: &mut Vec<Entry>) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(error::on("read", folder))?;
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(error::on("read", folder))?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    for path in paths {
        // A link to a folder could lead back here; a link to a file is as good as the file.
        let link = fs::symlink_metadata(&path).map_err(error::on("read", &path))?.is_symlink();
        let metadata = fs::metadata(&path).map_err(error::on("read", &path))?;
        if metadata.is_dir() && !link {
            if !is_run(&path) {
                collect(&path, files)?;
            }
        } else if metadata.is_file() {
            files.push(Entry::new(path, &metadata));
        }
    }
    Ok(())
}

/// The text of `input` (stdin, as a rule), called `name` in messages, in chunks that end where
/// `rule` allows: to be read once.
pub fn chunks_of<R: Read + Send>(
    input: R,
    name: &str,
    rule: CutRule,
) -> impl Iterator<Item = Result<Chunk>> + Send {
    let mut reader = TextReader::new(PathBuf::from(name), input);
    std::iter::from_fn(move || reader.chunk(rule).transpose())
}

/// See [`Source::chunks`].
pub struct Chunks<'a> {
    source: &'a Source,
    rule: CutRule,
    next: usize,
    reader: Option<Reader>,
}

enum Reader {
    Text(TextReader<File>),
    JsonLines(LineReader),
}

impl Iterator for Chunks<'_> {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let chunk = match &mut self.reader {
                None => {
                    let entry = self.source.files.get(self.next)?;
                    self.next += 1;
                    match Reader::open(entry) {
                        Ok(reader) => self.reader = Some(reader),
                        Err(error) => return Some(Err(error)),
                    }
                    continue;
                }
                Some(Reader::Text(reader)) => reader.chunk(self.rule),
                Some(Reader::JsonLines(reader)) => reader.chunk(self.rule, &self.source.field),
            };
            match chunk.transpose() {
                Some(chunk) => return Some(chunk),
                None => self.reader = None,
            }
        }
    }
}

impl Reader {
    fn open(entry: &Entry) -> Result<Self> {
        let file = File::open(&entry.path).map_err(error::on("read", &entry.path))?;
        let path = entry.path.clone();
        Ok(if entry.json_lines {
            let (lines, line) = (BufReader::with_capacity(1 << 16, file), 0);
            Self::JsonLines(LineReader { path, lines, line, document: String::new(), at: 0 })
        } else {
            Self::Text(TextReader::new(path, file))
        })
    }
}

struct TextReader<R> {
    path: PathBuf,
    input: R,
    /// Where in the file the buffer begins.
    offset: u64,
    /// Read but not handed out.
    buffer: Vec<u8>,
}

impl<R: Read> TextReader<R> {
    fn new(path: PathBuf, input: R) -> Self {
        Self { path, input, offset: 0, buffer: Vec::new() }
    }

    fn chunk(&mut self, rule: CutRule) -> Result<Option<Chunk>> {
        let mut target = CHUNK;
        loop {
            let want = target - self.buffer.len().min(target);
            let got = (&mut self.input)
                .take(want as u64)
                .read_to_end(&mut self.buffer)
                .map_err(error::on("read", &self.path))?;
            let at_end = got < want;
            let text = self.valid_prefix(at_end)?;
            if at_end {
                let chunk = Chunk { text: text.to_owned(), ends_document: true };
                self.buffer.clear();
                return Ok((!chunk.text.is_empty()).then_some(chunk));
            }
            let cut = match rule.last_cut(text, text.len()) {
                None if target < LONGEST => {
                    target *= 2;
                    continue;
                }
                cut => cut.unwrap_or(text.len()),
            };
            let chunk = Chunk { text: text[..cut].to_owned(), ends_document: false };
            self.buffer.drain(..cut);
            self.offset += cut as u64;
            return Ok(Some(chunk));
        }
    }

    /// The buffer as text, up to a character that is not complete yet.
    fn valid_prefix(&self, at_end: bool) -> Result<&str> {
        let bad =
            |at: usize, found: &str| error::not_text(&self.path, self.offset + at as u64, found);
        if let Some(at) = self.buffer.iter().position(|&byte| byte == 0) {
            return Err(bad(at, "a NUL byte"));
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(text),
            Err(error) if error.error_len().is_none() && !at_end => {
                let valid = &self.buffer[..error.valid_up_to()];
                Ok(std::str::from_utf8(valid).unwrap_or_default())
            }
            Err(error) => {
                let at = error.valid_up_to();
                Err(bad(at, &format!("the byte 0x{:02X}, which is not UTF-8,", self.buffer[at])))
            }
        }
    }
}

struct LineReader {
    path: PathBuf,
    lines: BufReader<File>,
    line: u64,
    /// The document at hand, handed out up to `at`.
    document: String,
    at: usize,
}

impl LineReader {
    fn chunk(&mut self, rule: CutRule, field: &str) -> Result<Option<Chunk>> {
        while self.at == self.document.len() {
            match self.next_document(field)? {
                Some(document) => (self.document, self.at) = (document, 0),
                None => return Ok(None),
            }
        }
        let rest = &self.document[self.at..];
        let cut = if rest.len() <= CHUNK {
            rest.len()
        } else {
            let near = rule.last_cut(rest, CHUNK).or_else(|| rule.last_cut(rest, LONGEST));
            near.unwrap_or_else(|| rest.floor_char_boundary(LONGEST))
        };
        self.at += cut;
        let ends_document = self.at == self.document.len();
        Ok(Some(Chunk { text: rest[..cut].to_owned(), ends_document }))
    }

    fn next_document(&mut self, field: &str) -> Result<Option<String>> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.lines)
                .take(LONGEST_LINE + 1)
                .read_until(b'\n', &mut line)
                .map_err(error::on("read", &self.path))?;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            let bad =
                |reason: &str, hint: &str| error::json_line(&self.path, self.line, reason, hint);
            if read as u64 > LONGEST_LINE {
                return Err(bad(&format!("longer than {LONGEST_LINE} bytes"), ONE_PER_LINE));
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            let mut object: serde_json::Value = serde_json::from_slice(&line)
                .map_err(|error| bad(&format!("not JSON ({error})"), ONE_PER_LINE))?;
            match object.get_mut(field).map(serde_json::Value::take) {
                Some(serde_json::Value::String(text)) => return Ok(Some(text)),
                found => {
                    let what = if found.is_some() { "is not a string" } else { "is missing" };
                    let keys = object.as_object().map(|o| o.keys().cloned().collect::<Vec<_>>());
                    let keys = keys.unwrap_or_default().join(", ");
                    let hint = format!("name the field that holds the text; this line has: {keys}");
                    return Err(bad(&format!("the field {field:?} {what}"), &hint));
                }
            }
        }
    }
}
