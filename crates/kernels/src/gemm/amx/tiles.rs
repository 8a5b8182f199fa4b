//! Products of packed panels on AMX tiles, in assembly.
//!
//! A tile is 16 rows of 64 bytes; there are eight. One instruction, `tdpbf16ps`, multiplies 16 lanes
//! of A with 16 lanes of B over 32 steps of depth and adds the products to 16 × 16 sums:
//!
//! ```text
//! sum[i][j] += Σ even A[i][p]·B[p][j] + Σ odd A[i][p]·B[p][j]
//! ```
//!
//! each of the two a chain of multiply-adds from zero. Denormal numbers count as zero.
//!
//! Where a number is [split](super::split) in three, high + middle + low, so is the product of two
//! of them: of the nine partial products six are larger than what rounding a product to f32 takes
//! away, and are added in this order, for each 32 steps (A's part first):
//!
//! ```text
//! low·high, middle·high, middle·middle, high·middle, high·low, high·high
//! ```
//!
//! A number of bfloat16 is its own high part: then three products are left, or one.
//!
//! Each function sets tiles up and releases them, so nothing is in them outside. A panel has the
//! tiles of 32 steps next to each other, those of its high parts first; then the next 32 steps; and
//! a [line](super::split::LINE) at its end.

use super::split::{LINE, TILE};
use crate::gemm::blocked::Operand;
use crate::isa::Isa;
use crate::simd::Avx512;
use std::arch::asm;

/// Shows that this CPU has AMX tiles of bfloat16 and that this process may use them, and has AVX-512.
#[derive(Clone, Copy)]
pub(crate) struct Amx(pub(super) Avx512);

impl Amx {
    /// The token, if the CPU has the instructions.
    pub(crate) fn detect() -> Option<Self> {
        Isa::Amx.available().then(Avx512::detect).flatten().map(Self)
    }
}

/// The sizes of the eight tiles, as `ldtilecfg` reads them: 16 rows of 64 bytes each.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static CONFIG: Config = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut i = 0;
    while i < 8 {
        (row_bytes[i], rows[i]) = (64, 16);
        i += 1;
    }
    Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

const _: () = assert!(size_of::<Config>() == 64 && TILE == 256 && LINE == 16);

/// Where a product finds its operands and leaves its result: a panel of one operand times panels of the
/// other that follow each other.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The first panel of A.
    pub(super) a: *const f32,
    /// The first panel of B.
    pub(super) b: *const f32,
    /// How often 32 steps; not zero.
    pub(super) blocks: usize,
    /// Of which operand there are several panels.
    pub(super) several: Operand,
    /// How many; not zero.
    pub(super) panels: usize,
    pub(super) out: *mut f32,
    /// Floats from one row of the result to the next.
    pub(super) out_stride: usize,
    /// Is the product added to what is there?
    pub(super) add: bool,
}

/// Loads the two tiles of part `$part` of A.
macro_rules! load_a {
    ($part:literal) => {
        concat!(
            "tileloadd tmm4, [{a} + {line} + 2048*",
            $part,
            "]\n",
            "tileloadd tmm5, [{a} + {line} + 2048*",
            $part,
            " + 1024]\n",
        )
    };
}

/// The same of B.
macro_rules! load_b {
    ($part:literal) => {
        concat!(
            "tileloadd tmm6, [{b} + {line} + 2048*",
            $part,
            "]\n",
            "tileloadd tmm7, [{b} + {line} + 2048*",
            $part,
            " + 1024]\n",
        )
    };
}

/// The part of A that is loaded times that of B, 32 × 32 sums.
macro_rules! multiply {
    () => {
        concat!(
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            "tdpbf16ps tmm2, tmm5, tmm6\n",
            "tdpbf16ps tmm3, tmm5, tmm7\n",
        )
    };
}

