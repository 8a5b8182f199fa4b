//! The output head and its loss in one: `cross_entropy(h·Wᵀ + b, targets)` for h (…, C), W (V, C),
//! without ever holding the N×V logits.
//!
//! Plainly: logits z = h·Wᵀ + b; the loss and dz as in [`cross_entropy`](mod@crate::ops::cross_entropy); then, as in
//! [`linear`](crate::ops::linear),
//! 1. `dh = dz·W`
//! 2. `dW = dzᵀ·h`
//! 3. `db = Σ dz` over rows
//!
//! Here the rows go through in chunks: the logits of a chunk, the gradient over them in the same
//! memory, then the chunk's rows of (1) and its share of (2) and (3), before the next chunk takes
//! the memory. So all gradients are computed during the forward, for dout = 1, and only scaled in
//! the backward; without gradients, only the loss is.
//!
//! Saves dh, dW and db, which become the gradients without a copy where they are the first.

use super::cross_entropy::{Options, case_extras, case_targets, reference as loss_of_logits};
use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var, is_recording};
use crate::half::Weight;
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::gemm::{Epilogue, Matrix, gemm};
use hearken_kernels::{Write, cross_entropy as kernel, elementwise};
use std::ops::Range;

/// The loss of predicting `targets`, one per row of `h` (…, C), with the words of `weight` (V, C),
/// which is a [`Var`] or a 16-bit [`Weight`]; a scalar.
pub fn head_cross_entropy(
    h: &Var,
    weight: impl Into<Weight>,
    bias: Option<&Var>,
    targets: &[u32],
    options: Options,
) -> Var {
    let weight = weight.into();
    let chunk = rows_per_chunk(weight.shape().rows());
    in_chunks(chunk, h, &weight, bias, targets, options)
}

/// The loss of each target by itself, (N), 0 for an ignored one: for evaluation.
pub fn token_losses(
    h: &Tensor,
    weight: impl Into<Weight>,
    bias: Option<&Tensor>,
    targets: &[u32],
) -> Tensor {
    let head = Head::new(h, weight.into(), bias, targets);
    let mut losses = Tensor::unset([targets.len()]);
    let plain = kernel::CrossEntropy::default();
    head.for_each_chunk(rows_per_chunk(head.vocabulary()), |rows, logits| {
        let losses = &mut losses.data_mut()[rows.clone()];
        kernel::cross_entropy(plain, &targets[rows], head.vocabulary(), logits, losses);
    });
    losses
}

/// The logits (B, V) of the last position of each sequence of `h` (B, T, C): for generation.
pub fn last_logits(h: &Tensor, weight: impl Into<Weight>, bias: Option<&Tensor>) -> Tensor {
    let weight = weight.into();
    let [batch, length, width] = h.dims();
    let dims = weight.shape();
    assert!(
        dims.rank() == 2 && dims.width() == width,
        "a weight of shape {dims} does not fit an input of shape {}",
        h.shape()
    );
    let mut logits = Tensor::unset([batch, dims.rows()]);
    if batch == 0 {
        return logits;
    }
    assert!(length > 0, "{} has no last position", h.shape());
    gemm(
        Matrix::strided(&h.data()[(length - 1) * width..], batch, width, length * width),
        weight.stored().matrix().transposed(),
        logits.data_mut(),
        dims.rows(),
        Write::Set,
        Epilogue { bias: bias.map(Tensor::data), ..Epilogue::default() },
    );
    logits
}

/// Rows per chunk, by the vocabulary alone. The logits of a chunk should stay in a shared cache,
/// 4 MiB; but each chunk reads W twice and dW once and writes it, 16·V·C bytes, against 6·V·C
/// operations per row: at 240 GFLOP/s and 20 GB/s, memory takes as long as 32 rows of arithmetic.
/// So a large vocabulary takes 512 rows if they fit 128 MiB (103 MB of logits for GPT-2), else 256.
/// Measured there, N = 512 on two cores, forward and backward: 870 ms in chunks of 32
/// rows, 650 of 64, 550 of 128, 510 of 256, 480 in one.
pub fn rows_per_chunk(vocabulary: usize) -> usize {
    const CACHE: usize = (4 << 20) / size_of::<f32>();
    const MOST: usize = (128 << 20) / size_of::<f32>();
    const LEAST: usize = 256;
    let large = if vocabulary <= MOST / (2 * LEAST) { 2 * LEAST } else { LEAST };
    (CACHE / vocabulary.max(1)).next_multiple_of(LEAST).max(large)
}

