//! A whole run on a network small enough to finish in a second, to look at what it leaves behind
//! and to try Ctrl-C, kill −9, full disks and `--resume` on:
//!
//! ```text
//! cargo run --release -p hearken-train --example small_run -- runs/small [steps]
//! ```
//! Started again in the same directory it continues.

#[allow(dead_code, reason = "tests use more of it")]
#[path = "../tests/common/mod.rs"]
mod common;

use common::Network;
use hearken_train::ema::EmaConfig;
use hearken_train::progress::Mode;
use hearken_train::report::Table;
use hearken_train::{Error, Outcome, RunDirectory, Setup, Summary, TrainConfig, interrupt, train};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "runs/small".to_owned());
    let steps = arguments.next().and_then(|steps| steps.parse().ok()).unwrap_or(2000);
    let config = TrainConfig {
        steps,
        ema: Some(EmaConfig { decay: 0.99 }),
        evaluate_every: steps.div_ceil(20),
        checkpoint_every: steps.div_ceil(10),
        sample_every: steps.div_ceil(10),
        observe_every: steps.div_ceil(80),
        ..common::config()
    };
    match run(Path::new(&path), &config) {
        Ok(summary) => {
            println!("{summary:?}");
            if summary.outcome == Outcome::Interrupted { 130.into() } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            eprintln!("error: {error}");
            2.into()
        }
    }
}

fn run(path: &Path, config: &TrainConfig) -> Result<Summary, Error> {
    let resume = RunDirectory::holds_run(path);
    let run = if resume { RunDirectory::open(path) } else { RunDirectory::create(path, &[]) }?;
    let text = format!("[train]\nsteps = {}\nlr = {}\n", config.steps, config.lr);
    let mut setup = Setup::new(run, text);
    setup.progress = Mode::detect(false);
    setup.entropy_floor = Some(0.0);
    setup.peak_flops = Some(1e11);
    setup.tables = vec![Table {
        title: "Parameters".to_owned(),
        columns: ["part", "numbers", "bytes"].map(str::to_owned).into(),
        rows: vec![["hidden layer", "112", "448"].map(str::to_owned).into()],
    }];
    setup.stop = interrupt::install()?;
    train(&mut Network { dropout: 0.1, ..Network::new() }, config, setup)
}
