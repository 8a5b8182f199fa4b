//! `hearken-fuzz`: reads damaged files with every reader and prints figures; see `scripts/fuzz`.

use hearken_fuzz::dice::Dice;
use hearken_fuzz::mutate::mutate;
use hearken_fuzz::subjects::{self, Subject};
use hearken_fuzz::supervise::{self, Fault, Limits};
use hearken_fuzz::worker;
use hearken_show::Columns;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
usage: hearken-fuzz [--cases N] [--seed S] [SUBJECT…]   figures, of all subjects if none is named
       hearken-fuzz replay SUBJECT SEED CASE DIR        the files of one case, and how it ends";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["worker", name, seed, from, to] => work(name, seed, from, to),
        ["replay", name, seed, case, directory] => replay(name, seed, case, Path::new(directory)),
        _ => figures(&words),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            hearken_show::say!("error: {error}\n{HELP}");
            ExitCode::from(2)
        }
    }
}

fn find(name: &str) -> Result<Subject, Box<dyn Error>> {
    let names: Vec<&str> = subjects::all().iter().map(|subject| subject.name).collect();
    let found = subjects::all().into_iter().find(|subject| subject.name == name);
    Ok(found.ok_or_else(|| format!("there is no subject {name}: {}", names.join(", ")))?)
}

fn work(name: &str, seed: &str, from: &str, to: &str) -> Result<bool, Box<dyn Error>> {
    let cases = from.parse()?..to.parse()?;
    worker::run(&find(name)?, seed.parse()?, cases, &mut std::io::stdout().lock())?;
    Ok(true)
}

/// Leaves the files of one case in `directory` and reads them.
fn replay(name: &str, seed: &str, case: &str, directory: &Path) -> Result<bool, Box<dyn Error>> {
    let subject = find(name)?;
    std::fs::create_dir_all(directory)?;
    (subject.prepare)(directory)?;
    let target = directory.join(subject.target);
    let good = std::fs::read(&target)?;
    let mut dice = Dice::new(seed.parse()?, case.parse()?);
    std::fs::write(&target, mutate(&good, subject.form, &mut dice))?;
    println!("{}", target.display());
    match (subject.read)(directory) {
        Ok(()) => println!("accepted"),
        Err(error) => hearken_show::say!("refused: {error}"),
    }
    Ok(true)
}

fn figures(words: &[&str]) -> Result<bool, Box<dyn Error>> {
    let (mut cases, mut seed, mut names) = (None, 1_u64, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--cases" => cases = Some(words.next().ok_or("--cases lacks a number")?.parse()?),
            "--seed" => seed = words.next().ok_or("--seed lacks a number")?.parse()?,
            name if name.starts_with('-') => return Err(format!("unknown option {name}").into()),
            name => names.push(name),
        }
    }
    let chosen: Vec<Subject> = match names[..] {
        [] => subjects::all(),
        _ => names.into_iter().map(find).collect::<Result<_, _>>()?,
    };
    let columns = Columns::new().left("subject", 24).right("cases", 7).right("accepted", 8);
    let columns = columns.right("crashes", 7).right("hangs", 5).right("memory", 6);
    let columns = columns.right("slowest", 9).right("most", 7);
    println!("{}", columns.head());
    let program = std::env::current_exe()?;
    let mut sound = true;
    for subject in chosen {
        let cases = cases.unwrap_or(subject.usual_cases());
        let figures = supervise::run(&program, &subject, seed, cases, Limits::PROMISED)?;
        println!(
            "{}",
            columns.row(&[
                subject.name.to_owned(),
                figures.cases.to_string(),
                figures.accepted.to_string(),
                figures.count(Fault::Crash).to_string(),
                figures.count(Fault::Hang).to_string(),
                figures.count(Fault::Memory).to_string(),
                format!("{} ms", figures.slowest),
                format!("{} MB", figures.most_megabytes),
            ])
        );
        for (case, fault) in figures.faults.iter().take(5) {
            println!("    {fault:?}: replay {} {seed} {case} DIR", subject.name);
        }
        sound &= figures.faults.is_empty();
    }
    Ok(sound)
}
