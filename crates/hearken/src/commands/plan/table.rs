//! The plan for the eye.

use super::{OptimizerChoice, PrecisionChoice, Report};
use crate::terminal::Terminal;
use clap::ValueEnum;
use hearken::train::plot::thousands;
use std::io::{self, Write};

/// Width of the column of names.
const NAMES: usize = 26;
/// Width of the column of numbers.
const NUMBERS: usize = 18;

pub(super) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let terminal = Terminal::stdout();
    let c = &report.model;
    writeln!(
        out,
        "{} {} layers × {}, {} heads of {}{}, feed-forward {}, context {}, vocabulary {}",
        terminal.bold(&report.config),
        c.layers,
        c.width,
        c.heads,
        c.head_width(),
        if c.kv_heads() == c.heads { String::new() } else { format!(" on {}", c.kv_heads()) },
        c.feed_forward_width(),
        c.context,
        c.vocabulary
    )?;

    writeln!(out, "\n{}", terminal.bold("parameters"))?;
    let share = |n: u64, of: u64| format!("{:5.1} %", 100.0 * n as f64 / (of as f64).max(1.0));
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
    let line = format!("  {name:NAMES$}{number:>NUMBERS$}  {note}");
    writeln!(out, "{}", line.trim_end())
}

fn name_of(optimizer: OptimizerChoice) -> String {
    optimizer.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

fn name_of_precision(precision: PrecisionChoice) -> String {
    precision.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// 1.86 GB, in powers of 1000.
fn size(bytes: u64) -> String {
    scaled(bytes as f64, &["B", "kB", "MB", "GB", "TB", "PB"])
}

fn operations(flops: f64) -> String {
    scaled(flops, &["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"])
}

/// Three digits that count, in the largest unit that leaves at least 1.
fn scaled(mut x: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while x >= 999.5 && unit + 1 < units.len() {
        x /= 1000.0;
        unit += 1;
    }
    let digits = match x {
        _ if unit == 0 => 0,
        _ if x < 9.995 => 2,
        _ if x < 99.95 => 1,
        _ => 0,
    };
    format!("{x:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(size(999), "999 B");
        assert_eq!(size(999_600), "1.00 MB");
        assert_eq!(size(12_345_678), "12.3 MB");
        assert_eq!(operations(2.5e11), "250 GFLOP");
    }
}
