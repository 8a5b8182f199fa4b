//! How attention weighs what it sees, and what each way of doing it cannot be combined with.

use super::{AttentionConfig, Placement, PositionConfig, StackConfig};
use hearken_base::settings::{Setting, Value};
use hearken_base::{Error, Result, names};
use serde::Serialize;

/// How attention weighs the values that a token sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum MechanismConfig {
    /// softmax(q·kᵀ/√D): exact, T² pairs.
    Softmax {},
    /// φ(q)·φ(k) with a fixed map φ: sums over keys, T·D² operations, no cache that grows.
    Linear {
        /// φ
        map: FeatureMap,
    },
    /// φ(q)·φ(k) with random features whose products are the weights of softmax on average
    /// (FAVOR+).
    Performer {
        /// M: random features of a head.
        features: usize,
        /// Draws other features every so many micro-batches of training; 0 for never.
        redraw: usize,
    },
    /// softmax attention to `rank` mixtures of all keys and values: encoders only.
    Linformer {
        /// How many mixtures.
        rank: usize,
    },
    /// softmax attention among tokens whose shared query-key falls into the same bucket of a hash
    /// (Reformer).
    Lsh {
        /// Tokens of a chunk, which sees itself and the chunk before it in the order of buckets.
        chunk: usize,
        /// Buckets of a round, an even number; 0 for one per chunk of the sequence.
        buckets: usize,
        /// Hashes, each of which may find what the others miss.
        rounds: usize,
        /// Draws other hashes every so many micro-batches of training; 0 for never.
        redraw: usize,
    },
}

impl Setting for MechanismConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        const KINDS: [&str; 5] = ["softmax", "linear", "performer", "linformer", "lsh"];
        value.choice(&KINDS, |kind, t| {
            Ok(match kind {
                "linear" => Self::Linear { map: t.or("map", FeatureMap::Elu)? },
                "performer" => {
                    Self::Performer { features: t.or("features", 256)?, redraw: t.or("redraw", 0)? }
                }
                "linformer" => Self::Linformer { rank: t.or("rank", 256)? },
                "lsh" => Self::Lsh {
                    chunk: t.or("chunk", 64)?,
                    buckets: t.or("buckets", 0)?,
                    rounds: t.or("rounds", 2)?,
                    redraw: t.or("redraw", 0)?,
                },
                _ => Self::Softmax {},
            })
        })
    }
}

impl Default for MechanismConfig {
    fn default() -> Self {
        Self::Softmax {}
    }
}

impl MechanismConfig {
    /// Is it the usual one?
    pub fn is_softmax(&self) -> bool {
        *self == Self::Softmax {}
    }

    /// Must a model that uses it read everything again for every token that it writes? The buckets
    /// of a hash fill up as a text grows, and with them changes who sees whom.
    pub fn recomputes(&self) -> bool {
        matches!(self, Self::Lsh { .. })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Softmax {} => "softmax",
            Self::Linear { .. } => "linear",
            Self::Performer { .. } => "performer",
            Self::Linformer { .. } => "linformer",
            Self::Lsh { .. } => "lsh",
        }
    }
}

/// The map φ of linear attention: each gives numbers that are not negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeatureMap {
    /// elu(x) + 1 (Katharopoulos et al. 2020).
    Elu,
    /// max(x, 0)
    Relu,
    /// max(x, 0)²
    SquaredRelu,
}

names!(FeatureMap { "elu" => Elu, "relu" => Relu, "squared-relu" => SquaredRelu });

/// Sixteen times the most that was ever used.
const MOST_FEATURES: usize = 1 << 14;
/// Rounds beyond which a whole attention is cheaper.
const MOST_ROUNDS: usize = 64;

impl StackConfig {
    /// Is everything but sizes as the families of other programs have it?
    pub fn is_usual(&self) -> bool {
        self.mechanism.is_softmax() && !self.reversible && self.mixes_as_usual()
    }

