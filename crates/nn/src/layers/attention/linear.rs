//! Mechanisms whose weights are products of features, φ(q)·φ(k): linear attention with a fixed map,
//! and the Performer with random features. Sums over the keys are all that is remembered of a
//! sequence, however long.

use super::drawn::{Drawn, orthogonal};
use super::watched::{merge, split, unpacked};
use super::{Direction, Heads};
use crate::config::FeatureMap;
use crate::layers::Dropout;
use crate::pass::{Layout, Pass};
use crate::scope::Scope;
use crate::slot::{LayerSlot, LayerSlots, LayerState, Sums};
use crate::taps::Place;
use hearken_kernels::activation::Activation;
use hearken_kernels::attention::linear as kernel;
use hearken_tensor::ops::activations::activate;
use hearken_tensor::ops::linear_attention::{LinearAttend, linear_attention};
use hearken_tensor::ops::random_features::{Side, random_features};
use hearken_tensor::{Tensor, Var};
use std::ops::Range;
use std::sync::Arc;

/// Attention by features.
#[derive(Clone, Debug)]
pub(super) struct Linear {
    heads: Heads,
    map: Map,
    causal: bool,
    /// Of what is mixed: there are no weights to drop.
    dropout: Dropout,
}

/// φ
#[derive(Clone, Debug)]
enum Map {
    Fixed(Activation),
    Random(Drawn),
}

impl Linear {
    pub(super) fn fixed(
        scope: &Scope,
        heads: Heads,
        direction: Direction,
        dropout: f32,
        map: FeatureMap,
    ) -> Self {
        let map = Map::Fixed(match map {
            FeatureMap::Elu => Activation::EluPlusOne,
            FeatureMap::Relu => Activation::Relu,
            FeatureMap::SquaredRelu => Activation::SquaredRelu,
        });
        Self::new(scope, heads, direction, dropout, map)
    }

    /// With `features` samples, a parameter `features` (M, D) that does not learn.
    pub(super) fn random(
        scope: &Scope,
        heads: Heads,
        direction: Direction,
        dropout: f32,
        [features, redraw]: [usize; 2],
    ) -> Self {
        let drawn = Drawn::new(scope, "features", [features, heads.width], redraw, orthogonal);
        Self::new(scope, heads, direction, dropout, Map::Random(drawn))
    }

    fn new(scope: &Scope, heads: Heads, direction: Direction, dropout: f32, map: Map) -> Self {
        let causal = direction == Direction::Causal;
        Self { heads, map, causal, dropout: scope.dropout("dropout", dropout) }
    }

    /// φ of queries and of keys.
    fn features(&self, q: Var, k: Var, pass: &Pass) -> [Var; 2] {
        match &self.map {
            Map::Fixed(f) => [q, k].map(|x| activate(x, *f)),
            Map::Random(drawn) => {
                let samples = drawn.of(pass);
                [
                    random_features(&q, &samples, Side::Queries),
                    random_features(&k, &samples, Side::Keys),
                ]
            }
        }
    }

    /// Of a packed projection (B, T, H·D + K·D + K·Dv) to itself: (B, T, H·Dv).
    pub(super) fn whole(&self, packed: &Var, rotated: bool, at: &Place, pass: &Pass) -> Var {
        let Heads { queries, keys, .. } = self.heads;
        let [batch, tokens, _] = packed.value().dims();
        let [mut q, mut k, v] = unpacked(packed, &self.heads); // (B, T, …)
        if rotated && pass.wants(at, &["rotated_queries", "rotated_keys"]) {
            q = merge(&pass.tap_heads(at, "rotated_queries", split(q, queries)));
            k = merge(&pass.tap_heads(at, "rotated_keys", split(k, keys)));
        }
        let [q, k] = self.features(q, k, pass);
        let runs = runs(pass.layout(), batch, tokens);
        let attend = LinearAttend { heads: queries, kv_heads: keys, causal: self.causal, runs };
        let mixed = linear_attention(&q, &k, &v, &attend); // (B, T, H·Dv)
        self.dropout.forward(tap_mixed(mixed, queries, at, pass), pass)
    }

    fn shape(&self) -> kernel::Shape {
        let features = match &self.map {
            Map::Fixed(_) => self.heads.width,
            Map::Random(drawn) => drawn.rows(),
        };
        let Heads { queries: heads, keys: kv_heads, value_width, .. } = self.heads;
        kernel::Shape { heads, kv_heads, features, value_width, causal: self.causal }
    }

    /// What it remembers of a sequence that has not begun.
    pub(super) fn state(&self) -> LayerState {
        LayerState::Sums(Sums::new(self.shape().state_len()))
    }

