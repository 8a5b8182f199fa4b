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
//! feed_forward = { kind = "swiglu" }
//! attention = { kind = "full" }
//! ```
//!
//! A choice that has parameters carries them itself, so a combination that makes no sense cannot
//! be written, and a key that is not known is an error (with the nearest known one, see
//! [`crate::parse`]). What cannot be seen from one value alone is checked by
//! [`DecoderConfig::validate`].

mod validate;

use serde::{Deserialize, Serialize};

/// A model of any kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ModelConfig {
    /// Reads left to right and predicts the next token (GPT, Llama).
    Decoder(DecoderConfig),
}

/// A decoder-only Transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecoderConfig {
    /// V; 0 means: as many as the tokenizer has.
    #[serde(default)]
    pub vocabulary: usize,
    /// The longest sequence it is made for.
    pub context: usize,
    /// L
    pub layers: usize,
    /// C
    pub width: usize,
    /// H
    pub heads: usize,
    /// K: key/value heads; fewer than `heads` is grouped-query, 1 is multi-query attention.
    /// Default: as many as `heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<usize>,
    /// D; default `width / heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_width: Option<usize>,
    /// Which norm and where.
    #[serde(default)]
    pub norm: NormConfig,
    /// How a token knows where it stands.
    #[serde(default)]
    pub position: PositionConfig,
    /// The layer between attentions.
    #[serde(default)]
    pub feed_forward: FeedForwardConfig,
    /// Who sees whom.
    #[serde(default)]
    pub attention: AttentionConfig,
    /// Do linear layers have a bias?
    #[serde(default)]
    pub bias: bool,
    /// Is the output head the embedding, transposed?
    #[serde(default = "yes")]
    pub tied: bool,
    /// α in `x + α·f(x)`.
    #[serde(default = "one")]
    pub residual_scale: f32,
    /// Chances of dropping.
    #[serde(default)]
    pub dropout: DropoutConfig,
    /// How weights start.
    #[serde(default)]
    pub init: InitConfig,
}

fn yes() -> bool {
    true
}
fn one() -> f32 {
    1.0
}

/// Which norm, and on which side of the residual connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormConfig {
    /// `layer` or `rms`.
    #[serde(default)]
    pub kind: NormKind,
    /// `pre`: x + f(norm(x)), with a norm at the end; `post`: norm(x + f(x)).
    #[serde(default)]
    pub placement: Placement,
    /// Added to the variance (or mean square) under the root.
    #[serde(default = "norm_eps")]
    pub eps: f32,
}

fn norm_eps() -> f32 {
    1e-5
}

impl Default for NormConfig {
    fn default() -> Self {
        Self { kind: NormKind::Layer, placement: Placement::Pre, eps: norm_eps() }
    }
}

/// What a norm divides by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// Subtracts the mean and divides by the deviation; has a bias if the model has biases.
    #[default]
    Layer,
    /// Divides by the root mean square.
    Rms,
}

/// Where the norm stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Before the layer, inside the residual branch.
    #[default]
    Pre,
    /// After the residual sum.
    Post,
}

/// How a token knows where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PositionConfig {
    /// It does not.
    None {},
    /// A learned vector per position.
    Learned {
        /// Added to the embedding, or beside it.
        #[serde(default)]
        combine: Combine,
    },
    /// Sines and cosines of falling frequency.
    Sinusoidal {
        /// Added to the embedding, or beside it.
        #[serde(default)]
        combine: Combine,
    },
    /// Rotates queries and keys by an angle that grows with the position.
    Rope {
        /// The longest wavelength is about 2π·base.
        #[serde(default = "rope_base")]
        base: f32,
        /// The share of each head's width that is rotated.
        #[serde(default = "one")]
        share: f32,
        /// How to reach beyond the trained context.
        #[serde(default)]
        scaling: RopeScaling,
    },
    /// Subtracts slope·distance from the scores.
    Alibi {},
    /// A learned bias per bucket of distances and head (T5).
    T5 {
        /// How many buckets.
        #[serde(default = "t5_buckets")]
        buckets: usize,
        /// Distances from here on share the last bucket.
        #[serde(default = "t5_distance")]
        max_distance: usize,
    },
    /// A learned bias per clipped distance and head.
    Relative {
        /// Distances beyond this count as this.
        #[serde(default = "t5_distance")]
        max_distance: usize,
    },
}

fn rope_base() -> f32 {
    10_000.0
}
fn t5_buckets() -> usize {
    32
}
fn t5_distance() -> usize {
    128
}

impl Default for PositionConfig {
    fn default() -> Self {
        Self::Learned { combine: Combine::default() }
    }
}

/// How position vectors join token vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Combine {
    /// Summed.
    #[default]
    Add,
    /// The last `width` numbers of a token's vector are its position's.
    Concatenate {
        /// How many; the embedding has the rest.
        width: usize,
    },
}

