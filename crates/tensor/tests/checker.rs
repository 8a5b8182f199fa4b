//! The checker itself: one small operation, right, and then broken in every way that has cost
//! people days elsewhere. Each break must be found, and found as what it is.
//!
//! The operation is `out = x·w + x`, element by element:
//! 1. `dx = dout·w`
//! 2. `  + dout`
//! 3. `dw = dout·x`

use hearken_kernels::threads;
use hearken_tensor::gradcheck::{Case, Outcome, Tolerance};
use hearken_tensor::{Backward, Gradients, Saved, Tensor, Var, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    Nothing,
    WrongForward,
    FlippedSign,
    DroppedTerm,
    IgnoredGradient,
    Overwrites,
    NoBackward,
    ForgottenElement,
    OtherShape,
}

fn operation(x: &Var, w: &Var, broken: Break) -> Var {
    let factor = if broken == Break::WrongForward { 1.00001 } else { 1.0 };
    let pairs = x.value().data().iter().zip(w.value().data());
    let out: Vec<f32> = pairs.map(|(x, w)| x * w + factor * x).collect();
    let out = Tensor::new(x.shape(), &out);
    if broken == Break::NoBackward {
        return Var::constant(out);
    }
    if broken == Break::OtherShape {
        let (rows, width) = (x.shape().rows(), x.shape().width());
        return Var::constant(out.reshape([width, rows]));
    }
    let saved = || OperationBackward { x: Saved::new(x.value()), w: Saved::new(w.value()), broken };
    Var::from_op(out, &[x, w], saved)
}

struct OperationBackward {
    x: Saved,
    w: Saved,
    broken: Break,
}

impl Backward for OperationBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let (x, w, broken) = (self.x.get(), self.w.get(), self.broken);
        gradients.write(0, |dx, write| {
            for (i, dx) in dx.iter_mut().enumerate() {
                let dout = if broken == Break::IgnoredGradient { 1.0 } else { dout.data()[i] };
                let one = dout * w.data()[i]; // 1
                let two = if broken == Break::DroppedTerm { 0.0 } else { dout }; // 2
                let sum = if broken == Break::FlippedSign { one - two } else { one + two };
                if broken == Break::ForgottenElement && i == 2 {
                    continue;
                }
                *dx = if write == Write::Add && broken != Break::Overwrites { *dx } else { 0.0 };
                *dx += sum;
            }
        });
        gradients.write(1, |dw, write| {
            for (i, dw) in dw.iter_mut().enumerate() {
                *dw = if write == Write::Add { *dw } else { 0.0 };
                *dw += dout.data()[i] * x.data()[i]; // 3
            }
        });
    }
}

const TOLERANCE: Tolerance = Tolerance { forward: 2e-7, backward: 2e-7, reason: "two roundings" };

fn check(broken: Break) -> Outcome {
    Case::new(
        "operation",
        format!("{broken:?}"),
        TOLERANCE,
        move |v| operation(&v[0], &v[1], broken),
        |a| a[0].zip(&a[1], |x, w| x * w + x),
    )
    .normal("x", [3, 5])
    .normal("w", [3, 5])
    .check()
}

/// There is at least one fault, and every fault begins with `what`.
#[track_caller]
fn assert_found(outcome: &Outcome, what: &str) {
    assert!(!outcome.faults.is_empty(), "nothing was found: {outcome:?}");
    for fault in &outcome.faults {
        assert!(fault.starts_with(what), "found something else: {fault}");
    }
}

#[test]
fn the_right_operation_passes() {
    let outcome = check(Break::Nothing);
    assert_eq!(outcome.faults, Vec::<String>::new());
    assert!(outcome.forward <= 2e-7 && outcome.worst_backward() <= 2e-7);
}

#[test]
fn a_wrong_forward_is_found() {
    assert_found(&check(Break::WrongForward), "forward is off by");
}

#[test]
fn a_flipped_sign_is_found() {
    assert_found(&check(Break::FlippedSign), "gradient of x is off by");
}

#[test]
fn a_dropped_term_is_found() {
    assert_found(&check(Break::DroppedTerm), "gradient of x is off by");
}

#[test]
fn an_ignored_incoming_gradient_is_found() {
    assert_found(&check(Break::IgnoredGradient), "gradient of x is off by");
}

#[test]
fn overwriting_instead_of_accumulating_is_found() {
    assert_found(&check(Break::Overwrites), "gradient of x is not added to what was there");
}

#[test]
fn a_missing_backward_is_found() {
    let outcome = check(Break::NoBackward);
    assert_found(&outcome, "gradient of ");
    assert_eq!(outcome.backward.iter().filter(|(_, error)| *error > 0.1).count(), 2);
}

#[test]
fn another_shape_is_found() {
    assert_found(&check(Break::OtherShape), "shape is (5, 3), the reference's is (3, 5)");
}

/// Fresh memory is filled with NaN under debug assertions, which tests have.
#[test]
#[cfg(debug_assertions)]
fn an_element_that_is_not_written_is_found() {
    assert_found(&check(Break::ForgottenElement), "gradient of x is");
}

/// A sum whose pieces are cut by the number of threads: right to rounding, but other bits.
fn sum(x: &Var, pieces: impl Fn() -> usize) -> Var {
    let data = x.value().data();
    let partial = |piece: &[f32]| piece.iter().sum::<f32>();
    let total: f32 = data.chunks(data.len().div_ceil(pieces())).map(partial).sum();
    let shape = x.shape();
    Var::from_op(Tensor::scalar(total), &[x], || SumBackward { shape })
}

struct SumBackward {
    shape: hearken_tensor::Shape,
}

impl Backward for SumBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        gradients.add(0, Tensor::full(self.shape, dout.item()));
    }
}

fn check_sum(pieces: impl Fn() -> usize + Send + Sync + Copy + 'static) -> Outcome {
    // 999 terms of both signs in one row: each addition is off by up to half an ulp of about 64.
    let tolerance = Tolerance { forward: 1e-4, backward: 2e-7, reason: "a plain sum of 999 terms" };
    Case::new(
        "sum",
        "of many",
        tolerance,
        move |v| sum(&v[0], pieces),
        |a| hearken_tensor::reference::Array::scalar(a[0].data.iter().sum()),
    )
    .normal("x", [999])
    .check()
}

#[test]
fn a_result_that_depends_on_the_number_of_threads_is_found() {
    assert_eq!(check_sum(|| 4).faults, Vec::<String>::new());
    assert_found(&check_sum(threads::count), "the value has other bits on");
}
