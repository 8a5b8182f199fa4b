//! Prefix language models: which part of a row is given, and which is to be learned.
//!
//! All tokens of a row see its prefix, in both directions; what follows is causal. Targets inside of
//! the prefix do not count, since the model sees them.

use crate::config::RunConfig;
use hearken_base::settings::{Setting, Value};
use hearken_base::{Error, Result};
use hearken_data::batches::{Batch, IGNORED};
use hearken_data::tokenizer::Tokenizer;
use hearken_nn::config::ModelConfig;
use hearken_nn::pass::Layout;
use hearken_tensor::rng::{Key, Rng};
use serde::Serialize;
use std::sync::Arc;

/// The site of the lengths of prefixes: "prefixes".
const PREFIXES: u64 = 0x7072_6566_6978_6573;

/// Where the prefix of a row ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PrefixConfig {
    /// Somewhere within these shares of the row, another place in every step.
    Share {
        /// From here on.
        least: f64,
        /// Up to here.
        most: f64,
    },
    /// Behind the first of these tokens; a row without them has no prefix.
    Separator {
        /// The text of the separator.
        text: String,
    },
}

impl Setting for PrefixConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.choice(&["share", "separator"], |kind, t| {
            Ok(match kind {
                "separator" => Self::Separator { text: t.required("text")? },
                _ => Self::Share { least: t.or("least", 0.0)?, most: t.or("most", 0.5)? },
            })
        })
    }
}

impl Default for PrefixConfig {
    fn default() -> Self {
        Self::Share { least: 0.0, most: 0.5 }
    }
}

impl PrefixConfig {
    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// Finds prefixes.
#[derive(Clone, Debug)]
pub enum Prefixes {
    /// Within these shares of a row.
    Share {
        /// From here on.
        least: f64,
        /// Up to here.
        most: f64,
    },
    /// Behind these tokens.
    Separator(Vec<u32>),
}

impl Prefixes {
    /// As the configuration says; `None` for a model without prefixes.
    pub fn of(config: &RunConfig, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let ModelConfig::Decoder(decoder) = &config.model else { return Ok(None) };
        if !decoder.stack.prefix {
            return Ok(None);
        }
        match &config.data.prefix {
            PrefixConfig::Share { least, most } => {
                if !(0.0 <= *least && least <= most && *most < 1.0) {
                    return Err(Error::new(
                        format!("data.prefix is from {least} to {most} of a row"),
                        "shares rise and lie between 0 and 1: 0 and 0.5 are usual",
                    ));
                }
                Ok(Some(Self::Share { least: *least, most: *most }))
            }
            PrefixConfig::Separator { text } => {
                let tokens = tokenizer.encode(text)?;
                if tokens.is_empty() {
                    return Err(Error::new(
                        "data.prefix.text has no tokens",
                        "name the text that stands between what is given and what is learned",
                    ));
                }
                Ok(Some(Self::Separator(tokens)))
            }
        }
    }

    /// The prefix of each row of a batch. `draw` gives a number from 0 to 1 for a row; in an
    /// evaluation 0.5.
    fn lengths(&self, batch: &Batch, draw: impl Fn(usize) -> f64) -> Vec<usize> {
        let one = |row: usize| {
            let length = batch.length_of(row);
            match self {
                Self::Share { least, most } => {
                    let share = least + (most - least) * draw(row);
                    ((share * length as f64).round() as usize).min(length)
                }
                Self::Separator(tokens) => {
                    let start = row * batch.length;
                    let ids = batch.inputs.get(start..start + length).unwrap_or_default();
                    let found = ids.windows(tokens.len()).position(|part| part == tokens);
                    found.map_or(0, |at| at + tokens.len())
                }
            }
        };
        (0..batch.rows).map(one).collect()
    }

    /// Finds the prefixes of a batch of an evaluation, and takes its targets inside of them away.
    pub(crate) fn of_evaluation(&self, batch: &mut Batch) -> Arc<[usize]> {
        self.apply(batch, |_| 0.5)
    }

    /// The same for a batch of training, whose rows are those of the step from `first` on: the
    /// prefix of a row does not depend on how a step is divided into micro-batches.
    pub(crate) fn of_training(
        &self,
        batch: &mut Batch,
        [seed, step]: [u64; 2],
        first: usize,
    ) -> Arc<[usize]> {
        self.apply(batch, |row| {
            let site = PREFIXES.wrapping_add((first + row) as u64);
            let [low, high] = Key { seed, step, site }.words();
            Rng::new(u64::from(high) << 32 | u64::from(low)).unit()
        })
    }

    fn apply(&self, batch: &mut Batch, draw: impl Fn(usize) -> f64) -> Arc<[usize]> {
        let lengths = self.lengths(batch, draw);
        for (targets, prefix) in batch.targets.chunks_mut(batch.length.max(1)).zip(&lengths) {
            // The last token of the prefix has the first one behind it as its target.
            targets.iter_mut().take(prefix.saturating_sub(1)).for_each(|target| *target = IGNORED);
        }
        lengths.into()
    }
}

/// A layout with these prefixes.
pub(crate) fn with_prefixes(layout: Layout, prefixes: Option<Arc<[usize]>>) -> Layout {
    match prefixes {
        Some(prefixes) if prefixes.iter().any(|prefix| *prefix > 0) => {
            Layout { prefixes: Some(prefixes), ..layout }
        }
        _ => layout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        Batch::new(2, 5, vec![1, 2, 9, 3, 4, 5, 6, 7, 8, 9], vec![2, 9, 3, 4, 5, 6, 7, 8, 9, 1])
    }

    #[test]
    fn targets_inside_of_the_prefix_do_not_count() {
        let mut separated = batch();
        let prefixes = Prefixes::Separator(vec![2, 9]).of_evaluation(&mut separated);
        assert_eq!(*prefixes, [3, 0]);
        assert_eq!(separated.targets[..5], [IGNORED, IGNORED, 3, 4, 5]);
        assert_eq!(separated.targets[5..], batch().targets[5..]);
        let mut shared = batch();
        let prefixes = Prefixes::Share { least: 0.2, most: 0.6 }.of_evaluation(&mut shared);
        assert_eq!((&*prefixes, shared.counted()), (&[2, 2][..], 8));
    }

    #[test]
    fn prefixes_of_training_depend_on_the_row_and_the_step_alone() {
        let how = Prefixes::Share { least: 0.0, most: 0.9 };
        let of = |step, first| how.of_training(&mut batch(), [7, step], first).to_vec();
        assert_eq!(of(3, 0)[1], of(3, 1)[0]);
        let all: Vec<usize> = (0..50).flat_map(|step| of(step, 0)).collect();
        assert!((0..5).all(|length| all.contains(&length)), "{all:?}");
    }

    #[test]
    fn rows_without_a_prefix_have_the_usual_layout() {
        assert_eq!(with_prefixes(Layout::default(), Some([0, 0].into())), Layout::default());
        assert!(with_prefixes(Layout::default(), Some([0, 2].into())).prefixes.is_some());
    }
}
