//! From what a configuration names to rows of tokens, and a part that is held out.
//!
//! Without files, exercises are made of stories, new ones at every step, and their best possible
//! results are known. With files, masked language models read running text, and all others labelled
//! rows ([`hearken_data::labelled`]).

use super::encoding::{Detail, Encoded, Encoding, Purpose};
use crate::config::RunConfig;
use crate::data::{
    TOKENIZER, Workplace, encoder_specials, known_tokenizer, read_text, tokenizer_or,
    tokenizer_training,
};
use crate::held_out::{HoldOut, check_unchanged, parted};
use hearken_base::{Error, Result};
use hearken_data::Progress;
use hearken_data::batches::{
    Batches, Examples, IGNORED, Masked, Masking, RandomWindows, Shuffled, Windows,
};
use hearken_data::frames::{Feature, Features, Frame, Made, Surrounded, Target};
use hearken_data::labelled::{self, Answer, Dataset, Fields, Row};
use hearken_data::stories::{self, Exercise, MaskedBound};
use hearken_data::tokenizer::{Special, Tokenizer};
use hearken_nn::config::{EncoderConfig, HeadConfig, ModelConfig};
use hearken_tensor::rng::Rng;
use std::sync::Arc;

/// Batches of similar lengths are made of so many.
const POOL: usize = 50;

/// What is held out, or asked about.
pub struct Held {
    /// Rows of the data; none of running text.
    pub(crate) rows: Vec<Row>,
    /// Rows of tokens, one or more of each row.
    pub(crate) examples: Box<dyn Examples>,
    /// What belongs to each of these.
    pub(crate) details: Vec<Detail>,
}

impl Held {
    /// How many rows there are.
    pub fn count(&self) -> usize {
        if self.rows.is_empty() { self.examples.count() } else { self.rows.len() }
    }

    /// The texts of an example, for people.
    pub(crate) fn text(&self, example: usize) -> String {
        let Some(row) = self.details.get(example).and_then(|detail| self.rows.get(detail.row))
        else {
            return String::new();
        };
        match &row.second {
            Some(second) => format!("{} | {second}", row.text),
            None => row.text.clone(),
        }
    }
}

