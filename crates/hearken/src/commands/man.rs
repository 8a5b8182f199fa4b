//! `hearken man`: the manual as pages for `man`.

use crate::failure::Failure;
use clap_mangen::Man;
use hearken::base::Error;
use std::io::{self, Write};
use std::path::PathBuf;

/// Print the manual page, or write a page for every command.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Write hearken.1, hearken-train.1 and so on into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  hearken man | man -l -
  hearken man --out ~/.local/share/man/man1";

pub(crate) fn run(arguments: &Arguments, command: clap::Command) -> Result<(), Failure> {
    let Some(directory) = &arguments.out else {
        io::stdout().write_all(&page(command)?)?;
        return Ok(());
    };
    std::fs::create_dir_all(directory).map_err(Error::io("create", directory))?;
    let mut pages = vec![("hearken".to_owned(), command.clone())];
    add(&command, "hearken", &mut pages);
    for (name, command) in pages {
        let path = directory.join(format!("{name}.1"));
        let name: &'static str = name.leak(); // clap keeps names that are not part of the program
        let page = page(command.name(name))?;
        std::fs::write(&path, page).map_err(Error::io("write", &path))?;
    }
    Ok(())
}

/// The commands below, under the names of their pages.
fn add(command: &clap::Command, name: &str, into: &mut Vec<(String, clap::Command)>) {
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let name = format!("{name}-{}", sub.get_name());
        into.push((name.clone(), sub.clone()));
        add(sub, &name, into);
    }
}

fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(page)
}
