//! Learning a vocabulary from text.
//!
//! The same text gives the same tokenizer, for any number of threads and any hash seed. BPE and
//! WordPiece count in integers and break ties by the tokens' order. Unigram adds up floating
//! point numbers: its words are sorted, it runs on one thread, and its scores are rounded to
//! [`SCORE_STEP`], since the logarithm of one C library differs from another's in the last bits.

use super::long_words::LongWords;
use super::{Special, Tokenizer, assemble, failed, guarded};
use crate::corpus::Source;
use crate::error::{self, Error, Result};
use crate::progress::{Progress, Report, Stage};
use rayon::prelude::*;
use regex::Regex;
use std::collections::{BTreeMap, HashMap};
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::unigram::{Unigram, UnigramTrainer};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{
    AddedToken, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Trainer,
};

/// Four times the largest vocabulary in use (a million, for a hundred languages). Trainers set
/// memory aside for all that is asked for.
const MOST_IDS: usize = 4_000_000;

/// What the library's white-space rule sees as a word.
const WHOLE_WORDS: &str = r"\w+|[^\w\s]+";
/// Bytes of a word that may be in the vocabulary.
const LONGEST_WORD: usize = 256;
/// Different words that are counted: a billion words of English have about ten million.
const MOST_WORDS: usize = 32_000_000;

/// How text is cut into tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every character is a token.
    Character,
    /// Every byte is a token.
    Byte,
    /// Byte-level BPE: the pair seen most often becomes a token, again and again (Sennrich et
    /// al. 2016; Radford et al. 2019).
    Bpe,
    /// WordPiece over bytes: learned as BPE, applied by taking the longest piece first (Schuster
    /// and Nakajima 2012; Devlin et al. 2019).
    WordPiece,
    /// Unigram over bytes: of all ways to cut, the most likely one (Kudo 2018).
    Unigram,
    /// Every word is a token, and so is every run of punctuation; words that are not in the
    /// vocabulary become the unknown token, and spaces are not kept.
    Word,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Character, Self::Byte, Self::Bpe, Self::WordPiece, Self::Unigram, Self::Word];

    /// Its name in options and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Character => "character",
            Self::Byte => "byte",
            Self::Bpe => "bpe",
            Self::WordPiece => "wordpiece",
            Self::Unigram => "unigram",
            Self::Word => "word",
        }
    }
}

fn no_text() -> Error {
    error::empty("the text to learn a tokenizer from")
}

/// A special token and how it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecialText {
    /// What it is for, if it is one of the usual ones.
    pub special: Option<Special>,
    /// How it is written.
    pub text: String,
}

impl SpecialText {
    /// `special`, written as `text`.
    pub fn new(special: Special, text: impl Into<String>) -> Self {
        Self { special: Some(special), text: text.into() }
    }

    /// T5's sentinels, which stand for spans of a text that were taken out: `<extra_id_0>`, ….
    pub fn sentinels(count: usize) -> Vec<Self> {
        (0..count).map(|i| Self { special: None, text: sentinel(i) }).collect()
    }
}

/// How sentinel `i` is written.
pub(super) fn sentinel(i: usize) -> String {
    format!("<extra_id_{i}>")
}

impl From<Special> for SpecialText {
    fn from(special: Special) -> Self {
        Self::new(special, special.default_text())
    }
}

/// What kind of tokenizer to learn, and how large.
///
/// ```
/// use hearken_data::{quiet, tokenizer::{Kind, Training}};
///
/// let text = "the cat sat on the mat";
/// let tokenizer = Training::new(Kind::Character).train_on_text(text).unwrap();
/// let ids = tokenizer.encode("a cat").unwrap();
/// assert_eq!(ids, [1, 0, 2, 1, 9]); // the characters in their order: ' ' a c e h m n o s t
/// assert_eq!(tokenizer.decode(&ids).unwrap(), "a cat");
/// ```
#[derive(Clone, Debug)]
pub struct Training {
    /// What kind.
    pub kind: Kind,
    /// The most ids there may be, special ones included. Characters: as many as the text has,
    /// unless given. Bytes: 256 and the special ones, always.
    pub vocabulary: Option<usize>,
    /// Pairs seen less often than this are not merged (BPE, WordPiece), and words seen less often
    /// are unknown (words).
    pub minimum_frequency: u64,
    /// The special tokens, in the order of their ids.
    pub specials: Vec<SpecialText>,
    /// Characters that are not in the vocabulary become their bytes (characters only; the other
    /// kinds know all bytes).
    pub byte_fallback: bool,
}

