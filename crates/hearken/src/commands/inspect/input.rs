//! What the commands of `hearken inspect` are given: texts or sequences of tokens, their types,
//! padding and targets, and a file to write.

use crate::failure::Failure;
use crate::model::{TokenizerArguments, parse_ids, parse_targets};
use hearken::data::frames::Frame;
use hearken::data::tokenizer::{Special, Tokenizer};
use hearken::nn::models::{TargetKind, Targets, Tokens};
use hearken::nn::pass::Layout;
use hearken::tasks::OpenModel;
use hearken::tasks::reader::MASK;
use hearken::tensor::ops::cross_entropy::IGNORED;

/// What a model reads.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("input").args(["ids", "prompt"]).required(true))]
pub(super) struct TokenArguments {
    /// The tokens of a sequence, such as 1,2,3 (several times for a batch of equal lengths)
    #[arg(long, value_name = "IDS")]
    ids: Vec<String>,

    /// A text in place of --ids, as 'generate' or 'fill' reads it (several times for a batch)
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["type_ids", "mask"])]
    prompt: Vec<String>,

    #[command(flatten)]
    tokenizer: TokenizerArguments,

    /// The type of each token, such as 0,0,1 for a second text (once per sequence) [default: 0]
    #[arg(long, value_name = "TYPES")]
    type_ids: Vec<String>,

    /// 1 for a token, 0 for the padding after them, such as 1,1,0 (once per sequence)
    #[arg(long, value_name = "MASK")]
    mask: Vec<String>,

    /// Of an encoder-decoder, the tokens of the target, such as 0,5,7 (once per sequence, of equal
    /// lengths); --ids, --mask are then of the source
    #[arg(long, value_name = "IDS")]
    decoder_ids: Vec<String>,
}

/// Sequences of equal length, at least one of at least one token.
#[derive(Debug)]
pub(super) struct Given {
    /// B
    pub(super) rows: usize,
    /// (B, T)
    ids: Vec<u32>,
    types: Option<Vec<u32>>,
    /// (B)
    lengths: Option<Vec<usize>>,
    /// (B, T'), of the target of an encoder-decoder.
    decoder_ids: Option<Vec<u32>>,
}

impl TokenArguments {
    /// The tokens of --ids, as far as they can be judged without the model; nothing for --prompt.
    pub(super) fn read(&self) -> Result<Option<Given>, Failure> {
        if !self.prompt.is_empty() {
            return Ok(None);
        }
        let ids = sequences(&self.ids)?;
        let like_ids = |name: &str, texts: &[String]| -> Result<Option<Vec<u32>>, Failure> {
            if texts.is_empty() {
                return Ok(None);
            }
            let all = sequences(texts)?;
            if all.len() != ids.len() || all[0].len() != ids[0].len() {
                return Err(Failure::input(
                    format!(
                        "--ids are {} × {}, but --{name} {} × {}",
                        ids.len(),
                        ids[0].len(),
                        all.len(),
                        all[0].len()
                    ),
                    format!("give --{name} once for each --ids, with a number for each token"),
                ));
            }
            Ok(Some(all.concat()))
        };
        let types = like_ids("type-ids", &self.type_ids)?;
        let lengths = match like_ids("mask", &self.mask)? {
            Some(mask) => Some(mask.chunks(ids[0].len()).map(length).collect::<Result<_, _>>()?),
            None => None,
        };
        let decoder_ids = match sequences(&self.decoder_ids)? {
            all if all.is_empty() => None,
            all if all.len() == ids.len() => Some(all.concat()),
            all => {
                let message =
                    format!("{} sequences in --ids, {} in --decoder-ids", ids.len(), all.len());
                return Err(Failure::input(message, "give --decoder-ids once for each --ids"));
            }
        };
        Ok(Some(Given { rows: ids.len(), ids: ids.concat(), types, lengths, decoder_ids }))
    }

    /// What this model is given: what was [`read`](Self::read), or the tokens of the prompts, the
    /// shorter ones padded. Checked: the model knows all tokens and has room for them.
    pub(super) fn on(&self, read: Option<Given>, model: &OpenModel) -> Result<Given, Failure> {
        let given = match read {
            Some(given) => given,
            None => self.prompts(model)?,
        };
        given.check(model)?;
        Ok(given)
    }

    /// The tokenizer for tables; without one they have numbers.
    pub(super) fn names(&self, model: &OpenModel) -> Result<Option<Tokenizer>, Failure> {
        self.tokenizer.of(model)
    }

