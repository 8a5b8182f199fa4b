//! `h₁ … h_T, h = gru(a, U, b, h)`: a gated recurrent unit over all times, (B, T, 3C) → (B, T, C)
//! (Cho et al. 2014), in PyTorch's form: the reset gate acts on the product of the state.
//!
//! `a = x·Wᵀ + b` of all times is one product outside. With the gates in PyTorch's order and
//! `u = h₋·Uᵀ + b`,
//! ```text
//! r, z = σ(a + u)      n = tanh(a + r·u)      h = (1 − z)·n + z·h₋
//! ```
//! From the last time to the first, where dh is the sum of the incoming gradient and of what the
//! time after it sends back:
//! 1. `dz = dh·(h₋ − n)`, `dn = dh·(1 − z)`
//! 2. `dan = dn·(1 − n²)`, `dr = dan·uₙ`, `duₙ = dan·r`
//! 3. `da` and `du` of r and z: times their slopes
//! 4. `dh₋ = dh·z + du·U`
//! 5. `dU = Σ duᵀ·h₋`, `db = Σ du`, over all times and rows at once
//!
//! Saves the gates, in the memory of `a`, and `h` and `uₙ` of all times: da and du differ in the
//! candidate alone, so du is two thirds of da and what takes the place of `uₙ`.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Gradients, Var, is_recording};
use crate::half::{Saved, Weight};
use crate::outputs::{self, BackwardOfMany};
use crate::recurrent::networks::{Cell, Network, sigmoid};
use crate::recurrent::{Traversal, before, copied, or_zeros, with_products};
use crate::tensor::Tensor;
use hearken_kernels::gemm::{Epilogue, Matrix, gemm};
use hearken_kernels::recurrent::{gru_backward, gru_forward};
use hearken_kernels::{Write, elementwise};

/// The states at all times (B, T, C), and the last one (B, C). `sums` are (B, T, 3C), the recurrent
/// weight is (3C, C), the first state is (B, C).
pub fn gru(
    sums: Var,
    weight: impl Into<Weight>,
    bias: Option<&Var>,
    hidden: &Var,
    traversal: &Traversal,
) -> [Var; 2] {
    let weight = weight.into();
    let walk = traversal.walk(3, sums.shape(), &weight, bias, &[hidden]);
    let (mut gates, sums) = sums.into_parts();
    let mut inputs = vec![&sums, weight.master(), hidden];
    inputs.extend(bias);
    let differentiates = is_recording() && inputs.iter().any(|input| input.wants_gradient());

    let shape = [walk.batch, walk.length, walk.width];
    let wide = 3 * walk.width;
    let mut out = Tensor::unset(shape); // (B, T, C)
    let mut candidates = Tensor::unset(if differentiates { shape } else { [0; 3] });
    let mut h = copied(hidden); // (B, C)
    let mut products = Tensor::unset([walk.batch, wide]); // u
    with_products(&walk, weight.stored().matrix().transposed(), |with_weight| {
        for time in (0..walk.length).map(|step| walk.time(step)) {
            let state = Matrix::new(h.data(), walk.batch, walk.width);
            with_weight.multiply(state, products.data_mut(), wide, Write::Set, bias);
            let (out, kept) = (out.data_mut(), candidates.data_mut());
            gru_forward(&walk, time, gates.data_mut(), products.data(), h.data_mut(), out, kept);
        }
    });
    let kept = out.clone();
    outputs::from_op([out, h], &inputs, || GruBackward {
        gates: Saved::new(&gates),
        states: Saved::new(&kept),
        candidates: Saved::new(&candidates),
        first: hidden.value().clone(),
        weight: weight.stored().clone(),
        traversal: traversal.clone(),
    })
}

struct GruBackward {
    /// (B, T, 3C)
    gates: Saved,
    /// h, (B, T, C)
    states: Saved,
    /// uₙ, (B, T, C)
    candidates: Saved,
    /// h before the first time, (B, C).
    first: Tensor,
    weight: Saved,
    traversal: Traversal,
}

