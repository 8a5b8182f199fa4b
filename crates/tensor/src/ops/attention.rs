//! Attention of every kind: `out = softmax(scale·q·kᵀ, changed by a rule)·v`, head by head.
//!
//! Shapes: q (B, T, H·D), k (B, S, K·D), v (B, S, K·Dv), out (B, T, H·Dv); or one packed
//! (B, T, (H + 2K)·D) as a fused projection gives it. H is a multiple of K: query head h reads
//! key/value head h/(H/K), so K = H is multi-head, K = 1 multi-query, and between them grouped.
//! What is visible and what is added to scores is a [`Scores`] rule: masks and biases of
//! [`hearken_kernels::attention::scores`], composed at run time behind a pointer.
//!
//! Derivation, per head, with s = scale·q·kᵀ + rule, p = softmax(s), p̃ = p·m (dropout):
//! 1. `dv = p̃ᵀ·dout`
//! 2. `dp = (dout·vᵀ)·m`
//! 3. `ds = p·(dp − Σⱼ p·dp)`, and `Σⱼ p·dp = dout·out`
//! 4. `dq = scale·ds·k`
//! 5. `dk = scale·dsᵀ·q`
//! 6. the learned numbers of a rule: the sum of ds over the scores they were added to
//!
//! Saves q, k, v, out and one float per query and head (the log-sum-exp); never T·S of anything:
//! the kernel works in tiles, forward and backward ([`hearken_kernels::attention`]).

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Slot, Var};
use crate::half::Saved;
use crate::reference::Array;
use crate::rng::Key;
use crate::tensor::Tensor;
use hearken_kernels::Write;
use hearken_kernels::attention::scores::{
    Alibi, And, Bias, Buckets, Causal, Full, Padding, Relative, T5, Window,
};
use hearken_kernels::attention::{self as kernel, Rows, RowsMut, Scores};
use hearken_kernels::random::{Dropout, Stream};
use std::sync::Arc;

/// What is visible and what is added to scores, chosen at run time.
pub type Rule = Arc<dyn Scores + Send + Sync>;

/// How to attend.
#[derive(Clone)]
pub struct Attend {
    /// H
    pub heads: usize,
    /// K
    pub kv_heads: usize,
    /// Factor of q·k; 1/√D if `None`.
    pub scale: Option<f32>,
    /// Of the weights: the share that is dropped, and the randomness that decides which.
    pub dropout: Option<(f32, Key)>,
    /// Masks and biases.
    pub rule: Rule,
}

impl Attend {
    /// `heads` of their own, everything visible, nothing dropped.
    pub fn new(heads: usize) -> Self {
        Self { heads, kv_heads: heads, scale: None, dropout: None, rule: Arc::new(Full) }
    }

    /// Groups of heads that share keys and values.
    pub fn kv_heads(mut self, kv_heads: usize) -> Self {
        self.kv_heads = kv_heads;
        self
    }

    /// Another factor than 1/√D.
    pub fn scale(mut self, scale: f32) -> Self {
        self.scale = Some(scale);
        self
    }

    /// Drops a share `p` of the weights.
    pub fn dropout(mut self, p: f32, key: Key) -> Self {
        self.dropout = (p > 0.0).then_some((p, key));
        self
    }

    /// Masks and biases.
    pub fn rule(mut self, rule: impl Scores + Send + Sync + 'static) -> Self {
        self.rule = Arc::new(rule);
        self
    }
}

/// Attention of `q` to `k` and `v`. `learned` are the variables that the rule's tables were taken
/// from, in the rule's order: they get its gradients.
pub fn attention(q: &Var, k: &Var, v: &Var, learned: &[&Var], attend: &Attend) -> Var {
    run(Operands::Apart([q, k, v].map(|x| x.value().clone())), &[q, k, v], learned, attend)
}

/// Attention of a packed projection (B, T, (H + 2K)·D) to itself.
pub fn attention_packed(qkv: &Var, learned: &[&Var], attend: &Attend) -> Var {
    run(Operands::Packed(qkv.value().clone()), &[qkv], learned, attend)
}

/// q, k and v, one by one or packed.
enum Operands<T> {
    Apart([T; 3]),
    Packed(T),
}

impl<T> Operands<T> {
    fn map<U>(&self, f: impl Fn(&T) -> U) -> Operands<U> {
        match self {
            Operands::Apart(parts) => Operands::Apart(parts.each_ref().map(f)),
            Operands::Packed(all) => Operands::Packed(f(all)),
        }
    }

