//! `hearken doctor`: is every operation right on this machine? With `--model`: is a model?
//!
//! Every case of every operation goes through [`Case::check`]: value and gradients against the
//! f64 reference, accumulation, and the same bits on 1 to 4 threads.

mod check;
mod model;
mod table;

use crate::failure::Failure;
use crate::machine::{Machine, Peak};
use check::OpReport;
use hearken::kernels::isa;
use hearken::show::number::plural;
use hearken::show::terminal::wrap;
use hearken::show::{StatusLine, Terminal};
use hearken::tensor::gradcheck::Case;
use hearken::tensor::ops;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;
use table::Table;

/// Check every operation on this machine, or a whole model.
///
/// Shows the processor and its measured speed, then for every operation the worst error of its
/// value and of its gradients against finite differences in double precision, next to the bound
/// it must keep; whether gradients are added to what was there; and whether 1, 2, 3 and 4 threads
/// give the same bits. Exits with 1 and the name of the operation if anything is off.
///
/// With --model it checks that model instead: its weights are finite, a token that is changed in the
/// future or in padding changes no visible result, cached and uncached decoding agree, gradients of a
/// few parameters are those that differences of the loss find, and saving and loading keeps every
/// bit.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Check only this operation (may be given several times)
    #[arg(long = "op", value_name = "NAME")]
    ops: Vec<String>,

    /// Check this model instead: a model directory or a run
    #[arg(long, value_name = "DIR", conflicts_with_all = ["ops", "verbose"])]
    model: Option<PathBuf>,

    /// List every case and not only the worst of each operation
    #[arg(long, short)]
    verbose: bool,

    /// Write one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken doctor
  hearken doctor --op linear --op attention --verbose
  HEARKEN_SIMD=portable hearken doctor
  hearken doctor --json | jq '.ops[] | {op, ok}'
  hearken doctor --model runs/stories

Keys of --json:
  ok        true if nothing is off
  failed    names of the operations that are off
  seconds   how long it took
  version   of hearken
  machine   cpu, cores, features, simd, threads
  peak      one_thread and all_threads, each with gflops (of products: by AMX, if it is
            used), fma_gflops and read_gb_per_second
  ops       per operation: op, ok, seconds, forward and backward (error, bound and
            case of the worst), accumulates, same_bits, and
            cases: case, ok, forward, forward_bound, backward ([{input, error}]),
            backward_bound, bound_reason, accumulates, same_bits, faults
An error that is not a number is null.

Keys of --json with --model:
  ok, failed, seconds, version
  model     directory, type, parameters
  checks    per check: check, result (ok, FAILED or skipped), error, bound, detail";

#[derive(Serialize)]
struct Report {
    ok: bool,
    failed: Vec<&'static str>,
    seconds: f64,
    version: &'static str,
    machine: Machine,
    peak: Peaks,
    ops: Vec<OpReport>,
}

#[derive(Serialize)]
struct Peaks {
    one_thread: Peak,
    all_threads: Peak,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(model) = &arguments.model {
        return model::run(model, arguments.json);
    }
    let chosen = chosen(&arguments.ops)?;
    isa::for_batches(|| examine(&chosen, arguments, &mut io::stdout()))
}

