//! Top-k attention: which keys a query keeps.

use super::scores::{Chosen, Position};
use super::tiles::{dots, pack_rows};
use super::{Attention, Scores, Shape};
use crate::dry::{self, Operations};
use crate::{scratch, threads};

impl<M: Scores> Attention<'_, M> {
    /// The `most` keys with the largest scores of each query and head, as the rule leaves them; of
    /// equal ones, the first. Hidden keys are never among them: a query that sees fewer keeps all.
    ///
    /// Row by row, with memory for the scores of one query at a time.
    pub fn top_keys(&self, most: usize) -> Chosen {
        self.check();
        let Shape { batch, queries, keys, heads, width, .. } = self.shape;
        let most = most.min(keys).max(1);
        dry::count(|| {
            let factors = [2, batch, heads, queries, keys, width];
            Operations { products: 0.0, attention: factors.iter().map(|&x| x as f64).product() }
        });
        let rows = batch * heads * queries;
        let mut kept = vec![Chosen::UNUSED; rows * most];
        threads::for_row_chunks(rows, 1, [(&mut kept[..], most)], |row, [kept]| {
            let row = row.start;
            let (batch, head) = (row / (heads * queries), row / queries % heads);
            let query = row % queries;
            scratch::with(width + keys, |memory| {
                let (q, scores) = memory.split_at_mut(width);
                let of_query = self.queries.head(batch, query, head);
                pack_rows(of_query, width, width, self.scale, width, q);
                let (k, stride) = self.keys.strided(batch, 0..keys, head / self.shape.group());
                dots(q, k, stride, scores);
                self.scores.apply(Position { batch, head, query }, 0..keys, scores);
                largest(scores, kept);
            });
        });
        Chosen::new([heads, queries, most], kept)
    }
}

/// Writes the places of the largest of `scores` that are seen, as many as there is room for, rising.
fn largest(scores: &[f32], kept: &mut [u32]) {
    let seen = |j: &u32| scores[*j as usize] != f32::NEG_INFINITY;
    let mut places: Vec<u32> = (0..scores.len() as u32).filter(seen).collect();
    if places.len() > kept.len() {
        let better =
            |a: &u32, b: &u32| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b));
        places.select_nth_unstable_by(kept.len() - 1, better);
        places.truncate(kept.len());
        places.sort_unstable();
    }
    kept[..places.len()].copy_from_slice(&places);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept_and_of_equal_ones_the_first() {
        let hidden = f32::NEG_INFINITY;
        let run = |scores: &[f32], most: usize| {
            let mut kept = vec![Chosen::UNUSED; most];
            largest(scores, &mut kept);
            kept
        };
        assert_eq!(run(&[0.5, 2.0, -1.0, 2.0, 1.0], 3), [1, 3, 4]);
        assert_eq!(run(&[1.0, 1.0, 1.0, 1.0], 2), [0, 1]);
        assert_eq!(run(&[hidden, 0.0, hidden, -9.0], 3), [1, 3, Chosen::UNUSED]);
        assert_eq!(run(&[hidden; 3], 1), [Chosen::UNUSED]);
    }
}