    fn count(&self) -> usize {
        match self {
            Operands::Apart(_) => 3,
            Operands::Packed(_) => 1,
        }
    }
}

impl Operands<Tensor> {
    fn shape(&self, attend: &Attend) -> kernel::Shape {
        let Attend { heads, kv_heads, .. } = *attend;
        let part = |x: &Tensor, heads: usize, what: &str| {
            let [batch, rows, width] = x.dims();
            assert!(
                heads > 0 && width % heads == 0,
                "{what} of shape {} do not split into {heads} heads",
                x.shape()
            );
            (batch, rows, width / heads)
        };
        match self {
            Operands::Apart([q, k, v]) => {
                let (batch, queries, width) = part(q, heads, "queries");
                let (k_batch, keys, k_width) = part(k, kv_heads, "keys");
                let (v_batch, v_keys, value_width) = part(v, kv_heads, "values");
                assert!(
                    (batch, keys, width) == (k_batch, v_keys, k_width) && batch == v_batch,
                    "queries {}, keys {} and values {} do not fit for {heads} heads on {kv_heads}",
                    q.shape(),
                    k.shape(),
                    v.shape()
                );
                kernel::Shape { batch, queries, keys, heads, kv_heads, width, value_width }
            }
            Operands::Packed(qkv) => {
                let all = heads + 2 * kv_heads;
                let (batch, tokens, width) = part(qkv, all, "packed queries, keys and values");
                let (queries, keys, value_width) = (tokens, tokens, width);
                kernel::Shape { batch, queries, keys, heads, kv_heads, width, value_width }
            }
        }
    }

    fn rows(&self, s: kernel::Shape) -> [Rows<'_>; 3] {
        match self {
            Operands::Apart([q, k, v]) => [
                Rows::new(q.data(), s.queries, s.heads, s.width),
                Rows::new(k.data(), s.keys, s.kv_heads, s.width),
                Rows::new(v.data(), s.keys, s.kv_heads, s.value_width),
            ],
            Operands::Packed(qkv) => {
                let heads = [s.heads, s.kv_heads, s.kv_heads];
                Rows::packed(qkv.data(), s.queries, heads, [s.width; 3])
            }
        }
    }
}

