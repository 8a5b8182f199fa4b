//! Recurrent networks and convolutions: models without attention.
//!
//! ```toml
//! kind = "recurrent"
//! cell = "lstm"           # or "gru", "rnn"
//! layers = 2
//! width = 256
//! context = 128           # tokens that gradients flow back through
//! dropout = 0.1
//! ```
//!
//! ```toml
//! kind = "convolution"
//! layers = 8              # dilations 1, 2, 4, …, 128
//! width = 128
//! kernel = 3
//! context = 256
//! activation = "swiglu"   # gated; or "gelu"
//! ```

use super::choices::FeedForwardKind;
use super::validate::{
    MOST, MOST_LAYERS, check_count, check_dropout, check_eps, check_finite, check_sizes,
    check_text_model,
};
use super::{InitConfig, NormConfig};
use hearken_base::settings::Table;
use hearken_base::{Error, Result, names};
use serde::Serialize;

/// The cell of a recurrent network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CellKind {
    /// `h ← tanh(W·x + U·h + b)` (Elman 1990).
    Rnn,
    /// With gates that reset and update (Cho et al. 2014), in PyTorch's form.
    Gru,
    /// With gates and a cell state (Hochreiter and Schmidhuber 1997).
    Lstm,
}

names!(CellKind { "rnn" => Rnn, "gru" => Gru, "lstm" => Lstm });

impl CellKind {
    /// Gates of a unit: what is computed of the input and of the state.
    pub fn gates(self) -> usize {
        match self {
            Self::Rnn => 1,
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }

    /// Vectors that are carried from time to time.
    pub fn states(self) -> usize {
        match self {
            Self::Rnn | Self::Gru => 1,
            Self::Lstm => 2,
        }
    }

    /// Its name, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Rnn => "RNN",
            Self::Gru => "GRU",
            Self::Lstm => "LSTM",
        }
    }
}

/// A recurrent language model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecurrentConfig {
    /// V; 0 means: as many as the tokenizer has.
    pub vocabulary: usize,
    /// Tokens of a window in training: how far gradients flow back. It reads any number of tokens.
    pub context: usize,
    /// Is the output head the embedding, transposed?
    pub tied: bool,
    /// The cell.
    pub cell: CellKind,
    /// L
    pub layers: usize,
    /// C
    pub width: usize,
    /// The chance of dropping what goes into a layer and what the last one gives; never the state.
    pub dropout: f32,
    /// How weights start; with the deviation 1/√(3C), unless given.
    pub init: InitConfig,
}

impl RecurrentConfig {
    /// Of these sizes, with a tied head, no dropout, and as many tokens as the tokenizer has.
    pub fn new(cell: CellKind, context: usize, layers: usize, width: usize) -> Self {
        let init = InitConfig::for_width(width);
        Self { vocabulary: 0, context, tied: true, cell, layers, width, dropout: 0.0, init }
    }

    /// Reads it from the table of a model.
    pub fn fields(t: &Table<'_>) -> Result<Self> {
        let width = t.required("width")?;
        Ok(Self {
            vocabulary: t.or("vocabulary", 0)?,
            context: t.required("context")?,
            tied: t.or("tied", true)?,
            cell: t.or("cell", CellKind::Lstm)?,
            layers: t.required("layers")?,
            width,
            dropout: t.or("dropout", 0.0)?,
            init: t.or("init", InitConfig::for_width(width))?,
        })
    }

    pub(super) fn sizes(&self) -> String {
        let Self { layers, width, context, vocabulary, .. } = self;
        let cell = self.cell.title();
        format!("{layers} {cell} layers × {width}, context {context}, vocabulary {vocabulary}")
    }

    pub(super) fn summary(&self) -> String {
        let Self { layers, width, context, vocabulary, .. } = self;
        let cell = self.cell.title();
        format!("{layers} {cell} layers × {width} wide, context {context}, {vocabulary} tokens")
    }
}

/// A language model of causal convolutions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConvolutionConfig {
    /// V; 0 means: as many as the tokenizer has.
    pub vocabulary: usize,
    /// Tokens of a window in training. It reads any number of tokens.
    pub context: usize,
    /// Is the output head the embedding, transposed?
    pub tied: bool,
    /// L
    pub layers: usize,
    /// C
    pub width: usize,
    /// Tokens that a layer looks at, itself included.
    pub kernel: usize,
    /// Layers after which dilations begin again at 1; they double from layer to layer. As many as
    /// there are layers, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycle: Option<usize>,
    /// What follows a convolution; a gated one has twice the width.
    pub activation: FeedForwardKind,
    /// The norm before each layer and after the last.
    pub norm: NormConfig,
    /// The chance of dropping what a layer adds.
    pub dropout: f32,
    /// How weights start; with the deviation 1/√(3C), unless given.
    pub init: InitConfig,
}

