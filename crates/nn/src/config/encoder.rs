//! Encoders: what surrounds their stack, and what they are used for.

use super::StackConfig;
use hearken_base::settings::{Setting, Table, Value};
use hearken_base::{Result, names};
use serde::{Serialize, Serializer};

/// A Transformer that reads a whole text at once, each token in view of all others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EncoderConfig {
    /// V; 0 means: as many as the tokenizer has.
    pub vocabulary: usize,
    /// The longest sequence it is made for.
    pub context: usize,
    /// How many types of tokens there are (BERT: 2, for the first and the second of two texts);
    /// 0 for none.
    pub types: usize,
    /// Is the sum of the embeddings normed, as in BERT?
    pub embedding_norm: bool,
    /// What is made of the first token's hidden state.
    pub pooler: PoolerConfig,
    /// Is the head that predicts tokens the embedding, transposed? Of no meaning with other heads.
    pub tied: bool,
    /// Its blocks.
    #[serde(flatten)]
    pub stack: StackConfig,
    /// What it is used for.
    pub head: HeadConfig,
}

impl EncoderConfig {
    /// Reads it from the table of a model.
    pub fn fields(t: &Table<'_>) -> Result<Self> {
        Ok(Self {
            vocabulary: t.or("vocabulary", 0)?,
            context: t.required("context")?,
            types: t.or("types", 0)?,
            embedding_norm: t.or("embedding_norm", false)?,
            pooler: t.or("pooler", PoolerConfig::None)?,
            tied: t.or("tied", true)?,
            stack: StackConfig::fields(t)?,
            head: t.or("head", HeadConfig::None {})?,
        })
    }
}

/// A layer on the hidden state of a text's first token: `f(W·h₀ + b)`. `true` for the usual one,
/// `false` for none, or the name of f.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolerConfig {
    /// There is none.
    None,
    /// f = tanh (BERT).
    Tanh,
    /// f = max(x, 0) (DistilBERT's classifier).
    Relu,
}

impl Setting for PoolerConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        if let Ok(has) = bool::read(value) {
            return Ok(if has { Self::Tanh } else { Self::None });
        }
        Ok(match value.name(&["tanh", "relu", "none"])? {
            "relu" => Self::Relu,
            "none" => Self::None,
            _ => Self::Tanh,
        })
    }
}

impl Serialize for PoolerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_bool(false),
            Self::Tanh => serializer.serialize_bool(true),
            Self::Relu => serializer.serialize_str("relu"),
        }
    }
}

/// What an encoder is used for: what stands on its last hidden states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum HeadConfig {
    /// Nothing: hidden states are the result.
    None {},
    /// Predicts hidden tokens (masked language models).
    Tokens {
        /// With a layer of its own before the vocabulary, as in BERT: dense, activation, norm; and a
        /// bias for every token.
        transform: bool,
    },
    /// Labels a text.
    Classes {
        /// Their names, in the order of the logits; none: as the data has them.
        labels: Vec<String>,
        /// May a text have several labels, or none? Then each is decided by itself.
        several: bool,
    },
    /// Labels every token (named entities).
    Tags {
        /// Their names, in the order of the logits; none: as the data has them.
        labels: Vec<String>,
    },
    /// Finds the first and the last token of an answer.
    Spans {},
    /// Predicts numbers of a text (regression).
    Numbers {
        /// How many.
        outputs: usize,
    },
    /// A vector for a whole text.
    Embedding {
        /// How the hidden states of its tokens become one.
        pooling: Pooling,
        /// Is it scaled to length 1?
        normalised: bool,
        /// Texts are cut to so many tokens; default: the context.
        #[serde(skip_serializing_if = "Option::is_none")]
        most_tokens: Option<usize>,
    },
}

impl Setting for HeadConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        const KINDS: [&str; 7] =
            ["none", "tokens", "classes", "tags", "spans", "numbers", "embedding"];
        value.choice(&KINDS, |kind, t| {
            Ok(match kind {
                "tokens" => Self::Tokens { transform: t.or("transform", true)? },
                "classes" => Self::Classes {
                    labels: t.or("labels", Vec::new())?,
                    several: t.or("several", false)?,
                },
                "tags" => Self::Tags { labels: t.or("labels", Vec::new())? },
                "spans" => Self::Spans {},
                "numbers" => Self::Numbers { outputs: t.or("outputs", 1)? },
                "embedding" => Self::Embedding {
                    pooling: t.or("pooling", Pooling::Mean)?,
                    normalised: t.or("normalised", true)?,
                    most_tokens: t.optional("most_tokens")?,
                },
                _ => Self::None {},
            })
        })
    }
}

impl HeadConfig {
    /// How many numbers it gives for a text or a token, but for logits of tokens.
    pub fn outputs(&self) -> usize {
        match self {
            Self::None {} | Self::Tokens { .. } | Self::Embedding { .. } => 0,
            Self::Classes { labels, .. } | Self::Tags { labels } => labels.len(),
            Self::Spans {} => 2,
            Self::Numbers { outputs } => *outputs,
        }
    }

    /// Does it have parameters?
    pub fn is_bare(&self) -> bool {
        matches!(self, Self::None {} | Self::Embedding { .. })
    }

    /// The names of its labels, if it has labels.
    pub fn labels(&self) -> Option<&[String]> {
        match self {
            Self::Classes { labels, .. } | Self::Tags { labels } => Some(labels),
            _ => None,
        }
    }

    /// Names its labels. Does nothing to a head without.
    pub fn set_labels(&mut self, names: Vec<String>) {
        if let Self::Classes { labels, .. } | Self::Tags { labels } = self {
            *labels = names;
        }
    }
}

/// How the hidden states of a text's tokens become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// That of the first token.
    Cls,
    /// Their mean, without padding.
    Mean,
    /// That of the last token before the padding.
    Last,
}

names!(Pooling { "cls" => Cls, "mean" => Mean, "last" => Last });
