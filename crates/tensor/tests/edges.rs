//! The edges of every operation: shapes that do not fit, nothing at all, one of everything, and
//! numbers that are none.
//!
//! - A shape that does not fit is a programming error: a panic that names both shapes, or the
//!   shape and the argument that does not suit it.
//! - Empty tensors give empty tensors (or the sum of nothing) and zero gradients.
//! - Dimensions of length 1 work.
//! - NaN in gives NaN out, infinity gives a defined result, and neither panics or hangs.

use hearken_kernels::activation::Activation;
use hearken_kernels::attention::scores::{Causal, Relative};
use hearken_kernels::rope::Pairing;
use hearken_tensor::ops::activations::gelu;
use hearken_tensor::ops::attention::{Attend, Rule, attention, attention_packed};
use hearken_tensor::ops::binary_cross_entropy::binary_cross_entropy;
use hearken_tensor::ops::concat::concat;
use hearken_tensor::ops::cross_entropy::{Options, cross_entropy};
use hearken_tensor::ops::dropout::dropout;
use hearken_tensor::ops::embedding::embedding;
use hearken_tensor::ops::feed_forward::feed_forward;
use hearken_tensor::ops::gated::swiglu;
use hearken_tensor::ops::head_cross_entropy::{head_cross_entropy, last_logits, token_losses};
use hearken_tensor::ops::layer_norm::layer_norm;
use hearken_tensor::ops::linear::linear;
use hearken_tensor::ops::matmul::{matmul, matmul_transposed};
use hearken_tensor::ops::mean::mean_over;
use hearken_tensor::ops::mse::mse;
use hearken_tensor::ops::reshape::reshape;
use hearken_tensor::ops::rms_norm::rms_norm;
use hearken_tensor::ops::rope::{rope, rope_at};
use hearken_tensor::ops::scores::scores;
use hearken_tensor::ops::slice::slice;
use hearken_tensor::ops::softmax::softmax;
use hearken_tensor::ops::transpose::transpose;
use hearken_tensor::rng::Key;
use hearken_tensor::rope_table::{RopeTable, Scaling};
use hearken_tensor::{Tensor, Var, ops};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

#[path = "edges/layers.rs"]
mod layers;

const KEY: Key = Key { seed: 1, step: 1, site: 1 };

/// A variable whose elements are all 1.
fn ones(shape: &[usize]) -> Var {
    Var::leaf(Tensor::full(shape, 1.0))
}

fn table(width: usize, positions: usize) -> RopeTable {
    RopeTable::new(width, width, 1e4, Scaling::None, Pairing::Halves, positions)
}

/// Two heads.
fn attend(q: &Var, k: &Var, v: &Var) -> Var {
    attention(q, k, v, &[], &Attend::new(2))
}

/// The scores of products (B, 2, T, S), with a table (2, 3) of biases for distances of up to 1.
fn biased(products: &Var, table: &Var, learned: &Var) -> Var {
    let [_, _, t, s] = products.value().dims();
    let rule: Rule = Arc::new(Relative::new(table.value().clone(), 1, t, s));
    scores(products.clone(), 0.5, 0, &[learned], &rule)
}

