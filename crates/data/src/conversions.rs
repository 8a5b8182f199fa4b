//! Dates and numbers in words and in digits: pairs of texts for encoder-decoders, made without end
//! from a seed.
//!
//! > the third of March 2021 → 2021-03-03
//! >
//! > one million and five → 1000005
//!
//! | conversion | source | target |
//! |---|---|---|
//! | [`Conversion::Dates`] | a date in one of many ways of writing | year, month, day |
//! | [`Conversion::IsoDates`] | year, month, day | the date in one way |
//! | [`Conversion::Numbers`] | a number in words, of 5 to 40 tokens | its digits |
//! | [`Conversion::Digits`] | digits | the number in words, in one way |
//!
//! # The ceiling
//! Every source has exactly one right target: no text stands for two dates or two numbers. So a
//! model can be right every time, and an exact match of 1 is the best possible result.
//!
//! # What is held out
//! One date or number in eight, chosen by a hash of its value, is never seen in training, in no way
//! of writing. What is held out is drawn from these alone, each value once.

mod dates;
mod numbers;

use crate::batches::key;
use crate::tokenizer::Tokenizer;
use dates::Date;
use hearken_base::names;
use hearken_tensor::rng::Rng;
use numbers::Style;
use serde::Serialize;
use std::collections::BTreeSet;

const TRAINING_SITE: u64 = 0x636f_6e76_6572_7400; // "convert"
const VALIDATION_SITE: u64 = 0x636f_6e76_6578_616d; // "convexam"
const PART_SITE: u64 = 0x636f_6e76_7061_7274; // "convpart"

/// One value in so many is held out.
const PARTS: u64 = 8;

/// From one way of writing to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conversion {
    /// Dates in words to ISO 8601.
    Dates,
    /// Dates in ISO 8601 to words.
    IsoDates,
    /// Numbers in words to digits.
    Numbers,
    /// Digits to numbers in words.
    Digits,
}

names!(Conversion {
    "dates" => Dates, "iso-dates" => IsoDates, "numbers" => Numbers, "digits" => Digits
});

impl Conversion {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Dates, Self::IsoDates, Self::Numbers, Self::Digits];

    /// Source and target of a row of a training step.
    pub fn pair(self, seed: u64, step: u64, row: u64) -> [String; 2] {
        let mut rng = Rng::new(key(key(seed, step, TRAINING_SITE), row, 0));
        loop {
            let (value, pair) = self.draw(&mut rng);
            if !is_held_out(value) {
                return pair;
            }
        }
    }

    /// Pairs that training never sees, no value twice; fewer than asked for only if there are no
    /// more.
    pub fn held_out(self, count: usize, seed: u64) -> Vec<[String; 2]> {
        /// Draws without a new value after which none is expected.
        const PATIENCE: usize = 100_000;
        let mut rng = Rng::new(key(seed, 0, VALIDATION_SITE));
        let (mut seen, mut pairs, mut in_vain) = (BTreeSet::new(), Vec::new(), 0);
        while pairs.len() < count && in_vain < PATIENCE {
            let (value, pair) = self.draw(&mut rng);
            in_vain += 1;
            if is_held_out(value) && seen.insert(value) {
                pairs.push(pair);
                in_vain = 0;
            }
        }
        pairs
    }

    /// A value as a number, with its source and target.
    fn draw(self, rng: &mut Rng) -> (u64, [String; 2]) {
        match self {
            Self::Dates => {
                let date = Date::draw(rng);
                (date.number(), [date.written(rng), date.iso()])
            }
            Self::IsoDates => {
                let date = Date::draw(rng);
                (date.number(), [date.iso(), date.plainly()])
            }
            Self::Numbers => {
                let (number, words) = numbers::draw(rng);
                (number, [words, number.to_string()])
            }
            Self::Digits => {
                let (number, _) = numbers::draw(rng);
                (number, [number.to_string(), numbers::words(number, Style::default())])
            }
        }
    }

    /// The most tokens of a source and of a target.
    pub fn longest(self) -> [usize; 2] {
        match self {
            Self::Dates => [dates::LONGEST, 10],
            Self::IsoDates => [10, dates::LONGEST],
            Self::Numbers => [*numbers::TOKENS.end(), numbers::DIGITS],
            // Always with "and" and with hyphens.
            Self::Digits => [numbers::DIGITS, numbers::LONGEST],
        }
    }
}

