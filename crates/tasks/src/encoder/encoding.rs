//! From rows of data to rows of tokens, for each purpose.

use crate::cut::Cut;
use hearken_base::{Error, Result};
use hearken_data::frames::{Feature, Frame, Target, align_tags, locate_answer};
use hearken_data::labelled::{Answer, Ask, Row};
use hearken_data::stories::Exercise;
use hearken_data::tokenizer::Tokenizer;
use hearken_nn::config::{HeadConfig, ModelConfig};
use std::ops::Range;
use std::sync::Arc;

/// What an encoder learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To guess hidden tokens.
    Masks,
    /// To label a text.
    Classes,
    /// To label a text with any number of labels.
    Several,
    /// To label every word.
    Tags,
    /// To find answers in a text.
    Spans,
    /// To predict numbers.
    Numbers,
    /// To embed texts of the same meaning alike.
    Pairs,
}

impl Purpose {
    /// As the head of a model says.
    pub fn of(config: &ModelConfig) -> Result<Self> {
        let ModelConfig::Encoder(encoder) = config else {
            return Err(Error::new("the model is not an encoder", "set model.kind=encoder"));
        };
        Ok(match &encoder.head {
            HeadConfig::Tokens { .. } => Self::Masks,
            HeadConfig::Classes { several: false, .. } => Self::Classes,
            HeadConfig::Classes { several: true, .. } => Self::Several,
            HeadConfig::Tags { .. } => Self::Tags,
            HeadConfig::Spans {} => Self::Spans,
            HeadConfig::Numbers { .. } => Self::Numbers,
            HeadConfig::Embedding { .. } => Self::Pairs,
            HeadConfig::None {} => {
                return Err(Error::new(
                    "a model without a head has nothing to learn",
                    "choose one with --task, or set model.head.kind: tokens, classes, tags, \
                     spans, numbers or embedding",
                ));
            }
        })
    }

    /// What is asked of rows of labelled data; nothing of running text.
    pub fn ask(self) -> Option<Ask> {
        match self {
            Self::Masks => None,
            Self::Classes => Some(Ask::Classes),
            Self::Several => Some(Ask::Several),
            Self::Tags => Some(Ask::Tags),
            Self::Spans => Some(Ask::Spans),
            Self::Numbers => Some(Ask::Numbers),
            Self::Pairs => Some(Ask::Pairs),
        }
    }

    /// What is learned from stories, if no data is given.
    pub fn exercise(self) -> Option<Exercise> {
        match self {
            Self::Masks => Some(Exercise::Masks),
            Self::Classes => Some(Exercise::Labels),
            Self::Tags => Some(Exercise::Entities),
            Self::Spans => Some(Exercise::Questions),
            Self::Pairs => Some(Exercise::Paraphrases),
            Self::Several | Self::Numbers => None,
        }
    }
}

/// How rows become tokens.
#[derive(Clone)]
pub(crate) struct Encoding {
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) frame: Frame,
    pub(crate) purpose: Purpose,
    /// How many labels there are.
    pub(crate) labels: usize,
    /// Tokens from one window of a long context to the next.
    pub(crate) stride: Option<usize>,
}

/// What is needed to understand the answer to a row of tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Detail {
    /// Which row of the data it is of.
    pub(crate) row: usize,
    /// For each word the token that has its tag, if there is one.
    pub(crate) words: Vec<Option<usize>>,
    /// The bytes of each token of the context that the row holds.
    pub(crate) places: Vec<Range<usize>>,
    /// Where these tokens begin in the row.
    pub(crate) at: usize,
}

/// Rows of tokens, and which rows of the data were cut.
#[derive(Default)]
pub(crate) struct Encoded {
    pub(crate) features: Vec<Feature>,
    pub(crate) details: Vec<Detail>,
    pub(crate) cut: Cut,
}