/// What an encoder learns from and is judged by.
pub struct EncoderData {
    /// From text to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// What training sees; nothing, if everything is held out.
    pub batches: Option<Box<dyn Batches>>,
    /// What is held out, if anything.
    pub held: Option<Held>,
    /// The names of labels or tags.
    pub labels: Vec<String>,
    /// The loss that no model can beat, where it is known.
    pub floor: Option<f64>,
    /// The best possible value of a metric, where it is known.
    pub ceiling: Option<(&'static str, f64)>,
    /// What it is, in a few words.
    pub name: String,
    /// What to tell the user.
    pub notes: Vec<String>,
    /// How much each class counts.
    pub(crate) weights: Option<Vec<f32>>,
    /// How many numbers a row has.
    outputs: usize,
}

impl EncoderData {
    /// Prepares what `config` names. A tokenizer that is given is used; otherwise that of the
    /// configuration, or one that is learned from the data and kept in `place`.
    pub fn prepare(
        config: &RunConfig,
        place: &Workplace<'_>,
        given: Option<Tokenizer>,
        hold_out: HoldOut,
        report: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Self> {
        let purpose = Purpose::of(&config.model)?;
        if config.data.paths.is_empty() {
            let exercise = purpose.exercise().ok_or_else(|| {
                Error::new("no stories are made for this head", "give labelled data with --data")
            })?;
            return Self::exercise(config, purpose, exercise, place, given);
        }
        match purpose {
            Purpose::Masks => Self::text(config, place, given, hold_out, report),
            _ => Self::labelled(config, purpose, place, given, hold_out),
        }
    }

    /// Exercises made of stories.
    fn exercise(
        config: &RunConfig,
        purpose: Purpose,
        exercise: Exercise,
        place: &Workplace<'_>,
        given: Option<Tokenizer>,
    ) -> Result<Self> {
        let tokenizer = tokenizer_or(stories::word_tokenizer, config, place, given)?;
        let tokenizer = Arc::new(tokenizer);
        let (seed, rows) = (config.train.seed, config.train.batch_size);
        let labels = exercise.labels();
        let encoding = encoding(config, purpose, &tokenizer, labels.len())?;
        let frame = encoding.frame.clone();
        let held = exercise.held_out(config.data.stories.max(1), seed);
        let encoded = encoding.all(held.rows.iter())?;
        if encoded.cut.count > 0 || encoded.features.len() > held.rows.len() {
            return Err(Error::new(
                format!("a context of {} tokens does not hold a whole story", frame.length),
                "set model.context=80 or more",
            ));
        }
        let make = move |step: u64, row: u64| {
            let row = exercise.row(seed, step, row);
            match encoding.row(&row) {
                Ok((features, _)) => with_answer(features.into_iter().map(|f| f.0).collect()),
                Err(error) => unreachable!("a story that cannot be encoded: {error}"),
            }
        };
        let made = Made::new(rows, frame.length, frame.pad, make);
        let features = Features { list: encoded.features, pad: frame.pad };
        let (mut floor, mut ceiling) = (None, None);
        let (batches, examples): (Box<dyn Batches>, Box<dyn Examples>) = match purpose {
            Purpose::Masks => {
                let masking = masking(config, &tokenizer)?;
                let masked = Masked::new(features, masking.clone());
                if tokenizer.fingerprint() == stories::word_tokenizer().fingerprint() {
                    floor = Some(bound(&masked, &masking));
                }
                (Box::new(Masked::new(made, masking)), Box::new(masked))
            }
            _ => (Box::new(made), Box::new(features)),
        };
        match exercise {
            Exercise::Labels => ceiling = Some(("accuracy", 1.0)),
            Exercise::Entities => ceiling = Some(("f1", 1.0)),
            Exercise::Questions => ceiling = Some(("exact_match", 1.0)),
            Exercise::Paraphrases => {
                ceiling = Some(("recall_at_1", stories::ceiling_of_recall(&held.rows)));
            }
            Exercise::Masks => {}
        }
        let held = Held { rows: held.rows, examples, details: encoded.details };
        Ok(Self {
            tokenizer,
            batches: Some(batches),
            held: Some(held),
            labels,
            floor,
            ceiling,
            name: "stories".to_owned(),
            notes: Vec::new(),
            weights: None,
            outputs: 1,
        })
    }

    /// Random tokens with random answers: for what depends on sizes alone. A head without labels is
    /// given two.
    pub(crate) fn random(config: &EncoderConfig, rows: usize, length: usize) -> Result<Self> {
        let purpose = Purpose::of(&ModelConfig::Encoder(config.clone()))?;
        let outputs = config.head.outputs().max(1);
        let vocabulary = config.vocabulary;
        let make = move |step: u64, row: u64| {
            let mut rng = Rng::new(step << 32 | row);
            let mut draw = |below: usize| -> Vec<u32> {
                (0..length).map(|_| rng.below(below) as u32).collect()
            };
            let ids = draw(vocabulary);
            let tags = match purpose {
                // A masked language model guesses about one token in seven.
                Purpose::Masks => {
                    let hidden = |(i, id): (usize, u32)| if i % 7 == 3 { id } else { IGNORED };
                    draw(vocabulary).into_iter().enumerate().map(hidden).collect()
                }
                Purpose::Tags => draw(outputs),
                _ => Vec::new(),
            };
            let target = match purpose {
                Purpose::Classes => Target::Class(0),
                Purpose::Several => Target::Several(vec![true; outputs]),
                Purpose::Spans => Target::Span([0, 0]),
                Purpose::Numbers => Target::Numbers(vec![0.5; outputs]),
                Purpose::Masks | Purpose::Tags | Purpose::Pairs => Target::None,
            };
            let other = (purpose == Purpose::Pairs).then(|| ids.clone());
            Feature { ids, second: None, tags, target, other }
        };
        let labels = (0..config.head.labels().map_or(0, <[String]>::len)).map(|i| i.to_string());
        Ok(Self {
            tokenizer: Arc::new(stories::word_tokenizer()),
            batches: Some(Box::new(Made::new(rows, length, 0, make))),
            held: None,
            labels: labels.collect(),
            floor: None,
            ceiling: None,
            name: "random tokens".to_owned(),
            notes: Vec::new(),
            weights: None,
            outputs,
        })
    }

    /// Running text, in windows.
    fn text(
        config: &RunConfig,
        place: &Workplace<'_>,
        given: Option<Tokenizer>,
        hold_out: HoldOut,
        report: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Self> {
        let share = if hold_out == HoldOut::Everything { 0.0 } else { config.data.validation };
        let read = read_text(config, place, given, share, Some(encoder_specials()), report)?;
        let tokenizer = Arc::new(read.tokenizer);
        let frame = Frame::new(&tokenizer, config.model.context())?;
        let masking = masking(config, &tokenizer)?;
        let (rows, seed) = (config.train.batch_size, config.train.seed);
        let length = frame.room();
        let (train, validation) = match hold_out {
            HoldOut::Share => (Some(read.corpus.train), read.corpus.validation),
            HoldOut::Everything => (None, read.corpus.train),
        };
        let batches = match train {
            None => None,
            Some(ids) => {
                let windows = RandomWindows::new(ids, rows, length, seed)?;
                let windows = Surrounded::new(windows, frame.clone());
                Some(Box::new(Masked::new(windows, masking.clone())) as Box<dyn Batches>)
            }
        };
        let held = if validation.len() >= 2 {
            let windows = Windows::sliding(validation, length, length)?;
            let examples = Masked::new(Surrounded::new(windows, frame), masking);
            Some(Held { rows: Vec::new(), examples: Box::new(examples), details: Vec::new() })
        } else {
            None
        };
        Ok(Self {
            tokenizer,
            batches,
            held,
            labels: Vec::new(),
            floor: None,
            ceiling: None,
            name: config.data.name(),
            notes: read.notes,
            weights: None,
            outputs: 1,
        })
    }

    /// Rows with answers.
    fn labelled(
        config: &RunConfig,
        purpose: Purpose,
        place: &Workplace<'_>,
        given: Option<Tokenizer>,
        hold_out: HoldOut,
    ) -> Result<Self> {
        let data = &config.data;
        let ask = purpose.ask().ok_or_else(|| Error::new("no labelled data", ""))?;
        let fields = Fields {
            text: data.field.clone(),
            second: data.second.clone(),
            label: data.label.clone(),
        };
        let known = config.model.labels().filter(|labels| !labels.is_empty());
        let all = labelled::read(&data.paths, ask, &fields, known)?;
        let (mut notes, labels) = (all.notes.clone(), all.labels.clone());
        check_unchanged(&all, place)?;
        let outputs = check_outputs(&all, config)?;
        let mut own = None;
        if hold_out == HoldOut::Share && !data.held_out.is_empty() {
            let held = labelled::read(&data.held_out, ask, &fields, Some(&labels))?;
            check_outputs(&held, config)?;
            notes.extend(held.notes.iter().cloned());
            own = Some(held);
        }
        let [train, mut held] = parted(all, own, hold_out, config);
        if purpose == Purpose::Pairs {
            check_partners(config, &train.rows, &mut held.rows, &mut notes)?;
        }
        check_classes(&train, hold_out, &mut notes)?;
        let tokenizer = if let Some(tokenizer) = known_tokenizer(config, place, given)? {
            tokenizer
        } else {
            let texts = train.rows.iter().flat_map(|row| {
                let second = row.second.clone();
                std::iter::once(row.text.clone()).chain(second).map(Ok)
            });
            let mut note = |note| notes.push(note);
            let quiet = &mut hearken_data::quiet;
            tokenizer_training(data, Some(encoder_specials()))
                .train_noting(texts, None, quiet, &mut note)?
        };
        if hold_out == HoldOut::Share && !place.resumed {
            tokenizer.save(&place.path.join(TOKENIZER))?;
        }
        let tokenizer = Arc::new(tokenizer);
        let encoding = encoding(config, purpose, &tokenizer, labels.len())?;
        let pad = encoding.frame.pad;
        let weights = config.task.class_weights.then(|| {
            let all: Vec<usize> = (0..train.rows.len()).collect();
            train.class_weights(&all)
        });
        let mut batches: Option<Box<dyn Batches>> = None;
        if hold_out == HoldOut::Share {
            let encoded = encoded(&encoding, &train, "training", &mut notes)?;
            let features = Features { list: encoded.features, pad };
            let (rows, seed) = (config.train.batch_size, config.train.seed);
            batches = Some(Box::new(Shuffled::new(features, rows, seed).grouped_by_length(POOL)));
        }
        let encoded = encoded(&encoding, &held, "held-out", &mut notes)?;
        let held = (!held.rows.is_empty()).then(|| Held {
            rows: held.rows,
            examples: Box::new(Features { list: encoded.features, pad }),
            details: encoded.details,
        });
        Ok(Self {
            tokenizer,
            batches,
            held,
            labels,
            floor: None,
            ceiling: None,
            name: config.data.name(),
            notes,
            weights: weights.filter(|_| purpose == Purpose::Classes),
            outputs,
        })
    }

    /// Fits the model to the data: its tokens, and what its head gives.
    pub fn fit(&self, config: &mut RunConfig) -> Result<()> {
        crate::data::fit_vocabulary(&self.tokenizer, config)?;
        if let ModelConfig::Encoder(encoder) = &mut config.model {
            if !self.labels.is_empty() {
                encoder.head.set_labels(self.labels.clone());
            }
            if let HeadConfig::Numbers { outputs } = &mut encoder.head {
                *outputs = self.outputs;
            }
        }
        config.model.validate()
    }
}

/// The window that holds the answer; the first, if there is none.
fn with_answer(mut features: Vec<Feature>) -> Feature {
    let has = |feature: &Feature| !matches!(feature.target, Target::Span([0, 0]));
    let at = features.iter().position(has).unwrap_or(0);
    features.swap_remove(at)
}

fn encoding(
    config: &RunConfig,
    purpose: Purpose,
    tokenizer: &Arc<Tokenizer>,
    labels: usize,
) -> Result<Encoding> {
    let mut length = config.model.context();
    length = length.min(config.data.most_tokens.unwrap_or(length));
    if let Some(HeadConfig::Embedding { most_tokens: Some(most), .. }) = config.model.head() {
        length = length.min(*most);
    }
    let frame = Frame::new(tokenizer, length)?;
    let tokenizer = tokenizer.clone();
    Ok(Encoding { tokenizer, frame, purpose, labels, stride: config.task.stride })
}

/// All rows as tokens; what is cut is noted.
fn encoded(
    encoding: &Encoding,
    data: &Dataset,
    what: &str,
    notes: &mut Vec<String>,
) -> Result<Encoded> {
    let encoded = encoding.all(data.rows.iter())?;
    if let Some(first) = encoded.cut.first {
        notes.push(format!(
            "{} of {} {what} rows are longer than {} tokens and were cut there; the first is {}",
            encoded.cut.count,
            data.rows.len(),
            encoding.frame.length,
            data.place(&data.rows[first])
        ));
    }
    Ok(encoded)
}

fn masking(config: &RunConfig, tokenizer: &Tokenizer) -> Result<Masking> {
    let mask = tokenizer.require(Special::Mask)?;
    let special = tokenizer.special_ids();
    if special.len() >= tokenizer.vocabulary_size() {
        return Err(Error::new("all tokens are special ones", "use another tokenizer"));
    }
    let size = tokenizer.vocabulary_size();
    let masking = Masking::new(mask, size, special, config.train.seed);
    Ok(Masking { share: config.task.mask, ..masking })
}

/// The mean of what the stories themselves say of the hidden words.
fn bound(masked: &Masked<Features>, masking: &Masking) -> f64 {
    let bound = MaskedBound::new(masking);
    let (mut nats, mut counted) = (0.0, 0);
    for example in 0..masked.count() {
        let batch = masked.batch_of(&[example]);
        // Without the first and the last token, which stand around the story.
        let story = 1..batch.length.saturating_sub(1).max(1);
        let (inputs, targets) = (&batch.inputs[story.clone()], &batch.targets[story]);
        nats += bound.nats(inputs, targets);
        counted += targets.iter().filter(|target| **target != IGNORED).count();
    }
    nats / f64::from(u32::try_from(counted.max(1)).unwrap_or(u32::MAX))
}

/// How many numbers rows have.
fn check_outputs(data: &Dataset, config: &RunConfig) -> Result<usize> {
    let given = data.rows.iter().find_map(|row| match &row.answer {
        Answer::Numbers(numbers) => Some(numbers.len()),
        _ => None,
    });
    let Some(given) = given else { return Ok(1) };
    let expected = config.model.outputs();
    // 1 is the default.
    if expected > 1 && expected != given {
        return Err(Error::new(
            format!("rows have {given} numbers, but model.head.outputs is {expected}"),
            format!("leave model.head.outputs out, and it will be {given}"),
        ));
    }
    Ok(given)
}

/// Every class needs rows to be learned from.
fn check_classes(train: &Dataset, hold_out: HoldOut, notes: &mut Vec<String>) -> Result<()> {
    if hold_out == HoldOut::Everything || train.labels.is_empty() {
        return Ok(());
    }
    let counts = train.counts();
    let empty = train.labels.iter().zip(&counts).find(|(_, count)| **count == 0);
    if let Some((label, _)) = empty {
        return Err(Error::new(
            format!("the class {label:?} has no rows to learn from"),
            "give it some, or leave it out of model.head.labels",
        ));
    }
    let few: Vec<&str> = train
        .labels
        .iter()
        .zip(&counts)
        .filter(|(_, count)| **count < 5)
        .map(|(label, _)| label.as_str())
        .collect();
    if !few.is_empty() {
        let shown = few.iter().take(10).copied().collect::<Vec<_>>().join(", ");
        notes.push(format!("{} labels have fewer than 5 examples: {shown}", few.len()));
    }
    Ok(())
}

/// Texts without a partner are their own, and only dropout makes the two vectors differ: there must
/// be some, and such texts cannot be judged by.
fn check_partners(
    config: &RunConfig,
    train: &[Row],
    held: &mut Vec<Row>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let alone = train.iter().filter(|row| row.second.is_none()).count();
    let ModelConfig::Encoder(encoder) = &config.model else { return Ok(()) };
    let drop = &encoder.stack.dropout;
    let chances = [drop.embedding, drop.attention, drop.feed_forward, drop.residual];
    if alone > 0 && chances.iter().all(|chance| *chance == 0.0) {
        return Err(Error::new(
            format!("{alone} texts have no partner, and the model has no dropout"),
            "name the field of the second text (data.second), or set model.dropout=0.1: then \
             dropout makes the difference between two readings of a text",
        ));
    }
    let before = held.len();
    held.retain(|row| row.second.is_some());
    if alone > 0 {
        notes.push(format!(
            "{alone} texts have no partner: each is read twice, and dropout makes the difference"
        ));
    }
    if held.len() < before {
        let left = before - held.len();
        notes.push(format!("{left} held-out texts have no partner, and are not judged by"));
    }
    Ok(())
}
