//! How well a tokenizer suits a text (A6): how much text a token holds, how many tokens a word
//! takes, how much is unknown, and how much of the vocabulary is used.

use super::{Special, Tokenizer};
use crate::corpus::Source;
use crate::error::Result;

/// What a tokenizer makes of some text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextReport {
    /// Of the text, in UTF-8.
    pub bytes: u64,
    /// Runs of characters between white space.
    pub words: u64,
    /// Tokens that the text becomes.
    pub tokens: u64,
    /// Tokens among them that stand for what the vocabulary cannot say.
    pub unknown: u64,
    /// How often each id was used.
    counts: Vec<u64>,
}

impl TextReport {
    /// Reads all of a source.
    pub fn of(tokenizer: &Tokenizer, source: &Source) -> Result<Self> {
        let mut report = Self::default();
        report.counts.resize(tokenizer.vocabulary_size(), 0);
        for chunk in source.chunks(tokenizer.cut_rule()) {
            report.add(tokenizer, &chunk?.text)?;
        }
        Ok(report)
    }

    fn add(&mut self, tokenizer: &Tokenizer, text: &str) -> Result<()> {
        let unknown = tokenizer.special(Special::Unk);
        self.bytes += text.len() as u64;
        // Where a word is cut in two, it is counted twice: cuts are rare, and between words where
        // the tokenizer allows it.
        self.words += text.split_whitespace().count() as u64;
        for id in tokenizer.encode(text)? {
            self.tokens += 1;
            self.unknown += u64::from(Some(id) == unknown);
            if let Some(count) = self.counts.get_mut(id as usize) {
                *count += 1;
            }
        }
        Ok(())
    }

    /// Adds what another text became, of the same tokenizer.
    pub fn merge(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.words += other.words;
        self.tokens += other.tokens;
        self.unknown += other.unknown;
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
    }

    /// Bytes that a token stands for, on average.
    pub fn bytes_per_token(&self) -> f64 {
        ratio(self.bytes, self.tokens)
    }

    /// Tokens that a word takes, on average.
    pub fn tokens_per_word(&self) -> f64 {
        ratio(self.tokens, self.words)
    }

    /// The share of tokens that are unknown.
    pub fn unknown_rate(&self) -> f64 {
        ratio(self.unknown, self.tokens)
    }

    /// How many different tokens are used.
    pub fn used(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0).count()
    }

    /// The share of the vocabulary that is used.
    pub fn use_of_vocabulary(&self) -> f64 {
        ratio(self.used() as u64, self.counts.len() as u64)
    }
}

/// 0 of nothing.
fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::{Kind, Training};

    #[test]
    fn counts_are_those_of_the_text() {
        let training = Training { minimum_frequency: 1, ..Training::new(Kind::Word) };
        let tokenizer = training.train_on_text("the cat sat on the mat").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.txt");
        std::fs::write(&file, "the dog sat\non the dog").unwrap();
        let source = Source::from_path(&file).unwrap();
        let mut report = TextReport::of(&tokenizer, &source).unwrap();
        assert_eq!((report.bytes, report.words, report.tokens, report.unknown), (22, 6, 6, 2));
        // the, sat, on and the unknown token, of five words and five special tokens.
        assert_eq!((report.used(), report.use_of_vocabulary()), (4, 0.4));
        assert_eq!((report.tokens_per_word(), report.unknown_rate()), (1.0, 1.0 / 3.0));
        let once = report.clone();
        report.merge(&once);
        assert_eq!((report.tokens, report.used()), (12, 4));
        assert_eq!(report.bytes_per_token(), 22.0 / 6.0);
        assert_eq!(TextReport::default().bytes_per_token(), 0.0);
        let bytes = Training::new(Kind::Byte).train_on_text("a").unwrap();
        let report = TextReport::of(&bytes, &source).unwrap();
        assert_eq!((report.bytes_per_token(), report.tokens), (1.0, 22));
    }
}
