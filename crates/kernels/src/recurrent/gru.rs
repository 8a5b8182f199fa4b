//! The gates of a GRU, in PyTorch's order and form: reset, update, candidate, with the reset gate
//! on the product of the state and not on the state.
//!
//! ```text
//! r, z = σ(a + u)      n = tanh(a + r·u)      h ← (1 − z)·n + z·h      u = h·Uᵀ + b
//! ```
//! and back, with `dh` of what follows:
//! 1. `dz = dh·(h₋ − n)`, `dn = dh·(1 − z)`, and `dh·z` goes on to the time before
//! 2. before tanh: `dan = dn·(1 − n²)`; `dr = dan·u`, and `dan·r` is the gradient of the candidate's u
//! 3. before σ: `dr·r(1 − r)`, `dz·z(1 − z)`, for a and u alike

use super::{Walk, sigmoid_slope};
use crate::activation::Activation;
use crate::math::sigmoid;
use crate::simd::Simd;
use crate::threads::for_row_chunks;
use crate::{dispatch, each_span};

/// One time: `gates` (B, T, 3C) are a on entry and gates on return; `products` are u (B, 3C);
/// `hidden` is the state (B, C); `out` is (B, T, C), and so is `candidates`, which receives the
/// candidate's u unless it is empty.
pub fn gru_forward(
    walk: &Walk<'_>,
    time: usize,
    gates: &mut [f32],
    products: &[f32],
    hidden: &mut [f32],
    out: &mut [f32],
    candidates: &mut [f32],
) {
    let (t, c) = (walk.length, walk.width);
    let kept = if candidates.is_empty() { 0 } else { t * c };
    let outputs = [(gates, 3 * t * c), (hidden, c), (out, t * c), (candidates, kept)];
    for_row_chunks(walk.batch, walk.chunk(8), outputs, |rows, [gates, hidden, out, candidates]| {
        for (i, row) in rows.enumerate() {
            let out = &mut out[(i * t + time) * c..][..c];
            let gates = &mut gates[(i * t + time) * 3 * c..][..3 * c];
            let products = &products[row * 3 * c..][..3 * c];
            if walk.is_real(row, time) {
                let hidden = &mut hidden[i * c..][..c];
                forward_row(gates, products, hidden);
                out.copy_from_slice(hidden);
            } else {
                out.fill(0.0);
            }
            if kept > 0 {
                candidates[(i * t + time) * c..][..c].copy_from_slice(&products[2 * c..]);
            }
        }
    });
}

/// One time, backwards: `gates` become the gradients of a, and `candidates` those of the candidate's
/// u. `states` are those of forward (B, T, C), the initial ones (B, C), and `dout` (B, T, C) or
/// empty. `dhidden`, the gradient of h after this time, becomes that part of the one before which
/// does not go through the product; the product has to be added to it.
pub fn gru_backward(
    walk: &Walk<'_>,
    time: usize,
    gates: &mut [f32],
    candidates: &mut [f32],
    [states, first, dout]: [&[f32]; 3],
    dhidden: &mut [f32],
) {
    let (t, c) = (walk.length, walk.width);
    let outputs = [(gates, 3 * t * c), (candidates, t * c), (dhidden, c)];
    for_row_chunks(walk.batch, walk.chunk(8), outputs, |rows, [gates, candidates, dhidden]| {
        for (i, row) in rows.enumerate() {
            let gates = &mut gates[(i * t + time) * 3 * c..][..3 * c];
            let candidate = &mut candidates[(i * t + time) * c..][..c];
            if !walk.is_real(row, time) {
                gates.fill(0.0);
                candidate.fill(0.0);
                continue;
            }
            let before = walk.state_before(row, time, states, first);
            let dout = if dout.is_empty() { dout } else { &dout[(row * t + time) * c..][..c] };
            backward_row(gates, candidate, [before, dout], &mut dhidden[i * c..][..c]);
        }
    });
}

dispatch! {
    fn forward_row(gates: &mut [f32], products: &[f32], hidden: &mut [f32]) => forward_row_on
    fn backward_row(gates: &mut [f32], candidate: &mut [f32], states: [&[f32]; 2],
        dhidden: &mut [f32]) => backward_row_on
}

/// The three gates of a row.
fn three(gates: &mut [f32]) -> [&mut [f32]; 3] {
    let width = gates.len() / 3;
    let (r, rest) = gates.split_at_mut(width);
    let (z, n) = rest.split_at_mut(width);
    [r, z, n]
}

#[inline(always)]
fn forward_row_on<S: Simd>(s: S, gates: &mut [f32], products: &[f32], hidden: &mut [f32]) {
    let width = hidden.len();
    let [gr, gz, gn] = three(gates);
    let (ur, rest) = products.split_at(width);
    let (uz, un) = rest.split_at(width);
    each_span!(S, width, |at| {
        let r = sigmoid(s, s.add(s.read(gr, at), s.read(ur, at)));
        let z = sigmoid(s, s.add(s.read(gz, at), s.read(uz, at)));
        let n = Activation::Tanh.apply(s, s.mul_add(r, s.read(un, at), s.read(gn, at)));
        s.write(gr, at, r);
        s.write(gz, at, z);
        s.write(gn, at, n);
        s.write(hidden, at, s.mul_add(z, s.sub(s.read(hidden, at), n), n));
    });
}

#[inline(always)]
fn backward_row_on<S: Simd>(
    s: S,
    gates: &mut [f32],
    candidate: &mut [f32],
    [before, dout]: [&[f32]; 2],
    dhidden: &mut [f32],
) {
    let one = s.splat(1.0);
    let width = before.len();
    let [gr, gz, gn] = three(gates);
    each_span!(S, width, |at| {
        let (r, z, n) = (s.read(gr, at), s.read(gz, at), s.read(gn, at));
        let mut dh = s.read(dhidden, at);
        if !dout.is_empty() {
            dh = s.add(dh, s.read(dout, at));
        }
        let dz = s.mul(dh, s.sub(s.read(before, at), n)); // 1
        let dn = s.mul(s.mul(dh, s.sub(one, z)), s.neg_mul_add(n, n, one)); // 1, 2
        let dr = s.mul(dn, s.read(candidate, at)); // 2
        s.write(candidate, at, s.mul(dn, r)); // 2
        s.write(gr, at, s.mul(dr, sigmoid_slope(s, r))); // 3
        s.write(gz, at, s.mul(dz, sigmoid_slope(s, z)));
        s.write(gn, at, dn);
        s.write(dhidden, at, s.mul(dh, z)); // 1
    });
}
