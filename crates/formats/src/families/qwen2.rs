//! Qwen2: `Qwen2ForCausalLM`. A Llama with biases on queries, keys and values alone. Layers from
//! `max_window_layers` on may see a window; here all of them must, or none.

use super::llama::{IGNORED, NAMES, layer_types, read_variation, write_variation};
use super::names::Names;
use super::{Family, as_decoder};
use crate::json::{Fields, merged};
use hearken_base::Result;
use hearken_nn::config::{AttentionConfig, BiasConfig, ModelConfig};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    model_type: "qwen2",
    architecture: "Qwen2ForCausalLM",
    read_config,
    write_config,
    names: Names::Table(NAMES),
    optional_prefix: "model.",
    ignored: IGNORED,
};

/// `num_key_value_heads` of a file that does not have it.
const KV_HEADS: usize = 32;
/// `sliding_window` of a file that does not have it.
const WINDOW: usize = 4096;
/// `max_window_layers` of a file that does not have it.
const WHOLE_LAYERS: usize = 28;

const BIAS: BiasConfig = BiasConfig { attention_in: true, ..BiasConfig::NONE };

fn read_config(fields: &Fields<'_>) -> Result<ModelConfig> {
    let attention = if slides(fields)? { window(fields)? } else { AttentionConfig::Full {} };
    read_variation(fields, Some(KV_HEADS), BIAS, attention)
}

/// Do all layers see a window?
fn slides(fields: &Fields<'_>) -> Result<bool> {
    match layer_types(fields)? {
        Some("full_attention") => return Ok(false),
        Some("sliding_attention") => return Ok(true),
        Some(_) => {
            let known = "full_attention or sliding_attention for all layers";
            return Err(fields.unsupported("layer_types", known));
        }
        None => {}
    }
    let whole = fields.size_or("max_window_layers", WHOLE_LAYERS)?;
    let null = fields.has("sliding_window") && fields.present("sliding_window").is_none();
    if !fields.truth_or("use_sliding_window", false)? || null {
        return Ok(false);
    }
    match whole {
        0 => Ok(true),
        _ if whole >= fields.size("num_hidden_layers")? => Ok(false),
        _ => Err(fields.unsupported("max_window_layers", "0, or at least num_hidden_layers")),
    }
}

fn window(fields: &Fields<'_>) -> Result<AttentionConfig> {
    if !fields.truth_or("use_sliding_window", false)? {
        return Err(fields.malformed("use_sliding_window", "true, as layer_types says"));
    }
    let size = if fields.has("sliding_window") { fields.size("sliding_window")? } else { WINDOW };
    Ok(AttentionConfig::Window { size })
}

fn write_config(config: &ModelConfig) -> Option<Value> {
    let stack = &as_decoder(config)?.stack;
    // RMSNorm never has a bias, whatever is said of norms.
    if (BiasConfig { norm: false, ..stack.bias }) != BIAS {
        return None;
    }
    let own = match stack.attention {
        AttentionConfig::Full {} => json!({ "use_sliding_window": false }),
        AttentionConfig::Window { size } => json!({
            "use_sliding_window": true,
            "sliding_window": size,
            "max_window_layers": 0,
        }),
        AttentionConfig::Sparse { .. } => return None,
    };
    // Only heads of another width than usual need to say so.
    let usual = stack.head_width() == stack.width / stack.heads;
    let heads = if usual { json!({}) } else { json!({ "head_dim": stack.head_width() }) };
    write_variation(config, merged(own, heads))
}
