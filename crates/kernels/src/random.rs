//! Counter-based random numbers: the number at a place is a function of (key, counter) alone, so
//! dropout stores no mask and nothing depends on the order in which elements are visited.
//!
//! A [`Key`] of 64 bits (say: seed and step in one, site in the other) and the high half of a
//! 64-bit counter are mixed into three 32-bit subkeys, a [`Stream`]. Within a stream the low half
//! of the counter goes through three rounds of multiply and xor-shift, with a subkey added before
//! each: a keyed permutation of 32 bits, of 15 instructions per vector. The rounds are those of the
//! 32-bit hash with the least known bias (C. Wellons' "triple32"); the subkeys make streams
//! independent, where a hash of `counter ^ key` would only shuffle one and the same sequence.
//! Being a permutation, a stream of 2³² numbers has no repeats, unlike true random numbers.
//!
//! All integer: the same bits on every instruction set, and for scalars.

use crate::simd::Simd;
use crate::threads::{for_row_chunks, rows_per_chunk};
use crate::{Write, dispatch, each_span};

/// What tells one use of randomness from another.
pub type Key = [u32; 2];

/// The numbers of one key and one high half of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    subkeys: [u32; 3],
}

/// The multipliers of the three rounds.
const MULTIPLIERS: [u32; 3] = [0xed5a_d4bb, 0xac4c_1b51, 0x3184_8bab];

impl Stream {
    /// For the counters `high`·2³² to `high`·2³² + 2³² − 1. Costs a few nanoseconds.
    #[inline]
    pub fn new(key: Key, high: u32) -> Self {
        let mut state = mix(u64::from(key[0]) << 32 | u64::from(key[1]));
        state = mix(state ^ u64::from(high));
        let more = mix(state);
        Self { subkeys: [state as u32, (state >> 32) as u32, more as u32] }
    }

    /// 32 random bits at `low`.
    #[inline]
    pub fn bits(&self, low: u32) -> u32 {
        let [first, second, third] = self.subkeys;
        let mut h = low.wrapping_add(first);
        h ^= h >> 17;
        h = h.wrapping_mul(MULTIPLIERS[0]).wrapping_add(second);
        h ^= h >> 11;
        h = h.wrapping_mul(MULTIPLIERS[1]).wrapping_add(third);
        h ^= h >> 15;
        h = h.wrapping_mul(MULTIPLIERS[2]);
        h ^ (h >> 14)
    }

    /// 32 random bits in each lane, at the counters in `low`.
    #[inline(always)]
    pub fn bits_at<S: Simd>(&self, s: S, low: S::I) -> S::I {
        let [first, second, third] = self.subkeys;
        let h = s.add_i(low, s.splat_i(first));
        let h = s.xor_i(h, s.shift_right::<17>(h));
        let h = s.add_i(s.mul_i(h, s.splat_i(MULTIPLIERS[0])), s.splat_i(second));
        let h = s.xor_i(h, s.shift_right::<11>(h));
        let h = s.add_i(s.mul_i(h, s.splat_i(MULTIPLIERS[1])), s.splat_i(third));
        let h = s.xor_i(h, s.shift_right::<15>(h));
        let h = s.mul_i(h, s.splat_i(MULTIPLIERS[2]));
        s.xor_i(h, s.shift_right::<14>(h))
    }

    /// Uniform in [0, 1) in each lane, at `low`, `low` + 1, …
    #[inline(always)]
    pub fn uniform_from<S: Simd>(&self, s: S, low: u32) -> S::V {
        let bits = self.bits_at(s, s.add_i(s.iota(), s.splat_i(low)));
        // 24 bits are what an f32 holds exactly.
        s.mul(s.to_float(s.shift_right::<8>(bits)), s.splat(STEP))
    }
}

/// 2⁻²⁴, the distance between neighbouring uniform numbers.
const STEP: f32 = 1.0 / (1 << 24) as f32;

/// A permutation of 64 bits in which every bit depends on every other (the finaliser of
/// SplitMix64, after adding its constant so that 0 is not a fixed point).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// 32 random bits.
pub fn bits(key: Key, counter: u64) -> u32 {
    Stream::new(key, (counter >> 32) as u32).bits(counter as u32)
}

/// Uniform in [0, 1).
pub fn uniform(key: Key, counter: u64) -> f32 {
    (bits(key, counter) >> 8) as f32 * STEP
}

/// Normal with mean 0 and variance 1 (Box and Muller 1958), in f64, for initialisation. Uses the
/// counters 4·index to 4·index + 3.
pub fn normal(key: Key, index: u64) -> f64 {
    let word = |i: u64| u64::from(bits(key, index.wrapping_mul(4).wrapping_add(i)));
    // 53 bits each; the first one in (0, 1], since its logarithm is taken.
    let unit = |high: u64, low: u64| ((high << 32 | low) >> 11) as f64 / (1_u64 << 53) as f64;
    let radius = (-2.0 * (1.0 - unit(word(0), word(1))).ln()).sqrt();
    radius * (2.0 * std::f64::consts::PI * unit(word(2), word(3))).cos()
}

/// `out[i]` = uniform in [0, 1) at counter `first` + i.
pub fn fill_uniform(key: Key, first: u64, out: &mut [f32]) {
    for_row_chunks(out.len(), rows_per_chunk(1), [(out, 1)], |at, [out]| {
        for_each_stream(key, first.wrapping_add(at.start as u64), out.len(), |stream, low, at| {
            uniform_chunk(stream, low, &mut out[at]);
        });
    });
}