/// Defines a product with so many parts of A and B, and what is done for each 32 steps.
macro_rules! product {
    ($(#[$meta:meta])* $name:ident, $a_parts:literal, $b_parts:literal, $($piece:expr),+) => {
        $(#[$meta])*
        unsafe fn $name(place: Place) {
            let Place { a, b, blocks, several, panels, out, out_stride, add } = place;
            let stride = out_stride * size_of::<f32>();
            // From the end of a panel's blocks to the next panel, or back to the start.
            let (a_next, b_next, out_next) = match several {
                Operand::A => (64, (blocks * 2048 * $b_parts).wrapping_neg(), 32 * stride),
                Operand::B => ((blocks * 2048 * $a_parts).wrapping_neg(), 64, 128),
            };
            // SAFETY: called by `product`, whose token shows that the CPU has AMX, and whose contract
            // vouches for the panels and the result, all that is loaded and stored. All tiles that are
            // written are named, and released before the end.
            unsafe {
                asm!(
                    "ldtilecfg [{k}]",
                    "2:",
                    "test {add}, {add}",
                    "jnz 3f",
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "jmp 4f",
                    "3:",
                    "tileloadd tmm0, [{out} + {stride}]",
                    "tileloadd tmm1, [{out} + {stride} + 64]",
                    "tileloadd tmm2, [{lower} + {stride}]",
                    "tileloadd tmm3, [{lower} + {stride} + 64]",
                    "4:",
                    "mov {k}, {blocks}",
                    "5:",
                    $($piece,)+
                    concat!("add {a}, 2048*", $a_parts),
                    concat!("add {b}, 2048*", $b_parts),
                    "dec {k}",
                    "jnz 5b",
                    "tilestored [{out} + {stride}], tmm0",
                    "tilestored [{out} + {stride} + 64], tmm1",
                    "tilestored [{lower} + {stride}], tmm2",
                    "tilestored [{lower} + {stride} + 64], tmm3",
                    "add {a}, {a_next}",
                    "add {b}, {b_next}",
                    "add {out}, {out_next}",
                    "add {lower}, {out_next}",
                    "dec {panels}",
                    "jnz 2b",
                    "tilerelease",
                    k = inout(reg) &raw const CONFIG => _,
                    a = inout(reg) a => _,
                    a_next = in(reg) a_next,
                    b = inout(reg) b => _,
                    b_next = in(reg) b_next,
                    out = inout(reg) out => _,
                    lower = inout(reg) out.wrapping_add(16 * out_stride) => _,
                    out_next = in(reg) out_next,
                    stride = in(reg) stride,
                    line = in(reg) 64_usize,
                    blocks = in(reg) blocks,
                    panels = inout(reg) panels => _,
                    add = in(reg) usize::from(add),
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

product! {
    /// Both operands in three parts: six products.
    three_by_three, 3, 3,
    load_b!(0), load_a!(2), multiply!(),
    load_a!(1), multiply!(),
    load_b!(1), multiply!(),
    load_a!(0), multiply!(),
    load_b!(2), multiply!(),
    load_b!(0), multiply!()
}

product! {
    /// B is of bfloat16.
    three_by_one, 3, 1,
    load_b!(0), load_a!(2), multiply!(),
    load_a!(1), multiply!(),
    load_a!(0), multiply!()
}

product! {
    /// A is of bfloat16.
    one_by_three, 1, 3,
    load_a!(0), load_b!(1), multiply!(),
    load_b!(2), multiply!(),
    load_b!(0), multiply!()
}

product! {
    /// Both are.
    one_by_one, 1, 1,
    load_a!(0), load_b!(0), multiply!()
}

/// `out = A·B` or `out += A·B` for panels of A, 32 rows each, and of B, 32 columns each, in so many
/// parts.
///
/// # Safety
/// At the operand that has several panels, so many times
/// [`panel_len`](super::split::panel_len)`(parts, 32 · blocks)` floats are readable, and one such panel
/// at the other; 32 rows for each panel of A, of 32 floats for each of B, are valid at `out` for reading
/// and writing, by nobody else meanwhile.
pub(super) unsafe fn product(_: Amx, parts: (usize, usize), place: Place) {
    assert!(place.blocks > 0 && place.panels > 0, "an empty product");
    // SAFETY: the contract is the same.
    unsafe {
        match parts {
            (3, 3) => three_by_three(place),
            (3, 1) => three_by_one(place),
            (1, 3) => one_by_three(place),
            (1, 1) => one_by_one(place),
            _ => unreachable!("{parts:?} parts"),
        }
    }
}

/// Floating-point operations of f32 in one of [`rounds`]: six products of bfloat16 make one.
pub(crate) const OPERATIONS_OF_A_ROUND: f64 = (4 * 16 * 16 * 32 * 2) as f64 / 6.0;

/// So many rounds, at least one, of four products of tiles out of registers, of numbers that look like
/// any: with zeros a processor may run at a higher clock.
pub(crate) fn rounds(_: Amx, rounds: usize) {
    assert!(rounds > 0, "no rounds");
    // ±[1, 2), two to a float.
    let pair = |i: u32| i.wrapping_mul(0x9e37_79b9) & 0x807f_807f | 0x3f80_3f80;
    let numbers: [u32; TILE] = std::array::from_fn(|i| pair(i as u32 * 0x85eb + 1));
    // SAFETY: the token shows that the CPU has the instructions. The tiles that are loaded are `numbers`; all are
    // set first, and released at the end.
    unsafe {
        asm!(
            "ldtilecfg [{config}]",
            "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
            "tileloadd tmm4, [{numbers} + {line}]",
            "tileloadd tmm5, [{numbers} + {line}]",
            "tileloadd tmm6, [{numbers} + {line}]",
            "tileloadd tmm7, [{numbers} + {line}]",
            "2:",
            multiply!(),
            "dec {k}",
            "jnz 2b",
            "tilerelease",
            config = in(reg) &raw const CONFIG,
            numbers = in(reg) numbers.as_ptr(),
            line = in(reg) 64_usize,
            k = inout(reg) rounds => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}
