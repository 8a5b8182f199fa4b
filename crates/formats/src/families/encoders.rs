//! What BERT and its relatives share: which class of `transformers` has which head, labels, and a
//! stack in BERT's shape.

use crate::json::{Fields, number};
use hearken_base::Result;
use hearken_nn::config::{
    AttentionConfig, BiasConfig, Combine, DropoutConfig, EncoderConfig, FeedForwardKind,
    HeadConfig, InitConfig, NormKind, Placement, PositionConfig, StackConfig,
};
use serde_json::{Map, Value, json};

/// Names of the function between the matrices of a feed-forward layer; the first of ours is written.
pub(super) const ACTIVATIONS: &[(&str, FeedForwardKind)] = &[
    ("gelu", FeedForwardKind::Gelu),
    ("gelu_new", FeedForwardKind::GeluTanh),
    ("gelu_pytorch_tanh", FeedForwardKind::GeluTanh),
    ("relu", FeedForwardKind::Relu),
    ("relu2", FeedForwardKind::SquaredRelu),
    ("silu", FeedForwardKind::Silu),
    ("swish", FeedForwardKind::Silu),
];

/// The function that `key` names.
pub(super) fn read_activation(fields: &Fields<'_>, key: &str) -> Result<FeedForwardKind> {
    let name = fields.text_or(key, "gelu")?;
    let kind = ACTIVATIONS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    kind.ok_or_else(|| {
        let names: Vec<&str> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
        fields.unsupported(key, &format!("one of {}", names.join(", ")))
    })
}

/// The name of a function; `None` if there is none.
pub(super) fn activation_name(kind: FeedForwardKind) -> Option<&'static str> {
    ACTIVATIONS.iter().find(|(_, known)| *known == kind).map(|(name, _)| *name)
}

/// The ends of the names of classes, behind the name of the family.
const MASKED: &str = "ForMaskedLM";
const PRETRAINING: &str = "ForPreTraining";
const SEQUENCE: &str = "ForSequenceClassification";
const TOKEN: &str = "ForTokenClassification";
const QUESTION: &str = "ForQuestionAnswering";
const BARE: &str = "Model";

/// The head of the class that `architectures` names; `family` is what its name begins with.
pub(super) fn read_head(fields: &Fields<'_>, family: &str) -> Result<HeadConfig> {
    let key = "architectures";
    let first = match fields.present(key) {
        None => None,
        Some(Value::Array(names)) if names.is_empty() => None,
        Some(Value::Array(names)) => names.first().and_then(Value::as_str),
        Some(_) => return Err(fields.malformed(key, "a list of names")),
    };
    let Some(class) = first.unwrap_or(family).strip_prefix(family) else {
        return Err(fields.unsupported(key, &expected(family)));
    };
    Ok(match class {
        "" | BARE => HeadConfig::None {},
        MASKED | PRETRAINING => HeadConfig::Tokens { transform: true },
        SEQUENCE => read_sequence_head(fields)?,
        TOKEN => HeadConfig::Tags { labels: read_labels(fields)? },
        QUESTION => HeadConfig::Spans {},
        _ => return Err(fields.unsupported(key, &expected(family))),
    })
}

fn expected(family: &str) -> String {
    let classes = [BARE, MASKED, SEQUENCE, TOKEN, QUESTION].map(|end| format!("{family}{end}"));
    format!("one of {}", classes.join(", "))
}

/// The class of a head.
pub(super) fn class_of(head: &HeadConfig, family: &str) -> String {
    let end = match head {
        HeadConfig::None {} | HeadConfig::Embedding { .. } => BARE,
        HeadConfig::Tokens { .. } => MASKED,
        HeadConfig::Classes { .. } | HeadConfig::Numbers { .. } => SEQUENCE,
        HeadConfig::Tags { .. } => TOKEN,
        HeadConfig::Spans {} => QUESTION,
    };
    format!("{family}{end}")
}

/// One or several labels, or numbers: as `problem_type` says, or else by how many there are.
fn read_sequence_head(fields: &Fields<'_>) -> Result<HeadConfig> {
    let labels = read_labels(fields)?;
    let key = "problem_type";
    Ok(match fields.text_or(key, "")? {
        "regression" => HeadConfig::Numbers { outputs: labels.len() },
        "" if labels.len() == 1 => HeadConfig::Numbers { outputs: 1 },
        "" | "single_label_classification" => HeadConfig::Classes { labels, several: false },
        "multi_label_classification" => HeadConfig::Classes { labels, several: true },
        _ => {
            let known = "regression, single_label_classification or multi_label_classification";
            return Err(fields.malformed(key, known));
        }
    })
}

