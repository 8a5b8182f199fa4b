//! `hearken train`: learn a language model from text.

use super::plan::states;
use crate::failure::Failure;
use crate::invocation::program;
use crate::machine::{self, Machine, Peak};
use crate::terminal::{Progress, say};
use hearken::base::{Kind, Result};
use hearken::data::{Progress as Done, Stage};
use hearken::kernels::isa;
use hearken::nn::models;
use hearken::nn::plan::{Memory, Plan, Training};
use hearken::nn::scope::Weights;
use hearken::show::number::{bytes as size, date, plural, thousands};
use hearken::tasks::data::FILES;
use hearken::tasks::{NextToken, RunConfig, TextData};
use hearken::train::evaluation::Metric;
use hearken::train::interrupt::{self, Stop};
use hearken::train::progress::Mode;
use hearken::train::report::Table;
use hearken::train::{Outcome, Precision, RunDirectory, Setup, Summary, TrainConfig, timing};
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Train a language model: on your own text, or on generated stories if none is given.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Text files, directories, JSON lines, pipes, or - for standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// A configuration file or the name of a preset ('hearken presets' lists them); default: stories,
    /// or shakespeare-fast for your text, with fewer steps if the text is short
    #[arg(long, value_name = "FILE")]
    config: Option<String>,

    /// The same as FILE
    #[arg(long, value_name = "PATH", num_args = 1..)]
    data: Vec<PathBuf>,

    /// Change any setting of the configuration, as in train.lr=3e-4 (may be given several times)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    #[command(flatten)]
    sizes: Sizes,

    /// Updates of the weights; a warm-up that you did not set takes a tenth of them at most
    #[arg(long)]
    steps: Option<u64>,

    /// As many steps as take about so long here: a few are timed before the first, and the number is
    /// fixed in config.toml
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with_all = ["steps", "resume"])]
    minutes: Option<f64>,

    /// Sequences per step
    #[arg(long)]
    batch_size: Option<usize>,

    /// Learning rate
    #[arg(long, allow_negative_numbers = true)]
    lr: Option<f64>,

    /// Seed of all randomness
    #[arg(long)]
    seed: Option<u64>,

    /// Where the run leaves its files; default: a new directory in runs/
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Continue the run in this directory where its last checkpoint stands
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "files", "data", "out", "seed"])]
    resume: Option<PathBuf>,

    /// Say nothing but warnings and the result
    #[arg(long)]
    quiet: bool,
}

const HELP: &str = "\
Examples:
  hearken train                                 learn generated stories, in about a minute
  hearken train book.txt                        learn your own text
  hearken train book.txt --minutes 5            … in about five minutes
  hearken train book.txt --layers 6 --width 192 --heads 6 --context 128 --dropout 0.1
  hearken train --config nanogpt-cpu --data shakespeare.txt --out runs/bard
  hearken train --resume runs/bard              go on after Ctrl-C or a power cut
  hearken train --data docs/ --set data.tokenizer=bpe --set data.vocabulary=4096

Presets: stories (the default), shakespeare-fast (the default for your text), nanogpt-cpu,
llama-style, gpt2-small and others; 'hearken presets' says what they are.

A run directory holds config.toml, metrics.jsonl, loss.svg, report.html, samples.txt,
TensorBoard events, and checkpoints/best and checkpoints/last, each a model directory.";

/// Sizes of the model, which people change daily.
#[derive(clap::Args)]
struct Sizes {
    /// Blocks of the model
    #[arg(long, value_name = "N")]
    layers: Option<usize>,

    /// The width of the model; its heads must divide it
    #[arg(long, value_name = "N")]
    width: Option<usize>,

    /// Attention heads of each block
    #[arg(long, value_name = "N")]
    heads: Option<usize>,

    /// The longest text that the model looks at, in tokens
    #[arg(long, value_name = "N")]
    context: Option<usize>,

    /// The chance that an activation is dropped in training
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    dropout: Option<f32>,
}

