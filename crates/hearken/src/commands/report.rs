//! `hearken report`: several runs on one page.

use crate::failure::Failure;
use crate::terminal::say;
use hearken::base::Error;
use hearken::formats::weights::WeightFiles;
use hearken::tasks::open::locate;
use hearken::train::compare::{self, Run};
use hearken::train::metrics::{Log, Row};
use hearken::train::run_dir::Samples;
use hearken::train::{RunDirectory, files};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Compare runs: curves, settings in which they differ, costs and samples on one page.
///
/// The page of a single run is its report.html, which training keeps up to date; --out copies it.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Run directories
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,

    /// The page that is written [default: compare.html]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
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
        if let Some(copy) = &arguments.out {
            files::replace(copy, &std::fs::read(&page)?)?;
        }
        writeln!(out, "{}", arguments.out.as_ref().unwrap_or(&page).display())?;
        say!("this is the page of one run; give several runs to compare them");
        return Ok(());
    }
    let runs: Result<Vec<Run>, Failure> = arguments.runs.iter().map(|run| read(run)).collect();
    let page = arguments.out.as_deref().unwrap_or(Path::new("compare.html"));
    files::replace(page, compare::html(&runs?).as_bytes())?;
    writeln!(out, "{}", page.display())?;
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
    let sample = samples.last().cloned();
    Ok(Run { name, rows, settings, parameters: parameters(path), sample })
}

/// The numbers in the weights of a run's last checkpoint, by the headers of the files.
fn parameters(run: &Path) -> Option<usize> {
    let files = WeightFiles::open(&locate(Some(run)).ok()?).ok()?;
    let entries = files.files().iter().flat_map(hearken::store::TensorFile::entries);
    Some(entries.map(|entry| entry.shape.iter().product::<usize>()).sum())
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
