//! What attention is checked against: its naive f64 reference, with all T·S weights, and the cases.

use super::{Attend, attention, attention_packed};
use crate::gradcheck::{Case, Tolerance};
use crate::graph::Var;
use crate::reference::Array;
use crate::rng::Key;
use crate::tensor::Tensor;
use hearken_kernels::attention::scores::{
    Adjacency, Alibi, And, Bias, Buckets, Causal, Global, Mask, Or, Padding, Prefix, Relative,
    Strided, T5, UNRELATED, Window,
};
use hearken_kernels::random::{Dropout, Stream};

/// What is added to score (b, h, i, j), −∞ if hidden, given the learned tables.
type Added = fn(&[Array], usize, usize, usize, usize) -> f64;

/// Inputs are q, k, v (or qkv), then tables.
fn reference(attend: &Attend, added: Added, inputs: &[Array], packed: bool) -> Array {
    let (h, kv) = (attend.heads, attend.kv_heads);
    let [b, t, _] = inputs[0].shape.dims() else { panic!("queries have three dimensions") };
    let (b, t, s) = (*b, *t, if packed { *t } else { inputs[1].shape.dims()[1] });
    let tables = &inputs[if packed { 1 } else { 3 }..];
    let columns = inputs[0].shape.width();
    let (width, value_width) = match (packed, attend.value_width) {
        (false, _) => (columns / h, inputs[2].shape.width() / kv),
        (true, None) => (columns / (h + 2 * kv), columns / (h + 2 * kv)),
        (true, Some(own)) => ((columns - kv * own) / (h + kv), own),
    };
    // Heads of q, k and v; in a packed row they follow each other.
    let q = |b: usize, i: usize, n: usize| &inputs[0].row(b * t + i)[n * width..][..width];
    let k = |b: usize, j: usize, n: usize| {
        let (x, n) = if packed { (&inputs[0], h + n) } else { (&inputs[1], n) };
        &x.row(b * s + j)[n * width..][..width]
    };
    let v = |b: usize, j: usize, n: usize| {
        let (x, start) = if packed { (&inputs[0], (h + kv) * width) } else { (&inputs[2], 0) };
        &x.row(b * s + j)[start + n * value_width..][..value_width]
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

/// The cases that check it.
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
    let wide_values_packed = {
        let attend = || Attend::new(4).kv_heads(2).value_width(3).rule(Causal::new(66, 66));
        let forward = move |x: &[Var]| attention_packed(&x[0], &[], &attend());
        let reference = move |x: &[Array]| reference(&attend(), hidden_ahead, x, true);
        Case::new("attention", "packed_with_values_of_another_width", tolerance, forward, reference)
            .normal("qkv", [2, 66, 6 * 5 + 2 * 3])
            .extra("bias", bias([1, 1, 66, 66], hidden_ahead))
            .torch(concat!("q, k, v = qkv.split([20, 10, 6], -1)\n", torch!(4, 2, "bias")))
    };
    vec![
        apart("cross", [2, 5, 7, 2, 2, 4, 3], |_| Attend::new(2), |_, _, _, _, _| 0.0)
            .torch(torch!(2, 2, "None")),
        causal_packed,
        wide_values_packed,
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
            "prefix",
            [2, 7, 7, 1, 1, 4, 4],
            |_| Attend::new(1).rule(Prefix::new(vec![3, 0], 7, 7)),
            behind_or_in_prefix,
        )
        .extra("bias", bias([2, 1, 7, 7], behind_or_in_prefix))
        .torch(torch!(1, 1, "bias")),
        apart(
            "strided_and_global",
            [1, 70, 70, 1, 1, 4, 4],
            |_| {
                let far = Or::new(Strided::new(16, 70, 70), Global::new(2, 70, 70));
                Attend::new(1).rule(And(Causal::new(70, 70), far))
            },
            far,
        )
        .extra("bias", bias([1, 1, 70, 70], far))
        .torch(torch!(1, 1, "bias")),
        apart(
            "mask",
            [2, 5, 6, 2, 2, 4, 4],
            |_| {
                let visible = (0..2 * 5 * 6).map(|n| seen(n / 30, n / 6 % 5, n % 6)).collect();
                Attend::new(2).rule(Mask::<Vec<bool>>::new(visible, [2, 1, 5, 6]))
            },
            |_, b, _, i, j| if seen(b, i, j) { 0.0 } else { HIDDEN },
        )
        .extra(
            "bias",
            bias([2, 1, 5, 6], |_, b, _, i, j| if seen(b, i, j) { 0.0 } else { HIDDEN }),
        )
        .torch(torch!(2, 2, "bias")),
        apart(
            "adjacency_with_relations",
            [2, 6, 6, 2, 2, 4, 4],
            |table| {
                let relations = (0..2 * 6 * 6).map(|n| relation(n / 36, n / 6 % 6, n % 6));
                let relations: Vec<u8> = relations.collect();
                let table = table[0].value().clone();
                Attend::new(2).rule(Adjacency::new(relations, [2, 6, 6], table, 2))
            },
            |tables, b, h, i, j| match relation(b, i, j) {
                UNRELATED => HIDDEN,
                kind => tables[0].row(usize::from(kind))[h],
            },
        )
        .normal("table", [3, 2])
        .extra("kinds", Array::build([2, 6, 6], |n| {
            f64::from(relation(n / 36, n / 6 % 6, n % 6).min(2))
        }))
        .extra("bias", bias([2, 1, 6, 6], |_, b, _, i, j| {
            if relation(b, i, j) == UNRELATED { HIDDEN } else { 0.0 }
        }))
        .torch(torch!(2, 2, "bias + table[kinds.long()].permute(0, 3, 1, 2)")),
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

fn behind_or_in_prefix(_: &[Array], b: usize, _: usize, i: usize, j: usize) -> f64 {
    if j <= i || j < [3, 0][b] { 0.0 } else { HIDDEN }
}

/// Behind, and either a multiple of 16 away or one of the first two.
fn far(_: &[Array], _: usize, _: usize, i: usize, j: usize) -> f64 {
    if j <= i && ((i - j).is_multiple_of(16) || j < 2 || i < 2) { 0.0 } else { HIDDEN }
}

/// Some mask without order; query 1 of the first sequence sees nothing but key 4.
fn seen(b: usize, i: usize, j: usize) -> bool {
    if (b, i) == (0, 1) { j == 4 } else { (b + 2 * i + j * j) % 3 != 1 }
}

/// Three kinds of edges, and none.
fn relation(b: usize, i: usize, j: usize) -> u8 {
    match (i * j + b) % 4 {
        3 => UNRELATED,
        kind => kind as u8,
    }
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
