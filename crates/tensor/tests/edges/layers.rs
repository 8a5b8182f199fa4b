//! Convolutions, recurrent cells, the attention of long sequences and experts.

use super::{Misfit, misfit, ones};
use hearken_kernels::activation::Activation;
use hearken_tensor::ops::additive_scores::additive_scores;
use hearken_tensor::ops::combine::combine;
use hearken_tensor::ops::conv1d::{Convolution, conv1d};
use hearken_tensor::ops::gru::gru;
use hearken_tensor::ops::linear_attention::{LinearAttend, linear_attention};
use hearken_tensor::ops::lsh_attention::{LshAttend, Order, lsh_attention};
use hearken_tensor::ops::lstm::lstm;
use hearken_tensor::ops::random_features::{Side, random_features};
use hearken_tensor::ops::rnn::rnn;
use hearken_tensor::ops::router_loss::{RouterLoss, router_loss};
use hearken_tensor::ops::routing::routing;
use hearken_tensor::recurrent::Traversal;
use hearken_tensor::routes::Routes;
use hearken_tensor::{Tensor, Var};
use std::sync::Arc;

/// Two heads on `kv_heads`.
fn linear_of(v: &[Var], kv_heads: usize, causal: bool) -> Var {
    let attend = LinearAttend { heads: 2, kv_heads, causal, runs: None };
    linear_attention(&v[0], &v[1], &v[2], &attend)
}

/// Two rounds, by a hash of vectors of the shape `shape` (B, T, 2·D).
fn order(shape: &[usize]) -> Order {
    let directions = Tensor::full([4, shape[2] / 2], 1.0);
    Order::by_hash(ones(shape).value(), 2, &directions, 2, None)
}

fn hashed(v: &[Var], order: &Order, segments: Option<Arc<[u32]>>) -> Var {
    let attend = LshAttend { chunk: 2, causal: true, scale: 0.5, segments };
    lsh_attention(&v[0], &v[1], &v[2], order, &attend)
}

/// `tokens` tokens, each to two of three experts.
fn routes(tokens: usize) -> Arc<Routes> {
    Arc::new(Routes::new(&[0.5, 0.3, 0.2].repeat(tokens), 3, 2, None, None))
}

/// The parts of three experts, of which the last has no tokens, weights, and what they are added to.
fn combined(v: &[Var], tokens: usize, shape: [usize; 2]) -> Var {
    combine(&v[..3], &v[3], &routes(tokens), v.get(4), shape)
}

fn router(logits: &Var, experts: usize, real: Option<Arc<[bool]>>) -> Var {
    let shares = vec![1.0 / experts as f32; experts];
    router_loss(logits, &RouterLoss { balance: 0.5, z_loss: 0.5, shares, real })
}

/// The states at all times and the last ones: sums, weight, bias and the first states.
type Cell = fn(&[Var], &Traversal) -> Vec<Var>;

/// With how many gates, and how many states.
const CELLS: [(&str, usize, usize, Cell); 3] = [
    ("rnn", 1, 1, |v, way| {
        rnn(v[0].clone(), &v[1], Some(&v[2]), &v[3], Activation::Tanh, way).to_vec()
    }),
    ("gru", 3, 1, |v, way| gru(v[0].clone(), &v[1], Some(&v[2]), &v[3], way).to_vec()),
    ("lstm", 4, 2, |v, way| lstm(v[0].clone(), &v[1], Some(&v[2]), [&v[3], &v[4]], way).to_vec()),
];

