//! `hearken train`: learn a language model from text, an encoder from labelled data, or an
//! encoder-decoder from pairs of texts.

mod choices;

use crate::failure::Failure;
use crate::invocation::program;
use crate::machine::{self, Machine, Peak};
use crate::terminal::{Progress, say};
use choices::{Sides, Sizes, TaskName};
use hearken::base::{Kind, Result};
use hearken::data::{Progress as Done, Stage};
use hearken::formats::Initialised;
use hearken::kernels::isa;
use hearken::show::number::{bytes as size, date, operations, plural, thousands};
use hearken::tasks::data::FILES;
use hearken::tasks::prepared::{fine_tuning, first_model};
use hearken::tasks::{Prepared, RunConfig, rehearsal};
use hearken::train::evaluation::Metric;
use hearken::train::interrupt::{self, Stop};
use hearken::train::progress::Mode;
use hearken::train::report::Table;
use hearken::train::{Cost, Memory, Outcome, RunDirectory, Setup, Summary, timing};
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Train a model of any kind: on your own text, labelled data or pairs of texts, or on generated
/// stories, dates or numbers if none is given.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Text files, directories, JSON lines, pipes, or - for standard input; labelled data as JSON
    /// lines, CSV, TSV or a directory per class; pairs of texts as TSV, JSON lines or CSV
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// A configuration file or the name of a preset ('hearken presets' lists them); default: stories,
    /// or shakespeare-fast for your text, with fewer steps if the text is short
    #[arg(long, value_name = "FILE")]
    config: Option<String>,

    /// The same as FILE
    #[arg(long, value_name = "PATH", num_args = 1..)]
    data: Vec<PathBuf>,

    #[command(flatten)]
    sides: Sides,

    /// Start from the encoder in this model directory or run, with a new head; or from the
    /// encoder-decoder there
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    init: Option<PathBuf>,

    /// What the model learns, in place of what its configuration says; without --config and --init,
    /// of the preset that fits: classifier, encoder-small (masks) or translation (denoise)
    #[arg(long, value_enum)]
    task: Option<TaskName>,

    /// Change any setting of the configuration, as in train.lr=3e-4 (may be given several times)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    #[command(flatten)]
    sizes: Sizes,

    /// Optimiser steps; a warm-up that you did not set takes at most a tenth of them
    #[arg(long)]
    steps: Option<u64>,

    /// Train for about N minutes: a few steps are timed first, and the number of steps that fit is
    /// written to config.toml
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with_all = ["steps", "epochs", "resume"])]
    minutes: Option<f64>,

    /// Passes over the data, in place of --steps [default with --init: 3]
    #[arg(long, value_name = "N", conflicts_with = "steps")]
    epochs: Option<f64>,

    /// Sequences per step
    #[arg(long)]
    batch_size: Option<usize>,

    /// Learning rate
    #[arg(long, allow_negative_numbers = true)]
    lr: Option<f64>,

    /// Seed of all randomness
    #[arg(long)]
    seed: Option<u64>,

    /// The directory that the run writes to [default: a new one in runs/]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Continue the run in this directory from its last checkpoint
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "files", "data", "out", "seed"])]
    resume: Option<PathBuf>,

    /// Print only warnings and the result
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
  hearken train --config story-labels           label generated stories
  hearken train --config classifier --data reviews.csv
  hearken train --init bert/ --data reviews.jsonl --set data.label=stars
  hearken train --init bert/ --task tags --data entities.conll --epochs 5
  hearken train --config dates                  dates in words to 2021-03-03
  hearken train --config translation --data pairs.tsv
  hearken train --config translation --source text.en --target text.es --minutes 30
  hearken train --config translation --task denoise --data books/

Presets: stories (the default), shakespeare-fast (the default for your text), nanogpt-cpu,
llama-style, gpt2-small and others; 'hearken presets' says what they are.

