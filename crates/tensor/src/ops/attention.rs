//! Attention: every query takes a weighted mean of the values, weighted by how well it fits the
//! keys. Self and cross, with grouped heads, any rule of visibility and bias, and dropout.
//!
//! ```text
//! s = scale · q·kᵀ, changed by the rule        p = softmax(s)        out = p·v
//! ```
//! Shapes: q (B, T, H·D), k (B, S, K·D), v (B, S, K·Dv), out (B, T, H·Dv); or one packed
//! projection (B, T, (H + 2K)·D) that holds q, k and v side by side. Query head h reads key/value
//! head h / (H/K).
//!
//! Derivation (dropout aside; see the kernel for it), for one head:
//! 1. `dv = pᵀ·dout`
//! 2. `dp = dout·vᵀ`
//! 3. `ds = p ∘ (dp − δ)` with `δᵢ = Σⱼ pᵢⱼ·dpᵢⱼ = doutᵢ·outᵢ`, the Jacobian of softmax
//! 4. `dq = scale · ds·k`
//! 5. `dk = scale · dsᵀ·q`
//! 6. a learned bias gets `ds`, summed over the places where it was added.
//!
//! Saves q, k, v, out and the log-sum-exp of every row; the T×S matrices are never held, neither
//! forward nor backward (`hearken_kernels::attention`).

use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::reference::Array;
use crate::rng::Key;
use crate::tensor::Tensor;
use hearken_kernels::attention::scores::{Alibi, And, Bias, Buckets, Causal, Relative, T5};
use hearken_kernels::attention::{self as kernel, Rows, RowsMut, Scores, Shape};
use hearken_kernels::random::Dropout;

/// How heads are cut and weights are treated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// H
    pub heads: usize,
    /// K; divides H.
    pub kv_heads: usize,
    /// Factor of q·k; 1/√D if none is given.
    pub scale: Option<f32>,
    /// The chance that a weight is dropped, and where the randomness comes from.
    pub dropout: Option<(f32, Key)>,
}

impl Spec {
    /// Without dropout, with the usual scale.
    pub fn new(heads: usize, kv_heads: usize) -> Self {
        Self { heads, kv_heads, scale: None, dropout: None }
    }
}

/// Attention of separate queries, keys and values. `learned` is the variable whose numbers the
/// rule adds to scores, if it has any: it gets their gradient.
pub fn attention<M: Scores + Send + 'static>(
    q: &Var,
    k: &Var,
    v: &Var,
    spec: Spec,
    rule: M,
    learned: Option<&Var>,
) -> Var {
    let [batch, queries, q_width] = q.value().dims();
    let [k_batch, keys, k_width] = k.value().dims();
    let [v_batch, v_keys, v_width] = v.value().dims();
    let Spec { heads, kv_heads, .. } = spec;
    let width = q_width / heads.max(1);
    let value_width = v_width / kv_heads.max(1);
    assert!(
        batch == k_batch
            && batch == v_batch
            && keys == v_keys
            && heads > 0
            && kv_heads > 0
            && heads * width == q_width
            && kv_heads * width == k_width
            && kv_heads * value_width == v_width,
        "queries {}, keys {} and values {} do not fit {heads} and {kv_heads} heads",
        q.shape(),
        k.shape(),
        v.shape()
    );
    let shape = Shape { batch, queries, keys, heads, kv_heads, width, value_width };
    let saved = Operands::Separate([q, k, v].map(|x| x.value().clone()));
    run(saved, &[q, k, v], shape, spec, rule, learned)
}

/// Self-attention of a packed projection (B, T, (H + 2K)·D), read and differentiated in place.
pub fn attention_packed<M: Scores + Send + 'static>(
    packed: &Var,
    spec: Spec,
    rule: M,
    learned: Option<&Var>,
) -> Var {
    let [batch, tokens, row] = packed.value().dims();
    let Spec { heads, kv_heads, .. } = spec;
    let parts = heads + 2 * kv_heads;
    let width = row / parts.max(1);
    assert!(
        heads > 0 && kv_heads > 0 && width * parts == row,
        "a packed projection of shape {} does not fit {heads} and twice {kv_heads} heads",
        packed.shape()
    );
    let shape = Shape {
        batch,
        queries: tokens,
        keys: tokens,
        heads,
        kv_heads,
        width,
        value_width: width,
    };
    run(Operands::Packed(packed.value().clone()), &[packed], shape, spec, rule, learned)
}

/// Where queries, keys and values are.
enum Operands<T> {
    Separate([T; 3]),
    Packed(T),
}

