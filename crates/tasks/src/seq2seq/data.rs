//! From what a configuration names to sources and targets as tokens, and a part that is held out.
//!
//! Without files, pairs are [made](hearken_data::conversions), new ones at every step. With files,
//! they are pairs of texts; or, to denoise, plain text of which spans are taken out.

use super::sides::{Sides, texts_of};
use crate::config::RunConfig;
use crate::data::{
    TOKENIZER, Workplace, known_tokenizer, read_text, tokenizer_or, tokenizer_training,
};
use crate::held_out::{HoldOut, check_unchanged, parted};
use crate::open;
use hearken_base::{Error, Result};
use hearken_data::Progress;
use hearken_data::batches::{
    Batches, Corruption, Denoised, Examples, Frame, MadePairs, RandomWindows, Shuffled, Windows,
};
use hearken_data::conversions;
use hearken_data::labelled::{self, Ask, Dataset, Fields, Row};
use hearken_data::tokenizer::{Special, SpecialText, Tokenizer};
use hearken_formats::{self as formats, SpecialTokens};
use hearken_tensor::rng::Rng;
use std::path::PathBuf;
use std::sync::Arc;

/// Batches of similar lengths are made of so many.
const POOL: usize = 50;
/// Sentinels of a tokenizer that is learned for denoising, as many as T5 has.
const SENTINELS: usize = 100;

/// What is held out, or asked about.
pub struct HeldPairs {
    /// Sources and targets as tokens. What is too long is cut.
    pub examples: Box<dyn Examples>,
    /// The texts of each example; none where text is denoised.
    pub texts: Vec<[String; 2]>,
}

impl HeldPairs {
    /// The tokens of a source.
    pub fn source(&self, example: usize) -> Vec<u32> {
        let batch = self.examples.batch_of(&[example]);
        batch.source.map(|source| source.ids).unwrap_or_default()
    }
}