/// The kernel's view of `operands`.
fn with_kernel<R>(
    operands: &Operands<Tensor>,
    attend: &Attend,
    f: impl FnOnce(&kernel::Attention<'_, &(dyn Scores + Send + Sync)>) -> R,
) -> R {
    let shape = operands.shape(attend);
    let [queries, keys, values] = operands.rows(shape);
    let scores = attend.rule.as_ref();
    f(&kernel::Attention {
        shape,
        queries,
        keys,
        values,
        scale: attend.scale.unwrap_or(1.0 / (shape.width.max(1) as f32).sqrt()),
        dropout: attend.dropout.map(|(p, key)| Dropout::new(key.words(), p)),
        scores: &scores,
    })
}

fn run(operands: Operands<Tensor>, inputs: &[&Var], learned: &[&Var], attend: &Attend) -> Var {
    let tables: Vec<usize> = learned.iter().map(|table| table.shape().len()).collect();
    assert!(
        tables.iter().sum::<usize>() == attend.rule.gradient_len() || tables.is_empty(),
        "tables of {tables:?} numbers for a rule that has learned {}",
        attend.rule.gradient_len()
    );
    let (out, lse) = with_kernel(&operands, attend, |attention| {
        let s = attention.shape;
        let mut out = Tensor::unset([s.batch, s.queries, s.heads * s.value_width]);
        let mut lse = Tensor::unset([s.batch, s.heads, s.queries]);
        attention.forward(out.data_mut(), lse.data_mut());
        (out, lse)
    });
    let inputs = [inputs, learned].concat();
    let saved_out = out.clone();
    Var::from_op(out, &inputs, || AttentionBackward {
        operands: operands.map(Saved::new),
        out: Saved::new(&saved_out),
        lse,
        tables,
        attend: attend.clone(),
    })
}

/// A gradient that is wanted, as rows of heads.
fn rows(slot: Option<Slot<'_>>, rows: usize, heads: usize, width: usize) -> Option<RowsMut<'_>> {
    slot.map(|(data, write)| RowsMut::new(data, write, rows, heads, width))
}

struct AttentionBackward {
    operands: Operands<Saved>,
    out: Saved,
    lse: Tensor,
    /// Lengths of the learned tables.
    tables: Vec<usize>,
    attend: Attend,
}

impl Backward for AttentionBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let operands = self.operands.map(Saved::get);
        let out = self.out.get();
        let first_table = operands.count();
        let mut dtables = None;
        if (0..self.tables.len()).any(|i| gradients.wanted(first_table + i)) {
            dtables = Some(Tensor::unset([self.tables.iter().sum()]));
        }
        with_kernel(&operands, &self.attend, |attention| {
            let s = attention.shape;
            let mut call = |[dqueries, dkeys, dvalues]: [Option<RowsMut<'_>>; 3]| {
                attention.backward(kernel::Gradients {
                    out: out.data(),
                    lse: self.lse.data(),
                    dout: dout.data(),
                    dqueries,
                    dkeys,
                    dvalues,
                    dscores: dtables.as_mut().map(|d| (d.data_mut(), Write::Set)),
                });
            };
            match operands {
                Operands::Apart(_) => gradients.write_many([0, 1, 2], |[dq, dk, dv]| {
                    call([
                        rows(dq, s.queries, s.heads, s.width),
                        rows(dk, s.keys, s.kv_heads, s.width),
                        rows(dv, s.keys, s.kv_heads, s.value_width),
                    ]);
                }),
                Operands::Packed(_) => gradients.write_many([0], |[slot]| match slot {
                    Some((data, write)) => {
                        let heads = [s.heads, s.kv_heads, s.kv_heads];
                        let parts = RowsMut::packed(data, write, s.queries, heads, [s.width; 3]);
                        call(parts.map(Some));
                    }
                    None => call([None, None, None]),
                }),
            }
        });
        if let Some(dtables) = dtables {
            let mut start = 0;
            for (i, len) in self.tables.into_iter().enumerate() {
                let part = &dtables.data()[start..start + len]; // 6
                start += len;
                gradients.write(first_table + i, |dtable, write| match write {
                    Write::Set => dtable.copy_from_slice(part),
                    Write::Add => dtable.iter_mut().zip(part).for_each(|(d, x)| *d += x),
                });
            }
        }
    }
}

/// What is added to score (b, h, i, j), −∞ if hidden, given the learned tables.
type Added = fn(&[Array], usize, usize, usize, usize) -> f64;

/// Inputs are q, k, v (or qkv), then tables.
fn reference(attend: &Attend, added: Added, inputs: &[Array], packed: bool) -> Array {
    let (h, kv) = (attend.heads, attend.kv_heads);
    let [b, t, _] = inputs[0].shape.dims() else { panic!("queries have three dimensions") };
    let (b, t, s) = (*b, *t, if packed { *t } else { inputs[1].shape.dims()[1] });
    let tables = &inputs[if packed { 1 } else { 3 }..];
    let width = inputs[0].shape.width() / if packed { h + 2 * kv } else { h };
    let value_width = if packed { width } else { inputs[2].shape.width() / kv };
    // Heads of q, k and v; in a packed row they follow each other.
    let q = |b: usize, i: usize, n: usize| &inputs[0].row(b * t + i)[n * width..][..width];
    let k = |b: usize, j: usize, n: usize| {
        let (x, n) = if packed { (&inputs[0], h + n) } else { (&inputs[1], n) };
        &x.row(b * s + j)[n * width..][..width]
    };
    let v = |b: usize, j: usize, n: usize| {
        let (x, n) = if packed { (&inputs[0], h + kv + n) } else { (&inputs[2], n) };
        &x.row(b * s + j)[n * value_width..][..value_width]
    };
    let scale = attend.scale.map_or(1.0 / (width as f64).sqrt(), f64::from);
    let mut out = Array::zeros([b, t, h * value_width]);
    for row in 0..b * h * t {
        let (b, n, i) = (row / (h * t), row / t % h, row % t);
        let score = |j| {
            let dot: f64 = q(b, i, n).iter().zip(k(b, j, n / (h / kv))).map(|(x, y)| x * y).sum();
            scale * dot + added(tables, b, n, i, j)
        };
        let scores: Vec<f64> = (0..s).map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if largest == f64::NEG_INFINITY {
            continue; // sees nothing: zeros
        }
        let sum: f64 = scores.iter().map(|x| (x - largest).exp()).sum();
        for (j, x) in scores.iter().enumerate() {
            let weight = (x - largest).exp() / sum * factor(attend, row, j);
            let at = (b * t + i) * h * value_width + n * value_width;
            for (out, v) in out.data[at..].iter_mut().zip(v(b, j, n / (h / kv))) {
                *out += weight * v;
            }
        }
    }
    out
}

