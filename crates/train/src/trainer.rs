//! The loop.
//!
//! ```text
//! for each step:
//!   a step of the stepper: gradients, clipping, optimiser
//!   now and then: evaluation, sample, look inside, checkpoint
//! ```
//! The state between two steps is what `state` saves: weights, moments, counters, averages, loss
//! scale, best evaluation, the task's own state, and the step, which keys all randomness. Nothing else
//! reaches from one step into the next.

mod finished;
mod instruction_set;
mod record;
mod soundness;
mod state;

use crate::checkpoint::{Checkpoints, Loaded};
use crate::config::TrainConfig;
use crate::diagnose::{LayerFacts, Warning, Watch};
use crate::early_stopping::{Best, Evaluations};
use crate::evaluation::{Better, Evaluation, Portion};
use crate::exhibit::Exhibits;
use crate::interrupt::Stop;
use crate::metrics::Score;
use crate::norms::Layers;
use crate::progress::{Mode, Progress};
use crate::report::Table;
use crate::run_dir::RunDirectory;
use crate::stepper::{Change, StepResult, Stepper};
use crate::task::{Observation, Task};
use hearken_base::{Error, Result};
use hearken_kernels::isa;
use hearken_tensor::{Param, no_grad};
use record::Records;
use soundness::{Waiting, most_skipped};
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
    /// How progress is reported.
    pub progress: Mode,
    /// Asks for an end after the step; see [`crate::interrupt`].
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
    /// Said beneath the title of the report: data, machine, date, version.
    pub about: Vec<String>,
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
            about: Vec::new(),
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done.
    Finished,
    /// The validation metric did not improve any more.
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
    /// The metrics of the last evaluation, the deciding one first; empty if there was none.
    pub validation: Vec<Score>,
    /// The best evaluation.
    pub best: Option<Best>,
    /// Tokens seen.
    pub tokens: u64,
    /// Seconds of training, over all parts of the run.
    pub elapsed_seconds: f64,
    /// The last checkpoint.
    pub checkpoint: Option<PathBuf>,
}

impl Summary {
    /// The last value of a validation metric.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.validation.iter().find(|score| score.name == name)?.value
    }
}

/// Trains `task` from the beginning, or from its last whole checkpoint if the run directory was
/// opened to be continued.
pub fn train(task: &mut dyn Task, config: &TrainConfig, setup: Setup) -> Result<Summary> {
    config.validate()?;
    if let Some(summary) = finished::summary(task, config, &setup)? {
        return Ok(summary);
    }
    let mut trainer = Trainer::new(task, config, setup)?;
    let result = trainer.run();
    trainer.progress.finish();
    if result.is_ok() {
        trainer.exhibit();
    }
    // Whatever happened, the curves show how it went.
    trainer.report();
    result
}

struct Trainer<'a> {
    task: &'a mut dyn Task,
    config: &'a TrainConfig,
    stepper: Stepper,
    /// The layers of the parameters that learn.
    layers: Layers,
    watch: Watch,
    evaluations: Evaluations,
    /// Steps done.
    step: u64,
    run: RunDirectory,
    checkpoints: Checkpoints,
    records: Records,
    progress: Progress,
    stop: Stop,
    clock: Clock,
    /// What could not be done while steps were skipped.
    waiting: Waiting,
}

/// Time and tokens that the run has taken, and from where this process started.
struct Clock {
    /// Tokens seen, over all parts of the run.
    tokens: u64,
    /// Seconds of training before this process.
    seconds_before: f64,
    started: Instant,
    /// The step that this process started from.
    started_from: u64,
}

/// A checkpoint to be saved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checkpoint {
    /// Its evaluation was the best so far.
    Best,
    /// Any other.
    Ordinary,
}

/// What a step leaves to be done.
struct Due {
    /// Save a checkpoint.
    checkpoint: Option<Checkpoint>,
    /// Write the report.
    report: bool,
    /// Stop here.
    interrupted: bool,
}

