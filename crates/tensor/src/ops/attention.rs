//! Attention of every kind: `out = softmax(scale·q·kᵀ, changed by a rule)·v`, head by head.
//!
//! Shapes: q (B, T, H·D), k (B, S, K·D), v (B, S, K·Dv), out (B, T, H·Dv); or one packed
//! (B, T, H·D + K·D + K·Dv) as a fused projection gives it. H is a multiple of K: query head h reads
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
//!
//! A hidden key has weight 0, and 0·NaN is NaN, as in PyTorch: keys and values should be finite
//! even where they are hidden. (Tiles that are hidden as a whole are not read.)

mod cases;

pub use cases::cases;

use crate::graph::{Backward, Gradients, Slot, Var};
use crate::half::Saved;
use crate::rng::Key;
use crate::tensor::Tensor;
use hearken_kernels::Write;
use hearken_kernels::attention::scores::{Chosen, Full};
use hearken_kernels::attention::{self as kernel, Rows, RowsMut, Scores};
use hearken_kernels::random::Dropout;
use std::sync::Arc;

/// What is visible and what is added to scores, chosen at run time.
pub type Rule = Arc<dyn Scores + Send>;

/// How to attend.
#[derive(Clone)]
pub struct Attend {
    /// H
    pub heads: usize,
    /// K
    pub kv_heads: usize,
    /// The width of a head's values in a packed projection; D if `None`.
    pub value_width: Option<usize>,
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
        let (value_width, scale, dropout) = (None, None, None);
        Self { heads, kv_heads: heads, value_width, scale, dropout, rule: Arc::new(Full) }
    }

    /// Groups of heads that share keys and values.
    pub fn kv_heads(mut self, kv_heads: usize) -> Self {
        self.kv_heads = kv_heads;
        self
    }

    /// Values of another width than queries and keys, in a packed projection.
    pub fn value_width(mut self, width: usize) -> Self {
        self.value_width = Some(width);
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
    pub fn rule(mut self, rule: impl Scores + Send + 'static) -> Self {
        self.rule = Arc::new(rule);
        self
    }
}

/// Attention of `q` to `k` and `v`. `learned` are the variables that the rule's tables were taken
/// from, in the rule's order: they get its gradients.
pub fn attention(q: &Var, k: &Var, v: &Var, learned: &[&Var], attend: &Attend) -> Var {
    run(&Operands::Apart([q, k, v].map(|x| x.value().clone())), &[q, k, v], learned, attend)
}

/// Attention of a packed projection (B, T, H·D + K·D + K·Dv) to itself.
pub fn attention_packed(qkv: &Var, learned: &[&Var], attend: &Attend) -> Var {
    run(&Operands::Packed(qkv.value().clone()), &[qkv], learned, attend)
}

/// The `most` keys of `k` with the largest scores of each query of `q` and each head: a rule that hides
/// all others, for top-k attention (Gupta et al. 2021). The choice is a constant, without gradient.
pub fn top_keys(q: &Tensor, k: &Tensor, attend: &Attend, most: usize) -> Chosen {
    let operands = Operands::Apart([q.clone(), k.clone(), k.clone()]);
    with_kernel(&operands, attend, |attention| attention.top_keys(most))
}

/// As [`top_keys`], of a packed projection (B, T, H·D + K·D + K·Dv).
pub fn top_keys_packed(qkv: &Tensor, attend: &Attend, most: usize) -> Chosen {
    with_kernel(&Operands::Packed(qkv.clone()), attend, |attention| attention.top_keys(most))
}

/// The weights (B, H, T, S) of `q` on `k`, before dropout: for looking inside, since there are
/// T·S of them.
pub fn attention_weights(q: &Tensor, k: &Tensor, attend: &Attend) -> Tensor {
    weights(&Operands::Apart([q.clone(), k.clone(), k.clone()]), attend)
}

/// As [`attention_weights`], of a packed projection (B, T, (H + 2K)·D).
pub fn attention_weights_packed(qkv: &Tensor, attend: &Attend) -> Tensor {
    weights(&Operands::Packed(qkv.clone()), attend)
}

/// The entropy −Σⱼ pⱼ ln pⱼ of the weights of `q` on `k`, its mean for each head (H): from 0, all
/// weight on one key, to ln S, the same on all. A head that falls towards 0 in training has
/// collapsed. Needs no memory of T·S.
pub fn attention_entropy(q: &Tensor, k: &Tensor, attend: &Attend) -> Tensor {
    entropy(&Operands::Apart([q.clone(), k.clone(), k.clone()]), attend)
}

/// As [`attention_entropy`], of a packed projection (B, T, (H + 2K)·D).
pub fn attention_entropy_packed(qkv: &Tensor, attend: &Attend) -> Tensor {
    entropy(&Operands::Packed(qkv.clone()), attend)
}

fn weights(operands: &Operands<Tensor>, attend: &Attend) -> Tensor {
    with_kernel(operands, attend, |attention| {
        let s = attention.shape;
        let mut weights = Tensor::unset([s.batch, s.heads, s.queries, s.keys]);
        attention.weights(weights.data_mut());
        weights
    })
}