impl ConvolutionConfig {
    /// Of these sizes, with every choice at its default.
    pub fn new(context: usize, layers: usize, width: usize, kernel: usize) -> Self {
        Self {
            vocabulary: 0,
            context,
            tied: true,
            layers,
            width,
            kernel,
            cycle: None,
            activation: FeedForwardKind::Swiglu,
            norm: NormConfig::default(),
            dropout: 0.0,
            init: InitConfig::for_width(width),
        }
    }

    /// Reads it from the table of a model.
    pub fn fields(t: &Table<'_>) -> Result<Self> {
        let width = t.required("width")?;
        Ok(Self {
            vocabulary: t.or("vocabulary", 0)?,
            context: t.required("context")?,
            tied: t.or("tied", true)?,
            layers: t.required("layers")?,
            width,
            kernel: t.or("kernel", 3)?,
            cycle: t.optional("cycle")?,
            activation: t.or("activation", FeedForwardKind::Swiglu)?,
            norm: t.or("norm", NormConfig::default())?,
            dropout: t.or("dropout", 0.0)?,
            init: t.or("init", InitConfig::for_width(width))?,
        })
    }

    /// Tokens from one that layer `layer` looks at to the next.
    pub fn dilation(&self, layer: usize) -> usize {
        let doublings = layer % self.cycle.unwrap_or(self.layers).max(1);
        1_usize.checked_shl(doublings as u32).unwrap_or(usize::MAX)
    }

    /// Tokens that a prediction depends on, the last one included.
    pub fn receptive_field(&self) -> usize {
        let past = |layer| self.kernel.saturating_sub(1).saturating_mul(self.dilation(layer));
        (0..self.layers).map(past).fold(1, usize::saturating_add)
    }

    pub(super) fn sizes(&self) -> String {
        let Self { layers, width, kernel, context, vocabulary, .. } = self;
        let field = self.receptive_field();
        format!(
            "{layers} convolutions × {width} of {kernel} tokens, receptive field {field}, context \
             {context}, vocabulary {vocabulary}"
        )
    }

    pub(super) fn summary(&self) -> String {
        let Self { layers, width, context, vocabulary, .. } = self;
        let field = self.receptive_field();
        format!(
            "{layers} convolutions × {width} wide, receptive field {field}, context {context}, \
             {vocabulary} tokens"
        )
    }
}

/// What a recurrent decoder knows of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceAttention {
    /// The last states of the encoder: one vector of fixed size.
    None,
    /// A context for every token, by additive attention (Bahdanau et al. 2015).
    Additive,
}

names!(SourceAttention { "none" => None, "additive" => Additive });

/// A recurrent network that reads a source, in both directions, and one that writes a target.
///
/// ```toml
/// kind = "recurrent-seq2seq"
/// cell = "gru"
/// attention = "additive"  # or "none": a fixed vector
/// layers = 1
/// width = 128
/// context = 64            # of the source and of the target
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecurrentSeq2seqConfig {
    /// V, of source and target; 0 means: as many as the tokenizer has.
    pub vocabulary: usize,
    /// The longest source, and the longest target, that it is made for.
    pub context: usize,
    /// Is the output head the embedding, transposed?
    pub tied: bool,
    /// The cell of both.
    pub cell: CellKind,
    /// What the decoder knows of its source.
    pub attention: SourceAttention,
    /// L, of the decoder.
    pub layers: usize,
    /// C, of the decoder and of token vectors.
    pub width: usize,
    /// Layers of the encoder; as many as of the decoder, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder_layers: Option<usize>,
    /// The width of the encoder in each direction; as the decoder's, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder_width: Option<usize>,
    /// A: numbers by which states and hidden states are compared; as `width`, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_width: Option<usize>,
    /// The chance of dropping what goes into a layer and what the last one gives; never the state.
    pub dropout: f32,
    /// How weights start; with the deviation 1/√(3C), unless given.
    pub init: InitConfig,
}