impl Sizes {
    /// As settings of the configuration.
    fn sets(&self) -> Vec<String> {
        let text = |value: Option<usize>| value.map(|value| value.to_string());
        [
            ("layers", text(self.layers)),
            ("width", text(self.width)),
            ("heads", text(self.heads)),
            ("context", text(self.context)),
            ("dropout", self.dropout.map(|p| format!("{p:?}"))),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some(format!("model.{key}={}", value?)))
        .collect()
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut config = configure(arguments)?;
    config.validate()?;
    let directory = match (&arguments.resume, &arguments.out) {
        (Some(path), _) => RunDirectory::open(path),
        (None, Some(path)) => RunDirectory::create(path, &FILES),
        (None, None) => next_run(&config),
    }?;
    let stop = interrupt::prepare()?;
    let (data, plan, memory) = match prepare(&mut config, &directory, &stop) {
        Ok(prepared) => prepared,
        Err(error) => {
            directory.abandon(&FILES);
            return Err(error);
        }
    };
    let peak_gflops = isa::for_batches(Peak::measure_gflops);
    let model = models::build(&config.model, Weights::Drawn { seed: config.train.seed });
    let (path, floor) = (directory.path().to_owned(), data.floor);
    let about = About::of(&data);
    let mut task = NextToken::new(model, data, &config.train);
    if let Some(minutes) = arguments.minutes {
        let steps = timing::steps_within(&mut task, &config.train, 60.0 * minutes)?;
        config.train.steps = steps;
        config.fit_warmup();
        config.validate()?;
    }
    if !arguments.quiet {
        introduce(&config, &about, &plan, &memory, &path);
    }
    let mut setup = Setup::new(directory, config.to_toml()?);
    setup.title = format!("Hearken: {}", about.name);
    setup.progress = Mode::detect(arguments.quiet);
    setup.stop = interrupt::install()?;
    setup.peak_flops = Some(peak_gflops * 1e9);
    setup.entropy_floor = floor;
    setup.why_training_is_above = about.why_training_is_above;
    setup.tables = tables(&plan, &memory);
    setup.about = about.lines();
    let summary = hearken::train::train(&mut task, &config.train, setup)?;
    conclude(&summary, floor, &path)
}

/// What is said of the data when the task has it.
struct About {
    name: String,
    length: usize,
    tokens: usize,
    floor: Option<f64>,
    why_training_is_above: Option<&'static str>,
}

impl About {
    fn of(data: &TextData) -> Self {
        Self {
            name: data.name.clone(),
            length: data.batches.length(),
            tokens: data.tokenizer.vocabulary_size(),
            floor: data.floor,
            why_training_is_above: data.why_training_is_above,
        }
    }

    /// For the report: the data, the machine, the day and the version.
    fn lines(&self) -> Vec<String> {
        let machine = Machine::of_this_process();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        vec![
            format!("data: {}", self.name),
            format!("{}, {}", machine.cpu, plural(machine.threads, "thread")),
            date(seconds),
            format!("hearken {}", env!("CARGO_PKG_VERSION")),
        ]
    }
}

/// The data, and what the model will cost.
fn prepare(
    config: &mut RunConfig,
    directory: &RunDirectory,
    stop: &Stop,
) -> Result<(TextData, Plan, Memory), Failure> {
    let mut progress = Progress::new();
    let mut report = |done: Done| progress.show(&words(done));
    let prepared = TextData::prepare(config, directory, stop, &mut report);
    progress.clear();
    let data = prepared?;
    for note in &data.notes {
        say!("note: {note}");
    }
    data.fit_vocabulary(config)?;
    let plan = Plan::new(&config.model);
    let memory = plan.memory(training(&config.train, config.model.context()));
    check_memory(&memory)?;
    Ok((data, plan, memory))
}

fn words(done: Done) -> String {
    let what = match done.stage {
        Stage::Keeping => return format!("reading what comes in: {}", size(done.done)),
        Stage::Reading => "reading the text",
        Stage::Training => "choosing the vocabulary",
        Stage::Surveying => "checking the text",
        Stage::Tokenising => "turning text into tokens",
    };
    match done.total {
        Some(total) if total > 0 => {
            let share = 100.0 * done.done as f64 / total as f64;
            format!("{what}: {share:.0} % of {}", size(total))
        }
        _ => what.to_owned(),
    }
}

fn configure(arguments: &Arguments) -> Result<RunConfig, Failure> {
    let sets = [&arguments.sets[..], &arguments.sizes.sets()].concat();
    let paths = [&arguments.files[..], &arguments.data].concat();
    let mut config = if let Some(path) = &arguments.resume {
        let text = RunDirectory::read_config(path)?;
        let name = path.join("config.toml").display().to_string();
        RunConfig::parse(&text, &name, &sets)?
    } else {
        let default = if paths.is_empty() { "stories" } else { "shakespeare-fast" };
        let mut config = RunConfig::read(arguments.config.as_deref().unwrap_or(default), &sets)?;
        if arguments.config.is_none() {
            config.fit_steps(&paths, &sets);
        }
        config
    };
    if !paths.is_empty() {
        config.data.paths = paths;
    }
    if let Some(minutes) = arguments.minutes.filter(|minutes| !(0.01..=1e6).contains(minutes)) {
        return Err(Failure::input(
            format!("--minutes is {minutes}, expected a number from 0.01 to 1000000"),
            "--minutes 5 is usual; --steps says exactly how many steps",
        ));
    }
    each_once(&config.data.paths)?;
    let train = &mut config.train;
    train.steps = arguments.steps.unwrap_or(train.steps);
    train.batch_size = arguments.batch_size.unwrap_or(train.batch_size);
    train.lr = arguments.lr.unwrap_or(train.lr);
    train.seed = arguments.seed.unwrap_or(train.seed);
    // A run that goes on keeps the schedule that it began with.
    if arguments.resume.is_none() {
        config.fit_warmup();
    }
    Ok(config)
}

/// Refuses a path that is given twice, also under two names: the end of the text is held back, and
/// would be trained on too.
fn each_once(paths: &[PathBuf]) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for path in paths {
        // What is not there is named when it is opened.
        if !seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
            let path = path.display();
            return Err(Failure::input(
                format!("{path} is given twice: what is held back of it would be trained on too"),
                "name it once; --steps says how long it is trained on",
            ));
        }
    }
    Ok(())
}

