//! JSON lines: one object per line, one of whose fields is the text.
//!
//! Only that field is kept. The others are passed over without being built, so that a line of
//! nested brackets takes no more memory than its bytes, and no stack.

use super::read::{CHUNK, LONGEST};
use super::source::Chunk;
use crate::error::{self, Result};
use crate::tokenizer::CutRule;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

/// A line may have this many bytes.
const LONGEST_LINE: u64 = 256 << 20;
/// Keys that a message lists, and the characters that it shows of each.
const LISTED: (usize, usize) = (20, 40);
const ONE_PER_LINE: &str = "one JSON object per line is expected";

/// Reads documents line by line.
pub(super) struct LineReader<R> {
    path: PathBuf,
    lines: BufReader<R>,
    line: u64,
    /// The document at hand, handed out up to `at`.
    document: String,
    at: usize,
}

impl<R: Read> LineReader<R> {
    pub(super) fn new(path: PathBuf, input: R) -> Self {
        let lines = BufReader::with_capacity(1 << 16, input);
        Self { path, lines, line: 0, document: String::new(), at: 0 }
    }

    pub(super) fn chunk(&mut self, rule: CutRule, field: &str) -> Result<Option<Chunk>> {
        while self.at == self.document.len() {
            match self.next_document(field)? {
                Some(document) => (self.document, self.at) = (document, 0),
                None => return Ok(None),
            }
        }
        let rest = self.document.get(self.at..).unwrap_or_default();
        let cut = if rest.len() <= CHUNK {
            rest.len()
        } else {
            let near = rule.last_cut(rest, CHUNK).or_else(|| rule.last_cut(rest, LONGEST));
            near.unwrap_or_else(|| rest.floor_char_boundary(LONGEST))
        };
        self.at += cut;
        let text = rest.get(..cut).unwrap_or_default().to_owned();
        Ok(Some(Chunk { text, ends_document: self.at == self.document.len() }))
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
            let Ok(line) = std::str::from_utf8(&line) else {
                return Err(bad("not UTF-8 text", "convert it (iconv -f latin1 -t utf-8)"));
            };
            if line.trim().is_empty() {
                continue;
            }
            let found = parse(line, field).map_err(|error| {
                let what = if error.is_data() { "not a JSON object" } else { "not JSON" };
                bad(&format!("{what} ({error})"), ONE_PER_LINE)
            })?;
            let what = match found.field {
                Some(Field::Text(text)) => return Ok(Some(text)),
                Some(Field::Other) => "is not a string",
                None => "is missing",
            };
            let keys = found.keys.join(", ");
            let hint = format!("name the field that holds the text; this line has: {keys}");
            return Err(bad(&format!("the field {field:?} {what}"), &hint));
        }
    }
}

/// What a line says of the field that is looked for.
enum Field {
    Text(String),
    Other,
}

/// What a line holds.
#[derive(Default)]
struct Found {
    field: Option<Field>,
    /// The first few, for a message.
    keys: Vec<String>,
}

fn parse(line: &str, field: &str) -> serde_json::Result<Found> {
    let mut json = serde_json::Deserializer::from_str(line);
    let found = json.deserialize_map(Object(field))?;
    json.end()?;
    Ok(found)
}

/// Looks for a field in an object.
struct Object<'a>(&'a str);

impl<'de> Visitor<'de> for Object<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Found, A::Error> {
        let mut found = Found::default();
        while let Some(key) = map.next_key::<String>()? {
            if key == self.0 {
                found.field = Some(map.next_value_seed(Looked)?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            if found.keys.len() < LISTED.0 {
                found.keys.push(key.chars().take(LISTED.1).collect());
            }
        }
        Ok(found)
    }
}

/// Tells a text from anything else, which is passed over.
struct Looked;

impl<'de> DeserializeSeed<'de> for Looked {
    type Value = Field;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Field, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Looked {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<Field, E> {
        Ok(Field::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> std::result::Result<Field, E> {
        Ok(Field::Text(text))
    }

    fn visit_unit<E>(self) -> std::result::Result<Field, E> {
        Ok(Field::Other)
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<Field, E> {
        Ok(Field::Other)
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<Field, E> {
        Ok(Field::Other)
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<Field, E> {
        Ok(Field::Other)
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<Field, E> {
        Ok(Field::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Field, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Field::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Field, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Field::Other)
    }
}
