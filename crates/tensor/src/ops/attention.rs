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

use crate::graph::{Backward, Gradients, Var};
use crate::half::Saved;
use crate::rng::Key;
use crate::tensor::Tensor;
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
        has_learned: learned.is_some(),
    })
}

struct AttentionBackward<M> {
    operands: Operands<Saved>,
    out: Saved,
    lse: Tensor,
    shape: Shape,
    spec: Spec,
    rule: M,
    has_learned: bool,
}

impl<M: Scores + Send + 'static> Backward for AttentionBackward<M> {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        let Self { operands, out, lse, shape, spec, rule, has_learned } = *self;
        let operands = operands.map(Saved::get);
        let out = out.get();
        let attention = kernel_of(&operands, shape, spec, &rule);
        let Shape { queries, keys, heads, kv_heads, width, value_width, .. } = shape;
        let finish = |dq, dk, dv, dscores| {
            attention.backward(kernel::Gradients {
                out: out.data(),
                lse: lse.data(),
                dout: dout.data(),
                dqueries: dq,   // 4
                dkeys: dk,      // 5
                dvalues: dv,    // 1
                dscores,        // 6
            });
        };
        match operands {
            Operands::Separate(_) => {
                let three = |[q, k, v]: [Option<crate::graph::Slot<'_>>; 3], dscores| {
                    finish(
                        q.map(|(d, write)| RowsMut::new(d, write, queries, heads, width)),
                        k.map(|(d, write)| RowsMut::new(d, write, keys, kv_heads, width)),
                        v.map(|(d, write)| RowsMut::new(d, write, keys, kv_heads, value_width)),
                        dscores,
                    );
                };
                if has_learned {
                    gradients.write_many([0, 1, 2, 3], |[q, k, v, s]| three([q, k, v], s));
                } else {
                    gradients.write_many([0, 1, 2], |slots| three(slots, None));
                }
            }
            Operands::Packed(_) => {
                let one = |slot: Option<crate::graph::Slot<'_>>, dscores| {
                    let parts = slot.map(|(d, write)| {
                        let heads = [heads, kv_heads, kv_heads];
                        RowsMut::packed(d, write, queries, heads, [width; 3])
                    });
                    match parts {
                        Some([q, k, v]) => finish(Some(q), Some(k), Some(v), dscores),
                        None => finish(None, None, None, dscores),
                    }
                };
                if has_learned {
                    gradients.write_many([0, 1], |[packed, s]| one(packed, s));
                } else {
                    gradients.write_many([0], |[packed]| one(packed, None));
                }
            }
        }
    }
}
