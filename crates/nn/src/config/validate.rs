//! What the types of a configuration alone do not rule out. Every number has a range.

use super::{
    AttentionConfig, Combine, DecoderConfig, EncoderConfig, HeadConfig, PositionConfig,
    RopeScaling, StackConfig,
};
use hearken_base::{Error, Result};

/// Far beyond any real model, and small enough that no product of two overflows.
const MOST: usize = 1 << 28;
/// Ten times the deepest that was ever trained (DeepNet, 1,000).
const MOST_LAYERS: usize = 10_000;
/// As many as the kernel takes.
const MOST_BUCKETS: usize = 1 << 15;
/// A table has a number for every distance up to here.
const MOST_DISTANCE: usize = 1 << 20;

/// Token types: BERT has 2, TAPAS 7 sorts of them.
const MOST_TYPES: usize = 1 << 16;
/// Labels, or numbers that are predicted: fifty times the largest known set (ImageNet-21k).
const MOST_OUTPUTS: usize = 1 << 20;

/// Each of `sizes` must lie within 1 and its limit.
fn check_sizes(prefix: &str, sizes: &[(&str, usize, usize)]) -> Result<()> {
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
        if self.tied && self.stack.token_width() != self.stack.width {
            return Err(Error::new(
                "model.position stands beside the token, and model.tied is true",
                "set tied = false, since the embedding is then narrower than the head",
            ));
        }
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
        self.validate_head()?;
        let rows = 2 * self.vocabulary + self.context + self.types + outputs + 2 * self.stack.width;
        check_parameters(&self.stack, rows as f64)
    }

    fn validate_head(&self) -> Result<()> {
        match &self.head {
            HeadConfig::Tokens { .. }
                if self.tied && self.stack.token_width() != self.stack.width =>
            {
                Err(Error::new(
                    "model.position stands beside the token, and model.tied is true",
                    "set tied = false, since the embedding is then narrower than the head",
                ))
            }
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

/// A thousand times the largest model, and no count of bytes overflows. `rows` are those of the
/// tables and matrices outside of the stack, which are as wide as it is.
fn check_parameters(stack: &StackConfig, rows: f64) -> Result<()> {
    let about = stack.about_parameters() + rows * stack.width as f64;
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
        let d = self.dropout;
        for (name, p) in [
            ("embedding", d.embedding),
            ("attention", d.attention),
            ("feed_forward", d.feed_forward),
            ("residual", d.residual),
        ] {
            if !(0.0..1.0).contains(&p) {
                return Err(Error::new(
                    format!("{prefix}.dropout.{name} is {p}, expected 0 up to but not including 1"),
                    "0.1 is usual; 0 switches it off",
                ));
            }
        }
        for (name, value) in [
            ("residual_scale", self.residual_scale),
            ("init.deviation", self.init.deviation),
            ("init.query_key_scale", self.init.query_key_scale),
        ] {
            if !value.is_finite() {
                return Err(Error::new(
                    format!("{prefix}.{name} is {value}, expected a finite number"),
                    "leave it out for the usual one",
                ));
            }
        }
        let eps = self.norm.eps;
        if !(eps > 0.0 && eps.is_finite()) {
            return Err(Error::new(
                format!("{prefix}.norm.eps is {eps}, expected a small positive number"),
                "1e-5 is usual",
            ));
        }
        Ok(())
    }

    /// Weights of the blocks, roughly, as a number that cannot overflow.
    fn about_parameters(&self) -> f64 {
        let mixed = self.heads as f64 * self.head_width().max(self.value_width()) as f64;
        let block = self.width as f64 * (4.0 * mixed + 3.0 * self.feed_forward_width() as f64);
        self.layers as f64 * block
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
            | PositionConfig::Sinusoidal { combine: Combine::Concatenate { width } }
                if *width == 0 || *width >= self.width =>
            {
                wrong(
                    format!("a position of {width} beside a token, in a width of {}", self.width),
                    "it must be narrower than the width of the model",
                )
            }
            PositionConfig::Sinusoidal { combine }
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
            ("attention = { kind = \"window\", size = 0 }", "a window of 0, expected at least 1"),
        ] {
            let error = error(setting);
            assert!(error.contains(message) && error.contains("\nhint: "), "{error}");
        }
    }
}
