//! Scores of additive attention: `scoreₜₛ = Σₐ vₐ·tanh(qₜₐ + kₛₐ)`, without ever holding the
//! B·T·S·A hyperbolic tangents: backward computes them again.
//!
//! With u = tanh(q + k) and `g = dscore·v·(1 − u²)`: `dqₜ = Σₛ g`, `dkₛ = Σₜ g`, `dv = Σₜₛ dscore·u`.

use crate::activation::Activation;
use crate::dry::{self, Operations};
use crate::simd::Simd;
use crate::threads::{for_row_chunks, rows_per_chunk};
use crate::{Write, dispatch, each_span};

/// The sizes of a batch: queries (B, T, A), keys (B, S, A).
#[derive(Clone, Copy, Debug)]
pub struct Sizes<'a> {
    /// T
    pub queries: usize,
    /// S
    pub keys: usize,
    /// A
    pub width: usize,
    /// How many keys of each row are not padding (B); all of them, if `None`.
    pub lengths: Option<&'a [usize]>,
}

impl Sizes<'_> {
    fn visible(&self, b: usize) -> usize {
        self.lengths.map_or(self.keys, |lengths| lengths[b].min(self.keys))
    }

    fn count(&self, rows: usize, passes: f64) {
        let each = 2.0 * self.keys as f64 * self.width as f64;
        dry::count(|| Operations { products: 0.0, attention: passes * rows as f64 * each });
    }
}

/// `out` (B, T, S); −∞ where there is padding.
pub fn additive_forward(sizes: &Sizes<'_>, [q, k, v]: [&[f32]; 3], out: &mut [f32]) {
    let Sizes { queries: t, keys: s, width: a, .. } = *sizes;
    if t == 0 || s == 0 {
        return;
    }
    let rows = out.len() / s;
    sizes.count(rows, 1.0);
    for_row_chunks(rows, rows_per_chunk(4 * s * a), [(out, s)], |rows, [out]| {
        for (row, out) in rows.zip(out.chunks_exact_mut(s)) {
            let (b, q) = (row / t, &q[row * a..][..a]);
            let visible = sizes.visible(b);
            for (key, out) in out.iter_mut().enumerate() {
                let k = &k[(b * s + key) * a..][..a];
                *out = if key < visible { score(q, k, v) } else { f32::NEG_INFINITY };
            }
        }
    });
}

/// The gradient of the queries (B, T, A), and for each of them what it adds to that of v, (B, T, A).
pub fn additive_backward_queries(
    sizes: &Sizes<'_>,
    [q, k, v, dout]: [&[f32]; 4],
    dq: &mut [f32],
    dv: &mut [f32],
    write: Write,
) {
    let Sizes { queries: t, keys: s, width: a, .. } = *sizes;
    if a == 0 {
        return;
    }
    let rows = dq.len() / a;
    sizes.count(rows, 1.0);
    let chunk = rows_per_chunk(4 * s * a);
    for_row_chunks(rows, chunk, [(dq, a), (dv, a)], |rows, [dq, dv]| {
        for (i, row) in rows.enumerate() {
            let (dq, dv) = (&mut dq[i * a..][..a], &mut dv[i * a..][..a]);
            if write == Write::Set {
                dq.fill(0.0);
            }
            dv.fill(0.0);
            let b = row / t;
            for key in 0..sizes.visible(b) {
                let k = &k[(b * s + key) * a..][..a];
                add_gradients([&q[row * a..][..a], k, v], dout[row * s + key], dq, dv);
            }
        }
    });
}

