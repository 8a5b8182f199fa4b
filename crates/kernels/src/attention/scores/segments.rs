//! Documents packed into one row: each sees only itself (Krell et al. 2021, "Efficient Sequence
//! Packing without Cross-contamination").

use super::{Position, Scores, Visibility, hide_outside, offset};
use std::ops::Range;

/// In sequence b, query i, at place p = i + S − T, sees the keys j whose segment number is that of
/// place p. The number 0 is padding: it sees nothing and nobody sees it.
///
/// A segment is one run of neighbouring keys, so the keys that a query sees are a range, and a
/// tile is decided by the ranges at its corners, whatever its size.
#[derive(Clone, Debug)]
pub struct Segments {
    /// (B, S): the run of keys that a place belongs to. For padding an empty range at the next
    /// place that is not padding, or at S if there is none.
    runs: Vec<Range<u32>>,
    keys: usize,
    offset: isize,
}

impl Segments {
    /// `segments` is (B, S), for T queries that are the last of S keys. Panics unless the numbers
    /// rise from one run to the next within a sequence.
    pub fn new(segments: &[u32], queries: usize, keys: usize) -> Self {
        let len = segments.len();
        assert!(len.is_multiple_of(keys), "{len} segment numbers are not (_, {keys})");
        let rows = segments.chunks_exact(keys.max(1));
        let runs = rows.enumerate().flat_map(|(batch, row)| runs(batch, row)).collect();
        Self { runs, keys, offset: offset(queries, keys) }
    }

    /// The run of a place.
    #[inline(always)]
    fn run(&self, batch: usize, place: usize) -> Range<usize> {
        let run = &self.runs[batch * self.keys + place];
        run.start as usize..run.end as usize
    }

    /// Is there a key that is seen from one of `places`?
    #[inline(always)]
    fn any_seen(&self, batch: usize, places: &Range<usize>, keys: &Range<usize>) -> bool {
        let overlap = places.start.max(keys.start)..places.end.min(keys.end);
        if !overlap.is_empty() {
            // A run that meets both ranges passes through what they share, so any run in it will
            // do: that of its first place, or the next one if that is padding.
            return self.run(batch, overlap.start).start < overlap.end;
        }
        // One range ends before the other begins: the run must reach from one to the other.
        let (before, after) =
            if places.start < keys.start { (places, keys) } else { (keys, places) };
        self.run(batch, before.end - 1).contains(&after.start)
    }
}

impl Scores for Segments {
    #[inline(always)]
    fn tile(&self, b: usize, _: usize, queries: Range<usize>, keys: Range<usize>) -> Visibility {
        // Queries before the first key are at no place and see nothing.
        let place = |query: usize| (query as isize + self.offset).max(0) as usize;
        let places = place(queries.start)..place(queries.end);
        if places.is_empty() || !self.any_seen(b, &places, &keys) {
            return Visibility::Empty;
        }
        let run = self.run(b, places.start);
        let inside = |part: &Range<usize>| run.start <= part.start && part.end <= run.end;
        if places.len() == queries.len() && inside(&places) && inside(&keys) {
            Visibility::Full
        } else {
            Visibility::Partial
        }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        let place = at.query as isize + self.offset;
        let seen = if place < 0 { 0..0 } else { self.run(at.batch, place as usize) };
        hide_outside(seen, keys, scores);
    }
}

/// The run of every place of one sequence.
fn runs(batch: usize, segments: &[u32]) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::with_capacity(segments.len());
    let mut last = 0; // the number of the run before
    for run in segments.chunk_by(|a, b| a == b) {
        let start = runs.len() as u32;
        let (number, end) = (run[0], start + run.len() as u32);
        assert!(
            number == 0 || number > last,
            "sequence {batch}: segment {number} at {start} follows segment {last}, but numbers rise"
        );
        last = last.max(number);
        // Runs of padding and of tokens alternate, so what follows padding is not padding.
        let each = if number == 0 { end..end } else { start..end };
        runs.resize(end as usize, each);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_sharp_mask;
    use super::*;

    /// Runs of (number, length) as a row.
    fn row(runs: &[(u32, usize)]) -> Vec<u32> {
        runs.iter().flat_map(|&(number, length)| vec![number; length]).collect()
    }

    #[test]
    fn a_document_sees_itself_alone() {
        // One document; many of all lengths; padding at the end, in the middle, at the start,
        // everywhere; runs that end at, before and after the edges of tiles.
        let rows = [
            row(&[(1, 130)]),
            row(&[(1, 1), (2, 2), (3, 13), (4, 16), (5, 33), (6, 65)]),
            row(&[(1, 64), (2, 3), (0, 63)]),
            row(&[(1, 20), (0, 40), (3, 17), (0, 1), (9, 52)]),
            row(&[(0, 70), (7, 60)]),
            row(&[(0, 130)]),
        ];
        let segments = rows.concat();
        for queries in [130, 129, 70, 7, 1, 150] {
            let rule = Segments::new(&segments, queries, 130);
            assert_sharp_mask(&rule, [rows.len(), 1, queries, 130], |b, _, i, j| {
                let place = (i + 130).checked_sub(queries);
                place.is_some_and(|place| rows[b][place] == rows[b][j] && rows[b][j] != 0)
            });
        }
    }

    #[test]
    #[should_panic(expected = "sequence 1: segment 1 at 3 follows segment 2, but numbers rise")]
    fn a_document_is_in_one_piece() {
        let _ = Segments::new(&[1, 1, 2, 2, 1, 2, 0, 1], 4, 4);
    }
}
