//! Settings as text, read into types with errors that help: the key, its line, what was expected,
//! and for a misspelt key the nearest one.
//!
//! A type that can be read implements [`Setting`]. A table asks for its keys by name, with a default
//! for each that may be missing; what nobody asked for is unknown, and an error. So a key, its type
//! and its default are written once:
//!
//! ```
//! use hearken_base::settings::{Setting, Settings, Value};
//! use hearken_base::Result;
//!
//! struct Norm { eps: f32, gain: bool }
//!
//! impl Setting for Norm {
//!     fn read(value: &Value<'_>) -> Result<Self> {
//!         value.table(|t| Ok(Self { eps: t.or("eps", 1e-5)?, gain: t.or("gain", true)? }))
//!     }
//! }
//!
//! let norm: Norm = Settings::parse("eps = 1e-6", "norm.toml").unwrap().read().unwrap();
//! assert_eq!((norm.eps, norm.gain), (1e-6, true));
//! let error = Settings::parse("gian = true", "norm.toml").unwrap().read::<Norm>().err().unwrap();
//! assert_eq!(error.message(), "norm.toml, line 1: there is no setting gian");
//! assert_eq!(error.hint(), Some("did you mean gain?"));
//! ```
//!
//! A choice (`optimizer = { kind = "lion", beta1 = 0.9 }`) is a table whose `kind` says which keys it
//! has; its name alone is enough where the defaults will do (`optimizer = "lion"`).

mod values;

use crate::error::{Error, Result};
use crate::nearest;
use std::cell::RefCell;
use std::sync::LazyLock;

/// The key that stands for all others of a table whose values are alike: `dropout.every = 0.1`. A
/// single value in the place of such a table means the same.
pub const EVERY: &str = "every";

