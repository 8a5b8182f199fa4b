//! The loop.
//!
//! ```text
//! for each step:
//!   for each micro-batch: loss, backward (scaled for f16)       gradients add up; some at a time
//!   norm of all gradients → factor that unscales and clips      not finite: skip the step
//!   optimiser with the schedule's learning rate, then the average of weights
//!   now and then: evaluation, sample, look inside, checkpoint
//! ```
//! The state between two steps is what `state` saves: weights, moments, counters, averages, loss
//! scale, best evaluation, and the step, which keys all randomness. Nothing else reaches from one
//! step into the next.

mod record;
mod state;

use crate::checkpoint::Checkpoints;
use crate::config::{Precision, TrainConfig};
use crate::diagnose::{LayerFacts, Warning, Watch};
use crate::early_stopping::{Best, Evaluations};
use crate::ema::Ema;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::norms::{self, Layers};
use crate::optimizer::Optimizer;
use crate::progress::{Mode, Progress};
use crate::report::Table;
use crate::run_dir::RunDirectory;
use crate::task::{Evaluation, Extent, Moment, Observation, Task};
use hearken_kernels::elementwise::sum_of_squares;
use hearken_kernels::isa;
use hearken_tensor::half::LossScaler;
use hearken_tensor::{Param, Tensor, no_grad, side_by_side, with_storage};
use record::Records;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What surrounds a run.
pub struct Setup {
    /// Where it leaves its files: new, or opened to be continued.
    pub run: RunDirectory,
    /// Its name, for the report.
    pub title: String,
    /// The whole configuration with its defaults, to be kept as `config.toml`.
    pub config_text: String,
    /// How to tell how it goes.
    pub progress: Mode,
    /// Asks for an end after the step; see [`crate::interrupt::install`].
    pub stop: Stop,
    /// Operations per second that the machine can do, for the share of peak.
    pub peak_flops: Option<f64>,
    /// The loss that no model can beat, if it is known.
    pub entropy_floor: Option<f64>,
    /// Said beneath the curves of the report if the training loss ends above the validation
    /// loss.
    pub why_training_is_above: Option<&'static str>,
    /// Tables for the report: parameters, memory.
    pub tables: Vec<Table>,
}

