//! `hearken inspect`: what is inside a model, for comparison with anything else.

mod input;
mod numbers;
mod probe;
mod trace;
mod weights;

pub(super) use input::check_out;

use crate::failure::Failure;
use clap::Subcommand;

/// Look inside a model.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

const HELP: &str = "\
Examples:
  hearken inspect weights --model DIR
  hearken inspect logits --model DIR --ids 1,2,3 --out logits.safetensors
  hearken inspect gradients --model DIR --ids 1,2,3 --targets 2,3,4 --out gradients.safetensors
  hearken inspect trace --model DIR --ids 1,2,3 --only 'blocks.0.*' --out trace.safetensors
  hearken inspect probe --model runs/stories --svg probe.svg";

#[derive(Subcommand)]
enum What {
    Gradients(numbers::GradientArguments),
    Logits(numbers::LogitArguments),
    Probe(probe::Arguments),
    Trace(trace::Arguments),
    Weights(weights::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.what {
        What::Gradients(arguments) => numbers::gradients(arguments),
        What::Logits(arguments) => numbers::logits(arguments),
        What::Probe(arguments) => probe::run(arguments),
        What::Trace(arguments) => trace::run(arguments),
        What::Weights(arguments) => weights::run(arguments),
    }
}
