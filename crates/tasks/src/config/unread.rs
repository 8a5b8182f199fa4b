//! Settings that would do nothing.

use super::RunConfig;
use crate::prefix::PrefixConfig;
use hearken_base::{Error, Result};
use hearken_nn::config::ModelConfig;

impl RunConfig {
    /// Refuses settings that a new run would not read. A run that goes on may have some, which did
    /// nothing before either.
    pub fn check_that_all_is_read(&self) -> Result<()> {
        let RunConfig { model, data, task, train, .. } = self;
        let pairs = "pairs are learned with --config translation; without --target the texts are \
                     learned as they are";
        let has_prefix = model.stack().is_some_and(|stack| stack.prefix);
        let kept = model.stack().is_some_and(|stack| stack.reversible)
            || matches!(model, ModelConfig::Recurrent(_) | ModelConfig::RecurrentSeq2seq(_));
        let scale = match model {
            ModelConfig::Recurrent(config) => config.init.query_key_scale,
            ModelConfig::Convolution(config) => config.init.query_key_scale,
            ModelConfig::RecurrentSeq2seq(config) => config.init.query_key_scale,
            ModelConfig::Decoder(_) | ModelConfig::Encoder(_) | ModelConfig::EncoderDecoder(_) => {
                1.0
            }
        };
        let [message, hint] = if train.gradient_checkpointing && kept {
            [
                "train.gradient_checkpointing is true, and this model has no blocks to compute again",
                "reversible layers compute everything back already, and recurrent ones cannot: leave it \
                 out",
            ]
        } else if task.denoise && !model.has_source() {
            [
                "task.denoise is true, and the model is no encoder-decoder: it cannot write what was \
                 taken out of a text",
                "--config translation is one, or --init with one; encoders guess hidden words with \
                 --task masks",
            ]
        } else if !data.targets.is_empty() && !model.has_source() {
            [
                "there are files of targets, and the model is no encoder-decoder: it would not read \
                 them",
                pairs,
            ]
        } else if !data.targets.is_empty() && task.denoise {
            ["there are files of targets, and task.denoise learns from sources alone", pairs]
        } else if data.prefix != PrefixConfig::default() && !has_prefix {
            [
                "data.prefix says what is given of each row, and the model has no prefix",
                "set model.prefix=true, too",
            ]
        } else if data.most_tokens.is_some() && data.paths.is_empty() && model.has_source() {
            ["data.most_tokens is for texts of your own, and there are none", "leave it out"]
        } else if task.translations == 0 {
            ["task.translations is 0: nothing would be judged", "500 are usual"]
        } else if scale != 1.0 {
            [
                "model.init.query_key_scale is of queries and keys, and this model has none",
                "leave it out",
            ]
        } else {
            return Ok(());
        };
        Err(Error::new(message, hint))
    }
}
