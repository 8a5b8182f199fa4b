//! The choices within a stack, each with its parameters and their defaults.

use hearken_base::settings::{self, EVERY, Setting, Value};
use hearken_base::{Result, names};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Which norm, and on which side of the residual connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NormConfig {
    /// `layer` or `rms`.
    pub kind: NormKind,
    /// `pre`: x + f(norm(x)), with a norm at the end; `post`: norm(x + f(x)).
    pub placement: Placement,
    /// Added to the variance (or mean square) under the root.
    pub eps: f32,
}

impl Setting for NormConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.choice(&["layer", "rms"], |kind, t| {
            let kind = if kind == "rms" { NormKind::Rms } else { NormKind::Layer };
            let placement = t.or("placement", Placement::Pre)?;
            Ok(Self { kind, placement, eps: t.or("eps", 1e-5)? })
        })
    }
}

impl NormConfig {
    /// RMS norm before each layer, as Llama has it.
    pub fn rms() -> Self {
        Self { kind: NormKind::Rms, ..Self::default() }
    }
}

impl Default for NormConfig {
    fn default() -> Self {
        settings::default()
    }
}

/// What a norm divides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// Subtracts the mean and divides by the deviation; may have a bias.
    Layer,
    /// Divides by the root mean square.
    Rms,
}

/// Where the norm stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Before the layer, inside the residual branch.
    Pre,
    /// After the residual sum.
    Post,
}

names!(Placement { "pre" => Pre, "post" => Post });

/// How a token knows where it stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PositionConfig {
    /// It does not.
    None {},
    /// A learned vector per position.
    Learned {
        /// Added to the embedding, or beside it.
        combine: Combine,
    },
    /// Sines and cosines of falling frequency.
    Sinusoidal {
        /// Added to the embedding, or beside it.
        combine: Combine,
        /// Which numbers are sines.
        order: SineOrder,
    },
    /// Rotates queries and keys by an angle that grows with the position.
    Rope {
        /// The longest wavelength is about 2π·base.
        base: f32,
        /// The share of each head's width that is rotated.
        share: f32,
        /// How to reach beyond the trained context.
        scaling: RopeScaling,
    },
    /// Subtracts slope·distance from the scores.
    Alibi {},
    /// A learned bias per bucket of distances and head (T5).
    T5 {
        /// How many buckets.
        buckets: usize,
        /// Distances from here on share the last bucket.
        max_distance: usize,
    },
    /// A learned bias per clipped distance and head.
    Relative {
        /// Distances beyond this count as this.
        max_distance: usize,
    },
}

impl Setting for PositionConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        const KINDS: [&str; 7] =
            ["learned", "none", "sinusoidal", "rope", "alibi", "t5", "relative"];
        value.choice(&KINDS, |kind, t| {
            Ok(match kind {
                "none" => Self::None {},
                "sinusoidal" => Self::Sinusoidal {
                    combine: t.or("combine", Combine::Add)?,
                    order: t.or("order", SineOrder::Pairs)?,
                },
                "rope" => Self::Rope {
                    base: t.or("base", 10_000.0)?,
                    share: t.or("share", 1.0)?,
                    scaling: t.or("scaling", RopeScaling::None)?,
                },
                "alibi" => Self::Alibi {},
                "t5" => Self::T5 {
                    buckets: t.or("buckets", 32)?,
                    max_distance: t.or("max_distance", 128)?,
                },
                "relative" => Self::Relative { max_distance: t.or("max_distance", 128)? },
                _ => Self::Learned { combine: t.or("combine", Combine::Add)? },
            })
        })
    }
}

impl PositionConfig {
    /// Rotary positions as Llama has them.
    pub fn rope() -> Self {
        Self::Rope { base: 10_000.0, share: 1.0, scaling: RopeScaling::None }
    }
}

impl Default for PositionConfig {
    fn default() -> Self {
        settings::default()
    }
}

/// Where the sines and cosines of a position stand. A model can learn the same with either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SineOrder {
    /// In turns: the sine of a frequency, then its cosine (Vaswani et al. 2017).
    Pairs,
    /// All sines, then all cosines (Marian).
    Halves,
}

names!(SineOrder { "pairs" => Pairs, "halves" => Halves });

/// How position vectors join token vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Combine {
    /// Summed.
    Add,
    /// The last `width` numbers of a token's vector are its position's.
    Concatenate {
        /// How many; the embedding has the rest.
        width: usize,
    },
}

