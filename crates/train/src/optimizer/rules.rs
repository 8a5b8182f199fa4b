//! One step of each rule over the elements of one parameter, in one pass: gradient scaling
//! (clipping and loss scale in one factor), moments, decay and update.
//!
//! Every element is computed by itself, so cutting the work among threads changes no bits.

use hearken_kernels::threads::{for_row_chunks, rows_per_chunk};

/// What a step of SGD needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sgd {
    pub(crate) lr: f32,
    pub(crate) momentum: f32,
    pub(crate) nesterov: bool,
    /// λ in g + λθ.
    pub(crate) l2: f32,
    /// The gradient is multiplied by this first.
    pub(crate) factor: f32,
}

impl Sgd {
    /// θ ← θ − lr·(g + λθ)
    pub(crate) fn plain(self, value: &mut [f32], gradient: &[f32]) {
        let Self { lr, l2, factor, .. } = self;
        for_row_chunks(value.len(), rows_per_chunk(1), [(value, 1)], |at, [value]| {
            for (value, g) in value.iter_mut().zip(&gradient[at]) {
                let g = g * factor + l2 * *value;
                *value -= lr * g;
            }
        });
    }

    /// m ← μm + g + λθ, θ ← θ − lr·m; or with a look ahead θ ← θ − lr·(g + λθ + μm).
    pub(crate) fn with_momentum(self, value: &mut [f32], gradient: &[f32], first: &mut [f32]) {
        let Self { lr, momentum, nesterov, l2, factor } = self;
        let len = value.len();
        for_row_chunks(len, rows_per_chunk(1), [(value, 1), (first, 1)], |at, [value, first]| {
            for ((value, m), g) in value.iter_mut().zip(first).zip(&gradient[at]) {
                let g = g * factor + l2 * *value;
                *m = momentum * *m + g;
                *value -= lr * if nesterov { g + momentum * *m } else { *m };
            }
        });
    }
}

/// What a step of Adam or AdamW needs; `bias1` is 1 − Π β₁, `bias2` is 1 − Π β₂ over the steps so
/// far, this one included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adam {
    pub(crate) lr: f64,
    pub(crate) beta1: f64,
    pub(crate) beta2: f64,
    pub(crate) eps: f64,
    pub(crate) bias1: f64,
    pub(crate) bias2: f64,
    /// λ in g + λθ, before the moments.
    pub(crate) l2: f64,
    /// λ in θ − lr·λθ, beside them.
    pub(crate) weight_decay: f64,
    /// The gradient is multiplied by this first.
    pub(crate) factor: f32,
}

impl Adam {
    /// m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², m̂ = m/bias1, v̂ = v/bias2,
    /// θ ← (1 − lr·λ)θ − lr·m̂/(√v̂ + ε)
    ///
    /// √v̂ + ε is taken as (√v + ε√bias2)/√bias2, which moves both corrections out of the loop.
    pub(crate) fn step(
        self,
        value: &mut [f32],
        gradient: &[f32],
        first: &mut [f32],
        second: &mut [f32],
    ) {
        let (beta1, rest1) = (self.beta1 as f32, (1.0 - self.beta1) as f32);
        let (beta2, rest2) = (self.beta2 as f32, (1.0 - self.beta2) as f32);
        let size = (self.lr * self.bias2.sqrt() / self.bias1) as f32;
        let eps = (self.eps * self.bias2.sqrt()) as f32;
        let keep = (1.0 - self.lr * self.weight_decay) as f32;
        let (l2, factor) = (self.l2 as f32, self.factor);
        let len = value.len();
        let outputs = [(value, 1), (first, 1), (second, 1)];
        for_row_chunks(len, rows_per_chunk(1), outputs, |at, [value, first, second]| {
            for (((value, m), v), g) in value.iter_mut().zip(first).zip(second).zip(&gradient[at]) {
                let g = g * factor + l2 * *value;
                *m = beta1 * *m + rest1 * g;
                *v = beta2 * *v + rest2 * (g * g);
                *value = keep * *value - size * (*m / (v.sqrt() + eps));
            }
        });
    }
}

/// What a step of Lion needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lion {
    pub(crate) lr: f64,
    pub(crate) beta1: f64,
    pub(crate) beta2: f64,
    pub(crate) weight_decay: f64,
    /// The gradient is multiplied by this first.
    pub(crate) factor: f32,
}

impl Lion {
    /// θ ← (1 − lr·λ)θ − lr·sign(β₁m + (1−β₁)g), then m ← β₂m + (1−β₂)g. The sign of 0 is 0.
    pub(crate) fn step(self, value: &mut [f32], gradient: &[f32], first: &mut [f32]) {
        let (beta1, rest1) = (self.beta1 as f32, (1.0 - self.beta1) as f32);
        let (beta2, rest2) = (self.beta2 as f32, (1.0 - self.beta2) as f32);
        let (lr, factor) = (self.lr as f32, self.factor);
        let keep = (1.0 - self.lr * self.weight_decay) as f32;
        let len = value.len();
        for_row_chunks(len, rows_per_chunk(1), [(value, 1), (first, 1)], |at, [value, first]| {
            for ((value, m), g) in value.iter_mut().zip(first).zip(&gradient[at]) {
                let g = g * factor;
                let direction = beta1 * *m + rest1 * g;
                let sign = if direction == 0.0 { 0.0 } else { 1.0_f32.copysign(direction) };
                *value = keep * *value - lr * sign;
                *m = beta2 * *m + rest2 * g;
            }
        });
    }
}

/// m ← μm + (1−μ)g; gives (1−μ)g + μm if `nesterov` looks ahead, else m, in `direction`.
pub(crate) fn muon_momentum(
    gradient: &[f32],
    factor: f32,
    momentum: f64,
    nesterov: bool,
    first: &mut [f32],
    direction: &mut [f32],
) {
    let (mu, rest) = (momentum as f32, (1.0 - momentum) as f32);
    let len = first.len();
    let outputs = [(first, 1), (direction, 1)];
    for_row_chunks(len, rows_per_chunk(1), outputs, |at, [first, direction]| {
        for ((m, out), g) in first.iter_mut().zip(direction).zip(&gradient[at]) {
            let g = g * factor;
            *m = mu * *m + rest * g;
            *out = if nesterov { rest * g + mu * *m } else { *m };
        }
    });
}

/// θ ← keep·θ − size·direction
pub(crate) fn shrink_and_subtract(value: &mut [f32], keep: f32, size: f32, direction: &[f32]) {
    for_row_chunks(value.len(), rows_per_chunk(1), [(value, 1)], |at, [value]| {
        for (value, d) in value.iter_mut().zip(&direction[at]) {
            *value = keep * *value - size * d;
        }
    });
}
