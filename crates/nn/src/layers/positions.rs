//! How a token knows where it stands: vectors that join the embedding, rotations of queries and
//! keys, or rules for the scores of attention.

use crate::config::{Combine, DecoderConfig, PositionConfig, RopeScaling};
use crate::init::{Init, Role};
use hearken_kernels::rope::Pairing;
use hearken_tensor::positions::sinusoidal;
use hearken_tensor::rope_table::{RopeTable, Scaling};
use hearken_tensor::{Param, Tensor, Var, ops};

/// The positions of a model, shared by its layers.
#[derive(Clone, Debug)]
pub struct Positions {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    None,
    /// (context, C or the width beside the token)
    Learned(Param, Combine),
    Sinusoidal(Tensor, Combine),
    Rope(RopeTable),
    Alibi,
    T5 {
        table: Param,
        buckets: usize,
        max_distance: usize,
    },
    Relative {
        table: Param,
        max_distance: usize,
    },
}

/// What positions add to the scores of attention.
#[derive(Clone, Debug)]
pub enum ScoreBias {
    /// Nothing.
    None,
    /// Slopes that are fixed per head.
    Alibi,
    /// A learned table (buckets, H).
    T5 {
        /// The table.
        table: Param,
        /// How many buckets.
        buckets: usize,
        /// Where the last one begins.
        max_distance: usize,
    },
    /// A learned table (H, 2·reach + 1).
    Relative {
        /// The table.
        table: Param,
        /// Distances beyond it count as it.
        reach: usize,
    },
}

impl ScoreBias {
    /// The parameter that is learned, if any.
    pub fn learned(&self) -> Option<&Param> {
        match self {
            Self::None | Self::Alibi => None,
            Self::T5 { table, .. } | Self::Relative { table, .. } => Some(table),
        }
    }
}

impl Positions {
    /// As configured.
    pub fn new(init: &Init, config: &DecoderConfig) -> Self {
        let kind = match &config.position {
            PositionConfig::None {} => Kind::None,
            PositionConfig::Learned { combine } => {
                let name = "position.weight";
                Kind::Learned(
                    init.matrix(name, config.context, config.position_width(*combine), Role::Table),
                    *combine,
                )
            }
            PositionConfig::Sinusoidal { combine } => Kind::Sinusoidal(
                sinusoidal(config.context, config.position_width(*combine)),
                *combine,
            ),
            PositionConfig::Rope { base, share, scaling } => Kind::Rope(RopeTable::new(
                config.head_width(),
                config.rotated_width(*share),
                f64::from(*base),
                rope_scaling(*scaling),
                Pairing::Halves,
                config.context,
            )),
            PositionConfig::Alibi {} => Kind::Alibi,
            PositionConfig::T5 { buckets, max_distance } => Kind::T5 {
                table: init.matrix("position.weight", *buckets, config.heads, Role::Table),
                buckets: *buckets,
                max_distance: *max_distance,
            },
            PositionConfig::Relative { max_distance } => Kind::Relative {
                table: init.matrix(
                    "position.weight",
                    config.heads,
                    2 * max_distance + 1,
                    Role::Table,
                ),
                max_distance: *max_distance,
            },
        };
        Self { kind }
    }

    /// How much of the width is the position's own, beside the token.
    pub fn beside(&self) -> usize {
        match &self.kind {
            Kind::Learned(_, Combine::Concatenate { width })
            | Kind::Sinusoidal(_, Combine::Concatenate { width }) => *width,
            _ => 0,
        }
    }

    /// Joins position vectors to token vectors `x` (B, T, …) whose first stands at `start`.
    pub fn join(&self, x: Var, start: usize) -> Var {
        let (table, combine) = match &self.kind {
            Kind::Learned(param, combine) => (param.var(), combine),
            Kind::Sinusoidal(table, combine) => (Var::constant(table.clone()), combine),
            _ => return x,
        };
        let [batch, tokens, _] = x.value().dims();
        let end = start + tokens;
        let rows = table.shape().rows();
        assert!(end <= rows, "position {end} is beyond the context of {rows}");
        let places: Vec<u32> = (0..batch).flat_map(|_| start as u32..end as u32).collect();
        let positions = ops::embedding::embedding(&table, &places, [batch, tokens]);
        match combine {
            Combine::Add => x + positions,
            Combine::Concatenate { .. } => ops::concat::concat(&[&x, &positions], 2),
        }
    }

    /// Rotates the queries and keys of a packed projection (B, T, (H + 2K)·D), if that is how.
    pub fn rotate(&self, packed: Var, query_and_key_heads: usize, start: usize) -> Var {
        match &self.kind {
            Kind::Rope(table) => ops::rope::rope(packed, table, query_and_key_heads, start),
            _ => packed,
        }
    }

    /// What is added to scores.
    pub fn score_bias(&self) -> ScoreBias {
        match &self.kind {
            Kind::Alibi => ScoreBias::Alibi,
            Kind::T5 { table, buckets, max_distance } => ScoreBias::T5 {
                table: table.clone(),
                buckets: *buckets,
                max_distance: *max_distance,
            },
            Kind::Relative { table, max_distance } => {
                ScoreBias::Relative { table: table.clone(), reach: *max_distance }
            }
            _ => ScoreBias::None,
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> Vec<Param> {
        match &self.kind {
            Kind::Learned(table, _) | Kind::T5 { table, .. } | Kind::Relative { table, .. } => {
                vec![table.clone()]
            }
            _ => Vec::new(),
        }
    }
}

fn rope_scaling(scaling: RopeScaling) -> Scaling {
    match scaling {
        RopeScaling::None => Scaling::None,
        RopeScaling::Linear { factor } => Scaling::Linear { factor: f64::from(factor) },
        RopeScaling::Ntk { factor } => Scaling::Ntk { factor: f64::from(factor) },
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow } => Scaling::Yarn {
            factor: f64::from(factor),
            trained: original_context,
            beta_fast: f64::from(beta_fast),
            beta_slow: f64::from(beta_slow),
            attention: None,
            truncate: true,
        },
        RopeScaling::Llama3 {
            factor,
            original_context,
            low_frequency_factor,
            high_frequency_factor,
        } => Scaling::Llama3 {
            factor: f64::from(factor),
            trained: original_context,
            low: f64::from(low_frequency_factor),
            high: f64::from(high_frequency_factor),
        },
    }
}
