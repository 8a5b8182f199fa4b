//! The attention layer: projections to queries, keys and values, a mechanism that mixes the values,
//! and a projection back.
//!
//! ```text
//! q = x·Wqᵀ, k = y·Wkᵀ, v = y·Wvᵀ          y = x attends to itself, else across
//! out = concat over heads of mix(q, k, v)·Woᵀ
//! ```
//! A layer that attends to itself has one packed projection to all three, some of which may be the
//! same. [`visibility`] decides which keys a query sees; a mechanism mixes their values: [`softmax`]
//! (and [`watched`], step by step for passes that watch), or of attention to itself [`linear`],
//! [`linformer`] or [`lsh`].

mod drawn;
mod linear;
mod linformer;
mod lsh;
mod softmax;
mod visibility;
mod watched;

pub use visibility::Direction;

use super::{Linear, Positions};
use crate::cache::{CacheKind, KeyValues};
use crate::config::{MechanismConfig, Shared, StackConfig};
use crate::pass::{Layout, Pass};
use crate::scope::Scope;
use crate::slot::{LayerSlots, LayerState};
use crate::taps::{Interest, Place};
use hearken_kernels::attention::Scores;
use hearken_tensor::ops::{concat::concat, slice::slice};
use hearken_tensor::{Role, Tensor, Var};
use linformer::Linformer;
use lsh::Lsh;
use softmax::Softmax;
use visibility::Visibility;

/// What is visible and what is added to scores.
pub(crate) type Rule = Box<dyn Scores + Send>;

/// How many heads there are, and how wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// H: of queries.
    pub queries: usize,
    /// K: of keys and values.
    pub keys: usize,
    /// D: of a head's queries and keys.
    pub width: usize,
    /// Of a head's values.
    pub value_width: usize,
}

impl Heads {
    fn of(config: &StackConfig) -> Self {
        Self {
            queries: config.heads,
            keys: config.kv_heads(),
            width: config.head_width(),
            value_width: config.value_width(),
        }
    }

    /// Columns of queries, of keys, and of values.
    pub fn columns(&self) -> [usize; 3] {
        [self.queries * self.width, self.keys * self.width, self.keys * self.value_width]
    }
}

/// An attention layer.
#[derive(Clone, Debug)]
pub struct Attention {
    projections: Projections,
    /// (C, H·Dv)
    out: Linear,
    visibility: Visibility,
    heads: Heads,
    mechanism: Mechanism,
    place: Place,
}

/// How visible values are mixed.
#[derive(Clone, Debug)]
enum Mechanism {
    Softmax(Softmax),
    Linear(linear::Linear),
    Linformer(Linformer),
    Lsh(Lsh),
}

impl Mechanism {
    /// Of attention to itself, in sequences of up to `context` tokens.
    fn new(scope: &Scope, config: &StackConfig, direction: Direction, context: usize) -> Self {
        let (heads, dropout) = (Heads::of(config), config.dropout.attention);
        match config.mechanism {
            MechanismConfig::Softmax {} => Self::Softmax(Softmax::new(scope, config)),
            MechanismConfig::Linear { map } => {
                Self::Linear(linear::Linear::fixed(scope, heads, direction, dropout, map))
            }
            MechanismConfig::Performer { features, redraw } => {
                let sizes = [features, redraw];
                Self::Linear(linear::Linear::random(scope, heads, direction, dropout, sizes))
            }
            MechanismConfig::Linformer { rank } => {
                let softmax = Softmax::new(scope, config);
                Self::Linformer(Linformer::new(scope, softmax, rank, context))
            }
            MechanismConfig::Lsh { .. } => {
                let causal = direction == Direction::Causal;
                Self::Lsh(Lsh::new(scope, heads, causal, dropout, config.mechanism))
            }
        }
    }

    /// The softmax that attends to another sequence.
    fn as_softmax(&self) -> &Softmax {
        match self {
            Self::Softmax(softmax) => softmax,
            _ => panic!("another sequence is attended to by softmax"),
        }
    }
}

#[derive(Clone, Debug)]
enum Projections {
    /// Of one input: (H·D + K·D + K·Dv, C), less what is shared.
    Packed(Linear, Shared),
    /// Queries of one input, keys and values of another.
    Apart { queries: Linear, keys: Linear, values: Linear },
}

