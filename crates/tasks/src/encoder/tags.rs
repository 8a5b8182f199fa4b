//! Label every word: cross-entropy at the first token of each.

use super::data::Held;
use super::objective::{Common, Judge, Objective, WORST, row_loss, shortened, table, training};
use crate::metrics::{EntityScore, entities};
use hearken_data::batches::Batch;
use hearken_data::labelled::Answer;
use hearken_nn::layers::Loss;
use hearken_nn::models::{Model, Tags};
use hearken_nn::pass::{Noise, Pass};
use hearken_show::Table;
use hearken_tensor::{Tensor, no_grad};
use hearken_train::{Better, Metric};
use std::ops::Range;

pub(crate) struct TagWords {
    pub(crate) common: Common,
    pub(crate) labels: Vec<String>,
}

fn tagger(model: &dyn Model) -> &dyn Tags {
    model.tags().expect("the purpose was found by the head")
}

impl Objective for TagWords {
    fn loss(&self, model: &dyn Model, batch: &Batch, noise: Noise) -> Loss {
        let (tokens, options) = (self.common.tokens(batch), self.common.options);
        tagger(model).tag_loss(&tokens, &batch.targets, &training(noise), options)
    }

    fn outputs(&self, model: &dyn Model, batch: &Batch) -> Vec<Tensor> {
        let tokens = self.common.tokens(batch);
        vec![no_grad(|| tagger(model).tag_logits(&tokens, &Pass::evaluate())).into_value()]
    }

    fn judge<'a>(&'a self, held: &'a Held) -> Box<dyn Judge + 'a> {
        // A word that the model does not see, since its row was cut, is said to be outside.
        let outside = self.labels.iter().position(|label| label == "O").unwrap_or(0);
        let of = &self.labels;
        Box::new(TagJudge { labels: of, outside, held, ..TagJudge::empty(of, held) })
    }

    fn unit(&self) -> &'static str {
        "nats per word"
    }
}

struct TagJudge<'a> {
    labels: &'a [String],
    outside: usize,
    held: &'a Held,
    score: EntityScore,
    loss: f64,
    words: usize,
    right: usize,
    unseen: usize,
    /// Example and the number of words that are wrong in it.
    mistakes: Vec<(usize, usize)>,
}

impl<'a> TagJudge<'a> {
    fn empty(labels: &'a [String], held: &'a Held) -> Self {
        let (score, mistakes) = (EntityScore::default(), Vec::new());
        Self { labels, outside: 0, held, score, loss: 0.0, words: 0, right: 0, unseen: 0, mistakes }
    }
}

impl Judge for TagJudge<'_> {
    fn see(&mut self, examples: Range<usize>, batch: &Batch, outputs: &[Tensor]) {
        let (length, width) = (batch.length, self.labels.len().max(1));
        let logits = outputs[0].data();
        for (row, example) in examples.enumerate() {
            let detail = &self.held.details[example];
            let Answer::Tags(words) = &self.held.rows[detail.row].answer else { continue };
            let mut said = Vec::with_capacity(words.len());
            for ((_, right), token) in words.iter().zip(&detail.words) {
                let right = *right as usize;
                let label = if let Some(token) = token {
                    let at = (row * length + token) * width;
                    let (loss, label) = row_loss(&logits[at..at + width], right);
                    self.loss += loss;
                    self.words += 1;
                    label
                } else {
                    self.unseen += 1;
                    self.outside
                };
                self.right += usize::from(label == right);
                said.push(label);
            }
            let name = |label: usize| self.labels[label].as_str();
            let right: Vec<usize> = words.iter().map(|(_, tag)| *tag as usize).collect();
            let wrong = right.iter().zip(&said).filter(|(right, said)| right != said).count();
            self.score.add(
                &entities(right.iter().map(|label| name(*label))),
                &entities(said.iter().map(|label| name(*label))),
            );
            if wrong > 0 {
                self.mistakes.push((example, wrong));
                self.mistakes.sort_by_key(|(example, wrong)| (std::cmp::Reverse(*wrong), *example));
                self.mistakes.truncate(WORST);
            }
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let all = (self.words + self.unseen).max(1) as f64;
        vec![
            Metric::new("f1", Better::Higher, self.score.f1()),
            Metric::loss(self.loss / self.words.max(1) as f64),
            Metric::new("accuracy", Better::Higher, self.right as f64 / all),
        ]
    }

    fn tables(&self) -> Vec<Table> {
        let row = |(kind, f1, count): (&str, f64, usize)| {
            vec![kind.to_owned(), format!("{f1:.4}"), count.to_string()]
        };
        let kinds = self.score.kinds().map(row).collect();
        let mut tables = vec![table("Entities", &["kind", "F1", "there are"], kinds)];
        if !self.mistakes.is_empty() {
            let row = |(example, wrong): &(usize, usize)| {
                vec![shortened(&self.held.text(*example)), wrong.to_string()]
            };
            let rows = self.mistakes.iter().map(row).collect();
            tables.push(table("Worst mistakes", &["text", "wrong words"], rows));
        }
        if self.unseen > 0 {
            let rows = vec![vec!["words beyond the context".to_owned(), self.unseen.to_string()]];
            tables.push(table("Not seen", &["what", "how many"], rows));
        }
        tables
    }
}
