//! Attention among tokens that a hash puts side by side: softmax attention of every token to its own
//! chunk and the one before, in the order of buckets, in several rounds (Kitaev et al. 2020).
//!
//! Shapes: q, k (B, T, H·D), v (B, T, H·Dv), out (B, T, H·Dv). An [`Order`] says how the tokens of
//! every sequence, head and round are sorted; it is a constant, as a hash has no gradient. With Pᵣ
//! the tokens that token i sees in round r, lseᵣ = ln Σ_{j ∈ Pᵣ} exp(sᵢⱼ), and lse the same over all
//! rounds,
//!
//! ```text
//! out = Σᵣ exp(lseᵣ − lse)·softmax_r(s)·v = Σᵣ Σ_{j ∈ Pᵣ} exp(sᵢⱼ − lse)·vⱼ
//! ```
//!
//! which is one attention to the tokens of all rounds, those of several rounds counted as often. So
//! is its gradient, with the `out` and `lse` of all rounds in place of one round's:
//! 1. `dq`, `dk` and `dv` of every round as of [`attention`](super::attention), in sorted order
//! 2. their sums over the rounds, back in the order of the sequence
//!
//! Saves q, k, v, out, lse and the order; never T·T of anything.

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::reference::Array;
use crate::rng::Rng;
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::attention::scores::{Hashed, ITSELF};
use hearken_kernels::attention::{self as kernel, Rows, RowsMut};
use hearken_kernels::gemm::{Epilogue, Matrix, gemm};
use hearken_kernels::threads::for_row_chunks;
use hearken_kernels::{Write, scratch};
use std::sync::Arc;

/// How tokens are sorted: B sequences, H heads and R rounds, T tokens each.
#[derive(Clone, Debug)]
pub struct Order {
    heads: usize,
    rounds: usize,
    tokens: usize,
    /// (B, H, R, T): the token that stands in a place.
    places: Arc<[u32]>,
    /// (B, H, R, T): the place that a token stands in.
    slots: Arc<[u32]>,
}

/// How to attend.
#[derive(Clone, Debug)]
pub struct LshAttend {
    /// Tokens of a chunk.
    pub chunk: usize,
    /// Does a token see only itself and those before it?
    pub causal: bool,
    /// Factor of q·k.
    pub scale: f32,
    /// (B, T): tokens see those of their own segment; 0 is padding. All are of one, if `None`.
    pub segments: Option<Arc<[u32]>>,
}

impl Order {
    /// Sorts tokens by bucket, and those of one bucket by place. The bucket of a vector of `x`
    /// (B, T, H·D) in round r is which of its products with the vectors of that round, or with
    /// their opposites, is largest: `directions` are (R·N/2, D) for N buckets.
    pub fn by_hash(
        x: &Tensor,
        heads: usize,
        directions: &Tensor,
        rounds: usize,
        segments: Option<&[u32]>,
    ) -> Self {
        let half = directions.dims::<2>()[0] / rounds.max(1);
        let every = vec![half; x.dims::<3>()[0]];
        Self::by_first_directions(x, heads, directions, rounds, &every, segments)
    }

    /// The same, where sequence b takes the first `halves[b]` directions of each round: it has
    /// 2·`halves[b]` buckets, whoever shares the batch.
    pub fn by_first_directions(
        x: &Tensor,
        heads: usize,
        directions: &Tensor,
        rounds: usize,
        halves: &[usize],
        segments: Option<&[u32]>,
    ) -> Self {
        let ([batch, tokens, columns], [all, width]) = (x.dims(), directions.dims());
        assert!(
            columns == heads * width && rounds > 0 && all.is_multiple_of(rounds) && all > 0,
            "{} has not {heads} heads as wide as {rounds} rounds of {}",
            x.shape(),
            directions.shape()
        );
        assert_segments(segments, x.shape());
        let most = all / rounds;
        assert!(
            halves.len() == batch && halves.iter().all(|half| (1..=most).contains(half)),
            "{halves:?} of {most} directions for {batch} sequences"
        );
        let count = if tokens == 0 { 0 } else { batch * heads * rounds };
        let mut places = vec![0_u32; count * tokens];
        let mut slots = vec![0_u32; count * tokens];
        let outputs = [(&mut places[..], tokens), (&mut slots[..], tokens)];
        for_row_chunks(count, 1, outputs, |row, [places, slots]| {
            let (b, h, r) = (row.start / (heads * rounds), row.start / rounds % heads, row.start % rounds);
            let x = &x.data()[b * tokens * columns + h * width..];
            let x = Matrix::strided(x, tokens, width, columns);
            let half = halves[b];
            let directions = &directions.data()[r * most * width..];
            let directions = Matrix::new(directions, half, width).transposed();
            let segments = segments.map(|all| &all[b * tokens..(b + 1) * tokens]);
            scratch::with(tokens * half, |products| {
                gemm(x, directions, products, half, Write::Set, Epilogue::default());
                let bucket = |t: usize| match segments {
                    Some(segments) if segments[t] == 0 => 2 * half, // padding comes last
                    _ => bucket(&products[t * half..(t + 1) * half]),
                };
                let buckets: Vec<usize> = (0..tokens).map(bucket).collect();
                sort(&buckets, 2 * half + 1, places, slots);
            });
        });
        Self { heads, rounds, tokens, places: places.into(), slots: slots.into() }
    }