impl RecurrentSeq2seqConfig {
    /// Of these sizes, with attention, a tied head, no dropout, and as many tokens as the tokenizer has.
    pub fn new(cell: CellKind, context: usize, layers: usize, width: usize) -> Self {
        Self {
            vocabulary: 0,
            context,
            tied: true,
            cell,
            attention: SourceAttention::Additive,
            layers,
            width,
            encoder_layers: None,
            encoder_width: None,
            attention_width: None,
            dropout: 0.0,
            init: InitConfig::for_width(width),
        }
    }

    /// Reads it from the table of a model.
    pub fn fields(t: &Table<'_>) -> Result<Self> {
        let width = t.required("width")?;
        Ok(Self {
            vocabulary: t.or("vocabulary", 0)?,
            context: t.required("context")?,
            tied: t.or("tied", true)?,
            cell: t.or("cell", CellKind::Gru)?,
            attention: t.or("attention", SourceAttention::Additive)?,
            layers: t.required("layers")?,
            width,
            encoder_layers: t.optional("encoder_layers")?,
            encoder_width: t.optional("encoder_width")?,
            attention_width: t.optional("attention_width")?,
            dropout: t.or("dropout", 0.0)?,
            init: t.or("init", InitConfig::for_width(width))?,
        })
    }

    /// Layers of the encoder.
    pub fn encoder_layers(&self) -> usize {
        self.encoder_layers.unwrap_or(self.layers)
    }

    /// The width of the encoder in each direction.
    pub fn encoder_width(&self) -> usize {
        self.encoder_width.unwrap_or(self.width)
    }

    /// A, with attention.
    pub fn attention_width(&self) -> Option<usize> {
        match self.attention {
            SourceAttention::None => None,
            SourceAttention::Additive => Some(self.attention_width.unwrap_or(self.width)),
        }
    }

    pub(super) fn sizes(&self) -> String {
        let attention = match self.attention_width() {
            Some(width) => format!("additive attention of {width}"),
            None => format!("a fixed vector of {}", 2 * self.encoder_width()),
        };
        format!(
            "{} encoder {} × 2·{}; {attention}; decoder {} × {}, context {}, vocabulary {}",
            self.cell.title(),
            self.encoder_layers(),
            self.encoder_width(),
            self.layers,
            self.width,
            self.context,
            self.vocabulary
        )
    }

    pub(super) fn summary(&self) -> String {
        format!(
            "{} + {} {} layers × {} wide, {}, context {}, {} tokens",
            self.encoder_layers(),
            self.layers,
            self.cell.title(),
            self.width,
            if self.attention_width().is_some() { "additive attention" } else { "a fixed vector" },
            self.context,
            self.vocabulary
        )
    }
}

/// Most tokens that one convolution reaches back: as many as a sequence can have.
const MOST_REACH: usize = 1 << 24;

impl RecurrentConfig {
    /// Is this a model that can be built? The error says what is wrong and how to fix it.
    pub fn validate(&self) -> Result<()> {
        check_text_model(self.vocabulary, self.context, self.layers, self.width)?;
        check_dropout("model.dropout", self.dropout)?;
        check_finite("model.init.deviation", self.init.deviation)?;
        let cell = 2.0 * self.cell.gates() as f64 * self.width as f64;
        let rows = self.layers as f64 * cell + 2.0 * self.vocabulary as f64;
        check_count(rows * self.width as f64)
    }
}

impl ConvolutionConfig {
    /// Is this a model that can be built? The error says what is wrong and how to fix it.
    pub fn validate(&self) -> Result<()> {
        check_text_model(self.vocabulary, self.context, self.layers, self.width)?;
        check_sizes("model", &[("kernel", self.kernel, 1 << 10)])?;
        check_sizes("model", &[("cycle", self.cycle.unwrap_or(1), MOST_LAYERS)])?;
        let cycle = self.cycle.unwrap_or(self.layers);
        if cycle > 24 || (self.kernel - 1) << (cycle - 1) > MOST_REACH {
            return Err(Error::new(
                format!(
                    "{} is {cycle}: dilations double up to 2^{} with a kernel of {}, expected to \
                     reach back {MOST_REACH} tokens at most",
                    if self.cycle.is_some() { "model.cycle" } else { "model.layers" },
                    cycle - 1,
                    self.kernel
                ),
                "set model.cycle, after which dilations begin again at 1: 8 or 10 are usual",
            ));
        }
        check_dropout("model.dropout", self.dropout)?;
        check_finite("model.init.deviation", self.init.deviation)?;
        check_eps("model", self.norm.eps)?;
        let columns = 3.0 * self.kernel as f64 * self.width as f64;
        let rows = self.layers as f64 * columns + 2.0 * self.vocabulary as f64;
        check_count(rows * self.width as f64)
    }
}

