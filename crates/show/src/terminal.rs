//! What the terminal can show: its width and its colours, and text that fits it.

use std::borrow::Cow;
use std::env;
use std::io::{self, IsTerminal};
use std::path::Path;

/// Writes a line to stderr, as `eprintln!` does. That nobody reads it any more, as in
/// `hearken train 2>&1 | head -1`, is no reason to stop, where `eprintln!` would panic. Control
/// characters, which may come from a file, are made [visible](crate::terminal::visible).
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        let text = format!($($text)*);
        let text = $crate::terminal::visible(&text);
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{text}\n"));
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

/// `text` without characters that command a terminal: an escape sequence in a name or in generated
/// text could rewrite what is on the screen, or what is pasted from it. Lines and tabs stay; others
/// become `\u{1b}` and the like. So do characters that turn the direction of writing around.
pub fn visible(text: &str) -> Cow<'_, str> {
    replaced(text, |c, shown| shown.extend(c.escape_unicode()))
}

/// JSON without characters that command a terminal, as [`visible`] has it: they become `\u001b` and
/// the like, which stands for the same text.
pub fn visible_json(json: &str) -> Cow<'_, str> {
    replaced(json, |c, shown| {
        // None of them lies beyond 16 bits.
        let digit = |place: u32| char::from_digit(u32::from(c) >> (4 * place) & 15, 16);
        shown.extend(['\\', 'u']);
        shown.extend([3, 2, 1, 0].into_iter().filter_map(digit));
    })
}

/// The name of a file, [`visible`].
pub fn visible_path(path: &Path) -> String {
    visible(&path.display().to_string()).into_owned()
}

fn replaced(text: &str, replace: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let is_hidden = |c: char| {
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        turns || c.is_control() && c != '\n' && c != '\t'
    };
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden(c) { replace(c, &mut shown) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// `text` as it is, or [`visible`] if it goes to a terminal.
pub fn seen(text: &str, on_terminal: bool) -> Cow<'_, str> {
    if on_terminal { visible(text) } else { Cow::Borrowed(text) }
}

/// `text` and blanks up to `width` characters, on the side that is given. Unlike `{text:width$}`, which
/// panics beyond 65,535, for any width.
pub(crate) fn padded(text: &str, width: usize, right: bool) -> String {
    let blanks = " ".repeat(width.saturating_sub(text.chars().count()));
    if right { blanks + text } else { text.to_owned() + &blanks }
}

/// `text` in exactly `width` characters, cut with `…` if it is longer.
pub fn fit(text: &str, width: usize) -> String {
    let len = text.chars().count();
    if len <= width {
        return padded(text, width, false);
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// As [`fit`], but a longer text is cut at its beginning: for names that differ in their ends.
pub fn fit_end(text: &str, width: usize) -> String {
    let len = text.chars().count();
    if len <= width {
        return padded(text, width, false);
    }
    let kept: String = text.chars().skip(len + 1 - width.max(1)).collect();
    format!("…{kept}")
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
        assert_eq!([fit_end("ab", 4), fit_end("αβγδ", 4)], ["ab  ", "αβγδ"]);
        assert_eq!(fit_end("αβγδε", 4), "…γδε");
    }

    #[test]
    fn commands_to_the_terminal_are_made_visible() {
        assert_eq!(visible("\x1b[2Jgone\r\n\tα"), "\\u{1b}[2Jgone\\u{d}\n\tα");
        assert_eq!(visible("\u{9b}31m\u{7f}\u{202e}"), "\\u{9b}31m\\u{7f}\\u{202e}");
        assert!(matches!(visible("plain – text\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn any_width_can_be_filled() {
        let name = "x".repeat(70_000);
        assert_eq!(fit(&name, 70_001).len(), 70_001);
        assert_eq!(padded("1", 70_000, true).len(), 70_000);
    }

    #[test]
    fn words_are_wrapped() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a longword b", 3), ["a", "longword", "b"]);
        assert_eq!(wrap("", 3), [""; 0]);
    }

    #[test]
    fn json_stays_the_same_json() {
        let shown = visible_json("{\"text\": \"a\u{9b}2J\u{202e}é\u{7f}\"}");
        assert_eq!(shown, r#"{"text": "a\u009b2J\u202eé\u007f"}"#);
    }

    #[test]
    fn without_colour_there_are_no_escapes() {
        let plain = Terminal { width: 80, colour: false };
        assert_eq!(plain.red("off"), "off");
        assert!(Terminal { colour: true, ..plain }.red("off").contains("\x1b["));
    }
}