impl<'a> Trainer<'a> {
    fn new(task: &'a mut dyn Task, config: &'a TrainConfig, setup: Setup) -> Result<Self> {
        let parameters = task.parameters();
        check_names(&parameters)?;
        let checkpoints = Checkpoints::open(&setup.run.checkpoints())?;
        let mut progress = Progress::new(setup.progress);
        let loaded = newest(&setup.run, &checkpoints, &mut progress)?;
        let step = loaded.as_ref().map_or(0, |loaded| loaded.state.step);
        if step > config.steps {
            return Err(Error::new(
                format!("{step} steps are done already, and train.steps is {}", config.steps),
                format!("to go on, give --steps with more than {step}"),
            ));
        }
        let mut stepper = Stepper::new(config, parameters.clone());
        stepper.scale_rates(|parameter| task.rate(parameter));
        let layers = Layers::new(stepper.parameters());
        let (run, stop) = (setup.run, setup.stop);
        let config_text = instruction_set::noted(&setup.config_text);
        if !run.is_resumed() {
            run.write("config.toml", &config_text)?;
        }
        let unit = task.loss_unit();
        let facts = record::ReportContext {
            title: setup.title,
            config_text: config_text.clone(),
            tables: setup.tables,
            about: setup.about,
            exhibits: Exhibits::default(),
            floor: setup.entropy_floor,
            why_training_is_above: setup.why_training_is_above,
            peak_flops: setup.peak_flops,
            flops_per_token: task.flops_per_token(),
            parameters: numbers_in(&parameters),
            trained: numbers_in(stepper.parameters()),
            loss_label: if unit.is_empty() { "loss".to_owned() } else { format!("loss, {unit}") },
        };
        let records = Records::open(&run, step, facts)?;
        let mut watch = Watch::new(config);
        let deciding = loaded.as_ref().and_then(|loaded| loaded.state.evaluations.deciding());
        let better = deciding.map_or(Better::Lower, |metric| metric.better);
        watch.replay(records.rows(), records.entries(), layers.sizes(), better);
        let sample = Some(config.evaluate_tokens);
        let started = Instant::now();
        let clock = Clock { tokens: 0, seconds_before: 0.0, started, started_from: step };
        let mut trainer = Self {
            task,
            config,
            stepper,
            layers,
            watch,
            evaluations: Evaluations { sample, ..Evaluations::default() },
            step,
            run,
            checkpoints,
            records,
            progress,
            stop,
            clock,
            waiting: Waiting::default(),
        };
        trainer.begin(loaded.as_ref(), &config_text)?;
        Ok(trainer)
    }

    /// Continues from a checkpoint, if there is one.
    fn begin(&mut self, loaded: Option<&Loaded>, config_text: &str) -> Result<()> {
        if let Some(loaded) = loaded {
            self.restore(loaded)?;
            self.progress.message(&format!("continuing after step {}", self.step));
        } else if self.run.is_resumed() {
            self.progress.message("no checkpoint was saved yet: starting from the beginning");
        }
        // Not before the checkpoint has been found to fit: a refused run keeps what it had.
        if self.run.is_resumed() {
            if let Some(note) = instruction_set::change(&self.run) {
                self.progress.message(&note);
            }
            self.run.write("config.toml", config_text)?;
        }
        self.clock.started = Instant::now();
        Ok(())
    }

    fn run(&mut self) -> Result<Summary> {
        while self.step < self.config.steps {
            if self.stopped_early() {
                return Ok(self.summary(Outcome::StoppedEarly));
            }
            let due = self.round().map_err(|error| self.checkpoints.survivors(error))?;
            if let Some(checkpoint) = due.checkpoint {
                self.save(checkpoint)?;
            }
            if due.report {
                self.report();
            }
            if due.interrupted && self.step < self.config.steps {
                return Ok(self.summary(Outcome::Interrupted));
            }
        }
        Ok(self.summary(Outcome::Finished))
    }

    /// A step, and what follows it now and then, but for the checkpoint.
    fn round(&mut self) -> Result<Due> {
        let result = self.train_step()?;
        let is_last = self.step == self.config.steps;
        let due = |every: u64| is_last || every > 0 && self.step.is_multiple_of(every);
        self.waiting.evaluation |= due(self.config.evaluate_every);
        self.waiting.sample |= due(self.config.sample_every);
        self.waiting.checkpoint |= due(self.config.checkpoint_every);
        let interrupted = self.stop.load(Ordering::SeqCst);
        if !self.is_sound(&result, is_last || interrupted) {
            // What is due waits for a step that goes well: nothing may push out a good checkpoint.
            self.record(&result, None)?;
            if is_last || interrupted {
                return Err(self.ended_unsound());
            }
            return Ok(Due { checkpoint: None, report: false, interrupted });
        }
        let Waiting { evaluation: evaluate, sample, checkpoint: save } =
            std::mem::take(&mut self.waiting);
        let mut evaluation = if evaluate { self.evaluate(is_last)? } else { None };
        let mut is_best = false;
        if let Some(evaluation) = &mut evaluation {
            is_best = self.evaluations.record(self.step, evaluation, self.config.early_stopping);
            if self.stopped_early()
                && !evaluation.whole
                && let Some(whole) = self.evaluate(true)?
            {
                // This is the end as well.
                *evaluation = whole;
                self.evaluations.complete(self.step, evaluation);
            }
        }
        self.record(&result, evaluation.as_ref())?;
        if let Some(metric) = evaluation.as_ref().and_then(Evaluation::deciding) {
            let warnings = self.watch.evaluation(self.step, metric);
            self.warn(warnings)?;
        }
        if sample {
            self.sample()?;
        }
        let interrupted = self.stop.load(Ordering::SeqCst);
        let save = save || interrupted || self.stopped_early();
        let checkpoint =
            if is_best { Some(Checkpoint::Best) } else { save.then_some(Checkpoint::Ordinary) };
        Ok(Due { checkpoint, report: checkpoint.is_some() || evaluate, interrupted })
    }

    fn stopped_early(&self) -> bool {
        self.evaluations.should_stop(self.config.early_stopping)
    }

