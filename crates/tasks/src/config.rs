//! The configuration of a run: `[model]`, `[data]` and `[train]` of one TOML file.
//!
//! A file (or a preset by name) comes first, then settings such as `train.lr=3e-4`, which are put
//! over it.

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod generated;
mod unread;

pub use generated::Generated;

use crate::prefix::PrefixConfig;
use hearken_base::settings::{self, Setting, Settings, Value};
use hearken_base::{Error, Result, names, nearest};
use hearken_nn::config::ModelConfig;
use hearken_nn::presets;
use hearken_store::files::read_text_once;
use hearken_train::TrainConfig;
use hearken_train::schedule::usual_warmup;
use serde::Serialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Everything that decides what a run does.
#[derive(Clone, Debug, Serialize)]
pub struct RunConfig {
    /// What is trained.
    pub model: ModelConfig,
    /// What it learns from.
    pub data: DataConfig,
    /// What exactly it learns.
    pub task: TaskConfig,
    /// How.
    pub train: TrainConfig,
    /// Did the user choose how many steps the warm-up has, rather than a default or a preset?
    #[serde(skip)]
    warmup_is_chosen: bool,
}

impl Setting for RunConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.table(|t| {
            Ok(Self {
                model: t.required("model")?,
                data: t.or_default("data")?,
                task: t.or_default("task")?,
                train: t.or_default("train")?,
                warmup_is_chosen: true,
            })
        })
    }
}

/// What is learned from.
#[derive(Clone, Debug, Serialize)]
pub struct DataConfig {
    /// Text files, directories or JSON lines; `-` is standard input; none: generated stories, or
    /// what `generated` says.
    pub paths: Vec<PathBuf>,
    /// The files of translations, line by line of those in `paths`, where the two sides of pairs are
    /// in files of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<PathBuf>,
    /// What is generated if there are no `paths`: stories, unless given, or dates for
    /// encoder-decoders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generated: Option<Generated>,
    /// The field of JSON lines or the column of a table that holds the text.
    pub field: String,
    /// The field of the second text, where rows have two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<String>,
    /// The field of the label, the labels, the number or the similarity.
    pub label: String,
    /// The share of the text, at its end, that is held out; of labelled rows, the share of every
    /// class.
    pub validation: f64,
    /// Labelled rows that are held out, in files of their own, in place of a share.
    pub held_out: Vec<PathBuf>,
    /// Which tokens, if none are given in `tokenizer_file`.
    pub tokenizer: TokenizerKind,
    /// How many different tokens, where there is a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<usize>,
    /// A tokenizer.json, or a directory that holds one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer_file: Option<PathBuf>,
    /// Labelled rows are cut to so many tokens; to the model's context, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_tokens: Option<usize>,
    /// Where windows of text begin.
    pub windows: WindowsKind,
    /// How many generated stories (or rows, or sequences) are held out.
    pub stories: usize,
    /// What a prefix language model is given of each row.
    #[serde(skip_serializing_if = "PrefixConfig::is_usual")]
    pub prefix: PrefixConfig,
}

impl Setting for DataConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.table(|t| {
            Ok(Self {
                paths: t.or("paths", Vec::new())?,
                targets: t.or("targets", Vec::new())?,
                generated: t.optional("generated")?,
                field: t.or("field", "text".to_owned())?,
                second: t.optional("second")?,
                label: t.or("label", "label".to_owned())?,
                validation: t.or("validation", 0.1)?,
                held_out: t.or("held_out", Vec::new())?,
                tokenizer: t.or("tokenizer", TokenizerKind::Character)?,
                vocabulary: t.optional("vocabulary")?,
                tokenizer_file: t.optional("tokenizer_file")?,
                most_tokens: t.optional("most_tokens")?,
                windows: t.or("windows", WindowsKind::Random)?,
                stories: t.or("stories", 500)?,
                prefix: t.or("prefix", PrefixConfig::default())?,
            })
        })
    }
}

