//! `hearken doctor --model DIR`: does a model hold together?

use crate::failure::Failure;
use crate::kept::Kept;
use crate::terminal::say;
use hearken::show::number::{error as short, plural, thousands};
use hearken::show::terminal::{visible_path, wrap};
use hearken::show::{StatusLine, Terminal};
use hearken::tasks::OpenModel;
use hearken::tasks::self_check::{self, Finding, Outcome};
use serde_json::json;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

/// Opens the model, runs all checks, writes the table or the JSON, and gives the verdict.
pub(super) fn run(path: &Path, json: bool) -> Result<(), Failure> {
    let start = Instant::now();
    let mut warn = |text: &str| say!("warning: {text}");
    let model = OpenModel::open(Some(path), &mut warn)?;
    let scratch = Kept::new("hearken-doctor-")?;
    let mut progress = StatusLine::new();
    let mut go_on = |check: &str| {
        progress.show(&format!("checking {check} …"));
        !scratch.is_stopped()
    };
    let found = self_check::check(&model, scratch.path(), &mut go_on)?;
    progress.clear();
    let seconds = start.elapsed().as_secs_f64();
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{:#}", as_json(&model, &found, seconds))?;
    } else {
        write(&mut out, &model, &found, seconds)?;
    }
    verdict(&found)
}

fn failed(found: &[Finding]) -> Vec<&'static str> {
    let failed = found.iter().filter(|finding| finding.outcome == Outcome::Failed);
    failed.map(|finding| finding.check).collect()
}

fn numbers(model: &OpenModel) -> usize {
    model.model.parameters().iter().map(|p| p.shape().len()).sum()
}

fn as_json(model: &OpenModel, found: &[Finding], seconds: f64) -> serde_json::Value {
    let checks: Vec<_> = found
        .iter()
        .map(|finding| {
            json!({
                "check": finding.check,
                "result": word(finding.outcome),
                "error": finding.error,
                "bound": finding.bound,
                "detail": finding.detail,
            })
        })
        .collect();
    let failed = failed(found);
    json!({
        "ok": failed.is_empty(),
        "failed": failed,
        "seconds": seconds,
        "version": env!("CARGO_PKG_VERSION"),
        "model": {
            "directory": model.directory,
            "type": model.family.model_type,
            "parameters": numbers(model),
        },
        "checks": checks,
    })
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "ok",
        Outcome::Failed => "FAILED",
        Outcome::Skipped => "skipped",
    }
}

/// A line per check with its result and error, and below it what was compared.
fn write(
    out: &mut impl Write,
    model: &OpenModel,
    found: &[Finding],
    seconds: f64,
) -> io::Result<()> {
    const NAME: usize = "gradients  ".len();
    const RESULT: usize = "skipped  ".len();
    let terminal = Terminal::stdout();
    let about = format!(
        "{}: {}, {} parameters",
        visible_path(&model.directory),
        model.family.model_type,
        thousands(numbers(model) as f64)
    );
    for line in wrap(&about, terminal.width) {
        writeln!(out, "{}", terminal.bold(&line))?;
    }
    for finding in found {
        let result = word(finding.outcome);
        let blanks = " ".repeat(RESULT - result.len());
        let result = match finding.outcome {
            Outcome::Passed => terminal.green(result),
            Outcome::Failed => terminal.red(result),
            Outcome::Skipped => result.to_owned(),
        };
        let error = match (finding.error, finding.bound) {
            (Some(0.0), Some(0.0)) => "same bits; ".to_owned(),
            (Some(error), Some(bound)) => {
                format!("error {} of at most {}; ", short(error), short(bound))
            }
            _ => String::new(),
        };
        let text = format!("{error}{}", finding.detail);
        let room = terminal.width.saturating_sub(NAME + RESULT).max(20);
        for (i, line) in wrap(&text, room).into_iter().enumerate() {
            if i == 0 {
                writeln!(out, "{:NAME$}{result}{blanks}{line}", finding.check)?;
            } else {
                writeln!(out, "{}{line}", " ".repeat(NAME + RESULT))?;
            }
        }
    }
    if failed(found).is_empty() {
        let done = found.iter().filter(|finding| finding.outcome == Outcome::Passed).count();
        let holds = format!("{} passed", plural(done, "check"));
        writeln!(out, "\n{} ({seconds:.1} s)", terminal.green(&holds))?;
    }
    Ok(())
}

fn verdict(found: &[Finding]) -> Result<(), Failure> {
    let failed = failed(found);
    if failed.is_empty() {
        return Ok(());
    }
    let what = if failed.len() == 1 { "this check" } else { "these checks" };
    let hint = if failed.contains(&"weights") {
        "training has diverged or the file is damaged: use an earlier checkpoint"
    } else {
        "'hearken doctor' checks the operations themselves; if they are all right, report the \
         model's config.json"
    };
    Err(Failure::check(format!("the model fails {what}: {}", failed.join(", ")), hint))
}