fn entropy(operands: &Operands<Tensor>, attend: &Attend) -> Tensor {
    with_kernel(operands, attend, |attention| {
        let s = attention.shape;
        let mut out = Tensor::unset([s.batch, s.queries, s.heads * s.value_width]);
        let mut lse = Tensor::unset([s.batch, s.heads, s.queries]);
        attention.forward(out.data_mut(), lse.data_mut());
        let mut entropy = Tensor::unset([s.heads]);
        attention.entropy(lse.data(), entropy.data_mut());
        entropy
    })
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
                let [batch, tokens, columns] = qkv.dims();
                let own = attend.value_width.map(|width| (heads + kv_heads, kv_heads * width));
                let (parts, apart) = own.unwrap_or((heads + 2 * kv_heads, 0));
                assert!(
                    parts > 0 && columns >= apart && (columns - apart).is_multiple_of(parts),
                    "packed queries, keys and values of shape {} do not split into {heads} heads \
                     on {kv_heads}",
                    qkv.shape()
                );
                let width = (columns - apart) / parts;
                let value_width = attend.value_width.unwrap_or(width);
                let (queries, keys) = (tokens, tokens);
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
                Rows::packed(qkv.data(), s.queries, heads, [s.width, s.width, s.value_width])
            }
        }
    }
}

/// The kernel's view of `operands`.
fn with_kernel<R>(
    operands: &Operands<Tensor>,
    attend: &Attend,
    f: impl FnOnce(&kernel::Attention<'_, &(dyn Scores + Send)>) -> R,
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

fn run(operands: &Operands<Tensor>, inputs: &[&Var], learned: &[&Var], attend: &Attend) -> Var {
    let tables: Vec<usize> = learned.iter().map(|table| table.shape().len()).collect();
    assert!(
        tables.iter().sum::<usize>() == attend.rule.gradient_len() || tables.is_empty(),
        "tables of {tables:?} numbers for a rule that has learned {}",
        attend.rule.gradient_len()
    );
    let (out, lse) = with_kernel(operands, attend, |attention| {
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
                        let widths = [s.width, s.width, s.value_width];
                        let parts = RowsMut::packed(data, write, s.queries, heads, widths);
                        call(parts.map(Some));
                    }
                    None => call([None, None, None]),
                }),
            }
        });
        if let Some(dtables) = dtables {
            add_to_tables(&self.tables, dtables.data(), first_table, gradients); // 6
        }
    }
}

/// Adds the gradients of a rule's learned numbers to those of the tables that they come from: the
/// inputs from `first` on, which are so long.
pub(super) fn add_to_tables(
    tables: &[usize],
    dtables: &[f32],
    first: usize,
    gradients: &mut Gradients<'_>,
) {
    let mut start = 0;
    for (i, len) in tables.iter().enumerate() {
        let part = &dtables[start..start + len];
        start += len;
        gradients.write(first + i, |dtable, write| match write {
            Write::Set => dtable.copy_from_slice(part),
            Write::Add => dtable.iter_mut().zip(part).for_each(|(d, x)| *d += x),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half::{Storage, with_storage};
    use crate::reference::Array;
    use crate::rng::Rng;
    use hearken_kernels::attention::scores::Causal;

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
    fn weights_and_entropy_are_those_of_the_output() {
        let qkv = Rng::new(1).normal([2, 9, 24], 1.0);
        let part = |n: usize| {
            let columns = qkv.data().chunks_exact(24).flat_map(|row| &row[n * 8..(n + 1) * 8]);
            Tensor::new([2, 9, 8], &columns.copied().collect::<Vec<f32>>())
        };
        let (q, k, v) = (part(0), part(1), part(2));
        let attend = Attend::new(2).rule(Causal::new(9, 9));
        let weights = attention_weights(&q, &k, &attend);
        assert_eq!(weights.data(), attention_weights_packed(&qkv, &attend).data());
        let mut made = vec![0.0; 2 * 9 * 8];
        let mut entropy = [0.0; 2];
        for (row, weights) in weights.data().chunks_exact(9).enumerate() {
            let (b, h, i) = (row / 18, row / 9 % 2, row % 9);
            for (j, &p) in weights.iter().enumerate().filter(|(_, p)| **p > 0.0) {
                entropy[h] -= f64::from(p * p.ln()) / 18.0;
                for d in 0..4 {
                    let v = v.data()[(b * 9 + j) * 8 + h * 4 + d];
                    made[(b * 9 + i) * 8 + h * 4 + d] += f64::from(p * v);
                }
            }
        }
        let vars = [&q, &k, &v].map(|x| Var::constant(x.clone()));
        let out = attention(&vars[0], &vars[1], &vars[2], &[], &attend);
        // Both ways are off by some roundings of weights and of nine products.
        assert!(crate::gradcheck::error(out.value().data(), &made) < 1e-6);
        for got in [attention_entropy(&q, &k, &attend), attention_entropy_packed(&qkv, &attend)] {
            assert!(crate::gradcheck::error(got.data(), &entropy) < 1e-6);
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
