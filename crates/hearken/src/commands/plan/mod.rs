//! `hearken plan`: what a configuration costs, before anything runs.

mod measure;
mod table;

use crate::failure::Failure;
use crate::machine;
use hearken::base::settings::Settings;
use hearken::nn::cache::CacheKind;
use hearken::nn::config::ModelConfig;
use hearken::nn::plan::{Memory, Plan, States, Training};
use hearken::nn::presets;
use hearken::tasks::config::preset_or_file;
use hearken::tensor::Role;
use hearken::train::config::even_parts;
use hearken::train::schedule::usual_warmup;
use hearken::train::{OptimizerConfig, Precision, TrainConfig};
use serde::Serialize;
use std::io;
use std::io::Write;

/// Say what a model costs, before anything runs.
///
/// Counts parameters by part, operations per token, and the bytes that training and generating
/// take. Nothing is allocated, so it answers for models of any size.
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

    /// Tokens that the model knows: needed where the configuration leaves it to the tokenizer
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

    /// Also take two steps of training and compare their memory with the plan
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
  hearken plan --config my.toml --vocabulary 65 --measure
  hearken plan --config llama-style --vocabulary 32000 --json | jq .memory.total

Keys of --json (bytes unless named otherwise):
  config, parameters    the name; how many numbers
  parts                 name and parameters of each part
  flops_per_token       forward and training, at the tokens planned for
  training              batch_size (sequences at the same time), tokens, optimizer,
                        precision, checkpointing, side_by_side (parts of them)
  memory                parameters, gradients, optimizer, activations (with all that
                        tensors need besides), kernels, total; in_use is the most that
                        tensors take at any one time
  cache                 f32, f16 and int8 for one sequence of these tokens
  available             of this machine, where the system tells
  measured              with --measure: in_use and reserved by tensors, and resident,
                        what the process grew by";

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

/// What the optimiser keeps per weight.
pub(crate) fn states(optimizer: &OptimizerConfig) -> States {
    let of = |role| optimizer.state_per_parameter(role);
    States { hidden: of(Role::Hidden), other: of(Role::Table) }
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
    cache: CacheRow,
    available: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<measure::Measured>,
    #[serde(skip)]
    model: ModelConfig,
}

#[derive(Serialize)]
struct PartRow {
    name: &'static str,
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
    side_by_side: usize,
}

impl Chosen {
    fn training(self) -> Result<Training, Failure> {
        Ok(Training {
            batch: self.batch_size,
            tokens: self.tokens,
            states: states(&self.optimizer.config()?),
            activation_bytes: if self.precision == PrecisionChoice::F32 { 4 } else { 2 },
            checkpointing: self.checkpointing,
            side_by_side: self.side_by_side,
        })
    }
}

#[derive(Serialize)]
struct MemoryRow {
    parameters: u64,
    gradients: u64,
    optimizer: u64,
    activations: u64,
    kernels: u64,
    total: u64,
    in_use: u64,
}

impl From<Memory> for MemoryRow {
    fn from(memory: Memory) -> Self {
        let Memory { parameters, gradients, optimizer, activations, kernels, in_use } = memory;
        let total = memory.total();
        Self { parameters, gradients, optimizer, activations, kernels, total, in_use }
    }
}

#[derive(Serialize)]
struct CacheRow {
    f32: u64,
    f16: u64,
    int8: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (model, train) = configuration(&arguments.config)?;
    let model = with_vocabulary(model, arguments.vocabulary)?;
    let chosen = choose(arguments, &model, &train)?;
    let plan = Plan::new(&model);
    let cache = |kind| plan.cache_bytes(chosen.tokens, kind);
    let mut report = Report {
        config: arguments.config.clone(),
        parameters: plan.parameters(),
        parts: plan
            .parts
            .iter()
            .map(|part| PartRow { name: part.name, parameters: part.parameters })
            .collect(),
        flops_per_token: Flops {
            forward: plan.forward_flops_per_token(chosen.tokens),
            training: plan.training_flops_per_token(chosen.tokens),
        },
        training: chosen,
        memory: plan.memory(chosen.training()?).into(),
        cache: CacheRow {
            f32: cache(CacheKind::F32),
            f16: cache(CacheKind::F16),
            int8: cache(CacheKind::Int8),
        },
        available: machine::available_bytes(),
        measured: None,
        model,
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

/// The model and how it is trained, from a file or a preset.
fn configuration(name: &str) -> Result<(ModelConfig, TrainConfig), Failure> {
    let text = preset_or_file(name)?;
    // Other tables are the concern of other commands.
    let model = presets::model_of(&text, name)?;
    model.validate()?;
    // Memory does not depend on the warm-up: a default that is too long for a short run is cut, as
    // `train` does, and whether it is the default does not matter here.
    let mut train: TrainConfig =
        Settings::parse(&text, name)?.read_only("train")?.unwrap_or_default();
    train.schedule = train.schedule.with_warmup_at_most(usual_warmup(train.steps));
    train.validate()?;
    Ok((model, train))
}

fn with_vocabulary(mut model: ModelConfig, asked: Option<usize>) -> Result<ModelConfig, Failure> {
    if let Some(vocabulary) = asked {
        model.set_vocabulary(vocabulary);
        model.validate()?;
    }
    if model.vocabulary() == 0 {
        let message = "the configuration leaves the vocabulary to the tokenizer";
        let hint = "give --vocabulary N: 46 for the stories, 65 for the characters of tiny Shakespeare, 50257 for GPT-2";
        return Err(Failure::input(message, hint));
    }
    Ok(model)
}

/// Tokens of a batch: so that no product of sizes overflows; validation has bounded the others.
const MOST: usize = 1 << 32;

fn choose(
    arguments: &Arguments,
    model: &ModelConfig,
    train: &TrainConfig,
) -> Result<Chosen, Failure> {
    let batch_size = arguments.batch_size.unwrap_or(train.rows_at_once().max(1));
    let tokens = arguments.tokens.unwrap_or(model.context());
    if batch_size == 0
        || tokens == 0
        || tokens > model.context()
        || batch_size.saturating_mul(tokens) > MOST
    {
        return Err(Failure::input(
            format!(
                "{batch_size} × {tokens} tokens, expected 1 to {} per sequence, the model's \
                 context, 1 sequence or more, and at most {MOST} in all",
                model.context()
            ),
            "change --batch-size or --tokens",
        ));
    }
    Ok(Chosen {
        batch_size,
        tokens,
        optimizer: arguments.optimizer.unwrap_or(OptimizerChoice::of(&train.optimizer)),
        precision: arguments.precision.unwrap_or(PrecisionChoice::of(train.precision)),
        checkpointing: arguments.checkpointing || train.gradient_checkpointing,
        side_by_side: even_parts(batch_size, train.side_by_side),
    })
}
