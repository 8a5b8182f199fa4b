//! `hearken inspect weights`: what a model directory holds.

use super::output::{shape, write_columns};
use crate::failure::Failure;
use crate::model::ModelArguments;
use hearken::formats::weights::WeightFiles;
use hearken::show::number::{plural, significant, thousands};
use hearken::store::Entry;
use hearken::tasks::open::locate;
use serde::Serialize;
use std::io::{self, Write};

/// List the weights: names, shapes, types and norms.
///
/// Reads the files as they are, so that it works for architectures that hearken does not run.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken inspect weights --model DIR
  hearken inspect weights --json | jq '.tensors[] | select(.largest > 10) | .name'

Keys of --json:
  parameters   numbers in all
  tensors      per tensor: name, shape, dtype, parameters, norm (the root of the sum of
               squares), rms (the root of their mean), largest (of the absolute values)";

#[derive(Serialize)]
struct Report {
    parameters: usize,
    tensors: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    shape: Vec<usize>,
    dtype: String,
    parameters: usize,
    norm: f64,
    rms: f64,
    largest: f32,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let directory = locate(arguments.model.model.as_deref())?;
    let mut tensors = Vec::new();
    for file in WeightFiles::open(&directory)?.files() {
        for entry in file.entries() {
            tensors.push(row(entry, file.tensor(&entry.name)?.data()));
        }
    }
    let report = Report { parameters: tensors.iter().map(|t| t.parameters).sum(), tensors };
    let mut out = io::stdout();
    if arguments.json {
        let text = serde_json::to_string_pretty(&report).map_err(io::Error::from)?;
        writeln!(out, "{text}")?;
        return Ok(());
    }
    table(&mut out, &report)?;
    Ok(())
}

fn row(entry: &Entry, data: &[f32]) -> Row {
    let squares: f64 = data.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    // Unlike f32::max, this lets a NaN be seen.
    let larger = |most: f32, x: &f32| if x.abs() > most || x.is_nan() { x.abs() } else { most };
    Row {
        parameters: data.len(),
        norm: squares.sqrt(),
        rms: (squares / data.len().max(1) as f64).sqrt(),
        largest: data.iter().fold(0.0, larger),
        name: entry.name.clone(),
        shape: entry.shape.clone(),
        dtype: entry.dtype.clone(),
    }
}

fn table(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let cells = |row: &Row| {
        [
            row.name.clone(),
            shape(&row.shape),
            row.dtype.to_lowercase(),
            significant(row.norm),
            significant(row.rms),
            significant(f64::from(row.largest)),
        ]
    };
    let rows: Vec<_> = report.tensors.iter().map(cells).collect();
    let headings = ["name", "shape", "type", "norm", "rms", "largest"];
    write_columns(out, headings, &["type", "norm", "largest", "shape"], &rows)?;
    let tensors = plural(report.tensors.len(), "tensor");
    writeln!(out, "{tensors}, {} parameters", thousands(report.parameters as f64))
}
