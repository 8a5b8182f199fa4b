//! How training goes, on standard error: one line that renews itself on a terminal, a plain line
//! now and then elsewhere, nothing when asked to be quiet.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One line that renews itself.
    Line,
    /// A line now and then.
    Plain,
    /// Nothing but warnings.
    Quiet,
}

impl Mode {
    /// By what standard error is.
    pub fn detect(quiet: bool) -> Self {
        match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Self::Quiet,
            (false, true) => Self::Line,
            (false, false) => Self::Plain,
        }
    }
}

/// What there is to tell after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Now {
    /// Steps done.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// Loss of the last batch.
    pub loss: f64,
    /// The last value of the validation metric that decides.
    pub val: Option<f64>,
    /// Learning rate.
    pub lr: f64,
    /// Norm of the gradient, before clipping.
    pub gradient_norm: f64,
    /// Speed of the last steps.
    pub tokens_per_second: f64,
    /// Share of the machine's peak that is used.
    pub share_of_peak: Option<f64>,
    /// Until the end.
    pub seconds_left: Option<f64>,
}

/// Who tells.
pub struct Progress {
    mode: Mode,
    out: Box<dyn Write + Send>,
    /// When something was last shown.
    shown: Option<Instant>,
    /// Is there a line to be renewed?
    line: bool,
    /// Does it say what goes on between two steps?
    passing: bool,
}

impl Progress {
    /// Tells standard error.
    pub fn new(mode: Mode) -> Self {
        Self::to(mode, Box::new(std::io::stderr()))
    }

    /// Tells `out`.
    pub fn to(mode: Mode, out: Box<dyn Write + Send>) -> Self {
        Self { mode, out, shown: None, line: false, passing: false }
    }

    /// Shows `now` if it is time.
    pub fn update(&mut self, now: &Now) {
        let pause = match self.mode {
            Mode::Quiet => return,
            Mode::Line => Duration::from_millis(100), // ten times a second looks alive
            Mode::Plain => Duration::from_secs(10),
        };
        let due = self.shown.is_none_or(|shown| shown.elapsed() >= pause);
        if due || now.step == now.steps {
            self.show(now);
        }
    }

    /// Shows `now`.
    pub fn show(&mut self, now: &Now) {
        self.shown = Some(Instant::now());
        match self.mode {
            Mode::Quiet => {}
            Mode::Line => {
                let text = line(now, columns());
                let _ = write!(self.out, "\r{text}\x1b[K"); // the rest of the old line is erased
                let _ = self.out.flush();
                (self.line, self.passing) = (true, false);
            }
            Mode::Plain => {
                let _ = writeln!(self.out, "{}", line(now, usize::MAX));
            }
        }
    }

    /// Says what is going on between two steps, on the renewed line only.
    pub fn activity(&mut self, text: &str) {
        if self.mode == Mode::Line {
            let text: String = text.chars().take(columns().saturating_sub(1)).collect();
            let _ = write!(self.out, "\r{text}\x1b[K");
            let _ = self.out.flush();
            (self.line, self.passing) = (true, true);
        }
    }

    /// Prints lines that stay.
    pub fn message(&mut self, text: &str) {
        if self.mode != Mode::Quiet {
            self.print(text);
        }
    }

    /// Prints a warning, even when quiet.
    pub fn warning(&mut self, message: &str, hint: &str) {
        self.print(&format!("warning: {message}\nhint: {hint}"));
    }

    fn print(&mut self, text: &str) {
        self.erase();
        let _ = writeln!(self.out, "{text}");
        let _ = self.out.flush();
    }

    fn erase(&mut self) {
        if std::mem::take(&mut self.line) {
            let _ = write!(self.out, "\r\x1b[K");
        }
    }

