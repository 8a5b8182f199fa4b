//! Rows of a table by their ids, and the gradient of the table.
//!
//! ```text
//! out[i] = table[ids[i]]          table (V, C), ids (rows), out (rows, C)
//! dtable[ids[i]] += dout[i]       only the rows that occur are touched
//! ```
//! An id may occur many times, so the gradient cannot be cut by rows of dout. It is cut by
//! columns: each task adds its columns of all rows, in order of i, and no two tasks meet.

use crate::dispatch;
use crate::each_span;
use crate::simd::Simd;
use crate::threads::{SharedMut, for_each, for_row_chunks, rows_per_chunk};
use std::ops::Range;

/// `out[i] = table[ids[i]]`
pub fn gather(table: &[f32], width: usize, ids: &[u32], out: &mut [f32]) {
    check(table.len(), width, ids);
    for_row_chunks(ids.len(), rows_per_chunk(width), [(out, width)], |at, [out]| {
        for (&id, out) in ids[at].iter().zip(out.chunks_exact_mut(width.max(1))) {
            out.copy_from_slice(&table[id as usize * width..][..width]);
        }
    });
}

/// Columns per task of [`scatter_add`]: four cache lines, so that neighbours do not share one.
const COLUMNS: usize = 64;

/// `dtable[ids[i]] += dout[i]`
pub fn scatter_add(dout: &[f32], width: usize, ids: &[u32], dtable: &mut [f32]) {
    check(dtable.len(), width, ids);
    let rows = ids.len();
    assert_eq!(dout.len(), rows * width, "dout should be {rows}×{width}");
    let shared = SharedMut::new(dtable);
    // Wide enough for a task to be worth it: a few rows alone go to one.
    let columns = COLUMNS.max(rows_per_chunk(rows).next_multiple_of(COLUMNS));
    for_each(width.div_ceil(columns), |task| {
        let columns = task * columns..((task + 1) * columns).min(width);
        for (i, &id) in ids.iter().enumerate() {
            let part = |row: usize| -> Range<usize> {
                row * width + columns.start..row * width + columns.end
            };
            // SAFETY: tasks own disjoint columns, and within a task one row is taken at a time.
            let sum = unsafe { shared.range(part(id as usize)) };
            add_chunk(&dout[part(i)], sum);
        }
    });
}

#[track_caller]
fn check(table: usize, width: usize, ids: &[u32]) {
    let vocabulary = table.checked_div(width).unwrap_or(0);
    assert_eq!(vocabulary * width, table, "a table of {table} elements has no rows of {width}");
    if let Some((i, id)) =
        ids.iter().enumerate().find(|&(_, &id)| width > 0 && id as usize >= vocabulary)
    {
        panic!("id {id} at {i} is not in a vocabulary of {vocabulary}");
    }
}

dispatch! {
    fn add_chunk(x: &[f32], out: &mut [f32]) => add_on
}

#[inline(always)]
fn add_on<S: Simd>(s: S, x: &[f32], out: &mut [f32]) {
    each_span!(S, x.len(), |at| {
        let v = s.add(s.read(out, at), s.read(x, at));
        s.write(out, at, v);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, assert_close, on_every_isa, samples, to_f64};
    use crate::threads::with_threads;

    /// Repeats often, and leaves some rows out.
    fn ids(count: usize, vocabulary: usize) -> Vec<u32> {
        (0..count).map(|i| ((i * i * 7 + i / 3) % vocabulary) as u32 / 2 * 2).collect()
    }

    #[test]
    fn gather_and_scatter_match_reference() {
        on_every_isa(|isa| {
            for width in LENGTHS {
                for count in [0, 1, 5, 200] {
                    let vocabulary = 31;
                    let ids = ids(count, vocabulary);
                    let table = samples(vocabulary * width, 1.0, 1);
                    let mut out = vec![f32::NAN; count * width];
                    gather(&table, width, &ids, &mut out);
                    let dout = samples(count * width, 1.0, 2);
                    let mut dtable = table.clone();
                    scatter_add(&dout, width, &ids, &mut dtable);
                    let mut want = to_f64(&table);
                    for i in 0..count {
                        let row = ids[i] as usize * width;
                        assert_eq!(out[i * width..(i + 1) * width], table[row..row + width]);
                        for j in 0..width {
                            want[row + j] += f64::from(dout[i * width + j]);
                        }
                    }
                    // Up to 200 roundings of sums below 32, of random sign.
                    let what = format!("{count} of {vocabulary}×{width} on {isa:?}");
                    assert_close(&what, &dtable, &want, |_| 3e-5);
                }
            }
        });
    }

    #[test]
    fn threads_do_not_change_bits() {
        let (vocabulary, width, count) = (100, 300, 1000);
        let (ids, dout) = (ids(count, vocabulary), samples(count * width, 1.0, 3));
        let run = |threads| {
            let mut dtable = vec![0.0; vocabulary * width];
            with_threads(threads, || scatter_add(&dout, width, &ids, &mut dtable));
            dtable
        };
        let one = run(1);
        assert!([2, 3, 4].into_iter().all(|threads| run(threads) == one));
    }

    #[test]
    #[should_panic(expected = "id 9 at 1 is not in a vocabulary of 4")]
    fn an_id_outside_of_the_vocabulary_is_named() {
        gather(&[0.0; 12], 3, &[0, 9], &mut [0.0; 6]);
    }
}
