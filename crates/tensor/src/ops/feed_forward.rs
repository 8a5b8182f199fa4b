//! `out = f(x·Uᵀ + b)·Dᵀ + c + r`: up to F, an activation, and down again, (…, C) → (…, C′), with or
//! without biases, and perhaps added to what goes past it. U is (F, C), D is (C′, F).
//!
//! With `pre = x·Uᵀ + b`, `hidden = f(pre)` and `slope = f′(pre)`,
//! 1. `dpre = (dout·D) · slope`
//! 2. `dD = doutᵀ·hidden`
//! 3. `dc = Σ dout` over the rows
//! 4. `dx = dpre·U`
//! 5. `dU = dpreᵀ·x`
//! 6. `db = Σ dpre` over the rows
//! 7. `dr = dout`
//!
//! The same as two linear layers, but `slope` is multiplied while a row of `dout·D` is in cache.
//! Slope and value share most of their work, so both are computed on the way up.
//!
//! Saves handles to `U` and `D`, `x` if `U` learns, `hidden` if `D` learns, and `slope` if anything
//! before it learns (all in the storage of the moment: in f16, `hidden` above 65,504 becomes ∞).

use super::{activations, linear};
use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var, is_recording};
use crate::half::{Saved, Weight};
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::activation::Activation;
use hearken_kernels::gemm::{Epilogue, Matrix, gemm};
use hearken_kernels::{Write, elementwise};

/// `f(x·Uᵀ + b)·Dᵀ + c`; the weights are [`Var`]s or 16-bit [`Weight`]s, the biases `[b, c]`.
pub fn feed_forward(
    x: &Var,
    up: impl Into<Weight>,
    f: Activation,
    down: impl Into<Weight>,
    biases: Option<[&Var; 2]>,
) -> Var {
    feed_forward_onto(x, up, f, down, biases, None)
}

/// `f(x·Uᵀ + b)·Dᵀ + c + r`, in one pass.
pub fn feed_forward_onto(
    x: &Var,
    up: impl Into<Weight>,
    f: Activation,
    down: impl Into<Weight>,
    biases: Option<[&Var; 2]>,
    residual: Option<&Var>,
) -> Var {
    let (up, down) = (up.into(), down.into());
    let (shape, up_shape, down_shape) = (x.shape(), up.shape(), down.shape());
    assert!(
        up_shape.rank() == 2 && shape.rank() > 0 && shape.width() == up_shape.width(),
        "a weight of shape {up_shape} does not fit an input of shape {shape}"
    );
    assert!(
        down_shape.rank() == 2 && down_shape.width() == up_shape.rows(),
        "a weight of shape {down_shape} does not follow one of shape {up_shape}"
    );
    let (rows, inner, out_width) = (shape.rows(), up_shape.rows(), down_shape.rows());
    if let Some([b, c]) = biases {
        assert_eq!(b.shape().dims(), [inner], "the bias of a {up_shape} weight");
        assert_eq!(c.shape().dims(), [out_width], "the bias of a {down_shape} weight");
    }
    if let Some(residual) = residual {
        let out = shape.with_width(out_width);
        assert_eq!(residual.shape(), out, "what a {down_shape} product is added to");
    }
    let mut inputs = vec![x, up.master(), down.master()];
    inputs.extend(biases.into_iter().flatten());
    inputs.extend(residual);
    let mut before = [x, up.master()].into_iter().chain(biases.map(|[b, _]| b));
    let keeps_slope = is_recording() && before.any(Var::wants_gradient);

    let mut hidden = Tensor::unset(shape.with_width(inner)); // (…, F)
    let mut slope = keeps_slope.then(|| Tensor::unset(hidden.shape()));
    let (product, activated) = match &mut slope {
        Some(slope) => (slope.data_mut(), Some(hidden.data_mut())),
        None => (hidden.data_mut(), None),
    };
    let x_matrix = Matrix::new(x.value().data(), rows, shape.width());
    let bias = biases.map(|[b, _]| b.value().data());
    let epilogue = Epilogue { bias, activation: Some(f), activated, ..Epilogue::default() };
    gemm(x_matrix, up.stored().matrix().transposed(), product, inner, Write::Set, epilogue);

    let mut out = Tensor::unset(shape.with_width(out_width)); // (…, C′)
    let hidden_matrix = Matrix::new(hidden.data(), rows, inner);
    let bias = biases.map(|[_, c]| c.value().data());
    let residual_data = residual.map(|r| r.value().data());
    let epilogue = Epilogue { bias, residual: residual_data, ..Epilogue::default() };
    let down_matrix = down.stored().matrix().transposed();
    gemm(hidden_matrix, down_matrix, out.data_mut(), out_width, Write::Set, epilogue);

    Var::from_op(out, &inputs, || FeedForwardBackward {
        x: up.master().wants_gradient().then(|| Saved::new(x.value())),
        hidden: down.master().wants_gradient().then(|| Saved::new(&hidden)),
        slope: slope.map(|slope| Saved::new(&slope)),
        up: up.stored().clone(),
        down: down.stored().clone(),
        has_biases: biases.is_some(),
        has_residual: residual.is_some(),
    })
}

