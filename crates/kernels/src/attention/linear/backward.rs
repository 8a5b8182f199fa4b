//! The backward pass of linear attention; the formulas are in the file above.

use super::{CHUNK, Linear, Part, Shape, lower, product, put};
use crate::dry::{self, Operations};
use crate::gemm::Matrix;
use crate::threads::{self, SharedMut};
use crate::{Write, scratch};
use std::ops::Range;

/// What backward reads beside the operands.
#[derive(Clone, Copy, Debug)]
pub struct Results<'a> {
    /// (N, H, Dv)
    pub out: &'a [f32],
    /// d (N, H)
    pub normalisers: &'a [f32],
    /// (N, H, Dv)
    pub dout: &'a [f32],
}

/// A gradient to write or to add to; `None` if it is not wanted.
pub type Gradient<'a> = Option<(&'a mut [f32], Write)>;

impl Part<'_> {
    /// dm (C, W)
    fn dmixed(&self, results: &Results<'_>, head: usize, out: &mut [f32]) {
        let Shape { heads, value_width, .. } = self.all.shape;
        for (i, row) in out.chunks_exact_mut(value_width + 1).take(self.len).enumerate() {
            let place = (self.start + i) * heads + head;
            let at = place * value_width..(place + 1) * value_width;
            let (dout, out) = (&results.dout[at.clone()], &results.out[at]);
            let inverse = 1.0 / results.normalisers[place];
            let mut along = 0.0;
            for ((d, dout), out) in row.iter_mut().zip(dout).zip(out) {
                *d = dout * inverse;
                along += *d * out;
            }
            row[value_width] = -along;
        }
    }
}