/// Something that can be read from a value.
pub trait Setting: Sized {
    /// Reads it.
    fn read(value: &Value<'_>) -> Result<Self>;
}

/// What is read when nothing is given: every key at its default. Panics if one has none.
pub fn default<T: Setting>() -> T {
    let nothing = Settings::from_table(toml::Table::new(), "the defaults");
    nothing.read().unwrap_or_else(|error| panic!("{error}"))
}

/// A table of settings and where each came from.
#[derive(Debug)]
pub struct Settings {
    table: toml::Table,
    /// As the file had it, before anything was set over it.
    file: toml::Table,
    /// The file's name, for messages.
    name: String,
    /// Its text, for the numbers of lines.
    text: String,
    /// What was set over the file, in order: the path of the key, and the words as they were given.
    sets: Vec<(Vec<String>, String)>,
    /// Every key that was asked for.
    known: RefCell<Vec<Vec<String>>>,
}

impl Settings {
    /// Reads TOML; `name` is the file's, for messages.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        let table = toml::from_str(text).map_err(|error| {
            let place = match error.span() {
                Some(span) => format!("{name}, line {}", line_of(text, span.start)),
                None => name.to_owned(),
            };
            Error::new(
                format!("{place}: {}", error.message()),
                "'hearken presets stories' shows a complete example",
            )
        })?;
        Ok(Self { text: text.to_owned(), ..Self::from_table(table, name) })
    }

    /// Takes a table as it is.
    pub fn from_table(table: toml::Table, name: &str) -> Self {
        let (text, sets, known) = (String::new(), Vec::new(), RefCell::default());
        Self { file: table.clone(), table, name: name.to_owned(), text, sets, known }
    }

    /// Takes a JSON object; a `null` is as good as a missing key.
    pub fn from_json(json: &serde_json::Value, name: &str) -> Result<Self> {
        match from_json(json) {
            Some(toml::Value::Table(table)) => Ok(Self::from_table(table, name)),
            _ => Err(Error::new(format!("{name} is not a JSON object"), "")),
        }
    }

    /// Puts `key=value` (`train.lr=3e-4`) over what is there. The value is TOML, or text if it is
    /// not.
    pub fn set(&mut self, set: &str) -> Result<()> {
        let wrong = |message: &str| {
            Error::new(format!("--set {set}: {message}"), "as in --set train.lr=3e-4")
        };
        let (key, value) = set.split_once('=').ok_or_else(|| wrong("expected key=value"))?;
        let value = value.trim();
        let parsed = toml::from_str::<toml::Table>(&format!("x = {value}"));
        let value = parsed.ok().and_then(|mut table| table.remove("x"));
        let value = value.unwrap_or_else(|| toml::Value::String(set_text(set)));
        let path: Vec<String> = key.split('.').map(|name| name.trim().to_owned()).collect();
        if path.iter().any(String::is_empty) {
            return Err(wrong("a key is missing"));
        }
        let Some((last, outer)) = path.split_last() else { return Err(wrong("a key is missing")) };
        let mut table = &mut self.table;
        for name in outer {
            let inner = table.entry(name).or_insert_with(|| toml::Table::new().into());
            // A short form becomes a table: a choice by its name alone, or one value for all keys.
            let short = match inner {
                toml::Value::String(_) => Some("kind"),
                toml::Value::Table(_) | toml::Value::Array(_) => None,
                _ => Some(EVERY),
            };
            if let Some(key) = short {
                *inner = toml::Table::from_iter([(key.to_owned(), inner.clone())]).into();
            }
            table = inner.as_table_mut().ok_or_else(|| wrong(&format!("{name} is not a table")))?;
        }
        table.insert(last.clone(), value);
        self.sets.push((path, set.to_owned()));
        Ok(())
    }

    /// Reads everything: what no type asks for is an error.
    pub fn read<T: Setting>(&self) -> Result<T> {
        self.known.borrow_mut().clear();
        let root = toml::Value::Table(self.table.clone());
        T::read(&Value { settings: self, path: Vec::new(), content: &root })
    }

    /// Reads the value of one key of the outermost table, whatever else is there.
    pub fn read_only<T: Setting>(&self, key: &str) -> Result<Option<T>> {
        self.known.borrow_mut().clear();
        let value = |content| Value { settings: self, path: vec![key.to_owned()], content };
        self.table.get(key).map(|found| T::read(&value(found))).transpose()
    }

    /// Is this key in the file, or set?
    pub fn has(&self, path: &[&str]) -> bool {
        let (Some((last, tables)), table) = (path.split_last(), &self.table) else { return true };
        let inner = tables.iter().try_fold(table, |table, name| table.get(*name)?.as_table());
        inner.is_some_and(|inner| inner.contains_key(*last))
    }

    /// Was this key, or a table that holds it, set over the file?
    pub fn is_set(&self, path: &[&str]) -> bool {
        self.setting(path).is_some()
    }

    /// The last `--set` that gave the value at `path`.
    fn setting(&self, path: &[impl AsRef<str>]) -> Option<&str> {
        let gives = |set: &&(Vec<String>, String)| {
            set.0.len() <= path.len() && set.0.iter().zip(path).all(|(a, b)| a == b.as_ref())
        };
        self.sets.iter().rev().find(gives).map(|(_, words)| words.as_str())
    }

    /// Where a value comes from, for messages.
    fn place(&self, path: &[String]) -> String {
        if let Some(set) = self.setting(path) {
            return format!("--set {set}");
        }
        // A table that is there because one of its keys was set.
        let below = self.sets.iter().rev().find(|(set, _)| set.starts_with(path));
        let is_table = self.in_file(path).is_some_and(toml::Value::is_table);
        match (below, start_of(path, &self.text)) {
            (Some((_, words)), _) if !is_table && !path.is_empty() => format!("--set {words}"),
            (_, Some(start)) => format!("{}, line {}", self.name, line_of(&self.text, start)),
            (_, None) => self.name.clone(),
        }
    }

    /// What the file itself has at `path`.
    fn in_file(&self, path: &[String]) -> Option<&toml::Value> {
        let (last, tables) = path.split_last()?;
        let inner = tables.iter().try_fold(&self.file, |table, name| table.get(name)?.as_table());
        inner?.get(last)
    }

    /// What may have been meant by an unknown key: one near it in its table, one of the same name in
    /// another, or any of its table.
    fn suggestion(&self, path: &[String]) -> Option<String> {
        let known = self.known.borrow();
        let (key, table) = path.split_last()?;
        let sibling = |known: &&Vec<String>| known.split_last().is_some_and(|k| k.1 == table);
        let siblings = known.iter().filter(sibling).filter_map(|known| known.last());
        let mut siblings: Vec<&str> = siblings.map(String::as_str).collect();
        siblings.sort_unstable();
        siblings.dedup();
        if let Some(near) = nearest(key, siblings.iter().copied()) {
            return Some(format!("did you mean {near}?"));
        }
        if let Some(other) = known.iter().find(|known| known.last() == Some(key)) {
            return Some(format!("did you mean {}?", other.join(".")));
        }
        siblings.retain(|name| *name != EVERY);
        (!siblings.is_empty()).then(|| format!("there are {}", siblings.join(", ")))
    }
}

/// The text behind the `=` of a `--set`.
fn set_text(set: &str) -> String {
    set.split_once('=').map_or(String::new(), |(_, value)| value.trim().to_owned())
}

