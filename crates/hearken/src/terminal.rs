//! What the terminal can show: its width, colours, and a line of progress.

use std::env;
use std::io::{self, IsTerminal, Write};

/// Writes a line to stderr, as `eprintln!` does. That nobody reads it any more, as in
/// `hearken train 2>&1 | head -1`, is no reason to stop, where `eprintln!` would panic.
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($text)*)));
    }};
}
pub(crate) use say;

/// How results may be shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    /// Characters per line.
    pub(crate) width: usize,
    /// Are colours seen and wanted?
    pub(crate) colour: bool,
}

/// The width that results have in a pipe or a file.
const DEFAULT_WIDTH: usize = 80;

impl Terminal {
    /// The one that stdout goes to.
    pub(crate) fn stdout() -> Self {
        let width = terminal_size::terminal_size().map_or(DEFAULT_WIDTH, |(w, _)| usize::from(w.0));
        // Some terminals say 0 when they do not know.
        let width = if width == 0 { DEFAULT_WIDTH } else { width };
        Self { width, colour: io::stdout().is_terminal() && escapes_wanted() }
    }

    /// Good news.
    pub(crate) fn green(self, text: &str) -> String {
        self.painted("32", text)
    }

    /// Bad news.
    pub(crate) fn red(self, text: &str) -> String {
        self.painted("1;31", text)
    }

    /// Headings.
    pub(crate) fn bold(self, text: &str) -> String {
        self.painted("1", text)
    }

    fn painted(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn escapes_wanted() -> bool {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A line on stderr that says what is going on; nothing unless stderr is a terminal.
pub(crate) struct Progress {
    shown: bool,
    on: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { shown: false, on: io::stderr().is_terminal() && !dumb }
    }

    /// Replaces the line.
    pub(crate) fn show(&mut self, text: &str) {
        if self.on {
            let width = terminal_size::terminal_size_of(io::stderr())
                .map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0));
            // A line that wraps could not be cleared.
            let text = fit(text, width.saturating_sub(1));
            // Back to the start of the line and clear it; progress that is lost is no error.
            let _ = write!(io::stderr(), "\r\x1b[K{}", text.trim_end());
            let _ = io::stderr().flush();
            self.shown = true;
        }
    }

    /// Takes the line away, so that a result can be written in its place.
    pub(crate) fn clear(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
            let _ = io::stderr().flush();
            self.shown = false;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// `text` in exactly `width` characters, cut with `…` if it is longer.
pub(crate) fn fit(text: &str, width: usize) -> String {
    let len = text.chars().count();
    if len <= width {
        return format!("{text:width$}");
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// The words of `text` in lines of at most `width` characters; a longer word has its own line.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_padded_or_cut() {
        assert_eq!(fit("ab", 4), "ab  ");
        assert_eq!(fit("αβγδ", 4), "αβγδ");
        assert_eq!(fit("αβγδε", 4), "αβγ…");
    }

    #[test]
    fn words_are_wrapped() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a longword b", 3), ["a", "longword", "b"]);
        assert_eq!(wrap("", 3), [""; 0]);
    }

    #[test]
    fn without_colour_there_are_no_escapes() {
        let plain = Terminal { width: 80, colour: false };
        assert_eq!(plain.red("off"), "off");
        assert!(Terminal { colour: true, ..plain }.red("off").contains("\x1b["));
    }
}