    fn prompts(&self, model: &OpenModel) -> Result<Given, Failure> {
        let hint = "name one with --tokenizer, or give --ids 1,2,3";
        let tokenizer = self.tokenizer.require(model, hint)?;
        let encode = |text: &String| -> Result<Vec<u32>, Failure> {
            if model.model.encodes().is_none() {
                return Ok(model.prompt(&tokenizer, text)?);
            }
            let frame = Frame::new(&tokenizer, model.model.config().context())?;
            let mask = tokenizer.special(Special::Mask).and_then(|id| tokenizer.token(id));
            let ids = match mask {
                Some(own) => tokenizer.encode_allowing_special(&text.replace(MASK, &own))?,
                None => tokenizer.encode(text)?,
            };
            Ok(frame.one(&ids).ids)
        };
        let rows: Vec<Vec<u32>> = self.prompt.iter().map(encode).collect::<Result<_, _>>()?;
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        if lengths.contains(&0) {
            return Err(Failure::input("a prompt without any token", "give some text"));
        }
        let pad = tokenizer.special(Special::Pad).unwrap_or(0);
        let mut ids = Vec::with_capacity(rows.len() * longest);
        for row in &rows {
            ids.extend_from_slice(row);
            ids.resize(ids.len() + longest - row.len(), pad);
        }
        let padded = lengths.iter().any(|length| *length < longest);
        let lengths = padded.then_some(lengths);
        Ok(Given { rows: rows.len(), ids, types: None, lengths, decoder_ids: None })
    }
}

/// How many tokens come before the padding.
fn length(mask: &[u32]) -> Result<usize, Failure> {
    let length = mask.iter().take_while(|x| **x == 1).count();
    if length == 0 || mask[length..].iter().any(|x| *x != 0) {
        return Err(Failure::input(
            format!("a mask of {mask:?}"),
            "a mask is ones and then zeros, as in 1,1,0: padding comes after the tokens",
        ));
    }
    Ok(length)
}

/// Sequences of equal length, at least one of at least one token.
fn sequences(texts: &[String]) -> Result<Vec<Vec<u32>>, Failure> {
    let hint = |message: String| Failure::input(message, "write --ids 1,2,3");
    let all: Result<Vec<Vec<u32>>, String> = texts.iter().map(|text| parse_ids(text)).collect();
    let all = all.map_err(hint)?;
    match all.iter().find(|sequence| sequence.len() != all[0].len()) {
        None => Ok(all),
        Some(other) => Err(Failure::input(
            format!("sequences of {} and {} tokens", all[0].len(), other.len()),
            "all sequences of a batch are of equal length",
        )),
    }
}

impl Given {
    /// T, of the target if there is one.
    pub(super) fn length(&self) -> usize {
        self.decoder_ids.as_ref().unwrap_or(&self.ids).len() / self.rows
    }

    /// The tokens of a sequence, without padding.
    pub(super) fn row(&self, row: usize) -> &[u32] {
        let (start, length) = (row * self.length(), self.length());
        let real = self.lengths.as_ref().and_then(|all| all.get(row)).copied().unwrap_or(length);
        &self.ids[start..start + real]
    }

    /// The next token at every place; nothing after the last.
    pub(super) fn next_tokens(&self) -> Targets {
        let mut all = Vec::with_capacity(self.ids.len());
        for row in 0..self.rows {
            all.extend(self.row(row).iter().skip(1));
            all.resize((row + 1) * self.length(), IGNORED);
        }
        Targets::Tokens(all)
    }