/// An operation, a call of it that does not fit, and what the panic must say.
type Misfit = (&'static str, Box<dyn Fn()>, &'static [&'static str]);

fn misfit(
    op: &'static str,
    call: impl Fn() -> Var + 'static,
    words: &'static [&'static str],
) -> Misfit {
    (op, Box::new(move || drop(call())), words)
}

fn misfits() -> Vec<Misfit> {
    let plain = Options::default;
    let mut misfits = vec![
        misfit("add", || &ones(&[2, 3]) + &ones(&[3, 2]), &["(2, 3)", "(3, 2)"]),
        misfit("add", || &ones(&[2, 3]) + &ones(&[2]), &["(2, 3)", "(2)"]),
        misfit("sub", || &ones(&[2, 3]) - &ones(&[3]), &["(2, 3)", "(3)"]),
        misfit("mul", || &ones(&[2, 3]) * &ones(&[3]), &["(2, 3)", "(3)"]),
        misfit(
            "attention",
            || attend(&ones(&[1, 2, 8]), &ones(&[1, 3, 6]), &ones(&[1, 3, 8])),
            &["(1, 2, 8)", "(1, 3, 6)", "(1, 3, 8)"],
        ),
        misfit(
            "attention",
            || attend(&ones(&[1, 2, 7]), &ones(&[1, 3, 7]), &ones(&[1, 3, 8])),
            &["(1, 2, 7)", "2 heads"],
        ),
        misfit(
            "attention",
            || attention_packed(&ones(&[1, 2, 8]), &[], &Attend::new(2)),
            &["(1, 2, 8)", "2 heads on 2"],
        ),
        misfit(
            "attention",
            || attention_packed(&ones(&[1, 2, 15]), &[], &Attend::new(2).value_width(4)),
            &["(1, 2, 15)", "2 heads on 2"],
        ),
        misfit("concat", || concat(&[&ones(&[2, 3]), &ones(&[2, 4])], 0), &["(2, 3)", "(2, 4)"]),
        misfit("concat", || concat(&[&ones(&[2, 3]), &ones(&[2])], 0), &["(2, 3)", "(2)"]),
        misfit("reshape", || reshape(ones(&[2, 3]), [7]), &["(2, 3)", "(7)"]),
        misfit(
            "scores",
            || biased(&ones(&[2, 3, 3]), &ones(&[2, 3]), &ones(&[2, 3])),
            &["(2, 3, 3)", "4 dimensions"],
        ),
        misfit(
            "scores",
            || biased(&ones(&[1, 2, 3, 3]), &ones(&[2, 3]), &ones(&[2, 5])),
            &["[10]", "6"],
        ),
        misfit("slice", || slice(&ones(&[2, 3]), 1, 2..4), &["(2, 3)", "2..4"]),
        misfit("transpose", || transpose(&ones(&[2, 3]), 0, 2), &["(2, 3)", "2"]),
        misfit("mean", || mean_over(&ones(&[2, 3]), 2), &["(2, 3)", "2"]),
        misfit("matmul", || matmul(&ones(&[2, 3]), &ones(&[4, 5])), &["(2, 3)", "(4, 5)"]),
        misfit(
            "matmul",
            || matmul_transposed(&ones(&[7, 2, 3]), &ones(&[6, 4, 3])),
            &["(7, 2, 3)", "(6, 4, 3)"],
        ),
        misfit("linear", || linear(&ones(&[2, 3]), &ones(&[5, 4]), None), &["(2, 3)", "(5, 4)"]),
        misfit(
            "linear",
            || linear(&ones(&[2, 3]), &ones(&[5, 3]), Some(&ones(&[4]))),
            &["(5, 3)", "4"],
        ),
        misfit(
            "layer_norm",
            || layer_norm(&ones(&[2, 3]), Some(&ones(&[2])), None, 1e-5),
            &["(2, 3)", "(2)"],
        ),
        misfit(
            "layer_norm",
            || layer_norm(&ones(&[2, 3]), None, Some(&ones(&[3, 1])), 1e-5),
            &["(2, 3)", "(3, 1)"],
        ),
        misfit(
            "rms_norm",
            || rms_norm(&ones(&[2, 3]), Some(&ones(&[4])), 1e-5),
            &["(2, 3)", "(4)"],
        ),
        misfit(
            "feed_forward",
            || feed(&[ones(&[2, 3]), ones(&[5, 4]), ones(&[3, 5])]),
            &["(2, 3)", "(5, 4)"],
        ),
        misfit(
            "feed_forward",
            || feed(&[ones(&[2, 3]), ones(&[5, 3]), ones(&[3, 4])]),
            &["(5, 3)", "(3, 4)"],
        ),
        misfit(
            "feed_forward",
            || feed(&[ones(&[2, 3]), ones(&[5, 3]), ones(&[3, 5]), ones(&[5]), ones(&[2])]),
            &["(3, 5)", "2"],
        ),
        misfit("gated", || swiglu(&ones(&[2, 3])), &["(2, 3)", "even"]),
        misfit("embedding", || embedding(&ones(&[4, 2]), &[0, 1, 2], [2, 2]), &["3", "(2, 2)"]),
        misfit("embedding", || embedding(&ones(&[4, 2]), &[4], [1]), &["(4, 2)", "id 4"]),
        misfit("embedding", || embedding(&ones(&[4]), &[0], [1]), &["(4)", "rows and columns"]),
        misfit("mse", || mse(&ones(&[2, 3]), &ones(&[3, 2])), &["(2, 3)", "(3, 2)"]),
        misfit(
            "binary_cross_entropy",
            || binary_cross_entropy(&ones(&[2, 3]), &[0.0; 5], None),
            &["(2, 3)", "5 targets"],
        ),
        misfit(
            "cross_entropy",
            move || cross_entropy(ones(&[2, 3]), &[0, 1, 2], plain()),
            &["(2, 3)", "(3)"],
        ),
        misfit(
            "cross_entropy",
            move || cross_entropy(ones(&[2, 3]), &[0, 3], plain()),
            &["target 3", "vocabulary of 3"],
        ),
        misfit(
            "head_cross_entropy",
            move || head_cross_entropy(&ones(&[2, 3]), &ones(&[5, 4]), None, &[0, 1], plain()),
            &["(2, 3)", "(5, 4)"],
        ),
        misfit(
            "head_cross_entropy",
            move || head_cross_entropy(&ones(&[2, 3]), &ones(&[5, 3]), None, &[0], plain()),
            &["(2, 3)", "(1)"],
        ),
        misfit(
            "head_cross_entropy",
            || Var::constant(token_losses(ones(&[2, 3]).value(), &ones(&[5, 4]), None, &[0, 1])),
            &["(2, 3)", "(5, 4)"],
        ),
        misfit(
            "head_cross_entropy",
            || Var::constant(last_logits(ones(&[1, 2, 3]).value(), &ones(&[5, 4]), None)),
            &["(1, 2, 3)", "(5, 4)"],
        ),
        misfit("rope", || rope(ones(&[1, 2, 12]), &table(8, 4), 2, 0), &["(1, 2, 12)", "2 heads"]),
        misfit("rope", || rope(ones(&[2, 16]), &table(8, 4), 2, 0), &["(2, 16)", "3 dimensions"]),
        misfit("rope", || rope(ones(&[1, 2, 8]), &table(8, 4), 1, 3), &["up to 5", "of 4"]),
        misfit("rope", || rope_at(ones(&[1, 2, 8]), &table(8, 4), 1, &[0]), &["(1, 2, 8)", "(1)"]),
        misfit("dropout", || dropout(ones(&[2]), 1.5, KEY), &["1.5"]),
    ];
    misfits.extend(layers::misfits());
    misfits
}

/// Operations on one tensor of any shape: nothing can be misfit.
const FIT_EVERYTHING: &[&str] = &["activations", "scale", "softmax"];

/// x, U and D, with b and c or without.
fn feed(v: &[Var]) -> Var {
    let biases = (v.len() == 5).then(|| [&v[3], &v[4]]);
    feed_forward(&v[0], &v[1], Activation::GeluTanh, &v[2], biases)
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    for (op, call, words) in misfits() {
        let panic = catch_unwind(AssertUnwindSafe(call)).expect_err(op);
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| {
            panic.downcast_ref::<&str>().expect("a panic with a message").to_string()
        });
        for word in words {
            assert!(text.contains(word), "{op}: '{word}' is not in the message '{text}'");
        }
    }
}

