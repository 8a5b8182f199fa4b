//! Step 4: A task of your own for a model that is there: a decoder learns to add.
//!
//! ```text
//! cargo run --release --example own_task -- runs/sums
//! ```
//!
//! A row is `27+85=211`: two numbers and their sum with its last digit first, so that a carry is
//! known when it is needed. Only the three digits of the sum count.

use hearken::Result;
use hearken::formats::{self, SpecialTokens};
use hearken::nn::config::{DecoderConfig, InitConfig, StackConfig};
use hearken::nn::models::{Decoder, Model, PredictsTokens, Tokens};
use hearken::nn::pass::{Noise, Pass};
use hearken::tensor::Param;
use hearken::tensor::ops::cross_entropy::{IGNORED, Options};
use hearken::tensor::rng::Rng;
use hearken::train::progress::Mode;
use hearken::train::{
    Better, Evaluation, Metric, MicroLoss, Moment, Portion, RunDirectory, Setup, Summary, Task,
    TrainConfig, train,
};
use std::path::Path;

const PLUS: u32 = 10;
const EQUALS: u32 = 11;
/// V: ten digits and two signs.
const VOCABULARY: usize = 12;
/// T: all tokens but the last are read, and all but the first predicted.
const LENGTH: usize = 8;

/// The nine tokens of `a + b = sum`.
fn tokens(a: u32, b: u32) -> [u32; LENGTH + 1] {
    let sum = a + b;
    [a / 10, a % 10, PLUS, b / 10, b % 10, EQUALS, sum % 10, sum / 10 % 10, sum / 100]
}

/// Inputs (B, T) and targets (B, T).
fn batch(sums: &[(u32, u32)]) -> (Vec<u32>, Vec<u32>) {
    let rows: Vec<_> = sums.iter().map(|(a, b)| tokens(*a, *b)).collect();
    let inputs = rows.iter().flat_map(|row| row[..LENGTH].to_vec()).collect();
    // What stands before the sum cannot be known, and is not asked for.
    let target = |i: usize, id: u32| if i < 5 { IGNORED } else { id };
    let targets = rows.iter().flat_map(|row| (0..LENGTH).map(move |i| target(i, row[i + 1])));
    (inputs, targets.collect())
}

/// Held out: every sum with a · 37 + b · 61 divisible by 10.
fn is_held_out((a, b): (u32, u32)) -> bool {
    (a * 37 + b * 61).is_multiple_of(10)
}

fn draw(rng: &mut Rng) -> (u32, u32) {
    loop {
        let sum = (rng.below(100) as u32, rng.below(100) as u32);
        if !is_held_out(sum) {
            return sum;
        }
    }
}

struct Addition {
    model: Decoder,
    batch_size: usize,
}

impl Task for Addition {
    fn parameters(&self) -> Vec<Param> {
        self.model.parameters().to_vec()
    }

    fn loss(&self, at: Moment) -> Result<MicroLoss> {
        let mut rng = at.rng();
        let rows = self.batch_size / at.micro_batches;
        let (inputs, targets) = batch(&(0..rows).map(|_| draw(&mut rng)).collect::<Vec<_>>());
        let pass = Pass::train(Noise { seed: at.seed, step: at.counter() });
        let loss =
            self.model.loss(&Tokens::new(&inputs, rows), &targets, &pass, Options::default());
        Ok(MicroLoss::new(loss.sum, loss.weight, inputs.len()))
    }

    /// The share of held-out sums of which all digits are right, and the loss.
    fn evaluate(&mut self, _: Portion, _: &mut dyn FnMut(f64)) -> Result<Option<Evaluation>> {
        let all = (0..100).flat_map(|a| (0..100).map(move |b| (a, b)));
        let held: Vec<(u32, u32)> = all.filter(|sum| is_held_out(*sum)).collect();
        let (inputs, targets) = batch(&held);
        let rows = Tokens::new(&inputs, held.len());
        let losses = self.model.token_losses(&rows, &targets);
        let logits = self.model.logits(&rows); // (B, T, V)
        let likeliest = |row: &[f32]| {
            let best = (0..row.len()).max_by(|i, j| row[*i].total_cmp(&row[*j]));
            best.unwrap_or_default() as u32
        };
        let said: Vec<u32> = logits.data().chunks(VOCABULARY).map(likeliest).collect();
        let is_right = |(said, targets): (&[u32], &[u32])| {
            said.iter().zip(targets).all(|(said, target)| *target == IGNORED || said == target)
        };
        let pairs = said.chunks(LENGTH).zip(targets.chunks(LENGTH));
        let right = pairs.filter(|pair| is_right(*pair)).count();
        let counted = targets.iter().filter(|target| **target != IGNORED).count();
        let loss = losses.data().iter().map(|x| f64::from(*x)).sum::<f64>() / counted as f64;
        let exact = Metric::new("exact", Better::Higher, right as f64 / held.len() as f64);
        let metrics = vec![exact, Metric::loss(loss)];
        Ok(Some(Evaluation { metrics, tokens: counted, whole: true }))
    }

    // As a directory that `hearken inspect` and `transformers` read.
    fn save_model(&self, directory: &Path) -> Result<()> {
        formats::save(directory, &self.model, &SpecialTokens::default())?;
        Ok(())
    }

    fn load_model(&mut self, directory: &Path) -> Result<()> {
        formats::load_into(directory, &self.model)
    }
}

fn run(directory: &Path, steps: u64, progress: Mode) -> Result<Summary> {
    let stack = StackConfig { init: InitConfig::for_width(64), ..StackConfig::new(2, 64, 4) };
    let model = DecoderConfig { vocabulary: VOCABULARY, ..DecoderConfig::new(LENGTH, stack) };
    let config = TrainConfig { batch_size: 64, lr: 3e-3, ..TrainConfig::with_steps(steps) };
    let model = Decoder::drawn(model, config.seed);
    let mut task = Addition { model, batch_size: config.batch_size };
    let setup = Setup {
        progress,
        ..Setup::new(RunDirectory::create(directory, &[])?, "task = \"addition\"\n")
    };
    train(&mut task, &config, setup)
}

fn main() -> Result<()> {
    let Some(directory) = std::env::args().nth(1) else {
        println!("usage: own_task DIRECTORY");
        return Ok(());
    };
    let summary = run(Path::new(&directory), 2000, Mode::detect(false))?;
    println!("right sums: {:.3}", summary.metric("exact").unwrap_or(f64::NAN));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_what_they_say() {
        assert_eq!(tokens(27, 85), [2, 7, PLUS, 8, 5, EQUALS, 2, 1, 1]);
        let (inputs, targets) = batch(&[(27, 85)]);
        assert_eq!(inputs, [2, 7, PLUS, 8, 5, EQUALS, 2, 1]);
        assert_eq!(targets[..5], [IGNORED; 5]);
        assert_eq!(targets[5..], [2, 1, 1]);
    }

    #[test]
    fn it_learns_something_and_saves_a_model_directory() {
        let dir = tempfile::tempdir().unwrap();
        let summary = run(&dir.path().join("run"), 60, Mode::Quiet).unwrap();
        assert!(summary.metric("loss").unwrap() < 2.2, "{summary:?}"); // ln 12 = 2.48 is chance
        let loaded = formats::load(&summary.checkpoint.unwrap()).unwrap();
        assert_eq!(loaded.model.config().vocabulary(), VOCABULARY);
    }
}
