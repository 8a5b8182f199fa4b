//! Ids to text while they come: a character may take several tokens, and a token's text may
//! depend on the one before it (the space that WordPiece puts between words).

use super::Tokenizer;
use crate::error::Result;

/// The longest that a character can be in bytes, hence in tokens.
const LONGEST: usize = 4;

/// Decodes ids one by one; see [`Tokenizer::stream`].
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    /// What was said last, and what is not said yet: `ids[said..]`.
    ids: Vec<u32>,
    said: usize,
}

impl<'a> StreamDecoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, ids: Vec::new(), said: 0 }
    }

    /// Takes the next id and gives the text that is now certain: empty while a character is
    /// incomplete.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.ids.push(id);
        let text = self.pending()?;
        let incomplete = text.ends_with(char::REPLACEMENT_CHARACTER);
        if incomplete && self.ids.len() - self.said < LONGEST {
            return Ok(String::new());
        }
        self.ids.drain(..self.said);
        self.said = self.ids.len();
        Ok(text)
    }

    /// What is left when no more ids come: a replacement character for an incomplete one.
    pub fn finish(mut self) -> Result<String> {
        let text = self.pending()?;
        self.ids.clear();
        Ok(text)
    }

    /// The text of `ids[said..]` as it reads behind `ids[..said]`; on its own where the whole
    /// reads otherwise because it ends within a character.
    fn pending(&self) -> Result<String> {
        let (said, rest) = self.ids.split_at(self.said);
        let before = self.tokenizer.decode(said)?;
        let text = self.tokenizer.decode(&self.ids)?;
        match text.strip_prefix(&before) {
            Some(text) => Ok(text.to_owned()),
            None => self.tokenizer.decode(rest),
        }
    }
}
