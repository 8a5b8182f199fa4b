//! Linear attention: the weight of key j for query i is a product of features, φ(qᵢ)·φ(kⱼ), so that
//! the sum over keys is computed once and not for every query (Katharopoulos et al. 2020).
//!
//! With φ already applied, per head, v′ⱼ = (vⱼ, 1) and W = Dv + 1:
//!
//! ```text
//! Sᵢ = Σⱼ kⱼ v′ⱼᵀ               (M, W), over j ≤ i if causal, else over all j
//! mᵢ = qᵢ·Sᵢ                    (W): numerator, and in the last place the normaliser
//! oᵢ = mᵢ[..Dv] / dᵢ            dᵢ = mᵢ[Dv] + ε
//! ```
//!
//! Backward, with dmᵢ = (doᵢ/dᵢ, −doᵢ·oᵢ/dᵢ):
//!
//! ```text
//! (1) dqᵢ  = Sᵢ·dmᵢ
//! (2) Rⱼ   = Σᵢ qᵢ dmᵢᵀ         (M, W), over i ≥ j if causal, else over all i
//! (3) dkⱼ  = Rⱼ·v′ⱼ
//! (4) dv′ⱼ = Rⱼᵀ·kⱼ             its last number belongs to the constant 1
//! ```
//!
//! A causal sequence is cut into chunks of `CHUNK` tokens: what lies before a chunk is in S, and
//! within it there are plain lower triangles of weights. So O(T·M·Dv) operations, O(M·Dv) memory
//! beside operands and result. A task is one sequence and one head of keys; chunks follow each
//! other in order, so the bits do not depend on the number of threads.

mod backward;

pub use backward::{Gradient, Results};

use crate::dry::{self, Operations};
use crate::gemm::{Epilogue, Matrix, gemm};
use crate::threads::{self, SharedMut};
use crate::{Write, scratch};
use std::ops::Range;

/// Added to the normaliser, which may be 0 for features that may be.
pub const EPSILON: f32 = 1e-6;
/// The products within a chunk cost C·(M + Dv) per token, those with the sums 2·M·Dv: of the same
/// size for heads of 64.
const CHUNK: usize = 64;

/// The dimensions of linear attention of tokens to their own sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// H
    pub heads: usize,
    /// K; divides H
    pub kv_heads: usize,
    /// M: features of a query or key.
    pub features: usize,
    /// Dv
    pub value_width: usize,
    /// Does a token see only itself and those before it?
    pub causal: bool,
}

/// What linear attention reads; N rows are tokens of any number of sequences.
#[derive(Clone, Copy, Debug)]
pub struct Linear<'a> {
    /// All dimensions.
    pub shape: Shape,
    /// Sequences, as disjoint ranges of rows. Rows of none give zeros.
    pub runs: &'a [Range<usize>],
    /// (N, H, M), features
    pub queries: &'a [f32],
    /// (N, K, M), features
    pub keys: &'a [f32],
    /// (N, K, Dv)
    pub values: &'a [f32],
}

impl Shape {
    /// W
    fn sum_width(&self) -> usize {
        self.value_width + 1
    }

    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Numbers of the running sums of one sequence: (K, M, Dv + 1).
    pub fn state_len(&self) -> usize {
        self.kv_heads * self.features * self.sum_width()
    }

    fn operations(&self, rows: usize) -> Operations {
        let sums = 2 * (self.heads + self.kv_heads) * self.features * self.sum_width();
        Operations { products: 0.0, attention: rows as f64 * sums as f64 }
    }
}

/// One head of keys in one chunk of rows.
#[derive(Clone, Copy)]
struct Part<'a> {
    all: &'a Linear<'a>,
    kv_head: usize,
    start: usize,
    len: usize,
}

impl<'a> Part<'a> {
    fn matrix(&self, data: &'a [f32], heads: usize, head: usize, width: usize) -> Matrix<'a> {
        let at = (self.start * heads + head) * width;
        Matrix::strided(&data[at..], self.len, width, heads * width)
    }

    /// (C, M)
    fn queries(&self, head: usize) -> Matrix<'a> {
        let Shape { heads, features, .. } = self.all.shape;
        self.matrix(self.all.queries, heads, head, features)
    }

