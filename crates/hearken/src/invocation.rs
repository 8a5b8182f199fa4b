//! The command as the user can run it again: `hearken`, if that is how it was started, or the path,
//! or through cargo.

use std::borrow::Cow;
use std::path::Path;

/// What to type in place of `hearken`.
pub(crate) fn program() -> String {
    let started = std::env::args().next().unwrap_or_default();
    // `cargo run` tells the programs that it starts where their package is.
    name(&started, std::env::var_os("CARGO_MANIFEST_DIR").is_some(), cfg!(debug_assertions))
}

fn name(started: &str, by_cargo: bool, debug: bool) -> String {
    let in_target = Path::new(started).components().any(|part| part.as_os_str() == "target");
    if by_cargo && in_target {
        let profile = if debug { "" } else { " --release" };
        return format!("cargo run{profile} --");
    }
    let plain = Path::new(started).components().count() <= 1;
    if plain || started.contains(char::is_whitespace) {
        "hearken".to_owned()
    } else {
        started.to_owned()
    }
}

/// A text in which commands that it names, `hearken train` and so on, can be run as they stand.
pub(crate) fn runnable(text: &str) -> Cow<'_, str> {
    replaced(text, &program())
}

fn replaced<'a>(text: &'a str, program: &str) -> Cow<'a, str> {
    const COMMANDS: [&str; 13] = [
        "bench",
        "doctor",
        "eval",
        "generate",
        "inspect",
        "plan",
        "presets",
        "report",
        "tokenizer",
        "train",
        "classify",
        "embed",
        "translate",
    ];
    if program == "hearken" || !text.contains("hearken ") {
        return Cow::Borrowed(text);
    }
    let mut out = text.to_owned();
    for command in COMMANDS {
        for before in ["'", " ", "\n"] {
            let (old, new) =
                (format!("{before}hearken {command}"), format!("{before}{program} {command}"));
            out = out.replace(&old, &new);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_printed_as_they_were_started() {
        assert_eq!(name("hearken", false, false), "hearken");
        assert_eq!(name("target/release/hearken", true, false), "cargo run --release --");
        assert_eq!(name("/x/target/debug/hearken", true, true), "cargo run --");
        assert_eq!(name("./target/release/hearken", false, false), "./target/release/hearken");
        assert_eq!(name("/odd place/hearken", false, false), "hearken");
    }

    #[test]
    fn commands_in_texts_are_replaced_and_nothing_else_is() {
        let text =
            "make one with 'hearken train' or hearken eval; hearken reads, runs/hearken train";
        let want = "make one with './h train' or ./h eval; hearken reads, runs/hearken train";
        assert_eq!(replaced(text, "./h"), want);
        assert_eq!(replaced(text, "hearken"), text);
    }
}