struct FeedForwardBackward {
    x: Option<Saved>,
    hidden: Option<Saved>,
    slope: Option<Saved>,
    up: Saved,
    down: Saved,
    has_biases: bool,
    has_residual: bool,
}

impl Backward for FeedForwardBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let Self { x, hidden, slope, up, down, has_biases, has_residual } = *self;
        if has_residual {
            gradients.add(if has_biases { 5 } else { 3 }, dout.clone()); // 7
        }
        let (width, inner) = (up.shape().width(), up.shape().rows()); // C, F
        let dout_matrix = Matrix::new(dout.data(), dout.shape().rows(), dout.shape().width());

        if let Some(hidden) = hidden {
            gradients.write(2, |dd, write| {
                let dout = dout_matrix.transposed();
                gemm(dout, hidden.matrix(), dd, inner, write, Epilogue::default()); // 2
            });
        }
        if has_biases {
            gradients.write(4, |dc, write| elementwise::column_sums(dout.data(), dc, write)); // 3
        }
        let Some(slope) = slope.map(|slope| slope.get()) else { return };
        let mut dpre = Tensor::unset(slope.shape()); // (…, F)
        let epilogue = Epilogue { factor: Some(slope.data()), ..Epilogue::default() };
        gemm(dout_matrix, down.matrix(), dpre.data_mut(), inner, Write::Set, epilogue); // 1
        drop((slope, dout));

        let dpre_matrix = Matrix::new(dpre.data(), dpre.shape().rows(), inner);
        gradients.write(0, |dx, write| {
            gemm(dpre_matrix, up.matrix(), dx, width, write, Epilogue::default()); // 4
        });
        if let Some(x) = x {
            gradients.write(1, |du, write| {
                let dpre = dpre_matrix.transposed();
                gemm(dpre, x.matrix(), du, width, write, Epilogue::default()); // 5
            });
        }
        if has_biases {
            gradients.write(3, |db, write| elementwise::column_sums(dpre.data(), db, write)); // 6
        }
    }
}

