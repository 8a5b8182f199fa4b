//! Tokens with a meaning of their own, and constraints on those that are written, from
//! `generation_config.json` or `config.json`.

use crate::json::{self, Fields};
use hearken_base::{Error, Kind, Result};
use hearken_nn::constraints::Constraints;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;

/// The token that begins the targets of an encoder-decoder.
const START: &str = "decoder_start_token_id";
const EOS: &str = "eos_token_id";
const PAD: &str = "pad_token_id";
const BEAMS: &str = "num_beams";
/// Names of [`Constraints`], in their order.
const BAD_WORDS: &str = "bad_words_ids";
const SUPPRESSED: &str = "suppress_tokens";
const SUPPRESSED_FIRST: &str = "begin_suppress_tokens";
const FORCED_FIRST: &str = "forced_bos_token_id";
const FORCED_LAST: &str = "forced_eos_token_id";

/// Tokens that begin, end or fill up a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Begins a text; of an encoder-decoder, a target.
    pub begin: Option<u32>,
    /// Each of them ends a text.
    pub ends: Vec<u32>,
    /// Fills up a batch.
    pub pad: Option<u32>,
    /// What is not written, and what must be.
    pub constraints: Constraints,
    /// How many beams a directory asks for, if it asks for several. Nobody has to follow.
    pub beams: Option<usize>,
}

impl SpecialTokens {
    /// What the directory of a model, which perhaps `translates`, says: `generation_config.json` if it
    /// is there and says so, else `config`.
    pub fn read(directory: &Path, config: &Fields<'_>, translates: bool) -> Result<Self> {
        let path = directory.join("generation_config.json");
        let generation = match json::read(&path) {
            Err(error) if error.kind() == Kind::Io(ErrorKind::NotFound) => Value::Null,
            read => read?,
        };
        if !generation.is_object() && !generation.is_null() {
            let message = format!("{} is not a JSON object", path.display());
            return Err(Error::new(message, "remove it, or get the file again"));
        }
        let generation = Fields::new(&path, &generation);
        let find = |key: &str| -> Result<Vec<u32>> {
            let first = read_ids(&generation, key)?;
            if first.is_empty() { read_ids(config, key) } else { Ok(first) }
        };
        let one = |key: &str| find(key).map(|ids| ids.first().copied());
        let start = if translates { one(START)? } else { None };
        let ends = find(EOS)?;
        let first = read_words(&generation, BAD_WORDS)?;
        let mut bad_words = if first.is_empty() { read_words(config, BAD_WORDS)? } else { first };
        // What ends a text cannot be forbidden: a text would have no end.
        bad_words.retain(|word| !matches!(word[..], [id] if ends.contains(&id)));
        // A wish; one that makes no sense is none.
        let beams = generation.present(BEAMS).and_then(Value::as_u64).unwrap_or(1) as usize;
        Ok(Self {
            beams: Some(beams).filter(|beams| *beams > 1),
            begin: start.or(one("bos_token_id")?),
            pad: one(PAD)?,
            constraints: Constraints {
                bad_words,
                suppressed: find(SUPPRESSED)?,
                suppressed_first: find(SUPPRESSED_FIRST)?,
                first: one(FORCED_FIRST)?,
                last: find(FORCED_LAST)?,
            },
            ends,
        })
    }

    /// A token that must be written has to be one of the model's; and so do those that stand around
    /// the texts of a model that `translates`.
    pub fn check(&self, vocabulary: usize, translates: bool) -> Result<()> {
        let Constraints { first, last, .. } = &self.constraints;
        let mut needed = vec![(FORCED_FIRST, first.as_slice()), (FORCED_LAST, last)];
        if translates {
            let own =
                [(START, self.begin.as_slice()), (EOS, &self.ends), (PAD, self.pad.as_slice())];
            needed.extend(own);
        }
        for (key, ids) in needed {
            if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
                return Err(Error::new(
                    format!("{key} is {id}, and the model has {vocabulary} tokens"),
                    format!("correct {key} in generation_config.json or config.json"),
                ));
            }
        }
        let Constraints { bad_words, suppressed, suppressed_first, .. } = &self.constraints;
        let words = bad_words.iter().filter(|word| word.len() == 1).flatten();
        let never: HashSet<u32> =
            words.chain(suppressed).chain(suppressed_first).copied().collect();
        if !never.is_empty() && (0..vocabulary).all(|id| never.contains(&(id as u32))) {
            return Err(Error::new(
                format!("{SUPPRESSED}, {SUPPRESSED_FIRST} and {BAD_WORDS} leave no token to write"),
                "correct them in generation_config.json or config.json",
            ));
        }
        Ok(())
    }

    /// As `config.json` and `generation_config.json` have them.
    pub fn to_json(&self) -> Value {
        json!({
            "bos_token_id": self.begin,
            "eos_token_id": json::ids(&self.ends),
            "pad_token_id": self.pad,
        })
    }

    /// The constraints and beams that there are, as `generation_config.json` has them.
    pub fn constraints_to_json(&self) -> Value {
        let Constraints { bad_words, suppressed, suppressed_first, first, last } =
            &self.constraints;
        let stated = [
            (BAD_WORDS, json!(bad_words), bad_words.is_empty()),
            (SUPPRESSED, json!(suppressed), suppressed.is_empty()),
            (SUPPRESSED_FIRST, json!(suppressed_first), suppressed_first.is_empty()),
            (FORCED_FIRST, json!(first), first.is_none()),
            (FORCED_LAST, json::ids(last), last.is_empty()),
            (BEAMS, json!(self.beams), self.beams.is_none()),
        ];
        stated
            .into_iter()
            .filter(|(.., absent)| !absent)
            .map(|(key, value, _)| (key, value))
            .collect()
    }

    /// The same of a model that translates.
    pub fn to_json_of_translator(&self) -> Value {
        let own = match self.begin {
            Some(begin) => json!({ "bos_token_id": null, START: begin }),
            None => json!({ "bos_token_id": null }),
        };
        json::merged(self.to_json(), own)
    }
}

/// A list of lists of ids.
fn read_words(fields: &Fields<'_>, key: &str) -> Result<Vec<Vec<u32>>> {
    let Some(value) = fields.present(key) else { return Ok(Vec::new()) };
    let words: Option<Vec<Vec<u32>>> = serde_json::from_value(value.clone()).ok();
    words
        .filter(|words| words.iter().all(|word| !word.is_empty()))
        .ok_or_else(|| fields.malformed(key, "a list of lists of token ids"))
}

/// A number or a list of numbers. Negative ones stand for none, as in the first Llama.
fn read_ids(fields: &Fields<'_>, key: &str) -> Result<Vec<u32>> {
    let bad = || fields.malformed(key, "a token id or a list of token ids");
    let one = |value: &Value| -> Result<Option<u32>> {
        if value.as_i64().is_some_and(|id| id < 0) {
            return Ok(None);
        }
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.map(Some).ok_or_else(bad)
    };
    let found = match fields.present(key) {
        None => Vec::new(),
        Some(Value::Array(many)) => many.iter().map(one).collect::<Result<Vec<_>>>()?,
        Some(single) => vec![one(single)?],
    };
    Ok(found.into_iter().flatten().collect())
}
