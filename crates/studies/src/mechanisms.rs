//! The mechanisms of attention as their layers run them, on queries, keys and values that are there: what
//! `hearken bench attention` and the study `attention` time.

use hearken_kernels::activation::Activation;
use hearken_kernels::attention::scores::Full;
use hearken_tensor::ops::activations::activate;
use hearken_tensor::ops::attention::{Attend, attention};
use hearken_tensor::ops::linear_attention::{LinearAttend, linear_attention};
use hearken_tensor::ops::lsh_attention::{LshAttend, Order, lsh_attention};
use hearken_tensor::ops::matmul::matmul_transposed;
use hearken_tensor::ops::random_features::{Side, random_features};
use hearken_tensor::ops::transpose::transpose;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Tensor, Var};
use serde::{Deserialize, Serialize};

/// Which mechanism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// softmax(q·kᵀ/√D)
    #[default]
    Softmax,
    /// Features elu(x) + 1
    Linear,
    /// 256 random features
    Performer,
    /// Buckets of a hash: chunks of 64, two rounds
    Lsh,
    /// 256 mixtures of all keys and values; in both directions alone
    Linformer,
}

/// Mixtures of the Linformer.
const RANK: usize = 256;
/// Random features of the Performer.
const FEATURES: usize = 256;
/// Of LSH attention.
const CHUNK: usize = 64;
const ROUNDS: usize = 2;
const MOST_BUCKETS: usize = 256;

/// A mechanism that is ready to run.
pub enum Ready {
    /// As it says.
    Softmax(Attend),
    /// By sums over keys.
    Linear(LinearAttend),
    /// With the directions of the features (M, D).
    Performer(LinearAttend, Tensor),
    /// With the directions of the hashes.
    Lsh(LshAttend, Tensor),
    /// With the mixtures of keys and of values (rank, T), which learn.
    Linformer(Attend, [Tensor; 2]),
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Softmax, Self::Linear, Self::Performer, Self::Lsh, Self::Linformer];

    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Softmax => "softmax",
            Self::Linear => "linear",
            Self::Performer => "performer",
            Self::Lsh => "lsh",
            Self::Linformer => "linformer",
        }
    }

    /// What it is, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Self::Softmax => "softmax(q·kᵀ/√D)",
            Self::Linear => "features elu(x) + 1",
            Self::Performer => "256 random features",
            Self::Lsh => "buckets of a hash: chunks of 64, two rounds",
            Self::Linformer => "256 mixtures of all keys and values; not with --causal",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// For heads that are so wide and so many tokens. `attend` is how softmax would do it.
    pub fn ready(self, attend: Attend, causal: bool, width: usize, tokens: usize) -> Ready {
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
            Self::Linformer => {
                let deviation = 1.0 / (tokens as f64).sqrt();
                let mixture = |seed| Rng::new(seed).normal([RANK, tokens], deviation);
                Ready::Linformer(attend.rule(Full), [mixture(6), mixture(7)])
            }
        }
    }

    /// Floating-point operations of a forward pass for `pairs` visible pairs under softmax.
    pub fn operations(self, pairs: f64, tokens: usize, heads: [usize; 2], width: usize) -> f64 {
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
            Self::Linformer => {
                let mixed = 4.0 * RANK as f64 * tokens * keys * width;
                mixed + 4.0 * width * queries * tokens * RANK as f64
            }
        }
    }
}

impl Ready {
    /// Attention of queries (1, T, H·D) to keys and values (1, T, K·D).
    pub fn run(&self, [q, k, v]: [&Var; 3]) -> Var {
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
            Self::Linformer(attend, mixtures) => {
                let [keys, values] = mixtures.each_ref().map(|mixture| {
                    let mixture = mixture.clone();
                    if q.wants_gradient() { Var::leaf(mixture) } else { Var::constant(mixture) }
                });
                let mix = |x: &Var, mixture: &Var| {
                    transpose(&matmul_transposed(&transpose(x, 1, 2), mixture), 1, 2)
                };
                attention(q, &mix(k, &keys), &mix(v, &values), &[], attend)
            }
        }
    }
}
