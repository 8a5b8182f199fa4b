//! Rows of labelled examples whose rule changes from row to row: what a decoder learns from them is to
//! learn from examples in its prompt.
//!
//! > fox B red F owl B river A blue F …
//!
//! Every word belongs to one of four kinds (animals, colours, things, places). A row draws a label for
//! each kind, four different ones of eight, and then examples: a word of any kind, and the label of
//! its kind. Which label means what is nowhere but in the row itself, and which words are of a kind
//! is nowhere but in the weights.
//!
//! # The best possible
//! With n examples before it, of which k kinds are seen, a word's kind is among them with probability
//! k/4, and then its label is known. Otherwise it is one of the 8 − k labels that are not taken, all
//! equally likely. With P(k | n) from the draws,
//!
//! ```text
//! accuracy(n) = Σₖ P(k | n)·(k/4 + (1 − k/4)/(8 − k))
//! loss(n)     = Σₖ P(k | n)·(1 − k/4)·ln(8 − k)
//! ```
//! which no model can beat on average.

use crate::batches::{Batch, Batches, Examples, key};
use crate::error::Result;
use crate::tokenizer::Tokenizer;
use hearken_base::Error;
use hearken_tensor::rng::Rng;
use std::ops::Range;

/// The words of each kind.
pub const KINDS: [[&str; 8]; 4] = [
    ["bear", "cat", "duck", "fox", "hare", "mouse", "owl", "wolf"],
    ["blue", "green", "orange", "pink", "red", "silver", "white", "yellow"],
    ["ball", "drum", "flute", "hat", "kite", "lamp", "map", "ring"],
    ["bridge", "castle", "farm", "gate", "lake", "mill", "pond", "river"],
];

/// The labels.
pub const LABELS: [&str; 8] = ["A", "B", "C", "D", "E", "F", "G", "H"];

const TRAINING_SITE: u64 = 0x7368_6f74_7300_0000; // "shots"
const VALIDATION_SITE: u64 = 0x7368_6f74_5f6f_7574; // "shot_out"
const QUERY_SITE: u64 = 0x7175_6572_7900_0000; // "query"

/// A row: words and their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The kind and the number of each word.
    words: Vec<(usize, usize)>,
    /// The label of each kind.
    rule: [usize; KINDS.len()],
}

impl Row {
    /// A rule, and so many examples of it.
    fn draw(examples: usize, rng: &mut Rng) -> Self {
        let mut labels: Vec<usize> = (0..LABELS.len()).collect();
        let rule = [(); KINDS.len()].map(|()| labels.swap_remove(rng.below(labels.len())));
        let word = |rng: &mut Rng| (rng.below(KINDS.len()), rng.below(KINDS[0].len()));
        Self { words: (0..examples).map(|_| word(rng)).collect(), rule }
    }

    /// Word and label of each example.
    pub fn examples(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.words.iter().map(|(kind, word)| (KINDS[*kind][*word], LABELS[self.rule[*kind]]))
    }

    /// The examples as a text.
    pub fn text(&self) -> String {
        let pairs = self.examples().map(|(word, label)| format!("{word} {label}"));
        pairs.collect::<Vec<_>>().join(" ")
    }
}

/// A question with `shots` examples before it, drawn from other numbers than those of training: the
/// prompt, and the place of the right label in [`LABELS`].
pub fn question(shots: usize, seed: u64, number: u64) -> (String, usize) {
    let mut rng = Rng::new(key(key(seed, shots as u64, QUERY_SITE), number, 0));
    let row = Row::draw(shots + 1, &mut rng);
    let text = row.text();
    let (prompt, label) = text.rsplit_once(' ').unwrap_or((&text, ""));
    (prompt.to_owned(), LABELS.iter().position(|known| *known == label).unwrap_or(0))
}

/// P(k | n): how many kinds n examples show.
fn kinds_seen(examples: usize) -> [f64; KINDS.len() + 1] {
    let all = KINDS.len() as f64;
    let mut p = [0.0; KINDS.len() + 1];
    p[0] = 1.0;
    for _ in 0..examples {
        for k in (1..=KINDS.len()).rev() {
            // One of the k that were seen, or a new one after k − 1.
            p[k] = p[k] * k as f64 / all + p[k - 1] * (all - (k - 1) as f64) / all;
        }
        p[0] = 0.0;
    }
    p
}

