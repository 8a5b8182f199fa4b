//! Checks that an operation is right, on the machine it runs on.
//!
//! A [`Case`] is an operation on given inputs with its f64 reference. [`Case::check`] measures
//!
//! - the forward error against the reference;
//! - the backward error: for `φ(x) = Σₖ wₖ·out(x)ₖ` with fixed weights `w`, all different and of
//!   both signs, the gradient that the operation gives for `dout = w` against central differences
//!   of the *reference* in f64, `φ'(x) ≈ (φ(x+h) − φ(x−h)) / 2h`, so that the measured error is
//!   the operation's f32 rounding and not the step's: with h = 10⁻⁴ and four points the
//!   differences themselves are good to about 10⁻¹¹. Weights that differ show an operation that
//!   ignores its incoming gradient;
//! - accumulation: with a gradient already there, the result must be their sum;
//! - determinism: forward and backward must give the same bits on 1, 2, 3 and 4 threads.
//!
//! An error is measured as the largest `|got − want| / (|want| + rms(want))`: relative for large
//! numbers, and for small ones relative to the typical size, below which f32 sums cannot go.
//!
//! To check an operation of your own, see `examples/own_op.rs` of the repository, and
//! `docs/guide/own-op.md`. That the checker finds what is broken is tested in `tests/checker.rs`.

use crate::graph::Var;
use crate::reference::Array;
use crate::rng::Rng;
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::threads::with_threads;

type Forward = Box<dyn Fn(&[Var]) -> Var + Send + Sync>;
type Reference = Box<dyn Fn(&[Array]) -> Array + Send + Sync>;

/// How far f32 may be from the reference, and why that far.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Bound on the error of the value.
    pub forward: f64,
    /// Bound on the error of every gradient.
    pub backward: f64,
    /// The reason for these numbers.
    pub reason: &'static str,
}

/// An operation on given inputs, with everything needed to check it.
pub struct Case {
    /// The operation, by the name of its file.
    pub op: &'static str,
    /// What is particular about this case.
    pub name: String,
    /// Inputs whose gradients are checked, by name.
    pub inputs: Vec<(&'static str, Tensor)>,
    /// Constants that the PyTorch expression needs (ids, masks), by name.
    pub extras: Vec<(&'static str, Array)>,
    /// The same computation as a Python expression over the names above, for the fixtures.
    pub torch: String,
    /// Bounds.
    pub tolerance: Tolerance,
    forward: Forward,
    reference: Reference,
}

/// What [`Case::check`] has measured.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Error of the value.
    pub forward: f64,
    /// Error of the gradient of each input, by name.
    pub backward: Vec<(&'static str, f64)>,
    /// Is a gradient added to what was there?
    pub accumulates: bool,
    /// Are the bits the same on 1, 2, 3 and 4 threads?
    pub same_bits: bool,
    /// What is wrong, in words; empty if all is well.
    pub faults: Vec<String>,
}

impl Outcome {
    /// The largest backward error.
    pub fn worst_backward(&self) -> f64 {
        self.backward.iter().map(|(_, e)| *e).fold(0.0, larger)
    }
}

/// The larger error, where NaN counts as larger than anything.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b <= a { a } else { b }
}

impl Case {
    /// Describes a case; [`Case::input`], [`Case::extra`] and [`Case::torch`] complete it.
    pub fn new(
        op: &'static str,
        name: impl Into<String>,
        tolerance: Tolerance,
        forward: impl Fn(&[Var]) -> Var + Send + Sync + 'static,
        reference: impl Fn(&[Array]) -> Array + Send + Sync + 'static,
    ) -> Self {
        Self {
            op,
            name: name.into(),
            inputs: Vec::new(),
            extras: Vec::new(),
            torch: String::new(),
            tolerance,
            forward: Box::new(forward),
            reference: Box::new(reference),
        }
    }

    /// Adds an input, in the order in which forward and reference get them.
    pub fn input(mut self, name: &'static str, value: Tensor) -> Self {
        self.inputs.push((name, value));
        self
    }

    /// Adds an input of normal random numbers, which depend on its name and position alone.
    pub fn normal(self, name: &'static str, shape: impl Into<Shape>) -> Self {
        let seed = name.bytes().fold(self.inputs.len() as u64, |h, b| h * 257 + u64::from(b));
        let value = Rng::new(seed).normal(shape, 1.0);
        self.input(name, value)
    }

    /// Adds a constant for the PyTorch expression.
    pub fn extra(mut self, name: &'static str, value: Array) -> Self {
        self.extras.push((name, value));
        self
    }

