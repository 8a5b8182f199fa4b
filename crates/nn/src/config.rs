//! What a model is made of, as data: one value per choice, each with its own parameters.
//!
//! ```toml
//! [model]
//! kind = "decoder"
//! layers = 4
//! width = 128
//! heads = 4
//! context = 64
//! norm = { kind = "layer", placement = "pre" }
//! position = { kind = "rope", base = 10000.0 }
//! feed_forward = "swiglu"
//! ```
//!
//! A [`ModelConfig`] is one of the kinds of models; each has a [`StackConfig`] per stack of blocks
//! and what surrounds it. A choice that has parameters carries them itself, so a combination that
//! makes no sense cannot be written, and a key that is not known is an error with the nearest known
//! one ([`hearken_base::settings`]). What cannot be seen from one value alone is checked by
//! `validate`.

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod choices;
mod encoder;
mod encoder_decoder;
mod experts;
mod mechanism;
mod mixing;
mod recurrent;
mod validate;

pub use choices::{
    AttentionConfig, BiasConfig, Combine, DropoutConfig, FeedForwardConfig, FeedForwardKind,
    InitConfig, InitKind, NormConfig, NormKind, Placement, PositionConfig, RopeScaling, SineOrder,
};
pub use encoder::{EncoderConfig, HeadConfig, PoolerConfig, Pooling};
pub use encoder_decoder::{Cross, EncoderDecoderConfig, EncoderSizes};
pub use experts::ExpertsConfig;
pub use mechanism::{FeatureMap, MechanismConfig};
pub use mixing::{Shared, SoftmaxConfig};
pub use recurrent::{
    CellKind, ConvolutionConfig, RecurrentConfig, RecurrentSeq2seqConfig, SourceAttention,
};

use hearken_base::Result;
use hearken_base::settings::{Setting, Table, Value};
use serde::Serialize;

/// A model of any kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ModelConfig {
    /// Reads left to right and predicts the next token (GPT, Llama).
    Decoder(DecoderConfig),
    /// Reads a whole text at once, in both directions (BERT).
    Encoder(EncoderConfig),
    /// Reads left to right with a state that it carries along (RNN, GRU, LSTM).
    Recurrent(RecurrentConfig),
    /// Reads left to right with convolutions, each over a few tokens.
    Convolution(ConvolutionConfig),
    /// Reads a source with an encoder and writes a target with a decoder (T5, Marian).
    EncoderDecoder(EncoderDecoderConfig),
    /// The same with recurrent networks, with attention or without.
    RecurrentSeq2seq(RecurrentSeq2seqConfig),
}

/// The kinds of models, as configurations name them.
const KINDS: &[&str] =
    &["decoder", "encoder", "encoder-decoder", "recurrent", "recurrent-seq2seq", "convolution"];

impl Setting for ModelConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.choice(KINDS, |kind, t| match kind {
            "encoder-decoder" => EncoderDecoderConfig::fields(t).map(Self::EncoderDecoder),
            "encoder" => EncoderConfig::fields(t).map(Self::Encoder),
            "recurrent" => RecurrentConfig::fields(t).map(Self::Recurrent),
            "recurrent-seq2seq" => RecurrentSeq2seqConfig::fields(t).map(Self::RecurrentSeq2seq),
            "convolution" => ConvolutionConfig::fields(t).map(Self::Convolution),
            _ => DecoderConfig::fields(t).map(Self::Decoder),
        })
    }
}

