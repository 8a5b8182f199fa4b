//! The part of a tile that is worth computing.
//!
//! A tile that a causal rule cuts diagonally is half hidden. It is taken in bands of rows, each
//! only as wide as what its rows see; where keys are the rows (dk, dv), in bands of columns. What
//! is left out would have entered every sum as a zero, so the bits are those of the whole tile.

use super::Scores;
use super::scores::Visibility;
use std::ops::Range;

/// A tile, and who is asked about its parts. Rows and columns count from its
/// first query and its first key.
pub(super) struct Tile<'a, M> {
    pub(super) rule: &'a M,
    pub(super) batch: usize,
    pub(super) head: usize,
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
    /// Does every query see every key?
    pub(super) full: bool,
}

impl<M: Scores> Tile<'_, M> {
    /// The queries and keys of some rows and columns.
    pub(super) fn place(
        &self,
        rows: &Range<usize>,
        columns: &Range<usize>,
    ) -> (Range<usize>, Range<usize>) {
        let shifted = |range: &Range<usize>, by: usize| range.start + by..range.end + by;
        (shifted(rows, self.queries.start), shifted(columns, self.keys.start))
    }

    /// Bands of rows, with the columns that each sees.
    pub(super) fn rows(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        bands(&ROWS, self.queries.len(), self.keys.len(), self.full, |rows, columns| {
            self.hidden(&rows, &columns)
        })
    }

    /// Bands of columns, with the rows that see each.
    pub(super) fn columns(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        bands(&COLUMNS, self.keys.len(), self.queries.len(), self.full, |columns, rows| {
            self.hidden(&rows, &columns)
        })
    }

    fn hidden(&self, rows: &Range<usize>, columns: &Range<usize>) -> bool {
        let (queries, keys) = self.place(rows, columns);
        self.rule.tile(self.batch, self.head, queries, keys) == Visibility::Empty
    }
}

/// Where bands begin: at a multiple of the six rows that products take at a time. A tile on the
/// diagonal of a causal rule is wanted most, of which row i sees columns up to i: bands of rows end
/// before the next [`BLOCK`] of columns would be seen, and bands of columns begin where one of rows
/// need not be seen any more. Of 64 × 64, 65 % are left; with three bands of 24 it was 72 %.
const ROWS: [usize; 4] = [0, 12, 30, 48];
const COLUMNS: [usize; 4] = [0, 18, 36, 48];
/// What a band sees begins and ends with such a block, a cache line of scores.
const BLOCK: usize = 16;

/// Cuts a tile of `lanes × across` into bands of lanes, with what each sees: nothing but zeros
/// would come from `across` outside of it. `hidden(lanes, across)` says that a part is hidden;
/// with `full` nothing is, and the tile is one band.
fn bands(
    starts: &[usize],
    lanes: usize,
    across: usize,
    full: bool,
    hidden: impl Fn(Range<usize>, Range<usize>) -> bool,
) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let starts = if full { &starts[..1] } else { starts };
    let ends = starts[1..].iter().copied().chain([lanes]);
    starts.iter().zip(ends).take_while(move |&(&start, _)| start < lanes).map(
        move |(&start, end)| {
            let band = start..end.min(lanes);
            let mut seen = 0..across;
            if !full {
                while !seen.is_empty() {
                    let last = (seen.end - 1) / BLOCK * BLOCK;
                    if !hidden(band.clone(), last..seen.end) {
                        break;
                    }
                    seen.end = last;
                }
                while !seen.is_empty() {
                    let next = seen.start + BLOCK;
                    if !hidden(band.clone(), seen.start..next.min(seen.end)) {
                        break;
                    }
                    seen.start = next;
                }
            }
            (band, seen)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    type Sees = fn(usize, usize) -> bool;

    /// Every cell that is seen is in a band, once; and on a causal diagonal little else is.
    #[test]
    fn bands_cover_what_is_seen() {
        let rules: [(&str, Sees); 4] = [
            ("causal", |i, j| j <= i),
            ("window", |i, j| j <= i && i < j + 10),
            ("nothing", |_, _| false),
            ("one key", |_, j| j == 37),
        ];
        for (name, sees) in rules {
            for (lanes, across) in [(64, 64), (64, 37), (5, 64), (1, 1), (30, 17)] {
                let hidden = |lanes: Range<usize>, across: Range<usize>| {
                    lanes.clone().all(|i| across.clone().all(|j| !sees(i, j)))
                };
                for starts in [&ROWS, &COLUMNS] {
                    let mut times = vec![0; lanes * across];
                    let mut next = 0;
                    for (band, seen) in bands(starts, lanes, across, false, hidden) {
                        assert_eq!(band.start, next);
                        next = band.end;
                        assert!(seen.is_empty() || seen.start.is_multiple_of(BLOCK));
                        for i in band {
                            seen.clone().for_each(|j| times[i * across + j] += 1);
                        }
                    }
                    assert_eq!(next, lanes);
                    for (cell, &times) in times.iter().enumerate() {
                        let (i, j) = (cell / across, cell % across);
                        assert!(times == 1 || times == 0 && !sees(i, j), "{name}: {i}, {j}");
                    }
                }
            }
        }
        let cells = |starts: &[usize], hidden: fn(Range<usize>, Range<usize>) -> bool| -> usize {
            bands(starts, 64, 64, false, hidden).map(|(band, seen)| band.len() * seen.len()).sum()
        };
        let rows = cells(&ROWS, |rows, columns| columns.start >= rows.end);
        assert_eq!(rows, 12 * 16 + 18 * 32 + 18 * 48 + 16 * 64);
        assert_eq!(cells(&COLUMNS, |columns, rows| columns.start >= rows.end), rows);
        let whole: Vec<_> = bands(&ROWS, 64, 50, true, |_, _| true).collect();
        assert_eq!(whole, [(0..64, 0..50)]);
        assert_eq!(bands(&ROWS, 0, 50, true, |_, _| true).count(), 0);
    }
}
