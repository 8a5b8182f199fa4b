//! `hearken compare`: studies that train or time contenders, and a report of each.

use super::outputs::check_out;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::terminal::{Terminal, say};
use hearken::show::number::{date, duration};
use hearken::studies::page::{self, Made};
use hearken::studies::{Request, Study, all, find};
use hearken::train::files;
use hearken::train::interrupt;
use hearken::train::progress::Mode;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Compare kinds of models and settings: contenders get the same task and the same budget, and the
/// outcome is a report.
///
/// Without a name: the list of studies. A study trains (or times) its contenders on the task, writes one
/// self-contained page with charts, tables and a sentence per finding, and beside it all numbers as JSON.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Which study
    study: Option<String>,

    /// Small models and short training: at most five minutes on two cores
    #[arg(long, requires = "study")]
    quick: bool,

    /// Only these contenders
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "study")]
    only: Vec<String>,

    /// Train for this share of the usual steps, from 0.001 to 10: less is a sketch
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    effort: f64,

    /// Train each contender with so many seeds; a claim needs 3 [default: what the study wants]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    seeds: Option<u16>,

    /// The first seed
    #[arg(long, default_value_t = 1337)]
    seed: u64,

    /// A text of your own, for studies of language models [default: generated stories]
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "study")]
    data: Vec<PathBuf>,

    /// Refuse to begin, if it would take longer than this
    #[arg(long, value_name = "N", allow_negative_numbers = true, requires = "study")]
    minutes: Option<f64>,

    /// The page that is written; the numbers go to the same name with .json
    /// [default: compare-STUDY.html]
    #[arg(long, value_name = "FILE", requires = "study")]
    out: Option<PathBuf>,

    /// Also write each chart to a file in this directory, STUDY-TITLE.svg; the directory is made if needed
    #[arg(long, value_name = "DIRECTORY", requires = "study")]
    svg: Option<PathBuf>,

    /// Print the numbers as JSON in place of tables
    #[arg(long, requires = "study")]
    json: bool,

    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

const HELP: &str = "\
Examples:
  hearken compare                                 list the studies
  hearken compare recall --quick                  who remembers what was read long ago
  hearken compare recall --only transformer,lstm
  hearken compare norms --seeds 5 --out norms.html
  hearken compare tokenizers --data book.txt
  hearken compare attention --json > attention.json";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Some(name) = &arguments.study else { return list() };
    let study = find(name).ok_or_else(|| unknown(name))?;
    let request = request(study, arguments)?;
    let page = arguments.out.clone().unwrap_or_else(|| format!("compare-{name}.html").into());
    let numbers = page.with_extension("json");
    check_place(&page, &numbers, &arguments.data)?;
    if let Some(directory) = &arguments.svg {
        fs::create_dir_all(directory).map_err(|error| {
            let message = format!("cannot make the directory --svg {}", directory.display());
            Failure::input(format!("{message}: {error}"), "name another one")
        })?;
    }
    let started = Instant::now();
    let outcome = (study.run)(&request)?;
    let machine = Machine::of_this_process();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let made = Made {
        machine: format!(
            "{}, {} of {}, {}",
            machine.cpu,
            hearken::show::number::plural(machine.threads, "thread"),
            hearken::show::number::plural(machine.cores, "core"),
            machine.simd
        ),
        date: date(now),
        seconds: started.elapsed().as_secs_f64(),
    };
    let html = page::html(study, &request, &outcome, &made)?;
    let json = page::json(study, &request, &outcome, &made);
    let text = serde_json::to_string_pretty(&json).map_err(io::Error::from)? + "\n";
    let mut out = io::stdout().lock();
    if arguments.json {
        out.write_all(text.as_bytes())?;
    } else {
        for line in page::text(&outcome, Terminal::stdout().width) {
            writeln!(out, "{line}")?;
        }
    }
    // What was found is seen, even if it cannot be kept.
    files::replace(&page, html.as_bytes())?;
    files::replace(&numbers, text.as_bytes())?;
    if let Some(directory) = &arguments.svg {
        for (name, picture) in page::pictures(study, &outcome) {
            files::replace(&directory.join(name), picture.as_bytes())?;
        }
    }
    say!("\n{} in {}", study.name, duration(made.seconds));
    say!("look:    {}", page.display());
    say!("numbers: {}", numbers.display());
    Ok(())
}

fn request(study: &'static Study, arguments: &Arguments) -> Result<Request, Failure> {
    let only: Vec<String> = arguments.only.iter().map(|name| name.trim().to_owned()).collect();
    let contenders = study.choose(&only)?;
    if !arguments.data.is_empty() && !study.reads_text {
        return Err(Failure::input(
            format!("the study {} reads no text", study.name),
            "leave --data out; 'hearken compare' says which studies read one",
        ));
    }
    let minutes = arguments.minutes;
    if let Some(minutes) = minutes.filter(|minutes| !(*minutes > 0.0 && *minutes <= 1e5)) {
        return Err(Failure::input(
            format!("--minutes is {minutes}, expected more than 0 and at most 100000"),
            "'hearken compare' says how long studies take",
        ));
    }
    if !(0.001..=10.0).contains(&arguments.effort) {
        return Err(Failure::input(
            format!("--effort is {}, expected 0.001 to 10", arguments.effort),
            "1 is the usual effort, 0.1 a sketch",
        ));
    }
    Ok(Request {
        effort: arguments.effort,
        quick: arguments.quick,
        contenders,
        seeds: arguments.seeds.map_or(0, usize::from),
        seed: arguments.seed,
        data: arguments.data.clone(),
        most_seconds: minutes.map(|minutes| 60.0 * minutes),
        progress: Mode::detect(arguments.quiet),
        stop: interrupt::prepare_saying("stopped; nothing is kept, the same command starts again")?,
    })
}

/// Where the report cannot be written, or would take the place of what is read, nothing is trained.
fn check_place(page: &Path, numbers: &Path, data: &[PathBuf]) -> Result<(), Failure> {
    if page == numbers {
        return Err(Failure::input(
            format!("--out is {}, where the numbers go", page.display()),
            "name a page, such as report.html",
        ));
    }
    check_out("--out", page, None, data)?;
    check_out("--out", numbers, None, data)
}

fn unknown(name: &str) -> Failure {
    let closeness = |study: &&&Study| (1e6 * strsim::jaro_winkler(name, study.name)) as u64;
    let hint = match all().iter().max_by_key(closeness) {
        Some(nearest) if closeness(&nearest) > 700_000 => {
            format!("did you mean {}? 'hearken compare' lists all", nearest.name)
        }
        _ => "'hearken compare' lists all".to_owned(),
    };
    Failure::input(format!("there is no study '{name}'"), hint)
}

fn list() -> Result<(), Failure> {
    let terminal = Terminal::stdout();
    let mut out = io::stdout().lock();
    let widest = all().iter().map(|study| study.name.len()).max().unwrap_or(0);
    for study in all() {
        let room = terminal.width.saturating_sub(widest + 2).max(30);
        let [quick, full] = study.minutes;
        let line = format!("{} (about {full:.0} min, --quick {quick:.0} min)", study.line);
        let mut lines = hearken::show::terminal::wrap(&line, room).into_iter();
        let first = lines.next().unwrap_or_default();
        writeln!(out, "{:widest$}  {first}", study.name)?;
        for line in lines {
            writeln!(out, "{:widest$}  {line}", "")?;
        }
    }
    writeln!(out, "\nStart with: hearken compare {} --quick", all()[0].name)?;
    Ok(())
}
