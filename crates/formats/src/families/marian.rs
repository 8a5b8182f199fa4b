//! Marian: `MarianMTModel`, the shape of Vaswani et al. 2017. A norm behind each residual sum, sines in
//! the first half of a position and cosines in the second, biases everywhere, a tied head with a bias
//! for every token.

use super::encoders::{activation_name, read_activation};
use super::names::{Names, Part, Row, part, row};
use super::{Family, as_encoder_decoder};
use crate::json::{Fields, number};
use hearken_base::Result;
use hearken_nn::config::{
    AttentionConfig, BiasConfig, Combine, Cross, DropoutConfig, EncoderDecoderConfig, EncoderSizes,
    FeedForwardConfig, InitConfig, ModelConfig, NormConfig, NormKind, Placement, PositionConfig,
    SineOrder, StackConfig,
};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    model_type: "marian",
    architecture: "MarianMTModel",
    read_config,
    write_config,
    names: Names::By(names),
    optional_prefix: "",
    ignored: &[
        // Sines and cosines, which are computed.
        "model.encoder.embed_positions.weight",
        "model.decoder.embed_positions.weight",
        // Copies of the embedding.
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
        "lm_head.weight",
    ],
};

/// `transformers` has no setting for it.
const EPS: f32 = 1e-5;

const POSITION: PositionConfig =
    PositionConfig::Sinusoidal { combine: Combine::Add, order: SineOrder::Halves };

macro_rules! stack {
    ($side:literal) => {
        [
            part(
                Part::Queries,
                concat!($side, ".blocks.{}.attention.qkv.*"),
                concat!("model.", $side, ".layers.{}.self_attn.q_proj.*"),
            ),
            part(
                Part::Keys,
                concat!($side, ".blocks.{}.attention.qkv.*"),
                concat!("model.", $side, ".layers.{}.self_attn.k_proj.*"),
            ),
            part(
                Part::Values,
                concat!($side, ".blocks.{}.attention.qkv.*"),
                concat!("model.", $side, ".layers.{}.self_attn.v_proj.*"),
            ),
            row(
                concat!($side, ".blocks.{}.attention.out.*"),
                concat!("model.", $side, ".layers.{}.self_attn.out_proj.*"),
            ),
            row(
                concat!($side, ".blocks.{}.norm1.*"),
                concat!("model.", $side, ".layers.{}.self_attn_layer_norm.*"),
            ),
            row(
                concat!($side, ".blocks.{}.feed_forward.up.*"),
                concat!("model.", $side, ".layers.{}.fc1.*"),
            ),
            row(
                concat!($side, ".blocks.{}.feed_forward.down.*"),
                concat!("model.", $side, ".layers.{}.fc2.*"),
            ),
            row(
                concat!($side, ".blocks.{}.norm2.*"),
                concat!("model.", $side, ".layers.{}.final_layer_norm.*"),
            ),
        ]
    };
}

const REST: [Row; 9] = [
    row("embedding.weight", "model.shared.weight"),
    row("encoder.embedding.weight", "model.encoder.embed_tokens.weight"),
    row("decoder.embedding.weight", "model.decoder.embed_tokens.weight"),
    row(
        "decoder.blocks.{}.cross_attention.queries.*",
        "model.decoder.layers.{}.encoder_attn.q_proj.*",
    ),
    row(
        "decoder.blocks.{}.cross_attention.keys.*",
        "model.decoder.layers.{}.encoder_attn.k_proj.*",
    ),
    row(
        "decoder.blocks.{}.cross_attention.values.*",
        "model.decoder.layers.{}.encoder_attn.v_proj.*",
    ),
    row(
        "decoder.blocks.{}.cross_attention.out.*",
        "model.decoder.layers.{}.encoder_attn.out_proj.*",
    ),
    row("decoder.blocks.{}.norm_cross.*", "model.decoder.layers.{}.encoder_attn_layer_norm.*"),
    part(Part::OneRow, "head.bias", "final_logits_bias"),
];

fn names(_: &ModelConfig) -> Vec<Row> {
    let stacks = stack!("encoder").into_iter().chain(stack!("decoder"));
    stacks.chain(REST).collect()
}