    /// As [`Linear::whole`] without gradients, of a packed projection (1, rows, …) of tokens that
    /// continue several sequences.
    pub(super) fn by_slots(&self, packed: &Tensor, slots: &mut LayerSlots<'_, '_>) -> Tensor {
        let shape = self.shape();
        let rows = packed.shape().rows();
        let [q, k, v] = unpacked(&Var::constant(packed.clone()), &self.heads);
        let [q, k] = self.features(q, k, &Pass::evaluate());
        let (runs, mut states): (Vec<Range<usize>>, Vec<&mut [f32]>) = slots
            .iter_mut()
            .map(|LayerSlot { rows, state, .. }| (rows, state.sums().data_mut()))
            .unzip();
        let mut out = Tensor::unset([1, rows, shape.heads * shape.value_width]);
        let mut normalisers = Tensor::unset([rows, shape.heads]);
        let [queries, keys, values] = [&q, &k, &v].map(|x| x.value().data());
        let linear = kernel::Linear { shape, runs: &runs, queries, keys, values };
        linear.forward(&mut states, out.data_mut(), normalisers.data_mut());
        out
    }
}

/// Shows what was mixed (B, T, H·Dv), if somebody wants to see it.
pub(super) fn tap_mixed(mixed: Var, heads: usize, at: &Place, pass: &Pass) -> Var {
    if !pass.wants(at, &["mixed"]) {
        return mixed;
    }
    merge(&pass.tap_heads(at, "mixed", split(mixed, heads)))
}

/// The sequences of a batch as ranges of its B·T rows; `None` if each row is one.
fn runs(layout: &Layout, batch: usize, tokens: usize) -> Option<Arc<[Range<usize>]>> {
    assert!(layout.prefixes.is_none(), "attention by features has no prefix that all tokens see");
    if let Some(packing) = &layout.packing {
        let mut runs = Vec::new();
        for (row, segments) in packing.segments.chunks_exact(tokens.max(1)).enumerate() {
            let mut start = row * tokens;
            for run in segments.chunk_by(|a, b| a == b) {
                let end = start + run.len();
                if run.first().is_some_and(|segment| *segment != 0) {
                    runs.push(start..end);
                }
                start = end;
            }
        }
        return Some(runs.into());
    }
    let lengths = layout.lengths.as_ref()?;
    assert_eq!(lengths.len(), batch, "a length for each row");
    let run = |(row, length): (usize, &usize)| row * tokens..row * tokens + (*length).min(tokens);
    Some(lengths.iter().enumerate().map(run).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_tensor::ops::attention::{Attend, attention};
    use hearken_tensor::rng::Rng;

    /// The error of M random features against exact attention falls as 1/√M.
    #[test]
    fn more_features_come_closer_to_softmax() {
        const DRAWS: u64 = 50;
        let (tokens, width) = (48, 16);
        let normal = |seed: u64| Rng::new(seed).normal([1, tokens, width], 1.0);
        // |q|² ≤ √D: the longest vector has just that.
        let short = |x: Tensor| {
            let longest = x.data().chunks(width).map(|row| row.iter().map(|x| x * x).sum::<f32>());
            let factor = ((width as f32).sqrt() / longest.fold(0.0, f32::max)).sqrt();
            let scaled: Vec<f32> = x.data().iter().map(|x| x * factor).collect();
            Var::constant(Tensor::new([1, tokens, width], &scaled))
        };
        let (q, k, v) = (short(normal(1)), short(normal(2)), Var::constant(normal(3)));
        let exact = attention(&q, &k, &v, &[], &Attend::new(1)).into_value();
        let attend = LinearAttend { heads: 1, kv_heads: 1, causal: false, runs: None };
        let error = |features: usize| {
            let squares = (0..DRAWS).map(|draw| {
                let samples = orthogonal(&mut Rng::new(1000 + draw), features, width);
                let q = random_features(&q, &samples, Side::Queries);
                let k = random_features(&k, &samples, Side::Keys);
                let out = linear_attention(&q, &k, &v, &attend).into_value();
                let pairs = out.data().iter().zip(exact.data());
                pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>()
            });
            (squares.sum::<f64>() / (DRAWS as usize * tokens * width) as f64).sqrt()
        };
        let points: Vec<(f64, f64)> = (4..=10)
            .map(|power| 1_usize << power)
            .map(|features| ((features as f64).ln(), error(features).ln()))
            .collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|p| p.0), mean(|p| p.1));
        let along: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
        let slope = along / points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>();
        println!("slope {slope:.3}; ln M, ln error: {points:?}");
        assert!((-0.75..-0.35).contains(&slope), "slope {slope}: {points:?}");
    }
}
