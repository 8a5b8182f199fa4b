//! One step of an optimiser over one parameter, in one pass over memory.
//!
//! θ parameter, g gradient (times a factor `gradient_scale` from clipping or loss scaling, applied
//! on the way), η learning rate, λ weight decay, c₁ and c₂ the corrections 1 − Πβ over the steps so
//! far, which are 1 − βᵗ where β stays the same:
//!
//! ```text
//! AdamW     m = β₁m + (1−β₁)g,  v = β₂v + (1−β₂)g²
//!           θ −= η·( m/c₁ / (√(v/c₂) + ε) + λθ )                  Loshchilov, Hutter 2019
//! Adam+L2   the same without + λθ, and with g + λθ in the place of g      Kingma, Ba 2015
//! SGD       θ −= η·(g + λθ)
//! momentum  v = βv + (1−β)g,  θ −= η·(v + λθ)      (classic: v = βv + g)
//!           L2: with g + λθ in the place of g;  Nesterov: g + βv in the place of v
//! Lion      θ −= η·( sign(β₁m + (1−β₁)g) + λθ ),  m = β₂m + (1−β₂)g    Chen et al. 2023
//! Muon      m = βm + g,  update = g + βm (Nesterov) or m; what follows is matrix products
//! ```
//! Sources: arXiv:1711.05101, 1412.6980, 2302.06675.

use crate::simd::Simd;
use crate::threads::{for_row_chunks, rows_per_chunk};
use crate::{dispatch, each_span};

/// How weight decay enters Adam and momentum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// Straight to the parameter, as in AdamW.
    Decoupled,
    /// Added to the gradient, before the moments: the gradient of an L2 penalty.
    Gradient,
}

/// What a step of Adam needs to know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// η
    pub learning_rate: f32,
    /// β₁, of the mean of gradients.
    pub beta1: f32,
    /// β₂, of the mean of their squares.
    pub beta2: f32,
    /// ε
    pub epsilon: f32,
    /// λ
    pub weight_decay: f32,
    /// Where λ enters.
    pub decay: Decay,
    /// c₁ = 1 − Πβ₁ over the steps so far, this one included; see [`bias_correction`].
    pub correction1: f64,
    /// c₂, the same of β₂.
    pub correction2: f64,
}

/// 1 − βᵗ for a β that stays the same, at step `t` from 1. In f64: at t = 1 and β = 0.999 an f32
/// would keep four digits of it.
pub fn bias_correction(beta: f32, t: u32) -> f64 {
    assert!(t > 0, "steps of Adam count from 1");
    1.0 - f64::from(beta).powf(f64::from(t))
}

/// What a step of SGD, with or without momentum, needs to know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// η
    pub learning_rate: f32,
    /// β; without effect where there is no momentum.
    pub momentum: f32,
    /// v = βv + g, in the place of βv + (1−β)g.
    pub classic: bool,
    /// Looks one step ahead; without effect where there is no momentum.
    pub nesterov: bool,
    /// λ
    pub weight_decay: f32,
    /// Where λ enters; all the same where there is no momentum.
    pub decay: Decay,
}

/// What a step of Lion needs to know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// η
    pub learning_rate: f32,
    /// β₁, of the direction.
    pub beta1: f32,
    /// β₂, of the mean that is kept.
    pub beta2: f32,
    /// λ
    pub weight_decay: f32,
}

/// One step of Adam or AdamW; `mean` and `square` start as zeros.
pub fn adam_step(
    adam: Adam,
    gradient_scale: f32,
    gradient: &[f32],
    parameter: &mut [f32],
    mean: &mut [f32],
    square: &mut [f32],
) {
    let len = check(gradient, parameter);
    let outputs = [(parameter, 1), (mean, 1), (square, 1)];
    for_row_chunks(len, rows_per_chunk(1), outputs, |at, [parameter, mean, square]| {
        adam_chunk(adam, gradient_scale, &gradient[at], parameter, mean, square);
    });
}

/// One step of plain gradient descent.
pub fn sgd_step(sgd: Sgd, gradient_scale: f32, gradient: &[f32], parameter: &mut [f32]) {
    let len = check(gradient, parameter);
    for_row_chunks(len, rows_per_chunk(1), [(parameter, 1)], |at, [parameter]| {
        sgd_chunk(sgd, gradient_scale, &gradient[at], parameter);
    });
}