/// The head and the rows that go through it.
struct Head<'a> {
    h: &'a Tensor,
    weight: Weight,
    bias: Option<&'a Tensor>,
}

impl<'a> Head<'a> {
    fn new(h: &'a Tensor, weight: Weight, bias: Option<&'a Tensor>, targets: &[u32]) -> Self {
        let (shape, dims) = (h.shape(), weight.shape());
        assert!(
            dims.rank() == 2 && shape.rank() > 0 && shape.width() == dims.width(),
            "a weight of shape {dims} does not fit an input of shape {shape}"
        );
        assert_eq!(
            shape.rows(),
            targets.len(),
            "rows of shape {shape} for targets of shape ({})",
            targets.len()
        );
        if let Some(bias) = bias {
            assert_eq!(bias.shape().dims(), [dims.rows()], "the bias of a {dims} weight");
        }
        Self { h, weight, bias }
    }

    fn vocabulary(&self) -> usize {
        self.weight.shape().rows()
    }

    /// The rows of `h` in `range`.
    fn rows(&self, range: &Range<usize>) -> Matrix<'_> {
        let width = self.h.shape().width();
        let data = &self.h.data()[range.start * width..range.end * width];
        Matrix::new(data, range.len(), width)
    }

    /// Calls `f` with each chunk of rows and its logits, which it may overwrite.
    fn for_each_chunk(&self, chunk: usize, mut f: impl FnMut(Range<usize>, &mut [f32])) {
        let (rows, vocabulary) = (self.h.shape().rows(), self.vocabulary());
        let mut logits = Tensor::unset([chunk.min(rows), vocabulary]);
        for start in (0..rows).step_by(chunk) {
            let range = start..(start + chunk).min(rows);
            let logits = &mut logits.data_mut()[..range.len() * vocabulary];
            gemm(
                self.rows(&range),
                self.weight.stored().matrix().transposed(),
                logits,
                vocabulary,
                Write::Set,
                Epilogue { bias: self.bias.map(Tensor::data), ..Epilogue::default() },
            );
            f(range, logits);
        }
    }
}

fn in_chunks(
    chunk: usize,
    h: &Var,
    weight: &Weight,
    bias: Option<&Var>,
    targets: &[u32],
    options: Options,
) -> Var {
    let head = Head::new(h.value(), weight.clone(), bias.map(Var::value), targets);
    let (kernel_options, factor) = options.kernel(targets);
    let (vocabulary, width) = (head.vocabulary(), h.shape().width());
    let mut losses = Tensor::unset([targets.len()]);

    let none = Var::constant(Tensor::zeros([0])); // holds the place of a bias that is not there
    let inputs = [h, weight.master(), bias.unwrap_or(&none)];
    // Zeros where there is no chunk that would set them.
    let gradient = |x: &Var| {
        let make = if targets.is_empty() { Tensor::zeros } else { Tensor::unset };
        (is_recording() && x.wants_gradient()).then(|| make(x.shape()))
    };
    let [mut dh, mut dw, mut db] = inputs.map(gradient);

    if dh.is_none() && dw.is_none() && db.is_none() {
        head.for_each_chunk(chunk, |rows, logits| {
            let losses = &mut losses.data_mut()[rows.clone()];
            kernel::cross_entropy(kernel_options, &targets[rows], vocabulary, logits, losses);
        });
    } else {
        head.for_each_chunk(chunk, |rows, logits| {
            let losses = &mut losses.data_mut()[rows.clone()];
            let own = &targets[rows.clone()];
            kernel::cross_entropy_in_place(kernel_options, own, vocabulary, logits, losses);
            let dz = Matrix::new(logits, rows.len(), vocabulary);
            let plain = Epilogue::default;
            let write = if rows.start == 0 { Write::Set } else { Write::Add };
            if let Some(dh) = &mut dh {
                let dh = &mut dh.data_mut()[rows.start * width..rows.end * width];
                let weight = head.weight.stored().matrix();
                gemm(dz, weight, dh, width, Write::Set, plain()); // 1
            }
            if let Some(dw) = &mut dw {
                let h = head.rows(&rows);
                gemm(dz.transposed(), h, dw.data_mut(), width, write, plain()); // 2
            }
            if let Some(db) = &mut db {
                elementwise::column_sums(logits, db.data_mut(), write); // 3
            }
        });
    }
    let loss = elementwise::sum(losses.data()) * factor;
    let saved = || HeadBackward { gradients: [dh, dw, db] };
    Var::from_op(Tensor::scalar(loss), &inputs, saved)
}

