//! `out = f(x·Wᵀ + b) + r`: every row of `x` through one matrix, (…, Cin) → (…, Cout), with or
//! without bias and activation, and perhaps added to what goes past it, a residual connection.
//!
//! With rows `n` and `preₙⱼ = Σₖ xₙₖ Wⱼₖ + bⱼ`,
//! 1. `dpre = dout · slope`, `slope = f′(pre)`; without an activation, `dpre = dout`
//! 2. `dxₙₖ = Σⱼ dpreₙⱼ Wⱼₖ`, that is `dx = dpre·W`
//! 3. `dWⱼₖ = Σₙ dpreₙⱼ xₙₖ`, that is `dW = dpreᵀ·x`
//! 4. `dbⱼ = Σₙ dpreₙⱼ`
//! 5. `dr = dout`
//!
//! Saves a handle to `W`, `x` if `W` learns, and with an activation `slope`, which shares most of
//! its work with f (both in the storage of the moment). `W` is stored (Cout, Cin), as in PyTorch.
//! Bias, activation and addition are done while a row of the product is in cache.

use super::activations;
use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var, is_recording};
use crate::half::{Saved, Weight};
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::activation::Activation;
use hearken_kernels::gemm::{Epilogue, Matrix, gemm};
use hearken_kernels::{Write, elementwise};

/// `x·Wᵀ + b`; `weight` is a [`Var`] or a 16-bit [`Weight`].
pub fn linear(x: &Var, weight: impl Into<Weight>, bias: Option<&Var>) -> Var {
    forward(x, &weight.into(), bias, None, None)
}

/// `x·Wᵀ + b + r`, in one pass.
pub fn linear_onto(
    x: &Var,
    weight: impl Into<Weight>,
    bias: Option<&Var>,
    residual: Option<&Var>,
) -> Var {
    forward(x, &weight.into(), bias, None, residual)
}

/// `f(x·Wᵀ + b)`
pub fn linear_activation(
    x: &Var,
    weight: impl Into<Weight>,
    bias: Option<&Var>,
    f: Activation,
) -> Var {
    forward(x, &weight.into(), bias, Some(f), None)
}

fn forward(
    x: &Var,
    weight: &Weight,
    bias: Option<&Var>,
    f: Option<Activation>,
    residual: Option<&Var>,
) -> Var {
    let shape = x.shape();
    let dims = weight.shape();
    assert!(
        dims.rank() == 2 && shape.rank() > 0 && shape.width() == dims.width(),
        "a weight of shape {dims} does not fit an input of shape {shape}"
    );
    let outputs = dims.rows(); // Cout
    if let Some(bias) = bias {
        assert_eq!(bias.shape().dims(), [outputs], "the bias of a {dims} weight");
    }
    if let Some(residual) = residual {
        assert_eq!(residual.shape(), shape.with_width(outputs), "what a {dims} product is added to");
    }
    let mut inputs = vec![x, weight.master()];
    inputs.extend(bias);
    inputs.extend(residual);
    let differentiates = is_recording() && inputs.iter().any(|input| input.wants_gradient());

    let mut out = Tensor::unset(shape.with_width(outputs)); // (…, Cout)
    let mut slope = (f.is_some() && differentiates).then(|| Tensor::unset(out.shape()));
    let (product, activated) = match &mut slope {
        Some(slope) => (slope.data_mut(), Some(out.data_mut())),
        None => (out.data_mut(), None),
    };
    gemm(
        Matrix::new(x.value().data(), shape.rows(), shape.width()),
        weight.stored().matrix().transposed(),
        product,
        outputs,
        Write::Set,
        Epilogue {
            bias: bias.map(|b| b.value().data()),
            activation: f,
            activated,
            residual: residual.map(|r| r.value().data()),
            ..Epilogue::default()
        },
    );
    Var::from_op(out, &inputs, || LinearBackward {
        x: weight.master().wants_gradient().then(|| Saved::new(x.value())),
        weight: weight.stored().clone(),
        has_bias: bias.is_some(),
        has_residual: residual.is_some(),
        slope: slope.map(|slope| Saved::new(&slope)),
    })
}

struct LinearBackward {
    x: Option<Saved>,
    weight: Saved,
    has_bias: bool,
    has_residual: bool,
    slope: Option<Saved>,
}

