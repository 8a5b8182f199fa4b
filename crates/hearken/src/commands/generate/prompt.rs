//! What is continued: text or tokens.

use super::Job;
use crate::failure::Failure;
use crate::stdin::MOST_TEXT;
use hearken::data::stories;
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

    /// Words that a model of the stories has never seen, explained.
    pub(super) fn note(&self, job: &Job) -> Option<String> {
        let (Self::Text(text), Some(tokenizer)) = (self, &job.tokenizer) else { return None };
        if tokenizer.fingerprint() != stories::tokenizer().fingerprint() {
            return None;
        }
        let unknown = stories::unknown_words(text);
        // The last word may be the beginning of one.
        let unknown: Vec<String> = unknown
            .into_iter()
            .filter(|word| !(text.ends_with(word) && word.chars().count() < 3))
            .take(3)
            .map(|word| format!("'{word}'"))
            .collect();
        (!unknown.is_empty()).then(|| {
            format!(
                "this model learned little stories that never say {}: it will guess; try \
                 'Mia the fox', 'The mouse' or 'So Mia'",
                unknown.join(" or ")
            )
        })
    }

    /// Its tokens.
    pub(super) fn ids(&self, job: &Job) -> Result<Vec<u32>, Failure> {
        match (self, &job.tokenizer) {
            (Self::Ids(ids), _) => Ok(ids.clone()),
            (Self::Text(text), Some(tokenizer)) => Ok(job.model.prompt(tokenizer, text)?),
            // Refused when the job was made.
            (Self::Text(_), None) => Ok(Vec::new()),
        }
    }
}
