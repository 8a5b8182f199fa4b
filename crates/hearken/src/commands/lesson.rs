//! `hearken lesson`: the course, in the terminal or as a page.

use crate::failure::Failure;
use crate::terminal::Terminal;
use hearken::lessons::{self, Lesson, Sheet, page, text};
use hearken::show::say;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Lessons whose numbers are computed while you read.
///
/// Without a name: the list. A lesson stops after every step until you press Enter, asks a question
/// and explains wrong answers; in a pipe, or with --all, it runs without stopping.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Which one: its name, or its number in the list
    name: Option<String>,

    /// Run without stopping
    #[arg(long)]
    all: bool,

    /// Write it as a page with its plots; without a name, the whole course
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  hearken lesson                     list the lessons
  hearken lesson descent             step by step; Enter goes on, q ends
  hearken lesson 12 --all            the twelfth, without stopping
  hearken lesson chat --html c.html  as a page
  hearken lesson --html course.html  all of them as one page";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let lesson = arguments.name.as_deref().map(find).transpose()?;
    match (lesson, &arguments.html) {
        (None, None) => list(),
        (None, Some(file)) => write_page(file, "Hearken: the course", &lessons::course()),
        (Some(lesson), Some(file)) => write_page(file, lesson.title, &[lesson]),
        (Some(lesson), None) => {
            let stops = !arguments.all && io::stdin().is_terminal() && io::stdout().is_terminal();
            read(lesson, stops)
        }
    }
}

fn find(name: &str) -> Result<&'static Lesson, Failure> {
    let course = lessons::course();
    let by_number = name.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
    if let Some(lesson) = by_number.and_then(|i| course.get(i).copied()) {
        return Ok(lesson);
    }
    let unknown = || {
        let closeness = |lesson: &&&Lesson| (1e6 * strsim::jaro_winkler(name, lesson.name)) as u64;
        let hint = match course.iter().max_by_key(closeness) {
            Some(nearest) if closeness(&nearest) > 700_000 => {
                format!("did you mean {}? 'hearken lesson' lists all", nearest.name)
            }
            _ => format!("'hearken lesson' lists all {}", course.len()),
        };
        Failure::input(format!("there is no lesson '{name}'"), hint)
    };
    lessons::find(name).ok_or_else(unknown)
}

fn list() -> Result<(), Failure> {
    let terminal = Terminal::stdout();
    let mut out = io::stdout().lock();
    let widest = lessons::course().iter().map(|lesson| lesson.name.len()).max().unwrap_or(0);
    let mut number = 0;
    for (theme, lessons) in lessons::groups() {
        writeln!(out, "{}", terminal.bold(theme))?;
        for lesson in *lessons {
            number += 1;
            let beside = terminal.width.saturating_sub(widest + 7);
            let narrow = beside < 30;
            let (indent, room) = if narrow {
                (7, terminal.width.saturating_sub(7).max(10))
            } else {
                (widest + 7, beside)
            };
            let mut lines = hearken::show::terminal::wrap(lesson.line, room).into_iter();
            if narrow {
                writeln!(out, "{number:>4} {}", lesson.name)?;
            } else {
                let first = lines.next().unwrap_or_default();
                writeln!(out, "{number:>4} {:widest$}  {first}", lesson.name)?;
            }
            for line in lines {
                writeln!(out, "{:indent$}{line}", "")?;
            }
        }
    }
    writeln!(out, "\nStart with: hearken lesson {}", lessons::course()[0].name)?;
    Ok(())
}

fn write_page(file: &Path, title: &str, lessons: &[&Lesson]) -> Result<(), Failure> {
    let html = page::html(title, lessons)
        .map_err(|reason| Failure::check(reason, "this is a bug in the page's template"))?;
    fs::write(file, html).map_err(|error| {
        let hint = "name a file in a directory that exists and can be written to";
        Failure::input(format!("cannot write {}: {error}", file.display()), hint)
    })?;
    say!("wrote {}", file.display());
    Ok(())
}

/// A reader who presses Enter, or a pipe.
struct Reader {
    stops: bool,
}

/// What the reader wants after a part.
#[derive(PartialEq)]
enum Wish {
    GoOn(String),
    End,
}

impl Reader {
    /// Waits for a line, if anybody is there to type one.
    fn wait(&self, prompt: &str) -> Result<Wish, Failure> {
        if !self.stops {
            return Ok(Wish::GoOn(String::new()));
        }
        let mut out = io::stdout().lock();
        write!(out, "\n{prompt} ")?;
        out.flush()?;
        let mut line = String::new();
        let bytes = io::stdin().lock().read_line(&mut line)?;
        let line = line.trim().to_lowercase();
        if bytes == 0 || matches!(line.as_str(), "q" | "quit" | "exit") {
            writeln!(out)?;
            return Ok(Wish::End);
        }
        Ok(Wish::GoOn(line))
    }
}

fn read(lesson: &Lesson, stops: bool) -> Result<(), Failure> {
    let (terminal, reader) = (Terminal::stdout(), Reader { stops });
    let sheet = lesson.run();
    print(&text::opening(lesson, terminal))?;
    let parts = text::parts(lesson, &sheet, terminal);
    let Some((closing, steps)) = parts.split_last() else { return Ok(()) };
    for (i, part) in steps.iter().enumerate() {
        print(&[String::new()])?;
        print(part)?;
        let last = i + 1 == steps.len();
        let prompt =
            if last { "[Enter: the question, q: end]" } else { "[Enter: next step, q: end]" };
        if reader.wait(prompt)? == Wish::End {
            return Ok(());
        }
    }
    if ask(&sheet, terminal, &reader)? == Wish::End {
        return Ok(());
    }
    print(&[String::new()])?;
    print(closing)?;
    let course = lessons::course();
    let here = course.iter().position(|other| other.name == lesson.name);
    if let Some(next) = here.and_then(|i| course.get(i + 1)) {
        print(&[format!("Next lesson: hearken lesson {}", next.name)])?;
    }
    Ok(())
}

/// Asks until the answer is right. Enter alone shows all answers.
fn ask(sheet: &Sheet, terminal: Terminal, reader: &Reader) -> Result<Wish, Failure> {
    if !reader.stops {
        print(&[String::new()])?;
    }
    print(&text::question(sheet, terminal))?;
    if !reader.stops {
        print(&[String::new()])?;
        print(&text::answers(sheet, terminal))?;
        return Ok(Wish::GoOn(String::new()));
    }
    let answers = &sheet.question.answers;
    let letters: String = ('a'..).take(answers.len()).collect();
    let last = letters.chars().last().unwrap_or('a');
    loop {
        let typed = match reader.wait(&format!("[a to {last}, Enter: show the answer, q: end]"))? {
            Wish::End => return Ok(Wish::End),
            Wish::GoOn(typed) => typed,
        };
        if typed.is_empty() {
            print(&text::answers(sheet, terminal))?;
            break;
        }
        let chosen = typed.chars().next().filter(|_| typed.chars().count() == 1);
        let chosen = chosen.and_then(|letter| letters.find(letter)).and_then(|i| answers.get(i));
        match chosen {
            Some(answer) => {
                print(&text::verdict(answer, terminal))?;
                if answer.is_right {
                    break;
                }
            }
            None => print(&[format!("Please type a letter from a to {last}.")])?,
        }
    }
    reader.wait("[Enter: where documents are wrong, and the code; q: end]")
}

fn print(lines: &[String]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
