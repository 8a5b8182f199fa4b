//! Routing tokens to experts, and the weighted sum of what the experts give back.
//!
//! ```text
//! chosen[n, ·] = the k largest of scores[n, ·], the largest first
//! out[n] = Σⱼ weights[n, j] · y[n, j]  (+ residual[n])
//! ```
//! `y[n, j]` is a row of the expert that token n has as its choice j. An expert's rows lie next to
//! each other, in a matrix of its own, so each row of `out` reads k rows of different matrices.
//! Work is cut by rows of the result, and a row is summed in the order of its choices: the bits do
//! not depend on the number of threads.

use crate::simd::{Simd, reduce};
use crate::threads::{for_row_chunks, rows_per_chunk};
use crate::{Write, dispatch, each_span};

/// The place of a choice that no expert computes: the token is padding, or the expert is full.
pub const NOWHERE: u32 = u32::MAX;

/// Writes the `top` largest of each row of `scores` (N, E) to `chosen` (N, top), the largest first.
/// Of equal ones, the first comes first; NaN counts as less than everything.
pub fn choose(scores: &[f32], experts: usize, top: usize, chosen: &mut [u32]) {
    assert!((1..=experts).contains(&top), "{top} of {experts} experts");
    let rows = scores.len() / experts;
    for_row_chunks(rows, rows_per_chunk(experts * top), [(chosen, top)], |at, [chosen]| {
        let scores = scores[at.start * experts..at.end * experts].chunks_exact(experts);
        for (scores, chosen) in scores.zip(chosen.chunks_exact_mut(top)) {
            for j in 0..top {
                let (taken, rest) = chosen.split_at_mut(j);
                rest[0] = largest(scores, taken);
            }
        }
    });
}

/// The first of the largest of `scores` that is not `taken`.
fn largest(scores: &[f32], taken: &[u32]) -> u32 {
    let free = scores.iter().enumerate().filter(|(e, _)| !taken.contains(&(*e as u32)));
    let better = |best: Option<(usize, f32)>, (e, &score): (usize, &f32)| match best {
        Some((_, most)) if !(score > most || (most.is_nan() && !score.is_nan())) => best,
        _ => Some((e, score)),
    };
    free.fold(None, better).map_or(0, |(e, _)| e as u32)
}

/// Where the rows of a weighted sum lie.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The rows of each expert, as wide as the result.
    pub parts: &'a [&'a [f32]],
    /// The expert of each choice, (N, k).
    pub chosen: &'a [u32],
    /// Its row among those of the expert, or [`NOWHERE`]: (N, k).
    pub places: &'a [u32],
    /// k
    pub top: usize,
    /// C
    pub width: usize,
}

impl<'a> Sources<'a> {
    /// The row of choice `i`, if some expert has computed it.
    fn row(&self, i: usize) -> Option<&'a [f32]> {
        let place = self.places[i];
        let part = self.parts[self.chosen[i] as usize];
        (place != NOWHERE).then(|| &part[place as usize * self.width..][..self.width])
    }

    /// `out[n] = Σⱼ weights[n, j] · y[n, j] + residual[n]`
    pub fn combine(&self, weights: &[f32], residual: Option<&[f32]>, out: &mut [f32]) {
        let (top, width) = (self.top, self.width);
        let rows = self.chosen.len() / top;
        for_row_chunks(rows, rows_per_chunk(width * top), [(out, width)], |at, [out]| {
            for (n, out) in at.zip(out.chunks_exact_mut(width.max(1))) {
                match residual {
                    Some(residual) => out.copy_from_slice(&residual[n * width..(n + 1) * width]),
                    None => out.fill(0.0),
                }
                for (i, weight) in (n * top..).zip(&weights[n * top..(n + 1) * top]) {
                    if let Some(row) = self.row(i) {
                        scaled(*weight, row, out, Write::Add);
                    }
                }
            }
        });
    }

    /// `dweights[n, j] = y[n, j] · dout[n]`; 0 where nothing was computed.
    pub fn dweights(&self, dout: &[f32], dweights: &mut [f32], write: Write) {
        let (top, width) = (self.top, self.width);
        let rows = self.chosen.len() / top;
        for_row_chunks(rows, rows_per_chunk(width * top), [(dweights, top)], |at, [dweights]| {
            for (n, dweights) in at.zip(dweights.chunks_exact_mut(top)) {
                let dout = &dout[n * width..(n + 1) * width];
                for (i, dweight) in (n * top..).zip(dweights) {
                    let product = self.row(i).map_or(0.0, |row| dot(row, dout));
                    match write {
                        Write::Set => *dweight = product,
                        Write::Add => *dweight += product,
                    }
                }
            }
        });
    }
}

/// The gradient of one expert's rows: `dy[m] = weights[assigned[m]] · dout[assigned[m] / k]`, where
/// `assigned` are the choices, of all (N, k), that the expert has computed.
pub fn drows(
    assigned: &[u32],
    top: usize,
    weights: &[f32],
    (dout, width): (&[f32], usize),
    dy: &mut [f32],
    write: Write,
) {
    for_row_chunks(assigned.len(), rows_per_chunk(width), [(dy, width)], |at, [dy]| {
        for (&choice, dy) in assigned[at].iter().zip(dy.chunks_exact_mut(width.max(1))) {
            let token = choice as usize / top;
            scaled(weights[choice as usize], &dout[token * width..][..width], dy, write);
        }
    });
}

