//! Rotary positions in config.json: `rope_parameters` (transformers 5), or `rope_theta` and
//! `rope_scaling` (before).

use crate::json::{Fields, number};
use hearken_base::Result;
use hearken_nn::config::{PositionConfig, RopeScaling};
use serde_json::{Value, json};

pub(super) fn read(fields: &Fields<'_>) -> Result<PositionConfig> {
    let rope = fields.inner(&["rope_parameters", "rope_scaling"]);
    for fields in [fields, &rope] {
        if fields.number_or("partial_rotary_factor", 1.0)? != 1.0 {
            return Err(fields.unsupported("partial_rotary_factor", "1"));
        }
    }
    let base = rope.number_or("rope_theta", fields.number_or("rope_theta", 10_000.0)?)?;
    let context = || match rope.present("original_max_position_embeddings") {
        Some(_) => rope.size("original_max_position_embeddings"),
        None => fields.size("max_position_embeddings"),
    };
    let key = if rope.present("rope_type").is_some() { "rope_type" } else { "type" };
    let scaling = match rope.text_or(key, "default")? {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: rope.number_or("factor", 1.0)? },
        "llama3" => RopeScaling::Llama3 {
            factor: rope.number_or("factor", 8.0)?,
            original_context: context()?,
            low_frequency_factor: rope.number_or("low_freq_factor", 1.0)?,
            high_frequency_factor: rope.number_or("high_freq_factor", 4.0)?,
        },
        "yarn" => read_yarn(&rope, context()?)?,
        _ => return Err(rope.unsupported(key, "one of default, linear, yarn, llama3")),
    };
    Ok(PositionConfig::Rope { base, share: 1.0, scaling })
}

fn read_yarn(rope: &Fields<'_>, original_context: usize) -> Result<RopeScaling> {
    // What changes the factor of attention has no place in our configuration.
    for key in ["attention_factor", "mscale", "mscale_all_dim"] {
        if rope.present(key).is_some() {
            return Err(rope.unsupported(key, "null: 0.1·ln(factor) + 1 is used"));
        }
    }
    rope.only("truncate", true)?;
    Ok(RopeScaling::Yarn {
        factor: rope.number_or("factor", 1.0)?,
        original_context,
        beta_fast: rope.number_or("beta_fast", 32.0)?,
        beta_slow: rope.number_or("beta_slow", 1.0)?,
    })
}

/// `rope_parameters`; `None` for positions that it cannot express.
pub(super) fn write(position: &PositionConfig) -> Option<Value> {
    let PositionConfig::Rope { base, share: 1.0, scaling } = position else { return None };
    let theta = number(*base);
    Some(match *scaling {
        RopeScaling::None => json!({ "rope_type": "default", "rope_theta": theta }),
        RopeScaling::Ntk { .. } => return None,
        RopeScaling::Linear { factor } => {
            json!({ "rope_type": "linear", "rope_theta": theta, "factor": number(factor) })
        }
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow } => json!({
            "rope_type": "yarn",
            "rope_theta": theta,
            "factor": number(factor),
            "original_max_position_embeddings": original_context,
            "beta_fast": number(beta_fast),
            "beta_slow": number(beta_slow),
        }),
        RopeScaling::Llama3 {
            factor,
            original_context,
            low_frequency_factor,
            high_frequency_factor,
        } => json!({
            "rope_type": "llama3",
            "rope_theta": theta,
            "factor": number(factor),
            "original_max_position_embeddings": original_context,
            "low_freq_factor": number(low_frequency_factor),
            "high_freq_factor": number(high_frequency_factor),
        }),
    })
}
