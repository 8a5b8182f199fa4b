//! `out = f(gate)·up`, where a row of `x` (…, 2F) is gate, then up; `out` is (…, F).
//!
//! SwiGLU with SiLU, GEGLU with GELU (Shazeer 2020, arXiv:2002.05202). With one linear layer for
//! both halves, the feed-forward of Llama is `linear(gated(linear(x)))`. Derivation:
//! 1. `dgate = dout · up · f′(gate)`
//! 2. `dup = dout · f(gate)`
//!
//! Saves `x`.

use super::activations;
use crate::gradcheck::Case;
use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::reference::Array;
use crate::rng::Rng;
use crate::tensor::Tensor;
use hearken_kernels::Write;
use hearken_kernels::activation::{Activation, gated_backward, gated_forward};

/// `f(gate)·up` of the halves of every row.
pub fn gated(x: &Var, f: Activation) -> Var {
    let shape = x.shape();
    assert!(
        shape.rank() > 0 && shape.width().is_multiple_of(2),
        "a gated product halves its rows, but {shape} has no even width"
    );
    let (rows, width) = (shape.rows(), shape.width() / 2);
    let mut out = Tensor::unset(shape.with_width(width)); // (…, F)
    gated_forward(f, rows, width, x.value().data(), out.data_mut());
    Var::from_op(out, &[x], || GatedBackward { x: Saved::new(x.value()), f })
}

/// SwiGLU: `silu(gate)·up`
pub fn swiglu(x: &Var) -> Var {
    gated(x, Activation::Silu)
}

/// GEGLU: `gelu(gate)·up`
pub fn geglu(x: &Var) -> Var {
    gated(x, Activation::Gelu)
}

struct GatedBackward {
    x: Saved,
    f: Activation,
}

impl Backward for GatedBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let (rows, width) = (dout.shape().rows(), dout.shape().width());
        let x = self.x.get(); // (…, 2F)
        gradients.write(0, |dx, write: Write| {
            gated_backward(self.f, rows, width, x.data(), dout.data(), dx, write); // 1, 2
        });
    }
}

fn reference(f: Activation, x: &Array) -> Array {
    let width = x.shape.width() / 2;
    Array::build(x.shape.with_width(width), |i| {
        let row = x.row(i / width);
        activations::reference(f, row[i % width]) * row[width + i % width]
    })
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let case = |f: Activation, name: &str, shape: &[usize], torch| {
        // Away from the kink of ReLU, as in `activations`.
        let mut x = Rng::new(21).normal(shape, 2.0);
        for x in x.data_mut() {
            *x += 0.01_f32.copysign(*x);
        }
        let forward = move |v: &[Var]| gated(&v[0], f);
        let reference = move |a: &[Array]| reference(f, &a[0]);
        Case::new("gated", name, activations::TOLERANCE, forward, reference).input("x", x).torch(torch)
    };
    vec![
        case(Activation::Silu, "swiglu", &[2, 3, 14], "g, u = x.chunk(2, -1)\nout = F.silu(g) * u"),
        case(Activation::Gelu, "geglu", &[5, 34], "g, u = x.chunk(2, -1)\nout = F.gelu(g) * u"),
        case(
            Activation::GeluTanh,
            "geglu_tanh",
            &[5, 34],
            "g, u = x.chunk(2, -1)\nout = F.gelu(g, approximate='tanh') * u",
        ),
        case(Activation::Relu, "reglu", &[5, 2], "g, u = x.chunk(2, -1)\nout = F.relu(g) * u"),
        case(
            Activation::Silu,
            "swiglu_many",
            &[300, 66],
            "g, u = x.chunk(2, -1)\nout = F.silu(g) * u",
        ),
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
    #[should_panic(expected = "a gated product halves its rows, but (2, 5) has no even width")]
    fn rows_must_have_two_halves() {
        let _ = swiglu(&Var::constant(Tensor::zeros([2, 5])));
    }

    #[test]
    fn no_rows_are_fine() {
        let x = Var::leaf(Tensor::zeros([0, 4]));
        let out = geglu(&x);
        assert_eq!(out.shape().dims(), [0, 2]);
        out.sum().backward();
        assert_eq!(x.gradient().unwrap().shape().dims(), [0, 4]);
    }

    #[test]
    fn nan_stays_in_its_element() {
        let x = Var::constant(Tensor::new([1, 4], &[f32::NAN, 1.0, 2.0, 3.0]));
        let out = swiglu(&x);
        assert!(out.value().data()[0].is_nan() && out.value().data()[1].is_finite());
    }
}
