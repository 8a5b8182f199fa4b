//! A right operand that is packed once and multiplied many times: the recurrent weight of a layer,
//! with a few rows at each of many times. [`gemm`](super::gemm) would pack it again at every time, which takes
//! as long as the product itself.
//!
//! It lies in strips of columns, each with all of its blocks of K, so that threads share out the
//! strips. An element is summed as in the blocked product, to the bit.

use super::blocked::{
    Job, Shared, Strips, WORTH_SHARING, depth_block, for_each, pack_shared, run_strip, tile_shape,
};
use super::epilogue::Tail;
use super::pack::TileShape;
use super::{Epilogue, Matrix, operations};
use crate::threads::{self, SharedMut};
use crate::{Write, dry, scratch};

/// B (K, N) of products A·B.
pub struct Packed<'a> {
    b: Matrix<'a>,
    tile: TileShape,
    strips: Strips,
    /// Floats of the longest strip: where the next one starts.
    each: usize,
    data: &'a [f32],
}

/// Packs B, for the time of `f`.
pub fn with_packed<R>(b: Matrix<'_>, f: impl FnOnce(&Packed<'_>) -> R) -> R {
    let (tile, transposed) = (tile_shape(), b.transposed());
    let (n, k) = transposed.shape();
    let strips = Strips::new(n.max(1), tile.columns, tile.group, threads::count());
    let block = depth_block(k.max(1));
    let widest = (0..strips.count).map(|i| strips.get(i).len()).max().unwrap_or(0);
    let each = widest.next_multiple_of(tile.columns) * block * k.div_ceil(block);
    scratch::with(each * strips.count, |buffer| {
        let out = SharedMut::new(buffer);
        threads::for_each(if n == 0 || k == 0 { 0 } else { strips.count }, |i| {
            // SAFETY: strips are `each` apart and none is longer.
            let buffer = unsafe { out.range(i * each..(i + 1) * each) };
            let shared = Shared::of_columns(k, strips.get(i), tile, &[]);
            pack_shared(&transposed, &shared, 1, buffer);
        });
        f(&Packed { b, tile, strips, each, data: buffer })
    })
}

impl Packed<'_> {
    /// `out = A·B` or `out += A·B`, then the epilogue, as [`gemm`](super::gemm).
    pub fn multiply(
        &self,
        a: Matrix<'_>,
        out: &mut [f32],
        out_stride: usize,
        write: Write,
        epilogue: Epilogue<'_>,
    ) {
        let ((m, k), (k2, n)) = (a.shape(), self.b.shape());
        assert_eq!(k, k2, "inner dimensions differ: {m}×{k} times {k2}×{n}");
        if m == 0 || n == 0 || k == 0 {
            return super::gemm(a, self.b, out, out_stride, write, epilogue);
        }
        dry::count(|| operations(1, m, n, k));
        let needed = (m - 1) * out_stride + n;
        assert!(
            out.len() >= needed && out_stride >= n,
            "a {m}×{n} product with row stride {out_stride} does not fit in {} elements",
            out.len()
        );
        let tail = Tail::new(epilogue, n, needed);
        let out = SharedMut::new(out);
        let job = Job { a, b: self.b.transposed(), out, out_stride, write, tail };
        let threads = if m * n * k < WORTH_SHARING { 1 } else { threads::count() };
        for_each(threads, self.strips.count, |i| {
            let data = &self.data[i * self.each..(i + 1) * self.each];
            let shared = Shared::of_columns(k, self.strips.get(i), self.tile, data);
            run_strip(&job, &shared, &(0..m));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{Data, gemm};
    use crate::testing::{on_every_isa, samples};
    use crate::threads::with_threads;

    #[test]
    fn products_have_the_bits_of_gemm_on_any_number_of_threads() {
        on_every_isa(|isa| {
            // AMX sums in another order.
            #[cfg(target_arch = "x86_64")]
            if isa == crate::isa::Isa::Amx {
                return;
            }
            for (m, n, k) in [(1, 1, 1), (2, 65, 7), (16, 200, 33), (5, 96, 800), (40, 330, 1600)] {
                let (a, b) = (samples(m * k, 1.0, 1), samples(k * n, 1.0, 2));
                let (start, bias) = (samples(m * (n + 3), 1.0, 3), samples(n, 1.0, 4));
                let halves: Vec<u16> = (0..k * n).map(|i| (i % 0x7000) as u16).collect();
                let matrices = [
                    Matrix::new(&b, k, n),
                    Matrix::new(&b, n, k).transposed(),
                    Matrix::of(Data::F16(&halves), n, k, k).transposed(),
                ];
                for b in matrices {
                    for write in [Write::Set, Write::Add] {
                        let a = Matrix::new(&a, m, k);
                        let mut want = start.clone();
                        gemm(a, b, &mut want, n + 3, write, Epilogue::bias(&bias));
                        for threads in 1..=3 {
                            let mut got = start.clone();
                            with_threads(threads, || {
                                with_packed(b, |packed| {
                                    let epilogue = Epilogue::bias(&bias);
                                    packed.multiply(a, &mut got, n + 3, write, epilogue);
                                });
                            });
                            assert!(got == want, "{isa:?} {m}×{k} times {k}×{n}, {threads}");
                        }
                    }
                }
            }
        });
    }
}
