//! What the recurrent operations ([`rnn`](crate::ops::rnn), [`gru`](crate::ops::gru),
//! [`lstm`](crate::ops::lstm)) share: the direction in which a batch is read, the products with the
//! states, and cases that are whole networks as PyTorch's.

use crate::graph::{Gradients, Var};
use crate::half::{Saved, Weight};
use crate::shape::Shape;
use crate::tensor::Tensor;
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
            sums.rank() == 3 && dims.dims() == [gates * width, width] && sums.width() == dims.rows(),
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

/// `sums[:, time] += h·Uᵀ + b`, where `sums` is (B, T, N) and h (B, C).
pub(crate) fn add_product(
    walk: &Walk<'_>,
    time: usize,
    hidden: &[f32],
    weight: &Saved,
    bias: Option<&Var>,
    sums: &mut [f32],
) {
    let wide = weight.shape().rows();
    gemm(
        Matrix::new(hidden, walk.batch, walk.width),
        weight.matrix().transposed(),
        &mut sums[time * wide..],
        walk.length * wide,
        Write::Add,
        Epilogue { bias: bias.map(|b| b.value().data()), ..Epilogue::default() },
    );
}

/// `dh += dsums[:, time, columns]·U[rows]`: `columns` of `wide`, and as many rows of U.
pub(crate) fn add_gradient_of_state(
    walk: &Walk<'_>,
    dsums: Matrix<'_>,
    weight: Matrix<'_>,
    dhidden: &mut [f32],
) {
    gemm(dsums, weight, dhidden, walk.width, Write::Add, Epilogue::default());
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