pub(super) fn misfits() -> Vec<Misfit> {
    let all = |shapes: &[&[usize]]| shapes.iter().map(|shape| ones(shape)).collect::<Vec<_>>();
    let causal = || Convolution::causal(3, 1);
    let mut misfits = vec![
        misfit(
            "additive_scores",
            || additive_scores(&ones(&[1, 2, 3]), &ones(&[1, 4, 5]), &ones(&[3]), None),
            &["(1, 2, 3)", "(1, 4, 5)", "(3)"],
        ),
        misfit(
            "additive_scores",
            || {
                let lengths: Arc<[usize]> = [1, 2].into();
                additive_scores(&ones(&[1, 2, 3]), &ones(&[1, 4, 3]), &ones(&[3]), Some(&lengths))
            },
            &["(1, 4, 3)", "[1, 2]"],
        ),
        misfit(
            "combine",
            move || combined(&all(&[&[2, 4], &[1, 4], &[0, 4], &[2, 2]]), 2, [2, 4]),
            &["rows of expert 1", "(1, 4)", "(2, 4)"],
        ),
        misfit(
            "combine",
            move || combined(&all(&[&[2, 4], &[2, 4], &[0, 4], &[2, 3]]), 2, [2, 4]),
            &["weights of 2 tokens", "[2, 3]", "[2, 2]"],
        ),
        misfit(
            "combine",
            move || combined(&all(&[&[2, 4], &[2, 4], &[0, 4], &[2, 2], &[4, 2]]), 2, [2, 4]),
            &["(2, 4)", "(4, 2)"],
        ),
        misfit(
            "combine",
            move || combined(&all(&[&[2, 4], &[2, 4], &[0, 4], &[2, 2]]), 2, [3, 4]),
            &["2 tokens", "(3, 4)"],
        ),
        misfit(
            "conv1d",
            move || conv1d(&ones(&[2, 5, 3]), &ones(&[4, 8]), None, &causal()),
            &["(2, 5, 3)", "(4, 8)"],
        ),
        misfit(
            "conv1d",
            move || conv1d(&ones(&[2, 5, 3]), &ones(&[4, 9]), Some(&ones(&[3])), &causal()),
            &["(4, 9)", "[3]"],
        ),
        misfit(
            "conv1d",
            move || {
                let how = Convolution { groups: 2, ..causal() };
                conv1d(&ones(&[2, 5, 3]), &ones(&[4, 3]), None, &how)
            },
            &["(2, 5, 3)", "(4, 3)", "groups: 2"],
        ),
        misfit(
            "conv1d",
            move || {
                let how = Convolution { stride: 0, ..causal() };
                conv1d(&ones(&[2, 5, 3]), &ones(&[4, 9]), None, &how)
            },
            &["stride: 0"],
        ),
        misfit(
            "linear_attention",
            move || linear_of(&all(&[&[1, 2, 8], &[1, 2, 6], &[1, 2, 8]]), 2, true),
            &["(1, 2, 8)", "(1, 2, 6)", "2 heads on 2"],
        ),
        misfit(
            "linear_attention",
            move || linear_of(&all(&[&[1, 2, 8], &[1, 3, 8], &[1, 3, 8]]), 2, true),
            &["(1, 2, 8)", "(1, 3, 8)"],
        ),
        misfit(
            "linear_attention",
            move || linear_of(&all(&[&[1, 2, 8], &[1, 2, 0], &[1, 2, 8]]), 0, true),
            &["(1, 2, 8)", "(1, 2, 0)", "2 heads on 0"],
        ),
        misfit(
            "lsh_attention",
            move || hashed(&all(&[&[1, 3, 8], &[1, 3, 6], &[1, 3, 8]]), &order(&[1, 3, 8]), None),
            &["(1, 3, 8)", "(1, 3, 6)", "2 heads"],
        ),
        misfit(
            "lsh_attention",
            move || hashed(&all(&[&[1, 3, 8], &[1, 3, 8], &[1, 3, 8]]), &order(&[1, 4, 8]), None),
            &["(1, 3, 8)", "4 tokens"],
        ),
        misfit(
            "lsh_attention",
            move || {
                let v = all(&[&[1, 3, 8], &[1, 3, 8], &[1, 3, 8]]);
                hashed(&v, &order(&[1, 3, 8]), Some([1, 1].into()))
            },
            &["(1, 3, 8)", "2 segments"],
        ),
        misfit(
            "lsh_attention",
            || {
                let directions = Tensor::full([4, 3], 1.0);
                let _ = Order::by_hash(ones(&[1, 3, 8]).value(), 2, &directions, 2, None);
                ones(&[])
            },
            &["(1, 3, 8)", "(4, 3)", "2 heads"],
        ),
        misfit(
            "random_features",
            || random_features(&ones(&[1, 2, 8]), &Tensor::full([5, 3], 1.0), Side::Keys),
            &["(1, 2, 8)", "(5, 3)"],
        ),
        misfit("router_loss", || router(&ones(&[2, 3]), 4, None), &["(2, 3)", "4 experts"]),
        misfit(
            "router_loss",
            || router(&ones(&[2, 3]), 3, Some([true].into())),
            &["(2, 3)", "1 tokens"],
        ),
        misfit(
            "routing",
            || routing(&ones(&[2, 4]), &routes(2), true),
            &["2 tokens to 3 experts", "(2, 4)"],
        ),
    ];
    for (op, gates, states, cell) in CELLS {
        let mut wrong =
            |sums: [usize; 3], bias, state: [usize; 2], lengths: Option<&[usize]>, words| {
                let way = Traversal { backwards: false, lengths: lengths.map(Into::into) };
                let call = move || {
                    let mut v = vec![ones(&sums), ones(&[gates * 3, 3]), ones(&[bias])];
                    v.extend((0..states).map(|_| ones(&state)));
                    cell(&v, &way).swap_remove(0)
                };
                misfits.push(misfit(op, call, words));
            };
        let (sums, bias) = ([2, 5, gates * 3], gates * 3);
        wrong([2, 5, 7], bias, [2, 3], None, &["3)", "(2, 5, 7)"]);
        wrong(sums, 7, [2, 3], None, &["[7]", "3) weight"]);
        wrong(sums, bias, [3, 3], None, &["[3, 3]", "(2, 5, "]);
        wrong(sums, bias, [2, 3], Some(&[6, 1]), &["[6, 1]", "(2, 5, "]);
    }
    misfits
}