impl Backward for LinearBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        if self.has_residual {
            gradients.add(2 + usize::from(self.has_bias), dout.clone()); // 5
        }
        let mut dpre = dout;
        if let Some(slope) = self.slope {
            elementwise::mul_assign(dpre.data_mut(), slope.get().data()); // 1
        }
        let inputs = self.weight.shape().width(); // Cin
        let dpre_matrix = Matrix::new(dpre.data(), dpre.shape().rows(), dpre.shape().width());
        gradients.write(0, |dx, write| {
            gemm(dpre_matrix, self.weight.matrix(), dx, inputs, write, Epilogue::default()); // 2
        });
        if let Some(x) = self.x {
            let (dpre, x) = (dpre_matrix.transposed(), x.matrix());
            gradients.write(1, |dw, write| {
                gemm(dpre, x, dw, inputs, write, Epilogue::default()); // 3
            });
        }
        if self.has_bias {
            gradients.write(2, |db, write| elementwise::column_sums(dpre.data(), db, write)); // 4
        }
    }
}

/// In f64; `inputs` are x, W and perhaps b.
pub(super) fn reference(inputs: &[Array]) -> Array {
    let (x, w) = (&inputs[0], &inputs[1]);
    let outputs = w.shape.rows();
    Array::build(x.shape.with_width(outputs), |i| {
        let (n, j) = (i / outputs, i % outputs);
        let dot: f64 = x.row(n).iter().zip(w.row(j)).map(|(a, b)| a * b).sum();
        dot + inputs.get(2).map_or(0.0, |b| b.data[j])
    })
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 2e-6,
        backward: 2e-6,
        reason: "dot products of up to 130 terms of both signs: about √130 roundings of 6e-8",
    };
    let case = |name, x: &[usize], outputs: usize, bias: bool| {
        let inputs = *x.last().expect("a case has dimensions");
        let forward = |v: &[Var]| linear(&v[0], &v[1], v.get(2));
        let case = Case::new("linear", name, tolerance, forward, reference)
            .normal("x", x)
            .normal("w", [outputs, inputs]);
        if bias {
            case.normal("b", [outputs]).torch("F.linear(x, w, b)")
        } else {
            case.torch("F.linear(x, w)")
        }
    };
    // Added to what goes past, the last of the inputs.
    let onto = |name, bias: bool, torch| {
        let forward = |v: &[Var]| {
            let (residual, v) = v.split_last().expect("a case has inputs");
            linear_onto(&v[0], &v[1], v.get(2), Some(residual))
        };
        let sum = |a: &[Array]| {
            let (residual, a) = a.split_last().expect("a case has inputs");
            let product = reference(a);
            Array::build(product.shape, |i| product.data[i] + residual.data[i])
        };
        let case = Case::new("linear", name, tolerance, forward, sum)
            .normal("x", [2, 3, 10])
            .normal("w", [19, 10])
            .torch(torch);
        let case = if bias { case.normal("b", [19]) } else { case };
        case.normal("r", [2, 3, 19])
    };
    // The slope of f passes the error of the sum on, on top of its own.
    let activated = |f: Activation, name: &str, x: &[usize], outputs: usize, torch| {
        let inputs = *x.last().expect("a case has dimensions");
        let forward = move |v: &[Var]| linear_activation(&v[0], &v[1], v.get(2), f);
        let reference = move |a: &[Array]| reference(a).map(|x| activations::reference(f, x));
        let own = activations::TOLERANCE;
        let tolerance = Tolerance {
            forward: tolerance.forward + own.forward,
            backward: tolerance.backward + own.backward,
            reason: "the product's tolerance and the activation's",
        };
        Case::new("linear", name, tolerance, forward, reference)
            .normal("x", x)
            .normal("w", [outputs, inputs])
            .normal("b", [outputs])
            .torch(torch)
    };
    vec![
        onto("onto", false, "F.linear(x, w) + r"),
        onto("bias_onto", true, "F.linear(x, w, b) + r"),
        activated(Activation::Relu, "relu", &[5, 4], 7, "F.relu(F.linear(x, w, b))"),
        activated(
            Activation::SquaredRelu,
            "squared_relu",
            &[5, 4],
            7,
            "F.relu(F.linear(x, w, b))**2",
        ),
        activated(Activation::Gelu, "gelu", &[2, 3, 17], 9, "F.gelu(F.linear(x, w, b))"),
        activated(
            Activation::GeluTanh,
            "gelu_tanh",
            &[70, 9],
            35,
            "F.gelu(F.linear(x, w, b), approximate='tanh')",
        ),
        activated(Activation::Silu, "silu", &[1, 33], 65, "F.silu(F.linear(x, w, b))"),
        case("plain", &[3, 5], 4, false),
        case("bias", &[2, 3, 17], 9, true),
        case("one_row", &[1, 33], 65, true),
        case("many_rows", &[130, 37], 29, true),
        case("narrow", &[7, 1], 1, true),
        // 130 · 64 · 96 multiply-adds: enough for the threads to share.
        case("shared", &[130, 96], 64, true),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half::{HalfTensor, Storage, with_storage};
    use crate::rng::Rng;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    #[should_panic(expected = "a weight of shape (4, 3) does not fit an input of shape (2, 5)")]
    fn shapes_must_fit() {
        let (x, w) = (Tensor::zeros([2, 5]), Tensor::zeros([4, 3]));
        let _ = linear(&Var::constant(x), &Var::constant(w), None);
    }

    #[test]
    fn no_rows_give_no_rows_and_zero_gradients() {
        let x = Var::leaf(Tensor::zeros([0, 3]));
        let w = Var::leaf(Tensor::full([2, 3], 1.0));
        let out = linear(&x, &w, None);
        assert_eq!(out.shape().dims(), [0, 2]);
        out.sum().backward();
        assert_eq!(w.gradient().unwrap().data(), &[0.0; 6]);
    }

    #[test]
    fn an_activation_in_the_product_has_the_bits_of_one_after_it() {
        for f in Activation::ALL {
            let run = |fused: bool| {
                let x = Var::leaf(Rng::new(1).normal([9, 20], 1.0));
                let w = Var::leaf(Rng::new(2).normal([35, 20], 1.0));
                let b = Var::leaf(Rng::new(3).normal([35], 1.0));
                let out = if fused {
                    linear_activation(&x, &w, Some(&b), f)
                } else {
                    activations::activate(linear(&x, &w, Some(&b)), f)
                };
                out.backward_with(Rng::new(4).normal([9, 35], 1.0));
                let gradients = [x, w, b].map(|x| x.gradient().unwrap().data().to_vec());
                (out.value().data().to_vec(), gradients)
            };
            assert_eq!(run(true), run(false), "{f:?}");
        }
    }

    #[test]
    fn a_weight_that_does_not_learn_still_passes_the_gradient_on() {
        let x = Var::leaf(Tensor::new([1, 2], &[1.0, 2.0]));
        let w = Var::constant(Tensor::new([2, 2], &[1.0, 2.0, 3.0, 4.0]));
        linear(&x, &w, None).sum().backward();
        assert_eq!(x.gradient().unwrap().data(), &[4.0, 6.0]);
        assert!(w.gradient().is_none());
    }

    #[test]
    fn sixteen_bit_storage_changes_results_by_its_rounding_only() {
        let (x, w) = (Rng::new(1).normal([5, 40], 1.0), Rng::new(2).normal([7, 40], 1.0));
        let run = |storage| {
            let (x, w) = (Var::leaf(x.clone()), Var::leaf(w.clone()));
            let weight = match storage {
                Storage::F32 => Weight::from(&w),
                _ => Weight::rounded(HalfTensor::new(w.value(), storage), w.clone()),
            };
            let out = with_storage(storage, || linear(&x, weight, None));
            out.backward_with(Rng::new(3).normal([5, 7], 1.0));
            [out.value().clone(), x.gradient().unwrap(), w.gradient().unwrap()]
        };
        let exact = run(Storage::F32).map(|t| Array::from(&t).data);
        // A factor is off by at most half of its last bit, 2⁻⁹ or 2⁻¹² of itself, and so is a
        // product; the errors of a sum have both signs and stay below twice that.
        for (storage, bits) in [(Storage::Bf16, 8), (Storage::F16, 11)] {
            for (got, want) in run(storage).iter().zip(&exact) {
                let error = crate::gradcheck::error(got.data(), want);
                assert!(error < 2.0_f64.powi(-bits) && error > 0.0, "{storage:?}: {error}");
            }
        }
    }
}
