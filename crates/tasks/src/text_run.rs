//! A whole run: from a configuration and text to a trained model in a directory.
//!
//! ```no_run
//! use hearken_tasks::{RunConfig, TextRun, Writing};
//!
//! let config = RunConfig::preset("shakespeare-fast")?.on(["book.txt"]).steps(500);
//! let trained = TextRun::new(config).out("runs/book").run()?;
//! println!("{}", trained.model.writer()?.write("It was ", &Writing::default())?);
//! # Ok::<(), hearken_base::Error>(())
//! ```

use crate::config::RunConfig;
use crate::data::{FILES, TextData};
use crate::next_token::NextToken;
use crate::open::OpenModel;
use crate::prefix::Prefixes;
use hearken_base::{Error, Kind, Result};
use hearken_nn::models;
use hearken_nn::scope::Weights;
use hearken_train::interrupt::Stop;
use hearken_train::progress::Mode;
use hearken_train::{RunDirectory, Setup, Summary, train};
use std::path::{Path, PathBuf};

/// A run on text that is about to start.
#[derive(Debug)]
pub struct TextRun {
    config: RunConfig,
    out: PathBuf,
    resume: bool,
    progress: Mode,
    stop: Stop,
}

/// What a run came to.
#[derive(Debug)]
pub struct Trained {
    /// Its figures.
    pub summary: Summary,
    /// The best checkpoint, loaded again from its directory.
    pub model: OpenModel,
}

impl TextRun {
    /// With files in `runs/text`, and progress on standard error.
    pub fn new(config: RunConfig) -> Self {
        Self {
            config,
            out: PathBuf::from("runs/text"),
            resume: false,
            progress: Mode::detect(false),
            stop: Stop::default(),
        }
    }

    /// Where the run leaves its files: `config.toml`, `metrics.jsonl`, `report.html`, `samples.txt`
    /// and checkpoints, each of them a model directory.
    pub fn out(mut self, directory: impl Into<PathBuf>) -> Self {
        self.out = directory.into();
        self
    }

    /// Continues the run in the directory if there is one, to the bit as if it had never stopped.
    pub fn resume(mut self) -> Self {
        self.resume = true;
        self
    }

    /// Says nothing but warnings.
    pub fn quiet(mut self) -> Self {
        self.progress = Mode::Quiet;
        self
    }

    /// Stops after a step, with a checkpoint, once this is set.
    pub fn stop(mut self, stop: &Stop) -> Self {
        self.stop = stop.clone();
        self
    }

    /// Trains, and opens the result.
    pub fn run(self) -> Result<Trained> {
        let Self { mut config, out, resume, progress, stop } = self;
        config.fit_warmup();
        config.validate()?;
        let directory = if resume && RunDirectory::holds_run(&out) {
            RunDirectory::open(&out)?
        } else {
            config.check_that_all_is_read()?;
            RunDirectory::create(&out, &FILES).map_err(|error| taken(error, &out))?
        };
        let prepared =
            TextData::prepare(&config, &directory, &stop, &mut |_| {}).and_then(|data| {
                data.fit_vocabulary(&mut config)?;
                config.validate()?;
                Ok(data)
            });
        let data = match prepared {
            Ok(data) => data,
            Err(error) => {
                directory.abandon(&FILES);
                return Err(error);
            }
        };
        let model = models::build(&config.model, Weights::Drawn { seed: config.train.seed });
        if model.generates().is_none() {
            directory.abandon(&FILES);
            return Err(Error::new(
                format!("a model of this kind does not write: {}", config.model.summary()),
                "a TextRun trains decoders; write a Task for other kinds",
            ));
        }
        let setup = Setup {
            title: format!("Hearken: {}", data.name),
            progress,
            stop,
            entropy_floor: data.floor,
            why_training_is_above: data.why_training_is_above,
            ..Setup::new(directory, config.to_toml()?)
        };
        let prefixes = Prefixes::of(&config, &data.tokenizer)?;
        let mut task = NextToken::new(model, data, &config.train).with_prefixes(prefixes);
        let summary = train(&mut task, &config.train, setup)?;
        let model = OpenModel::open(Some(&out), &mut |_| {})?;
        Ok(Trained { summary, model })
    }
}

/// The error of a directory that holds a run, for somebody who has no command line.
fn taken(error: Error, out: &Path) -> Error {
    match error.kind() {
        Kind::Exists => error.with_hint(format!(
            "remove {}, choose another directory with `out`, or continue the run with `resume`",
            out.display()
        )),
        _ => error,
    }
}
