//! From what the configuration names to tokens, batches and a validation set.

use crate::failure::Failure;
use crate::run_config::{DataConfig, RunConfig, TokenizerKind, WindowsKind};
use crate::terminal::{Progress, say};
use hearken::data::batches::{Batch, Batches, Examples, InOrder, RandomWindows, Shuffled, Windows};
use hearken::data::corpus::{Changes, Corpus, Ids, Outcome, Source, Validation};
use hearken::data::tokenizer::{Kind, Special, Tokenizer, Training};
use hearken::data::{Error, Progress as Done, Stage, stories};
use hearken::formats::directory::SpecialTokens;
use hearken::train::RunDirectory;
use std::path::PathBuf;

/// Tokens that one batch of an evaluation has, about: enough to keep all threads busy.
const EVALUATION_TOKENS: usize = 4096;

/// See `hearken::data::stories`, "Windows".
const CUT_STORIES: &str = "Training lies above validation because its rows are cut at the end of \
    the context: beginnings of stories, which hold all that cannot be guessed, count for more \
    there than in validation, where stories are whole.";

// What preparing leaves in a run directory.
const TOKENIZER: &str = "tokenizer.json";
const TOKENS: &str = "corpus.ids";
const STANDARD_INPUT: &str = "stdin.txt";
pub(super) const FILES: [&str; 3] = [TOKENIZER, TOKENS, STANDARD_INPUT];

pub(super) struct Data {
    pub(super) tokenizer: Tokenizer,
    pub(super) batches: Box<dyn Batches>,
    validation: Held,
    /// The loss that no model can beat, where it is known.
    pub(super) floor: Option<f64>,
    /// What it is, in a few words.
    pub(super) name: String,
    /// For the report: why the training loss lies above the validation loss.
    pub(super) why_training_is_above: Option<&'static str>,
}

enum Held {
    Stories(stories::Validation),
    Text { ids: Ids, length: usize },
}

impl Data {
    /// Prepares what `config` names; files that it needs later are kept in `directory`.
    pub(super) fn prepare(
        config: &mut RunConfig,
        directory: &RunDirectory,
    ) -> Result<Self, Failure> {
        let mut progress = Progress::new();
        let result = if config.data.paths.is_empty() {
            Self::stories(config)
        } else {
            Self::text(config, directory, &mut progress)
        };
        progress.clear();
        result.map_err(|error| Failure::Input(error.to_string()))
    }

    fn stories(config: &mut RunConfig) -> Result<Self, Error> {
        let (rows, seed) = (config.train.batch_size, config.train.seed);
        let length = config.decoder().context;
        let validation = stories::Validation::new(config.data.stories, length, seed)?;
        Ok(Self {
            tokenizer: stories::tokenizer(),
            batches: Box::new(stories::StoryWindows::new(rows, length, seed)?),
            validation: Held::Stories(validation),
            floor: Some(stories::floor().nats_per_character()),
            name: "stories".to_owned(),
            why_training_is_above: Some(CUT_STORIES),
        })
    }

