//! Gradient checkpointing: compute again instead of remembering.
//!
//! A block run through [`checkpoint`] keeps only its inputs; when its gradient arrives, it is run
//! a second time with the graph recorded, and the gradient goes through that. Memory for L layers
//! falls from L blocks' activations to L inputs and one block's activations; time grows by one
//! forward, about a third. The second run has the same bits as the first, because kernels are
//! deterministic and randomness is keyed by site and not drawn from a stream.

use crate::graph::{Backward, Gradients, Var, is_recording, no_grad, with_grad};
use crate::half::{Storage, with_storage};
use crate::tensor::Tensor;

struct Recompute<F> {
    block: F,
    inputs: Vec<(Tensor, bool)>, // (value, is its gradient wanted)
    storage: Storage,
}

/// `block(inputs)`, computed again during backward. Parameters that `block` reaches by itself get
/// their gradients as usual.
pub fn checkpoint(inputs: &[&Var], block: impl Fn(&[Var]) -> Var + Send + 'static) -> Var {
    let detached: Vec<Var> = inputs.iter().map(|input| input.detach()).collect();
    if !is_recording() {
        return block(&detached);
    }
    let value = no_grad(|| block(&detached)).into_value();
    let inputs_kept = inputs.iter().map(|x| (x.value().clone(), x.wants_gradient())).collect();
    let saved = Recompute { block, inputs: inputs_kept, storage: Storage::current() };
    Var::from_op_always(value, inputs, saved)
}

impl<F: Fn(&[Var]) -> Var + Send + 'static> Backward for Recompute<F> {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let Recompute { block, inputs, storage } = *self;
        let leaf = |(value, wanted)| if wanted { Var::leaf(value) } else { Var::constant(value) };
        let leaves: Vec<Var> = inputs.into_iter().map(leaf).collect();
        // What an input's gradient holds already goes in first, so that sums run in the same
        // order, and give the same bits, as without checkpointing.
        for (i, leaf) in leaves.iter().enumerate() {
            if let Some(so_far) = gradients.take(i) {
                leaf.set_gradient(Some(so_far));
            }
        }
        let out = with_grad(|| with_storage(storage, || block(&leaves)));
        out.backward_with(dout);
        for (i, leaf) in leaves.iter().enumerate() {
            if let Some(gradient) = leaf.take_gradient() {
                gradients.add(i, gradient);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Param, Role};

    #[test]
    fn gradients_equal_those_without_bit_for_bit() {
        let run = |with: bool| {
            let x = Var::leaf(Tensor::new([3], &[0.3, -1.2, 2.0]));
            let p = Param::new("p", Role::Hidden, Tensor::new([3], &[0.7, 0.1, -0.4]));
            let own = p.clone();
            let block = move |inputs: &[Var]| {
                let y = &inputs[0] * &own.var();
                &(&y * &y) + &inputs[0]
            };
            let y = if with { checkpoint(&[&x], block) } else { block(std::slice::from_ref(&x)) };
            let loss = (&y * &x).sum();
            loss.backward();
            let gradients = [x.gradient().unwrap(), p.gradient().unwrap()];
            (loss.value().item(), gradients.map(|g| g.data().to_vec()))
        };
        assert_eq!(run(true), run(false));
    }

    #[test]
    fn a_parameter_learns_even_when_no_input_does() {
        let p = Param::new("p", Role::Hidden, Tensor::new([2], &[1.0, 2.0]));
        let own = p.clone();
        let x = Var::constant(Tensor::new([2], &[3.0, 4.0]));
        checkpoint(&[&x], move |x| &x[0] * &own.var()).sum().backward();
        assert_eq!(p.gradient().unwrap().data(), &[3.0, 4.0]);
    }

    #[test]
    fn nothing_is_recorded_without_gradients() {
        let x = Var::leaf(Tensor::scalar(1.0));
        assert!(!no_grad(|| checkpoint(&[&x], |x| x[0].clone())).wants_gradient());
    }
}
