//! What the recurrent operations ([`rnn`](crate::ops::rnn), [`gru`](crate::ops::gru),
//! [`lstm`](crate::ops::lstm)) share: the direction in which a batch is read, the products with the
//! states, and cases that are whole networks as PyTorch's.

use crate::graph::{Gradients, Var};
use crate::half::Weight;
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::gemm::packed::{Packed, with_packed};
use hearken_kernels::gemm::{Epilogue, Matrix, gemm};
use hearken_kernels::recurrent::{Walk, states_before};
use hearken_kernels::{Write, elementwise};
use std::sync::Arc;

pub(crate) mod networks;

/// In which direction a recurrent layer reads, and how far.
#[derive(Clone, Debug, Default)]
pub struct Traversal {
    /// From the last token of each row to its first?
    pub backwards: bool,
    /// The length of each row without its padding (B), where states stay as they are, and what the
    /// layer gives is 0; all of it, if `None`.
    pub lengths: Option<Arc<[usize]>>,
}

impl Traversal {
    /// Checks the shapes of a layer with `gates` gates: sums (B, T, gates·C), weight (gates·C, C),
    /// bias, states (B, C). Gives the walk.
    pub(crate) fn walk(
        &self,
        gates: usize,
        sums: Shape,
        weight: &Weight,
        bias: Option<&Var>,
        states: &[&Var],
    ) -> Walk<'_> {
        let dims = weight.shape();
        let width = dims.width();
        assert!(
            sums.rank() == 3
                && dims.dims() == [gates * width, width]
                && sums.width() == dims.rows(),
            "a recurrent weight of shape {dims} does not fit {gates} gates of shape {sums}"
        );
        let [batch, length] = [sums.dims()[0], sums.dims()[1]];
        if let Some(bias) = bias {
            assert_eq!(bias.shape().dims(), [gates * width], "the bias of a {dims} weight");
        }
        for state in states {
            assert_eq!(state.shape().dims(), [batch, width], "a state beside gates of {sums}");
        }
        if let Some(lengths) = &self.lengths {
            assert!(
                lengths.len() == batch && lengths.iter().all(|&n| n <= length),
                "lengths {lengths:?} of gates of {sums}"
            );
        }
        let (backwards, lengths) = (self.backwards, self.lengths.as_deref());
        Walk { batch, length, width, backwards, lengths }
    }

    /// The same walk in backward, where shapes are known to fit.
    pub(crate) fn same_walk(&self, states: Shape) -> Walk<'_> {
        let [batch, length, width] = [0, 1, 2].map(|i| states.dims()[i]);
        let (backwards, lengths) = (self.backwards, self.lengths.as_deref());
        Walk { batch, length, width, backwards, lengths }
    }
}

/// A copy of a state, to be changed.
pub(crate) fn copied(state: &Var) -> Tensor {
    let mut copy = Tensor::unset(state.shape());
    elementwise::copy(state.value().data(), copy.data_mut());
    copy
}

/// The gradient of a state, or zeros (B, C).
pub(crate) fn or_zeros(gradient: Option<Tensor>, walk: &Walk<'_>) -> Tensor {
    gradient.unwrap_or_else(|| {
        let mut zeros = Tensor::unset([walk.batch, walk.width]);
        elementwise::fill(zeros.data_mut(), 0.0);
        zeros
    })
}

/// Products of a few rows with one matrix, at many times.
pub(crate) enum Products<'a> {
    Plain(Matrix<'a>),
    Packed(&'a Packed<'a>),
}

/// Rows of a product, and products, from which on a matrix is packed for all of them: below, reading
/// it is all the work ([`gemm`] takes up to three rows as they are).
const PACKED_FROM: usize = 4;

/// Lets `f` multiply with `matrix` at every time of the walk.
pub(crate) fn with_products<R>(
    walk: &Walk<'_>,
    matrix: Matrix<'_>,
    f: impl FnOnce(&Products<'_>) -> R,
) -> R {
    if walk.batch.min(walk.length) < PACKED_FROM {
        return f(&Products::Plain(matrix));
    }
    with_packed(matrix, |packed| f(&Products::Packed(packed)))
}

impl Products<'_> {
    /// `out = A·B` or `out += A·B`, and a bias.
    pub(crate) fn multiply(
        &self,
        a: Matrix<'_>,
        out: &mut [f32],
        out_stride: usize,
        write: Write,
        bias: Option<&Var>,
    ) {
        let epilogue =
            Epilogue { bias: bias.map(|bias| bias.value().data()), ..Epilogue::default() };
        match self {
            Self::Plain(b) => gemm(a, *b, out, out_stride, write, epilogue),
            Self::Packed(b) => b.multiply(a, out, out_stride, write, epilogue),
        }
    }

    /// `sums[:, time] += h·Uᵀ + b`, where `sums` is (B, T, N) and h (B, C).
    pub(crate) fn add_to_sums(
        &self,
        walk: &Walk<'_>,
        time: usize,
        hidden: &[f32],
        bias: Option<&Var>,
        sums: &mut [f32],
    ) {
        let wide = sums.len() / (walk.batch * walk.length).max(1);
        let hidden = Matrix::new(hidden, walk.batch, walk.width);
        self.multiply(hidden, &mut sums[time * wide..], walk.length * wide, Write::Add, bias);
    }

    /// `dh += dsums[:, time]·U`, where `dsums` is (B, T, `wide`), of which `columns` count.
    pub(crate) fn add_to_state(
        &self,
        walk: &Walk<'_>,
        time: usize,
        (dsums, wide, columns): (&[f32], usize, usize),
        dhidden: &mut [f32],
    ) {
        let dsums = dsums.get(time * wide..).unwrap_or_default(); // nothing, if there are no rows
        let dsums = Matrix::strided(dsums, walk.batch, columns, walk.length * wide);
        self.multiply(dsums, dhidden, walk.width, Write::Add, None);
    }
}

/// The gradients of U (N, C), input 1, and of its bias, input `bias`: dsums (B, T, N) times the
/// states before.
pub(crate) fn gradients_of_weight(
    walk: &Walk<'_>,
    dsums: &Tensor,
    (kept, first): (&Tensor, &Tensor),
    bias: usize,
    gradients: &mut Gradients<'_>,
) {
    let (rows, wide) = (dsums.shape().rows(), dsums.shape().width());
    if gradients.wanted(1) {
        let before = before(walk, kept, first);
        let (dsums, before) =
            (Matrix::new(dsums.data(), rows, wide), Matrix::new(before.data(), rows, walk.width));
        gradients.write(1, |dw, write| {
            gemm(dsums.transposed(), before, dw, walk.width, write, Epilogue::default());
        });
    }
    gradients.write(bias, |db, write| elementwise::column_sums(dsums.data(), db, write));
}

/// The state before each time, (B, T, C).
pub(crate) fn before(walk: &Walk<'_>, kept: &Tensor, first: &Tensor) -> Tensor {
    let mut before = Tensor::unset([walk.batch, walk.length, walk.width]);
    states_before(walk, kept.data(), first.data(), before.data_mut());
    before
}
