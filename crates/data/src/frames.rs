//! Texts as an encoder reads them: `[CLS] a [SEP]`, or `[CLS] a [SEP] b [SEP]` with a type for the
//! tokens of each.
//!
//! What is too long is cut, and the cut is counted: of two texts, the longer one loses tokens
//! first. A context in which an answer is looked for is not cut but read in several
//! [`Windows`], each a row with the question before it; they overlap, so that an answer at the end
//! of one lies whole in the next.

use crate::batches::{Batch, Batches, Examples, IGNORED, Labels, Source, key};
use crate::error::{Error, Result};
use crate::tokenizer::{Special, Tokenizer};
use std::ops::Range;

/// What stands around texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    begin: Option<u32>,
    between: Vec<u32>,
    end: Option<u32>,
    /// Fills rows.
    pub pad: u32,
    /// T, the most tokens of a row.
    pub length: usize,
}

/// A row, and what was left out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed {
    /// At most T.
    pub ids: Vec<u32>,
    /// Where the first text lies in it.
    pub first: Range<usize>,
    /// Where the second text lies, if there is one.
    pub second: Option<Range<usize>>,
    /// Tokens that did not fit.
    pub cut: usize,
}

impl Frame {
    /// As the special tokens of a tokenizer say: its beginning is the class token or that of a text,
    /// its end the separator or the end of a text. Rows have at most `length` tokens.
    pub fn new(tokenizer: &Tokenizer, length: usize) -> Result<Self> {
        let special = |special| tokenizer.special(special);
        let begin = special(Special::Cls).or_else(|| special(Special::Bos));
        let end = special(Special::Sep).or_else(|| special(Special::Eos));
        let separator = end.and_then(|end| tokenizer.token(end));
        // RoBERTa and its kin put two between two texts.
        let count = if separator.as_deref() == Some("</s>") && begin.is_some() { 2 } else { 1 };
        let between = end.map(|end| vec![end; count]).unwrap_or_default();
        let pad = special(Special::Pad).or(end).unwrap_or(0);
        let frame = Self { begin, between, end, pad, length };
        let least = frame.around(true) + 2;
        if length < least {
            return Err(Error::new(
                format!("a context of {length} tokens has no room for two texts"),
                format!("{least} is the least; set model.context"),
            ));
        }
        Ok(frame)
    }

    /// Tokens that are not of a text.
    fn around(&self, two: bool) -> usize {
        let ends = usize::from(self.begin.is_some()) + usize::from(self.end.is_some());
        ends + if two { self.between.len() } else { 0 }
    }

    /// `[CLS] text [SEP]`
    pub fn one(&self, text: &[u32]) -> Framed {
        let kept = text.get(..self.length - self.around(false)).unwrap_or(text);
        self.put(kept, None, text.len() - kept.len())
    }

    /// `[CLS] first [SEP] second [SEP]`
    pub fn two(&self, first: &[u32], second: &[u32]) -> Framed {
        let room = self.length - self.around(true);
        let cut = (first.len() + second.len()).saturating_sub(room);
        // The longer one is cut until both are equally long; the rest is shared.
        let shorter = first.len().min(second.len()).min(room / 2);
        let kept = |own: &[u32], other: &[u32]| {
            if cut == 0 || own.len() <= shorter {
                own.len()
            } else if other.len() <= shorter {
                room - other.len()
            } else {
                room / 2
            }
        };
        let first_kept = kept(first, second).min(first.len());
        let second_kept = (room - first_kept).min(second.len());
        self.put(&first[..first_kept], Some(&second[..second_kept]), cut)
    }

    fn put(&self, first: &[u32], second: Option<&[u32]>, cut: usize) -> Framed {
        let mut ids = Vec::with_capacity(self.length.min(first.len() + 8));
        ids.extend(self.begin);
        let take = |ids: &mut Vec<u32>, text: &[u32]| {
            let start = ids.len();
            ids.extend_from_slice(text);
            start..ids.len()
        };
        let first = take(&mut ids, first);
        let second = second.map(|second| {
            ids.extend_from_slice(&self.between);
            take(&mut ids, second)
        });
        ids.extend(self.end);
        Framed { ids, first, second, cut }
    }
}

/// A context in pieces that overlap, each after the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The rows, and which tokens of the context each holds.
    pub rows: Vec<(Framed, Range<usize>)>,
    /// Tokens of the question that did not fit.
    pub cut: usize,
}

impl Frame {
    /// Rows of a question and a window of its context. The question has at most half of the room.
    /// Windows begin `stride` tokens apart; half of a window, unless given.
    pub fn windows(&self, question: &[u32], context: &[u32], stride: Option<usize>) -> Windows {
        let room = self.length - self.around(true);
        let asked = question.get(..room / 2).unwrap_or(question);
        let width = room - asked.len();
        let stride = stride.unwrap_or(width / 2).clamp(1, width);
        let mut rows = Vec::new();
        let mut start = 0;
        loop {
            let end = context.len().min(start + width);
            rows.push((self.two(asked, &context[start..end]), start..end));
            if end == context.len() {
                break;
            }
            start += stride;
        }
        Windows { rows, cut: question.len() - asked.len() }
    }
}

