//! The mechanisms of attention that `hearken bench attention` can time, as their layers run them.

use hearken::kernels::activation::Activation;
use hearken::tensor::ops::activations::activate;
use hearken::tensor::ops::attention::{Attend, attention};
use hearken::tensor::ops::linear_attention::{LinearAttend, linear_attention};
use hearken::tensor::ops::lsh_attention::{LshAttend, Order, lsh_attention};
use hearken::tensor::ops::random_features::{Side, random_features};
use hearken::tensor::rng::Rng;
use hearken::tensor::{Tensor, Var};
use serde::{Deserialize, Serialize};

/// Which mechanism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mechanism {
    /// softmax(q·kᵀ/√D)
    #[default]
    Softmax,
    /// Features elu(x) + 1
    Linear,
    /// 256 random features
    Performer,
    /// Buckets of a hash: chunks of 64, two rounds
    Lsh,
}

/// Random features of the Performer.
const FEATURES: usize = 256;
/// Of LSH attention.
const CHUNK: usize = 64;
const ROUNDS: usize = 2;
const MOST_BUCKETS: usize = 256;

/// A mechanism that is ready to run.
pub(super) enum Ready {
    Softmax(Attend),
    Linear(LinearAttend),
    Performer(LinearAttend, Tensor),
    Lsh(LshAttend, Tensor),
}

impl Mechanism {
    /// For heads that are so wide and so many tokens. `attend` is how softmax would do it.
    pub(super) fn ready(self, attend: Attend, causal: bool, width: usize, tokens: usize) -> Ready {
        let Attend { heads, kv_heads, .. } = attend;
        let by_features = LinearAttend { heads, kv_heads, causal, runs: None };
        let draw = |rows| Rng::new(5).normal([rows, width], 1.0);
        match self {
            Self::Softmax => Ready::Softmax(attend),
            Self::Linear => Ready::Linear(by_features),
            Self::Performer => Ready::Performer(by_features, draw(FEATURES)),
            Self::Lsh => {
                let half = tokens.div_ceil(CHUNK).div_ceil(2).clamp(1, MOST_BUCKETS / 2);
                let scale = 1.0 / (width as f32).sqrt();
                let attend = LshAttend { chunk: CHUNK, causal, scale, segments: None };
                Ready::Lsh(attend, draw(ROUNDS * half))
            }
        }
    }

    /// Floating-point operations of a forward pass for `pairs` visible pairs under softmax.
    pub(super) fn operations(
        self,
        pairs: f64,
        tokens: usize,
        heads: [usize; 2],
        width: usize,
    ) -> f64 {
        let [queries, keys] = heads.map(|heads| heads as f64);
        let (tokens, width) = (tokens as f64, width as f64);
        let sums = |features: f64| 2.0 * tokens * (queries + keys) * features * (width + 1.0);
        match self {
            Self::Softmax => 4.0 * width * queries * pairs,
            Self::Linear => sums(width),
            Self::Performer => {
                let features = FEATURES as f64;
                sums(features) + 2.0 * tokens * (queries + keys) * width * features
            }
            Self::Lsh => {
                let pairs = tokens * (2 * CHUNK).min(tokens as usize) as f64;
                4.0 * width * queries * ROUNDS as f64 * pairs
            }
        }
    }
}

impl Ready {
    /// Attention of queries (1, T, H·D) to keys and values (1, T, K·D).
    pub(super) fn run(&self, [q, k, v]: [&Var; 3]) -> Var {
        match self {
            Self::Softmax(attend) => attention(q, k, v, &[], attend),
            Self::Linear(attend) => {
                let [q, k] = [q, k].map(|x| activate(x.clone(), Activation::EluPlusOne));
                linear_attention(&q, &k, v, attend)
            }
            Self::Performer(attend, samples) => {
                let q = random_features(q, samples, Side::Queries);
                let k = random_features(k, samples, Side::Keys);
                linear_attention(&q, &k, v, attend)
            }
            Self::Lsh(attend, directions) => {
                let [_, _, columns] = q.value().dims();
                let [_, width] = directions.dims();
                let heads = columns / width;
                let order = Order::by_hash(q.value(), heads, directions, ROUNDS, None);
                lsh_attention(q, k, v, &order, attend)
            }
        }
    }
}

/// The slope of ln y over ln x by least squares; `None` of fewer than two points.
pub(super) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let along: f64 = logs.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let spread: f64 = logs.iter().map(|p| (p.0 - x).powi(2)).sum();
    (points.len() > 1 && spread > 0.0).then(|| along / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_powers() {
        let points = |power: i32| [1.0, 2.0, 8.0].map(|x: f64| (x, 3.0 * x.powi(power)));
        assert!((slope(&points(2)).unwrap() - 2.0).abs() < 1e-12);
        assert!((slope(&points(1)).unwrap() - 1.0).abs() < 1e-12);
        assert!(slope(&points(1)[..1]).is_none());
    }
}