    fn text(
        config: &mut RunConfig,
        directory: &RunDirectory,
        progress: &mut Progress,
    ) -> Result<Self, Error> {
        let (rows, seed) = (config.train.batch_size, config.train.seed);
        let length = config.decoder().context;
        let data = &config.data;
        let source = open(data, directory)?;
        let mut report = |done: Done| progress.show(&words(done));
        let kept = directory.file(TOKENIZER);
        let resumed = directory.is_resumed() && kept.exists();
        let tokenizer = match &data.tokenizer_file {
            _ if resumed => Tokenizer::load(&kept)?, // a run keeps its tokens
            Some(path) => Tokenizer::load(path)?,
            None => training(data).train(source.texts(), Some(source.length()), &mut report)?,
        };
        let validation = Validation::Fraction(data.validation);
        let cache = directory.file(TOKENS);
        let changes = if directory.is_resumed() { Changes::Refused } else { Changes::Allowed };
        let corpus =
            Corpus::prepare_with(&source, &validation, &tokenizer, &cache, changes, &mut report)?;
        // Not before the tokens have been found to fit: a refused run keeps what it had.
        if !resumed {
            tokenizer.save(&kept)?;
        }
        if let Outcome::Rebuilt { reason } = &corpus.outcome {
            progress.clear();
            say!("note: the tokenised text was made anew, since {reason}");
        }
        let batches: Box<dyn Batches> = match data.windows {
            WindowsKind::Random => Box::new(RandomWindows::new(corpus.train, rows, length, seed)?),
            WindowsKind::Shuffled => {
                Box::new(Shuffled::new(Windows::full(corpus.train, length)?, rows, seed))
            }
        };
        let name = data.paths[0].file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            tokenizer,
            batches,
            validation: Held::Text { ids: corpus.validation, length },
            floor: None,
            name,
            why_training_is_above: None,
        })
    }

    /// How many batches the validation set has, and the batches: every target once.
    pub(super) fn validation_batches(
        &self,
    ) -> Result<(usize, Box<dyn Iterator<Item = Batch> + '_>), Error> {
        let examples: Box<dyn Examples + '_> = match &self.validation {
            Held::Stories(held) => Box::new(held),
            Held::Text { ids, .. } if ids.len() < 2 => {
                return Ok((0, Box::new(std::iter::empty())));
            }
            Held::Text { ids, length } => {
                Box::new(Windows::sliding(ids.clone(), *length, *length)?)
            }
        };
        let batches = InOrder::new(examples, evaluation_rows(self.batches.length()));
        Ok((batches.batches(), Box::new(batches)))
    }

    /// How many of so many batches are in a sample of so many tokens, at least one; 0 for all.
    pub(super) fn sampled(&self, tokens: u64, batches: usize) -> usize {
        let length = self.batches.length();
        let wanted = tokens / (evaluation_rows(length) * length).max(1) as u64;
        if tokens == 0 { batches } else { (batches as u64).min(wanted.max(1)) as usize }
    }

    /// What samples begin with: a line end if there is such a token, else the first token of
    /// what is held out.
    pub(super) fn prompt(&self) -> Vec<u32> {
        let line_end = self.tokenizer.encode("\n").unwrap_or_default();
        match (&self.validation, line_end.is_empty()) {
            (_, false) => line_end,
            (Held::Text { ids, .. }, _) if !ids.is_empty() => ids.to_vec(0..1),
            _ => vec![0],
        }
    }

    pub(super) fn special_tokens(&self) -> SpecialTokens {
        SpecialTokens {
            begin: self.tokenizer.special(Special::Bos),
            end: self.tokenizer.special(Special::Eos),
            pad: self.tokenizer.special(Special::Pad),
        }
    }
}

/// Windows of so many tokens in a batch of an evaluation.
fn evaluation_rows(length: usize) -> usize {
    (EVALUATION_TOKENS / length.max(1)).max(1)
}

fn open(data: &DataConfig, directory: &RunDirectory) -> Result<Source, Error> {
    if data.paths == [PathBuf::from("-")] {
        let spool = directory.file(STANDARD_INPUT);
        if directory.is_resumed() && spool.exists() {
            return Source::from_path(&spool); // it has been read already
        }
        return Source::from_reader(&mut std::io::stdin().lock(), &spool);
    }
    Source::open(&data.paths, &data.field)
}

fn training(data: &DataConfig) -> Training {
    let kind = match data.tokenizer {
        TokenizerKind::Character => Kind::Character,
        TokenizerKind::Byte => Kind::Byte,
        TokenizerKind::Bpe => Kind::Bpe,
        TokenizerKind::WordPiece => Kind::WordPiece,
        TokenizerKind::Unigram => Kind::Unigram,
    };
    let mut training = Training::new(kind);
    if data.vocabulary.is_some() {
        training.vocabulary = data.vocabulary;
    }
    training
}

fn words(done: Done) -> String {
    let what = match done.stage {
        Stage::Reading => "reading the text",
        Stage::Training => "choosing the vocabulary",
        Stage::Surveying => "checking the text",
        Stage::Tokenising => "turning text into tokens",
    };
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    match done.total {
        Some(total) if total > 0 => {
            let share = 100.0 * done.done as f64 / total as f64;
            format!("{what}: {share:.0} % of {:.1} MB", megabytes(total))
        }
        _ => what.to_owned(),
    }
}
