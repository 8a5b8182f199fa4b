//! `out = x·Wᵀ + b`: every row of `x` through one matrix, (…, Cin) → (…, Cout).
//!
//! With rows `n`, `outₙⱼ = Σₖ xₙₖ Wⱼₖ + bⱼ`, so
//! 1. `dxₙₖ = Σⱼ doutₙⱼ Wⱼₖ`, that is `dx = dout·W`
//! 2. `dWⱼₖ = Σₙ doutₙⱼ xₙₖ`, that is `dW = doutᵀ·x`
//! 3. `dbⱼ = Σₙ doutₙⱼ`
//!
//! Saves `x` (in the storage of the moment) and a handle to `W`. `W` is stored (Cout, Cin), as in
//! PyTorch.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::{Saved, Weight};
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::gemm::{Epilogue, Matrix, gemm};
use hearken_kernels::{Write, elementwise};

/// `x·Wᵀ + b`; `weight` is a [`Var`] or a 16-bit [`Weight`].
pub fn linear(x: &Var, weight: impl Into<Weight>, bias: Option<&Var>) -> Var {
    let weight = weight.into();
    let shape = x.shape();
    let dims = weight.shape();
    assert!(
        dims.rank() == 2 && shape.rank() > 0 && shape.width() == dims.width(),
        "a weight of shape {dims} does not fit an input of shape {shape}"
    );
    let wide = dims.rows(); // Cout
    if let Some(bias) = bias {
        assert_eq!(bias.shape().dims(), [wide], "the bias of a {dims} weight");
    }
    let mut out = Tensor::unset(shape.with_width(wide)); // (…, Cout)
    gemm(
        Matrix::new(x.value().data(), shape.rows(), shape.width()),
        weight.stored().matrix().transposed(),
        out.data_mut(),
        wide,
        Write::Set,
        Epilogue { bias: bias.map(|b| b.value().data()), ..Epilogue::default() },
    );
    let mut inputs = vec![x, weight.master()];
    inputs.extend(bias);
    Var::from_op(out, &inputs, || LinearBackward {
        x: Saved::new(x.value()),
        weight: weight.stored().clone(),
        has_bias: bias.is_some(),
    })
}

struct LinearBackward {
    x: Saved,
    weight: Saved,
    has_bias: bool,
}

impl Backward for LinearBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let (rows, wide) = (dout.shape().rows(), dout.shape().width());
        let narrow = self.x.shape().width(); // Cin
        let dout_matrix = Matrix::new(dout.data(), rows, wide);
        gradients.write(0, |dx, write| {
            gemm(dout_matrix, self.weight.matrix(), dx, narrow, write, Epilogue::default()); // 1
        });
        gradients.write(1, |dw, write| {
            gemm(dout_matrix.transposed(), self.x.matrix(), dw, narrow, write, Epilogue::default()); // 2
        });
        if self.has_bias {
            gradients.write(2, |db, write| elementwise::column_sums(dout.data(), db, write)); // 3
        }
    }
}

fn reference(inputs: &[Array]) -> Array {
    let (x, w) = (&inputs[0], &inputs[1]);
    let wide = w.shape.rows();
    Array::build(x.shape.with_width(wide), |i| {
        let (n, j) = (i / wide, i % wide);
        let dot: f64 = x.row(n).iter().zip(w.row(j)).map(|(a, b)| a * b).sum();
        dot + inputs.get(2).map_or(0.0, |b| b.data[j])
    })
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 2e-6,
        backward: 2e-6,
        reason: "dot products of up to 130 terms of both signs: about √130 roundings of 6e-8",
    };
    let case = |name, x: &[usize], wide: usize, bias: bool| {
        let narrow = *x.last().expect("a case has dimensions");
        let forward = |v: &[Var]| linear(&v[0], &v[1], v.get(2));
        let case = Case::new("linear", name, tolerance, forward, reference)
            .normal("x", x)
            .normal("w", [wide, narrow]);
        if bias {
            case.normal("b", [wide]).torch("F.linear(x, w, b)")
        } else {
            case.torch("F.linear(x, w)")
        }
    };
    vec![
        case("plain", &[3, 5], 4, false),
        case("bias", &[2, 3, 17], 9, true),
        case("one_row", &[1, 33], 65, true),
        case("many_rows", &[130, 37], 29, true),
        case("narrow", &[7, 1], 1, true),
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