fn read_config(fields: &Fields<'_>) -> Result<ModelConfig> {
    for key in ["normalize_before", "normalize_embedding", "add_final_layer_norm"] {
        fields.only(key, false)?;
    }
    fields.only("static_position_embeddings", true)?;
    fields.only("tie_word_embeddings", true)?;
    let vocabulary = fields.size("vocab_size")?;
    fields.only("decoder_vocab_size", vocabulary)?;
    let side = |name: &str| -> Result<[usize; 3]> {
        Ok([
            fields.size(&format!("{name}_layers"))?,
            fields.size(&format!("{name}_attention_heads"))?,
            fields.size(&format!("{name}_ffn_dim"))?,
        ])
    };
    let (theirs, [layers, heads, width]) = (side("encoder")?, side("decoder")?);
    let other = |i: usize, ours: usize| theirs.get(i).copied().filter(|size| *size != ours);
    let residual = fields.number_or("dropout", 0.1)?;
    let deviation = fields.number_or("init_std", 0.02)?;
    let stack = StackConfig {
        norm: NormConfig { kind: NormKind::Layer, placement: Placement::Post, eps: EPS },
        position: POSITION,
        feed_forward: FeedForwardConfig {
            kind: read_activation(fields, "activation_function")?,
            width: Some(width),
        },
        bias: BiasConfig::ALL,
        dropout: DropoutConfig {
            embedding: residual,
            attention: fields.number_or("attention_dropout", 0.0)?,
            feed_forward: fields.number_or("activation_dropout", 0.0)?,
            residual,
        },
        init: InitConfig { deviation, scale_residual: false, ..InitConfig::default() },
        ..StackConfig::new(layers, fields.size("d_model")?, heads)
    };
    let context = fields.size_or("max_position_embeddings", 1024)?;
    Ok(ModelConfig::EncoderDecoder(EncoderDecoderConfig {
        vocabulary,
        shared: fields.truth_or("share_encoder_decoder_embeddings", true)?,
        logits_bias: true, // unless the weights have none
        scaled_embeddings: fields.truth_or("scale_embedding", false)?,
        encoder: EncoderSizes {
            layers: other(0, layers),
            heads: other(1, heads),
            feed_forward_width: other(2, width),
        },
        ..EncoderDecoderConfig::new(context, stack)
    }))
}

fn write_config(config: &ModelConfig) -> Option<Value> {
    let config = as_encoder_decoder(config)?;
    let (stack, encoder) = (&config.stack, config.encoder_stack());
    let fits = config.tied
        && !config.scaled_logits
        && config.cross == Cross::Last
        && stack.attention == AttentionConfig::Full {}
        && stack.scaled_scores
        && stack.residual_scale == 1.0
        && stack.norm == NormConfig { kind: NormKind::Layer, placement: Placement::Post, eps: EPS }
        && stack.position == POSITION
        && stack.bias == BiasConfig::ALL
        && [stack, &encoder].iter().all(|stack| {
            stack.kv_heads() == stack.heads
                && stack.head_width() * stack.heads == stack.width
                && stack.value_width() == stack.head_width()
        });
    let activation = activation_name(stack.feed_forward.kind)?;
    fits.then(|| {
        json!({
            "vocab_size": config.vocabulary,
            "decoder_vocab_size": config.vocabulary,
            "max_position_embeddings": config.context,
            "d_model": stack.width,
            "encoder_layers": encoder.layers,
            "encoder_attention_heads": encoder.heads,
            "encoder_ffn_dim": encoder.feed_forward_width(),
            "decoder_layers": stack.layers,
            "decoder_attention_heads": stack.heads,
            "decoder_ffn_dim": stack.feed_forward_width(),
            "activation_function": activation,
            "dropout": number(stack.dropout.residual),
            "attention_dropout": number(stack.dropout.attention),
            "activation_dropout": number(stack.dropout.feed_forward),
            "init_std": number(stack.init.deviation),
            "scale_embedding": config.scaled_embeddings,
            "share_encoder_decoder_embeddings": config.shared,
            "static_position_embeddings": true,
            "normalize_before": false,
            "normalize_embedding": false,
            "forced_eos_token_id": null,
            "is_encoder_decoder": true,
            "tie_word_embeddings": true,
            "use_cache": true,
        })
    })
}
