//! How attention turns scores into weights, and which of its projections are one.

use hearken_base::settings::{Setting, Value};
use hearken_base::{Result, names};
use serde::Serialize;

/// The softmax of attention: `softmax = { top = 16, temperature = 0.5 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SoftmaxConfig {
    /// A query keeps its so many largest scores and is blind to the rest; none: it keeps all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<usize>,
    /// What the products q·k/√D are divided by: below 1 attention is sharper, and towards 0 it becomes
    /// a lookup of the one best key.
    pub temperature: f32,
}

impl Setting for SoftmaxConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        value
            .table(|t| Ok(Self { top: t.optional("top")?, temperature: t.or("temperature", 1.0)? }))
    }
}

impl Default for SoftmaxConfig {
    fn default() -> Self {
        Self { top: None, temperature: 1.0 }
    }
}

impl SoftmaxConfig {
    pub(super) fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// Which projections of an attention layer are one matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shared {
    /// Each has its own.
    #[default]
    None,
    /// Queries are keys.
    QueryKey,
    /// Keys are values.
    KeyValue,
    /// All three are the same.
    All,
}

names!(Shared {
    "none" => None,
    "query-key" => QueryKey,
    "key-value" => KeyValue,
    "all" => All,
});

impl Shared {
    /// Is the query of a token its key?
    pub fn queries_are_keys(self) -> bool {
        matches!(self, Self::QueryKey | Self::All)
    }

    /// Is the key of a token its value?
    pub fn keys_are_values(self) -> bool {
        matches!(self, Self::KeyValue | Self::All)
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands the field over so")]
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }
}
