//! Losses are sums with weights: micro-batches that count different numbers of targets, one after the
//! other or in parallel, give what the whole batch gives.

#[allow(dead_code, reason = "other tests use more of it")]
mod common;

use common::{setup, untimed};
use hearken_tensor::ops::linear::linear;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Role, Tensor, Var};
use hearken_train::{
    Evaluation, MicroLoss, Moment, OptimizerConfig, Outcome, Portion, Result, ScheduleConfig,
    Stepper, Task, TrainConfig, train,
};
use std::path::Path;

const ROWS: usize = 12;
const INPUT: usize = 5;
const OUTPUT: usize = 3;

/// Σ m·(x·Wᵀ + b − y)² over the targets that the mask m counts.
struct Masked {
    parameters: Vec<Param>,
    /// Targets counted in each row.
    counted: [usize; ROWS],
}

/// The first four rows count nothing, so that a whole micro-batch counts nothing, too.
const UNEVEN: [usize; ROWS] = [0, 0, 0, 0, 1, 3, 3, 3, 2, 0, 3, 1];

impl Masked {
    fn new(counted: [usize; ROWS]) -> Self {
        let mut rng = Rng::new(3);
        let parameters = vec![
            Param::new("layers.0.weight", Role::Hidden, rng.normal([OUTPUT, INPUT], 0.5)),
            Param::new("layers.0.bias", Role::Vector, rng.normal([OUTPUT], 0.5)),
        ];
        Self { parameters, counted }
    }
}

impl Task for Masked {
    fn parameters(&self) -> Vec<Param> {
        self.parameters.clone()
    }

    fn loss(&self, at: Moment) -> Result<MicroLoss> {
        let mut rng = Rng::new(at.seed + at.step);
        let (x, y) = (rng.normal([ROWS, INPUT], 1.0), rng.normal([ROWS, OUTPUT], 2.0));
        let rows = ROWS / at.micro_batches;
        let first = at.micro_batch * rows;
        let cut = |all: &Tensor, width: usize| {
            let data = &all.data()[first * width..(first + rows) * width];
            Var::constant(Tensor::new([rows, width], data))
        };
        let counted = &self.counted[first..first + rows];
        let row = |n: usize| (0..OUTPUT).map(move |i| if i < n { 1.0 } else { 0.0 });
        let mask: Vec<f32> = counted.iter().flat_map(|&n| row(n)).collect();
        let mask = Var::constant(Tensor::new([rows, OUTPUT], &mask));
        let [w, b] = [0, 1].map(|i| &self.parameters[i]);
        let error = linear(&cut(&x, INPUT), w.weight(), Some(&b.var())) - &cut(&y, OUTPUT);
        let sum = (&(&error * &error) * &mask).sum();
        Ok(MicroLoss::new(sum, counted.iter().sum::<usize>() as f64, rows))
    }

    fn evaluate(&mut self, _: Portion, _: &mut dyn FnMut(f64)) -> Result<Option<Evaluation>> {
        Ok(None)
    }

    fn save_model(&self, dir: &Path) -> Result<()> {
        common::save_parameters(&self.parameters, dir)
    }

    fn load_model(&mut self, dir: &Path) -> Result<()> {
        common::load_parameters(&self.parameters, dir)
    }
}

fn config(accumulate: usize, parallel_parts: usize) -> TrainConfig {
    TrainConfig {
        steps: 1,
        batch_size: ROWS,
        accumulate,
        parallel_parts,
        lr: 0.1,
        clip: 0.0,
        optimizer: OptimizerConfig::Sgd {
            momentum: 0.0,
            nesterov: false,
            averaged: false,
            l2: 0.0,
        },
        schedule: ScheduleConfig::Constant { warmup: 0 },
        ..TrainConfig::default()
    }
}

const PARTS: [(usize, usize); 7] = [(2, 1), (3, 1), (6, 1), (12, 1), (1, 3), (1, 4), (3, 2)];

/// Another order of at most 36 additions: a few roundings of 6e-8 each.
const TOLERANCE: f64 = 1e-6;

