//! Guess hidden tokens: BERT's masked language model.

use super::data::Held;
use super::objective::{Common, Judge, Objective, training};
use hearken_data::batches::Batch;
use hearken_nn::layers::Loss;
use hearken_nn::models::{Model, PredictsTokens};
use hearken_nn::pass::Noise;
use hearken_show::Table;
use hearken_tensor::Tensor;
use hearken_train::Metric;
use std::ops::Range;

pub(crate) struct Masks {
    pub(crate) common: Common,
}

fn predictor(model: &dyn Model) -> &dyn PredictsTokens {
    model.predicts_tokens().expect("the purpose was found by the head")
}

impl Objective for Masks {
    fn loss(&self, model: &dyn Model, batch: &Batch, noise: Noise) -> Loss {
        let (tokens, options) = (self.common.tokens(batch), self.common.options);
        predictor(model).loss(&tokens, &batch.targets, &training(noise), options)
    }

    fn outputs(&self, model: &dyn Model, batch: &Batch) -> Vec<Tensor> {
        vec![predictor(model).token_losses(&self.common.tokens(batch), &batch.targets)]
    }

    fn judge<'a>(&'a self, _: &'a Held) -> Box<dyn Judge + 'a> {
        Box::new(MaskJudge::default())
    }

    fn unit(&self) -> &'static str {
        "nats per hidden token"
    }
}

#[derive(Default)]
struct MaskJudge {
    loss: f64,
    counted: usize,
}

impl Judge for MaskJudge {
    fn see(&mut self, _: Range<usize>, batch: &Batch, outputs: &[Tensor]) {
        self.loss += outputs[0].data().iter().map(|loss| f64::from(*loss)).sum::<f64>();
        self.counted += batch.counted();
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![Metric::loss(self.loss / self.counted.max(1) as f64)]
    }

    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }
}