    /// Leaves the last line standing and moves below it.
    pub fn finish(&mut self) {
        if self.passing {
            self.erase();
        }
        if std::mem::take(&mut self.line) {
            let _ = writeln!(self.out);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The width of the terminal behind standard error.
fn columns() -> usize {
    terminal_size::terminal_size_of(std::io::stderr()).map_or(80, |(width, _)| width.0.into())
}

/// `now` in at most `columns` − 1 characters: what matters least is left away first.
pub fn line(now: &Now, columns: usize) -> String {
    let share = now.step as f64 / now.steps.max(1) as f64;
    // (how much it matters, text); shown in this order.
    let mut parts: Vec<(u32, String)> = vec![
        (9, format!("step {}/{}", now.step, now.steps)),
        (3, bar(share)),
        (10, format!("loss {:.4}", now.loss)),
    ];
    if let Some(val) = now.val {
        parts.push((7, format!("val {val:.4}")));
    }
    parts.push((5, format!("lr {:.2e}", now.lr)));
    parts.push((4, format!("grad {:.2}", now.gradient_norm)));
    parts.push((6, format!("{} tok/s", short(now.tokens_per_second))));
    if let Some(share) = now.share_of_peak {
        parts.push((2, format!("{:.0}% of peak", 100.0 * share)));
    }
    if let Some(seconds) = now.seconds_left {
        parts.push((8, format!("{} left", duration(seconds))));
    }
    loop {
        let text = parts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("  ");
        if text.chars().count() < columns {
            return text;
        }
        if parts.len() == 1 {
            return text.chars().take(columns.saturating_sub(1)).collect();
        }
        let least = (0..parts.len()).min_by_key(|&i| parts[i].0).unwrap_or(0);
        parts.remove(least);
    }
}

/// A bar of ten cells.
fn bar(share: f64) -> String {
    let full = (share * 10.0) as usize;
    format!("{}{} {:3.0}%", "━".repeat(full), "┄".repeat(10 - full.min(10)), 100.0 * share)
}

/// 1234567 → 1.23M
pub fn short(x: f64) -> String {
    for (unit, letter) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if x >= unit {
            let x = x / unit;
            let digits = if x < 10.0 { 2 } else { usize::from(x < 100.0) };
            return format!("{x:.digits$}{letter}");
        }
    }
    format!("{x:.0}")
}

/// 3725 s → 1h 02m
pub fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    let mut text = String::new();
    let _ = match s {
        0..60 => write!(text, "{s}s"),
        60..3600 => write!(text, "{}m {:02}s", s / 60, s % 60),
        3600..86400 => write!(text, "{}h {:02}m", s / 3600, s / 60 % 60),
        _ => write!(text, "{}d {:02}h", s / 86400, s / 3600 % 24),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    const NOW: Now = Now {
        step: 1200,
        steps: 2000,
        loss: 1.92341,
        val: Some(1.95),
        lr: 6.2e-4,
        gradient_norm: 0.84,
        tokens_per_second: 61_234.0,
        share_of_peak: Some(0.43),
        seconds_left: Some(75.0),
    };

    #[test]
    fn a_wide_terminal_shows_everything() {
        assert_eq!(
            line(&NOW, 200),
            "step 1200/2000  ━━━━━━┄┄┄┄  60%  loss 1.9234  val 1.9500  lr 6.20e-4  grad 0.84  \
             61.2k tok/s  43% of peak  1m 15s left"
        );
    }

    #[test]
    fn narrow_terminals_get_what_matters_and_never_two_lines() {
        assert_eq!(line(&NOW, 50), "step 1200/2000  loss 1.9234  1m 15s left");
        assert_eq!(line(&NOW, 15), "loss 1.9234");
        for columns in 0..200 {
            assert!(line(&NOW, columns).chars().count() <= columns.saturating_sub(1));
        }
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);
    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn told(mode: Mode) -> String {
        let out = Shared::default();
        let mut progress = Progress::to(mode, Box::new(out.clone()));
        progress.show(&NOW);
        progress.message("a message");
        progress.warning("odd", "do this");
        drop(progress);
        String::from_utf8(out.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn modes_differ_in_how_much_they_say() {
        assert_eq!(told(Mode::Quiet), "warning: odd\nhint: do this\n");
        let plain = told(Mode::Plain);
        assert!(plain.starts_with("step 1200/2000") && !plain.contains('\x1b'), "{plain}");
        assert!(plain.contains("left\na message\nwarning: odd\n"), "{plain}");
        let line = told(Mode::Line);
        assert!(line.contains("\x1b[K") && line.contains("\r\x1b[Ka message\n"), "{line:?}");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 999.0, 1234.0, 61_234.0, 1e6].map(short),
            ["0", "999", "1.23k", "61.2k", "1.00M"]
        );
        assert_eq!(
            [0.4, 59.6, 3725.0, 90_000.0].map(duration),
            ["0s", "1m 00s", "1h 02m", "1d 01h"]
        );
    }
}
