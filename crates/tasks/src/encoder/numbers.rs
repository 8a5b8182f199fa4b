//! Predict numbers of texts: the squared error.

use super::data::Held;
use super::objective::{Common, Judge, Objective, WORST, shortened, table, training};
use crate::metrics::{mean_absolute_error, root_mean_squared_error, spearman};
use hearken_data::batches::{Batch, Labels};
use hearken_nn::layers::Loss;
use hearken_nn::models::{Model, PredictsNumbers};
use hearken_nn::pass::{Noise, Pass};
use hearken_show::Table;
use hearken_tensor::{Tensor, no_grad};
use hearken_train::{Better, Metric};
use std::ops::Range;

pub(crate) struct Numbers {
    pub(crate) common: Common,
}

fn predictor(model: &dyn Model) -> &dyn PredictsNumbers {
    model.predicts_numbers().expect("the purpose was found by the head")
}

impl Objective for Numbers {
    fn loss(&self, model: &dyn Model, batch: &Batch, noise: Noise) -> Loss {
        let Some(Labels::Numbers(numbers)) = &batch.labels else {
            unreachable!("numbers are predicted, not {:?}", batch.labels)
        };
        predictor(model).number_loss(&self.common.tokens(batch), numbers, &training(noise))
    }

    fn outputs(&self, model: &dyn Model, batch: &Batch) -> Vec<Tensor> {
        let tokens = self.common.tokens(batch);
        vec![no_grad(|| predictor(model).predicted(&tokens, &Pass::evaluate())).into_value()]
    }

    fn judge<'a>(&'a self, held: &'a Held) -> Box<dyn Judge + 'a> {
        let (examples, said, right) = (Vec::new(), Vec::new(), Vec::new());
        Box::new(NumberJudge { held, examples, said, right, outputs: 1 })
    }

    fn unit(&self) -> &'static str {
        "squared error"
    }
}

struct NumberJudge<'a> {
    held: &'a Held,
    examples: Vec<usize>,
    /// (rows, N) each.
    said: Vec<f64>,
    right: Vec<f64>,
    /// N
    outputs: usize,
}

impl Judge for NumberJudge<'_> {
    fn see(&mut self, examples: Range<usize>, batch: &Batch, outputs: &[Tensor]) {
        let Some(Labels::Numbers(numbers)) = &batch.labels else { return };
        self.outputs = outputs[0].shape().width().max(1);
        self.examples.extend(examples);
        self.said.extend(outputs[0].data().iter().map(|x| f64::from(*x)));
        self.right.extend(numbers.iter().map(|x| f64::from(*x)));
    }

    fn metrics(&self) -> Vec<Metric> {
        let rmse = root_mean_squared_error(&self.said, &self.right);
        let mut metrics = vec![
            Metric::new("mae", Better::Lower, mean_absolute_error(&self.said, &self.right)),
            Metric::loss(rmse * rmse),
            Metric::new("rmse", Better::Lower, rmse),
        ];
        let column = |all: &[f64], i: usize| -> Vec<f64> {
            all.iter().skip(i).step_by(self.outputs).copied().collect()
        };
        let of = |i| spearman(&column(&self.said, i), &column(&self.right, i));
        let mean = (0..self.outputs).map(of).sum::<f64>() / self.outputs as f64;
        if mean.is_finite() {
            metrics.push(Metric::new("spearman", Better::Higher, mean));
        }
        metrics
    }

    fn tables(&self) -> Vec<Table> {
        let rows = self.said.chunks(self.outputs).zip(self.right.chunks(self.outputs));
        let mut worst: Vec<(f64, usize, &[f64], &[f64])> = self
            .examples
            .iter()
            .zip(rows)
            .map(|(example, (said, right))| {
                let off = said.iter().zip(right).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                (off, *example, said, right)
            })
            .collect();
        worst.sort_by(|a, b| b.0.total_cmp(&a.0));
        let list = |numbers: &[f64]| {
            numbers.iter().map(|number| format!("{number:.4}")).collect::<Vec<_>>().join(", ")
        };
        let rows = worst.iter().take(WORST).map(|(_, example, said, right)| {
            vec![shortened(&self.held.text(*example)), list(right), list(said)]
        });
        vec![table("Worst mistakes", &["text", "is", "was said"], rows.collect())]
    }
}
