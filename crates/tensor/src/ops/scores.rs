//! The scores of attention, of the products of queries and keys: `out = c·x`, changed by a rule
//! that adds to scores and hides keys, where `out = −∞`. For looking inside; [`attention`] does the
//! same in tiles, without ever holding T·S numbers.
//!
//! With `out = c·x + b` where a key is seen, `∂out/∂x = c` and `∂out/∂b = 1`; what is hidden depends
//! on nothing:
//! 1. `dx = c·dout` where seen, 0 where hidden
//! 2. the learned numbers of a rule: the sum of dout over the scores they were added to
//!
//! Saves the rule; what it hides is computed again.
//!
//! [`attention`]: super::attention

use super::attention::{Rule, add_to_tables};
use crate::gradcheck::{Case, Tolerance};
use crate::graph::{Backward, Gradients, Var};
use crate::reference::Array;
use crate::tensor::Tensor;
use hearken_kernels::attention::Scores;
use hearken_kernels::attention::scores::{And, Causal, Padding, Position, Relative};
use hearken_kernels::elementwise;
use hearken_kernels::threads::{for_row_chunks, rows_per_chunk};
use std::sync::Arc;

/// The scores of `products` (B, N, T, S), which are of the heads from `first_head` on: times
/// `scale`, then changed by the rule. `learned` are the variables that the rule's tables were taken
/// from, in the rule's order. The memory of `products` is reused if nobody else holds it.
pub fn scores(
    products: Var,
    scale: f32,
    first_head: usize,
    learned: &[&Var],
    rule: &Rule,
) -> Var {
    let tables: Vec<usize> = learned.iter().map(|table| table.shape().len()).collect();
    assert!(
        tables.iter().sum::<usize>() == rule.gradient_len() || tables.is_empty(),
        "tables of {tables:?} numbers for a rule that has learned {}",
        rule.gradient_len()
    );
    let (mut out, products) = products.into_parts();
    elementwise::scale(out.data_mut(), scale);
    let rows = HeadRows::new(&out, first_head);
    rows.each(&mut out, |at, row| rule.apply(at, 0..row.len(), row));
    let inputs = [&[&products], learned].concat();
    Var::from_op(out, &inputs, || ScoresBackward { rule: rule.clone(), scale, rows, tables })
}

struct ScoresBackward {
    rule: Rule,
    scale: f32,
    rows: HeadRows,
    /// Lengths of the learned tables.
    tables: Vec<usize>,
}

impl Backward for ScoresBackward {
    fn backward(self: Box<Self>, mut dout: Tensor, gradients: &mut Gradients<'_>) {
        let Self { rule, scale, rows, tables } = *self;
        rows.each(&mut dout, |at, row| {
            let mut seen = vec![0.0; row.len()];
            rule.apply(at, 0..row.len(), &mut seen);
            let hidden = row.iter_mut().zip(&seen).filter(|(_, s)| **s == f32::NEG_INFINITY);
            hidden.for_each(|(d, _)| *d = 0.0);
        });
        if (0..tables.len()).any(|i| gradients.wanted(1 + i)) {
            let mut dtables = vec![0.0; rule.gradient_len()];
            let plane = (rows.queries * rows.keys).max(1);
            for (plane, of_head) in dout.data().chunks(plane).enumerate() {
                let mut partial = vec![0.0; rule.partial_len()];
                for (query, row) in of_head.chunks(rows.keys.max(1)).enumerate() {
                    let at = rows.position(plane * rows.queries + query);
                    rule.backward(at, 0..rows.keys, row, &mut partial);
                }
                let at = rows.position(plane * rows.queries);
                rule.collect(at.batch, at.head, &partial, &mut dtables);
            }
            add_to_tables(&tables, &dtables, 1, gradients); // 2
        }
        elementwise::scale(dout.data_mut(), scale);
        gradients.add(0, dout); // 1
    }
}

/// Rows of scores, one for each query of each head.
#[derive(Clone, Copy)]
struct HeadRows {
    heads: usize,
    first_head: usize,
    queries: usize,
    keys: usize,
}

impl HeadRows {
    fn new(scores: &Tensor, first_head: usize) -> Self {
        let [_, heads, queries, keys] = scores.dims();
        Self { heads, first_head, queries, keys }
    }

    fn position(&self, row: usize) -> Position {
        let plane = row / self.queries;
        let (batch, head) = (plane / self.heads, self.first_head + plane % self.heads);
        Position { batch, head, query: row % self.queries }
    }

    fn each(&self, scores: &mut Tensor, f: impl Fn(Position, &mut [f32]) + Sync) {
        if scores.shape().is_empty() {
            return;
        }
        let (rows, keys) = (scores.shape().rows(), self.keys);
        for_row_chunks(rows, rows_per_chunk(keys), [(scores.data_mut(), keys)], |at, [part]| {
            at.zip(part.chunks_exact_mut(keys)).for_each(|(row, part)| f(self.position(row), part));
        });
    }
}

