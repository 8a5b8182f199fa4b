//! An endless supply of small stories whose entropy is known exactly: what `hearken train` learns
//! when it is given no text.
//!
//! > Mia the fox lost her red kite. She asked the owl, but the owl was asleep. The hare saw it at
//! > the river. So Mia ran off and found her red kite at the river.
//!
//! Hero, animal, colour, thing, helper and place are drawn at random; what comes later agrees
//! with what came before (her/his, it/them, the verb of the animal), and hero, colour, thing
//! and place return at the end. A model that learns to look back predicts those for
//! nothing; what it cannot know are the draws themselves.
//!
//! # The floor
//! A story is made by a process of choices with known probabilities (see `grammar.rs`).
//!
//! 1. The entropy of a story's choices, E\[−ln p\], is a finite sum by the chain rule: over the
//!    places where a choice is made, the probability of getting there times the entropy of the
//!    choice given what it depends on. The expected length is a sum by linearity. Neither is
//!    estimated.
//! 2. The text tells the choices: every story has one parse only. So the entropy of the texts is
//!    that of the choices. (A test parses thousands of stories and finds each parse alone, with
//!    the probability that the generator computed.)
//! 3. Stories are independent and each ends in a line end, which occurs nowhere else. Over n
//!    stories the nats per character are Σ −ln p / Σ length, which tends to
//!    **E\[−ln p\] / E\[length\]** (renewal–reward), and no model that predicts the next character
//!    can do better on average: the cross-entropy is the entropy plus a divergence ≥ 0.
//!
//! # Windows
//! A model sees T characters. If its window began within a story it would not know the hero and
//! would have to pay for him again: the floor of such windows is higher. So windows here begin at the
//! start of a story, with the line end of an imagined story before it as the first input
//! ([`BEGIN`]), and hold at least one whole story; T is at least the longest story ([`longest`]).
//! Training rows are filled up and cut at T: what is cut is predicted from its whole past all
//! the same. One training row in sixteen begins within a story, after the same line end, so that a
//! model can go on with "The mouse" or "So Mia", too. Validation rows hold whole stories only ([`Validation`]), so that its mean loss is
//! Σ −ln q / Σ length over whole stories and the floor above is exact for it. What the true
//! process itself would score on that very sample is [`Validation::oracle`]: it differs from the
//! floor by the luck of the sample.
//!
//! Text from [`text`] cut into windows anywhere has the same floor only in the limit of long T.

mod exercises;
mod facts;
mod grammar;
mod known;
mod posterior;
#[cfg(test)]
mod tests;
mod windows;
mod words;

pub use exercises::{Exercise, ceiling_of_recall};
pub use facts::{Fact, Told};
pub use grammar::Sample;
pub use known::unknown_words;
pub use posterior::MaskedBound;
pub use windows::{StoryWindows, Validation};

use crate::batches::key;
use crate::tokenizer::Tokenizer;
use hearken_tensor::rng::Rng;
use std::collections::BTreeSet;

/// What comes before every story, and begins every row.
pub const BEGIN: char = '\n';

/// What no model can beat, exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// E\[−ln p\] of a story.
    pub nats_per_story: f64,
    /// E\[length\] of a story, its line end included.
    pub characters_per_story: f64,
}

impl Floor {
    /// The lowest mean loss that a model can have.
    pub fn nats_per_character(self) -> f64 {
        self.nats_per_story / self.characters_per_story
    }
}

/// The floor of the stories, computed from the probabilities of the choices.
pub fn floor() -> Floor {
    let expected = grammar::expected(&words::story(), words::SLOTS);
    Floor { nats_per_story: expected.nats, characters_per_story: expected.length }
}

/// No story is longer, in characters.
pub fn longest() -> usize {
    grammar::longest(&words::story())
}

/// The characters that stories are written with.
pub fn alphabet() -> Vec<char> {
    let mut characters = BTreeSet::new();
    grammar::alphabet(&words::story(), &mut characters);
    characters.into_iter().collect()
}

/// The tokenizer of the stories: one id per character of the [`alphabet`].
pub fn tokenizer() -> Tokenizer {
    Tokenizer::of_characters(&alphabet())
}

/// The words and signs of the stories and of the [exercises](Exercise) made of them, sorted.
pub fn vocabulary() -> Vec<String> {
    let mut words = BTreeSet::new();
    let mut add = |text: &str| words.extend(words_of(text).map(str::to_owned));
    grammar::fragments(&words::story(), &mut add);
    exercises::fragments(&mut add);
    words.into_iter().collect()
}

/// A tokenizer of whole words: one id per word of the [`vocabulary`], then the special tokens of
/// encoders.
pub fn word_tokenizer() -> Tokenizer {
    Tokenizer::of_words(&vocabulary())
}

/// Words and runs of signs, as a tokenizer of whole words sees them.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    // Stories are written with letters, spaces, and signs that stand alone.
    let sign = |c: char| !c.is_alphanumeric() && !c.is_whitespace();
    text.split_whitespace().flat_map(move |word| {
        let cut = word.find(sign).unwrap_or(word.len());
        let (word, signs) = word.split_at(cut);
        [word, signs].into_iter().filter(|part| !part.is_empty())
    })
}

/// The next story of a generator.
pub fn sample(rng: &mut Rng) -> Sample {
    grammar::sample(&words::story(), words::SLOTS, rng)
}

/// At least `characters` characters of stories, one per line.
pub fn text(seed: u64, characters: usize) -> String {
    let mut rng = Rng::new(key(seed, 0, TEXT_SITE));
    let mut text = String::new();
    let mut length = 0;
    while length < characters {
        let story = sample(&mut rng).text;
        length += story.chars().count();
        text.push_str(&story);
    }
    text
}

/// −ln of the probability of a story, read off its text; none if it is no story.
pub fn nats(story: &str) -> Option<f64> {
    let ways = grammar::parse(&words::story(), words::SLOTS, story);
    let whole: Vec<f64> =
        ways.into_iter().filter(|way| way.1 == story.len()).map(|way| way.0).collect();
    // One way at most; were there several, their probabilities would add up.
    let probability: f64 = whole.iter().map(|nats| (-nats).exp()).sum();
    (probability > 0.0).then(|| -probability.ln())
}

const TEXT_SITE: u64 = 0x7465_7874_0000_0000; // "text"