    /// Are scores mixed by one plain softmax, from three projections, without a prefix?
    fn mixes_as_usual(&self) -> bool {
        self.softmax.is_usual() && self.shared_projections.is_none() && !self.prefix
    }

    /// Can the mechanism be had with these positions, patterns and heads?
    pub(super) fn validate_mechanism(&self, prefix: &str) -> Result<()> {
        if self.reversible && self.norm.placement == Placement::Post {
            return Err(Error::new(
                format!("{prefix}.reversible is true, and {prefix}.norm.placement is post"),
                "reversible layers need the sum itself: set norm.placement = \"pre\"",
            ));
        }
        if self.reversible && self.experts.is_some() {
            return Err(Error::new(
                format!("{prefix}.reversible is true, and {prefix}.experts are given"),
                "routers have losses of their own, which layers that are computed back cannot \
                 carry: leave one of the two out",
            ));
        }
        let name = self.mechanism.name();
        let refuse = |what: &str, hint: &str| {
            Err(Error::new(format!("{prefix}.mechanism is {name}, and {what}"), hint))
        };
        if self.mechanism.is_softmax() {
            return Ok(());
        }
        self.validate_sizes_of_mechanism(prefix)?;
        if !self.mixes_as_usual() || !self.scaled_scores {
            return refuse(
                &format!(
                    "{prefix} has softmax, shared_projections, prefix or scaled_scores that are not \
                     the usual ones"
                ),
                "these are options of mechanism = \"softmax\": leave them out, or leave mechanism \
                 out",
            );
        }
        if self.attention != (AttentionConfig::Full {}) {
            return refuse(
                &format!("{prefix}.attention is a pattern of which single scores are visible"),
                "only mechanism = \"softmax\" computes single scores: leave attention out, or \
                 leave mechanism out",
            );
        }
        match (self.mechanism, &self.position) {
            (
                _,
                PositionConfig::Alibi {}
                | PositionConfig::T5 { .. }
                | PositionConfig::Relative { .. },
            ) => refuse(
                &format!("{prefix}.position adds to single scores, which it never computes"),
                "use learned or sinusoidal positions, or none",
            ),
            (MechanismConfig::Linear { .. }, PositionConfig::Rope { .. }) => refuse(
                &format!("{prefix}.position is rope"),
                "φ of a rotated vector no longer depends on the distance: use learned or \
                 sinusoidal positions, or mechanism = \"performer\", which can rotate",
            ),
            (MechanismConfig::Linformer { .. }, PositionConfig::Rope { .. }) => refuse(
                &format!("{prefix}.position is rope"),
                "a mixture of keys stands at no position: use learned or sinusoidal positions",
            ),
            (MechanismConfig::Lsh { .. }, PositionConfig::Rope { .. }) => refuse(
                &format!("{prefix}.position is rope"),
                "queries and keys are one vector here, which is hashed as it is: use learned or \
                 sinusoidal positions",
            ),
            (MechanismConfig::Lsh { .. }, _) if self.kv_heads() != self.heads => refuse(
                &format!("{prefix}.kv_heads is {}, fewer than {}", self.kv_heads(), self.heads),
                "queries and keys are one vector here: leave kv_heads out",
            ),
            _ => Ok(()),
        }
    }