struct HeadBackward {
    gradients: [Option<Tensor>; 3], // of h, W and b, for dout = 1
}

impl Backward for HeadBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        for (i, gradient) in self.gradients.into_iter().enumerate() {
            if let Some(mut gradient) = gradient {
                if dout.item() != 1.0 {
                    elementwise::scale(gradient.data_mut(), dout.item());
                }
                gradients.add(i, gradient);
            }
        }
    }
}

fn reference(inputs: &[Array], targets: &[u32], options: Options) -> Array {
    let (h, w) = (&inputs[0], &inputs[1]);
    let vocabulary = w.shape.rows();
    let logits = Array::build(h.shape.with_width(vocabulary), |i| {
        let (n, j) = (i / vocabulary, i % vocabulary);
        let dot: f64 = h.row(n).iter().zip(w.row(j)).map(|(a, b)| a * b).sum();
        dot + inputs.get(2).map_or(0.0, |b| b.data[j])
    });
    loss_of_logits(&logits, targets, options)
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    use super::cross_entropy::Reduction;
    let tolerance = Tolerance {
        forward: 5e-7,
        backward: 1e-6,
        reason: "logits are dot products of up to 9 terms, their errors grow by e^z; then sums of \
                 33 or 57 rows",
    };
    let case = |name, shape: &[usize], vocabulary, bias: bool, chunk: usize, options: Options| {
        let width = shape[shape.len() - 1];
        let targets = case_targets(shape.iter().product::<usize>() / width, vocabulary, true);
        let (own, own_too) = (targets.clone(), targets.clone());
        let forward = move |v: &[Var]| {
            in_chunks(chunk, &v[0], &Weight::from(&v[1]), v.get(2), &own, options)
        };
        let reference = move |a: &[Array]| reference(a, &own_too, options);
        let mut case = Case::new("head_cross_entropy", name, tolerance, forward, reference)
            .normal("h", shape)
            .normal("w", [vocabulary, width]);
        if bias {
            case = case.normal("b", [vocabulary]);
        }
        case_extras(case, &targets, options).torch(if bias { TORCH_BIAS } else { TORCH })
    };
    let all = Options { label_smoothing: 0.1, z_loss: 1e-3, reduction: Reduction::Sum };
    let whole = rows_per_chunk(17);
    vec![
        case("plain", &[5, 3], 7, false, whole, Options::default()),
        case("bias", &[2, 3, 5], 17, true, whole, Options::default()),
        case("in_chunks", &[11, 5], 33, true, 4, Options::default()),
        case("everything_in_chunks", &[57, 9], 19, true, 16, all),
        // 256 · 230 · 9 multiply-adds: enough for the threads to share.
        case("shared", &[256, 9], 230, false, whole, Options::default()),
    ]
}

const TORCH: &str = "
t = targets.long()
z = F.linear(h, w).reshape(-1, w.shape[0])
lse = torch.logsumexp(z, -1)[t >= 0]
out = F.cross_entropy(z, t, label_smoothing=smoothing.item(), reduction='sum') + (c * lse ** 2).sum()
out = out / (t >= 0).sum() if mean.item() else out
";
const TORCH_BIAS: &str = "
t = targets.long()
z = F.linear(h, w, b).reshape(-1, w.shape[0])
lse = torch.logsumexp(z, -1)[t >= 0]
out = F.cross_entropy(z, t, label_smoothing=smoothing.item(), reduction='sum') + (c * lse ** 2).sum()
out = out / (t >= 0).sum() if mean.item() else out
";

#[cfg(test)]
mod tests;