fn from_json(json: &serde_json::Value) -> Option<toml::Value> {
    use serde_json::Value as Json;
    Some(match json {
        Json::Null => return None,
        Json::Bool(x) => (*x).into(),
        Json::Number(x) => match x.as_i64() {
            Some(x) => x.into(),
            None => x.as_f64()?.into(),
        },
        Json::String(x) => x.clone().into(),
        Json::Array(x) => toml::Value::Array(x.iter().filter_map(from_json).collect()),
        Json::Object(x) => {
            let entry = |(key, value): (&String, &Json)| Some((key.clone(), from_json(value)?));
            toml::Value::Table(x.iter().filter_map(entry).collect())
        }
    })
}

/// The number of the line, from 1, that a byte is in.
fn line_of(text: &str, byte: usize) -> usize {
    text.bytes().take(byte).filter(|byte| *byte == b'\n').count() + 1
}

/// The byte at which the value of a key begins.
fn start_of(path: &[String], text: &str) -> Option<usize> {
    fn named<'a, 'i>(
        table: &'a toml::de::DeTable<'i>,
        name: &str,
    ) -> Option<&'a toml::Spanned<toml::de::DeValue<'i>>> {
        table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value)
    }
    let table = toml::de::DeTable::parse(text).ok()?;
    let (first, rest) = path.split_first()?;
    let value = rest.iter().try_fold(named(table.get_ref(), first)?, |value, name| {
        named(value.get_ref().as_table()?, name)
    })?;
    Some(value.span().start)
}

/// A value and where it stands.
#[derive(Clone)]
pub struct Value<'a> {
    settings: &'a Settings,
    path: Vec<String>,
    content: &'a toml::Value,
}

impl<'a> Value<'a> {
    /// The key as it is written in messages: `model.norm.eps`.
    pub fn key(&self) -> String {
        self.path.join(".")
    }

    /// An error about this value: `{place}: {message}`.
    pub fn error(&self, message: impl std::fmt::Display, hint: impl Into<String>) -> Error {
        Error::new(message.to_string(), hint).within(self.settings.place(&self.path))
    }

    /// The value is not what it should be.
    fn unexpected(&self, expected: &str) -> Error {
        let got = match self.content {
            toml::Value::Table(_) => "a table".to_owned(),
            toml::Value::Array(_) => "a list".to_owned(),
            other => other.to_string(),
        };
        let key = self.key();
        let what = if key.is_empty() { got } else { format!("{key} is {got}") };
        self.error(
            format!("{what}, expected {expected}"),
            "'hearken presets stories' shows a complete example",
        )
    }

    /// Reads a table with `read`, which asks for its keys; a key that it does not ask for is an error.
    pub fn table<T>(&self, read: impl FnOnce(&Table<'a>) -> Result<T>) -> Result<T> {
        let Some(entries) = self.content.as_table() else { return Err(self.unexpected("a table")) };
        let table = Table { value: self.clone(), entries: Some(entries) };
        let result = read(&table)?;
        table.finish(&[])?;
        Ok(result)
    }

    /// Reads a choice among `kinds`: a table with a `kind`, or the name of the kind alone. Without a
    /// kind it is the first of `kinds`. `read` is given the kind and the table.
    pub fn choice<T>(
        &self,
        kinds: &[&str],
        read: impl Fn(&str, &Table<'a>) -> Result<T>,
    ) -> Result<T> {
        let entries = match self.content {
            toml::Value::Table(entries) => Some(entries),
            toml::Value::String(_) => None,
            _ => return Err(self.unexpected("a table with its kind, as in { kind = \"…\" }")),
        };
        let table = Table { value: self.clone(), entries };
        let given = match entries {
            Some(_) => table.entry("kind"),
            None => Some(self.clone()),
        };
        let kind = match &given {
            Some(given) => name_of(given, kinds)?,
            None => kinds.first().copied().unwrap_or_default(),
        };
        // If another kind was set over the file's, the keys that the file gave to its own are no
        // error.
        let file_kind = self.settings.in_file(&table.path("kind")).and_then(toml::Value::as_str);
        let file_kind = kinds.iter().find(|name| file_kind == Some(name) && **name != kind);
        let others = file_kind.map_or(Vec::new(), |other| {
            let known = self.settings.known.take();
            let _ = read(other, &table); // only what it asks for matters
            self.settings.known.replace(known)
        });
        let result = read(kind, &table)?;
        table.finish(&others)?;
        Ok(result)
    }

    /// Reads one of `names`.
    pub fn name<'n>(&self, names: &[&'n str]) -> Result<&'n str> {
        name_of(self, names)
    }

    /// Is it a table?
    pub fn is_table(&self) -> bool {
        self.content.is_table()
    }
}

