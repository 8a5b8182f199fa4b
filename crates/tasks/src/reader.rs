//! Texts through an encoder: labels, vectors, tags and hidden words of any number of texts, batched
//! by length.
//!
//! Texts of about the same length share a batch, the longest first, so that little is padding; the
//! results are in the order of the texts, and do not depend on who shared a batch.

use crate::batch::tokens;
use crate::cut::Cut;
use crate::open::OpenModel;
use hearken_base::{Error, Result};
use hearken_data::batches::Batch;
use hearken_data::frames::{Feature, Frame, Framed, batch};
use hearken_data::tokenizer::{Special, Tokenizer};
use hearken_nn::models::{Embedded, Encodes, Tokens};
use hearken_nn::pass::Pass;
use hearken_tensor::{Tensor, no_grad};

/// Tokens of a batch, about, padding included: enough to keep all threads busy.
const BATCH_TOKENS: usize = 2048;
/// How `fill` is told where a word is hidden, whatever the tokenizer's own token is.
pub const MASK: &str = "[MASK]";

/// One text, or two that are read together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// The text, or the first of two.
    pub first: String,
    /// The second.
    pub second: Option<String>,
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self { first: text.to_owned(), second: None }
    }
}

/// Texts as the model reads them.
#[derive(Debug, Default)]
pub struct Rows {
    list: Vec<Framed>,
    /// Texts that were too long and lost tokens.
    pub cut: Cut,
}

/// How probable a token is in a hidden place.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its id.
    pub id: u32,
    /// As text.
    pub token: String,
    /// From 0 to 1.
    pub probability: f32,
}

/// An encoder with its tokenizer.
#[derive(Debug)]
pub struct Reader<'a> {
    model: &'a OpenModel,
    encoder: &'a dyn Encodes,
    tokenizer: &'a Tokenizer,
    frame: Frame,
    knows_types: bool,
    /// Logits of labels are divided by it.
    temperature: f32,
}

impl<'a> Reader<'a> {
    /// Texts have at most `most_tokens`, special ones included; at most what the model was made for.
    pub fn new(
        model: &'a OpenModel,
        tokenizer: &'a Tokenizer,
        most_tokens: Option<usize>,
    ) -> Result<Self> {
        let encoder = model.encodes()?;
        let config = model.model.config();
        let own = encoder.embedded().most_tokens;
        let most = most_tokens.unwrap_or(own);
        if most > config.context() {
            let context = config.context();
            let message = format!("{most} tokens exceed the model's context of {context}");
            return Err(Error::new(message, "leave the number of tokens out"));
        }
        let frame = Frame::new(tokenizer, most)?;
        let knows_types = config.types() > 0;
        Ok(Self { model, encoder, tokenizer, frame, knows_types, temperature: 1.0 })
    }

    /// The same, with the logits of labels divided by a temperature, such as
    /// [the one that is kept with the model](OpenModel::temperature).
    pub fn at_temperature(self, temperature: f64) -> Self {
        Self { temperature: temperature as f32, ..self }
    }

    /// The texts as the model reads them. A text without any token is an error that names it by
    /// `place`, if the model has no token of its own to read in its place.
    pub fn rows(&self, texts: &[Text], place: impl Fn(usize) -> String) -> Result<Rows> {
        self.framed(texts, place, |text| self.tokenizer.encode(text))
    }

    fn framed(
        &self,
        texts: &[Text],
        place: impl Fn(usize) -> String,
        encode: impl Fn(&str) -> Result<Vec<u32>>,
    ) -> Result<Rows> {
        let mut rows = Rows::default();
        for (i, text) in texts.iter().enumerate() {
            let first = encode(&text.first)?;
            let framed = match &text.second {
                Some(second) => self.frame.two(&first, &encode(second)?),
                None => self.frame.one(&first),
            };
            if framed.ids.is_empty() {
                let message = format!("{}: there is no text", place(i));
                return Err(Error::new(message, "leave empty lines out"));
            }
            let vocabulary = self.model.model.config().vocabulary();
            if let Some(id) = framed.ids.iter().find(|id| **id as usize >= vocabulary) {
                let message = format!("there is no token {id}: the model has {vocabulary}");
                return Err(Error::new(message, "use the tokenizer that belongs to the model"));
            }
            if framed.cut > 0 {
                rows.cut.add(i);
            }
            rows.list.push(framed);
        }
        Ok(rows)
    }

