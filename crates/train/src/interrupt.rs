//! Ctrl-C: once to stop after the step with a checkpoint, twice to stop at once. Before training
//! there is nothing to lose: once is enough, with a moment to take away what was begun.
//!
//! The functions are there with the feature `interrupt`, which is on by default; a library that does
//! not own the process is built without.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Asks the loop to stop after its step.
pub type Stop = Arc<AtomicBool>;

/// The exit code of a program ended by Ctrl-C: 128 and the number of the signal.
pub const EXIT_CODE: i32 = 130;

#[cfg(feature = "interrupt")]
pub use handler::{install, prepare, prepare_saying};

#[cfg(feature = "interrupt")]
mod handler {
    use super::{EXIT_CODE, Stop};
    use hearken_base::{Error, Result};
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    /// How long preparing has to take away what it began; some of it cannot be stopped.
    const MOMENT: Duration = Duration::from_secs(2);

    /// Has training begun?
    static TRAINING: AtomicBool = AtomicBool::new(false);
    /// What is said on Ctrl-C before it has.
    static WORD: OnceLock<&str> = OnceLock::new();

    /// Makes Ctrl-C (and a polite kill) set a flag; the second one ends the program. Can be called
    /// several times and gives the same flag.
    pub fn install() -> Result<Stop> {
        let stop = watch()?;
        TRAINING.store(true, Ordering::SeqCst);
        Ok(stop)
    }

    /// Until [`install`] is called, Ctrl-C sets the flag and ends the program a moment later, with a
    /// word about it.
    pub fn prepare() -> Result<Stop> {
        prepare_saying("stopped before training began; the same command starts again")
    }

    /// As [`prepare`], with a word of one's own. Only the first of several words counts.
    pub fn prepare_saying(word: &'static str) -> Result<Stop> {
        WORD.get_or_init(|| word);
        watch()
    }

    fn watch() -> Result<Stop> {
        static STOP: OnceLock<Stop> = OnceLock::new();
        if let Some(stop) = STOP.get() {
            return Ok(stop.clone());
        }
        let stop = STOP.get_or_init(Stop::default).clone();
        let flag = stop.clone();
        ctrlc::set_handler(move || {
            // Unlike `eprintln!`, no panic if nobody reads.
            let say = |text| drop(writeln!(std::io::stderr(), "\n{text}"));
            if !TRAINING.load(Ordering::SeqCst) {
                say(WORD.get().copied().unwrap_or("stopped"));
                flag.store(true, Ordering::SeqCst);
                std::thread::sleep(MOMENT);
                if !TRAINING.load(Ordering::SeqCst) {
                    std::process::exit(EXIT_CODE);
                }
                return; // training has just begun, and sees the flag
            }
            if flag.swap(true, Ordering::SeqCst) {
                say("stopped at once; --resume continues from the last checkpoint");
                std::process::exit(EXIT_CODE);
            }
            say("stopping after this step, with a checkpoint; again to stop at once");
        })
        .map_err(|error| Error::new(format!("cannot watch for Ctrl-C: {error}"), "report this"))?;
        Ok(stop)
    }
}
