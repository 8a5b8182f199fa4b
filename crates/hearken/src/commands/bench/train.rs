//! `hearken bench train`: whole training steps of a model, on random tokens.

use super::timing::{Times, timed};
use super::{Memory, check_memory, write_json};
use crate::commands::bench::profile_svg;
use crate::failure::Failure;
use crate::machine::{Machine, Peak};
use hearken::base::settings::{self, Setting, Settings, Value};
use hearken::base::{Error, Result};
use hearken::nn::config::ModelConfig;
use hearken::nn::presets;
use hearken::show::number::{percent, plural, thousands};
use hearken::show::terminal::wrap;
use hearken::show::{Columns, StatusLine, Terminal};
use hearken::tasks::config::preset_or_file;
use hearken::tasks::rehearsal;
use hearken::tensor::profile;
use hearken::train::config::even_parts;
use hearken::train::{ScheduleConfig, Stepper, Task, TrainConfig};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;

/// Time training steps: forward, backward, clipping and AdamW, on random tokens.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// A configuration with [model] and [bench], as in configs/bench/, or the name of a preset
    #[arg(long, value_name = "FILE")]
    config: String,

    /// How many steps are timed
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,

    /// Sequences per step; default: [bench] batch of the file
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch_size: Option<u32>,

    /// Tokens per sequence; default: the model's context
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tokens: Option<u32>,

    /// Parts of the batch that are computed at the same time, a thread each, or fewer, if so many
    /// do not share it evenly; default: [bench] parallel_parts of the file
    #[arg(long, value_name = "PARTS", value_parser = clap::value_parser!(u32).range(1..=256))]
    parallel_parts: Option<u32>,

    /// Also measure where the time goes, by operation, with parts one after the other
    #[arg(long)]
    profile: bool,

    /// With --profile: draw it to this file
    #[arg(long, value_name = "FILE.svg", requires = "profile")]
    svg: Option<PathBuf>,

    /// Write one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken bench train --config configs/bench/small.toml --steps 50
  hearken bench train --config configs/bench/gpt2.toml --steps 5 --json
  hearken bench train --config configs/bench/mid.toml --profile --svg mid.svg

Keys of --json:
  ms_per_step            the median; also ms_min and spread (between quartiles, over the median)
  tokens_per_second, gflops, peak_fraction
                         6·N operations per token for matrices of N numbers, and
                         12·L·C·T for attention; the peak is measured in the same run
  peak_rss_bytes, peak_tensor_bytes, allocations_per_step, losses
  profile                with --profile: per operation forward_ms and backward_ms of a step";

/// The `[bench]` table.
struct Bench {
    batch: usize,
    parallel_parts: usize,
}

impl Setting for Bench {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.table(|t| {
            Ok(Self { batch: t.or("batch", 1)?, parallel_parts: t.or("parallel_parts", 1)? })
        })
    }
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    machine: Machine,
    peak: Peak,
    config: String,
    parameters: u64,
    batch: usize,
    parallel_parts: usize,
    tokens: usize,
    steps: usize,
    #[serde(flatten)]
    speed: Speed,
    #[serde(flatten)]
    memory: Used,
    losses: Vec<f32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    profile: Vec<Share>,
}

/// How long a step takes.
#[derive(Serialize)]
struct Speed {
    ms_per_step: f64,
    ms_min: f64,
    spread: f64,
    tokens_per_second: f64,
    gflops: f64,
    peak_fraction: f64,
}

/// What the steps ask of the system.
#[derive(Serialize)]
struct Used {
    peak_rss_bytes: Option<usize>,
    peak_tensor_bytes: usize,
    allocations_per_step: f64,
}

/// What an operation takes of a step.
#[derive(Clone, Serialize)]
pub(super) struct Share {
    pub(super) op: &'static str,
    pub(super) forward_ms: f64,
    pub(super) backward_ms: f64,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (mut config, bench) = read(&arguments.config)?;
    let batch = arguments.batch_size.map_or(bench.batch, |b| b as usize);
    let parts = arguments.parallel_parts.map_or(bench.parallel_parts, |p| p as usize);
    let parts = even_parts(batch, parts);
    let tokens = arguments.tokens.map_or(config.context(), |t| t as usize);
    config.set_context(config.context().max(tokens));
    let train = training(batch, parts);
    let cost = rehearsal::cost(&config, &train, tokens)?;
    check_memory(usize::try_from(cost.memory.total()).ok())?;
    let mut progress = StatusLine::new();
    progress.show("measuring the machine's peak");
    let machine = Machine::of_this_process();
    let peak = Peak::measure(machine.threads);
    progress.show("building the model");
    Memory::reset();
    let mut bench = Step::new(&config, &train, tokens)?;
    let steps = arguments.steps as usize;
    // Two steps fill the pool; from then on nothing should be asked of the system.
    for _ in 0..2 {
        bench.run()?;
    }
    let (mut seconds, mut losses) = (Vec::new(), Vec::new());
    let before = crate::ALLOCATOR.requests();
    for i in 0..steps {
        progress.show(&format!("step {} of {steps}", i + 1));
        let mut loss = Ok(0.0);
        seconds.push(timed(|| loss = bench.run()));
        losses.push(loss?);
    }
    let allocations = (crate::ALLOCATOR.requests() - before) as f64 / steps as f64;
    let times = Times::of(seconds);
    let most = Memory::most();
    let shares = if arguments.profile { bench.profile(steps)? } else { Vec::new() };
    progress.clear();
    let rows = (batch * tokens) as f64;
    let gflops = cost.training.all() * rows / times.median / 1e9;
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        machine,
        config: arguments.config.clone(),
        parameters: cost.parameters(),
        batch,
        parallel_parts: parts,
        tokens,
        steps,
        speed: Speed {
            ms_per_step: times.median * 1e3,
            ms_min: times.min * 1e3,
            spread: times.spread,
            tokens_per_second: rows / times.median,
            gflops,
            peak_fraction: gflops / peak.gflops,
        },
        memory: Used {
            peak_rss_bytes: most.resident,
            peak_tensor_bytes: most.tensors,
            allocations_per_step: allocations,
        },
        peak,
        losses,
        profile: shares,
    };
    if let Some(path) = &arguments.svg {
        let title = format!("{}: {:.1} ms per step", report.config, report.speed.ms_per_step);
        std::fs::write(path, profile_svg::draw(&title, &report.profile))
            .map_err(Error::io("write", path))
            .map_err(|error| error.or_hint("check the path"))?;
    }
    show(&report, arguments.json)
}

