//! Activation functions, their derivatives, and gated products.
//!
//! | [`Activation`] | f(x)                                     | f′(x)                              |
//! |----------------|------------------------------------------|------------------------------------|
//! | `Relu`         | max(x, 0)                                | 1 if x > 0, else 0                 |
//! | `SquaredRelu`  | max(x, 0)²                               | 2·max(x, 0)                        |
//! | `Gelu`         | x·Φ(x), Φ(x) = ½(1 + erf(x/√2))          | Φ(x) + x·e^(−x²/2)/√(2π)           |
//! | `GeluTanh`     | x·½(1 + tanh u), u = √(2/π)(x + 0.044715x³) | σ + x·σ(1 − σ)·2u′, σ = σ(2u)   |
//! | `Silu`         | x·σ(x), σ(x) = 1/(1 + e⁻ˣ)               | σ(x)·(1 + x·(1 − σ(x)))            |
//! | `Tanh`         | tanh(x) = 1 − 2σ(−2x)                    | 4σ(−2x)·(1 − σ(−2x))               |
//! | `EluPlusOne`   | x + 1 if x > 0, else eˣ                  | 1 if x > 0, else eˣ                |
//!
//! ½(1 + tanh u) = σ(2u) turns the tanh into one exponential. A gated product is
//! out = f(gate)·up: SwiGLU with `Silu`, GEGLU with `Gelu` or `GeluTanh` (Shazeer 2020,
//! arXiv:2002.05202).
//!
//! NaN gives NaN, and so does −∞ where f is x·(something that is 0 there), as in PyTorch. tanh is
//! −1 and 1 at ±∞. The derivatives have their limits at ±∞.

use crate::math::{exp, normal, sigmoid_and_slope};
use crate::simd::Simd;
use crate::threads::{for_row_chunks, rows_per_chunk};
use crate::{Write, dispatch, each_span};
use std::f32::consts::LOG2_E;

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// max(x, 0)
    Relu,
    /// max(x, 0)²
    SquaredRelu,
    /// x·Φ(x) by the error function.
    Gelu,
    /// x·Φ(x) by the tanh approximation, as in GPT-2.
    GeluTanh,
    /// x·σ(x), also called Swish.
    Silu,
    /// tanh(x)
    Tanh,
    /// x + 1 above 0, eˣ below: positive, as the features of linear attention must be.
    EluPlusOne,
}

/// √(2/π)
const SQRT_2_OVER_PI: f32 = 0.7978846;
/// 1/√(2π)
const ONE_OVER_SQRT_2_PI: f32 = 0.3989423;
/// Of the tanh approximation (Hendrycks and Gimpel 2016, arXiv:1606.08415).
const CUBIC: f32 = 0.044715;

impl Activation {
    /// All of them, for tests and tables.
    pub const ALL: [Activation; 7] = [
        Activation::Relu,
        Activation::SquaredRelu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Silu,
        Activation::Tanh,
        Activation::EluPlusOne,
    ];

    /// f(x) on a vector.
    #[inline(always)]
    pub fn apply<S: Simd>(self, s: S, x: S::V) -> S::V {
        self.with_derivative(s, x).0
    }

    /// f′(x) on a vector.
    #[inline(always)]
    pub fn derivative<S: Simd>(self, s: S, x: S::V) -> S::V {
        self.with_derivative(s, x).1
    }

    /// f(x) and f′(x) on a vector, with what they share computed once. x is cut only where its
    /// factor is 0 or 1 already, so that ∞·0 does not occur.
    #[inline(always)]
    pub fn with_derivative<S: Simd>(self, s: S, x: S::V) -> (S::V, S::V) {
        match self {
            Activation::Relu => {
                let slope = s.select(s.less_equal(x, s.zero()), s.zero(), s.splat(1.0));
                (s.max(s.zero(), x), slope)
            }
            Activation::SquaredRelu => {
                let positive = s.max(s.zero(), x);
                (s.mul(positive, positive), s.add(positive, positive))
            }
            Activation::Gelu => {
                let near = within(s, x, -16.0, 16.0);
                let (cdf, e) = normal(s, near);
                let density = s.mul(e, s.splat(ONE_OVER_SQRT_2_PI));
                (s.mul(x, cdf), s.mul_add(near, density, cdf))
            }
            Activation::GeluTanh => {
                const SLOPE: f32 = 2.0 * SQRT_2_OVER_PI; // of 2u at 0
                let near = within(s, x, -16.0, 10.0); // e^(−2u) is 2⁻¹²⁶ at 10
                let squared = s.mul(near, near);
                // u is odd, and what a polynomial in x² has to be multiplied by is x.
                let over_x =
                    s.mul_add(squared, s.splat(-SLOPE * CUBIC * LOG2_E), s.splat(-SLOPE * LOG2_E));
                let twice_du = s.mul_add(squared, s.splat(3.0 * SLOPE * CUBIC), s.splat(SLOPE));
                let (gate, slope) = sigmoid_and_slope(s, s.mul(near, over_x));
                (s.mul(x, gate), s.mul_add(s.mul(near, slope), twice_du, gate))
            }
            Activation::Silu => {
                let near = within(s, x, -100.0, 87.0); // e^(−87) is a normal number
                let (gate, slope) = sigmoid_and_slope(s, s.mul(near, s.splat(-LOG2_E)));
                (s.mul(x, gate), s.mul_add(near, slope, gate))
            }
            Activation::Tanh => {
                // Of |x|, where σ(−2|x|) is the smaller part: it vanishes as tanh becomes 1.
                let far = s.mul(s.abs(x), s.splat(2.0 * LOG2_E));
                let (rest, slope) = sigmoid_and_slope(s, far);
                let value = s.mul_add(s.splat(-2.0), rest, s.splat(1.0));
                let value = s.select(s.less(x, s.zero()), s.sub(s.zero(), value), value);
                let is_number = s.less_equal(x, x);
                let slope = s.mul(s.splat(4.0), slope);
                (s.select(is_number, value, x), s.select(is_number, slope, x))
            }
            Activation::EluPlusOne => {
                let one = s.splat(1.0);
                let positive = s.less(s.zero(), x);
                let below = exp(s, s.select(positive, s.zero(), x));
                (s.select(positive, s.add(x, one), below), s.select(positive, one, below))
            }
        }
    }
}