/// Runs an operation on tensors of ones: its name, their shapes, a call, and the shape that it gives.
pub(super) type Run<'a> =
    dyn FnMut(&'static str, &[&[usize]], &dyn Fn(&[Var]) -> Var, &[usize]) + 'a;

/// Each operation on tensors in which a dimension is `n`.
pub(super) fn with_dimension(n: usize, run: &mut Run<'_>) {
    let scores = |v: &[Var]| additive_scores(&v[0], &v[1], &v[2], None);
    for [b, t, s, a] in [[n, 2, 3, 4], [2, n, 3, 4], [2, 3, n, 4], [2, 3, 2, n]] {
        run("additive_scores", &[&[b, t, a], &[b, s, a], &[a]], &scores, &[b, t, s]);
    }
    for [tokens, width] in [[n, 4], [3, n]] {
        let rows = [tokens, width];
        let sum = |v: &[Var]| combined(v, tokens, rows);
        run("combine", &[&rows, &rows, &[0, width], &[tokens, 2], &rows], &sum, &rows);
        run("combine", &[&rows, &rows, &[0, width], &[tokens, 2]], &sum, &rows);
    }
    for [b, t, narrow, wide] in [[n, 5, 2, 4], [2, n, 2, 4], [2, 5, 2 * n, 4], [2, 5, 2, 2 * n]] {
        for groups in [1, 2] {
            let how = Convolution { groups, ..Convolution::causal(3, 1) };
            let f = |v: &[Var]| conv1d(&v[0], &v[1], Some(&v[2]), &how);
            let weight = [wide, 3 * narrow / groups];
            run("conv1d", &[&[b, t, narrow], &weight, &[wide]], &f, &[b, t, wide]);
        }
    }
    for (op, gates, states, cell) in CELLS {
        for [b, t, c] in [[n, 5, 3], [2, n, 3], [2, 5, n], [n, n, n]] {
            for backwards in [false, true] {
                let way = Traversal { backwards, lengths: None };
                let (sums, weight, bias, state) =
                    ([b, t, gates * c], [gates * c, c], [gates * c], [b, c]);
                let shapes: [&[usize]; 5] = [&sums, &weight, &bias, &state, &state];
                let shapes = &shapes[..3 + states];
                run(op, shapes, &|v| cell(v, &way).swap_remove(0), &[b, t, c]);
                run(op, shapes, &|v| cell(v, &way).swap_remove(1), &[b, c]);
            }
        }
    }
    for [b, t, d, width] in [[n, 3, 2, 4], [2, n, 2, 4], [2, 3, n, 4], [2, 3, 2, n]] {
        let (q, out) = ([b, t, 2 * d], [b, t, 2 * width]);
        for causal in [false, true] {
            let f = |v: &[Var]| linear_of(v, 1, causal);
            run("linear_attention", &[&q, &[b, t, d], &[b, t, width]], &f, &out);
        }
        run("lsh_attention", &[&q, &q, &out], &|v| hashed(v, &order(&q), None), &out);
    }
    let samples = |count| Tensor::full([count, 4], 0.5);
    for side in [Side::Queries, Side::Keys] {
        let five = |v: &[Var]| random_features(&v[0], &samples(5), side);
        run("random_features", &[&[n, 3, 8]], &five, &[n, 3, 10]);
        run("random_features", &[&[2, n, 8]], &five, &[2, n, 10]);
        run("random_features", &[&[2, 3, 4 * n]], &five, &[2, 3, 5 * n]);
        let one = |v: &[Var]| random_features(&v[0], &samples(1), side);
        run("random_features", &[&[n, 3, 8]], &one, &[n, 3, 2]);
    }
    run("router_loss", &[&[n, 3]], &|v| router(&v[0], 3, None), &[]);
    run("router_loss", &[&[n, 1]], &|v| router(&v[0], 1, None), &[]);
    run("routing", &[&[n, 3]], &|v| routing(&v[0], &routes(n), true), &[n, 2]);
    run("routing", &[&[n, 3]], &|v| routing(&v[0], &routes(n), false), &[n, 2]);
}

/// A NaN is not taken for "sees nothing", which gives zeros, nor the other way round.
#[test]
fn a_hashed_query_of_nan_gives_nan_and_padding_gives_zeros() {
    let mut q = Tensor::full([1, 3, 4], 1.0);
    q.data_mut()[4..8].fill(f32::NAN); // token 1
    let segments: Arc<[u32]> = [1, 1, 0].into();
    let order = Order::by_hash(&q, 2, &Tensor::full([4, 2], 1.0), 2, Some(&segments));
    let v = [Var::leaf(q), ones(&[1, 3, 4]), ones(&[1, 3, 4])];
    let out = hashed(&v, &order, Some(segments));
    let [first, second, padding] = [0, 4, 8].map(|at| &out.value().data()[at..at + 4]);
    assert_eq!(first, [1.0; 4]);
    assert!(second.iter().all(|x| x.is_nan()), "{second:?}");
    assert_eq!(padding, [0.0; 4]);
}
