//! Step 6: An operation of your own, checked numerically: softplus, `out = ln(1 + eˣ)`.
//!
//! ```text
//! cargo run --release --example own_op
//! ```
//!
//! Five steps, in the order in which every file of `crates/tensor/src/ops/` has them.

use hearken::tensor::gradcheck::{Case, Tolerance};
use hearken::tensor::reference::Array;
use hearken::tensor::{Backward, Gradients, Saved, Tensor, Var, Write};

// 1. The derivation, with numbered terms. `dout` is the gradient that comes in, `dx` the one that
//    goes out.
//
//        out = ln(1 + eˣ)
//        ∂out/∂x = eˣ / (1 + eˣ) = 1 / (1 + e⁻ˣ) = σ(x)
//     1. dx = dout · σ(x)

// 2. The forward: compute the value, then hand `Var::from_op` the inputs and a closure that packs
//    what backward needs. The closure runs only when a gradient is wanted.

/// `ln(1 + eˣ)`
fn softplus(x: &Var) -> Var {
    let mut out = Tensor::unset(x.shape()); // arbitrary content: every element must be written
    for (out, &x) in out.data_mut().iter_mut().zip(x.value().data()) {
        // ln(1 + eˣ) = max(x, 0) + ln(1 + e^−|x|), which does not overflow.
        *out = x.max(0.0) + (-x.abs()).exp().ln_1p();
    }
    Var::from_op(out, &[x], || SoftplusBackward { x: Saved::new(x.value()) })
}

// 3. The backward, right beneath. `Saved` keeps its value in 16 bits if the surroundings say so.
//    The first time a gradient is written, `write` is `Set` and the memory holds garbage; after
//    that it is `Add`. The kernels of `hearken::kernels` take a `Write` too and are parallel.

struct SoftplusBackward {
    x: Saved,
}

impl Backward for SoftplusBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let x = self.x.get();
        gradients.write(0, |dx, write| {
            for ((dx, x), dout) in dx.iter_mut().zip(x.data()).zip(dout.data()) {
                let term = dout / (1.0 + (-x).exp()); // 1
                *dx = if write == Write::Add { *dx + term } else { term };
            }
        });
    }
}

// 4. The reference: the formula itself, in f64, with no care for speed. The gradient needs none:
//    the checker takes central differences of this.

fn reference(inputs: &[Array]) -> Array {
    inputs[0].map(|x| (1.0 + x.exp()).ln())
}

// 5. The cases: awkward shapes, and how far f32 may be off, with the reason.

fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 2e-7,
        backward: 3e-7,
        reason: "exp and ln to an ULP (6e-8), then one or two roundings",
    };
    let case = |name, shape: &[usize]| {
        Case::new("softplus", name, tolerance, |v| softplus(&v[0]), reference)
            .normal("x", shape)
            .torch("F.softplus(x)") // only for the PyTorch fixtures of Hearken's own operations
    };
    vec![case("one", &[1]), case("small", &[3, 7]), case("many", &[9, 333]), case("none", &[0, 4])]
}

fn main() {
    let mut wrong = false;
    println!("{:<16} {:>9} {:>9}", "case", "forward", "backward");
    for case in cases() {
        let outcome = case.check();
        println!("{:<16} {:9.1e} {:9.1e}", case.id(), outcome.forward, outcome.worst_backward());
        for fault in &outcome.faults {
            println!("  {fault}");
            wrong = true;
        }
    }
    if wrong {
        std::process::exit(1);
    }

    // It is now an operation like any other.
    let x = Var::leaf(Tensor::new([3], &[-1.0, 0.0, 1.0]));
    (&softplus(&x) * &x).sum().backward();
    println!("d/dx Σ x·softplus(x) = {:?}", x.gradient().expect("x is a leaf").data());
}

#[cfg(test)]
mod tests {
    #[test]
    fn softplus_is_proven() {
        hearken::tensor::gradcheck::assert_all(&super::cases());
    }
}
