//! Characters and bytes to ids by table, without the machinery that words need.
//!
//! Hugging Face's tokenizers give the same ids for the same `tokenizer.json` (a test holds the
//! two equal); this path is about a hundred times as fast.

use super::assemble;
use crate::error::{self, Result};
use serde_json::Value;
use std::collections::HashMap;

/// No id.
const NONE: u32 = u32::MAX;
/// Characters below this have a slot in a table; it covers the alphabets and syllabaries.
const TABLE: usize = 0x3100;

/// Ids of single characters or bytes.
#[derive(Clone, Debug)]
pub(super) enum Direct {
    /// One id per byte.
    Bytes(Box<[u32; 256]>),
    /// One id per character.
    Characters(Box<Characters>),
}

/// Ids of characters, and what happens to the others.
#[derive(Clone, Debug)]
pub(super) struct Characters {
    low: Vec<u32>,
    high: HashMap<char, u32>,
    fallback: Option<[u32; 256]>,
    unknown: Option<u32>,
}

impl Direct {
    /// Recognises a `tokenizer.json` of the forms that [`assemble`] gives to characters and
    /// bytes.
    pub(super) fn recognise(json: &Value) -> Option<Self> {
        let model = &json["model"];
        let plain = model["type"] == "BPE"
            && model["merges"].as_array().is_some_and(Vec::is_empty)
            && json["normalizer"].is_null()
            && ["dropout", "continuing_subword_prefix", "end_of_word_suffix"]
                .iter()
                .all(|key| model[key].is_null())
            && model["fuse_unk"] != true
            && json["added_tokens"].as_array()?.iter().all(|token| token["special"] == true);
        if !plain {
            return None;
        }
        let id = |token: &str| model["vocab"].get(token)?.as_u64().map(|id| id as u32);
        if json["pre_tokenizer"].is_null() {
            return Characters::recognise(model, id).map(|c| Self::Characters(Box::new(c)));
        }
        let byte_level = &json["pre_tokenizer"];
        let whole = byte_level["type"] == "ByteLevel"
            && byte_level["add_prefix_space"] == false
            && byte_level["use_regex"] == false;
        if !whole {
            return None;
        }
        let mut ids = [NONE; 256];
        for (slot, letter) in ids.iter_mut().zip(assemble::letters()) {
            *slot = id(letter.encode_utf8(&mut [0; 4]))?;
        }
        Some(Self::Bytes(Box::new(ids)))
    }

    #[cfg_attr(
        not(test),
        expect(clippy::indexing_slicing, reason = "a byte is an index into 256 ids")
    )]
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match self {
            Self::Bytes(ids) => Ok(text.bytes().map(|byte| ids[usize::from(byte)]).collect()),
            Self::Characters(characters) => characters.encode(text),
        }
    }
}

impl Characters {
    fn recognise(model: &Value, id: impl Fn(&str) -> Option<u32>) -> Option<Self> {
        let mut fallback = None;
        if model["byte_fallback"] == true {
            let mut ids = [NONE; 256];
            for (byte, slot) in (0..=255).zip(&mut ids) {
                *slot = id(&assemble::byte_token(byte))?;
            }
            fallback = Some(ids);
        }
        let unknown = model["unk_token"].as_str().and_then(&id);
        let mut this = Self { low: vec![NONE; TABLE], high: HashMap::new(), fallback, unknown };
        for (token, id) in model["vocab"].as_object()? {
            let mut characters = token.chars();
            if let (Some(character), None) = (characters.next(), characters.next()) {
                let id = id.as_u64()? as u32;
                match this.low.get_mut(character as usize) {
                    Some(slot) => *slot = id,
                    None => drop(this.high.insert(character, id)),
                }
            }
        }
        Some(this)
    }

    /// The characters it knows, for people: `a–z`, space, line end; the first few of many.
    fn known(&self) -> String {
        const MOST: usize = 40;
        let low = self.low.iter().enumerate().filter(|(_, id)| **id != NONE);
        let low = low.filter_map(|(code, _)| char::from_u32(code as u32));
        let mut all: Vec<char> = low.chain(self.high.keys().copied()).collect();
        all.sort_unstable();
        let mut runs: Vec<(char, char)> = Vec::new();
        for c in all {
            match runs.last_mut() {
                Some((_, last))
                    if c.is_alphanumeric()
                        && last.is_alphanumeric()
                        && u32::from(c) == u32::from(*last) + 1 =>
                {
                    *last = c;
                }
                _ => runs.push((c, c)),
            }
        }
        let name = |c: char| match c {
            ' ' => "space".to_owned(),
            '\n' => "line end".to_owned(),
            c if c.is_control() => format!("U+{:04X}", u32::from(c)),
            c => c.to_string(),
        };
        let run = |(first, last): &(char, char)| match u32::from(*last) - u32::from(*first) {
            0 => name(*first),
            1 => format!("{first} {last}"),
            _ => format!("{first}–{last}"),
        };
        let mut said: Vec<String> = runs.iter().take(MOST).map(run).collect();
        if runs.len() > MOST {
            said.push("and others".to_owned());
        }
        said.join(" ")
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len());
        let mut buffer = [0; 4];
        for (offset, character) in text.char_indices() {
            let id = match self.low.get(character as usize) {
                Some(&id) => id,
                None => self.high.get(&character).copied().unwrap_or(NONE),
            };
            if id != NONE {
                ids.push(id);
            } else if let Some(bytes) = &self.fallback {
                let encoded = character.encode_utf8(&mut buffer).bytes();
                ids.extend(encoded.filter_map(|byte| bytes.get(usize::from(byte))));
            } else {
                let unknown = || error::unknown_character(character, offset, &self.known());
                ids.push(self.unknown.ok_or_else(unknown)?);
            }
        }
        Ok(ids)
    }
}