impl DataConfig {
    /// What a model learns from if there are no files.
    pub fn generates(&self, model: &ModelConfig) -> Generated {
        let usual = if model.has_source() { Generated::Dates } else { Generated::Stories };
        self.generated.unwrap_or(usual)
    }

    /// What the data is called: as its first file, without the ending.
    pub fn name(&self) -> String {
        let name = self.paths.first().and_then(|path| path.file_stem()).unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

impl Default for DataConfig {
    fn default() -> Self {
        settings::default()
    }
}

/// What exactly a model learns; decoders have no such choices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskConfig {
    /// A model directory or a run whose body the model starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<PathBuf>,
    /// The learning rate of all but the head; the same as the head's, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_lr: Option<f64>,
    /// The embeddings and so many of the first blocks stay as they are; 0 for none.
    pub freeze: usize,
    /// The share of tokens that a masked language model has to guess, or that is taken out of a text
    /// to be written by an encoder-decoder.
    pub mask: f64,
    /// Does an encoder-decoder learn from plain text, of which spans are taken out (T5)?
    pub denoise: bool,
    /// Pairs that an evaluation of everything translates, at most.
    pub translations: usize,
    /// Do all classes count alike, however many rows they have?
    pub class_weights: bool,
    /// τ of contrastive pairs.
    pub temperature: f64,
    /// Tokens from one window of a long context to the next; half a window, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
    /// Tokens of an answer, at most.
    pub longest_answer: usize,
}

impl Setting for TaskConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.table(|t| {
            Ok(Self {
                init: t.optional("init")?,
                body_lr: t.optional("body_lr")?,
                freeze: t.or("freeze", 0)?,
                mask: t.or("mask", 0.15)?,
                denoise: t.or("denoise", false)?,
                translations: t.or("translations", 500)?,
                class_weights: t.or("class_weights", false)?,
                temperature: t.or("temperature", 0.05)?,
                stride: t.optional("stride")?,
                longest_answer: t.or("longest_answer", 30)?,
            })
        })
    }
}

impl Default for TaskConfig {
    fn default() -> Self {
        settings::default()
    }
}

impl TaskConfig {
    /// What the types alone do not rule out.
    pub fn validate(&self) -> Result<()> {
        let bad = |name: &str, value: f64, expected: &str, hint: &str| {
            Err(Error::new(format!("task.{name} is {value}, expected {expected}"), hint))
        };
        if !(self.mask > 0.0 && self.mask < 1.0) {
            return bad("mask", self.mask, "a share above 0 and below 1", "0.15 is usual");
        }
        if !(1e-4..=100.0).contains(&self.temperature) {
            let expected = "a number from 0.0001 to 100";
            return bad("temperature", self.temperature, expected, "0.05 is usual");
        }
        if let Some(lr) = self.body_lr.filter(|lr| !(0.0..=1e6).contains(lr)) {
            return bad("body_lr", lr, "a number from 0 to 1000000", "5e-5 is usual");
        }
        if self.stride == Some(0) || self.longest_answer == 0 {
            let hint = "leave them out for the usual ones";
            return Err(Error::new("task.stride and task.longest_answer are at least 1", hint));
        }
        Ok(())
    }
}

/// Which tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenizerKind {
    /// One for every character of the text.
    Character,
    /// One for every byte.
    Byte,
    /// Byte pairs that are merged again and again.
    Bpe,
    /// Words and their pieces.
    #[serde(rename = "wordpiece")]
    WordPiece,
    /// Pieces chosen by their likelihood.
    Unigram,
    /// One for every word of the vocabulary, and one for all other words.
    Word,
}

impl Setting for TokenizerKind {
    fn read(value: &Value<'_>) -> Result<Self> {
        if String::read(value).is_ok_and(|name| name == "word-piece") {
            return Ok(Self::WordPiece); // an older spelling
        }
        Ok(match value.name(&["character", "byte", "bpe", "wordpiece", "unigram", "word"])? {
            "byte" => Self::Byte,
            "bpe" => Self::Bpe,
            "wordpiece" => Self::WordPiece,
            "unigram" => Self::Unigram,
            "word" => Self::Word,
            _ => Self::Character,
        })
    }
}