/// Measures the machine, checks each of these operations, writes the report and gives the verdict.
fn examine(
    chosen: &[(&'static str, Vec<Case>)],
    arguments: &Arguments,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let start = Instant::now();
    let mut progress = StatusLine::new();
    let terminal = Terminal::stdout();

    let machine = Machine::of_this_process();
    progress.show("measuring the machine …");
    let peak = Peaks { one_thread: Peak::measure(1), all_threads: Peak::measure(machine.threads) };
    let table = Table::new(terminal, chosen, arguments.verbose);
    if !arguments.json {
        progress.clear();
        write_machine(out, terminal, &machine, &peak)?;
        table.write_head(out)?;
    }
    let mut ops = Vec::new();
    for (done, (op, cases)) in chosen.iter().enumerate() {
        progress.show(&format!("checking {op} ({} of {}) …", done + 1, chosen.len()));
        let report = check::check(op, cases);
        if !arguments.json {
            progress.clear();
            table.write_row(out, &report)?;
        }
        ops.push(report);
    }
    progress.clear();
    let failed: Vec<_> = ops.iter().filter(|report| !report.ok).map(|report| report.op).collect();
    let seconds = start.elapsed().as_secs_f64();
    if arguments.json {
        let report = Report {
            ok: failed.is_empty(),
            failed: failed.clone(),
            seconds,
            version: env!("CARGO_PKG_VERSION"),
            machine,
            peak,
            ops,
        };
        let text = serde_json::to_string_pretty(&report).map_err(io::Error::from)?;
        writeln!(out, "{text}")?;
    } else if failed.is_empty() {
        let cases: usize = ops.iter().map(|report| report.cases.len()).sum();
        writeln!(
            out,
            "\n{}, {}: {} ({seconds:.1} s)",
            plural(ops.len(), "op"),
            plural(cases, "case"),
            terminal.green("all within their bounds")
        )?;
    }
    verdict(&failed)
}

/// The operations to check with their cases: all, or those named.
fn chosen(names: &[String]) -> Result<Vec<(&'static str, Vec<Case>)>, Failure> {
    for name in names {
        if !ops::NAMES.contains(&name.as_str()) {
            return Err(unknown(name));
        }
    }
    let wanted = |op: &str| names.is_empty() || names.iter().any(|name| name == op);
    let mut chosen: Vec<(&'static str, Vec<Case>)> =
        ops::NAMES.iter().filter(|op| wanted(op)).map(|op| (*op, Vec::new())).collect();
    for case in ops::registry() {
        if let Some((_, cases)) = chosen.iter_mut().find(|(op, _)| *op == case.op) {
            cases.push(case);
        }
    }
    Ok(chosen)
}

fn unknown(name: &str) -> Failure {
    /// Below this the names have little in common and a guess would only confuse.
    const ALIKE: f64 = 0.75;
    let mut near: Vec<(f64, &str)> =
        ops::NAMES.iter().map(|op| (strsim::jaro_winkler(op, name), *op)).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let guesses: Vec<&str> =
        near.iter().take(3).filter(|(likeness, _)| *likeness > ALIKE).map(|(_, op)| *op).collect();
    let hint = if guesses.is_empty() {
        format!("the operations are {}", ops::NAMES.join(", "))
    } else {
        format!("did you mean {}?", guesses.join(" or "))
    };
    Failure::input(format!("there is no operation '{name}'"), hint)
}

fn write_machine(
    out: &mut impl Write,
    terminal: Terminal,
    machine: &Machine,
    peak: &Peaks,
) -> io::Result<()> {
    const NAME: usize = "features ".len();
    let Peaks { one_thread: one, all_threads: all } = peak;
    let threads = plural(machine.threads, "thread");
    let mut lines = vec![
        ("cpu", format!("{}, {}", machine.cpu, plural(machine.cores, "core"))),
        ("features", machine.features.join(" ")),
        ("simd", format!("{} on {threads}", machine.simd)),
        (
            "fma peak",
            format!(
                "{:.1} GFLOP/s on 1 thread, {:.1} on {threads}",
                one.fma_gflops, all.fma_gflops
            ),
        ),
        (
            "reads",
            format!(
                "{:.1} GB/s on 1 thread, {:.1} on {threads}",
                one.read_gb_per_second, all.read_gb_per_second
            ),
        ),
    ];
    if machine.simd == isa::Isa::Amx.name() {
        let (one, all) = (one.gflops, all.gflops);
        let text = format!("{one:.1} GFLOP/s of f32 on 1 thread, {all:.1} on {threads}");
        lines.insert(lines.len() - 1, ("amx peak", text));
    }
    for (name, text) in lines {
        let room = terminal.width.saturating_sub(NAME + 1);
        for (i, line) in wrap(&text, room).into_iter().enumerate() {
            let name = if i == 0 { name } else { "" };
            writeln!(out, "{} {line}", terminal.bold(&format!("{name:NAME$}")))?;
        }
    }
    writeln!(out)
}

fn verdict(failed: &[&str]) -> Result<(), Failure> {
    let Some(first) = failed.first() else { return Ok(()) };
    let what = if failed.len() == 1 { "this operation is" } else { "these operations are" };
    Err(Failure::check(
        format!("{what} off on this machine: {}", failed.join(", ")),
        format!(
            "'hearken doctor --op {first} --verbose' shows its cases; if HEARKEN_SIMD=portable is \
             right, the fault is in a wider instruction set"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::check::tests::case;
    use super::*;
    use std::process::ExitCode;

    #[test]
    fn all_operations_are_chosen_unless_some_are_named() {
        let names = |chosen: Vec<(&'static str, Vec<Case>)>| -> Vec<&str> {
            assert!(chosen.iter().all(|(_, cases)| !cases.is_empty()));
            chosen.into_iter().map(|(op, _)| op).collect()
        };
        assert_eq!(names(chosen(&[]).unwrap()), ops::NAMES);
        assert_eq!(names(chosen(&["mul".into(), "add".into()]).unwrap()), ["add", "mul"]);
    }

    #[test]
    fn a_misspelt_operation_names_the_nearest_and_another_lists_all() {
        let hint = |name| match unknown(name) {
            Failure::Error(error) => error.hint().unwrap_or_default().to_owned(),
            other => panic!("{other:?}"),
        };
        assert!(hint("liner").starts_with("did you mean linear"));
        assert!(hint("zzz").starts_with("the operations are "));
    }

    /// The whole command but for its choice of operations: `mul` with its own cases, and an
    /// operation whose gradient is too small by a quarter.
    fn with_one_wrong(json: bool) -> (Failure, String) {
        let mut registry = chosen(&["mul".into()]).unwrap();
        registry.push(("double", vec![case("right", 2.0), case("wrong", 1.5)]));
        let arguments = Arguments { ops: Vec::new(), model: None, verbose: false, json };
        let mut out = Vec::new();
        let failure = examine(&registry, &arguments, &mut out).expect_err("double is wrong");
        (failure, String::from_utf8(out).unwrap())
    }

    #[test]
    fn an_operation_that_is_off_is_named_and_the_exit_code_is_1() {
        let (failure, out) = with_one_wrong(false);
        let row = |op: &str| out.lines().find(|line| line.starts_with(op)).unwrap();
        assert!(row("mul").ends_with("  ok") && row("double").ends_with("  FAILED"), "{out}");
        assert!(out.contains("    wrong: gradient of x is off by"), "{out}");
        assert!(!out.contains("all within their bounds"), "{out}");
        let Failure::Check(error) = &failure else { panic!("{failure:?}") };
        assert_eq!(error.message(), "this operation is off on this machine: double");
        assert!(error.hint().is_some());
        assert_eq!(failure.report(), ExitCode::from(1));
    }

    #[test]
    fn an_operation_that_is_off_is_named_in_json_and_the_exit_code_is_1() {
        let (failure, out) = with_one_wrong(true);
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["ok"], false);
        assert_eq!(report["failed"], serde_json::json!(["double"]));
        let ok: Vec<_> = report["ops"].as_array().unwrap().iter().map(|op| &op["ok"]).collect();
        assert_eq!(ok, [true, false]);
        assert_eq!(failure.report(), ExitCode::from(1));
    }

    #[test]
    fn a_failure_names_the_operations() {
        assert!(verdict(&[]).is_ok());
        let Err(Failure::Check(error)) = verdict(&["add", "mul"]) else { panic!("no failure") };
        assert_eq!(error.message(), "these operations are off on this machine: add, mul");
        assert!(error.hint().is_some_and(|hint| hint.contains("--op add ")));
    }
}
