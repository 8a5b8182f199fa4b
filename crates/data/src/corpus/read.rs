//! Reading text in chunks, so that memory stays bounded whatever the length.

use super::lines::LineReader;
use super::source::{Chunk, Entry, Source};
use crate::error::{self, Result};
use crate::tokenizer::CutRule;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

/// A chunk has about this many bytes.
pub(super) const CHUNK: usize = 1 << 20;
/// Text without a place to cut is cut between any two characters after this many bytes.
pub(super) const LONGEST: usize = 16 << 20;

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

impl<'a> Chunks<'a> {
    pub(super) fn new(source: &'a Source, rule: CutRule) -> Self {
        Self { source, rule, next: 0, reader: None }
    }
}

enum Reader {
    Text(TextReader<File>),
    JsonLines(LineReader<File>),
}

impl Iterator for Chunks<'_> {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.source.is_stopped() {
            return Some(Err(error::interrupted("reading the text")));
        }
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
        let path = entry.path.clone();
        fs::metadata(&path).map_err(error::on("read", &path))?;
        // It was a regular file when the source was opened.
        let file = hearken_store::files::open(&path)?;
        Ok(if entry.json_lines {
            Self::JsonLines(LineReader::new(path, file))
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
            let text = text.get(..cut).unwrap_or_default().to_owned();
            let chunk = Chunk { text, ends_document: false };
            self.buffer.drain(..cut);
            self.offset += cut as u64;
            return Ok(Some(chunk));
        }
    }

    /// The buffer as text, up to a character that is not complete yet.
    fn valid_prefix(&self, at_end: bool) -> Result<&str> {
        let bad =
            |at: usize, found: &str| error::not_text(&self.path, self.offset + at as u64, found);
        if self.offset == 0
            && let Some(order) = error::utf16_of(&self.buffer)
        {
            return Err(error::utf16(&self.path, order));
        }
        if self.offset == 0
            && let Some(format) = error::format_of(&self.buffer)
        {
            return Err(error::formatted(&self.path, format));
        }
        if let Some(at) = self.buffer.iter().position(|&byte| byte == 0) {
            return Err(bad(at, "a NUL byte"));
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(text),
            Err(error) if error.error_len().is_none() && !at_end => {
                let valid = self.buffer.get(..error.valid_up_to()).unwrap_or_default();
                Ok(std::str::from_utf8(valid).unwrap_or_default())
            }
            Err(error) => {
                let at = error.valid_up_to();
                let byte = self.buffer.get(at).copied().unwrap_or_default();
                Err(bad(at, &format!("the byte 0x{byte:02X}, which is not UTF-8,")))
            }
        }
    }
}