    /// (C, M)
    fn keys(&self) -> Matrix<'a> {
        let Shape { kv_heads, features, .. } = self.all.shape;
        self.matrix(self.all.keys, kv_heads, self.kv_head, features)
    }

    /// v′ (C, W)
    fn values(&self, out: &mut [f32]) {
        let Shape { kv_heads, value_width, .. } = self.all.shape;
        for (i, row) in out.chunks_exact_mut(value_width + 1).take(self.len).enumerate() {
            let at = ((self.start + i) * kv_heads + self.kv_head) * value_width;
            row[..value_width].copy_from_slice(&self.all.values[at..at + value_width]);
            row[value_width] = 1.0;
        }
    }

    /// The query heads that read this head of keys.
    fn query_heads(&self) -> Range<usize> {
        let group = self.all.shape.group();
        self.kv_head * group..(self.kv_head + 1) * group
    }
}

fn product(a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32], write: Write) {
    gemm(a, b, out, b.shape().1, write, Epilogue::default());
}

/// Clears what lies above the diagonal of `len` rows of `len`.
fn lower(weights: &mut [f32], len: usize) {
    for (i, row) in weights.chunks_exact_mut(len).take(len).enumerate() {
        row[i + 1..].fill(0.0);
    }
}

/// Writes rows of a head: row i of `from`, whose rows are `stride` apart, to place (start + i, head).
///
/// # Safety
/// Nobody else may touch these rows of this head.
unsafe fn put(
    to: (SharedMut<'_>, Write),
    part: &Part<'_>,
    head: [usize; 2],
    from: &[f32],
    stride: usize,
    width: usize,
) {
    let (out, write) = to;
    let [heads, head] = head;
    for i in 0..part.len {
        let at = ((part.start + i) * heads + head) * width;
        // SAFETY: a row of a head, which is the caller's.
        let row = unsafe { out.range(at..at + width) };
        let from = &from[i * stride..i * stride + width];
        match write {
            Write::Set => row.copy_from_slice(from),
            Write::Add => row.iter_mut().zip(from).for_each(|(x, d)| *x += d),
        }
    }
}

impl Linear<'_> {
    /// Checks that everything fits the normalisers (N, H); gives N.
    fn check(&self, normalisers: &[f32]) -> usize {
        let Shape { heads, kv_heads, features, value_width, .. } = self.shape;
        assert!(
            heads > 0 && kv_heads > 0 && heads.is_multiple_of(kv_heads),
            "heads cannot be shared evenly: {:?}",
            self.shape
        );
        let rows = normalisers.len() / heads;
        assert_eq!(normalisers.len(), rows * heads, "normalisers are (N, H) of {:?}", self.shape);
        assert!(
            self.values.len() == rows * kv_heads * value_width
                && self.keys.len() == rows * kv_heads * features
                && self.queries.len() == rows * heads * features,
            "{} queries, {} keys and {} values do not fit {:?}",
            self.queries.len(),
            self.keys.len(),
            self.values.len(),
            self.shape
        );
        let mut ends: Vec<&Range<usize>> = self.runs.iter().collect();
        ends.sort_unstable_by_key(|run| run.start);
        let apart = ends.array_windows().all(|[a, b]| a.end <= b.start);
        assert!(apart && ends.iter().all(|run| run.end <= rows), "runs overlap or exceed {rows}");
        rows
    }

    /// The rows of `run` in chunks.
    fn parts(
        &self,
        run: &Range<usize>,
        kv_head: usize,
    ) -> impl DoubleEndedIterator<Item = Part<'_>> {
        let run = run.clone();
        (0..run.len().div_ceil(CHUNK)).map(move |i| {
            let start = run.start + i * CHUNK;
            Part { all: self, kv_head, start, len: CHUNK.min(run.end - start) }
        })
    }

    fn covers(&self, rows: usize) -> bool {
        self.runs.iter().map(ExactSizeIterator::len).sum::<usize>() == rows
    }

    /// Writes out (N, H, Dv) and the normalisers (N, H). `states` are the running sums of each
    /// sequence before its rows, (K, M, Dv + 1), to which the rows are added; without any,
    /// sequences begin here. Only causal attention can be continued.
    pub fn forward(&self, states: &mut [&mut [f32]], out: &mut [f32], normalisers: &mut [f32]) {
        let rows = self.check(normalisers);
        let Shape { heads, kv_heads, features, value_width, causal } = self.shape;
        assert!(
            states.is_empty()
                || causal
                    && states.len() == self.runs.len()
                    && states.iter().all(|state| state.len() == self.shape.state_len()),
            "running sums are those of causal sequences, one each"
        );
        assert_eq!(out.len(), rows * heads * value_width, "out is (N, H, Dv) of {:?}", self.shape);
        dry::count(|| self.shape.operations(rows));
        if !self.covers(rows) {
            crate::elementwise::fill(out, 0.0);
            crate::elementwise::fill(normalisers, 1.0);
        }
        let sum_width = self.shape.sum_width();
        let each = features * sum_width;
        let states: Vec<SharedMut<'_>> =
            states.iter_mut().map(|state| SharedMut::new(state)).collect();
        let (out, normalisers) = (SharedMut::new(out), SharedMut::new(normalisers));
        threads::for_each(self.runs.len() * kv_heads, |task| {
            let (run, kv_head) = (&self.runs[task / kv_heads], task % kv_heads);
            scratch::with(each + CHUNK * (2 * sum_width + CHUNK), |own| {
                let (own, work) = own.split_at_mut(each);
                let sums = if let Some(state) = states.get(task / kv_heads) {
                    // SAFETY: a sequence and a head of keys are one task.
                    unsafe { state.range(kv_head * each..(kv_head + 1) * each) }
                } else {
                    own.fill(0.0);
                    own
                };
                // SAFETY: runs do not overlap, and a head of queries has one head of keys: this
                // task alone writes these rows of these heads.
                unsafe { self.forward_head(run, kv_head, sums, work, [out, normalisers]) };
            });
        });
    }

    /// # Safety
    /// Nobody else may touch the rows of `run` of the heads of queries that belong to `kv_head`.
    unsafe fn forward_head(
        &self,
        run: &Range<usize>,
        kv_head: usize,
        sums: &mut [f32],
        work: &mut [f32],
        [out, normalisers]: [SharedMut<'_>; 2],
    ) {
        let Shape { heads, features, value_width, causal, .. } = self.shape;
        let sum_width = self.shape.sum_width();
        let (values, work) = work.split_at_mut(CHUNK * sum_width);
        let (mixed, weights) = work.split_at_mut(CHUNK * sum_width);
        let add = |part: &Part<'_>, values: &[f32], sums: &mut [f32]| {
            let values = Matrix::new(values, part.len, sum_width);
            product(part.keys().transposed(), values, sums, Write::Add);
        };
        if !causal {
            for part in self.parts(run, kv_head) {
                part.values(values);
                add(&part, values, sums);
            }
        }
        for part in self.parts(run, kv_head) {
            part.values(values);
            for head in part.query_heads() {
                let q = part.queries(head);
                product(q, Matrix::new(sums, features, sum_width), mixed, Write::Set);
                if causal {
                    product(q, part.keys().transposed(), weights, Write::Set);
                    lower(weights, part.len);
                    let weights = Matrix::new(weights, part.len, part.len);
                    product(weights, Matrix::new(values, part.len, sum_width), mixed, Write::Add);
                }
                for (i, row) in mixed.chunks_exact_mut(sum_width).take(part.len).enumerate() {
                    let normaliser = row[value_width] + EPSILON;
                    let inverse = 1.0 / normaliser;
                    for x in row.iter_mut() {
                        *x *= inverse;
                    }
                    let at = (part.start + i) * heads + head;
                    // SAFETY: a row and a head of this task.
                    unsafe { normalisers.range(at..at + 1)[0] = normaliser };
                }
                // SAFETY: as above.
                unsafe {
                    put((out, Write::Set), &part, [heads, head], mixed, sum_width, value_width);
                };
            }
            if causal {
                add(&part, values, sums);
            }
        }
    }
}