impl Setting for Combine {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.choice(&["add", "concatenate"], |kind, t| {
            Ok(match kind {
                "concatenate" => Self::Concatenate { width: t.required("width")? },
                _ => Self::Add,
            })
        })
    }
}

/// How RoPE's angles are changed for contexts longer than the model was trained on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RopeScaling {
    /// Not at all.
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
        beta_fast: f32,
        /// Turns below which it is divided.
        beta_slow: f32,
    },
    /// As Llama 3.1 does it.
    Llama3 {
        /// How many times longer.
        factor: f32,
        /// Context of the original training.
        original_context: usize,
        /// Wavelengths longer than context / this are divided.
        low_frequency_factor: f32,
        /// Wavelengths shorter than context / this are kept.
        high_frequency_factor: f32,
    },
}

impl Setting for RopeScaling {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.choice(&["none", "linear", "ntk", "yarn", "llama3"], |kind, t| {
            if kind == "none" {
                return Ok(Self::None);
            }
            let factor = t.required("factor")?;
            Ok(match kind {
                "linear" => Self::Linear { factor },
                "ntk" => Self::Ntk { factor },
                "yarn" => Self::Yarn {
                    factor,
                    original_context: t.required("original_context")?,
                    beta_fast: t.or("beta_fast", 32.0)?,
                    beta_slow: t.or("beta_slow", 1.0)?,
                },
                _ => Self::Llama3 {
                    factor,
                    original_context: t.required("original_context")?,
                    low_frequency_factor: t.or("low_frequency_factor", 1.0)?,
                    high_frequency_factor: t.or("high_frequency_factor", 4.0)?,
                },
            })
        })
    }
}

/// The layer between attentions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FeedForwardConfig {
    /// Which function, gated or not.
    pub kind: FeedForwardKind,
    /// F; default 4·C, or for gated ones 8/3·C rounded up to a multiple of 8, which costs the
    /// same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
}

impl Setting for FeedForwardConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        if !value.is_table() {
            return Ok(Self { kind: FeedForwardKind::read(value)?, width: None });
        }
        value.table(|t| {
            let kind = t.or("kind", FeedForwardKind::Gelu)?;
            Ok(Self { kind, width: t.optional("width")? })
        })
    }
}

impl Default for FeedForwardConfig {
    fn default() -> Self {
        settings::default()
    }
}

/// The function between a feed-forward layer's two matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeedForwardKind {
    /// max(x, 0)
    Relu,
    /// max(x, 0)²
    SquaredRelu,
    /// x·Φ(x)
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

names!(FeedForwardKind {
    "relu" => Relu,
    "squared-relu" => SquaredRelu,
    "gelu" => Gelu,
    "gelu-tanh" => GeluTanh,
    "silu" => Silu,
    "swiglu" => Swiglu,
    "geglu" => Geglu,
    "geglu-tanh" => GegluTanh,
});

impl FeedForwardKind {
    /// Does it have a gate beside the first matrix?
    pub fn is_gated(self) -> bool {
        matches!(self, Self::Swiglu | Self::Geglu | Self::GegluTanh)
    }
}

/// Who sees whom, before causality.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum AttentionConfig {
    /// Everything.
    Full {},
    /// The `size` nearest tokens, itself included: before it in a decoder, on each side in an
    /// encoder.
    Window {
        /// How many.
        size: usize,
    },
    /// The `window` nearest tokens, every `stride`-th of the others, and the first `global`.
    Sparse {
        /// How many of the nearest.
        window: usize,
        /// Every how many-th of the others; 0 for none.
        stride: usize,
        /// How many of the first.
        global: usize,
    },
}

impl Setting for AttentionConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.choice(&["full", "window", "sparse"], |kind, t| {
            Ok(match kind {
                "window" => Self::Window { size: t.required("size")? },
                "sparse" => Self::Sparse {
                    window: t.required("window")?,
                    stride: t.or("stride", 0)?,
                    global: t.or("global", 0)?,
                },
                _ => Self::Full {},
            })
        })
    }
}

impl Default for AttentionConfig {
    fn default() -> Self {
        Self::Full {}
    }
}

/// Which layers have biases: `true` or `false` for all, or a table (`{ every = true, norm = false }`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says whether one sort of layer has a bias")]
pub struct BiasConfig {
    /// The projections to queries, keys and values.
    pub attention_in: bool,
    /// The projection back.
    pub attention_out: bool,
    /// Both matrices of the feed-forward layer.
    pub feed_forward: bool,
    /// LayerNorm; RMSNorm never has one.
    pub norm: bool,
}