    /// What is read first: the source of an encoder-decoder, or all there is.
    pub(super) fn first(&self) -> Tokens<'_> {
        let layout = self.lengths.as_deref().map(Layout::padded).unwrap_or_default();
        Tokens::new(&self.ids, self.rows).of_types(self.types.as_deref()).laid_out(layout)
    }

    /// As the model reads them; `first` is what [`Given::first`] gives.
    pub(super) fn tokens<'a>(&'a self, first: &'a Tokens<'a>) -> Tokens<'a> {
        match &self.decoder_ids {
            Some(ids) => Tokens::new(ids, self.rows).about(first),
            None => first.clone(),
        }
    }

    /// The model knows all tokens and types, and has room for them.
    fn check(&self, model: &OpenModel) -> Result<(), Failure> {
        let decoder_ids = self.decoder_ids.as_deref().unwrap_or_default();
        let sequences = self.ids.chunks(self.ids.len() / self.rows);
        for sequence in sequences.chain(decoder_ids.chunks(self.length())) {
            model.check(sequence)?;
        }
        match (model.model.translates().is_some(), self.decoder_ids.is_some()) {
            (true, false) => {
                return Err(Failure::input(
                    "an encoder-decoder needs the tokens of a target",
                    "give --decoder-ids, from the token that begins targets on (T5: 0)",
                ));
            }
            (false, true) => {
                return Err(Failure::input(
                    "--decoder-ids are of no use to this model",
                    "leave them out: only an encoder-decoder has a source and a target",
                ));
            }
            _ => {}
        }
        let known = model.model.config().types();
        if let Some(types) = &self.types
            && let Some(wrong) = types.iter().find(|t| **t as usize >= known)
        {
            let hint = match known {
                0 => "leave --type-ids out: this model knows no types of tokens".to_owned(),
                _ => format!("types are 0 to {}", known - 1),
            };
            return Err(Failure::input(format!("there is no type {wrong}"), hint));
        }
        Ok(())
    }

    /// Targets of the model's kind: for each token, or for each sequence.
    pub(super) fn targets(&self, model: &OpenModel, texts: &[String]) -> Result<Targets, Failure> {
        let Some(kind) = TargetKind::of(model.model.as_ref()) else {
            return Err(Failure::input(
                "this model has no loss: it has no head",
                "give no --targets, or use a model with a head",
            ));
        };
        let labels = model.model.config().labels().unwrap_or_default().to_vec();
        match kind {
            TargetKind::Tokens => {
                let all = self.per_token(texts, &[])?;
                for sequence in all.chunks(self.length()) {
                    let real: Vec<u32> =
                        sequence.iter().copied().filter(|id| *id != IGNORED).collect();
                    model.check(&real)?;
                }
                Ok(Targets::Tokens(all))
            }
            TargetKind::Tags(_) => Ok(Targets::Tokens(self.per_token(texts, &labels)?)),
            TargetKind::Classes(_) => {
                let all: Vec<&str> = texts.iter().flat_map(|text| text.split(',')).collect();
                self.count("a label", all.len())?;
                let all = all.into_iter().map(|text| label(text, &labels));
                Ok(Targets::Classes(all.collect::<Result<_, _>>()?))
            }
            TargetKind::Several(n) => {
                self.numbers(texts, n, "0 or 1 for each label").map(Targets::Several)
            }
            TargetKind::Numbers(n) => self.numbers(texts, n, "its numbers").map(Targets::Numbers),
            TargetKind::Spans => {
                self.count("its first and last token", texts.len())?;
                let mut spans = (Vec::new(), Vec::new());
                for text in texts {
                    let hint = "write --targets 3,5 for an answer from token 3 to token 5";
                    let found = parse_targets(text).map_err(|m| Failure::input(m, hint))?;
                    let [start, end] = found[..] else {
                        return Err(Failure::input(format!("'{text}' is no span"), hint));
                    };
                    let outside = |t: &u32| *t != IGNORED && *t as usize >= self.length();
                    if let Some(place) = [start, end].iter().find(|t| outside(t)) {
                        let message = format!("there is no token {place} in the sequence");
                        return Err(Failure::input(message, "places count from 0"));
                    }
                    spans.0.push(start);
                    spans.1.push(end);
                }
                Ok(Targets::Spans { starts: spans.0, ends: spans.1 })
            }
        }
    }

    fn count(&self, what: &str, given: usize) -> Result<(), Failure> {
        if given == self.rows {
            return Ok(());
        }
        Err(Failure::input(
            format!("{} sequences, but {given} targets", self.rows),
            format!("give {what} for each sequence, with one --targets for each --ids"),
        ))
    }

    /// A number, or the name of a label, for each token.
    fn per_token(&self, texts: &[String], labels: &[String]) -> Result<Vec<u32>, Failure> {
        let rows: Vec<Vec<&str>> = texts.iter().map(|text| text.split(',').collect()).collect();
        let other = rows.iter().find(|row| row.len() != self.length());
        if rows.len() != self.rows || other.is_some() {
            return Err(Failure::input(
                format!(
                    "{} × {} tokens, but {} × {} targets",
                    self.rows,
                    self.length(),
                    rows.len(),
                    other.or(rows.first()).map_or(0, Vec::len)
                ),
                "every token has one target",
            ));
        }
        let one = |text: &str| {
            if labels.is_empty() {
                let hint = "write --targets 2,3,4";
                return parse_targets(text).map(|t| t[0]).map_err(|m| Failure::input(m, hint));
            }
            label(text, labels)
        };
        rows.concat().into_iter().map(one).collect()
    }

    /// So many numbers for each sequence.
    fn numbers(&self, texts: &[String], each: usize, what: &str) -> Result<Vec<f32>, Failure> {
        self.count(what, texts.len())?;
        let mut all = Vec::new();
        for text in texts {
            let hint = format!("expected {each} numbers, as in --targets 0.5,1");
            let bad = || Failure::input(format!("'{text}' does not fit"), hint.as_str());
            let row: Option<Vec<f32>> = text
                .split(',')
                .map(|x| x.trim().parse().ok().filter(|x: &f32| x.is_finite()))
                .collect();
            all.extend(row.filter(|row| row.len() == each).ok_or_else(bad)?);
        }
        Ok(all)
    }
}

/// The number of a label: its name, or the number itself; below 0 it does not count.
fn label(text: &str, labels: &[String]) -> Result<u32, Failure> {
    let text = text.trim();
    if let Some(found) = labels.iter().position(|label| label == text) {
        return Ok(found as u32);
    }
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Ok(IGNORED),
        Ok(number) if (number as usize) < labels.len() => Ok(number as u32),
        _ => {
            let shown: Vec<&str> = labels.iter().take(10).map(String::as_str).collect();
            let message = format!("there is no label '{text}'");
            Err(Failure::input(message, format!("the labels are {}, from 0 on", shown.join(", "))))
        }
    }
}