impl<T> Operands<T> {
    fn map<U>(&self, f: impl Fn(&T) -> U) -> Operands<U> {
        match self {
            Self::Separate(three) => Operands::Separate(three.each_ref().map(f)),
            Self::Packed(one) => Operands::Packed(f(one)),
        }
    }
}

impl Operands<Tensor> {
    fn rows(&self, shape: &Shape) -> [Rows<'_>; 3] {
        let Shape { queries, keys, heads, kv_heads, width, value_width, .. } = *shape;
        match self {
            Self::Separate([q, k, v]) => [
                Rows::new(q.data(), queries, heads, width),
                Rows::new(k.data(), keys, kv_heads, width),
                Rows::new(v.data(), keys, kv_heads, value_width),
            ],
            Self::Packed(x) => {
                Rows::packed(x.data(), queries, [heads, kv_heads, kv_heads], [width; 3])
            }
        }
    }
}

fn kernel_of<'a, M: Scores>(
    operands: &'a Operands<Tensor>,
    shape: Shape,
    spec: Spec,
    rule: &'a M,
) -> kernel::Attention<'a, M> {
    let [queries, keys, values] = operands.rows(&shape);
    kernel::Attention {
        shape,
        queries,
        keys,
        values,
        scale: spec.scale.unwrap_or(1.0 / (shape.width as f32).sqrt()),
        dropout: spec.dropout.map(|(p, key)| Dropout::new(key.words(), p)),
        scores: rule,
    }
}

fn run<M: Scores + Send + 'static>(
    operands: Operands<Tensor>,
    inputs: &[&Var],
    shape: Shape,
    spec: Spec,
    rule: M,
    learned: Option<&Var>,
) -> Var {
    let numbers = learned.map_or(0, |bias| bias.shape().len());
    assert_eq!(
        numbers,
        rule.gradient_len(),
        "the rule has {} learned numbers, but {numbers} were given to learn",
        rule.gradient_len()
    );
    let Shape { batch, queries, heads, value_width, .. } = shape;
    let mut out = Tensor::unset([batch, queries, heads * value_width]);
    let mut lse = Tensor::unset([batch, heads, queries]);
    kernel_of(&operands, shape, spec, &rule).forward(out.data_mut(), lse.data_mut());
    let inputs: Vec<&Var> = inputs.iter().copied().chain(learned).collect();
    Var::from_op(out.clone(), &inputs, || AttentionBackward {
        operands: operands.map(Saved::new),
        out: Saved::new(&out),
        lse,
        shape,
        spec,
        rule,
    })
}

struct AttentionBackward<M> {
    operands: Operands<Saved>,
    out: Saved,
    lse: Tensor,
    shape: Shape,
    spec: Spec,
    rule: M,
}

impl<M: Scores + Send + 'static> Backward for AttentionBackward<M> {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let Self { operands, out, lse, shape, spec, rule } = *self;
        let operands = operands.map(Saved::get);
        let out = out.get();
        let attention = kernel_of(&operands, shape, spec, &rule);
        let Shape { queries, keys, heads, kv_heads, width, value_width, .. } = shape;
        let (out, lse, dout) = (out.data(), lse.data(), dout.data());
        match &operands {
            Operands::Separate(_) => gradients.write_many([0, 1, 2, 3], |[q, k, v, dscores]| {
                let dqueries = q.map(|(d, write)| RowsMut::new(d, write, queries, heads, width)); // 4
                let dkeys = k.map(|(d, write)| RowsMut::new(d, write, keys, kv_heads, width)); // 5
                let dvalues =
                    v.map(|(d, write)| RowsMut::new(d, write, keys, kv_heads, value_width)); // 1
                let to = kernel::Gradients { out, lse, dout, dqueries, dkeys, dvalues, dscores };
                attention.backward(to);
            }),
            Operands::Packed(_) => gradients.write_many([0, 1], |[packed, dscores]| {
                let parts = packed.map(|(d, write)| {
                    let heads = [heads, kv_heads, kv_heads];
                    RowsMut::packed(d, write, queries, heads, [width; 3]).map(Some)
                });
                let [dqueries, dkeys, dvalues] = parts.unwrap_or([None, None, None]); // 4, 5, 1
                let to = kernel::Gradients { out, lse, dout, dqueries, dkeys, dvalues, dscores };
                attention.backward(to);
            }),
        }
    }
}

/// The sizes of a case.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    queries: usize,
    keys: usize,
    heads: usize,
    kv_heads: usize,
    width: usize,
    value_width: usize,
}

/// What a case adds to scores.
#[derive(Clone, Copy, PartialEq)]
enum Added {
    Nothing,
    Alibi,
    T5,
    Relative,
    Bias,
}