fn expected(examples: usize, value: impl Fn(f64, f64) -> f64) -> f64 {
    let all = KINDS.len() as f64;
    let by_count = kinds_seen(examples).into_iter().enumerate();
    by_count.map(|(k, p)| p * value(k as f64 / all, (LABELS.len() - k) as f64)).sum()
}

/// The best possible accuracy with so many examples before the question.
pub fn best_accuracy(examples: usize) -> f64 {
    expected(examples, |seen, free| seen + (1.0 - seen) / free)
}

/// The lowest possible mean loss of the labels of rows of so many examples, in nats.
pub fn floor(examples: usize) -> f64 {
    let of = |before| expected(before, |seen, free| (1.0 - seen) * free.ln());
    (0..examples).map(of).sum::<f64>() / examples.max(1) as f64
}

/// One token for each word and each label, and the special ones.
pub fn tokenizer() -> Tokenizer {
    let words = KINDS.as_flattened().iter().chain(&LABELS).map(|word| (*word).to_owned());
    Tokenizer::of_words(&words.collect::<Vec<_>>())
}

/// How many examples a row of so many tokens has.
pub fn examples_in(length: usize) -> usize {
    length.div_ceil(2)
}

/// The ids of words and labels, in order.
#[derive(Clone, Debug)]
struct Ids {
    words: Vec<u32>,
    labels: Vec<u32>,
}

impl Ids {
    fn new() -> Self {
        let tokenizer = tokenizer();
        let of = |word: &&str| tokenizer.id(word).unwrap_or(0);
        Self {
            words: KINDS.as_flattened().iter().map(of).collect(),
            labels: LABELS.iter().map(of).collect(),
        }
    }

    /// Writes a row: only labels are targets, since words come by chance.
    fn write(&self, row: &Row, inputs: &mut [u32], targets: &mut [u32]) {
        for (i, (kind, word)) in row.words.iter().enumerate() {
            let label = self.labels[row.rule[*kind]];
            inputs[2 * i] = self.words[kind * KINDS[0].len() + word];
            targets[2 * i] = label;
            if let Some(next) = inputs.get_mut(2 * i + 1) {
                *next = label;
            }
        }
    }
}

fn check(length: usize) -> Result<()> {
    if length < 2 {
        let message = format!("a context of {length} tokens holds no examples");
        return Err(Error::new(message, "set model.context=64"));
    }
    Ok(())
}

/// Training batches of fresh rows.
#[derive(Debug)]
pub struct ShotRows {
    ids: Ids,
    rows: usize,
    length: usize,
    seed: u64,
}

impl ShotRows {
    /// Batches of `rows` rows of `length` tokens.
    pub fn new(rows: usize, length: usize, seed: u64) -> Result<Self> {
        check(length)?;
        Ok(Self { ids: Ids::new(), rows, length, seed })
    }
}

impl Batches for ShotRows {
    fn rows(&self) -> usize {
        self.rows
    }

    fn length(&self) -> usize {
        self.length
    }

    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch {
        Batch::build(rows.len(), self.length, 0, |row, inputs, targets| {
            let number = (rows.start + row) as u64;
            let mut rng = Rng::new(key(key(self.seed, step, TRAINING_SITE), number, 0));
            self.ids.write(&Row::draw(examples_in(self.length), &mut rng), inputs, targets);
            self.length
        })
    }
}

/// Rows that are held out, drawn from other numbers than those of training.
#[derive(Clone, Debug)]
pub struct HeldOut {
    ids: Ids,
    rows: Vec<Row>,
    length: usize,
}

impl HeldOut {
    /// So many rows of `length` tokens.
    pub fn new(rows: usize, length: usize, seed: u64) -> Result<Self> {
        check(length)?;
        let draw = |row| {
            let mut rng = Rng::new(key(key(seed, 0, VALIDATION_SITE), row, 0));
            Row::draw(examples_in(length), &mut rng)
        };
        Ok(Self { ids: Ids::new(), rows: (0..rows as u64).map(draw).collect(), length })
    }