A run directory holds config.toml, metrics.jsonl, loss.svg, report.html, samples.txt,
TensorBoard events, and checkpoints/best and checkpoints/last, each a model directory.";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut config = configure(arguments)?;
    config.validate()?;
    if arguments.resume.is_none() {
        config.check_that_all_is_read()?;
    }
    let directory = match (&arguments.resume, &arguments.out) {
        (Some(path), _) => RunDirectory::open(path),
        (None, Some(path)) => RunDirectory::create(path, &FILES),
        (None, None) => next_run(&config),
    }?;
    let stop = interrupt::prepare()?;
    let (data, cost) = match prepare(arguments, &mut config, &directory, &stop) {
        Ok(prepared) => prepared,
        Err(error) => {
            directory.abandon(&FILES);
            return Err(error);
        }
    };
    let peak_gflops = isa::for_batches(Peak::measure_gflops);
    let goes_on = directory.checkpoints().join("last").exists();
    let (model, start) = first_model(&config, goes_on)?;
    if let Some(Initialised { loaded, fresh, .. }) = start {
        let from = config.task.init.as_deref().unwrap_or(Path::new("")).display();
        say!("{} parameters from {from}, {} new ones", loaded.len(), fresh.len());
    }
    let path = directory.path().to_owned();
    let about = About::of(&data);
    let mut task = data.into_task(model, &config)?;
    if let Some(minutes) = arguments.minutes {
        let steps = timing::steps_within(task.as_mut(), &config.train, 60.0 * minutes)?;
        config.train.steps = steps;
        config.fit_warmup();
        config.validate()?;
    }
    if !arguments.quiet {
        introduce(&config, &about, &cost, &path);
    }
    let mut setup = Setup::new(directory, config.to_toml()?);
    setup.title = format!("Hearken: {}", about.name);
    setup.progress = Mode::detect(arguments.quiet);
    setup.stop = interrupt::install()?;
    setup.peak_flops = Some(peak_gflops * 1e9);
    setup.entropy_floor = about.best.floor;
    setup.why_training_is_above = about.why_training_is_above;
    setup.tables = tables(&cost);
    setup.about = about.lines();
    let summary = hearken::train::train(task.as_mut(), &config.train, setup)?;
    conclude(&summary, about.best, Prepared::used_by(&config), &path)
}

