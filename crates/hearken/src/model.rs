//! The arguments of commands that work with a model, and lists of tokens on the command line.

use crate::failure::Failure;
use crate::terminal::say;
use hearken::data::tokenizer::Tokenizer;
use hearken::tasks::OpenModel;
use hearken::tensor::ops::cross_entropy::IGNORED;
use std::path::PathBuf;

/// Which model: shared by all commands that use one.
#[derive(clap::Args)]
pub(crate) struct ModelArguments {
    /// A model directory, or a run (its best checkpoint, or its last) [default: the newest run]
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,
}

impl ModelArguments {
    /// Finds and loads it.
    pub(crate) fn open(&self) -> Result<OpenModel, Failure> {
        let mut warn = |text: &str| say!("warning: {text}");
        Ok(OpenModel::open(self.model.as_deref(), &mut warn)?)
    }
}

/// Which tokenizer, for commands that read text.
#[derive(clap::Args)]
pub(crate) struct TokenizerArguments {
    /// A tokenizer.json or a directory that holds one [default: the model's own]
    #[arg(long, value_name = "PATH")]
    pub(crate) tokenizer: Option<PathBuf>,
}

impl TokenizerArguments {
    /// The one that is meant, if there is one.
    pub(crate) fn of(&self, model: &OpenModel) -> Result<Option<Tokenizer>, Failure> {
        Ok(model.tokenizer(self.tokenizer.as_deref())?)
    }

    /// The one that is meant, where nothing can be done without it.
    pub(crate) fn require(&self, model: &OpenModel, hint: &str) -> Result<Tokenizer, Failure> {
        Ok(model.require_tokenizer(self.tokenizer.as_deref(), hint)?)
    }
}

/// Says that a saved temperature is used.
pub(crate) fn note_temperature(temperature: f64) {
    say!(
        "note: logits are divided by {temperature:.3}, the temperature saved with the model \
         (calibration.json; --uncalibrated does without)"
    );
}

/// Reads `1,2,3`.
pub(crate) fn parse_ids(text: &str) -> Result<Vec<u32>, String> {
    let one = |part: &str| {
        part.trim().parse().map_err(|_| format!("'{part}' is no token: give numbers as in 1,2,3"))
    };
    text.split(',').map(one).collect()
}

/// A list is one value to the command line, not one per token.
#[derive(Clone)]
pub(crate) struct IdList(pub(crate) Vec<u32>);

pub(crate) fn parse_id_list(text: &str) -> Result<IdList, String> {
    parse_ids(text).map(IdList)
}

/// Reads `1,2,3`, where a negative number (-100, say) is a target that does not count.
pub(crate) fn parse_targets(text: &str) -> Result<Vec<u32>, String> {
    let one = |part: &str| {
        let part = part.trim();
        match part.parse::<i64>() {
            Ok(target) if target < 0 => Ok(IGNORED),
            _ => parse_ids(part).map(|ids| ids[0]),
        }
    };
    text.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_one_by_one() {
        assert_eq!(parse_ids("1, 2,30"), Ok(vec![1, 2, 30]));
        assert!(parse_ids("1,x").unwrap_err().contains("'x' is no token"));
        assert!(parse_ids("").is_err() && parse_ids("-1").is_err());
        assert_eq!(parse_targets("5,-100,6"), Ok(vec![5, IGNORED, 6]));
    }
}
