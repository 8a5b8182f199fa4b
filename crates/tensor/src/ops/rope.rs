//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864): each pair (a, b) of the numbers
//! of a head is turned by an angle φ that grows with the position, so that the product of a query
//! and a key depends on how far apart they stand and not on where.
//!
//! ```text
//! out = (a·cos φ − b·sin φ, b·cos φ + a·sin φ)
//! ```
//! It is linear, and the transpose of a rotation is the rotation back:
//! 1. `(da, db) = (α·cos φ + β·sin φ, β·cos φ − α·sin φ)` for dout = (α, β).
//!
//! Saves a handle to the [`RopeTable`], which holds the cosines and sines (times a factor, for
//! YaRN), and the positions where they are listed.
//!
//! Heads are adjacent in a row. The first `heads` of a row are turned and the rest passed
//! through: all H of a (B, T, H·D) tensor, or the H queries and K keys of a packed
//! (B, T, H·D + K·D + …) one, where they are.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::reference::Array;
use crate::rope_table::{RopeTable, Scaling, frequencies};
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::rope::{self as kernel, Heads, Pairing, Rotation, Turn};

/// Turns the first `heads` heads of each row of `x` (B, T, …·D), whose rows t stand at position
/// `start` + t: `start` is how many positions are in the cache already. The memory of `x` is
/// reused if nobody else holds it.
pub fn rope(x: Var, table: &RopeTable, heads: usize, start: usize) -> Var {
    let [_, length, _] = x.value().dims();
    turn(x, table, heads, Positions::Counted { start, length })
}

/// As [`rope`], with the position of each row given: for a batch of sequences that stand at
/// different places.
pub fn rope_at(x: Var, table: &RopeTable, heads: usize, positions: &[u32]) -> Var {
    turn(x, table, heads, Positions::Listed(positions.to_vec()))
}

enum Positions {
    Counted { start: usize, length: usize },
    Listed(Vec<u32>),
}

impl Positions {
    fn kernel(&self) -> kernel::Positions<'_> {
        match self {
            Positions::Counted { start, length } => {
                kernel::Positions::Counted { start: *start, length: *length }
            }
            Positions::Listed(list) => kernel::Positions::Listed(list),
        }
    }

    /// One more than the largest.
    fn end(&self) -> usize {
        match self {
            Positions::Counted { start, length } => start + length,
            Positions::Listed(list) => list.iter().max().map_or(0, |&p| p as usize + 1),
        }
    }
}

fn turn(x: Var, table: &RopeTable, heads: usize, positions: Positions) -> Var {
    let shape = x.shape();
    let width = table.head_width();
    assert!(
        heads * width <= shape.width(),
        "{heads} heads of width {width} do not fit an input of shape {shape}"
    );
    if let Positions::Listed(list) = &positions {
        let listed = list.len();
        assert_eq!(listed, shape.rows(), "positions of shape ({listed}) for rows of shape {shape}");
    }
    assert!(
        positions.end() <= table.positions() || shape.is_empty(),
        "positions up to {} in a table of {}",
        positions.end(),
        table.positions()
    );
    let (mut out, x) = x.into_parts();
    rotate(&mut out, table, heads, &positions, Turn::Forward);
    Var::from_op(out, &[&x], || RopeBackward { table: table.clone(), heads, positions })
}

fn rotate(x: &mut Tensor, table: &RopeTable, heads: usize, positions: &Positions, turn: Turn) {
    let shape = x.shape();
    if shape.is_empty() {
        return;
    }
    let (cos, sin) = (table.cos(positions.end()), table.sin(positions.end()));
    let rotation = Rotation {
        cos: cos.data(),
        sin: sin.data(),
        rotated: table.rotated(),
        pairing: table.pairing(),
        turn,
    };
    let heads = Heads {
        rows: shape.rows(),
        stride: shape.width(),
        offset: 0,
        heads,
        width: table.head_width(),
    };
    kernel::rotate_in_place(rotation, positions.kernel(), heads, x.data_mut());
}

struct RopeBackward {
    table: RopeTable,
    heads: usize,
    positions: Positions,
}

impl Backward for RopeBackward {
    fn backward(self: Box<Self>, mut dout: Tensor, gradients: &mut Gradients<'_>) {
        rotate(&mut dout, &self.table, self.heads, &self.positions, Turn::Backward); // 1
        gradients.add(0, dout);
    }
}

/// What a case turns and how.
#[derive(Clone)]
struct Setup {
    shape: [usize; 3],
    heads: usize,
    width: usize,
    rotated: usize,
    pairing: Pairing,
    scaling: Scaling,
    start: usize,
    listed: Option<Vec<u32>>,
}

impl Setup {
    fn position(&self, row: usize) -> usize {
        match &self.listed {
            Some(list) => list[row] as usize,
            None => self.start + row % self.shape[1],
        }
    }