impl Attention {
    /// Attention to itself, in sequences of up to `context` tokens. Parameters `qkv.*`, `out.*` and
    /// those of the mechanism.
    pub fn to_itself(
        scope: &Scope,
        config: &StackConfig,
        direction: Direction,
        context: usize,
    ) -> Self {
        let [queries, keys, values] = Heads::of(config).columns();
        let shared = config.shared_projections;
        // Queries that are keys are the same rows, and so are keys that are values. Attention by
        // buckets has no keys of its own.
        let hashed = matches!(config.mechanism, MechanismConfig::Lsh { .. });
        let keys = if hashed || shared.queries_are_keys() { 0 } else { keys };
        let values = if shared.keys_are_values() { 0 } else { values };
        let qkv = Linear::query_key(
            &(scope / "qkv"),
            queries + keys + values,
            config.width,
            queries + keys,
            config.bias.attention_in,
        );
        let visibility = Visibility::new(direction, config.attention);
        let mechanism = Mechanism::new(scope, config, direction, context);
        Self::with(scope, config, Projections::Packed(qkv, shared), visibility, mechanism)
    }

    /// Attention to another sequence, of vectors of `source_width`, all of which is visible but its
    /// padding. Parameters `queries.*`, `keys.*`, `values.*` and `out.*`.
    pub fn across(scope: &Scope, config: &StackConfig, source_width: usize) -> Self {
        let [queries, keys, values] = Heads::of(config).columns();
        let bias = config.bias.attention_in;
        let scaled = |name: &str, rows: usize, width: usize| {
            Linear::query_key(&(scope / name), rows, width, rows, bias)
        };
        let projections = Projections::Apart {
            queries: scaled("queries", queries, config.width),
            keys: scaled("keys", keys, source_width),
            values: Linear::new(&(scope / "values"), values, source_width, bias, Role::Hidden),
        };
        let mechanism = Mechanism::Softmax(Softmax::new(scope, config));
        Self::with(scope, config, projections, Visibility::everything(), mechanism)
    }

    fn with(
        scope: &Scope,
        config: &StackConfig,
        projections: Projections,
        visibility: Visibility,
        mechanism: Mechanism,
    ) -> Self {
        let heads = Heads::of(config);
        let mixed = heads.queries * heads.value_width;
        let bias = config.bias.attention_out;
        Self {
            projections,
            out: Linear::new(&(scope / "out"), config.width, mixed, bias, Role::Residual),
            visibility,
            heads,
            mechanism,
            place: scope.place(),
        }
    }

    /// What it remembers of a sequence that has not begun.
    pub fn state(&self, kind: CacheKind) -> LayerState {
        match &self.mechanism {
            Mechanism::Softmax(softmax) => softmax.state(kind),
            Mechanism::Linear(linear) => linear.state(),
            Mechanism::Linformer(_) | Mechanism::Lsh(_) => LayerState::Tokens(Vec::new()),
        }
    }

    /// The tokens of `x` (B, T, C) attend to each other; with slots, those of each sequence, and to
    /// those before them. The result (B, T, C) is added to `residual`.
    pub fn forward(
        &self,
        x: &Var,
        residual: Option<&Var>,
        positions: &Positions,
        pass: &Pass,
        slots: Option<&mut LayerSlots<'_, '_>>,
    ) -> Var {
        let Projections::Packed(qkv, shared) = &self.projections else {
            panic!("this layer attends to another sequence")
        };
        let [_, tokens, _] = x.value().dims();
        let own = qkv.forward(x);
        if let Mechanism::Lsh(lsh) = &self.mechanism {
            assert!(slots.is_none(), "attention by buckets reads everything again");
            let mixed = lsh.whole(&own, &self.place, pass); // (B, T, H·Dv)
            return self.out.forward_last(&mixed, residual, &self.place, pass);
        }
        let (heads, layout) = (&self.heads, pass.layout());
        let packed = repeated(own, *shared, heads); // (B, T, H·D + K·D + K·Dv)
        let places = match &slots {
            Some(slots) => Some(slots.places()),
            None => layout.packing.as_ref().map(|packing| &*packing.positions),
        };
        let packed = watched::tap_packed(packed, heads, &self.place, pass);
        let packed = positions.rotate(packed, heads, places);
        let mixed = if let Some(slots) = slots {
            let inside = watched::interest(&self.place, pass);
            assert_eq!(inside, Interest::None, "no taps inside attention that uses a cache");
            Var::constant(self.by_slots(packed.value(), slots, positions, layout))
        } else {
            match &self.mechanism {
                Mechanism::Linear(linear) => {
                    linear.whole(&packed, positions.rotates(), &self.place, pass)
                }
                Mechanism::Linformer(linformer) => linformer.whole(&packed, &self.place, pass),
                Mechanism::Softmax(softmax) => {
                    let rule = || self.rule(positions, layout, [tokens, tokens]);
                    softmax.whole(&packed, rule, positions, &self.place, pass)
                }
                Mechanism::Lsh(_) => unreachable!("returned above"),
            }
        }; // (B, T, H·Dv)
        self.out.forward_last(&mixed, residual, &self.place, pass)
    }

