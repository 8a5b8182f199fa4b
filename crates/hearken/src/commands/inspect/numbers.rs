//! `hearken inspect logits` and `hearken inspect gradients`: numbers to read, and to compare with
//! PyTorch's.

use super::input::TokenArguments;
use super::output::{self, OutArguments};
use super::table;
use crate::failure::Failure;
use crate::model::ModelArguments;
use crate::terminal::visible_path;
use hearken::formats;
use hearken::nn::models;
use hearken::nn::pass::Pass;
use hearken::nn::taps::Pattern;
use hearken::show::number::{plural, significant};
use hearken::tensor::ops::cross_entropy::Options;
use hearken::tensor::{Tensor, no_grad};
use serde_json::json;
use std::io::{self, Write};

/// Compute logits and hidden states of a text or of tokens.
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

    #[command(flatten)]
    output: OutArguments,
}

const LOGITS_HELP: &str = "\
Examples:
  hearken inspect logits --prompt 'Mia the fox lost'
  hearken inspect logits --prompt 'Mia the fox lost' --out logits.npy
  hearken inspect logits --model DIR --ids 464,3797,3332 --out logits.safetensors
  hearken inspect logits --model DIR --ids 1,2,3 --ids 4,5,6 --out logits.json
  hearken inspect logits --model BERT --ids 101,7592,102,0 --mask 1,1,1,0 --out out.safetensors
  hearken inspect logits --model T5 --ids 8774,296,1 --decoder-ids 0,644,4598 --out out.safetensors

The table has the most probable tokens at every place. A .npy file has the logits (of a bare encoder
the hidden states), a .json file nested lists by name.

Keys of --json:
  with --out     out, shape (of the logits, if there are some), tensors (per tensor: name, shape)
  without --out  every tensor by name, as nested lists";

/// Compute the gradient of the loss for every parameter.
///
/// The loss is the mean cross-entropy of the targets; a target below 0 (such as -100) does not
/// count. Where every label is decided by itself it is the mean binary cross-entropy, and of numbers
/// the mean squared error. The file has the scalar `loss`, and for every parameter its gradient under
/// the name and in the layout that it has in the model directory.
#[derive(clap::Args)]
#[command(after_help = GRADIENTS_HELP)]
pub(super) struct GradientArguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    tokens: TokenArguments,

    /// The token that should follow each of them, or a label for each; or, for each sequence, its
    /// label, 0 or 1 for each label, its numbers, or the first and last token of its answer
    /// [default: the tokens of --prompt that follow]
    #[arg(
        long,
        value_name = "IDS",
        required_unless_present = "prompt",
        allow_hyphen_values = true
    )]
    targets: Vec<String>,

    /// Names of parameters, where * is any text, such as '*.attn.*' (several times for more)
    #[arg(long, value_name = "NAMES")]
    only: Vec<String>,

    #[command(flatten)]
    output: OutArguments,
}

const GRADIENTS_HELP: &str = "\
Examples:
  hearken inspect gradients --prompt 'Mia the fox lost'
  hearken inspect gradients --prompt 'Mia the fox lost' --only '*.wte.weight' --out g.npy
  hearken inspect gradients --model DIR --ids 1,2,3 --targets 2,3,4 --out gradients.safetensors
  hearken inspect gradients --model CLASSIFIER --prompt 'A fine film' --targets positive
  hearken inspect gradients --model T5 --ids 8774,1 --decoder-ids 0,644 --targets 644,1 --out g.safetensors
  hearken inspect gradients --model ANSWERS --ids 1,2,3,4 --type-ids 0,0,1,1 --targets 2,3 --out g.json

Keys of --json:
  with --out     out, loss, gradients (their names)
  without --out  loss, and every gradient by name, as nested lists";