/// x cut to a range; NaN stays.
#[inline(always)]
fn within<S: Simd>(s: S, x: S::V, least: f32, most: f32) -> S::V {
    s.max(s.splat(least), s.min(s.splat(most), x))
}

/// Expands a block once for each activation, so that the choice is made outside of its loop.
macro_rules! for_activation {
    ($activation:ident, $body:block) => {
        match $activation {
            Activation::Relu => {
                let $activation = Activation::Relu;
                $body
            }
            Activation::SquaredRelu => {
                let $activation = Activation::SquaredRelu;
                $body
            }
            Activation::Gelu => {
                let $activation = Activation::Gelu;
                $body
            }
            Activation::GeluTanh => {
                let $activation = Activation::GeluTanh;
                $body
            }
            Activation::Silu => {
                let $activation = Activation::Silu;
                $body
            }
            Activation::Tanh => {
                let $activation = Activation::Tanh;
                $body
            }
            Activation::EluPlusOne => {
                let $activation = Activation::EluPlusOne;
                $body
            }
        }
    };
}

/// out = f(x)
pub fn forward(activation: Activation, x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "activation of {} elements into {}", x.len(), out.len());
    for_row_chunks(x.len(), rows_per_chunk(1), [(out, 1)], |at, [out]| {
        forward_chunk(activation, &x[at], out);
    });
}

/// x = f(x)
pub fn forward_in_place(activation: Activation, x: &mut [f32]) {
    for_row_chunks(x.len(), rows_per_chunk(1), [(x, 1)], |_, [x]| {
        forward_chunk_in_place(activation, x);
    });
}

/// dx = dout·f′(x), or dx += …
pub fn backward(activation: Activation, x: &[f32], dout: &[f32], dx: &mut [f32], write: Write) {
    assert!(
        x.len() == dout.len() && x.len() == dx.len(),
        "backward of an activation: x has {} elements, dout {}, dx {}",
        x.len(),
        dout.len(),
        dx.len()
    );
    for_row_chunks(x.len(), rows_per_chunk(1), [(dx, 1)], |at, [dx]| {
        backward_chunk(activation, &x[at.clone()], &dout[at], dx, write);
    });
}

/// gradient = gradient·f′(x): dout becomes dx.
pub fn backward_in_place(activation: Activation, x: &[f32], gradient: &mut [f32]) {
    assert_eq!(x.len(), gradient.len(), "backward of an activation: lengths differ");
    for_row_chunks(x.len(), rows_per_chunk(1), [(gradient, 1)], |at, [gradient]| {
        backward_chunk_in_place(activation, &x[at], gradient);
    });
}

/// out = f(gate)·up, where row i of `gate_up` (rows, 2F) is gate then up; `out` is (rows, F).
pub fn gated_forward(
    activation: Activation,
    rows: usize,
    width: usize,
    gate_up: &[f32],
    out: &mut [f32],
) {
    assert_eq!(gate_up.len(), rows * 2 * width, "gate and up should be {rows}×2·{width}");
    assert_eq!(out.len(), rows * width, "a gated product should be {rows}×{width}");
    for_row_chunks(rows, rows_per_chunk(2 * width), [(out, width)], |at, [out]| {
        let gate_up = &gate_up[at.start * 2 * width..at.end * 2 * width];
        gated_forward_chunk(activation, width, gate_up, out);
    });
}