fn reference(f: Activation, inputs: &[Array]) -> Array {
    let [x, up, down, biases @ ..] = inputs else {
        unreachable!("a case has three inputs or five")
    };
    let with = |x: &Array, weight: &Array, bias: Option<&Array>| {
        let mut inputs = vec![x.clone(), weight.clone()];
        inputs.extend(bias.cloned());
        linear::reference(&inputs)
    };
    let hidden = with(x, up, biases.first()).map(|x| activations::reference(f, x));
    with(&hidden, down, biases.get(1))
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 3e-6,
        backward: 3e-6,
        reason: "two dot products of up to 96 terms of both signs and the activation between them",
    };
    let case = |f: Activation, name, x: &[usize], inner: usize, torch: &'static str| {
        let width = *x.last().expect("a case has dimensions");
        let forward = move |v: &[Var]| {
            let biases = (v.len() == 5).then(|| [&v[3], &v[4]]);
            feed_forward(&v[0], &v[1], f, &v[2], biases)
        };
        let reference = move |a: &[Array]| reference(f, a);
        let case = Case::new("feed_forward", name, tolerance, forward, reference)
            .normal("x", x)
            .normal("u", [inner, width])
            .normal("d", [width + 1, inner])
            .torch(torch);
        let bias = torch.contains(", c)");
        if bias { case.normal("b", [inner]).normal("c", [width + 1]) } else { case }
    };
    // Added to what goes past, the last of the inputs.
    let onto = |name, biases: bool, torch| {
        let f = Activation::GeluTanh;
        let forward = move |v: &[Var]| {
            let (residual, v) = v.split_last().expect("a case has inputs");
            let biases = (v.len() == 5).then(|| [&v[3], &v[4]]);
            feed_forward_onto(&v[0], &v[1], f, &v[2], biases, Some(residual))
        };
        let sum = move |a: &[Array]| {
            let (residual, a) = a.split_last().expect("a case has inputs");
            let product = reference(f, a);
            Array::build(product.shape, |i| product.data[i] + residual.data[i])
        };
        let case = Case::new("feed_forward", name, tolerance, forward, sum)
            .normal("x", [2, 3, 9])
            .normal("u", [20, 9])
            .normal("d", [9, 20])
            .torch(torch);
        let case = if biases { case.normal("b", [20]).normal("c", [9]) } else { case };
        case.normal("r", [2, 3, 9])
    };
    let tanh = "F.linear(F.gelu(F.linear(x, u, b), approximate='tanh'), d, c)";
    let plain_tanh = "F.linear(F.gelu(F.linear(x, u), approximate='tanh'), d)";
    let gelu = "F.linear(F.gelu(F.linear(x, u, b)), d, c)";
    let silu = "F.linear(F.silu(F.linear(x, u)), d)";
    let relu = "F.linear(F.relu(F.linear(x, u, b)), d, c)";
    let squared = "F.linear(F.relu(F.linear(x, u, b))**2, d, c)";
    vec![
        case(Activation::GeluTanh, "gelu_tanh", &[2, 3, 9], 20, tanh),
        onto("onto", false, "F.linear(F.gelu(F.linear(x, u), approximate='tanh'), d) + r"),
        onto(
            "biases_onto",
            true,
            "F.linear(F.gelu(F.linear(x, u, b), approximate='tanh'), d, c) + r",
        ),
        case(Activation::GeluTanh, "one_row", &[1, 5], 17, plain_tanh),
        case(Activation::Gelu, "gelu", &[5, 4], 35, gelu),
        case(Activation::Silu, "silu", &[7, 16], 33, silu),
        case(Activation::Relu, "relu", &[5, 4], 7, relu),
        case(Activation::SquaredRelu, "squared_relu", &[5, 4], 7, squared),
        // 130 · 48 · 96 multiply-adds: enough for the threads to share.
        case(Activation::GeluTanh, "shared", &[130, 48], 96, tanh),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half::{HalfTensor, Storage, with_storage};
    use crate::rng::Rng;

    fn inputs() -> [Var; 5] {
        // Weights of 1/√width, so that sums have the size of their terms.
        let normal = |seed, shape: &[usize], size| Var::leaf(Rng::new(seed).normal(shape, size));
        [
            normal(1, &[9, 20], 1.0),
            normal(2, &[35, 20], 0.22),
            normal(3, &[20, 35], 0.17),
            normal(4, &[35], 1.0),
            normal(5, &[20], 1.0),
        ]
    }

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    /// The value and all gradients there are, as one operation or as two linear layers.
    fn run(v: &[Var], f: Activation, fused: bool) -> (Vec<f32>, Vec<Option<Vec<f32>>>) {
        let [x, u, d, biases @ ..] = v else { unreachable!("three inputs or five") };
        let out = if fused {
            feed_forward(x, u, f, d, biases.first().zip(biases.get(1)).map(|(b, c)| [b, c]))
        } else {
            let hidden = linear::linear_activation(x, u, biases.first(), f);
            linear::linear(&hidden, d, biases.get(1))
        };
        out.backward_with(Rng::new(6).normal(out.shape(), 1.0));
        let gradient = |x: &Var| x.gradient().map(|g| g.data().to_vec());
        (out.value().data().to_vec(), v.iter().map(gradient).collect())
    }

    #[test]
    fn has_the_bits_of_two_linear_layers() {
        for f in Activation::ALL {
            assert_eq!(run(&inputs(), f, true), run(&inputs(), f, false), "{f:?}");
        }
        // More than one group of columns, and more than one block of depth, both ways.
        for (rows, width, inner) in [(130, 48, 448), (64, 800, 900)] {
            let shapes = [[rows, width], [inner, width], [width, inner]];
            let make = || shapes.map(|shape| Var::leaf(Rng::new(7).normal(shape, 0.2)));
            let f = Activation::GeluTanh;
            assert_eq!(run(&make(), f, true), run(&make(), f, false), "{rows}×{width}×{inner}");
        }
    }

    #[test]
    fn inputs_that_do_not_learn_change_nothing_for_the_others() {
        let all = run(&inputs(), Activation::Gelu, true);
        for learning in 1_usize..32 {
            let wanted = |i: usize| learning >> i & 1 == 1;
            let v: Vec<Var> = (0..5)
                .zip(inputs())
                .map(|(i, x)| if wanted(i) { x } else { x.detach() })
                .collect();
            let (value, gradients) = run(&v, Activation::Gelu, true);
            assert_eq!(value, all.0);
            for (i, gradient) in gradients.iter().enumerate() {
                let want = all.1[i].as_ref().filter(|_| wanted(i));
                assert_eq!(gradient.as_ref(), want, "input {i} of {learning:05b}");
            }
        }
    }

    #[test]
    fn a_residual_that_learns_alone_gets_the_incoming_gradient() {
        let [x, u, d, b, c] = inputs().map(|v| v.detach());
        let r = Var::leaf(Rng::new(7).normal([9, 20], 1.0));
        let out = feed_forward_onto(&x, &u, Activation::Gelu, &d, Some([&b, &c]), Some(&r));
        let dout = Rng::new(6).normal([9, 20], 1.0);
        out.backward_with(dout.clone());
        assert_eq!(r.gradient().unwrap().data(), dout.data());
        assert!([x, u, d, b, c].iter().all(|v| v.gradient().is_none()));
    }

    #[test]
    fn a_sum_below_the_range_of_f16_does_no_harm() {
        for f in [Activation::Gelu, Activation::GeluTanh, Activation::Silu] {
            let x = Var::leaf(Tensor::new([1, 1], &[1.0]));
            let u = Var::leaf(Tensor::new([2, 1], &[-70_000.0, 0.5]));
            let d = Var::leaf(Tensor::new([1, 2], &[1.0, 1.0]));
            with_storage(Storage::F16, || feed_forward(&x, &u, f, &d, None)).sum().backward();
            let gradients = [x, u, d].map(|x| x.gradient().unwrap());
            assert!(gradients.iter().all(|g| g.data().iter().all(|x| x.is_finite())), "{f:?}");
        }
    }

    #[test]
    fn sixteen_bit_storage_changes_results_by_its_rounding_only() {
        let run = |storage| {
            let v = inputs();
            let weight = |w: &Var| match storage {
                Storage::F32 => Weight::from(w),
                _ => Weight::rounded(HalfTensor::new(w.value(), storage), w.clone()),
            };
            let (up, down) = (weight(&v[1]), weight(&v[2]));
            let out = with_storage(storage, || {
                feed_forward(&v[0], up, Activation::GeluTanh, down, Some([&v[3], &v[4]]))
            });
            out.backward_with(Rng::new(6).normal([9, 20], 1.0));
            let gradients = v.map(|x| x.gradient().unwrap());
            [vec![out.into_value()], gradients.to_vec()].concat()
        };
        let exact: Vec<_> = run(Storage::F32).iter().map(|t| Array::from(t).data).collect();
        // Two products in a row, each with factors off by half of their last bit: within four
        // times the rounding of one.
        for (storage, bits) in [(Storage::Bf16, 8), (Storage::F16, 11)] {
            let errors = run(storage)
                .iter()
                .zip(&exact)
                .map(|(got, want)| crate::gradcheck::error(got.data(), want))
                .collect::<Vec<_>>();
            let bound = 2.0_f64.powi(2 - bits);
            assert!(errors.iter().all(|&error| error < bound), "{storage:?}: {errors:?}");
            assert!(errors[0] > 0.0, "nothing was rounded to {storage:?}");
        }
    }

    #[test]
    fn no_rows_give_no_rows_and_zero_gradients() {
        let v = inputs();
        let x = Var::leaf(Tensor::zeros([0, 20]));
        let out = feed_forward(&x, &v[1], Activation::Silu, &v[2], None);
        assert_eq!(out.shape().dims(), [0, 20]);
        out.sum().backward();
        assert!(v[1].gradient().unwrap().data().iter().all(|&x| x == 0.0));
    }

    #[test]
    #[should_panic(expected = "a weight of shape (20, 35) does not follow one of shape (7, 20)")]
    fn the_second_weight_must_follow_the_first() {
        let [x, _, d, ..] = inputs();
        let u = Var::leaf(Tensor::zeros([7, 20]));
        let _ = feed_forward(&x, &u, Activation::Gelu, &d, None);
    }
}
