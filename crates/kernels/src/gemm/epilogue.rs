//! What follows a product while its rows are still in cache.
//!
//! ```text
//! v = (out if adding) + A·B + bias
//! out = activation(v)·factor + residual
//! ```
//!
//! Where a backward pass is to follow, the result goes to `activated` and `out` is left with the
//! slope of the activation at v, which then is the `factor` of the product on the way back.

use crate::activation::{Activation, forward_and_slope_on, forward_in_place_on};
use crate::elementwise::{add_assign_on, mul_assign_on};
use crate::simd::Simd;
use crate::threads::SharedMut;
use std::ops::Range;

/// What [`gemm`](super::gemm) does with a finished sum. The default is nothing.
#[derive(Debug, Default)]
pub struct Epilogue<'a> {
    /// Added to every row; as long as a row.
    pub bias: Option<&'a [f32]>,
    /// Applied to every element.
    pub activation: Option<Activation>,
    /// Receives the result in place of `out`, which keeps the slope of the activation.
    /// Laid out as `out`; goes with an activation only.
    pub activated: Option<&'a mut [f32]>,
    /// Multiplies element by element. Laid out as `out`.
    pub factor: Option<&'a [f32]>,
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
    factor: Option<&'a [f32]>,
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
        if let Some(factor) = epilogue.factor {
            assert!(factor.len() >= len, "a factor of {} floats, not {len}", factor.len());
        }
        if let Some(residual) = epilogue.residual {
            assert!(residual.len() >= len, "a residual of {} floats, not {len}", residual.len());
        }
        Self {
            bias: epilogue.bias,
            activation: epilogue.activation,
            activated: epilogue.activated.map(SharedMut::new),
            factor: epilogue.factor,
            residual: epilogue.residual,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bias.is_none()
            && self.activation.is_none()
            && self.factor.is_none()
            && self.residual.is_none()
    }

    /// What the epilogue from element `start` on will read or write beside `out`, to be fetched
    /// beforehand: at most two, nulls last. (Not a factor beside `activated`, which nobody has.)
    pub(super) fn touches_at(&self, start: usize) -> [*const f32; 2] {
        let place = |x: Option<*const f32>| x.map_or(std::ptr::null(), |x| x.wrapping_add(start));
        let first = match &self.activated {
            Some(activated) => Some(activated.pointer(0..0).cast_const()),
            None => self.factor.map(<[f32]>::as_ptr),
        };
        let second = self.residual.map(<[f32]>::as_ptr);
        if first.is_some() { [place(first), place(second)] } else { [place(second), place(None)] }
    }

    /// Finishes `out`, the `columns` of a row that starts at `row_start`.
    ///
    /// # Safety
    /// No other task may work on these elements meanwhile.
    #[inline(always)]
    pub(super) unsafe fn apply<S: Simd>(
        &self,
        s: S,
        row_start: usize,
        columns: Range<usize>,
        out: &mut [f32],
    ) {
        let here = row_start + columns.start..row_start + columns.end;
        if let Some(bias) = self.bias {
            add_assign_on(s, out, &bias[columns]);
        }
        let result = match (self.activation, &self.activated) {
            (Some(activation), Some(activated)) => {
                // SAFETY: the elements that correspond to `out`, which this task has to itself.
                let activated = unsafe { activated.range(here.clone()) };
                forward_and_slope_on(s, activation, out, activated);
                activated
            }
            (Some(activation), None) => {
                forward_in_place_on(s, activation, out);
                out
            }
            (None, _) => out,
        };
        if let Some(factor) = self.factor {
            mul_assign_on(s, result, &factor[here.clone()]);
        }
        if let Some(residual) = self.residual {
            add_assign_on(s, result, &residual[here]);
        }
    }
}
