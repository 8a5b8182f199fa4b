//! The loop of a whole AVX2 tile, 6 × 2 vectors, in assembly.
//!
//! The plain algorithm is that of [`super::micro`]: at each step, load two vectors of B, broadcast
//! six numbers of A, one after the other, and multiply-add each with both vectors:
//!
//! ```text
//! sum[i][0] += a[i] · b[0]        sum[i][1] += a[i] · b[1]
//! ```
//!
//! That is 20 instructions for 12 multiply-adds, and twelve sums, two vectors of B and two
//! broadcasts are all sixteen registers. A compiler writes the same, but cannot know that nothing
//! else matters: depending on what surrounds the loop, it loads for later steps, runs out of
//! registers and keeps a sum in memory, at half the speed.
//!
//! The four loops differ in where a step finds its numbers: A in rows, in columns or packed by
//! steps, B in rows or in a packed panel. With a panel, rounds of 8 steps also fetch: a row from the
//! list, as long as there are some, and with A in rows a line of the rows that come next (and, past
//! their end, what follows them, which is as well).

use super::micro::{Operands, ROUND};
use std::arch::asm;
use std::arch::x86_64::__m256;

/// The sums of a tile, row by row.
pub(super) type Sum = [__m256; 12];

/// One number of A, at the address `$a`, times both vectors of B.
macro_rules! row {
    ($i:literal, $broadcast:literal, $a:expr) => {
        concat!(
            "vbroadcastss {",
            $broadcast,
            "}, dword ptr [",
            $a,
            "]\n",
            "vfmadd231ps {s",
            $i,
            "0}, {",
            $broadcast,
            "}, {b0}\n",
            "vfmadd231ps {s",
            $i,
            "1}, {",
            $broadcast,
            "}, {b1}\n",
        )
    };
}

/// A step with B at the address `$b` and the six numbers of A at the others.
macro_rules! step {
    ($b:expr, $a0:expr, $a1:expr, $a2:expr, $a3:expr, $a4:expr, $a5:expr) => {
        concat!(
            "vmovups {b0}, [",
            $b,
            "]\n",
            "vmovups {b1}, [",
            $b,
            " + 32]\n",
            row!("0", "x", $a0),
            row!("1", "y", $a1),
            row!("2", "x", $a2),
            row!("3", "y", $a3),
            row!("4", "x", $a4),
            row!("5", "y", $a5),
        )
    };
}

/// Step `$t` of A in rows: every third row has a pointer, and the others are a stride or two away, which
/// costs nothing in an address.
macro_rules! in_rows {
    ($t:literal, $b:expr) => {
        step!(
            $b,
            concat!("{a} + 4*", $t),
            concat!("{a} + {lane} + 4*", $t),
            concat!("{a} + 2*{lane} + 4*", $t),
            concat!("{a3} + 4*", $t),
            concat!("{a3} + {lane} + 4*", $t),
            concat!("{a3} + 2*{lane} + 4*", $t)
        )
    };
}

/// A step whose six numbers of A are next to each other from `$a` on.
macro_rules! in_a_piece {
    ($a:expr, $b:expr) => {
        step!(
            $b,
            $a,
            concat!($a, " + 4"),
            concat!($a, " + 8"),
            concat!($a, " + 12"),
            concat!($a, " + 16"),
            concat!($a, " + 20")
        )
    };
}

/// The eight steps of a round with A in rows and B in a panel, and on to the next.
macro_rules! rows_and_panel {
    () => {
        concat!(
            in_rows!("0", "{b}"),
            in_rows!("1", "{b} + 64*1"),
            in_rows!("2", "{b} + 64*2"),
            in_rows!("3", "{b} + 64*3"),
            in_rows!("4", "{b} + 64*4"),
            in_rows!("5", "{b} + 64*5"),
            in_rows!("6", "{b} + 64*6"),
            in_rows!("7", "{b} + 64*7"),
            "add {a}, 4*8\n",
            "add {a3}, 4*8\n",
            "add {b}, 64*8\n",
        )
    };
}

