//! Text to ids word by word, each word looked up before it is worked out.
//!
//! The plain way is the library's: match the pattern, turn the bytes of each word into letters
//! while keeping track of where they came from, run the model on it. Here a word that was seen
//! before costs one look into a table, and only new ones go to the model. In ordinary text that
//! is nearly all of them, and nobody asks where in the text a token came from.
//!
//! The pattern is the library's as well, but for its look-ahead `\s+(?!\S)`, which a regular
//! expression without backtracking does not have. What it means: a run of white space before
//! something else leaves its last character to what follows. That is done by hand.

use super::assemble;
use super::guard::guarded;
use regex::Regex;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use tokenizers::{Model, ModelWrapper};

/// GPT-2's pattern without its look-ahead.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
/// Longer words are hardly seen twice.
const LONGEST: usize = 64;
/// Words that are kept: at about 100 bytes each, 25 MB at most.
const MOST: usize = 1 << 18;

/// Words and their ids.
pub(super) struct Words {
    pattern: Regex,
    letters: [char; 256],
    known: RwLock<HashMap<Box<str>, Box<[u32]>>>,
}

impl Words {
    /// Recognises tokenizers that see words by a pattern of [`assemble`] and do nothing else
    /// before the model.
    pub(super) fn recognise(json: &Value) -> Option<Self> {
        let pre_tokenizer = &json["pre_tokenizer"];
        let pattern = if super::is_gpt2(pre_tokenizer) {
            GPT2.to_owned()
        } else if *pre_tokenizer == assemble::words() {
            assemble::WORDS.replace(r"|\s{1,16}(?!\S)", "")
        } else {
            return None;
        };
        let plain = json["normalizer"].is_null()
            && json.pointer("/model/dropout").is_none_or(Value::is_null)
            && json["added_tokens"].as_array()?.iter().all(|token| token["special"] == true);
        let pattern = Regex::new(&pattern).ok()?;
        let known = RwLock::new(HashMap::new());
        plain.then(|| Self { pattern, letters: assemble::letters(), known })
    }

    /// The ids of `text`; the error is a reason.
    pub(super) fn encode(&self, model: &ModelWrapper, text: &str) -> Result<Vec<u32>, String> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut found: HashMap<&str, Box<[u32]>> = HashMap::new();
        // A table that another thread left while panicking holds whole words all the same.
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut at = 0;
        while let Some(word) = self.pattern.find_at(text, at) {
            let end = without_last_space(text, word.start(), word.end());
            at = end;
            let word = &text[word.start()..end];
            if let Some(of_word) = known.get(word).or_else(|| found.get(word)) {
                ids.extend_from_slice(of_word);
                continue;
            }
            let letters: String =
                word.bytes().filter_map(|byte| self.letters.get(usize::from(byte))).collect();
            let tokens = guarded(|| model.tokenize(&letters))?;
            let of_word: Box<[u32]> = tokens.into_iter().map(|token| token.id).collect();
            ids.extend_from_slice(&of_word);
            if word.len() <= LONGEST && known.len() + found.len() < MOST {
                found.insert(word, of_word);
            }
        }
        drop(known);
        if at != text.len() {
            return Err(format!("its pattern passes over byte {at}"));
        }
        if !found.is_empty() {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            known.extend(found.into_iter().map(|(word, ids)| (word.into(), ids)));
        }
        Ok(ids)
    }
}

/// Where a match ends once a run of white space has left its last character to what follows.
fn without_last_space(text: &str, start: usize, end: usize) -> usize {
    let last = text[start..end].chars().next_back();
    let next = text[end..].chars().next();
    match (last, next) {
        (Some(last), Some(next)) if last.is_whitespace() && !next.is_whitespace() => {
            let earlier = end - last.len_utf8();
            if earlier > start { earlier } else { end }
        }
        _ => end,
    }
}
