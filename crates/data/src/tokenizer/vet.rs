//! What a `tokenizer.json` may say, checked before the `tokenizers` library sees it.
//!
//! The library trusts its files: an id of two billion costs gigabytes, a normaliser may turn a
//! byte into a thousand, and a merge whose result is not in the vocabulary is a panic. All limits
//! here are far above what published tokenizers need.

use super::patterns;
use serde_json::Value;
use std::collections::HashSet;

/// Bytes of a token. The longest published ones are runs of a few hundred spaces.
const LONGEST_TOKEN: usize = 16 << 10;
/// Ids may have gaps: the library visits every id up to the largest. Three of four may be missing,
/// and a million more, for tokenizers that keep a range for special tokens.
const GAPS: u64 = 1_000_000;
/// Normalisers, pre-tokenizers, decoders and post-processors, in all.
const MOST_PARTS: usize = 100;
/// How deep sequences of them may be nested.
const DEEPEST: usize = 8;
/// By how much replacements may lengthen a text. SentencePiece's space, 3 bytes, makes it 3.
const MOST_GROWTH: u64 = 16;
/// Bytes that one character may become under a SentencePiece character map. The longest that
/// Unicode has, under NFKC, is U+FDFA with 33.
const LONGEST_MAPPED: usize = 64;
/// WordPiece takes time that grows with the cube of this number; published files say 100.
const LONGEST_WORD: u64 = 1000;

/// Says what is wrong with the parts of a `tokenizer.json`.
pub(super) fn vet(json: &Value) -> Result<(), String> {
    vet_ids(json)?;
    vet_model(json.get("model").unwrap_or(&Value::Null))?;
    let mut parts = Parts::default();
    for key in ["normalizer", "pre_tokenizer", "post_processor", "decoder"] {
        // Text passes through the parts of one kind one after the other.
        parts.growth = 1;
        parts.expanding.clear();
        parts.vet(json.get(key).unwrap_or(&Value::Null), 0)?;
    }
    Ok(())
}

fn vet_ids(json: &Value) -> Result<(), String> {
    let vocab = json.get("model").and_then(|model| model.get("vocab")).unwrap_or(&Value::Null);
    let added = json.get("added_tokens").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let (pairs, pieces) = (vocab.as_object(), vocab.as_array());
    let entries = pairs.map_or(0, serde_json::Map::len) + pieces.map_or(0, Vec::len) + added.len();
    let end = 4 * entries as u64 + GAPS;
    let check = |token: &str, id: Option<&Value>| {
        if token.len() > LONGEST_TOKEN {
            let length = token.len();
            return Err(format!("a token has {length} bytes, expected at most {LONGEST_TOKEN}"));
        }
        match id.and_then(Value::as_u64) {
            Some(id) if id >= end => Err(format!(
                "the token {token:?} has the id {id}, expected less than {end} for {entries} tokens"
            )),
            _ => Ok(()),
        }
    };
    for (token, id) in pairs.into_iter().flatten() {
        check(token, Some(id))?;
    }
    for piece in pieces.into_iter().flatten() {
        check(piece.get(0).and_then(Value::as_str).unwrap_or_default(), None)?;
    }
    for token in added {
        let content = token.get("content").and_then(Value::as_str).unwrap_or_default();
        check(content, token.get("id"))?;
    }
    Ok(())
}

fn vet_model(model: &Value) -> Result<(), String> {
    let longest = model.get("max_input_chars_per_word").and_then(Value::as_u64);
    if let Some(longest) = longest.filter(|longest| *longest > LONGEST_WORD) {
        let key = "max_input_chars_per_word";
        return Err(format!("{key} is {longest}, expected at most {LONGEST_WORD}"));
    }
    let Some(merges) = model.get("merges").and_then(Value::as_array) else { return Ok(()) };
    let Some(vocab) = model.get("vocab").and_then(Value::as_object) else { return Ok(()) };
    let known: HashSet<&str> = vocab.keys().map(String::as_str).collect();
    let prefix = model.get("continuing_subword_prefix").and_then(Value::as_str).unwrap_or("");
    let mut merged = String::new();
    for (number, merge) in merges.iter().enumerate() {
        let bad = |what: &str| format!("merge {number} {what}");
        let pair = match merge {
            Value::String(line) if line.starts_with("#version") => continue,
            Value::String(line) => line.split_once(' ').filter(|(_, right)| !right.contains(' ')),
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(left), Value::String(right)] => Some((&left[..], &right[..])),
                _ => None,
            },
            _ => None,
        };
        let Some((left, right)) = pair else { return Err(bad("is not a pair of tokens")) };
        if let Some(missing) = [left, right].into_iter().find(|token| !known.contains(token)) {
            return Err(bad(&format!("joins {missing:?}, which is not in the vocabulary")));
        }
        // The library takes as many bytes off the right side as the prefix has.
        let Some(rest) = right.get(prefix.len()..) else {
            return Err(bad(&format!("joins {right:?}, which does not begin with {prefix:?}")));
        };
        merged.clear();
        merged.push_str(left);
        merged.push_str(rest);
        if !known.contains(merged.as_str()) {
            return Err(bad(&format!("makes {merged:?}, which is not in the vocabulary")));
        }
    }
    Ok(())
}