fn name_of<'n>(value: &Value<'_>, names: &[&'n str]) -> Result<&'n str> {
    let expected = || format!("one of {}", names.join(", "));
    let Some(text) = value.content.as_str() else { return Err(value.unexpected(&expected())) };
    if let Some(name) = names.iter().find(|name| **name == text) {
        return Ok(name);
    }
    let hint = match nearest(text, names.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => "choose one of these".to_owned(),
    };
    let key = value.key();
    Err(value.error(format!("{key} is {text:?}, expected {}", expected()), hint))
}

/// A table whose keys are asked for.
pub struct Table<'a> {
    value: Value<'a>,
    /// None if only the name of a choice was given.
    entries: Option<&'a toml::Table>,
}

impl<'a> Table<'a> {
    fn path(&self, key: &str) -> Vec<String> {
        let mut path = self.value.path.clone();
        path.push(key.to_owned());
        path
    }

    /// The value of a key, if it is there.
    pub fn entry(&self, key: &str) -> Option<Value<'a>> {
        let path = self.path(key);
        self.value.settings.known.borrow_mut().push(path.clone());
        let value = self.entries?.get(key)?;
        Some(Value { settings: self.value.settings, path, content: value })
    }

    /// Reads a key that may be missing.
    pub fn optional<T: Setting>(&self, key: &str) -> Result<Option<T>> {
        self.entry(key).map(|value| T::read(&value)).transpose()
    }

    /// Reads a key, or takes the default.
    pub fn or<T: Setting>(&self, key: &str, default: T) -> Result<T> {
        Ok(self.optional(key)?.unwrap_or(default))
    }

    /// Reads a table, or takes its defaults: what an empty one gives.
    pub fn or_default<T: Setting>(&self, key: &str) -> Result<T> {
        static EMPTY: LazyLock<toml::Value> = LazyLock::new(|| toml::Table::new().into());
        let empty = || {
            let (settings, path) = (self.value.settings, self.path(key));
            Value { settings, path, content: &EMPTY }
        };
        T::read(&self.entry(key).unwrap_or_else(empty))
    }

    /// Reads a key that must be there.
    pub fn required<T: Setting>(&self, key: &str) -> Result<T> {
        if let Some(value) = self.optional(key)? {
            return Ok(value);
        }
        // A misspelt one is there instead, perhaps.
        let near = self
            .entries
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
            .find(|name| !self.is_known(name) && strsim::damerau_levenshtein(name, key) <= 2);
        if let Some(name) = near {
            return Err(self.unknown(name, &format!("did you mean {key}?")));
        }
        let settings = self.value.settings;
        let place = settings.place(&self.value.path);
        let key = self.path(key).join(".");
        let hint = "add it; 'hearken presets stories' shows a complete example";
        Err(Error::new(format!("{place}: {key} is missing"), hint))
    }

    fn is_known(&self, key: &str) -> bool {
        let path = self.path(key);
        self.value.settings.known.borrow().contains(&path)
    }

    fn unknown(&self, key: &str, hint: &str) -> Error {
        let path = self.path(key);
        let place = self.value.settings.place(&path);
        Error::new(format!("{place}: there is no setting {}", path.join(".")), hint)
    }

    /// Is the key in the file itself, whatever was set over it?
    pub fn is_in_file(&self, key: &str) -> bool {
        self.value.settings.in_file(&self.path(key)).is_some()
    }

    /// Complains about the first key that nobody asked for; those of the file that are among
    /// `others` are left alone.
    fn finish(&self, others: &[Vec<String>]) -> Result<()> {
        let settings = self.value.settings;
        let is_stray = |key: &&String| {
            let path = self.path(key);
            let is_left_over = others.contains(&path) && settings.setting(&path).is_none();
            !self.is_known(key) && !is_left_over
        };
        let stray = self.entries.into_iter().flatten().map(|(key, _)| key).find(is_stray);
        let Some(key) = stray else { return Ok(()) };
        let hint = settings.suggestion(&self.path(key));
        Err(self.unknown(
            key,
            &hint
                .unwrap_or_else(|| "'hearken presets stories' shows a complete example".to_owned()),
        ))
    }
}

/// Implements [`Setting`] for an enum of names without parameters:
/// `names!(NormKind { "layer" => Layer, "rms" => Rms })`.
#[macro_export]
macro_rules! names {
    ($type:ident { $($name:literal => $variant:ident),* $(,)? }) => {
        impl $crate::settings::Setting for $type {
            fn read(value: &$crate::settings::Value<'_>) -> $crate::Result<Self> {
                match value.name(&[$($name),*])? {
                    $($name => Ok(Self::$variant),)*
                    other => unreachable!("{other} is none of the names that were asked for"),
                }
            }
        }
        impl $type {
            /// Its name in settings.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

#[cfg(test)]
mod tests;
