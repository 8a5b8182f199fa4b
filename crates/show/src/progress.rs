//! How training goes, on standard error: one line that renews itself on a terminal, a plain line
//! now and then elsewhere, nothing when asked to be quiet.

use crate::number::{duration, short};
use crate::status::StatusLine;
use crate::terminal::{stderr_renews, stderr_width, visible};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How progress is shown.
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
        match (quiet, stderr_renews()) {
            (true, _) => Self::Quiet,
            (false, true) => Self::Line,
            (false, false) => Self::Plain,
        }
    }
}

/// The numbers after a step.
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

/// Shows how training goes.
pub struct Progress {
    mode: Mode,
    /// Where lines go that stay.
    out: Box<dyn Write + Send>,
    line: StatusLine,
    /// When something was last shown.
    shown: Option<Instant>,
    /// Does the line say what goes on between two steps?
    passing: bool,
}

impl Progress {
    /// On standard error.
    pub fn new(mode: Mode) -> Self {
        Self::with(mode, Box::new(io::stderr()), StatusLine::on(Box::new(io::stderr())))
    }

    fn with(mode: Mode, out: Box<dyn Write + Send>, line: StatusLine) -> Self {
        Self { mode, out, line, shown: None, passing: false }
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
                self.line.show(&line(now, stderr_width()));
                self.passing = false;
            }
            Mode::Plain => self.print(&line(now, usize::MAX)),
        }
    }

    /// Says what is going on between two steps, on the renewed line only.
    pub fn activity(&mut self, text: &str) {
        if self.mode == Mode::Line {
            self.line.show(text);
            self.passing = true;
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
        let out = &mut self.out;
        self.line.above(|| {
            let _ = writeln!(out, "{}", visible(text)).and_then(|()| out.flush());
        });
    }

    /// Leaves the last line standing and moves below it.
    pub fn finish(&mut self) {
        if std::mem::take(&mut self.passing) {
            self.line.clear();
        }
        self.line.leave();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

/// `now` in at most `columns` − 1 characters: what matters least is dropped first.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::Shared;

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

    fn told(mode: Mode) -> String {
        let out = Shared::default();
        let line = StatusLine::on(Box::new(out.clone()));
        let mut progress = Progress::with(mode, Box::new(out.clone()), line);
        progress.show(&NOW);
        progress.message("a message");
        progress.warning("odd", "do this");
        drop(progress);
        out.text()
    }

    #[test]
    fn modes_differ_in_how_much_they_say() {
        assert_eq!(told(Mode::Quiet), "warning: odd\nhint: do this\n");
        let plain = told(Mode::Plain);
        assert!(plain.starts_with("step 1200/2000") && !plain.contains('\x1b'), "{plain}");
        assert!(plain.contains("left\na message\nwarning: odd\n"), "{plain}");
        let line = told(Mode::Line);
        assert!(line.starts_with("step 1200/2000") && line.ends_with("left\n"), "{line:?}");
        assert!(line.contains("left\r\x1b[Ka message\nstep 1200/2000"), "{line:?}");
    }

    #[test]
    fn what_goes_on_between_steps_does_not_stay() {
        let out = Shared::default();
        let line = StatusLine::on(Box::new(out.clone()));
        let mut progress = Progress::with(Mode::Line, Box::new(out.clone()), line);
        progress.activity("saving");
        progress.finish();
        drop(progress);
        assert_eq!(out.text(), "saving\r\x1b[K");
    }
}