    /// What `queries`, the last of `keys`, see, and what is added to their scores.
    fn rule(&self, positions: &Positions, layout: &Layout, sizes: [usize; 2]) -> Rule {
        let [queries, keys] = sizes;
        let seen = self.visibility.rule(layout, queries, keys);
        visibility::with_bias(seen, positions.score_bias(), self.heads.queries, queries, keys)
    }

    fn by_slots(
        &self,
        packed: &Tensor,
        slots: &mut LayerSlots<'_, '_>,
        positions: &Positions,
        layout: &Layout,
    ) -> Tensor {
        match &self.mechanism {
            Mechanism::Softmax(softmax) => {
                let rule = |sizes, prefix| {
                    if prefix == 0 {
                        return self.rule(positions, layout, sizes);
                    }
                    let prefixes = Some([prefix].into());
                    self.rule(positions, &Layout { prefixes, ..layout.clone() }, sizes)
                };
                softmax.by_slots(packed, slots, rule)
            }
            Mechanism::Linear(linear) => linear.by_slots(packed, slots),
            Mechanism::Linformer(_) | Mechanism::Lsh(_) => {
                panic!("this mechanism reads everything again")
            }
        }
    }

    /// The tokens of `x` (B, T, C) attend to `source` (B, S, C'), whose rows are laid out as in
    /// `layout`. The result (B, T, C) is added to `residual`.
    pub fn forward_across(
        &self,
        x: &Var,
        residual: Option<&Var>,
        source: &Var,
        layout: &Layout,
        pass: &Pass,
    ) -> Var {
        let Projections::Apart { queries, keys, values } = &self.projections else {
            panic!("this layer attends to itself")
        };
        let ([_, tokens, _], [_, sources, _]) = (x.value().dims(), source.value().dims());
        let parts = [&queries.forward(x), &keys.forward(source), &values.forward(source)];
        let parts = watched::tap_apart(parts, &self.heads, &self.place, pass);
        let rule = || self.visibility.rule(layout, tokens, sources);
        let softmax = self.mechanism.as_softmax();
        let mixed = softmax.apart(parts, rule, &self.place, pass); // (B, T, H·Dv)
        self.out.forward_last(&mixed, residual, &self.place, pass)
    }

    /// Keys and values of each row of sources (B, S, C') of these lengths.
    pub fn kept_of(&self, source: &Var, lengths: &[usize], kind: CacheKind) -> Vec<KeyValues> {
        let Projections::Apart { keys, values, .. } = &self.projections else {
            panic!("this layer attends to itself")
        };
        let (keys, values) = (keys.forward(source), values.forward(source));
        self.mechanism.as_softmax().kept([keys.value(), values.value()], lengths, kind)
    }

    /// As [`Attention::forward_across`] without gradients: the new tokens `x` (1, rows, C) of several
    /// sequences attend to the source in the slot of each.
    pub fn forward_to_sources(
        &self,
        x: &Var,
        residual: Option<&Var>,
        pass: &Pass,
        slots: &mut LayerSlots<'_, '_>,
    ) -> Var {
        let Projections::Apart { queries, .. } = &self.projections else {
            panic!("this layer attends to itself")
        };
        let inside = watched::interest(&self.place, pass);
        assert_eq!(inside, Interest::None, "no taps inside attention that uses a cache");
        let mixed = self.mechanism.as_softmax().to_sources(queries.forward(x).value(), slots);
        self.out.forward_last(&Var::constant(mixed), residual, &self.place, pass)
    }
}

/// Queries, keys and values (B, T, H·D + K·D + K·Dv) of a projection that has once what is shared.
fn repeated(own: Var, shared: Shared, heads: &Heads) -> Var {
    if shared == Shared::None {
        return own;
    }
    let [q, k, v] = heads.columns();
    let queries = slice(&own, 2, 0..q);
    let keys = if shared.queries_are_keys() { queries.clone() } else { slice(&own, 2, q..q + k) };
    let values = if shared.keys_are_values() { keys.clone() } else { slice(&own, 2, q..q + v) };
    concat(&[&queries, &keys, &values], 2)
}
