//! The mechanism of Vaswani et al. 2017: values mixed by softmax(q·kᵀ/√D) (in T5 softmax(q·kᵀ)), under
//! a rule that says what is visible and what is added to scores. The products may be divided by a
//! temperature, too, and each query may keep its largest scores alone.

use super::watched::{self, Watched};
use super::{Heads, Rule};
use crate::cache::{CacheKind, KeyValues};
use crate::config::{SoftmaxConfig, StackConfig};
use crate::layers::{Dropout, Positions, ScoreBias};
use crate::pass::Pass;
use crate::scope::Scope;
use crate::slot::{LayerSlot, LayerSlots, LayerState};
use crate::taps::{Interest, Place};
use hearken_kernels::attention as kernel;
use hearken_kernels::attention::Rows;
use hearken_kernels::attention::pages::{Decoding, FEW_QUERIES, Sequence, gather};
use hearken_kernels::attention::scores::{And, Chosen, Full};
use hearken_tensor::ops::attention::{
    Attend, attention, attention_packed, top_keys, top_keys_packed,
};
use hearken_tensor::{Param, Tensor, Var};
use std::ops::Range;

/// Softmax attention.
#[derive(Clone, Debug)]
pub(super) struct Softmax {
    pub(super) heads: Heads,
    config: SoftmaxConfig,
    /// What the product of a query and a key is multiplied by, the temperature included.
    scale: f32,
    dropout: Dropout,
}

impl Softmax {
    pub(super) fn new(scope: &Scope, config: &StackConfig) -> Self {
        Self {
            heads: Heads::of(config),
            config: config.softmax,
            scale: config.score_scale(),
            dropout: scope.dropout("dropout", config.dropout.attention),
        }
    }

    fn attend(&self, rule: Rule) -> Attend {
        let Heads { queries, keys, value_width, .. } = self.heads;
        let attend = Attend::new(queries).kv_heads(keys).value_width(value_width);
        attend.scale(self.scale).rule(rule)
    }

    /// The keys that queries keep, if they keep their largest scores alone; `find` finds them.
    fn chosen(
        &self,
        rule: impl FnOnce() -> Rule,
        find: impl FnOnce(&Attend, usize) -> Chosen,
    ) -> Option<Chosen> {
        self.config.top.map(|top| find(&self.attend(rule()), top))
    }

    fn with_noise(&self, attend: Attend, pass: &Pass) -> Attend {
        match self.dropout.noise(pass) {
            Some((p, key)) => attend.dropout(p, key),
            None => attend,
        }
    }

    /// Of a packed projection (B, T, H·D + K·D + K·Dv) to itself: (B, T, H·Dv).
    pub(super) fn whole(
        &self,
        packed: &Var,
        rule: impl Fn() -> Rule,
        positions: &Positions,
        at: &Place,
        pass: &Pass,
    ) -> Var {
        let learned = positions.score_bias().and_then(ScoreBias::learned).map(Param::var);
        let learned: Vec<&Var> = learned.iter().collect();
        let rotated = positions.rotates();
        let chosen = self.chosen(&rule, |attend, top| top_keys_packed(packed.value(), attend, top));
        let rule = || limited(rule(), chosen.as_ref());
        let watched = |rule| self.watched(rule, rotated, &learned, at, pass);
        match watched::interest(at, pass) {
            Interest::None => {}
            Interest::Heads => {
                let [q, k, _] = watched::unpacked(&packed.detach(), &self.heads);
                watched(rule()).show_heads([&q, &k]);
            }
            Interest::Whole => {
                let parts = watched::unpacked(packed, &self.heads);
                return watched(rule()).step_by_step(parts);
            }
        }
        attention_packed(packed, &learned, &self.with_noise(self.attend(rule()), pass))
    }

    /// Of queries (B, T, H·D) to keys (B, S, K·D) and values (B, S, K·Dv): (B, T, H·Dv).
    pub(super) fn apart(
        &self,
        parts: [Var; 3],
        rule: impl Fn() -> Rule,
        at: &Place,
        pass: &Pass,
    ) -> Var {
        let [q, k, _] = parts.each_ref().map(Var::value);
        let chosen = self.chosen(&rule, |attend, top| top_keys(q, k, attend, top));
        let rule = || limited(rule(), chosen.as_ref());
        let watched = |rule| self.watched(rule, false, &[], at, pass);
        match watched::interest(at, pass) {
            Interest::None => {}
            Interest::Heads => watched(rule()).show_heads([&parts[0], &parts[1]]),
            Interest::Whole => return watched(rule()).step_by_step(parts),
        }
        let [q, k, v] = &parts;
        attention(q, k, v, &[], &self.with_noise(self.attend(rule()), pass))
    }

