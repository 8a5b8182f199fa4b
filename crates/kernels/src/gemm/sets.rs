//! How each instruction set tiles a product: the size of its tile, and what pays on the processors
//! that have it.

#[cfg(target_arch = "x86_64")]
use super::micro::{CACHE_LINE, ROUND};
use super::micro::{Layout, Operands, Tile, tile_of};
#[cfg(target_arch = "x86_64")]
use super::rounds_avx2;
use crate::Write;
use crate::simd::{Portable, Simd};

/// Implements [`Tile::tiles`] as a choice among the compiled sizes: every number of rows in the
/// last list, in tiles of so many vectors and, at the end of a row, of each number in the list
/// before it.
macro_rules! tiles {
    ($set:ty, ($($feature:literal)?), $whole:literal, $parts:tt, $rows:tt) => {
        unsafe fn tiles(
            self,
            size: (usize, usize),
            operands: &[Operands],
            out: *mut f32,
            out_stride: usize,
            write: Write,
        ) {
            // A function of its own, so that the sizes are compiled once for each set.
            $(#[target_feature(enable = $feature)])?
            unsafe fn choose(
                s: $set,
                (rows, columns): (usize, usize),
                operands: &[Operands],
                out: *mut f32,
                out_stride: usize,
                write: Write,
            ) {
                const { assert!($whole == <$set as Tile>::VECTORS, "not a whole tile") };
                const { assert!(Layout::ROWS_AND_PANEL == 3 && Layout::STEPS_AND_PANEL == 10) };
                let layout = Layout::of::<$set>(rows, &operands[0]);
                // SAFETY: layout and rows are the true ones, of all operands alike. Tile q starts with
                // column q · COLUMNS of B and of the result, of which at least one is left; it has as
                // many vectors as its columns need. What the caller vouches for holds for each of its
                // tiles.
                unsafe {
                    tiles!(@ choose $whole $parts $rows rows layout ($set)
                        (s, columns, operands, out, out_stride, write))
                }
            }
            // SAFETY: the contract is the same, and the token shows that the CPU has the set.
            unsafe { choose(self, size, operands, out, out_stride, write) }
        }
    };
    // Layouts 0 and 1 in all sizes, the others for whole tiles.
    (@ choose $whole:literal $parts:tt $sizes:tt $rows:ident $layout:ident ($set:ty)
        $arguments:tt) => {
        match $layout {
            0 => tiles!(@ sizes $whole $parts $sizes $rows 0 ($set) $arguments),
            1 => tiles!(@ sizes $whole $parts $sizes $rows 1 ($set) $arguments),
            2 => tiles!(@ row { <$set as Tile>::ROWS } $whole $parts 2 ($set) $arguments),
            3 => tiles!(@ row { <$set as Tile>::ROWS } $whole $parts 3 ($set) $arguments),
            4 => tiles!(@ row { <$set as Tile>::ROWS } $whole $parts 4 ($set) $arguments),
            5 => tiles!(@ row { <$set as Tile>::ROWS } $whole $parts 5 ($set) $arguments),
            // PANEL + STEPS
            10 => tiles!(@ row { <$set as Tile>::ROWS } $whole $parts 10 ($set) $arguments),
            _ => unreachable!("a tile of layout {}", $layout),
        }
    };
    (@ sizes $whole:literal $parts:tt ($($size:literal)+) $rows:ident $layout:literal ($set:ty)
        $arguments:tt) => {
        match $rows {
            $($size => tiles!(@ row $size $whole $parts $layout ($set) $arguments),)+
            _ => unreachable!("a tile of {} rows", $rows),
        }
    };
    (@ row $rows:tt $whole:literal ($($part:literal)*) $layout:literal ($set:ty)
        ($s:ident, $columns:ident, $operands:ident, $out:ident, $out_stride:ident, $write:ident)) =>
    {{
        let mut panel = 0;
        let mut left = $columns;
        // As long as all vectors of a tile are needed.
        while left > ($whole - 1) * <$set as Simd>::LANES {
            let columns = left.min(<$set as Tile>::COLUMNS);
            for (n, operands) in $operands.iter().enumerate() {
                let operands = operands.of_tile::<$set>(panel);
                let out = $out.add(n * $rows * $out_stride + panel * <$set as Tile>::COLUMNS);
                tile_of::<_, $rows, $whole, $layout>(
                    $s, columns, operands, out, $out_stride, $write,
                );
            }
            panel += 1;
            left -= columns;
        }
        match left.div_ceil(<$set as Simd>::LANES) {
            $($part => for (n, operands) in $operands.iter().enumerate() {
                let operands = operands.of_tile::<$set>(panel);
                let out = $out.add(n * $rows * $out_stride + panel * <$set as Tile>::COLUMNS);
                tile_of::<_, $rows, $part, $layout>(
                    $s, left, operands, out, $out_stride, $write,
                );
            })*
            0 => {}
            vectors => unreachable!("a tile of {vectors} vectors"),
        }
    }};
}

impl Tile for Portable {
    // 4 × 8 sums are eight of the sixteen 4-lane registers of the x86-64 baseline.
    const ROWS: usize = 4;
    const VECTORS: usize = 1;
    tiles!(Portable, (), 1, (), (1 2 3 4));
}

#[cfg(target_arch = "x86_64")]
impl Tile for crate::simd::Avx2 {
    // 6 × 2 sums, 2 vectors of B and 2 broadcasts are the 16 registers.
    const ROWS: usize = 6;
    const VECTORS: usize = 2;
    // On Zen 3, where a tile reads one line per step: 64 and more are 3-20 % slower than packed.
    const NEAR: usize = 32;
    const GROUP: usize = 128; // most widths are multiples of it; a block of K is 384 KiB
    const TOGETHER: usize = 2;
    const PACKS_STEPS: bool = true;
    const FETCHES_FOR_EPILOGUE: bool = true;
    const FETCHES_ROWS: usize = 1; // a group is eight tiles, and A has six rows to fetch

    #[inline(always)]
    unsafe fn rounds<const R: usize, const W: usize, const LAYOUT: u8>(
        self,
        sum: &mut [[Self::V; W]; R],
        operands: &Operands,
    ) -> bool {
        const { assert!(ROUND == 8 && Self::LANES == 8 && CACHE_LINE == 16) };
        if R != Self::ROWS || W != Self::VECTORS {
            return false;
        }
        let Ok(sum) = sum.as_flattened_mut().try_into() else { return false };
        // SAFETY: the token shows that the CPU has the set, and the caller vouches for the rest.
        unsafe {
            match LAYOUT & !(Layout::NEAR | Layout::SCALED) {
                Layout::A_IN_COLUMNS => rounds_avx2::columns_and_rows(sum, operands),
                Layout::A_IN_ROWS => rounds_avx2::rows_and_rows(sum, operands),
                Layout::ROWS_AND_PANEL => rounds_avx2::rows_and_panel(sum, operands),
                Layout::STEPS_AND_PANEL => rounds_avx2::steps_and_panel(sum, operands),
                _ => return false,
            }
        }
        true
    }

    tiles!(crate::simd::Avx2, ("avx2,fma,f16c"), 2, (1), (1 2 3 4 5 6));
}

#[cfg(target_arch = "x86_64")]
impl Tile for crate::simd::Avx512 {
    // 6 × 4 sums, 4 vectors of B and 1 broadcast are 29 of 32 registers. 14 × 2 would use 31, but
    // needs 16 loads for 28 multiply-adds instead of 10 for 24: the load ports then limit it.
    // Widths of models are multiples of 64.
    const ROWS: usize = 6;
    const VECTORS: usize = 4;
    const GROUP: usize = 192; // servers with this set have 1 MiB or more
    const PACKS_ON_THE_WAY: bool = true; // a row of a panel is 4 lines
    tiles!(crate::simd::Avx512, ("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"),
        4, (1 2 3), (1 2 3 4 5 6));
}