impl Setup {
    /// With nothing known but the directory.
    pub fn new(run: RunDirectory, config_text: impl Into<String>) -> Self {
        let name = run.path().file_name().unwrap_or_default().to_string_lossy();
        Self {
            title: name.into_owned(),
            run,
            config_text: config_text.into(),
            progress: Mode::Quiet,
            stop: Stop::default(),
            peak_flops: None,
            entropy_floor: None,
            why_training_is_above: None,
            tables: Vec::new(),
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done.
    Finished,
    /// The validation loss did not fall any more.
    StoppedEarly,
    /// It was asked to stop; `--resume` continues it.
    Interrupted,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// How it ended.
    pub outcome: Outcome,
    /// Steps done.
    pub step: u64,
    /// Loss of the last batch.
    pub train_loss: Option<f64>,
    /// The last validation loss.
    pub val_loss: Option<f64>,
    /// The best evaluation.
    pub best: Option<Best>,
    /// Tokens seen.
    pub tokens: u64,
    /// Seconds of training, over all parts of the run.
    pub elapsed_seconds: f64,
    /// The last checkpoint.
    pub checkpoint: Option<PathBuf>,
}

/// Trains `task` from the beginning, or from its last whole checkpoint if the run directory was
/// opened to be continued.
pub fn train(task: &mut dyn Task, config: &TrainConfig, setup: Setup) -> Result<Summary, Error> {
    config.validate()?;
    let mut trainer = Trainer::new(task, config, setup)?;
    let result = trainer.run();
    trainer.progress.finish();
    // Whatever happened, the curves show how it went.
    trainer.report();
    result.map_err(|error| trainer.checkpoints.survivors(error))
}

/// Steps in a row without a finite gradient after which it makes no sense to go on. With f16 the
/// scale may have to fall from 2²⁴ to 2⁻¹⁴ first.
fn most_skipped(precision: Precision) -> u32 {
    if precision == Precision::F16 { 40 } else { 10 }
}

struct Trainer<'a> {
    task: &'a mut dyn Task,
    config: &'a TrainConfig,
    parameters: Vec<Param>,
    layers: Layers,
    optimizer: Optimizer,
    ema: Option<Ema>,
    scaler: Option<LossScaler>,
    evaluations: Evaluations,
    /// Steps done.
    step: u64,
    tokens: u64,
    /// Steps skipped in a row.
    skipped: u32,
    run: RunDirectory,
    checkpoints: Checkpoints,
    records: Records,
    watch: Watch,
    progress: Progress,
    stop: Stop,
    /// Seconds of training before this process.
    seconds_before: f64,
    started: Instant,
    /// The step that this process started from.
    started_from: u64,
    saved: Option<PathBuf>,
}

/// What one step came to.
struct StepResult {
    loss: f64,
    lr: f64,
    gradient_norm: f64,
    tokens: usize,
    seconds: f64,
}

impl<'a> Trainer<'a> {
    fn new(task: &'a mut dyn Task, config: &'a TrainConfig, setup: Setup) -> Result<Self, Error> {
        let parameters = task.parameters();
        check_names(&parameters)?;
        // Nothing left over from a run that failed.
        for parameter in &parameters {
            parameter.set_gradient(None);
        }
        let roles = parameters.iter().map(|p| (p.clone(), task.role(p)));
        let optimizer = Optimizer::new(config.optimizer, config.decay, roles);
        let Setup { run, title, config_text, progress, stop, .. } = setup;
        let checkpoints = Checkpoints::open(&run.checkpoints())?;
        let mut progress = Progress::new(progress);
        let loaded = if run.is_resumed() {
            let (loaded, damaged) = checkpoints.newest()?;
            for error in damaged {
                let used = loaded.as_ref().map_or(0, |loaded| loaded.state.step);
                progress.warning(
                    &error.to_string(),
                    &format!("the checkpoint before it is used, of step {used}"),
                );
            }
            loaded
        } else {
            None
        };
        let step = loaded.as_ref().map_or(0, |loaded| loaded.state.step);
        if step > config.steps {
            return Err(Error::config(
                format!("{step} steps are done already, and train.steps is {}", config.steps),
                format!("to go on, give --steps with more than {step}"),
            ));
        }
        if !run.is_resumed() {
            run.write("config.toml", &config_text)?;
        }
        let facts = record::Facts {
            title,
            config_text: config_text.clone(),
            tables: setup.tables,
            floor: setup.entropy_floor,
            why_training_is_above: setup.why_training_is_above,
            peak_flops: setup.peak_flops,
            flops_per_token: task.flops_per_token(),
            parameters: parameters.iter().map(|p| p.shape().len()).sum(),
        };
        let records = Records::open(&run, step, facts)?;
        let layers = Layers::new(&parameters);
        let mut watch = Watch::new(config);
        watch.replay(records.rows(), records.entries(), layers.sizes());
        let scaler = (config.precision == Precision::F16).then(LossScaler::default);
        let ema = config.ema.map(|ema| Ema::new(ema, &parameters));
        let mut trainer = Self {
            task,
            config,
            parameters,
            layers,
            optimizer,
            ema,
            scaler,
            evaluations: Evaluations {
                sample: Some(config.evaluate_tokens),
                ..Evaluations::default()
            },
            step,
            tokens: 0,
            skipped: 0,
            run,
            checkpoints,
            records,
            watch,
            progress,
            stop,
            seconds_before: 0.0,
            started: Instant::now(),
            started_from: step,
            saved: None,
        };
        if let Some(loaded) = loaded {
            trainer.restore(&loaded)?;
            trainer.progress.message(&format!("continuing after step {step}"));
        } else if trainer.run.is_resumed() {
            trainer.progress.message("no checkpoint was saved yet: starting from the beginning");
        }
        // Not before the checkpoint has been found to fit: a refused run keeps what it had.
        if trainer.run.is_resumed() {
            trainer.run.write("config.toml", &config_text)?;
        }
        trainer.started = Instant::now();
        Ok(trainer)
    }

    fn run(&mut self) -> Result<Summary, Error> {
        while self.step < self.config.steps {
            if self.stopped_early() {
                return Ok(self.summary(Outcome::StoppedEarly));
            }
            let result = self.train_step()?;
            let is_last = self.step == self.config.steps;
            let due = |every: u64| is_last || every > 0 && self.step.is_multiple_of(every);
            let (evaluate, sample) =
                (due(self.config.evaluate_every), due(self.config.sample_every));
            let mut save = due(self.config.checkpoint_every);
            let mut evaluation = if evaluate { self.evaluate(is_last)? } else { None };
            let mut is_best = false;
            if let Some(evaluation) = &mut evaluation {
                let stopping = self.config.early_stopping;
                is_best = self.evaluations.record(self.step, evaluation, stopping);
                if self.stopped_early() && !evaluation.whole {
                    // This is the end as well.
                    *evaluation = self.evaluate(true)?.unwrap_or(*evaluation);
                    self.evaluations.complete(self.step, evaluation);
                }
            }
            self.record(&result, evaluation.as_ref())?;
            if let Some(evaluation) = evaluation {
                let warnings = self.watch.evaluation(self.step, evaluation.sample_loss);
                self.warn(warnings)?;
            }
            if sample {
                self.sample()?;
            }
            let interrupted = self.stop.load(Ordering::SeqCst);
            save |= is_best || interrupted || self.stopped_early();
            if save {
                self.save(is_best)?;
            }
            if save || evaluate {
                self.report();
            }
            if interrupted && !is_last {
                return Ok(self.summary(Outcome::Interrupted));
            }
        }
        Ok(self.summary(Outcome::Finished))
    }

