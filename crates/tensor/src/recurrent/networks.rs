//! Cases of the recurrent operations: whole networks, as `nn.RNN`, `nn.GRU` and `nn.LSTM` are.

use super::Traversal;
use crate::gradcheck::{Case, Tolerance};
use crate::graph::Var;
use crate::ops::concat::concat;
use crate::ops::linear::linear;
use crate::ops::reshape::reshape;
use crate::ops::slice::slice;
use crate::reference::Array;
use crate::rng::Rng;

/// σ in f64.
pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// (sums, recurrent weight, its bias, first states, traversal) to the states at all times and the last
/// ones.
type Apply = fn(Var, &Var, Option<&Var>, &[Var], &Traversal) -> Vec<Var>;
/// One row at one time, in f64: (sums, products of the state, states) to the new states.
type Step = fn(&[f64], &[f64], &[Vec<f64>]) -> Vec<Vec<f64>>;

/// One of the operations, and its reference.
#[derive(Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) op: &'static str,
    /// Gates of a unit.
    pub(crate) gates: usize,
    /// 1, or 2 with a cell state.
    pub(crate) states: usize,
    pub(crate) apply: Apply,
    pub(crate) reference: Step,
    /// PyTorch's function.
    pub(crate) torch: &'static str,
}

/// A network of layers of a cell.
#[derive(Clone, Copy)]
pub(crate) struct Network {
    pub(crate) cell: Cell,
    pub(crate) batch: usize,
    pub(crate) times: usize,
    pub(crate) input: usize,
    pub(crate) width: usize,
    pub(crate) layers: usize,
    /// In both directions?
    pub(crate) both: bool,
    /// Falling, as PyTorch wants them.
    pub(crate) lengths: Option<&'static [usize]>,
}

/// The parameters of up to four directions of layers, as PyTorch orders them: of the input and the
/// state, weights and biases.
const NAMES: [[&str; 4]; 4] = [
    ["w0", "u0", "b0", "c0"],
    ["w1", "u1", "b1", "c1"],
    ["w2", "u2", "b2", "c2"],
    ["w3", "u3", "b3", "c3"],
];

impl Network {
    pub(crate) fn new(cell: Cell) -> Self {
        Self { cell, batch: 3, times: 5, input: 2, width: 3, layers: 1, both: false, lengths: None }
    }

    fn directions(&self) -> usize {
        if self.both { 2 } else { 1 }
    }

    fn traversal(&self, direction: usize) -> Traversal {
        Traversal { backwards: direction == 1, lengths: self.lengths.map(Into::into) }
    }

    /// Inputs: x (B, T, N), the first states (layers · directions, B, C), then the parameters. The
    /// result is flat: what the last layer gives, and the last states.
    pub(crate) fn case(self, name: &str, tolerance: Tolerance) -> Case {
        let Cell { op, gates, states, .. } = self.cell;
        let (count, outputs) = (self.layers * self.directions(), gates * self.width);
        let forward = move |v: &[Var]| self.forward(v);
        let reference = move |a: &[Array]| self.reference(a);
        let mut case = Case::new(op, name, tolerance, forward, reference)
            .normal("x", [self.batch, self.times, self.input]);
        for name in &["h", "s"][..states] {
            case = case.normal(name, [count, self.batch, self.width]);
        }
        for (i, names) in NAMES[..count].iter().enumerate() {
            let inputs =
                if i < self.directions() { self.input } else { self.directions() * self.width };
            let shapes = [&[outputs, inputs][..], &[outputs, self.width], &[outputs], &[outputs]];
            for (j, (name, shape)) in names.iter().zip(shapes).enumerate() {
                let seed = (10 * i + j) as u64;
                case = case.input(name, Rng::new(seed).normal(crate::Shape::new(shape), 0.5));
            }
        }
        case.torch(self.torch())
    }

    fn forward(&self, v: &[Var]) -> Var {
        let Cell { apply, states, .. } = self.cell;
        let state =
            |s: usize, i: usize| reshape(slice(&v[1 + s], 0, i..i + 1), [self.batch, self.width]);
        let mut x = v[0].clone();
        let mut last = vec![Vec::new(); states];
        for layer in 0..self.layers {
            let mut outs = Vec::new();
            for direction in 0..self.directions() {
                let i = layer * self.directions() + direction;
                let [w, u, b, c] = [0, 1, 2, 3].map(|j| &v[1 + states + 4 * i + j]);
                let first: Vec<Var> = (0..states).map(|s| state(s, i)).collect();
                let sums = linear(&x, w, Some(b));
                let mut found =
                    apply(sums, u, Some(c), &first, &self.traversal(direction)).into_iter();
                outs.extend(found.next());
                for (all, state) in last.iter_mut().zip(found) {
                    all.push(state);
                }
            }
            x = concat(&outs.iter().collect::<Vec<_>>(), 2);
        }
        let all: Vec<Var> = std::iter::once(x)
            .chain(last.into_iter().flatten())
            .map(|x| {
                let len = x.shape().len();
                reshape(x, [len])
            })
            .collect();
        concat(&all.iter().collect::<Vec<_>>(), 0)
    }

