//! GPT-2: `GPT2LMHeadModel`. LayerNorm before each layer, learned positions, biases everywhere.
//! Matrices are stored as (in, out), and queries, keys and values are one, as ours are.

use super::names::{Names, row, transposed};
use super::{Family, as_decoder, common};
use crate::json::{Fields, merged, number};
use hearken_base::Result;
use hearken_nn::config::{
    AttentionConfig, BiasConfig, Combine, DecoderConfig, DropoutConfig, FeedForwardConfig,
    FeedForwardKind, InitConfig, ModelConfig, NormConfig, NormKind, Placement, PositionConfig,
    StackConfig,
};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    model_type: "gpt2",
    architecture: "GPT2LMHeadModel",
    read_config,
    write_config,
    names: Names::Table(&[
        row("embedding.weight", "transformer.wte.weight"),
        row("position.weight", "transformer.wpe.weight"),
        row("blocks.{}.norm1.*", "transformer.h.{}.ln_1.*"),
        transposed("blocks.{}.attention.qkv.*", "transformer.h.{}.attn.c_attn.*"),
        transposed("blocks.{}.attention.out.*", "transformer.h.{}.attn.c_proj.*"),
        row("blocks.{}.norm2.*", "transformer.h.{}.ln_2.*"),
        transposed("blocks.{}.feed_forward.up.*", "transformer.h.{}.mlp.c_fc.*"),
        transposed("blocks.{}.feed_forward.down.*", "transformer.h.{}.mlp.c_proj.*"),
        row("norm.*", "transformer.ln_f.*"),
        row("head.weight", "lm_head.weight"),
    ]),
    optional_prefix: "transformer.",
    ignored: &[
        // The causal mask, which older versions saved.
        "transformer.h.{}.attn.bias",
        "transformer.h.{}.attn.masked_bias",
        // A copy of the embedding, if they are tied.
        "lm_head.weight",
    ],
};

/// Names of the function between the matrices of a feed-forward layer; the first of ours is written.
const ACTIVATIONS: &[(&str, FeedForwardKind)] = &[
    ("gelu_new", FeedForwardKind::GeluTanh),
    ("gelu_pytorch_tanh", FeedForwardKind::GeluTanh),
    ("gelu_fast", FeedForwardKind::GeluTanh),
    ("gelu", FeedForwardKind::Gelu),
    ("relu", FeedForwardKind::Relu),
    ("relu2", FeedForwardKind::SquaredRelu),
    ("silu", FeedForwardKind::Silu),
    ("swish", FeedForwardKind::Silu),
];

fn read_config(fields: &Fields<'_>) -> Result<ModelConfig> {
    fields.only("scale_attn_by_inverse_layer_idx", false)?;
    fields.only("add_cross_attention", false)?;
    fields.only("scale_attn_weights", true)?;
    let activation = fields.text_or("activation_function", "gelu_new")?;
    let kind = ACTIVATIONS.iter().find(|(name, _)| *name == activation).map(|(_, kind)| *kind);
    let kind = kind.ok_or_else(|| {
        let names: Vec<&str> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
        fields.unsupported("activation_function", &format!("one of {}", names.join(", ")))
    })?;
    let width = fields.size("n_embd")?;
    let ff_width = fields.size_or("n_inner", width.saturating_mul(4))?;
    let eps = fields.number_or("layer_norm_epsilon", 1e-5)?;
    let deviation = fields.number_or("initializer_range", 0.02)?;
    Ok(ModelConfig::Decoder(DecoderConfig {
        vocabulary: fields.size("vocab_size")?,
        context: fields.size("n_positions")?,
        tied: fields.truth_or("tie_word_embeddings", true)?,
        stack: StackConfig {
            norm: NormConfig { kind: NormKind::Layer, placement: Placement::Pre, eps },
            position: PositionConfig::Learned { combine: Combine::Add },
            feed_forward: FeedForwardConfig { kind, width: Some(ff_width) },
            bias: BiasConfig::ALL,
            dropout: DropoutConfig {
                embedding: fields.number_or("embd_pdrop", 0.1)?,
                attention: fields.number_or("attn_pdrop", 0.1)?,
                residual: fields.number_or("resid_pdrop", 0.1)?,
                feed_forward: 0.0,
            },
            init: InitConfig { deviation, ..InitConfig::default() },
            ..StackConfig::new(fields.size("n_layer")?, width, fields.size("n_head")?)
        },
    }))
}

fn write_config(config: &ModelConfig) -> Option<Value> {
    let config = as_decoder(config)?;
    let stack = &config.stack;
    let kind = stack.feed_forward.kind;
    let activation = ACTIVATIONS.iter().find(|(_, known)| *known == kind)?.0;
    let fits = stack.attention == AttentionConfig::Full {}
        && stack.scaled_scores
        && stack.residual_scale == 1.0
        && stack.norm.placement == Placement::Pre
        && stack.norm.kind == NormKind::Layer
        && stack.position == PositionConfig::Learned { combine: Combine::Add }
        && stack.bias == BiasConfig::ALL
        && stack.kv_heads() == stack.heads
        && stack.head_width() * stack.heads == stack.width
        && stack.value_width() == stack.head_width();
    let own = json!({
        "n_positions": config.context,
        "n_embd": stack.width,
        "n_layer": stack.layers,
        "n_head": stack.heads,
        "n_inner": stack.feed_forward_width(),
        "activation_function": activation,
        "layer_norm_epsilon": number(stack.norm.eps),
        "embd_pdrop": number(stack.dropout.embedding),
        "attn_pdrop": number(stack.dropout.attention),
        "resid_pdrop": number(stack.dropout.residual),
    });
    fits.then(|| merged(common(config), own))
}
