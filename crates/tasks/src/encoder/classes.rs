//! Label texts: cross-entropy of one label each, or of every label by itself.

use super::data::Held;
use super::objective::{Common, Judge, Objective, WORST, row_loss, shortened, table, training};
use crate::metrics::{Confusion, several_scores};
use hearken_data::batches::{Batch, IGNORED, Labels};
use hearken_nn::layers::Loss;
use hearken_nn::models::{Classifies, Model};
use hearken_nn::pass::{Noise, Pass};
use hearken_show::Table;
use hearken_tensor::ops::cross_entropy::{Options, Reduction, cross_entropy};
use hearken_tensor::ops::scale::scale;
use hearken_tensor::{Tensor, Var, no_grad};
use hearken_train::{Better, Metric};
use std::ops::Range;

/// A confusion matrix of more classes is not shown.
const SHOWN: usize = 30;

pub(crate) struct Classes {
    pub(crate) common: Common,
    pub(crate) labels: Vec<String>,
    /// How much each class counts; all alike, if there are none.
    pub(crate) weights: Option<Vec<f32>>,
    pub(crate) several: bool,
}

fn classifier(model: &dyn Model) -> &dyn Classifies {
    model.classifies().expect("the purpose was found by the head")
}

impl Objective for Classes {
    fn loss(&self, model: &dyn Model, batch: &Batch, noise: Noise) -> Loss {
        let (model, pass) = (classifier(model), training(noise));
        let tokens = self.common.tokens(batch);
        match &batch.labels {
            Some(Labels::Several(flags)) => {
                let targets: Vec<f32> = flags.iter().map(|flag| f32::from(*flag)).collect();
                model.several_loss(&tokens, &targets, &pass)
            }
            Some(Labels::Classes(classes)) => match &self.weights {
                None => model.class_loss(&tokens, classes, &pass, self.common.options),
                Some(weights) => Loss::with_auxiliary(&pass, |pass| {
                    let logits = model.class_logits(&tokens, pass);
                    weighted(&logits, classes, weights, self.common.options)
                }),
            },
            other => unreachable!("a classifier was given {other:?}"),
        }
    }

    fn outputs(&self, model: &dyn Model, batch: &Batch) -> Vec<Tensor> {
        let tokens = self.common.tokens(batch);
        let logits = no_grad(|| classifier(model).class_logits(&tokens, &Pass::evaluate()));
        vec![logits.into_value()]
    }

    fn judge<'a>(&'a self, held: &'a Held) -> Box<dyn Judge + 'a> {
        if self.several {
            let (right, said) = (Vec::new(), Vec::new());
            Box::new(SeveralJudge { labels: &self.labels, right, said, loss: 0.0 })
        } else {
            let confusion = Confusion::new(self.labels.len());
            let (mistakes, loss) = (Vec::new(), 0.0);
            Box::new(ClassJudge { labels: &self.labels, held, confusion, mistakes, loss })
        }
    }

    fn unit(&self) -> &'static str {
        if self.several { "nats per label" } else { "nats per text" }
    }
}

/// Σ wₜ · cross-entropy over the rows, t the class of a row; it counts Σ wₜ.
fn weighted(logits: &Var, classes: &[u32], weights: &[f32], options: Options) -> Loss {
    let options = Options { reduction: Reduction::Sum, ..options };
    let mut present: Vec<u32> = classes.to_vec();
    present.sort_unstable();
    present.dedup();
    let weight_of = |class: u32| weights.get(class as usize).copied().unwrap_or(0.0);
    // A batch has few classes, and logits are few: one loss for each class.
    let of_class = |class: u32| {
        let only = |own: &u32| if *own == class { class } else { IGNORED };
        let targets: Vec<u32> = classes.iter().map(only).collect();
        scale(cross_entropy(logits.clone(), &targets, options), weight_of(class))
    };
    let sum = present.iter().map(|class| of_class(*class)).reduce(|a, b| a + b);
    let weight = classes.iter().map(|class| f64::from(weight_of(*class))).sum();
    Loss { sum: sum.unwrap_or_else(|| Var::constant(Tensor::scalar(0.0))), weight }
}

struct ClassJudge<'a> {
    labels: &'a [String],
    held: &'a Held,
    confusion: Confusion,
    /// Example, what is right, what was said, and how probable that seemed.
    mistakes: Vec<(usize, usize, usize, f64)>,
    loss: f64,
}