/// What dropout multiplies weight j of row (b·H + h)·T + i with.
fn factor(attend: &Attend, row: usize, j: usize) -> f64 {
    let Some((p, key)) = attend.dropout else { return 1.0 };
    let dropout = Dropout::new(key.words(), p);
    let unit = (Stream::new(dropout.key, row as u32).bits(j as u32) >> 8) as f32 / (1 << 24) as f32;
    if unit < p { 0.0 } else { f64::from(dropout.scale()) }
}

const KEY: Key = Key { seed: 1, step: 2, site: 3 };
const HIDDEN: f64 = f64::NEG_INFINITY;

/// Splits q, k and v into heads; attends with `$mask` added to the scores.
macro_rules! torch {
    ($heads:literal, $kv_heads:literal, $mask:literal) => {
        concat!(
            "def heads(x, n): return x.unflatten(-1, (n, -1)).transpose(1, 2)\n",
            "q, k, v = heads(q, ", $heads, "), heads(k, ", $kv_heads, "), heads(v, ", $kv_heads, ")\n",
            "out = F.scaled_dot_product_attention(q, k, v, attn_mask=", $mask, ", enable_gqa=True)\n",
            "out = out.transpose(1, 2).flatten(2)",
        )
    };
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 3e-6,
        backward: 1e-5,
        reason: "a score is off by some 5e-7, and e^s as much relatively; ds is a difference of sums of weighted products",
    };
    // (B, T, S, H, K, D, Dv)
    let apart = |name, [b, t, s, h, k, d, dv]: [usize; 7], attend: fn(&[Var]) -> Attend, added: Added| {
        let forward = move |x: &[Var]| {
            let tables: Vec<&Var> = x[3..].iter().collect();
            attention(&x[0], &x[1], &x[2], &tables, &attend(&x[3..]))
        };
        let reference = move |x: &[Array]| {
            let leaves: Vec<Var> = x[3..]
                .iter()
                .map(|x| Var::constant(Tensor::zeros(x.shape)))
                .collect();
            reference(&attend(&leaves), added, x, false)
        };
        Case::new("attention", name, tolerance, forward, reference)
            .normal("q", [b, t, h * d])
            .normal("k", [b, s, k * d])
            .normal("v", [b, s, k * dv])
    };
    let bias = |shape: [usize; 4], added: Added| {
        let [_, h, t, s] = shape;
        Array::build(shape, |n| added(&[], n / (h * t * s), n / (t * s) % h, n / s % t, n % s))
    };
    let causal_packed = {
        let attend = || Attend::new(4).kv_heads(2).rule(Causal::new(70, 70));
        let forward = move |x: &[Var]| attention_packed(&x[0], &[], &attend());
        let reference = move |x: &[Array]| reference(&attend(), hidden_ahead, x, true);
        Case::new("attention", "packed_grouped_causal", tolerance, forward, reference)
            .normal("qkv", [1, 70, 8 * 5])
            .extra("bias", bias([1, 1, 70, 70], hidden_ahead))
            .torch(concat!(
                "q, k, v = qkv.split([20, 10, 10], -1)\n",
                torch!(4, 2, "bias")
            ))
    };
    vec![
        apart("cross", [2, 5, 7, 2, 2, 4, 3], |_| Attend::new(2), |_, _, _, _, _| 0.0)
            .torch(torch!(2, 2, "None")),
        causal_packed,
        apart(
            "scaled_multi_query_cache",
            [2, 3, 66, 4, 1, 8, 8],
            |_| Attend::new(4).kv_heads(1).scale(0.7).rule(Causal::new(3, 66)),
            |_, _, _, i, j| if j <= i + 63 { 0.0 } else { HIDDEN },
        )
        .extra("bias", bias([1, 1, 3, 66], |_, _, _, i, j| if j <= i + 63 { 0.0 } else { HIDDEN }))
        .torch(concat!("q = q * (0.7 * 8 ** 0.5)\n", torch!(4, 1, "bias"))),
        apart(
            "window",
            [1, 66, 66, 1, 1, 5, 4],
            |_| Attend::new(1).rule(Window::causal(5, 66, 66)),
            near,
        )
        .extra("bias", bias([1, 1, 66, 66], near))
        .torch(torch!(1, 1, "bias")),
        apart(
            "causal_alibi",
            [1, 9, 9, 3, 3, 4, 4],
            |_| Attend::new(3).rule(And(Causal::new(9, 9), Alibi::new(3, 9, 9))),
            penalty,
        )
        .extra("bias", bias([1, 3, 9, 9], penalty))
        .torch(torch!(3, 3, "bias")),
        apart(
            "t5_bias",
            [2, 9, 12, 2, 2, 4, 4],
            |table| {
                let table = table[0].value().clone();
                Attend::new(2).rule(T5::new(table, 2, Buckets::bidirectional(8, 10), 9, 12))
            },
            |tables, _, h, i, j| tables[0].row(bucket(i, j))[h],
        )
        .normal("table", [8, 2])
        .extra("buckets", Array::build([9, 12], |n| bucket(n / 12, n % 12) as f64))
        .torch(torch!(2, 2, "table[buckets.long()].permute(2, 0, 1)")),
        apart(
            "relative_bias_and_padding",
            [2, 7, 7, 2, 1, 4, 4],
            |table| {
                let relative = Relative::new(table[0].value().clone(), 2, 7, 7);
                Attend::new(2).kv_heads(1).rule(And(Padding::new(vec![7, 4]), relative))
            },
            |tables, b, h, i, j| unpadded(&[], b, h, i, j) + tables[0].row(h)[place(i, j)],
        )
        .normal("table", [2, 5])
        .extra("bias", bias([2, 1, 7, 7], unpadded))
        .extra("places", Array::build([7, 7], |n| place(n / 7, n % 7) as f64))
        .torch(torch!(2, 1, "bias + table[:, places.long()]")),
        apart(
            "learned_bias",
            [2, 5, 6, 2, 2, 4, 4],
            |table| Attend::new(2).rule(Bias::new(table[0].value().clone(), [1, 2, 5, 6])),
            |tables, _, h, i, j| tables[0].data[(h * 5 + i) * 6 + j],
        )
        .normal("table", [1, 2, 5, 6])
        .torch(torch!(2, 2, "table")),
        apart(
            "nothing_seen",
            [2, 5, 6, 1, 1, 4, 4],
            |_| Attend::new(1).rule(Padding::new(vec![0, 6])),
            |_, b, _, _, _| if b == 0 { HIDDEN } else { 0.0 },
        )
        .extra("seen", Array::new([2, 1, 1], vec![0.0, 1.0]))
        .torch("out = torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v * seen"),
        apart(
            "dropout",
            [2, 5, 6, 2, 2, 4, 4],
            |_| Attend::new(2).dropout(0.3, KEY),
            |_, _, _, _, _| 0.0,
        )
        .extra("kept", {
            let attend = Attend::new(2).dropout(0.3, KEY);
            Array::build([2, 2, 5, 6], |n| factor(&attend, n / 6, n % 6))
        })
        .torch(concat!(
            "def heads(x): return x.unflatten(-1, (2, -1)).transpose(1, 2)\n",
            "weights = torch.softmax(heads(q) @ heads(k).transpose(-1, -2) / 2, -1) * kept\n",
            "out = (weights @ heads(v)).transpose(1, 2).flatten(2)",
        )),
    ]
}