    fn rule(&self, attend: &LshAttend) -> Hashed {
        Hashed {
            places: self.places.clone(),
            heads: self.heads * self.rounds,
            tokens: self.tokens,
            chunk: attend.chunk,
            causal: attend.causal,
            segments: attend.segments.clone(),
        }
    }

    /// Rows (B, T, H, W) in the order of every round: (B, T, H·R, W).
    fn sorted(&self, x: &Tensor, width: usize) -> Tensor {
        let Self { heads, rounds, tokens, .. } = *self;
        let (batch, x) = (x.dims::<3>()[0], x.data());
        let row = heads * rounds * width;
        let mut out = Tensor::unset([batch, tokens, row]);
        if row == 0 {
            return out;
        }
        for_row_chunks(batch * tokens, 64, [(out.data_mut(), row)], |rows, [out]| {
            for (at, out) in rows.zip(out.chunks_exact_mut(row)) {
                let (b, place) = (at / tokens, at % tokens);
                for (hr, out) in out.chunks_exact_mut(width).enumerate() {
                    let token = self.places[(b * heads * rounds + hr) * tokens + place] as usize;
                    let from = ((b * tokens + token) * heads + hr / rounds) * width;
                    out.copy_from_slice(&x[from..from + width]);
                }
            }
        });
        out
    }

    /// Where a token stands: its row among (B, T, H·R, W), for the rounds of a head.
    fn rows_of(&self, b: usize, head: usize, token: usize) -> impl Iterator<Item = usize> + '_ {
        let all = self.heads * self.rounds;
        (head * self.rounds..(head + 1) * self.rounds).map(move |hr| {
            let place = self.slots[(b * all + hr) * self.tokens + token] as usize;
            (b * self.tokens + place) * all + hr
        })
    }

    /// Adds up rows (B, T, H·R, W) of all rounds: (B, T, H, W).
    fn summed(&self, x: &Tensor, width: usize, out: &mut [f32], write: Write) {
        let Self { heads, tokens, .. } = *self;
        let (row, x) = (heads * width, x.data());
        if row == 0 {
            return;
        }
        for_row_chunks(out.len() / row, 64, [(out, row)], |at, [out]| {
            for (at, out) in at.zip(out.chunks_exact_mut(row)) {
                for (head, out) in out.chunks_exact_mut(width).enumerate() {
                    if write == Write::Set {
                        out.fill(0.0);
                    }
                    for from in self.rows_of(at / tokens, head, at % tokens) {
                        let from = &x[from * width..(from + 1) * width];
                        for (out, x) in out.iter_mut().zip(from) {
                            *out += x;
                        }
                    }
                }
            }
        });
    }

    /// The rounds joined by their weights exp(lseᵣ − lse), of results (B, T, H·R, W) and lse
    /// (B, H·R, T): the result (B, T, H, W) and lse (B, T, H).
    fn joined(&self, x: &Tensor, lse: &Tensor, width: usize) -> [Tensor; 2] {
        let Self { heads, rounds, tokens, .. } = *self;
        let (all, batch) = (heads * rounds, x.dims::<3>()[0]);
        let mut out = Tensor::unset([batch, tokens, heads * width]);
        let mut total = Tensor::unset([batch, tokens, heads]);
        let (x, lse) = (x.data(), lse.data());
        let outputs = [(out.data_mut(), heads * width), (total.data_mut(), heads)];
        for_row_chunks(batch * tokens, 64, outputs, |rows, [out, total]| {
            for (i, at) in rows.enumerate() {
                for (head, total) in total[i * heads..(i + 1) * heads].iter_mut().enumerate() {
                    let out = &mut out[(i * heads + head) * width..][..width];
                    let own = |row: usize| {
                        let (place, hr) = (row / all % tokens, row % all);
                        lse[(at / tokens * all + hr) * tokens + place]
                    };
                    let rows = || self.rows_of(at / tokens, head, at % tokens);
                    let most = rows().map(own).fold(f32::NEG_INFINITY, f32::max); // skips NaN
                    out.fill(0.0);
                    *total = most;
                    if rows().all(|row| own(row) == f32::NEG_INFINITY) {
                        continue; // sees nothing
                    }
                    let sum: f32 = rows().map(|row| (own(row) - most).exp()).sum();
                    *total = most + sum.ln();
                    for row in rows() {
                        let weight = (own(row) - most).exp() / sum;
                        let from = &x[row * width..(row + 1) * width];
                        for (out, x) in out.iter_mut().zip(from) {
                            *out += weight * x;
                        }
                    }
                }
            }
        });
        [out, total]
    }
}

