//! What is continued: text or tokens.

use super::Job;
use crate::failure::Failure;
use crate::stdin::MOST_TEXT;
use hearken::data::tokenizer::{Special, Tokenizer};
use hearken::store::files::read_text_once;
use std::path::Path;

/// A beginning.
pub(super) enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

impl Prompt {
    /// What the command line gives, if it does.
    pub(super) fn given(
        text: Option<&str>,
        file: Option<&Path>,
        ids: Option<&[u32]>,
    ) -> Result<Option<Self>, Failure> {
        if let Some(path) = file {
            let text = read_text_once(path, MOST_TEXT).map_err(|error| {
                let path = path.display();
                Failure::input(format!("cannot read {path}: {error}"), "give a text file")
            })?;
            return Ok(Some(Self::Text(text)));
        }
        let text = text.map(|text| Self::Text(text.to_owned()));
        Ok(text.or_else(|| ids.map(|ids| Self::Ids(ids.to_vec()))))
    }

    /// Its tokens.
    pub(super) fn ids(&self, job: &Job) -> Result<Vec<u32>, Failure> {
        match (self, &job.tokenizer) {
            (Self::Ids(ids), _) => Ok(ids.clone()),
            (Self::Text(text), Some(tokenizer)) => encode(text, job, tokenizer),
            // Refused when the job was made.
            (Self::Text(_), None) => Ok(Vec::new()),
        }
    }
}

/// The tokens of `text`, behind the token that begins a text where the model has one of its own
/// (Llama's; GPT-2's begins and ends, and only ends here).
fn encode(text: &str, job: &Job, tokenizer: &Tokenizer) -> Result<Vec<u32>, Failure> {
    let begin = job.model.special.begin.or_else(|| tokenizer.special(Special::Bos));
    let ends = job.model.ends(Some(tokenizer));
    let mut ids: Vec<u32> = begin.filter(|begin| !ends.contains(begin)).into_iter().collect();
    ids.extend(tokenizer.encode(text)?);
    if ids.is_empty() {
        // Something must come before the first token: where one text ends the next begins, and so
        // does a line.
        match ends.first() {
            Some(end) => ids.push(*end),
            None => ids.extend(tokenizer.encode("\n").unwrap_or_default()),
        }
    }
    if ids.is_empty() {
        let message = "the prompt is empty, and the model has no token that begins a text";
        return Err(Failure::input(message, "give a --prompt"));
    }
    Ok(ids)
}
