//! From what a configuration names to tokens, batches and a validation set.

use crate::config::{DataConfig, RunConfig, TokenizerKind, WindowsKind};
use hearken_base::{Error, Result};
use hearken_data::batches::{Batch, Batches, Examples, InOrder, RandomWindows, Shuffled, Windows};
use hearken_data::corpus::{
    Changes, Corpus, KEPT_FILES, Keeping, Outcome, Source, Stop, Validation,
};
use hearken_data::tokenizer::{Kind, Special, Tokenizer, Training};
use hearken_data::{Progress, stories};
use hearken_formats::SpecialTokens;
use hearken_train::RunDirectory;

/// Tokens that one batch of an evaluation has, about: enough to keep all threads busy.
const EVALUATION_TOKENS: usize = 4096;

/// A beginning within a story, behind the line end that begins every text.
const STORY_PROMPT: &str = "\nSo Mia";

/// Tokens of the second prompt of samples, for plain text.
const PROMPT_TOKENS: usize = 24;

/// See `hearken_data::stories`, "Windows".
const CUT_STORIES: &str = "Training lies above validation because its rows are cut at the end of \
    the context: beginnings of stories, where the choices are made, count for more there than in \
    validation, where stories are whole; and one row in eight starts within a story, so that what \
    came before must be guessed.";

// What preparing leaves in a run directory.
const TOKENIZER: &str = "tokenizer.json";
const TOKENS: &str = "corpus.ids";

/// The files that preparing may leave in a run directory.
pub const FILES: [&str; 2 + KEPT_FILES.len()] = {
    let mut names = [TOKENIZER; 2 + KEPT_FILES.len()];
    names[1] = TOKENS;
    let mut i = 0;
    while i < KEPT_FILES.len() {
        names[2 + i] = KEPT_FILES[i];
        i += 1;
    }
    names
};

/// Text to learn from: tokens, batches of them, and a part that is held out.
pub struct TextData {
    /// From text to tokens and back.
    pub tokenizer: Tokenizer,
    /// What training sees.
    pub batches: Box<dyn Batches>,
    /// What is held out, if anything.
    pub validation: Option<Box<dyn Examples>>,
    /// The loss that no model can beat, where it is known.
    pub floor: Option<f64>,
    /// What it is, in a few words.
    pub name: String,
    /// For the report: why the training loss lies above the validation loss.
    pub why_training_is_above: Option<&'static str>,
    /// What to tell the user.
    pub notes: Vec<String>,
    /// What samples begin with.
    prompt: Vec<u32>,
    /// Another beginning for samples, from the middle of a text.
    second_prompt: Option<Vec<u32>>,
    /// The bytes that the targets of the validation set stand for.
    validation_bytes: u64,
    /// The token that stands before every text, if it is not a special one of the tokenizer.
    begin: Option<u32>,
}