    fn reference(&self, a: &[Array]) -> Array {
        let (states, width) = (self.cell.states, self.width);
        // What a layer reads, by row and time.
        let mut x: Vec<Vec<Vec<f64>>> = (0..self.batch)
            .map(|b| (0..self.times).map(|t| a[0].row(b * self.times + t).to_vec()).collect())
            .collect();
        let mut last: Vec<Vec<f64>> = vec![Vec::new(); states];
        for layer in 0..self.layers {
            let mut out = vec![vec![Vec::new(); self.times]; self.batch];
            for direction in 0..self.directions() {
                let i = layer * self.directions() + direction;
                let parameters: Vec<&Array> = (0..4).map(|j| &a[1 + states + 4 * i + j]).collect();
                for b in 0..self.batch {
                    let first: Vec<Vec<f64>> =
                        (0..states).map(|s| a[1 + s].row(i * self.batch + b).to_vec()).collect();
                    let length = self.lengths.map_or(self.times, |lengths| lengths[b]);
                    let end =
                        self.row_reference(&x[b][..length], &parameters, first, direction == 1);
                    for (t, out) in out[b].iter_mut().enumerate() {
                        out.extend(end.0.get(t).cloned().unwrap_or_else(|| vec![0.0; width]));
                    }
                    last.iter_mut().zip(end.1).for_each(|(all, state)| all.extend(state));
                }
            }
            x = out;
        }
        let all: Vec<f64> =
            x.into_iter().flatten().flatten().chain(last.into_iter().flatten()).collect();
        Array::new([all.len()], all)
    }

    /// One row in one direction: what it gives at each time, and the last states.
    fn row_reference(
        &self,
        x: &[Vec<f64>],
        parameters: &[&Array],
        mut states: Vec<Vec<f64>>,
        backwards: bool,
    ) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        let product = |w: &Array, b: &Array, x: &[f64]| -> Vec<f64> {
            let dot = |row: &[f64]| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
            (0..b.data.len()).map(|j| dot(w.row(j)) + b.data[j]).collect()
        };
        let mut out = vec![Vec::new(); x.len()];
        for step in 0..x.len() {
            let t = if backwards { x.len() - 1 - step } else { step };
            let sums = product(parameters[0], parameters[2], &x[t]);
            let products = product(parameters[1], parameters[3], &states[0]);
            states = (self.cell.reference)(&sums, &products, &states);
            out[t].clone_from(&states[0]);
        }
        (out, states)
    }

    /// The same in PyTorch: what its modules call.
    fn torch(&self) -> String {
        let (function, layers) = (self.cell.torch, self.layers);
        let both = if self.both { "True" } else { "False" };
        let names: Vec<&str> = NAMES[..layers * self.directions()].concat();
        let weights = names.join(", ");
        let (first, last) = if self.cell.states == 2 { ("(h, s)", "n, m") } else { ("h", "n") };
        let flat = |names: &str| {
            let each = names.split(", ").map(|name| format!("{name}.reshape(-1)"));
            format!("out = torch.cat([{}])\n", each.collect::<Vec<_>>().join(", "))
        };
        let joined = flat(&format!("y, {last}"));
        match self.lengths {
            None => format!(
                "y, {last} = {function}(x, {first}, [{weights}], True, {layers}, 0.0, False, {both}, \
                 True)\n{joined}"
            ),
            Some(lengths) => format!(
                "rnn = torch.nn.utils.rnn\n\
                 p = rnn.pack_padded_sequence(x, {lengths:?}, batch_first=True)\n\
                 y, {last} = {function}(p.data, p.batch_sizes, {first}, [{weights}], True, {layers}, \
                 0.0, False, {both})\n\
                 y, _ = rnn.pad_packed_sequence(rnn.PackedSequence(y, p.batch_sizes), \
                 batch_first=True, total_length={})\n{joined}",
                self.times
            ),
        }
    }
}
