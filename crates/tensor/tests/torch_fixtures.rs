//! Every case of the registry against what PyTorch computes in float64, forward and backward,
//! within the tolerance that stands beside the operation.

use hearken_tensor::gradcheck::{Case, error};
use hearken_tensor::{Tensor, ops};
use serde_json::Value;
use std::collections::BTreeSet;

const REMAKE: &str = "run `python crates/tensor/tests/fixtures/make.py`";

/// Nine significant digits in the file are off by at most half of the last: 5·10⁻⁹ of 1.00000000.
const DIGITS: f64 = 5e-9;

fn fixtures() -> Value {
    let text = include_str!("fixtures/torch.json");
    serde_json::from_str(text).unwrap_or_else(|e| panic!("torch.json is broken ({e}): {REMAKE}"))
}

#[test]
fn every_case_agrees_with_pytorch() {
    let fixtures = fixtures();
    let mut faults = Vec::new();
    for case in ops::registry() {
        let fixture = &fixtures["cases"][case.id()];
        if fixture.is_null() {
            faults.push(format!("{}: no fixture; {REMAKE}", case.id()));
        } else if fixture["fingerprint"].as_str() != Some(&case.fingerprint()) {
            faults.push(format!("{}: the fixture is of other inputs; {REMAKE}", case.id()));
        } else {
            compare(&case, fixture, &mut faults);
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn no_fixture_is_left_over() {
    let known: BTreeSet<String> = ops::registry().iter().map(Case::id).collect();
    for id in fixtures()["cases"].as_object().expect("an object").keys() {
        assert!(known.contains(id), "{id} is no longer a case; {REMAKE}");
    }
}

#[test]
fn a_wrong_number_is_noticed() {
    // Long enough to be stored as a sample: 1, …, 200 with one number off, on and off the sample.
    let mut numbers: Vec<f32> = (1..=200).map(|i| i as f32).collect();
    let exact: Vec<f64> = numbers.iter().map(|&x| f64::from(x)).collect();
    let signed = |i: usize| if (i / 3).is_multiple_of(2) { exact[i] } else { -exact[i] };
    let array = serde_json::json!({
        "step": 4,
        "data": exact.iter().step_by(4).collect::<Vec<_>>(),
        "sum": (0..200).map(signed).sum::<f64>(),
        "norm": exact.iter().map(|x| x * x).sum::<f64>().sqrt(),
    });
    assert_eq!(difference(&Tensor::new([200], &numbers), &array), 0.0);
    for wrong in [4, 6] {
        numbers[wrong] += 0.5;
        assert!(difference(&Tensor::new([200], &numbers), &array) > 1e-4);
        numbers[wrong] -= 0.5;
    }
}

fn compare(case: &Case, fixture: &Value, faults: &mut Vec<String>) {
    let (value, gradients) = case.run(None);
    let mut judge = |what: &str, error: f64, bound: f64| {
        if error.is_nan() || error > bound + DIGITS {
            let reason = case.tolerance.reason;
            faults.push(format!(
                "{}: {what} differs from PyTorch's by {error:.2e}, more than {bound:.0e} ({reason})",
                case.id()
            ));
        }
    };
    judge("the value", difference(&value, &fixture["out"]), case.tolerance.forward);
    for ((name, _), gradient) in case.inputs.iter().zip(&gradients) {
        let error = difference(gradient, &fixture["gradients"][*name]);
        judge(&format!("the gradient of {name}"), error, case.tolerance.backward);
    }
}

/// How far `got` is from a stored array (see `stored` in make.py), in the measure of
/// [`error`]; for what is not in the sample, by the checksums.
fn difference(got: &Tensor, stored: &Value) -> f64 {
    let step = stored["step"].as_u64().expect("a step") as usize;
    let want: Vec<f64> = stored["data"].as_array().expect("numbers").iter().map(number).collect();
    let sampled: Vec<f32> = got.data().iter().copied().step_by(step).collect();
    if sampled.len() != want.len() {
        return f64::INFINITY;
    }
    let of_sample = error(&sampled, &want);
    if step == 1 {
        return of_sample;
    }
    let (want, norm) = (number(&stored["sum"]), number(&stored["norm"]));
    let signed = |(i, &x): (usize, &f32)| f64::from(x) * [1.0, -1.0][(i / 3) % 2];
    let sum: f64 = got.data().iter().enumerate().map(signed).sum();
    let got_norm = got.data().iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    // The errors of n elements have both signs and add up to √n of one, as their norm does.
    let tiny = f64::MIN_POSITIVE;
    let of_sum = (sum - want).abs() / (want.abs() + norm + tiny);
    let of_norm = (got_norm - norm).abs() / (norm + tiny);
    [of_sample, of_sum, of_norm]
        .into_iter()
        .fold(0.0, |a, b| if a.is_nan() || b <= a { a } else { b })
}

fn number(value: &Value) -> f64 {
    let text = || value.as_str().and_then(|s| s.parse().ok());
    value.as_f64().or_else(text).unwrap_or_else(|| panic!("{value} is not a number"))
}