#[test]
fn every_operation_is_here() {
    let here: BTreeSet<&str> = misfits().iter().map(|(op, ..)| *op).collect();
    for name in ops::NAMES {
        assert!(
            here.contains(name) || FIT_EVERYTHING.contains(name),
            "{name} is not in the list of misfits: add calls that do not fit to tests/edges.rs"
        );
    }
    for name in here.iter().chain(FIT_EVERYTHING) {
        assert!(ops::NAMES.contains(name), "{name} is no operation");
    }
}

/// Each operation on tensors in which a dimension is `n`, which may be 0 or 1: what comes out is
/// (shape, value), and every input gets a gradient of its own shape.
fn with_dimension(n: usize) -> Vec<(&'static str, Vec<Var>, Var, Vec<usize>)> {
    let mut all = Vec::new();
    let mut run =
        |name: &'static str, inputs: &[&[usize]], f: &dyn Fn(&[Var]) -> Var, shape: &[usize]| {
            let inputs: Vec<Var> = inputs.iter().map(|shape| ones(shape)).collect();
            let out = f(&inputs);
            all.push((name, inputs, out, shape.to_vec()));
        };
    let ids = vec![1; n];
    let plain = Options::default();
    let none = Scaling::None;
    run("activations", &[&[n, 3]], &|v| gelu(v[0].clone()), &[n, 3]);
    run("activations", &[&[3, n]], &|v| gelu(v[0].clone()), &[3, n]);
    run("add", &[&[n, 3], &[3]], &|v| &v[0] + &v[1], &[n, 3]);
    run("add", &[&[3, n], &[n]], &|v| &v[0] + &v[1], &[3, n]);
    run("add", &[&[n], &[n]], &|v| &v[0] + &v[1], &[n]);
    let attend = |v: &[Var]| attend(&v[0], &v[1], &v[2]);
    run("attention", &[&[n, 2, 4], &[n, 3, 4], &[n, 3, 4]], &attend, &[n, 2, 4]);
    run("attention", &[&[2, n, 4], &[2, 3, 4], &[2, 3, 4]], &attend, &[2, n, 4]);
    run("attention", &[&[2, 3, 4], &[2, n, 4], &[2, n, 4]], &attend, &[2, 3, 4]);
    run("attention", &[&[2, 3, 2 * n], &[2, 3, 2 * n], &[2, 3, 4]], &attend, &[2, 3, 4]);
    run("attention", &[&[2, 3, 4], &[2, 3, 4], &[2, 3, 2 * n]], &attend, &[2, 3, 2 * n]);
    let causal = |t, s| Attend::new(2).rule(Causal::new(t, s));
    let seen = |v: &[Var]| attention(&v[0], &v[1], &v[2], &[], &causal(3, n));
    run("attention", &[&[2, 3, 4], &[2, n, 4], &[2, n, 4]], &seen, &[2, 3, 4]);
    let packed = |v: &[Var]| attention_packed(&v[0], &[], &causal(n, n));
    run("attention", &[&[2, n, 24]], &packed, &[2, n, 8]);
    run("sub", &[&[n, 3], &[n, 3]], &|v| &v[0] - &v[1], &[n, 3]);
    run("mul", &[&[n, 3], &[n, 3]], &|v| &v[0] * &v[1], &[n, 3]);
    run("scale", &[&[n, 3]], &|v| &v[0] * 2.0, &[n, 3]);
    run("concat", &[&[2, n], &[2, 3]], &|v| concat(&[&v[0], &v[1]], 1), &[2, n + 3]);
    run("concat", &[&[n, 2], &[n, 3]], &|v| concat(&[&v[0], &v[1]], 1), &[n, 5]);
    run("reshape", &[&[n, 6]], &|v| reshape(v[0].clone(), [2, n, 3]), &[2, n, 3]);
    let biased = |v: &[Var]| biased(&v[0], &v[1], &v[1]);
    run("scores", &[&[n, 2, 3, 4], &[2, 3]], &biased, &[n, 2, 3, 4]);
    run("scores", &[&[1, 2, n, 4], &[2, 3]], &biased, &[1, 2, n, 4]);
    run("scores", &[&[1, 2, 3, n], &[2, 3]], &biased, &[1, 2, 3, n]);
    run("slice", &[&[n, 3]], &|v| slice(&v[0], 1, 1..3), &[n, 2]);
    run("slice", &[&[4, 3]], &|v| slice(&v[0], 0, 2..2 + n), &[n, 3]);
    run("transpose", &[&[n, 3]], &|v| transpose(&v[0], 0, 1), &[3, n]);
    run("mean", &[&[n, 3]], &|v| v[0].sum(), &[]);
    run("mean", &[&[2, 3, n]], &|v| mean_over(&v[0], 1), &[2, n]);
    run("matmul", &[&[n, 2, 3], &[n, 3, 4]], &|v| matmul(&v[0], &v[1]), &[n, 2, 4]);
    run("matmul", &[&[2, n], &[n, 4]], &|v| matmul(&v[0], &v[1]), &[2, 4]);
    run("matmul", &[&[n, 3], &[4, 3]], &|v| matmul_transposed(&v[0], &v[1]), &[n, 4]);
    run("linear", &[&[n, 3], &[4, 3], &[4]], &|v| linear(&v[0], &v[1], Some(&v[2])), &[n, 4]);
    run("linear", &[&[2, n], &[4, n], &[4]], &|v| linear(&v[0], &v[1], Some(&v[2])), &[2, 4]);
    run("linear", &[&[2, 3], &[n, 3], &[n]], &|v| linear(&v[0], &v[1], Some(&v[2])), &[2, n]);
    let norm = |v: &[Var]| layer_norm(&v[0], Some(&v[1]), Some(&v[2]), 1e-5);
    run("layer_norm", &[&[n, 3], &[3], &[3]], &norm, &[n, 3]);
    run("layer_norm", &[&[2, n], &[n], &[n]], &norm, &[2, n]);
    run("rms_norm", &[&[n, 3], &[3]], &|v| rms_norm(&v[0], Some(&v[1]), 1e-5), &[n, 3]);
    run("rms_norm", &[&[2, n], &[n]], &|v| rms_norm(&v[0], Some(&v[1]), 1e-5), &[2, n]);
    run("softmax", &[&[n, 3]], &|v| softmax(v[0].clone(), 1.0), &[n, 3]);
    run("softmax", &[&[2, n]], &|v| softmax(v[0].clone(), 1.0), &[2, n]);
    let shapes = |rows, narrow, wide| [vec![rows, narrow], vec![wide, narrow], vec![3, wide]];
    for (rows, narrow, wide) in [(n, 2, 4), (2, n, 4), (2, 2, n)] {
        let [x, up, down] = shapes(rows, narrow, wide);
        run("feed_forward", &[&x, &up, &down, &[wide], &[3]], &feed, &[rows, 3]);
    }
    run("gated", &[&[n, 6]], &|v| swiglu(&v[0]), &[n, 3]);
    run("gated", &[&[2, 2 * n]], &|v| swiglu(&v[0]), &[2, n]);
    run("dropout", &[&[n, 3]], &|v| dropout(v[0].clone(), 0.5, KEY), &[n, 3]);
    run("embedding", &[&[4, 3]], &|v| embedding(&v[0], &ids, [n]), &[n, 3]);
    run("embedding", &[&[4, n]], &|v| embedding(&v[0], &[1, 2], [2]), &[2, n]);
    run("cross_entropy", &[&[n, 5]], &|v| cross_entropy(v[0].clone(), &ids, plain), &[]);
    let head = |v: &[Var]| head_cross_entropy(&v[0], &v[1], Some(&v[2]), &ids, plain);
    run("head_cross_entropy", &[&[n, 3], &[5, 3], &[5]], &head, &[]);
    let head = |v: &[Var]| head_cross_entropy(&v[0], &v[1], None, &[0, 1], plain);
    run("head_cross_entropy", &[&[2, n], &[5, n]], &head, &[]);
    let turn = |v: &[Var]| rope(v[0].clone(), &table(4, 9), 2, 3);
    run("rope", &[&[n, 5, 8]], &turn, &[n, 5, 8]);
    run("rope", &[&[2, n, 8]], &turn, &[2, n, 8]);
    let still = RopeTable::new(4, 0, 1e4, none, Pairing::Neighbours, 9); // nothing turns
    run("rope", &[&[2, n, 8]], &|v| rope(v[0].clone(), &still, 2, 0), &[2, n, 8]);
    if n > 0 {
        run("mse", &[&[n, 3], &[n, 3]], &|v| mse(&v[0], &v[1]), &[]);
    }
    layers::with_dimension(n, &mut run);
    all
}

