//! Words without end: a trainer takes time that grows with the square of a word's length, so
//! that 800 kB without a space would take minutes. Longer words are seen as several.

use super::assemble;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a word. No token becomes longer; the longest published ones are runs of 128 spaces.
pub(super) const LONGEST: usize = 256;

/// Cuts long words, and counts them; used by several threads.
pub(super) struct LongWords {
    /// The letters of bytes that continue a character in UTF-8.
    inside: Vec<char>,
    words: AtomicU64,
    bytes: AtomicU64,
}

impl LongWords {
    pub(super) fn new() -> Self {
        let letters = assemble::letters().into_iter();
        Self {
            inside: letters.skip(0x80).take(0x40).collect(),
            words: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// The words, in letters of bytes, none longer than [`LONGEST`]. Characters stay whole.
    pub(super) fn cut(&self, words: Vec<String>) -> Vec<String> {
        // A letter has one byte or two.
        if words.iter().all(|word| word.len() <= LONGEST) {
            return words;
        }
        let mut short = Vec::with_capacity(words.len() + 1);
        for word in words {
            let letters: Vec<char> = word.chars().collect();
            if letters.len() <= LONGEST {
                short.push(word);
                continue;
            }
            self.words.fetch_add(1, Relaxed);
            self.bytes.fetch_add(letters.len() as u64, Relaxed);
            let mut rest = letters.as_slice();
            while rest.len() > LONGEST {
                // Back to the start of a character; in valid text it is at most 3 bytes away.
                let starts = |at: &usize| rest.get(*at).is_some_and(|c| !self.inside.contains(c));
                let end = (LONGEST - 3..=LONGEST).rev().find(starts).unwrap_or(LONGEST);
                let (piece, tail) = rest.split_at(end);
                short.push(piece.iter().collect());
                rest = tail;
            }
            short.push(rest.iter().collect());
        }
        short
    }

    /// What was cut, if anything.
    pub(super) fn note(&self) -> Option<String> {
        let (words, bytes) = (self.words.load(Relaxed), self.bytes.load(Relaxed));
        let (word, has) = if words == 1 { ("word", "has") } else { ("words", "have") };
        (words > 0).then(|| {
            format!(
                "{words} {word} of the text {has} more than {LONGEST} bytes, {bytes} in all: the \
                 tokenizer learned from pieces of that length"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_are_cut_between_characters() {
        let letters = assemble::letters();
        let as_letters = |text: &str| -> String {
            text.bytes().map(|byte| letters.get(usize::from(byte)).copied().unwrap()).collect()
        };
        let long = LongWords::new();
        let short = vec!["a".repeat(LONGEST), as_letters(&"漢".repeat(LONGEST / 3))];
        assert_eq!(long.cut(short.clone()), short);
        assert_eq!(long.note(), None);
        let words = vec!["a".repeat(LONGEST + 1), as_letters(&"漢".repeat(200)), "b".to_owned()];
        let cut = long.cut(words.clone());
        assert_eq!(cut.concat(), words.concat());
        let lengths: Vec<usize> = cut.iter().map(|word| word.chars().count()).collect();
        assert_eq!(lengths, [256, 1, 255, 255, 90, 1]);
        let note = long.note().unwrap();
        assert!(note.starts_with("2 words of the text have more than 256 bytes, 857 in all"));
    }
}
