//! The plan for the eye.

use super::{OptimizerChoice, PrecisionChoice, Report};
use clap::ValueEnum;
use hearken::show::number::{bytes as size, operations, percent, thousands};
use hearken::show::{Columns, Terminal};
use std::io::{self, Write};

pub(super) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let terminal = Terminal::stdout();
    writeln!(out, "{} {}", terminal.bold(&report.config), report.model.sizes())?;

    writeln!(out, "\n{}", terminal.bold("parameters"))?;
    let share = |n: u64, of: u64| format!("{:>7}", percent(n as f64 / (of as f64).max(1.0), 1));
    for part in report.parts.iter().filter(|part| part.parameters > 0) {
        let share = share(part.parameters, report.parameters);
        row(out, part.name, &thousands(part.parameters as f64), &share)?;
    }
    row(out, "total", &thousands(report.parameters as f64), "")?;

    let chosen = report.training;
    writeln!(
        out,
        "\n{} per token, in sequences of {}",
        terminal.bold("arithmetic"),
        chosen.tokens
    )?;
    row(out, "forward", &operations(report.flops_per_token.forward), "")?;
    row(out, "training", &operations(report.flops_per_token.training), "")?;
    let step = report.flops_per_token.training * (chosen.batch_size * chosen.tokens) as f64;
    row(out, "a step", &operations(step), "")?;

    writeln!(
        out,
        "\n{} for {} × {} tokens, {}, {}{}",
        terminal.bold("memory to train"),
        chosen.batch_size,
        chosen.tokens,
        name_of(chosen.optimizer),
        name_of_precision(chosen.precision),
        if chosen.checkpointing { ", checkpointing" } else { "" }
    )?;
    let memory = &report.memory;
    for (name, bytes) in [
        ("parameters", memory.parameters),
        ("gradients", memory.gradients),
        ("optimizer", memory.optimizer),
        ("activations and work", memory.activations),
        ("kernels", memory.kernels),
    ] {
        row(out, name, &size(bytes), &share(bytes, memory.total))?;
    }
    let free = report.available.map_or(String::new(), |free| {
        let fits = memory.total <= free as u64;
        let text = format!("of {} free", size(free as u64));
        if fits { text } else { terminal.red(&format!("{text}: does not fit")) }
    });
    row(out, "total", &size(memory.total), &free)?;
    row(out, "tensors at any one time", &size(memory.in_use), "")?;

    writeln!(out, "\n{} for {} tokens", terminal.bold("memory to generate"), chosen.tokens)?;
    row(out, "parameters", &size(memory.parameters), "")?;
    for (name, bytes) in [
        ("cache in f32", report.cache.f32),
        ("cache in f16", report.cache.f16),
        ("cache in int8", report.cache.int8),
    ] {
        row(out, name, &size(bytes), "")?;
    }

    let Some(measured) = report.measured else { return Ok(()) };
    writeln!(out, "\n{} in two steps, and how far off the plan was", terminal.bold("measured"))?;
    let off = |planned: u64, measured: usize| {
        format!("{:+.1} %", 100.0 * (planned as f64 / measured as f64 - 1.0))
    };
    let at_once = off(memory.in_use, measured.in_use);
    row(out, "tensors at any one time", &size(measured.in_use as u64), &at_once)?;
    let tensors = off(memory.total - memory.kernels, measured.reserved);
    row(out, "reserved for tensors", &size(measured.reserved as u64), &tensors)?;
    if let Some(resident) = measured.resident {
        row(out, "the process", &size(resident as u64), &off(memory.total, resident))?;
    }
    row(out, "a step", &format!("{:.3} s", measured.seconds), "")
}

fn row(out: &mut impl Write, name: &str, number: &str, note: &str) -> io::Result<()> {
    let columns = Columns::new().indented(2).left("", 26).right("", 16).left("", 0);
    writeln!(out, "{}", columns.row(&[name, number, note]))
}

fn name_of(optimizer: OptimizerChoice) -> String {
    optimizer.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

fn name_of_precision(precision: PrecisionChoice) -> String {
    precision.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}
