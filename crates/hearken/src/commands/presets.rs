//! `hearken presets`: the configurations that come with Hearken.

use crate::failure::Failure;
use crate::terminal::Terminal;
use hearken::nn::presets;
use hearken::show::terminal::wrap;
use serde_json::json;
use std::io::{self, Write};

/// List the presets: models and recipes for --config.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Print the configuration file of this preset, as a start for your own
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Write a JSON list of objects with name and about
    #[arg(long, conflicts_with = "name")]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken presets
  hearken presets shakespeare-fast > mine.toml
  hearken train --config mine.toml --data book.txt";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut out = io::stdout();
    if let Some(name) = &arguments.name {
        hearken::tasks::RunConfig::preset(name)?;
        write!(out, "{}", presets::find(name).unwrap_or_default())?;
        return Ok(());
    }
    if arguments.json {
        let about =
            |(name, text): &(&str, &str)| json!({ "name": name, "about": presets::about(text) });
        let list: Vec<_> = presets::ALL.iter().map(about).collect();
        writeln!(out, "{:#}", json!(list))?;
        return Ok(());
    }
    let terminal = Terminal::stdout();
    let widest = presets::ALL.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, text) in presets::ALL {
        let lines = wrap(&presets::about(text), terminal.width.saturating_sub(widest + 2).max(20));
        let mut lines = lines.iter();
        let first = lines.next().map_or("", String::as_str);
        writeln!(out, "{}  {first}", terminal.bold(&format!("{name:widest$}")))?;
        for line in lines {
            writeln!(out, "{:widest$}  {line}", "")?;
        }
    }
    Ok(())
}