    fn stopped_early(&self) -> bool {
        self.evaluations.should_stop(self.config.early_stopping)
    }

    /// One update of the weights.
    fn train_step(&mut self) -> Result<StepResult, Error> {
        let started = Instant::now();
        let lr = self.config.lr_at(self.step);
        let scale = self.scaler.as_ref().map_or(1.0, LossScaler::scale);
        let (loss, tokens) = self.gradients(scale)?;
        let squares = norms::gradient_squares(&self.parameters, 1.0 / f64::from(scale));
        let gradient_norm = squares.iter().sum::<f64>().sqrt();
        let finite = loss.is_finite() && gradient_norm.is_finite();
        let unscale = match &mut self.scaler {
            Some(scaler) => scaler.after_backward(finite),
            None => finite.then_some(1.0),
        };
        let observe = self.is_observed(self.step + 1);
        // ‖Δθ‖² and ‖θ‖² of every parameter, if it is time to look.
        let mut updates = observe.then(|| vec![(0.0, 0.0); self.parameters.len()]);
        if let Some(unscale) = unscale {
            let clip = norms::clip_factor(gradient_norm, self.config.clip);
            let factor = (f64::from(unscale) * clip) as f32;
            match &mut updates {
                None => self.optimizer.step(lr, factor),
                Some(updates) => {
                    let mut next = updates.iter_mut();
                    self.optimizer.step_seen(lr, factor, |parameter, before| {
                        if let Some((update, weight)) = next.next() {
                            let after = parameter.value();
                            *update = norms::difference_square(after.data(), before.data());
                            *weight = sum_of_squares(before.data());
                        }
                    });
                }
            }
            if let Some(ema) = &mut self.ema {
                ema.update(&self.parameters);
            }
            self.skipped = 0;
        } else {
            self.skipped += 1;
        }
        self.optimizer.zero_gradients();
        self.step += 1;
        self.tokens += tokens as u64;
        let seconds = started.elapsed().as_secs_f64();
        self.look(loss, gradient_norm, &squares, updates)?;
        let most = most_skipped(self.config.precision);
        if self.skipped >= most {
            return Err(self.diverged(loss, most));
        }
        Ok(StepResult { loss, lr, gradient_norm, tokens, seconds })
    }

    /// Adds the gradients of the step's batch to those of the parameters, with the loss scaled by
    /// `scale`; gives the loss, and of how many tokens it is.
    fn gradients(&self, scale: f32) -> Result<(f64, usize), Error> {
        let (task, config, step) = (&*self.task, self.config, self.step);
        let parts = config.parts_at_once();
        let (mut loss, mut tokens) = (0.0, 0);
        for round in 0..config.accumulate {
            let at = |part| Moment {
                seed: config.seed,
                step,
                micro_batch: round * parts + part,
                micro_batches: config.micro_batches(),
            };
            let results = with_storage(config.precision.storage(), || {
                side_by_side(parts, &self.parameters, |part| {
                    let micro = task.loss(at(part))?;
                    micro.loss.backward_with(Tensor::full(micro.loss.shape(), scale));
                    Ok::<_, Error>((f64::from(micro.loss.value().item()), micro.tokens))
                })
            });
            for result in results {
                let (part, count) = result?;
                loss += part;
                tokens += count;
            }
        }
        Ok((loss, tokens))
    }

    fn is_observed(&self, step: u64) -> bool {
        let every = self.config.observe_every;
        every > 0 && (step.is_multiple_of(every) || step == 1 || step == self.config.steps)
    }

