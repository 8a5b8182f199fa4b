//! Sources and targets as tokens, to learn from and to be judged by.

use crate::config::RunConfig;
use crate::cut::Cut;
use hearken_base::{Error, Result};
use hearken_data::batches::{Batches, Documents, Examples, Frame, MadePairs, Pairs};
use hearken_data::labelled::{Answer, Dataset, Row};
use hearken_data::tokenizer::Tokenizer;
use std::sync::Arc;

/// Both sides as tokens.
#[derive(Clone)]
pub(super) struct Sides {
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) frame: Frame,
    /// The most tokens of each side.
    pub(super) context: usize,
}

/// What is held out, as tokens.
pub(super) struct Held {
    pub(super) examples: Box<dyn Examples>,
    pub(super) texts: Vec<[String; 2]>,
    pub(super) longest_source: usize,
    pub(super) cut: Cut,
}

impl Sides {
    /// Source with its end, and target without.
    fn encode(&self, texts: &[impl AsRef<str>; 2]) -> Result<[Vec<u32>; 2]> {
        let [source, target] = texts;
        let mut source = self.tokenizer.encode(source.as_ref())?;
        source.push(self.frame.end);
        Ok([source, self.tokenizer.encode(target.as_ref())?])
    }

    /// Batches of what `pair` gives for each row of each step.
    pub(super) fn generated(
        &self,
        rows: usize,
        pair: impl Fn(u64, u64) -> [String; 2] + Send + Sync + 'static,
    ) -> Box<dyn Batches> {
        let sides = self.clone();
        let make = move |step: u64, row: u64| match sides.encode(&pair(step, row)) {
            Ok(ids) => ids,
            Err(error) => unreachable!("a pair that cannot be encoded: {error}"),
        };
        Box::new(MadePairs::new(rows, self.context, self.frame, make))
    }

    fn fits(&self, [source, target]: &[Vec<u32>; 2]) -> bool {
        source.len() <= self.context && target.len() < self.context
    }

    /// All pairs that are not too long; the others are counted.
    pub(super) fn training(
        &self,
        config: &RunConfig,
        data: &Dataset,
        notes: &mut Vec<String>,
    ) -> Result<Pairs> {
        let [mut sources, mut targets] = [Vec::new(), Vec::new()];
        let (mut long, mut first) = (0, None);
        for row in &data.rows {
            let pair = self.encode(&texts_of(row))?;
            if self.fits(&pair) {
                let [source, target] = pair;
                sources.push(source);
                targets.push(target);
            } else {
                long += 1;
                first.get_or_insert_with(|| data.place(row));
            }
        }
        if let Some(first) = first {
            let context = self.context;
            let what = format!(
                "{long} of {} training pairs are longer than {context} tokens on a side and are \
                 left out; the first is {first}",
                data.rows.len()
            );
            if sources.is_empty() {
                let hint = if self.context < config.model.context() {
                    "set a larger data.most_tokens, or leave it out"
                } else {
                    "set a larger model.context"
                };
                return Err(Error::new(what, hint));
            }
            notes.push(what);
        }
        if sources.is_empty() {
            return Err(Error::new(
                "no pair is left to learn from",
                "hold out a smaller share: data.validation",
            ));
        }
        Pairs::new(sources.iter().collect(), targets.iter().collect(), self.frame)
    }

    pub(super) fn held(&self, texts: Vec<[String; 2]>) -> Result<Held> {
        let [mut sources, mut targets] = [Vec::new(), Vec::new()];
        let mut cut = Cut::default();
        for (i, pair) in texts.iter().enumerate() {
            let ids = self.encode(pair)?;
            if !self.fits(&ids) {
                cut.add(i);
            }
            let [mut source, mut target] = ids;
            if source.len() > self.context {
                source.truncate(self.context - 1);
                source.push(self.frame.end);
            }
            target.truncate(self.context - 1);
            sources.push(source);
            targets.push(target);
        }
        let [sources, targets]: [Documents; 2] =
            [sources.iter().collect(), targets.iter().collect()];
        let pairs = Pairs::new(sources, targets, self.frame)?;
        let longest_source = pairs.longest_source();
        Ok(Held { examples: Box::new(pairs), texts, longest_source, cut })
    }
}

/// Source and target.
pub(super) fn texts_of(row: &Row) -> [&str; 2] {
    let target = match &row.answer {
        Answer::Text(text) => text.as_str(),
        _ => "",
    };
    [&row.text, target]
}