/// One step of gradient descent with momentum; `velocity` starts as zeros.
pub fn momentum_step(
    sgd: Sgd,
    gradient_scale: f32,
    gradient: &[f32],
    parameter: &mut [f32],
    velocity: &mut [f32],
) {
    let len = check(gradient, parameter);
    let outputs = [(parameter, 1), (velocity, 1)];
    for_row_chunks(len, rows_per_chunk(1), outputs, |at, [parameter, velocity]| {
        momentum_chunk(sgd, gradient_scale, &gradient[at], parameter, velocity);
    });
}

/// One step of Lion; `mean` starts as zeros.
pub fn lion_step(
    lion: Lion,
    gradient_scale: f32,
    gradient: &[f32],
    parameter: &mut [f32],
    mean: &mut [f32],
) {
    let len = check(gradient, parameter);
    for_row_chunks(len, rows_per_chunk(1), [(parameter, 1), (mean, 1)], |at, [parameter, mean]| {
        lion_chunk(lion, gradient_scale, &gradient[at], parameter, mean);
    });
}

/// The part of Muon that goes element by element: updates `mean` (zeros at first) and writes the
/// matrix that is then made orthogonal to `update`.
pub fn muon_momentum(
    beta: f32,
    nesterov: bool,
    gradient_scale: f32,
    gradient: &[f32],
    mean: &mut [f32],
    update: &mut [f32],
) {
    let len = check(gradient, mean);
    for_row_chunks(len, rows_per_chunk(1), [(mean, 1), (update, 1)], |at, [mean, update]| {
        muon_chunk(beta, nesterov, gradient_scale, &gradient[at], mean, update);
    });
}

#[track_caller]
fn check(gradient: &[f32], parameter: &[f32]) -> usize {
    let (have, want) = (gradient.len(), parameter.len());
    assert_eq!(have, want, "a gradient of {have} elements for a parameter of {want}");
    want
}

dispatch! {
    fn adam_chunk(adam: Adam, gradient_scale: f32, gradient: &[f32], parameter: &mut [f32],
        mean: &mut [f32], square: &mut [f32]) => adam_on
    fn sgd_chunk(sgd: Sgd, gradient_scale: f32, gradient: &[f32], parameter: &mut [f32])
        => sgd_on
    fn momentum_chunk(sgd: Sgd, gradient_scale: f32, gradient: &[f32], parameter: &mut [f32],
        velocity: &mut [f32]) => momentum_on
    fn lion_chunk(lion: Lion, gradient_scale: f32, gradient: &[f32], parameter: &mut [f32],
        mean: &mut [f32]) => lion_on
    fn muon_chunk(beta: f32, nesterov: bool, gradient_scale: f32, gradient: &[f32],
        mean: &mut [f32], update: &mut [f32]) => muon_on
}

#[inline(always)]
fn adam_on<S: Simd>(
    s: S,
    adam: Adam,
    gradient_scale: f32,
    gradient: &[f32],
    parameter: &mut [f32],
    mean: &mut [f32],
    square: &mut [f32],
) {
    // η·(m/c₁) / (√(v/c₂) + ε) = (η·√c₂/c₁)·m / (√v + ε·√c₂)
    let root = adam.correction2.sqrt();
    let rate = s.splat((f64::from(adam.learning_rate) * root / adam.correction1) as f32);
    let epsilon = s.splat((f64::from(adam.epsilon) * root) as f32);
    let (beta1, beta2) = (s.splat(adam.beta1), s.splat(adam.beta2));
    let (rest1, rest2) = (s.splat(1.0 - adam.beta1), s.splat(1.0 - adam.beta2));
    let scale = s.splat(gradient_scale);
    let (to_gradient, keep) = match adam.decay {
        Decay::Decoupled => (s.zero(), s.splat(1.0 - adam.learning_rate * adam.weight_decay)),
        Decay::Gradient => (s.splat(adam.weight_decay), s.splat(1.0)),
    };
    each_span!(S, gradient.len(), |at| {
        let theta = s.read(parameter, at);
        let g = s.mul_add(theta, to_gradient, s.mul(s.read(gradient, at), scale));
        let m = s.mul_add(beta1, s.read(mean, at), s.mul(rest1, g));
        let v = s.mul_add(beta2, s.read(square, at), s.mul(rest2, s.mul(g, g)));
        s.write(mean, at, m);
        s.write(square, at, v);
        let update = s.div(s.mul(rate, m), s.add(s.sqrt(v), epsilon));
        s.write(parameter, at, s.sub(s.mul(theta, keep), update));
    });
}

