//! T5: `T5ForConditionalGeneration`. RMSNorm before each layer, buckets of distances that all layers of
//! a stack share, scores that are not divided by √D, no biases, one embedding for both sides.
//!
//! | | v1.0 | v1.1 |
//! |---|---|---|
//! | `feed_forward_proj` | `relu` | `gated-gelu` |
//! | head | the embedding, of hidden states divided by √C | its own |
//!
//! Whether the head is tied shows in the weights: newer versions of `transformers` write
//! `tie_word_embeddings: true` either way, and `scale_decoder_outputs` for the division.

use super::names::{Names, Part, Row, part, row};
use super::{Family, as_encoder_decoder};
use crate::json::{Fields, number};
use hearken_base::Result;
use hearken_nn::config::{
    AttentionConfig, BiasConfig, Cross, DropoutConfig, EncoderDecoderConfig, EncoderSizes,
    FeedForwardConfig, FeedForwardKind, ModelConfig, NormConfig, NormKind, Placement,
    PositionConfig, StackConfig,
};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    model_type: "t5",
    architecture: "T5ForConditionalGeneration",
    read_config,
    write_config,
    names: Names::By(names),
    optional_prefix: "",
    ignored: &[
        // Copies of the embedding.
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        "lm_head.weight",
        // Of the first checkpoints, without use.
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
    ],
};