/// `out[i]` = normal number `first` + i, times `deviation`.
pub fn fill_normal(key: Key, first: u64, deviation: f64, out: &mut [f32]) {
    for_row_chunks(out.len(), 1024, [(out, 1)], |at, [out]| {
        for (i, out) in out.iter_mut().enumerate() {
            let index = first.wrapping_add((at.start + i) as u64);
            *out = (deviation * normal(key, index)) as f32;
        }
    });
}

/// Dropout: what is dropped with which probability, decided by key and counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Which sequence of decisions.
    pub key: Key,
    /// The share that becomes zero, from 0 to 1; counts in steps of 2⁻²⁴.
    pub probability: f32,
}

impl Dropout {
    /// Drops with `probability`, which must lie in 0..=1.
    pub fn new(key: Key, probability: f32) -> Self {
        assert!(
            (0.0..=1.0).contains(&probability),
            "a dropout probability lies in 0..=1, not {probability}"
        );
        Self { key, probability }
    }

    /// 1/(1 − p), what survivors are multiplied with; 0 if nothing survives.
    pub fn scale(&self) -> f32 {
        if self.probability < 1.0 { 1.0 / (1.0 - self.probability) } else { 0.0 }
    }

    /// The multiplier of each lane, 0 or [`scale`](Self::scale), at `low`, `low` + 1, … of a
    /// stream of this key. Call `scale` once, outside of the loop.
    #[inline(always)]
    pub fn factors<S: Simd>(&self, s: S, stream: &Stream, low: u32, scale: f32) -> S::V {
        let dropped = s.less(stream.uniform_from(s, low), s.splat(self.probability));
        s.select(dropped, s.zero(), s.splat(scale))
    }

    /// The multiplier of one element.
    pub fn factor(&self, counter: u64) -> f32 {
        if uniform(self.key, counter) < self.probability { 0.0 } else { self.scale() }
    }
}

/// out = x·factor(first + i), or out += …. The backward pass is the same function on dout.
pub fn dropout(dropout: Dropout, first: u64, x: &[f32], out: &mut [f32], write: Write) {
    assert_eq!(x.len(), out.len(), "dropout of {} elements into {}", x.len(), out.len());
    for_row_chunks(x.len(), rows_per_chunk(1), [(out, 1)], |at, [out]| {
        let x = &x[at.clone()];
        let first = first.wrapping_add(at.start as u64);
        for_each_stream(dropout.key, first, x.len(), |stream, low, at| {
            dropout_chunk(dropout, stream, low, &x[at.clone()], &mut out[at], write);
        });
    });
}

/// x = x·factor(first + i)
pub fn dropout_in_place(dropout: Dropout, first: u64, x: &mut [f32]) {
    for_row_chunks(x.len(), rows_per_chunk(1), [(x, 1)], |at, [x]| {
        let first = first.wrapping_add(at.start as u64);
        for_each_stream(dropout.key, first, x.len(), |stream, low, at| {
            dropout_chunk_in_place(dropout, stream, low, &mut x[at]);
        });
    });
}

/// Cuts `len` counters from `first` on where their high half changes.
fn for_each_stream(
    key: Key,
    first: u64,
    len: usize,
    mut f: impl FnMut(Stream, u32, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < len {
        let counter = first.wrapping_add(done as u64);
        let left_in_stream = (1_u64 << 32) - (counter & 0xffff_ffff);
        let count = left_in_stream.min((len - done) as u64) as usize;
        let stream = Stream::new(key, (counter >> 32) as u32);
        f(stream, counter as u32, done..done + count);
        done += count;
    }
}

dispatch! {
    fn uniform_chunk(stream: Stream, low: u32, out: &mut [f32]) => uniform_on
    fn dropout_chunk(dropout: Dropout, stream: Stream, low: u32, x: &[f32], out: &mut [f32],
        write: Write) => dropout_on
    fn dropout_chunk_in_place(dropout: Dropout, stream: Stream, low: u32, x: &mut [f32])
        => dropout_in_place_on
}

#[inline(always)]
fn uniform_on<S: Simd>(s: S, stream: Stream, low: u32, out: &mut [f32]) {
    each_span!(S, out.len(), |at| {
        s.write(out, at, stream.uniform_from(s, low.wrapping_add(at.start as u32)));
    });
}

#[inline(always)]
fn dropout_on<S: Simd>(
    s: S,
    dropout: Dropout,
    stream: Stream,
    low: u32,
    x: &[f32],
    out: &mut [f32],
    write: Write,
) {
    let scale = dropout.scale();
    each_span!(S, x.len(), |at| {
        let factors = dropout.factors(s, &stream, low.wrapping_add(at.start as u32), scale);
        s.put(out, at, s.mul(s.read(x, at), factors), write);
    });
}

#[inline(always)]
fn dropout_in_place_on<S: Simd>(s: S, dropout: Dropout, stream: Stream, low: u32, x: &mut [f32]) {
    let scale = dropout.scale();
    each_span!(S, x.len(), |at| {
        let factors = dropout.factors(s, &stream, low.wrapping_add(at.start as u32), scale);
        let v = s.mul(s.read(x, at), factors);
        s.write(x, at, v);
    });
}

#[cfg(test)]
mod tests;
