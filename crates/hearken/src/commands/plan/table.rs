//! The plan for the eye.

use super::{OptimizerChoice, PrecisionChoice, Report};
use clap::ValueEnum;
use hearken::show::number::{bytes as size, operations, percent, plural, thousands};
use hearken::show::terminal::wrap;
use hearken::show::{Columns, Terminal};
use std::io::{self, Write};

pub(super) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let terminal = Terminal::stdout();
    heading(out, terminal, &report.config, &format!(" {}", report.model.sizes()))?;

    if let Some(note) = &report.note {
        for line in wrap(note, terminal.width) {
            writeln!(out, "{line}")?;
        }
    }

    writeln!(out, "\n{}", terminal.bold("parameters"))?;
    let share = |n: u64, of: u64| format!("{:>7}", percent(n as f64 / (of as f64).max(1.0), 1));
    for part in report.parts.iter().filter(|part| part.parameters > 0) {
        let share = share(part.parameters, report.parameters);
        row(out, &part.name, &thousands(part.parameters as f64), &share)?;
    }
    row(out, "total", &thousands(report.parameters as f64), "")?;

    let chosen = report.training;
    let tokens = thousands(chosen.tokens as f64);
    writeln!(out)?;
    heading(out, terminal, "arithmetic", &format!(" per token, in sequences of {tokens}"))?;
    row(out, "forward", &operations(report.flops_per_token.forward), "")?;
    row(out, "training", &operations(report.flops_per_token.training), "")?;

    let time = &report.time;
    writeln!(out)?;
    let basis = format!(
        ", an estimate: {} of the {:.0} GFLOP/s that this machine reaches",
        percent(time.efficiency, 0),
        time.peak_gflops
    );
    heading(out, terminal, "time to train", &basis)?;
    row(out, "a step", &duration(time.step_seconds), "")?;
    row(out, &plural(time.steps as usize, "step"), &duration(time.run_seconds), "")?;

    writeln!(out)?;
    let what = format!(
        " for {} × {tokens} tokens, {}, {}{}",
        chosen.batch_size,
        name_of(chosen.optimizer),
        name_of_precision(chosen.precision),
        if chosen.checkpointing { ", checkpointing" } else { "" }
    );
    heading(out, terminal, "memory to train", &what)?;
    let memory = &report.memory;
    for (name, bytes) in [
        ("parameters", memory.parameters),
        ("gradients", memory.gradients),
        ("optimizer", memory.optimizer),
        ("averages", memory.averages),
        ("activations and work", memory.activations),
        ("kernels", memory.kernels),
    ] {
        if bytes > 0 {
            row(out, name, &size(bytes), &share(bytes, memory.total))?;
        }
    }
    let free = report.available.map_or(String::new(), |free| {
        let fits = memory.total <= free as u64;
        let text = format!("of {} free", size(free as u64));
        if fits { text } else { terminal.red(&format!("{text}: does not fit")) }
    });
    row(out, "total", &size(memory.total), &free)?;
    row(out, "tensors at any one time", &size(memory.in_use), "")?;

    if let Some(cache) = &report.cache {
        writeln!(out)?;
        heading(out, terminal, "memory to generate", &format!(" for {tokens} tokens"))?;
        row(out, "parameters", &size(memory.parameters), "")?;
        for (name, bytes) in [
            ("cache in f32", cache.f32),
            ("cache in f16", cache.f16),
            ("cache in int8", cache.int8),
        ] {
            row(out, name, &size(bytes), "")?;
        }
        if report.model.recomputes() {
            writeln!(out, "  lsh attention: the whole text is read again for every token")?;
        }
    }

    write_measured(out, terminal, report)
}

/// What a few real steps took, if some were taken.
fn write_measured(out: &mut impl Write, terminal: Terminal, report: &Report) -> io::Result<()> {
    let Some(measured) = report.measured else { return Ok(()) };
    let (memory, time) = (&report.memory, &report.time);
    writeln!(out)?;
    heading(out, terminal, "measured", " in a few steps, and how far off the plan was")?;
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
    let estimated =
        format!("{:.1} times as long as estimated", measured.seconds / time.step_seconds);
    row(out, "a step", &duration(measured.seconds), &estimated)
}

/// Seconds as people read them.
fn duration(seconds: f64) -> String {
    const YEAR: f64 = 365.25 * 86_400.0;
    match seconds {
        s if s < 10.0 => format!("{s:.3} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3_600.0),
        s if s < 2.0 * YEAR => format!("{:.0} days", s / 86_400.0),
        s => format!("{} years", thousands((s / YEAR).round())),
    }
}

/// A name in bold and what belongs to it, on one line or, where the terminal is narrow, on several.
fn heading(out: &mut impl Write, terminal: Terminal, name: &str, rest: &str) -> io::Result<()> {
    if name.chars().count() + rest.chars().count() <= terminal.width {
        return writeln!(out, "{}{rest}", terminal.bold(name));
    }
    writeln!(out, "{}", terminal.bold(name))?;
    for line in wrap(rest.trim_start_matches([',', ' ']), terminal.width.saturating_sub(2)) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// Characters of a name and of a number.
const NAME: usize = 26;
const NUMBER: usize = 16;

fn row(out: &mut impl Write, name: &str, number: &str, note: &str) -> io::Result<()> {
    let width = Terminal::stdout().width;
    // Where there is no room for notes, shares are left out and others have a line of their own.
    let wide = width >= 2 + NAME + NUMBER + 4 + 18;
    let (names, numbers) =
        if wide { (NAME, NUMBER) } else { (23, width.saturating_sub(27).min(13)) };
    let columns = Columns::new().indented(2).left("", names).right("", numbers).left("", 0);
    if wide {
        return writeln!(out, "{}", columns.row_ending(&[name, number], note).trim_end());
    }
    writeln!(out, "{}", columns.row(&[name, number]))?;
    if note.is_empty() || note.ends_with('%') {
        return Ok(());
    }
    writeln!(out, "    {note}")
}

fn name_of(optimizer: OptimizerChoice) -> String {
    optimizer.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

fn name_of_precision(precision: PrecisionChoice) -> String {
    precision.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}