/// The cases that check it.
pub fn cases() -> Vec<Case> {
    let tolerance = Tolerance {
        forward: 1e-6,
        backward: 2e-6,
        reason: "two roundings, then e to a score of up to about 4; a table gathers some 20 terms",
    };
    // A table (2, 5) for distances of up to 2, as `place` reads it.
    let relative = |table: &Var| Relative::new(table.value().clone(), 2, 4, 6);
    let place = |i: usize, j: usize| j.saturating_sub(i).min(4); // j − (i + 2), from −2 to 2
    let score = move |a: &[Array], n: usize| {
        let (h, i, j) = (n / 24 % 2, n / 6 % 4, n % 6);
        0.5 * a[0].data[n] + a[1].row(h)[place(i, j)]
    };
    let places = Array::build([4, 6], |n| place(n / 6, n % 6) as f64);
    let biased = Case::new(
        "scores",
        "relative_bias",
        tolerance,
        move |v| scores(v[0].clone(), 0.5, 0, &[&v[1]], &(Arc::new(relative(&v[1])) as Rule)),
        move |a| Array::build(a[0].shape, |n| score(a, n)),
    );
    // Key j is seen by query i if j ≤ i + 2 and, in the second row of the batch, if j < 3.
    let seen = |b: usize, i: usize, j: usize| j <= i + 2 && (b == 0 || j < 3);
    let mask = Array::build([2, 1, 4, 6], |n| {
        if seen(n / 24, n / 6 % 4, n % 6) { 0.0 } else { f64::NEG_INFINITY }
    });
    let hidden = Case::new(
        "scores",
        "hidden",
        tolerance,
        move |v| {
            let visible = And(Causal::new(4, 6), Padding::new(vec![6, 3]));
            let rule: Rule = Arc::new(And(visible, relative(&v[1])));
            super::softmax::softmax(scores(v[0].clone(), 0.5, 0, &[&v[1]], &rule), 1.0)
        },
        move |a| {
            let power = |n: usize| {
                if seen(n / 48, n / 6 % 4, n % 6) { score(a, n).exp() } else { 0.0 }
            };
            Array::build(a[0].shape, |n| {
                power(n) / (n / 6 * 6..n / 6 * 6 + 6).map(power).sum::<f64>()
            })
        },
    );
    // Large enough for threads to share.
    let long = Case::new(
        "scores",
        "long",
        tolerance,
        |v| {
            let rule: Rule = Arc::new(Causal::new(130, 130));
            super::softmax::softmax(scores(v[0].clone(), 0.5, 0, &[], &rule), 1.0)
        },
        |a| {
            let power = |n: usize| {
                if n % 130 <= n / 130 % 130 { (0.5 * a[0].data[n]).exp() } else { 0.0 }
            };
            Array::build(a[0].shape, |n| {
                power(n) / (n / 130 * 130..=n / 130 * 130 + 129).map(power).sum::<f64>()
            })
        },
    );
    vec![
        biased
            .normal("x", [2, 2, 4, 6])
            .normal("table", [2, 5])
            .extra("places", places.clone())
            .torch("0.5 * x + table[:, places.long()]"),
        hidden
            .normal("x", [2, 2, 4, 6])
            .normal("table", [2, 5])
            .extra("places", places)
            .extra("mask", mask)
            .torch("(0.5 * x + table[:, places.long()] + mask).softmax(-1)"),
        long.normal("x", [1, 1, 130, 130])
            .torch("(0.5 * x + x.new_full((130, 130), -torch.inf).triu(1)).softmax(-1)"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn is_proven() {
        crate::gradcheck::assert_all(&cases());
    }

    fn rule(table: &Tensor) -> Rule {
        Arc::new(And(Causal::new(3, 3), Relative::new(table.clone(), 1, 3, 3)))
    }

    #[test]
    fn what_is_hidden_gets_no_gradient() {
        let table = Tensor::zeros([2, 3]);
        let x = Var::leaf(Rng::new(1).normal([1, 2, 3, 3], 1.0));
        let out = scores(x.clone(), 2.0, 0, &[], &rule(&table));
        out.backward_with(Tensor::full([1, 2, 3, 3], 1.0));
        let dx = x.gradient().unwrap();
        for (n, (out, dx)) in out.value().data().iter().zip(dx.data()).enumerate() {
            let seen = n % 3 <= n / 3 % 3;
            assert_eq!((*out != f32::NEG_INFINITY, *dx), (seen, if seen { 2.0 } else { 0.0 }));
        }
    }

    #[test]
    fn one_head_by_itself_has_the_bits_of_all() {
        let table = Rng::new(2).normal([2, 3], 1.0);
        let x = Rng::new(1).normal([1, 2, 3, 3], 1.0);
        let all = scores(Var::constant(x.clone()), 0.5, 0, &[], &rule(&table));
        let second = Tensor::new([1, 1, 3, 3], &x.data()[9..]);
        let second = scores(Var::constant(second), 0.5, 1, &[], &rule(&table));
        assert_eq!(second.value().data(), &all.value().data()[9..]);
    }

    #[test]
    fn nothing_gives_nothing() {
        for shape in [[0, 2, 3, 3], [1, 2, 0, 3], [1, 2, 3, 0]] {
            let x = Var::leaf(Tensor::zeros(shape));
            let out = scores(x.clone(), 1.0, 0, &[], &(Arc::new(Causal::new(3, 3)) as Rule));
            out.backward_with(Tensor::zeros(shape));
            assert_eq!(x.gradient().unwrap().shape(), out.shape());
        }
    }
}
