//! `h₁ … h_T, h, c = lstm(a, U, b, h, c)`: long short-term memory over all times, (B, T, 4C) →
//! (B, T, C) (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000).
//!
//! `a = x·Wᵀ + b` of all times is one product outside. With the gates in PyTorch's order and
//! `s = a + h₋·Uᵀ + b`,
//! ```text
//! i, f, o = σ(s), g = tanh(s)      c = f·c₋ + i·g      h = o·tanh(c)
//! ```
//! From the last time to the first, where dh is the sum of the incoming gradient and of what the
//! time after it sends back:
//! 1. `do = dh·tanh(c)`, `dc += dh·o·(1 − tanh²(c))`
//! 2. `di = dc·g`, `dg = dc·i`, `df = dc·c₋`, `dc₋ = dc·f`
//! 3. `ds`: each gate's times its slope; `da = ds`
//! 4. `dh₋ = ds·U`
//! 5. `dU = Σ dsᵀ·h₋`, `db = Σ ds`, over all times and rows at once
//!
//! Saves the gates, in the memory of `a`, and `h`, `c` of all times. Where there is padding the state
//! stays, and what is given is 0.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Gradients, Var, is_recording};
use crate::half::{Saved, Weight};
use crate::outputs::{self, BackwardOfMany};
use crate::recurrent::networks::{Cell, Network, sigmoid};
use crate::recurrent::{Traversal, copied, gradients_of_weight, or_zeros, with_products};
use crate::tensor::Tensor;
use hearken_kernels::recurrent::{lstm_backward, lstm_forward};

/// The states at all times (B, T, C), and the last h and c (B, C). `sums` are (B, T, 4C), the
/// recurrent weight is (4C, C), the first h and c are (B, C).
pub fn lstm(
    sums: Var,
    weight: impl Into<Weight>,
    bias: Option<&Var>,
    [hidden, cell]: [&Var; 2],
    traversal: &Traversal,
) -> [Var; 3] {
    let weight = weight.into();
    let walk = traversal.walk(4, sums.shape(), &weight, bias, &[hidden, cell]);
    let (mut gates, sums) = sums.into_parts();
    let mut inputs = vec![&sums, weight.master(), hidden, cell];
    inputs.extend(bias);
    let differentiates = is_recording() && inputs.iter().any(|input| input.wants_gradient());

    let shape = [walk.batch, walk.length, walk.width];
    let mut out = Tensor::unset(shape); // (B, T, C)
    let mut cells = Tensor::unset(if differentiates { shape } else { [0; 3] });
    let (mut h, mut c) = (copied(hidden), copied(cell)); // (B, C)
    with_products(&walk, weight.stored().matrix().transposed(), |products| {
        for time in (0..walk.length).map(|step| walk.time(step)) {
            products.add_to_sums(&walk, time, h.data(), bias, gates.data_mut());
            let states = [h.data_mut(), c.data_mut()];
            lstm_forward(&walk, time, gates.data_mut(), states, out.data_mut(), cells.data_mut());
        }
    });
    let kept = out.clone();
    outputs::from_op([out, h, c], &inputs, || LstmBackward {
        gates: Saved::new(&gates),
        states: Saved::new(&kept),
        cells: Saved::new(&cells),
        first: [hidden, cell].map(|state| state.value().clone()),
        weight: weight.stored().clone(),
        traversal: traversal.clone(),
    })
}

struct LstmBackward {
    /// (B, T, 4C)
    gates: Saved,
    /// h, (B, T, C)
    states: Saved,
    /// c, (B, T, C)
    cells: Saved,
    /// h and c before the first time, (B, C).
    first: [Tensor; 2],
    weight: Saved,
    traversal: Traversal,
}

