//! `hearken report`: several runs on one page.

use crate::failure::Failure;
use crate::terminal::say;
use hearken::base::Error;
use hearken::train::compare::{self, Run};
use hearken::train::metrics::{Log, Row};
use hearken::train::run_dir::Samples;
use hearken::train::{RunDirectory, files};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Compare runs: curves, settings in which they differ, costs and samples on one page.
///
/// The page of a single run is its report.html, which training keeps up to date.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Run directories
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,

    /// The page that is written
    #[arg(long, value_name = "FILE", default_value = "compare.html")]
    out: PathBuf,
}

const HELP: &str = "\
Examples:
  hearken report runs/a runs/b
  hearken report runs/* --out all.html";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut out = io::stdout();
    if let [run] = &arguments.runs[..] {
        let page = run.join("report.html");
        if !RunDirectory::holds_run(run) || !page.is_file() {
            return Err(not_a_run(run));
        }
        writeln!(out, "{}", page.display())?;
        say!("give several runs to compare them");
        return Ok(());
    }
    let runs: Result<Vec<Run>, Failure> = arguments.runs.iter().map(|run| read(run)).collect();
    files::replace(&arguments.out, compare::html(&runs?).as_bytes())?;
    writeln!(out, "{}", arguments.out.display())?;
    Ok(())
}

fn not_a_run(path: &Path) -> Failure {
    Failure::input(
        format!("{} holds no run", path.display()),
        "name directories that 'hearken train' has made, such as runs/stories",
    )
}

fn read(path: &Path) -> Result<Run, Failure> {
    if !RunDirectory::holds_run(path) {
        return Err(not_a_run(path));
    }
    let file = path.join("config.toml");
    let text = RunDirectory::read_config(path)?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let message = format!("{}: {}", file.display(), error.message());
        Error::new(message, "it is not what the run has written")
    })?;
    let mut settings = BTreeMap::new();
    flatten("", &toml::Value::Table(table), &mut settings);
    let name = path
        .file_name()
        .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    let rows = Log::<Row>::read(&path.join("metrics.jsonl"))?;
    let samples = Samples::read(&path.join("samples.txt"))?;
    Ok(Run { name, rows, settings, sample: samples.last().cloned() })
}

/// Every setting under its full name.
fn flatten(name: &str, value: &toml::Value, into: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, value, into);
            }
        }
        toml::Value::String(text) => drop(into.insert(name.to_owned(), text.clone())),
        other => drop(into.insert(name.to_owned(), other.to_string())),
    }
}
