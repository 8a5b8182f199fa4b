//! The simplest recurrent cell (Elman 1990): `h ← f(a)`, f = tanh or max(·, 0).
//!
//! Back: `da = (dh + dout)·f′`, where f′ is 1 − h² or 1 where h > 0.

use super::Walk;
use crate::activation::Activation;
use crate::simd::Simd;
use crate::threads::for_row_chunks;
use crate::{dispatch, each_span};

/// One time: `out` (B, T, C) are sums on entry and states on return; `hidden` is the state (B, C).
pub fn rnn_forward(
    walk: &Walk<'_>,
    time: usize,
    f: Activation,
    out: &mut [f32],
    hidden: &mut [f32],
) {
    let (t, c) = (walk.length, walk.width);
    for_row_chunks(
        walk.batch,
        walk.chunk(4),
        [(out, t * c), (hidden, c)],
        |rows, [out, hidden]| {
            for (i, row) in rows.enumerate() {
                let out = &mut out[(i * t + time) * c..][..c];
                if walk.is_real(row, time) {
                    crate::activation::forward_chunk_in_place(f, out);
                    hidden[i * c..][..c].copy_from_slice(out);
                } else {
                    out.fill(0.0);
                }
            }
        },
    );
}

/// One time, backwards: `gradient` (B, T, C), the incoming one, becomes that of the sums. `dhidden`
/// is the gradient of the state after this time, and is set to 0 where there is no padding: the
/// product with the weights has to be added to it.
pub fn rnn_backward(
    walk: &Walk<'_>,
    time: usize,
    f: Activation,
    states: &[f32],
    gradient: &mut [f32],
    dhidden: &mut [f32],
) {
    assert!(matches!(f, Activation::Tanh | Activation::Relu), "an RNN with {f:?}");
    let (t, c) = (walk.length, walk.width);
    let outputs = [(gradient, t * c), (dhidden, c)];
    for_row_chunks(walk.batch, walk.chunk(4), outputs, |rows, [gradient, dhidden]| {
        for (i, row) in rows.enumerate() {
            let gradient = &mut gradient[(i * t + time) * c..][..c];
            if walk.is_real(row, time) {
                let states = &states[(row * t + time) * c..][..c];
                backward_row(f == Activation::Tanh, states, gradient, &mut dhidden[i * c..][..c]);
            } else {
                gradient.fill(0.0);
            }
        }
    });
}

dispatch! {
    fn backward_row(is_tanh: bool, states: &[f32], gradient: &mut [f32], dhidden: &mut [f32])
        => backward_row_on
}

#[inline(always)]
fn backward_row_on<S: Simd>(
    s: S,
    is_tanh: bool,
    states: &[f32],
    gradient: &mut [f32],
    dhidden: &mut [f32],
) {
    let one = s.splat(1.0);
    each_span!(S, states.len(), |at| {
        let h = s.read(states, at);
        let slope = if is_tanh {
            s.neg_mul_add(h, h, one)
        } else {
            s.select(s.less_equal(h, s.zero()), s.zero(), one)
        };
        let dh = s.add(s.read(gradient, at), s.read(dhidden, at));
        s.write(gradient, at, s.mul(dh, slope));
        s.write(dhidden, at, s.zero());
    });
}