impl ModelConfig {
    /// Is this a model that can be built? The error says what is wrong and how to fix it.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Decoder(config) => config.validate(),
            Self::Encoder(config) => config.validate(),
            Self::EncoderDecoder(config) => config.validate(),
            Self::Recurrent(config) => config.validate(),
            Self::Convolution(config) => config.validate(),
            Self::RecurrentSeq2seq(config) => config.validate(),
        }
    }

    /// V; 0 if it is left to the tokenizer.
    pub fn vocabulary(&self) -> usize {
        match self {
            Self::Decoder(config) => config.vocabulary,
            Self::Encoder(config) => config.vocabulary,
            Self::EncoderDecoder(config) => config.vocabulary,
            Self::Recurrent(config) => config.vocabulary,
            Self::Convolution(config) => config.vocabulary,
            Self::RecurrentSeq2seq(config) => config.vocabulary,
        }
    }

    /// Sets V.
    pub fn set_vocabulary(&mut self, vocabulary: usize) {
        match self {
            Self::Decoder(config) => config.vocabulary = vocabulary,
            Self::Encoder(config) => config.vocabulary = vocabulary,
            Self::EncoderDecoder(config) => config.vocabulary = vocabulary,
            Self::Recurrent(config) => config.vocabulary = vocabulary,
            Self::Convolution(config) => config.vocabulary = vocabulary,
            Self::RecurrentSeq2seq(config) => config.vocabulary = vocabulary,
        }
    }

    /// The longest sequence it is made for.
    pub fn context(&self) -> usize {
        match self {
            Self::Decoder(config) => config.context,
            Self::Encoder(config) => config.context,
            Self::EncoderDecoder(config) => config.context,
            Self::Recurrent(config) => config.context,
            Self::Convolution(config) => config.context,
            Self::RecurrentSeq2seq(config) => config.context,
        }
    }

    /// Changes the longest sequence it is made for.
    pub fn set_context(&mut self, context: usize) {
        match self {
            Self::Decoder(config) => config.context = context,
            Self::Encoder(config) => config.context = context,
            Self::EncoderDecoder(config) => config.context = context,
            Self::Recurrent(config) => config.context = context,
            Self::Convolution(config) => config.context = context,
            Self::RecurrentSeq2seq(config) => config.context = context,
        }
    }

    /// How many numbers the head of an encoder gives for a text or a token; 0 if it has no such
    /// head.
    pub fn outputs(&self) -> usize {
        match self {
            Self::Encoder(config) => config.head.outputs(),
            _ => 0,
        }
    }

    /// How many types of tokens it knows; 0 for none.
    pub fn types(&self) -> usize {
        match self {
            Self::Encoder(config) => config.types,
            _ => 0,
        }
    }

    /// What an encoder is used for; `None` of other kinds.
    pub fn head(&self) -> Option<&HeadConfig> {
        match self {
            Self::Encoder(config) => Some(&config.head),
            _ => None,
        }
    }

    /// Does it read a source and write a target?
    pub fn has_source(&self) -> bool {
        matches!(self, Self::EncoderDecoder(_) | Self::RecurrentSeq2seq(_))
    }

    /// The names of its labels, if it has labels.
    pub fn labels(&self) -> Option<&[String]> {
        self.head().and_then(HeadConfig::labels)
    }

    /// Does it read the whole text again for every token that it writes?
    pub fn recomputes(&self) -> bool {
        matches!(self, Self::Decoder(config) if config.stack.mechanism.recomputes())
    }

    /// All of its sizes.
    pub fn sizes(&self) -> String {
        match self {
            Self::Decoder(DecoderConfig { vocabulary, context, stack, .. })
            | Self::Encoder(EncoderConfig { vocabulary, context, stack, .. }) => {
                format!("{}, context {context}, vocabulary {vocabulary}", stack.sizes())
            }
            Self::EncoderDecoder(config) => config.sizes(),
            Self::Recurrent(config) => config.sizes(),
            Self::Convolution(config) => config.sizes(),
            Self::RecurrentSeq2seq(config) => config.sizes(),
        }
    }

    /// In a few words: sizes that a person wants to see first.
    pub fn summary(&self) -> String {
        match self {
            Self::Decoder(DecoderConfig { vocabulary, context, stack, .. })
            | Self::Encoder(EncoderConfig { vocabulary, context, stack, .. }) => format!(
                "{} × {} wide, {}, context {context}, {vocabulary} tokens",
                counted(stack.layers, "layer"),
                stack.width,
                counted(stack.heads, "head")
            ),
            Self::EncoderDecoder(config) => config.summary(),
            Self::Recurrent(config) => config.summary(),
            Self::Convolution(config) => config.summary(),
            Self::RecurrentSeq2seq(config) => config.summary(),
        }
    }

    /// Does it look at its source, token by token, while it writes?
    pub fn attends_to_source(&self) -> bool {
        match self {
            Self::EncoderDecoder(_) => true,
            Self::RecurrentSeq2seq(config) => config.attention == SourceAttention::Additive,
            Self::Decoder(_) | Self::Encoder(_) | Self::Recurrent(_) | Self::Convolution(_) => {
                false
            }
        }
    }

    /// The blocks of a Transformer, of one with two stacks those that write; `None` of other kinds.
    pub fn stack(&self) -> Option<&StackConfig> {
        match self {
            Self::Decoder(config) => Some(&config.stack),
            Self::Encoder(config) => Some(&config.stack),
            Self::EncoderDecoder(config) => Some(&config.stack),
            Self::Recurrent(_) | Self::Convolution(_) | Self::RecurrentSeq2seq(_) => None,
        }
    }
}