/// What a row should be answered with.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Nothing but its [tags](Feature::tags), if there are some.
    None,
    /// A class.
    Class(u32),
    /// For every class whether it applies.
    Several(Vec<bool>),
    /// The first and the last token of an answer.
    Span([u32; 2]),
    /// Numbers.
    Numbers(Vec<f32>),
}

/// A row that a model reads, with its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// At most T.
    pub ids: Vec<u32>,
    /// Where the tokens of the second text begin, which have another type.
    pub second: Option<usize>,
    /// The target of every token; empty if tokens have none.
    pub tags: Vec<u32>,
    /// The answer.
    pub target: Target,
    /// Another text, for models that compare two.
    pub other: Option<Vec<u32>>,
}

impl Feature {
    /// A row without an answer.
    pub fn new(framed: Framed) -> Self {
        let second = framed.second.map(|second| second.start);
        Self { ids: framed.ids, second, tags: Vec::new(), target: Target::None, other: None }
    }

    /// The same with an answer.
    pub fn with(self, target: Target) -> Self {
        Self { target, ..self }
    }
}

/// The rows of a batch, padded to the longest of them.
pub fn batch<'a, F>(features: &F, pad: u32) -> Batch
where
    F: ExactSizeIterator<Item = &'a Feature> + Clone,
{
    let rows = features.len();
    let length = features.clone().map(|feature| feature.ids.len()).max().unwrap_or(0);
    let mut list = features.clone();
    let mut batch = Batch::build(rows, length, pad, |_, inputs, targets| {
        let Some(feature) = list.next() else { return 0 };
        let n = feature.ids.len();
        inputs[..n].copy_from_slice(&feature.ids);
        targets[..feature.tags.len()].copy_from_slice(&feature.tags);
        n
    });
    if features.clone().any(|feature| feature.second.is_some()) {
        let mut types = vec![0; rows * length]; // (B, T)
        for (types, feature) in types.chunks_exact_mut(length.max(1)).zip(features.clone()) {
            let n = feature.ids.len();
            types[feature.second.unwrap_or(n)..n].fill(1);
        }
        batch.types = Some(types);
    }
    batch.labels = labels(features.clone());
    if features.clone().any(|feature| feature.other.is_some()) {
        let others = || features.clone().map(|feature| feature.other.as_deref().unwrap_or(&[]));
        let length = others().map(<[u32]>::len).max().unwrap_or(0);
        let mut ids = vec![pad; rows * length]; // (B, S)
        for (row, other) in ids.chunks_exact_mut(length.max(1)).zip(others()) {
            row[..other.len()].copy_from_slice(other);
        }
        let lengths = others().map(<[u32]>::len).collect();
        batch.source = Some(Source { length, ids, lengths });
    }
    batch
}

fn labels<'a>(features: impl ExactSizeIterator<Item = &'a Feature> + Clone) -> Option<Labels> {
    let mut classes = Vec::new();
    let mut several = Vec::new();
    let mut spans = Vec::new();
    let mut numbers = Vec::new();
    for feature in features {
        match &feature.target {
            Target::None => {}
            Target::Class(class) => classes.push(*class),
            Target::Several(flags) => several.extend_from_slice(flags),
            Target::Span(span) => spans.push(*span),
            Target::Numbers(values) => numbers.extend_from_slice(values),
        }
    }
    if !classes.is_empty() {
        Some(Labels::Classes(classes))
    } else if !several.is_empty() {
        Some(Labels::Several(several))
    } else if !spans.is_empty() {
        Some(Labels::Spans(spans))
    } else if !numbers.is_empty() {
        Some(Labels::Numbers(numbers))
    } else {
        None
    }
}

/// A list of rows.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// The rows.
    pub list: Vec<Feature>,
    /// Fills the shorter ones.
    pub pad: u32,
}

impl Examples for Features {
    fn count(&self) -> usize {
        self.list.len()
    }

    fn longest(&self) -> usize {
        self.list.iter().map(|feature| feature.ids.len()).max().unwrap_or(0)
    }

    fn tokens_of(&self, example: usize) -> usize {
        let feature = &self.list[example];
        feature.ids.len() + feature.other.as_ref().map_or(0, Vec::len)
    }

    fn batch_of(&self, examples: &[usize]) -> Batch {
        batch(&examples.iter().map(|&example| &self.list[example]), self.pad)
    }
}

/// Rows that are made when they are asked for: a new one for every (step, row).
pub struct Made<F> {
    make: F,
    rows: usize,
    length: usize,
    pad: u32,
}

impl<F: Fn(u64, u64) -> Feature + Send + Sync> Made<F> {
    /// `rows` rows a step of at most `length` tokens; `make(step, row)` gives one.
    pub fn new(rows: usize, length: usize, pad: u32, make: F) -> Self {
        Self { make, rows, length, pad }
    }
}

impl<F: Fn(u64, u64) -> Feature + Send + Sync> Batches for Made<F> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn length(&self) -> usize {
        self.length
    }

    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch {
        let made: Vec<Feature> = rows.map(|row| (self.make)(step, row as u64)).collect();
        batch(&made.iter(), self.pad)
    }
}

