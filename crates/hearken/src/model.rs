//! The model that a command works with: found, loaded, and joined with its tokenizer.

use crate::failure::Failure;
use crate::terminal::say;
use hearken::data::tokenizer::{Special, Tokenizer};
use hearken::formats::directory::SpecialTokens;
use hearken::formats::{self, Family};
use hearken::nn::decoder::Decoder;
use hearken::tensor::ops::cross_entropy::IGNORED;
use hearken::train::{checkpoint, files};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where runs are, unless they are told otherwise.
const RUNS: &str = "runs";

/// Which model: shared by all commands that use one.
#[derive(clap::Args)]
pub(crate) struct ModelArguments {
    /// A model directory, or a run (its best checkpoint, or its last) [default: the newest run]
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,
}

/// Which tokenizer, for commands that read text.
#[derive(clap::Args)]
pub(crate) struct TokenizerArguments {
    /// A tokenizer.json or a directory that holds one [default: the model's own]
    #[arg(long, value_name = "PATH")]
    pub(crate) tokenizer: Option<PathBuf>,
}

/// A model that was found and loaded.
pub(crate) struct Model {
    pub(crate) directory: PathBuf,
    pub(crate) decoder: Decoder,
    pub(crate) family: Family,
    pub(crate) special: SpecialTokens,
}

impl Model {
    /// Finds and loads it.
    pub(crate) fn open(arguments: &ModelArguments) -> Result<Self, Failure> {
        let directory = locate_sound(arguments.model.as_deref())?;
        let loaded = formats::load(&directory)?;
        let formats::directory::Loaded { model, family, special } = loaded;
        Ok(Self { directory, decoder: model, family, special })
    }

    /// The tokenizer named, or the one in the model's directory, if there is one. It must not
    /// know more tokens than the model.
    pub(crate) fn tokenizer(
        &self,
        arguments: &TokenizerArguments,
    ) -> Result<Option<Tokenizer>, Failure> {
        let tokenizer = match &arguments.tokenizer {
            Some(path) => Tokenizer::load(path)?,
            None if has_tokenizer(&self.directory) => Tokenizer::load(&self.directory)?,
            None => return Ok(None),
        };
        let (theirs, ours) = (tokenizer.vocabulary_size(), self.decoder.config().vocabulary);
        if theirs > ours {
            return Err(Failure::Input(format!(
                "the tokenizer has {theirs} tokens, but the model knows only {ours}\nhint: use the \
                 tokenizer that the model was trained with"
            )));
        }
        Ok(Some(tokenizer))
    }

    /// As [`Model::tokenizer`], where nothing can be done without one.
    pub(crate) fn require_tokenizer(
        &self,
        arguments: &TokenizerArguments,
        hint: &str,
    ) -> Result<Tokenizer, Failure> {
        self.tokenizer(arguments)?.ok_or_else(|| {
            let directory = self.directory.display();
            Failure::Input(format!("{directory} has no tokenizer.json\nhint: {hint}"))
        })
    }

    /// The token that ends a text, as the directory or the tokenizer says.
    pub(crate) fn end(&self, tokenizer: Option<&Tokenizer>) -> Option<u32> {
        self.special.end.or_else(|| tokenizer.and_then(|t| t.special(Special::Eos)))
    }

    /// Are these tokens of this model, and do they fit its context?
    pub(crate) fn check(&self, ids: &[u32]) -> Result<(), Failure> {
        let config = self.decoder.config();
        if let Some(id) = ids.iter().find(|id| **id as usize >= config.vocabulary) {
            return Err(Failure::Input(format!(
                "there is no token {id}: the model has {}\nhint: tokens count from 0",
                config.vocabulary
            )));
        }
        if ids.len() > config.context {
            return Err(Failure::Input(format!(
                "{} tokens are more than the model's context of {}\nhint: give fewer",
                ids.len(),
                config.context
            )));
        }
        Ok(())
    }
}

fn has_tokenizer(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).is_file();
    has("tokenizer.json") || (has("vocab.json") && has("merges.txt"))
}

/// The model directory that is meant: itself, a run's best or last checkpoint, or the newest run's.
pub(crate) fn locate(path: Option<&Path>) -> Result<PathBuf, Failure> {
    Ok(candidates(path)?.swap_remove(0))
}

/// The first of the directories that may be meant whose model is what was written; a damaged one is
/// named.
fn locate_sound(path: Option<&Path>) -> Result<PathBuf, Failure> {
    let mut candidates = candidates(path)?.into_iter().peekable();
    loop {
        let Some(candidate) = candidates.next() else {
            return Err(Failure::Input("there is no checkpoint".to_owned()));
        };
        let Err(error) = checkpoint::verify_model(&candidate) else { return Ok(candidate) };
        match candidates.peek() {
            Some(next) => say!("warning: {error}\nusing {} instead", next.display()),
            None => {
                return Err(Failure::Input(format!(
                    "{error}\nhint: use another checkpoint; if you have changed this one yourself, \
                     remove its SHA256SUMS"
                )));
            }
        }
    }
}

/// The directories that may be meant, at least one, the first choice first.
fn candidates(path: Option<&Path>) -> Result<Vec<PathBuf>, Failure> {
    let Some(path) = path else { return newest_run() };
    if is_model(path) {
        return Ok(vec![path.to_owned()]);
    }
    let named = Path::new(RUNS).join(path);
    for run in [path, &named] {
        if run.join("checkpoints").is_dir() {
            let found = checkpoints_of(run);
            if found.is_empty() {
                return Err(Failure::Input(format!(
                    "{} has no checkpoint yet\nhint: wait until training has saved one, or resume \
                     it",
                    run.display()
                )));
            }
            return Ok(found);
        }
    }
    let what = if path.exists() { "is neither a model nor a run" } else { "does not exist" };
    Err(Failure::Input(format!(
        "{} {what}\nhint: give a directory with config.json and model.safetensors, or one that \
         'hearken train' has made",
        path.display()
    )))
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

fn newest_run() -> Result<Vec<PathBuf>, Failure> {
    let nothing = |what: &str| {
        Failure::Input(format!(
            "{what}\nhint: name a model with --model DIR, or make one with 'hearken train'"
        ))
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

/// Reads `1,2,3`.
pub(crate) fn parse_ids(text: &str) -> Result<Vec<u32>, String> {
    let one = |part: &str| {
        part.trim().parse().map_err(|_| format!("'{part}' is no token: give numbers as in 1,2,3"))
    };
    text.split(',').map(one).collect()
}

/// Reads `1,2,3`, where a negative number (-100, say) is a target that does not count.
pub(crate) fn parse_targets(text: &str) -> Result<Vec<u32>, String> {
    let one = |part: &str| {
        let part = part.trim();
        match part.parse::<i64>() {
            Ok(target) if target < 0 => Ok(IGNORED),
            _ => parse_ids(part).map(|ids| ids[0]),
        }
    };
    text.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_one_by_one() {
        assert_eq!(parse_ids("1, 2,30"), Ok(vec![1, 2, 30]));
        assert!(parse_ids("1,x").unwrap_err().contains("'x' is no token"));
        assert!(parse_ids("").is_err() && parse_ids("-1").is_err());
        assert_eq!(parse_targets("5,-100,6"), Ok(vec![5, IGNORED, 6]));
    }
}