const BUCKETS: usize = 6;
const FARTHEST: usize = 8;
const REACH: usize = 3;
const DROPOUT: (f32, Key) = (0.25, Key { seed: 3, step: 5, site: 7 });

impl Sizes {
    /// Is key j after the place of query i, where the queries are the last of the keys?
    fn ahead(self, i: usize, j: usize) -> bool {
        j + self.queries > i + self.keys
    }

    /// j − (place of query i)
    fn distance(self, i: usize, j: usize) -> isize {
        (j + self.queries) as isize - (i + self.keys) as isize
    }

    /// What `added` adds to the score (b, h, i, j), given the learned numbers.
    fn bias(self, added: Added, learned: Option<&Array>, [b, h, i, j]: [usize; 4]) -> f64 {
        let distance = self.distance(i, j);
        let at = |index: &[usize]| learned.map_or(0.0, |table| table.at(index));
        match added {
            Added::Nothing => 0.0,
            Added::Alibi => {
                f64::from(Alibi::slopes(self.heads)[h]) * -(distance.unsigned_abs() as f64)
            }
            Added::T5 => at(&[Buckets::causal(BUCKETS, FARTHEST).bucket(distance), h]),
            Added::Relative => {
                let reach = REACH as isize;
                at(&[h, (distance.clamp(-reach, reach) + reach) as usize])
            }
            Added::Bias => at(&[b, h, i, j]),
        }
    }

    fn scores_shape(self) -> [usize; 4] {
        [self.batch, self.heads, self.queries, self.keys]
    }

    /// The chosen attention on the inputs of a case: operands, then perhaps learned numbers.
    fn forward(self, packed: bool, added: Added, spec: Spec, v: &[Var]) -> Var {
        let causal = Causal::new(self.queries, self.keys);
        let learned = v.get(if packed { 1 } else { 3 });
        let table = || learned.map_or_else(|| Tensor::zeros([0]), |table| table.value().clone());
        let (queries, keys, heads) = (self.queries, self.keys, self.heads);
        macro_rules! with {
            ($rule:expr) => {
                if packed {
                    attention_packed(&v[0], spec, $rule, learned)
                } else {
                    attention(&v[0], &v[1], &v[2], spec, $rule, learned)
                }
            };
        }
        match added {
            Added::Nothing => with!(causal),
            Added::Alibi => with!(And(causal, Alibi::new(heads, queries, keys))),
            Added::T5 => {
                let buckets = Buckets::causal(BUCKETS, FARTHEST);
                with!(And(causal, T5::new(table(), heads, buckets, queries, keys)))
            }
            Added::Relative => with!(And(causal, Relative::new(table(), REACH, queries, keys))),
            Added::Bias => with!(And(causal, Bias::new(table(), self.scores_shape()))),
        }
    }

    /// Naive attention of separate operands.
    fn reference(self, [q, k, v]: [&Array; 3], added: Added, learned: Option<&Array>, keep: &Array) -> Array {
        let Sizes { batch, queries, keys, heads, kv_heads, width, value_width } = self;
        let mut out = Array::zeros([batch, queries, heads * value_width]);
        for n in 0..batch * heads * queries {
            let (b, h, i) = (n / queries / heads, n / queries % heads, n % queries);
            let group = h / (heads / kv_heads);
            let score = |j: usize| {
                if self.ahead(i, j) {
                    return f64::NEG_INFINITY;
                }
                let place = |d| (h * width + d, group * width + d);
                let dot: f64 = (0..width)
                    .map(|d| q.at(&[b, i, place(d).0]) * k.at(&[b, j, place(d).1]))
                    .sum();
                dot / (width as f64).sqrt() + self.bias(added, learned, [b, h, i, j])
            };
            let scores: Vec<f64> = (0..keys).map(score).collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if top == f64::NEG_INFINITY {
                continue; // a query that sees nothing gives zeros
            }
            let sum: f64 = scores.iter().map(|s| (s - top).exp()).sum();
            for d in 0..value_width {
                let weighted = (0..keys).map(|j| {
                    let weight = (scores[j] - top).exp() / sum * keep.at(&[b, h, i, j]);
                    weight * v.at(&[b, j, group * value_width + d])
                });
                out.data[(b * queries + i) * heads * value_width + h * value_width + d] =
                    weighted.sum();
            }
        }
        out
    }
}

/// Columns `from..to` of the rows of a (B, T, …) array.
fn columns(x: &Array, from: usize, to: usize) -> Array {
    let [batch, tokens] = [x.shape.dims()[0], x.shape.dims()[1]];
    let data = (0..batch * tokens).flat_map(|row| x.row(row)[from..to].to_vec()).collect();
    Array::new([batch, tokens, to - from], data)
}