/// dgate = dout·up·f′(gate), dup = dout·f(gate), concatenated in `dgate_up` (rows, 2F).
pub fn gated_backward(
    activation: Activation,
    rows: usize,
    width: usize,
    gate_up: &[f32],
    dout: &[f32],
    dgate_up: &mut [f32],
    write: Write,
) {
    assert_eq!(gate_up.len(), rows * 2 * width, "gate and up should be {rows}×2·{width}");
    assert_eq!(dout.len(), rows * width, "dout of a gated product should be {rows}×{width}");
    for_row_chunks(rows, rows_per_chunk(2 * width), [(dgate_up, 2 * width)], |at, [dgate_up]| {
        let gate_up = &gate_up[at.start * 2 * width..at.end * 2 * width];
        let dout = &dout[at.start * width..at.end * width];
        gated_backward_chunk(activation, width, gate_up, dout, dgate_up, write);
    });
}

dispatch! {
    fn forward_chunk(activation: Activation, x: &[f32], out: &mut [f32]) => forward_on
    /// As [`forward_in_place`], on this thread alone.
    pub(crate) fn forward_chunk_in_place(activation: Activation, x: &mut [f32])
        => forward_in_place_on
    fn backward_chunk(activation: Activation, x: &[f32], dout: &[f32], dx: &mut [f32],
        write: Write) => backward_on
    fn backward_chunk_in_place(activation: Activation, x: &[f32], gradient: &mut [f32])
        => backward_in_place_on
    fn gated_forward_chunk(activation: Activation, width: usize, gate_up: &[f32],
        out: &mut [f32]) => gated_forward_on
    fn gated_backward_chunk(activation: Activation, width: usize, gate_up: &[f32], dout: &[f32],
        dgate_up: &mut [f32], write: Write) => gated_backward_on
}

#[inline(always)]
fn forward_on<S: Simd>(s: S, activation: Activation, x: &[f32], out: &mut [f32]) {
    for_activation!(activation, {
        each_span!(S, x.len(), |at| {
            s.write(out, at, activation.apply(s, s.read(x, at)));
        });
    });
}

#[inline(always)]
pub(crate) fn forward_in_place_on<S: Simd>(s: S, activation: Activation, x: &mut [f32]) {
    for_activation!(activation, {
        each_span!(S, x.len(), |at| {
            let v = s.read(x, at);
            s.write(x, at, activation.apply(s, v));
        });
    });
}

#[inline(always)]
fn backward_on<S: Simd>(
    s: S,
    activation: Activation,
    x: &[f32],
    dout: &[f32],
    dx: &mut [f32],
    write: Write,
) {
    for_activation!(activation, {
        each_span!(S, x.len(), |at| {
            let v = s.mul(s.read(dout, at), activation.derivative(s, s.read(x, at)));
            s.put(dx, at, v, write);
        });
    });
}

#[inline(always)]
fn backward_in_place_on<S: Simd>(s: S, activation: Activation, x: &[f32], gradient: &mut [f32]) {
    for_activation!(activation, {
        each_span!(S, x.len(), |at| {
            let v = s.mul(s.read(gradient, at), activation.derivative(s, s.read(x, at)));
            s.write(gradient, at, v);
        });
    });
}

/// out = f(x), x = f′(x)
#[inline(always)]
pub(crate) fn forward_and_slope_on<S: Simd>(
    s: S,
    activation: Activation,
    x: &mut [f32],
    out: &mut [f32],
) {
    assert_eq!(x.len(), out.len());
    for_activation!(activation, {
        each_span!(S, x.len(), |at| {
            let (value, slope) = activation.with_derivative(s, s.read(x, at));
            s.write(out, at, value);
            s.write(x, at, slope);
        });
    });
}

#[inline(always)]
fn gated_forward_on<S: Simd>(
    s: S,
    activation: Activation,
    width: usize,
    gate_up: &[f32],
    out: &mut [f32],
) {
    if width == 0 {
        return;
    }
    for_activation!(activation, {
        for (gate_up, out) in gate_up.chunks_exact(2 * width).zip(out.chunks_exact_mut(width)) {
            let (gate, up) = gate_up.split_at(width);
            each_span!(S, width, |at| {
                let v = s.mul(activation.apply(s, s.read(gate, at)), s.read(up, at));
                s.write(out, at, v);
            });
        }
    });
}

#[inline(always)]
fn gated_backward_on<S: Simd>(
    s: S,
    activation: Activation,
    width: usize,
    gate_up: &[f32],
    dout: &[f32],
    dgate_up: &mut [f32],
    write: Write,
) {
    if width == 0 {
        return;
    }
    for_activation!(activation, {
        let rows = gate_up.chunks_exact(2 * width).zip(dout.chunks_exact(width));
        for ((gate_up, dout), dgate_up) in rows.zip(dgate_up.chunks_exact_mut(2 * width)) {
            let (gate, up) = gate_up.split_at(width);
            let (dgate, dup) = dgate_up.split_at_mut(width);
            each_span!(S, width, |at| {
                let (gate, up, dout) = (s.read(gate, at), s.read(up, at), s.read(dout, at));
                let (value, slope) = activation.with_derivative(s, gate);
                s.put(dgate, at, s.mul(s.mul(dout, up), slope), write);
                s.put(dup, at, s.mul(dout, value), write);
            });
        }
    });
}

#[cfg(test)]
mod tests;