    /// Looks for trouble; `updates` holds ‖Δθ‖² and ‖θ‖² if it is time for more.
    fn look(
        &mut self,
        loss: f64,
        gradient_norm: f64,
        squares: &[f64],
        updates: Option<Vec<(f64, f64)>>,
    ) -> Result<(), Error> {
        let gradient_norms = self.layers.norms(squares);
        let observe = updates.is_some();
        let (updates, weights): (Vec<f64>, Vec<f64>) =
            updates.unwrap_or_default().into_iter().unzip();
        let mut update_ratios = Vec::new();
        if observe {
            let weights = self.layers.norms(&weights);
            update_ratios = self.layers.norms(&updates);
            update_ratios.iter_mut().zip(weights).for_each(|(update, weight)| *update /= weight);
        }
        let facts = LayerFacts {
            names: self.layers.names(),
            sizes: self.layers.sizes(),
            gradient_norms: &gradient_norms,
            update_ratios: &update_ratios,
        };
        let mut warnings = self.watch.step(self.step, loss, gradient_norm, Some(&facts));
        if observe {
            let step = self.step;
            let observation: Observation = no_grad(|| self.task.observe(step))?;
            warnings.extend(self.watch.layers(step, &facts));
            warnings.extend(self.watch.attention(step, &observation));
            self.records.layers(step, self.seconds(), &facts, &observation)?;
        }
        self.warn(warnings)
    }

    fn warn(&mut self, warnings: Vec<Warning>) -> Result<(), Error> {
        for warning in warnings {
            self.progress.warning(&warning.message, &warning.hint);
            self.records.warning(self.step, warning)?;
        }
        Ok(())
    }

    /// Writes what can be made again: that it cannot be written ends no run.
    fn report(&mut self) {
        if let Err(error) = self.write_report() {
            let text = error.to_string();
            let (message, hint) = text.split_once("\nhint: ").unwrap_or((&text, "check the disk"));
            self.progress.warning(message, hint);
        }
    }

    fn diverged(&self, loss: f64, most: u32) -> Error {
        let resume = match self.checkpoints.steps().ok().and_then(|steps| steps.last().copied()) {
            Some(step) => format!("; {} is from before", self.checkpoints.path(step).display()),
            None => String::new(),
        };
        Error::Diverged {
            message: format!(
                "{most} steps in a row had no finite gradient (the loss is {loss} at step {}): \
                 training has diverged{resume}",
                self.step
            ),
            hint: format!(
                "lower train.lr (now {:.1e}), lengthen train.schedule.warmup (now {}), and keep \
                 train.clip at 1.0 or below (now {})",
                self.config.lr,
                self.config.schedule.warmup(),
                self.config.clip
            ),
        }
    }

    /// Runs `f` on the task with the weights that are judged and saved: the averages, if there
    /// are any.
    fn with_judged_weights<R>(
        &mut self,
        f: impl FnOnce(&mut dyn Task, &mut Progress) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let (task, progress) = (&mut *self.task, &mut self.progress);
        let call = || no_grad(|| f(task, progress));
        match &self.ema {
            Some(ema) => ema.with_averages(&self.parameters, call),
            None => call(),
        }
    }

    fn evaluate(&mut self, whole: bool) -> Result<Option<Evaluation>, Error> {
        let extent = Extent { sample: self.config.evaluate_tokens, whole };
        self.with_judged_weights(|task, progress| {
            isa::for_batches(|| {
                task.evaluate(extent, &mut |share| {
                    progress.activity(&format!("evaluating {:3.0}%", 100.0 * share));
                })
            })
        })
    }

    fn sample(&mut self) -> Result<(), Error> {
        let step = self.step;
        match self.with_judged_weights(|task, _| task.sample(step)) {
            Ok(Some(sample)) => {
                self.progress.message(&format!("── step {step} ──\n{}", sample.trim_end()));
                self.records.sample(step, &sample)
            }
            Ok(None) => Ok(()),
            // Nothing is lost with a sample, and all since the last checkpoint would be with the run.
            Err(error) => {
                self.progress.message(&format!("warning: no sample after step {step}: {error}"));
                Ok(())
            }
        }
    }

    /// Seconds of training so far.
    fn seconds(&self) -> f64 {
        self.seconds_before + self.started.elapsed().as_secs_f64()
    }

    fn summary(&self, outcome: Outcome) -> Summary {
        let rows = self.records.rows();
        Summary {
            outcome,
            step: self.step,
            train_loss: rows.last().and_then(|row| row.train_loss),
            val_loss: rows.iter().rev().find_map(|row| row.val_loss),
            best: self.evaluations.best,
            tokens: self.tokens,
            elapsed_seconds: self.seconds(),
            checkpoint: self.saved.clone(),
        }
    }
}

/// Names are what states are saved under: none may be there twice.
fn check_names(parameters: &[Param]) -> Result<(), Error> {
    let mut names: Vec<&str> = parameters.iter().map(Param::name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::config(
            format!("two parameters are called {}", pair[0]),
            "give each its own name",
        )),
        None => Ok(()),
    }
}
