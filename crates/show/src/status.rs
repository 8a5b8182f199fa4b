//! A line on stderr that says what is going on and renews itself, drawn by `indicatif`.
//!
//! Where a line cannot be renewed (no terminal, or a dumb one) nothing is drawn. Output that nobody
//! reads any more is lost without a word: it is no reason to stop working.

use crate::terminal::{fit, stderr_renews, stderr_width, visible};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// A line that says what is going on. It is taken away when dropped.
pub struct StatusLine {
    /// `None` where a line cannot be renewed.
    out: Option<Stream>,
    bar: Option<ProgressBar>,
}

impl Default for StatusLine {
    fn default() -> Self {
        Self::new()
    }
}

impl StatusLine {
    /// On stderr, if that is a terminal.
    pub fn new() -> Self {
        let out = stderr_renews().then(|| Stream::new(Box::new(io::stderr())));
        Self { out, bar: None }
    }

    /// On `out`, which takes a terminal's control characters.
    pub fn on(out: Box<dyn Write + Send>) -> Self {
        Self { out: Some(Stream::new(out)), bar: None }
    }

    /// How many characters the line can show.
    pub fn room(&self) -> usize {
        stderr_width().saturating_sub(1)
    }

    /// Replaces the line. What does not fit is cut, since a line that wraps could not be renewed.
    pub fn show(&mut self, text: &str) {
        let Some(out) = &self.out else { return };
        let text = visible(text.lines().next().unwrap_or(""));
        let text = fit(&text, self.room()).trim_end().to_owned();
        let bar = self.bar.get_or_insert_with(|| {
            let target = ProgressDrawTarget::term_like(Box::new(out.clone()));
            let style = ProgressStyle::with_template("{msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::with_draw_target(None, target).with_style(style)
        });
        bar.set_message(text);
    }

    /// Runs `write` with the line out of the way.
    pub fn above<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Takes the line away, so that a result can be written in its place.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Leaves the line standing and moves below it.
    pub fn leave(&mut self) {
        if let (Some(bar), Some(out)) = (self.bar.take(), &self.out) {
            bar.abandon();
            out.send("\n");
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A terminal as `indicatif` sees it: what is written is sent when it is flushed, all at once.
#[derive(Clone)]
struct Stream(Arc<Mutex<Buffered>>);

struct Buffered {
    out: Box<dyn Write + Send>,
    waiting: String,
}

impl Stream {
    fn new(out: Box<dyn Write + Send>) -> Self {
        Self(Arc::new(Mutex::new(Buffered { out, waiting: String::new() })))
    }

    fn send(&self, text: &str) {
        self.add(text);
        let _ = self.flush();
    }

    fn add(&self, text: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).waiting.push_str(text);
    }

    fn step(&self, n: usize, direction: char) {
        if n > 0 {
            self.add(&format!("\x1b[{n}{direction}"));
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a terminal")
    }
}

impl TermLike for Stream {
    fn width(&self) -> u16 {
        // `indicatif` divides by it, and needs room for a wide character.
        u16::try_from(stderr_width()).unwrap_or(u16::MAX).max(2)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.step(n, 'A');
        Ok(())
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.step(n, 'B');
        Ok(())
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.step(n, 'C');
        Ok(())
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.step(n, 'D');
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.add(text);
        self.add("\n");
        Ok(())
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        // `indicatif` fills lines with blanks up to the edge, which would wrap in a window that is
        // made narrower. The line was erased before, so that they are not needed.
        if !text.trim_end_matches(' ').is_empty() {
            self.add(text);
        }
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.add("\r\x1b[K");
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = std::mem::take(&mut to.waiting);
        // That nobody reads progress is no error.
        let _ = to.out.write_all(text.as_bytes()).and_then(|()| to.out.flush());
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What was written to it, readable by its clones.
    #[derive(Clone, Default)]
    pub(crate) struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Shared {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_renewed_and_taken_away() {
        let out = Shared::default();
        let mut line = StatusLine::on(Box::new(out.clone()));
        assert_eq!(out.text(), "");
        line.show("one");
        line.show("two\nlines");
        assert_eq!(out.text(), "one\r\x1b[Ktwo");
        line.clear();
        line.clear();
        assert_eq!(out.text(), "one\r\x1b[Ktwo\r\x1b[K");
        line.show("three");
        drop(line);
        assert!(out.text().ends_with("three\r\x1b[K"), "{:?}", out.text());
    }

    #[test]
    fn what_stays_is_written_above_the_line() {
        let out = Shared::default();
        let mut line = StatusLine::on(Box::new(out.clone()));
        line.show("working");
        let mut above = out.clone();
        line.above(|| writeln!(above, "a result").unwrap());
        assert_eq!(out.text(), "working\r\x1b[Ka result\nworking");
        line.leave();
        line.leave();
        drop(line);
        assert!(out.text().ends_with("\r\x1b[Kworking\n"), "{:?}", out.text());
    }

    #[test]
    fn long_text_is_cut_to_one_line() {
        let out = Shared::default();
        let mut line = StatusLine::on(Box::new(out.clone()));
        line.show(&"x".repeat(5000));
        assert_eq!(out.text().chars().count(), line.room());
    }

    #[test]
    fn a_stream_that_is_closed_is_no_error() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
        let mut line = StatusLine::on(Box::new(Closed));
        line.show("a");
        line.above(|| ());
        line.leave();
    }
}
