//! A head of your own on a model that is there: the library's decoder spells words and says, letter by
//! letter, whether the next one will be a vowel. The decoder stays one, so that everything that writes
//! or looks inside works as before.
//!
//! ```text
//! cargo run --release --example own_head -- runs/vowels     # again: continues it
//! ```

use hearken::Result;
use hearken::infer::generate::{Flow, Request, generate};
use hearken::infer::sampler::Sampling;
use hearken::nn::config::{DecoderConfig, InitConfig, StackConfig};
use hearken::nn::layers::Linear;
use hearken::nn::models::{Decoder, Model, PredictsTokens, Tokens};
use hearken::nn::pass::{Noise, Pass};
use hearken::nn::scope::{Scope, Weights};
use hearken::nn::taps::{self, Taps};
use hearken::tensor::ops::cross_entropy::{Options, Reduction, cross_entropy};
use hearken::tensor::rng::Rng;
use hearken::tensor::{Param, Role, Var, no_grad};
use hearken::train::progress::Mode;
use hearken::train::{
    Better, Evaluation, Metric, MicroLoss, Moment, Portion, RunDirectory, Setup, Summary, Task,
    TrainConfig, train,
};
use std::path::Path;
use std::sync::Arc;

const WORDS: [&str; 6] = ["banana", "cherry", "elephant", "queue", "sky", "tree"];
/// T
const LENGTH: usize = 24;
/// V: a space and the letters.
const VOCABULARY: usize = 27;
/// C
const WIDTH: usize = 32;

fn encode(text: &str) -> Vec<u32> {
    text.bytes().map(|b| if b == b' ' { 0 } else { u32::from(b - b'a') + 1 }).collect()
}

fn decode(ids: &[u32]) -> String {
    ids.iter().map(|id| char::from(b" abcdefghijklmnopqrstuvwxyz"[*id as usize])).collect()
}

fn vowels(ids: &[u32]) -> Vec<u32> {
    decode(ids).chars().map(|letter| u32::from("aeiou".contains(letter))).collect()
}

/// Rows of words (B·T), and the same one letter later.
fn draw(rng: &mut Rng, rows: usize) -> (Vec<u32>, Vec<u32>) {
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..rows {
        let mut row = Vec::new();
        while row.len() <= LENGTH {
            row.extend(encode(" "));
            row.extend(encode(WORDS[rng.below(WORDS.len())]));
        }
        inputs.extend(&row[..LENGTH]);
        targets.extend(&row[1..=LENGTH]);
    }
    (inputs, targets)
}

struct Speller {
    decoder: Decoder,
    vowel: Linear,
    parameters: Vec<Param>,
    batch_size: usize,
}

impl Speller {
    fn new(config: &TrainConfig) -> Self {
        let stack =
            StackConfig { init: InitConfig::for_width(WIDTH), ..StackConfig::new(2, WIDTH, 4) };
        let decoder = DecoderConfig { vocabulary: VOCABULARY, ..DecoderConfig::new(LENGTH, stack) };
        let decoder = Decoder::drawn(decoder, config.seed);
        // A scope of its own, under a name that the decoder does not use.
        let root = Scope::root(Weights::Drawn { seed: config.seed });
        let vowel = Linear::new(&(&root / "vowel"), 2, WIDTH, true, Role::Head);
        // What is missing here neither learns nor is saved.
        let parameters = [decoder.parameters(), &root.parameters()].concat();
        Self { decoder, vowel, parameters, batch_size: config.batch_size }
    }

    /// The last hidden state, which both heads read (B, T, C), and what the second says (B, T, 2).
    fn read(&self, tokens: &Tokens<'_>, pass: &Pass) -> (Var, Var) {
        let hidden = self.decoder.hidden(tokens, pass);
        let vowel = self.vowel.forward(&hidden);
        (hidden, vowel)
    }
}

impl Task for Speller {
    fn parameters(&self) -> Vec<Param> {
        self.parameters.clone()
    }

    fn loss(&self, at: Moment) -> Result<MicroLoss> {
        let rows = self.batch_size / at.micro_batches;
        let (ids, targets) = draw(&mut at.rng(), rows);
        let pass = Pass::train(Noise { seed: at.seed, step: at.counter() });
        let (hidden, vowel) = self.read(&Tokens::new(&ids, rows), &pass);
        let options = Options { reduction: Reduction::Sum, ..Options::default() };
        let letters = cross_entropy(self.decoder.logits_of(&hidden, &pass), &targets, options);
        let sum = letters + cross_entropy(vowel, &vowels(&targets), options);
        Ok(MicroLoss::new(sum, targets.len() as f64, ids.len()))
    }