impl From<RecurrentConfig> for ModelConfig {
    fn from(config: RecurrentConfig) -> Self {
        Self::Recurrent(config)
    }
}

impl From<RecurrentSeq2seqConfig> for ModelConfig {
    fn from(config: RecurrentSeq2seqConfig) -> Self {
        Self::RecurrentSeq2seq(config)
    }
}

impl From<ConvolutionConfig> for ModelConfig {
    fn from(config: ConvolutionConfig) -> Self {
        Self::Convolution(config)
    }
}

/// `1 layer`, `2 layers`.
fn counted(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

impl From<DecoderConfig> for ModelConfig {
    fn from(config: DecoderConfig) -> Self {
        Self::Decoder(config)
    }
}

impl From<EncoderConfig> for ModelConfig {
    fn from(config: EncoderConfig) -> Self {
        Self::Encoder(config)
    }
}

impl From<EncoderDecoderConfig> for ModelConfig {
    fn from(config: EncoderDecoderConfig) -> Self {
        Self::EncoderDecoder(config)
    }
}

/// A decoder-only Transformer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecoderConfig {
    /// V; 0 means: as many as the tokenizer has.
    pub vocabulary: usize,
    /// The longest sequence it is made for.
    pub context: usize,
    /// Is the output head the embedding, transposed?
    pub tied: bool,
    /// Its blocks.
    #[serde(flatten)]
    pub stack: StackConfig,
}

impl DecoderConfig {
    /// For sequences of up to `context` tokens, with a tied head and as many tokens as the tokenizer
    /// has.
    pub fn new(context: usize, stack: StackConfig) -> Self {
        Self { vocabulary: 0, context, tied: true, stack }
    }

    /// Reads it from the table of a model.
    pub fn fields(t: &Table<'_>) -> Result<Self> {
        Ok(Self {
            vocabulary: t.or("vocabulary", 0)?,
            context: t.required("context")?,
            tied: t.or("tied", true)?,
            stack: StackConfig::fields(t)?,
        })
    }
}

/// A stack of blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StackConfig {
    /// L
    pub layers: usize,
    /// C
    pub width: usize,
    /// H
    pub heads: usize,
    /// K: key/value heads; fewer than `heads` is grouped-query, 1 is multi-query attention.
    /// Default: as many as `heads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<usize>,
    /// D, of queries and keys; default `width / heads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_width: Option<usize>,
    /// The width of a head's values; default as `head_width`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_width: Option<usize>,
    /// Which norm and where.
    pub norm: NormConfig,
    /// How a token knows where it stands.
    pub position: PositionConfig,
    /// The layer between attentions.
    pub feed_forward: FeedForwardConfig,
    /// Several such layers, of which each token uses a few.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<ExpertsConfig>,
    /// Who sees whom, as far as the kind of model leaves that open.
    pub attention: AttentionConfig,
    /// Are scores divided by √D? T5's are not.
    pub scaled_scores: bool,
    /// Of a decoder: are the first tokens of a row, its prefix, seen by all of its tokens?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prefix: bool,
    /// How scores become weights.
    #[serde(skip_serializing_if = "SoftmaxConfig::is_usual")]
    pub softmax: SoftmaxConfig,
    /// Which projections of attention to itself are one matrix.
    #[serde(skip_serializing_if = "Shared::is_none")]
    pub shared_projections: Shared,
    /// How attention weighs what it sees.
    #[serde(skip_serializing_if = "MechanismConfig::is_softmax")]
    pub mechanism: MechanismConfig,
    /// Two residual streams, from whose end the layers are computed back: memory that does not grow
    /// with the number of layers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reversible: bool,
    /// Which layers have biases.
    pub bias: BiasConfig,
    /// α in `x + α·f(x)`.
    pub residual_scale: f32,
    /// Chances of dropping.
    pub dropout: DropoutConfig,
    /// How weights start.
    pub init: InitConfig,
}

impl Setting for StackConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.table(Self::fields)
    }
}

