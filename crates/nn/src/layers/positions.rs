//! How a token knows where it stands: vectors that join the embedding, rotations of queries and
//! keys, or rules for the scores of attention.

use super::{Direction, Heads};
use crate::config::{Combine, PositionConfig, RopeScaling, SineOrder, StackConfig};
use crate::scope::Scope;
use hearken_kernels::attention::scores::{Alibi, Buckets, Relative, T5};
use hearken_kernels::rope::Pairing;
use hearken_tensor::growing::GrowingTable;
use hearken_tensor::half::Weight;
use hearken_tensor::positions::{sinusoidal_halves_table, sinusoidal_table};
use hearken_tensor::rope_table::{RopeTable, Scaling};
use hearken_tensor::{Param, Role, Var, ops};

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
    Sinusoidal(GrowingTable, Combine),
    Rope(RopeTable),
    Biased(ScoreBias),
}

/// What positions add to the scores of attention.
#[derive(Clone, Debug)]
pub enum ScoreBias {
    /// Slopes that are fixed per head.
    Alibi,
    /// A learned table (buckets, H).
    T5 {
        /// The table.
        table: Param,
        /// Which distances share a number.
        buckets: Buckets,
    },
    /// A learned table (H, 2·reach + 1).
    Relative {
        /// The table.
        table: Param,
        /// Larger distances are clipped to it.
        reach: usize,
    },
}

impl ScoreBias {
    /// The parameter that is learned, if any.
    pub fn learned(&self) -> Option<&Param> {
        match self {
            Self::Alibi => None,
            Self::T5 { table, .. } | Self::Relative { table, .. } => Some(table),
        }
    }

    /// The rule that adds it, for `queries` that are the last of `keys`.
    pub(crate) fn rule(&self, heads: usize, queries: usize, keys: usize) -> super::attention::Rule {
        match self {
            Self::Alibi => Box::new(Alibi::new(heads, queries, keys)),
            Self::T5 { table, buckets } => {
                Box::new(T5::new(table.value(), heads, buckets.clone(), queries, keys))
            }
            Self::Relative { table, reach } => {
                Box::new(Relative::new(table.value(), *reach, queries, keys))
            }
        }
    }
}

impl Positions {
    /// As configured, for sequences of up to `context` tokens; perhaps with a parameter `weight`.
    pub fn new(scope: &Scope, config: &StackConfig, context: usize, direction: Direction) -> Self {
        let table = |rows, columns| scope.matrix("weight", rows, columns, Role::Table);
        let kind = match &config.position {
            PositionConfig::None {} => Kind::None,
            PositionConfig::Learned { combine } => {
                Kind::Learned(table(context, config.position_width(*combine)), *combine)
            }
            PositionConfig::Sinusoidal { combine, order } => {
                let width = config.position_width(*combine);
                let table = match order {
                    SineOrder::Pairs => sinusoidal_table(context, width),
                    SineOrder::Halves => sinusoidal_halves_table(context, width),
                };
                Kind::Sinusoidal(table, *combine)
            }
            PositionConfig::Rope { base, share, scaling } => Kind::Rope(RopeTable::new(
                config.head_width(),
                config.rotated_width(*share),
                f64::from(*base),
                rope_scaling(*scaling),
                Pairing::Halves,
                context,
            )),
            PositionConfig::Alibi {} => Kind::Biased(ScoreBias::Alibi),
            PositionConfig::T5 { buckets, max_distance } => Kind::Biased(ScoreBias::T5 {
                table: table(*buckets, config.heads),
                buckets: match direction {
                    Direction::Causal => Buckets::causal(*buckets, *max_distance),
                    Direction::Bidirectional => Buckets::bidirectional(*buckets, *max_distance),
                },
            }),
            PositionConfig::Relative { max_distance } => Kind::Biased(ScoreBias::Relative {
                table: table(config.heads, 2 * max_distance + 1),
                reach: *max_distance,
            }),
        };
        Self { kind }
    }

    /// Joins position vectors to token vectors `x` (B, T, …), which stand at `places`, or else where
    /// they come in their row; `tap` is shown the position vectors.
    pub fn join(&self, x: Var, places: Option<&[u32]>, tap: impl FnOnce(Var) -> Var) -> Var {
        if !matches!(self.kind, Kind::Learned(..) | Kind::Sinusoidal(..)) {
            return x;
        }
        let [batch, tokens, _] = x.value().dims();
        let places = match places {
            Some(places) => places.to_vec(),
            None => (0..tokens as u32).collect::<Vec<_>>().repeat(batch),
        };
        let end = places.iter().max().map_or(0, |place| *place as usize + 1);
        let (table, context, combine) = match &self.kind {
            Kind::Learned(param, combine) => (param.weight(), param.shape().rows(), combine),
            Kind::Sinusoidal(table, combine) => {
                let rows = table.first(end.min(table.most()));
                (Weight::from(&Var::constant(rows)), table.most(), combine)
            }
            _ => return x,
        };
        assert!(end <= context, "position {end} is beyond the context of {context}");
        let positions = tap(ops::embedding::embedding(table, &places, [batch, tokens]));
        match combine {
            Combine::Add => x + positions,
            Combine::Concatenate { .. } => ops::concat::concat(&[&x, &positions], 2),
        }
    }

    /// Rotates the queries and keys of a packed projection (B, T, H·D + K·D + …), if that is how, of
    /// tokens that stand at `places`, or else where they come in their row.
    pub fn rotate(&self, projected: Var, heads: &Heads, places: Option<&[u32]>) -> Var {
        let Kind::Rope(table) = &self.kind else { return projected };
        let rotated = heads.queries + heads.keys;
        match places {
            Some(places) => ops::rope::rope_at(projected, table, rotated, places),
            None => ops::rope::rope(projected, table, rotated, 0),
        }
    }

    /// Are queries and keys rotated?
    pub fn rotates(&self) -> bool {
        matches!(self.kind, Kind::Rope(_))
    }

    /// What is added to scores.
    pub fn score_bias(&self) -> Option<&ScoreBias> {
        match &self.kind {
            Kind::Biased(bias) => Some(bias),
            _ => None,
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
