//! How close translations are to reference translations: exact match, BLEU and chrF of a whole
//! corpus with one reference per line, to the digit as sacreBLEU computes them with its defaults.
//!
//! **BLEU** (Papineni et al. 2002). pₙ is the share of the n-grams of all translations that also
//! stand in their references, each counted at most as often as there; c and r are the words of all
//! translations and of all references:
//!
//! ```text
//! BLEU = 100 · min(1, e^(1 − r/c)) · (p₁ p₂ p₃ p₄)^¼
//! ```
//! Words are those of WMT's `mteval-v13a`. Where no n-gram of an order is right, its pₙ is
//! 1 / (2ᵏ · n-grams) for the k-th such order ("exp" smoothing), so that one missing order does not
//! make the whole score 0.
//!
//! **chrF** (Popović 2015). With the mean precision P and the mean recall R of character n-grams
//! (n = 1 … 6, without white space) over those orders that occur on both sides, and β = 2,
//!
//! ```text
//! chrF = 100 · (1 + β²) · P · R / (β² P + R)
//! ```

use super::share;
use std::collections::HashMap;
use std::hash::Hash;

/// The largest n of word n-grams.
const WORDS: usize = 4;
/// The largest n of character n-grams.
const CHARACTERS: usize = 6;
/// β², how much more recall counts than precision.
const RECALL: f64 = 4.0;

/// Counts of a corpus of translations, from which its measures follow.
///
/// ```
/// use hearken_tasks::metrics::TranslationScore;
///
/// let mut score = TranslationScore::default();
/// score.add("the cat sat on the mat", "the cat sat on a mat");
/// assert_eq!(format!("{:.2} {:.2}", score.bleu(), score.chrf()), "53.73 72.08");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranslationScore {
    lines: usize,
    exact: usize,
    /// Words of translations and of references.
    said: u64,
    right: u64,
    words: [Matches; WORDS],
    characters: [Matches; CHARACTERS],
}

/// n-grams of one order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Matches {
    said: u64,
    right: u64,
    both: u64,
}

impl TranslationScore {
    /// What [`Self::bleu`] computes, in sacreBLEU's notation.
    pub const BLEU_SIGNATURE: &'static str = concat!(
        "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:hearken-",
        env!("CARGO_PKG_VERSION")
    );
    /// What [`Self::chrf`] computes, in sacreBLEU's notation.
    pub const CHRF_SIGNATURE: &'static str = concat!(
        "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:hearken-",
        env!("CARGO_PKG_VERSION")
    );

    /// Takes a translation and its reference.
    pub fn add(&mut self, said: &str, right: &str) {
        self.lines += 1;
        self.exact += usize::from(said == right);
        let [said_words, right_words] = [said, right].map(words_13a);
        let [said_words, right_words] = [words_of(&said_words), words_of(&right_words)];
        self.said += said_words.len() as u64;
        self.right += right_words.len() as u64;
        for (n, matches) in (1..).zip(&mut self.words) {
            matches.add(&said_words, &right_words, n);
        }
        let [said, right] = [said, right].map(|text| {
            text.chars().filter(|character| !is_space(*character)).collect::<Vec<char>>()
        });
        for (n, matches) in (1..).zip(&mut self.characters) {
            // An order that the reference does not have says nothing about the translation.
            if right.len() >= n {
                matches.add(&said, &right, n);
            }
        }
    }

    /// How many translations there are.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// The share of translations that equal their reference, from 0 to 1.
    pub fn exact_match(&self) -> f64 {
        share(self.exact, self.lines)
    }

    /// BLEU, from 0 to 100.
    pub fn bleu(&self) -> f64 {
        if self.words.iter().all(|matches| matches.both == 0) {
            return 0.0;
        }
        let (mut sum, mut smoothing) = (0.0, 1.0);
        for matches in &self.words {
            let (both, said) = (matches.both as f64, matches.said as f64);
            if matches.said == 0 {
                return 0.0; // all lines are shorter than n words
            }
            let precision = if matches.both == 0 {
                smoothing *= 2.0;
                100.0 / (smoothing * said)
            } else {
                100.0 * both / said
            };
            sum += precision.ln();
        }
        let brevity = if self.said < self.right {
            (1.0 - self.right as f64 / self.said as f64).exp()
        } else {
            1.0
        };
        brevity * (sum / WORDS as f64).exp()
    }

    /// chrF with β = 2, from 0 to 100.
    pub fn chrf(&self) -> f64 {
        let counted = self.characters.iter().filter(|m| m.said > 0 && m.right > 0);
        let (mut precision, mut recall, mut orders) = (0.0, 0.0, 0.0);
        for matches in counted {
            precision += matches.both as f64 / matches.said as f64;
            recall += matches.both as f64 / matches.right as f64;
            orders += 1.0;
        }
        if precision + recall == 0.0 {
            return 0.0;
        }
        let (precision, recall) = (precision / orders, recall / orders);
        100.0 * ((1.0 + RECALL) * precision * recall / (RECALL * precision + recall))
    }
}

