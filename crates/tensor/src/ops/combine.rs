//! `out[n] = Σⱼ w[n, j] · y[n, j] + r[n]`: what the experts of a token gave, weighted and added up;
//! (…, C) with mₑ rows for each expert e, weights (N, k) → (N, C). `y[n, j]` is the row that token n has among
//! those of its j-th choice; a choice that no expert has computed adds nothing.
//!
//! A row of an expert is in one sum, so
//! 1. `dy[n, j] = w[n, j] · dout[n]`
//! 2. `dw[n, j] = y[n, j] · dout[n]`; 0 where nothing was computed
//! 3. `dr = dout`
//!
//! Saves the weights and, if these learn, all y.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::reference::Array;
use crate::rng::Rng;
use crate::routes::Routes;
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::routing::{NOWHERE, Sources, drows};
use std::sync::Arc;

/// The weighted sums, in `shape` (…, C), of what each expert gave: `parts`, as many rows each as the
/// routes assign to it. Added to `residual`, if there is one.
pub fn combine(
    parts: &[Var],
    weights: &Var,
    routes: &Arc<Routes>,
    residual: Option<&Var>,
    shape: impl Into<Shape>,
) -> Var {
    let shape = shape.into();
    let (experts, rows, width) = (routes.experts(), routes.rows(), shape.width());
    assert_eq!(parts.len(), experts, "one part for each of {experts} experts");
    for (e, part) in parts.iter().enumerate() {
        let (own, want) = (part.shape(), (routes.assigned(e).len(), width));
        assert_eq!((own.rows(), own.width()), want, "the rows of expert {e}");
    }
    assert_eq!(weights.shape().dims(), [rows, routes.top()], "the weights of {rows} tokens");
    assert_eq!(shape.rows(), rows, "{rows} tokens as {shape}");
    if let Some(residual) = residual {
        assert_eq!(residual.shape(), shape, "what a sum of shape {shape} is added to");
    }
    let mut out = Tensor::unset(shape);
    let tensors: Vec<Tensor> = parts.iter().map(|part| part.value().clone()).collect();
    let data: Vec<&[f32]> = tensors.iter().map(Tensor::data).collect();
    let past = residual.map(|residual| residual.value().data());
    sources(&data, routes, width).combine(weights.value().data(), past, out.data_mut());
    let mut inputs: Vec<&Var> = parts.iter().collect();
    inputs.push(weights);
    inputs.extend(residual);
    Var::from_op(out, &inputs, || CombineBackward {
        parts: weights.wants_gradient().then(|| tensors.iter().map(Saved::new).collect()),
        weights: weights.value().clone(),
        routes: routes.clone(),
    })
}

fn sources<'a>(parts: &'a [&'a [f32]], routes: &'a Routes, width: usize) -> Sources<'a> {
    let (chosen, places, top) = (routes.chosen(), routes.places(), routes.top());
    Sources { parts, chosen, places, top, width }
}

struct CombineBackward {
    parts: Option<Vec<Saved>>,
    weights: Tensor,
    routes: Arc<Routes>,
}

impl Backward for CombineBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let Self { parts, weights, routes } = *self;
        let (experts, width) = (routes.experts(), dout.shape().width());
        let top = routes.top();
        for e in 0..experts {
            let assigned = routes.assigned(e);
            gradients.write(e, |dy, write| {
                drows(assigned, top, weights.data(), (dout.data(), width), dy, write); // 1
            });
        }
        if let Some(parts) = parts {
            let parts: Vec<Tensor> = parts.iter().map(Saved::get).collect();
            let parts: Vec<&[f32]> = parts.iter().map(Tensor::data).collect();
            gradients.write(experts, |dw, write| {
                sources(&parts, &routes, width).dweights(dout.data(), dw, write); // 2
            });
        }
        gradients.add(experts + 1, dout); // 3
    }
}

