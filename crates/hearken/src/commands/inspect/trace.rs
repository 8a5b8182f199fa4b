//! `hearken inspect trace`: everything that happens inside a model in one pass.

use super::input::TokenArguments;
use super::output::{self, OutArguments};
use crate::failure::Failure;
use crate::machine;
use crate::model::ModelArguments;
use crate::terminal::visible_path;
use hearken::nn::taps::Pattern;
use hearken::nn::trace::{Trace, TraceOptions, trace_model};
use hearken::show::number::{self, plural};
use hearken::tensor::Tensor;
use serde_json::json;
use std::io::{self, Write};

/// Record what happens inside: embeddings, attention, feed-forward, residual stream, logits.
///
/// The table has a line and the file a tensor for every value, under its name, with a leading dimension for the
/// sequences. With targets it also has the scalar `loss`, their mean cross-entropy (a target below 0,
/// such as -100, does not count), and for every value the gradient of the loss as `d.NAME`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    tokens: TokenArguments,

    /// The token that should follow each of them, for gradients; of encoders as in 'inspect
    /// gradients'
    #[arg(long, value_name = "IDS", allow_hyphen_values = true)]
    targets: Vec<String>,

    /// Names of values to write, where * is any text, such as 'blocks.0.*' (several times for more)
    #[arg(long, value_name = "NAMES")]
    only: Vec<String>,

    /// How many gigabytes the numbers may take [default: half of the memory that is free]
    #[arg(long, value_name = "GB")]
    memory: Option<f64>,

    #[command(flatten)]
    output: OutArguments,
}

const HELP: &str = "\
Examples:
  hearken inspect trace --prompt 'Mia the fox lost'
  hearken inspect trace --prompt 'Mia the fox lost' --only 'blocks.0.attention.weights' --out w.npy
  hearken inspect trace --model DIR --ids 464,3797,3332 --out trace.safetensors
  hearken inspect trace --model DIR --ids 1,2,3 --targets 2,3,4 --out trace.safetensors
  hearken inspect trace --model DIR --ids 1,2,3 --only '*.attention.weights' --out trace.safetensors
  hearken inspect trace --model DIR --ids 1,2,3 --only 'blocks.3.attention.weights[2]' --out head.safetensors
  hearken inspect trace --model T5 --ids 8774,296,1 --decoder-ids 0,644 --only '*.cross_attention.weights' --out t.safetensors

Names, where N counts blocks from 0 (T tokens, C width, H heads of width D, K heads of keys and
values, F feed-forward width, V vocabulary):
  embedding, positions              (T, C)     types and embedding_norm, where there are some
  blocks.N.residual_before          (T, C)
  blocks.N.norm1                    (T, C)
  blocks.N.attention.queries        (H, T, D)  and keys, values (K, T, D)
  blocks.N.attention.rotated_queries, rotated_keys
  blocks.N.attention.scores         (H, T, T)  minus infinity where hidden
  blocks.N.attention.weights        (H, T, T)  their softmax
  blocks.N.attention.mixed          (H, T, D)  the values, weighted
  blocks.N.attention.out            (T, C)
  blocks.N.residual_middle          (T, C)     residual_before + out
  blocks.N.norm2                    (T, C)
  blocks.N.feed_forward.up, gate    (T, F)
  blocks.N.feed_forward.active      (T, F)
  blocks.N.feed_forward.router      (T, E), where there are experts
  blocks.N.feed_forward.experts.E.… a row for each token of expert E
  blocks.N.feed_forward.out         (T, C)
  blocks.N.residual_after           (T, C)     residual_middle + out
  layers.N.out                      (T, C)     of recurrent layers
  blocks.N.convolution, active, out (T, C)     of convolutional models
  norm                              (T, C)
  pooled                            (C)        of encoders with a pooler
  logits                            (T, V)     of encoders also (N) or (T, N) for N labels
