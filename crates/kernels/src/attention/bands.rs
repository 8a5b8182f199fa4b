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
        bands(self.queries.len(), self.keys.len(), self.full, |rows, columns| {
            self.hidden(&rows, &columns)
        })
    }

    /// Bands of columns, with the rows that see each.
    pub(super) fn columns(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        bands(self.keys.len(), self.queries.len(), self.full, |columns, rows| {
            self.hidden(&rows, &columns)
        })
    }

    fn hidden(&self, rows: &Range<usize>, columns: &Range<usize>) -> bool {
        let (queries, keys) = self.place(rows, columns);
        self.rule.tile(self.batch, self.head, queries, keys) == Visibility::Empty
    }
}

/// Lanes of a band: four times the six rows that products take at a time. Of 64 × 64 under a
/// causal rule 72 % are left; bands of 12 would leave 67 %, for twice as many calls.
const BAND: usize = 24;
/// What a band sees begins and ends with such a block, a cache line of scores.
const BLOCK: usize = 16;

/// Cuts a tile of `lanes × across` into bands of lanes, with what each sees: nothing but zeros
/// would come from `across` outside of it. `hidden(lanes, across)` says that a part is hidden;
/// with `full` nothing is, and the tile is one band.
fn bands(
    lanes: usize,
    across: usize,
    full: bool,
    hidden: impl Fn(Range<usize>, Range<usize>) -> bool,
) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let size = if full { lanes.max(1) } else { BAND };
    (0..lanes).step_by(size).map(move |start| {
        let band = start..(start + size).min(lanes);
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Sees = fn(usize, usize) -> bool;

    /// Every cell that is seen is in a band, once; and under a causal rule little else is.
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
                let mut times = vec![0; lanes * across];
                let (mut cells, mut next) = (0, 0);
                for (band, seen) in bands(lanes, across, false, hidden) {
                    assert_eq!(band.start, next);
                    next = band.end;
                    assert!(seen.is_empty() || seen.start.is_multiple_of(BLOCK));
                    cells += band.len() * seen.len();
                    for i in band {
                        seen.clone().for_each(|j| times[i * across + j] += 1);
                    }
                }
                assert_eq!(next, lanes);
                for (cell, &times) in times.iter().enumerate() {
                    let (i, j) = (cell / across, cell % across);
                    assert!(times == 1 || times == 0 && !sees(i, j), "{name}: {i}, {j}");
                }
                if name == "causal" && (lanes, across) == (64, 64) {
                    assert_eq!(cells, 24 * 32 + 24 * 48 + 16 * 64);
                }
            }
        }
        let whole: Vec<_> = bands(64, 50, true, |_, _| true).collect();
        assert_eq!(whole, [(0..64, 0..50)]);
        assert_eq!(bands(0, 50, true, |_, _| true).count(), 0);
    }
}