impl TextData {
    /// Prepares what `config` names; files that it needs later are kept in `directory`. Reading ends
    /// with an error of the kind `Io(Interrupted)` once `stop` is set.
    pub fn prepare(
        config: &RunConfig,
        directory: &RunDirectory,
        stop: &Stop,
        report: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Self> {
        if config.data.paths.is_empty() {
            Self::stories(config)
        } else {
            Self::text(config, directory, stop, report)
        }
    }

    /// Generated stories.
    pub fn stories(config: &RunConfig) -> Result<Self> {
        let (rows, seed) = (config.train.batch_size, config.train.seed);
        let length = config.model.context();
        let tokenizer = stories::tokenizer();
        let validation = stories::Validation::new(config.data.stories, length, seed)?;
        Ok(Self {
            second_prompt: Some(tokenizer.encode(STORY_PROMPT)?),
            validation_bytes: validation.characters as u64, // stories are written in ASCII
            prompt: tokenizer.encode(stories::BEGIN.encode_utf8(&mut [0; 4]))?,
            begin: tokenizer.id(stories::BEGIN.encode_utf8(&mut [0; 4])),
            tokenizer,
            batches: Box::new(stories::StoryWindows::new(rows, length, seed)?),
            validation: Some(Box::new(validation)),
            floor: Some(stories::floor().nats_per_character()),
            name: "stories".to_owned(),
            why_training_is_above: Some(CUT_STORIES),
            notes: Vec::new(),
        })
    }

    fn text(
        config: &RunConfig,
        directory: &RunDirectory,
        stop: &Stop,
        report: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Self> {
        let (rows, seed) = (config.train.batch_size, config.train.seed);
        let length = config.model.context();
        let data = &config.data;
        let again = directory.is_resumed(); // what is read only once has been read already
        let keeping = Keeping { again, stop: Some(stop), ..Keeping::new(directory.path()) };
        let source = Source::open_keeping(&data.paths, &data.field, &keeping, report)?;
        let kept = directory.file(TOKENIZER);
        let resumed = directory.is_resumed() && kept.exists();
        let mut notes = Vec::new();
        let tokenizer = match &data.tokenizer_file {
            _ if resumed => Tokenizer::load(&kept)?, // a run keeps its tokens
            Some(path) => Tokenizer::load(path)?,
            None => {
                let (texts, bytes) = (source.texts(), Some(source.length()));
                training(data).train_noting(texts, bytes, report, &mut |note| notes.push(note))?
            }
        };
        let validation = Validation::Fraction(data.validation);
        let cache = directory.file(TOKENS);
        let changes = if directory.is_resumed() { Changes::Refused } else { Changes::Allowed };
        let corpus =
            Corpus::prepare_with(&source, &validation, &tokenizer, &cache, changes, report)?;
        // Not before the tokens have been found to fit: a refused run keeps what it had.
        if !resumed {
            tokenizer.save(&kept)?;
        }
        if let Outcome::Rebuilt { reason } = &corpus.outcome {
            notes.push(format!("the tokenised text was made anew, since {reason}"));
        }
        let batches: Box<dyn Batches> = match data.windows {
            WindowsKind::Random => Box::new(RandomWindows::new(corpus.train, rows, length, seed)?),
            WindowsKind::Shuffled => {
                Box::new(Shuffled::new(Windows::full(corpus.train, length)?, rows, seed))
            }
        };
        let name = data.paths.first().and_then(|path| path.file_stem()).unwrap_or_default();
        // A line end if there is such a token, else the first token of what is held out.
        let mut prompt = tokenizer.encode("\n").unwrap_or_default();
        if prompt.is_empty() {
            prompt = corpus.validation.to_vec(0..corpus.validation.len().min(1));
        }
        let second = corpus.validation.to_vec(0..corpus.validation.len().min(PROMPT_TOKENS));
        let first = tokenizer.decode_known(&second[..second.len().min(1)]).len() as u64;
        let validation_bytes = corpus.validation_bytes.saturating_sub(first);
        let held = (corpus.validation.len() >= 2)
            .then(|| Windows::sliding(corpus.validation, length, length))
            .transpose()?;
        Ok(Self {
            prompt: if prompt.is_empty() { vec![0] } else { prompt },
            second_prompt: (second.len() > 1).then_some(second),
            validation_bytes,
            begin: None, // plain text needs none
            tokenizer,
            batches,
            validation: held.map(|windows| Box::new(windows) as Box<dyn Examples>),
            floor: None,
            name: name.to_string_lossy().into_owned(),
            why_training_is_above: None,
            notes,
        })
    }

    /// How many batches the validation set has, and the batches: every target once.
    pub fn validation_batches(&self) -> (usize, Box<dyn Iterator<Item = Batch> + '_>) {
        let Some(examples) = &self.validation else { return (0, Box::new(std::iter::empty())) };
        let batches = InOrder::new(examples, evaluation_rows(self.batches.length()));
        (batches.batches(), Box::new(batches))
    }

    /// How many of so many batches are in a sample of so many tokens, at least one; 0 for all.
    pub fn sampled(&self, tokens: u64, batches: usize) -> usize {
        let length = self.batches.length();
        let wanted = tokens / (evaluation_rows(length) * length).max(1) as u64;
        if tokens == 0 { batches } else { (batches as u64).min(wanted.max(1)) as usize }
    }

    /// What samples begin with.
    pub fn prompt(&self) -> Vec<u32> {
        self.prompt.clone()
    }

    /// Another beginning for samples, from the middle of a text.
    pub fn second_prompt(&self) -> Option<&[u32]> {
        self.second_prompt.as_deref()
    }

    /// The bytes that the targets of the validation set stand for.
    pub fn validation_bytes(&self) -> u64 {
        self.validation_bytes
    }

    /// Tokens with a meaning of their own.
    pub fn special_tokens(&self) -> SpecialTokens {
        SpecialTokens {
            begin: self.begin.or_else(|| self.tokenizer.special(Special::Bos)),
            ends: self.tokenizer.special(Special::Eos).into_iter().collect(),
            pad: self.tokenizer.special(Special::Pad),
        }
    }

    /// Gives the model as many tokens as the tokenizer has, unless its configuration says how many;
    /// then there must be room for them.
    pub fn fit_vocabulary(&self, config: &mut RunConfig) -> Result<()> {
        let tokens = self.tokenizer.vocabulary_size();
        match config.model.vocabulary() {
            0 => config.model.set_vocabulary(tokens),
            given if given < tokens => {
                return Err(Error::new(
                    format!("the tokenizer has {tokens} tokens, but model.vocabulary is {given}"),
                    format!("leave model.vocabulary out, and it will be {tokens}"),
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Windows of so many tokens in a batch of an evaluation.
fn evaluation_rows(length: usize) -> usize {
    (EVALUATION_TOKENS / length.max(1)).max(1)
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
