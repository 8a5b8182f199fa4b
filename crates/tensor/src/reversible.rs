//! Reversible layers: activations that are computed back instead of remembered (Gomez et al. 2017).
//!
//! Two streams, which begin as x₁ = x₂ = x, go through layers
//!
//! ```text
//! y₁ = x₁ + F(x₂)                x₂ = y₂ − G(y₁)
//! y₂ = x₂ + G(y₁)                x₁ = y₁ − F(x₂)
//! ```
//!
//! and end as their mean. Only the two ends are kept, for any number of layers. Backward goes through
//! a layer with the streams behind it and their gradients:
//! 1. G(y₁) is computed again, with its graph: `dy₁ += (∂G/∂y₁)ᵀ·dy₂`, and x₂ is found
//! 2. F(x₂) is computed again, with its graph: `dx₂ = dy₂ + (∂F/∂x₂)ᵀ·dy₁`, and x₁ is found; `dx₁ = dy₁`
//!
//! So time grows by one forward, as of [`checkpoint`](crate::checkpoint()). What is found differs from
//! what was by the rounding of a sum and a difference, which grows with the number of layers.

use crate::graph::{Backward, Gradients, Var, is_recording, no_grad, with_grad};
use crate::half::{Storage, with_storage};
use crate::tensor::Tensor;
use hearken_kernels::elementwise;

type Branch = Box<dyn Fn(&Var) -> Var + Send>;

/// F and G of a layer. Parameters that they reach by themselves get their gradients as usual.
pub struct Coupling {
    f: Branch,
    g: Branch,
}

impl Coupling {
    /// Panics later, unless both keep the shape of what they are given. They must give the same bits
    /// whenever they are called.
    pub fn new(
        f: impl Fn(&Var) -> Var + Send + 'static,
        g: impl Fn(&Var) -> Var + Send + 'static,
    ) -> Self {
        Self { f: Box::new(f), g: Box::new(g) }
    }

    /// (x₁, x₂) → (y₁, y₂)
    fn forward(&self, [x1, x2]: [Var; 2]) -> [Var; 2] {
        let y1 = x1 + (self.f)(&x2);
        let y2 = x2 + (self.g)(&y1);
        [y1, y2]
    }
}

/// The mean of the streams behind all layers, which begin as `x`; memory for one layer.
pub fn reversible(x: &Var, layers: Vec<Coupling>) -> Var {
    let ends = no_grad(|| {
        let start = [x.detach(), x.detach()];
        layers.iter().fold(start, |streams, layer| layer.forward(streams)).map(Var::into_value)
    });
    let mut mean = ends[0].clone();
    elementwise::add_assign(mean.data_mut(), ends[1].data());
    elementwise::scale(mean.data_mut(), 0.5);
    if !is_recording() {
        return Var::constant(mean);
    }
    Var::from_op_always(mean, &[x], Reverse { layers, ends, storage: Storage::current() })
}

/// The same with everything kept: what [`reversible`] is held against.
pub fn coupled(x: &Var, layers: &[Coupling]) -> Var {
    let start = [x.clone(), x.clone()];
    let [a, b] = layers.iter().fold(start, |streams, layer| layer.forward(streams));
    crate::ops::scale::scale(a + b, 0.5)
}

struct Reverse {
    layers: Vec<Coupling>,
    /// y₁ and y₂ behind the last layer.
    ends: [Tensor; 2],
    storage: Storage,
}

/// Runs `branch` on `x` again: gives its value, and adds its gradient for `dout` to `dx`.
fn again(branch: &Branch, x: &Tensor, dout: &Tensor, dx: &mut Tensor, storage: Storage) -> Tensor {
    let leaf = Var::leaf(x.clone());
    let out = with_grad(|| with_storage(storage, || branch(&leaf)));
    out.backward_with(dout.clone());
    if let Some(gradient) = leaf.take_gradient() {
        elementwise::add_assign(dx.data_mut(), gradient.data());
    }
    out.into_value()
}

impl Backward for Reverse {
    fn backward(self: Box<Self>, mut dout: Tensor, gradients: &mut Gradients<'_>) {
        let Self { mut layers, ends: [mut x1, mut x2], storage } = *self;
        elementwise::scale(dout.data_mut(), 0.5);
        let (mut d1, mut d2) = (dout.clone(), dout);
        while let Some(Coupling { f, g }) = layers.pop() {
            let value = again(&g, &x1, &d2, &mut d1, storage); // 1
            elementwise::axpy(x2.data_mut(), -1.0, value.data());
            let value = again(&f, &x2, &d1, &mut d2, storage); // 2
            elementwise::axpy(x1.data_mut(), -1.0, value.data());
        }
        elementwise::add_assign(d1.data_mut(), d2.data());
        gradients.add(0, d1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::{Activation, Param, Role, ops};

    fn layers(params: &[Param]) -> Vec<Coupling> {
        let branch = |p: &Param| {
            let p = p.clone();
            move |x: &Var| ops::linear::linear_activation(x, p.weight(), None, Activation::Tanh)
        };
        params.chunks(2).map(|p| Coupling::new(branch(&p[0]), branch(&p[1]))).collect()
    }

    #[test]
    fn gradients_are_those_of_layers_that_keep_everything() {
        let params: Vec<Param> = (0..8)
            .map(|i| Param::new(format!("w{i}"), Role::Hidden, Rng::new(i).normal([6, 6], 0.3)))
            .collect();
        let run = |keeping: bool| {
            let x = Var::leaf(Rng::new(99).normal([5, 6], 1.0));
            let layers = layers(&params);
            let out = if keeping { coupled(&x, &layers) } else { reversible(&x, layers) };
            out.backward_with(Rng::new(98).normal([5, 6], 1.0));
            let mut all = vec![x.take_gradient().unwrap()];
            for p in &params {
                all.push(p.gradient().unwrap());
                p.set_gradient(None);
            }
            (out.into_value(), all)
        };
        let ((kept, want), (value, got)) = (run(true), run(false));
        assert_eq!(kept.data(), value.data());
        for (got, want) in got.iter().zip(&want) {
            let want: Vec<f64> = want.data().iter().map(|x| f64::from(*x)).collect();
            // Four layers, each of which finds its streams to a few roundings.
            assert!(crate::gradcheck::error(got.data(), &want) < 1e-5);
        }
    }

    #[test]
    fn no_layers_are_the_identity_and_nothing_is_recorded_without_gradients() {
        let x = Var::leaf(Rng::new(1).normal([2, 3], 1.0));
        let out = reversible(&x, Vec::new());
        assert_eq!(out.value().data(), x.value().data());
        out.sum().backward();
        assert_eq!(x.gradient().unwrap().data(), &[1.0; 6]);
        assert!(!no_grad(|| reversible(&x, Vec::new())).wants_gradient());
    }
}