/// There is a segment for every token of `shape` (B, T, …).
fn assert_segments(segments: Option<&[u32]>, shape: Shape) {
    if let Some(segments) = segments {
        let count = segments.len();
        assert_eq!(count, shape.rows(), "{count} segments of the tokens of {shape}");
    }
}

/// Which of the products or their opposites is largest, the first of equal ones.
fn bucket(products: &[f32]) -> usize {
    let (mut best, mut most) = (0, f32::NEG_INFINITY);
    for (i, p) in products.iter().enumerate() {
        if *p > most {
            (best, most) = (i, *p);
        }
    }
    for (i, p) in products.iter().enumerate() {
        if -p > most {
            (best, most) = (products.len() + i, -p);
        }
    }
    best
}

/// Counting sort: tokens by bucket, then by place.
fn sort(buckets: &[usize], count: usize, places: &mut [u32], slots: &mut [u32]) {
    let mut next = vec![0_u32; count + 1];
    for bucket in buckets {
        next[bucket + 1] += 1;
    }
    for i in 0..count {
        next[i + 1] += next[i];
    }
    for (token, bucket) in buckets.iter().enumerate() {
        let place = next[*bucket];
        next[*bucket] += 1;
        places[place as usize] = token as u32;
        slots[token] = place;
    }
}

/// Attention of `q` to `k` and `v` in this order.
pub fn lsh_attention(q: &Var, k: &Var, v: &Var, order: &Order, attend: &LshAttend) -> Var {
    let ([batch, tokens, columns], [_, _, value_columns]) = (q.value().dims(), v.value().dims());
    let heads = order.heads;
    assert!(
        q.shape() == k.shape()
            && v.shape().dims()[..2] == [batch, tokens]
            && columns.is_multiple_of(heads)
            && value_columns.is_multiple_of(heads)
            && order.tokens == tokens
            && order.places.len() == batch * heads * order.rounds * tokens
            && attend.chunk > 0,
        "queries {}, keys {} and values {} do not fit {heads} heads of {} tokens in chunks of {}",
        q.shape(),
        k.shape(),
        v.shape(),
        order.tokens,
        attend.chunk
    );
    assert_segments(attend.segments.as_deref(), q.shape());
    let widths = [columns / heads, value_columns / heads];
    let parts = sorted(order, [q.value(), k.value(), v.value()], widths);
    let all = heads * order.rounds;
    let mut out = Tensor::unset([batch, tokens, all * widths[1]]);
    let mut lse = Tensor::unset([batch, all, tokens]);
    with_kernel(order, attend, &parts, widths, |attention| {
        attention.forward(out.data_mut(), lse.data_mut());
    });
    let [out, lse] = order.joined(&out, &lse, widths[1]);
    let value = out.clone();
    Var::from_op(out, &[q, k, v], || LshBackward {
        operands: [q, k, v].map(|x| Saved::new(x.value())),
        out: Saved::new(&value),
        lse,
        order: order.clone(),
        attend: attend.clone(),
        widths,
    })
}