    /// (rows, R/2), exact.
    fn angles(&self, f: fn(f64) -> f64) -> Array {
        let (frequencies, factor) = frequencies(self.rotated, BASE, self.scaling);
        let pairs = frequencies.len();
        Array::build([self.shape[0] * self.shape[1], pairs], |i| {
            f(self.position(i / pairs) as f64 * frequencies[i % pairs]) * factor
        })
    }

    fn reference(&self, x: &Array) -> Array {
        let (cos, sin) = (self.angles(f64::cos), self.angles(f64::sin));
        let row_width = x.shape.width();
        let half = self.rotated / 2;
        let mut out = x.clone();
        for row in 0..x.shape.rows() {
            for (head, i) in (0..self.heads).flat_map(|h| (0..half).map(move |i| (h, i))) {
                let (first, second) = match self.pairing {
                    Pairing::Halves => (i, i + half),
                    Pairing::Neighbours => (2 * i, 2 * i + 1),
                };
                let at = row * row_width + head * self.width;
                let (a, b) = (x.data[at + first], x.data[at + second]);
                let (c, s) = (cos.at(&[row, i]), sin.at(&[row, i]));
                out.data[at + first] = a * c - b * s;
                out.data[at + second] = b * c + a * s;
            }
        }
        out
    }
}

const BASE: f64 = 100.0; // low, so that all pairs turn visibly within a few positions
const POSITIONS: usize = 64;

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 5e-7,
        backward: 5e-7,
        reason: "two products and a sum, with cosines rounded once",
    };
    let case = |name, setup: Setup| {
        let Setup { shape, heads, width, rotated, pairing, scaling, start, .. } = setup.clone();
        let table = RopeTable::new(width, rotated, BASE, scaling, pairing, POSITIONS);
        let (own, own_too) = (setup.clone(), setup.clone());
        let forward = move |v: &[Var]| match &own.listed {
            Some(list) => rope_at(v[0].clone(), &table, heads, list),
            None => rope(v[0].clone(), &table, heads, start),
        };
        Case::new("rope", name, tolerance, forward, move |a| own_too.reference(&a[0]))
            .normal("x", Shape::from(shape))
            .extra("cos", setup.angles(f64::cos))
            .extra("sin", setup.angles(f64::sin))
            .extra("heads", Array::scalar(heads as f64))
            .extra("width", Array::scalar(width as f64))
            .torch(match pairing {
                Pairing::Halves => TORCH_HALVES,
                Pairing::Neighbours => TORCH_NEIGHBOURS,
            })
    };
    let plain = Setup {
        shape: [2, 5, 3 * 8],
        heads: 3,
        width: 8,
        rotated: 8,
        pairing: Pairing::Halves,
        scaling: Scaling::None,
        start: 0,
        listed: None,
    };
    let yarn = Scaling::Yarn {
        factor: 4.0,
        trained: 16,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention: None,
        truncate: true,
    };
    vec![
        case("halves", plain.clone()),
        case("neighbours", Setup { pairing: Pairing::Neighbours, ..plain.clone() }),
        case("part_of_the_head", Setup { rotated: 4, start: 7, ..plain.clone() }),
        // H = 2, K = 1: values stay.
        case("packed", Setup { shape: [2, 3, 4 * 10], width: 10, rotated: 10, ..plain.clone() }),
        case(
            "packed_neighbours_cached",
            Setup {
                shape: [2, 3, 4 * 34],
                width: 34,
                rotated: 34,
                pairing: Pairing::Neighbours,
                start: 20,
                ..plain.clone()
            },
        ),
        case("yarn", Setup { scaling: yarn, ..plain.clone() }),
        case("listed", Setup { shape: [3, 1, 24], listed: Some(vec![9, 0, 63]), ..plain.clone() }),
        case("many", Setup { shape: [2, 60, 5 * 64], heads: 5, width: 64, rotated: 64, ..plain }),
    ]
}