fn show(report: &Report, json: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if json {
        return write_json(&mut out, report);
    }
    let resident = report.memory.peak_rss_bytes.map_or("?".to_owned(), super::size);
    let tensors = super::size(report.memory.peak_tensor_bytes);
    let parts = match report.parallel_parts {
        1 => String::new(),
        parts => format!(" in {parts} parallel parts"),
    };
    let lines = [
        format!(
            "{}: {} parameters, {} × {} tokens per step{parts}, {}",
            report.config,
            thousands(report.parameters as f64),
            report.batch,
            report.tokens,
            plural(report.steps, "step")
        ),
        format!(
            "{:.1} ms per step (best {:.1}, spread {:.1} %), {} tokens/s",
            report.speed.ms_per_step,
            report.speed.ms_min,
            100.0 * report.speed.spread,
            thousands(report.speed.tokens_per_second)
        ),
        format!(
            "{:.0} GFLOP/s, {:.0} % of the measured {:.0}",
            report.speed.gflops,
            100.0 * report.speed.peak_fraction,
            report.peak.gflops
        ),
        format!("{resident} resident at most, {tensors} of it in tensors"),
        format!("{:.1} allocations of 4 KiB or more per step", report.memory.allocations_per_step),
    ];
    let width = Terminal::stdout().width.saturating_sub(2);
    for (i, line) in lines.iter().flat_map(|line| wrap(line, width)).enumerate() {
        let indent = if i == 0 { "" } else { "  " };
        writeln!(out, "{indent}{line}")?;
    }
    if !report.profile.is_empty() {
        let columns = Columns::new().indented(2).left("operation", 23);
        let columns = columns.right("forward", 10).right("backward", 10).right("share", 7);
        let columns = columns.fitting(Terminal::stdout().width, &[]);
        writeln!(out, "\n{}", columns.head())?;
        let total: f64 = report.profile.iter().map(|s| s.forward_ms + s.backward_ms).sum();
        for Share { op, forward_ms, backward_ms } in &report.profile {
            let ms = |time: f64| format!("{time:.2} ms");
            let share = percent((forward_ms + backward_ms) / total, 1);
            let cells = [(*op).to_owned(), ms(*forward_ms), ms(*backward_ms), share];
            writeln!(out, "{}", columns.row(&cells))?;
        }
    }
    Ok(())
}

fn read(name: &str) -> Result<(ModelConfig, Bench), Failure> {
    let text = preset_or_file(name)?;
    let mut config = presets::model_of(&text, name)?;
    let bench = Settings::parse(&text, name)?.read_only("bench")?.unwrap_or_else(settings::default);
    if config.vocabulary() == 0 {
        config.set_vocabulary(256); // what a tokenizer would decide
    }
    config.validate()?;
    Ok((config, bench))
}

/// A model with its optimiser and one batch of random tokens.
pub(super) struct Step {
    task: Box<dyn Task>,
    stepper: Stepper,
    done: u64,
}

impl Step {
    pub(super) fn new(config: &ModelConfig, train: &TrainConfig, tokens: usize) -> Result<Self> {
        let task = rehearsal::task(config, train, tokens)?;
        let stepper = Stepper::new(train, task.parameters());
        Ok(Self { task, stepper, done: 0 })
    }

    /// One step; gives its loss.
    pub(super) fn run(&mut self) -> Result<f32> {
        let result = self.stepper.step(&mut *self.task, self.done, false)?;
        self.done += 1;
        Ok(result.loss as f32)
    }

    /// Milliseconds of a step by operation, the largest first.
    fn profile(&mut self, steps: usize) -> Result<Vec<Share>> {
        profile::start();
        let ran = (0..steps).try_for_each(|_| self.run().map(|_| ()));
        let per_step = |d: std::time::Duration| d.as_secs_f64() * 1e3 / steps as f64;
        let spent = profile::stop();
        ran?;
        let mut shares: Vec<Share> = spent
            .into_iter()
            .map(|(op, spent)| Share {
                op,
                forward_ms: per_step(spent.forward),
                backward_ms: per_step(spent.backward),
            })
            .collect();
        shares.sort_by(|a, b| {
            (b.forward_ms + b.backward_ms).total_cmp(&(a.forward_ms + a.backward_ms))
        });
        Ok(shares)
    }
}

/// AdamW at a constant rate.
pub(super) fn training(batch_size: usize, parallel_parts: usize) -> TrainConfig {
    let schedule = ScheduleConfig::Constant { warmup: 0 };
    TrainConfig { batch_size, parallel_parts, seed: 1, schedule, ..TrainConfig::default() }
}