/// Where windows of text begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowsKind {
    /// Anywhere.
    Random,
    /// Non-overlapping windows, every one once per epoch, in a new order each time.
    Shuffled,
    /// Where the row's window of the step before ended, so that a recurrent model can carry its state
    /// on.
    Consecutive,
}

names!(WindowsKind {
    "random" => Random,
    "shuffled" => Shuffled,
    "consecutive" => Consecutive,
});

/// What a new head on a given encoder learns by, unless a configuration is named. The body of the
/// model is replaced by that of the given one.
pub const FINE_TUNING: &str = r#"
[model]
kind = "encoder"
context = 128
layers = 1
width = 8
heads = 1
head = { kind = "classes" }

[task]
body_lr = 5e-5

[train]
batch_size = 32
lr = 1e-3
optimizer = { kind = "adamw", beta2 = 0.999, weight_decay = 0.01 }
schedule = { kind = "linear", floor = 0.0 }
clip = 1.0
"#;

/// What an encoder-decoder that was trained before learns by, unless a configuration is named. The
/// model is replaced by the given one.
pub const FINE_TUNING_PAIRS: &str = r#"
[model]
kind = "encoder-decoder"
context = 128
layers = 1
width = 8
heads = 1

[train]
batch_size = 32
lr = 1e-4
label_smoothing = 0.1
optimizer = { kind = "adamw", beta2 = 0.999, weight_decay = 0.01 }
schedule = { kind = "linear", floor = 0.0 }
clip = 1.0
"#;

/// Held-out stories are kept in memory, a kilobyte each.
const MOST_STORIES: usize = 1_000_000;

/// More often than this a short text is not gone through.
const MOST_EPOCHS: u64 = 15;

/// As few steps as are worth the while.
const LEAST_STEPS: u64 = 300;

/// The size of a regular file.
fn bytes_of(path: &Path) -> Option<u64> {
    let data = std::fs::metadata(path).ok()?;
    data.is_file().then_some(data.len())
}

/// Bytes of a configuration; none written by a person comes near.
const MOST_CONFIG: u64 = 16 << 20;

/// The text of a configuration: that of a preset, or of a file.
pub fn preset_or_file(name: &str) -> Result<String> {
    if let Some(text) = presets::find(name) {
        return Ok(text.to_owned());
    }
    if Path::new(name).is_dir() {
        return Err(Error::new(
            format!("{name} is a directory, expected a configuration file"),
            "give a file in it, such as the config.toml of a run",
        ));
    }
    read_text_once(Path::new(name), MOST_CONFIG).map_err(|error| {
        if error.kind() != ErrorKind::NotFound {
            let message = format!("cannot read {name}: {error}");
            return Error::new(message, "a configuration is text that you may read");
        }
        no_preset(name, "preset or file")
    })
}

fn no_preset(name: &str, what: &str) -> Error {
    let names = || presets::ALL.iter().map(|(name, _)| *name);
    let hint = match nearest(name, names()) {
        Some(near) => format!("did you mean {near}?"),
        None => "'hearken presets' lists the presets; a file is named by its path".to_owned(),
    };
    Error::new(format!("there is no {what} '{name}'"), hint)
}

impl RunConfig {
    /// A model, to be trained on generated stories with all else at its default; then
    /// [`Self::on`], [`Self::steps`] and the public fields.
    ///
    /// ```
    /// use hearken_nn::config::{DecoderConfig, InitConfig, StackConfig};
    /// use hearken_tasks::RunConfig;
    /// use hearken_train::TrainConfig;
    ///
    /// let stack = StackConfig { init: InitConfig::for_width(96), ..StackConfig::new(2, 96, 4) };
    /// let model = DecoderConfig::new(64, stack);
    /// let mut config = RunConfig::new(model).on(["book.txt"]).steps(300);
    /// config.train = TrainConfig { lr: 2e-3, batch_size: 8, ..config.train };
    /// config.validate()?;
    /// # Ok::<(), hearken_base::Error>(())
    /// ```
    pub fn new(model: impl Into<ModelConfig>) -> Self {
        Self {
            model: model.into(),
            data: DataConfig::default(),
            task: TaskConfig::default(),
            train: TrainConfig::default(),
            warmup_is_chosen: false,
        }
    }