dispatch! {
    fn scaled(factor: f32, x: &[f32], out: &mut [f32], write: Write) => scaled_on
    fn dot(x: &[f32], y: &[f32]) -> f32 => reduce::dot
}

/// out = factor·x, or out += factor·x
#[inline(always)]
fn scaled_on<S: Simd>(s: S, factor: f32, x: &[f32], out: &mut [f32], write: Write) {
    let factor = s.splat(factor);
    match write {
        Write::Set => each_span!(S, x.len(), |at| {
            s.write(out, at, s.mul(factor, s.read(x, at)));
        }),
        Write::Add => each_span!(S, x.len(), |at| {
            s.write(out, at, s.mul_add(factor, s.read(x, at), s.read(out, at)));
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, assert_close, on_every_isa, samples, to_f64};
    use crate::threads::with_threads;

    #[test]
    fn the_largest_come_first_and_of_equal_ones_the_first() {
        let nan = f32::NAN;
        let scores = [
            [0.1, 0.5, 0.2, 0.5, 0.4],
            [1.0, 1.0, 1.0, 1.0, 1.0],
            [nan, -2.0, nan, f32::NEG_INFINITY, -1.0],
            [nan, nan, nan, nan, nan],
        ];
        let mut chosen = [9; 12];
        choose(scores.as_flattened(), 5, 3, &mut chosen);
        assert_eq!(chosen, [1, 3, 4, 0, 1, 2, 4, 1, 3, 0, 1, 2]);
    }

    #[test]
    fn many_rows_are_chosen_as_by_sorting() {
        let (rows, experts, top) = (5000, 7, 2);
        let scores = samples(rows * experts, 1.0, 1);
        let run = |threads| {
            let mut chosen = vec![0; rows * top];
            with_threads(threads, || choose(&scores, experts, top, &mut chosen));
            chosen
        };
        let chosen = run(1);
        assert!([2, 3, 4].into_iter().all(|threads| run(threads) == chosen));
        for (scores, chosen) in scores.chunks(experts).zip(chosen.chunks(top)) {
            let mut order: Vec<u32> = (0..experts as u32).collect();
            order.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]));
            assert_eq!(chosen, &order[..top]);
        }
    }

    /// Three experts; token n chooses n mod 3 and the next, and every fifth choice is dropped.
    fn assignment(tokens: usize) -> (Vec<u32>, Vec<u32>, Vec<Vec<u32>>) {
        let chosen: Vec<u32> = (0..2 * tokens as u32).map(|i| (i / 2 + i % 2) % 3).collect();
        let mut assigned = vec![Vec::new(); 3];
        let places = chosen.iter().enumerate().map(|(i, &e)| {
            if i % 5 == 4 {
                return NOWHERE;
            }
            let own: &mut Vec<u32> = &mut assigned[e as usize];
            own.push(i as u32);
            own.len() as u32 - 1
        });
        let places = places.collect();
        (chosen, places, assigned)
    }

    #[test]
    fn sums_and_their_gradients_match_reference() {
        on_every_isa(|isa| {
            for width in LENGTHS {
                let tokens = 23;
                let (chosen, places, assigned) = assignment(tokens);
                let parts: Vec<Vec<f32>> =
                    (0..3).map(|e| samples(assigned[e].len() * width, 1.0, e as u32)).collect();
                let parts: Vec<&[f32]> = parts.iter().map(Vec::as_slice).collect();
                let weights = samples(2 * tokens, 1.0, 4);
                let residual = samples(tokens * width, 1.0, 5);
                let dout = samples(tokens * width, 1.0, 6);
                let sources =
                    Sources { parts: &parts, chosen: &chosen, places: &places, top: 2, width };
                let mut out = vec![f32::NAN; tokens * width];
                sources.combine(&weights, Some(&residual), &mut out);
                let mut dweights = vec![1.0; 2 * tokens];
                sources.dweights(&dout, &mut dweights, Write::Add);
                let (mut want, mut want_weights) = (to_f64(&residual), vec![1.0; 2 * tokens]);
                for i in (0..2 * tokens).filter(|i| places[*i] != NOWHERE) {
                    for c in 0..width {
                        let y = parts[chosen[i] as usize][places[i] as usize * width + c];
                        let at = i / 2 * width + c;
                        want[at] += f64::from(weights[i]) * f64::from(y);
                        want_weights[i] += f64::from(y) * f64::from(dout[at]);
                    }
                }
                let what = format!("{width} wide on {isa:?}");
                assert_close(&what, &out, &want, |_| 1e-6); // three roundings of numbers below 3
                // Up to some hundred products of size 1, of random sign.
                assert_close(&what, &dweights, &want_weights, |_| 2e-5);
                for (e, own) in assigned.iter().enumerate() {
                    let mut dy = vec![f32::NAN; own.len() * width];
                    drows(own, 2, &weights, (&dout, width), &mut dy, Write::Set);
                    for (m, &i) in own.iter().enumerate() {
                        for c in 0..width {
                            let want = weights[i as usize] * dout[i as usize / 2 * width + c];
                            assert_eq!(dy[m * width + c], want, "expert {e} of {what}");
                        }
                    }
                }
            }
        });
    }
}
