//! The most that this machine gives, measured: what timings are held against.
//!
//! Both measures use the instruction set and the threads of the moment, repeat a short piece of
//! work, and take the best: whatever else runs on the machine can only make it slower.

use crate::dispatch;
use crate::memory::Buffer;
use crate::simd::Simd;
use crate::threads;
use std::hint::black_box;
use std::time::Instant;

/// Multiply-adds out of registers, in 10⁹ floating-point operations per second (a multiply-add
/// is two). Takes about 0.1 s.
pub fn fma_gflops() -> f64 {
    /// About 3 ms at one multiply-add per cycle of 3 GHz: long against the start of a region.
    const ROUNDS: usize = 1 << 20;
    const REPEATS: usize = 30;
    let threads = threads::count();
    let gflops = |chains: usize, run: fn(usize) -> f32| {
        let operations = (threads * ROUNDS * chains * lanes() * 2) as f64;
        operations / best_of(REPEATS, || threads::for_each(threads, |_| _ = run(ROUNDS))) / 1e9
    };
    gflops(MANY, many_chains).max(gflops(FEW, few_chains))
}

/// The most that products of matrices of f32 could reach on the set of the moment, in the same unit:
/// multiply-adds of vectors, or [tiles](crate::gemm).
pub fn product_gflops() -> f64 {
    tile_gflops().unwrap_or_else(fma_gflops)
}

/// Products of f32 on AMX tiles out of registers, if they are the set of the moment.
#[cfg(target_arch = "x86_64")]
pub fn tile_gflops() -> Option<f64> {
    use crate::gemm::amx::tiles::{Amx, OPERATIONS_OF_A_ROUND, rounds};
    use crate::isa::{self, Isa};
    /// About 3 ms at 64 cycles a round.
    const ROUNDS: usize = 1 << 17;
    const REPEATS: usize = 30;
    let amx = if isa::current() == Isa::Amx { Amx::detect()? } else { return None };
    let threads = threads::count();
    let seconds = best_of(REPEATS, || threads::for_each(threads, |_| rounds(amx, ROUNDS)));
    Some((threads * ROUNDS) as f64 * OPERATIONS_OF_A_ROUND / seconds / 1e9)
}

/// None: there are no AMX tiles here.
#[cfg(not(target_arch = "x86_64"))]
pub fn tile_gflops() -> Option<f64> {
    None
}

/// Reading memory in order, in 10⁹ bytes per second. Takes about 0.3 s.
pub fn read_gb_per_second() -> f64 {
    /// Four times the largest common last-level cache of one socket, 64 MiB.
    const BYTES: usize = 256 << 20;
    const CHUNK: usize = (1 << 20) / size_of::<f32>();
    const REPEATS: usize = 5;
    let mut memory = Buffer::<f32>::zeroed(BYTES / size_of::<f32>());
    // Pages that were never written are all one page of zeros, which would stay in the cache.
    threads::for_row_chunks(memory.len(), CHUNK, [(&mut memory, 1)], |_, [part]| part.fill(1.0));
    let seconds = best_of(REPEATS, || {
        threads::for_each(memory.len() / CHUNK, |i| _ = sum(&memory[i * CHUNK..][..CHUNK]));
    });
    BYTES as f64 / seconds / 1e9
}

/// The least seconds of so many runs.
fn best_of(runs: usize, mut work: impl FnMut()) -> f64 {
    let one = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..runs).map(one).fold(f64::INFINITY, f64::min)
}

/// Independent chains of multiply-adds: two units with a latency of four or five cycles need ten
/// in flight, and with their two operands they still fit sixteen registers.
const MANY: usize = 12;
/// Without fused instructions a vector of the portable set takes two registers of the target's
/// baseline and some for products on the way: then fewer chains are faster.
const FEW: usize = 4;

dispatch! {
    /// Lanes of the instruction set of the moment.
    fn lanes() -> usize => lanes_on
    /// So many rounds of `MANY` multiply-adds.
    fn many_chains(rounds: usize) -> f32 => chains_on::<_, MANY>
    /// So many rounds of `FEW` multiply-adds.
    fn few_chains(rounds: usize) -> f32 => chains_on::<_, FEW>
    /// The sum of all elements, in the order that reads fastest.
    fn sum(x: &[f32]) -> f32 => sum_on
}

#[inline(always)]
fn lanes_on<S: Simd>(_: S) -> usize {
    S::LANES
}

#[inline(always)]
fn chains_on<S: Simd, const CHAINS: usize>(s: S, rounds: usize) -> f32 {
    // x ← 0.999 x + 0.001 stays near 1, where arithmetic has its usual speed.
    let (factor, term) = (s.splat(black_box(0.999)), s.splat(black_box(0.001)));
    let mut x = [s.splat(black_box(1.0)); CHAINS];
    for _ in 0..rounds {
        for x in &mut x {
            *x = s.mul_add(*x, factor, term);
        }
    }
    let mut total = x[0];
    for x in &x[1..] {
        total = s.add(total, *x);
    }
    black_box(s.sum(total))
}

#[inline(always)]
fn sum_on<S: Simd>(s: S, x: &[f32]) -> f32 {
    const STREAMS: usize = 4;
    let mut total = [s.zero(); STREAMS];
    for group in x.chunks_exact(STREAMS * S::LANES) {
        for (i, total) in total.iter_mut().enumerate() {
            let at = crate::simd::Span { start: i * S::LANES, count: S::LANES };
            *total = s.add(*total, s.read(group, at));
        }
    }
    let [a, b, c, d] = total;
    black_box(s.sum(s.add(s.add(a, b), s.add(c, d))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, with_isa};

    #[test]
    fn every_instruction_set_computes_what_is_timed() {
        for isa in Isa::all_available() {
            with_isa(isa, || {
                // From 1, x ← 0.999 x + 0.001 stays at 1 up to rounding.
                for (chains, run) in [(MANY, many_chains as fn(usize) -> f32), (FEW, few_chains)] {
                    let mean = run(100) / (chains * lanes()) as f32;
                    assert!((mean - 1.0).abs() < 1e-4, "{}: {mean}", isa.name());
                }
                assert_eq!(sum(&[1.0; 4096]), 4096.0);
            });
        }
    }

    #[test]
    fn measures_are_of_this_world() {
        // Any CPU of the last 20 years, even busy with other work, does more than 10⁸ operations
        // and reads more than 10⁸ bytes per second; none does more than 10¹⁴.
        let products = Isa::all_available().map(|isa| with_isa(isa, product_gflops));
        for value in products.chain([fma_gflops(), read_gb_per_second()]) {
            assert!((0.1..1e5).contains(&value), "{value}");
        }
    }
}
