//! What is asked of a study.

use crate::study::Study;
use hearken_base::{Error, Kind, Result};
use hearken_show::number::duration;
use hearken_train::interrupt::Stop;
use hearken_train::progress::Mode;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// What is asked of a study.
#[derive(Clone, Debug)]
pub struct Request {
    /// Small enough for a few minutes.
    pub quick: bool,
    /// Who takes part, in the study's order: [`Study::choose`].
    pub contenders: Vec<&'static str>,
    /// The share of its steps for which each contender trains, 1 for all: less is a sketch.
    pub effort: f64,
    /// How many seeds; 0 for as many as the study wants.
    pub seeds: usize,
    /// The first of them.
    pub seed: u64,
    /// A text of the user's own, for studies that read one; generated stories, if there is none.
    pub data: Vec<PathBuf>,
    /// No more than this, or an error before anything is trained.
    pub most_seconds: Option<f64>,
    /// How progress is shown.
    pub progress: Mode,
    /// Stops between two steps once it is set.
    pub stop: Stop,
}

impl Request {
    /// All contenders, in full, shown as standard error allows.
    pub fn new(study: &Study) -> Self {
        Self {
            quick: false,
            contenders: study.contenders.iter().map(|contender| contender.name).collect(),
            effort: 1.0,
            seeds: 0,
            seed: 1337,
            data: Vec::new(),
            most_seconds: None,
            progress: Mode::detect(false),
            stop: Stop::default(),
        }
    }

    /// `quick` or `full`, whichever applies.
    pub fn sized<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// So many steps, or fewer with less effort; at least one.
    pub fn steps(&self, steps: u64) -> u64 {
        ((steps as f64 * self.effort).round() as u64).max(1)
    }

    /// Does this contender take part?
    pub fn has(&self, contender: &str) -> bool {
        self.contenders.contains(&contender)
    }

    /// The seeds: as many as were asked for, or else `quick` or `full`.
    pub fn seeds(&self, quick: usize, full: usize) -> Vec<u64> {
        let count = if self.seeds > 0 { self.seeds } else { self.sized(quick, full) };
        (0..count as u64).map(|i| self.seed.wrapping_add(i)).collect()
    }

    /// An error, once it should stop.
    pub fn go_on(&self) -> Result<()> {
        if self.stop.load(Ordering::SeqCst) {
            return Err(Error::of(Kind::Io(ErrorKind::Interrupted), "stopped", ""));
        }
        Ok(())
    }

    /// Says how long it will take, or refuses if that is more than there is time for. To be called
    /// before anything is trained.
    pub fn announce(&self, seconds: f64) -> Result<()> {
        if let Some(most) = self.most_seconds
            && seconds > most
        {
            let hint = if self.quick {
                "give it more time, fewer contenders (--only) or less effort (--effort)"
            } else {
                "give it more time, use --quick, or fewer contenders (--only)"
            };
            return Err(Error::new(
                format!(
                    "this takes about {} here, and there is time for {}",
                    duration(seconds),
                    duration(most)
                ),
                hint,
            ));
        }
        if self.progress != Mode::Quiet {
            hearken_show::say!("about {} on this machine", duration(seconds));
        }
        Ok(())
    }
}
