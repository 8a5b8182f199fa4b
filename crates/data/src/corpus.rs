//! Text of any length becomes a file of ids that is mapped, not read: 10 GB of text needs no
//! 10 GB of memory.
//!
//! The text is read twice, a megabyte at a time: once to check that it is text and to measure it,
//! once to tokenise it. The result is kept ([`cache`](self) beside the run) and used again while
//! text, tokenizer and split are the same. A damaged file is named and made again.
//!
//! **Split.** Of `n` characters the first `⌊(1 − fraction)·n⌋` are for training, the rest for
//! validation, as nanoGPT does with tiny Shakespeare at 0.1; each side is tokenised by itself.
//! Or validation has text of its own.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod cache;
mod ids;
mod keep;
mod lines;
mod read;
mod source;
#[cfg(test)]
mod tests;

pub use ids::Ids;
pub use keep::{KEPT_FILES, Keeping, MOST_KEPT, Stop};
pub use read::{Chunks, chunks_of};
pub use source::{Chunk, Source};

use crate::digest::Digest;
use crate::error::{self, Result};
use crate::progress::{Progress, Report, Stage};
use crate::temporary;
use crate::tokenizer::{CutRule, Special, Tokenizer};
use cache::{Found, Header, Writer};
use std::path::Path;

/// Where validation text comes from.
#[derive(Clone, Debug)]
pub enum Validation {
    /// This fraction of the text's characters, at its end.
    Fraction(f64),
    /// Text of its own.
    Source(Source),
    /// None.
    None,
}

/// A tokenised text, split in two.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// Ids to learn from.
    pub train: Ids,
    /// Ids to measure on.
    pub validation: Ids,
    /// Bytes of the text that `train` stands for.
    pub train_bytes: u64,
    /// Bytes of the text that `validation` stands for: bits per byte are
    /// `loss · validation ids / (validation bytes · ln 2)`.
    pub validation_bytes: u64,
    /// How the ids came about.
    pub outcome: Outcome,
}

/// How the ids came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The text was tokenised.
    Built,
    /// The ids of an earlier run are still right.
    Reused,
    /// There were ids, but they could not be used, for this reason.
    Rebuilt {
        /// "the text has changed", "it has 5 bytes instead of 12", …
        reason: String,
    },
}

/// What to do where the ids at hand were made of another text, by another tokenizer or split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Make them anew.
    Allowed,
    /// Leave them, and say what has changed.
    Refused,
}

impl Corpus {
    /// The ids of `source` under `tokenizer`, from the file `cache` if it is still right, else
    /// made and kept there. Documents are followed by the end token if the tokenizer has one.
    pub fn prepare(
        source: &Source,
        validation: &Validation,
        tokenizer: &Tokenizer,
        cache: &Path,
        report: Report<'_>,
    ) -> Result<Self> {
        Self::prepare_with(source, validation, tokenizer, cache, Changes::Allowed, report)
    }

    /// As [`Self::prepare`]; with [`Changes::Refused`] other ids at `cache` are an error. Damaged ones
    /// are made anew either way.
    pub fn prepare_with(
        source: &Source,
        validation: &Validation,
        tokenizer: &Tokenizer,
        cache: &Path,
        changes: Changes,
        report: Report<'_>,
    ) -> Result<Self> {
        let split = check_split(validation)?;
        temporary::sweep(cache);
        let stamps = Stamps::of(source, validation);
        let mut survey = None;
        let reason = match cache::look(cache)? {
            Found::Nothing => None,
            Found::Damaged(reason) => Some(reason),
            Found::Whole(header, map) => {
                let mut mismatch = None;
                if header.tokenizer != tokenizer.fingerprint() {
                    mismatch = Some("the tokenizer has changed");
                } else if header.vocabulary != tokenizer.vocabulary_size() as u64 {
                    mismatch = Some("the vocabulary has changed");
                } else if header.split != split {
                    mismatch = Some("the split has changed");
                } else if header.stamp != stamps.stamp {
                    // Touched or moved; perhaps it still says the same.
                    let now = Survey::of(source, validation, report)?;
                    if header.content != now.content {
                        mismatch = Some("the text has changed");
                    }
                    survey = Some(now);
                }
                if let (Some(what), Changes::Refused) = (mismatch, changes) {
                    return Err(error::changed(what));
                }
                if mismatch.is_none() {
                    mismatch = cache::fault_of_ids(&header, &map);
                }
                let Some(reason) = mismatch else {
                    let (train, validation) = cache::split_ids(&header, map);
                    return Ok(Self {
                        train,
                        validation,
                        train_bytes: header.train_bytes,
                        validation_bytes: header.validation_bytes,
                        outcome: Outcome::Reused,
                    });
                };
                Some(reason.to_owned())
            }
        };
        let survey = match survey {
            Some(survey) => survey,
            None => Survey::of(source, validation, report)?,
        };
        let train_characters = split_at(validation, survey.characters)?;
        let header = tokenise(
            source,
            validation,
            tokenizer,
            cache,
            train_characters,
            &survey,
            &stamps,
            split,
            report,
        )?;
        let Found::Whole(written, map) = cache::look(cache)? else {
            let error = std::io::Error::other("what was written does not read back");
            return Err(error::on("write", cache)(error));
        };
        let (train, validation) = cache::split_ids(&written, map);
        Ok(Self {
            train,
            validation,
            train_bytes: header.train_bytes,
            validation_bytes: header.validation_bytes,
            outcome: reason.map_or(Outcome::Built, |reason| Outcome::Rebuilt { reason }),
        })
    }
}