impl Encoding {
    /// All rows, in order.
    pub(crate) fn all<'a>(&self, rows: impl Iterator<Item = &'a Row>) -> Result<Encoded> {
        let mut encoded = Encoded::default();
        for (number, row) in rows.enumerate() {
            let (features, cut) = self.row(row)?;
            if cut {
                encoded.cut.add(number);
            }
            for (feature, detail) in features {
                encoded.features.push(feature);
                encoded.details.push(Detail { row: number, ..detail });
            }
        }
        Ok(encoded)
    }

    /// One row, of more than one row of tokens if its context is long; and whether some of it did
    /// not fit.
    pub(crate) fn row(&self, row: &Row) -> Result<(Vec<(Feature, Detail)>, bool)> {
        let encode = |text: &str| self.tokenizer.encode(text);
        let second = || row.second.as_deref().map(encode).transpose();
        match &row.answer {
            Answer::Tags(words) => {
                let (ids, places) = self.places(&row.text)?;
                let framed = self.frame.one(&ids);
                let (tags, words) = align_tags(words, &places, &framed);
                let cut = framed.cut > 0;
                let feature = Feature { tags, ..Feature::new(framed) };
                Ok((vec![(feature, Detail { words, ..Detail::default() })], cut))
            }
            Answer::Span(answer, _) => self.windows(row, answer),
            Answer::Similar(_) if self.purpose == Purpose::Masks => {
                let framed = self.frame.one(&encode(&row.text)?);
                let cut = framed.cut > 0;
                Ok((vec![(Feature::new(framed), Detail::default())], cut))
            }
            Answer::Similar(_) => {
                let framed = self.frame.one(&encode(&row.text)?);
                let other = match second()? {
                    Some(second) => self.frame.one(&second),
                    None => framed.clone(), // dropout makes the difference
                };
                let cut = framed.cut + other.cut > 0;
                let feature = Feature { other: Some(other.ids), ..Feature::new(framed) };
                Ok((vec![(feature, Detail::default())], cut))
            }
            Answer::Class(_) | Answer::Several(_) | Answer::Numbers(_) | Answer::Text(_) => {
                let first = encode(&row.text)?;
                let framed = match second()? {
                    Some(second) => self.frame.two(&first, &second),
                    None => self.frame.one(&first),
                };
                let cut = framed.cut > 0;
                let feature = Feature::new(framed).with(self.target(&row.answer));
                Ok((vec![(feature, Detail::default())], cut))
            }
        }
    }

    fn target(&self, answer: &Answer) -> Target {
        match answer {
            Answer::Class(class) => Target::Class(*class),
            Answer::Several(classes) => {
                let applies = |label: usize| classes.contains(&(label as u32));
                Target::Several((0..self.labels).map(applies).collect())
            }
            Answer::Numbers(numbers) => Target::Numbers(numbers.clone()),
            Answer::Tags(_) | Answer::Span(..) | Answer::Similar(_) | Answer::Text(_) => {
                Target::None
            }
        }
    }

    fn windows(&self, row: &Row, answer: &Range<usize>) -> Result<(Vec<(Feature, Detail)>, bool)> {
        let question = self.tokenizer.encode(row.second.as_deref().unwrap_or_default())?;
        let (ids, places) = self.places(&row.text)?;
        let windows = self.frame.windows(&question, &ids, self.stride);
        let of = |(framed, held): (_, Range<usize>)| {
            let framed: hearken_data::frames::Framed = framed;
            let at = framed.second.as_ref().map_or(0, |second| second.start);
            // The first token stands for no answer in this window.
            let span = locate_answer(answer, &places, &held, at).unwrap_or([0, 0]);
            let detail = Detail { places: places[held].to_vec(), at, ..Detail::default() };
            (Feature::new(framed).with(Target::Span(span)), detail)
        };
        Ok((windows.rows.into_iter().map(of).collect(), windows.cut > 0))
    }

    /// The tokens of a text and their bytes.
    fn places(&self, text: &str) -> Result<(Vec<u32>, Vec<Range<usize>>)> {
        Ok(self.tokenizer.encode_with_places(text)?.into_iter().unzip())
    }
}