    /// One update of the weights, and a look at how it went.
    fn train_step(&mut self) -> Result<StepResult> {
        let observe = self.is_observed(self.step + 1);
        let result = self.stepper.step(&mut *self.task, self.step, observe)?;
        self.step += 1;
        self.clock.tokens += result.tokens as u64;
        self.look(&result)?;
        let most = most_skipped(self.config.precision);
        if self.stepper.skipped() >= most {
            return Err(self.diverged(result.loss, most));
        }
        Ok(result)
    }

    fn is_observed(&self, step: u64) -> bool {
        let every = self.config.observe_every;
        every > 0 && (step.is_multiple_of(every) || step == 1 || step == self.config.steps)
    }

    /// Looks for trouble, and inside the model if the updates were measured.
    fn look(&mut self, result: &StepResult) -> Result<()> {
        let gradient_norms = self.layers.norms(&result.gradient_squares);
        let mut update_ratios = Vec::new();
        if let Some(updates) = &result.updates {
            let (updates, weights): (Vec<f64>, Vec<f64>) = updates.iter().copied().unzip();
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
        let step = self.step;
        let mut warnings = match result.change {
            Change::NoTargets => self.watch.no_targets(step),
            _ => self.watch.step(step, result.loss, result.gradient_norm, Some(&facts)),
        };
        if result.updates.is_some() {
            let observation: Observation = no_grad(|| self.task.observe(step))?;
            warnings.extend(self.watch.layers(step, &facts));
            warnings.extend(self.watch.attention(step, &observation));
            warnings.extend(self.watch.experts(step, &observation));
            self.records.layers(step, self.seconds(), &facts, &observation)?;
        }
        self.warn(warnings)
    }

    fn warn(&mut self, warnings: Vec<Warning>) -> Result<()> {
        for warning in warnings {
            self.progress.warning(&warning.message, &warning.hint);
            self.records.warning(self.step, warning)?;
        }
        Ok(())
    }

    /// Writes what can be made again: that it cannot be written ends no run.
    fn report(&mut self) {
        if let Err(error) = self.write_report() {
            self.progress.warning(error.message(), error.hint().unwrap_or("check the disk"));
        }
    }

    /// Asks the task for what the report shows of the model. Nothing is lost without it.
    fn exhibit(&mut self) {
        match self.with_judged_weights(|task, _| task.exhibits()) {
            Ok(exhibits) => self.records.exhibit(exhibits),
            Err(error) => {
                let message = format!("the report shows less: {}", error.message());
                self.progress.warning(&message, error.hint().unwrap_or("report this"));
            }
        }
    }

    /// Runs `f` on the task, without a graph, with the weights that are judged and saved.
    fn with_judged_weights<R>(
        &mut self,
        f: impl FnOnce(&mut dyn Task, &mut Progress) -> Result<R>,
    ) -> Result<R> {
        let (task, progress) = (&mut *self.task, &mut self.progress);
        self.stepper.with_judged_weights(|| no_grad(|| f(task, progress)))
    }

    fn evaluate(&mut self, whole: bool) -> Result<Option<Evaluation>> {
        let portion = Portion { sample: self.config.evaluate_tokens, whole };
        let evaluation = self.with_judged_weights(|task, progress| {
            isa::for_batches(|| {
                task.evaluate(portion, &mut |share| {
                    progress.activity(&format!("evaluating {:3.0}%", 100.0 * share));
                })
            })
        })?;
        evaluation.as_ref().map_or(Ok(()), Evaluation::validate)?;
        Ok(evaluation)
    }

    fn sample(&mut self) -> Result<()> {
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
        self.clock.seconds_before + self.clock.started.elapsed().as_secs_f64()
    }

    fn summary(&self, outcome: Outcome) -> Summary {
        let rows = self.records.rows();
        let evaluated = rows.iter().rev().find(|row| !row.validation.is_empty());
        Summary {
            outcome,
            step: self.step,
            train_loss: rows.last().and_then(|row| row.train_loss),
            validation: evaluated.map_or(Vec::new(), |row| row.validation.clone()),
            best: self.evaluations.best.clone(),
            tokens: self.clock.tokens,
            elapsed_seconds: self.seconds(),
            checkpoint: self.checkpoints.last(),
        }
    }
}

/// The checkpoint to continue from, if the run is continued. Says which were damaged.
fn newest(
    run: &RunDirectory,
    checkpoints: &Checkpoints,
    progress: &mut Progress,
) -> Result<Option<Loaded>> {
    if !run.is_resumed() {
        return Ok(None);
    }
    let (loaded, damaged) = checkpoints.newest()?;
    let used = loaded.as_ref().map_or(0, |loaded| loaded.state.step);
    for error in damaged {
        let hint = format!("the checkpoint before it is used, of step {used}");
        progress.warning(error.message(), &hint);
    }
    Ok(loaded)
}

fn numbers_in(parameters: &[Param]) -> usize {
    parameters.iter().map(|parameter| parameter.shape().len()).sum()
}

/// Names are what states are saved under: none may be there twice.
fn check_names(parameters: &[Param]) -> Result<()> {
    let mut names: Vec<&str> = parameters.iter().map(Param::name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::new(
            format!("two parameters are called {}", pair[0]),
            "give each its own name",
        )),
        None => Ok(()),
    }
}