    fn watched<'a>(
        &'a self,
        rule: Rule,
        rotated: bool,
        learned: &'a [&'a Var],
        at: &'a Place,
        pass: &'a Pass,
    ) -> Watched<'a> {
        let dropout = self.dropout.noise(pass);
        Watched { heads: &self.heads, scale: self.scale, at, pass, rotated, rule, learned, dropout }
    }

    /// What it remembers of a sequence that has not begun.
    pub(super) fn state(&self, kind: CacheKind) -> LayerState {
        LayerState::KeyValues(self.empty(kind))
    }

    fn empty(&self, kind: CacheKind) -> KeyValues {
        let Heads { keys, width, value_width, .. } = self.heads;
        KeyValues::new(kind, keys, [width, value_width])
    }

    /// As [`Softmax::whole`] without gradients, of a packed projection (1, rows, H·D + K·D + K·Dv)
    /// of tokens that continue several sequences; `rule` says what the last queries of so many keys
    /// see, of which the first are a prefix. Sequences with a few new tokens are computed together, others
    /// one after the other.
    pub(super) fn by_slots(
        &self,
        packed: &Tensor,
        slots: &mut LayerSlots<'_, '_>,
        rule: impl Fn([usize; 2], usize) -> Rule,
    ) -> Tensor {
        let [_, total, row] = packed.dims();
        let Heads { queries: heads, keys: kv_heads, width, value_width } = self.heads;
        let [query_columns, key_columns, _] = self.heads.columns();
        let columns = heads * value_width;
        let scale = self.scale;
        let mut out = Tensor::unset([1, total, columns]);
        let mut few = Vec::new();
        for LayerSlot { rows, start, prefix, state, .. } in slots.iter_mut() {
            let data = &packed.data()[rows.start * row..rows.end * row];
            let kept = state.key_values();
            let (keys, values) = (&data[query_columns..], &data[query_columns + key_columns..]);
            kept.put(start, rows.len(), keys, values, [row; 2]);
            let (queries, keys) = (rows.len(), start + rows.len());
            let parts = [heads, kv_heads, kv_heads];
            let [q, k, v] = Rows::packed(data, queries, parts, [width, width, value_width]);
            let shape =
                kernel::Shape { batch: 1, queries, keys, heads, kv_heads, width, value_width };
            // A few queries read the pages themselves; but to choose among keys, all must be at hand.
            let few_queries = start > 0 && queries <= FEW_QUERIES;
            let gathers = start > 0 && (!few_queries || self.config.top.is_some());
            let gathered = gathers.then(|| Gathered::new(kept, shape));
            let [keys_read, values] = gathered.as_ref().map_or([k, v], Gathered::rows);
            let seen = rule([queries, keys], prefix);
            let seen = self.limited_to_top(seen, shape, [q, keys_read, values]);
            if few_queries {
                few.push((rows, keys, &*kept, seen));
                continue;
            }
            let mut lse = Tensor::unset([1, heads, queries]);
            let out = &mut out.data_mut()[rows.start * columns..rows.end * columns];
            let attention = kernel::Attention {
                shape,
                queries: q,
                keys: keys_read,
                values,
                scale,
                dropout: None,
                scores: &seen,
            };
            attention.forward(out, lse.data_mut());
        }
        let parts = [heads, kv_heads, kv_heads];
        let [queries, ..] = Rows::packed(packed.data(), total, parts, [width, width, value_width]);
        let step = Decoding { heads, kv_heads, width, value_width, queries, scale };
        step.forward(&sequences(&few), out.data_mut());
        out
    }

    /// What queries see: what the rule says and, where each keeps its largest scores alone, these.
    fn limited_to_top(
        &self,
        rule: Rule,
        shape: kernel::Shape,
        [queries, keys, values]: [Rows<'_>; 3],
    ) -> Rule {
        let Some(top) = self.config.top else { return rule };
        let (scale, dropout, scores) = (self.scale, None, &rule);
        let attention = kernel::Attention { shape, queries, keys, values, scale, dropout, scores };
        let chosen = attention.top_keys(top);
        Box::new(And(rule, chosen))
    }

    /// What queries (T, H·D) of one sequence see of its source: everything, or their largest scores.
    fn seen_of_source(&self, queries: &[f32], keys: usize, pages: &KeyValues) -> Rule {
        if self.config.top.is_none() {
            return Box::new(Full);
        }
        let Heads { queries: heads, keys: kv_heads, width, value_width } = self.heads;
        let rows = queries.len() / (heads * width);
        let shape =
            kernel::Shape { batch: 1, queries: rows, keys, heads, kv_heads, width, value_width };
        let gathered = Gathered::new(pages, shape);
        let [k, v] = gathered.rows();
        let queries = Rows::new(queries, rows, heads, width);
        self.limited_to_top(Box::new(Full), shape, [queries, k, v])
    }

    /// What it keeps of sources (B, S, K·D) and (B, S, K·Dv): those of each row, without its padding.
    pub(super) fn kept(
        &self,
        [keys, values]: [&Tensor; 2],
        lengths: &[usize],
        kind: CacheKind,
    ) -> Vec<KeyValues> {
        let [_, tokens, key_columns] = keys.dims();
        let [_, _, value_columns] = values.dims();
        let lengths = lengths.iter().enumerate();
        let kept = lengths.map(|(row, length)| {
            let first = row * tokens;
            let (keys, values) =
                (&keys.data()[first * key_columns..], &values.data()[first * value_columns..]);
            let mut kept = self.empty(kind);
            kept.put(0, *length, keys, values, [key_columns, value_columns]);
            kept
        });
        kept.collect()
    }

    /// As [`Softmax::apart`] without gradients, of queries (1, rows, H·D) of several sequences to the
    /// source of each.
    pub(super) fn to_sources(&self, queries: &Tensor, slots: &mut LayerSlots<'_, '_>) -> Tensor {
        let Heads { queries: heads, keys: kv_heads, width, value_width } = self.heads;
        let [_, total, columns] = queries.dims();
        let mut out = Tensor::unset([1, total, heads * value_width]);
        let seen: Vec<_> = slots
            .iter_mut()
            .map(|LayerSlot { rows, source, .. }| {
                let Some((keys, pages)) = source else { panic!("a sequence without a source") };
                let own = &queries.data()[rows.start * columns..rows.end * columns];
                let scores = self.seen_of_source(own, keys, pages);
                (rows, keys, pages, scores)
            })
            .collect();
        let queries = Rows::new(queries.data(), total, heads, width);
        let step = Decoding { heads, kv_heads, width, value_width, queries, scale: self.scale };
        step.forward(&sequences(&seen), out.data_mut());
        out
    }
}

