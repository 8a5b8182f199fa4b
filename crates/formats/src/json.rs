//! JSON files, and the fields of `config.json` with errors that name them.

use hearken_base::{Error, Kind, Result};
use hearken_store::{disk, files};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::Path;

/// Ten times the largest config.json that is known (of DeepSeek-V3 with its quantisation, 40 kB; those
/// with long lists of labels, 300 kB).
const MOST: u64 = 3 << 20;
/// Several times the largest index that is known (8 MB, of 91,991 tensors).
pub(crate) const MOST_INDEX: u64 = 64 << 20;
/// Characters of a bad value that a message shows.
const SHOWN: usize = 60;

/// Reads a JSON file of at most 3 MB: any value, which takes up to twenty times the memory.
pub(crate) fn read(path: &Path) -> Result<Value> {
    read_as(path, MOST)
}

/// Reads a JSON file of at most `most` bytes.
pub(crate) fn read_as<T: DeserializeOwned>(path: &Path, most: u64) -> Result<T> {
    let text = files::read_text(path, most)?;
    serde_json::from_str(&text).map_err(|error| {
        let what = if error.is_data() { "unexpected" } else { "not JSON" };
        let message = format!("{}: {what}: {error}", path.display());
        Error::of(Kind::Damaged, message, "get or write the file again")
    })
}

/// Writes a JSON file.
pub(crate) fn write(path: &Path, json: &Value) -> Result<()> {
    let text = format!("{json:#}\n");
    disk::write_file(path, text.as_bytes()).map_err(Error::io("write", path))
}

/// An f32 as the shortest decimal that gives it back: 0.1 and not 0.10000000149.
pub(crate) fn number(x: f32) -> Value {
    x.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// `own` over `common`.
pub(crate) fn merged(common: Value, own: Value) -> Value {
    match (common, own) {
        (Value::Object(mut all), Value::Object(own)) => {
            all.extend(own);
            Value::Object(all)
        }
        (_, own) => own,
    }
}

/// The fields of a `config.json`, or of an object in it.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    /// For messages.
    path: &'a Path,
    json: &'a Value,
}

impl<'a> Fields<'a> {
    /// The fields of an object from this file.
    pub fn new(path: &'a Path, json: &'a Value) -> Self {
        Self { path, json }
    }

    /// Which file they are from.
    pub fn path(&self) -> &Path {
        self.path
    }

    /// The whole object.
    pub fn json(&self) -> &'a Value {
        self.json
    }

    /// Is the key there, even if its value is null?
    pub fn has(&self, key: &str) -> bool {
        self.json.get(key).is_some()
    }

    /// The value of a key, unless it is null.
    pub fn present(&self, key: &str) -> Option<&'a Value> {
        self.json.get(key).filter(|value| !value.is_null())
    }

    /// The fields of an object inside this one; of nothing, if there is none.
    pub fn inner(&self, keys: &[&str]) -> Self {
        let found = keys.iter().find_map(|key| self.present(key));
        Self { path: self.path, json: found.unwrap_or(&Value::Null) }
    }

    fn unexpected(&self, key: &str, expected: &str, hint: &str) -> Error {
        let got = self.json.get(key).map_or("missing".to_owned(), Value::to_string);
        let shown: String = got.chars().take(SHOWN).collect();
        let more = if shown.len() < got.len() { "…" } else { "" };
        let path = self.path.display();
        Error::new(format!("{path}: {key} is {shown}{more}, expected {expected}"), hint)
    }

    /// A value that makes no sense.
    pub fn malformed(&self, key: &str, expected: &str) -> Error {
        self.unexpected(key, expected, "correct it, or get the file again")
    }

    /// A value that makes sense, but not here.
    pub fn unsupported(&self, key: &str, expected: &str) -> Error {
        self.unexpected(
            key,
            expected,
            "hearken does not run this variant; 'hearken inspect weights --model DIR' lists its \
             tensors all the same",
        )
    }

    /// A whole number that must be there.
    pub fn size(&self, key: &str) -> Result<usize> {
        let value = self.json.get(key).and_then(Value::as_u64);
        let value = value.and_then(|n| usize::try_from(n).ok());
        value.ok_or_else(|| self.malformed(key, "a whole number"))
    }

    /// A whole number, or the default.
    pub fn size_or(&self, key: &str, default: usize) -> Result<usize> {
        if self.present(key).is_some() { self.size(key) } else { Ok(default) }
    }

    /// A number, or the default.
    pub fn number_or(&self, key: &str, default: f32) -> Result<f32> {
        let Some(value) = self.present(key) else { return Ok(default) };
        value.as_f64().map(|x| x as f32).ok_or_else(|| self.malformed(key, "a number"))
    }

    /// True or false, or the default.
    pub fn truth_or(&self, key: &str, default: bool) -> Result<bool> {
        let Some(value) = self.present(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.malformed(key, "true or false"))
    }

    /// Text, or the default.
    pub fn text_or(&self, key: &str, default: &'a str) -> Result<&'a str> {
        let Some(value) = self.present(key) else { return Ok(default) };
        value.as_str().ok_or_else(|| self.malformed(key, "text"))
    }

    /// Complains unless the value, or its default, is `only`.
    pub fn only(&self, key: &str, only: impl Into<Value>) -> Result<()> {
        let only = only.into();
        match self.present(key) {
            Some(value) if *value != only => Err(self.unsupported(key, &only.to_string())),
            _ => Ok(()),
        }
    }
}

/// Ids as `transformers` writes them: null, a number, or a list if there are several.
pub(crate) fn ids(ids: &[u32]) -> Value {
    match ids {
        [] => Value::Null,
        [one] => json!(one),
        many => json!(many),
    }
}
