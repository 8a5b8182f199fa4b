//! A model to work with: found, verified, loaded, and joined with its tokenizer.

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

use crate::config::RunConfig;
use hearken_base::{Error, Result};
use hearken_data::tokenizer::{Special, Tokenizer};
use hearken_formats::{self as formats, Family, Loaded, SpecialTokens};
use hearken_nn::models::{
    Classifies, Encodes, Generates, Model, PredictsNumbers, PredictsTokens, Translates,
};
use hearken_train::{RunDirectory, checkpoint, files};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where runs are, unless they are told otherwise.
pub const RUNS: &str = "runs";

/// A model that was found and loaded.
#[derive(Debug)]
pub struct OpenModel {
    /// Where it is.
    pub directory: PathBuf,
    /// The model.
    pub model: Box<dyn Model>,
    /// How its directory names things.
    pub family: &'static Family,
    /// Tokens with a meaning of their own.
    pub special: SpecialTokens,
}

impl OpenModel {
    /// Opens a model directory, or a run's best or last checkpoint; the newest run of `runs/` if no
    /// path is given. `warn` is called if a damaged checkpoint is replaced by another.
    pub fn open(path: Option<&Path>, warn: &mut dyn FnMut(&str)) -> Result<Self> {
        let directory = locate_sound(path, warn)?;
        let Loaded { model, family, special } = formats::load(&directory)?;
        Ok(Self { directory, model, family, special })
    }

    /// The configuration of the run that the model is a checkpoint of, if it is one.
    pub fn run_config(&self) -> Result<Option<RunConfig>> {
        let run = self.directory.parent().filter(|parent| parent.ends_with("checkpoints"));
        let Some(run) = run.and_then(Path::parent) else { return Ok(None) };
        let path = run.join("config.toml");
        if !path.is_file() {
            return Ok(None);
        }
        let text = RunDirectory::read_config(run)?;
        RunConfig::parse(&text, &path.display().to_string(), &[]).map(Some)
    }

    /// The model as one that writes.
    pub fn generates(&self) -> Result<&dyn Generates> {
        self.model.generates().ok_or_else(|| self.cannot("write text"))
    }

    /// The model as one that predicts tokens.
    pub fn predicts_tokens(&self) -> Result<&dyn PredictsTokens> {
        self.model.predicts_tokens().ok_or_else(|| self.cannot("predict tokens"))
    }

    /// The model as one that reads a source and writes a target.
    pub fn translates(&self) -> Result<&dyn Translates> {
        self.model.translates().ok_or_else(|| self.cannot("translate"))
    }

    /// The model as one that reads whole texts.
    pub fn encodes(&self) -> Result<&dyn Encodes> {
        self.model.encodes().ok_or_else(|| self.cannot("read whole texts, as encoders do"))
    }

    /// The model as one that labels texts.
    pub fn classifies(&self) -> Result<&dyn Classifies> {
        self.model.classifies().ok_or_else(|| self.cannot("label texts"))
    }

    /// The model as one that predicts numbers of texts.
    pub fn predicts_numbers(&self) -> Result<&dyn PredictsNumbers> {
        self.model.predicts_numbers().ok_or_else(|| self.cannot("predict numbers"))
    }

    fn cannot(&self, what: &str) -> Error {
        let message = format!("the model in {} cannot {what}", self.directory.display());
        let fitting = self.commands().join(", ");
        Error::new(message, format!("commands that fit this model: {fitting}"))
    }

    /// The commands that the abilities of the model allow.
    fn commands(&self) -> Vec<&'static str> {
        let model = self.model.as_ref();
        let encodes = model.encodes().is_some();
        let fits = [
            ("generate", model.generates().is_some()),
            ("translate", model.translates().is_some()),
            ("fill", encodes && model.predicts_tokens().is_some()),
            ("classify", model.classifies().is_some() || model.predicts_numbers().is_some()),
            ("embed", encodes),
            ("eval", true),
            ("explain", model.translates().is_none()),
            ("inspect", true),
        ];
        fits.into_iter().filter(|(_, fits)| *fits).map(|(command, _)| command).collect()
    }

    /// The tokenizer at `path`, or the one in the model's directory, if there is one. It must not
    /// know more tokens than the model.
    pub fn tokenizer(&self, path: Option<&Path>) -> Result<Option<Tokenizer>> {
        let tokenizer = match path {
            Some(path) => Tokenizer::load(path)?,
            None if has_tokenizer(&self.directory) => Tokenizer::load(&self.directory)?,
            None => return Ok(None),
        };
        let (theirs, ours) = (tokenizer.vocabulary_size(), self.model.config().vocabulary());
        if theirs > ours {
            return Err(Error::new(
                format!("the tokenizer has {theirs} tokens, but the model knows only {ours}"),
                "use the tokenizer that the model was trained with",
            ));
        }
        Ok(Some(tokenizer))
    }

    /// As [`OpenModel::tokenizer`], where nothing can be done without one.
    pub fn require_tokenizer(&self, path: Option<&Path>, hint: &str) -> Result<Tokenizer> {
        let missing = || {
            let without =
                || Error::new(format!("{} has no tokenizer.json", self.directory.display()), hint);
            Tokenizer::sentence_piece_in(&self.directory).unwrap_or_else(without)
        };
        self.tokenizer(path)?.ok_or_else(missing)
    }

    /// The tokens that end a text, as the directory or the tokenizer says.
    pub fn ends(&self, tokenizer: Option<&Tokenizer>) -> Vec<u32> {
        if !self.special.ends.is_empty() {
            return self.special.ends.clone();
        }
        tokenizer.and_then(|t| t.special(Special::Eos)).into_iter().collect()
    }

    /// Are these tokens of this model, and do they fit its context?
    pub fn check(&self, ids: &[u32]) -> Result<()> {
        let config = self.model.config();
        let vocabulary = config.vocabulary();
        // Recurrent and convolutional models have windows of training, and no longest text.
        let context = self.model.generates().map_or(config.context(), Generates::context);
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
            let message = format!("there is no token {id}: the model has {vocabulary}");
            return Err(Error::new(message, "tokens count from 0"));
        }
        if ids.len() > context {
            let message = format!("{} tokens exceed the model's context of {context}", ids.len());
            return Err(Error::new(message, "give fewer"));
        }
        Ok(())
    }
}