/// The rows of another source, of T − 2 tokens at most, between the tokens of a frame; their
/// targets are [`IGNORED`]. For masked language models of running text.
#[derive(Clone, Debug)]
pub struct Surrounded<I> {
    inner: I,
    frame: Frame,
}

impl<I> Surrounded<I> {
    /// `inner` is a [`Batches`] or an [`Examples`] of rows that are not packed.
    pub fn new(inner: I, frame: Frame) -> Self {
        Self { inner, frame }
    }

    fn surround(&self, batch: &Batch) -> Batch {
        let around = self.frame.around(false);
        let length = batch.length + around;
        Batch::build(batch.rows, length, self.frame.pad, |row, inputs, _| {
            let n = batch.length_of(row);
            let framed = self.frame.put(&batch.inputs[row * batch.length..][..n], None, 0);
            inputs[..framed.ids.len()].copy_from_slice(&framed.ids);
            framed.ids.len()
        })
    }
}

impl Frame {
    /// The tokens of a text that fit into a row by themselves.
    pub fn room(&self) -> usize {
        self.length - self.around(false)
    }
}

impl<B: Batches> Batches for Surrounded<B> {
    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn length(&self) -> usize {
        self.inner.length() + self.frame.around(false)
    }

    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch {
        self.surround(&self.inner.rows_of(step, rows))
    }

    fn epoch(&self) -> Option<u64> {
        self.inner.epoch()
    }
}

impl<E: Examples> Examples for Surrounded<E> {
    fn count(&self) -> usize {
        self.inner.count()
    }

    fn longest(&self) -> usize {
        self.inner.longest() + self.frame.around(false)
    }

    fn tokens_of(&self, example: usize) -> usize {
        self.inner.tokens_of(example) + self.frame.around(false)
    }

    fn batch_of(&self, examples: &[usize]) -> Batch {
        self.surround(&self.inner.batch_of(examples))
    }
}

/// The tags of the tokens of a row: each word's first token has the word's tag, all others are
/// [`IGNORED`]. `places` are the bytes of the text's tokens, and `row` where they lie in the row.
/// Gives the tags and, for each word, the token that has its tag, if that fits in the row.
pub fn align_tags(
    words: &[(Range<usize>, u32)],
    places: &[Range<usize>],
    row: &Framed,
) -> (Vec<u32>, Vec<Option<usize>>) {
    let mut tags = vec![IGNORED; row.ids.len()];
    let mut tokens = vec![None; words.len()];
    let mut at = 0;
    for (token, place) in (row.first.clone()).zip(places) {
        // Some tokenizers count the space before a word as a part of its first token.
        while at < words.len() && words[at].0.end <= place.start {
            at += 1;
        }
        if at < words.len() && place.end > words[at].0.start && tokens[at].is_none() {
            tokens[at] = Some(token);
            tags[token] = words[at].1;
        }
    }
    (tags, tokens)
}

/// The first and the last token of a row that an answer lies in, if it lies wholly in the window.
/// `answer` is in bytes of the context, `places` are the bytes of all its tokens, `window` is which
/// tokens the row holds, and `at` is where they begin in the row.
pub fn locate_answer(
    answer: &Range<usize>,
    places: &[Range<usize>],
    window: &Range<usize>,
    at: usize,
) -> Option<[u32; 2]> {
    let touches = |place: &&Range<usize>| place.start < answer.end && place.end > answer.start;
    let first = places.iter().position(|place| touches(&place))?;
    let last = places.iter().rposition(|place| touches(&place))?;
    let inside = first >= window.start && last < window.end;
    inside.then(|| [first, last].map(|token| (at + token - window.start) as u32))
}

/// A best guess at an answer: its tokens in the row, and by how much it is preferred to none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guess {
    /// The first and the last token.
    pub tokens: [usize; 2],
    /// start + end − (start + end of the first token, which says that there is no answer here).
    pub score: f32,
}

/// The best answer in one row: the largest start(i) + end(j) with i ≤ j < i + `most` in `context`,
/// the tokens of the row that the answer can lie in.
pub fn best_answer(
    start: &[f32],
    end: &[f32],
    context: Range<usize>,
    most: usize,
) -> Option<Guess> {
    let mut best: Option<Guess> = None;
    let nothing = start.first()? + end.first()?;
    for i in context.clone() {
        let ends = (i..context.end.min(i + most)).map(|j| (j, end[j]));
        // The first of equal ones.
        let Some((j, e)) = ends.reduce(|a, b| if b.1 > a.1 { b } else { a }) else { continue };
        let score = start[i] + e - nothing;
        if best.is_none_or(|best| score > best.score) {
            best = Some(Guess { tokens: [i, j], score });
        }
    }
    best
}

/// A number for the order in which rows are shuffled, apart from other uses of a seed.
pub fn order_seed(seed: u64) -> u64 {
    key(seed, 0, 0x6665_6174_7572_6573) // "features"
}

#[cfg(test)]
mod tests;
