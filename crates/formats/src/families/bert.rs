//! BERT: a norm behind each residual sum, learned positions, types of tokens, biases everywhere. Its
//! head is that of the class in `architectures`:
//!
//! | class | head | pooler |
//! |---|---|---|
//! | `BertModel` | none, or an embedding of texts | where the file has one |
//! | `BertForMaskedLM`, `BertForPreTraining` | tokens | no |
//! | `BertForSequenceClassification` | classes, or numbers | yes |
//! | `BertForTokenClassification` | tags | no |
//! | `BertForQuestionAnswering` | spans | no |
//!
//! RoBERTa is a variation: it shares its fields and most of its names.

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

pub(super) static FAMILY: Family = Family {
    model_type: "bert",
    architecture: "BertModel",
    read_config,
    write_config,
    names: Names::By(names),
    optional_prefix: "bert.",
    ignored: &[
        // Numbers from 0 on, which older versions saved.
        "bert.embeddings.position_ids",
        // Copies of the embedding and the bias, if they are tied; a bias without use, if not.
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
        "cls.predictions.bias",
        // Of pretraining, beside the masked language model.
        "bert.pooler.dense.weight",
        "bert.pooler.dense.bias",
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
    ],
};

/// Of the embeddings and blocks; `prefix.` stands for the name of the family.
macro_rules! body {
    ($prefix:literal, $position:expr) => {
        &[
            row("embedding.weight", concat!($prefix, ".embeddings.word_embeddings.weight")),
            row("types.weight", concat!($prefix, ".embeddings.token_type_embeddings.weight")),
            $position,
            row("embedding_norm.*", concat!($prefix, ".embeddings.LayerNorm.*")),
            part(
                Part::Queries,
                "blocks.{}.attention.qkv.*",
                concat!($prefix, ".encoder.layer.{}.attention.self.query.*"),
            ),
            part(
                Part::Keys,
                "blocks.{}.attention.qkv.*",
                concat!($prefix, ".encoder.layer.{}.attention.self.key.*"),
            ),
            part(
                Part::Values,
                "blocks.{}.attention.qkv.*",
                concat!($prefix, ".encoder.layer.{}.attention.self.value.*"),
            ),
            row(
                "blocks.{}.attention.out.*",
                concat!($prefix, ".encoder.layer.{}.attention.output.dense.*"),
            ),
            row(
                "blocks.{}.norm1.*",
                concat!($prefix, ".encoder.layer.{}.attention.output.LayerNorm.*"),
            ),
            row(
                "blocks.{}.feed_forward.up.*",
                concat!($prefix, ".encoder.layer.{}.intermediate.dense.*"),
            ),
            row(
                "blocks.{}.feed_forward.down.*",
                concat!($prefix, ".encoder.layer.{}.output.dense.*"),
            ),
            row("blocks.{}.norm2.*", concat!($prefix, ".encoder.layer.{}.output.LayerNorm.*")),
        ]
    };
}
pub(super) use body;

const BODY: &[Row] =
    body!("bert", row("position.weight", "bert.embeddings.position_embeddings.weight"));

fn names(config: &ModelConfig) -> Vec<Row> {
    let Some(EncoderConfig { head, tied, .. }) = as_encoder(config) else { return Vec::new() };
    let mut rows = BODY.to_vec();
    rows.push(row("pooler.*", "bert.pooler.dense.*"));
    match head {
        HeadConfig::None {} | HeadConfig::Embedding { .. } => {}
        HeadConfig::Tokens { .. } => {
            rows.push(row("head.transform.*", "cls.predictions.transform.dense.*"));
            rows.push(row("head.norm.*", "cls.predictions.transform.LayerNorm.*"));
            if *tied {
                rows.push(row("head.bias", "cls.predictions.bias"));
            } else {
                rows.push(row("head.*", "cls.predictions.decoder.*"));
                rows.push(part(Part::Copy, "head.bias", "cls.predictions.bias"));
            }
        }
        HeadConfig::Spans {} => rows.push(row("head.*", "qa_outputs.*")),
        HeadConfig::Classes { .. } | HeadConfig::Tags { .. } | HeadConfig::Numbers { .. } => {
            rows.push(row("head.*", "classifier.*"));
        }
    }
    rows
}

