//! `hearken completions`: what a shell needs to complete the command line.

use crate::failure::Failure;
use clap_complete::{Shell, generate};
use std::io::{self, Write};

/// Print completions for a shell.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

const HELP: &str = "\
Examples:
  hearken completions bash > ~/.local/share/bash-completion/completions/hearken
  hearken completions zsh > ~/.zfunc/_hearken     (with ~/.zfunc in fpath)
  hearken completions fish > ~/.config/fish/completions/hearken.fish";

pub(crate) fn run(arguments: &Arguments, command: &mut clap::Command) -> Result<(), Failure> {
    // The writer of completions panics if nobody reads: they are made first.
    let mut text = Vec::new();
    generate(arguments.shell, command, "hearken", &mut text);
    io::stdout().write_all(&text)?;
    Ok(())
}