    /// One of the presets, by its name; see [`hearken_nn::presets`].
    pub fn preset(name: &str) -> Result<Self> {
        match presets::find(name) {
            Some(text) => Self::parse(text, name, &[]),
            None => Err(no_preset(name, "preset")),
        }
    }

    /// The same, trained on these texts: files, directories or JSON lines.
    pub fn on(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.data.paths = paths.into_iter().map(Into::into).collect();
        self
    }

    /// The same in so many steps.
    pub fn steps(mut self, steps: u64) -> Self {
        self.train.steps = steps;
        self
    }

    /// From a file or preset, with `sets` (`train.lr=3e-4`) put over it.
    pub fn read(name: &str, sets: &[String]) -> Result<Self> {
        Self::parse(&preset_or_file(name)?, name, sets)
    }

    /// From text, with `sets` put over it.
    pub fn parse(text: &str, name: &str, sets: &[String]) -> Result<Self> {
        let mut settings = Settings::parse(text, name)?;
        for set in sets {
            settings.set(set)?;
        }
        let warmup = ["train", "schedule", "warmup"];
        let is_preset = presets::find(name).is_some();
        let warmup_is_chosen = settings.has(&warmup) && (!is_preset || settings.is_set(&warmup));
        Ok(Self { warmup_is_chosen, ..settings.read()? })
    }

    /// The same with `sets` put over it.
    pub fn with(&self, sets: &[String]) -> Result<Self> {
        let read = Self::parse(&self.to_toml()?, "the configuration", sets)?;
        Ok(Self { warmup_is_chosen: self.warmup_is_chosen, ..read })
    }

    /// What the types alone do not rule out.
    pub fn validate(&self) -> Result<()> {
        self.model.validate()?;
        self.data.validate()?;
        self.task.validate()?;
        self.train.validate()
    }

    /// Fewer steps for a short text, in which a step sees a large part of it: at most
    /// `MOST_EPOCHS` times the text, and no fewer than `LEAST_STEPS`. Not if `sets` choose the
    /// steps. What is not a file counts as long.
    pub fn fit_steps(&mut self, paths: &[PathBuf], sets: &[String]) {
        let chosen = |set: &String| set.trim_start().starts_with("train.steps");
        let bytes: Option<u64> = paths.iter().map(|path| bytes_of(path)).sum();
        let (Some(bytes), false) = (bytes, paths.is_empty() || sets.iter().any(chosen)) else {
            return;
        };
        let per_step = (self.train.batch_size.saturating_mul(self.model.context()) as u64).max(1);
        let most = (MOST_EPOCHS * bytes / per_step).max(LEAST_STEPS);
        self.train.steps = self.train.steps.min(most);
    }

    /// A warm-up that nobody chose was made for another number of steps: it takes a tenth of
    /// these at most.
    pub fn fit_warmup(&mut self) {
        if !self.warmup_is_chosen {
            let most = usual_warmup(self.train.steps);
            self.train.schedule = self.train.schedule.with_warmup_at_most(most);
        }
    }

    /// As TOML, with every default written out.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string_pretty(self)
            .map_err(|error| Error::new(format!("cannot write the configuration: {error}"), ""))
    }
}

impl DataConfig {
    /// What the types alone do not rule out.
    pub fn validate(&self) -> Result<()> {
        if !(0.0..1.0).contains(&self.validation) {
            let given = self.validation;
            let message = format!("data.validation is {given}, expected a share from 0 up to 1");
            return Err(Error::new(message, "0.1 is usual"));
        }
        if self.stories > MOST_STORIES {
            return Err(Error::new(
                format!("data.stories is {}, expected at most {MOST_STORIES}", self.stories),
                "500 are usual, and 100 times as many give one more digit",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