/// The labels by their numbers: those of `id2label`, or two without names, as `transformers` has it.
fn read_labels(fields: &Fields<'_>) -> Result<Vec<String>> {
    let key = "id2label";
    let bad = || fields.malformed(key, "a name for each number from 0 on");
    let Some(map) = fields.present(key) else {
        // Bounded, as nothing else says that a file has so many.
        let count = fields.size_or("num_labels", 2)?;
        if count > 1 << 20 {
            return Err(fields.malformed("num_labels", "at most 1048576"));
        }
        return Ok((0..count).map(|i| format!("LABEL_{i}")).collect());
    };
    let map = map.as_object().filter(|map| !map.is_empty()).ok_or_else(bad)?;
    (0..map.len())
        .map(|i| map.get(&i.to_string()).and_then(Value::as_str).map(str::to_owned))
        .collect::<Option<Vec<String>>>()
        .ok_or_else(bad)
}

/// The fields that describe a head, beside its class.
pub(super) fn write_head(head: &HeadConfig) -> Value {
    let problem = match head {
        HeadConfig::Classes { several: true, .. } => Some("multi_label_classification"),
        HeadConfig::Classes { several: false, .. } => Some("single_label_classification"),
        HeadConfig::Numbers { .. } => Some("regression"),
        _ => None,
    };
    let numbered: Vec<String> = (0..head.outputs()).map(|i| format!("LABEL_{i}")).collect();
    let labels = match head {
        HeadConfig::Numbers { .. } => &numbered[..],
        _ => head.labels().unwrap_or_default(),
    };
    let mut fields = Map::new();
    if let Some(problem) = problem {
        fields.insert("problem_type".to_owned(), json!(problem));
    }
    if !labels.is_empty() {
        let names = labels.iter().enumerate();
        let by_number: Map<_, _> = names.clone().map(|(i, l)| (i.to_string(), json!(l))).collect();
        let by_name: Map<_, _> = names.map(|(i, l)| (l.clone(), json!(i))).collect();
        fields.insert("id2label".to_owned(), Value::Object(by_number));
        fields.insert("label2id".to_owned(), Value::Object(by_name));
    }
    Value::Object(fields)
}

/// BERT's stack has these choices: post-norm, learned positions, biases everywhere.
pub(super) fn has_the_shape_of_bert(config: &EncoderConfig) -> bool {
    let stack = &config.stack;
    config.embedding_norm
        && stack.attention == AttentionConfig::Full {}
        && stack.scaled_scores
        && stack.residual_scale == 1.0
        && stack.norm.placement == Placement::Post
        && stack.norm.kind == NormKind::Layer
        && stack.position == PositionConfig::Learned { combine: Combine::Add }
        && stack.bias == BiasConfig::ALL
        && stack.kv_heads() == stack.heads
        && stack.head_width() * stack.heads == stack.width
        && stack.value_width() == stack.head_width()
        && config.head != HeadConfig::Tokens { transform: false }
        // Where a label has no name there is nothing to write.
        && config.head.labels().is_none_or(|labels| !labels.is_empty())
}

/// A stack in BERT's shape; what `transformers` leaves as it was drawn is not scaled.
pub(super) fn stack(sizes: [usize; 3], dropout: DropoutConfig, deviation: f32) -> StackConfig {
    let [layers, width, heads] = sizes;
    let init = InitConfig { deviation, scale_residual: false, ..InitConfig::default() };
    StackConfig {
        position: PositionConfig::Learned { combine: Combine::Add },
        bias: BiasConfig::ALL,
        dropout,
        init,
        ..StackConfig::new(layers, width, heads)
    }
}

/// The fields that all encoders of `transformers` share.
pub(super) fn common(config: &EncoderConfig, family: &str) -> Value {
    json!({
        "architectures": [class_of(&config.head, family)],
        "vocab_size": config.vocabulary,
        "tie_word_embeddings": config.tied,
        "initializer_range": number(config.stack.init.deviation),
    })
}
