//! `out = f(x)`, element by element: ReLU, squared ReLU, GELU (exact and by tanh), SiLU, tanh, ELU + 1.
//!
//! | | f(x) | f′(x) |
//! |---|---|---|
//! | ReLU | max(x, 0) | 1 if x > 0, else 0 |
//! | squared ReLU (So et al. 2021) | max(x, 0)² | 2·max(x, 0) |
//! | GELU (Hendrycks and Gimpel 2016) | x·Φ(x) | Φ(x) + x·φ(x) |
//! | its tanh approximation | x·σ(2u), u = √(2/π)(x + 0.044715x³) | σ + x·σ(1 − σ)·2u′ |
//! | SiLU | x·σ(x) | σ(x)·(1 + x·(1 − σ(x))) |
//! | tanh | tanh(x) | 1 − tanh²(x) |
//! | ELU + 1 | x + 1 if x > 0, else eˣ | 1 if x > 0, else eˣ |
//!
//! Φ and φ are the distribution and the density of the normal distribution, σ(x) = 1/(1 + e⁻ˣ).
//! 1. `dx = dout · f′(x)`
//!
//! Saves `x`. After a linear layer, [`linear_activation`](super::linear) is faster.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var, is_recording};
use crate::half::Saved;
use crate::reference::{Array, erf};
use crate::rng::Rng;
use crate::tensor::Tensor;
use hearken_kernels::activation::{self, Activation};

/// `f(x)`. The memory of `x` is reused if nobody else holds it, backward included.
pub fn activate(x: Var, f: Activation) -> Var {
    let saved = (is_recording() && x.wants_gradient()).then(|| Saved::new(x.value()));
    let (mut value, x) = x.into_parts();
    let out = if value.is_unique() {
        activation::forward_in_place(f, value.data_mut());
        value
    } else {
        let mut out = Tensor::unset(value.shape());
        activation::forward(f, value.data(), out.data_mut());
        out
    };
    Var::from_op(out, &[&x], || ActivationBackward {
        x: saved.expect("saved above, since a gradient is wanted"),
        f,
    })
}

/// `max(x, 0)`
pub fn relu(x: Var) -> Var {
    activate(x, Activation::Relu)
}

/// `max(x, 0)²`
pub fn squared_relu(x: Var) -> Var {
    activate(x, Activation::SquaredRelu)
}

/// `x·Φ(x)`
pub fn gelu(x: Var) -> Var {
    activate(x, Activation::Gelu)
}

/// `x·Φ(x)` by the tanh approximation, as in GPT-2.
pub fn gelu_tanh(x: Var) -> Var {
    activate(x, Activation::GeluTanh)
}

/// `x·σ(x)`
pub fn silu(x: Var) -> Var {
    activate(x, Activation::Silu)
}

/// `tanh(x)`
pub fn tanh(x: Var) -> Var {
    activate(x, Activation::Tanh)
}

struct ActivationBackward {
    x: Saved,
    f: Activation,
}

impl Backward for ActivationBackward {
    fn backward(self: Box<Self>, mut dout: Tensor, gradients: &mut Gradients<'_>) {
        activation::backward_in_place(self.f, self.x.get().data(), dout.data_mut()); // 1
        gradients.add(0, dout);
    }
}

/// `f(x)` in f64, for the references of this and of the fused operations.
pub(crate) fn reference(f: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match f {
        Activation::Relu => x.max(0.0),
        Activation::SquaredRelu => x.max(0.0).powi(2),
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        Activation::GeluTanh => {
            let u = std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + u.tanh())
        }
        Activation::Silu => x * sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::EluPlusOne => if x > 0.0 { x + 1.0 } else { x.exp() },
    }
}

/// How far an activation and its derivative may be off.
pub(crate) const TOLERANCE: Tolerance = Tolerance {
    forward: 4e-7,
    backward: 6e-7,
    reason: "exponentials of a few ULP (6e-8 each), then two or three roundings",
};

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let case = |f: Activation, name: &str, x: Tensor, torch| {
        let forward = move |v: &[Var]| activate(v[0].clone(), f);
        let reference = move |a: &[Array]| a[0].map(|x| reference(f, x));
        Case::new("activations", name, TOLERANCE, forward, reference).input("x", x).torch(torch)
    };
    // The kink of ReLU at 0 has no derivative to compare with: stay a step of 10⁻² away.
    let mut x = Rng::new(11).normal([7, 31], 2.0);
    for x in x.data_mut() {
        *x += 0.01_f32.copysign(*x);
    }
    // Two chunks of the kernels, so that threads share the work; tails where f is 0 or x.
    let many = Rng::new(12).uniform([3, 6000], -20.0, 20.0);
    vec![
        case(Activation::Relu, "relu", x.clone(), "F.relu(x)"),
        case(Activation::SquaredRelu, "squared_relu", x.clone(), "F.relu(x)**2"),
        case(Activation::Gelu, "gelu", x.clone(), "F.gelu(x)"),
        case(Activation::GeluTanh, "gelu_tanh", x.clone(), "F.gelu(x, approximate='tanh')"),
        case(Activation::Silu, "silu", x.clone(), "F.silu(x)"),
        case(Activation::Tanh, "tanh", x.clone(), "torch.tanh(x)"),
        case(Activation::EluPlusOne, "elu_plus_one", x, "F.elu(x) + 1"),
        case(Activation::Silu, "silu_many", many, "F.silu(x)"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::no_grad;
    use crate::half::{Storage, with_storage};

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    fn memory_is_reused_where_backward_does_not_need_it() {
        let run = |x: Var| {
            let address = x.value().data().as_ptr();
            activate(x, Activation::Silu).value().data().as_ptr() == address
        };
        let fresh = || Rng::new(1).normal([5], 1.0);
        assert!(run(Var::constant(fresh())));
        assert!(no_grad(|| run(Var::leaf(fresh()))));
        assert!(with_storage(Storage::Bf16, || run(Var::leaf(fresh()))));
        assert!(!run(Var::leaf(fresh())));
    }

    #[test]
    fn infinities_have_their_limits_and_nan_stays() {
        for f in Activation::ALL {
            let x = Var::leaf(Tensor::new([3], &[f32::INFINITY, f32::NAN, 0.0]));
            let out = activate(x.clone(), f);
            let limit = if f == Activation::Tanh { 1.0 } else { f32::INFINITY };
            assert_eq!(out.value().data()[0], limit, "{f:?}");
            assert!(out.value().data()[1].is_nan(), "{f:?}");
            let at_zero = if f == Activation::EluPlusOne { 1.0 } else { 0.0 };
            assert_eq!(out.value().data()[2], at_zero, "{f:?}");
            out.backward_with(Tensor::full([3], 1.0));
            let dx = x.gradient().unwrap();
            let limit = match f {
                Activation::SquaredRelu => f32::INFINITY,
                Activation::Tanh => 0.0,
                _ => 1.0,
            };
            assert_eq!(dx.data()[0], limit, "{f:?}");
            assert!(dx.data()[1].is_nan() || f == Activation::Relu, "{f:?}");
        }
    }

    #[test]
    fn nothing_gives_nothing() {
        assert!(relu(Var::constant(Tensor::zeros([0, 3]))).value().data().is_empty());
    }
}
