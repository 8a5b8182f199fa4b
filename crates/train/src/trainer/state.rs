//! Everything that the next step depends on, to disk and back.

use super::Trainer;
use crate::checkpoint::{Loaded, State};
use crate::error::Error;
use crate::files;
use hearken_tensor::half::LossScaler;
use hearken_tensor::{Param, Tensor};

/// Steps without overflow before the loss scale doubles, as [`LossScaler::default`] has it.
fn growth_interval() -> u32 {
    LossScaler::default().growth_interval
}

/// With averages the model's files hold these, and the weights are saved under this prefix.
fn weight_name(parameter: &Param) -> String {
    format!("weight.{}", parameter.name())
}

impl Trainer<'_> {
    /// Saves a checkpoint, and removes those that are not kept.
    pub(super) fn save(&mut self, is_best: bool) -> Result<(), Error> {
        self.progress.activity("saving a checkpoint");
        // What the files of the run say of this step must not be lost when the checkpoint is
        // there.
        self.records.sync()?;
        let weights: Vec<Tensor> = self.parameters.iter().map(Param::value).collect();
        let state = State {
            format: State::FORMAT,
            step: self.step,
            seed: self.config.seed,
            optimizer: self.optimizer.config().name().to_owned(),
            counters: self.optimizer.counters(),
            loss_scale: self.scaler.as_ref().map(|s| (s.scale(), s.good_steps())),
            evaluations: self.evaluations,
            ema_updates: self.ema.as_ref().map(crate::ema::Ema::updates),
            skipped: self.skipped,
            tokens: self.tokens,
            elapsed_seconds: self.seconds(),
            weights: files::checksum_of_tensors(&weights),
        };
        let mut tensors = self.optimizer.tensors();
        if self.ema.is_some() {
            let named = self.parameters.iter().zip(weights);
            tensors.extend(named.map(|(p, weight)| (weight_name(p), weight)));
        }
        let task = &*self.task;
        let write = || self.checkpoints.save(&state, &tensors, |dir| task.save_model(dir));
        let path = match &self.ema {
            Some(ema) => ema.with_averages(&self.parameters, write),
            None => write(),
        }?;
        if is_best {
            self.checkpoints.set_best(self.step)?;
        }
        self.checkpoints.prune(self.config.keep)?;
        self.saved = Some(path);
        Ok(())
    }

    /// Continues from a checkpoint.
    pub(super) fn restore(&mut self, loaded: &Loaded) -> Result<(), Error> {
        let Loaded { path, state, tensors } = loaded;
        let mismatch = |what: String, hint: &str| Error::Mismatch {
            path: path.clone(),
            what,
            hint: hint.to_owned(),
        };
        if state.seed != self.config.seed {
            return Err(mismatch(
                format!("its seed is {}, not {}", state.seed, self.config.seed),
                "resume with the seed of the run, or start another with --out",
            ));
        }
        let kind = self.optimizer.config().name();
        if state.optimizer != kind {
            return Err(mismatch(
                format!("its optimiser is {}, not {kind}", state.optimizer),
                "resume with the optimiser of the run, or start another with --out",
            ));
        }
        self.task.load_model(path)?;
        let tensors = tensors.tensors()?;
        if let Some(updates) = state.ema_updates {
            let averages = self.parameters.iter().map(Param::value).collect();
            for parameter in &self.parameters {
                parameter.set_value(tensors.get(&weight_name(parameter), parameter.shape())?);
            }
            if let Some(ema) = &mut self.ema {
                ema.restore(updates, averages);
            }
        } else if let Some(ema) = &mut self.ema {
            ema.restore(0, self.parameters.iter().map(Param::value).collect());
        }
        let weights: Vec<Tensor> = self.parameters.iter().map(Param::value).collect();
        if files::checksum_of_tensors(&weights) != state.weights {
            return Err(mismatch(
                "its weights are not those that were trained".to_owned(),
                "the model's files must keep all bits of the weights; save them as f32",
            ));
        }
        self.optimizer.restore(state.counters, |name, like| tensors.get(name, like.shape()))?;
        if let (Some(scaler), Some((scale, good_steps))) = (&mut self.scaler, state.loss_scale) {
            *scaler = LossScaler::new(scale, growth_interval()).after(good_steps);
        }
        self.evaluations = state.evaluations;
        if self.evaluations.compare_on(self.config.evaluate_tokens) {
            self.progress.message(
                "note: evaluations look at another part of the validation set from now on; which is \
                 the best is decided anew",
            );
        }
        self.skipped = state.skipped;
        self.tokens = state.tokens;
        self.seconds_before = state.elapsed_seconds;
        self.saved = Some(path.clone());
        Ok(())
    }
}
