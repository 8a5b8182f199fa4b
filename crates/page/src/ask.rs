//! The fields of a question, each checked.

use hearken_base::{Error, Result};
use serde_json::Value;

/// A JSON object from a stranger.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'v>(pub(crate) &'v Value);

impl<'v> Ask<'v> {
    fn bad(key: &str, expected: &str) -> Error {
        Error::new(format!("'{key}' should be {expected}"), "see docs/guide/explain.md")
    }

    /// A field that is there and not null.
    pub(crate) fn get(self, key: &str) -> Option<&'v Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn text(self, key: &str) -> Result<&'v str> {
        self.get(key).and_then(Value::as_str).ok_or_else(|| Self::bad(key, "a text"))
    }

    pub(crate) fn number(self, key: &str, default: f64) -> Result<f64> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_f64().filter(|x| x.is_finite()).ok_or_else(|| Self::bad(key, "a number"))
    }

    pub(crate) fn count(self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count.map(Some).ok_or_else(|| Self::bad(key, "a whole number from 0 up"))
    }

    pub(crate) fn count_or(self, key: &str, default: usize) -> Result<usize> {
        Ok(self.count(key)?.unwrap_or(default))
    }

    pub(crate) fn flag(self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(crate) fn list(self, key: &str) -> Result<&'v [Value]> {
        let Some(value) = self.get(key) else { return Ok(&[]) };
        value.as_array().map(Vec::as_slice).ok_or_else(|| Self::bad(key, "a list"))
    }

    /// Tokens, or places.
    pub(crate) fn ids(self, key: &str) -> Result<Vec<u32>> {
        let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids: Option<Vec<u32>> = self.list(key)?.iter().map(one).collect();
        ids.ok_or_else(|| Self::bad(key, "a list of whole numbers"))
    }

    /// What should come where: [place, token].
    pub(crate) fn target(self) -> Result<Option<(usize, u32)>> {
        match self.ids("target")?[..] {
            [] => Ok(None),
            [place, token] => Ok(Some((place as usize, token))),
            _ => Err(Self::bad("target", "[place, token]")),
        }
    }

    /// A part [first, behind the last] of `size`; all of it, unless given.
    pub(crate) fn range(self, key: &str, size: usize) -> Result<std::ops::Range<usize>> {
        match self.ids(key)?[..] {
            [] => Ok(0..size),
            [from, to] => {
                let to = (to as usize).min(size);
                Ok((from as usize).min(to)..to)
            }
            _ => Err(Self::bad(key, "[first, behind the last]")),
        }
    }
}
