//! What follows a product while its rows are still in cache.
//!
//! ```text
//! v = (out if adding) + A·B + bias
//! out = activation(v) + residual
//! ```
//!
//! Where the backward pass needs v, `out` keeps it, and what comes of it goes to `activated`.
//! In the backward pass itself, `out = v·f′(x)` with the x of back then, and x becomes f(x).

use crate::activation::{
    Activation, backward_and_forward_chunk, forward_chunk, forward_chunk_in_place,
};
use crate::simd::Simd;
use crate::threads::SharedMut;
use crate::{dispatch, each_span};
use std::ops::Range;

/// What [`gemm`](super::gemm) does with a finished sum. The default is nothing.
#[derive(Debug, Default)]
pub struct Epilogue<'a> {
    /// Added to every row; as long as a row.
    pub bias: Option<&'a [f32]>,
    /// Applied to every element.
    pub activation: Option<Activation>,
    /// Receives the result in place of `out`, which keeps what it was before the activation.
    /// Laid out as `out`; goes with an activation only.
    pub activated: Option<&'a mut [f32]>,
    /// Multiplies by f′ of the numbers given, which become f of themselves: what the gradient of
    /// a matrix behind an activation needs. Laid out as `out`; not along with `activation`.
    pub slope_of: Option<(Activation, &'a mut [f32])>,
    /// Added last. Laid out as `out`.
    pub residual: Option<&'a [f32]>,
}

impl<'a> Epilogue<'a> {
    /// Only a bias.
    pub fn bias(bias: &'a [f32]) -> Self {
        Self { bias: Some(bias), ..Self::default() }
    }
}

/// An [`Epilogue`] as tasks share it.
pub(super) struct Tail<'a> {
    bias: Option<&'a [f32]>,
    activation: Option<Activation>,
    activated: Option<SharedMut<'a>>,
    slope_of: Option<(Activation, SharedMut<'a>)>,
    residual: Option<&'a [f32]>,
}

impl<'a> Tail<'a> {
    /// Checks that everything is there for `columns` columns and `len` floats of `out`.
    pub(super) fn new(epilogue: Epilogue<'a>, columns: usize, len: usize) -> Self {
        if let Some(bias) = epilogue.bias {
            assert_eq!(bias.len(), columns, "a bias of {} for {columns} columns", bias.len());
        }
        if let Some(activated) = &epilogue.activated {
            assert!(epilogue.activation.is_some(), "`activated` without an activation");
            assert!(activated.len() >= len, "{} activated floats, not {len}", activated.len());
        }
        if let Some((_, x)) = &epilogue.slope_of {
            assert!(epilogue.activation.is_none(), "`slope_of` together with an activation");
            assert!(x.len() >= len, "{} floats before the activation, not {len}", x.len());
        }
        if let Some(residual) = epilogue.residual {
            assert!(residual.len() >= len, "a residual of {} floats, not {len}", residual.len());
        }
        Self {
            bias: epilogue.bias,
            activation: epilogue.activation,
            activated: epilogue.activated.map(SharedMut::new),
            slope_of: epilogue.slope_of.map(|(f, x)| (f, SharedMut::new(x))),
            residual: epilogue.residual,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bias.is_none()
            && self.activation.is_none()
            && self.slope_of.is_none()
            && self.residual.is_none()
    }

    /// Finishes `out`, the `columns` of a row that starts at `row_start`.
    ///
    /// # Safety
    /// No other task may work on these elements meanwhile.
    pub(super) unsafe fn apply(&self, row_start: usize, columns: Range<usize>, out: &mut [f32]) {
        let here = row_start + columns.start..row_start + columns.end;
        if let Some(bias) = self.bias {
            add(out, &bias[columns]);
        }
        let result = match (self.activation, &self.activated) {
            (Some(activation), Some(activated)) => {
                // SAFETY: the elements that correspond to `out`, which this task has to itself.
                let activated = unsafe { activated.range(here.clone()) };
                forward_chunk(activation, out, activated);
                activated
            }
            (Some(activation), None) => {
                forward_chunk_in_place(activation, out);
                out
            }
            (None, _) => {
                if let Some((f, x)) = &self.slope_of {
                    // SAFETY: the elements that correspond to `out`, as above.
                    backward_and_forward_chunk(*f, unsafe { x.range(here.clone()) }, out);
                }
                out
            }
        };
        if let Some(residual) = self.residual {
            add(result, &residual[here]);
        }
    }
}

dispatch! {
    fn add(out: &mut [f32], x: &[f32]) => add_on
}

/// out += x
#[inline(always)]
fn add_on<S: Simd>(s: S, out: &mut [f32], x: &[f32]) {
    assert_eq!(out.len(), x.len());
    each_span!(S, out.len(), |at| {
        s.write(out, at, s.add(s.read(out, at), s.read(x, at)));
    });
}
