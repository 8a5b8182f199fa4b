//! From what a configuration names to tokens, batches and a validation set.

mod random;

use crate::batch::evaluation_rows;
use crate::config::{DataConfig, Generated, RunConfig, TokenizerKind, WindowsKind};
use crate::held_out::DIGEST;
use crate::open;
use hearken_base::{Error, Result};
use hearken_data::batches::{
    Batch, Batches, ConsecutiveWindows, Examples, InOrder, RandomWindows, Shuffled, Windows,
};
use hearken_data::corpus::{
    Changes, Corpus, KEPT_FILES, Keeping, Outcome, Source, Stop, Validation,
};
use hearken_data::tokenizer::{Kind, Special, SpecialText, Tokenizer, Training};
use hearken_data::{Progress, repeats, shots, stories};
use hearken_formats::SpecialTokens;
use hearken_train::RunDirectory;
use random::{HeldOut, RandomTokens, Training as RandomBatches};
use std::path::Path;
use std::sync::Arc;

/// A beginning within a story, after the line end that begins every text.
const STORY_PROMPT: &str = "\nSo Mia";

/// Labelled examples, and a word whose label is asked for.
const SHOT_PROMPT: &str = "fox A red B owl A blue";

/// Tokens of the second prompt of samples, for plain text.
const PROMPT_TOKENS: usize = 24;

/// See `hearken_data::stories`, "Windows".
const CUT_STORIES: &str = "Training lies above validation because its rows are cut at the end of \
    the context: beginnings of stories, where the choices are made, count for more there than in \
    validation, where stories are whole; and one row in sixteen starts within a story, so that what \
    came before must be guessed.";

// What preparing leaves in a run directory.
pub(crate) const TOKENIZER: &str = "tokenizer.json";
const TOKENS: &str = "corpus.ids";

