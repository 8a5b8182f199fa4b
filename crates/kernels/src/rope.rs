//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864): pairs of a head's dimensions are
//! turned by an angle that grows with the position.
//!
//! ```text
//! (a, b) → (a·cos − b·sin, b·cos + a·sin)      backward: the same with −sin
//! ```
//! Which dimensions make a pair is a convention of the model ([`Pairing`]); the tables of cos and
//! sin are (positions, R/2), R being the number of dimensions that are rotated. The heads lie
//! anywhere in strided rows ([`Heads`]), so that queries and keys are rotated where the projection
//! wrote them. The dimensions of a head from R on are passed through.

use crate::simd::{Simd, Span};
use crate::threads::{SharedMut, for_each, rows_per_chunk};
use crate::{Write, dispatch, each_span, scratch};

/// Which dimensions are turned together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// i and i + R/2, as in Llama and GPT-NeoX.
    Halves,
    /// 2i and 2i + 1, as in GPT-J and the paper.
    Neighbours,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// As the position says: the forward pass.
    Forward,
    /// Back again: the backward pass.
    Backward,
}

/// Where heads lie: head h of row r starts at `r · stride + offset + h · width`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// B·T
    pub rows: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Where in a row the first head starts.
    pub offset: usize,
    /// H, or K.
    pub heads: usize,
    /// D
    pub width: usize,
}

impl Heads {
    /// Panics unless all heads lie inside `len` elements and rows do not overlap.
    #[track_caller]
    fn check(&self, len: usize) {
        let used = self.offset + self.heads * self.width;
        let needed = if self.rows == 0 { 0 } else { (self.rows - 1) * self.stride + used };
        assert!(
            needed <= len && (self.rows <= 1 || used <= self.stride),
            "{self:?} needs {needed} elements and a stride of {used}; there are {len}"
        );
    }
}

/// The angles: row p of the tables belongs to position p.
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a> {
    /// cos of each position's angles, (positions, R/2).
    pub cos: &'a [f32],
    /// sin of the same.
    pub sin: &'a [f32],
    /// R: how many dimensions of each head are rotated; even, at most D.
    pub rotated: usize,
    /// Which of them belong together.
    pub pairing: Pairing,
    /// Forward, or back.
    pub turn: Turn,
}

/// The position of each row.
#[derive(Clone, Copy, Debug)]
pub enum Positions<'a> {
    /// Row r is at `start + r % length`: sequences of one length, from `start` on.
    Counted {
        /// Of the first row of each sequence.
        start: usize,
        /// T
        length: usize,
    },
    /// One per row.
    Listed(&'a [u32]),
}

impl Positions<'_> {
    fn of(&self, row: usize) -> usize {
        match self {
            Positions::Counted { start, length } => start + row % length,
            Positions::Listed(positions) => positions[row] as usize,
        }
    }
}

/// Rotates the heads in `x`.
pub fn rotate_in_place(
    rotation: Rotation<'_>,
    positions: Positions<'_>,
    heads: Heads,
    x: &mut [f32],
) {
    heads.check(x.len());
    check(&rotation, &positions, &heads);
    let shared = SharedMut::new(x);
    for_rows(heads, |row| {
        let start = row * heads.stride + heads.offset;
        // SAFETY: rows do not overlap (`check`), and each is visited once.
        let x = unsafe { shared.range(start..start + heads.heads * heads.width) };
        with_angles(&rotation, positions.of(row), |cos, sin| {
            rotate_row_in_place(rotation.pairing, rotation.turn, cos, sin, heads.width, x);
        });
    });
}

/// Rotates the heads of `x` into `out` (or adds them to it), which may lie differently.
pub fn rotate(
    rotation: Rotation<'_>,
    positions: Positions<'_>,
    (x, from): (&[f32], Heads),
    (out, to): (&mut [f32], Heads),
    write: Write,
) {
    from.check(x.len());
    to.check(out.len());
    assert!(
        (from.rows, from.heads, from.width) == (to.rows, to.heads, to.width),
        "rotating {from:?} into {to:?}"
    );
    check(&rotation, &positions, &from);
    let shared = SharedMut::new(out);
    for_rows(from, |row| {
        let len = from.heads * from.width;
        let x = &x[row * from.stride + from.offset..][..len];
        let start = row * to.stride + to.offset;
        // SAFETY: rows do not overlap (`check`), and each is visited once.
        let out = unsafe { shared.range(start..start + len) };
        with_angles(&rotation, positions.of(row), |cos, sin| {
            rotate_row(rotation.pairing, rotation.turn, cos, sin, from.width, x, out, write);
        });
    });
}

