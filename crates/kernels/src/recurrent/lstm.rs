//! The gates of an LSTM, in PyTorch's order: input, forget, candidate, output.
//!
//! ```text
//! i, f, o = σ(a), g = tanh(a)      c ← f·c + i·g      h ← o·tanh(c)
//! ```
//! and back, with `dh` and `dc` of what follows:
//! 1. `do = dh·tanh(c)`, `dc += dh·o·(1 − tanh²(c))`
//! 2. `di = dc·g`, `dg = dc·i`, `df = dc·c₋`, and `dc·f` goes on to the time before
//! 3. before σ and tanh: `da = di·i(1 − i)` and so on, `dg·(1 − g²)`

use super::{Walk, sigmoid_slope};
use crate::activation::Activation;
use crate::math::sigmoid;
use crate::simd::Simd;
use crate::threads::for_row_chunks;
use crate::{dispatch, each_span};

/// One time: `gates` (B, T, 4C) are sums on entry and gates on return; `states` are h and c (B, C);
/// `out` is (B, T, C), and so is `cells`, which receives c unless it is empty.
pub fn lstm_forward(
    walk: &Walk<'_>,
    time: usize,
    gates: &mut [f32],
    [hidden, cell]: [&mut [f32]; 2],
    out: &mut [f32],
    cells: &mut [f32],
) {
    let (t, c) = (walk.length, walk.width);
    let kept = if cells.is_empty() { 0 } else { t * c };
    let outputs = [(gates, 4 * t * c), (hidden, c), (cell, c), (out, t * c), (cells, kept)];
    for_row_chunks(
        walk.batch,
        walk.chunk(8),
        outputs,
        |rows, [gates, hidden, cell, out, cells]| {
            for (i, row) in rows.enumerate() {
                let out = &mut out[(i * t + time) * c..][..c];
                let gates = &mut gates[(i * t + time) * 4 * c..][..4 * c];
                let cell = &mut cell[i * c..][..c];
                if walk.is_real(row, time) {
                    forward_row(gates, cell, out);
                    hidden[i * c..][..c].copy_from_slice(out);
                } else {
                    out.fill(0.0);
                }
                if kept > 0 {
                    cells[(i * t + time) * c..][..c].copy_from_slice(cell);
                }
            }
        },
    );
}

/// One time, backwards: `gates` become the gradients of their sums. `cells` are those of forward,
/// `first` the initial ones (B, C), `dout` (B, T, C) or empty. Of `states`, the gradients of h and c
/// after this time, dc becomes that before it, and dh is set to 0 where there is no padding: the
/// product with the weights has to be added to it.
pub fn lstm_backward(
    walk: &Walk<'_>,
    time: usize,
    gates: &mut [f32],
    [cells, first, dout]: [&[f32]; 3],
    [dhidden, dcell]: [&mut [f32]; 2],
) {
    let (t, c) = (walk.length, walk.width);
    let outputs = [(gates, 4 * t * c), (dhidden, c), (dcell, c)];
    for_row_chunks(walk.batch, walk.chunk(8), outputs, |rows, [gates, dhidden, dcell]| {
        for (i, row) in rows.enumerate() {
            let gates = &mut gates[(i * t + time) * 4 * c..][..4 * c];
            if !walk.is_real(row, time) {
                gates.fill(0.0);
                continue;
            }
            let at = (row * t + time) * c;
            let before = walk.state_before(row, time, cells, first);
            let dout = if dout.is_empty() { dout } else { &dout[at..][..c] };
            let states = [&mut dhidden[i * c..][..c], &mut dcell[i * c..][..c]];
            backward_row(gates, [&cells[at..][..c], before, dout], states);
        }
    });
}

dispatch! {
    fn forward_row(gates: &mut [f32], cell: &mut [f32], out: &mut [f32]) => forward_row_on
    fn backward_row(gates: &mut [f32], cells: [&[f32]; 3], states: [&mut [f32]; 2])
        => backward_row_on
}

/// The four gates of a row.
fn four(gates: &mut [f32]) -> [&mut [f32]; 4] {
    let width = gates.len() / 4;
    let (i, rest) = gates.split_at_mut(width);
    let (f, rest) = rest.split_at_mut(width);
    let (g, o) = rest.split_at_mut(width);
    [i, f, g, o]
}

#[inline(always)]
fn forward_row_on<S: Simd>(s: S, gates: &mut [f32], cell: &mut [f32], out: &mut [f32]) {
    let width = cell.len();
    let [gi, gf, gg, go] = four(gates);
    each_span!(S, width, |at| {
        let i = sigmoid(s, s.read(gi, at));
        let f = sigmoid(s, s.read(gf, at));
        let g = Activation::Tanh.apply(s, s.read(gg, at));
        let o = sigmoid(s, s.read(go, at));
        let c = s.mul_add(f, s.read(cell, at), s.mul(i, g));
        s.write(gi, at, i);
        s.write(gf, at, f);
        s.write(gg, at, g);
        s.write(go, at, o);
        s.write(cell, at, c);
        s.write(out, at, s.mul(o, Activation::Tanh.apply(s, c)));
    });
}

#[inline(always)]
fn backward_row_on<S: Simd>(
    s: S,
    gates: &mut [f32],
    [cell, before, dout]: [&[f32]; 3],
    [dhidden, dcell]: [&mut [f32]; 2],
) {
    let one = s.splat(1.0);
    let width = cell.len();
    let [gi, gf, gg, go] = four(gates);
    each_span!(S, width, |at| {
        let (i, f, g, o) = (s.read(gi, at), s.read(gf, at), s.read(gg, at), s.read(go, at));
        let mut dh = s.read(dhidden, at);
        if !dout.is_empty() {
            dh = s.add(dh, s.read(dout, at));
        }
        let (tanh, slope) = Activation::Tanh.with_derivative(s, s.read(cell, at));
        let dc = s.mul_add(s.mul(dh, o), slope, s.read(dcell, at)); // 1
        s.write(gi, at, s.mul(s.mul(dc, g), sigmoid_slope(s, i))); // 2, 3
        s.write(gf, at, s.mul(s.mul(dc, s.read(before, at)), sigmoid_slope(s, f)));
        s.write(gg, at, s.mul(s.mul(dc, i), s.neg_mul_add(g, g, one)));
        s.write(go, at, s.mul(s.mul(dh, tanh), sigmoid_slope(s, o))); // 1, 3
        s.write(dcell, at, s.mul(dc, f));
        s.write(dhidden, at, s.zero());
    });
}
