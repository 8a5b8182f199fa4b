//! A decoder and its text, as the training loop wants them.

use super::data::Data;
use hearken::data::batches::IGNORED;
use hearken::formats::directory::{self, SpecialTokens};
use hearken::infer::generate::{Flow, Request, generate};
use hearken::infer::sampler::Sampling;
use hearken::nn::cache::CacheKind;
use hearken::nn::decoder::Decoder;
use hearken::nn::layers::{Noise, Pass, Record};
use hearken::nn::plan::Plan;
use hearken::tensor::ops::cross_entropy::Options;
use hearken::tensor::ops::scale::scale;
use hearken::tensor::{Param, no_grad};
use hearken::train::{
    Error, Evaluation, Extent, LayerAttention, MicroLoss, Moment, Observation, Task, TrainConfig,
};
use std::path::Path;

/// Tokens of a sample.
const SAMPLE: usize = 200;

pub(super) struct DecoderTask {
    pub(super) model: Decoder,
    pub(super) data: Data,
    options: Options,
    special: SpecialTokens,
}

impl DecoderTask {
    pub(super) fn new(mut model: Decoder, data: Data, config: &TrainConfig) -> Self {
        model.set_checkpointing(config.gradient_checkpointing);
        let options = Options {
            label_smoothing: config.label_smoothing,
            z_loss: config.z_loss,
            ..Options::default()
        };
        let special = data.special_tokens();
        Self { model, data, options, special }
    }
}

impl Task for DecoderTask {
    fn parameters(&self) -> Vec<Param> {
        self.model.parameters()
    }

    fn loss(&self, at: Moment) -> Result<MicroLoss, Error> {
        let batch = self.data.batches.micro_batch(at.step, at.micro_batch, at.micro_batches);
        let pass = Pass::train(Noise { seed: at.seed, step: at.counter() });
        let loss = self.model.loss(&batch.inputs, &batch.targets, batch.rows, &pass, self.options);
        let loss = match at.micro_batches {
            1 => loss,
            parts => scale(loss, 1.0 / parts as f32),
        };
        Ok(MicroLoss { loss, tokens: batch.counted() })
    }

    fn evaluate(
        &mut self,
        extent: Extent,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Option<Evaluation>, Error> {
        let (count, mut batches) = self.data.validation_batches().map_err(Error::task)?;
        let sampled = self.data.sampled(extent.sample, count);
        // As evenly as can be, the first among them.
        let in_sample = |i: usize| i as u64 * sampled as u64 % (count as u64) < sampled as u64;
        // Of all that is looked at, and of the sample.
        let mut sums = [(0.0, 0); 2];
        let mut next = 0;
        for i in (0..count).filter(|&i| extent.whole || in_sample(i)) {
            progress(i as f64 / count as f64);
            let Some(batch) = batches.nth(i - next) else { break };
            next = i + 1;
            let losses = self.model.token_losses(&batch.inputs, &batch.targets, batch.rows);
            let loss = losses.data().iter().map(|loss| f64::from(*loss)).sum::<f64>();
            let counted = batch.targets.iter().filter(|target| **target != IGNORED).count();
            for (sum, tokens) in &mut sums[..if in_sample(i) { 2 } else { 1 }] {
                *sum += loss;
                *tokens += counted;
            }
        }
        let [loss, sample_loss] = sums.map(|(sum, tokens)| sum / tokens as f64);
        let tokens = sums[0].1;
        let whole = extent.whole || sampled == count;
        Ok((tokens > 0).then_some(Evaluation { loss, tokens, sample_loss, whole }))
    }

    fn sample(&mut self, step: u64) -> Result<Option<String>, Error> {
        let prompt = self.data.prompt();
        let request = Request {
            sampling: Sampling { temperature: 0.8, seed: step, ..Sampling::default() },
            most_tokens: SAMPLE,
            ends: self.special.end.into_iter().collect(),
            cache: Some(CacheKind::F32),
            prompt,
        };
        let (mut tokens, _) =
            generate(&self.model, &request, |_| Flow::Continue).map_err(Error::task)?;
        // A model may have room for more tokens than there are: these say nothing.
        tokens.retain(|id| (*id as usize) < self.data.tokenizer.vocabulary_size());
        let text = self.data.tokenizer.decode_without_special(&tokens).map_err(Error::task)?;
        Ok(Some(text))
    }

    fn observe(&mut self, step: u64) -> Result<Observation, Error> {
        // One row is enough to see whether heads have collapsed.
        let batch = self.data.batches.rows_of(step, 0..1);
        let record = Record::default();
        no_grad(|| {
            let _ = self.model.hidden(&batch.inputs, 1, &Pass::evaluate().recorded(&record), None);
        });
        let layers = record.take().into_iter().filter_map(|(name, values)| {
            let layer = name.strip_suffix(".attention.entropy")?.to_owned();
            // (H) entropies, then the most there could be.
            let (most, entropy) = values.data().split_last()?;
            Some(LayerAttention { layer, entropy: entropy.to_vec(), most: *most })
        });
        Ok(Observation { attention: layers.collect() })
    }

    fn save_model(&self, dir: &Path) -> Result<(), Error> {
        directory::save(dir, &self.model, self.special).map_err(Error::task)?;
        self.data.tokenizer.save_directory(dir).map_err(Error::task)
    }

    fn load_model(&mut self, dir: &Path) -> Result<(), Error> {
        let loaded = directory::load(dir).map_err(Error::task)?;
        let new = loaded.model.parameters();
        for (own, new) in self.model.parameters().iter().zip(&new) {
            if own.name() != new.name() || own.shape() != new.shape() {
                return Err(Error::config(
                    format!(
                        "{} has {} {} where this model has {} {}",
                        dir.display(),
                        new.name(),
                        new.shape(),
                        own.name(),
                        own.shape()
                    ),
                    "resume with the configuration that the run was started with",
                ));
            }
            own.set_value(new.value());
        }
        Ok(())
    }

    fn flops_per_token(&self) -> f64 {
        Plan::new(self.model.config()).training_flops_per_token(self.data.batches.length())
    }
}