impl RecurrentSeq2seqConfig {
    /// Is this a model that can be built? The error says what is wrong and how to fix it.
    pub fn validate(&self) -> Result<()> {
        check_text_model(self.vocabulary, self.context, self.layers, self.width)?;
        let compared = self.attention_width().unwrap_or(1);
        let sizes = [
            ("encoder_layers", self.encoder_layers(), MOST_LAYERS),
            ("encoder_width", self.encoder_width(), MOST),
            ("attention_width", compared, MOST),
        ];
        check_sizes("model", &sizes)?;
        check_dropout("model.dropout", self.dropout)?;
        check_finite("model.init.deviation", self.init.deviation)?;
        // The widest matrices are some 3·wide × 3·gates·wide.
        let wide = self.width.max(self.encoder_width()).max(compared) as f64;
        let layers = (self.layers + self.encoder_layers() + 1) as f64;
        let cells = 9.0 * self.cell.gates() as f64 * layers * wide;
        check_count((cells + 2.0 * self.vocabulary as f64) * wide)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ModelConfig;
    use super::*;
    use hearken_base::settings::Settings;

    fn read(text: &str) -> Result<ModelConfig> {
        let config: ModelConfig = Settings::parse(text, "m")?.read()?;
        config.validate().map(|()| config)
    }

    #[test]
    fn configurations_are_read_with_their_defaults() {
        let lstm = read("kind = \"recurrent\"\ncontext = 8\nlayers = 2\nwidth = 16").unwrap();
        assert_eq!(lstm, RecurrentConfig::new(CellKind::Lstm, 8, 2, 16).into());
        let convolution =
            read("kind = \"convolution\"\ncontext = 8\nlayers = 6\nwidth = 16\nkernel = 3")
                .unwrap();
        assert_eq!(convolution, ConvolutionConfig::new(8, 6, 16, 3).into());
        let ModelConfig::Convolution(config) = convolution else { panic!("another kind") };
        assert_eq!((config.receptive_field(), config.dilation(5)), (127, 32));
        let config = ConvolutionConfig { cycle: Some(2), ..config };
        assert_eq!((config.receptive_field(), config.dilation(5)), (19, 2));
        let fixed = "kind = \"recurrent-seq2seq\"\nattention = \"none\"\ncontext = 8\nlayers = 1\n\
                     width = 16";
        let ModelConfig::RecurrentSeq2seq(fixed) = read(fixed).unwrap() else {
            panic!("another kind")
        };
        assert_eq!((fixed.attention_width(), fixed.encoder_width()), (None, 16));
    }

    #[test]
    fn absurd_numbers_are_named_with_a_hint() {
        for (kind, setting, message) in [
            ("recurrent", "width = 0", "model.width is 0, expected at least 1"),
            ("recurrent", "layers = 10001", "model.layers is 10001, expected at most 10000"),
            ("recurrent", "width = 200000000", "the model would have about"),
            ("recurrent", "dropout = 1.0", "model.dropout is 1, expected 0 up to"),
            ("recurrent", "init = { deviation = nan }", "model.init.deviation is NaN"),
            ("convolution", "kernel = 0", "model.kernel is 0"),
            ("convolution", "layers = 64", "model.layers is 64: dilations double up to 2^63"),
            ("convolution", "cycle = 30", "model.cycle is 30: dilations double up to 2^29"),
            ("convolution", "cycle = 0", "model.cycle is 0"),
            ("convolution", "norm = { eps = 0.0 }", "model.norm.eps is 0"),
            ("recurrent-seq2seq", "encoder_width = 0", "model.encoder_width is 0"),
            ("recurrent-seq2seq", "attention_width = 0", "model.attention_width is 0"),
        ] {
            let key = setting.split(" =").next().unwrap();
            let rest = ["context = 8", "layers = 1", "width = 8"];
            let rest = rest.iter().filter(|line| !line.starts_with(&format!("{key} =")));
            let first = [format!("kind = \"{kind}\""), setting.to_owned()];
            let lines: Vec<String> =
                first.into_iter().chain(rest.map(|line| (*line).to_owned())).collect();
            let error = read(&lines.join("\n")).unwrap_err().to_string();
            assert!(error.contains(message) && error.contains("\nhint: "), "{setting}: {error}");
        }
    }
}
