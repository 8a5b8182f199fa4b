//! Runs the cases of one operation and sums up what they show.

use hearken::tensor::gradcheck::Case;
use serde::Serialize;
use std::panic::{self, AssertUnwindSafe};
use std::time::Instant;

/// What the cases of one operation show.
#[derive(Serialize)]
pub(super) struct OpReport {
    pub(super) op: &'static str,
    pub(super) ok: bool,
    pub(super) seconds: f64,
    pub(super) forward: Worst,
    pub(super) backward: Worst,
    pub(super) accumulates: bool,
    pub(super) same_bits: bool,
    pub(super) cases: Vec<CaseReport>,
}

/// The error that comes nearest to its bound, or exceeds it most.
#[derive(Clone, Serialize)]
pub(super) struct Worst {
    pub(super) error: f64,
    pub(super) bound: f64,
    pub(super) case: String,
}

/// What one case shows.
#[derive(Serialize)]
pub(super) struct CaseReport {
    pub(super) case: String,
    pub(super) ok: bool,
    pub(super) forward: f64,
    pub(super) forward_bound: f64,
    pub(super) backward: Vec<InputError>,
    pub(super) backward_bound: f64,
    pub(super) bound_reason: &'static str,
    pub(super) accumulates: bool,
    pub(super) same_bits: bool,
    pub(super) faults: Vec<String>,
}

/// The error of the gradient of one input.
#[derive(Serialize)]
pub(super) struct InputError {
    pub(super) input: &'static str,
    pub(super) error: f64,
}

impl CaseReport {
    /// The largest error among the gradients.
    pub(super) fn worst_backward(&self) -> f64 {
        self.backward.iter().map(|input| input.error).fold(0.0, |a: f64, b| {
            if a.is_nan() || b <= a { a } else { b } // NaN is the worst of all
        })
    }
}

/// Runs the cases of `op`. An operation that panics is off; it does not end the run.
pub(super) fn check(op: &'static str, cases: &[Case]) -> OpReport {
    let start = Instant::now();
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {})); // the message goes into the report
    let cases: Vec<CaseReport> = cases.iter().map(check_case).collect();
    panic::set_hook(hook);
    OpReport {
        op,
        ok: cases.iter().all(|case| case.ok),
        seconds: start.elapsed().as_secs_f64(),
        forward: worst(cases.iter().map(|c| (c, c.forward, c.forward_bound))),
        backward: worst(cases.iter().map(|c| (c, c.worst_backward(), c.backward_bound))),
        accumulates: cases.iter().all(|case| case.accumulates),
        same_bits: cases.iter().all(|case| case.same_bits),
        cases,
    }
}

fn check_case(case: &Case) -> CaseReport {
    let mut report = CaseReport {
        case: case.name.clone(),
        ok: false,
        forward: f64::NAN,
        forward_bound: case.tolerance.forward,
        backward: Vec::new(),
        backward_bound: case.tolerance.backward,
        bound_reason: case.tolerance.reason,
        accumulates: false,
        same_bits: false,
        faults: Vec::new(),
    };
    match panic::catch_unwind(AssertUnwindSafe(|| case.check())) {
        Ok(outcome) => {
            report.ok = outcome.faults.is_empty();
            report.forward = outcome.forward;
            report.backward = outcome
                .backward
                .iter()
                .map(|&(input, error)| InputError { input, error })
                .collect();
            report.accumulates = outcome.accumulates;
            report.same_bits = outcome.same_bits;
            report.faults = outcome.faults;
        }
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
            report.faults.push(format!("panicked: {}", text.unwrap_or("without a message")));
        }
    }
    report
}

fn worst<'a>(errors: impl Iterator<Item = (&'a CaseReport, f64, f64)>) -> Worst {
    // How much of its bound an error takes; NaN takes more than any number.
    let strain = |error: f64, bound: f64| match error / bound {
        _ if error == 0.0 => 0.0,
        share if share.is_nan() => f64::INFINITY,
        share => share,
    };
    let (case, error, bound) = errors
        .max_by(|a, b| strain(a.1, a.2).total_cmp(&strain(b.1, b.2)))
        .expect("every operation has cases");
    Worst { error, bound, case: case.case.clone() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use hearken::tensor::gradcheck::Tolerance;
    use hearken::tensor::{Backward, Gradients, Tensor, Var};

    /// `2x` whose gradient is `slope · dout`.
    fn double(slope: f32) -> impl Fn(&[Var]) -> Var + Send + Sync + 'static {
        struct Slope(f32);
        impl Backward for Slope {
            fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
                let dx: Vec<f32> = dout.data().iter().map(|d| d * self.0).collect();
                gradients.add(0, Tensor::new(dout.shape(), &dx));
            }
        }
        move |inputs| {
            let x = inputs[0].value();
            let out: Vec<f32> = x.data().iter().map(|x| 2.0 * x).collect();
            Var::from_op(Tensor::new(x.shape(), &out), &[&inputs[0]], || Slope(slope))
        }
    }

    /// A case of an operation `double` with this slope.
    pub(in super::super) fn case(name: &str, slope: f32) -> Case {
        let tolerance = Tolerance { forward: 1e-6, backward: 1e-6, reason: "one rounding" };
        Case::new("double", name, tolerance, double(slope), |inputs| {
            let mut out = inputs[0].clone();
            out.data.iter_mut().for_each(|x| *x *= 2.0);
            out
        })
        .normal("x", [3, 4])
    }

    #[test]
    fn a_right_operation_is_ok() {
        let report = check("double", &[case("right", 2.0)]);
        assert!(report.ok && report.accumulates && report.same_bits);
        assert!(report.backward.error <= report.backward.bound);
    }

    #[test]
    fn a_wrong_gradient_is_named_and_the_rest_still_checked() {
        let report = check("double", &[case("wrong", 1.5), case("right", 2.0)]);
        assert!(!report.ok);
        assert_eq!(report.backward.case, "wrong");
        assert!(report.backward.error > 1e-2);
        assert!(report.forward.error <= report.forward.bound);
        assert!(report.cases[0].faults[0].starts_with("gradient of x is off by"));
        assert!(report.cases[1].ok);
    }

    #[test]
    fn an_operation_that_panics_is_off_and_does_not_end_the_run() {
        let tolerance = Tolerance { forward: 1e-6, backward: 1e-6, reason: "none" };
        let panics =
            Case::new("double", "panics", tolerance, |_| panic!("no luck"), |x| x[0].clone());
        let report = check("double", &[panics.normal("x", [2]), case("right", 2.0)]);
        assert!(!report.ok && report.forward.error.is_nan());
        assert_eq!(report.cases[0].faults, ["panicked: no luck"]);
        assert!(report.cases[1].ok);
    }
}