fn sorted(order: &Order, parts: [&Tensor; 3], [width, value_width]: [usize; 2]) -> [Tensor; 3] {
    let [q, k, v] = parts;
    [order.sorted(q, width), order.sorted(k, width), order.sorted(v, value_width)]
}

/// The kernel's view of sorted operands.
fn with_kernel<R>(
    order: &Order,
    attend: &LshAttend,
    [q, k, v]: &[Tensor; 3],
    [width, value_width]: [usize; 2],
    f: impl FnOnce(&kernel::Attention<'_, Hashed>) -> R,
) -> R {
    let [batch, tokens, _] = q.dims();
    let heads = order.heads * order.rounds;
    let (queries, keys, kv_heads) = (tokens, tokens, heads);
    let shape = kernel::Shape { batch, queries, keys, heads, kv_heads, width, value_width };
    f(&kernel::Attention {
        shape,
        queries: Rows::new(q.data(), tokens, heads, width),
        keys: Rows::new(k.data(), tokens, heads, width),
        values: Rows::new(v.data(), tokens, heads, value_width),
        scale: attend.scale,
        dropout: None,
        scores: &order.rule(attend),
    })
}

struct LshBackward {
    operands: [Saved; 3],
    out: Saved,
    /// (B, T, H)
    lse: Tensor,
    order: Order,
    attend: LshAttend,
    widths: [usize; 2],
}

impl Backward for LshBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let Self { operands, out, lse, order, attend, widths } = *self;
        let operands = operands.each_ref().map(Saved::get);
        let [batch, tokens, _] = dout.dims();
        let all = order.heads * order.rounds;
        let parts = sorted(&order, operands.each_ref(), widths);
        let (out, dout) = (order.sorted(&out.get(), widths[1]), order.sorted(&dout, widths[1]));
        let lse = order.sorted(&lse, 1); // (B, T, H·R)
        let lse = super::transpose::transpose(&Var::constant(lse), 1, 2).into_value();
        let wide = [widths[0], widths[0], widths[1]];
        let mut found = wide.map(|width| Tensor::unset([batch, tokens, all * width]));
        with_kernel(&order, &attend, &parts, widths, |attention| {
            let mut width = wide.into_iter();
            let rows = found.each_mut().map(|gradient| {
                let width = width.next().unwrap_or_default();
                Some(RowsMut::new(gradient.data_mut(), Write::Set, tokens, all, width))
            });
            let [dqueries, dkeys, dvalues] = rows;
            attention.backward(kernel::Gradients {
                out: out.data(),
                lse: lse.data(),
                dout: dout.data(),
                dqueries,
                dkeys,
                dvalues,
                dscores: None,
            }); // 1
        });
        for (i, (found, width)) in found.iter().zip(wide).enumerate() {
            gradients.write(i, |out, write| order.summed(found, width, out, write)); // 2
        }
    }
}

