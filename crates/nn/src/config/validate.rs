//! What the types of a configuration alone do not rule out. Every number has a range.

use super::{
    AttentionConfig, Combine, Cross, DecoderConfig, EncoderConfig, EncoderDecoderConfig,
    HeadConfig, PositionConfig, RopeScaling, SoftmaxConfig, StackConfig,
};
use hearken_base::{Error, Result};

/// Far beyond any real model, and small enough that no product of two overflows.
pub(super) const MOST: usize = 1 << 28;
/// Ten times the deepest that was ever trained (DeepNet, 1,000).
pub(super) const MOST_LAYERS: usize = 10_000;
/// As many as the kernel takes.
const MOST_BUCKETS: usize = 1 << 15;
/// A table has a number for every distance up to here.
const MOST_DISTANCE: usize = 1 << 20;

/// Sixteen times the most that were ever trained (Switch-C, 2,048 in a layer).
const MOST_EXPERTS: usize = 1 << 15;
/// Token types: BERT has 2, TAPAS 7 sorts of them.
const MOST_TYPES: usize = 1 << 16;
/// Labels, or numbers that are predicted: fifty times the largest known set (ImageNet-21k).
const MOST_OUTPUTS: usize = 1 << 20;

/// Each of `sizes` must lie within 1 and its limit.
pub(super) fn check_sizes(prefix: &str, sizes: &[(&str, usize, usize)]) -> Result<()> {
    for &(name, value, most) in sizes {
        if value == 0 {
            let message = format!("{prefix}.{name} is 0, expected at least 1");
            return Err(Error::new(message, format!("set {prefix}.{name}")));
        }
        if value > most {
            let message = format!("{prefix}.{name} is {value}, expected at most {most}");
            return Err(Error::new(message, "check for a slip in the number"));
        }
    }
    Ok(())
}

impl DecoderConfig {
    /// Is this a model that can be built? The error says what is wrong and how to fix it.
    pub fn validate(&self) -> Result<()> {
        check_sizes("model", &[("context", self.context, MOST)])?;
        if self.vocabulary > MOST {
            check_sizes("model", &[("vocabulary", self.vocabulary, MOST)])?;
        }
        self.stack.validate("model")?;
        self.stack.validate_causal("model")?;
        check_tied(self.tied, &self.stack)?;
        check_parameters(&self.stack, 2.0 * self.vocabulary as f64 + self.context as f64)
    }
}

impl EncoderConfig {
    /// Is this a model that can be built? The error says what is wrong and how to fix it.
    pub fn validate(&self) -> Result<()> {
        check_sizes("model", &[("context", self.context, MOST)])?;
        let outputs = self.head.outputs();
        for (name, size, most) in [
            ("vocabulary", self.vocabulary, MOST),
            ("types", self.types, MOST_TYPES),
            ("head.outputs", outputs, MOST_OUTPUTS),
        ] {
            if size > most {
                check_sizes("model", &[(name, size, most)])?;
            }
        }
        self.stack.validate("model")?;
        if self.stack.prefix {
            return Err(Error::new(
                "model.prefix is true, and model.kind is encoder",
                "an encoder sees everything in both directions: leave prefix out",
            ));
        }
        self.validate_head()?;
        let rows = 2 * self.vocabulary + self.context + self.types + outputs + 2 * self.stack.width;
        check_parameters(&self.stack, rows as f64)
    }

