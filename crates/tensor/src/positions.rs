//! Tables of sines and cosines that tell positions apart (Vaswani et al. 2017, section 3.5):
//!
//! ```text
//! PE(p, 2i) = sin(p·ωᵢ)    PE(p, 2i + 1) = cos(p·ωᵢ)    ωᵢ = 10000^(−2i/C)
//! ```
//! For any shift k, PE(p + k) is a linear function of PE(p) that does not depend on p: each pair
//! is turned by k·ωᵢ. So a model can learn to look k positions away.
//!
//! Tables are made in f64 and rounded once: at position 100,000 an angle in f32 would be off by
//! 0.004.

use crate::growing::GrowingTable;
use crate::tensor::Tensor;

/// The base of the frequencies in the paper.
pub const BASE: f64 = 10_000.0;

/// The table of positions 0, …, `positions` − 1: (T, C). `width` must be even.
pub fn sinusoidal(positions: usize, width: usize) -> Tensor {
    sinusoidal_table(positions, width).first(positions)
}

/// The same as a table that has its rows when they are asked for.
pub fn sinusoidal_table(most: usize, width: usize) -> GrowingTable {
    assert!(width.is_multiple_of(2), "sines and cosines come in pairs: the width {width} is odd");
    GrowingTable::new(most, width, |p, row| fill(row, p))
}

/// As [`sinusoidal_table`], with all sines in the first half of a row and all cosines in the second.
pub fn sinusoidal_halves_table(most: usize, width: usize) -> GrowingTable {
    assert!(width.is_multiple_of(2), "sines and cosines come in pairs: the width {width} is odd");
    GrowingTable::new(most, width, move |p, row| {
        let (sines, cosines) = row.split_at_mut(row.len() / 2);
        for (i, (sine, cosine)) in sines.iter_mut().zip(cosines).enumerate() {
            [*sine, *cosine] = pair(p, i, width);
        }
    })
}

/// The table of a grid of patches, row by row: (height·width, C), where the first half of the C
/// numbers encodes the row and the second the column. `channels` must be a multiple of 4.
pub fn sinusoidal_grid(height: usize, width: usize, channels: usize) -> Tensor {
    assert!(
        channels.is_multiple_of(4),
        "rows and columns each need sines and cosines: {channels} is not a multiple of 4"
    );
    let mut table = Tensor::unset([height * width, channels]);
    for (i, both) in table.data_mut().chunks_exact_mut(channels.max(1)).enumerate() {
        let (row, column) = both.split_at_mut(channels / 2);
        fill(row, i / width);
        fill(column, i % width);
    }
    table
}

fn fill(row: &mut [f32], position: usize) {
    let width = row.len();
    for (i, both) in row.chunks_exact_mut(2).enumerate() {
        both.copy_from_slice(&pair(position, i, width));
    }
}

/// Sine and cosine of frequency i.
fn pair(position: usize, i: usize, width: usize) -> [f32; 2] {
    let angle = position as f64 * BASE.powf(-2.0 * i as f64 / width as f64);
    [angle.sin() as f32, angle.cos() as f32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let table = sinusoidal(3, 4);
        assert_eq!(&table.data()[..4], &[0.0, 1.0, 0.0, 1.0]);
        let second = [2.0_f64.sin(), 2.0_f64.cos(), 0.02_f64.sin(), 0.02_f64.cos()]; // ω₁ = 1/100
        assert_eq!(&table.data()[8..], &second.map(|x| x as f32));
        let halves = sinusoidal_halves_table(3, 4).first(3);
        let [a, b, c, d] = second.map(|x| x as f32);
        assert_eq!(&halves.data()[8..], &[a, c, b, d]);
    }

    /// PE(p + k) = M(k)·PE(p), with M(k) found from positions 0 and 1 alone and then tried on
    /// others: each pair (s, c) turns into (s·cos kω + c·sin kω, c·cos kω − s·sin kω).
    #[test]
    fn a_shift_is_a_linear_map_that_does_not_depend_on_the_position() {
        let (positions, width) = (600, 32);
        let table = sinusoidal(positions, width);
        let pair = |p: usize, i: usize| {
            let at = p * width + 2 * i;
            (f64::from(table.data()[at]), f64::from(table.data()[at + 1]))
        };
        for k in [1, 7, 100] {
            for i in 0..width / 2 {
                let (sin_k, cos_k) = pair(k, i); // what position 0, the pair (0, 1), is moved to
                for p in [0, 1, 13, 499] {
                    let (s, c) = pair(p, i);
                    let (want_s, want_c) = pair(p + k, i);
                    let moved = (s * cos_k + c * sin_k, c * cos_k - s * sin_k);
                    // Three numbers in ±1, each rounded to f32 by at most 2⁻²⁵.
                    let bound = 4.0 * 2.0_f64.powi(-25);
                    assert!((moved.0 - want_s).abs() < bound && (moved.1 - want_c).abs() < bound);
                }
            }
        }
    }

    #[test]
    fn dot_products_depend_on_the_distance_alone() {
        let (positions, width) = (300, 64);
        let table = sinusoidal(positions, width);
        let dot = |p: usize, q: usize| -> f64 {
            let row = |p: usize| &table.data()[p * width..(p + 1) * width];
            row(p).iter().zip(row(q)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        for distance in [0, 1, 10, 50] {
            for p in [3, 100, 249] {
                // 64 products of numbers rounded by 2⁻²⁵.
                assert!((dot(p, p + distance) - dot(0, distance)).abs() < 64.0 * 6e-8);
            }
        }
    }

    #[test]
    fn a_grid_encodes_rows_and_columns_apart() {
        let (height, width, channels) = (3, 5, 8);
        let grid = sinusoidal_grid(height, width, channels);
        let (rows, columns) = (sinusoidal(height, 4), sinusoidal(width, 4));
        for i in 0..height * width {
            let got = &grid.data()[i * channels..(i + 1) * channels];
            let (row, column) = (i / width, i % width);
            assert_eq!(&got[..4], &rows.data()[row * 4..row * 4 + 4]);
            assert_eq!(&got[4..], &columns.data()[column * 4..column * 4 + 4]);
        }
    }

    #[test]
    fn no_positions_give_an_empty_table() {
        assert_eq!(sinusoidal(0, 8).shape().dims(), [0, 8]);
        assert_eq!(sinusoidal_grid(0, 4, 8).shape().dims(), [0, 8]);
    }

    #[test]
    #[should_panic(expected = "the width 5 is odd")]
    fn an_odd_width_is_refused() {
        let _ = sinusoidal(2, 5);
    }
}