impl StackConfig {
    /// Reads it from a table that may hold other keys too.
    pub fn fields(t: &Table<'_>) -> Result<Self> {
        Ok(Self {
            kv_heads: t.optional("kv_heads")?,
            head_width: t.optional("head_width")?,
            value_width: t.optional("value_width")?,
            norm: t.or("norm", NormConfig::default())?,
            position: t.or("position", PositionConfig::default())?,
            feed_forward: t.or("feed_forward", FeedForwardConfig::default())?,
            experts: t.optional("experts")?,
            attention: t.or("attention", AttentionConfig::default())?,
            scaled_scores: t.or("scaled_scores", true)?,
            prefix: t.or("prefix", false)?,
            softmax: t.or("softmax", SoftmaxConfig::default())?,
            shared_projections: t.or("shared_projections", Shared::None)?,
            mechanism: t.or("mechanism", MechanismConfig::default())?,
            reversible: t.or("reversible", false)?,
            bias: t.or("bias", BiasConfig::NONE)?,
            residual_scale: t.or("residual_scale", 1.0)?,
            dropout: t.or("dropout", DropoutConfig::default())?,
            init: t.or("init", InitConfig::default())?,
            ..Self::new(t.required("layers")?, t.required("width")?, t.required("heads")?)
        })
    }

    /// Of these sizes, with every choice at its default, which is GPT-2's for the start of weights:
    /// below a width of some 500, choose [`InitConfig::for_width`].
    pub fn new(layers: usize, width: usize, heads: usize) -> Self {
        Self {
            layers,
            width,
            heads,
            kv_heads: None,
            head_width: None,
            value_width: None,
            norm: NormConfig::default(),
            position: PositionConfig::default(),
            feed_forward: FeedForwardConfig::default(),
            experts: None,
            attention: AttentionConfig::default(),
            scaled_scores: true,
            prefix: false,
            softmax: SoftmaxConfig::default(),
            shared_projections: Shared::None,
            mechanism: MechanismConfig::default(),
            reversible: false,
            bias: BiasConfig::NONE,
            residual_scale: 1.0,
            dropout: DropoutConfig::default(),
            init: InitConfig::default(),
        }
    }

    /// Its sizes, for people.
    pub fn sizes(&self) -> String {
        let shared = if self.kv_heads() == self.heads {
            String::new()
        } else {
            format!(" on {}", self.kv_heads())
        };
        let experts = self.experts.map_or(String::new(), |experts| {
            format!(" by {} of {} experts", experts.top, experts.count)
        });
        format!(
            "{} × {}, {} of {}{shared}, feed-forward {}{experts}",
            counted(self.layers, "layer"),
            self.width,
            counted(self.heads, "head"),
            self.head_width(),
            self.feed_forward_width()
        )
    }

    /// K
    pub fn kv_heads(&self) -> usize {
        self.kv_heads.unwrap_or(self.heads)
    }

    /// D
    pub fn head_width(&self) -> usize {
        self.head_width.unwrap_or(self.width / self.heads.max(1))
    }

    /// The width of a head's values.
    pub fn value_width(&self) -> usize {
        self.value_width.unwrap_or(self.head_width())
    }

    /// Does it choose among experts, keys or buckets? Then the loss jumps where two of them are equally
    /// good, and its differences are no gradients there.
    pub fn chooses(&self) -> bool {
        let hashed = matches!(self.mechanism, MechanismConfig::Lsh { .. });
        self.experts.is_some() || self.softmax.top.is_some() || hashed
    }

    /// Does attention give every pair of tokens a weight? Linformer's weights are for mixtures of tokens.
    pub fn weighs_tokens(&self) -> bool {
        self.mechanism.is_softmax()
    }

    /// What the product of a query and a key is multiplied by: 1/√D, if scores are scaled, divided by
    /// the temperature.
    pub fn score_scale(&self) -> f32 {
        let root = if self.scaled_scores { (self.head_width() as f32).sqrt() } else { 1.0 };
        1.0 / (root * self.softmax.temperature)
    }

    /// F
    pub fn feed_forward_width(&self) -> usize {
        // A width beyond all bounds is refused later, and must not overflow before.
        let width = self.width.min(usize::MAX / 16);
        self.feed_forward.width.unwrap_or(if self.feed_forward.kind.is_gated() {
            (8 * width).div_ceil(3).next_multiple_of(8)
        } else {
            4 * width
        })
    }

    /// How wide token vectors are: C less what positions take beside them.
    pub fn token_width(&self) -> usize {
        match self.position {
            PositionConfig::Learned { combine: Combine::Concatenate { width } }
            | PositionConfig::Sinusoidal { combine: Combine::Concatenate { width }, .. } => {
                self.width.saturating_sub(width)
            }
            _ => self.width,
        }
    }

    /// How wide position vectors are.
    pub fn position_width(&self, combine: Combine) -> usize {
        match combine {
            Combine::Add => self.width,
            Combine::Concatenate { width } => width,
        }
    }

    /// How much of a head RoPE rotates: an even number.
    pub fn rotated_width(&self, share: f32) -> usize {
        ((self.head_width() as f32 * share) as usize) / 2 * 2
    }
}