    fn validate_head(&self) -> Result<()> {
        match &self.head {
            HeadConfig::Tokens { .. } => check_tied(self.tied, &self.stack),
            HeadConfig::Numbers { outputs: 0 } => {
                check_sizes("model", &[("head.outputs", 0, MOST_OUTPUTS)])
            }
            HeadConfig::Classes { labels, .. } | HeadConfig::Tags { labels } => {
                let mut sorted: Vec<&str> = labels.iter().map(String::as_str).collect();
                sorted.sort_unstable();
                match sorted.array_windows().find(|[a, b]| a == b) {
                    Some([label, _]) => Err(Error::new(
                        format!("model.head.labels has {label:?} twice"),
                        "each label is listed once",
                    )),
                    None => Ok(()),
                }
            }
            HeadConfig::Embedding { most_tokens: Some(tokens), .. }
                if !(1..=self.context).contains(tokens) =>
            {
                Err(Error::new(
                    format!(
                        "model.head.most_tokens is {tokens}, expected 1 to {}, the context",
                        self.context
                    ),
                    "leave it out to use the whole context",
                ))
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn check_text_model(
    vocabulary: usize,
    context: usize,
    layers: usize,
    width: usize,
) -> Result<()> {
    let sizes =
        [("context", context, MOST), ("layers", layers, MOST_LAYERS), ("width", width, MOST)];
    check_sizes("model", &sizes)?;
    if vocabulary > MOST {
        check_sizes("model", &[("vocabulary", vocabulary, MOST)])?;
    }
    Ok(())
}

impl EncoderDecoderConfig {
    /// Is this a model that can be built? The error says what is wrong and how to fix it.
    pub fn validate(&self) -> Result<()> {
        check_sizes("model", &[("context", self.context, MOST)])?;
        if self.vocabulary > MOST {
            check_sizes("model", &[("vocabulary", self.vocabulary, MOST)])?;
        }
        let encoder = self.encoder_stack();
        self.stack.validate("model")?;
        encoder.validate("model.encoder")?;
        if !self.stack.mechanism.is_softmax() || self.stack.reversible || self.stack.prefix {
            return Err(Error::new(
                "model.kind is encoder-decoder, and model.mechanism, reversible or prefix is given",
                "both stacks attend by softmax: leave these out",
            ));
        }
        check_tied(self.tied, &self.stack)?;
        let (ours, theirs) = (self.stack.layers, encoder.layers);
        if self.cross == Cross::Layers && ours != theirs {
            return Err(Error::new(
                format!(
                    "model.cross is \"layers\", and the encoder has {theirs} layers, the decoder \
                     {ours}"
                ),
                "layer by layer needs equal numbers of layers: choose cross = \"last\"",
            ));
        }
        let rows = 3.0 * self.vocabulary as f64 + 2.0 * self.context as f64;
        // Cross-attention is about half a block more.
        check_parameters(
            &self.stack,
            rows + 2.0 * encoder.about_parameters() / encoder.width as f64,
        )
    }
}

/// A head that is the embedding needs vectors as wide as the model.
fn check_tied(tied: bool, stack: &StackConfig) -> Result<()> {
    if tied && stack.token_width() != stack.width {
        return Err(Error::new(
            "model.position stands beside the token, and model.tied is true",
            "set tied = false, since the embedding is then narrower than the head",
        ));
    }
    Ok(())
}

pub(super) fn check_dropout(name: &str, p: f32) -> Result<()> {
    if (0.0..1.0).contains(&p) {
        return Ok(());
    }
    Err(Error::new(
        format!("{name} is {p}, expected 0 up to but not including 1"),
        "0.1 is usual; 0 switches it off",
    ))
}

pub(super) fn check_finite(name: &str, value: f32) -> Result<()> {
    if value.is_finite() {
        return Ok(());
    }
    let message = format!("{name} is {value}, expected a finite number");
    Err(Error::new(message, "leave it out for the usual one"))
}

pub(super) fn check_eps(prefix: &str, eps: f32) -> Result<()> {
    if eps > 0.0 && eps.is_finite() {
        return Ok(());
    }
    let message = format!("{prefix}.norm.eps is {eps}, expected a small positive number");
    Err(Error::new(message, "1e-5 is usual"))
}

/// A thousand times the largest model, and no count of bytes overflows. `rows` are those of the
/// tables and matrices outside of the stack, which are as wide as it is.
fn check_parameters(stack: &StackConfig, rows: f64) -> Result<()> {
    check_count(stack.about_parameters() + rows * stack.width as f64)
}

pub(super) fn check_count(about: f64) -> Result<()> {
    if about > 1e15 {
        return Err(Error::new(
            format!("the model would have about {about:.0e} parameters"),
            "check model.width, layers, heads and vocabulary for a slip in a number",
        ));
    }
    Ok(())
}

impl StackConfig {
    /// Are these blocks that can be built? `prefix` is the table they stand in, for messages.
    pub fn validate(&self, prefix: &str) -> Result<()> {
        check_sizes(
            prefix,
            &[
                ("layers", self.layers, MOST_LAYERS),
                ("width", self.width, MOST),
                ("heads", self.heads, MOST),
                ("kv_heads", self.kv_heads(), MOST),
                ("head_width", self.head_width(), MOST),
                ("value_width", self.value_width(), MOST),
                ("feed_forward.width", self.feed_forward_width(), MOST),
            ],
        )?;
        self.validate_heads(prefix)?;
        self.validate_position(prefix)?;
        self.validate_mechanism(prefix)?;
        if let AttentionConfig::Window { size: 0 } | AttentionConfig::Sparse { window: 0, .. } =
            self.attention
        {
            return Err(Error::new(
                format!("{prefix}.attention has a window of 0, expected at least 1"),
                "a token sees at least itself: use 1 or more",
            ));
        }
        self.validate_experts(prefix)?;
        self.validate_mixing(prefix)?;
        let d = self.dropout;
        for (name, p) in [
            ("embedding", d.embedding),
            ("attention", d.attention),
            ("feed_forward", d.feed_forward),
            ("residual", d.residual),
        ] {
            check_dropout(&format!("{prefix}.dropout.{name}"), p)?;
        }
        for (name, value) in [
            ("residual_scale", self.residual_scale),
            ("init.deviation", self.init.deviation),
            ("init.query_key_scale", self.init.query_key_scale),
        ] {
            check_finite(&format!("{prefix}.{name}"), value)?;
        }
        check_eps(prefix, self.norm.eps)
    }

    /// Weights of the blocks, roughly, as a number that cannot overflow.
    fn about_parameters(&self) -> f64 {
        let mixed = self.heads as f64 * self.head_width().max(self.value_width()) as f64;
        let experts = self.experts.map_or(1, |experts| experts.count) as f64;
        let wide = 3.0 * experts * self.feed_forward_width() as f64;
        let block = self.width as f64 * (4.0 * mixed + wide);
        self.layers as f64 * block
    }

    fn validate_experts(&self, prefix: &str) -> Result<()> {
        let Some(experts) = self.experts else { return Ok(()) };
        let wrong = |name: &str, value: String, expected: &str, hint: &str| {
            let message = format!("{prefix}.experts.{name} is {value}, expected {expected}");
            Err(Error::new(message, hint))
        };
        check_sizes(prefix, &[("experts.count", experts.count, MOST_EXPERTS)])?;
        if !(1..=experts.count).contains(&experts.top) {
            let expected = format!("1 to {}, the number of experts", experts.count);
            return wrong("top", experts.top.to_string(), &expected, "2 is usual");
        }
        if let Some(capacity) = experts.capacity
            && !(capacity > 0.0 && capacity.is_finite())
        {
            let hint = "1.25 is usual; leave it out to drop nothing";
            return wrong("capacity", capacity.to_string(), "a positive number", hint);
        }
        for (name, factor) in [("balance", experts.balance), ("z_loss", experts.z_loss)] {
            if !(factor >= 0.0 && factor.is_finite()) {
                let hint = "0.01 and 0.001 are usual; 0 switches a loss off";
                return wrong(name, factor.to_string(), "0 or more", hint);
            }
        }
        Ok(())
    }

    fn validate_mixing(&self, prefix: &str) -> Result<()> {
        let SoftmaxConfig { top, temperature } = self.softmax;
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(Error::new(
                format!("{prefix}.softmax.temperature is {temperature}, expected more than 0"),
                "1 is usual; small numbers make attention sharp",
            ));
        }
        if top == Some(0) {
            return Err(Error::new(
                format!("{prefix}.softmax.top is 0, expected at least 1"),
                "leave it out to keep all scores",
            ));
        }
        let shared = self.shared_projections;
        if shared.queries_are_keys() && self.kv_heads() != self.heads {
            return Err(Error::new(
                format!(
                    "{prefix}.shared_projections is {}, and there are {} heads of queries and {} \
                     of keys",
                    shared.name(),
                    self.heads,
                    self.kv_heads()
                ),
                "queries that are keys need as many heads: leave kv_heads out",
            ));
        }
        if shared.keys_are_values() && self.value_width() != self.head_width() {
            return Err(Error::new(
                format!(
                    "{prefix}.shared_projections is {}, and keys are {} wide and values {}",
                    shared.name(),
                    self.head_width(),
                    self.value_width()
                ),
                "keys that are values are as wide: leave value_width out",
            ));
        }
        Ok(())
    }

    fn validate_heads(&self, prefix: &str) -> Result<()> {
        let (heads, kv_heads, width) = (self.heads, self.kv_heads(), self.width);
        if self.head_width.is_none() && !width.is_multiple_of(heads) {
            let fitting = (1..=width).filter(|h| width.is_multiple_of(*h));
            let near = fitting.min_by_key(|h| h.abs_diff(heads)).unwrap_or(1);
            return Err(Error::new(
                format!("{prefix}.heads is {heads}, which does not divide {prefix}.width {width}"),
                format!("{near} heads would fit, or set {prefix}.head_width"),
            ));
        }
        if !heads.is_multiple_of(kv_heads) {
            return Err(Error::new(
                format!(
                    "{prefix}.kv_heads is {kv_heads}, which does not divide {prefix}.heads {heads}"
                ),
                "each key/value head serves the same number of query heads",
            ));
        }
        Ok(())
    }

    fn validate_position(&self, prefix: &str) -> Result<()> {
        let wrong = |message: String, hint: &str| {
            Err(Error::new(format!("{prefix}.position: {message}"), hint))
        };
        match &self.position {
            PositionConfig::Rope { base, share, .. }
                if !(base.is_finite() && *base > 1.0 && (0.0..=1.0).contains(share))
                    || self.rotated_width(*share) < 2 =>
            {
                let head = self.head_width();
                wrong(
                    format!(
                        "RoPE of base {base} and share {share} of a head of {head} rotates nothing"
                    ),
                    "base must exceed 1, share lie in (0, 1], and the head be at least 2 wide",
                )
            }
            PositionConfig::Learned { combine: Combine::Concatenate { width } }
            | PositionConfig::Sinusoidal { combine: Combine::Concatenate { width }, .. }
                if *width == 0 || *width >= self.width =>
            {
                wrong(
                    format!("a position of {width} beside a token, in a width of {}", self.width),
                    "it must be narrower than the width of the model",
                )
            }
            PositionConfig::Sinusoidal { combine, .. }
                if !self.position_width(*combine).is_multiple_of(2) =>
            {
                wrong(
                    format!(
                        "sines and cosines in an odd width of {}",
                        self.position_width(*combine)
                    ),
                    "use an even width",
                )
            }
            PositionConfig::Relative { max_distance } | PositionConfig::T5 { max_distance, .. }
                if *max_distance > MOST_DISTANCE =>
            {
                wrong(
                    format!("a distance of {max_distance}, expected at most {MOST_DISTANCE}"),
                    "further than the context there is nothing",
                )
            }
            PositionConfig::T5 { buckets, .. } if *buckets > MOST_BUCKETS => wrong(
                format!("{buckets} buckets, expected at most {MOST_BUCKETS}"),
                "32 buckets are usual",
            ),
            PositionConfig::T5 { buckets, max_distance }
                if *buckets < 4 || !buckets.is_multiple_of(2) || max_distance <= buckets =>
            {
                wrong(
                    format!("{buckets} buckets up to a distance of {max_distance}"),
                    "an even number of at least 4 buckets, and max_distance larger than buckets: \
                     32 and 128 are usual",
                )
            }
            PositionConfig::Rope { scaling, .. } if !scaling.is_possible() => wrong(
                format!("the scaling {scaling:?} is not possible"),
                "factors are positive, an original context is at least 1, and the fast or high \
                 limit lies above the slow or low one",
            ),
            _ => Ok(()),
        }
    }
}

impl RopeScaling {
    /// Can angles be computed?
    fn is_possible(&self) -> bool {
        let positive = |x: f32| x.is_finite() && x > 0.0;
        match *self {
            Self::None => true,
            Self::Linear { factor } | Self::Ntk { factor } => positive(factor),
            Self::Yarn { factor, original_context, beta_fast: above, beta_slow: below }
            | Self::Llama3 {
                factor,
                original_context,
                high_frequency_factor: above,
                low_frequency_factor: below,
            } => {
                [factor, above, below].into_iter().all(positive)
                    && (1..=MOST).contains(&original_context)
                    && above > below
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ModelConfig;
    use hearken_base::settings::Settings;

    fn error(setting: &str) -> String {
        let good = ["context = 8", "layers = 1", "width = 8", "heads = 2"];
        let key = setting.split(" =").next().unwrap_or_default();
        let rest = good.iter().filter(|line| !line.starts_with(&format!("{key} ="))).copied();
        let lines: Vec<&str> = ["kind = \"decoder\"", setting].into_iter().chain(rest).collect();
        let config: ModelConfig = Settings::parse(&lines.join("\n"), "m").unwrap().read().unwrap();
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn absurd_numbers_are_named_with_a_hint() {
        for (setting, message) in [
            ("width = 0", "model.width is 0, expected at least 1"),
            ("layers = 10001", "model.layers is 10001, expected at most 10000"),
            ("context = 1000000000000", "model.context is 1000000000000, expected at most"),
            ("vocabulary = 1000000000000", "model.vocabulary is 1000000000000, expected at most"),
            ("width = 33554432", "the model would have about 2e16 parameters"),
            ("head_width = 1000000000000", "model.head_width is 1000000000000, expected at most"),
            ("value_width = 0", "model.value_width is 0, expected at least 1"),
            ("position = { kind = \"relative\", max_distance = 1000000000000 }", "at most"),
            ("position = { kind = \"t5\", max_distance = 1000000000000 }", "at most 1048576"),
            (
                "position = { kind = \"t5\", buckets = 40000, max_distance = 50000 }",
                "at most 32768",
            ),
            ("position = { kind = \"rope\", base = nan }", "rotates nothing"),
            (
                "position = { kind = \"rope\", scaling = { kind = \"linear\", factor = 0.0 } }",
                "is not possible",
            ),
            (
                "position = { kind = \"rope\", scaling = { kind = \"llama3\", factor = 8.0, \
                 original_context = 8, low_frequency_factor = 4.0 } }",
                "is not possible",
            ),
            (
                "position = { kind = \"learned\", combine = { kind = \"concatenate\", width = 2 } }",
                "model.tied is true",
            ),
            ("init = { deviation = inf }", "model.init.deviation is inf"),
            ("heads = 3", "model.heads is 3, which does not divide model.width 8"),
            ("kv_heads = 5", "model.kv_heads is 5, which does not divide model.heads 2"),
            ("dropout = { residual = 1.0 }", "model.dropout.residual is 1, expected 0 up to"),
            ("norm = { eps = -1.0 }", "model.norm.eps is -1, expected a small positive number"),
            ("experts = 0", "model.experts.count is 0, expected at least 1"),
            ("experts = { count = 4, top = 5 }", "model.experts.top is 5, expected 1 to 4"),
            ("experts = { count = 4, capacity = 0 }", "model.experts.capacity is 0, expected a"),
            ("experts = { count = 4, balance = nan }", "model.experts.balance is NaN, expected 0"),
            ("softmax = { temperature = 0 }", "model.softmax.temperature is 0, expected more"),
            ("softmax = { top = 0 }", "model.softmax.top is 0, expected at least 1"),
            ("attention = { kind = \"window\", size = 0 }", "a window of 0, expected at least 1"),
        ] {
            let error = error(setting);
            assert!(error.contains(message) && error.contains("\nhint: "), "{error}");
        }
    }
}
