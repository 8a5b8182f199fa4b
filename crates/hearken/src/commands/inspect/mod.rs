//! `hearken inspect`: the numbers inside a model, as tables and as files.

mod input;
mod neuron;
mod numbers;
mod output;
mod probe;
mod table;
mod trace;
mod weights;

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
  hearken inspect weights
  hearken inspect logits --prompt 'Mia the fox'
  hearken inspect gradients --prompt 'Mia the fox' --out gradients.safetensors
  hearken inspect trace --prompt 'Mia the fox' --only 'blocks.0.*'
  hearken inspect logits --model DIR --ids 1,2,3 --out logits.npy
  hearken inspect neuron --model runs/stories --layer 1
  hearken inspect probe --model runs/stories --svg probe.svg";

#[derive(Subcommand)]
enum What {
    Gradients(numbers::GradientArguments),
    Logits(numbers::LogitArguments),
    Neuron(neuron::Arguments),
    Probe(probe::Arguments),
    Trace(trace::Arguments),
    Weights(weights::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.what {
        What::Gradients(arguments) => numbers::gradients(arguments),
        What::Logits(arguments) => numbers::logits(arguments),
        What::Neuron(arguments) => neuron::run(arguments),
        What::Probe(arguments) => probe::run(arguments),
        What::Trace(arguments) => trace::run(arguments),
        What::Weights(arguments) => weights::run(arguments),
    }
}
