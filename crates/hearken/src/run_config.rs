//! The configuration of a run: `[model]`, `[data]` and `[train]` of one TOML file.
//!
//! A file (or a preset by name) comes first, then `--set key=value`, then plain flags.

use crate::failure::Failure;
use hearken::nn::config::{ConfigError, DecoderConfig, ModelConfig};
use hearken::nn::{parse, presets};
use hearken::train::TrainConfig;
use hearken::train::schedule::usual_warmup;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Everything that decides what a run does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunConfig {
    pub(crate) model: ModelConfig,
    #[serde(default)]
    pub(crate) data: DataConfig,
    #[serde(default)]
    pub(crate) train: TrainConfig,
    /// Did the user choose how many steps the warm-up has, rather than a default or a preset?
    #[serde(skip)]
    pub(crate) warmup_is_chosen: bool,
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
    #[serde(rename = "wordpiece", alias = "word-piece")]
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

/// Held-out stories are kept in memory, a kilobyte each.
const MOST_STORIES: usize = 1_000_000;

/// The text of a configuration: that of a preset, or of a file.
pub(crate) fn preset_or_file(name: &str) -> Result<String, Failure> {
    if let Some(text) = presets::find(name) {
        return Ok(text.to_owned());
    }
    if Path::new(name).is_dir() {
        return Err(Failure::Input(format!(
            "{name} is a directory, expected a configuration file\nhint: give a file in it, such as \
             the config.toml of a run"
        )));
    }
    std::fs::read_to_string(name).map_err(|error| {
        if error.kind() != ErrorKind::NotFound {
            return Failure::Input(format!(
                "cannot read {name}: {error}\nhint: a configuration is text that you may read"
            ));
        }
        let names: Vec<&str> = presets::ALL.iter().map(|(name, _)| *name).collect();
        let hint = match parse::nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("the presets are {}", names.join(", ")),
        };
        Failure::Input(format!("there is no preset or file '{name}'\nhint: {hint}"))
    })
}

impl RunConfig {
    /// From a file or preset, with `sets` (`train.lr=3e-4`) put over it.
    pub(crate) fn read(name: &str, sets: &[String]) -> Result<Self, Failure> {
        Self::parse(&preset_or_file(name)?, name, sets)
    }

    /// From text, with `sets` put over it.
    pub(crate) fn parse(text: &str, name: &str, sets: &[String]) -> Result<Self, Failure> {
        let mut config: Self = if sets.is_empty() {
            parse::from_toml(text, name).map_err(input)?
        } else {
            let mut table: toml::Table = parse::from_toml(text, name).map_err(input)?;
            // A file that is wrong by itself may be right with what is set.
            let alone = parse::from_toml::<Self>(text, name);
            let filled = alone.as_ref().ok().and_then(|config| toml::Table::try_from(config).ok());
            for set in sets {
                put(&mut table, filled.as_ref(), set)?;
            }
            // Errors of the file itself are reported with the file's own lines.
            with_kinds(table, sets).map_err(|error| input(alone.err().unwrap_or(error)))?
        };
        if !(0.0..1.0).contains(&config.data.validation) {
            return Err(Failure::Input(format!(
                "data.validation is {}, expected a share from 0 up to 1\nhint: 0.1 is usual",
                config.data.validation
            )));
        }
        if config.data.stories > MOST_STORIES {
            return Err(Failure::Input(format!(
                "data.stories is {}, expected at most {MOST_STORIES}\nhint: 500 are usual, and 100 \
                 times as many give one more digit",
                config.data.stories
            )));
        }
        let file: toml::Table = parse::from_toml(text, name).map_err(input)?;
        let warmup = ["train", "schedule"]
            .iter()
            .try_fold(&file, |table, key| table.get(*key).and_then(toml::Value::as_table));
        let in_file = warmup.is_some_and(|schedule| schedule.contains_key("warmup"));
        let key = |set: &String| set.split('=').next().unwrap_or_default().trim().to_owned();
        let is_set = |set| ["train.schedule", "train.schedule.warmup"].contains(&key(set).as_str());
        config.warmup_is_chosen =
            sets.iter().any(is_set) || in_file && presets::find(name).is_none();
        Ok(config)
    }