impl BackwardOfMany<3> for LstmBackward {
    fn backward(self, [dout, dh, dc]: [Option<Tensor>; 3], gradients: &mut Gradients<'_>) {
        let walk = self.traversal.same_walk(self.states.shape());
        let (length, wide) = (walk.length, 4 * walk.width);
        let mut gates = self.gates.into_value();
        let (states, cells) = (self.states.into_value(), self.cells.into_value());
        let dout = dout.as_ref().map_or(&[][..], Tensor::data);
        let (mut dh, mut dc) = (or_zeros(dh, &walk), or_zeros(dc, &walk));
        with_products(&walk, self.weight.matrix(), |products| {
            for time in (0..length).rev().map(|step| walk.time(step)) {
                let kept = [cells.data(), self.first[1].data(), dout];
                let states = [dh.data_mut(), dc.data_mut()];
                lstm_backward(&walk, time, gates.data_mut(), kept, states); // 1–3
                products.add_to_state(&walk, time, (gates.data(), wide, wide), dh.data_mut()); // 4
            }
        });
        gradients_of_weight(&walk, &gates, (&states, &self.first[0]), 4, gradients); // 5
        gradients.add(0, gates);
        gradients.add(2, dh);
        gradients.add(3, dc);
    }
}

/// In f64, one row at one time.
fn reference(sums: &[f64], states: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let width = sums.len() / 4;
    let gate = |k: usize, j: usize| sums[k * width + j];
    let c: Vec<f64> = (0..width)
        .map(|j| sigmoid(gate(1, j)) * states[1][j] + sigmoid(gate(0, j)) * gate(2, j).tanh())
        .collect();
    let h = (0..width).map(|j| sigmoid(gate(3, j)) * c[j].tanh()).collect();
    vec![h, c]
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 5e-6,
        backward: 1e-5,
        reason: "a dozen dot products and gates one after the other, each some 1e-7 off",
    };
    let cell = Cell {
        op: "lstm",
        gates: 4,
        states: 2,
        apply: |sums, weight, bias, states, traversal| {
            lstm(sums, weight, bias, [&states[0], &states[1]], traversal).to_vec()
        },
        reference: |sums, products, states| {
            let sums: Vec<f64> = sums.iter().zip(products).map(|(a, u)| a + u).collect();
            reference(&sums, states)
        },
        torch: "torch._VF.lstm",
    };
    let network = Network { cell, ..Network::new(cell) };
    vec![
        network.case("one_layer", tolerance),
        Network { layers: 2, ..network }.case("two_layers", tolerance),
        Network { both: true, ..network }.case("both_directions", tolerance),
        Network { layers: 2, both: true, width: 2, ..network }
            .case("two_layers_both_directions", tolerance),
        Network { both: true, lengths: Some(&[5, 3, 1]), ..network }.case("padded", tolerance),
        Network { batch: 1, times: 1, width: 17, ..network }.case("one_step", tolerance),
        // Enough for the threads to share: 40·4·40·40 multiply-adds at a time.
        Network { batch: 40, times: 2, width: 40, ..network }.case("shared", tolerance),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    #[should_panic(expected = "a recurrent weight of shape (8, 3) does not fit 4 gates of shape")]
    fn shapes_must_fit() {
        let [sums, weight, state] = [vec![2, 3, 8], vec![8, 3], vec![2, 3]]
            .map(|dims| Var::constant(Tensor::zeros(crate::Shape::new(&dims))));
        let _ = lstm(sums, &weight, None, [&state, &state], &Traversal::default());
    }

    #[test]
    fn two_halves_are_the_whole() {
        let sums = Rng::new(1).normal([2, 6, 12], 1.0);
        let weight = Var::constant(Rng::new(2).normal([12, 3], 0.5));
        let zero = Var::constant(Tensor::zeros([2, 3]));
        let run = |sums: Tensor, states: [&Var; 2]| {
            lstm(Var::constant(sums), &weight, None, states, &Traversal::default())
        };
        let half = |from: usize| {
            let rows = (0..2).flat_map(|b| sums.data()[(b * 6 + from) * 12..][..36].to_vec());
            Tensor::new([2, 3, 12], &rows.collect::<Vec<_>>())
        };
        let [_, h, c] = run(sums.clone(), [&zero, &zero]);
        let [_, h1, c1] = run(half(0), [&zero, &zero]);
        let [_, h2, c2] = run(half(3), [&h1, &c1]);
        assert_eq!(h.value().data(), h2.value().data());
        assert_eq!(c.value().data(), c2.value().data());
    }
}
