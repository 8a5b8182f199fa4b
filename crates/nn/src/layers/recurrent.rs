//! Recurrent layers: a state that is carried from token to token.
//!
//! The products with all tokens are one matrix product; only the products with the state go step by
//! step, inside of one operation ([`rnn`], [`gru`](mod@gru), [`lstm`](mod@lstm)).

use super::{Dropout, Linear};
use crate::config::CellKind;
use crate::pass::Pass;
use crate::scope::Scope;
use crate::taps::Place;
use hearken_kernels::activation::Activation;
use hearken_kernels::elementwise;
use hearken_tensor::ops::concat::concat;
use hearken_tensor::ops::gru::gru;
use hearken_tensor::ops::lstm::lstm;
use hearken_tensor::ops::rnn::rnn;
use hearken_tensor::recurrent::Traversal;
use hearken_tensor::{Param, Role, Tensor, Var};
use std::sync::Arc;

/// One layer in one direction.
#[derive(Clone, Debug)]
pub struct RecurrentLayer {
    cell: CellKind,
    /// C
    width: usize,
    backwards: bool,
    input: Linear,
    /// U, (gates·C, C)
    weight: Param,
    /// (gates·C)
    bias: Param,
    place: Place,
}

impl RecurrentLayer {
    /// Takes vectors of `inputs` numbers, gives `width`. Parameters `input.weight`, `input.bias`,
    /// `hidden.weight` and `hidden.bias`, which PyTorch calls `weight_ih`, `bias_ih`, `weight_hh` and
    /// `bias_hh`, with the gates in its order. The forget gate of an LSTM starts with a bias of 1, so
    /// that it remembers at first (Jozefowicz et al. 2015).
    pub fn new(
        scope: &Scope,
        cell: CellKind,
        inputs: usize,
        width: usize,
        backwards: bool,
    ) -> Self {
        let outputs = cell.gates() * width;
        let hidden = scope / "hidden";
        let start: &[f32] = match cell {
            CellKind::Rnn => &[0.0],
            CellKind::Gru => &[0.0; 3],
            CellKind::Lstm => &[0.0, 1.0, 0.0, 0.0],
        };
        Self {
            cell,
            width,
            backwards,
            input: Linear::new(&(scope / "input"), outputs, inputs, true, Role::Hidden),
            weight: hidden.matrix("weight", outputs, width, Role::Hidden),
            bias: hidden.vector_of_parts("bias", width, start),
            place: scope.place(),
        }
    }

    /// C
    pub fn width(&self) -> usize {
        self.width
    }

    /// Zeros (B, C), as many as the cell has states.
    pub fn zeros(&self, batch: usize) -> Vec<Var> {
        let zeros = || {
            let mut state = Tensor::unset([batch, self.width]);
            elementwise::fill(state.data_mut(), 0.0);
            Var::constant(state)
        };
        (0..self.cell.states()).map(|_| zeros()).collect()
    }

    /// What the layer gives for `x` (B, T, N), (B, T, C), and its last states (B, C); it begins with
    /// `states`. Rows of given `lengths` end there: what follows is 0, and does not change the state.
    pub fn forward(
        &self,
        x: &Var,
        states: &[Var],
        lengths: Option<&Arc<[usize]>>,
        pass: &Pass,
    ) -> (Var, Vec<Var>) {
        let sums = self.input.forward(x); // (B, T, gates·C)
        let traversal = Traversal { backwards: self.backwards, lengths: lengths.cloned() };
        let (weight, bias) = (self.weight.weight(), self.bias.var());
        let (out, last) = match self.cell {
            CellKind::Rnn => {
                let f = Activation::Tanh;
                let [out, h] = rnn(sums, weight, Some(&bias), &states[0], f, &traversal);
                (out, vec![h])
            }
            CellKind::Gru => {
                let [out, h] = gru(sums, weight, Some(&bias), &states[0], &traversal);
                (out, vec![h])
            }
            CellKind::Lstm => {
                let states = [&states[0], &states[1]];
                let [out, h, c] = lstm(sums, weight, Some(&bias), states, &traversal);
                (out, vec![h, c])
            }
        };
        (pass.tap(&self.place, "out", out), last)
    }
}

/// Layers one above the other, in one direction or in both.
#[derive(Clone, Debug)]
pub struct RecurrentStack {
    /// The directions of each layer, one or two.
    layers: Vec<Vec<RecurrentLayer>>,
    dropout: Vec<Dropout>,
}

impl RecurrentStack {
    /// `layers` layers that read vectors of `inputs` numbers. In both directions, each gives `width`
    /// numbers of either. Parameters `layers.N.*`; of two directions `layers.N.forwards.*` and
    /// `layers.N.backwards.*`.
    pub fn new(
        scope: &Scope,
        cell: CellKind,
        layers: usize,
        [inputs, width]: [usize; 2],
        both: bool,
        dropout: f32,
    ) -> Self {
        let given = if both { 2 * width } else { width };
        let layer = |i: usize| {
            let scope = &(scope / "layers") / i;
            let inputs = if i == 0 { inputs } else { given };
            let new = |scope: &Scope, backwards| {
                RecurrentLayer::new(scope, cell, inputs, width, backwards)
            };
            if both {
                vec![new(&(&scope / "forwards"), false), new(&(&scope / "backwards"), true)]
            } else {
                vec![new(&scope, false)]
            }
        };
        let site = |i| (&(scope / "layers") / i).dropout("dropout", dropout);
        Self { layers: (0..layers).map(layer).collect(), dropout: (0..layers).map(site).collect() }
    }

    /// Layers times directions: how many have states of their own.
    pub fn states(&self) -> usize {
        self.layers.iter().map(Vec::len).sum()
    }

    /// Zeros, for every layer and direction.
    pub fn zeros(&self, batch: usize) -> Vec<Vec<Var>> {
        self.layers.iter().flatten().map(|layer| layer.zeros(batch)).collect()
    }

    /// What the last layer gives for `x` (B, T, N), and the last states of every layer and direction;
    /// they begin with `states`. What goes into a layer is dropped out.
    pub fn forward(
        &self,
        mut x: Var,
        states: &[Vec<Var>],
        lengths: Option<&Arc<[usize]>>,
        pass: &Pass,
    ) -> (Var, Vec<Vec<Var>>) {
        let mut states = states.iter();
        let mut last = Vec::with_capacity(self.states());
        for (directions, dropout) in self.layers.iter().zip(&self.dropout) {
            x = dropout.forward(x, pass);
            let mut outs = Vec::with_capacity(directions.len());
            for layer in directions {
                let first = states.next().expect("states of every layer and direction");
                let (out, end) = layer.forward(&x, first, lengths, pass);
                outs.push(out);
                last.push(end);
            }
            x = match &outs[..] {
                [forwards, backwards] => concat(&[forwards, backwards], 2), // (B, T, 2C)
                _ => outs.remove(0),
            };
        }
        (x, last)
    }
}
