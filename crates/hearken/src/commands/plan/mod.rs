//! `hearken plan`: what a configuration costs, before anything runs.

mod measure;
mod table;

use crate::failure::Failure;
use crate::machine::{self, Peak};
use hearken::base::settings::Settings;
use hearken::data::{conversions, repeats, shots, stories};
use hearken::kernels::isa;
use hearken::nn::cache::CacheKind;
use hearken::nn::config::ModelConfig;
use hearken::tasks::config::{Generated, TokenizerKind, preset_or_file};
use hearken::tasks::{DataConfig, rehearsal};
use hearken::train::schedule::usual_warmup;
use hearken::train::{Cost, Memory, OptimizerConfig, Precision, TrainConfig};
use serde::Serialize;
use std::io;
use std::io::Write;

/// Say what a model costs, before anything runs.
///
/// Counts parameters by part, operations per token, and the bytes that training and generating
/// take, and estimates how long training takes on this machine. The model's own code runs without
/// memory and without arithmetic, so the answer is that of training, for models of any size.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// A configuration file, or the name of a preset
    #[arg(long, value_name = "FILE|PRESET", default_value = "gpt2-small")]
    config: String,

    /// Sequences per step [default: as configured, or 12]
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,

    /// Tokens per sequence [default: the model's context]
    #[arg(long, value_name = "N")]
    tokens: Option<usize>,

    /// Tokens that the model knows, where the configuration leaves it to the tokenizer
    /// [default: those of the stories, unless the configuration names a text]
    #[arg(long, value_name = "N")]
    vocabulary: Option<usize>,

    /// What turns gradients into steps
    #[arg(long, value_name = "KIND")]
    optimizer: Option<OptimizerChoice>,

    /// How weights are read and activations kept
    #[arg(long, value_name = "KIND")]
    precision: Option<PrecisionChoice>,

    /// Compute layers again in backward instead of keeping what is inside them
    #[arg(long)]
    checkpointing: bool,

    /// Change any setting of the configuration, as in train.ema.decay=0.99 (may be given several
    /// times)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// Also take a few steps of training and compare their memory and time with the plan
    #[arg(long)]
    measure: bool,

    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken plan
  hearken plan --config gpt2-xl --batch-size 1 --checkpointing
  hearken plan --config gpt3-175b
  hearken plan --config my.toml --vocabulary 65 --measure
  hearken plan --config llama-style --vocabulary 32000 --json | jq .memory.total

Keys of --json (bytes unless named otherwise):
  config, parameters    the name; how many numbers
  parts                 name and parameters of each part
  flops_per_token       forward and training, at the tokens planned for
  training              batch_size (sequences at the same time), tokens, optimizer,
                        precision, checkpointing, parallel_parts (parts of them)
  memory                parameters, gradients, optimizer, averages, activations (with all
                        that tensors need besides), kernels, total; in_use is the most
                        that tensors take at any one time
  time                  estimates: step_seconds, run_seconds of so many steps, from the
                        measured peak_gflops, of which an efficiency is assumed
  cache                 f32, f16 and int8 for one sequence of these tokens, if the model
                        writes
  available             of this machine, if the system reports it
  measured              with --measure: in_use and reserved by tensors, resident, what the
                        process grew by, and seconds of a step";

/// The optimisers, as far as memory depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum OptimizerChoice {
    Sgd,
    Momentum,
    Lion,
    Muon,
    Adam,
    #[value(name = "adamw")]
    AdamW,
}

impl OptimizerChoice {
    fn of(config: &OptimizerConfig) -> Self {
        match config {
            OptimizerConfig::Sgd { momentum: 0.0, .. } => Self::Sgd,
            OptimizerConfig::Sgd { .. } => Self::Momentum,
            OptimizerConfig::Adam { .. } => Self::Adam,
            OptimizerConfig::AdamW { .. } => Self::AdamW,
            OptimizerConfig::Lion { .. } => Self::Lion,
            OptimizerConfig::Muon { .. } => Self::Muon,
        }
    }

