//! Step 3: A model of your own from the library's layers, trained by the library's loop: two blocks, and a
//! head that answers a question about the whole sequence.
//!
//! ```text
//! cargo run --release --example own_model -- runs/largest
//! ```
//!
//! The question is which token of the sequence is the largest. Always answering the one that is so
//! most often is right in 40 % of the cases.

use hearken::Result;
use hearken::nn::config::{InitConfig, NormConfig, StackConfig};
use hearken::nn::layers::{Direction, Embedding, Linear};
use hearken::nn::pass::{Noise, Pass};
use hearken::nn::scope::{Scope, Weights};
use hearken::nn::stack::Stack;
use hearken::tensor::ops::cross_entropy::{Options, Reduction, cross_entropy};
use hearken::tensor::ops::mean::mean_over;
use hearken::tensor::rng::Rng;
use hearken::tensor::{Param, Role, Var};
use hearken::train::progress::Mode;
use hearken::train::{
    Better, Evaluation, Metric, MicroLoss, Moment, Portion, RunDirectory, Setup, Summary, Task,
    TrainConfig, train,
};
use std::path::Path;

/// T
const LENGTH: usize = 8;
/// V
const VOCABULARY: usize = 16;

// 1. The model: layers ask a scope for their parameters, by name.

struct Classifier {
    embedding: Embedding,
    stack: Stack,
    head: Linear,
    parameters: Vec<Param>,
}

impl Classifier {
    fn new(seed: u64) -> Self {
        let config = StackConfig {
            norm: NormConfig::rms(),
            init: InitConfig::for_width(32),
            ..StackConfig::new(2, 32, 4) // two blocks, C = 32, four heads
        };
        let root = Scope::root(Weights::Drawn { seed });
        let embedding = Embedding::new(&(&root / "embedding"), VOCABULARY, config.width);
        let stack = Stack::new(&root, &config, LENGTH, Direction::Bidirectional, None);
        let head = Linear::new(&(&root / "head"), VOCABULARY, config.width, true, Role::Head);
        Self { embedding, stack, head, parameters: root.parameters() }
    }

    /// How likely each answer is, for each row: (B, V).
    fn logits(&self, ids: &[u32], pass: &Pass) -> Var {
        let rows = ids.len() / LENGTH;
        let x = self.embedding.forward(ids, [rows, LENGTH]); // (B, T, C)
        let hidden = self.stack.forward(x, &[], pass, None); // (B, T, C)
        self.head.forward(&mean_over(&hidden, 1)) // (B, C) → (B, V)
    }
}

// 2. The task: which examples there are, and what the loss is.

struct Largest {
    model: Classifier,
    batch_size: usize,
}

/// Sequences and their answers.
fn draw(rng: &mut Rng, rows: usize) -> (Vec<u32>, Vec<u32>) {
    let ids: Vec<u32> = (0..rows * LENGTH).map(|_| rng.below(VOCABULARY) as u32).collect();
    let answers = ids.chunks(LENGTH).filter_map(|row| row.iter().max().copied());
    let answers = answers.collect();
    (ids, answers)
}

impl Task for Largest {
    fn parameters(&self) -> Vec<Param> {
        self.model.parameters.clone()
    }

    fn loss(&self, at: Moment) -> Result<MicroLoss> {
        // All randomness comes from the moment, so that a run can be resumed to the bit.
        let (ids, answers) = draw(&mut at.rng(), self.batch_size / at.micro_batches);
        let pass = Pass::train(Noise { seed: at.seed, step: at.counter() });
        let options = Options { reduction: Reduction::Sum, ..Options::default() };
        let sum = cross_entropy(self.model.logits(&ids, &pass), &answers, options);
        Ok(MicroLoss::new(sum, answers.len() as f64, ids.len()))
    }

    fn evaluate(&mut self, _: Portion, _: &mut dyn FnMut(f64)) -> Result<Option<Evaluation>> {
        let (ids, answers) = draw(&mut Rng::new(0), 500);
        let logits = self.model.logits(&ids, &Pass::evaluate());
        let said = logits.value().data().chunks(VOCABULARY).map(|row| {
            let best = (0..VOCABULARY).max_by(|i, j| row[*i].total_cmp(&row[*j]));
            best.unwrap_or_default() as u32
        });
        let right = said.zip(&answers).filter(|(said, answer)| said == *answer).count();
        let accuracy = right as f64 / answers.len() as f64;
        let metrics = vec![Metric::new("accuracy", Better::Higher, accuracy)];
        Ok(Some(Evaluation { metrics, tokens: ids.len(), whole: true }))
    }
}

// 3. The run: records, checkpoints, curves and a report, as for any other model.

fn run(directory: &Path, steps: u64, progress: Mode) -> Result<Summary> {
    let config = TrainConfig { batch_size: 32, lr: 3e-3, ..TrainConfig::with_steps(steps) };
    let mut task = Largest { model: Classifier::new(config.seed), batch_size: config.batch_size };
    let run = RunDirectory::create(directory, &[])?;
    let setup = Setup { progress, ..Setup::new(run, "task = \"the largest token\"\n") };
    train(&mut task, &config, setup)
}

fn main() -> Result<()> {
    let Some(directory) = std::env::args().nth(1) else {
        println!("usage: own_model DIRECTORY");
        return Ok(());
    };
    let summary = run(Path::new(&directory), 1000, Mode::detect(false))?;
    println!("accuracy {:.3}", summary.metric("accuracy").unwrap_or(f64::NAN));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_learns_and_its_weights_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let summary = run(&dir.path().join("run"), 250, Mode::Quiet).unwrap();
        assert!(summary.metric("accuracy").unwrap() > 0.55, "{summary:?}"); // 0.4 is always the same
        let checkpoint = summary.checkpoint.clone().unwrap();
        let mut task = Largest { model: Classifier::new(9), batch_size: 1 };
        task.load_model(&checkpoint).unwrap();
        let mut evaluate = || task.evaluate(Portion { sample: 0, whole: true }, &mut |_| {});
        let accuracy = evaluate().unwrap().unwrap().metrics[0].value;
        assert_eq!(Some(accuracy), summary.metric("accuracy"));
    }
}