/// PyTorch's side: `$operands` makes q, k and v, `$learned` what learned numbers add to scores.
macro_rules! torch {
    ($operands:literal, $learned:literal) => {
        concat!(
            "H, K = (int(n) for n in sizes)\n",
            $operands,
            "\nsplit = lambda x, n: x.view(x.shape[0], x.shape[1], n, -1).transpose(1, 2)\n",
            "wide = lambda x: split(x, K).repeat_interleave(H // K, 1)\n",
            "s = split(q, H) @ wide(k).transpose(2, 3) * (split(q, H).shape[3] ** -0.5)\n",
            "s = s + fixed + ",
            $learned,
            // A row of −∞ alone would be NaN in PyTorch; ours are zeros.
            "\nblind = (fixed == -math.inf).all(-1, keepdim=True)\n",
            "p = torch.softmax(s.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0) * keep\n",
            "out = (p @ wide(v)).transpose(1, 2).reshape(q.shape[0], q.shape[1], -1)",
        )
    };
}

/// The cases that prove it.
pub fn cases() -> Vec<Case> {
    let sizes = |[batch, queries, keys]: [usize; 3], [heads, kv_heads]: [usize; 2], [width, value_width]: [usize; 2]| {
        Sizes { batch, queries, keys, heads, kv_heads, width, value_width }
    };
    let none = Added::Nothing;
    vec![
        case("causal", sizes([2, 5, 5], [2, 2], [4, 4]), false, none, false),
        case("causal_packed", sizes([2, 7, 7], [2, 2], [3, 3]), true, none, false),
        case("grouped_packed", sizes([1, 6, 6], [4, 2], [5, 5]), true, none, false),
        case("cross_wide_values", sizes([2, 3, 9], [2, 1], [4, 7]), false, none, false),
        case("rows_that_see_nothing", sizes([1, 5, 3], [2, 2], [4, 4]), false, none, false),
        case("beyond_a_tile", sizes([1, 70, 70], [2, 1], [8, 8]), false, none, false),
        case("dropout", sizes([2, 6, 6], [2, 1], [4, 4]), true, none, true),
        case("alibi", sizes([1, 6, 6], [3, 3], [4, 4]), true, Added::Alibi, false),
        case("t5", sizes([2, 12, 12], [2, 1], [4, 4]), true, Added::T5, false),
        case("relative", sizes([2, 4, 9], [2, 2], [4, 4]), false, Added::Relative, false),
        case("bias", sizes([2, 4, 5], [2, 2], [4, 4]), false, Added::Bias, false),
    ]
}