pub(super) fn logits(arguments: &LogitArguments) -> Result<(), Failure> {
    let read = arguments.tokens.read()?;
    let model = arguments.model.open()?;
    let given = arguments.tokens.on(read, &model)?;
    arguments.output.check(&model.directory)?;
    let first = given.first();
    let tokens = given.tokens(&first);
    let mut found = no_grad(|| models::outputs(model.model.as_ref(), &tokens, &Pass::evaluate()));
    // What most people look for comes first.
    found.sort_by_key(|(name, _)| *name != "logits");
    let tensors: Vec<(&str, &Tensor)> =
        found.iter().map(|(name, value)| (*name, value.value())).collect();
    arguments.output.write(&tensors, tensors.first().map(|(_, tensor)| *tensor))?;
    let mut out = io::stdout().lock();
    if arguments.output.all_as_json() {
        output::json(&mut out, &tensors)?;
        return Ok(());
    }
    if arguments.output.json {
        let tensor = |(name, value): &(&str, &Tensor)| json!({ "name": name, "shape": value.shape().dims() });
        let list: Vec<_> = tensors.iter().map(tensor).collect();
        let logits = tensors.iter().find(|(name, _)| *name == "logits");
        let shape = logits.map(|(_, logits)| logits.shape().dims().to_vec());
        let path = &arguments.output.out;
        writeln!(out, "{:#}", json!({ "out": path, "shape": shape, "tensors": list }))?;
        return Ok(());
    }
    let names: Vec<String> =
        tensors.iter().map(|(name, value)| format!("{name} {}", value.shape())).collect();
    if let (Some(path), [first, rest @ ..]) = (&arguments.output.out, &names[..]) {
        let path = visible_path(path);
        let rest =
            if rest.is_empty() { String::new() } else { format!(", with {}", rest.join(", ")) };
        writeln!(out, "{first} in {path}{rest}")?;
    }
    let tokenizer = arguments.tokens.names(&model)?;
    table::write(&mut out, &model, tokenizer.as_ref(), &given, &tensors)?;
    Ok(())
}

pub(super) fn gradients(arguments: &GradientArguments) -> Result<(), Failure> {
    let read = arguments.tokens.read()?;
    let only: Vec<Pattern> =
        arguments.only.iter().map(|text| Pattern::parse(text)).collect::<Result<_, _>>()?;
    let model = arguments.model.open()?;
    let given = arguments.tokens.on(read, &model)?;
    let targets = match arguments.targets.as_slice() {
        [] if model.model.generates().is_some() => given.next_tokens(),
        [] => {
            return Err(Failure::input(
                "this model does not predict the next token, so a loss needs targets",
                "give --targets: a label, numbers, or a token for each token",
            ));
        }
        texts => given.targets(&model, texts)?,
    };
    arguments.output.check(&model.directory)?;
    let first = given.first();
    let (tokens, pass) = (given.tokens(&first), Pass::evaluate());
    let loss = models::loss(model.model.as_ref(), &tokens, &targets, &pass, Options::default())?;
    if loss.weight == 0.0 {
        let hint = "give a text of two tokens or more, or --targets that count";
        return Err(Failure::input("no target counts, so there is no loss", hint));
    }
    let loss = loss.mean();
    loss.backward();
    let parameters = model.model.parameters().iter();
    let ours: Vec<(String, Tensor)> = parameters
        .map(|p| {
            let gradient = p.gradient().unwrap_or_else(|| Tensor::zeros(p.shape()));
            (p.name().to_owned(), gradient)
        })
        .collect();
    let mut gradients = formats::to_theirs(&model.model.config(), model.family, &ours)?;
    for pattern in &only {
        if !gradients.iter().any(|(name, _)| pattern.matches(name)) {
            return Err(Failure::input(
                format!("no parameter of this model is called '{pattern}'"),
                "'hearken inspect weights' lists the names",
            ));
        }
    }
    gradients.retain(|(name, _)| only.is_empty() || only.iter().any(|p| p.matches(name)));
    write_gradients(&arguments.output, loss.value(), &gradients)
}

fn write_gradients(
    arguments: &OutArguments,
    loss: &Tensor,
    gradients: &[(String, Tensor)],
) -> Result<(), Failure> {
    let named: Vec<(&str, &Tensor)> =
        gradients.iter().map(|(name, gradient)| (name.as_str(), gradient)).collect();
    let all: Vec<(&str, &Tensor)> = named.iter().copied().chain([("loss", loss)]).collect();
    let one = if let [(_, one)] = named[..] { Some(one) } else { None };
    arguments.write(&all, one)?;
    let mut out = io::stdout().lock();
    if arguments.all_as_json() {
        output::json(&mut out, &all)?;
        return Ok(());
    }
    if arguments.json {
        let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
        let report = json!({ "out": arguments.out, "loss": loss.item(), "gradients": names });
        writeln!(out, "{report:#}")?;
        return Ok(());
    }
    let count = plural(named.len(), "tensor");
    match &arguments.out {
        Some(path) => {
            let path = visible_path(path);
            writeln!(out, "loss {}, gradients of {count} in {path}", loss.item())?;
        }
        None => {
            writeln!(out, "loss {}, gradients of {count}", significant(f64::from(loss.item())))?;
        }
    }
    output::summary(&mut out, &named)?;
    Ok(())
}