/// What an encoder-decoder learns from and is judged by.
pub struct PairData {
    /// From text to tokens and back, of both sides.
    pub tokenizer: Arc<Tokenizer>,
    /// What training sees; nothing, if everything is held out.
    pub batches: Option<Box<dyn Batches>>,
    /// What is held out, if anything.
    pub held: Option<HeldPairs>,
    /// The best possible value of a metric, where it is known.
    pub ceiling: Option<(&'static str, f64)>,
    /// What it is, in a few words.
    pub name: String,
    /// What to tell the user.
    pub notes: Vec<String>,
    /// What begins and ends targets. Sources end as targets do.
    pub frame: Frame,
    /// The same as a model directory states it, with constraints on what is written.
    pub special: SpecialTokens,
}

impl PairData {
    /// Prepares what `config` names. A tokenizer that is given is used, with the special tokens of its
    /// model; otherwise that of the configuration, or one that is learned from both sides and kept in
    /// `place`.
    pub fn prepare(
        config: &RunConfig,
        place: &Workplace<'_>,
        given: Option<(Tokenizer, SpecialTokens)>,
        hold_out: HoldOut,
        report: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Self> {
        let (given, stated) = match given {
            Some((tokenizer, stated)) => (Some(tokenizer), stated),
            None => (None, stated_by(config, place)?),
        };
        if config.data.paths.is_empty() {
            if config.task.denoise {
                let message = "there is no text to take spans out of";
                return Err(Error::new(message, "name plain text with --data"));
            }
            if config.data.generated.is_none() && config.data.vocabulary.is_some() {
                return Err(Error::new(
                    "the configuration is for pairs of your own, and none are named",
                    "name them with --data, or --source and --target; --config dates makes its own",
                ));
            }
            return Self::made(config, place, given, stated);
        }
        if config.task.denoise {
            return Self::text(config, place, given, stated, hold_out, report);
        }
        let all = read_files(&config.data.paths, &config.data.targets, config)?;
        check_unchanged(&all, place)?;
        Self::pairs(config, all, place, given, stated, hold_out, report)
    }

    /// Pairs that are made.
    fn made(
        config: &RunConfig,
        place: &Workplace<'_>,
        given: Option<Tokenizer>,
        stated: SpecialTokens,
    ) -> Result<Self> {
        let generated = config.data.generates(&config.model);
        let conversion = generated.conversion().ok_or_else(|| generated.misfit())?;
        let tokenizer = tokenizer_or(conversions::tokenizer, config, place, given)?;
        let tokenizer = Arc::new(tokenizer);
        let (frame, special) = framed(Some(&tokenizer), stated)?;
        let (seed, rows) = (config.train.seed, config.train.batch_size);
        let texts = conversion.held_out(config.data.stories.max(1), seed);
        let context = config.model.context();
        let sides = Sides { tokenizer: tokenizer.clone(), frame, context };
        let held = sides.held(texts)?;
        let longest = held.examples.longest().max(held.longest_source);
        if held.cut.count > 0
            || longest.max(*conversion.longest().iter().max().unwrap_or(&0)) >= context
        {
            return Err(Error::new(
                format!("a context of {context} tokens does not hold all {}", conversion.name()),
                "set model.context=48 or more",
            ));
        }
        let pair = move |step, row| conversion.pair(seed, step, row);
        Ok(Self {
            batches: Some(sides.generated(rows, pair)),
            tokenizer,
            held: Some(HeldPairs { examples: held.examples, texts: held.texts }),
            // Every source has one right target.
            ceiling: Some(("exact_match", 1.0)),
            name: conversion.name().to_owned(),
            notes: Vec::new(),
            frame,
            special,
        })
    }

    /// What `pair` gives for each row of each step, without anything that is held out. All texts must
    /// be of the tokenizer's words.
    pub fn generated(
        tokenizer: Arc<Tokenizer>,
        name: &str,
        rows: usize,
        context: usize,
        pair: impl Fn(u64, u64) -> [String; 2] + Send + Sync + 'static,
    ) -> Result<Self> {
        let (frame, special) = framed(Some(&tokenizer), SpecialTokens::default())?;
        let sides = Sides { tokenizer: tokenizer.clone(), frame, context };
        Ok(Self {
            tokenizer,
            batches: Some(sides.generated(rows, pair)),
            held: None,
            ceiling: None,
            name: name.to_owned(),
            notes: Vec::new(),
            frame,
            special,
        })
    }

    /// Random tokens: for what depends on sizes alone.
    pub(crate) fn random(vocabulary: usize, rows: usize, length: usize) -> Self {
        let frame = Frame { begin: 0, end: 0, pad: 0 };
        let make = move |step: u64, row: u64| {
            let mut rng = Rng::new(step << 32 | row);
            let mut draw = |count: usize| -> Vec<u32> {
                (0..count).map(|_| rng.below(vocabulary) as u32).collect()
            };
            [draw(length), draw(length.saturating_sub(1))]
        };
        Self {
            tokenizer: Arc::new(conversions::tokenizer()),
            batches: Some(Box::new(MadePairs::new(rows, length, frame, make))),
            held: None,
            ceiling: None,
            name: "random tokens".to_owned(),
            notes: Vec::new(),
            frame,
            special: SpecialTokens {
                begin: Some(0),
                ends: vec![0],
                pad: Some(0),
                ..SpecialTokens::default()
            },
        }
    }

    /// Plain text, of which spans are taken out.
    fn text(
        config: &RunConfig,
        place: &Workplace<'_>,
        given: Option<Tokenizer>,
        stated: SpecialTokens,
        hold_out: HoldOut,
        report: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Self> {
        let share = if hold_out == HoldOut::Everything { 0.0 } else { config.data.validation };
        let read = read_text(config, place, given, share, Some(specials(true)), report)?;
        let tokenizer = Arc::new(read.tokenizer);
        let (frame, special) = framed(Some(&tokenizer), stated)?;
        let sentinels = tokenizer.sentinels();
        if sentinels.is_empty() {
            return Err(Error::new(
                "the tokenizer has no sentinels, which stand for what is taken out of a text",
                if config.task.init.is_some() {
                    "go on from a model whose tokenizer has <extra_id_0>, <extra_id_1>, …, as T5's"
                } else {
                    "use a tokenizer with <extra_id_0>, <extra_id_1>, … as T5's, or let one be \
                     learned: by leaving data.tokenizer_file out"
                },
            ));
        }
        let (rows, seed) = (config.train.batch_size, config.train.seed);
        let corruption =
            Corruption { share: config.task.mask, ..Corruption::new(sentinels, frame, seed) };
        let length = corruption.window(config.model.context());
        let (train, validation) = match hold_out {
            HoldOut::Share => (Some(read.corpus.train), read.corpus.validation),
            HoldOut::Everything => (None, read.corpus.train),
        };
        let batches = match train {
            None => None,
            Some(ids) => {
                let windows = RandomWindows::new(ids, rows, length, seed)?;
                Some(Box::new(Denoised::new(windows, corruption.clone())) as Box<dyn Batches>)
            }
        };
        let held = if validation.len() >= 2 {
            let windows = Windows::sliding(validation, length, length)?;
            let examples = Box::new(Denoised::new(windows, corruption));
            Some(HeldPairs { examples, texts: Vec::new() })
        } else {
            None
        };
        Ok(Self {
            tokenizer,
            batches,
            held,
            ceiling: None,
            name: config.data.name(),
            notes: read.notes,
            frame,
            special,
        })
    }

    /// Pairs of texts.
    fn pairs(
        config: &RunConfig,
        all: Dataset,
        place: &Workplace<'_>,
        given: Option<Tokenizer>,
        stated: SpecialTokens,
        hold_out: HoldOut,
        report: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Self> {
        let mut notes = all.notes.clone();
        let own = match hold_out {
            HoldOut::Share => own_held_out(config)?,
            HoldOut::Everything => None,
        };
        notes.extend(own.iter().flat_map(|own| own.notes.iter().cloned()));
        let [train, held] = parted(all, own, hold_out, config);
        let tokenizer = tokenizer_of(config, &train.rows, place, given, &mut notes, report)?;
        if hold_out == HoldOut::Share && !place.resumed {
            tokenizer.save(&place.path.join(TOKENIZER))?;
        }
        let tokenizer = Arc::new(tokenizer);
        let (frame, special) = framed(Some(&tokenizer), stated)?;
        let context = config.model.context();
        let context = context.min(config.data.most_tokens.unwrap_or(context));
        let sides = Sides { tokenizer: tokenizer.clone(), frame, context };
        let mut batches: Option<Box<dyn Batches>> = None;
        if hold_out == HoldOut::Share {
            let pairs = sides.training(config, &train, &mut notes)?;
            let (rows, seed) = (config.train.batch_size, config.train.seed);
            batches = Some(Box::new(Shuffled::new(pairs, rows, seed).grouped_by_length(POOL)));
        }
        let count = held.rows.len();
        let mut judged_by = None;
        if count > 0 {
            let texts = held.rows.iter().map(|row| texts_of(row).map(str::to_owned));
            let encoded = sides.held(texts.collect())?;
            if let Some(first) = encoded.cut.first {
                notes.push(format!(
                    "{} of {count} held-out pairs are longer than {context} tokens: they are cut \
                     there to be read, and judged by their whole reference; the first is {}",
                    encoded.cut.count,
                    held.place(&held.rows[first])
                ));
            }
            judged_by = Some(HeldPairs { examples: encoded.examples, texts: encoded.texts });
        }
        let name = config.data.name();
        let held = judged_by;
        Ok(Self { tokenizer, batches, held, ceiling: None, name, notes, frame, special })
    }
}

/// Pairs of texts from files.
fn read_files(paths: &[PathBuf], targets: &[PathBuf], config: &RunConfig) -> Result<Dataset> {
    if !targets.is_empty() {
        return labelled::read_parallel(paths, targets);
    }
    let data = &config.data;
    let fields = Fields { text: data.field.clone(), second: None, label: data.label.clone() };
    labelled::read(paths, Ask::Translations, &fields, None)
}

/// The pairs of the files that are held out, if there are such.
fn own_held_out(config: &RunConfig) -> Result<Option<Dataset>> {
    let data = &config.data;
    if data.held_out.is_empty() {
        return Ok(None);
    }
    if data.targets.is_empty() {
        return read_files(&data.held_out, &[], config).map(Some);
    }
    // Of parallel files, they are named in pairs: source, target, ….
    let (sources, targets) = in_turns(&data.held_out)?;
    read_files(&sources, &targets, config).map(Some)
}

/// A source file, its target file, and so on.
fn in_turns(paths: &[PathBuf]) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    if !paths.len().is_multiple_of(2) {
        return Err(Error::new(
            format!("data.held_out names {} files", paths.len()),
            "with data.targets, name a file of sources and one of targets, in turns",
        ));
    }
    let side = |side: usize| paths.iter().skip(side).step_by(2).cloned().collect();
    Ok((side(0), side(1)))
}

fn tokenizer_of(
    config: &RunConfig,
    train: &[Row],
    place: &Workplace<'_>,
    given: Option<Tokenizer>,
    notes: &mut Vec<String>,
    report: &mut (dyn FnMut(Progress) + Send),
) -> Result<Tokenizer> {
    if let Some(tokenizer) = known_tokenizer(config, place, given)? {
        return Ok(tokenizer);
    }
    // From both sides: a name is then the same tokens on both.
    let texts = train.iter().flat_map(texts_of).map(|text| Ok(text.to_owned()));
    let bytes = train.iter().flat_map(texts_of).map(|text| text.len() as u64).sum();
    let training = tokenizer_training(&config.data, Some(specials(false)));
    training.train_noting(texts, Some(bytes), report, &mut |note| notes.push(note))
}

/// Padding, end and unknown; and what stands for spans.
fn specials(sentinels: bool) -> Vec<SpecialText> {
    let mut specials = Tokenizer::pair_specials();
    if sentinels {
        specials.extend(SpecialText::sentinels(SENTINELS));
    }
    specials
}

/// What a model directory states from which a run starts or goes on.
fn stated_by(config: &RunConfig, place: &Workplace<'_>) -> Result<SpecialTokens> {
    let checkpoint = place.resumed.then(|| open::locate(Some(place.path)).ok()).flatten();
    let directory = match (checkpoint, &config.task.init) {
        (Some(checkpoint), _) => checkpoint,
        (None, Some(init)) => open::locate(Some(init))?,
        (None, None) => return Ok(SpecialTokens::default()),
    };
    formats::special_tokens_of(&directory)
}

/// What begins and ends targets: what a model directory `stated`, or else the special tokens of the
/// tokenizer. As in T5 and Marian, padding begins them.
pub(crate) fn framed(
    tokenizer: Option<&Tokenizer>,
    stated: SpecialTokens,
) -> Result<(Frame, SpecialTokens)> {
    let special = |special| tokenizer.and_then(|tokenizer| tokenizer.special(special));
    let mut ends = stated.ends;
    if ends.is_empty() {
        ends.extend(special(Special::Eos).or_else(|| special(Special::Sep)));
    }
    let Some(end) = ends.first().copied() else {
        return Err(Error::new(
            "there is no token that ends a text",
            "an encoder-decoder writes until its end token: use a tokenizer that has </s>, or state \
             eos_token_id in generation_config.json",
        ));
    };
    let usual = || special(Special::Pad).or_else(|| special(Special::Bos)).unwrap_or(end);
    let begin = stated.begin.unwrap_or_else(usual);
    let pad = stated.pad.or_else(|| special(Special::Pad)).unwrap_or(end);
    let special = SpecialTokens { begin: Some(begin), ends, pad: Some(pad), ..stated };
    Ok((Frame { begin, end, pad }, special))
}