fn read_config(fields: &Fields<'_>) -> Result<ModelConfig> {
    let head = encoders::read_head(fields, "Bert")?;
    let context = fields.size_or("max_position_embeddings", 512)?;
    read_variation(fields, head, context).map(ModelConfig::Encoder)
}

/// A model of this family or one like it, with positions for so many tokens.
pub(super) fn read_variation(
    fields: &Fields<'_>,
    head: HeadConfig,
    context: usize,
) -> Result<EncoderConfig> {
    fields.only("position_embedding_type", "absolute")?;
    fields.only("is_decoder", false)?;
    fields.only("add_cross_attention", false)?;
    let kind = read_activation(fields, "hidden_act")?;
    let eps = fields.number_or("layer_norm_eps", 1e-12)?;
    let hidden = fields.number_or("hidden_dropout_prob", 0.1)?;
    let dropout = DropoutConfig {
        embedding: hidden,
        attention: fields.number_or("attention_probs_dropout_prob", 0.1)?,
        feed_forward: 0.0,
        residual: hidden,
    };
    let sizes = [
        fields.size("num_hidden_layers")?,
        fields.size("hidden_size")?,
        fields.size("num_attention_heads")?,
    ];
    let pools = matches!(
        head,
        HeadConfig::None {} | HeadConfig::Classes { .. } | HeadConfig::Numbers { .. }
    );
    Ok(EncoderConfig {
        vocabulary: fields.size("vocab_size")?,
        context,
        types: fields.size_or("type_vocab_size", 2)?,
        embedding_norm: true,
        pooler: if pools { PoolerConfig::Tanh } else { PoolerConfig::None },
        tied: fields.truth_or("tie_word_embeddings", true)?,
        stack: StackConfig {
            norm: NormConfig { kind: NormKind::Layer, placement: Placement::Post, eps },
            feed_forward: FeedForwardConfig {
                kind,
                width: Some(fields.size("intermediate_size")?),
            },
            ..encoders::stack(sizes, dropout, fields.number_or("initializer_range", 0.02)?)
        },
        head,
    })
}

fn write_config(config: &ModelConfig) -> Option<Value> {
    let config = as_encoder(config)?;
    // One type is RoBERTa, none is DistilBERT.
    if config.types < 2 {
        return None;
    }
    write_variation(config, "Bert", config.context)
}

/// The fields of this family and those like it, whose table of positions has so many rows.
pub(super) fn write_variation(config: &EncoderConfig, family: &str, rows: usize) -> Option<Value> {
    let stack = &config.stack;
    let pooler_fits = match &config.head {
        HeadConfig::None {} | HeadConfig::Embedding { .. } => config.pooler != PoolerConfig::Relu,
        HeadConfig::Classes { .. } | HeadConfig::Numbers { .. } => {
            config.pooler == PoolerConfig::Tanh
        }
        _ => config.pooler == PoolerConfig::None,
    };
    let fits = has_the_shape_of_bert(config) && pooler_fits;
    let own = json!({
        "max_position_embeddings": rows,
        "type_vocab_size": config.types,
        "hidden_size": stack.width,
        "num_hidden_layers": stack.layers,
        "num_attention_heads": stack.heads,
        "intermediate_size": stack.feed_forward_width(),
        "hidden_act": activation_name(stack.feed_forward.kind)?,
        "layer_norm_eps": number(stack.norm.eps),
        "hidden_dropout_prob": number(stack.dropout.residual),
        "attention_probs_dropout_prob": number(stack.dropout.attention),
    });
    let head = write_head(&config.head);
    fits.then(|| merged(merged(encoders::common(config, family), own), head))
}
