//! Random choices that a seed decides.

/// SplitMix64: small, and good enough for choices.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The choices of one case.
    pub fn new(seed: u64, case: u64) -> Self {
        let mut dice = Self(seed ^ case.wrapping_mul(0xd134_2543_de82_ef95));
        dice.any();
        dice
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 if there is none.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.any() % n as u64) as usize }
    }

    /// One of them. Panics if there is none.
    pub fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
