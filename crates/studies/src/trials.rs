//! Many trainings, one per core at a time: what one takes is measured on one core, and small models lose
//! no time waiting for a second one.
//!
//! ```text
//! trials(request, "recall", count, |i, watch| { build; watch.train(&mut task, &config, …)?; judge })
//! ```
//! Results are in the order of the trials, whichever ended first, and are the same bits on any number of
//! cores.

use crate::request::Request;
use hearken_base::{Error, Result};
use hearken_kernels::threads;
use hearken_show::StatusLine;
use hearken_show::number::duration;
use hearken_train::progress::Mode;
use hearken_train::stepper::{Change, StepResult};
use hearken_train::{Stepper, Task, TrainConfig};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After so many steps in a row without finite gradients a training has diverged.
const MOST_SKIPPED: u32 = 20;
/// On a terminal the line is renewed this often; elsewhere a plain line is written now and then.
const RENEWED: Duration = Duration::from_millis(100);
const PLAIN: Duration = Duration::from_secs(20);
/// Steps that are timed for an estimate, after as many that warm up.
const TIMED: u64 = 2;

/// Progress of all trials together.
struct Board {
    line: StatusLine,
    mode: Mode,
    title: String,
    started: Instant,
    shown: Instant,
    /// The share of each trial that is done.
    done: Vec<f64>,
}

impl Board {
    fn show(&mut self, what: &str) {
        let pause = if self.mode == Mode::Line { RENEWED } else { PLAIN };
        if self.mode == Mode::Quiet || self.shown.elapsed() < pause {
            return;
        }
        self.shown = Instant::now();
        let share = self.done.iter().sum::<f64>() / self.done.len().max(1) as f64;
        let finished = self.done.iter().filter(|done| **done >= 1.0).count();
        let seconds = self.started.elapsed().as_secs_f64();
        let left = if share > 0.02 {
            format!(", {} left", duration(seconds * (1.0 - share) / share))
        } else {
            String::new()
        };
        let text = format!(
            "{}: {:.0} %, {finished} of {} trainings done{left} · {what}",
            self.title,
            100.0 * share,
            self.done.len()
        );
        if self.mode == Mode::Line {
            self.line.show(&text);
        } else {
            hearken_show::say!("{text}");
        }
    }
}

/// One trial's share in what is shown, and its way to stop.
pub struct Watch<'a> {
    board: &'a Mutex<Board>,
    index: usize,
    request: &'a Request,
}

/// What a training took and came to, beside the weights.
#[derive(Clone, Debug, Default)]
pub struct Trained {
    /// The loss of every step.
    pub losses: Vec<f64>,
    /// The gradient norm of every step, before clipping.
    pub gradient_norms: Vec<f64>,
    /// Seconds of all steps together on one core; where the system tells, without those in which other
    /// programs had it.
    pub seconds: f64,
    /// Tokens that were computed.
    pub tokens: usize,
    /// Did it end for want of finite gradients?
    pub diverged: bool,
}

impl Trained {
    /// The mean loss of the last tenth of the steps; NaN if it diverged.
    pub fn final_loss(&self) -> f64 {
        let last = (self.losses.len() / 10).max(1);
        let tail = &self.losses[self.losses.len().saturating_sub(last)..];
        if self.diverged { f64::NAN } else { tail.iter().sum::<f64>() / tail.len() as f64 }
    }
}

impl Watch<'_> {
    /// Says what this trial is doing, `share` of which is done; an error once it should stop.
    pub fn at(&self, share: f64, what: &str) -> Result<()> {
        self.request.go_on()?;
        let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        board.done[self.index] = share.min(0.999);
        board.show(what);
        Ok(())
    }

    /// Trains `task` by `config`: all of its steps, without files, records or evaluations. `after` sees
    /// every step, with how many are done. A training that diverges ends without an error.
    pub fn train<T: Task>(
        &self,
        name: &str,
        task: &mut T,
        config: &TrainConfig,
        mut after: impl FnMut(u64, &StepResult, &mut T) -> Result<()>,
    ) -> Result<Trained> {
        let mut stepper = Stepper::new(config, task.parameters());
        let mut trained = Trained::default();
        let mut clock = Clock::start();
        for step in 0..config.steps {
            let result = stepper.step(task, step, false)?;
            trained.losses.push(result.loss);
            trained.gradient_norms.push(result.gradient_norm);
            trained.seconds += clock.since(result.seconds);
            trained.tokens += result.tokens;
            if result.change == Change::NotFinite && stepper.skipped() >= MOST_SKIPPED {
                trained.diverged = true;
                break;
            }
            after(step + 1, &result, task)?;
            let share = (step + 1) as f64 / config.steps as f64;
            self.at(share, &format!("{name}: loss {:.3}", result.loss))?;
            clock = Clock::start();
        }
        Ok(trained)
    }
}

/// The time that this thread was given a core, where the system tells: Linux does.
struct Clock(Option<f64>);

impl Clock {
    fn start() -> Self {
        Self(Self::now())
    }

    /// Seconds since then; `elapsed`, if the system does not tell.
    fn since(&self, elapsed: f64) -> f64 {
        match (self.0, Self::now()) {
            (Some(start), Some(now)) => now - start,
            _ => elapsed,
        }
    }

    fn now() -> Option<f64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
        (nanoseconds > 0.0).then_some(1e-9 * nanoseconds)
    }
}

/// Calls `trial(i, …)` for each `i` below `count`, as many at a time as there are cores, each on one of
/// them. The first error, in the order of trials, is what comes back.
pub fn trials<T: Send>(
    request: &Request,
    title: &str,
    count: usize,
    trial: impl Fn(usize, &Watch<'_>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let board = Mutex::new(Board {
        line: StatusLine::new(),
        mode: request.progress,
        title: title.to_owned(),
        started: Instant::now(),
        shown: Instant::now(),
        done: vec![0.0; count],
    });
    let results: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    threads::parallel_parts(count, |index| {
        let watch = Watch { board: &board, index, request };
        let run = || watch.at(0.0, "begins").and_then(|()| trial(index, &watch));
        // One core, even when others have nothing left to do: times can be compared.
        let result = threads::with_threads(1, run);
        board.lock().unwrap_or_else(PoisonError::into_inner).done[index] = 1.0;
        *results[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    });
    let taken = results.into_iter().map(|result| {
        let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
        result.unwrap_or_else(|| Err(Error::new("a training did not run", "this is a bug")))
    });
    taken.collect()
}

/// Seconds of a step of this training, by two steps after two that warm up; the task's weights change.
pub fn seconds_of_a_step(task: &mut dyn Task, config: &TrainConfig) -> Result<f64> {
    let mut stepper = Stepper::new(config, task.parameters());
    threads::with_threads(1, || {
        for step in 0..TIMED {
            stepper.step(task, step, false)?;
        }
        let mut seconds = 0.0;
        for step in TIMED..2 * TIMED {
            seconds += stepper.step(task, step, false)?.seconds;
        }
        Ok(seconds / TIMED as f64)
    })
}

/// Seconds of trainings of so many seconds each on one core, run by [`trials`].
pub fn seconds_of_all(trainings: &[f64]) -> f64 {
    let longest = trainings.iter().copied().fold(0.0, f64::max);
    (trainings.iter().sum::<f64>() / threads::count().max(1) as f64).max(longest)
}