fn case(name: &'static str, sizes: Sizes, packed: bool, added: Added, dropped: bool) -> Case {
    let tolerance = Tolerance {
        forward: 2e-6,
        backward: 1e-5,
        reason: "two chained products around an exponential, and four in a gradient",
    };
    let Sizes { batch, queries, keys, heads, kv_heads, width, value_width } = sizes;
    let mut spec = Spec::new(heads, kv_heads);
    spec.dropout = dropped.then_some(DROPOUT);
    let dropout = Dropout::new(DROPOUT.1.words(), DROPOUT.0);
    let place = |n: usize| [n / keys / queries / heads, n / keys / queries % heads, n / keys % queries, n % keys];
    let keep = Array::build(sizes.scores_shape(), |n| {
        // Number j of stream (b·H + h)·T + i.
        let counter = ((n / keys) as u64) << 32 | (n % keys) as u64;
        if dropped { f64::from(dropout.factor(counter)) } else { 1.0 }
    });
    let is_learned = matches!(added, Added::T5 | Added::Relative | Added::Bias);
    let fixed = Array::build(sizes.scores_shape(), |n| {
        let [b, h, i, j] = place(n);
        let bias = if is_learned { 0.0 } else { sizes.bias(added, None, [b, h, i, j]) };
        if sizes.ahead(i, j) { f64::NEG_INFINITY } else { bias }
    });
    let kept = keep.clone();
    let reference = move |a: &[Array]| {
        if packed {
            let (q, kv) = (heads * width, kv_heads * width);
            let parts = [(0, q), (q, q + kv), (q + kv, q + 2 * kv)];
            let [q, k, v] = parts.map(|(from, to)| columns(&a[0], from, to));
            sizes.reference([&q, &k, &v], added, a.get(1), &kept)
        } else {
            sizes.reference([&a[0], &a[1], &a[2]], added, a.get(3), &kept)
        }
    };
    let forward = move |v: &[Var]| sizes.forward(packed, added, spec, v);
    let mut case = Case::new("attention", name, tolerance, forward, reference)
        .extra("sizes", Array::new([2], vec![heads as f64, kv_heads as f64]))
        .extra("fixed", fixed)
        .extra("keep", keep);
    case = if packed {
        case.normal("packed", [batch, queries, (heads + 2 * kv_heads) * width])
    } else {
        case.normal("q", [batch, queries, heads * width])
            .normal("k", [batch, keys, kv_heads * width])
            .normal("v", [batch, keys, kv_heads * value_width])
    };
    let index = |f: &dyn Fn(isize) -> usize| {
        Array::build([queries, keys], |n| f(sizes.distance(n / keys, n % keys)) as f64)
    };
    match (added, packed) {
        (Added::T5, _) => {
            let buckets = Buckets::causal(BUCKETS, FARTHEST);
            case.normal("table", [BUCKETS, heads])
                .extra("bucket", index(&|distance| buckets.bucket(distance)))
                .torch(torch!(
                    "D = packed.shape[2] // (H + 2 * K)\nq, k, v = packed.split([H * D, K * D, K * D], 2)",
                    "table[bucket.long()].permute(2, 0, 1)"
                ))
        }
        (Added::Relative, _) => {
            let reach = REACH as isize;
            case.normal("table", [heads, 2 * REACH + 1])
                .extra("offset", index(&|d| (d.clamp(-reach, reach) + reach) as usize))
                .torch(torch!("", "table[:, offset.long()]"))
        }
        (Added::Bias, _) => case.normal("bias", sizes.scores_shape()).torch(torch!("", "bias")),
        (_, true) => case.torch(torch!(
            "D = packed.shape[2] // (H + 2 * K)\nq, k, v = packed.split([H * D, K * D, K * D], 2)",
            "0"
        )),
        (_, false) => case.torch(torch!("", "0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half::{Storage, with_storage};
    use crate::rng::Rng;
    use hearken_kernels::attention::scores::Full;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    #[test]
    #[should_panic(expected = "queries (1, 2, 6), keys (1, 3, 4) and values (1, 3, 4) do not fit 2 and 1 heads")]
    fn shapes_must_fit() {
        let x = |t, c| Var::constant(Tensor::zeros([1, t, c]));
        let _ = attention(&x(2, 6), &x(3, 4), &x(3, 4), Spec::new(2, 1), Full, None);
    }

    #[test]
    #[should_panic(expected = "the rule has 0 learned numbers, but 4 were given")]
    fn learned_numbers_must_be_the_rules() {
        let x = Var::constant(Tensor::zeros([1, 2, 6]));
        let bias = Var::leaf(Tensor::zeros([4]));
        let _ = attention_packed(&x, Spec::new(1, 1), Causal::new(2, 2), Some(&bias));
    }

    #[test]
    fn one_variable_may_be_queries_keys_and_values() {
        let x = Rng::new(1).normal([1, 4, 6], 1.0);
        let run = |separate: bool| {
            let x = Var::leaf(x.clone());
            let other = if separate { [0, 1].map(|_| Var::leaf(x.value().clone())) } else { [x.clone(), x.clone()] };
            let out = attention(&x, &other[0], &other[1], Spec::new(2, 2), Full, None);
            out.backward_with(Rng::new(2).normal([1, 4, 6], 1.0));
            let mut sum = x.gradient().unwrap();
            if separate {
                for y in &other {
                    let more = y.gradient().unwrap();
                    sum.data_mut().iter_mut().zip(more.data()).for_each(|(a, b)| *a += b);
                }
            }
            sum.data().to_vec()
        };
        for (a, b) in run(true).iter().zip(run(false)) {
            assert!((a - b).abs() < 1e-5 * (1.0 + a.abs()), "{a} {b}"); // sums in another order
        }
    }

    #[test]
    fn sixteen_bit_storage_changes_gradients_by_its_rounding_only() {
        let x = Rng::new(3).normal([1, 9, 24], 1.0);
        let run = |storage| {
            let x = Var::leaf(x.clone());
            let out = with_storage(storage, || {
                attention_packed(&x, Spec::new(2, 2), Causal::new(9, 9), None)
            });
            out.backward_with(Rng::new(4).normal([1, 9, 8], 1.0));
            x.gradient().unwrap()
        };
        let want = Array::from(&run(Storage::F32)).data;
        let error = crate::gradcheck::error(run(Storage::Bf16).data(), &want);
        // Operands are off by up to 2⁻⁹, scores add up a few of them, and p is exponential in them.
        assert!(error > 0.0 && error < 2.0_f64.powi(-5), "{error}");
    }
}
