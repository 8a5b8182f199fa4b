//! DistilBERT: as BERT without types of tokens and without a pooler. To label a text it has a layer
//! `pre_classifier` with ReLU in the pooler's place.

use super::encoders::{self, activation_name, has_the_shape_of_bert, read_activation, write_head};
use super::names::{Names, Part, Row, part, row};
use super::{Family, as_encoder};
use crate::json::{Fields, merged, number};
use hearken_base::Result;
use hearken_nn::config::{
    DropoutConfig, EncoderConfig, FeedForwardConfig, HeadConfig, ModelConfig, NormConfig, NormKind,
    Placement, PoolerConfig, StackConfig,
};
use serde_json::{Value, json};

/// Of every norm; config.json does not say it.
const EPS: f32 = 1e-12;

pub(super) static FAMILY: Family = Family {
    model_type: "distilbert",
    architecture: "DistilBertModel",
    read_config,
    write_config,
    names: Names::By(names),
    optional_prefix: "distilbert.",
    ignored: &[
        "distilbert.embeddings.position_ids",
        // A copy of the embedding, if they are tied.
        "vocab_projector.weight",
    ],
};

const BODY: &[Row] = &[
    row("embedding.weight", "distilbert.embeddings.word_embeddings.weight"),
    row("position.weight", "distilbert.embeddings.position_embeddings.weight"),
    row("embedding_norm.*", "distilbert.embeddings.LayerNorm.*"),
    part(
        Part::Queries,
        "blocks.{}.attention.qkv.*",
        "distilbert.transformer.layer.{}.attention.q_lin.*",
    ),
    part(
        Part::Keys,
        "blocks.{}.attention.qkv.*",
        "distilbert.transformer.layer.{}.attention.k_lin.*",
    ),
    part(
        Part::Values,
        "blocks.{}.attention.qkv.*",
        "distilbert.transformer.layer.{}.attention.v_lin.*",
    ),
    row("blocks.{}.attention.out.*", "distilbert.transformer.layer.{}.attention.out_lin.*"),
    row("blocks.{}.norm1.*", "distilbert.transformer.layer.{}.sa_layer_norm.*"),
    row("blocks.{}.feed_forward.up.*", "distilbert.transformer.layer.{}.ffn.lin1.*"),
    row("blocks.{}.feed_forward.down.*", "distilbert.transformer.layer.{}.ffn.lin2.*"),
    row("blocks.{}.norm2.*", "distilbert.transformer.layer.{}.output_layer_norm.*"),
];

fn names(config: &ModelConfig) -> Vec<Row> {
    let Some(EncoderConfig { head, .. }) = as_encoder(config) else { return Vec::new() };
    let mut rows = BODY.to_vec();
    match head {
        HeadConfig::None {} | HeadConfig::Embedding { .. } => {}
        HeadConfig::Tokens { .. } => rows.extend([
            row("head.transform.*", "vocab_transform.*"),
            row("head.norm.*", "vocab_layer_norm.*"),
            row("head.*", "vocab_projector.*"),
        ]),
        HeadConfig::Classes { .. } | HeadConfig::Numbers { .. } => {
            rows.extend([row("pooler.*", "pre_classifier.*"), row("head.*", "classifier.*")]);
        }
        HeadConfig::Tags { .. } => rows.push(row("head.*", "classifier.*")),
        HeadConfig::Spans {} => rows.push(row("head.*", "qa_outputs.*")),
    }
    rows
}

fn read_config(fields: &Fields<'_>) -> Result<ModelConfig> {
    let head = encoders::read_head(fields, "DistilBert")?;
    let dropout = fields.number_or("dropout", 0.1)?;
    let dropout = DropoutConfig {
        embedding: dropout,
        attention: fields.number_or("attention_dropout", 0.1)?,
        feed_forward: 0.0,
        residual: dropout,
    };
    let sizes = [
        fields.size_or("n_layers", 6)?,
        fields.size_or("dim", 768)?,
        fields.size_or("n_heads", 12)?,
    ];
    let kind = read_activation(fields, "activation")?;
    let width = Some(fields.size_or("hidden_dim", 3072)?);
    let pools = matches!(head, HeadConfig::Classes { .. } | HeadConfig::Numbers { .. });
    Ok(ModelConfig::Encoder(EncoderConfig {
        vocabulary: fields.size_or("vocab_size", 30522)?,
        context: fields.size_or("max_position_embeddings", 512)?,
        types: 0,
        embedding_norm: true,
        pooler: if pools { PoolerConfig::Relu } else { PoolerConfig::None },
        tied: fields.truth_or("tie_word_embeddings", true)?,
        stack: StackConfig {
            norm: NormConfig { kind: NormKind::Layer, placement: Placement::Post, eps: EPS },
            feed_forward: FeedForwardConfig { kind, width },
            ..encoders::stack(sizes, dropout, fields.number_or("initializer_range", 0.02)?)
        },
        head,
    }))
}

fn write_config(config: &ModelConfig) -> Option<Value> {
    let config = as_encoder(config)?;
    let stack = &config.stack;
    let pools = matches!(config.head, HeadConfig::Classes { .. } | HeadConfig::Numbers { .. });
    let pooler = if pools { PoolerConfig::Relu } else { PoolerConfig::None };
    let fits = has_the_shape_of_bert(config)
        && config.types == 0
        && config.pooler == pooler
        && stack.norm.eps == EPS;
    let own = json!({
        "max_position_embeddings": config.context,
        "dim": stack.width,
        "n_layers": stack.layers,
        "n_heads": stack.heads,
        "hidden_dim": stack.feed_forward_width(),
        "activation": activation_name(stack.feed_forward.kind)?,
        "dropout": number(stack.dropout.residual),
        "attention_dropout": number(stack.dropout.attention),
    });
    let head = write_head(&config.head);
    fits.then(|| merged(merged(encoders::common(config, "DistilBert"), own), head))
}