    /// Sets the PyTorch expression.
    pub fn torch(mut self, expression: impl Into<String>) -> Self {
        self.torch = expression.into();
        self
    }

    /// `op/name`
    pub fn id(&self) -> String {
        format!("{}/{}", self.op, self.name)
    }

    /// The incoming gradient of the check: different numbers of both signs, none near zero.
    pub fn dout(&self, shape: Shape) -> Tensor {
        let mut w = Rng::new(0xd007).uniform(shape, 0.5, 1.5);
        for (i, w) in w.data_mut().iter_mut().enumerate() {
            if i % 3 == 1 {
                *w = -*w;
            }
        }
        w
    }

    /// A hash of everything that a PyTorch fixture of this case was made from: the id, the
    /// expression, and the numbers that go in. Another hash says that the fixture is stale.
    pub fn fingerprint(&self) -> String {
        // FNV-1a (Fowler, Noll and Vo): not secure, but no accident goes unseen.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut feed = |bytes: &[u8]| {
            for &byte in bytes {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        feed(self.id().as_bytes());
        feed(self.torch.as_bytes());
        let mut arrays: Vec<(&str, Array)> =
            self.inputs.iter().map(|(name, x)| (*name, Array::from(x))).collect();
        arrays.extend(self.extras.iter().map(|(name, x)| (*name, x.clone())));
        arrays.push(("dout", Array::from(&self.dout(self.run_reference().shape))));
        for (name, array) in arrays {
            feed(name.as_bytes());
            feed(array.shape.to_string().as_bytes());
            array.data.iter().for_each(|x| feed(&x.to_bits().to_le_bytes()));
        }
        format!("{hash:016x}")
    }

    /// Runs the operation once; gives the value and the gradients for [`Case::dout`], starting
    /// from `start` in every gradient if given.
    pub fn run(&self, start: Option<f32>) -> (Tensor, Vec<Tensor>) {
        let leaves: Vec<Var> = self.inputs.iter().map(|(_, x)| Var::leaf(x.clone())).collect();
        if let Some(start) = start {
            for x in &leaves {
                x.set_gradient(Some(Tensor::full(x.shape(), start)));
            }
        }
        let out = (self.forward)(&leaves);
        out.backward_with(self.dout(out.shape()));
        let gradients = leaves.iter().map(|x| {
            x.take_gradient().unwrap_or_else(|| Tensor::zeros(x.shape())) // none came: zero
        });
        (out.value().clone(), gradients.collect())
    }

    /// The reference's value.
    pub fn run_reference(&self) -> Array {
        let inputs: Vec<Array> = self.inputs.iter().map(|(_, x)| Array::from(x)).collect();
        (self.reference)(&inputs)
    }

    /// Measures everything; see the module's text.
    pub fn check(&self) -> Outcome {
        let (value, gradients) = with_threads(1, || self.run(None));
        let want = self.run_reference();
        let mut faults = Vec::new();
        if want.shape != value.shape() {
            faults.push(format!("shape is {}, the reference's is {}", value.shape(), want.shape));
            return Outcome {
                forward: f64::INFINITY,
                backward: Vec::new(),
                accumulates: false,
                same_bits: false,
                faults,
            };
        }
        let forward = error(value.data(), &want.data);
        self.judge(&mut faults, "forward", forward, self.tolerance.forward);

        let mut backward = Vec::new();
        for (i, (name, _)) in self.inputs.iter().enumerate() {
            let error = self.gradient_error(i, &gradients[i], want.shape);
            self.judge(&mut faults, &format!("gradient of {name}"), error, self.tolerance.backward);
            backward.push((*name, error));
        }
        let so_far = faults.len();
        self.check_accumulation(&gradients, &mut faults);
        let accumulates = faults.len() == so_far;
        let so_far = faults.len();
        self.check_threads(&value, &gradients, &mut faults);
        let same_bits = faults.len() == so_far;
        Outcome { forward, backward, accumulates, same_bits, faults }
    }

    fn judge(&self, faults: &mut Vec<String>, what: &str, error: f64, bound: f64) {
        if error.is_nan() || error > bound {
            faults.push(format!(
                "{what} is off by {error:.2e}, more than {bound:.0e} ({})",
                self.tolerance.reason
            ));
        }
    }

    /// The error of the gradient of input `i` against differences of the reference: all elements
    /// of a small input; of a large one a sample, and all at once along random directions.
    fn gradient_error(&self, i: usize, got: &Tensor, out: Shape) -> f64 {
        const ALL: usize = 128;
        const SAMPLE: usize = 48;
        const DIRECTIONS: usize = 3;
        const H: f64 = 1e-4;
        let inputs: Vec<Array> = self.inputs.iter().map(|(_, x)| Array::from(x)).collect();
        let weights = self.dout(out);
        let len = got.shape().len();
        if len == 0 {
            return 0.0;
        }
        // dφ/dε at ε = 0 of the reference at x + ε·direction.
        let slope = |direction: &dyn Fn(usize) -> f64| {
            let phi = |step: f64| {
                let mut moved = inputs.clone();
                for (j, x) in moved[i].data.iter_mut().enumerate() {
                    *x += step * direction(j);
                }
                let out = (self.reference)(&moved);
                out.data.iter().zip(weights.data()).map(|(y, w)| y * f64::from(*w)).sum::<f64>()
            };
            // Richardson: the h² terms of the two differences cancel.
            (8.0 * (phi(H) - phi(-H)) - (phi(2.0 * H) - phi(-2.0 * H))) / (12.0 * H)
        };
        let mut rng = Rng::new(i as u64 + 77);
        let picked: Vec<usize> = if len <= ALL {
            (0..len).collect()
        } else {
            (0..SAMPLE).map(|_| rng.below(len)).collect()
        };
        let want: Vec<f64> =
            picked.iter().map(|&at| slope(&|j| if j == at { 1.0 } else { 0.0 })).collect();
        let sampled: Vec<f32> = picked.iter().map(|&at| got.data()[at]).collect();
        let mut worst = error(&sampled, &want);
        if len > ALL {
            // Along a direction of ±1 the f32 errors of n elements add up to √n of one.
            let size = (got.data().iter().map(|g| f64::from(*g).powi(2)).sum::<f64>()).sqrt();
            for _ in 0..DIRECTIONS {
                let signs: Vec<f64> =
                    (0..len).map(|_| if rng.below(2) == 0 { 1.0 } else { -1.0 }).collect();
                let along: f64 =
                    got.data().iter().zip(&signs).map(|(g, s)| f64::from(*g) * s).sum();
                let want = slope(&|j| signs[j]);
                worst = larger(worst, (along - want).abs() / (want.abs() + size));
            }
        }
        worst
    }

    fn check_accumulation(&self, alone: &[Tensor], faults: &mut Vec<String>) {
        const START: f32 = 3.0;
        let (_, gradients) = with_threads(1, || self.run(Some(START)));
        for ((name, _), (sum, alone)) in self.inputs.iter().zip(gradients.iter().zip(alone)) {
            for (s, a) in sum.data().iter().zip(alone.data()) {
                // One rounding of the sum, or of each part of it where an operation adds its
                // gradient in several pieces.
                let bound = 32.0 * f32::EPSILON * (START + a.abs());
                if (s - (a + START)).abs() > bound || s.is_nan() != a.is_nan() {
                    faults.push(format!(
                        "gradient of {name} is not added to what was there: {s} instead of {}",
                        a + START
                    ));
                    break;
                }
            }
        }
    }

    fn check_threads(&self, value: &Tensor, gradients: &[Tensor], faults: &mut Vec<String>) {
        let bits = |x: &Tensor| x.data().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for threads in [2, 3, 4] {
            let (other, others) = with_threads(threads, || self.run(None));
            if bits(&other) != bits(value) {
                faults.push(format!("the value has other bits on {threads} threads than on 1"));
            }
            for ((name, _), (a, b)) in self.inputs.iter().zip(gradients.iter().zip(&others)) {
                if bits(a) != bits(b) {
                    faults.push(format!("gradient of {name} has other bits on {threads} threads"));
                }
            }
        }
    }
}

/// The largest `|got − want| / (|want| + rms(want))`; NaN if any number is, unless both are.
pub fn error(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len(), "lengths differ: {} and {}", got.len(), want.len());
    let finite = || want.iter().filter(|w| w.is_finite());
    let rms = (finite().map(|w| w * w).sum::<f64>() / finite().count().max(1) as f64).sqrt();
    let mut worst = 0.0;
    for (g, w) in got.iter().map(|&g| f64::from(g)).zip(want.iter().copied()) {
        let same = g == w || (g.is_nan() && w.is_nan());
        let one = if same { 0.0 } else { (g - w).abs() / (w.abs() + rms + f64::MIN_POSITIVE) };
        worst = larger(worst, one);
    }
    worst
}

/// Runs [`Case::check`] on every case and panics with all faults: for tests.
pub fn assert_all(cases: &[Case]) {
    assert!(!cases.is_empty(), "an operation without cases is not checked");
    let mut faults = Vec::new();
    for case in cases {
        faults.extend(case.check().faults.into_iter().map(|f| format!("{}: {f}", case.id())));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