impl BiasConfig {
    /// No layer has one.
    pub const NONE: Self = Self::everywhere(false);
    /// All layers have one.
    pub const ALL: Self = Self::everywhere(true);

    const fn everywhere(bias: bool) -> Self {
        Self { attention_in: bias, attention_out: bias, feed_forward: bias, norm: bias }
    }
}

impl Setting for BiasConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        if !value.is_table() {
            return bool::read(value).map(Self::everywhere);
        }
        value.table(|t| {
            let every = t.or(EVERY, false)?;
            Ok(Self {
                attention_in: t.or("attention_in", every)?,
                attention_out: t.or("attention_out", every)?,
                feed_forward: t.or("feed_forward", every)?,
                norm: t.or("norm", every)?,
            })
        })
    }
}

impl Serialize for BiasConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if [Self::NONE, Self::ALL].contains(self) {
            return serializer.serialize_bool(self.norm);
        }
        let mut table = serializer.serialize_map(Some(4))?;
        table.serialize_entry("attention_in", &self.attention_in)?;
        table.serialize_entry("attention_out", &self.attention_out)?;
        table.serialize_entry("feed_forward", &self.feed_forward)?;
        table.serialize_entry("norm", &self.norm)?;
        table.end()
    }
}

/// Chances of dropping, in training: one number for all, or a table
/// (`{ every = 0.1, attention = 0.2 }`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DropoutConfig {
    /// Of the sum of token and position vectors.
    pub embedding: f32,
    /// Of attention weights.
    pub attention: f32,
    /// Inside the feed-forward layer.
    pub feed_forward: f32,
    /// Of what a layer adds to the residual stream.
    pub residual: f32,
}

impl Setting for DropoutConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        if !value.is_table() {
            return f32::read(value).map(Self::everywhere);
        }
        value.table(|t| {
            let every = t.or(EVERY, 0.0)?;
            Ok(Self {
                embedding: t.or("embedding", every)?,
                attention: t.or("attention", every)?,
                feed_forward: t.or("feed_forward", every)?,
                residual: t.or("residual", every)?,
            })
        })
    }
}

impl DropoutConfig {
    /// The same chance everywhere.
    pub fn everywhere(p: f32) -> Self {
        Self { embedding: p, attention: p, feed_forward: p, residual: p }
    }
}

/// How weights start. Biases start at 0, norms at 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InitConfig {
    /// The distribution.
    pub kind: InitKind,
    /// Standard deviation, for the kinds that do not compute it from the shape.
    pub deviation: f32,
    /// Are the matrices that write to the residual stream smaller by 1/√(2L)?
    pub scale_residual: bool,
    /// Queries and keys start smaller by this factor, against collapsed attention.
    pub query_key_scale: f32,
}

impl Setting for InitConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        if !value.is_table() {
            return Ok(Self { kind: InitKind::read(value)?, ..Self::default() });
        }
        value.table(|t| {
            Ok(Self {
                kind: t.or("kind", InitKind::Normal)?,
                deviation: t.or("deviation", 0.02)?,
                scale_residual: t.or("scale_residual", true)?,
                query_key_scale: t.or("query_key_scale", 1.0)?,
            })
        })
    }
}

impl InitConfig {
    /// Normal with the deviation 1/√(3·C) that suits the width C. The default of 0.02 is GPT-2's, for
    /// a width of 768; a narrow model that starts from it learns nothing for hundreds of steps.
    pub fn for_width(width: usize) -> Self {
        let deviation = 1.0 / (3.0 * width.max(1) as f32).sqrt();
        Self { kind: InitKind::Normal, deviation, ..Self::default() }
    }
}

impl Default for InitConfig {
    fn default() -> Self {
        settings::default()
    }
}

/// The distribution that weights start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InitKind {
    /// Normal with the given deviation (GPT-2).
    Normal,
    /// The same, drawn again beyond two deviations.
    TruncatedNormal,
    /// Normal with variance 2/(in + out) (Glorot and Bengio 2010).
    Xavier,
    /// Normal with variance 2/in (He et al. 2015).
    Kaiming,
}

names!(InitKind {
    "normal" => Normal,
    "truncated-normal" => TruncatedNormal,
    "xavier" => Xavier,
    "kaiming" => Kaiming,
});

#[cfg(test)]
mod tests;