/// Of one stack, whose feed-forward layer is number `$last` of a block.
macro_rules! stack {
    ($side:literal, $last:literal) => {
        [
            row(
                concat!($side, ".position.weight"),
                concat!($side, ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
            ),
            row(
                concat!($side, ".blocks.{}.norm1.*"),
                concat!($side, ".block.{}.layer.0.layer_norm.*"),
            ),
            part(
                Part::Queries,
                concat!($side, ".blocks.{}.attention.qkv.*"),
                concat!($side, ".block.{}.layer.0.SelfAttention.q.*"),
            ),
            part(
                Part::Keys,
                concat!($side, ".blocks.{}.attention.qkv.*"),
                concat!($side, ".block.{}.layer.0.SelfAttention.k.*"),
            ),
            part(
                Part::Values,
                concat!($side, ".blocks.{}.attention.qkv.*"),
                concat!($side, ".block.{}.layer.0.SelfAttention.v.*"),
            ),
            row(
                concat!($side, ".blocks.{}.attention.out.*"),
                concat!($side, ".block.{}.layer.0.SelfAttention.o.*"),
            ),
            row(
                concat!($side, ".blocks.{}.norm2.*"),
                concat!($side, ".block.{}.layer.", $last, ".layer_norm.*"),
            ),
            row(
                concat!($side, ".blocks.{}.feed_forward.down.*"),
                concat!($side, ".block.{}.layer.", $last, ".DenseReluDense.wo.*"),
            ),
            row(concat!($side, ".norm.*"), concat!($side, ".final_layer_norm.*")),
        ]
    };
}

/// The first matrix of a feed-forward layer: gate and up, if it is gated.
macro_rules! up {
    ($side:literal, $last:literal) => {
        (
            row(
                concat!($side, ".blocks.{}.feed_forward.up.*"),
                concat!($side, ".block.{}.layer.", $last, ".DenseReluDense.wi.*"),
            ),
            [
                part(
                    Part::Gate,
                    concat!($side, ".blocks.{}.feed_forward.up.*"),
                    concat!($side, ".block.{}.layer.", $last, ".DenseReluDense.wi_0.*"),
                ),
                part(
                    Part::Up,
                    concat!($side, ".blocks.{}.feed_forward.up.*"),
                    concat!($side, ".block.{}.layer.", $last, ".DenseReluDense.wi_1.*"),
                ),
            ],
        )
    };
}

const CROSS: [Row; 5] = [
    row("decoder.blocks.{}.norm_cross.*", "decoder.block.{}.layer.1.layer_norm.*"),
    row(
        "decoder.blocks.{}.cross_attention.queries.*",
        "decoder.block.{}.layer.1.EncDecAttention.q.*",
    ),
    row("decoder.blocks.{}.cross_attention.keys.*", "decoder.block.{}.layer.1.EncDecAttention.k.*"),
    row(
        "decoder.blocks.{}.cross_attention.values.*",
        "decoder.block.{}.layer.1.EncDecAttention.v.*",
    ),
    row("decoder.blocks.{}.cross_attention.out.*", "decoder.block.{}.layer.1.EncDecAttention.o.*"),
];

fn names(config: &ModelConfig) -> Vec<Row> {
    let Some(config) = as_encoder_decoder(config) else { return Vec::new() };
    let mut rows = vec![row("embedding.weight", "shared.weight")];
    rows.extend(stack!("encoder", "1"));
    rows.extend(stack!("decoder", "2"));
    rows.extend(CROSS);
    for (plain, gated) in [up!("encoder", "1"), up!("decoder", "2")] {
        if config.stack.feed_forward.kind.is_gated() {
            rows.extend(gated);
        } else {
            rows.push(plain);
        }
    }
    rows.push(row("head.weight", "lm_head.weight"));
    rows
}

/// Names of the function of the feed-forward layer; the first of ours is written.
const FEED_FORWARDS: &[(&str, FeedForwardKind)] = &[
    ("relu", FeedForwardKind::Relu),
    ("gated-gelu", FeedForwardKind::GegluTanh),
    ("gated-gelu_new", FeedForwardKind::GegluTanh),
    ("gated-silu", FeedForwardKind::Swiglu),
    ("gelu_new", FeedForwardKind::GeluTanh),
    ("gelu", FeedForwardKind::Gelu),
    ("silu", FeedForwardKind::Silu),
];

fn read_config(fields: &Fields<'_>) -> Result<ModelConfig> {
    let key = "feed_forward_proj";
    let name = fields.text_or(key, "relu")?;
    let kind = FEED_FORWARDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    let kind = kind.ok_or_else(|| {
        let names: Vec<&str> = FEED_FORWARDS.iter().map(|(name, _)| *name).collect();
        fields.unsupported(key, &format!("one of {}", names.join(", ")))
    })?;
    fields.only("is_gated_act", kind.is_gated())?;
    let encoder_layers = fields.size("num_layers")?;
    let layers = fields.size_or("num_decoder_layers", encoder_layers)?;
    let tied = fields.truth_or("tie_word_embeddings", true)?;
    let eps = fields.number_or("layer_norm_epsilon", 1e-6)?;
    let stack = StackConfig {
        head_width: Some(fields.size("d_kv")?),
        norm: NormConfig { kind: NormKind::Rms, placement: Placement::Pre, eps },
        position: PositionConfig::T5 {
            buckets: fields.size_or("relative_attention_num_buckets", 32)?,
            max_distance: fields.size_or("relative_attention_max_distance", 128)?,
        },
        feed_forward: FeedForwardConfig { kind, width: Some(fields.size("d_ff")?) },
        scaled_scores: false,
        dropout: DropoutConfig::everywhere(fields.number_or("dropout_rate", 0.1)?),
        ..StackConfig::new(layers, fields.size("d_model")?, fields.size("num_heads")?)
    };
    Ok(ModelConfig::EncoderDecoder(EncoderDecoderConfig {
        vocabulary: fields.size("vocab_size")?,
        tied,
        scaled_logits: fields.truth_or("scale_decoder_outputs", tied)?,
        encoder: EncoderSizes {
            layers: (encoder_layers != layers).then_some(encoder_layers),
            ..EncoderSizes::default()
        },
        // Distances have no end; this is what the published models were trained on.
        ..EncoderDecoderConfig::new(fields.size_or("n_positions", 512)?, stack)
    }))
}

fn write_config(config: &ModelConfig) -> Option<Value> {
    let config = as_encoder_decoder(config)?;
    let (stack, encoder) = (&config.stack, config.encoder_stack());
    let kind = stack.feed_forward.kind;
    let name = FEED_FORWARDS.iter().find(|(_, known)| *known == kind)?.0;
    let PositionConfig::T5 { buckets, max_distance } = stack.position else { return None };
    // Older versions of transformers read both from `tie_word_embeddings`.
    let fits = config.tied == config.scaled_logits
        && config.shared
        && !config.logits_bias
        && !config.scaled_embeddings
        && config.cross == Cross::Last
        && encoder.heads == stack.heads
        && encoder.feed_forward_width() == stack.feed_forward_width()
        && stack.attention == AttentionConfig::Full {}
        && !stack.scaled_scores
        && stack.residual_scale == 1.0
        && stack.norm.placement == Placement::Pre
        && stack.norm.kind == NormKind::Rms
        // RMSNorm never has a bias, whatever is said of norms.
        && BiasConfig { norm: false, ..stack.bias } == BiasConfig::NONE
        && stack.kv_heads() == stack.heads
        && stack.value_width() == stack.head_width();
    fits.then(|| {
        json!({
            "vocab_size": config.vocabulary,
            "n_positions": config.context,
            "d_model": stack.width,
            "d_kv": stack.head_width(),
            "d_ff": stack.feed_forward_width(),
            "num_layers": encoder.layers,
            "num_decoder_layers": stack.layers,
            "num_heads": stack.heads,
            "relative_attention_num_buckets": buckets,
            "relative_attention_max_distance": max_distance,
            "dropout_rate": number(stack.dropout.residual),
            "layer_norm_epsilon": number(stack.norm.eps),
            "feed_forward_proj": name,
            "is_gated_act": kind.is_gated(),
            "is_encoder_decoder": true,
            "tie_word_embeddings": config.tied,
            "use_cache": true,
        })
    })
}
