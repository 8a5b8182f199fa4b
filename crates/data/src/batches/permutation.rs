//! A random order of n things without a list of n: a bijection of 0, …, n − 1.
//!
//! A Feistel network permutes the numbers of an even count of bits: the halves (l, r) become
//! (r, l ⊕ hash(r)), which can be undone whatever the hash. Where n is not a power of four, a
//! number that lands outside is sent on until it lands inside (at most four rounds on average).

use hearken_tensor::rng::Key;

/// Rounds of the network; four already pass for random where nobody is attacking.
const ROUNDS: u64 = 6;

pub(super) struct Permutation {
    count: u64,
    half: u32,
    key: u64,
}

impl Permutation {
    pub(super) fn new(count: u64, key: u64) -> Self {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        Self { count, half: bits.div_ceil(2).max(1), key }
    }

    /// Where `index` goes.
    pub(super) fn image(&self, index: u64) -> u64 {
        assert!(index < self.count, "{index} of {}", self.count);
        let mut at = index;
        loop {
            at = self.scramble(at);
            if at < self.count {
                return at;
            }
        }
    }

    fn scramble(&self, index: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (index >> self.half, index & mask);
        for round in 0..ROUNDS {
            let [hash, _] = Key { seed: self.key, step: round, site: right }.words();
            (left, right) = (right, (left ^ u64::from(hash)) & mask);
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_hit_once() {
        for count in [1, 2, 3, 4, 5, 16, 17, 1000] {
            let permutation = Permutation::new(count, 5);
            let mut seen: Vec<u64> = (0..count).map(|i| permutation.image(i)).collect();
            let order = seen.clone();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
            if count == 1000 {
                let other = Permutation::new(count, 6);
                let same = (0..count).filter(|&i| other.image(i) == order[i as usize]).count();
                assert!(same < 10, "{same} of 1000 in the same place"); // 1 is expected
            }
        }
    }
}