/// What no model can beat, where it is known.
#[derive(Clone, Copy)]
struct Best {
    floor: Option<f64>,
    ceiling: Option<(&'static str, f64)>,
}

/// What is said of the data when the task has it.
struct About {
    name: String,
    length: usize,
    tokens: usize,
    best: Best,
    why_training_is_above: Option<&'static str>,
}

impl About {
    fn of(data: &Prepared) -> Self {
        Self {
            name: data.name().to_owned(),
            length: data.length(),
            tokens: data.tokenizer().vocabulary_size(),
            best: Best { floor: data.floor(), ceiling: data.ceiling() },
            why_training_is_above: data.why_training_is_above(),
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
    arguments: &Arguments,
    config: &mut RunConfig,
    directory: &RunDirectory,
    stop: &Stop,
) -> Result<(Prepared, Cost), Failure> {
    let mut progress = Progress::new();
    let mut report = |done: Done| progress.show(&words(done));
    let prepared = Prepared::prepare(config, directory, stop, &mut report);
    progress.clear();
    let data = prepared?;
    for note in data.notes() {
        say!("note: {note}");
    }
    // Three are usual for a new head, where there is such a thing as an epoch.
    let fine_tunes = arguments.init.is_some()
        && arguments.config.is_none()
        && arguments.steps.is_none()
        && !config.data.paths.is_empty()
        && !matches!(arguments.task, Some(TaskName::Masks | TaskName::Denoise));
    if let Some(epochs) = arguments.epochs.or(fine_tunes.then_some(3.0)) {
        let train = &mut config.train;
        train.steps = data.steps_of(epochs, train.batch_size)?;
        let once = data.steps_of(1.0, train.batch_size)?;
        train.evaluate_every = train.evaluate_every.min(once);
        config.fit_warmup();
        config.train.validate()?;
    }
    let cost = rehearsal::cost_of_run(config)?;
    check_memory(&cost.memory)?;
    Ok((data, cost))
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
    let paths = [&arguments.files[..], &arguments.data, &arguments.sides.source].concat();
    let mut config = if let Some(path) = &arguments.resume {
        let text = RunDirectory::read_config(path)?;
        let name = path.join("config.toml").display().to_string();
        RunConfig::parse(&text, &name, &sets)?
    } else {
        let task = arguments.task.map(|task| task.setting().to_owned());
        let sets: Vec<String> = task.into_iter().chain(sets).collect();
        let default = if let Some(task) = arguments.task {
            task.preset()
        } else if !arguments.sides.source.is_empty() {
            "translation"
        } else if paths.is_empty() {
            "stories"
        } else {
            "shakespeare-fast"
        };
        let mut config = match &arguments.config {
            None if arguments.init.is_some() => {
                let path = arguments.init.as_deref().unwrap_or(Path::new(""));
                let (text, name) = (fine_tuning(path)?, "fine-tuning");
                if let Some(task) = arguments.task {
                    let model = RunConfig::parse(text, name, &[])?.model;
                    task.check(&model, &path.display().to_string())?;
                }
                RunConfig::parse(text, name, &sets)?
            }
            name => {
                let name = name.as_deref().unwrap_or(default);
                if let Some(task) = arguments.task {
                    // The settings may make it an encoder; or be for one, and only fit with the task.
                    let read = RunConfig::read(name, &arguments.sets);
                    task.check(&read.or_else(|_| RunConfig::read(name, &[]))?.model, name)?;
                }
                RunConfig::read(name, &sets)?
            }
        };
        if let Some(path) = &arguments.init {
            config.start_from(path, &sets)?;
            if let Some(name) = &arguments.config {
                say!("note: the model is that of {}, not of {name}", path.display());
            }
        } else if arguments.config.is_none() {
            config.fit_steps(&paths, &sets);
        }
        config
    };
    if !paths.is_empty() {
        config.data.paths = paths;
        config.data.targets.clone_from(&arguments.sides.target);
    }
    if let Some(minutes) = arguments.minutes.filter(|minutes| !(0.01..=1e6).contains(minutes)) {
        return Err(Failure::input(
            format!("--minutes is {minutes}, expected a number from 0.01 to 1000000"),
            "--minutes 5 is usual; --steps says exactly how many steps",
        ));
    }
    each_once(&[&config.data.paths[..], &config.data.targets].concat())?;
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
    let name = name.map_or_else(
        || Prepared::made(config).to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
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

fn check_memory(memory: &Memory) -> Result<(), Failure> {
    let free = machine::available_bytes().unwrap_or(usize::MAX) as u64;
    if memory.total() <= free {
        return Ok(());
    }
    Err(Failure::input(
        format!("this would need {} and {} are free", size(memory.total()), size(free)),
        "a smaller --batch-size with --set train.accumulate, --set train.parallel_parts=1, --set \
         train.gradient_checkpointing=true, or a smaller model",
    ))
}

/// What is about to happen, on standard error.
fn introduce(config: &RunConfig, data: &About, cost: &Cost, path: &Path) {
    let train = &config.train;
    say!("{} parameters: {}", thousands(cost.parameters() as f64), config.model.summary());
    say!(
        "{} of {} × {} tokens of {}, {} per token, about {}",
        plural(train.steps as usize, "step"),
        train.batch_size,
        data.length,
        data.name,
        operations(cost.training.all()),
        size(cost.memory.total())
    );
    let tokens = data.tokens;
    if tokens < config.model.vocabulary() {
        say!(
            "note: the text has {tokens} different tokens: the model has room for more, which it \
             will learn never to write (data.tokenizer and data.vocabulary choose the tokens)"
        );
    }
    if let Some(floor) = data.best.floor {
        say!("no model can get below a loss of {floor:.4} nats per token");
    }
    say!("writing to {}", path.display());
}

/// For the report.
fn tables(cost: &Cost) -> Vec<Table> {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut parts: Vec<Vec<String>> =
        cost.parts.iter().map(|part| row(&part.name, thousands(part.parameters as f64))).collect();
    parts.push(row("all", thousands(cost.parameters() as f64)));
    let memory = &cost.memory;
    let memory = [
        ("parameters", memory.parameters),
        ("gradients", memory.gradients),
        ("optimiser", memory.optimizer),
        ("averages", memory.averages),
        ("activations", memory.activations),
        ("kernels", memory.kernels),
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
fn conclude(summary: &Summary, known: Best, used_by: &str, path: &Path) -> Result<(), Failure> {
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
            if let Some(floor) = known.floor.filter(|_| name == Metric::LOSS) {
                write!(out, ": {:.4} above the floor of {floor:.4}", value - floor)?;
            }
            if let Some((_, most)) = known.ceiling.filter(|(of, _)| of == name) {
                write!(out, ", {most:.4} at most")?;
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
    for score in summary.validation.iter().skip(1) {
        if let Some(value) = score.value {
            say!("        validation {} {value:.4} at the end", score.name);
        }
    }
    say!("use:    {} {used_by} --model {show}", program());
    Ok(())
}