/// The first of runs/NAME, runs/NAME-2, … that is free.
fn next_run(config: &RunConfig) -> Result<RunDirectory> {
    let name = config.data.paths.first().and_then(|path| path.file_stem());
    let name = name.map_or("stories".into(), |name| name.to_string_lossy().into_owned());
    let name = if name == "-" { "stdin".to_owned() } else { name };
    let mut n = 1;
    loop {
        let path = match n {
            1 => Path::new("runs").join(&name),
            n => Path::new("runs").join(format!("{name}-{n}")),
        };
        // One that was prepared for a run which never began may be used again.
        if !path.exists() || path.join("lock").exists() {
            match RunDirectory::create(&path, &FILES) {
                Err(error) if matches!(error.kind(), Kind::Exists | Kind::InUse) => {}
                result => return result,
            }
        }
        n += 1;
    }
}

/// What the memory of training depends on.
fn training(train: &TrainConfig, tokens: usize) -> Training {
    Training {
        batch: train.rows_at_once(),
        side_by_side: train.parts_at_once(),
        tokens,
        states: states(&train.optimizer),
        activation_bytes: if train.precision == Precision::F32 { 4 } else { 2 },
        checkpointing: train.gradient_checkpointing,
    }
}

fn check_memory(memory: &Memory) -> Result<(), Failure> {
    let free = machine::available_bytes().unwrap_or(usize::MAX) as u64;
    if memory.total() <= free {
        return Ok(());
    }
    Err(Failure::input(
        format!("this would need {} and {} are free", size(memory.total()), size(free)),
        "a smaller --batch-size with --set train.accumulate, --set train.side_by_side=1, --set \
         train.gradient_checkpointing=true, or a smaller model",
    ))
}

/// What is about to happen, on standard error.
fn introduce(config: &RunConfig, data: &About, plan: &Plan, memory: &Memory, path: &Path) {
    let train = &config.train;
    say!("{} parameters: {}", thousands(plan.parameters() as f64), config.model.summary());
    say!(
        "{} step{} of {} × {} tokens of {}, {:.1} MFLOP per token, about {}",
        thousands(train.steps as f64),
        if train.steps == 1 { "" } else { "s" },
        train.batch_size,
        data.length,
        data.name,
        plan.training_flops_per_token(data.length) / 1e6,
        size(memory.total())
    );
    let tokens = data.tokens;
    if tokens < config.model.vocabulary() {
        say!(
            "note: the text has {tokens} different tokens: the model has room for more, which it \
             will learn never to write (data.tokenizer and data.vocabulary choose the tokens)"
        );
    }
    if let Some(floor) = data.floor {
        say!("no model can get below a loss of {floor:.4} nats per token");
    }
    say!("writing to {}", path.display());
}

/// For the report.
fn tables(plan: &Plan, memory: &Memory) -> Vec<Table> {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut parts: Vec<Vec<String>> =
        plan.parts.iter().map(|part| row(part.name, thousands(part.parameters as f64))).collect();
    parts.push(row("all", thousands(plan.parameters() as f64)));
    let memory = [
        ("parameters", memory.parameters),
        ("gradients", memory.gradients),
        ("optimiser", memory.optimizer),
        ("activations", memory.activations),
        ("all", memory.total()),
    ];
    vec![
        Table { title: "Parameters".to_owned(), columns: words(&["part", "numbers"]), rows: parts },
        Table {
            title: "Memory".to_owned(),
            columns: words(&["for", "size"]),
            rows: memory.map(|(name, bytes)| row(name, size(bytes))).to_vec(),
        },
    ]
}

/// What it came to, on standard output, and what to do next, on standard error.
fn conclude(summary: &Summary, floor: Option<f64>, path: &Path) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let show = path.display();
    if summary.outcome == Outcome::Interrupted {
        writeln!(out, "stopped after step {}", summary.step)?;
        say!("go on:  {} train --resume {show}", program());
        out.flush()?;
        return Err(Failure::Interrupted);
    }
    match summary.best.as_ref().and_then(|best| Some((best, best.deciding()?))) {
        Some((best, Metric { name, value, .. })) => {
            let of = if best.whole { "" } else { " on a sample" };
            write!(out, "validation {name} {value:.4}{of} after step {}", best.step)?;
            if let Some(floor) = floor.filter(|_| name == Metric::LOSS) {
                write!(out, ": {:.4} above the floor of {floor:.4}", value - floor)?;
            }
            writeln!(out)?;
            if let (false, Some(last)) = (best.whole, summary.metric(name)) {
                writeln!(out, "on everything {last:.4} after step {}", summary.step)?;
            }
        }
        None => writeln!(out, "trained {} steps", summary.step)?,
    }
    say!(
        "trained for {:.0} s, {} tokens",
        summary.elapsed_seconds,
        thousands(summary.tokens as f64)
    );
    say!("look:   {}", path.join("report.html").display());
    say!("write:  {} generate --model {show}", program());
    Ok(())
}
