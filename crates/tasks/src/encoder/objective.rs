//! What a purpose asks of a model: a loss to learn by, and answers to be judged.

use super::data::Held;
use hearken_data::batches::Batch;
use hearken_nn::layers::Loss;
use hearken_nn::models::Model;
use hearken_nn::pass::{Noise, Pass};
use hearken_show::Table;
use hearken_tensor::Tensor;
use hearken_tensor::ops::cross_entropy::Options;
use hearken_train::Metric;
use std::ops::Range;

/// What is learned, and how it is judged. The batches are those of its own purpose.
pub(crate) trait Objective: Send + Sync {
    /// The loss of a batch. What is random in it depends on `noise` alone.
    fn loss(&self, model: &dyn Model, batch: &Batch, noise: Noise) -> Loss;

    /// What the model says of a batch, for [`Judge::see`].
    fn outputs(&self, model: &dyn Model, batch: &Batch) -> Vec<Tensor>;

    /// Judges answers to what is held out.
    fn judge<'a>(&'a self, held: &'a Held) -> Box<dyn Judge + 'a>;

    /// The unit of the loss.
    fn unit(&self) -> &'static str;
}

/// Counts answers.
pub(crate) trait Judge {
    /// Takes what the model says of these examples, the rows of the batch.
    fn see(&mut self, examples: Range<usize>, batch: &Batch, outputs: &[Tensor]);

    /// The measures of all that was seen, the deciding one first.
    fn metrics(&self) -> Vec<Metric>;

    /// Details for the report.
    fn tables(&self) -> Vec<Table>;
}

/// What objectives share.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// Of cross-entropies.
    pub(crate) options: Options,
    /// Does the model know types of tokens?
    pub(crate) types: bool,
}

impl Common {
    pub(crate) fn tokens<'a>(&self, batch: &'a Batch) -> hearken_nn::models::Tokens<'a> {
        crate::batch::tokens(batch, self.types)
    }
}

pub(crate) fn training(noise: Noise) -> Pass {
    Pass::train(noise)
}

/// −ln softmax(logits)ₜ in f64, and the largest logit's place.
pub(crate) fn row_loss(logits: &[f32], target: usize) -> (f64, usize) {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|z| f64::from(z - most).exp()).sum();
    let said = logits.iter().position(|z| *z == most).unwrap_or(0);
    let own = logits.get(target).copied().unwrap_or(f32::NAN);
    (sum.ln() - f64::from(own - most), said)
}

/// The beginning of a text, for a table.
pub(crate) fn shortened(text: &str) -> String {
    const MOST: usize = 160;
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > MOST {
        line = line.chars().take(MOST).chain(['…']).collect();
    }
    line
}

/// Words for a table.
pub(crate) fn table(title: &str, columns: &[&str], rows: Vec<Vec<String>>) -> Table {
    let columns = columns.iter().map(|name| (*name).to_owned()).collect();
    Table { title: title.to_owned(), columns, rows }
}

/// Worst first, of so many.
pub(crate) const WORST: usize = 20;