fn hidden_ahead(_: &[Array], _: usize, _: usize, i: usize, j: usize) -> f64 {
    if j <= i { 0.0 } else { HIDDEN }
}

fn near(_: &[Array], _: usize, _: usize, i: usize, j: usize) -> f64 {
    if j <= i && i - j < 5 { 0.0 } else { HIDDEN }
}

fn penalty(_: &[Array], _: usize, h: usize, i: usize, j: usize) -> f64 {
    let slope = [1.0 / 16.0, 1.0 / 256.0, 0.25][h]; // 2⁻⁴, 2⁻⁸, then the first of four heads
    if j <= i { -slope * (i - j) as f64 } else { HIDDEN }
}

fn unpadded(_: &[Array], b: usize, _: usize, _: usize, j: usize) -> f64 {
    if j < [7, 4][b] { 0.0 } else { HIDDEN }
}

/// Place of j − i in a table that reaches two to either side.
fn place(i: usize, j: usize) -> usize {
    (j + 2).saturating_sub(i).min(4)
}

/// T5's bucket of query i, the i + 3rd token, and key j: 2 exact and 2 growing on either side.
fn bucket(i: usize, j: usize) -> usize {
    let near = |distance: usize| match distance {
        0 | 1 => distance,
        2..=4 => 2, // below 2·√5 = 4.5, the middle between 2 and 10
        _ => 3,
    };
    if j > i + 3 { 4 + near(j - i - 3) } else { near(i + 3 - j) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half::{Storage, with_storage};
    use crate::rng::Rng;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    fn leaf(seed: u64, shape: [usize; 3]) -> Var {
        Var::leaf(Rng::new(seed).normal(shape, 1.0))
    }

    #[test]
    fn frozen_inputs_get_no_gradient_and_the_others_the_same() {
        let (q, k, v) = (leaf(1, [1, 5, 8]), leaf(2, [1, 5, 8]), leaf(3, [1, 5, 8]));
        let dout = Rng::new(4).normal([1, 5, 8], 1.0);
        let attend = Attend::new(2);
        attention(&q, &k, &v, &[], &attend).backward_with(dout.clone());
        let (k2, v2) = (Var::constant(k.value().clone()), Var::leaf(v.value().clone()));
        attention(&q.detach(), &k2, &v2, &[], &attend).backward_with(dout);
        assert_eq!(v2.gradient().unwrap().data(), v.gradient().unwrap().data());
    }

    #[test]
    fn one_variable_may_be_queries_keys_and_values() {
        let x = leaf(1, [1, 5, 8]);
        let parts = [1, 2, 3].map(|_| Var::leaf(x.value().clone()));
        let dout = Rng::new(4).normal([1, 5, 8], 1.0);
        attention(&x, &x, &x, &[], &Attend::new(2)).backward_with(dout.clone());
        attention(&parts[0], &parts[1], &parts[2], &[], &Attend::new(2)).backward_with(dout);
        let parts = parts.map(|x| x.gradient().unwrap());
        for (i, got) in x.gradient().unwrap().data().iter().enumerate() {
            let want = parts[0].data()[i] + parts[1].data()[i] + parts[2].data()[i];
            assert!((got - want).abs() <= 4.0 * f32::EPSILON * (1.0 + want.abs()));
        }
    }

    #[test]
    fn sixteen_bit_storage_changes_gradients_by_its_rounding_only() {
        let run = |storage| {
            let x = leaf(1, [2, 9, 24]);
            let out = with_storage(storage, || {
                attention_packed(&x, &[], &Attend::new(2).rule(Causal::new(9, 9)))
            });
            out.backward_with(Rng::new(4).normal([2, 9, 8], 1.0));
            x.gradient().unwrap()
        };
        let exact = Array::from(&run(Storage::F32)).data;
        // Saved numbers are off by 2⁻⁹ (2⁻¹²) of themselves; a score of four such products by
        // about as much absolutely, and so is a weight relatively.
        for (storage, bits) in [(Storage::Bf16, 5), (Storage::F16, 8)] {
            let error = crate::gradcheck::error(run(storage).data(), &exact);
            assert!(error < 2.0_f64.powi(-bits) && error > 0.0, "{storage:?}: {error}");
        }
    }

    #[test]
    #[should_panic(expected = "queries of shape (1, 2, 7) do not split into 2 heads")]
    fn heads_must_split_the_width() {
        let x = leaf(1, [1, 2, 7]);
        let _ = attention(&x, &x, &x, &[], &Attend::new(2));
    }

    #[test]
    #[should_panic(expected = "queries (1, 2, 8), keys (1, 3, 6) and values (1, 3, 8) do not fit")]
    fn shapes_must_fit() {
        let (q, k, v) = (leaf(1, [1, 2, 8]), leaf(1, [1, 3, 6]), leaf(1, [1, 3, 8]));
        let _ = attention(&q, &k, &v, &[], &Attend::new(2));
    }

    #[test]
    #[should_panic(expected = "tables of [3] numbers for a rule that has learned 0")]
    fn learned_tables_must_be_those_of_the_rule() {
        let x = leaf(1, [1, 2, 8]);
        let table = Var::leaf(Tensor::zeros([3]));
        let _ = attention(&x, &x, &x, &[&table], &Attend::new(2));
    }
}