    fn validate_sizes_of_mechanism(&self, prefix: &str) -> Result<()> {
        let within = |name: &str, value: usize, range: std::ops::RangeInclusive<usize>| {
            if range.contains(&value) {
                return Ok(());
            }
            let (least, most) = range.into_inner();
            Err(Error::new(
                format!("{prefix}.mechanism.{name} is {value}, expected {least} to {most}"),
                "leave it out for the usual one",
            ))
        };
        match self.mechanism {
            MechanismConfig::Softmax {} | MechanismConfig::Linear { .. } => Ok(()),
            MechanismConfig::Performer { features, .. } => {
                within("features", features, 1..=MOST_FEATURES)
            }
            MechanismConfig::Linformer { rank } => within("rank", rank, 1..=MOST_FEATURES),
            MechanismConfig::Lsh { chunk, buckets, rounds, .. } => {
                within("chunk", chunk, 2..=MOST_FEATURES)?;
                within("rounds", rounds, 1..=MOST_ROUNDS)?;
                within("buckets", buckets, 0..=MOST_FEATURES)?;
                if buckets.is_multiple_of(2) {
                    return Ok(());
                }
                Err(Error::new(
                    format!("{prefix}.mechanism.buckets is {buckets}, which is odd"),
                    "a rotation and its opposite make two buckets: use an even number",
                ))
            }
        }
    }

    /// Can these blocks read from left to right?
    pub(super) fn validate_causal(&self, prefix: &str) -> Result<()> {
        match self.mechanism {
            MechanismConfig::Linformer { .. } => Err(Error::new(
                format!("{prefix}.mechanism is linformer, and the model reads from left to right"),
                "a mixture of all keys would show what comes later: it is for encoders",
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::ModelConfig;
    use hearken_base::settings::Settings;

    fn read(kind: &str, lines: &str) -> ModelConfig {
        let text =
            format!("kind = \"{kind}\"\ncontext = 8\nlayers = 1\nwidth = 8\nheads = 2\n{lines}");
        Settings::parse(&text, "m").unwrap().read().unwrap()
    }

    #[test]
    fn what_cannot_be_combined_is_refused_with_a_hint() {
        let none = "position = \"none\"\n";
        for (kind, lines, message) in [
            (
                "decoder",
                "mechanism = \"linear\"\nposition = \"rope\"",
                "linear, and model.position",
            ),
            ("decoder", "mechanism = \"linear\"\nposition = \"alibi\"", "single scores"),
            ("decoder", "mechanism = \"performer\"\nposition = \"t5\"", "single scores"),
            ("encoder", "mechanism = \"linformer\"\nposition = \"relative\"", "single scores"),
            ("encoder", "mechanism = \"linformer\"\nposition = \"rope\"", "linformer, and"),
            ("decoder", "mechanism = \"linformer\"", "reads from left to right"),
            ("decoder", "mechanism = \"lsh\"\nposition = \"rope\"", "lsh, and model.position"),
            ("decoder", "mechanism = \"lsh\"\nkv_heads = 1", "kv_heads is 1, fewer than 2"),
            (
                "decoder",
                "mechanism = \"linear\"\nattention = { kind = \"window\", size = 4 }",
                "single scores are visible",
            ),
            (
                "decoder",
                "mechanism = { kind = \"performer\", features = 0 }",
                "features is 0, expected 1 to",
            ),
            ("encoder", "mechanism = { kind = \"linformer\", rank = 0 }", "rank is 0"),
            ("decoder", "mechanism = { kind = \"lsh\", chunk = 1 }", "chunk is 1"),
            ("decoder", "mechanism = { kind = \"lsh\", rounds = 0 }", "rounds is 0"),
            (
                "decoder",
                "mechanism = { kind = \"lsh\", buckets = 3 }",
                "buckets is 3, which is odd",
            ),
            ("decoder", "reversible = true\nnorm = { placement = \"post\" }", "placement is post"),
        ] {
            let error = read(kind, lines).validate().unwrap_err().to_string();
            assert!(error.contains(message) && error.contains("\nhint: "), "{lines}: {error}");
        }
        for lines in ["mechanism = \"linear\"", "mechanism = \"lsh\"", "reversible = true"] {
            read("decoder", &format!("{none}{lines}")).validate().unwrap();
        }
        read("decoder", "mechanism = \"performer\"\nposition = \"rope\"").validate().unwrap();
        read("encoder", "mechanism = \"linformer\"").validate().unwrap();
    }
}
