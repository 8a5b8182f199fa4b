//! The attention layer: projections to queries, keys and values, a mechanism that mixes the values,
//! and a projection back.
//!
//! ```text
//! q = x·Wqᵀ, k = y·Wkᵀ, v = y·Wvᵀ          y = x attends to itself, else across
//! out = concat over heads of mix(q, k, v)·Woᵀ
//! ```
//! A layer that attends to itself has one packed projection to all three, some of which may be the same. [`visibility`]
//! decides which keys a query sees; [`softmax`] mixes the visible values; [`watched`] does so step by
//! step for passes that watch.

mod softmax;
mod visibility;
mod watched;

pub use visibility::Direction;

use super::{Linear, Positions};
use crate::cache::{CacheKind, KeyValues};
use crate::config::{Shared, StackConfig};
use crate::pass::{Layout, Pass};
use crate::scope::Scope;
use crate::slot::{LayerSlots, LayerState};
use crate::taps::{Interest, Place};
use hearken_kernels::attention::Scores;
use hearken_tensor::ops::{concat::concat, slice::slice};
use hearken_tensor::{Role, Var};
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
    mechanism: Softmax,
    place: Place,
}

#[derive(Clone, Debug)]
enum Projections {
    /// Of one input: (H·D + K·D + K·Dv, C), less what is shared.
    Packed(Linear, Shared),
    /// Queries of one input, keys and values of another.
    Apart { queries: Linear, keys: Linear, values: Linear },
}

impl Attention {
    /// Attention to itself. Parameters `qkv.*` and `out.*`.
    pub fn to_itself(scope: &Scope, config: &StackConfig, direction: Direction) -> Self {
        let [queries, keys, values] = Heads::of(config).columns();
        let shared = config.shared_projections;
        // Queries that are keys are the same rows, and so are keys that are values.
        let keys = if shared.queries_are_keys() { 0 } else { keys };
        let values = if shared.keys_are_values() { 0 } else { values };
        let qkv = Linear::query_key(
            &(scope / "qkv"),
            queries + keys + values,
            config.width,
            queries + keys,
            config.bias.attention_in,
        );
        let visibility = Visibility::new(direction, config.attention);
        Self::with(scope, config, Projections::Packed(qkv, shared), visibility)
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
        Self::with(scope, config, projections, Visibility::everything())
    }

    fn with(
        scope: &Scope,
        config: &StackConfig,
        projections: Projections,
        visibility: Visibility,
    ) -> Self {
        let heads = Heads::of(config);
        let mixed = heads.queries * heads.value_width;
        let bias = config.bias.attention_out;
        Self {
            projections,
            out: Linear::new(&(scope / "out"), config.width, mixed, bias, Role::Residual),
            visibility,
            mechanism: Softmax::new(scope, config),
            place: scope.place(),
        }
    }

    /// What it remembers of a sequence that has not begun.
    pub fn state(&self, kind: CacheKind) -> LayerState {
        self.mechanism.state(kind)
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
        let packed = repeated(qkv.forward(x), *shared, &self.mechanism.heads);
        let (heads, layout) = (&self.mechanism.heads, pass.layout());
        let places = match &slots {
            Some(slots) => Some(slots.places()),
            None => layout.packing.as_ref().map(|packing| &*packing.positions),
        };
        let packed = watched::tap_packed(packed, heads, &self.place, pass);
        let packed = positions.rotate(packed, heads, places);
        let bias = positions.score_bias();
        let rule = |layout: &Layout, [queries, keys]: [usize; 2]| {
            let seen = self.visibility.rule(layout, queries, keys);
            visibility::with_bias(seen, bias, heads.queries, queries, keys)
        };
        let mixed = if let Some(slots) = slots {
            let inside = watched::interest(&self.place, pass);
            assert_eq!(inside, Interest::None, "no taps inside attention that uses a cache");
            let rule = |sizes, prefix| match prefix {
                0 => rule(layout, sizes),
                _ => rule(&Layout { prefixes: Some([prefix].into()), ..layout.clone() }, sizes),
            };
            Var::constant(self.mechanism.by_slots(packed.value(), slots, rule))
        } else {
            let rule = || rule(layout, [tokens, tokens]);
            self.mechanism.whole(&packed, rule, positions, &self.place, pass)
        }; // (B, T, H·Dv)
        self.out.forward_last(&mixed, residual, &self.place, pass)
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
        let parts = watched::tap_apart(parts, &self.mechanism.heads, &self.place, pass);
        let rule = || self.visibility.rule(layout, tokens, sources);
        let mixed = self.mechanism.apart(parts, rule, &self.place, pass); // (B, T, H·Dv)
        self.out.forward_last(&mixed, residual, &self.place, pass)
    }

    /// Keys and values of each row of sources (B, S, C') of these lengths.
    pub fn kept_of(&self, source: &Var, lengths: &[usize], kind: CacheKind) -> Vec<KeyValues> {
        let Projections::Apart { keys, values, .. } = &self.projections else {
            panic!("this layer attends to itself")
        };
        let (keys, values) = (keys.forward(source), values.forward(source));
        self.mechanism.kept([keys.value(), values.value()], lengths, kind)
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
        let mixed = self.mechanism.to_sources(queries.forward(x).value(), slots);
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
