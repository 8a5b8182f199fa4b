//! Reductions of slices to one number, as generic pieces for other kernels.
//!
//! Four accumulators hide the latency of the addition; their sum is combined in a fixed order,
//! which depends on the length and the number of lanes alone.

use super::Simd;

/// Folds the spans of a length into one vector:
/// `fold_spans!(S, len, start, |sum, at| step, |a, b| join)`. A macro for the reason that
/// [`each_span!`](crate::each_span) is one.
macro_rules! fold_spans {
    ($S:ty, $len:expr, $start:expr, |$acc:ident, $at:ident| $step:expr, |$a:ident, $b:ident| $join:expr) => {{
        let lanes = <$S as $crate::simd::Simd>::LANES;
        let len: usize = $len;
        let mut accumulators = [$start; 4];
        let mut start = 0;
        while start + 4 * lanes <= len {
            for (k, accumulator) in accumulators.iter_mut().enumerate() {
                let $at = $crate::simd::Span { start: start + k * lanes, count: lanes };
                let $acc = *accumulator;
                *accumulator = $step;
            }
            start += 4 * lanes;
        }
        while start + lanes <= len {
            let $at = $crate::simd::Span { start, count: lanes };
            let $acc = accumulators[0];
            accumulators[0] = $step;
            start += lanes;
        }
        if start < len {
            let $at = $crate::simd::Span { start, count: len - start };
            let $acc = accumulators[1];
            accumulators[1] = $step;
        }
        let ($a, $b) = (accumulators[0], accumulators[1]);
        let low = $join;
        let ($a, $b) = (accumulators[2], accumulators[3]);
        let high = $join;
        let ($a, $b) = (low, high);
        $join
    }};
}
pub(crate) use fold_spans;

/// Σ x
#[inline(always)]
pub(crate) fn sum<S: Simd>(s: S, x: &[f32]) -> f32 {
    let total =
        fold_spans!(S, x.len(), s.zero(), |sum, at| s.add(sum, s.read(x, at)), |a, b| s.add(a, b));
    s.sum(total)
}

/// Σ x·y
#[inline(always)]
pub(crate) fn dot<S: Simd>(s: S, x: &[f32], y: &[f32]) -> f32 {
    assert_eq!(x.len(), y.len());
    let total = fold_spans!(
        S,
        x.len(),
        s.zero(),
        |sum, at| s.mul_add(s.read(x, at), s.read(y, at), sum),
        |a, b| s.add(a, b)
    );
    s.sum(total)
}
