//! What the types of a configuration alone do not rule out.

use super::{AttentionConfig, Combine, ConfigError, DecoderConfig, PositionConfig, RopeScaling};

/// Far beyond any real model, and small enough that no product of two overflows.
const MOST: usize = 1 << 28;
/// As many as the kernel takes.
const MOST_BUCKETS: usize = 1 << 15;

impl DecoderConfig {
    /// Is this a model that can be built? The error says what is wrong and what would do.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // Ten times the deepest that was ever trained (DeepNet, 1,000): to plan a step goes
        // through every layer, which must not take minutes.
        const MOST_LAYERS: usize = 10_000;
        let positive = [
            ("context", self.context),
            ("layers", self.layers),
            ("width", self.width),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads()),
            ("head_width", self.head_width()),
            ("feed_forward.width", self.feed_forward_width()),
        ];
        for (name, value) in positive {
            if value == 0 {
                return Err(ConfigError::new(
                    format!("model.{name} is 0, expected at least 1"),
                    format!("set model.{name}"),
                ));
            }
        }
        for (name, value) in positive.into_iter().chain([("vocabulary", self.vocabulary)]) {
            let most = if name == "layers" { MOST_LAYERS } else { MOST };
            if value > most {
                return Err(ConfigError::new(
                    format!("model.{name} is {value}, expected at most {most}"),
                    "check for a slip in the number",
                ));
            }
        }
        if self.head_width.is_none() && !self.width.is_multiple_of(self.heads) {
            let fitting = (1..=self.width).filter(|h| self.width.is_multiple_of(*h));
            let near = fitting.min_by_key(|h| h.abs_diff(self.heads)).unwrap_or(1);
            return Err(ConfigError::new(
                format!(
                    "model.heads is {}, which does not divide model.width {}",
                    self.heads, self.width
                ),
                format!("{near} heads would fit, or set model.head_width"),
            ));
        }
        if !self.heads.is_multiple_of(self.kv_heads()) {
            return Err(ConfigError::new(
                format!(
                    "model.kv_heads is {}, which does not divide model.heads {}",
                    self.kv_heads(),
                    self.heads
                ),
                "each key/value head serves the same number of query heads",
            ));
        }
        self.validate_position()?;
        if let AttentionConfig::Window { size: 0 } | AttentionConfig::Sparse { window: 0, .. } =
            self.attention
        {
            return Err(ConfigError::new(
                "model.attention has a window of 0, expected at least 1",
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
                return Err(ConfigError::new(
                    format!("model.dropout.{name} is {p}, expected 0 up to but not including 1"),
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
                return Err(ConfigError::new(
                    format!("model.{name} is {value}, expected a number that is finite"),
                    "leave it out for the usual one",
                ));
            }
        }
        if self.norm.eps.is_nan() || self.norm.eps <= 0.0 {
            return Err(ConfigError::new(
                format!("model.norm.eps is {}, expected a small positive number", self.norm.eps),
                "1e-5 is usual",
            ));
        }
        self.validate_size()
    }

    /// Sizes that are possible one by one may not be so together.
    fn validate_size(&self) -> Result<(), ConfigError> {
        // A thousand times the largest model, and no count of bytes overflows.
        const MOST: f64 = 1e15;
        let [layers, width, vocabulary, context] =
            [self.layers, self.width, self.vocabulary, self.context].map(|n| n as f64);
        let mixed = self.heads as f64 * self.head_width() as f64;
        let block = width * (4.0 * mixed + 3.0 * self.feed_forward_width() as f64);
        let about = layers * block + (2.0 * vocabulary + context) * width;
        if about > MOST {
            return Err(ConfigError::new(
                format!("the model would have about {about:.0e} parameters"),
                "check model.width, layers, heads and vocabulary for a slip in a number",
            ));
        }
        Ok(())
    }

    fn validate_position(&self) -> Result<(), ConfigError> {
        let wrong = |message: String, hint: &str| {
            Err(ConfigError::new(format!("model.position: {message}"), hint))
        };
        match &self.position {
            PositionConfig::Rope { base, share, .. }
                if base.is_nan()
                    || *base <= 1.0
                    || !(0.0..=1.0).contains(share)
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
                if *width == 0 || *width >= self.width || self.tied =>
            {
                wrong(
                    format!("a position of {width} beside a token, in a width of {}", self.width),
                    "it must be narrower than model.width; and set tied = false, since the \
                     embedding is then narrower than the head",
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
            PositionConfig::Relative { max_distance } if *max_distance > MOST => wrong(
                format!("a distance of {max_distance}, expected at most {MOST}"),
                "further than the context there is nothing",
            ),
            PositionConfig::T5 { buckets, .. } if *buckets > MOST_BUCKETS => wrong(
                format!("{buckets} buckets, expected at most {MOST_BUCKETS}"),
                "32 buckets are usual",
            ),
            PositionConfig::T5 { buckets, max_distance }
                if *buckets < 2 || max_distance <= buckets =>
            {
                wrong(
                    format!("{buckets} buckets up to a distance of {max_distance}"),
                    "at least 2 buckets, and max_distance larger than buckets: 32 and 128 are usual",
                )
            }
            PositionConfig::Rope { scaling, .. } if !scaling.is_possible() => wrong(
                format!("a scaling that is none: {scaling:?}"),
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
    use crate::parse;

    fn error(setting: &str) -> String {
        let good = ["context = 8", "layers = 1", "width = 8", "heads = 2"];
        let key = setting.split(" =").next().unwrap_or_default();
        let rest = good.iter().filter(|line| !line.starts_with(&format!("{key} ="))).copied();
        let lines: Vec<&str> = ["kind = \"decoder\"", setting].into_iter().chain(rest).collect();
        let ModelConfig::Decoder(config) = parse::from_toml(&lines.join("\n"), "m").unwrap();
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn absurd_numbers_are_named_with_a_hint() {
        for (setting, message) in [
            ("width = 0", "model.width is 0, expected at least 1"),
            ("layers = 10001", "model.layers is 10001, expected at most 10000"),
            ("context = 1000000000000", "model.context is 1000000000000, expected at most"),
            ("width = 33554432", "the model would have about 2e16 parameters"),
            ("head_width = 1000000000000", "model.head_width is 1000000000000, expected at most"),
            ("position = { kind = \"relative\", max_distance = 1000000000000 }", "at most"),
            (
                "position = { kind = \"t5\", buckets = 40000, max_distance = 50000 }",
                "at most 32768",
            ),
            ("position = { kind = \"rope\", base = nan }", "rotates nothing"),
            (
                "position = { kind = \"rope\", scaling = { kind = \"linear\", factor = 0.0 } }",
                "a scaling that is none",
            ),
            (
                "position = { kind = \"rope\", scaling = { kind = \"llama3\", factor = 8.0, \
                 original_context = 8, low_frequency_factor = 4.0 } }",
                "a scaling that is none",
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
