//! What the tests of this crate share: samples, lengths, instruction sets, and how to say how
//! far off a result is.

use crate::isa::{Isa, with_isa};

/// Lengths that straddle the lanes of every instruction set, with none, one and many.
pub(crate) const LENGTHS: [usize; 12] = [0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 100, 1000];

/// `len` numbers spread evenly over ±`size`, the same for the same seed.
pub(crate) fn samples(len: usize, size: f32, seed: u32) -> Vec<f32> {
    (0..len as u32)
        .map(|i| {
            let mut h = (i ^ seed.wrapping_mul(0x85eb_ca6b)).wrapping_mul(0x9e37_79b1);
            h = (h ^ (h >> 15)).wrapping_mul(0x2c1b_3c6d);
            h = (h ^ (h >> 12)).wrapping_mul(0x297a_2d39);
            ((h >> 8) as f32 / (1 << 23) as f32 - 1.0) * size
        })
        .collect()
}

/// Runs `f` once on each instruction set of this CPU.
pub(crate) fn on_every_isa(f: impl Fn(Isa)) {
    for isa in Isa::all_available() {
        with_isa(isa, || f(isa));
    }
}

/// The distance of `got` from `want` in units of the last place of an f32 of `want`'s size.
pub(crate) fn ulps(got: f32, want: f64) -> f64 {
    if f64::from(got) == want || (got.is_nan() && want.is_nan()) {
        return 0.0;
    }
    let exponent = want.abs().log2().floor().max(-126.0);
    (f64::from(got) - want).abs() / (exponent - 23.0).exp2()
}

/// Panics unless every element is within `bound(i)` of what is wanted; says which is furthest.
#[track_caller]
pub(crate) fn assert_close(what: &str, got: &[f32], want: &[f64], bound: impl Fn(usize) -> f64) {
    assert_eq!(got.len(), want.len(), "{what}: lengths differ");
    let error = |i: usize| {
        let (got, want) = (f64::from(got[i]), want[i]);
        if got == want || (got.is_nan() && want.is_nan()) {
            0.0
        } else {
            let ratio = (got - want).abs() / bound(i);
            if ratio.is_nan() { f64::INFINITY } else { ratio }
        }
    };
    let worst = (0..got.len()).max_by(|&i, &j| error(i).total_cmp(&error(j)));
    if let Some(i) = worst {
        assert!(
            error(i) <= 1.0,
            "{what}: furthest at {i} of {}: got {}, wanted {}, {:.2} times the bound {:e}",
            got.len(),
            got[i],
            want[i],
            error(i),
            bound(i)
        );
    }
}

/// As f64.
pub(crate) fn to_f64(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

#[test]
fn the_harness_runs_on_every_set_of_this_cpu() {
    let ran = std::cell::RefCell::new(Vec::new());
    on_every_isa(|isa| {
        assert_eq!(crate::isa::current(), isa);
        ran.borrow_mut().push(isa.name());
    });
    let (ran, missing): (Vec<_>, Vec<_>) =
        Isa::ALL.iter().map(|isa| isa.name()).partition(|name| ran.borrow().contains(name));
    assert_eq!(ran[0], "portable"); // every CPU has it
    println!("kernels are tested on: {}; not on this CPU: {}", ran.join(" "), missing.join(" "));
}
