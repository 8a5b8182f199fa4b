//! `hearken inspect logits` and `hearken inspect gradients`: numbers to hold against PyTorch's.

use super::input::{check_out, check_targets, check_tokens, sequences};
use crate::failure::Failure;
use crate::model::{ModelArguments, parse_ids, parse_targets};
use crate::terminal::visible_path;
use hearken::formats;
use hearken::nn::models::Tokens;
use hearken::nn::pass::Pass;
use hearken::store;
use hearken::tensor::Tensor;
use hearken::tensor::ops::cross_entropy::Options;
use serde_json::json;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Write the logits of every position.
///
/// The file has one tensor, `logits`, of shape (B, T, V): for each of B sequences and each of its
/// T tokens, how likely each of the V tokens is to come next, before softmax.
#[derive(clap::Args)]
#[command(after_help = LOGITS_HELP)]
pub(super) struct LogitArguments {
    #[command(flatten)]
    model: ModelArguments,

    /// The tokens of a sequence, such as 1,2,3 (several times for a batch of equal lengths)
    #[arg(long, value_name = "IDS", required = true)]
    ids: Vec<String>,

    /// The safetensors file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Write the shape as JSON
    #[arg(long)]
    json: bool,
}

const LOGITS_HELP: &str = "\
Examples:
  hearken inspect logits --model DIR --ids 464,3797,3332 --out logits.safetensors
  hearken inspect logits --model DIR --ids 1,2,3 --ids 4,5,6 --out logits.safetensors";

/// Write the gradient of the loss for every parameter.
///
/// The loss is the mean cross-entropy of the targets; a target below 0 (such as -100) does not
/// count. The file has the scalar `loss`, and for every parameter its gradient under the name and
/// in the layout that it has in the model directory.
#[derive(clap::Args)]
#[command(after_help = GRADIENTS_HELP)]
pub(super) struct GradientArguments {
    #[command(flatten)]
    model: ModelArguments,

    /// The tokens of a sequence, such as 1,2,3 (several times for a batch of equal lengths)
    #[arg(long, value_name = "IDS", required = true)]
    ids: Vec<String>,

    /// The token that should follow each of them
    #[arg(long, value_name = "IDS", required = true, allow_hyphen_values = true)]
    targets: Vec<String>,

    /// The safetensors file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Write the loss and the names as JSON
    #[arg(long)]
    json: bool,
}

const GRADIENTS_HELP: &str = "\
Examples:
  hearken inspect gradients --model DIR --ids 1,2,3 --targets 2,3,4 --out gradients.safetensors";

pub(super) fn logits(arguments: &LogitArguments) -> Result<(), Failure> {
    let ids = sequences(&arguments.ids, parse_ids)?;
    let model = arguments.model.open()?;
    check_tokens(&model, &ids)?;
    check_out(&arguments.out, &model.directory)?;
    let logits = model.predicts_tokens()?.logits(&Tokens::new(&ids.concat(), ids.len())); // (B, T, V)
    store::write(&arguments.out, [("logits", &logits)])?;
    let mut out = io::stdout();
    let (shape, path) = (logits.shape(), visible_path(&arguments.out));
    if arguments.json {
        writeln!(out, "{:#}", json!({ "out": arguments.out, "shape": shape.dims() }))?;
    } else {
        writeln!(out, "logits {shape} in {path}")?;
    }
    Ok(())
}

pub(super) fn gradients(arguments: &GradientArguments) -> Result<(), Failure> {
    let ids = sequences(&arguments.ids, parse_ids)?;
    let targets = sequences(&arguments.targets, parse_targets)?;
    check_targets(&ids, &targets)?;
    let model = arguments.model.open()?;
    check_tokens(&model, ids.iter().chain(&targets))?;
    check_out(&arguments.out, &model.directory)?;
    let (batch, ids, targets) = (ids.len(), ids.concat(), targets.concat());
    let (tokens, pass) = (Tokens::new(&ids, batch), Pass::evaluate());
    let loss = model.predicts_tokens()?.loss(&tokens, &targets, &pass, Options::default()).mean();
    loss.backward();
    let parameters = model.model.parameters().iter();
    let ours: Vec<(String, Tensor)> = parameters
        .map(|p| {
            let gradient = p.gradient().unwrap_or_else(|| Tensor::zeros(p.shape()));
            (p.name().to_owned(), gradient)
        })
        .collect();
    let gradients = formats::to_theirs(&model.model.config(), model.family, &ours)?;
    let named = gradients.iter().map(|(name, gradient)| (name.as_str(), gradient));
    store::write(&arguments.out, named.chain([("loss", loss.value())]))?;
    write_gradients(arguments, loss.value().item(), &gradients, &arguments.out)
}

fn write_gradients(
    arguments: &GradientArguments,
    loss: f32,
    gradients: &[(String, Tensor)],
    path: &Path,
) -> Result<(), Failure> {
    let mut out = io::stdout();
    if arguments.json {
        let names: Vec<&str> = gradients.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(out, "{:#}", json!({ "out": path, "loss": loss, "gradients": names }))?;
    } else {
        let (count, path) = (gradients.len(), visible_path(path));
        writeln!(out, "loss {loss}, gradients of {count} tensors in {path}")?;
    }
    Ok(())
}