#[track_caller]
fn check(rotation: &Rotation<'_>, positions: &Positions<'_>, heads: &Heads) {
    let Rotation { cos, sin, rotated, .. } = *rotation;
    assert!(
        rotated % 2 == 0 && rotated <= heads.width,
        "{rotated} rotated dimensions: expected an even number up to the head width {}",
        heads.width
    );
    assert_eq!(cos.len(), sin.len(), "the tables of cos and sin differ in length");
    let (listed, most) = match positions {
        Positions::Counted { start, length } => {
            assert!(*length > 0 || heads.rows == 0, "sequences of length 0 have no rows");
            (heads.rows, start + (*length).min(heads.rows))
        }
        Positions::Listed(list) => (list.len(), list.iter().max().map_or(0, |&p| p as usize + 1)),
    };
    assert_eq!(listed, heads.rows, "{listed} positions for {} rows", heads.rows);
    assert!(
        most * (rotated / 2) <= cos.len(),
        "positions up to {most} need tables of {most}×{}, there are {} elements",
        rotated / 2,
        cos.len()
    );
}

/// The row of the tables, (R/2) as it is for halves; for neighbours spread out to (R), each cos
/// twice and each sin as −sin, sin: done once for all heads of a row.
fn with_angles(rotation: &Rotation<'_>, position: usize, f: impl FnOnce(&[f32], &[f32])) {
    let half = rotation.rotated / 2;
    let part = position * half..(position + 1) * half;
    let (cos, sin) = (&rotation.cos[part.clone()], &rotation.sin[part]);
    match rotation.pairing {
        Pairing::Halves => f(cos, sin),
        Pairing::Neighbours => scratch::with(4 * half, |spread| {
            let (cosines, sines) = spread.split_at_mut(2 * half);
            for i in 0..half {
                (cosines[2 * i], cosines[2 * i + 1]) = (cos[i], cos[i]);
                (sines[2 * i], sines[2 * i + 1]) = (-sin[i], sin[i]);
            }
            f(cosines, sines);
        }),
    }
}

fn for_rows(heads: Heads, f: impl Fn(usize) + Sync) {
    let chunk = rows_per_chunk(heads.heads * heads.width);
    for_each(heads.rows.div_ceil(chunk), |i| {
        for row in i * chunk..((i + 1) * chunk).min(heads.rows) {
            f(row);
        }
    });
}

dispatch! {
    fn rotate_row_in_place(pairing: Pairing, turn: Turn, cos: &[f32], sin: &[f32], width: usize,
        x: &mut [f32]) => rotate_row_in_place_on
    fn rotate_row(pairing: Pairing, turn: Turn, cos: &[f32], sin: &[f32], width: usize, x: &[f32],
        out: &mut [f32], write: Write) => rotate_row_on
}

#[inline(always)]
fn rotate_row_in_place_on<S: Simd>(
    s: S,
    pairing: Pairing,
    turn: Turn,
    cos: &[f32],
    sin: &[f32],
    width: usize,
    x: &mut [f32],
) {
    rotate_heads(s, pairing, turn, cos, sin, width, x.len(), &mut InPlace(x));
}

#[inline(always)]
fn rotate_row_on<S: Simd>(
    s: S,
    pairing: Pairing,
    turn: Turn,
    cos: &[f32],
    sin: &[f32],
    width: usize,
    x: &[f32],
    out: &mut [f32],
    write: Write,
) {
    rotate_heads(s, pairing, turn, cos, sin, width, x.len(), &mut Apart { x, out, write });
}

/// What is read and where results go.
trait Ends {
    fn read<S: Simd>(&self, s: S, at: Span) -> S::V;
    fn put<S: Simd>(&mut self, s: S, at: Span, v: S::V);
    /// Passes elements through unchanged.
    fn pass<S: Simd>(&mut self, s: S, range: std::ops::Range<usize>);
}

struct InPlace<'a>(&'a mut [f32]);

