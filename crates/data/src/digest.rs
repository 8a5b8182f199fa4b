//! A 64-bit checksum against accidents (torn writes, flipped bits, the wrong file), at memory
//! speed. It is no defence against someone who forges files on purpose.
//!
//! The bytes are read as little-endian words, dealt to four independent lanes so that four
//! multiplications are in flight; each lane does `h ← rotate(h ⊕ w) · odd`, a bijection of `h`
//! for every `w`, so a change in a single word always changes its lane. At the end the lanes and
//! the length go through the finaliser of SplitMix64.

const LANES: usize = 4;
/// Bytes taken per round: one 8-byte word per lane.
const BLOCK: usize = 8 * LANES;
/// 2⁶⁴ divided by the golden ratio, odd.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A checksum in the making.
#[derive(Clone, Debug)]
pub struct Digest {
    lanes: [u64; LANES],
    /// Bytes that do not fill a block yet.
    rest: [u8; BLOCK],
    filled: usize,
    length: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Self { lanes: [1, 2, 3, 4], rest: [0; BLOCK], filled: 0, length: 0 }
    }
}

impl Digest {
    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut digest = Self::default();
        digest.update(bytes);
        digest.value()
    }

    /// Takes in more bytes; how they are cut into calls does not matter.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if self.filled > 0 {
            let take = bytes.len().min(BLOCK - self.filled);
            self.rest[self.filled..self.filled + take].copy_from_slice(&bytes[..take]);
            self.filled += take;
            bytes = &bytes[take..];
            if self.filled < BLOCK {
                return;
            }
            let block = self.rest;
            self.round(&block);
            self.filled = 0;
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for block in blocks {
            self.round(block);
        }
        self.rest[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
    }

    /// The checksum of all that was taken in.
    pub fn value(&self) -> u64 {
        let mut end = self.clone();
        end.rest[end.filled..].fill(0);
        let block = end.rest;
        end.round(&block);
        // The length tells a zero that was there from one that fills the block.
        end.lanes.iter().fold(finalise(self.length), |hash, &lane| finalise(hash ^ lane))
    }

    fn round(&mut self, block: &[u8; BLOCK]) {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in self.lanes.iter_mut().zip(words) {
            *lane = (*lane ^ u64::from_le_bytes(*word)).rotate_left(29).wrapping_mul(ODD);
        }
    }
}

/// A bijection in which every output bit depends on every input bit.
fn finalise(mut z: u64) -> u64 {
    z = z.wrapping_add(ODD);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_and_the_length_count_and_cuts_do_not() {
        let bytes: Vec<u8> = (0..100_u8).map(|i| i.wrapping_mul(37)).collect();
        let whole = Digest::of(&bytes);
        for at in 0..bytes.len() {
            let mut digest = Digest::default();
            digest.update(&bytes[..at]);
            digest.update(&bytes[at..]);
            assert_eq!(digest.value(), whole, "cut at {at}");
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert_ne!(Digest::of(&flipped), whole, "byte {at}, bit {bit}");
            }
        }
        let zeros = [0; 70];
        let mut seen: Vec<u64> = (0..70).map(|n| Digest::of(&zeros[..n])).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 70);
    }
}
