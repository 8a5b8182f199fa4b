//! `out = conv(x, W) + b`: a convolution over time, (B, T, Cin) → (B, T′, Cout).
//!
//! With taps k, stride s, dilation d, and p zeros before the first time,
//! `outₜⱼ = Σₖ Σᵢ x₍ₜₛ₊ₖd₋ₚ₎ᵢ Wⱼₖᵢ + bⱼ`. In groups, an output sees the inputs of its own group alone.
//! Let row t of X be what outₜ sees, tap by tap; then it is a product of matrices:
//! 1. `out = X·Wᵀ + b`
//! 2. `dX = dout·W`, and dx is the sum of all elements of dX that were that element of x
//! 3. `dW = doutᵀ·X`
//! 4. `dbⱼ = Σ doutⱼ` over rows and times
//!
//! Saves a handle to `W`, and `x` if `W` learns: X is gathered again in backward. `W` is kept as a
//! matrix (Cout, K·Cin/groups), tap by tap: PyTorch's (Cout, Cin/groups, K) with its last two
//! dimensions transposed.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::{Saved, Weight};
use crate::reference::Array;
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::convolution::{Taps, gather, scatter};
use hearken_kernels::gemm::{Epilogue, Matrix, gemm};
use hearken_kernels::{Write, elementwise};

/// How a convolution goes over its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// K: times that an output sees.
    pub kernel: usize,
    /// Times from one output to the next.
    pub stride: usize,
    /// Times from one tap to the next.
    pub dilation: usize,
    /// Inputs and outputs are cut into so many groups, which do not see each other.
    pub groups: usize,
    /// Zeros before the first time and after the last.
    pub padding: [usize; 2],
}

impl Convolution {
    /// Every output sees its own time and earlier ones alone, and there are as many as inputs.
    pub fn causal(kernel: usize, dilation: usize) -> Self {
        let before = kernel.saturating_sub(1) * dilation;
        Self { kernel, stride: 1, dilation, groups: 1, padding: [before, 0] }
    }

    /// How many times the result has, of an input with `length`.
    pub fn out_length(&self, length: usize) -> usize {
        let padded = length + self.padding[0] + self.padding[1];
        let reach = (self.kernel - 1) * self.dilation;
        padded.checked_sub(reach + 1).map_or(0, |last| last / self.stride + 1)
    }

    /// Of group `group`, for an input (B, T, Cin).
    fn taps(&self, input: Shape, group: usize) -> Taps {
        let [length, width] = [input.dims()[1], input.dims()[2]];
        let each = width / self.groups;
        Taps {
            length,
            width,
            columns: group * each..(group + 1) * each,
            out_length: self.out_length(length),
            kernel: self.kernel,
            stride: self.stride,
            dilation: self.dilation,
            before: self.padding[0],
        }
    }

    fn gathered(&self, x: &Tensor, group: usize) -> Tensor {
        let taps = self.taps(x.shape(), group);
        let columns = self.kernel * taps.columns.len();
        let mut gathered = Tensor::unset([x.shape().dims()[0], taps.out_length, columns]);
        gather(&taps, x.data(), gathered.data_mut());
        gathered
    }
}

/// The convolution of `x` (B, T, Cin) with a weight (Cout, K·Cin/groups).
pub fn conv1d(x: &Var, weight: impl Into<Weight>, bias: Option<&Var>, how: &Convolution) -> Var {
    let weight = weight.into();
    let (shape, dims) = (x.shape(), weight.shape());
    assert!(
        how.kernel > 0 && how.stride > 0 && how.dilation > 0 && how.groups > 0,
        "a convolution of {how:?}"
    );
    let (outputs, groups) = (dims.rows(), how.groups); // Cout
    assert!(
        shape.rank() == 3
            && dims.rank() == 2
            && shape.width().is_multiple_of(groups)
            && outputs.is_multiple_of(groups)
            && dims.width() == how.kernel * (shape.width() / groups),
        "a weight of shape {dims} does not fit an input of shape {shape} in {how:?}"
    );
    if let Some(bias) = bias {
        assert_eq!(bias.shape().dims(), [outputs], "the bias of a {dims} weight");
    }
    let (batch, times) = (shape.dims()[0], how.out_length(shape.dims()[1]));
    let (rows, each) = (batch * times, outputs / groups);
    let mut out = Tensor::unset([batch, times, outputs]);
    for group in 0..groups {
        let gathered = how.gathered(x.value(), group);
        if rows == 0 {
            break;
        }
        let part = group * each..(group + 1) * each;
        gemm(
            Matrix::new(gathered.data(), rows, dims.width()),
            weight.stored().matrix_of(part.clone()).transposed(),
            &mut out.data_mut()[part.start..],
            outputs,
            Write::Set,
            Epilogue { bias: bias.map(|b| &b.value().data()[part]), ..Epilogue::default() },
        ); // 1
    }
    let mut inputs = vec![x, weight.master()];
    inputs.extend(bias);
    Var::from_op(out, &inputs, || Conv1dBackward {
        x: weight.master().wants_gradient().then(|| Saved::new(x.value())),
        shape,
        weight: weight.stored().clone(),
        how: *how,
    })
}

struct Conv1dBackward {
    x: Option<Saved>,
    shape: Shape,
    weight: Saved,
    how: Convolution,
}