fn is_held_out(value: u64) -> bool {
    key(value, 0, PART_SITE).is_multiple_of(PARTS)
}

/// The words of all conversions, digits and signs, sorted: what the tokens are made of.
pub fn vocabulary() -> Vec<String> {
    let mut tokens = BTreeSet::new();
    let mut add = |text: &str| {
        for token in pieces(text) {
            tokens.insert(token.to_owned());
            if token.starts_with(|c: char| c.is_ascii_alphabetic()) {
                tokens.insert(format!(" {token}")); // a word behind another
            }
        }
    };
    numbers::fragments(&mut add);
    dates::fragments(&mut add);
    add("0123456789 -,");
    tokens.into_iter().collect()
}

/// The tokenizer of the conversions: a token per word (with the space before it), digit and sign.
pub fn tokenizer() -> Tokenizer {
    Tokenizer::of_pieces(&vocabulary())
}

/// A text in words with the space before them, single digits and single signs: what the tokenizer
/// of the conversions sees.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let letter = |c: char| c.is_ascii_alphabetic();
        let first = rest.chars().next()?;
        let space = usize::from(first == ' ' && rest[1..].starts_with(letter));
        let word = rest[space..].find(|c: char| !letter(c)).unwrap_or(rest.len() - space);
        let end = if word > 0 { space + word } else { first.len_utf8() };
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_text_has_one_meaning_and_its_tokens_say_it() {
        let tokenizer = tokenizer();
        let unknown = tokenizer.special(crate::tokenizer::Special::Unk).unwrap();
        for conversion in Conversion::ALL {
            let mut meanings = HashMap::new();
            let [longest, longest_target] = conversion.longest();
            let made = (0..4000).map(|row| conversion.pair(7, 3, row));
            for [source, target] in made.chain(conversion.held_out(1000, 7)) {
                for (text, most) in [(&source, longest), (&target, longest_target)] {
                    let ids = tokenizer.encode(text).unwrap();
                    assert!(!ids.contains(&unknown), "{text}");
                    assert_eq!(ids.len(), pieces(text).count(), "{text}");
                    assert!(ids.len() <= most, "{} tokens in {text}", ids.len());
                    assert_eq!(tokenizer.decode(&ids).unwrap(), *text);
                }
                if conversion == Conversion::Numbers {
                    assert!(numbers::TOKENS.contains(&pieces(&source).count()), "{source}");
                }
                let before = meanings.insert(source.clone(), target.clone());
                assert!(before.is_none_or(|before| before == target), "{source} is {target}");
            }
        }
    }

    #[test]
    fn what_is_held_out_is_never_trained_on() {
        for conversion in Conversion::ALL {
            let iso = |pair: &[String; 2]| match conversion {
                Conversion::Dates | Conversion::Numbers => pair[1].clone(),
                Conversion::IsoDates | Conversion::Digits => pair[0].clone(),
            };
            let held = conversion.held_out(2000, 1);
            let values: BTreeSet<String> = held.iter().map(iso).collect();
            assert_eq!(values.len(), 2000, "each once");
            let trained = (0..20_000).map(|row| conversion.pair(1, row / 100, row % 100));
            assert!(trained.map(|pair| iso(&pair)).all(|value| !values.contains(&value)));
            assert_eq!(held, conversion.held_out(2000, 1));
            assert_ne!(held, conversion.held_out(2000, 2));
            assert_eq!(conversion.pair(1, 2, 3), conversion.pair(1, 2, 3));
            assert_ne!(conversion.pair(1, 2, 3), conversion.pair(1, 2, 4));
        }
    }

    #[test]
    fn pieces_are_words_digits_and_signs() {
        let of = |text| pieces(text).collect::<Vec<_>>();
        assert_eq!(of("twenty-one, 2 a"), ["twenty", "-", "one", ",", " ", "2", " a"]);
        assert_eq!((of(""), of(" "), of("  x")), (vec![], vec![" "], vec![" ", " x"]));
    }
}
