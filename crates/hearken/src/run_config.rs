//! The configuration of a run: `[model]`, `[data]` and `[train]` of one TOML file.
//!
//! A file (or a preset by name) comes first, then `--set key=value`, then plain flags.

use crate::failure::Failure;
use hearken::nn::config::{DecoderConfig, ModelConfig};
use hearken::nn::{parse, presets};
use hearken::train::TrainConfig;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Everything that decides what a run does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunConfig {
    pub(crate) model: ModelConfig,
    #[serde(default)]
    pub(crate) data: DataConfig,
    #[serde(default)]
    pub(crate) train: TrainConfig,
}

/// What is learned from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DataConfig {
    /// Text files, directories or JSON lines; `-` is standard input; none: generated stories.
    pub(crate) paths: Vec<PathBuf>,
    /// The field of JSON lines that holds the text.
    pub(crate) field: String,
    /// The share of the text, at its end, that is held out.
    pub(crate) validation: f64,
    /// Which tokens, if none are given in `tokenizer_file`.
    pub(crate) tokenizer: TokenizerKind,
    /// How many different tokens, where there is a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vocabulary: Option<usize>,
    /// A tokenizer.json, or a directory that holds one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokenizer_file: Option<PathBuf>,
    /// Where windows of text begin.
    pub(crate) windows: WindowsKind,
    /// How many generated stories are held out.
    pub(crate) stories: usize,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            field: "text".to_owned(),
            validation: 0.1,
            tokenizer: TokenizerKind::Character,
            vocabulary: None,
            tokenizer_file: None,
            windows: WindowsKind::Random,
            stories: 500,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TokenizerKind {
    Character,
    Byte,
    Bpe,
    WordPiece,
    Unigram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WindowsKind {
    /// Anywhere.
    Random,
    /// Side by side, every one once per epoch, in a new order each time.
    Shuffled,
}

impl RunConfig {
    /// From a file or preset, with `sets` (`train.lr=3e-4`) put over it.
    pub(crate) fn read(name: &str, sets: &[String]) -> Result<Self, Failure> {
        let text = match presets::find(name) {
            Some(text) => text.to_owned(),
            None => std::fs::read_to_string(name).map_err(|error| {
                let known: Vec<&str> = presets::ALL.iter().map(|(name, _)| *name).collect();
                Failure::Input(format!(
                    "cannot read {name}: {error}\nhint: give a file, or one of {}",
                    known.join(", ")
                ))
            })?,
        };
        Self::parse(&text, name, sets)
    }

    /// From text, with `sets` put over it.
    pub(crate) fn parse(text: &str, name: &str, sets: &[String]) -> Result<Self, Failure> {
        let mut text = text.to_owned();
        if !sets.is_empty() {
            // Errors in the file itself are reported with the file's own lines.
            let mut table: toml::Table = parse::from_toml(&text, name).map_err(input)?;
            for set in sets {
                put(&mut table, set)?;
            }
            text = toml::to_string(&table).map_err(|error| Failure::Input(error.to_string()))?;
        }
        let config: Self = parse::from_toml(&text, name).map_err(input)?;
        if !(0.0..1.0).contains(&config.data.validation) {
            return Err(Failure::Input(format!(
                "data.validation is {}, expected a share from 0 up to 1\nhint: 0.1 is usual",
                config.data.validation
            )));
        }
        Ok(config)
    }

    /// The model's part.
    pub(crate) fn decoder(&mut self) -> &mut DecoderConfig {
        let ModelConfig::Decoder(config) = &mut self.model;
        config
    }

    /// As TOML, with every default written out.
    pub(crate) fn to_toml(&self) -> Result<String, Failure> {
        toml::to_string_pretty(self).map_err(|error| Failure::Input(error.to_string()))
    }
}

fn input(error: impl std::fmt::Display) -> Failure {
    Failure::Input(error.to_string())
}

/// Puts `a.b=value` into the table; the value is TOML, or text if it is not.
fn put(table: &mut toml::Table, set: &str) -> Result<(), Failure> {
    let wrong = |message: &str| {
        Failure::Input(format!("--set {set}: {message}\nhint: as in --set train.lr=3e-4"))
    };
    let (key, value) = set.split_once('=').ok_or_else(|| wrong("expected key=value"))?;
    let parsed = toml::from_str::<toml::Table>(&format!("x = {}", value.trim()));
    let value = match parsed {
        Ok(mut table) => table.remove("x").unwrap_or_else(|| toml::Value::String(String::new())),
        Err(_) => toml::Value::String(value.trim().to_owned()),
    };
    let mut path: Vec<&str> = key.trim().split('.').collect();
    let last = path.pop().filter(|name| !name.is_empty()).ok_or_else(|| wrong("no key"))?;
    let mut table = table;
    for name in path {
        let inner = table.entry(name).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        table = inner.as_table_mut().ok_or_else(|| wrong(&format!("{name} is not a table")))?;
    }
    table.insert(last.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "[model]\nkind = \"decoder\"\ncontext = 8\nlayers = 1\nwidth = 8\nheads = 2\n";

    fn with(sets: &[&str]) -> Result<RunConfig, Failure> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        RunConfig::parse(TEXT, "test.toml", &sets)
    }

    #[test]
    fn settings_go_over_the_file() {
        let sets = ["train.lr=3e-4", "model.width=16", "data.tokenizer=byte"];
        let mut config = with(&sets).unwrap();
        assert_eq!((config.train.lr, config.decoder().width), (3e-4, 16));
        assert_eq!(config.data.tokenizer, TokenizerKind::Byte);
        let again = RunConfig::parse(&config.to_toml().unwrap(), "again", &[]).unwrap();
        assert_eq!(again.train, config.train);
    }

    #[test]
    fn bad_settings_are_named() {
        for (set, named) in [
            ("train.lrr=1", "lrr"),
            ("train", "key=value"),
            ("model.width.x=1", "not a table"),
            ("train.steps=many", "many"),
            ("data.validation=2", "validation"),
        ] {
            let Err(Failure::Input(message)) = with(&[set]) else { panic!("{set} was taken") };
            assert!(message.contains(named) && message.contains("hint: "), "{message}");
        }
    }
}
