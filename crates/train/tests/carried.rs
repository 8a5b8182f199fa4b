//! A task that carries state from step to step, as truncated backpropagation through time does: a
//! resumed run equals an uninterrupted one bit for bit.

#[allow(dead_code, reason = "other tests use more of it")]
mod common;

use common::setup;
use hearken_kernels::threads::with_threads;
use hearken_tensor::ops::linear::linear;
use hearken_tensor::ops::mse::mse;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Role, Tensor, Var};
use hearken_train::interrupt::Stop;
use hearken_train::{
    Error, Evaluation, MicroLoss, Moment, Outcome, Portion, Result, Task, TrainConfig, train,
};
use std::path::Path;
use std::sync::atomic::Ordering;

const ROWS: usize = 6;
const WIDTH: usize = 4;

/// h ← x·Wᵀ + h·Uᵀ, carried over steps; the sum of h is to be the sum of all x so far.
struct Recurrent {
    parameters: Vec<Param>,
    hidden: Tensor,
    /// The micro-batches that were handed back in this step.
    carried: Vec<usize>,
    stop_in: Option<(u64, Stop)>,
}

impl Recurrent {
    fn new() -> Self {
        let mut rng = Rng::new(5);
        let matrix = |rng: &mut Rng| rng.normal([WIDTH, WIDTH], 0.3);
        let parameters = vec![
            Param::new("layers.0.input", Role::Hidden, matrix(&mut rng)),
            Param::new("layers.0.hidden", Role::Hidden, matrix(&mut rng)),
        ];
        let hidden = Tensor::zeros([ROWS, WIDTH]);
        Self { parameters, hidden, carried: Vec::new(), stop_in: None }
    }

    fn bits(&self) -> Vec<u32> {
        let values = self.parameters.iter().map(Param::value).chain([self.hidden.clone()]);
        values.flat_map(|tensor| tensor.data().to_vec()).map(f32::to_bits).collect()
    }
}

impl Task for Recurrent {
    fn parameters(&self) -> Vec<Param> {
        self.parameters.clone()
    }

    fn loss(&self, at: Moment) -> Result<MicroLoss> {
        if let Some((step, stop)) = &self.stop_in
            && at.step + 1 == *step
        {
            stop.store(true, Ordering::SeqCst);
        }
        let rows = ROWS / at.micro_batches;
        let range = at.micro_batch * rows * WIDTH..(at.micro_batch + 1) * rows * WIDTH;
        let x = Rng::new(at.seed + at.step).normal([ROWS, WIDTH], 1.0);
        let cut =
            |all: &Tensor| Var::constant(Tensor::new([rows, WIDTH], &all.data()[range.clone()]));
        let (x, before) = (cut(&x), cut(&self.hidden));
        let [w, u] = [0, 1].map(|i| self.parameters[i].weight());
        let hidden = &linear(&x, w, None) + &linear(&before, u, None);
        let count = rows * WIDTH;
        let mean = mse(&hidden, &x);
        let sum = &mean * &Var::constant(Tensor::full(mean.shape(), count as f32));
        let carried = vec![hidden.value().clone()];
        Ok(MicroLoss { sum, weight: count as f64, tokens: rows, carried })
    }

    fn carry(&mut self, at: Moment, carried: Vec<Tensor>) {
        if at.micro_batch == 0 {
            self.carried.clear();
        }
        self.carried.push(at.micro_batch);
        assert_eq!(self.carried, (0..=at.micro_batch).collect::<Vec<_>>(), "in order");
        let rows = ROWS / at.micro_batches;
        let range = at.micro_batch * rows * WIDTH..(at.micro_batch + 1) * rows * WIDTH;
        self.hidden.data_mut()[range].copy_from_slice(carried[0].data());
    }

    fn state(&self) -> Vec<(String, Tensor)> {
        vec![("hidden".to_owned(), self.hidden.clone())]
    }

    fn restore_state(&mut self, state: Vec<(String, Tensor)>) -> Result<()> {
        match state.into_iter().next() {
            Some((name, hidden)) if name == "hidden" && hidden.shape() == self.hidden.shape() => {
                self.hidden = hidden;
                Ok(())
            }
            _ => Err(Error::new("the checkpoint has no hidden state", "start another run")),
        }
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

fn run(config: &TrainConfig, path: &Path, stop_in: Option<u64>) -> (Outcome, Vec<u32>) {
    let mut task = Recurrent::new();
    let setup = setup(path);
    task.stop_in = stop_in.map(|step| (step, setup.stop.clone()));
    let summary = train(&mut task, config, setup).unwrap();
    (summary.outcome, task.bits())
}

#[test]
fn a_resumed_run_has_the_same_bits_on_any_number_of_threads() {
    for (accumulate, parallel_parts) in [(1, 1), (2, 1), (1, 3), (2, 3)] {
        let base =
            TrainConfig { steps: 12, batch_size: ROWS, lr: 0.01, seed: 3, ..common::config() };
        let config = TrainConfig { accumulate, parallel_parts, ..base };
        let dir = tempfile::tempdir().unwrap();
        let (outcome, want) = run(&config, &dir.path().join("whole"), None);
        assert_eq!(outcome, Outcome::Finished);
        assert!(want.iter().skip(2 * WIDTH * WIDTH).any(|bits| *bits != 0), "nothing was carried");
        for threads in 1..=3 {
            let path = dir.path().join(format!("parts-{threads}"));
            for stop in [1, 5, 10] {
                let (outcome, _) = with_threads(threads, || run(&config, &path, Some(stop)));
                assert_eq!(outcome, Outcome::Interrupted);
            }
            let (outcome, got) = with_threads(threads, || run(&config, &path, None));
            assert_eq!(outcome, Outcome::Finished);
            assert_eq!(got, want, "{accumulate} × {parallel_parts} parts on {threads} threads");
        }
    }
}
