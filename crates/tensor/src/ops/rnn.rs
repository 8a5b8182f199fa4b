//! `h₁ … h_T, h = rnn(a, U, b, h)`: the simplest recurrent layer over all times, (B, T, C) →
//! (B, T, C) (Elman 1990).
//!
//! `a = x·Wᵀ + b` of all times is one product outside; then
//! ```text
//! h = f(a + h₋·Uᵀ + b)      f = tanh or max(·, 0)
//! ```
//! From the last time to the first, where dh is the sum of the incoming gradient and of what the
//! time after it sends back:
//! 1. `ds = dh·f′`, where f′ = 1 − h², or 1 where h > 0; `da = ds`
//! 2. `dh₋ = ds·U`
//! 3. `dU = Σ dsᵀ·h₋`, `db = Σ ds`, over all times and rows at once
//!
//! Saves `h` of all times, which is in the memory of `a`; `ds` is in the memory of dout.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Gradients, Var};
use crate::half::{Saved, Weight};
use crate::outputs::{self, BackwardOfMany};
use crate::recurrent::networks::{Cell, Network};
use crate::recurrent::{Traversal, copied, gradients_of_weight, or_zeros, with_products};
use crate::tensor::Tensor;
use hearken_kernels::activation::Activation;
use hearken_kernels::elementwise;
use hearken_kernels::recurrent::{rnn_backward, rnn_forward};

/// The states at all times (B, T, C), and the last one (B, C). `sums` are (B, T, C), the recurrent
/// weight is (C, C), the first state is (B, C). `f` is tanh or ReLU.
pub fn rnn(
    sums: Var,
    weight: impl Into<Weight>,
    bias: Option<&Var>,
    hidden: &Var,
    f: Activation,
    traversal: &Traversal,
) -> [Var; 2] {
    assert!(matches!(f, Activation::Tanh | Activation::Relu), "an RNN with {f:?}");
    let weight = weight.into();
    let walk = traversal.walk(1, sums.shape(), &weight, bias, &[hidden]);
    let (mut out, sums) = sums.into_parts(); // (B, T, C)
    let mut inputs = vec![&sums, weight.master(), hidden];
    inputs.extend(bias);
    let mut h = copied(hidden); // (B, C)
    with_products(&walk, weight.stored().matrix().transposed(), |products| {
        for time in (0..walk.length).map(|step| walk.time(step)) {
            products.add_to_sums(&walk, time, h.data(), bias, out.data_mut());
            rnn_forward(&walk, time, f, out.data_mut(), h.data_mut());
        }
    });
    let kept = out.clone();
    outputs::from_op([out, h], &inputs, || RnnBackward {
        f,
        states: Saved::new(&kept),
        first: hidden.value().clone(),
        weight: weight.stored().clone(),
        traversal: traversal.clone(),
    })
}

struct RnnBackward {
    f: Activation,
    /// h, (B, T, C)
    states: Saved,
    /// h before the first time, (B, C).
    first: Tensor,
    weight: Saved,
    traversal: Traversal,
}

impl BackwardOfMany<2> for RnnBackward {
    fn backward(self, [dout, dh]: [Option<Tensor>; 2], gradients: &mut Gradients<'_>) {
        let shape = self.states.shape();
        let walk = self.traversal.same_walk(shape);
        let (length, width) = (walk.length, walk.width);
        let states = self.states.into_value();
        let mut dsums = dout.unwrap_or_else(|| {
            let mut none = Tensor::unset(shape);
            elementwise::fill(none.data_mut(), 0.0);
            none
        });
        let mut dh = or_zeros(dh, &walk);
        with_products(&walk, self.weight.matrix(), |products| {
            for time in (0..length).rev().map(|step| walk.time(step)) {
                let (states, dh) = (states.data(), dh.data_mut());
                rnn_backward(&walk, time, self.f, states, dsums.data_mut(), dh); // 1
                products.add_to_state(&walk, time, (dsums.data(), width, width), dh); // 2
            }
        });
        gradients_of_weight(&walk, &dsums, (&states, &self.first), 3, gradients); // 3
        gradients.add(0, dsums);
        gradients.add(2, dh);
    }
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 5e-6,
        backward: 1e-5,
        reason: "a dozen dot products and activations one after the other, each some 1e-7 off",
    };
    let cell = Cell {
        op: "rnn",
        gates: 1,
        states: 1,
        apply: |sums, weight, bias, states, traversal| {
            rnn(sums, weight, bias, &states[0], Activation::Tanh, traversal).to_vec()
        },
        reference: |sums, products, _| {
            vec![sums.iter().zip(products).map(|(a, u)| (a + u).tanh()).collect()]
        },
        torch: "torch._VF.rnn_tanh",
    };
    let network = Network::new(cell);
    let relu = Network {
        cell: Cell {
            apply: |sums, weight, bias, states, traversal| {
                rnn(sums, weight, bias, &states[0], Activation::Relu, traversal).to_vec()
            },
            reference: |sums, products, _| {
                vec![sums.iter().zip(products).map(|(a, u)| (a + u).max(0.0)).collect()]
            },
            torch: "torch._VF.rnn_relu",
            ..cell
        },
        ..network
    };
    vec![
        network.case("one_layer", tolerance),
        relu.case("relu", tolerance),
        Network { layers: 2, ..network }.case("two_layers", tolerance),
        Network { both: true, ..network }.case("both_directions", tolerance),
        Network { layers: 2, both: true, ..network }.case("two_layers_both_directions", tolerance),
        Network { both: true, lengths: Some(&[5, 3, 1]), ..network }.case("padded", tolerance),
        Network { batch: 1, times: 1, width: 17, ..network }.case("one_step", tolerance),
        // Enough for the threads to share: 40·90·90 multiply-adds at a time.
        Network { batch: 40, times: 2, width: 90, input: 1, ..network }.case("shared", tolerance),
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&super::cases());
    }
}
