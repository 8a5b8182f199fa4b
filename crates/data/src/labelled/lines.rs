//! JSON lines: an object per line. Fields that nobody asked for are passed over without being
//! built, so that a line takes no more memory than its bytes.

use super::Problem;
use super::record::{Field, Reader, Record, line};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::fs::File;
use std::io::BufReader;

/// Names kept for a message.
const LISTED: usize = 20;

pub(super) struct Lines {
    input: BufReader<File>,
    line: u64,
    wanted: Vec<String>,
}

impl Lines {
    pub(super) fn new(file: File, wanted: Vec<String>) -> Self {
        Self { input: BufReader::new(file), line: 0, wanted }
    }
}

impl Reader for Lines {
    fn next(&mut self, at: &mut u64) -> Result<Option<Record>, Problem> {
        loop {
            *at = self.line + 1;
            let Some(text) = line(&mut self.input, &mut self.line)? else { return Ok(None) };
            if text.trim().is_empty() {
                continue;
            }
            let mut json = serde_json::Deserializer::from_str(&text);
            let record = json.deserialize_map(Object(&self.wanted));
            let record = record.and_then(|record| json.end().map(|()| record));
            return record.map(Some).map_err(|error| {
                let what = if error.is_data() { "not a JSON object" } else { "not JSON" };
                Problem::new(format!("{what} ({error})"), "one JSON object per line is expected")
            });
        }
    }
}

/// Plain text: a row per line that is not empty.
pub(super) struct Sentences {
    input: BufReader<File>,
    line: u64,
    name: String,
}

impl Sentences {
    pub(super) fn new(file: File, name: &str) -> Self {
        Self { input: BufReader::new(file), line: 0, name: name.to_owned() }
    }
}

impl Reader for Sentences {
    fn next(&mut self, at: &mut u64) -> Result<Option<Record>, Problem> {
        loop {
            *at = self.line + 1;
            let Some(text) = line(&mut self.input, &mut self.line)? else { return Ok(None) };
            if !text.trim().is_empty() {
                let fields = [(self.name.clone(), Field::Text(text))].into();
                return Ok(Some(Record { fields, others: Vec::new() }));
            }
        }
    }
}

struct Object<'a>(&'a [String]);

impl<'de> Visitor<'de> for Object<'_> {
    type Value = Record;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
        let mut record = Record::default();
        while let Some(key) = map.next_key::<String>()? {
            if self.0.contains(&key) {
                let field = map.next_value_seed(Any)?;
                record.fields.insert(key, field);
            } else {
                map.next_value::<IgnoredAny>()?;
                if record.others.len() < LISTED {
                    record.others.push(super::record::shown(&key));
                }
            }
        }
        Ok(record)
    }
}

/// Any value, as far as it is one that rows have.
struct Any;

impl<'de> DeserializeSeed<'de> for Any {
    type Value = Field;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Field, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Any {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Field, E> {
        Ok(Field::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Field, E> {
        Ok(Field::Text(text))
    }

    fn visit_unit<E>(self) -> Result<Field, E> {
        Ok(Field::Nothing)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Field, E> {
        Ok(Field::Text(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Field, E> {
        Ok(Field::Number(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Field, E> {
        Ok(Field::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Field, E> {
        Ok(Field::Number(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Field, A::Error> {
        let (mut texts, mut numbers, mut other) = (Vec::new(), Vec::new(), false);
        while let Some(element) = seq.next_element_seed(Any)? {
            match element {
                Field::Text(text) => texts.push(text),
                Field::Number(number) => numbers.push(number),
                _ => other = true,
            }
        }
        Ok(match (other, numbers.is_empty()) {
            (false, true) => Field::Texts(texts),
            (false, false) if texts.is_empty() => Field::Numbers(numbers),
            _ => Field::Other,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Field, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Field::Other)
    }
}