#[track_caller]
fn assert_close(got: &[f64], want: &[f64], what: &str) {
    let largest = want.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let difference = (got - want).abs();
        assert!(difference <= TOLERANCE * largest, "{what}[{i}]: {got}, not {want}");
    }
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.data().iter().map(|x| f64::from(*x)).collect()
}

#[test]
fn loss_and_gradients_are_those_of_the_whole_batch() {
    let mean = |accumulate, parallel_parts| {
        let task = Masked::new(UNEVEN);
        let stepper = Stepper::new(&config(accumulate, parallel_parts), task.parameters());
        let batch = stepper.gradients(&task, 0).unwrap();
        assert_eq!((batch.weight, batch.tokens), (16.0, ROWS));
        let gradient = |p: &Param| {
            let sums = numbers(&p.gradient().unwrap());
            sums.into_iter().map(|g| g / batch.weight).collect::<Vec<f64>>()
        };
        (batch.sum / batch.weight, task.parameters.iter().map(gradient).collect::<Vec<_>>())
    };
    let (loss, gradients) = mean(1, 1);
    for (accumulate, parallel_parts) in PARTS {
        let what = format!("{accumulate} × {parallel_parts} parts");
        let got = mean(accumulate, parallel_parts);
        assert_close(&[got.0], &[loss], &what);
        for (got, want) in got.1.iter().zip(&gradients) {
            assert_close(got, want, &what);
        }
    }
}

#[test]
fn a_step_is_that_of_the_whole_batch() {
    let step = |accumulate, parallel_parts| {
        let dir = tempfile::tempdir().unwrap();
        let mut task = Masked::new(UNEVEN);
        let config = config(accumulate, parallel_parts);
        let summary = train(&mut task, &config, setup(dir.path())).unwrap();
        let weights: Vec<Vec<f64>> = task.parameters.iter().map(|p| numbers(&p.value())).collect();
        (summary.train_loss.unwrap(), weights)
    };
    let (loss, weights) = step(1, 1);
    for (accumulate, parallel_parts) in PARTS {
        let what = format!("{accumulate} × {parallel_parts} parts");
        let got = step(accumulate, parallel_parts);
        assert_close(&[got.0], &[loss], &what);
        for (got, want) in got.1.iter().zip(&weights) {
            assert_close(got, want, &what);
        }
    }
}

/// The mean over the targets that count, whatever the number of rows.
#[test]
fn the_loss_is_the_mean_over_targets_that_count() {
    let task = Masked::new(UNEVEN);
    let all = Masked::new([OUTPUT; ROWS]);
    let batch =
        |task: &Masked| Stepper::new(&config(1, 1), task.parameters()).gradients(task, 0).unwrap();
    assert_eq!((batch(&task).weight, batch(&all).weight), (16.0, 36.0));
    assert!(batch(&task).sum < batch(&all).sum);
}

#[test]
fn a_step_without_targets_is_skipped_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let mut task = Masked::new([0; ROWS]);
    let before: Vec<Vec<f64>> = task.parameters.iter().map(|p| numbers(&p.value())).collect();
    // More steps than those after which a run without finite gradients ends.
    let config = TrainConfig { steps: 20, ..config(2, 1) };
    let summary = train(&mut task, &config, setup(dir.path())).unwrap();
    assert_eq!((summary.outcome, summary.train_loss), (Outcome::Finished, None));
    let after: Vec<Vec<f64>> = task.parameters.iter().map(|p| numbers(&p.value())).collect();
    assert_eq!(after, before);
    let rows = untimed(&dir.path().join("metrics.jsonl"));
    assert!(rows.iter().all(|row| row["train_loss"].is_null() && row["grad_norm"] == 0.0));
    let entries = untimed(&dir.path().join("diagnostics.jsonl"));
    let warnings: Vec<_> = entries.iter().filter(|entry| entry["kind"] == "warning").collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0]["about"], "no-targets");
    let message = warnings[0]["message"].as_str().unwrap();
    assert!(message.starts_with("no target was counted in the batch of step 1;"), "{message}");
}
