//! Llama: `LlamaForCausalLM`. RMSNorm before each layer, rotary positions, SwiGLU, grouped heads;
//! biases on all projections of attention or none, and on all of the feed-forward layer or none.
//!
//! Mistral and Qwen2 are variations: they share its names and most of its fields.

use super::names::{Names, Part, Row, part, row};
use super::{Family, as_decoder, common, rope};
use crate::json::{Fields, merged, number};
use hearken_base::Result;
use hearken_nn::config::{
    AttentionConfig, BiasConfig, DecoderConfig, DropoutConfig, FeedForwardConfig, FeedForwardKind,
    InitConfig, ModelConfig, NormConfig, NormKind, Placement, StackConfig,
};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    model_type: "llama",
    architecture: "LlamaForCausalLM",
    read_config,
    write_config,
    names: Names::Table(NAMES),
    optional_prefix: "model.",
    ignored: IGNORED,
};

pub(super) const NAMES: &[Row] = &[
    row("embedding.weight", "model.embed_tokens.weight"),
    row("blocks.{}.norm1.weight", "model.layers.{}.input_layernorm.weight"),
    part(Part::Queries, "blocks.{}.attention.qkv.*", "model.layers.{}.self_attn.q_proj.*"),
    part(Part::Keys, "blocks.{}.attention.qkv.*", "model.layers.{}.self_attn.k_proj.*"),
    part(Part::Values, "blocks.{}.attention.qkv.*", "model.layers.{}.self_attn.v_proj.*"),
    row("blocks.{}.attention.out.*", "model.layers.{}.self_attn.o_proj.*"),
    row("blocks.{}.norm2.weight", "model.layers.{}.post_attention_layernorm.weight"),
    part(Part::Gate, "blocks.{}.feed_forward.up.*", "model.layers.{}.mlp.gate_proj.*"),
    part(Part::Up, "blocks.{}.feed_forward.up.*", "model.layers.{}.mlp.up_proj.*"),
    row("blocks.{}.feed_forward.down.*", "model.layers.{}.mlp.down_proj.*"),
    row("norm.weight", "model.norm.weight"),
    row("head.weight", "lm_head.weight"),
];

pub(super) const IGNORED: &[&str] = &[
    // Frequencies, which are computed.
    "model.layers.{}.self_attn.rotary_emb.inv_freq",
    "model.rotary_emb.inv_freq",
    // A copy of the embedding, if they are tied.
    "lm_head.weight",
];

fn read_config(fields: &Fields<'_>) -> Result<ModelConfig> {
    let attention = fields.truth_or("attention_bias", false)?;
    let bias = BiasConfig {
        attention_in: attention,
        attention_out: attention,
        feed_forward: fields.truth_or("mlp_bias", false)?,
        norm: false,
    };
    read_variation(fields, None, bias, AttentionConfig::Full {})
}

fn write_config(config: &ModelConfig) -> Option<Value> {
    let stack = &as_decoder(config)?.stack;
    let bias = stack.bias;
    let fits = stack.attention == AttentionConfig::Full {}
        && bias.attention_in == bias.attention_out
        && stack.width.is_multiple_of(stack.heads); // transformers checks this, whatever head_dim is
    let own = json!({
        "head_dim": stack.head_width(),
        "attention_bias": bias.attention_in,
        "mlp_bias": bias.feed_forward,
    });
    fits.then(|| write_variation(config, own)).flatten()
}

/// A model of this family or one like it, which fixes the biases and who sees whom. `kv_heads` is
/// the default number of key/value heads; None: as many as heads.
pub(super) fn read_variation(
    fields: &Fields<'_>,
    kv_heads: Option<usize>,
    bias: BiasConfig,
    attention: AttentionConfig,
) -> Result<ModelConfig> {
    fields.only("hidden_act", "silu")?;
    let heads = fields.size("num_attention_heads")?;
    let width = fields.size("hidden_size")?;
    let eps = fields.number_or("rms_norm_eps", 1e-6)?;
    let ff_width = Some(fields.size("intermediate_size")?);
    let key = "num_key_value_heads";
    let kv_heads = kv_heads.filter(|_| !fields.has(key)).unwrap_or(heads);
    let dropout = fields.number_or("attention_dropout", 0.0)?;
    let deviation = fields.number_or("initializer_range", 0.02)?;
    Ok(ModelConfig::Decoder(DecoderConfig {
        vocabulary: fields.size("vocab_size")?,
        context: fields.size("max_position_embeddings")?,
        tied: fields.truth_or("tie_word_embeddings", false)?,
        stack: StackConfig {
            kv_heads: Some(fields.size_or(key, kv_heads)?),
            head_width: Some(fields.size_or("head_dim", width / heads.max(1))?),
            norm: NormConfig { kind: NormKind::Rms, placement: Placement::Pre, eps },
            position: rope::read(fields)?,
            feed_forward: FeedForwardConfig { kind: FeedForwardKind::Swiglu, width: ff_width },
            attention,
            bias,
            dropout: DropoutConfig { attention: dropout, ..DropoutConfig::default() },
            init: InitConfig { deviation, ..InitConfig::default() },
            ..StackConfig::new(fields.size("num_hidden_layers")?, width, heads)
        },
    }))
}

/// The fields that this family shares with those like it, and `own`.
pub(super) fn write_variation(config: &ModelConfig, own: Value) -> Option<Value> {
    let config = as_decoder(config)?;
    let stack = &config.stack;
    let fits = stack.residual_scale == 1.0
        && stack.scaled_scores
        && stack.norm.placement == Placement::Pre
        && stack.norm.kind == NormKind::Rms
        && stack.feed_forward.kind == FeedForwardKind::Swiglu
        && stack.value_width() == stack.head_width();
    let shared = json!({
        "max_position_embeddings": config.context,
        "hidden_size": stack.width,
        "num_hidden_layers": stack.layers,
        "num_attention_heads": stack.heads,
        "num_key_value_heads": stack.kv_heads(),
        "intermediate_size": stack.feed_forward_width(),
        "hidden_act": "silu",
        "rms_norm_eps": number(stack.norm.eps),
        "attention_dropout": number(stack.dropout.attention),
        "rope_parameters": rope::write(&stack.position)?,
    });
    fits.then(|| merged(merged(common(config), shared), own))
}

/// What all layers see, where `layer_types` says it: an error if they differ.
pub(super) fn layer_types<'a>(fields: &Fields<'a>) -> Result<Option<&'a str>> {
    let Some(types) = fields.present("layer_types") else { return Ok(None) };
    let types: Option<Vec<&str>> =
        types.as_array().and_then(|types| types.iter().map(Value::as_str).collect());
    let types = types.ok_or_else(|| fields.malformed("layer_types", "a list of names"))?;
    let Some(first) = types.first() else { return Ok(None) };
    if types.iter().any(|other| other != first) {
        return Err(fields.unsupported("layer_types", "the same for all layers"));
    }
    Ok(Some(first))
}