/// The parts seen so far.
#[derive(Default)]
struct Parts {
    count: usize,
    /// By how much the parts of this kind lengthen a text at most.
    growth: u64,
    /// Types of the parts of this kind that lengthen a text by themselves.
    expanding: HashSet<String>,
    /// Of all patterns; see [`patterns::weight`].
    weight: u64,
}

impl Parts {
    /// Goes by keys and not by types: older files have none.
    fn vet(&mut self, part: &Value, depth: usize) -> Result<(), String> {
        self.count += 1;
        if self.count > MOST_PARTS || depth > DEEPEST {
            return Err(format!("it has more than {MOST_PARTS} steps, or too deeply nested ones"));
        }
        for key in ["normalizers", "pretokenizers", "decoders", "processors"] {
            for part in part.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.vet(part, depth + 1)?;
            }
        }
        if part.get("length").and_then(Value::as_u64) == Some(0) {
            return Err("a step cuts text into pieces of length 0".to_owned());
        }
        if let Some(map) = part.get("precompiled_charsmap") {
            vet_character_map(map.as_str().unwrap_or_default())?;
        }
        self.vet_expansion(part)?;
        let mut factor = 1;
        if let Some(pattern) = part.get("pattern") {
            let content = part.get("content").and_then(Value::as_str).unwrap_or_default();
            factor = self.vet_pattern(pattern, content.len() as u64)?;
        }
        if let Some(text) = part.get("prepend").and_then(Value::as_str) {
            // Once per text, and again after every added token in it.
            factor = 1 + text.len() as u64 / 4;
        }
        self.growth = self.growth.saturating_mul(factor);
        if self.growth > MOST_GROWTH {
            let growth = self.growth;
            return Err(format!(
                "its replacements could make a text {growth} times as long, expected at most \
                 {MOST_GROWTH}"
            ));
        }
        Ok(())
    }

    /// Some types make several bytes of one. One of them in a row does what it is for; each further
    /// one would multiply the text again.
    fn vet_expansion(&mut self, part: &Value) -> Result<(), String> {
        let kind = match part.get("type").and_then(Value::as_str) {
            _ if part.get("precompiled_charsmap").is_some() => "Precompiled",
            Some(kind @ ("ByteLevel" | "BertNormalizer" | "NFKC" | "NFKD" | "Metaspace")) => kind,
            _ => return Ok(()),
        };
        if self.expanding.insert(kind.to_owned()) {
            return Ok(());
        }
        Err(format!("it has more than one step {kind} in a row, each of which lengthens the text"))
    }

    /// By how much a replacement of `content` bytes lengthens a text at most.
    fn vet_pattern(&mut self, pattern: &Value, content: u64) -> Result<u64, String> {
        let literal = pattern.get("String").and_then(Value::as_str);
        let regex = pattern.get("Regex").and_then(Value::as_str);
        let Some(text) = literal.or(regex) else { return Ok(1) }; // the library names it
        if text.is_empty() {
            return Err("the pattern of a step is empty".to_owned());
        }
        if literal.is_some() {
            return Ok(content.div_ceil(text.len() as u64).max(1));
        }
        self.weight = self.weight.saturating_add(patterns::weight(text));
        if self.weight > patterns::HEAVIEST {
            return Err("its patterns repeat too much, and would take too much memory".to_owned());
        }
        // An empty match takes nothing away.
        let empty = content > 0 && patterns::may_match_nothing(text);
        Ok(content.max(1) + u64::from(empty))
    }
}

/// SentencePiece's map from characters to characters: the length of a trie in bytes, the trie, and
/// texts that end in a zero.
fn vet_character_map(base64: &str) -> Result<(), String> {
    let bad = |what: &str| Err(format!("its precompiled_charsmap {what}"));
    let Some(bytes) = from_base64(base64) else { return bad("is not base64") };
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return bad("is empty") };
    let length = u32::from_le_bytes(*length) as usize;
    if length < 4 || length > rest.len() {
        return bad(&format!("has a trie of {length} bytes in {}", bytes.len()));
    }
    let texts = rest.get(length..).unwrap_or_default();
    let longest = texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or_default();
    if longest > LONGEST_MAPPED {
        return bad(&format!("makes {longest} bytes of a character"));
    }
    Ok(())
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut bits, mut held) = (0_u32, 0);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        assert_eq!(from_base64("").as_deref(), Some(&b""[..]));
        assert_eq!(from_base64("TWE=").as_deref(), Some(&b"Ma"[..]));
        assert_eq!(from_base64("//79AAE=").as_deref(), Some(&[0xff, 0xfe, 0xfd, 0, 1][..]));
        assert_eq!(from_base64("a b"), None);
    }
}
