//! Which instruction set the kernels run on.
//!
//! The widest set of vectors that this CPU has is chosen once. `HEARKEN_SIMD=portable|avx2|avx512|amx`
//! forces one for the process; [`with_isa`] does so for one call, which is how one test harness covers
//! all of them.
//!
//! AMX has no vectors, only products of matrices. They take many rows to be worth it, so the bits of a
//! row would depend on how many come with it, and a token generated from a cache could differ from the
//! same one in a batch. So it is used where that does not matter, [`for_batches`], and elsewhere only if
//! it is asked for.

use std::cell::Cell;
use std::sync::OnceLock;

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust, vectorised by the compiler for the baseline of the target.
    Portable,
    /// x86-64 with AVX2, FMA and F16C: eight lanes.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL: sixteen lanes.
    Avx512,
    /// The same, with large [matrix products](crate::gemm) on AMX tiles of bfloat16.
    Amx,
}

impl Isa {
    /// All sets, narrowest first.
    pub const ALL: [Isa; 4] = [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Amx];

    /// The name that `HEARKEN_SIMD` takes.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
        }
    }

    /// Can this CPU run it? Cheap: the CPU is asked once.
    #[inline]
    pub fn available(self) -> bool {
        static WIDEST: OnceLock<Isa> = OnceLock::new();
        // Each set contains those before it.
        self <= *WIDEST.get_or_init(Isa::widest)
    }

    /// What the CPU says.
    fn widest() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            // Asked for last, and not where something else is wanted: what is permitted to a process
            // makes its signal stacks larger.
            let amx = || matches!(wanted().as_deref(), None | Some("amx")) && amx_is_permitted();
            match (avx2, avx512) {
                (true, true) if amx() => Isa::Amx,
                (true, true) => Isa::Avx512,
                (true, false) => Isa::Avx2,
                (false, _) => Isa::Portable,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Portable
    }

    /// The sets that this CPU can run, narrowest first.
    pub fn all_available() -> impl Iterator<Item = Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.available())
    }
}

/// Does this CPU have AMX tiles of bfloat16, and does the system let this process use them? Linux
/// gives a thread the 8 KiB that its tiles take when it first uses one, in a process that has asked.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn amx_is_permitted() -> bool {
    use std::arch::{asm, x86_64};
    const BF16_AND_TILE: u32 = 1 << 22 | 1 << 24; // in EDX of leaf 7
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18; // the number of that part of a thread's state
    let has_leaf = x86_64::__cpuid(0).eax >= 7;
    if !has_leaf || x86_64::__cpuid_count(7, 0).edx & BF16_AND_TILE != BF16_AND_TILE {
        return false;
    }
    let answer: i64;
    // SAFETY: a system call with two numbers, which touches no memory of ours. A kernel that does
    // not know it answers with an error.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => answer,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer == 0
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn amx_is_permitted() -> bool {
    false
}

/// Reads a value of `HEARKEN_SIMD`; or says what is wrong with it.
pub fn parse(text: &str) -> Result<Isa, String> {
    let isa = Isa::ALL.into_iter().find(|isa| isa.name() == text).ok_or_else(|| {
        format!("HEARKEN_SIMD is '{text}', expected portable, avx2, avx512 or amx")
    })?;
    if isa.available() {
        Ok(isa)
    } else {
        Err(format!("HEARKEN_SIMD is '{text}', which this CPU or its system does not have"))
    }
}

/// The value of `HEARKEN_SIMD`, if there is one.
fn wanted() -> Option<String> {
    std::env::var("HEARKEN_SIMD").ok().filter(|text| !text.is_empty())
}

/// What `HEARKEN_SIMD` asks for. A binary reports a bad value with [`parse`] before it starts; a
/// library user who skipped that gets what the CPU has rather than a panic in the middle of a kernel.
fn asked_for() -> Option<Isa> {
    static ASKED: OnceLock<Option<Isa>> = OnceLock::new();
    *ASKED.get_or_init(|| parse(&wanted()?).ok())
}

/// The widest vectors, unless another set is asked for.
fn process_default() -> Isa {
    static DEFAULT: OnceLock<Isa> = OnceLock::new();
    *DEFAULT.get_or_init(|| {
        let widest = Isa::all_available().filter(|&isa| isa <= Isa::Avx512).last();
        asked_for().or(widest).unwrap_or(Isa::Portable)
    })
}

thread_local! {
    static FORCED: Cell<Option<Isa>> = const { Cell::new(None) };
}

/// The set that kernels called from this thread run on.
#[inline]
pub fn current() -> Isa {
    FORCED.get().unwrap_or_else(process_default)
}

/// Puts the forced set back when dropped, also when unwinding.
struct Restore(Option<Isa>);
impl Drop for Restore {
    fn drop(&mut self) {
        FORCED.set(self.0);
    }
}

/// Runs `f` with kernels on `isa`, on this thread and in the parallel work it starts.
///
/// Panics if this CPU does not have `isa`.
pub fn with_isa<R>(isa: Isa, f: impl FnOnce() -> R) -> R {
    assert!(isa.available(), "this CPU does not have {}", isa.name());
    with_forced(Some(isa), f)
}

/// What [`with_isa`] forces on this thread, for [`with_forced`] on another.
pub(crate) fn forced() -> Option<Isa> {
    FORCED.get()
}

/// Runs `f` as if in a call of [`with_isa`], or in none.
pub(crate) fn with_forced<R>(isa: Option<Isa>, f: impl FnOnce() -> R) -> R {
    let _restore = Restore(FORCED.replace(isa));
    f()
}

/// Runs `f`, which works on batches of one size, as training does, with kernels on the fastest set for many
/// rows, on this thread and in the parallel work it starts; on the one that is forced, if one is. The
/// bits of a row may then depend on how many rows there are.
pub fn for_batches<R>(f: impl FnOnce() -> R) -> R {
    if FORCED.get().is_none() && asked_for().is_none() && Isa::Amx.available() {
        with_isa(Isa::Amx, f)
    } else {
        f()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::{for_each, parallel_parts, with_threads};

    #[test]
    fn a_set_that_is_forced_is_the_one_for_batches() {
        for isa in Isa::all_available() {
            assert_eq!(with_isa(isa, || for_batches(current)), isa);
        }
    }

    #[test]
    fn the_set_for_batches_does_not_depend_on_threads() {
        let one = for_batches(current);
        assert!(one >= current());
        for threads in [1, 2, 4] {
            with_threads(threads, || {
                // In the parallel work that is started there, and where parallel work starts it.
                for_batches(|| for_each(9, |_| assert_eq!(current(), one)));
                for_batches(|| parallel_parts(3, |_| for_each(9, |_| assert_eq!(current(), one))));
                for_each(9, |_| assert_eq!(for_batches(current), one));
            });
        }
        assert!(current() <= one);
    }
}
