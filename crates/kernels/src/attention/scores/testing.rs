//! How a rule is checked: against a closure that says what is added to each score (−∞ hides).

use super::{Position, Scores, Visibility};
use std::ops::Range;

/// A row of scores to be changed: all different, so that a misplaced change is seen.
fn row(keys: Range<usize>) -> Vec<f32> {
    keys.map(|j| j as f32 * 0.25).collect()
}

/// The rule must add `added(b, h, i, j)` to every score of shape [B, H, T, S], in rows cut
/// anywhere, and say of tiles what is true.
pub(crate) fn assert_rule(
    rule: &impl Scores,
    [batches, heads, queries, keys]: [usize; 4],
    added: impl Fn(usize, usize, usize, usize) -> f32,
) {
    for (batch, head) in (0..batches * heads).map(|n| (n / heads, n % heads)) {
        for query in 0..queries {
            for keys in [0..keys, 0..keys.min(1), keys / 3..keys, keys / 2..keys * 2 / 3] {
                let mut scores = row(keys.clone());
                rule.apply(Position { batch, head, query }, keys.clone(), &mut scores);
                for (j, (got, before)) in keys.clone().zip(scores.iter().zip(row(keys))) {
                    let want = before + added(batch, head, query, j);
                    assert_eq!(*got, want, "batch {batch}, head {head}, query {query}, key {j}");
                }
            }
        }
        // Whole tiles, blocks, single places, and the parts that bands ask about.
        let same = |size: [usize; 2]| (size, size);
        let sizes = [[64, 64], [16, 16], [24, 16], [16, 24]].map(same);
        for (size, step) in sizes.into_iter().chain([([1, 1], [7, 7])]) {
            let columns = keys.div_ceil(step[1]);
            for tile in 0..queries.div_ceil(step[0]) * columns {
                let cut = |n: usize, way: usize, all: usize| {
                    n * step[way]..(n * step[way] + size[way]).min(all)
                };
                let (i, j) = (tile / columns, tile % columns);
                let (queries, keys) = (cut(i, 0, queries), cut(j, 1, keys));
                let said = rule.tile(batch, head, queries.clone(), keys.clone());
                let mut every = queries
                    .clone()
                    .flat_map(|i| keys.clone().map(move |j| (i, j)))
                    .map(|(i, j)| added(batch, head, i, j));
                let truth = match said {
                    Visibility::Empty => every.all(|x| x == f32::NEG_INFINITY),
                    Visibility::Full => every.all(|x| x == 0.0),
                    Visibility::Partial => true,
                };
                assert!(truth, "{said:?} is not true of queries {queries:?}, keys {keys:?}");
            }
        }
    }
}

/// As [`assert_rule`], for a rule that only hides.
pub(crate) fn assert_mask(
    rule: &impl Scores,
    shape: [usize; 4],
    seen: impl Fn(usize, usize, usize, usize) -> bool,
) {
    let added = |b, h, i, j| if seen(b, h, i, j) { 0.0 } else { f32::NEG_INFINITY };
    assert_rule(rule, shape, added);
}

/// As [`assert_mask`], for a rule with straight edges: it must know every empty and every full
/// tile, or else time is lost.
pub(crate) fn assert_sharp_mask(
    rule: &impl Scores,
    [batches, heads, queries, keys]: [usize; 4],
    seen: impl Fn(usize, usize, usize, usize) -> bool,
) {
    assert_mask(rule, [batches, heads, queries, keys], &seen);
    for (b, h) in (0..batches * heads).map(|n| (n / heads, n % heads)) {
        for (i, j) in (0..queries / 16 * (keys / 16)).map(|n| (n / (keys / 16), n % (keys / 16))) {
            let cut = |n: usize| n * 16..(n + 1) * 16;
            let count = cut(i).flat_map(|i| cut(j).map(move |j| (i, j)));
            let count = count.filter(|&(i, j)| seen(b, h, i, j)).count();
            let truth = match count {
                0 => Visibility::Empty,
                256 => Visibility::Full,
                _ => Visibility::Partial,
            };
            assert_eq!(rule.tile(b, h, cut(i), cut(j)), truth, "tile {i}, {j} of 16 × 16");
        }
    }
}