fn has_tokenizer(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).is_file();
    has("tokenizer.json") || (has("vocab.json") && has("merges.txt"))
}

/// The model directory that is meant: itself, a run's best or last checkpoint, or the newest run's.
pub fn locate(path: Option<&Path>) -> Result<PathBuf> {
    Ok(candidates(path)?.swap_remove(0))
}

/// The first of the directories that may be meant whose model is what was written.
fn locate_sound(path: Option<&Path>, warn: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let mut candidates = candidates(path)?.into_iter().peekable();
    while let Some(candidate) = candidates.next() {
        let Err(error) = checkpoint::verify_model(&candidate) else { return Ok(candidate) };
        match candidates.peek() {
            Some(next) => warn(&format!("{}\nusing {} instead", error.message(), next.display())),
            None => {
                return Err(error.with_hint(
                    "use another checkpoint; if you have changed this one yourself, remove its \
                     SHA256SUMS",
                ));
            }
        }
    }
    Err(Error::new("there is no checkpoint", "train a model first"))
}

/// The directories that may be meant, at least one, the first choice first.
fn candidates(path: Option<&Path>) -> Result<Vec<PathBuf>> {
    let Some(path) = path else { return newest_run() };
    if is_model(path) {
        return Ok(vec![path.to_owned()]);
    }
    let named = Path::new(RUNS).join(path);
    for run in [path, &named] {
        if run.join("checkpoints").is_dir() {
            let found = checkpoints_of(run);
            if found.is_empty() {
                return Err(Error::new(
                    format!("{} has no checkpoint yet", run.display()),
                    "wait until training has saved one, or resume it",
                ));
            }
            return Ok(found);
        }
    }
    let what = if path.exists() { "is neither a model nor a run" } else { "does not exist" };
    Err(Error::new(
        format!("{} {what}", path.display()),
        "give a directory with config.json and model.safetensors, or one that 'hearken train' has \
         made",
    ))
}

fn is_model(path: &Path) -> bool {
    path.join("config.json").is_file()
}

/// The best checkpoint of a run and the last, as far as they are there and differ.
fn checkpoints_of(run: &Path) -> Vec<PathBuf> {
    let checkpoints = run.join("checkpoints");
    let follow =
        |name: &str| files::pointed(&checkpoints.join(name)).map(|to| checkpoints.join(to));
    let mut found: Vec<PathBuf> = [follow("best"), follow("last")]
        .into_iter()
        .flatten()
        .filter(|path| is_model(path))
        .collect();
    found.dedup();
    found
}

fn newest_run() -> Result<Vec<PathBuf>> {
    let nothing = |what: &str| {
        Error::new(what, "name a model with --model DIR, or make one with 'hearken train'")
    };
    let Ok(runs) = std::fs::read_dir(RUNS) else {
        return Err(nothing("there is no model: the directory 'runs' does not exist here"));
    };
    let changed = |run: &Path| -> Option<SystemTime> {
        std::fs::metadata(run.join("checkpoints")).ok()?.modified().ok()
    };
    let mut found: Vec<(SystemTime, Vec<PathBuf>)> = runs
        .flatten()
        .map(|entry| entry.path())
        .filter_map(|run| Some((changed(&run)?, checkpoints_of(&run))))
        .filter(|(_, checkpoints)| !checkpoints.is_empty())
        .collect();
    found.sort();
    found.pop().map(|(_, paths)| paths).ok_or_else(|| nothing("no run in 'runs' has a checkpoint"))
}