impl Training {
    /// The usual settings for `kind`: 8,192 ids where there is a choice; no special tokens for
    /// characters and bytes, an end of text for BPE and Unigram, BERT's for WordPiece and words.
    pub fn new(kind: Kind) -> Self {
        use Special::{Cls, Eos, Mask, Pad, Sep, Unk};
        let specials: &[Special] = match kind {
            Kind::Character | Kind::Byte => &[],
            Kind::Bpe | Kind::Unigram => &[Eos],
            Kind::WordPiece | Kind::Word => &[Pad, Unk, Cls, Sep, Mask],
        };
        let chosen = !matches!(kind, Kind::Character | Kind::Byte);
        Self {
            kind,
            vocabulary: chosen.then_some(8192),
            minimum_frequency: 2,
            specials: specials.iter().copied().map(SpecialText::from).collect(),
            byte_fallback: false,
        }
    }

    /// Learns from one text.
    pub fn train_on_text(&self, text: &str) -> Result<Tokenizer> {
        let pieces = super::CutRule::BeforeSpace.pieces(text, super::PIECE);
        let texts = pieces.into_iter().map(|piece| Ok(piece.to_owned()));
        self.train(texts, None, &mut crate::quiet)
    }

    /// Learns from all texts of a source.
    pub fn train_on(&self, source: &Source) -> Result<Tokenizer> {
        self.train(source.texts(), Some(source.length()), &mut crate::quiet)
    }

    /// Learns from texts, which are read one after the other and not kept. `total` is their
    /// length in bytes, if known. Words that run over the end of a text are seen as two.
    pub fn train(
        &self,
        texts: impl Iterator<Item = Result<String>> + Send,
        total: Option<u64>,
        report: Report<'_>,
    ) -> Result<Tokenizer> {
        self.train_noting(texts, total, report, &mut |_| ())
    }

    /// As [`Self::train`]; `note` is told what was left out of account.
    pub fn train_noting(
        &self,
        texts: impl Iterator<Item = Result<String>> + Send,
        total: Option<u64>,
        report: Report<'_>,
        note: &mut dyn FnMut(String),
    ) -> Result<Tokenizer> {
        self.check_specials()?;
        let long = LongWords::new();
        let mut texts = Texts { inner: texts, failure: None, done: 0, total, report };
        let json = match self.kind {
            Kind::Character => self.train_characters(&mut texts),
            Kind::Byte => {
                // Nothing to learn; but text that cannot be read should say so now.
                texts.by_ref().for_each(drop);
                Ok(assemble::bytes(&self.specials))
            }
            Kind::Bpe => self.train_merges(&mut texts, None, &long).map(|model| {
                let model = serde_json::to_value(model).unwrap_or_default();
                assemble::bpe(&model, &self.specials)
            }),
            Kind::WordPiece => self.train_word_piece(&mut texts),
            Kind::Unigram => self.train_unigram(&mut texts),
            Kind::Word => self.train_words(&mut texts),
        };
        if let Some(error) = texts.failure {
            return Err(error);
        }
        let json = json?;
        if texts.done == 0 {
            return Err(no_text());
        }
        if let Some(cut) = long.note() {
            note(cut);
        }
        let roles: serde_json::Map<_, _> = self
            .specials
            .iter()
            .filter_map(|s| Some((format!("{}_token", s.special?.name()), s.text.clone().into())))
            .collect();
        Tokenizer::from_value(&json, Some(&roles.into())).map_err(error::tokenizer)
    }