impl Linear<'_> {
    /// Writes or adds the gradients of queries (N, H, M), keys (N, K, M) and values (N, K, Dv).
    pub fn backward(&self, results: &Results<'_>, gradients: [Gradient<'_>; 3]) {
        let rows = self.check(results.normalisers);
        let Shape { heads, kv_heads, features, value_width, .. } = self.shape;
        assert_eq!(results.out.len(), rows * heads * value_width, "out is (N, H, Dv)");
        assert_eq!(results.dout.len(), results.out.len(), "dout is not as long as out");
        dry::count(|| {
            let Operations { products, attention } = self.shape.operations(rows);
            Operations { products, attention: 2.0 * attention }
        });
        let lengths = [heads * features, kv_heads * features, kv_heads * value_width];
        let covers = self.covers(rows);
        let mut length = lengths.into_iter();
        let gradients = gradients.map(|gradient| {
            let row = length.next().unwrap_or_default();
            gradient.map(|(data, write)| {
                assert_eq!(data.len(), rows * row, "a gradient is not as long as its operand");
                if !covers && write == Write::Set {
                    crate::elementwise::fill(data, 0.0);
                }
                (SharedMut::new(data), write)
            })
        });
        let sum_width = self.shape.sum_width();
        let len = features * sum_width + CHUNK * (3 * sum_width + 2 * CHUNK + features);
        threads::for_each(self.runs.len() * kv_heads, |task| {
            let (run, kv_head) = (&self.runs[task / kv_heads], task % kv_heads);
            scratch::with(len, |work| {
                // SAFETY: as in `forward`.
                unsafe { self.backward_head(run, kv_head, results, work, gradients) };
            });
        });
    }

    /// # Safety
    /// Nobody else may touch the gradients of the rows of `run` of `kv_head` and its queries.
    unsafe fn backward_head(
        &self,
        run: &Range<usize>,
        kv_head: usize,
        results: &Results<'_>,
        work: &mut [f32],
        [dqueries, dkeys, dvalues]: [Option<(SharedMut<'_>, Write)>; 3],
    ) {
        let Shape { heads, kv_heads, features, value_width, causal } = self.shape;
        let sum_width = self.shape.sum_width();
        let mut work = Work::new(work, features, sum_width);
        if let Some(to) = dqueries {
            work.sums.fill(0.0);
            if !causal {
                for part in self.parts(run, kv_head) {
                    part.values(work.values);
                    work.add_keys(&part);
                }
            }
            for part in self.parts(run, kv_head) {
                part.values(work.values);
                for head in part.query_heads() {
                    part.dmixed(results, head, work.dmixed);
                    let dmixed = Matrix::new(work.dmixed, part.len, sum_width);
                    let sums = Matrix::new(work.sums, features, sum_width).transposed();
                    product(dmixed, sums, work.drows, Write::Set); // 1
                    if causal {
                        work.dweights(&part);
                        let dweights = Matrix::new(work.dweights, part.len, part.len);
                        product(dweights, part.keys(), work.drows, Write::Add); // 1, within
                    }
                    // SAFETY: rows and a head of this task.
                    unsafe { put(to, &part, [heads, head], work.drows, features, features) };
                }
                if causal {
                    work.add_keys(&part);
                }
            }
        }
        work.sums.fill(0.0); // R from here on
        if !causal {
            for part in self.parts(run, kv_head) {
                part.query_heads().for_each(|head| {
                    part.dmixed(results, head, work.dmixed);
                    work.add_queries(&part, head);
                });
            }
        }
        for part in self.parts(run, kv_head).rev() {
            part.values(work.values);
            let values = Matrix::new(work.values, part.len, sum_width);
            let later = Matrix::new(work.sums, features, sum_width);
            product(values, later.transposed(), work.drows, Write::Set); // 3
            product(part.keys(), later, work.dvalues, Write::Set); // 4
            if causal {
                for head in part.query_heads() {
                    part.dmixed(results, head, work.dmixed);
                    work.dweights(&part);
                    let q = part.queries(head);
                    let dweights = Matrix::new(work.dweights, part.len, part.len);
                    product(dweights.transposed(), q, work.drows, Write::Add); // 3, within
                    product(q, part.keys().transposed(), work.weights, Write::Set);
                    lower(work.weights, part.len);
                    let weights = Matrix::new(work.weights, part.len, part.len);
                    let dmixed = Matrix::new(work.dmixed, part.len, sum_width);
                    product(weights.transposed(), dmixed, work.dvalues, Write::Add); // 4, within
                    work.add_queries(&part, head); // 2
                }
            }
            let head = [kv_heads, kv_head];
            if let Some(to) = dkeys {
                // SAFETY: rows and a head of this task.
                unsafe { put(to, &part, head, work.drows, features, features) };
            }
            if let Some(to) = dvalues {
                // SAFETY: as above.
                unsafe { put(to, &part, head, work.dvalues, sum_width, value_width) };
            }
        }
    }
}

/// Working memory of one head's backward pass.
struct Work<'a> {
    sum_width: usize,
    /// S or R (M, W)
    sums: &'a mut [f32],
    /// v′, its gradient, and that of m: (C, W)
    values: &'a mut [f32],
    dvalues: &'a mut [f32],
    dmixed: &'a mut [f32],
    /// (C, C)
    weights: &'a mut [f32],
    dweights: &'a mut [f32],
    /// Of queries or keys (C, M)
    drows: &'a mut [f32],
}

impl<'a> Work<'a> {
    fn new(work: &'a mut [f32], features: usize, sum_width: usize) -> Self {
        let (sums, work) = work.split_at_mut(features * sum_width);
        let (values, work) = work.split_at_mut(CHUNK * sum_width);
        let (dvalues, work) = work.split_at_mut(CHUNK * sum_width);
        let (dmixed, work) = work.split_at_mut(CHUNK * sum_width);
        let (weights, work) = work.split_at_mut(CHUNK * CHUNK);
        let (dweights, drows) = work.split_at_mut(CHUNK * CHUNK);
        Self { sum_width, sums, values, dvalues, dmixed, weights, dweights, drows }
    }

    /// S += kᵀ·v′
    fn add_keys(&mut self, part: &Part<'_>) {
        let values = Matrix::new(self.values, part.len, self.sum_width);
        product(part.keys().transposed(), values, self.sums, Write::Add);
    }

    /// R += qᵀ·dm
    fn add_queries(&mut self, part: &Part<'_>, head: usize) {
        let dmixed = Matrix::new(self.dmixed, part.len, self.sum_width);
        product(part.queries(head).transposed(), dmixed, self.sums, Write::Add);
    }

    /// dm·v′ᵀ, where it is visible
    fn dweights(&mut self, part: &Part<'_>) {
        let dmixed = Matrix::new(self.dmixed, part.len, self.sum_width);
        let values = Matrix::new(self.values, part.len, self.sum_width);
        product(dmixed, values.transposed(), self.dweights, Write::Set);
        lower(self.dweights, part.len);
    }
}
