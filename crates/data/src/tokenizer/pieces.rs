//! What a token is made of: its bytes, and the merges that made it.
//!
//! Byte-pair encoding starts from single characters (or bytes, each written as a character) and joins
//! the pair of neighbours that was learned first, again and again. Within a token these steps do not
//! depend on what stands beside it, so a token's own history can be replayed.

use super::Tokenizer;
use crate::error::Result;
use serde_json::Value;
use std::collections::HashMap;

/// One merge: what the pieces were joined to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The number of the rule: the smaller, the earlier it was learned.
    pub rank: usize,
    /// The pieces after it.
    pub pieces: Vec<String>,
}

/// Looks into the tokens of a tokenizer.
pub struct Pieces<'a> {
    tokenizer: &'a Tokenizer,
    kind: String,
    /// The rank of each pair that is merged, first half, then second.
    ranks: HashMap<String, HashMap<String, usize>>,
    /// Does each character stand for a byte?
    byte_level: bool,
}

impl<'a> Pieces<'a> {
    /// Reads the rules of a tokenizer.
    pub fn of(tokenizer: &'a Tokenizer) -> Result<Self> {
        let json: Value =
            serde_json::from_str(&tokenizer.to_json()?).map_err(crate::error::tokenizer)?;
        let model = json.get("model").unwrap_or(&Value::Null);
        let kind = model.get("type").and_then(Value::as_str).unwrap_or("unknown").to_owned();
        let mut ranks: HashMap<String, HashMap<String, usize>> = HashMap::new();
        let merges = model.get("merges").and_then(Value::as_array);
        for (rank, merge) in merges.into_iter().flatten().enumerate() {
            // Written as "a b" or as ["a", "b"].
            let pair = match merge {
                Value::String(pair) => pair.split_once(' '),
                pair => {
                    pair.get(0).and_then(Value::as_str).zip(pair.get(1).and_then(Value::as_str))
                }
            };
            if let Some((a, b)) = pair {
                ranks.entry(a.to_owned()).or_default().entry(b.to_owned()).or_insert(rank);
            }
        }
        let byte_level = mentions_byte_level(json.get("decoder").unwrap_or(&Value::Null));
        Ok(Self { tokenizer, kind, ranks, byte_level })
    }

    /// The kind of model: `BPE`, `WordPiece`, `Unigram`, `WordLevel`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Text for the eye; the token's name in the vocabulary where it is no text by itself.
    pub fn text(&self, id: u32) -> String {
        let decoded = self.tokenizer.decode(&[id]).ok().filter(|text| !text.contains('\u{fffd}'));
        let named = || self.tokenizer.token(id);
        decoded.or_else(named).unwrap_or_else(|| format!("token {id}"))
    }

    /// The bytes of the text that the token stands for.
    pub fn bytes(&self, id: u32) -> Vec<u8> {
        let name = self.tokenizer.token(id).unwrap_or_default();
        if self.tokenizer.is_special(id) {
            return name.into_bytes();
        }
        if self.byte_level {
            let bytes: Option<Vec<u8>> = name.chars().map(byte_of).collect();
            return bytes.unwrap_or_else(|| name.into_bytes());
        }
        // The byte tokens of a fallback are written <0xE2>.
        let byte = name.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
        if let Some(byte) = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            return vec![byte];
        }
        self.tokenizer.decode(&[id]).unwrap_or(name).into_bytes()
    }

    /// The characters of a token, and each merge after that; no merges, if the tokenizer has none.
    pub fn merges(&self, id: u32) -> (Vec<String>, Vec<Merge>) {
        let name = self.tokenizer.token(id).unwrap_or_default();
        let start: Vec<String> = name.chars().map(String::from).collect();
        let (mut pieces, mut steps) = (start.clone(), Vec::new());
        if self.ranks.is_empty() || self.tokenizer.is_special(id) {
            return (start, steps);
        }
        while let Some((rank, at)) = self.first_pair(&pieces) {
            let mut rest = pieces.split_off(at);
            let joined: String = rest.drain(..2).collect();
            pieces.push(joined);
            pieces.append(&mut rest);
            steps.push(Merge { rank, pieces: pieces.clone() });
        }
        (start, steps)
    }

    /// The pair with the lowest rank, the first of equal ones.
    fn first_pair(&self, pieces: &[String]) -> Option<(usize, usize)> {
        let pairs = pieces.iter().zip(pieces.iter().skip(1)).enumerate();
        let ranked = pairs.filter_map(|(at, (a, b))| Some((*self.ranks.get(a)?.get(b)?, at)));
        ranked.min()
    }
}

fn mentions_byte_level(decoder: &Value) -> bool {
    let is = |value: &Value| value.get("type").is_some_and(|kind| kind == "ByteLevel");
    let parts = decoder.get("decoders").and_then(Value::as_array);
    is(decoder) || parts.is_some_and(|parts| parts.iter().any(is))
}

/// The byte that a character of a byte-level token stands for: printable ones for themselves, the others
/// from U+0100 on, in order.
fn byte_of(c: char) -> Option<u8> {
    let printable = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let code = u32::from(c);
    if let Ok(byte) = u8::try_from(code) {
        return printable(byte).then_some(byte);
    }
    let place = code.checked_sub(0x100)? as usize;
    (0..=u8::MAX).filter(|b| !printable(*b)).nth(place)
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Training};
    use super::*;

    const TEXT: &str = "the cat sat on the mat, the other cat thought of the theatre and of naïve \
        mathematics; that is all there is to that.";

    #[test]
    fn the_bytes_of_the_tokens_are_those_of_the_text_and_merges_end_in_the_token() {
        let mut training = Training::new(Kind::Bpe);
        training.vocabulary = Some(300);
        let tokenizer = training.train_on_text(&TEXT.repeat(20)).unwrap();
        let pieces = Pieces::of(&tokenizer).unwrap();
        assert_eq!(pieces.kind(), "BPE");
        let ids = tokenizer.encode(TEXT).unwrap();
        let bytes: Vec<u8> = ids.iter().flat_map(|id| pieces.bytes(*id)).collect();
        assert_eq!(bytes, TEXT.as_bytes());
        assert!(ids.len() < TEXT.len() / 2, "there are merges to look at");
        for id in ids {
            let name = tokenizer.token(id).unwrap();
            let (start, steps) = pieces.merges(id);
            assert_eq!(steps.len() + 1, start.len(), "{name}");
            let last = steps.last().map_or(&start, |step| &step.pieces);
            assert_eq!(*last, [name]);
        }
    }

    #[test]
    fn tokenizers_without_merges_say_so() {
        let tokenizer = Tokenizer::of_characters(&['a', 'b', '\n']);
        let pieces = Pieces::of(&tokenizer).unwrap();
        assert_eq!((pieces.text(2), pieces.bytes(0)), ("\n".to_owned(), vec![b'a']));
        assert!(pieces.merges(1).1.is_empty());
    }

    #[test]
    fn every_byte_is_written_as_a_character_of_its_own() {
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
        assert_eq!(byte_of('a'), Some(b'a'));
        let all: std::collections::BTreeSet<u8> =
            (0x21..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        assert_eq!(all.len(), 256);
    }
}