In an encoder-decoder names begin with encoder. or decoder., and attention of the target (T) to the
source (S) is blocks.N.cross_attention, between blocks.N.norm_cross and residual_cross.
d.NAME is the gradient of a value; NAME[h] is head h alone.

A .npy file holds one value: choose it with --only.

Keys of --json:
  with --out     out, loss (with --targets), tensors (per tensor: name, shape)
  without --out  every value by name, as nested lists (null where it is infinite), and the loss";

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let read = arguments.tokens.read()?;
    let only = arguments.only.iter().map(|text| Pattern::parse(text));
    let options = TraceOptions {
        only: only.collect::<Result<_, _>>()?,
        most_bytes: most_bytes(arguments.memory)?,
    };
    let model = arguments.model.open()?;
    let given = arguments.tokens.on(read, &model)?;
    let targets = match arguments.targets.as_slice() {
        [] => None,
        texts => Some(given.targets(&model, texts)?),
    };
    arguments.output.check(&model.directory)?;
    let first = given.first();
    let tokens = given.tokens(&first);
    let traced = trace_model(model.model.as_ref(), &tokens, targets.as_ref(), &options);
    write(arguments, &traced.map_err(with_flags)?)
}

/// The library knows no flags.
fn with_flags(error: hearken::base::Error) -> hearken::base::Error {
    match error.hint() {
        Some(hint) if error.message().contains(" MB") => {
            let hint = format!("{hint} (--only chooses names, --memory sets the limit)");
            error.with_hint(hint)
        }
        _ => error,
    }
}

fn most_bytes(gigabytes: Option<f64>) -> Result<Option<usize>, Failure> {
    match gigabytes {
        // Backward holds about as much again.
        None => Ok(machine::available_bytes().map(|free| free / 2)),
        Some(gigabytes) if gigabytes > 0.0 && gigabytes.is_finite() => {
            Ok(Some((gigabytes * 1e9) as usize))
        }
        Some(gigabytes) => Err(Failure::input(
            format!("--memory {gigabytes} is no size of memory"),
            "write --memory 2 for two gigabytes",
        )),
    }
}

fn write(arguments: &Arguments, traced: &Trace) -> Result<(), Failure> {
    let OutArguments { out: path, json } = &arguments.output;
    let loss = traced.loss.map(Tensor::scalar);
    let named: Vec<(&str, &Tensor)> =
        traced.tensors.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let all = named.iter().copied().chain(loss.as_ref().map(|loss| ("loss", loss)));
    let all: Vec<(&str, &Tensor)> = all.collect();
    // With targets, a value comes with its gradient; --only 'd.NAME' chooses the gradient alone.
    let mut values = named.iter().filter(|(name, _)| named.len() == 1 || !name.starts_with("d."));
    let one = values.next().filter(|_| values.next().is_none()).map(|(_, value)| *value);
    arguments.output.write(&all, one)?;
    let mut out = io::stdout().lock();
    if arguments.output.all_as_json() {
        output::json(&mut out, &all)?;
        return Ok(());
    }
    if *json {
        let tensor = |(name, value): &(&str, &Tensor)| json!({ "name": name, "shape": value.shape().dims() });
        let tensors: Vec<_> = named.iter().map(tensor).collect();
        let mut report = json!({ "out": path, "tensors": tensors });
        if let Some(loss) = traced.loss {
            report["loss"] = json!(loss);
        }
        writeln!(out, "{report:#}")?;
        return Ok(());
    }
    let numbers: usize = traced.tensors.iter().map(|(_, value)| value.shape().len()).sum();
    let (count, size) = (plural(named.len(), "tensor"), number::bytes(4 * numbers as u64));
    let loss = traced.loss.map(|loss| format!("loss {loss}, ")).unwrap_or_default();
    let place = path.as_ref().map(|path| format!(" in {}", visible_path(path)));
    writeln!(out, "{loss}{count} ({size}){}", place.unwrap_or_default())?;
    output::summary(&mut out, &named)?;
    Ok(())
}