fn reference(inputs: &[Array], routes: &Routes) -> Array {
    let (experts, top) = (routes.experts(), routes.top());
    let (parts, rest) = inputs.split_at(experts);
    let width = parts[0].shape.width();
    Array::build([routes.rows(), width], |at| {
        let (n, c) = (at / width, at % width);
        let mut sum = rest.get(1).map_or(0.0, |residual| residual.data[at]);
        for i in n * top..(n + 1) * top {
            if routes.places()[i] != NOWHERE {
                let y = parts[routes.chosen()[i] as usize].row(routes.places()[i] as usize);
                sum += rest[0].data[i] * y[c];
            }
        }
        sum
    })
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let tolerance = Tolerance {
        forward: 5e-7,
        backward: 2e-6,
        reason: "sums of three; a gradient of weights is a sum of up to 65 products of both signs",
    };
    let case = |name, rows: usize, width: usize, capacity: Option<f32>, onto: bool, torch| {
        let scores = Rng::new(62).normal([rows, 3], 1.0);
        let routes = Arc::new(Routes::new(scores.data(), 3, 2, None, capacity));
        let own = routes.clone();
        let forward = move |v: &[Var]| combine(&v[..3], &v[3], &own, v.get(4), [rows, width]);
        // For PyTorch: the tokens of each expert's rows, and where their weights are.
        let ids = |e: usize, f: fn(u32) -> u32| {
            let ids: Vec<f64> = routes.assigned(e).iter().map(|i| f64::from(f(*i))).collect();
            Array::new([ids.len()], ids)
        };
        let extras: [(&str, Array); 6] = [
            ("ta", ids(0, |i| i / 2)),
            ("tb", ids(1, |i| i / 2)),
            ("tc", ids(2, |i| i / 2)),
            ("ia", ids(0, |i| i)),
            ("ib", ids(1, |i| i)),
            ("ic", ids(2, |i| i)),
        ];
        let shapes: [[usize; 2]; 3] = std::array::from_fn(|e| [routes.assigned(e).len(), width]);
        let reference = move |a: &[Array]| reference(a, &routes);
        let mut case = Case::new("combine", name, tolerance, forward, reference).torch(torch);
        for (name, shape) in NAMES.into_iter().zip(shapes) {
            case = case.normal(name, shape);
        }
        case = case.normal("w", [rows, 2]);
        for (name, ids) in extras {
            case = case.extra(name, ids);
        }
        if onto { case.normal("r", [rows, width]) } else { case }
    };
    let sum = "sum(torch.zeros(w.shape[0], y.shape[1], dtype=y.dtype).index_add(0, t.long(), \
               y * w.flatten()[i.long()][:, None]) for y, t, i in ((a, ta, ia), (b, tb, ib), (c, tc, ic)))";
    let onto = "r + sum(torch.zeros(w.shape[0], y.shape[1], dtype=y.dtype).index_add(0, t.long(), \
                y * w.flatten()[i.long()][:, None]) for y, t, i in ((a, ta, ia), (b, tb, ib), (c, tc, ic)))";
    vec![
        case("plain", 7, 5, None, false, sum),
        case("onto", 6, 9, None, true, onto),
        case("dropped", 11, 4, Some(0.5), true, onto),
        case("shared", 700, 65, None, true, onto),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::embedding::embedding;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    fn experts_that_do_nothing_give_back_their_tokens() {
        // Weights that sum to 1, and every expert the identity: out = x.
        let x = Var::leaf(Rng::new(1).normal([9, 4], 1.0));
        let scores = Rng::new(2).normal([9, 3], 1.0);
        let routes = Arc::new(Routes::new(scores.data(), 3, 2, None, None));
        let part = |e| {
            let tokens = routes.tokens_of(e);
            embedding(&x, &tokens, [tokens.len()])
        };
        let parts: Vec<Var> = (0..3).map(part).collect();
        let weights = Var::constant(Tensor::full([9, 2], 0.5));
        let out = combine(&parts, &weights, &routes, None, [9, 4]);
        assert_eq!(out.value().data(), x.value().data());
        let dout = Rng::new(3).normal([9, 4], 1.0);
        out.backward_with(dout.clone());
        assert_eq!(x.gradient().unwrap().data(), dout.data());
    }

    #[test]
    #[should_panic(expected = "the rows of expert 1")]
    fn each_expert_gives_as_many_rows_as_it_has_tokens() {
        let routes = Arc::new(Routes::new(&[1.0, 0.0, 1.0, 0.0], 2, 1, None, None));
        let parts = [[2, 3], [1, 3]].map(|shape| Var::constant(Tensor::zeros(shape)));
        let weights = Var::constant(Tensor::zeros([2, 1]));
        let _ = combine(&parts, &weights, &routes, None, [2, 3]);
    }
}
