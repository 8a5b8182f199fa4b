//! Randomness that depends on what it is for and not on when it is drawn.
//!
//! Every random number is a hash of a key and a counter. For dropout the key is (seed, step,
//! site) and the counter is the element's index: nothing is stored for backward, a recomputed
//! block sees the same noise, and the number of threads does not matter. For data and
//! initialisation, [`Rng`] counts for itself.

use crate::shape::Shape;
use crate::tensor::Tensor;

/// A bijection of 64-bit words whose every output bit depends on every input bit (the finaliser
/// of SplitMix64; Steele, Lea and Flood 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 2⁶⁴ divided by the golden ratio, odd: successive multiples are spread evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where in a training run randomness is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The run's seed.
    pub seed: u64,
    /// The training step (of micro-batches, where gradients are accumulated).
    pub step: u64,
    /// The place in the model; every dropout has its own.
    pub site: u64,
}

impl Key {
    /// The two words that keyed kernels take.
    pub fn words(self) -> [u32; 2] {
        let mut h = mix(self.seed.wrapping_add(GOLDEN));
        h = mix(h ^ self.step.wrapping_add(GOLDEN.wrapping_mul(2)));
        h = mix(h ^ self.site.wrapping_add(GOLDEN.wrapping_mul(3)));
        [h as u32, (h >> 32) as u32]
    }
}

/// A generator of its own: the hash of a seed and a counter, one word per draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    seed: u64,
    counter: u64,
}

impl Rng {
    /// Starts the stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed: mix(seed.wrapping_add(GOLDEN)), counter: 0 }
    }

    /// The stream of `seed`, from draw `counter` on: to continue where another stopped.
    pub fn at(seed: u64, counter: u64) -> Self {
        Self { counter, ..Self::new(seed) }
    }

    /// How many words were drawn.
    pub fn counter(&self) -> u64 {
        self.counter
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.counter += 1;
        mix(self.seed.wrapping_add(self.counter.wrapping_mul(GOLDEN)))
    }

    /// Uniform in [0, 1), all 53 bits of an f64.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform among 0, …, n − 1. Panics if n is 0.
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "no number is below 0");
        // The high word of a 64×64-bit product; biased by at most n/2⁶⁴.
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// One normal number (Box–Muller, two draws).
    pub fn normal_one(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt(); // 1 − unit is never 0
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Normal numbers with standard deviation `deviation`.
    pub fn normal(&mut self, shape: impl Into<Shape>, deviation: f64) -> Tensor {
        self.fill(shape, |rng| (rng.normal_one() * deviation) as f32)
    }

    /// Uniform numbers in [low, high).
    pub fn uniform(&mut self, shape: impl Into<Shape>, low: f64, high: f64) -> Tensor {
        self.fill(shape, |rng| (low + (high - low) * rng.unit()) as f32)
    }

    /// Normal numbers drawn again while they are beyond two deviations.
    pub fn truncated_normal(&mut self, shape: impl Into<Shape>, deviation: f64) -> Tensor {
        self.fill(shape, |rng| {
            loop {
                let x = rng.normal_one();
                if x.abs() <= 2.0 {
                    return (x * deviation) as f32;
                }
            }
        })
    }

    fn fill(&mut self, shape: impl Into<Shape>, mut f: impl FnMut(&mut Self) -> f32) -> Tensor {
        let mut tensor = Tensor::unset(shape);
        if !tensor.is_dry() {
            tensor.data_mut().iter_mut().for_each(|x| *x = f(self));
        }
        tensor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_distribution() {
        const N: usize = 100_000;
        let moments = |x: &Tensor| {
            let mean = x.data().iter().map(|&x| f64::from(x)).sum::<f64>() / N as f64;
            let var = x.data().iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>();
            (mean, var / N as f64)
        };
        // Four standard errors: 4/√N for the mean of a unit normal, 4·√(2/N) for its variance.
        let (mean, var) = moments(&Rng::new(1).normal([N], 1.0));
        assert!(mean.abs() < 0.0127 && (var - 1.0).abs() < 0.0179, "{mean} {var}");
        let (mean, var) = moments(&Rng::new(2).uniform([N], 0.0, 1.0));
        assert!((mean - 0.5).abs() < 0.004 && (var - 1.0 / 12.0).abs() < 0.001, "{mean} {var}");
        let truncated = Rng::new(3).truncated_normal([N], 0.5);
        assert!(truncated.data().iter().all(|x| x.abs() <= 1.0));
    }

    #[test]
    fn a_stream_can_be_continued_and_streams_differ() {
        let mut a = Rng::new(5);
        a.bits();
        let mut b = Rng::at(5, a.counter());
        assert_eq!(a.bits(), b.bits());
        assert_ne!(Rng::new(5).bits(), Rng::new(6).bits());
    }

    #[test]
    fn neighbouring_keys_share_nothing() {
        let key = |seed, step, site| Key { seed, step, site }.words();
        let keys = [key(0, 0, 0), key(1, 0, 0), key(0, 1, 0), key(0, 0, 1), key(1, 1, 0)];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[..i] {
                let differing = (a[0] ^ b[0]).count_ones() + (a[1] ^ b[1]).count_ones();
                assert!((16..=48).contains(&differing), "{differing} of 64 bits differ");
            }
        }
    }
}