    fn evaluate(&mut self, _: Portion, _: &mut dyn FnMut(f64)) -> Result<Option<Evaluation>> {
        let (ids, targets) = draw(&mut Rng::new(0), 64);
        let tokens = Tokens::new(&ids, 64);
        let count = targets.len() as f64;
        let losses = self.decoder.token_losses(&tokens, &targets);
        let loss = losses.data().iter().map(|x| f64::from(*x)).sum::<f64>() / count;
        let (_, vowel) = self.read(&tokens, &Pass::evaluate());
        let said = vowel.value().data().chunks(2).map(|row| u32::from(row[1] > row[0]));
        let right = said.zip(vowels(&targets)).filter(|(said, is)| said == is).count();
        let vowels = Metric::new("vowels", Better::Higher, right as f64 / count);
        let metrics = vec![Metric::loss(loss), vowels];
        Ok(Some(Evaluation { metrics, tokens: ids.len(), whole: true }))
    }
}

fn config(steps: u64) -> TrainConfig {
    TrainConfig { batch_size: 16, lr: 3e-3, ..TrainConfig::with_steps(steps) }
}

/// Trains up to so many steps; goes on from the last checkpoint if a run is there.
fn run(directory: &Path, steps: u64, progress: Mode) -> Result<Summary> {
    let config = config(steps);
    let run = if RunDirectory::holds_run(directory) {
        RunDirectory::open(directory)?
    } else {
        RunDirectory::create(directory, &[])?
    };
    let setup = Setup { progress, ..Setup::new(run, "task = \"letters and vowels\"\n") };
    train(&mut Speller::new(&config), &config, setup)
}

/// The model of a run as it was at its best.
fn load(directory: &Path) -> Result<Speller> {
    let mut speller = Speller::new(&config(1));
    speller.load_model(&directory.join("checkpoints/best"))?;
    Ok(speller)
}

fn write(speller: &Speller, start: &str, letters: usize) -> Result<String> {
    let request = Request {
        sampling: Sampling { temperature: 0.5, seed: 1, ..Sampling::default() },
        ..Request::new(encode(start), letters)
    };
    Ok(decode(&generate(&speller.decoder, &request, |_| Flow::Continue)?.0))
}

/// The share of right answers about vowels without the values of this name.
fn without(speller: &Speller, name: &str) -> Result<f64> {
    let (ids, targets) = draw(&mut Rng::new(1), 32);
    let taps = Arc::new(Taps::new().replace(name, taps::zero));
    let pass = Pass::evaluate().watched(&taps);
    let (_, vowel) = no_grad(|| speller.read(&Tokens::new(&ids, 32), &pass));
    if let [unmet, ..] = taps.unmet()[..] {
        let hint = "hearken::nn::taps lists the names";
        return Err(hearken::Error::new(format!("no value is called {unmet}"), hint));
    }
    let said = vowel.value().data().chunks(2).map(|row| u32::from(row[1] > row[0]));
    let right = said.zip(vowels(&targets)).filter(|(said, is)| said == is).count();
    Ok(right as f64 / targets.len() as f64)
}

fn main() -> Result<()> {
    let Some(directory) = std::env::args().nth(1) else {
        println!("usage: own_head DIRECTORY");
        return Ok(());
    };
    let summary = run(Path::new(&directory), 400, Mode::detect(false))?;
    println!("vowels known in advance: {:.3}", summary.metric("vowels").unwrap_or(f64::NAN));
    let speller = load(Path::new(&directory))?;
    println!("{}", write(&speller, " ele", 60)?);
    for layer in 0..2 {
        for head in 0..4 {
            let name = format!("blocks.{layer}.attention.mixed[{head}]");
            println!("without {name}: {:.3}", without(&speller, &name)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_heads_learn_a_run_is_continued_and_a_slip_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        assert_eq!(run(&out, 40, Mode::Quiet).unwrap().step, 40);
        let summary = run(&out, 120, Mode::Quiet).unwrap();
        assert_eq!(summary.step, 120);
        assert!(summary.metric("loss").unwrap() < 1.0, "{summary:?}"); // ln 27 = 3.3 is chance
        assert!(summary.metric("vowels").unwrap() > 0.8, "{summary:?}"); // 0.65 is always "no"

        let mut speller = load(&out).unwrap();
        let portion = Portion { sample: 0, whole: true };
        let metrics = speller.evaluate(portion, &mut |_| {}).unwrap().unwrap().metrics;
        let best = summary.best.unwrap().metrics;
        assert_eq!(metrics[1].value, best[1].value);
        assert_eq!(write(&speller, " ele", 9).unwrap().len(), 9);
        let [one, all] = ["blocks.1.attention.mixed[0]", "blocks.*.out"]
            .map(|name| without(&speller, name).unwrap());
        assert!(all < one, "{all} and {one}");
        let slip = without(&speller, "block.1.attention.mixed[0]").unwrap_err().to_string();
        assert!(slip.contains("block.1.attention.mixed[0]"), "{slip}");
    }
}