/// The rows of a sequence among those of a step, how many keys it has, where they are, and what is seen of them.
type Part<'a> = (Range<usize>, usize, &'a KeyValues, Rule);

fn sequences<'a>(parts: &'a [Part<'a>]) -> Vec<Sequence<'a, KeyValues, Rule>> {
    let one = |(rows, keys, pages, scores): &'a Part<'a>| Sequence {
        rows: rows.clone(),
        keys: *keys,
        pages: *pages,
        scores,
    };
    parts.iter().map(one).collect()
}

/// A rule, with what is chosen seen alone.
fn limited(rule: Rule, chosen: Option<&Chosen>) -> Rule {
    match chosen {
        Some(chosen) => Box::new(And(rule, chosen.clone())),
        None => rule,
    }
}

/// Keys and values of a sequence, out of their pages.
struct Gathered {
    shape: kernel::Shape,
    /// (K, S, D) and (K, S, Dv)
    numbers: [Tensor; 2],
}

impl Gathered {
    fn new(kept: &KeyValues, shape: kernel::Shape) -> Self {
        let kernel::Shape { keys, kv_heads, width, value_width, .. } = shape;
        let widths = [width, value_width];
        let mut numbers = widths.map(|width| Tensor::unset([kv_heads, keys, width]));
        gather(kept, kv_heads, keys, widths, numbers.each_mut().map(Tensor::data_mut));
        Self { shape, numbers }
    }

    fn rows(&self) -> [Rows<'_>; 2] {
        let kernel::Shape { keys, kv_heads, width, value_width, .. } = self.shape;
        let [k, v] = &self.numbers;
        [
            Rows::cache(k.data(), kv_heads, keys, keys, width),
            Rows::cache(v.data(), kv_heads, keys, keys, value_width),
        ]
    }
}