    fn check_specials(&self) -> Result<()> {
        for (i, special) in self.specials.iter().enumerate() {
            let bad = |reason| Err(error::bad_special(&special.text, reason));
            if special.text.chars().count() < 2 {
                return bad("is shorter than two characters");
            }
            let mut before = self.specials.iter().take(i);
            if before.clone().any(|s| s.text == special.text) {
                return bad("is given twice");
            }
            if special.special.is_some() && before.any(|s| s.special == special.special) {
                return bad("has the role of another");
            }
        }
        Ok(())
    }

    fn unknown(&self) -> Option<&str> {
        let unknown = self.specials.iter().find(|s| s.special == Some(Special::Unk));
        unknown.map(|s| s.text.as_str())
    }

    /// The vocabulary without special tokens, if `needed` fit.
    fn room_for(&self, needed: usize, alphabet: &str, hint: &'static str) -> Result<usize> {
        let asked = self.vocabulary.unwrap_or(8192);
        let needed = needed + self.specials.len();
        if asked < needed {
            let alphabet = format!("{alphabet} and {} special tokens", self.specials.len());
            return Err(error::vocabulary_too_small(asked, needed, &alphabet, hint));
        }
        if asked > MOST_IDS {
            return Err(error::vocabulary_too_large(asked, MOST_IDS));
        }
        Ok(asked - self.specials.len())
    }

    fn train_characters(
        &self,
        texts: &mut (impl Iterator<Item = String> + Send),
    ) -> Result<serde_json::Value> {
        let mut counts: BTreeMap<char, u64> = BTreeMap::new();
        let mut ascii = [0_u64; 128];
        for text in texts {
            for character in text.chars() {
                match ascii.get_mut(character as usize) {
                    Some(count) => *count += 1,
                    None => *counts.entry(character).or_default() += 1,
                }
            }
        }
        let seen = ascii.iter().zip(0_u8..).filter(|&(&count, _)| count > 0);
        counts.extend(seen.map(|(&count, code)| (char::from(code), count)));
        let mut kept: Vec<char> = counts.keys().copied().collect();
        if self.vocabulary.is_some() {
            let bytes = if self.byte_fallback { 256 } else { 0 };
            let others_known = self.byte_fallback || self.unknown().is_some();
            let least = bytes + if others_known { 0 } else { kept.len() };
            let what = format!("{} characters", if others_known { 0 } else { kept.len() });
            let hint = "leave the size out, or give byte fallback or an unknown token for the \
                characters that do not fit";
            let room = self.room_for(least, &what, hint)? - bytes;
            // The most frequent ones, the smaller code first where they are equally frequent.
            kept.sort_by_key(|character| (std::cmp::Reverse(counts.get(character)), *character));
            kept.truncate(room);
            kept.sort_unstable();
        }
        let fallback = self.byte_fallback;
        Ok(assemble::characters(&kept, fallback, self.unknown(), &self.specials))
    }

    /// The words seen most often, the first in order of their characters where they are equally
    /// frequent.
    fn train_words(
        &self,
        texts: &mut (impl Iterator<Item = String> + Send),
    ) -> Result<serde_json::Value> {
        let unknown = self.unknown().unwrap_or(Special::Unk.default_text());
        let hint = "ask for more, or use the byte tokenizer";
        let room = self.room_for(1, "one word", hint)?;
        let pattern = Regex::new(WHOLE_WORDS).map_err(error::tokenizer)?;
        let mut counts: HashMap<String, u64> = HashMap::new();
        let mut left_out = false;
        for text in texts {
            for word in pattern.find_iter(&text).map(|word| word.as_str()) {
                if let Some(count) = counts.get_mut(word) {
                    *count += 1;
                } else if word.len() <= LONGEST_WORD && counts.len() < MOST_WORDS {
                    counts.insert(word.to_owned(), 1);
                } else {
                    left_out = true;
                }
            }
        }
        if counts.is_empty() && !left_out {
            return Err(no_text());
        }
        if left_out && counts.len() == MOST_WORDS {
            return Err(error::too_many_words(MOST_WORDS));
        }
        let is_special = |word: &str| self.specials.iter().any(|special| special.text == word);
        let mut kept: Vec<(String, u64)> = counts
            .into_iter()
            .filter(|(word, count)| *count >= self.minimum_frequency && !is_special(word))
            .collect();
        if kept.is_empty() {
            return Err(error::nothing_to_learn(self.kind.name()));
        }
        kept.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        kept.truncate(room);
        let words: Vec<String> = kept.into_iter().map(|(word, _)| word).collect();
        Ok(assemble::whole_words(&words, unknown, &self.specials))
    }