impl Ends for InPlace<'_> {
    #[inline(always)]
    fn read<S: Simd>(&self, s: S, at: Span) -> S::V {
        s.read(self.0, at)
    }
    #[inline(always)]
    fn put<S: Simd>(&mut self, s: S, at: Span, v: S::V) {
        s.write(self.0, at, v);
    }
    #[inline(always)]
    fn pass<S: Simd>(&mut self, _: S, _: std::ops::Range<usize>) {}
}

struct Apart<'a> {
    x: &'a [f32],
    out: &'a mut [f32],
    write: Write,
}

impl Ends for Apart<'_> {
    #[inline(always)]
    fn read<S: Simd>(&self, s: S, at: Span) -> S::V {
        s.read(self.x, at)
    }
    #[inline(always)]
    fn put<S: Simd>(&mut self, s: S, at: Span, v: S::V) {
        s.put(self.out, at, v, self.write);
    }
    #[inline(always)]
    fn pass<S: Simd>(&mut self, s: S, range: std::ops::Range<usize>) {
        let (x, out) = (&self.x[range.clone()], &mut self.out[range]);
        each_span!(S, x.len(), |at| {
            s.put(out, at, s.read(x, at), self.write);
        });
    }
}

/// All heads of one row, `len` elements.
#[inline(always)]
fn rotate_heads<S: Simd>(
    s: S,
    pairing: Pairing,
    turn: Turn,
    cos: &[f32],
    sin: &[f32],
    width: usize,
    len: usize,
    ends: &mut impl Ends,
) {
    let sign = s.splat(if turn == Turn::Forward { 1.0 } else { -1.0 });
    match pairing {
        Pairing::Halves => {
            let half = cos.len();
            let mut head = 0;
            while head < len {
                each_span!(S, half, |at| {
                    let low = Span { start: head + at.start, ..at };
                    let high = Span { start: head + half + at.start, ..at };
                    let (c, b) = (s.read(cos, at), s.mul(s.read(sin, at), sign));
                    let (x, y) = (ends.read(s, low), ends.read(s, high));
                    ends.put(s, low, s.neg_mul_add(y, b, s.mul(x, c)));
                    ends.put(s, high, s.mul_add(x, b, s.mul(y, c)));
                });
                ends.pass(s, head + 2 * half..head + width);
                head += width;
            }
        }
        Pairing::Neighbours => {
            // x·(c, c) + swapped x·(−s, s), with tables that are spread out already.
            let mut head = 0;
            while head < len {
                each_span!(S, cos.len(), |at| {
                    let place = Span { start: head + at.start, ..at };
                    let x = ends.read(s, place);
                    let swapped = s.mul(s.swap_pairs(x), sign);
                    let turned = s.mul(swapped, s.read(sin, at));
                    ends.put(s, place, s.mul_add(x, s.read(cos, at), turned));
                });
                ends.pass(s, head + cos.len()..head + width);
                head += width;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, on_every_isa, samples, to_f64};
    use crate::threads::with_threads;

    fn tables(positions: usize, half: usize) -> (Vec<f32>, Vec<f32>) {
        let angle = |i: usize| {
            let (position, pair) = (i / half, i % half);
            position as f64 * 10_000_f64.powf(-(pair as f64) / half as f64)
        };
        let table = |f: fn(f64) -> f64| {
            (0..positions * half).map(|i| f(angle(i)) as f32).collect::<Vec<f32>>()
        };
        (table(f64::cos), table(f64::sin))
    }

    /// One pair at a time, in f64.
    fn reference(rotation: &Rotation<'_>, position: usize, head: &[f64]) -> Vec<f64> {
        let half = rotation.rotated / 2;
        let mut out = head.to_vec();
        for i in 0..half {
            let (a, b) = match rotation.pairing {
                Pairing::Halves => (i, i + half),
                Pairing::Neighbours => (2 * i, 2 * i + 1),
            };
            let c = f64::from(rotation.cos[position * half + i]);
            let turn = if rotation.turn == Turn::Forward { 1.0 } else { -1.0 };
            let s = turn * f64::from(rotation.sin[position * half + i]);
            out[a] = head[a] * c - head[b] * s;
            out[b] = head[b] * c + head[a] * s;
        }
        out
    }

    #[test]
    fn every_layout_matches_reference() {
        on_every_isa(|isa| {
            for (width, rotated) in
                [(2, 2), (8, 0), (10, 6), (16, 16), (34, 34), (64, 32), (80, 80)]
            {
                for pairing in [Pairing::Halves, Pairing::Neighbours] {
                    for turn in [Turn::Forward, Turn::Backward] {
                        let (heads, rows) = (3, 6);
                        let (cos, sin) = tables(9, rotated / 2);
                        let rotation = Rotation { cos: &cos, sin: &sin, rotated, pairing, turn };
                        let from =
                            Heads { rows, stride: heads * width + 7, offset: 5, heads, width };
                        let to = Heads { stride: heads * width, offset: 0, ..from };
                        let x = samples(rows * from.stride, 2.0, 1);
                        let listed = [8, 0, 3, 3, 1, 2];
                        for positions in
                            [Positions::Counted { start: 4, length: 3 }, Positions::Listed(&listed)]
                        {
                            let what = format!("{rotation:?} of {from:?} on {isa:?}");
                            let mut in_place = x.clone();
                            rotate_in_place(rotation, positions, from, &mut in_place);
                            let before = samples(rows * to.stride, 1.0, 2);
                            let mut set = vec![f32::NAN; before.len()];
                            rotate(rotation, positions, (&x, from), (&mut set, to), Write::Set);
                            let mut added = before.clone();
                            rotate(rotation, positions, (&x, from), (&mut added, to), Write::Add);
                            for row in 0..rows {
                                for head in 0..heads {
                                    let at = row * from.stride + from.offset + head * width;
                                    let want = reference(
                                        &rotation,
                                        positions.of(row),
                                        &to_f64(&x[at..at + width]),
                                    );
                                    // Two products of numbers up to 2, rounded at most 4 times.
                                    let bound = |_| 5e-7;
                                    assert_close(&what, &in_place[at..at + width], &want, bound);
                                    let place = row * to.stride + head * width;
                                    let part = place..place + width;
                                    assert_eq!(set[part.clone()], in_place[at..at + width]);
                                    let sum: Vec<f64> = (0..width)
                                        .map(|j| want[j] + f64::from(before[place + j]))
                                        .collect();
                                    assert_close(&what, &added[part], &sum, bound);
                                }
                            }
                            // What lies between the heads of two rows is left alone.
                            for i in 0..x.len() {
                                let column = i % from.stride;
                                if column < 5 || column >= 5 + heads * width {
                                    assert_eq!(in_place[i], x[i]);
                                }
                            }
                        }
                    }
                }
            }
        });
    }

    #[test]
    fn turning_back_undoes_turning() {
        let (rows, width) = (400, 64);
        let heads = Heads { rows, stride: 4 * width, offset: 0, heads: 4, width };
        let (cos, sin) = tables(rows, width / 2);
        let x = samples(rows * 4 * width, 1.0, 3);
        for pairing in [Pairing::Halves, Pairing::Neighbours] {
            let run = |threads| {
                let mut y = x.clone();
                let positions = Positions::Counted { start: 0, length: rows };
                let forward =
                    Rotation { cos: &cos, sin: &sin, rotated: width, pairing, turn: Turn::Forward };
                with_threads(threads, || {
                    rotate_in_place(forward, positions, heads, &mut y);
                    let back = Rotation { turn: Turn::Backward, ..forward };
                    rotate_in_place(back, positions, heads, &mut y);
                });
                y
            };
            let one = run(1);
            // cos² + sin² of rounded tables is 1 within 1.2e-7; two rotations round four times.
            assert_close("there and back", &one, &to_f64(&x), |_| 6e-7);
            assert!([2, 3, 4].into_iter().all(|threads| run(threads) == one));
        }
    }

    #[test]
    #[should_panic(expected = "positions up to 6 need tables of 6×2, there are 10 elements")]
    fn a_position_beyond_the_tables_is_named() {
        let (cos, sin) = tables(5, 2);
        let turn = Turn::Forward;
        let rotation =
            Rotation { cos: &cos, sin: &sin, rotated: 4, pairing: Pairing::Halves, turn };
        let heads = Heads { rows: 1, stride: 4, offset: 0, heads: 1, width: 4 };
        rotate_in_place(rotation, Positions::Listed(&[5]), heads, &mut [0.0; 4]);
    }
}