    /// With its usual constants.
    fn config(self) -> Result<OptimizerConfig, Failure> {
        let text = match self {
            Self::Sgd => "kind = \"sgd\"",
            Self::Momentum => "kind = \"sgd\"\nmomentum = 0.9",
            Self::Lion => "kind = \"lion\"",
            Self::Muon => "kind = \"muon\"",
            Self::Adam => "kind = \"adam\"",
            Self::AdamW => "kind = \"adamw\"",
        };
        Ok(Settings::parse(text, "the optimiser")?.read()?)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum PrecisionChoice {
    F32,
    Bf16,
    F16,
}

impl PrecisionChoice {
    fn of(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32,
            Precision::Bf16 => Self::Bf16,
            Precision::F16 => Self::F16,
        }
    }

    fn precision(self) -> Precision {
        match self {
            Self::F32 => Precision::F32,
            Self::Bf16 => Precision::Bf16,
            Self::F16 => Precision::F16,
        }
    }
}

/// What was asked for, checked and counted.
#[derive(Serialize)]
struct Report {
    config: String,
    parameters: u64,
    parts: Vec<PartRow>,
    flops_per_token: Flops,
    training: Chosen,
    memory: MemoryRow,
    time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<CacheRow>,
    available: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<measure::Measured>,
    #[serde(skip)]
    model: ModelConfig,
    #[serde(skip)]
    train: TrainConfig,
    /// What was assumed.
    #[serde(skip)]
    note: Option<String>,
}

#[derive(Serialize)]
struct PartRow {
    name: String,
    parameters: u64,
}

#[derive(Serialize)]
struct Flops {
    forward: f64,
    training: f64,
}

#[derive(Clone, Copy, Serialize)]
struct Chosen {
    batch_size: usize,
    tokens: usize,
    optimizer: OptimizerChoice,
    precision: PrecisionChoice,
    checkpointing: bool,
    parallel_parts: usize,
}

#[derive(Serialize)]
struct MemoryRow {
    parameters: u64,
    gradients: u64,
    optimizer: u64,
    averages: u64,
    activations: u64,
    kernels: u64,
    total: u64,
    in_use: u64,
}

impl From<Memory> for MemoryRow {
    fn from(memory: Memory) -> Self {
        let total = memory.total();
        let Memory { parameters, gradients, optimizer, averages, activations, kernels, in_use } =
            memory;
        Self { parameters, gradients, optimizer, averages, activations, kernels, total, in_use }
    }
}

/// How long training takes: an estimate.
#[derive(Clone, Copy, Serialize)]
struct Time {
    step_seconds: f64,
    steps: u64,
    run_seconds: f64,
    peak_gflops: f64,
    efficiency: f64,
}

/// The share of the machine's peak that products and attention of a step reach, about: between the 0.4 of
/// models whose products are small and the 0.8 of GPT-2 (docs/decisions/0017-cost-by-a-dry-pass.md).
const EFFICIENCY: f64 = 0.6;

/// Bytes that are read or written per second, about: two channels of DDR4 as programs get it. Measuring it
/// would take as much memory as a model.
const BYTES_PER_SECOND: f64 = 20e9;

impl Time {
    /// Arithmetic at a share of the peak, and the optimiser's way through memory: gradients are read for
    /// their norm and for the step; weights, moments and averages are read and written.
    fn estimate(cost: &Cost, steps: u64) -> Self {
        let peak_gflops = isa::for_batches(Peak::measure_gflops);
        let Memory { parameters, gradients, optimizer, averages, .. } = cost.memory;
        let moved = 2 * (parameters + gradients + optimizer + averages);
        let step_seconds =
            cost.step / (EFFICIENCY * peak_gflops * 1e9) + moved as f64 / BYTES_PER_SECOND;
        Self {
            step_seconds,
            steps,
            run_seconds: step_seconds * steps as f64,
            peak_gflops,
            efficiency: EFFICIENCY,
        }
    }
}

#[derive(Serialize)]
struct CacheRow {
    f32: u64,
    f16: u64,
    int8: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Configuration { model, mut train, note } = configuration(arguments)?;
    let chosen = choose(arguments, &model, &mut train)?;
    let cost = rehearsal::cost(&model, &train, chosen.tokens)?;
    let time = Time::estimate(&cost, train.steps);
    let mut report = Report {
        config: arguments.config.clone(),
        parameters: cost.parameters(),
        flops_per_token: Flops { forward: cost.forward.all(), training: cost.training.all() },
        parts: cost
            .parts
            .into_iter()
            .map(|part| PartRow { name: part.name, parameters: part.parameters })
            .collect(),
        training: chosen,
        memory: cost.memory.into(),
        time,
        cache: cache(&model, chosen.tokens)?,
        available: machine::available_bytes(),
        measured: None,
        model,
        train,
        note,
    };
    if arguments.measure {
        report.measured = Some(measure::measure(&report)?);
    }
    let mut out = io::stdout();
    if arguments.json {
        let text = serde_json::to_string_pretty(&report).map_err(io::Error::from)?;
        writeln!(out, "{text}")?;
    } else {
        table::write(&mut out, &report)?;
    }
    Ok(())
}

/// What generating keeps, if the model writes.
fn cache(model: &ModelConfig, tokens: usize) -> Result<Option<CacheRow>, Failure> {
    let bytes = |kind| rehearsal::cache_bytes(model, tokens, kind);
    let all = (bytes(CacheKind::F32)?, bytes(CacheKind::F16)?, bytes(CacheKind::Int8)?);
    let (Some(f32), Some(f16), Some(int8)) = all else { return Ok(None) };
    Ok(Some(CacheRow { f32, f16, int8 }))
}

/// The model and how it is trained.
struct Configuration {
    model: ModelConfig,
    train: TrainConfig,
    /// What was assumed.
    note: Option<String>,
}

/// From a file or a preset, and settings put over it.
fn configuration(arguments: &Arguments) -> Result<Configuration, Failure> {
    let name = &arguments.config;
    let mut settings = Settings::parse(&preset_or_file(name)?, name)?;
    for set in &arguments.sets {
        settings.set(set)?;
    }
    // Other tables are the concern of other commands.
    let model: Option<ModelConfig> = settings.read_only("model")?;
    let Some(mut model) = model else {
        let message = format!("{name} has no [model]");
        return Err(Failure::input(message, "'hearken presets stories' shows a complete example"));
    };
    model.validate()?;
    // Memory does not depend on the warm-up: a default that is too long for a short run is cut, as
    // `train` does, and whether it is the default does not matter here.
    let mut train: TrainConfig = settings.read_only("train")?.unwrap_or_default();
    train.schedule = train.schedule.with_warmup_at_most(usual_warmup(train.steps));
    let data: DataConfig = settings.read_only("data")?.unwrap_or_default();
    let mut note = None;
    if let Some(vocabulary) = arguments.vocabulary {
        model.set_vocabulary(vocabulary);
    }
    if let Some(assumed) = rehearsal::fit(&mut model, &data) {
        note = Some(assumed);
    }
    if model.vocabulary() == 0 {
        let (vocabulary, whose) = vocabulary_of(&data, &model)?;
        model.set_vocabulary(vocabulary);
        note = Some(format!("{vocabulary} tokens, {whose}; --vocabulary takes another number"));
    }
    model.validate()?;
    Ok(Configuration { model, train, note })
}

/// How many tokens there will be, as far as the configuration says, and whose they are.
fn vocabulary_of(data: &DataConfig, model: &ModelConfig) -> Result<(usize, &'static str), Failure> {
    let for_text = data.vocabulary.is_some() && data.generated.is_none();
    if data.paths.is_empty() && data.tokenizer_file.is_none() && !for_text {
        // What `train` learns if it is given no text.
        let generated = data.generates(model);
        let (tokenizer, whose) = match generated {
            Generated::Shots => (shots::tokenizer(), "those of the generated examples"),
            Generated::Repeats => (repeats::tokenizer(), "those of the generated letters"),
            _ if generated.conversion().is_some() => {
                (conversions::tokenizer(), "those of the generated dates and numbers")
            }
            _ => (stories::tokenizer(), "those of the generated stories"),
        };
        return Ok((tokenizer.vocabulary_size(), whose));
    }
    match (data.tokenizer, data.vocabulary) {
        (TokenizerKind::Byte, _) => Ok((256, "the bytes")),
        (TokenizerKind::Bpe | TokenizerKind::WordPiece | TokenizerKind::Unigram, Some(wanted))
            if data.tokenizer_file.is_none() =>
        {
            Ok((wanted, "as data.vocabulary says"))
        }
        _ => Err(Failure::input(
            "the configuration leaves the vocabulary to the tokenizer",
            "give --vocabulary N: 65 for the characters of tiny Shakespeare, 50257 for GPT-2",
        )),
    }
}

/// Puts the arguments over the configuration.
fn choose(
    arguments: &Arguments,
    model: &ModelConfig,
    train: &mut TrainConfig,
) -> Result<Chosen, Failure> {
    if let Some(rows) = arguments.batch_size {
        (train.batch_size, train.accumulate) = (rows, 1);
    }
    if let Some(optimizer) = arguments.optimizer {
        train.optimizer = optimizer.config()?;
    }
    if let Some(precision) = arguments.precision {
        train.precision = precision.precision();
    }
    train.gradient_checkpointing |= arguments.checkpointing;
    let (batch_size, most) = (train.rows_at_once(), rehearsal::MOST_TOKENS);
    let tokens = arguments.tokens.unwrap_or(model.context());
    if batch_size == 0
        || tokens == 0
        || tokens > model.context()
        || batch_size.saturating_mul(tokens) > most
    {
        return Err(Failure::input(
            format!(
                "{batch_size} × {tokens} tokens, expected 1 to {} per sequence, the model's \
                 context, 1 sequence or more, and at most {most} at the same time",
                model.context()
            ),
            "change --batch-size or --tokens",
        ));
    }
    train.validate()?;
    Ok(Chosen {
        batch_size,
        tokens,
        optimizer: OptimizerChoice::of(&train.optimizer),
        precision: PrecisionChoice::of(train.precision),
        checkpointing: train.gradient_checkpointing,
        parallel_parts: train.parts_at_once(),
    })
}
