//! RoBERTa: as BERT, with one type of tokens, and positions that count from 2: the first rows of its
//! table belong to padding and to nothing.
//!
//! | class | head | pooler |
//! |---|---|---|
//! | `RobertaModel` | none, or an embedding of texts | where the file has one |
//! | `RobertaForMaskedLM` | tokens | no |
//! | `RobertaForSequenceClassification` | classes, or numbers | `classifier.dense` |
//! | `RobertaForTokenClassification` | tags | no |
//! | `RobertaForQuestionAnswering` | spans | no |

use super::names::{Names, Part, Row, part, row};
use super::{Family, as_encoder, bert, encoders};
use crate::json::{Fields, merged};
use hearken_base::Result;
use hearken_nn::config::{EncoderConfig, FeedForwardKind, HeadConfig, ModelConfig};
use serde_json::{Value, json};

/// The padding's id is 1, and positions begin behind it.
const PAD: u32 = 1;
const FIRST: usize = PAD as usize + 1;

pub(super) static FAMILY: Family = Family {
    model_type: "roberta",
    architecture: "RobertaModel",
    read_config,
    write_config,
    names: Names::By(names),
    optional_prefix: "roberta.",
    ignored: &[
        "roberta.embeddings.position_ids",
        // Copies of the embedding and the bias, if they are tied; a bias without use, if not.
        "lm_head.decoder.weight",
        "lm_head.decoder.bias",
        "lm_head.bias",
        "roberta.pooler.dense.weight",
        "roberta.pooler.dense.bias",
    ],
};

const BODY: &[Row] = bert::body!(
    "roberta",
    part(Part::Behind(FIRST), "position.weight", "roberta.embeddings.position_embeddings.weight")
);

fn names(config: &ModelConfig) -> Vec<Row> {
    let Some(EncoderConfig { head, tied, .. }) = as_encoder(config) else { return Vec::new() };
    let mut rows = BODY.to_vec();
    match head {
        HeadConfig::None {} | HeadConfig::Embedding { .. } => {
            rows.push(row("pooler.*", "roberta.pooler.dense.*"));
        }
        HeadConfig::Tokens { .. } => {
            rows.push(row("head.transform.*", "lm_head.dense.*"));
            rows.push(row("head.norm.*", "lm_head.layer_norm.*"));
            if *tied {
                rows.push(row("head.bias", "lm_head.bias"));
            } else {
                rows.push(row("head.*", "lm_head.decoder.*"));
                rows.push(part(Part::Copy, "head.bias", "lm_head.bias"));
            }
        }
        HeadConfig::Classes { .. } | HeadConfig::Numbers { .. } => {
            rows.push(row("pooler.*", "classifier.dense.*"));
            rows.push(row("head.*", "classifier.out_proj.*"));
        }
        HeadConfig::Tags { .. } => rows.push(row("head.*", "classifier.*")),
        HeadConfig::Spans {} => rows.push(row("head.*", "qa_outputs.*")),
    }
    rows
}

fn read_config(fields: &Fields<'_>) -> Result<ModelConfig> {
    fields.only("pad_token_id", PAD)?;
    let head = encoders::read_head(fields, "Roberta")?;
    let key = "max_position_embeddings";
    let rows = fields.size_or(key, 512)?;
    let Some(context) = rows.checked_sub(FIRST).filter(|context| *context > 0) else {
        return Err(fields.malformed(key, "more than 2, which padding takes"));
    };
    let config = bert::read_variation(fields, head, context)?;
    if matches!(config.head, HeadConfig::Tokens { .. })
        && config.stack.feed_forward.kind != FeedForwardKind::Gelu
    {
        // Its head has this one, whatever the blocks have.
        return Err(fields.unsupported("hidden_act", "gelu"));
    }
    Ok(ModelConfig::Encoder(config))
}

fn write_config(config: &ModelConfig) -> Option<Value> {
    let config = as_encoder(config)?;
    let gelu = config.stack.feed_forward.kind == FeedForwardKind::Gelu;
    let fits = config.types == 1 && (gelu || !matches!(config.head, HeadConfig::Tokens { .. }));
    let rows = config.context.checked_add(FIRST)?;
    let own = json!({ "pad_token_id": PAD });
    let shared = bert::write_variation(config, "Roberta", rows)?;
    fits.then(|| merged(shared, own))
}
