//! The architectures that a directory can hold, one file each.
//!
//! A family says how `config.json` describes a model and has a table of the names of its tensors.
//! To add one, write its file and add it to [`ALL`]; [`names`] explains the table.

mod bert;
mod distilbert;
mod encoders;
mod gpt2;
mod hearken;
mod llama;
mod marian;
mod mistral;
mod mixtral;
pub mod names;
mod qwen2;
mod roberta;
mod rope;
mod t5;

use crate::json::Fields;
use hearken_base::Result;
use hearken_nn::config::{
    DecoderConfig, EncoderConfig, EncoderDecoderConfig, ModelConfig, StackConfig,
};
use names::Names;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt;

/// Every family. A model is saved as the first that can express it; ours can express everything.
pub static ALL: &[&Family] = &[
    &gpt2::FAMILY,
    &llama::FAMILY,
    &mistral::FAMILY,
    &mixtral::FAMILY,
    &qwen2::FAMILY,
    &bert::FAMILY,
    &roberta::FAMILY,
    &distilbert::FAMILY,
    &t5::FAMILY,
    &marian::FAMILY,
    &hearken::FAMILY,
];

/// An architecture as `transformers` knows it.
pub struct Family {
    /// `model_type` in config.json.
    pub model_type: &'static str,
    /// The class in `architectures`, unless what [`Family::write_config`] gives says otherwise.
    pub architecture: &'static str,
    /// The model that a config.json describes.
    pub read_config: fn(&Fields<'_>) -> Result<ModelConfig>,
    /// The fields of config.json that describe a model; `None` if they cannot.
    pub write_config: fn(&ModelConfig) -> Option<Value>,
    /// What its tensors are called.
    pub names: Names,
    /// The start of their names that some files leave out; may be empty.
    pub optional_prefix: &'static str,
    /// Patterns of names of tensors that carry nothing and are not read.
    pub ignored: &'static [&'static str],
}

impl Family {
    /// The family of this `model_type`.
    pub fn find(model_type: &str) -> Option<&'static Self> {
        ALL.iter().copied().find(|family| family.model_type == model_type)
    }

    /// The first family that can express a model, and the fields that describe it.
    pub fn expressing(config: &ModelConfig) -> (&'static Self, Value) {
        let mut able = ALL.iter().filter(|family| family.knows(config));
        let found = able.find_map(|family| Some((*family, (family.write_config)(config)?)));
        found.unwrap_or_else(|| panic!("no family can express {config:?}"))
    }

    /// Does the family know what is special about a model's blocks? Only ours knows everything.
    fn knows(&self, config: &ModelConfig) -> bool {
        let Some(stack) = config.stack() else { return true };
        match self.model_type {
            "hearken" => true,
            "mixtral" => stack.is_usual(),
            _ => stack.is_usual() && stack.experts.is_none(),
        }
    }

    /// The family that a config.json names. The nearest name is no help: programs write it, and
    /// Mixtral is not a misspelt Mistral.
    pub fn named_by(fields: &Fields<'_>) -> Result<&'static Self> {
        let known: Vec<&str> = ALL.iter().map(|family| family.model_type).collect();
        let expected = format!("one of {}", known.join(", "));
        let Some(name) = fields.present("model_type").and_then(Value::as_str) else {
            return Err(fields.malformed("model_type", &expected));
        };
        Self::find(name).ok_or_else(|| fields.unsupported("model_type", &expected))
    }
}

/// There is one of each.
impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.model_type == other.model_type
    }
}

impl Eq for Family {}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.model_type)
    }
}

/// The configuration of a decoder, for families that are decoders.
fn as_decoder(config: &ModelConfig) -> Option<&DecoderConfig> {
    match config {
        ModelConfig::Decoder(config) => Some(config),
        _ => None,
    }
}

/// The configuration of an encoder, for families that are encoders.
fn as_encoder(config: &ModelConfig) -> Option<&EncoderConfig> {
    match config {
        ModelConfig::Encoder(config) => Some(config),
        _ => None,
    }
}

/// The configuration of an encoder-decoder, for families that are such.
fn as_encoder_decoder(config: &ModelConfig) -> Option<&EncoderDecoderConfig> {
    match config {
        ModelConfig::EncoderDecoder(config) => Some(config),
        _ => None,
    }
}

/// The blocks that a parameter belongs to; `None` of models without blocks.
fn stack_of<'a>(config: &'a ModelConfig, parameter: &str) -> Option<Cow<'a, StackConfig>> {
    match config {
        ModelConfig::EncoderDecoder(config) if parameter.starts_with("encoder.") => {
            Some(Cow::Owned(config.encoder_stack()))
        }
        _ => config.stack().map(Cow::Borrowed),
    }
}

/// Is this a model without a head, whose tensors have no prefix?
fn is_bare(config: &ModelConfig) -> bool {
    as_encoder(config).is_some_and(|config| config.head.is_bare())
}

/// The fields that all families of `transformers` share.
fn common(config: &DecoderConfig) -> Value {
    json!({
        "vocab_size": config.vocabulary,
        "tie_word_embeddings": config.tied,
        "initializer_range": crate::json::number(config.stack.init.deviation),
        "use_cache": true,
    })
}