    /// A warm-up that nobody chose was made for another number of steps: it takes a tenth of
    /// these at most.
    pub(crate) fn fit_warmup(&mut self) {
        if !self.warmup_is_chosen {
            let most = usual_warmup(self.train.steps);
            self.train.schedule = self.train.schedule.with_warmup_at_most(most);
        }
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

/// Makes a configuration of `table`. Where one of `sets` has chosen another kind
/// (`train.schedule.kind=constant`), keys that the file gave to the old one and that the new one
/// does not know are left away.
fn with_kinds(mut table: toml::Table, sets: &[String]) -> Result<RunConfig, ConfigError> {
    // The one of `sets` that a key comes from, or all.
    let place = |key: Option<&[String]>| {
        let key = key.map(|path| path.join(".")).unwrap_or_default();
        let gives = |set: &&String| {
            set.split_once('=').is_some_and(|(path, _)| {
                let path = path.trim();
                key == path || key.starts_with(&format!("{path}."))
            })
        };
        match sets.iter().rev().find(gives) {
            Some(set) => format!("--set {set}"),
            None => format!("--set {}", sets.join(" --set ")),
        }
    };
    let keys: Vec<&str> = sets.iter().filter_map(|set| set.split_once('=')).map(|s| s.0).collect();
    let chosen: Vec<&str> = keys.iter().filter_map(|key| key.strip_suffix(".kind")).collect();
    loop {
        let error = match parse::from_table(&table, place) {
            Ok(config) => return Ok(config),
            Err(error) => error,
        };
        let unknown = error.message.split_once("unknown field `").and_then(|m| m.1.split_once('`'));
        let Some((unknown, _)) = unknown else { return Err(error) };
        let left_away = chosen.iter().any(|path| {
            let mut names = path.split('.');
            let inner =
                names.try_fold(&mut table, |table, name| table.get_mut(name)?.as_table_mut());
            let was_set = keys.contains(&format!("{path}.{unknown}").as_str());
            !was_set && inner.is_some_and(|inner| inner.remove(unknown).is_some())
        });
        if !left_away {
            return Err(error);
        }
    }
}

/// Puts `a.b=value` into the table; the value is TOML, or text if it is not.
///
/// A choice (a table with `kind`) that the table leaves to its default is taken from `filled`, which
/// has all defaults, so that one of its keys can be set: `train.schedule.warmup=10`. Another kind has
/// defaults of its own, but for the schedule, where warm-up and floor mean the same in all of them.
fn put(
    table: &mut toml::Table,
    mut filled: Option<&toml::Table>,
    set: &str,
) -> Result<(), Failure> {
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
    if path.is_empty()
        && let Some(filled) = filled.filter(|filled| !filled.contains_key(last))
    {
        // A key of one of the tables, perhaps, given without it.
        let of = |table: &&String| filled[*table].get(last).is_some();
        if let Some(table) = filled.keys().find(of) {
            return Err(Failure::Input(format!(
                "--set {set}: there is no {last}\nhint: did you mean {table}.{last}?"
            )));
        }
    }
    let mut table = table;
    for (depth, name) in path.iter().copied().enumerate() {
        filled = filled.and_then(|filled| filled.get(name)).and_then(toml::Value::as_table);
        let is_chosen = depth + 1 == path.len() && last == "kind" && name != "schedule";
        let start = filled.filter(|filled| filled.contains_key("kind") && !is_chosen);
        let inner = table
            .entry(name)
            .or_insert_with(|| toml::Value::Table(start.cloned().unwrap_or_default()));
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
    fn a_part_of_a_choice_is_set_where_the_file_leaves_the_choice_to_its_default() {
        let config = with(&["train.schedule.warmup=7", "train.optimizer.beta2=0.99"]).unwrap();
        let default = TrainConfig::default();
        assert_eq!(config.train.schedule.warmup(), 7);
        let last = |train: &TrainConfig| train.schedule.factor(2000, 2000);
        assert_eq!(last(&config.train), last(&default)); // the same kind and floor
        let config = with(&["train.schedule.kind=constant"]).unwrap();
        assert_eq!(config.train.schedule.factor(1999, 2000), 1.0);
        for kind in ["constant", "linear", "inverse-sqrt", "wsd"] {
            let config = with(&[&format!("train.schedule.kind={kind}")]).unwrap();
            assert_eq!(config.train.schedule.warmup(), default.schedule.warmup(), "{kind}");
        }
        let lion = with(&["train.optimizer.kind=lion"]).unwrap().train.optimizer;
        let whole = with(&["train.optimizer={kind='lion'}"]).unwrap().train.optimizer;
        assert_eq!(lion, whole); // not the betas of AdamW
        with(&["model.position.kind=rope", "model.position.base=5.0"]).unwrap();
    }

    #[test]
    fn only_a_warm_up_that_nobody_chose_is_shortened() {
        let warmup = |text: &str, name: &str, sets: &[&str]| {
            let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
            let mut config = RunConfig::parse(text, name, &sets).unwrap();
            config.train.steps = 40;
            config.fit_warmup();
            config.train.schedule.warmup()
        };
        let preset = presets::find("nanogpt-cpu").unwrap();
        let mine = format!("{TEXT}[train.schedule]\nkind = \"cosine\"\nwarmup = 30\n");
        assert_eq!(warmup(TEXT, "mine.toml", &[]), 4);
        assert_eq!(warmup(preset, "nanogpt-cpu", &[]), 4);
        assert_eq!(warmup(preset, "nanogpt-cpu", &["train.schedule.kind=constant"]), 4);
        assert_eq!(warmup(&mine, "mine.toml", &[]), 30);
        assert_eq!(warmup(preset, "nanogpt-cpu", &["train.schedule.warmup=60"]), 60);
        let whole = "train.schedule={kind='linear', warmup=50}";
        assert_eq!(warmup(TEXT, "mine.toml", &[whole]), 50);
        // At its own number of steps a preset is as it is written.
        for (name, text) in presets::ALL {
            let mut config = RunConfig::parse(text, name, &[]).unwrap();
            let before = config.train.schedule;
            config.fit_warmup();
            assert_eq!(config.train.schedule, before, "{name}");
        }
    }

    #[test]
    fn another_kind_keeps_the_keys_that_it_knows() {
        let schedule = "[train.schedule]\nkind = \"cosine\"\nwarmup = 30\nfloor = 0.5\n";
        let text = format!("{TEXT}{schedule}");
        let parse = |sets: &[&str]| {
            let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
            RunConfig::parse(&text, "test.toml", &sets)
        };
        let constant = parse(&["train.schedule.kind=constant"]).unwrap().train.schedule;
        assert_eq!(constant.warmup(), 30);
        assert_eq!(constant.factor(1999, 2000), 1.0);
        let linear = parse(&["train.schedule.kind=linear"]).unwrap().train.schedule;
        assert_eq!(linear.factor(2000, 2000), 0.5);
        // What was set by hand must fit.
        assert!(parse(&["train.schedule.kind=constant", "train.schedule.floor=0.1"]).is_err());
        assert!(parse(&["train.schedule.kind=konstant"]).is_err());
    }

    #[test]
    fn what_is_wrong_in_the_file_is_told_from_what_is_set() {
        let bad = TEXT.replace("heads", "haeds");
        let sets = ["train.steps=5".to_owned()];
        let Err(Failure::Input(message)) = RunConfig::parse(&bad, "test.toml", &sets) else {
            panic!("haeds was taken")
        };
        assert!(message.starts_with("test.toml, line 6"), "{message}");
        let sets = ["model.width=16", "data.tokenizer=bpee", "train.lr=1"];
        let Err(Failure::Input(message)) = with(&sets) else { panic!() };
        assert!(
            message.starts_with("--set data.tokenizer=bpee: data.tokenizer: unkn"),
            "{message}"
        );
        let Err(Failure::Input(message)) = with(&["train.stpes=5"]) else { panic!() };
        assert!(message.starts_with("--set train.stpes=5: unknown"), "{message}");
        assert!(message.ends_with("hint: did you mean `steps`?"), "{message}");
    }

    #[test]
    fn bad_settings_are_named() {
        for (set, named) in [
            ("train.lrr=1", "lrr"),
            ("train", "key=value"),
            ("width=8", "did you mean model.width?"),
            ("lr=0.1", "did you mean train.lr?"),
            ("model.width.x=1", "not a table"),
            ("train.steps=many", "--set train.steps=many: train.steps: "),
            ("train.lr=fast", "--set train.lr=fast: train.lr: "),
            ("train.precision=fp8", "--set train.precision=fp8: train.precision: "),
            ("train.gradient_checkpointing=yes", ": train.gradient_checkpointing: "),
            ("train.schedule.warmup=x", ": train.schedule.warmup: "),
            ("train.optimizer.beta1=x", ": train.optimizer.beta1: "),
            ("data.validation=2", "validation"),
            ("data.stories=100000000000", "at most 1000000"),
            ("train.schedule=cosine", "a table with its kind"),
            ("train.steps=-1", "a whole number"),
        ] {
            let Err(Failure::Input(message)) = with(&[set]) else { panic!("{set} was taken") };
            assert!(message.contains(named) && message.contains("hint: "), "{message}");
        }
    }
}
