//! Everything that the next step depends on, to disk and back.

use super::{Checkpoint, Trainer};
use crate::checkpoint::{Loaded, State};
use crate::ema::Ema;
use crate::error;
use crate::files;
use hearken_base::Result;
use hearken_tensor::Param;
use hearken_tensor::half::LossScaler;

/// Steps without overflow before the loss scale doubles, as [`LossScaler::default`] has it.
fn growth_interval() -> u32 {
    LossScaler::default().growth_interval
}

/// With averages the model's files hold these, and the weights are saved under this prefix.
fn weight_name(parameter: &Param) -> String {
    format!("weight.{}", parameter.name())
}

/// What the names of the task's own state begin with.
const TASK: &str = "task.";

impl Trainer<'_> {
    /// Saves a checkpoint, and removes those that are not kept.
    pub(super) fn save(&mut self, checkpoint: Checkpoint) -> Result<()> {
        self.progress.activity("saving a checkpoint");
        let survivors = |error| self.checkpoints.survivors(error);
        // What the files of the run say of this step must not be lost when the checkpoint is
        // there.
        self.records.sync().map_err(survivors)?;
        let stepper = &self.stepper;
        let state = State {
            format: State::FORMAT,
            step: self.step,
            seed: self.config.seed,
            optimizer: stepper.optimizer.config().name().to_owned(),
            counters: stepper.optimizer.counters(),
            loss_scale: stepper.scaler.as_ref().map(|s| (s.scale(), s.good_steps())),
            evaluations: self.evaluations.clone(),
            ema_updates: stepper.ema.as_ref().map(Ema::updates),
            skipped: stepper.skipped,
            tokens: self.clock.tokens,
            elapsed_seconds: self.seconds(),
            weights: files::checksum_of_parameters(&self.task.parameters()),
        };
        let mut tensors = stepper.optimizer.tensors();
        if stepper.ema.is_some() {
            tensors.extend(stepper.parameters().iter().map(|p| (weight_name(p), p.value())));
        }
        let task = &*self.task;
        let own = task.state().into_iter();
        tensors.extend(own.map(|(name, tensor)| (format!("{TASK}{name}"), tensor)));
        stepper.with_judged_weights(|| {
            self.checkpoints.save(&state, &tensors, |dir| task.save_model(dir))
        })?;
        if checkpoint == Checkpoint::Best {
            self.checkpoints.set_best(self.step).map_err(survivors)?;
        }
        self.checkpoints.prune(self.config.keep).map_err(survivors)
    }

    /// Continues from a checkpoint.
    pub(super) fn restore(&mut self, loaded: &Loaded) -> Result<()> {
        let Loaded { path, state, tensors } = loaded;
        if state.seed != self.config.seed {
            return Err(error::mismatch(
                path,
                format!("its seed is {}, not {}", state.seed, self.config.seed),
                "resume with the seed of the run, or start another with --out",
            ));
        }
        let kind = self.config.optimizer.name();
        if state.optimizer != kind {
            return Err(error::mismatch(
                path,
                format!("its optimiser is {}, not {kind}", state.optimizer),
                "resume with the optimiser of the run, or start another with --out",
            ));
        }
        self.task.load_model(path)?;
        let stepper = &mut self.stepper;
        if let Some(updates) = state.ema_updates {
            let averages = stepper.parameters().iter().map(Param::value).collect();
            for parameter in stepper.parameters() {
                parameter.set_value(files::tensor(
                    tensors,
                    &weight_name(parameter),
                    parameter.shape(),
                )?);
            }
            if let Some(ema) = &mut stepper.ema {
                ema.restore(updates, averages);
            }
        } else {
            let weights = stepper.parameters().iter().map(Param::value).collect();
            if let Some(ema) = &mut stepper.ema {
                ema.restore(0, weights);
            }
        }
        if files::checksum_of_parameters(&self.task.parameters()) != state.weights {
            return Err(error::mismatch(
                path,
                "its weights are not those that were trained",
                "the model's files must keep all bits of the weights; save them as f32",
            ));
        }
        stepper
            .optimizer
            .restore(state.counters, |name, like| files::tensor(tensors, name, like.shape()))?;
        if let (Some(scaler), Some((scale, good_steps))) = (&mut stepper.scaler, state.loss_scale) {
            *scaler = LossScaler::new(scale, growth_interval()).after(good_steps);
        }
        stepper.skipped = state.skipped;
        self.task.restore_state(files::tensors_with_prefix(tensors, TASK)?)?;
        self.evaluations = state.evaluations.clone();
        if self.evaluations.compare_on(self.config.evaluate_tokens) {
            self.progress.message(
                "note: evaluations look at another part of the validation set from now on; which is \
                 the best is decided anew",
            );
        }
        self.clock.tokens = state.tokens;
        self.clock.seconds_before = state.elapsed_seconds;
        Ok(())
    }
}