/// The files that preparing may leave in a run directory.
pub const FILES: [&str; 3 + KEPT_FILES.len()] = {
    let mut names = [TOKENIZER; 3 + KEPT_FILES.len()];
    names[1] = TOKENS;
    names[2] = DIGEST;
    let mut i = 0;
    while i < KEPT_FILES.len() {
        names[3 + i] = KEPT_FILES[i];
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
        match config.data.generates(&config.model) {
            _ if !config.data.paths.is_empty() => Self::text(config, directory, stop, report),
            Generated::Stories => Self::stories(config),
            Generated::Shots => Self::shots(config),
            Generated::Repeats => Self::repeats(config),
            other => Err(other.misfit()),
        }
    }

    /// Generated rows of labelled examples.
    pub fn shots(config: &RunConfig) -> Result<Self> {
        let (rows, seed) = (config.train.batch_size, config.train.seed);
        let length = config.model.context();
        let tokenizer = shots::tokenizer();
        let validation = shots::HeldOut::new(config.data.stories, length, seed)?;
        Ok(Self {
            prompt: tokenizer.encode(SHOT_PROMPT)?,
            second_prompt: None,
            validation_bytes: 0, // labels are not a text
            begin: None,
            tokenizer,
            batches: Box::new(shots::ShotRows::new(rows, length, seed)?),
            validation: Some(Box::new(validation)),
            floor: Some(shots::floor(shots::examples_in(length))),
            name: "labelled examples".to_owned(),
            why_training_is_above: None,
            notes: Vec::new(),
        })
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

    /// Random letters, repeated.
    pub fn repeats(config: &RunConfig) -> Result<Self> {
        let (rows, seed) = (config.train.batch_size, config.train.seed);
        let length = config.model.context();
        let tokenizer = repeats::tokenizer();
        let validation = repeats::Validation::new(config.data.stories, length, seed)?;
        Ok(Self {
            second_prompt: Some(tokenizer.encode("\nqzkfmbxwqzkf")?),
            validation_bytes: validation.characters() as u64,
            prompt: vec![0],
            begin: Some(0),
            tokenizer,
            batches: Box::new(repeats::RepeatWindows::new(rows, length, seed)?),
            validation: Some(Box::new(validation)),
            floor: None,
            name: "repeats".to_owned(),
            why_training_is_above: None,
            notes: Vec::new(),
        })
    }

    /// Random tokens, the same in every step: for what depends on sizes alone.
    pub fn random(rows: usize, length: usize, vocabulary: usize) -> Result<Self> {
        let tokens = Arc::new(RandomTokens::new(rows, length, vocabulary));
        Ok(Self {
            prompt: vec![0],
            second_prompt: None,
            validation_bytes: 0,
            begin: None,
            tokenizer: stories::tokenizer(),
            validation: Some(Box::new(HeldOut(tokens.clone()))),
            batches: Box::new(RandomBatches(tokens)),
            floor: None,
            name: "random tokens".to_owned(),
            why_training_is_above: None,
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
        let place = Workplace::of(directory, stop);
        let Read { tokenizer, corpus, notes } =
            read_text(config, &place, None, data.validation, None, report)?;
        let batches: Box<dyn Batches> = match data.windows {
            WindowsKind::Random => Box::new(RandomWindows::new(corpus.train, rows, length, seed)?),
            WindowsKind::Shuffled => {
                Box::new(Shuffled::new(Windows::full(corpus.train, length)?, rows, seed))
            }
            WindowsKind::Consecutive => {
                Box::new(ConsecutiveWindows::new(corpus.train, rows, length)?)
            }
        };
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
            name: data.name(),
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
            ..SpecialTokens::default()
        }
    }

    /// Gives the model as many tokens as the tokenizer has, unless its configuration says how many;
    /// then there must be room for them.
    pub fn fit_vocabulary(&self, config: &mut RunConfig) -> Result<()> {
        fit_vocabulary(&self.tokenizer, config)
    }
}

/// As [`TextData::fit_vocabulary`].
pub(crate) fn fit_vocabulary(tokenizer: &Tokenizer, config: &mut RunConfig) -> Result<()> {
    let tokens = tokenizer.vocabulary_size();
    match config.model.vocabulary() {
        0 => config.model.set_vocabulary(tokens),
        given if given < tokens => {
            return Err(Error::new(
                format!("the tokenizer has {tokens} tokens, but model.vocabulary is {given}"),
                match &config.task.init {
                    Some(_) => "use the tokenizer that the model was trained with".to_owned(),
                    None => format!("leave model.vocabulary out, and it will be {tokens}"),
                },
            ));
        }
        _ => {}
    }
    Ok(())
}

/// Where files that are needed later are kept.
#[derive(Clone, Copy)]
pub struct Workplace<'a> {
    /// A directory.
    pub path: &'a Path,
    /// Is it that of a run which goes on, with what was kept there?
    pub resumed: bool,
    /// Ends reading with an error of the kind `Io(Interrupted)` once it is set.
    pub stop: &'a Stop,
}

impl<'a> Workplace<'a> {
    /// The directory of a run.
    pub fn of(directory: &'a RunDirectory, stop: &'a Stop) -> Self {
        Self { path: directory.path(), resumed: directory.is_resumed(), stop }
    }
}

/// Text that was read, as tokens.
pub(crate) struct Read {
    pub(crate) tokenizer: Tokenizer,
    pub(crate) corpus: Corpus,
    pub(crate) notes: Vec<String>,
}

/// Reads running text. A tokenizer that is given is used; otherwise that of the configuration, or
/// one that is learned from the text and kept, with other special tokens than usual if given.
pub(crate) fn read_text(
    config: &RunConfig,
    place: &Workplace<'_>,
    given: Option<Tokenizer>,
    held_out: f64,
    specials: Option<Vec<SpecialText>>,
    report: &mut (dyn FnMut(Progress) + Send),
) -> Result<Read> {
    let data = &config.data;
    let Workplace { path, resumed: again, stop } = *place;
    // What is read only once has been read already, if a run goes on.
    let keeping = Keeping { again, stop: Some(stop), ..Keeping::new(path) };
    let source = Source::open_keeping(&data.paths, &data.field, &keeping, report)?;
    let kept = path.join(TOKENIZER);
    let resumed = again && kept.exists();
    let mut notes = Vec::new();
    let tokenizer = if let Some(tokenizer) = known_tokenizer(config, place, given)? {
        tokenizer
    } else {
        let (texts, bytes) = (source.texts(), Some(source.length()));
        tokenizer_training(data, specials)
            .train_noting(texts, bytes, report, &mut |note| notes.push(note))?
    };
    let validation = if held_out > 0.0 { Validation::Fraction(held_out) } else { Validation::None };
    let cache = path.join(TOKENS);
    let changes = if again { Changes::Refused } else { Changes::Allowed };
    let corpus = Corpus::prepare_with(&source, &validation, &tokenizer, &cache, changes, report)?;
    // Not before the tokens have been found to fit: a refused run keeps what it had.
    if !resumed {
        tokenizer.save(&kept)?;
    }
    if let Outcome::Rebuilt { reason } = &corpus.outcome {
        notes.push(format!("the tokenised text was made anew, since {reason}"));
    }
    Ok(Read { tokenizer, corpus, notes })
}

/// The tokenizer that is `given`, that a run has kept, or that its configuration names: of a file, or
/// else of the model that it starts from. `None`, if one is to be learned.
pub(crate) fn known_tokenizer(
    config: &RunConfig,
    place: &Workplace<'_>,
    given: Option<Tokenizer>,
) -> Result<Option<Tokenizer>> {
    if given.is_some() {
        return Ok(given);
    }
    let kept = place.path.join(TOKENIZER);
    if place.resumed && kept.exists() {
        return Tokenizer::load(&kept).map(Some); // a run keeps its tokens
    }
    if let Some(path) = &config.data.tokenizer_file {
        return Tokenizer::load(path).map(Some);
    }
    let Some(path) = &config.task.init else { return Ok(None) };
    Tokenizer::load(&open::locate(Some(path))?).map(Some)
}

/// The known tokenizer, which the run then keeps; if none is known, the one that belongs to data that
/// is `made`.
pub(crate) fn tokenizer_or(
    made: fn() -> Tokenizer,
    config: &RunConfig,
    place: &Workplace<'_>,
    given: Option<Tokenizer>,
) -> Result<Tokenizer> {
    let Some(tokenizer) = known_tokenizer(config, place, given)? else { return Ok(made()) };
    if !place.resumed {
        tokenizer.save(&place.path.join(TOKENIZER))?; // a run keeps its tokens
    }
    Ok(tokenizer)
}

/// How the tokenizer of a configuration is learned.
pub(crate) fn tokenizer_training(
    data: &DataConfig,
    specials: Option<Vec<SpecialText>>,
) -> Training {
    let kind = match data.tokenizer {
        TokenizerKind::Character => Kind::Character,
        TokenizerKind::Byte => Kind::Byte,
        TokenizerKind::Bpe => Kind::Bpe,
        TokenizerKind::WordPiece => Kind::WordPiece,
        TokenizerKind::Unigram => Kind::Unigram,
        TokenizerKind::Word => Kind::Word,
    };
    let mut training = Training::new(kind);
    if data.vocabulary.is_some() {
        training.vocabulary = data.vocabulary;
    }
    if let Some(specials) = specials {
        training.specials = specials;
    }
    training
}

/// The special tokens of encoders.
pub(crate) fn encoder_specials() -> Vec<SpecialText> {
    Training::new(Kind::WordPiece).specials
}
