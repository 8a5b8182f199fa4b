//! Configurations, and run directories that are continued.

use super::{Kind, Subject};
use crate::mutate::Form;
use hearken_base::{Error, Result};
use hearken_nn::models;
use hearken_nn::pass::{Noise, Pass};
use hearken_nn::scope::Weights;
use hearken_tasks::{NextToken, RunConfig, TextData};
use hearken_tensor::ops::cross_entropy::Options;
use hearken_train::interrupt::Stop;
use hearken_train::{RunDirectory, Setup, files};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

pub(super) fn subjects() -> Vec<Subject> {
    let run = |name, target, form| Subject {
        name,
        kind: Kind::Training,
        target,
        form,
        prepare: train,
        read: resume,
    };
    let trusted = |name, target, form| Subject { read: resume_trusting, ..run(name, target, form) };
    vec![
        Subject { prepare: plain, read: configure, ..run("toml", "config.toml", Form::Text) },
        Subject { prepare: every, read: configure, ..run("toml-all", "config.toml", Form::Text) },
        run("run-config", "run/config.toml", Form::Text),
        run("metrics", "run/metrics.jsonl", Form::Text),
        run("diagnostics", "run/diagnostics.jsonl", Form::Text),
        run("samples", "run/samples.txt", Form::Text),
        run("checksums", "run/checkpoints/step-000002/SHA256SUMS", Form::Text),
        run("checkpoint", "run/checkpoints/step-000002/optimizer.safetensors", Form::Safetensors),
        trusted("state", "run/checkpoints/step-000002/trainer_state.json", Form::Json),
        trusted("moments", "run/checkpoints/step-000002/optimizer.safetensors", Form::Safetensors),
        trusted(
            "resumed-weights",
            "run/checkpoints/step-000002/model.safetensors",
            Form::Safetensors,
        ),
    ]
}

const SMALL: &str = "\
[model]
kind = \"decoder\"
context = 8
layers = 1
width = 8
heads = 2
position = { kind = \"rope\" }

[data]
paths = [\"text.txt\"]
validation = 0.2

[train]
steps = 2
batch_size = 4
checkpoint_every = 2
evaluate_every = 1
sample_every = 2
schedule = { kind = \"cosine\", warmup = 1 }
optimizer = { kind = \"muon\" }
ema = { decay = 0.9 }
";

fn put(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::io("write", path))
}

fn plain(directory: &Path) -> Result<()> {
    put(&directory.join("config.toml"), SMALL)
}

/// With every default written out, so that each can be damaged.
fn every(directory: &Path) -> Result<()> {
    put(&directory.join("config.toml"), &RunConfig::parse(SMALL, "small", &[])?.to_toml()?)
}

/// The configuration, as `train --config` and `plan` read it; a small model takes a step.
fn configure(directory: &Path) -> Result<()> {
    let path = directory.join("config.toml");
    let mut config = RunConfig::read(&path.to_string_lossy(), &[])?;
    config.validate()?;
    if config.model.vocabulary() == 0 {
        config.model.set_vocabulary(30);
    }
    let outline = models::build(&config.model, Weights::Unset);
    let numbers: u128 = outline.parameters().iter().map(|p| p.shape().len() as u128).sum();
    let tokens = config.model.context().min(16);
    if numbers > 1_000_000 || config.model.vocabulary() < 2 {
        return Ok(());
    }
    let model = models::build(&config.model, Weights::Drawn { seed: 1 });
    if let Some(model) = model.predicts_tokens() {
        let ids = vec![1; tokens];
        let pass = Pass::train(Noise { seed: 1, step: 1 });
        let options = Options {
            label_smoothing: config.train.label_smoothing,
            z_loss: config.train.z_loss,
            ..Options::default()
        };
        models::loss_and_gradients(model, &ids, &ids, 1, 1, &pass, options);
    }
    Ok(())
}

/// A run of two steps.
fn train(directory: &Path) -> Result<()> {
    let text = "The cat sat on the mat.\nThe dog sat on the log.\n".repeat(20);
    put(&directory.join("text.txt"), &text)?;
    let run = RunDirectory::create(&directory.join("run"), &[])?;
    go(RunConfig::parse(SMALL, "small", &[])?, directory, run)
}

fn go(mut config: RunConfig, directory: &Path, run: RunDirectory) -> Result<()> {
    for path in &mut config.data.paths {
        *path = directory.join(&*path);
    }
    config.validate()?;
    let data = TextData::prepare(&config, &run, &Stop::default(), &mut |_| {})?;
    data.fit_vocabulary(&mut config)?;
    let outline = models::build(&config.model, Weights::Unset);
    let numbers: u128 = outline.parameters().iter().map(|p| p.shape().len() as u128).sum();
    // The command compares with the memory that is free.
    if numbers > 100_000 || config.train.batch_size > 1000 || config.train.steps > 20 {
        return Ok(());
    }
    let model = models::build(&config.model, Weights::Drawn { seed: config.train.seed });
    let mut task = NextToken::new(model, data, &config.train);
    let setup = Setup::new(run, config.to_toml()?);
    hearken_train::train(&mut task, &config.train, setup).map(|_| ())
}

/// Goes on with the run, as `train --resume` does; there is nothing left to do but to read it.
fn resume(directory: &Path) -> Result<()> {
    let path = directory.join("run");
    let text = RunDirectory::read_config(&path)?;
    let config = RunConfig::parse(&text, "config.toml", &[])?;
    go(config, directory, RunDirectory::open(&path)?)
}

/// The same, with checksums that fit what is there: a stranger can compute them, too.
fn resume_trusting(directory: &Path) -> Result<()> {
    let checkpoint = directory.join("run/checkpoints/step-000002");
    let mut sums = String::new();
    let entries = fs::read_dir(&checkpoint).map_err(Error::io("read", &checkpoint))?;
    for entry in entries.flatten().filter(|entry| entry.file_name() != "SHA256SUMS") {
        let name = entry.file_name().to_string_lossy().into_owned();
        let _ = writeln!(sums, "{}  {name}", files::checksum(&entry.path())?);
    }
    put(&checkpoint.join("SHA256SUMS"), &sums)?;
    resume(directory)
}