impl Backward for Conv1dBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let Self { x, shape, weight, how } = *self;
        let (outputs, columns) = (weight.shape().rows(), weight.shape().width());
        let (rows, each) = (dout.shape().rows(), outputs / how.groups);
        let part = |group: usize| {
            let data = dout.data().get(group * each..).unwrap_or_default();
            Matrix::strided(data, rows, each, outputs)
        };
        gradients.write(0, |dx, write| {
            for group in 0..how.groups {
                let taps = how.taps(shape, group);
                let mut gathered = Tensor::unset([rows, columns]);
                let weight = weight.matrix_of(group * each..(group + 1) * each);
                let out = gathered.data_mut();
                gemm(part(group), weight, out, columns, Write::Set, Epilogue::default()); // 2
                scatter(&taps, gathered.data(), dx, write);
            }
        });
        if let Some(x) = x {
            let x = x.into_value();
            gradients.write(1, |dw, write| {
                for (group, dw) in dw.chunks_exact_mut((each * columns).max(1)).enumerate() {
                    let gathered = how.gathered(&x, group);
                    let gathered = Matrix::new(gathered.data(), rows, columns);
                    let dout = part(group).transposed();
                    gemm(dout, gathered, dw, columns, write, Epilogue::default()); // 3
                }
            });
        }
        gradients.write(2, |db, write| elementwise::column_sums(dout.data(), db, write)); // 4
    }
}

/// In f64; `inputs` are x, W and perhaps b.
fn reference(inputs: &[Array], how: &Convolution) -> Array {
    let (x, w) = (&inputs[0], &inputs[1]);
    let [batch, length, in_width] = [0, 1, 2].map(|i| x.shape.dims()[i]);
    let (outputs, times) = (w.shape.rows(), how.out_length(length));
    let (group_in, group_out) = (in_width / how.groups, outputs / how.groups);
    Array::build([batch, times, outputs], |i| {
        let (b, t, j) = (i / (times * outputs), i / outputs % times, i % outputs);
        let mut sum = inputs.get(2).map_or(0.0, |bias| bias.data[j]);
        for k in 0..how.kernel {
            let place = (t * how.stride + k * how.dilation) as isize - how.padding[0] as isize;
            if place < 0 || place >= length as isize {
                continue;
            }
            for c in 0..group_in {
                let column = j / group_out * group_in + c;
                sum += x.at(&[b, place as usize, column]) * w.at(&[j, k * group_in + c]);
            }
        }
        sum
    })
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 2e-6,
        backward: 2e-6,
        reason: "dot products of up to 192 terms of both signs: about √192 roundings of 6e-8",
    };
    let case = |name, x: [usize; 3], outputs: usize, how: Convolution, bias: bool| {
        let forward = move |v: &[Var]| conv1d(&v[0], &v[1], v.get(2), &how);
        let reference = move |a: &[Array]| reference(a, &how);
        let Convolution { kernel, stride, dilation, groups, padding: [before, after] } = how;
        let each = x[2] / groups;
        let given = if bias { "b" } else { "None" };
        let torch = format!(
            "y = F.pad(x.transpose(1, 2), ({before}, {after}))\n\
             k = w.reshape({outputs}, {kernel}, {each}).transpose(1, 2)\n\
             y = F.conv1d(y, k, {given}, stride={stride}, dilation={dilation}, groups={groups})\n\
             out = y.transpose(1, 2)"
        );
        let case = Case::new("conv1d", name, tolerance, forward, reference)
            .normal("x", x)
            .normal("w", [outputs, kernel * each])
            .torch(torch);
        if bias { case.normal("b", [outputs]) } else { case }
    };
    let plain = Convolution { kernel: 3, stride: 1, dilation: 1, groups: 1, padding: [0, 0] };
    vec![
        case("plain", [2, 7, 3], 4, plain, false),
        case("bias", [2, 7, 3], 4, Convolution { padding: [1, 1], ..plain }, true),
        case("causal", [2, 9, 3], 5, Convolution::causal(3, 2), true),
        case("strided", [2, 11, 3], 4, Convolution { stride: 2, padding: [2, 0], ..plain }, true),
        case("dilated", [1, 13, 2], 3, Convolution { dilation: 4, ..plain }, true),
        case("grouped", [2, 6, 6], 9, Convolution { groups: 3, padding: [1, 1], ..plain }, true),
        case("each_alone", [2, 6, 4], 4, Convolution { groups: 4, ..plain }, false),
        case(
            "everything",
            [2, 17, 4],
            6,
            Convolution { kernel: 2, stride: 3, dilation: 2, groups: 2, padding: [3, 1] },
            true,
        ),
        case("one_tap", [2, 5, 3], 4, Convolution { kernel: 1, ..plain }, true),
        // 192 · 96 · 33 multiply-adds: enough for the threads to share.
        case("shared", [8, 24, 32], 33, Convolution::causal(3, 1), true),
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
    fn an_input_that_is_too_short_gives_nothing_and_zero_gradients() {
        let x = Var::leaf(Tensor::full([2, 2, 3], 1.0));
        let w = Var::leaf(Tensor::full([4, 9], 1.0));
        let how = Convolution { padding: [0, 0], ..Convolution::causal(3, 1) };
        let out = conv1d(&x, &w, None, &how);
        assert_eq!(out.shape().dims(), [2, 0, 4]);
        out.sum().backward();
        assert_eq!(x.gradient().unwrap().data(), &[0.0; 12]);
        assert_eq!(w.gradient().unwrap().data(), &[0.0; 36]);
    }

    #[test]
    #[should_panic(expected = "a weight of shape (4, 8) does not fit an input of shape (1, 5, 3)")]
    fn shapes_must_fit() {
        let [x, w] = [Tensor::zeros([1, 5, 3]), Tensor::zeros([4, 8])].map(Var::constant);
        let _ = conv1d(&x, &w, None, &Convolution::causal(3, 1));
    }
}