/// How RoPE's angles are changed for contexts longer than the model was trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RopeScaling {
    /// Not at all.
    #[default]
    None,
    /// Positions are divided by `factor`.
    Linear {
        /// How many times longer.
        factor: f32,
    },
    /// The base grows so that the lowest frequency is divided by `factor`.
    Ntk {
        /// How many times longer.
        factor: f32,
    },
    /// Low frequencies are divided, high ones kept, a ramp between (Peng et al. 2023).
    Yarn {
        /// How many times longer.
        factor: f32,
        /// Context of the original training.
        original_context: usize,
        /// Turns within the original context above which a frequency is kept.
        #[serde(default = "yarn_fast")]
        beta_fast: f32,
        /// Turns below which it is divided.
        #[serde(default = "one")]
        beta_slow: f32,
    },
    /// As Llama 3.1 does it.
    Llama3 {
        /// How many times longer.
        factor: f32,
        /// Context of the original training.
        original_context: usize,
        /// Wavelengths longer than context / this are divided.
        #[serde(default = "one")]
        low_frequency_factor: f32,
        /// Wavelengths shorter than context / this are kept.
        #[serde(default = "llama3_high")]
        high_frequency_factor: f32,
    },
}

fn yarn_fast() -> f32 {
    32.0
}
fn llama3_high() -> f32 {
    4.0
}

/// The layer between attentions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedForwardConfig {
    /// Which function, gated or not.
    #[serde(default)]
    pub kind: FeedForwardKind,
    /// F; default 4·C, or for gated ones 8/3·C rounded up to a multiple of 8, which costs the
    /// same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
}

impl Default for FeedForwardConfig {
    fn default() -> Self {
        Self { kind: FeedForwardKind::Gelu, width: None }
    }
}

/// The function between a feed-forward layer's two matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeedForwardKind {
    /// max(x, 0)
    Relu,
    /// max(x, 0)²
    SquaredRelu,
    /// x·Φ(x)
    #[default]
    Gelu,
    /// The approximation by tanh that GPT-2 uses.
    GeluTanh,
    /// x·σ(x)
    Silu,
    /// silu(gate)·up
    Swiglu,
    /// gelu(gate)·up
    Geglu,
    /// gelu(gate)·up, by tanh.
    GegluTanh,
}

impl FeedForwardKind {
    /// Does it have a gate beside the first matrix?
    pub fn is_gated(self) -> bool {
        matches!(self, Self::Swiglu | Self::Geglu | Self::GegluTanh)
    }
}

/// Who sees whom, before causality.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AttentionConfig {
    /// Everything before.
    Full {},
    /// The last `size` tokens, itself included.
    Window {
        /// How many.
        size: usize,
    },
    /// The last `window` tokens, every `stride`-th before, and the first `global`.
    Sparse {
        /// How many of the last.
        window: usize,
        /// Every how many-th of the others; 0 for none.
        #[serde(default)]
        stride: usize,
        /// How many of the first.
        #[serde(default)]
        global: usize,
    },
}

impl Default for AttentionConfig {
    fn default() -> Self {
        Self::Full {}
    }
}

/// Chances of dropping, in training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropoutConfig {
    /// Of the sum of token and position vectors.
    #[serde(default)]
    pub embedding: f32,
    /// Of attention weights.
    #[serde(default)]
    pub attention: f32,
    /// Inside the feed-forward layer.
    #[serde(default)]
    pub feed_forward: f32,
    /// Of what a layer adds to the residual stream.
    #[serde(default)]
    pub residual: f32,
}

impl DropoutConfig {
    /// The same chance everywhere.
    pub fn everywhere(p: f32) -> Self {
        Self { embedding: p, attention: p, feed_forward: p, residual: p }
    }
}

/// How weights start. Biases start at 0, norms at 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitConfig {
    /// The distribution.
    #[serde(default)]
    pub kind: InitKind,
    /// Standard deviation, for the kinds that do not compute it from the shape.
    #[serde(default = "init_deviation")]
    pub deviation: f32,
    /// Are the matrices that write to the residual stream smaller by 1/√(2L)?
    #[serde(default = "yes")]
    pub scale_residual: bool,
    /// Queries and keys start smaller by this factor, against collapsed attention.
    #[serde(default = "one")]
    pub query_key_scale: f32,
}

fn init_deviation() -> f32 {
    0.02
}

impl Default for InitConfig {
    fn default() -> Self {
        Self {
            kind: InitKind::Normal,
            deviation: init_deviation(),
            scale_residual: true,
            query_key_scale: 1.0,
        }
    }
}

/// The distribution that weights start from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InitKind {
    /// Normal with the given deviation (GPT-2).
    #[default]
    Normal,
    /// The same, drawn again beyond two deviations.
    TruncatedNormal,
    /// Normal with variance 2/(in + out) (Glorot and Bengio 2010).
    Xavier,
    /// Normal with variance 2/in (He et al. 2015).
    Kaiming,
}

/// A configuration that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}\nhint: {hint}")]
pub struct ConfigError {
    /// What was wrong, what was expected.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl ConfigError {
    /// Both lines.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

impl DecoderConfig {
    /// K
    pub fn kv_heads(&self) -> usize {
        self.kv_heads.unwrap_or(self.heads)
    }

    /// D
    pub fn head_width(&self) -> usize {
        self.head_width.unwrap_or(self.width / self.heads.max(1))
    }

    /// F
    pub fn feed_forward_width(&self) -> usize {
        self.feed_forward.width.unwrap_or(if self.feed_forward.kind.is_gated() {
            (8 * self.width).div_ceil(3).next_multiple_of(8)
        } else {
            4 * self.width
        })
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