/// The same with A by steps.
macro_rules! steps_and_panel {
    () => {
        concat!(
            in_a_piece!("{a}", "{b}"),
            in_a_piece!("{a} + 24*1", "{b} + 64*1"),
            in_a_piece!("{a} + 24*2", "{b} + 64*2"),
            in_a_piece!("{a} + 24*3", "{b} + 64*3"),
            in_a_piece!("{a} + 24*4", "{b} + 64*4"),
            in_a_piece!("{a} + 24*5", "{b} + 64*5"),
            in_a_piece!("{a} + 24*6", "{b} + 64*6"),
            in_a_piece!("{a} + 24*7", "{b} + 64*7"),
            "add {a}, 24*8\n",
            "add {b}, 64*8\n",
        )
    };
}

/// Fetches a row from the list, from which `count` are to come.
macro_rules! fetch_row {
    () => {
        "mov {row}, [{fetches} + 8*{count} - 8]\nprefetcht0 [{row} + {further}]\n"
    };
}

/// Fetches a line of A.
macro_rules! fetch_line {
    () => {
        "prefetcht0 [{ahead}]\nadd {ahead}, 64\n"
    };
}

/// Assembly with the registers that all loops use.
macro_rules! with_sums {
    ($sum:ident, [$($line:expr),+ $(,)?], $($operands:tt)+) => {{
        let [s00, s01, s10, s11, s20, s21, s30, s31, s40, s41, s50, s51] = $sum;
        asm!(
            $($line,)+
            $($operands)+,
            s00 = inout(ymm_reg) *s00, s01 = inout(ymm_reg) *s01,
            s10 = inout(ymm_reg) *s10, s11 = inout(ymm_reg) *s11,
            s20 = inout(ymm_reg) *s20, s21 = inout(ymm_reg) *s21,
            s30 = inout(ymm_reg) *s30, s31 = inout(ymm_reg) *s31,
            s40 = inout(ymm_reg) *s40, s41 = inout(ymm_reg) *s41,
            s50 = inout(ymm_reg) *s50, s51 = inout(ymm_reg) *s51,
            b0 = out(ymm_reg) _, b1 = out(ymm_reg) _, x = out(ymm_reg) _, y = out(ymm_reg) _,
            options(readonly, nostack),
        );
    }};
}

/// All rounds with B in a panel, `$round` being one of them: a loop that also fetches rows from the
/// list, and one for the rounds that are left. `$more` are registers beside those of both.
macro_rules! over_a_panel {
    ($sum:ident, $operands:ident, $round:expr $(, $($more:tt)+)?) => {
        debug_assert!($operands.fetches_len <= $operands.depth / ROUND);
        // SAFETY: reads what the caller of the function vouches for; a prefetch may be of anything.
        unsafe {
            with_sums!(
                $sum,
                [
                    "test {count}, {count}",
                    "jz 3f",
                    "2:",
                    fetch_row!(),
                    $round,
                    "dec {count}",
                    "jnz 2b",
                    "3:",
                    "test {rest}, {rest}",
                    "jz 5f",
                    "4:",
                    $round,
                    "dec {rest}",
                    "jnz 4b",
                    "5:",
                ],
                $($($more)+,)?
                count = inout(reg) $operands.fetches_len => _,
                rest = inout(reg) $operands.depth / ROUND - $operands.fetches_len => _,
                a = inout(reg) $operands.a => _,
                b = inout(reg) $operands.b => _,
                fetches = in(reg) $operands.fetches,
                further = in(reg) 4 * $operands.further,
                row = out(reg) _
            );
        }
    };
}

/// All rounds with B in rows, `$round` being one of them: nothing is fetched.
macro_rules! over_rows {
    ($sum:ident, $operands:ident, [$($round:expr),+ $(,)?], $($more:tt)+) => {
        if $operands.depth < ROUND {
            return;
        }
        // SAFETY: reads what the caller of the function vouches for.
        unsafe {
            with_sums!(
                $sum,
                ["2:", $($round,)+ "dec {count}", "jnz 2b"],
                $($more)+,
                count = inout(reg) $operands.depth / ROUND => _,
                a = inout(reg) $operands.a => _,
                b = inout(reg) $operands.b => _,
                b3 = inout(reg) $operands.b.wrapping_add(3 * $operands.b_step) => _,
                b_step = in(reg) 4 * $operands.b_step
            );
        }
    };
}