#[test]
fn dimensions_of_no_and_of_one_element_work() {
    for n in [0, 1] {
        for (op, inputs, out, shape) in with_dimension(n) {
            assert_eq!(out.shape().dims(), shape, "{op} with a dimension of {n}");
            let finite = |x: &Tensor| x.data().iter().all(|x| x.is_finite());
            assert!(finite(out.value()), "{op} with a dimension of {n}: {:?}", out.value());
            out.backward_with(Tensor::full(out.shape(), 1.0));
            for (i, input) in inputs.iter().enumerate() {
                let gradient = input.gradient().unwrap_or_else(|| panic!("{op}: input {i}"));
                assert_eq!(gradient.shape(), input.shape(), "{op}: input {i}");
                assert!(finite(&gradient), "{op} with a dimension of {n}: gradient of input {i}");
                if n == 0 && out.shape().is_empty() {
                    assert!(gradient.data().iter().all(|&d| d == 0.0), "{op}: input {i}");
                }
            }
        }
    }
}

/// Every case of the registry with one of its inputs replaced.
#[test]
fn nan_in_gives_nan_out_and_infinity_does_no_harm() {
    let bits = |x: &Tensor| x.data().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for mut case in ops::registry() {
        for input in 0..case.inputs.len() {
            let usual = case.inputs[input].1.clone();
            for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                case.inputs[input].1 = Tensor::full(usual.shape(), odd);
                let what = format!("{} with {} = {odd}", case.id(), case.inputs[input].0);
                let (value, gradients) = case.run(None);
                if odd.is_nan() && !usual.shape().is_empty() {
                    let kept = value.data().iter().any(|x| x.is_nan());
                    assert!(kept, "{what} lost the NaN: {value:?}");
                }
                // Defined: the same again is the same again.
                let (again, gradients_again) = case.run(None);
                assert_eq!(bits(&value), bits(&again), "{what}");
                for (a, b) in gradients.iter().zip(&gradients_again) {
                    assert_eq!(bits(a), bits(b), "{what}");
                }
            }
            case.inputs[input].1 = usual;
        }
    }
}

