//! The rows that a convolution over time multiplies with its weights, gathered next to each other
//! (`im2col`), and their gradients added up where they came from.
//!
//! Row (b, t) of the gathered matrix is, tap by tap, x at the times `t·stride + k·dilation − before`;
//! zeros where there is no such time.

use crate::threads::{for_row_chunks, rows_per_chunk};
use crate::{Write, elementwise};
use std::ops::Range;

/// Which rows of x (B, T, C) go where.
#[derive(Clone, Debug)]
pub struct Taps {
    /// T
    pub length: usize,
    /// C
    pub width: usize,
    /// The columns of x that are used: those of one group.
    pub columns: Range<usize>,
    /// Times of the result.
    pub out_length: usize,
    /// How many rows of x a row of the result sees.
    pub kernel: usize,
    /// Times of x from one of the result to the next.
    pub stride: usize,
    /// Times of x from one tap to the next.
    pub dilation: usize,
    /// Zeros before the first time.
    pub before: usize,
}

impl Taps {
    /// The time of x that tap `tap` of time `time` sees.
    fn seen(&self, time: usize, tap: usize) -> Option<usize> {
        let place = time * self.stride + tap * self.dilation;
        place.checked_sub(self.before).filter(|&seen| seen < self.length)
    }

    /// The time of the result whose tap `tap` sees time `seen` of x.
    fn seen_by(&self, seen: usize, tap: usize) -> Option<usize> {
        let place = (seen + self.before).checked_sub(tap * self.dilation)?;
        let time = place / self.stride;
        (place.is_multiple_of(self.stride) && time < self.out_length).then_some(time)
    }

    /// Numbers in a gathered row.
    fn gathered(&self) -> usize {
        self.kernel * self.columns.len()
    }
}

/// Gathers x (B, T, C) into `out` (B, out_length, kernel · columns).
pub fn gather(taps: &Taps, x: &[f32], out: &mut [f32]) {
    let columns = taps.columns.len();
    let width = taps.gathered();
    if width == 0 || taps.out_length == 0 {
        return;
    }
    for_row_chunks(out.len() / width, rows_per_chunk(width), [(out, width)], |rows, [out]| {
        for (row, out) in rows.zip(out.chunks_exact_mut(width)) {
            let (b, time) = (row / taps.out_length, row % taps.out_length);
            for (tap, out) in out.chunks_exact_mut(columns).enumerate() {
                match taps.seen(time, tap) {
                    Some(seen) => {
                        let from = (b * taps.length + seen) * taps.width + taps.columns.start;
                        out.copy_from_slice(&x[from..from + columns]);
                    }
                    None => out.fill(0.0),
                }
            }
        }
    });
}

/// Adds up the gradients of gathered rows, `gathered` (B, out_length, kernel · columns), in the
/// columns of dx (B, T, C); what is in its other columns stays.
pub fn scatter(taps: &Taps, gathered: &[f32], dx: &mut [f32], write: Write) {
    let (columns, width) = (taps.columns.len(), taps.gathered());
    if columns == 0 || taps.length == 0 {
        return;
    }
    let rows = dx.len() / taps.width;
    for_row_chunks(rows, rows_per_chunk(width), [(dx, taps.width)], |rows, [dx]| {
        for (row, dx) in rows.zip(dx.chunks_exact_mut(taps.width)) {
            let (b, seen) = (row / taps.length, row % taps.length);
            let dx = &mut dx[taps.columns.clone()];
            if write == Write::Set {
                dx.fill(0.0);
            }
            for tap in 0..taps.kernel {
                if let Some(time) = taps.seen_by(seen, tap) {
                    let from = (b * taps.out_length + time) * width + tap * columns;
                    elementwise::add_assign_chunk(dx, &gathered[from..from + columns]);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_gathered_goes_back_where_it_came_from() {
        let taps = Taps {
            length: 5,
            width: 3,
            columns: 1..3,
            out_length: 3,
            kernel: 2,
            stride: 2,
            dilation: 3,
            before: 1,
        };
        let x: Vec<f32> = (0..15).map(|i| i as f32).collect();
        let mut gathered = [f32::NAN; 12];
        gather(&taps, &x, &mut gathered);
        // Times −1 and 2, 1 and 4, 3 and 6 of 5.
        let want = [0.0, 0.0, 7.0, 8.0, 4.0, 5.0, 13.0, 14.0, 10.0, 11.0, 0.0, 0.0];
        assert_eq!(gathered, want);
        let mut dx = [1.0; 15];
        scatter(&taps, &gathered, &mut dx, Write::Add);
        for (time, row) in dx.chunks(3).enumerate() {
            let want = if time == 0 { 1.0 } else { 1.0 + (3 * time + 1) as f32 };
            assert_eq!((row[0], row[1]), (1.0, want), "{time}");
        }
    }
}