/// A in rows, B in a panel. In each of the first rounds, a row from the list is fetched, and in all
/// of them a line of the rows of A that come next.
///
/// # Safety
/// The list has its length, and no more than there are rounds; for each step `t` of the rounds and
/// row `i` < 6, `a + i · a_lane + t` and 16 floats from `b + 16 · t` on are valid for reading.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn rows_and_panel(sum: &mut Sum, operands: &Operands) {
    over_a_panel!(
        sum,
        operands,
        concat!(fetch_line!(), rows_and_panel!()),
        a3 = inout(reg) operands.a.wrapping_add(3 * operands.a_lane) => _,
        lane = in(reg) 4 * operands.a_lane,
        ahead = inout(reg) operands.ahead => _
    );
}

/// A packed by steps, 6 floats apart, B in a panel. In each of the first rounds, a row from the list
/// is fetched.
///
/// # Safety
/// The list has its length, and no more than there are rounds; for each step `t` of the rounds, 6
/// floats from `a + 6 · t` on and 16 floats from `b + 16 · t` on are valid for reading.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn steps_and_panel(sum: &mut Sum, operands: &Operands) {
    over_a_panel!(sum, operands, steps_and_panel!());
}

/// A in rows, B in rows.
///
/// # Safety
/// As for [`rows_and_panel`], with 16 floats of B from `b + b_step · t` on, and without a list.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn rows_and_rows(sum: &mut Sum, operands: &Operands) {
    over_rows!(
        sum,
        operands,
        [
            in_rows!("0", "{b}"),
            in_rows!("1", "{b} + {b_step}"),
            in_rows!("2", "{b} + 2*{b_step}"),
            in_rows!("3", "{b3}"),
            "lea {b}, [{b} + 4*{b_step}]",
            in_rows!("4", "{b}"),
            in_rows!("5", "{b} + {b_step}"),
            in_rows!("6", "{b} + 2*{b_step}"),
            in_rows!("7", "{b3} + 4*{b_step}"),
            "lea {b}, [{b} + 4*{b_step}]",
            "lea {b3}, [{b3} + 8*{b_step}]",
            "add {a}, 4*8",
            "add {a3}, 4*8",
        ],
        a3 = inout(reg) operands.a.wrapping_add(3 * operands.a_lane) => _,
        lane = in(reg) 4 * operands.a_lane
    );
}

/// A in columns, B in rows.
///
/// # Safety
/// For each step `t` of the rounds, 6 floats from `a + a_step · t` on and 16 floats from
/// `b + b_step · t` on are valid for reading.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn columns_and_rows(sum: &mut Sum, operands: &Operands) {
    over_rows!(
        sum,
        operands,
        [
            in_a_piece!("{a}", "{b}"),
            in_a_piece!("{a} + {a_step}", "{b} + {b_step}"),
            in_a_piece!("{a} + 2*{a_step}", "{b} + 2*{b_step}"),
            in_a_piece!("{a3}", "{b3}"),
            "lea {a}, [{a} + 4*{a_step}]",
            "lea {b}, [{b} + 4*{b_step}]",
            in_a_piece!("{a}", "{b}"),
            in_a_piece!("{a} + {a_step}", "{b} + {b_step}"),
            in_a_piece!("{a} + 2*{a_step}", "{b} + 2*{b_step}"),
            in_a_piece!("{a3} + 4*{a_step}", "{b3} + 4*{b_step}"),
            "lea {a}, [{a} + 4*{a_step}]",
            "lea {b}, [{b} + 4*{b_step}]",
            "lea {a3}, [{a3} + 8*{a_step}]",
            "lea {b3}, [{b3} + 8*{b_step}]",
        ],
        a3 = inout(reg) operands.a.wrapping_add(3 * operands.a_step) => _,
        a_step = in(reg) 4 * operands.a_step
    );
}
