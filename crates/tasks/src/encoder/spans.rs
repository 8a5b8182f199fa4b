//! Answer questions by a part of a text: cross-entropy of its first and of its last token.
//!
//! A long context has several windows. In one without the answer, both are the first token. The
//! answer to a question is the best of all windows: the largest start + end, less those of the
//! first token. Padding takes no part in the loss, which therefore does not depend on what else is
//! in the batch.

use super::data::Held;
use super::objective::{Common, Judge, Objective, WORST, row_loss, shortened, table, training};
use crate::metrics::answer_scores;
use hearken_data::batches::{Batch, Labels};
use hearken_data::frames::best_answer;
use hearken_data::labelled::Answer;
use hearken_nn::layers::Loss;
use hearken_nn::models::{FindsSpans, Model};
use hearken_nn::pass::{Noise, Pass};
use hearken_show::Table;
use hearken_tensor::ops::cross_entropy::{Options, Reduction, cross_entropy};
use hearken_tensor::{Tensor, Var, no_grad};
use hearken_train::{Better, Metric};
use std::collections::BTreeMap;
use std::ops::Range;

pub(crate) struct Spans {
    pub(crate) common: Common,
    /// Tokens of an answer, at most.
    pub(crate) longest: usize,
}

fn reader(model: &dyn Model) -> &dyn FindsSpans {
    model.finds_spans().expect("the purpose was found by the head")
}

impl Objective for Spans {
    fn loss(&self, model: &dyn Model, batch: &Batch, noise: Noise) -> Loss {
        let Some(Labels::Spans(spans)) = &batch.labels else {
            unreachable!("a reader was given {:?}", batch.labels)
        };
        let [starts, ends] = [0, 1].map(|i| spans.iter().map(|s| s[i]).collect::<Vec<u32>>());
        let logits = reader(model).span_logits(&self.common.tokens(batch), &training(noise));
        let options = Options { reduction: Reduction::Sum, ..self.common.options };
        let of = |logits: Var, targets: &[u32]| {
            cross_entropy(without_padding(logits, batch), targets, options)
        };
        let [start, end] = logits;
        Loss { sum: of(start, &starts) + of(end, &ends), weight: 2.0 * spans.len() as f64 }
    }

    fn outputs(&self, model: &dyn Model, batch: &Batch) -> Vec<Tensor> {
        let tokens = self.common.tokens(batch);
        let logits = no_grad(|| reader(model).span_logits(&tokens, &Pass::evaluate()));
        logits.map(Var::into_value).to_vec()
    }

    fn judge<'a>(&'a self, held: &'a Held) -> Box<dyn Judge + 'a> {
        let best = BTreeMap::new();
        Box::new(SpanJudge { longest: self.longest, held, best, loss: 0.0, counted: 0 })
    }

    fn unit(&self) -> &'static str {
        "nats per end of an answer"
    }
}

/// Logits (B, T) in which padding has no chance.
fn without_padding(logits: Var, batch: &Batch) -> Var {
    /// Far below any logit: e to it is 0 in f32.
    const NEVER: f32 = -1e9;
    if batch.lengths.is_none() {
        return logits;
    }
    let mut mask = Tensor::zeros([batch.rows, batch.length]);
    for (row, mask) in mask.data_mut().chunks_exact_mut(batch.length.max(1)).enumerate() {
        mask[batch.length_of(row)..].fill(NEVER);
    }
    logits + Var::constant(mask)
}

struct SpanJudge<'a> {
    longest: usize,
    held: &'a Held,
    /// Of each row: its best score so far, and the bytes of that answer.
    best: BTreeMap<usize, (f32, Range<usize>)>,
    loss: f64,
    counted: usize,
}

impl SpanJudge<'_> {
    /// What is right, what was said, whether that is right, and the overlap.
    fn answers(&self) -> impl Iterator<Item = (usize, &str, bool, f64)> {
        self.best.iter().filter_map(|(row, (_, place))| {
            let of = &self.held.rows[*row];
            let Answer::Span(_, right) = &of.answer else { return None };
            let said = &of.text[place.clone()];
            let (exact, overlap) = answer_scores(said, right);
            Some((*row, said, exact, overlap))
        })
    }
}

impl Judge for SpanJudge<'_> {
    fn see(&mut self, examples: Range<usize>, batch: &Batch, outputs: &[Tensor]) {
        let Some(Labels::Spans(spans)) = &batch.labels else { return };
        let length = batch.length;
        for (row, (example, span)) in examples.zip(spans).enumerate() {
            let n = batch.length_of(row);
            let [start, end] = [0, 1].map(|i| &outputs[i].data()[row * length..][..n]);
            self.loss += row_loss(start, span[0] as usize).0 + row_loss(end, span[1] as usize).0;
            self.counted += 2;
            let detail = &self.held.details[example];
            let context = detail.at..(detail.at + detail.places.len()).min(n);
            let found = best_answer(start, end, context, self.longest);
            let (score, place) = match found {
                Some(guess) => {
                    let [first, last] = guess.tokens.map(|token| &detail.places[token - detail.at]);
                    (guess.score, first.start..last.end.max(first.start))
                }
                None => (f32::NEG_INFINITY, 0..0),
            };
            let best = self.best.entry(detail.row).or_insert((f32::NEG_INFINITY, 0..0));
            if score > best.0 {
                *best = (score, place);
            }
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let count = self.best.len().max(1) as f64;
        let exact = self.answers().filter(|(_, _, exact, _)| *exact).count() as f64;
        let overlap: f64 = self.answers().map(|(_, _, _, overlap)| overlap).sum();
        vec![
            Metric::new("exact_match", Better::Higher, exact / count),
            Metric::loss(self.loss / self.counted.max(1) as f64),
            Metric::new("f1", Better::Higher, overlap / count),
        ]
    }

    fn tables(&self) -> Vec<Table> {
        let mut wrong: Vec<(usize, &str, f64)> = self
            .answers()
            .filter(|(_, _, exact, _)| !exact)
            .map(|(row, said, _, overlap)| (row, said, overlap))
            .collect();
        if wrong.is_empty() {
            return Vec::new();
        }
        wrong.sort_by(|a, b| a.2.total_cmp(&b.2));
        let rows = wrong.iter().take(WORST).map(|(row, said, _)| {
            let of = &self.held.rows[*row];
            let right = match &of.answer {
                Answer::Span(_, right) => right.join(" | "),
                _ => String::new(),
            };
            let question = of.second.clone().unwrap_or_default();
            [&question, &of.text, &right, *said].map(shortened).to_vec()
        });
        let columns = ["question", "text", "answer", "was said"];
        vec![table("Worst mistakes", &columns, rows.collect())]
    }
}