const TORCH_HALVES: &str = "
n, d, r = int(heads), int(width), 2 * cos.shape[1]
front = x[..., :n * d].reshape(-1, n, d)
a, b = front[..., :r // 2], front[..., r // 2:r]
c, s = cos[:, None], sin[:, None]
front = torch.cat((a * c - b * s, b * c + a * s, front[..., r:]), -1)
out = torch.cat((front.reshape(*x.shape[:2], n * d), x[..., n * d:]), -1)
";
const TORCH_NEIGHBOURS: &str = "
n, d, r = int(heads), int(width), 2 * cos.shape[1]
front = x[..., :n * d].reshape(-1, n, d)
pairs = torch.view_as_complex(front[..., :r].reshape(-1, n, r // 2, 2))
turned = torch.view_as_real(pairs * torch.complex(cos, sin)[:, None]).reshape(-1, n, r)
front = torch.cat((turned, front[..., r:]), -1)
out = torch.cat((front.reshape(*x.shape[:2], n * d), x[..., n * d:]), -1)
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    /// A query and a key turned to positions m and n, and their product.
    fn score(q: &Tensor, k: &Tensor, table: &RopeTable, m: usize, n: usize) -> f64 {
        let at = |x: &Tensor, p| rope(Var::constant(x.clone()), table, 1, p).into_value();
        let (q, k) = (at(q, m), at(k, n));
        q.data().iter().zip(k.data()).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    }

    #[test]
    fn scores_depend_on_the_distance_alone_and_norms_are_kept() {
        let width = 64;
        let q = Rng::new(1).normal([1, 1, width], 1.0);
        let k = Rng::new(2).normal([1, 1, width], 1.0);
        let scaled = Scaling::Llama3 { factor: 8.0, trained: 256, low: 1.0, high: 4.0 };
        for (pairing, scaling) in
            [(Pairing::Halves, Scaling::None), (Pairing::Neighbours, scaled)]
        {
            let table = RopeTable::new(width, width, 1e4, scaling, pairing, 2000);
            // 64 products of size 1 with factors rounded to f32 four times over.
            let bound = 64.0 * 4.0 * 6e-8;
            for distance in [0, 1, 17, 900] {
                let want = score(&q, &k, &table, distance, 0);
                for n in [1, 50, 1000] {
                    let got = score(&q, &k, &table, n + distance, n);
                    assert!((got - want).abs() < bound, "{n} + {distance}: {got} ≠ {want}");
                }
            }
            assert!((score(&q, &k, &table, 3, 0) - score(&q, &k, &table, 0, 3)).abs() > 0.01);
            let own = score(&q, &q, &table, 0, 0);
            for p in [1, 100, 1999] {
                assert!((score(&q, &q, &table, p, p) - own).abs() < bound);
            }
        }
    }

    #[test]
    fn a_cached_position_is_turned_as_in_the_whole_sequence() {
        let table = RopeTable::new(8, 8, 1e4, Scaling::None, Pairing::Halves, 10);
        let x = Rng::new(3).normal([1, 10, 16], 1.0);
        let whole = rope(Var::constant(x.clone()), &table, 2, 0).into_value();
        for p in 0..10 {
            let one = Tensor::new([1, 1, 16], &x.data()[p * 16..(p + 1) * 16]);
            let turned = rope(Var::constant(one), &table, 2, p).into_value();
            assert_eq!(turned.data(), &whole.data()[p * 16..(p + 1) * 16]);
        }
    }

    #[test]
    fn an_unshared_input_lends_its_memory_and_a_shared_one_stays() {
        let table = RopeTable::new(2, 2, 1e4, Scaling::None, Pairing::Halves, 4);
        let x = Var::constant(Tensor::new([1, 2, 2], &[1.0, 0.0, 1.0, 0.0]));
        let shared = rope(x.clone(), &table, 1, 0);
        assert_eq!(x.value().data(), &[1.0, 0.0, 1.0, 0.0]);
        let address = x.value().data().as_ptr();
        let own = rope(x, &table, 1, 0);
        assert_eq!(own.value().data().as_ptr(), address);
        assert_eq!(own.value().data(), shared.value().data());
    }

    #[test]
    fn empty_and_not_finite_inputs_are_defined() {
        let table = RopeTable::new(2, 2, 1e4, Scaling::None, Pairing::Halves, 4);
        for shape in [[0, 3, 2], [3, 0, 2]] {
            let x = Var::leaf(Tensor::zeros(shape));
            rope(x.clone(), &table, 1, 0).sum().backward();
            assert_eq!(x.gradient().unwrap().shape().dims(), shape);
        }
        let odd = Tensor::new([1, 2, 2], &[f32::NAN, 1.0, 1.0, 0.0]);
        let out = rope(Var::constant(odd), &table, 1, 0).into_value();
        assert!(out.data()[0].is_nan() && out.data()[2..].iter().all(|x| x.is_finite()));
    }

    #[test]
    #[should_panic(expected = "2 heads of width 8 do not fit an input of shape (1, 1, 12)")]
    fn shapes_must_fit() {
        let table = RopeTable::new(8, 8, 1e4, Scaling::None, Pairing::Halves, 4);
        let _ = rope(Var::constant(Tensor::zeros([1, 1, 12])), &table, 2, 0);
    }

    #[test]
    #[should_panic(expected = "positions up to 6 in a table of 4")]
    fn positions_must_be_in_the_table() {
        let table = RopeTable::new(8, 8, 1e4, Scaling::None, Pairing::Halves, 4);
        let _ = rope(Var::constant(Tensor::zeros([1, 3, 8])), &table, 1, 3);
    }

    #[test]
    #[should_panic(expected = "positions of shape (2) for rows of shape (1, 3, 8)")]
    fn there_is_a_position_for_each_row() {
        let table = RopeTable::new(8, 8, 1e4, Scaling::None, Pairing::Halves, 4);
        let _ = rope_at(Var::constant(Tensor::zeros([1, 3, 8])), &table, 1, &[0, 1]);
    }
}
