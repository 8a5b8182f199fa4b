//! Operations with several results, such as a recurrent layer: what it gives at every time, and its
//! last state.
//!
//! The graph has one value per node, so the operation is a node without numbers, and each of its
//! results a node of its own above it, which only hands its gradient down. Nodes are visited from
//! the last made to the first: when the operation's turn comes, all gradients are there.

use crate::graph::{Backward, Gradients, Var};
use crate::profile;
use crate::tensor::Tensor;
use std::sync::{Arc, Mutex, PoisonError};

/// What an operation with `N` results needs to pass gradients on: its saved values.
pub trait BackwardOfMany<const N: usize>: Send + 'static {
    /// Given the gradients of the results, `None` where nothing depends on one, adds to the gradients
    /// of the inputs.
    fn backward(self, douts: [Option<Tensor>; N], gradients: &mut Gradients<'_>);
}

type Slots<const N: usize> = Arc<Mutex<[Option<Tensor>; N]>>;

/// The results of an operation on `inputs`; as [`Var::from_op`], for several.
pub fn from_op<const N: usize, B: BackwardOfMany<N>>(
    values: [Tensor; N],
    inputs: &[&Var],
    saved: impl FnOnce() -> B,
) -> [Var; N] {
    let slots: Slots<N> = Arc::new(Mutex::new([const { None }; N]));
    let operation = Var::from_op(Tensor::zeros([0]), inputs, || Operation {
        saved: saved(),
        slots: slots.clone(),
    });
    let mut index = 0;
    values.map(|value| {
        let slots = slots.clone();
        let result = Var::from_op(value, &[&operation], || ResultOf { index, slots });
        index += 1;
        result
    })
}

struct Operation<const N: usize, B> {
    saved: B,
    slots: Slots<N>,
}

impl<const N: usize, B: BackwardOfMany<N>> Backward for Operation<N, B> {
    fn backward(self: Box<Self>, _: Tensor, gradients: &mut Gradients<'_>) {
        let douts = std::mem::replace(
            &mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner),
            [const { None }; N],
        );
        self.saved.backward(douts, gradients);
    }

    fn name(&self) -> &'static str {
        profile::name::<B>()
    }
}

struct ResultOf<const N: usize> {
    index: usize,
    slots: Slots<N>,
}

impl<const N: usize> Backward for ResultOf<N> {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)[self.index] = Some(dout);
        gradients.add(0, Tensor::zeros([0])); // without numbers, but its turn comes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (x, x) ↦ 2x and 3x.
    struct TwoAndThree;

    impl BackwardOfMany<2> for TwoAndThree {
        fn backward(self, douts: [Option<Tensor>; 2], gradients: &mut Gradients<'_>) {
            let part =
                |dout: &Option<Tensor>, by: f32| dout.as_ref().map_or(0.0, |d| by * d.item());
            let sum = part(&douts[0], 2.0) + part(&douts[1], 3.0);
            gradients.add(0, Tensor::new([1], &[sum]));
        }
    }

    fn two_and_three(x: &Var) -> [Var; 2] {
        let value = x.value().item();
        let values = [2.0, 3.0].map(|by| Tensor::new([1], &[by * value]));
        from_op(values, &[x], || TwoAndThree)
    }

    #[test]
    fn gradients_of_all_results_arrive_together() {
        let x = Var::leaf(Tensor::new([1], &[5.0]));
        let [two, three] = two_and_three(&x);
        (&(&two * &three) + &two).sum().backward(); // 6x² + 2x
        assert_eq!(x.gradient().unwrap().data(), &[62.0]);
    }

    #[test]
    fn a_result_that_nothing_depends_on_has_no_gradient() {
        for (index, want) in [(0, 2.0), (1, 3.0)] {
            let x = Var::leaf(Tensor::new([1], &[5.0]));
            two_and_three(&x)[index].sum().backward();
            assert_eq!(x.gradient().unwrap().data(), &[want]);
        }
    }

    #[test]
    fn without_gradients_there_is_no_graph() {
        let x = Var::constant(Tensor::new([1], &[5.0]));
        assert!(two_and_three(&x).iter().all(|result| !result.wants_gradient()));
    }
}