/// What tells sources apart without reading them.
struct Stamps {
    stamp: u64,
    source_bytes: u64,
}

impl Stamps {
    fn of(source: &Source, validation: &Validation) -> Self {
        let mut digest = Digest::default();
        digest.update(&source.stamp().to_le_bytes());
        if let Validation::Source(validation) = validation {
            digest.update(&validation.stamp().to_le_bytes());
        }
        Self { stamp: digest.value(), source_bytes: source.length() }
    }
}

/// A checksum of the split that is asked for.
fn check_split(validation: &Validation) -> Result<u64> {
    Ok(match validation {
        Validation::None => 0,
        Validation::Source(_) => 1,
        Validation::Fraction(fraction) if (0.0..1.0).contains(fraction) => {
            Digest::of(&fraction.to_le_bytes())
        }
        Validation::Fraction(fraction) => {
            let reason = format!("{fraction} is no fraction for validation");
            return Err(error::split(&reason, "give a number from 0 up to 1, such as 0.1"));
        }
    })
}

/// How many of the source's characters are for training.
fn split_at(validation: &Validation, characters: u64) -> Result<u64> {
    let Validation::Fraction(fraction) = *validation else { return Ok(characters) };
    let train = ((1.0 - fraction) * characters as f64) as u64;
    if train == 0 || (train == characters && fraction > 0.0) {
        let reason = format!("{characters} characters leave one side of {fraction} with nothing");
        return Err(error::split(&reason, "give more text, or validation text of its own"));
    }
    Ok(train)
}

/// What the first reading finds.
struct Survey {
    /// Of the source alone.
    characters: u64,
    /// Of all text, validation included.
    content: u64,
}

impl Survey {
    fn of(source: &Source, validation: &Validation, report: Report<'_>) -> Result<Self> {
        let mut digest = Digest::default();
        let mut characters = 0;
        let mut counter = Counter::new(Stage::Surveying, source, validation, report);
        for chunk in source.chunks(CutRule::Anywhere) {
            let Chunk { text, ends_document } = chunk?;
            characters += text.chars().count() as u64;
            digest.update(text.as_bytes());
            if ends_document {
                digest.update(&[0xFF]); // in no text, so documents cannot run together
            }
            counter.add(text.len());
        }
        if characters == 0 {
            return Err(error::empty("the text"));
        }
        if let Validation::Source(validation) = validation {
            digest.update(&[0xFE]);
            for chunk in validation.chunks(CutRule::Anywhere) {
                let text = chunk?.text;
                digest.update(text.as_bytes());
                counter.add(text.len());
            }
        }
        counter.finish();
        Ok(Self { characters, content: digest.value() })
    }
}

fn tokenise(
    source: &Source,
    validation: &Validation,
    tokenizer: &Tokenizer,
    cache: &Path,
    train_characters: u64,
    survey: &Survey,
    stamps: &Stamps,
    split: u64,
    report: Report<'_>,
) -> Result<Header> {
    let mut writer = Writer::create(cache, tokenizer.vocabulary_size())?;
    let mut counter = Counter::new(Stage::Tokenising, source, validation, report);
    let end = tokenizer.special(Special::Eos);
    let (mut train_bytes, mut validation_bytes, mut seen, mut train_count) = (0, 0, 0_u64, None);
    let mut write_all = |from: &Source, writer: &mut Writer, first_for_training: u64| {
        for chunk in from.chunks(tokenizer.cut_rule()) {
            let Chunk { text, ends_document } = chunk?;
            let left = first_for_training.saturating_sub(seen) as usize;
            let cut = text.char_indices().nth(left).map_or(text.len(), |(at, _)| at);
            seen += text.chars().count() as u64;
            writer.write(&tokenizer.encode(&text[..cut])?)?;
            train_bytes += cut as u64;
            if seen > first_for_training {
                train_count.get_or_insert(writer.count());
                writer.write(&tokenizer.encode(&text[cut..])?)?;
                validation_bytes += (text.len() - cut) as u64;
            }
            if let (true, true, Some(end)) = (ends_document, from.has_documents(), end) {
                writer.write(&[end])?;
            }
            counter.add(text.len());
        }
        Ok(())
    };
    write_all(source, &mut writer, train_characters)?;
    if let Validation::Source(validation) = validation {
        write_all(validation, &mut writer, train_characters)?;
    }
    counter.finish();
    let header = Header {
        width: 0, // the writer knows these three
        count: 0,
        checksum: 0,
        train_count: train_count.unwrap_or(writer.count()),
        vocabulary: tokenizer.vocabulary_size() as u64,
        tokenizer: tokenizer.fingerprint(),
        split,
        stamp: stamps.stamp,
        content: survey.content,
        source_bytes: stamps.source_bytes,
        train_bytes,
        validation_bytes,
    };
    writer.finish(header.clone())?;
    Ok(header)
}

/// Counts bytes and tells.
struct Counter<'a> {
    stage: Stage,
    done: u64,
    total: u64,
    report: Report<'a>,
}

impl<'a> Counter<'a> {
    fn new(stage: Stage, source: &Source, validation: &Validation, report: Report<'a>) -> Self {
        let own = match validation {
            Validation::Source(validation) => validation.length(),
            _ => 0,
        };
        Self { stage, done: 0, total: source.length() + own, report }
    }

    fn add(&mut self, bytes: usize) {
        self.done = (self.done + bytes as u64).min(self.total);
        self.say();
    }

    fn finish(mut self) {
        self.done = self.total;
        self.say();
    }

    fn say(&mut self) {
        (self.report)(Progress { stage: self.stage, done: self.done, total: Some(self.total) });
    }
}