/// The gradient of the keys, (B, S, A).
pub fn additive_backward_keys(
    sizes: &Sizes<'_>,
    [q, k, v, dout]: [&[f32]; 4],
    dk: &mut [f32],
    write: Write,
) {
    let Sizes { queries: t, keys: s, width: a, .. } = *sizes;
    if a == 0 || s == 0 {
        return;
    }
    let rows = dk.len() / a;
    sizes.count(rows / s * t, 1.0);
    for_row_chunks(rows, rows_per_chunk(4 * t * a), [(dk, a)], |rows, [dk]| {
        for (row, dk) in rows.zip(dk.chunks_exact_mut(a)) {
            if write == Write::Set {
                dk.fill(0.0);
            }
            let (b, key) = (row / s, row % s);
            if key >= sizes.visible(b) {
                continue;
            }
            for query in b * t..(b + 1) * t {
                let q = &q[query * a..][..a];
                add_gradients([q, &k[row * a..][..a], v], dout[query * s + key], dk, &mut []);
            }
        }
    });
}

dispatch! {
    fn score(q: &[f32], k: &[f32], v: &[f32]) -> f32 => score_on
    fn add_gradients(qkv: [&[f32]; 3], dout: f32, dq: &mut [f32], dv: &mut [f32])
        => add_gradients_on
}

#[inline(always)]
fn score_on<S: Simd>(s: S, q: &[f32], k: &[f32], v: &[f32]) -> f32 {
    let mut sum = s.zero();
    each_span!(S, v.len(), |at| {
        let u = Activation::Tanh.apply(s, s.add(s.read(q, at), s.read(k, at)));
        sum = s.mul_add(u, s.read(v, at), sum); // what is read beyond the end is 0
    });
    s.sum(sum)
}

/// `dq += dout·v·(1 − u²)`, and `dv += dout·u` unless it is empty.
#[inline(always)]
fn add_gradients_on<S: Simd>(
    s: S,
    [q, k, v]: [&[f32]; 3],
    dout: f32,
    dq: &mut [f32],
    dv: &mut [f32],
) {
    let dout = s.splat(dout);
    each_span!(S, v.len(), |at| {
        let sum = s.add(s.read(q, at), s.read(k, at));
        let (u, slope) = Activation::Tanh.with_derivative(s, sum);
        let g = s.mul(s.mul(dout, s.read(v, at)), slope);
        s.write(dq, at, s.add(s.read(dq, at), g));
        if !dv.is_empty() {
            s.write(dv, at, s.mul_add(dout, u, s.read(dv, at)));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, with_isa};
    use crate::testing::{LENGTHS, assert_close, on_every_isa, samples};

    fn everything(a: usize) -> Vec<f32> {
        let sizes = Sizes { queries: 2, keys: 3, width: a, lengths: Some(&[3, 2]) };
        let (q, k, v) = (
            samples(4 * a, 2.0, 1),
            samples(6 * a, 2.0, 2),
            samples(a, 1.0 / (a.max(1) as f32), 3),
        );
        let dout = samples(12, 1.0, 4);
        let (mut out, mut dq, mut dk) = (vec![0.0; 12], vec![0.5; 4 * a], vec![0.5; 6 * a]);
        let mut dv = vec![9.0; 4 * a];
        additive_forward(&sizes, [&q, &k, &v], &mut out);
        assert_eq!([out[8], out[11]], [f32::NEG_INFINITY; 2]);
        additive_backward_queries(&sizes, [&q, &k, &v, &dout], &mut dq, &mut dv, Write::Add);
        additive_backward_keys(&sizes, [&q, &k, &v, &dout], &mut dk, Write::Add);
        out.into_iter().filter(|x| x.is_finite()).chain(dq).chain(dk).chain(dv).collect()
    }

    #[test]
    fn instruction_sets_agree_on_awkward_widths() {
        for a in LENGTHS {
            let plain = with_isa(Isa::Portable, || everything(a));
            let plain: Vec<f64> = plain.iter().map(|&x| f64::from(x)).collect();
            on_every_isa(|isa| {
                // Sums of up to 1,000 numbers below 1/1000, each off by some 1e-7 of itself.
                assert_close(&format!("{isa:?}, {a} wide"), &everything(a), &plain, |_| 3e-6);
            });
        }
    }
}
