//! Text from an open model: a prompt in, its continuation out.

use crate::open::OpenModel;
use hearken_base::{Error, Result};
use hearken_data::tokenizer::{Special, Tokenizer};
use hearken_infer::generate::{Flow, Request, generate};
use hearken_infer::sampler::Sampling;
use hearken_infer::stream::TextStream;
use hearken_nn::models::Generates;

/// How a text is written.
#[derive(Clone, Debug)]
pub struct Writing {
    /// The most new tokens.
    pub most_tokens: usize,
    /// How they are chosen.
    pub sampling: Sampling,
    /// The text ends before any of these.
    pub stops: Vec<String>,
}

impl Default for Writing {
    /// 200 tokens at a temperature of 0.8.
    fn default() -> Self {
        let sampling = Sampling { temperature: 0.8, ..Sampling::default() };
        Self { most_tokens: 200, sampling, stops: Vec::new() }
    }
}

/// A model that writes, with its tokenizer.
pub struct TextWriter<'a> {
    open: &'a OpenModel,
    model: &'a dyn Generates,
    tokenizer: Tokenizer,
}

impl TextWriter<'_> {
    /// The continuation of `prompt`.
    pub fn write(&self, prompt: &str, writing: &Writing) -> Result<String> {
        let mut text = String::new();
        self.stream(prompt, writing, |piece| {
            text.push_str(piece);
            Flow::Continue
        })?;
        Ok(text)
    }

    /// Continues `prompt` and hands out the text as it comes, in pieces of whole characters.
    pub fn stream(
        &self,
        prompt: &str,
        writing: &Writing,
        mut on_piece: impl FnMut(&str) -> Flow,
    ) -> Result<()> {
        writing.sampling.validate()?;
        let request = Request {
            sampling: writing.sampling,
            ends: self.open.ends(Some(&self.tokenizer)),
            constraints: self.open.special.constraints.clone(),
            ..Request::new(self.open.prompt(&self.tokenizer, prompt)?, writing.most_tokens)
        };
        let mut stream =
            TextStream::new(|ids: &[u32]| self.tokenizer.decode_known(ids), writing.stops.clone());
        generate(self.model, &request, |step| {
            let piece = stream.push(step.id);
            let flow = if piece.is_empty() { Flow::Continue } else { on_piece(&piece) };
            if stream.stopped() { Flow::Stop } else { flow }
        })?;
        let rest = stream.finish();
        if !rest.is_empty() {
            on_piece(&rest);
        }
        Ok(())
    }

    /// From text to tokens and back.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }
}

impl OpenModel {
    /// The model with its own tokenizer, ready to write.
    pub fn writer(&self) -> Result<TextWriter<'_>> {
        let model = self.generates()?;
        let hint = "use a directory with a tokenizer.json, or give tokens to infer::generate";
        Ok(TextWriter { open: self, model, tokenizer: self.require_tokenizer(None, hint)? })
    }

    /// The token that stands before every text, if the model has one that does not end texts, too.
    pub fn begin(&self, tokenizer: &Tokenizer) -> Option<u32> {
        let begin = self.special.begin.or_else(|| tokenizer.special(Special::Bos))?;
        (!self.ends(Some(tokenizer)).contains(&begin)).then_some(begin)
    }

    /// The tokens of a prompt: those of `text`, after the token that begins a text where the model
    /// has one of its own (Llama's, or that of the stories; GPT-2's begins and ends, and only ends
    /// here).
    pub fn prompt(&self, tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
        let ends = self.ends(Some(tokenizer));
        let mut ids = tokenizer.encode(text)?;
        let begin = self.begin(tokenizer).filter(|begin| ids.first() != Some(begin));
        ids.splice(0..0, begin);
        if ids.is_empty() {
            // Something must come before the first token: where one text ends the next begins, and
            // so does a line.
            match ends.first() {
                Some(end) => ids.push(*end),
                None => ids.extend(tokenizer.encode("\n").unwrap_or_default()),
            }
        }
        if ids.is_empty() {
            let message = "the prompt is empty, and the model has no token that begins a text";
            return Err(Error::new(message, "give a --prompt"));
        }
        Ok(ids)
    }
}