    /// Runs `f` on batches of rows of about the same length: it is given the tokens and which rows
    /// they are. `progress` is called with how many are done.
    fn batches(
        &self,
        rows: &Rows,
        progress: &mut dyn FnMut(usize),
        mut f: impl FnMut(&Tokens<'_>, &[usize]) -> Result<()>,
    ) -> Result<()> {
        let mut order: Vec<usize> = (0..rows.list.len()).collect();
        let length = |row: &usize| rows.list.get(*row).map_or(0, |framed| framed.ids.len());
        order.sort_by_key(|row| std::cmp::Reverse(length(row)));
        let mut rest = &order[..];
        while let Some(first) = rest.first() {
            let count = (BATCH_TOKENS / length(first).max(1)).clamp(1, rest.len());
            let (chosen, others) = rest.split_at(count);
            let features: Vec<Feature> =
                chosen.iter().map(|row| Feature::new(rows.list[*row].clone())).collect();
            let joined: Batch = batch(&features.iter(), self.frame.pad);
            no_grad(|| f(&tokens(&joined, self.knows_types), chosen))?;
            rest = others;
            progress(order.len() - rest.len());
        }
        Ok(())
    }

    /// How many tokens a text has at most.
    pub fn most_tokens(&self) -> usize {
        self.frame.length
    }

    /// How the model was made to embed texts.
    pub fn embedded(&self) -> Embedded {
        self.encoder.embedded()
    }

    /// A vector for each row: (N, C).
    pub fn embed(
        &self,
        rows: &Rows,
        how: Embedded,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Tensor> {
        let mut all: Vec<Vec<f32>> = vec![Vec::new(); rows.list.len()];
        self.batches(rows, progress, |tokens, chosen| {
            let vectors = self.encoder.embed(tokens, how, &Pass::evaluate()); // (B, C)
            put(&mut all, chosen, vectors.value());
            Ok(())
        })?;
        let width = all.first().map_or(0, Vec::len);
        Ok(Tensor::new([all.len(), width], &all.concat()))
    }

    /// The probability of each label for each row: (N) rows in the order of the labels.
    pub fn classify(&self, rows: &Rows, progress: &mut dyn FnMut(usize)) -> Result<Vec<Vec<f32>>> {
        let model = self.model.classifies()?;
        let mut all = vec![Vec::new(); rows.list.len()];
        self.batches(rows, progress, |tokens, chosen| {
            put(&mut all, chosen, &model.class_probabilities_at(tokens, self.temperature));
            Ok(())
        })?;
        Ok(all)
    }

    /// The numbers that the model predicts for each row.
    pub fn numbers(&self, rows: &Rows, progress: &mut dyn FnMut(usize)) -> Result<Vec<Vec<f32>>> {
        let model = self.model.predicts_numbers()?;
        let mut all = vec![Vec::new(); rows.list.len()];
        self.batches(rows, progress, |tokens, chosen| {
            put(&mut all, chosen, model.predicted(tokens, &Pass::evaluate()).value());
            Ok(())
        })?;
        Ok(all)
    }

    /// For each text and each hidden place in it, the most probable tokens, the best first. A place is
    /// hidden by [`MASK`], or by the tokenizer's own token for it. A text without any is an error
    /// that names it by `place`.
    pub fn fill(
        &self,
        texts: &[Text],
        most: usize,
        place: impl Fn(usize) -> String,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Vec<Vec<Candidate>>>> {
        let model = self.model.predicts_tokens()?;
        let mask = self.tokenizer.require(Special::Mask)?;
        let own = self.tokenizer.token(mask).unwrap_or_default();
        let rows = self.framed(texts, &place, |text| {
            self.tokenizer.encode_allowing_special(&text.replace(MASK, &own))
        })?;
        for (i, framed) in rows.list.iter().enumerate() {
            if !framed.ids.contains(&mask) {
                let message = format!("{}: no {MASK} in the text", place(i));
                let hint = if framed.cut > 0 {
                    "the text is longer than the model reads, and was cut"
                } else {
                    "write [MASK] where a word is to be guessed"
                };
                return Err(Error::new(message, hint));
            }
        }
        let mut all = vec![Vec::new(); rows.list.len()];
        self.batches(&rows, progress, |tokens, chosen| {
            let hidden = self.encoder.encode(tokens, &Pass::evaluate()); // (B, T, C)
            let [_, length] = tokens.shape();
            let places: Vec<u32> = (0..tokens.ids.len() as u32)
                .filter(|i| tokens.ids.get(*i as usize) == Some(&mask))
                .collect();
            let hidden = hearken_nn::layers::select_rows(&hidden, &places); // (N, C)
            let logits = model.logits_of(&hidden, &Pass::evaluate()); // (N, V)
            let width = logits.shape().width();
            for (place, logits) in places.iter().zip(logits.value().data().chunks(width.max(1))) {
                let row = chosen.get(*place as usize / length);
                if let Some(found) = row.and_then(|row| all.get_mut(*row)) {
                    found.push(self.candidates(logits, most)?);
                }
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// The most probable of the tokenizer's tokens, special ones left out.
    fn candidates(&self, logits: &[f32], most: usize) -> Result<Vec<Candidate>> {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = logits.iter().map(|z| f64::from(z - largest).exp()).sum();
        let known = logits.iter().take(self.tokenizer.vocabulary_size()).enumerate();
        let mut ranked: Vec<(u32, f32)> =
            known.map(|(id, z)| (id as u32, *z)).filter(|(id, _)| !self.is_special(*id)).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let candidate = |(id, z): (u32, f32)| {
            let token = self.tokenizer.decode(&[id])?.trim().to_owned();
            let probability = (f64::from(z - largest).exp() / total) as f32;
            Ok(Candidate { id, token, probability })
        };
        ranked.into_iter().take(most).map(candidate).collect()
    }

    fn is_special(&self, id: u32) -> bool {
        self.tokenizer.is_special(id) || self.tokenizer.token(id).is_none()
    }
}

/// The rows of a result, where they belong.
fn put(all: &mut [Vec<f32>], chosen: &[usize], found: &Tensor) {
    let width = found.shape().width().max(1);
    for (row, numbers) in chosen.iter().zip(found.data().chunks(width)) {
        if let Some(place) = all.get_mut(*row) {
            *place = numbers.to_vec();
        }
    }
}
