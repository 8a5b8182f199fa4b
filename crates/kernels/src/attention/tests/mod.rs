//! Attention against its f64 reference, and the reference against finite differences.

mod pages;
mod properties;
mod reference;
mod rules;

use super::{Attention, Gradients, Rows, RowsMut, Scores, Shape};
use crate::Write;
use crate::isa::{Isa, with_isa};
use crate::random::Dropout;
use crate::testing::samples;
use reference::{Inputs, Results, reference};

/// One attention to be checked.
#[derive(Clone, Copy)]
struct Case {
    shape: Shape,
    dropout: Option<Dropout>,
}

/// Short for a shape [B, T, S, H, K, D, Dv].
fn case([batch, queries, keys, heads, kv_heads, width, value_width]: [usize; 7]) -> Case {
    let shape = Shape { batch, queries, keys, heads, kv_heads, width, value_width };
    Case { shape, dropout: None }
}

/// What the kernel reads: q, k, v, dout.
struct Given {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    dout: Vec<f32>,
}

/// What it writes.
#[derive(Clone, Debug, PartialEq)]
struct Got {
    out: Vec<f32>,
    lse: Vec<f32>,
    dq: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
    dscores: Vec<f32>,
}

impl Case {
    fn with_dropout(mut self, probability: f32) -> Self {
        self.dropout = Some(Dropout::new([17, 4], probability));
        self
    }

    fn scale(&self) -> f32 {
        1.0 / (self.shape.width.max(1) as f32).sqrt()
    }

    fn given(&self) -> Given {
        let Shape { batch, queries, keys, heads, kv_heads, width, value_width } = self.shape;
        Given {
            q: samples(batch * queries * heads * width, 2.0, 1),
            k: samples(batch * keys * kv_heads * width, 2.0, 2),
            v: samples(batch * keys * kv_heads * value_width, 1.0, 3),
            dout: samples(batch * queries * heads * value_width, 1.0, 4),
        }
    }

    fn reference(&self, rule: &dyn Scores, given: &Given) -> Results {
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect();
        let inputs = Inputs {
            q: wide(&given.q),
            k: wide(&given.k),
            v: wide(&given.v),
            dout: wide(&given.dout),
        };
        reference(self.shape, f64::from(self.scale()), self.dropout, rule, &inputs)
    }

    fn attention<'a, M: Scores>(&self, given: &'a Given, rule: &'a M) -> Attention<'a, M> {
        let Shape { queries, keys, heads, kv_heads, width, value_width, .. } = self.shape;
        Attention {
            shape: self.shape,
            queries: Rows::new(&given.q, queries, heads, width),
            keys: Rows::new(&given.k, keys, kv_heads, width),
            values: Rows::new(&given.v, keys, kv_heads, value_width),
            scale: self.scale(),
            dropout: self.dropout,
            scores: rule,
        }
    }

    /// Forward and backward into memory full of `before`.
    fn run<M: Scores>(&self, rule: &M, given: &Given, write: Write, before: f32) -> Got {
        let Shape { batch, queries, keys, heads, kv_heads, width, value_width } = self.shape;
        let mut got = Got {
            out: vec![f32::NAN; given.dout.len()],
            lse: vec![f32::NAN; batch * heads * queries],
            dq: vec![before; given.q.len()],
            dk: vec![before; given.k.len()],
            dv: vec![before; given.v.len()],
            dscores: vec![before; rule.gradient_len()],
        };
        let attention = self.attention(given, rule);
        attention.forward(&mut got.out, &mut got.lse);
        attention.backward(Gradients {
            out: &got.out,
            lse: &got.lse,
            dout: &given.dout,
            dqueries: Some(RowsMut::new(&mut got.dq, write, queries, heads, width)),
            dkeys: Some(RowsMut::new(&mut got.dk, write, keys, kv_heads, width)),
            dvalues: Some(RowsMut::new(&mut got.dv, write, keys, kv_heads, value_width)),
            dscores: Some((&mut got.dscores, write)),
        });
        got
    }

    /// Every instruction set against the reference; `dscores` turns the reference's gradient of
    /// the scores (B, H, T, S) into that of what the rule has learned.
    fn prove<M: Scores>(&self, name: &str, rule: &M, dscores: impl Fn(&[f64]) -> Vec<f64>) {
        let given = self.given();
        let want = self.reference(&rule, &given);
        let want_dscores = dscores(&want.dscores);
        for isa in Isa::all_available() {
            let got = with_isa(isa, || self.run(rule, &given, Write::Set, f32::NAN));
            let what = |part: &str| format!("{name} {:?} {isa:?}: {part}", self.shape);
            close(&what("out"), &got.out, &want.out);
            close(&what("lse"), &got.lse, &want.lse);
            close(&what("dq"), &got.dq, &want.dq);
            close(&what("dk"), &got.dk, &want.dk);
            close(&what("dv"), &got.dv, &want.dv);
            close(&what("dscores"), &got.dscores, &want_dscores);
        }
    }
}

/// A score is a sum of up to 128 products with |q|, |k| ≤ 2, so it is off by some 1e-6, and e^s by
/// as much relatively; weights then enter sums of up to 200 terms of both signs. That is the first
/// bound, against the size of the results. The second is for ds = p·(dp − δ), where dp and δ are
/// of size 3 and rounded to 2e-7, but may be equal (one key): summed over 130 queries, with |q|·scale
/// about ½ and both signs, √130 · 1e-7 is left of them, and three times that at the furthest.
fn close(what: &str, got: &[f32], want: &[f64]) {
    const OF_RESULTS: f64 = 1e-5;
    const OF_DIFFERENCES: f64 = 4e-6;
    let finite = || want.iter().filter(|x| x.is_finite());
    let rms = (finite().map(|x| x * x).sum::<f64>() / finite().count().max(1) as f64).sqrt();
    crate::testing::assert_close(what, got, want, |i| {
        OF_RESULTS * (want[i].abs() + rms) + OF_DIFFERENCES
    });
}

/// The rule has learned nothing.
fn nothing(_: &[f64]) -> Vec<f64> {
    Vec::new()
}
