//! What the terminal can show: its width and its colours, and text that fits it.

use std::env;
use std::io::{self, IsTerminal};

/// Writes a line to stderr, as `eprintln!` does. That nobody reads it any more, as in
/// `hearken train 2>&1 | head -1`, is no reason to stop, where `eprintln!` would panic.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($text)*)));
    }};
}

/// How results may be shown.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Characters per line.
    pub width: usize,
    /// Are colours seen and wanted?
    pub colour: bool,
}

/// The width that results have in a pipe or a file.
const DEFAULT_WIDTH: usize = 80;

impl Terminal {
    /// The one that stdout goes to.
    pub fn stdout() -> Self {
        let width = known(terminal_size::terminal_size());
        Self { width, colour: io::stdout().is_terminal() && !set("NO_COLOR") && !is_dumb() }
    }

    /// Good news.
    pub fn green(self, text: &str) -> String {
        self.painted("32", text)
    }

    /// Bad news.
    pub fn red(self, text: &str) -> String {
        self.painted("1;31", text)
    }

    /// Headings.
    pub fn bold(self, text: &str) -> String {
        self.painted("1", text)
    }

    fn painted(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Can a line on stderr be renewed: is it a terminal that knows how to erase?
pub fn stderr_renews() -> bool {
    io::stderr().is_terminal() && !is_dumb()
}

/// Characters per line of the terminal behind stderr.
pub fn stderr_width() -> usize {
    known(terminal_size::terminal_size_of(io::stderr()))
}

/// Some terminals say 0 when they do not know their width.
fn known(size: Option<(terminal_size::Width, terminal_size::Height)>) -> usize {
    size.map(|(width, _)| usize::from(width.0)).filter(|&width| width > 0).unwrap_or(DEFAULT_WIDTH)
}

fn set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// `text` in exactly `width` characters, cut with `…` if it is longer.
pub fn fit(text: &str, width: usize) -> String {
    let len = text.chars().count();
    if len <= width {
        return format!("{text:width$}");
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// The words of `text` in lines of at most `width` characters; a longer word has its own line.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
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
