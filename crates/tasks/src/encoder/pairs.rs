//! Embed texts of the same meaning alike (E9): each text must find its partner among those of the
//! whole batch.
//!
//! With unit vectors aᵢ and bᵢ of the texts of pair i and a temperature τ,
//!
//! ```text
//! loss = ½ Σᵢ −ln softmax(aᵢ·b / τ)ᵢ  +  ½ Σᵢ −ln softmax(bᵢ·a / τ)ᵢ
//! ```
//! (InfoNCE; van den Oord et al. 2018). All other texts of the micro-batch are the negatives: with
//! `train.accumulate` or `train.parallel_parts` there are fewer of them. Where a text has no partner
//! it is read twice, and dropout makes the two vectors differ (SimCSE; Gao et al. 2021).

use super::data::Held;
use super::objective::{Common, Judge, Objective, WORST, shortened, table};
use crate::batch::other_tokens;
use crate::metrics::{cosine, recall_at, spearman};
use hearken_data::batches::Batch;
use hearken_data::labelled::Answer;
use hearken_nn::layers::Loss;
use hearken_nn::models::{Embedded, Encodes, Model};
use hearken_nn::pass::{Noise, Pass};
use hearken_show::Table;
use hearken_tensor::ops::cross_entropy::{Options, Reduction, cross_entropy};
use hearken_tensor::ops::matmul::matmul_transposed;
use hearken_tensor::ops::scale::scale;
use hearken_tensor::{Tensor, Var, no_grad};
use hearken_train::{Better, Metric};
use std::ops::Range;

/// Makes the dropout of the second texts another than that of the first.
const SECOND: u64 = 0x7365_636f_6e64_0000; // "second"

pub(crate) struct Contrast {
    pub(crate) common: Common,
    pub(crate) temperature: f64,
}

fn encoder(model: &dyn Model) -> &dyn Encodes {
    model.encodes().expect("the purpose was found by the head")
}

/// As the model embeds, with length 1.
fn unit(model: &dyn Encodes) -> Embedded {
    Embedded { normalised: true, ..model.embedded() }
}

impl Objective for Contrast {
    fn loss(&self, model: &dyn Model, batch: &Batch, noise: Noise) -> Loss {
        let Some(source) = &batch.source else { unreachable!("pairs have two texts") };
        let model = encoder(model);
        let how = unit(model);
        let second = Noise { seed: noise.seed ^ SECOND, ..noise };
        let factor = (1.0 / self.temperature) as f32;
        let targets: Vec<u32> = (0..batch.rows as u32).collect();
        let options = Options { reduction: Reduction::Sum, ..self.common.options };
        let one_way = |x: &Var, y: &Var| {
            let logits = scale(matmul_transposed(x, y), factor); // (B, B)
            cross_entropy(logits, &targets, options)
        };
        Loss::with_auxiliary(&Pass::train(noise), |pass| {
            let a = model.embed(&self.common.tokens(batch), how, pass); // (B, C)
            let pass = pass.with_noise(second);
            let b = model.embed(&other_tokens(source, batch.rows), how, &pass);
            let sum = scale(one_way(&a, &b) + one_way(&b, &a), 0.5);
            Loss { sum, weight: batch.rows as f64 }
        })
    }

    fn outputs(&self, model: &dyn Model, batch: &Batch) -> Vec<Tensor> {
        let Some(source) = &batch.source else { unreachable!("pairs have two texts") };
        let model = encoder(model);
        let (how, pass) = (unit(model), Pass::evaluate());
        no_grad(|| {
            let a = model.embed(&self.common.tokens(batch), how, &pass);
            let b = model.embed(&other_tokens(source, batch.rows), how, &pass);
            vec![a.into_value(), b.into_value()]
        })
    }

    fn judge<'a>(&'a self, held: &'a Held) -> Box<dyn Judge + 'a> {
        let [first, second] = [Vec::new(), Vec::new()];
        Box::new(PairJudge { held, examples: Vec::new(), first, second, width: 1 })
    }

    fn unit(&self) -> &'static str {
        "nats per text"
    }
}

struct PairJudge<'a> {
    held: &'a Held,
    examples: Vec<usize>,
    /// (rows, C) each.
    first: Vec<f32>,
    second: Vec<f32>,
    /// C
    width: usize,
}

impl PairJudge<'_> {
    /// What the data says of the similarity of each pair, if it says so of all.
    fn similarities(&self) -> Option<Vec<f64>> {
        let of = |example: &usize| match self.held.rows[self.held.details[*example].row].answer {
            Answer::Similar(similarity) => similarity.map(f64::from),
            _ => None,
        };
        self.examples.iter().map(of).collect()
    }

    fn cosines(&self) -> Vec<f64> {
        let pairs = self.first.chunks(self.width).zip(self.second.chunks(self.width));
        pairs.map(|(a, b)| cosine(a, b)).collect()
    }
}

impl Judge for PairJudge<'_> {
    fn see(&mut self, examples: Range<usize>, _: &Batch, outputs: &[Tensor]) {
        self.examples.extend(examples);
        self.width = outputs[0].shape().width().max(1);
        self.first.extend_from_slice(outputs[0].data());
        self.second.extend_from_slice(outputs[1].data());
    }

    fn metrics(&self) -> Vec<Metric> {
        if let Some(similarities) = self.similarities() {
            let correlation = spearman(&self.cosines(), &similarities);
            // One that is not defined is no correlation.
            let correlation = if correlation.is_finite() { correlation } else { 0.0 };
            return vec![Metric::new("spearman", Better::Higher, correlation)];
        }
        let recall = |k| recall_at(k, &self.first, &self.second, self.width);
        [1, 5, 10]
            .map(|k| Metric::new(format!("recall_at_{k}"), Better::Higher, recall(k)))
            .to_vec()
    }

    fn tables(&self) -> Vec<Table> {
        let mut pairs: Vec<(f64, usize)> =
            self.cosines().into_iter().zip(self.examples.iter().copied()).collect();
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rows = pairs.iter().take(WORST).map(|(cosine, example)| {
            let row = &self.held.rows[self.held.details[*example].row];
            let second = row.second.clone().unwrap_or_default();
            vec![shortened(&row.text), shortened(&second), format!("{cosine:.4}")]
        });
        let columns = ["text", "its partner", "cosine"];
        vec![table("The least similar partners", &columns, rows.collect())]
    }
}