    /// BPE over the letters of bytes; `prefix` marks pieces inside a word (WordPiece).
    fn train_merges<R>(
        &self,
        texts: &mut Texts<'_, R>,
        prefix: Option<&str>,
        long: &LongWords,
    ) -> Result<BPE>
    where
        R: Iterator<Item = Result<String>> + Send,
    {
        let letters = assemble::letters();
        let alphabet = 256 * if prefix.is_some() { 2 } else { 1 };
        let hint = "ask for more, or use the byte tokenizer";
        let room = self.room_for(alphabet, &format!("{alphabet} bytes"), hint)?;
        let mut trainer = BpeTrainer::builder()
            .vocab_size(room)
            .min_frequency(self.minimum_frequency)
            .initial_alphabet(letters.into_iter().collect())
            .show_progress(false);
        let mut pattern = assemble::byte_level(true);
        if let Some(prefix) = prefix {
            // Given first, in their order: the trainer would number them as it meets them in a
            // hash table.
            let continuations = letters.map(|letter| format!("{prefix}{letter}"));
            trainer = trainer
                .continuing_subword_prefix(prefix.to_owned())
                .special_tokens(continuations.map(|text| AddedToken::from(text, false)).to_vec());
            pattern = assemble::words();
        }
        let mut trainer = trainer.build();
        let splitter = splitter(&pattern)?;
        trainer
            .feed(&mut *texts, |text| Ok(long.cut(words_of(&splitter, text)?)))
            .map_err(|error| failed(&error))?;
        texts.say(Stage::Training);
        let mut model = BPE::default();
        trainer.train(&mut model).map_err(|error| failed(&error))?;
        Ok(model)
    }

