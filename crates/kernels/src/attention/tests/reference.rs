//! Attention as the formulas say, in f64, with all T·S weights in memory.

use crate::attention::scores::Position;
use crate::attention::{Scores, Shape};
use crate::random::{Dropout, Stream};

/// Inputs: contiguous (B, T, H, D), (B, S, K, D), (B, S, K, Dv), (B, T, H, Dv).
#[derive(Clone)]
pub(super) struct Inputs {
    pub(super) q: Vec<f64>,
    pub(super) k: Vec<f64>,
    pub(super) v: Vec<f64>,
    pub(super) dout: Vec<f64>,
}

/// Results, shaped like the inputs; lse is (B, H, T), weights and dscores are (B, H, T, S).
pub(super) struct Results {
    pub(super) out: Vec<f64>,
    pub(super) lse: Vec<f64>,
    pub(super) weights: Vec<f64>,
    pub(super) dq: Vec<f64>,
    pub(super) dk: Vec<f64>,
    pub(super) dv: Vec<f64>,
    pub(super) dscores: Vec<f64>,
}

/// What dropout multiplies weight (b, h, i, j) with.
fn factor(dropout: Option<Dropout>, row: usize, j: usize) -> f64 {
    let Some(dropout) = dropout else { return 1.0 };
    let unit = (Stream::new(dropout.key, row as u32).bits(j as u32) >> 8) as f32 / (1 << 24) as f32;
    if unit < dropout.probability { 0.0 } else { f64::from(dropout.scale()) }
}

pub(super) fn reference(
    shape: Shape,
    scale: f64,
    dropout: Option<Dropout>,
    rule: &dyn Scores,
    inputs: &Inputs,
) -> Results {
    let Shape { batch, queries, keys, heads, kv_heads, width, value_width } = shape;
    let mut results = Results {
        out: vec![0.0; inputs.dout.len()],
        lse: vec![f64::NEG_INFINITY; batch * heads * queries],
        weights: vec![0.0; batch * heads * queries * keys],
        dq: vec![0.0; inputs.q.len()],
        dk: vec![0.0; inputs.k.len()],
        dv: vec![0.0; inputs.v.len()],
        dscores: vec![0.0; batch * heads * queries * keys],
    };
    for row in 0..batch * heads * queries {
        let (b, h, i) = (row / (heads * queries), row / queries % heads, row % queries);
        let kv = h / (heads / kv_heads);
        let q_at = ((b * queries + i) * heads + h) * width;
        let o_at = ((b * queries + i) * heads + h) * value_width;
        let k_at = |j: usize| ((b * keys + j) * kv_heads + kv) * width;
        let v_at = |j: usize| ((b * keys + j) * kv_heads + kv) * value_width;
        let mut added = vec![0.0; keys];
        rule.apply(Position { batch: b, head: h, query: i }, 0..keys, &mut added);
        let s: Vec<f64> = (0..keys)
            .map(|j| {
                let dot: f64 = (0..width).map(|d| inputs.q[q_at + d] * inputs.k[k_at(j) + d]).sum();
                scale * dot + f64::from(added[j])
            })
            .collect();
        let largest = s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if largest == f64::NEG_INFINITY {
            continue; // sees nothing: zeros
        }
        let sum: f64 = s.iter().map(|s| (s - largest).exp()).sum();
        let lse = largest + sum.ln();
        results.lse[row] = lse;
        let p: Vec<f64> = s.iter().map(|s| (s - lse).exp()).collect();
        let mut dp = vec![0.0; keys];
        for j in 0..keys {
            results.weights[row * keys + j] = p[j];
            let factor = factor(dropout, row, j);
            for d in 0..value_width {
                let (v, dout) = (inputs.v[v_at(j) + d], inputs.dout[o_at + d]);
                results.out[o_at + d] += p[j] * factor * v;
                results.dv[v_at(j) + d] += p[j] * factor * dout; // (1)
                dp[j] += factor * dout * v; // (2)
            }
        }
        let delta: f64 = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
        for j in 0..keys {
            let ds = p[j] * (dp[j] - delta); // (3)
            results.dscores[row * keys + j] = ds;
            for d in 0..width {
                results.dq[q_at + d] += scale * ds * inputs.k[k_at(j) + d]; // (4)
                results.dk[k_at(j) + d] += scale * ds * inputs.q[q_at + d]; // (5)
            }
        }
    }
    results
}