impl BackwardOfMany<2> for GruBackward {
    fn backward(self, [dout, dh]: [Option<Tensor>; 2], gradients: &mut Gradients<'_>) {
        let walk = self.traversal.same_walk(self.states.shape());
        let (batch, length, width) = (walk.batch, walk.length, walk.width);
        let wide = 3 * width;
        let mut gates = self.gates.into_value();
        let mut candidates = self.candidates.into_value();
        let states = self.states.into_value();
        let dout = dout.as_ref().map_or(&[][..], Tensor::data);
        let mut dh = or_zeros(dh, &walk);
        let [outer, inner] =
            [0..2 * width, 2 * width..wide].map(|rows| self.weight.matrix_of(rows));
        with_products(&walk, outer, |outer| {
            with_products(&walk, inner, |inner| {
                for time in (0..length).rev().map(|step| walk.time(step)) {
                    let kept = [states.data(), self.first.data(), dout];
                    let (da, dun) = (gates.data_mut(), candidates.data_mut());
                    gru_backward(&walk, time, da, dun, kept, dh.data_mut()); // 1–3
                    outer.add_to_state(&walk, time, (&*da, wide, 2 * width), dh.data_mut()); // 4
                    inner.add_to_state(&walk, time, (&*dun, width, width), dh.data_mut());
                }
            });
        });
        let rows = batch * length;
        let du = Matrix::strided(gates.data(), rows, 2 * width, wide);
        let dun = Matrix::new(candidates.data(), rows, width);
        if gradients.wanted(1) {
            let before = before(&walk, &states, &self.first);
            let before = Matrix::new(before.data(), rows, width);
            gradients.write(1, |dw, write| {
                let (outer, inner) = dw.split_at_mut(2 * width * width); // 5
                gemm(du.transposed(), before, outer, width, write, Epilogue::default());
                gemm(dun.transposed(), before, inner, width, write, Epilogue::default());
            });
        }
        gradients.write(3, |db, write| {
            let (outer, inner) = db.split_at_mut(2 * width); // 5
            let mut sums = Tensor::unset([wide]);
            elementwise::column_sums(gates.data(), sums.data_mut(), Write::Set);
            match write {
                Write::Set => outer.copy_from_slice(&sums.data()[..2 * width]),
                Write::Add => elementwise::add_assign(outer, &sums.data()[..2 * width]),
            }
            elementwise::column_sums(candidates.data(), inner, write);
        });
        gradients.add(0, gates);
        gradients.add(2, dh);
    }
}

/// In f64, one row at one time.
fn reference(sums: &[f64], products: &[f64], hidden: &[f64]) -> Vec<f64> {
    let width = hidden.len();
    let both = |k: usize, j: usize| (sums[k * width + j], products[k * width + j]);
    (0..width)
        .map(|j| {
            let [r, z] = [0, 1].map(|k| sigmoid(both(k, j).0 + both(k, j).1));
            let n = (both(2, j).0 + r * both(2, j).1).tanh();
            (1.0 - z) * n + z * hidden[j]
        })
        .collect()
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 5e-6,
        backward: 1e-5,
        reason: "a dozen dot products and gates one after the other, each some 1e-7 off",
    };
    let cell = Cell {
        op: "gru",
        gates: 3,
        states: 1,
        apply: |sums, weight, bias, states, traversal| {
            gru(sums, weight, bias, &states[0], traversal).to_vec()
        },
        reference: |sums, products, states| vec![reference(sums, products, &states[0])],
        torch: "torch._VF.gru",
    };
    let network = Network::new(cell);
    vec![
        network.case("one_layer", tolerance),
        Network { layers: 2, ..network }.case("two_layers", tolerance),
        Network { both: true, ..network }.case("both_directions", tolerance),
        Network { layers: 2, both: true, width: 2, ..network }
            .case("two_layers_both_directions", tolerance),
        Network { both: true, lengths: Some(&[5, 3, 1]), ..network }.case("padded", tolerance),
        Network { batch: 1, times: 1, width: 17, ..network }.case("one_step", tolerance),
        // Enough for the threads to share: 40·3·40·40 multiply-adds at a time.
        Network { batch: 40, times: 2, width: 40, ..network }.case("shared", tolerance),
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&super::cases());
    }
}