    fn train_word_piece<R>(&self, texts: &mut Texts<'_, R>) -> Result<serde_json::Value>
    where
        R: Iterator<Item = Result<String>> + Send,
    {
        // Its words are short by their pattern.
        let long = LongWords::new();
        let model = self.train_merges(texts, Some(assemble::CONTINUATION), &long)?;
        let mut tokens: Vec<(u32, String)> =
            model.get_vocab().into_iter().map(|(token, id)| (id, token)).collect();
        tokens.sort_unstable();
        let tokens: Vec<String> = tokens.into_iter().map(|(_, token)| token).collect();
        let unknown = self.unknown().unwrap_or(Special::Unk.default_text());
        Ok(assemble::word_piece(&tokens, unknown, &self.specials))
    }

    fn train_unigram<R>(&self, texts: &mut Texts<'_, R>) -> Result<serde_json::Value>
    where
        R: Iterator<Item = Result<String>> + Send,
    {
        let hint = "ask for more, or use the byte tokenizer";
        let room = self.room_for(256, "256 bytes", hint)?;
        let splitter = splitter(&assemble::words())?;
        let mut counts: HashMap<String, u64> = HashMap::new();
        loop {
            let batch: Vec<String> = texts.by_ref().take(64).collect();
            if batch.is_empty() {
                break;
            }
            let words = batch.par_iter().map(|text| words_of(&splitter, text));
            for words in
                words.collect::<tokenizers::Result<Vec<_>>>().map_err(|error| failed(&error))?
            {
                for word in words {
                    *counts.entry(word).or_default() += 1;
                }
            }
        }
        texts.say(Stage::Training);
        // The trainer adds the counts up in 32 bits.
        let total: u64 = counts.values().sum();
        let scale = total / u64::from(u32::MAX / 2) + 1;
        let mut words: Vec<(String, u32)> =
            counts.into_iter().map(|(word, count)| (word, (count / scale).max(1) as u32)).collect();
        words.sort_unstable();
        if words.is_empty() {
            return Ok(serde_json::Value::Null);
        }
        let trainer = UnigramTrainer::builder()
            .vocab_size(room as u32)
            .show_progress(false)
            .build()
            .map_err(error::tokenizer)?;
        let mut model = Unigram::default();
        let one_thread =
            rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(error::tokenizer)?;
        // It panics on texts that say the same few words again and again.
        one_thread
            .install(|| guarded(|| trainer.do_train(words, &mut model)))
            .map_err(|_| error::nothing_to_learn("Unigram"))?;
        Ok(assemble::unigram(&settle(&model, room), &self.specials))
    }
}

/// Scores of Unigram are multiples of this. They are sums of thousands of terms and come out up to
/// 1e-14 apart where `ln` and `exp` are other ones (with and without FMA, say): of V scores, some
/// V · 1e-14 / 1e-6 lie so close between two multiples that they could become different ones.
const SCORE_STEP: f64 = 1e-6;

/// Gives the pieces of a trained model a definite order and every byte a piece.
///
/// Letters that the trainer had dropped come back from a hash table, in any order, with scores
/// `least`, `least + 1e-4`, …: they all get `least`, as do the letters of bytes that the text
/// does not have. Then the scores are rounded, and the pieces sorted by score and spelling.
fn settle(model: &Unigram, room: usize) -> Vec<(String, f64)> {
    /// What the trainer adds from one such letter to the next.
    const STEP: f64 = 0.0001;
    let mut pieces: Vec<(String, f64)> = model.iter().cloned().collect();
    let least = pieces.iter().map(|&(_, score)| score).fold(0.0, f64::min);
    let mut returned = Vec::with_capacity(256);
    let mut penalty = 0.0;
    for _ in 0..256 {
        returned.push((least + penalty).to_bits());
        penalty += STEP;
    }
    let single = |piece: &str| piece.chars().nth(1).is_none();
    for (piece, score) in &mut pieces {
        if single(piece) && returned.contains(&score.to_bits()) {
            *score = least;
        }
    }
    let known: Vec<String> =
        pieces.iter().map(|(piece, _)| piece.clone()).filter(|piece| single(piece)).collect();
    let missing = assemble::letters().map(String::from).into_iter();
    let missing: Vec<_> = missing.filter(|l| !known.contains(l)).map(|l| (l, least)).collect();
    let order = |a: &(String, f64), b: &(String, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    // Single letters first, so that the cut to size takes longer pieces only.
    pieces.sort_by(|a, b| single(&b.0).cmp(&single(&a.0)).then_with(|| order(a, b)));
    pieces.truncate(room - missing.len());
    pieces.extend(missing);
    for (_, score) in &mut pieces {
        // Divided by the whole number 1 / SCORE_STEP: the double nearest to the decimal.
        *score = (*score / SCORE_STEP).round() / (1.0 / SCORE_STEP).round();
    }
    pieces.sort_by(order);
    pieces
}

fn splitter(json: &serde_json::Value) -> Result<PreTokenizerWrapper> {
    serde_json::from_value(json.clone()).map_err(error::tokenizer)
}

/// The words of a text, in letters of bytes.
fn words_of(splitter: &PreTokenizerWrapper, text: &str) -> tokenizers::Result<Vec<String>> {
    let mut pre_tokenized = PreTokenizedString::from(text);
    splitter.pre_tokenize(&mut pre_tokenized)?;
    let splits = pre_tokenized.get_splits(OffsetReferential::Original, OffsetType::None);
    Ok(splits.into_iter().map(|(word, _, _)| word.to_owned()).collect())
}

/// Texts on their way to a trainer: counted, and stopped at the first failure.
struct Texts<'a, R> {
    inner: R,
    failure: Option<Error>,
    done: u64,
    total: Option<u64>,
    report: Report<'a>,
}

impl<R> Texts<'_, R> {
    fn say(&mut self, stage: Stage) {
        (self.report)(Progress { stage, done: self.done, total: self.total });
    }
}

impl<R: Iterator<Item = Result<String>>> Iterator for Texts<'_, R> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        if self.failure.is_some() {
            return None;
        }
        match self.inner.next()? {
            Ok(text) => {
                self.done += text.len() as u64;
                self.say(Stage::Reading);
                Some(text)
            }
            Err(error) => {
                self.failure = Some(error);
                None
            }
        }
    }
}
