//! `hearken bench`: how fast are the kernels, and how near to what the machine can do?

mod attention;
mod gemm;
mod generate;
mod profile_svg;
mod requests;
mod scaling;
mod train;

use crate::failure::Failure;
use crate::machine::{self, Machine, Peak};
use clap::Subcommand;
use hearken::kernels::isa;
use hearken::show::number;
use hearken::studies::timing;
use hearken::tensor::pool;
use serde::Serialize;
use std::io::{self, Write};
use std::time::Duration;

/// Time the kernels on this machine.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Attention(attention::Arguments),
    Gemm(gemm::Arguments),
    Generate(generate::Arguments),
    Scaling(scaling::Arguments),
    Train(train::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.what {
        What::Attention(arguments) => attention::run(arguments),
        What::Gemm(arguments) => isa::for_batches(|| gemm::run(arguments)),
        What::Generate(arguments) => generate::run(arguments),
        What::Scaling(arguments) => isa::for_batches(|| scaling::run(arguments)),
        What::Train(arguments) => isa::for_batches(|| train::run(arguments)),
    }
}

/// What `--json` writes.
#[derive(Serialize)]
struct Report<R> {
    version: &'static str,
    machine: Machine,
    peak: Peak,
    results: Vec<R>,
}

/// One line, which a script can find at the end of the output.
fn write_json(out: &mut impl Write, value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(io::Error::from)?;
    writeln!(out, "{text}")?;
    Ok(())
}

/// The most memory that was needed, in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
struct Memory {
    /// By the whole process, where the system tells.
    resident: Option<usize>,
    /// By tensors.
    tensors: usize,
}

impl Memory {
    /// Starts anew: gives unused buffers back to the system and resets the marks.
    fn reset() {
        pool::release();
        pool::reset_peak();
        machine::reset_peak_resident();
    }

    /// The most since [`Memory::reset`].
    fn most() -> Self {
        Self { resident: machine::peak_resident_bytes(), tensors: pool::usage().peak }
    }

    fn text(self) -> String {
        let resident = self.resident.map_or("?".to_owned(), size);
        format!("{resident} resident, {} in tensors", size(self.tensors))
    }
}

fn size(bytes: usize) -> String {
    number::bytes(bytes as u64)
}

/// Refuses work that does not fit the memory, where the system tells how much there is.
fn check_memory(bytes: Option<usize>) -> Result<(), Failure> {
    let most = machine::available_bytes().unwrap_or(usize::MAX);
    match bytes {
        Some(bytes) if bytes <= most => Ok(()),
        _ => {
            let needed = bytes.map_or("more than any memory".to_owned(), size);
            let message = format!("this needs {needed}, and {} are free", size(most));
            Err(Failure::input(message, "choose smaller numbers"))
        }
    }
}

/// Reads a positive number of seconds, at most an hour.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number above 0 and up to 3600".to_owned()),
    }
}
