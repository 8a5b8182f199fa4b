//! Mistral: `MistralForCausalLM`. A Llama without biases whose tokens see a window: themselves and
//! the `sliding_window` − 1 before, or everything if it is null.

use super::llama::{IGNORED, NAMES, layer_types, read_variation, write_variation};
use super::names::Names;
use super::{Family, as_decoder};
use crate::json::Fields;
use hearken_base::Result;
use hearken_nn::config::{AttentionConfig, BiasConfig, ModelConfig};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    model_type: "mistral",
    architecture: "MistralForCausalLM",
    read_config,
    write_config,
    names: Names::Table(NAMES),
    optional_prefix: "model.",
    ignored: IGNORED,
};

/// `sliding_window` of a file that does not have it: not the same as null.
const WINDOW: usize = 4096;
/// `num_key_value_heads` of a file that does not have it.
const KV_HEADS: usize = 8;

fn read_config(fields: &Fields<'_>) -> Result<ModelConfig> {
    let key = "sliding_window";
    let attention = if fields.has(key) && fields.present(key).is_none() {
        AttentionConfig::Full {}
    } else {
        AttentionConfig::Window { size: fields.size_or(key, WINDOW)? }
    };
    let expected = match attention {
        AttentionConfig::Full {} => "full_attention",
        _ => "sliding_attention",
    };
    if layer_types(fields)?.is_some_and(|types| types != expected) {
        return Err(fields.unsupported("layer_types", &format!("{expected} for all layers")));
    }
    read_variation(fields, Some(KV_HEADS), BiasConfig::NONE, attention)
}

fn write_config(config: &ModelConfig) -> Option<Value> {
    let stack = &as_decoder(config)?.stack;
    let window = match stack.attention {
        AttentionConfig::Full {} => Value::Null,
        AttentionConfig::Window { size } => json!(size),
        AttentionConfig::Sparse { .. } => return None,
    };
    // RMSNorm never has a bias, whatever is said of norms.
    if (BiasConfig { norm: false, ..stack.bias }) != BiasConfig::NONE {
        return None;
    }
    write_variation(config, json!({ "head_dim": stack.head_width(), "sliding_window": window }))
}