#[inline(always)]
fn sgd_on<S: Simd>(s: S, sgd: Sgd, gradient_scale: f32, gradient: &[f32], parameter: &mut [f32]) {
    let rate = s.splat(sgd.learning_rate * gradient_scale);
    let keep = s.splat(1.0 - sgd.learning_rate * sgd.weight_decay);
    each_span!(S, gradient.len(), |at| {
        let kept = s.mul(s.read(parameter, at), keep);
        s.write(parameter, at, s.neg_mul_add(rate, s.read(gradient, at), kept));
    });
}

#[inline(always)]
fn momentum_on<S: Simd>(
    s: S,
    sgd: Sgd,
    gradient_scale: f32,
    gradient: &[f32],
    parameter: &mut [f32],
    velocity: &mut [f32],
) {
    let share = if sgd.classic { 1.0 } else { 1.0 - sgd.momentum };
    let (beta, share, scale) = (s.splat(sgd.momentum), s.splat(share), s.splat(gradient_scale));
    let rate = s.splat(sgd.learning_rate);
    let (to_gradient, keep) = match sgd.decay {
        Decay::Decoupled => (s.zero(), s.splat(1.0 - sgd.learning_rate * sgd.weight_decay)),
        Decay::Gradient => (s.splat(sgd.weight_decay), s.splat(1.0)),
    };
    each_span!(S, gradient.len(), |at| {
        let theta = s.read(parameter, at);
        let g = s.mul_add(theta, to_gradient, s.mul(s.read(gradient, at), scale));
        let v = s.mul_add(beta, s.read(velocity, at), s.mul(share, g));
        s.write(velocity, at, v);
        let direction = if sgd.nesterov { s.mul_add(beta, v, s.mul(share, g)) } else { v };
        s.write(parameter, at, s.neg_mul_add(rate, direction, s.mul(theta, keep)));
    });
}

#[inline(always)]
fn lion_on<S: Simd>(
    s: S,
    lion: Lion,
    gradient_scale: f32,
    gradient: &[f32],
    parameter: &mut [f32],
    mean: &mut [f32],
) {
    let (beta1, beta2) = (s.splat(lion.beta1), s.splat(lion.beta2));
    let (rest1, rest2) = (s.splat(1.0 - lion.beta1), s.splat(1.0 - lion.beta2));
    let (rate, scale) = (s.splat(lion.learning_rate), s.splat(gradient_scale));
    let keep = s.splat(1.0 - lion.learning_rate * lion.weight_decay);
    each_span!(S, gradient.len(), |at| {
        let (g, m) = (s.mul(s.read(gradient, at), scale), s.read(mean, at));
        let direction = s.mul_add(beta1, m, s.mul(rest1, g));
        let step = s.copy_sign(rate, direction);
        // sign(0) = 0; a NaN goes on into the parameter, to be seen.
        let step = s.select(s.less(s.zero(), s.abs(direction)), step, direction);
        let kept = s.mul(s.read(parameter, at), keep);
        s.write(parameter, at, s.sub(kept, step));
        s.write(mean, at, s.mul_add(beta2, m, s.mul(rest2, g)));
    });
}

#[inline(always)]
fn muon_on<S: Simd>(
    s: S,
    beta: f32,
    nesterov: bool,
    gradient_scale: f32,
    gradient: &[f32],
    mean: &mut [f32],
    update: &mut [f32],
) {
    let (beta, scale) = (s.splat(beta), s.splat(gradient_scale));
    each_span!(S, gradient.len(), |at| {
        let g = s.mul(s.read(gradient, at), scale);
        let m = s.mul_add(beta, s.read(mean, at), g);
        s.write(mean, at, m);
        s.write(update, at, if nesterov { s.mul_add(beta, m, g) } else { m });
    });
}

#[cfg(test)]
mod tests;
