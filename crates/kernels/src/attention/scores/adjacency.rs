//! Graphs: nodes see their neighbours, with a learned bias for how they are related
//! (Velickovic et al. 2018; Ying et al. 2021, "Do Transformers Really Perform Bad for Graph
//! Representation?").

use super::{Position, Scores, Table, Visibility};
use std::ops::Range;

/// What two nodes are to each other that do not see each other.
pub const UNRELATED: u8 = u8::MAX;

/// s += table\[relation(b, i, j)\]\[h\]; hidden where nodes are [`UNRELATED`].
///
/// Relations are (B, T, S): the kind of an edge, or the length of the shortest path. The table is
/// (relations, H) and is learned; an empty one adds nothing, and leaves the adjacency as a mask.
#[derive(Clone, Debug)]
pub struct Adjacency<R, D> {
    relations: R,
    place: Table,
    table: D,
    heads: usize,
}

impl<R: AsRef<[u8]>, D: AsRef<[f32]>> Adjacency<R, D> {
    /// `shape` is (B, T, S).
    pub fn new(relations: R, [batch, queries, keys]: [usize; 3], table: D, heads: usize) -> Self {
        let given = relations.as_ref();
        let place = Table::new([batch, 1, queries, keys], given.len());
        let len = table.as_ref().len();
        assert!(heads > 0 && len % heads == 0, "a table of {len} elements is not (_, {heads})");
        let most = given.iter().filter(|&&relation| relation != UNRELATED).max();
        if let (Some(&most), true) = (most, len > 0) {
            let kinds = len / heads;
            assert!((most as usize) < kinds, "relation {most} in a table of {kinds}");
        }
        Self { relations, place, table, heads }
    }

    #[inline(always)]
    fn row(&self, at: Position, keys: Range<usize>) -> &[u8] {
        &self.relations.as_ref()[self.place.row(at, keys)]
    }
}

impl<R: AsRef<[u8]> + Sync, D: AsRef<[f32]> + Sync> Scores for Adjacency<R, D> {
    #[inline(always)]
    fn tile(
        &self,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        keys: Range<usize>,
    ) -> Visibility {
        let hidden = |query| {
            let row = self.row(Position { batch, head, query }, keys.clone());
            row.iter().map(|&relation| usize::from(relation == UNRELATED)).sum::<usize>()
        };
        let all = queries.len() * keys.len();
        match queries.map(hidden).sum::<usize>() {
            0 if self.table.as_ref().is_empty() => Visibility::Full,
            n if n == all => Visibility::Empty,
            _ => Visibility::Partial,
        }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        let table = self.table.as_ref();
        for (score, &relation) in scores.iter_mut().zip(self.row(at, keys)) {
            if relation == UNRELATED {
                *score = f32::NEG_INFINITY;
            } else if !table.is_empty() {
                *score += table[relation as usize * self.heads + at.head];
            }
        }
    }

    fn gradient_len(&self) -> usize {
        self.table.as_ref().len()
    }

    fn partial_len(&self) -> usize {
        self.table.as_ref().len() / self.heads
    }

    #[inline(always)]
    fn backward(&self, at: Position, keys: Range<usize>, dscores: &[f32], partial: &mut [f32]) {
        for (ds, &relation) in dscores.iter().zip(self.row(at, keys)) {
            if let Some(partial) = partial.get_mut(relation as usize) {
                *partial += ds;
            }
        }
    }

    fn collect(&self, _: usize, head: usize, partial: &[f32], gradient: &mut [f32]) {
        let column = gradient.iter_mut().skip(head).step_by(self.heads);
        column.zip(partial).for_each(|(gradient, partial)| *gradient += partial);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_rule;
    use super::*;

    #[test]
    fn neighbours_are_seen_with_the_bias_of_their_relation() {
        let (n, heads) = (70, 2);
        let relation = |b: usize, i: usize, j: usize| match (i * 7 + j * 3 + b) % 5 {
            kind @ 0..3 => kind as u8,
            _ => UNRELATED,
        };
        let relations: Vec<u8> =
            (0..2 * n * n).map(|x| relation(x / (n * n), x / n % n, x % n)).collect();
        for table in [vec![], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]] {
            let rule = Adjacency::new(&relations, [2, n, n], &table, heads);
            assert_rule(&rule, [2, heads, n, n], |b, h, i, j| match relation(b, i, j) {
                UNRELATED => f32::NEG_INFINITY,
                kind => table.get(kind as usize * heads + h).copied().unwrap_or(0.0),
            });
        }
    }
}
