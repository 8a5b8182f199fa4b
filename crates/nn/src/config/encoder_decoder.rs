//! Encoder-decoders: two stacks, and what is around them.
//!
//! ```toml
//! kind = "encoder-decoder"
//! layers = 6              # of the decoder, and of the encoder unless `encoder` says otherwise
//! width = 512
//! heads = 8
//! context = 512           # of the source and of the target
//! encoder = { layers = 12 }
//! ```

use super::StackConfig;
use hearken_base::settings::{Setting, Table, Value};
use hearken_base::{Result, names};
use serde::Serialize;

/// A Transformer that reads a source and writes a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own in a configuration")]
pub struct EncoderDecoderConfig {
    /// V, of source and target; 0 means: as many as the tokenizer has.
    pub vocabulary: usize,
    /// The longest source, and the longest target, that it is made for.
    pub context: usize,
    /// Do source and target have the same embedding?
    pub shared: bool,
    /// Is the output head the embedding of the target, transposed?
    pub tied: bool,
    /// Does the head add a learned number to the logit of every token (Marian)?
    pub logits_bias: bool,
    /// Are token vectors multiplied by √C (Vaswani et al. 2017)?
    pub scaled_embeddings: bool,
    /// Are the hidden states that the head reads divided by √C (T5 with a tied head)?
    pub scaled_logits: bool,
    /// What the decoder's layers attend to.
    pub cross: Cross,
    /// The blocks of the decoder, and of the encoder as far as `encoder` does not change them.
    #[serde(flatten)]
    pub stack: StackConfig,
    /// What is different in the encoder.
    #[serde(skip_serializing_if = "EncoderSizes::is_empty")]
    pub encoder: EncoderSizes,
}

impl EncoderDecoderConfig {
    /// For sources and targets of up to `context` tokens, with one embedding for all three uses.
    pub fn new(context: usize, stack: StackConfig) -> Self {
        Self {
            vocabulary: 0,
            context,
            shared: true,
            tied: true,
            logits_bias: false,
            scaled_embeddings: false,
            scaled_logits: false,
            cross: Cross::Last,
            stack,
            encoder: EncoderSizes::default(),
        }
    }

    /// Reads it from the table of a model.
    pub fn fields(t: &Table<'_>) -> Result<Self> {
        Ok(Self {
            vocabulary: t.or("vocabulary", 0)?,
            context: t.required("context")?,
            shared: t.or("shared", true)?,
            tied: t.or("tied", true)?,
            logits_bias: t.or("logits_bias", false)?,
            scaled_embeddings: t.or("scaled_embeddings", false)?,
            scaled_logits: t.or("scaled_logits", false)?,
            cross: t.or("cross", Cross::Last)?,
            stack: StackConfig::fields(t)?,
            encoder: t.or("encoder", EncoderSizes::default())?,
        })
    }

    /// The blocks of the encoder.
    pub fn encoder_stack(&self) -> StackConfig {
        let EncoderSizes { layers, heads, feed_forward_width } = self.encoder;
        let mut stack = self.stack.clone();
        stack.layers = layers.unwrap_or(stack.layers);
        stack.heads = heads.unwrap_or(stack.heads);
        stack.feed_forward.width = feed_forward_width.or(stack.feed_forward.width);
        stack
    }

    pub(super) fn sizes(&self) -> String {
        format!(
            "encoder {}; decoder {}, context {}, vocabulary {}",
            self.encoder_stack().sizes(),
            self.stack.sizes(),
            self.context,
            self.vocabulary
        )
    }

    pub(super) fn summary(&self) -> String {
        let StackConfig { layers, width, heads, .. } = self.stack;
        format!(
            "{} + {layers} layers × {width} wide, {heads} heads, context {}, {} tokens",
            self.encoder_stack().layers,
            self.context,
            self.vocabulary
        )
    }
}

/// Sizes of an encoder that differ from those of its decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EncoderSizes {
    /// L
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<usize>,
    /// H
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<usize>,
    /// F
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed_forward_width: Option<usize>,
}

impl EncoderSizes {
    /// Is the encoder as the decoder?
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Setting for EncoderSizes {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.table(|t| {
            Ok(Self {
                layers: t.optional("layers")?,
                heads: t.optional("heads")?,
                feed_forward_width: t.optional("feed_forward_width")?,
            })
        })
    }
}

/// Which hidden states of the encoder a layer of the decoder attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cross {
    /// All layers to those of the last layer (Vaswani et al. 2017).
    Last,
    /// Each layer to those of the layer of its own number, behind the encoder's last norm if it has
    /// one. Both stacks then have the same number of layers.
    Layers,
}

names!(Cross { "last" => Last, "layers" => Layers });
