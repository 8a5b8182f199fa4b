//! Mixtral: `MixtralForCausalLM`. A Mistral whose feed-forward layers are mixtures of experts, with the
//! weights of the chosen ones divided by their sum.
//!
//! The factor of the load-balance loss is `router_aux_loss_coef`. What `transformers` has no field for
//! (the z-loss, a capacity) stands under names of ours, which it passes over.

use super::Family;
use super::llama::{IGNORED, read_variation, write_variation};
use super::names::{Names, Part, Row, part, row};
use crate::json::{Fields, merged, number};
use hearken_base::Result;
use hearken_nn::config::{AttentionConfig, BiasConfig, ExpertsConfig, ModelConfig};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    model_type: "mixtral",
    architecture: "MixtralForCausalLM",
    read_config,
    write_config,
    names: Names::Table(NAMES),
    optional_prefix: "model.",
    ignored: IGNORED,
};

const NAMES: &[Row] = &[
    row("embedding.weight", "model.embed_tokens.weight"),
    row("blocks.{}.norm1.weight", "model.layers.{}.input_layernorm.weight"),
    part(Part::Queries, "blocks.{}.attention.qkv.*", "model.layers.{}.self_attn.q_proj.*"),
    part(Part::Keys, "blocks.{}.attention.qkv.*", "model.layers.{}.self_attn.k_proj.*"),
    part(Part::Values, "blocks.{}.attention.qkv.*", "model.layers.{}.self_attn.v_proj.*"),
    row("blocks.{}.attention.out.*", "model.layers.{}.self_attn.o_proj.*"),
    row("blocks.{}.norm2.weight", "model.layers.{}.post_attention_layernorm.weight"),
    row("blocks.{}.feed_forward.router.*", "model.layers.{}.block_sparse_moe.gate.*"),
    part(
        Part::Gate,
        "blocks.{}.feed_forward.experts.{}.up.*",
        "model.layers.{}.block_sparse_moe.experts.{}.w1.*",
    ),
    part(
        Part::Up,
        "blocks.{}.feed_forward.experts.{}.up.*",
        "model.layers.{}.block_sparse_moe.experts.{}.w3.*",
    ),
    row(
        "blocks.{}.feed_forward.experts.{}.down.*",
        "model.layers.{}.block_sparse_moe.experts.{}.w2.*",
    ),
    row("norm.weight", "model.norm.weight"),
    row("head.weight", "lm_head.weight"),
];

/// `num_key_value_heads` of a file that does not have it.
const KV_HEADS: usize = 8;
/// `num_local_experts` and `num_experts_per_tok` of a file that does not have them.
const EXPERTS: [usize; 2] = [8, 2];
/// Ours.
const Z_LOSS: &str = "router_z_loss_coef";
const CAPACITY: &str = "expert_capacity_factor";

fn read_config(fields: &Fields<'_>) -> Result<ModelConfig> {
    let attention = match fields.present("sliding_window") {
        Some(_) => AttentionConfig::Window { size: fields.size("sliding_window")? },
        None => AttentionConfig::Full {},
    };
    if fields.number_or("router_jitter_noise", 0.0)? != 0.0 {
        return Err(fields.unsupported("router_jitter_noise", "0"));
    }
    let [count, top] = EXPERTS;
    let capacity = match fields.present(CAPACITY) {
        Some(_) => Some(fields.number_or(CAPACITY, 1.0)?),
        None => None,
    };
    let experts = ExpertsConfig {
        count: fields.size_or("num_local_experts", count)?,
        top: fields.size_or("num_experts_per_tok", top)?,
        normalised: true,
        capacity,
        balance: fields.number_or("router_aux_loss_coef", 0.001)?,
        z_loss: fields.number_or(Z_LOSS, 0.0)?,
    };
    let config = read_variation(fields, Some(KV_HEADS), BiasConfig::NONE, attention)?;
    Ok(match config {
        ModelConfig::Decoder(mut config) => {
            config.stack.experts = Some(experts);
            ModelConfig::Decoder(config)
        }
        other => other,
    })
}

fn write_config(config: &ModelConfig) -> Option<Value> {
    let stack = config.stack()?;
    let ExpertsConfig { count, top, normalised, capacity, balance, z_loss } = stack.experts?;
    let window = match stack.attention {
        AttentionConfig::Full {} => Value::Null,
        AttentionConfig::Window { size } => json!(size),
        AttentionConfig::Sparse { .. } => return None,
    };
    // RMSNorm never has a bias, whatever is said of norms.
    if (BiasConfig { norm: false, ..stack.bias }) != BiasConfig::NONE || !normalised {
        return None;
    }
    let mut own = json!({
        "head_dim": stack.head_width(),
        "sliding_window": window,
        "num_local_experts": count,
        "num_experts_per_tok": top,
        "router_aux_loss_coef": number(balance),
        Z_LOSS: number(z_loss),
    });
    if let Some(capacity) = capacity {
        own = merged(own, json!({ CAPACITY: number(capacity) }));
    }
    write_variation(config, own)
}