impl Matches {
    fn add<T: Eq + Hash>(&mut self, said: &[T], right: &[T], n: usize) {
        let mut counts: HashMap<&[T], u64> = HashMap::new();
        for gram in right.windows(n) {
            *counts.entry(gram).or_default() += 1;
            self.right += 1;
        }
        for gram in said.windows(n) {
            self.said += 1;
            if let Some(left) = counts.get_mut(gram).filter(|left| **left > 0) {
                *left -= 1;
                self.both += 1;
            }
        }
    }
}

/// White space as Python's `str.split` sees it.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

fn words_of(text: &str) -> Vec<&str> {
    text.split(is_space).filter(|word| !word.is_empty()).collect()
}

/// A text with spaces between its words and signs, as `mteval-v13a` puts them.
///
/// - Every ASCII sign is a word of its own but for `'`, `-`, `.` and `,`;
/// - `.` and `,` are, unless digits stand on both sides of them;
/// - `-` is, behind a digit.
fn words_13a(text: &str) -> String {
    let mut line = text.trim_end_matches(is_space).replace("<skipped>", "");
    line = line.replace("-\n", "").replace('\n', " ");
    for (entity, sign) in [("&quot;", "\""), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")] {
        line = line.replace(entity, sign);
    }
    let is_sign = |c: char| c.is_ascii_punctuation() && !matches!(c, '\'' | '-' | '.' | ',');
    let mut spaced = vec![' '];
    for character in line.chars() {
        if is_sign(character) {
            spaced.extend([' ', character, ' ']);
        } else {
            spaced.push(character);
        }
    }
    spaced.push(' ');
    let is_dot = |c: char| matches!(c, '.' | ',');
    let is_digit = |c: char| c.is_ascii_digit();
    let spaced = replace_pairs(&spaced, |a, b| !is_digit(a) && is_dot(b), |a, b| [a, ' ', b, ' ']);
    let spaced = replace_pairs(&spaced, |a, b| is_dot(a) && !is_digit(b), |a, b| [' ', a, ' ', b]);
    let spaced = replace_pairs(&spaced, |a, b| is_digit(a) && b == '-', |a, b| [a, ' ', b, ' ']);
    spaced.into_iter().collect()
}

/// Replaces neighbours from left to right, as a regular expression does: what was replaced is not
/// looked at again.
fn replace_pairs(
    text: &[char],
    is_pair: impl Fn(char, char) -> bool,
    replacement: impl Fn(char, char) -> [char; 4],
) -> Vec<char> {
    let mut replaced = Vec::with_capacity(text.len() + 16);
    let mut rest = text;
    while let [first, after @ ..] = rest {
        match after {
            [second, behind @ ..] if is_pair(*first, *second) => {
                replaced.extend(replacement(*first, *second));
                rest = behind;
            }
            _ => {
                replaced.push(*first);
                rest = after;
            }
        }
    }
    replaced
}