/// A NaN stays in its row where rows are separate.
#[test]
fn a_nan_stays_in_its_row() {
    let x = || {
        let mut x = Tensor::full([3, 4], 1.0);
        x.data_mut()[5] = f32::NAN; // in row 1
        x.data_mut()[8] = 2.0;
        Var::leaf(x)
    };
    let w = ones(&[4, 4]);
    let rows: [(&str, Var); 9] = [
        ("linear", linear(&x(), &w, None)),
        ("feed_forward", feed(&[x(), w.clone(), w.clone()])),
        ("layer_norm", layer_norm(&x(), None, None, 1e-5)),
        ("rms_norm", rms_norm(&x(), None, 1e-5)),
        ("gelu", gelu(x())),
        ("swiglu", swiglu(&x())),
        ("softmax", softmax(x(), 1.0)),
        ("rope", rope(x().value_as([1, 3, 4]), &table(4, 3), 1, 0)),
        ("matmul", matmul(&x(), &w)),
    ];
    for (op, out) in rows {
        let data = out.value().data();
        let row = data.len() / 3;
        assert!(data[row..2 * row].iter().any(|x| x.is_nan()), "{op} lost the NaN");
        for clean in [&data[..row], &data[2 * row..]] {
            assert!(clean.iter().all(|x| x.is_finite()), "{op} spread the NaN to other rows");
        }
    }
}

/// The value of a leaf in another shape.
trait ValueAs {
    fn value_as(self, shape: [usize; 3]) -> Var;
}
impl ValueAs for Var {
    fn value_as(self, shape: [usize; 3]) -> Var {
        Var::leaf(self.into_value().reshape(shape))
    }
}