    /// The labels of all rows.
    pub fn labels(&self) -> usize {
        self.rows.iter().map(|row| row.words.len()).sum()
    }
}

impl Examples for HeldOut {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn longest(&self) -> usize {
        self.length
    }

    fn tokens_of(&self, _: usize) -> usize {
        self.length
    }

    fn batch_of(&self, examples: &[usize]) -> Batch {
        Batch::build(examples.len(), self.length, 0, |row, inputs, targets| {
            self.ids.write(&self.rows[examples[row]], inputs, targets);
            self.length
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::IGNORED;

    /// Answers by the examples before: the label of the kind, or the first that is free.
    fn reader(row: &Row, at: usize) -> usize {
        let before = &row.words[..at];
        let kind = row.words[at].0;
        if before.iter().any(|word| word.0 == kind) {
            return row.rule[kind];
        }
        let taken: Vec<usize> = before.iter().map(|word| row.rule[word.0]).collect();
        (0..LABELS.len()).find(|label| !taken.contains(label)).unwrap()
    }

    #[test]
    fn the_best_reader_scores_the_best_accuracy() {
        let draws = 20_000;
        for examples in [0, 1, 2, 4, 8] {
            let mut rng = Rng::new(examples as u64);
            let mut right = 0;
            for _ in 0..draws {
                let row = Row::draw(examples + 1, &mut rng);
                right += usize::from(reader(&row, examples) == row.rule[row.words[examples].0]);
            }
            let (share, best) =
                (f64::from(right as u32) / f64::from(draws), best_accuracy(examples));
            // Four standard deviations of a share.
            let bound = 4.0 * (best * (1.0 - best) / f64::from(draws)).sqrt() + 1e-9;
            assert!((share - best).abs() < bound, "{examples}: {share}, expected {best}");
        }
        assert!((best_accuracy(0) - 0.125).abs() < 1e-12);
        assert!(best_accuracy(8) > 0.9 && best_accuracy(24) > 0.999);
        assert!((floor(1) - 8f64.ln()).abs() < 1e-12 && floor(32) < 0.25);
    }

    #[test]
    fn rows_are_words_with_the_label_of_their_kind() {
        let tokenizer = tokenizer();
        let batches = ShotRows::new(3, 11, 5).unwrap();
        let batch = batches.batch(7);
        assert_eq!(batch, batches.batch(7));
        assert_ne!(batch, batches.batch(8));
        assert_eq!((batch.counted(), batch.lengths.is_none()), (3 * 6, true));
        for row in 0..3 {
            let at = row * 11..(row + 1) * 11;
            let (inputs, targets) = (&batch.inputs[at.clone()], &batch.targets[at]);
            for i in 0..11 {
                let expected = if i % 2 == 1 { IGNORED } else { targets[i] };
                assert_eq!(targets[i], expected);
                if i % 2 == 0 && i + 1 < 11 {
                    assert_eq!(inputs[i + 1], targets[i]);
                }
            }
            let text = tokenizer.decode(inputs).unwrap();
            assert_eq!(tokenizer.encode(&text).unwrap(), inputs, "{text}");
        }
        let held = HeldOut::new(4, 12, 5).unwrap();
        assert_eq!((held.count(), held.labels(), held.batch_of(&[1, 3]).counted()), (4, 24, 12));
        assert!(ShotRows::new(1, 1, 0).is_err());
    }

    #[test]
    fn questions_end_before_their_label() {
        for number in 0..50 {
            let (prompt, right) = question(4, 1, number);
            let words: Vec<&str> = prompt.split(' ').collect();
            assert_eq!(words.len(), 9, "{prompt}");
            let kind = |word: &str| KINDS.iter().position(|kind| kind.contains(&word)).unwrap();
            for pair in words[..8].chunks(2) {
                if kind(pair[0]) == kind(words[8]) {
                    assert_eq!(pair[1], LABELS[right], "{prompt}");
                }
            }
        }
        assert_eq!(question(0, 1, 3).0.split(' ').count(), 1);
    }
}
