//! What a language model is evaluated on: a text, or what its run has generated and held out.

use super::{Arguments, Split};
use crate::failure::Failure;
use crate::kept::Kept;
use crate::terminal::Progress;
use hearken::data::batches::{Examples, Windows};
use hearken::data::corpus::{Corpus, Ids, Keeping, Source, Validation};
use hearken::data::tokenizer::Tokenizer;
use hearken::data::{self, Stage};
use hearken::show::number::bytes as size;
use hearken::tasks::OpenModel;
use hearken::tasks::config::Generated;
use std::path::PathBuf;

/// What is evaluated on.
pub(super) enum Subject {
    /// A text, or a part of it.
    Text { paths: Vec<PathBuf>, field: String, split: Split, validation: f64 },
    /// The stories, rows or sequences that a run has held out.
    Generated { what: Generated, count: usize, seed: u64 },
}

impl Subject {
    /// What the arguments name, or what the run has held out that the model is of.
    pub(super) fn of(arguments: &Arguments, model: &OpenModel) -> Result<Self, Failure> {
        let paths = arguments.paths();
        let given = !paths.is_empty();
        let run = if given { None } else { model.run_config()? };
        let data = run.as_ref().map(|run| &run.data);
        if let (Some(run), true) = (&run, data.is_some_and(|data| data.paths.is_empty())) {
            let (count, seed) = (run.data.stories, run.train.seed);
            let what = run.data.generates(&run.model);
            return Ok(Self::Generated { what, count, seed });
        }
        let paths = data.map_or(paths, |data| data.paths.clone());
        if paths.is_empty() {
            return Err(Failure::input(
                format!(
                    "{} is not of a run, which would have held out a text",
                    model.directory.display()
                ),
                "name a text: eval FILE, or --data FILE",
            ));
        }
        if let Some(gone) = paths.iter().find(|path| !given && !path.exists()) {
            return Err(Failure::input(
                format!("the text of the run, {}, is not here", gone.display()),
                "run eval in the directory where the run was started, or name a text with --data",
            ));
        }
        let default = if given { Split::All } else { Split::Validation };
        let field = arguments.field.clone().or_else(|| data.map(|data| data.field.clone()));
        Ok(Self::Text {
            paths,
            field: field.unwrap_or_else(|| "text".to_owned()),
            split: arguments.split.unwrap_or(default),
            validation: arguments.validation.or(data.map(|data| data.validation)).unwrap_or(0.1),
        })
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        match self {
            Self::Text { paths, .. } => paths.clone(),
            Self::Generated { what, .. } => vec![PathBuf::from(what.name())],
        }
    }

    pub(super) fn split(&self) -> Split {
        match self {
            Self::Text { split, .. } => *split,
            Self::Generated { .. } => Split::Validation,
        }
    }
}

/// Windows of `context` tokens, how many tokens count, and the bytes that those stand for.
pub(super) struct Measured {
    pub(super) examples: Box<dyn Examples>,
    pub(super) targets: usize,
    pub(super) bytes: u64,
    pub(super) context: usize,
}

/// What a run has generated and held out, in the windows in which its evaluations see it.
pub(super) fn generated(
    what: Generated,
    (count, seed): (usize, u64),
    context: usize,
    strided: bool,
) -> Result<Measured, Failure> {
    if strided {
        return Err(Failure::input(
            "what is generated is in windows of whole stories or rows, which do not overlap",
            "leave --stride out",
        ));
    }
    // All of it is written in ASCII: a character is a byte.
    let (examples, targets): (Box<dyn Examples>, usize) = match what {
        Generated::Shots => {
            let held = data::shots::HeldOut::new(count, context, seed)?;
            let labels = held.labels(); // of one letter each
            (Box::new(held), labels)
        }
        Generated::Repeats => {
            let held = data::repeats::Validation::new(count, context, seed)?;
            let characters = held.characters();
            (Box::new(held), characters)
        }
        _ => {
            let held = data::stories::Validation::new(count, context, seed)?;
            let characters = held.characters;
            (Box::new(held), characters)
        }
    };
    Ok(Measured { examples, targets, bytes: targets as u64, context })
}

/// A text in windows, after the token that begins a text if that is one of the text's own.
pub(super) fn text(
    ids: Ids,
    bytes: u64,
    model: &OpenModel,
    tokenizer: &Tokenizer,
    context: usize,
    stride: usize,
) -> Result<Measured, Failure> {
    let first = ids.to_vec(0..ids.len().min(1));
    let begin = model.begin(tokenizer).filter(|begin| !tokenizer.is_special(*begin));
    let (ids, bytes) = match begin {
        Some(begin) if first != [begin] => {
            let mut all = vec![begin];
            all.extend(ids.to_vec(0..ids.len()));
            (Ids::from(all), bytes)
        }
        // Nothing predicts the first token, so its bytes do not count either.
        _ => (ids, bytes.saturating_sub(tokenizer.decode(&first)?.len() as u64)),
    };
    // A window longer than the text would be padding.
    let context = context.min(ids.len().saturating_sub(1)).max(1);
    let windows = Windows::sliding(ids, context, stride.min(context))?;
    Ok(Measured { targets: windows.targets(), examples: Box::new(windows), bytes, context })
}

/// The tokens of the part that was asked for, and its bytes.
pub(super) fn read(
    paths: &[PathBuf],
    field: &str,
    split: Split,
    validation: f64,
    tokenizer: &Tokenizer,
    kept: &Kept,
    progress: &mut Progress,
) -> Result<(Ids, u64), Failure> {
    let validation = match split {
        Split::All => Validation::None,
        Split::Train | Split::Validation => Validation::Fraction(validation),
    };
    let mut report = |at: data::Progress| {
        let doing = if at.stage == Stage::Tokenising { "tokenising" } else { "reading" };
        progress.show(&match at.total {
            Some(total) => format!("{doing}: {} %", 100 * at.done / total.max(1)),
            None => format!("{doing}: {}", size(at.done)),
        });
    };
    let keeping = Keeping { stop: Some(kept.stop()), ..Keeping::new(kept.path()) };
    let source = Source::open_keeping(paths, field, &keeping, &mut report)?;
    let cache = kept.path().join("ids");
    let corpus = Corpus::prepare(&source, &validation, tokenizer, &cache, &mut report)?;
    Ok(match split {
        Split::All | Split::Train => (corpus.train, corpus.train_bytes),
        Split::Validation => (corpus.validation, corpus.validation_bytes),
    })
}