impl Judge for ClassJudge<'_> {
    fn see(&mut self, examples: Range<usize>, batch: &Batch, outputs: &[Tensor]) {
        let Some(Labels::Classes(classes)) = &batch.labels else { return };
        let width = self.labels.len().max(1);
        for ((example, class), logits) in
            examples.zip(classes).zip(outputs[0].data().chunks_exact(width))
        {
            let right = *class as usize;
            let (loss, said) = row_loss(logits, right);
            self.loss += loss;
            self.confusion.add(right, said);
            if said != right {
                let probability = (-row_loss(logits, said).0).exp();
                self.mistakes.push((example, right, said, probability));
                self.mistakes.sort_by(|a, b| b.3.total_cmp(&a.3));
                self.mistakes.truncate(WORST);
            }
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![
            Metric::new("accuracy", Better::Higher, self.confusion.accuracy()),
            Metric::loss(self.loss / self.confusion.total().max(1) as f64),
            Metric::new("f1", Better::Higher, self.confusion.macro_f1()),
        ]
    }

    fn tables(&self) -> Vec<Table> {
        let classes = self.confusion.classes();
        let name = |class: usize| self.labels[class].clone();
        let mut scores: Vec<Vec<String>> = (0..classes)
            .map(|class| {
                let score = self.confusion.score(class);
                let numbers = [score.precision, score.recall, score.f1];
                let numbers = numbers.map(|number| format!("{number:.4}"));
                [vec![name(class)], numbers.to_vec(), vec![score.count.to_string()]].concat()
            })
            .collect();
        let majority = format!("{:.4}", self.confusion.majority());
        let always = "accuracy of always saying the most frequent class".to_owned();
        scores.push(vec![always, majority, String::new(), String::new(), String::new()]);
        let columns = ["class", "precision", "recall", "F1", "texts"];
        let mut tables = vec![table("Classes", &columns, scores)];
        if classes <= SHOWN {
            let rows = (0..classes).map(|right| {
                let counts = (0..classes).map(|said| self.confusion.count(right, said).to_string());
                std::iter::once(name(right)).chain(counts).collect()
            });
            let columns: Vec<&str> = std::iter::once("is ↓  was called →")
                .chain(self.labels.iter().map(String::as_str))
                .collect();
            tables.push(table("Confusion matrix", &columns, rows.collect()));
        }
        if !self.mistakes.is_empty() {
            let rows = self.mistakes.iter().map(|(example, right, said, probability)| {
                let text = self.held.text(*example);
                vec![shortened(&text), name(*right), name(*said), format!("{probability:.4}")]
            });
            let columns = ["text", "is", "was called", "with probability"];
            tables.push(table("Worst mistakes", &columns, rows.collect()));
        }
        tables
    }
}

struct SeveralJudge<'a> {
    labels: &'a [String],
    /// (rows, labels) each.
    right: Vec<bool>,
    said: Vec<bool>,
    loss: f64,
}

impl Judge for SeveralJudge<'_> {
    fn see(&mut self, _: Range<usize>, batch: &Batch, outputs: &[Tensor]) {
        let Some(Labels::Several(flags)) = &batch.labels else { return };
        for (flag, logit) in flags.iter().zip(outputs[0].data()) {
            let z = f64::from(*logit);
            let signed = if *flag { -z } else { z };
            self.loss += signed.max(0.0) + (-signed.abs()).exp().ln_1p();
            self.right.push(*flag);
            self.said.push(z > 0.0);
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let (subset, mean, all) = several_scores(&self.right, &self.said, self.labels.len());
        vec![
            Metric::new("f1", Better::Higher, mean),
            Metric::loss(self.loss / self.right.len().max(1) as f64),
            Metric::new("micro_f1", Better::Higher, all),
            Metric::new("accuracy", Better::Higher, subset),
        ]
    }

    fn tables(&self) -> Vec<Table> {
        let count = self.labels.len().max(1);
        let rows = self.labels.iter().enumerate().map(|(label, name)| {
            let of = |flags: &[bool]| -> Vec<bool> {
                flags.iter().skip(label).step_by(count).copied().collect()
            };
            let (right, said) = (of(&self.right), of(&self.said));
            let (_, f1, _) = several_scores(&right, &said, 1);
            let texts = right.iter().filter(|flag| **flag).count();
            vec![name.clone(), format!("{f1:.4}"), texts.to_string()]
        });
        vec![table("Labels", &["label", "F1", "texts"], rows.collect())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weighted_losses_are_sums_of_weighted_rows() {
        let logits = [1.0, 2.0, 0.5, -1.0, 0.0, 3.0, 0.2, 0.1, 0.0_f32];
        let (classes, weights) = ([2, 0, 2], [0.5, 9.0, 2.0]);
        let make = || Var::constant(Tensor::new([3, 3], &logits));
        let loss = weighted(&make(), &classes, &weights, Options::default());
        let rows = logits.chunks_exact(3).zip(classes);
        let want: f64 = rows
            .map(|(row, class)| {
                f64::from(weights[class as usize]) * row_loss(row, class as usize).0
            })
            .sum();
        assert!((f64::from(loss.sum.value().item()) - want).abs() < 1e-5);
        assert!((loss.weight - 4.5).abs() < 1e-12);
        let even = weighted(&make(), &classes, &[1.0; 3], Options::default());
        let plain = Options { reduction: Reduction::Sum, ..Options::default() };
        let plain = cross_entropy(make(), &classes, plain);
        assert!((even.sum.value().item() - plain.value().item()).abs() < 1e-6);
    }

    #[test]
    fn rows_have_their_loss_and_their_largest_logit() {
        let (loss, said) = row_loss(&[0.0, 3.0_f32.ln()], 0);
        assert!((loss - 4.0_f64.ln()).abs() < 1e-6);
        assert_eq!(said, 1);
        assert_eq!(row_loss(&[1000.0, 0.0], 0), (0.0, 0));
    }
}
