//! Tokens in the order of their buckets: each sees its own chunk and the one before (Kitaev et al.
//! 2020, "Reformer").

use super::{Position, Scores, Visibility, hide_outside};
use std::ops::Range;
use std::sync::Arc;

/// What is taken off the score of a token with itself, so that it counts only where there is nothing
/// else: a query is closest to its own key. e⁻¹⁰⁰ is nothing beside any other weight, and numbers of
/// that size are good to 4·10⁻⁶, as weights of tokens that see themselves alone must be.
pub const ITSELF: f32 = 100.0;

/// Queries and keys are sorted, in each sequence and head in an order of its own. Query i, of chunk
/// c = i/m, sees the keys j of the chunks c − 1 and c, if causal those of places not behind its own,
/// and of its own segment.
#[derive(Clone, Debug)]
pub struct Hashed {
    /// (B, H, T): which token of the sequence stands where.
    pub places: Arc<[u32]>,
    /// H
    pub heads: usize,
    /// T
    pub tokens: usize,
    /// m
    pub chunk: usize,
    /// Does a token see only itself and those before it?
    pub causal: bool,
    /// (B, T), of tokens in their sequence: 0 is padding, which nobody sees; all are of one, if
    /// `None`.
    pub segments: Option<Arc<[u32]>>,
}

impl Hashed {
    /// The keys that a query may see, by its chunk.
    fn seen(&self, query: usize) -> Range<usize> {
        let chunk = query / self.chunk;
        chunk.saturating_sub(1) * self.chunk..(chunk + 1) * self.chunk
    }
}

impl Scores for Hashed {
    fn tile(&self, _: usize, _: usize, queries: Range<usize>, keys: Range<usize>) -> Visibility {
        let (first, last) = (self.seen(queries.start), self.seen(queries.end.saturating_sub(1)));
        if keys.end <= first.start || last.end <= keys.start {
            Visibility::Empty
        } else {
            Visibility::Partial
        }
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        let seen = self.seen(at.query);
        hide_outside(seen.clone(), keys.clone(), scores);
        let row = (at.batch * self.heads + at.head) * self.tokens;
        let places = &self.places[row..row + self.tokens];
        let own = places[at.query];
        let segments = self.segments.as_ref().map(|all| &all[at.batch * self.tokens..]);
        for j in seen.start.max(keys.start)..seen.end.min(keys.end) {
            let (place, score) = (places[j], &mut scores[j - keys.start]);
            let apart = segments.is_some_and(|segments| {
                let segment = segments[place as usize];
                segment == 0 || segment != segments[own as usize]
            });
            if apart || self.causal && place > own {
                *score = f32::NEG_INFINITY;
            } else if place == own {
                *score -= ITSELF;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_that_are_called_empty_are() {
        let tokens = 150;
        let places: Vec<u32> = (0..tokens as u32).map(|i| (i * 37) % tokens as u32).collect();
        for causal in [false, true] {
            let rule = Hashed {
                places: places.clone().into(),
                heads: 1,
                tokens,
                chunk: 20,
                causal,
                segments: Some((0..tokens as u32).map(|t| t / 60).collect()),
            };
            for query in 0..tokens {
                let mut row = vec![0.5; tokens];
                rule.apply(Position { batch: 0, head: 0, query }, 0..tokens, &mut row);
                for (j, score) in row.iter().enumerate() {
                    let (own, place) = (places[query], places[j]);
                    let near = j / 20 == query / 20 || j / 20 + 1 == query / 20;
                    let same = own / 60 == place / 60 && place / 60 != 0;
                    let visible = near && same && !(causal && place > own);
                    let want = if visible {
                        0.5 - if own == place { ITSELF } else { 0.0 }
                    } else {
                        f32::NEG_INFINITY
                    };
                    assert_eq!(*score, want, "{query} on {j}");
                    let tile = rule.tile(0, 0, query..query + 1, j..j + 1);
                    assert!(tile == Visibility::Partial || *score == f32::NEG_INFINITY);
                }
            }
        }
    }
}
