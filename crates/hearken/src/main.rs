//! The `hearken` binary: reads the command line and hands over to `commands`.
//!
//! Exit codes: 0 all is well, 1 a check failed, 2 the input was wrong.

// They panic when the reader has left. Results go through `writeln!`, the rest through `say!`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod commands;
mod failure;
mod invocation;
mod kept;
mod machine;
mod model;
mod stdin;
mod terminal;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Failure;
use std::process::ExitCode;

/// Counts what is asked of the system, for `bench train`: requests of a page and more.
#[global_allocator]
static ALLOCATOR: hearken::kernels::counting::Counting =
    hearken::kernels::counting::Counting::at_least(4096);

/// Transformers on an ordinary CPU: train, evaluate, generate, look inside.
#[derive(Parser)]
#[command(name = "hearken", version, arg_required_else_help = true, after_help = HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Environment:
  HEARKEN_SIMD=portable|avx2|avx512|amx
                                     run the kernels on this instruction set
  HEARKEN_THREADS=n                  work on n threads instead of one per core
  NO_COLOR=1                         no colours

Examples:
  hearken train                      learn generated stories
  hearken train book.txt             learn your own text
  hearken presets                    models and recipes that come with it
  hearken doctor                     check every operation on this machine
  hearken doctor --model runs/a      check a trained model
  hearken bench gemm                 time matrix products
  hearken plan --config gpt2-small   what a model costs, before anything runs
  hearken generate 'Once upon'       write with the newest run
  hearken eval book.txt              how well it predicts a text
  hearken report runs/a runs/b       compare runs on one page
  hearken compare recall --quick     train contenders on one task, and report
  hearken classify reviews.txt       label texts; embed: vectors; fill: hidden words
  hearken translate letters.txt      rewrite texts with an encoder-decoder
  hearken explain --prompt 'The cat'  every number on a prompt's way through a model
  hearken inspect weights            names, shapes and norms of its weights
  hearken lesson                     a course whose numbers are computed as you read
  hearken tokenizer train --help     learn a vocabulary from your text";

#[derive(Subcommand)]
enum Command {
    Bench(commands::bench::Arguments),
    Classify(commands::classify::Arguments),
    Compare(commands::compare::Arguments),
    Completions(commands::completions::Arguments),
    Doctor(commands::doctor::Arguments),
    Embed(commands::embed::Arguments),
    Eval(commands::eval::Arguments),
    Explain(commands::explain::Arguments),
    Fill(commands::fill::Arguments),
    Generate(commands::generate::Arguments),
    Inspect(commands::inspect::Arguments),
    Man(commands::man::Arguments),
    Lesson(commands::lesson::Arguments),
    Plan(commands::plan::Arguments),
    Presets(commands::presets::Arguments),
    Report(commands::report::Arguments),
    Tokenizer(commands::tokenizer::Arguments),
    Train(commands::train::Arguments),
    Translate(commands::translate::Arguments),
}

fn main() -> ExitCode {
    let arguments = match read_arguments() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let result = check_environment().and_then(|()| match arguments.command {
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Classify(arguments) => commands::classify::run(&arguments),
        Command::Compare(arguments) => commands::compare::run(&arguments),
        Command::Completions(arguments) => {
            commands::completions::run(&arguments, &mut Arguments::command())
        }
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::Embed(arguments) => commands::embed::run(&arguments),
        Command::Eval(arguments) => commands::eval::run(&arguments),
        Command::Explain(arguments) => commands::explain::run(&arguments),
        Command::Fill(arguments) => commands::fill::run(&arguments),
        Command::Generate(arguments) => commands::generate::run(&arguments),
        Command::Inspect(arguments) => commands::inspect::run(&arguments),
        Command::Man(arguments) => commands::man::run(&arguments, Arguments::command()),
        Command::Lesson(arguments) => commands::lesson::run(&arguments),
        Command::Plan(arguments) => commands::plan::run(&arguments),
        Command::Presets(arguments) => commands::presets::run(&arguments),
        Command::Report(arguments) => commands::report::run(&arguments),
        Command::Tokenizer(arguments) => commands::tokenizer::run(&arguments),
        Command::Train(arguments) => commands::train::run(&arguments),
        Command::Translate(arguments) => commands::translate::run(&arguments),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn read_arguments() -> Result<Arguments, clap::Error> {
    let mut command = takes_negatives(Arguments::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// A negative number after an option is its value, which is refused by what the option expects, and
/// not an option that nobody knows.
fn takes_negatives(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| {
        let is_option = !argument.is_positional() && argument.get_action().takes_values();
        if is_option { argument.allow_negative_numbers(true) } else { argument }
    });
    command.mut_subcommands(takes_negatives)
}

/// Prints what clap has found, help included. Why a number cannot be read, Rust says in words for
/// programmers.
fn refuse(error: &clap::Error) -> ExitCode {
    const WORDS: [(&str, &str); 5] = [
        ("invalid digit found in string", "expected a whole number, 0 or more"),
        ("cannot parse integer from empty string", "expected a whole number, 0 or more"),
        ("number too large to fit in target type", "the number is too large"),
        ("invalid float literal", "expected a number"),
        ("cannot parse float from empty string", "expected a number"),
    ];
    if error.kind() != ErrorKind::ValueValidation {
        error.exit();
    }
    let mut text = error.render().to_string();
    for (rust, plain) in WORDS {
        text = text.replace(rust, plain);
    }
    terminal::say!("{}", text.trim_end());
    ExitCode::from(2)
}

/// The kernels read these variables when they are first used and cannot complain there.
fn check_environment() -> Result<(), Failure> {
    let value = |name| match std::env::var_os(name) {
        Some(value) if !value.is_empty() => Some(value.to_string_lossy().into_owned()),
        _ => None,
    };
    if let Some(text) = value("HEARKEN_SIMD") {
        hearken::kernels::isa::parse(&text).map_err(|message| {
            Failure::input(message, "unset it to use the best that this CPU has")
        })?;
    }
    if let Some(text) = value("HEARKEN_THREADS") {
        hearken::kernels::threads::parse(&text)
            .map_err(|message| Failure::input(message, "unset it to use every core"))?;
    }
    Ok(())
}
