//! `out = φ(x)`: positive random features of every head, (B, T, H·D) → (B, T, H·M), with the samples
//! ω (M, D) given and constant ([`hearken_kernels::attention::features`] has the formulas).
//!
//! With p = x·ωᵀ of every head, s = D^(−¼) and t = (φ − ε/√M)·dout:
//! 1. `dp = s·t`, for queries less `s·Σ t` where p is largest
//! 2. `dx = dp·ω`, for keys less `s²·Σ t·x`
//!
//! Saves φ and, of keys, x.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::reference::Array;
use crate::rng::Rng;
use crate::tensor::Tensor;
use hearken_kernels::attention::features;
use hearken_kernels::gemm::{Epilogue, Matrix, gemm};
use hearken_kernels::threads::{for_row_chunks, rows_per_chunk};
use hearken_kernels::{Write, elementwise};

pub use hearken_kernels::attention::features::Side;

/// The features of `x` (B, T, H·D) by samples (M, D).
pub fn random_features(x: &Var, samples: &Tensor, side: Side) -> Var {
    let [count, width] = samples.dims();
    assert!(
        count > 0 && width > 0 && x.shape().width().is_multiple_of(width),
        "vectors of shape {} do not split into heads as wide as samples of shape {}",
        x.shape(),
        samples.shape()
    );
    let rows = x.shape().len() / width;
    let mut out = Tensor::unset(x.shape().with_width(x.shape().width() / width * count));
    let data = x.value().data();
    let by = Matrix::new(samples.data(), count, width).transposed();
    let x_rows = Matrix::new(data, rows, width);
    gemm(x_rows, by, out.data_mut(), count, Write::Set, Epilogue::default());
    features::forward(side, width, data, count, out.data_mut());
    let value = out.clone();
    Var::from_op(out, &[x], || FeaturesBackward {
        out: Saved::new(&value),
        x: (side == Side::Keys).then(|| Saved::new(x.value())),
        samples: samples.clone(),
        side,
    })
}

struct FeaturesBackward {
    out: Saved,
    /// Of keys.
    x: Option<Saved>,
    samples: Tensor,
    side: Side,
}

impl Backward for FeaturesBackward {
    fn backward(self: Box<Self>, mut dout: Tensor, gradients: &mut Gradients<'_>) {
        let [count, width] = self.samples.dims();
        let rows = dout.shape().len() / count;
        let mut factors = Tensor::unset([rows]);
        let out = self.out.get();
        features::backward(
            self.side,
            width,
            count,
            out.data(),
            dout.data_mut(),
            factors.data_mut(),
        ); // 1
        let dp = Matrix::new(dout.data(), rows, count);
        gradients.write(0, |dx, write| {
            let samples = Matrix::new(self.samples.data(), count, width);
            gemm(dp, samples, dx, width, write, Epilogue::default()); // 2
            if let Some(x) = &self.x {
                let (x, factors) = (x.get(), factors.data());
                for_row_chunks(rows, rows_per_chunk(width), [(dx, width)], |at, [dx]| {
                    let x = x.data()[at.start * width..at.end * width].chunks_exact(width);
                    for ((dx, x), factor) in dx.chunks_exact_mut(width).zip(x).zip(&factors[at]) {
                        elementwise::axpy(dx, *factor, x); // 2
                    }
                });
            }
        });
    }
}

fn reference(x: &Array, samples: &Array, side: Side) -> Array {
    let (count, width) = (samples.shape.dims()[0], samples.shape.dims()[1]);
    let scale = (width as f64).powf(-0.25);
    let mut data = Vec::new();
    for x in x.data.chunks_exact(width) {
        let product = |r: usize| -> f64 { samples.row(r).iter().zip(x).map(|(w, x)| w * x).sum() };
        let products: Vec<f64> = (0..count).map(product).collect();
        let shift = match side {
            Side::Queries => products.iter().copied().fold(f64::NEG_INFINITY, f64::max) * scale,
            Side::Keys => 0.5 * scale * scale * x.iter().map(|x| x * x).sum::<f64>(),
        };
        let exponent = |p: &f64| (scale * p - shift).min(f64::from(features::MOST));
        let root = (count as f64).sqrt();
        data.extend(products.iter().map(|p| {
            (exponent(p).exp() + f64::from(features::EPSILON)) / root
        }));
    }
    Array::new(x.shape.with_width(x.shape.width() / width * count), data)
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 3e-6,
        backward: 1e-5,
        reason: "exponents of about 5 that are off by sums of up to 33 terms: ten roundings of \
                 6e-8, five times over; gradients add up to 40 such numbers",
    };
    let case = |name, side, [heads, width, count]: [usize; 3], torch| {
        let samples = Rng::new(5).normal([count, width], 1.0);
        let (own, constant) = (samples.clone(), Array::from(&samples));
        Case::new(
            "random_features",
            name,
            tolerance,
            move |v: &[Var]| random_features(&v[0], &own, side),
            move |a: &[Array]| reference(&a[0], &constant, side),
        )
        .normal("x", [2, 5, heads * width])
        .extra("w", Array::from(&samples))
        .torch(torch)
    };
    let keys = "y = x.unflatten(-1, (-1, w.shape[1])) / w.shape[1]**0.25\n\
                e = y @ w.T - (y * y).sum(-1, keepdim=True) / 2\n\
                out = ((e.clamp(max=60).exp() + 9.999999974752427e-07) / w.shape[0]**0.5).flatten(-2)";
    let queries = "y = x.unflatten(-1, (-1, w.shape[1])) / w.shape[1]**0.25\n\
                   e = y @ w.T\n\
                   e = e - e.amax(-1, keepdim=True)\n\
                   out = ((e.exp() + 9.999999974752427e-07) / w.shape[0]**0.5).flatten(-2)";
    vec![
        case("keys", Side::Keys, [2, 6, 9], keys),
        case("queries", Side::Queries, [2, 6, 9], queries),
        case("wide_keys", Side::Keys, [1, 33, 40], keys),
        case("wide_queries", Side::Queries, [3, 17, 35], queries),
        case("one", Side::Keys, [1, 1, 1], keys),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    fn a_cut_exponent_is_finite_and_has_no_gradient() {
        let x = Var::leaf(Tensor::new([1, 1, 1], &[30.0]));
        let out = random_features(&x, &Tensor::new([1, 1], &[100.0]), Side::Keys);
        assert!((out.value().item().ln() - features::MOST).abs() < 1e-3);
        out.sum().backward();
        assert_eq!(x.gradient().unwrap().item(), 0.0);
    }
}
