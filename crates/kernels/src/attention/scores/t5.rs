//! T5's relative bias: distances in buckets, exact near by and logarithmic far away
//! (Raffel et al. 2020, section 2.1; the exact rule is that of the published code).

use super::{Position, Scores, Visibility, offset};
use std::ops::Range;

/// s += table\[bucket(j − p)\]\[h\] for query i at place p = i + S − T. The table is (buckets, H)
/// and is learned.
#[derive(Clone, Debug)]
pub struct T5<D> {
    table: D,
    heads: usize,
    buckets: Buckets,
    offset: isize,
}

/// How distances fall into buckets.
#[derive(Clone, Debug)]
pub struct Buckets {
    count: usize,
    /// Bucket of distances 0, 1, 2, … back; the last one goes on for ever.
    back: Vec<u16>,
    /// The same ahead.
    ahead: Vec<u16>,
}

impl Buckets {
    /// For encoders: half of the buckets look back, half ahead.
    pub fn bidirectional(count: usize, most: usize) -> Self {
        assert!(count >= 4 && count.is_multiple_of(2), "{count} buckets do not split in two sides");
        let back = one_side(count / 2, most);
        // Distance 0 counts as back.
        let ahead = back.iter().map(|bucket| bucket + (count / 2) as u16).collect();
        Self { count, back, ahead }
    }

    /// For decoders: all look back, and what is ahead counts as distance 0.
    pub fn causal(count: usize, most: usize) -> Self {
        assert!(count >= 2, "{count} buckets are too few");
        Self { count, back: one_side(count, most), ahead: vec![0] }
    }

    /// The bucket of j − p.
    #[inline(always)]
    pub fn bucket(&self, distance: isize) -> usize {
        let side = if distance > 0 { &self.ahead } else { &self.back };
        side[distance.unsigned_abs().min(side.len() - 1)] as usize
    }
}

/// Half of `count` buckets for single distances, the other half growing up to `most`.
fn one_side(count: usize, most: usize) -> Vec<u16> {
    let exact = count / 2;
    assert!(most > exact && count <= 1 << 15, "{count} buckets for distances up to {most}");
    let far = |distance: usize| {
        // In f32 and in this order, as in the published code: the edges of buckets depend on it.
        let share =
            (distance as f32 / exact as f32).ln() / (most as f64 / exact as f64).ln() as f32;
        exact + (share * (count - exact) as f32) as usize
    };
    (0..=most)
        .map(|distance| if distance < exact { distance } else { far(distance).min(count - 1) })
        .map(|bucket| bucket as u16)
        .collect()
}

impl<D: AsRef<[f32]>> T5<D> {
    /// The table is (buckets, H); T queries are the last of S keys.
    pub fn new(table: D, heads: usize, buckets: Buckets, queries: usize, keys: usize) -> Self {
        let len = table.as_ref().len();
        let wanted = buckets.count * heads;
        assert_eq!(len, wanted, "a table of {len} elements is not ({}, {heads})", buckets.count);
        Self { table, heads, buckets, offset: offset(queries, keys) }
    }

    #[inline(always)]
    fn each_bucket(&self, at: Position, keys: &Range<usize>) -> impl Iterator<Item = usize> {
        let start = keys.start as isize - at.query as isize - self.offset;
        (start..start + keys.len() as isize).map(|distance| self.buckets.bucket(distance))
    }
}

impl<D: AsRef<[f32]> + Sync> Scores for T5<D> {
    #[inline(always)]
    fn tile(&self, _: usize, _: usize, _: Range<usize>, _: Range<usize>) -> Visibility {
        Visibility::Partial
    }

    #[inline(always)]
    fn apply(&self, at: Position, keys: Range<usize>, scores: &mut [f32]) {
        let table = self.table.as_ref();
        for (score, bucket) in scores.iter_mut().zip(self.each_bucket(at, &keys)) {
            *score += table[bucket * self.heads + at.head];
        }
    }

    fn gradient_len(&self) -> usize {
        self.table.as_ref().len()
    }

    fn partial_len(&self) -> usize {
        self.buckets.count
    }

    #[inline(always)]
    fn backward(&self, at: Position, keys: Range<usize>, dscores: &[f32], partial: &mut [f32]) {
        for (ds, bucket) in dscores.iter().zip(self.each_bucket(at, &keys)) {
            partial[bucket] += ds;
        }
    }

    fn collect(&self, _: usize, head: usize, partial: &[f32], gradient: &mut [f32]) {
        let column = gradient[head..].iter_mut().step_by(self.heads);
        column.zip(partial).for_each(|(gradient, partial)| *gradient += partial);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_rule;
    use super::*;

    /// From `T5Attention._relative_position_bucket` of `transformers`, at distances j − p.
    const DISTANCES: [isize; 24] = [
        -1000, -128, -127, -91, -90, -64, -46, -45, -32, -23, -16, -12, -11, -8, -7, -1, 0, 1, 7,
        8, 16, 32, 90, 500,
    ];
    const BIDIRECTIONAL_32_128: [usize; 24] =
        [15, 15, 15, 15, 14, 14, 13, 12, 12, 11, 10, 9, 8, 8, 7, 1, 0, 17, 23, 24, 26, 28, 30, 31];
    const CAUSAL_32_128: [usize; 24] =
        [31, 31, 31, 29, 29, 26, 24, 23, 21, 18, 16, 12, 11, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn buckets_are_those_of_the_published_code() {
        let found = |buckets: &Buckets| DISTANCES.map(|distance| buckets.bucket(distance));
        assert_eq!(found(&Buckets::bidirectional(32, 128)), BIDIRECTIONAL_32_128);
        assert_eq!(found(&Buckets::causal(32, 128)), CAUSAL_32_128);
        // Σ (n + 1) · bucket(n − 2000) for n = 0 to 4000, modulo 1000003, from the same code.
        let sum = |buckets: &Buckets| {
            (0..=4000).map(|n| (n as usize + 1) * buckets.bucket(n - 2000)).sum::<usize>() % 1000003
        };
        assert_eq!(sum(&Buckets::bidirectional(32, 128)), 886748);
        assert_eq!(sum(&Buckets::causal(32, 128)), 253575);
        assert_eq!(sum(&Buckets::bidirectional(8, 20)), 995845);
        assert_eq!(sum(&Buckets::causal(6, 40)), 953115);
        assert_eq!(sum(&Buckets::bidirectional(64, 256)), 755968);
        assert_eq!(sum(&Buckets::causal(16, 1000)), 800974);
    }

    #[test]
    fn the_bias_of_the_bucket_is_added() {
        for (queries, keys) in [(130, 130), (2, 70), (70, 3)] {
            for buckets in [Buckets::bidirectional(8, 20), Buckets::causal(6, 40)] {
                let table: Vec<f32> = (0..buckets.count * 3).map(|n| n as f32).collect();
                let rule = T5::new(&table, 3, buckets.clone(), queries, keys);
                assert_rule(&rule, [1, 3, queries, keys], |_, h, i, j| {
                    let distance = (j + queries) as isize - (i + keys) as isize;
                    table[buckets.bucket(distance) * 3 + h]
                });
            }
        }
    }
}
