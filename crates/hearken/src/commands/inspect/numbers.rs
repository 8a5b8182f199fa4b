//! `hearken inspect logits` and `hearken inspect gradients`: numbers to hold against PyTorch's.

use super::input::{TokenArguments, check_out};
use crate::failure::Failure;
use crate::model::ModelArguments;
use crate::terminal::visible_path;
use hearken::formats;
use hearken::nn::models;
use hearken::nn::pass::Pass;
use hearken::store;
use hearken::tensor::ops::cross_entropy::Options;
use hearken::tensor::{Tensor, no_grad};
use serde_json::json;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Write what a model makes of tokens: logits and hidden states.
///
/// For each of B sequences and each of its T tokens, `logits` (B, T, V) says how likely each of the V
/// tokens is to come next, before softmax; of a masked language model, to stand there. With a head
/// for N labels or numbers it is (B, N), or (B, T, N) if tokens are labelled; one that finds answers
/// has `start_logits` and `end_logits` (B, T), too. `hidden` (B, T, C) is the last hidden state,
/// `pooled` (B, C) what the pooler makes of it, `embedding` (B, C) the vector of a sentence encoder,
/// `encoder_hidden` (B, S, C) the last hidden state of the source in an encoder-decoder.
#[derive(clap::Args)]
#[command(after_help = LOGITS_HELP)]
pub(super) struct LogitArguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    tokens: TokenArguments,

    /// The safetensors file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Write names and shapes as JSON
    #[arg(long)]
    json: bool,
}

const LOGITS_HELP: &str = "\
Examples:
  hearken inspect logits --model DIR --ids 464,3797,3332 --out logits.safetensors
  hearken inspect logits --model DIR --ids 1,2,3 --ids 4,5,6 --out logits.safetensors
  hearken inspect logits --model BERT --ids 101,7592,102,0 --mask 1,1,1,0 --out out.safetensors
  hearken inspect logits --model T5 --ids 8774,296,1 --decoder-ids 0,644,4598 --out out.safetensors

Keys of --json:
  out, shape (of the logits, if there are some), tensors (per tensor: name, shape)";

/// Write the gradient of the loss for every parameter.
///
/// The loss is the mean cross-entropy of the targets; a target below 0 (such as -100) does not
/// count. Where every label is decided by itself it is the mean binary cross-entropy, and of numbers
/// the mean squared error. The file has the scalar `loss`, and for every parameter its gradient under the name and
/// in the layout that it has in the model directory.
#[derive(clap::Args)]
#[command(after_help = GRADIENTS_HELP)]
pub(super) struct GradientArguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    tokens: TokenArguments,

    /// The token that should follow each of them, or a label for each; or, for each sequence, its
    /// label, 0 or 1 for each label, its numbers, or the first and last token of its answer
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
  hearken inspect gradients --model DIR --ids 1,2,3 --targets 2,3,4 --out gradients.safetensors
  hearken inspect gradients --model CLASSIFIER --ids 101,7592,102 --targets positive --out g.safetensors
  hearken inspect gradients --model T5 --ids 8774,1 --decoder-ids 0,644 --targets 644,1 --out g.safetensors
  hearken inspect gradients --model ANSWERS --ids 1,2,3,4 --type-ids 0,0,1,1 --targets 2,3 --out g.safetensors";

pub(super) fn logits(arguments: &LogitArguments) -> Result<(), Failure> {
    let given = arguments.tokens.read()?;
    let model = arguments.model.open()?;
    given.check(&model)?;
    check_out(&arguments.out, &model.directory)?;
    let first = given.first();
    let tokens = given.tokens(&first);
    let mut found = no_grad(|| models::outputs(model.model.as_ref(), &tokens, &Pass::evaluate()));
    // What most people look for comes first.
    found.sort_by_key(|(name, _)| *name != "logits");
    store::write(&arguments.out, found.iter().map(|(name, value)| (*name, value.value())))?;
    let mut out = io::stdout();
    let path = visible_path(&arguments.out);
    if arguments.json {
        let tensor = |(name, value): &(&str, hearken::tensor::Var)| json!({ "name": name, "shape": value.shape().dims() });
        let tensors: Vec<_> = found.iter().map(tensor).collect();
        let logits = found.iter().find(|(name, _)| *name == "logits");
        let shape = logits.map(|(_, logits)| logits.shape().dims().to_vec());
        writeln!(out, "{:#}", json!({ "out": arguments.out, "shape": shape, "tensors": tensors }))?;
    } else {
        let names: Vec<String> =
            found.iter().map(|(name, value)| format!("{name} {}", value.shape())).collect();
        let (first, rest) =
            names.split_first().map_or((String::new(), &[][..]), |(f, r)| (f.clone(), r));
        let rest =
            if rest.is_empty() { String::new() } else { format!(", with {}", rest.join(", ")) };
        writeln!(out, "{first} in {path}{rest}")?;
    }
    Ok(())
}

pub(super) fn gradients(arguments: &GradientArguments) -> Result<(), Failure> {
    let given = arguments.tokens.read()?;
    let model = arguments.model.open()?;
    given.check(&model)?;
    let targets = given.targets(&model, &arguments.targets)?;
    check_out(&arguments.out, &model.directory)?;
    let first = given.first();
    let (tokens, pass) = (given.tokens(&first), Pass::evaluate());
    let loss = models::loss(model.model.as_ref(), &tokens, &targets, &pass, Options::default())?;
    let loss = loss.mean();
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