fn reference(a: &[Array], order: &Order, attend: &LshAttend) -> Array {
    let (heads, rounds, tokens) = (order.heads, order.rounds, order.tokens);
    let batch = a[0].shape.dims()[0];
    let (width, value_width) = (a[0].shape.width() / heads, a[2].shape.width() / heads);
    let mut out = Array::zeros([batch, tokens, heads * value_width]);
    for row in 0..batch * heads * tokens {
        let (b, h, t) = (row / (heads * tokens), row / tokens % heads, row % tokens);
        let part = |x: &Array, t: usize, width: usize| {
            x.row(b * tokens + t)[h * width..(h + 1) * width].to_vec()
        };
        let q = part(&a[0], t, width);
        let mut seen: Vec<(f64, usize)> = Vec::new();
        for r in 0..rounds {
            let at = ((b * heads + h) * rounds + r) * tokens;
            let chunk = order.slots[at + t] as usize / attend.chunk;
            for place in chunk.saturating_sub(1) * attend.chunk..(chunk + 1) * attend.chunk {
                let Some(j) = order.places[at..at + tokens].get(place).map(|j| *j as usize) else {
                    continue;
                };
                let segment = |t: usize| attend.segments.as_ref().map_or(1, |s| s[b * tokens + t]);
                if segment(j) == 0 || segment(j) != segment(t) || attend.causal && j > t {
                    continue;
                }
                let dot: f64 = q.iter().zip(part(&a[1], j, width)).map(|(q, k)| q * k).sum();
                let itself = if j == t { f64::from(ITSELF) } else { 0.0 };
                seen.push((f64::from(attend.scale) * dot - itself, j));
            }
        }
        let most = seen.iter().map(|(s, _)| *s).fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = seen.iter().map(|(s, _)| (s - most).exp()).sum();
        for (s, j) in &seen {
            let weight = (s - most).exp() / total;
            let at = (b * tokens + t) * heads * value_width + h * value_width;
            for (d, v) in part(&a[2], *j, value_width).into_iter().enumerate() {
                out.data[at + d] += weight * v;
            }
        }
    }
    out
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 5e-6,
        backward: 3e-5,
        reason: "softmax attention to some dozens of keys, rounds joined by further exponentials; \
                 where a token sees itself alone, of numbers near -100, which are good to 4e-6",
    };
    // sizes: B, T, H, D, Dv, rounds, buckets, chunk
    let case = |name, sizes: [usize; 8], causal, segments: Option<Vec<u32>>| {
        let [batch, tokens, heads, width, value_width, rounds, buckets, chunk] = sizes;
        let x = Rng::new(3).normal([batch, tokens, heads * width], 1.0);
        let directions = Rng::new(4).normal([rounds * buckets / 2, width], 1.0);
        let order = Order::by_hash(&x, heads, &directions, rounds, segments.as_deref());
        let attend = LshAttend { chunk, causal, scale: 0.4, segments: segments.map(Into::into) };
        let times = times(&order, &attend, batch);
        let (own, same) = (order.clone(), attend.clone());
        Case::new(
            "lsh_attention",
            name,
            tolerance,
            move |v: &[Var]| lsh_attention(&v[0], &v[1], &v[2], &own, &same),
            move |a: &[Array]| reference(a, &order, &attend),
        )
        .input("q", x)
        .normal("k", [batch, tokens, heads * width])
        .normal("v", [batch, tokens, heads * value_width])
        .extra("times", times)
        .torch(
            "h = times.shape[1]\n\
             qs, ks, vs = (x.unflatten(-1, (h, -1)).transpose(1, 2) for x in (q, k, v))\n\
             s = qs @ ks.transpose(-1, -2) * 0.4000000059604645\n\
             s = s - 100 * torch.eye(s.shape[-1]) + times.log()\n\
             w = s.softmax(-1).nan_to_num(0.0)\n\
             out = (w @ vs).transpose(1, 2).flatten(-2)",
        )
    };
    vec![
        case("one_round", [2, 12, 2, 4, 3, 1, 4, 3], false, None),
        case("causal", [2, 12, 2, 4, 3, 1, 4, 3], true, None),
        case("rounds", [1, 21, 2, 5, 4, 3, 4, 4], false, None),
        case("rounds_causal", [1, 21, 2, 5, 4, 3, 4, 4], true, None),
        // Longer than a tile of the kernel, with chunks that do not fit into the length.
        case("long_causal", [1, 150, 1, 6, 7, 2, 8, 20], true, None),
        case("segments", [2, 9, 1, 4, 4, 2, 2, 4], false, Some(vec![
            1, 1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        ])),
    ]
}

/// How often a token sees another, for PyTorch: (B, H, T, T).
fn times(order: &Order, attend: &LshAttend, batch: usize) -> Array {
    let Order { heads, rounds, tokens, .. } = *order;
    Array::build([batch, heads, tokens, tokens], |at| {
        let (bh, i, j) = (at / (tokens * tokens), at / tokens % tokens, at % tokens);
        let segment = |t: usize| {
            attend.segments.as_ref().map_or(1, |s| s[bh / heads * tokens + t])
        };
        let hidden = segment(j) == 0 || segment(i) != segment(j) || attend.causal && j > i;
        let near = |r: &usize| {
            let chunk = |t: usize| {
                order.slots[(bh * rounds + r) * tokens + t] as usize / attend.chunk
            };
            chunk(j) == chunk(i) || chunk(j) + 1 == chunk(i)
        };
        if hidden { 0.0 } else { (0..rounds).filter(near).count() as f64 }
    })
}

#[cfg(test)]
mod tests;
