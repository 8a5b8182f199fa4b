//! The numbers of a run, one JSON object a line: `metrics.jsonl` for every step, and
//! `diagnostics.jsonl` for looks inside and warnings.
//!
//! Numbers are written with as many digits as it takes to read back the same bits. When a run is
//! resumed the files are cut back to the checkpoint's step, so that in the end they hold what an
//! uninterrupted run would have written, timings aside.

use crate::diagnose::Kind;
use crate::error::Error;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// A line of `metrics.jsonl`. What was not measured, or is not finite, is `null`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Steps done.
    pub step: u64,
    /// Loss of the last step's batch, before its update.
    pub train_loss: Option<f64>,
    /// Loss on the validation set after the update: at the end on all of it, on the way on a sample.
    pub val_loss: Option<f64>,
    /// The loss on the sample, where `val_loss` is that on everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_sample_loss: Option<f64>,
    /// Learning rate of the last step.
    pub lr: f64,
    /// Norm of the last step's gradient, before clipping.
    pub grad_norm: Option<f64>,
    /// Speed of the last step, evaluation and saving aside.
    pub tokens_per_second: f64,
    /// Time since the run began, without the time between being stopped and resumed.
    pub elapsed_seconds: f64,
}

/// A line of `diagnostics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Entry {
    /// A look inside.
    Layers {
        /// Steps done.
        step: u64,
        /// Names of the groups of parameters.
        layers: Vec<String>,
        /// Norm of each one's gradient, before clipping.
        gradient_norm: Vec<Option<f64>>,
        /// ‖Δθ‖/‖θ‖ of each.
        update_ratio: Vec<Option<f64>>,
        /// Names of the layers with attention.
        #[serde(default)]
        attention_layers: Vec<String>,
        /// Mean entropy of each one's heads, in nats.
        #[serde(default)]
        attention_entropy: Vec<Option<f64>>,
    },
    /// Something looked wrong.
    Warning {
        /// Steps done.
        step: u64,
        /// What kind.
        about: Kind,
        /// What.
        message: String,
        /// What to change.
        hint: String,
    },
}

/// Something that belongs to a step.
pub trait Dated: Serialize + DeserializeOwned {
    /// Steps done.
    fn step(&self) -> u64;
}

impl Dated for Row {
    fn step(&self) -> u64 {
        self.step
    }
}

impl Dated for Entry {
    fn step(&self) -> u64 {
        match self {
            Self::Layers { step, .. } | Self::Warning { step, .. } => *step,
        }
    }
}

/// A file of dated lines that is appended to.
pub struct Log<T> {
    path: PathBuf,
    file: File,
    rows: Vec<T>,
}

impl<T: Dated> Log<T> {
    /// Opens `path`, keeping the lines up to `step` and nothing after them.
    pub fn open(path: &Path, step: u64) -> Result<Self, Error> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(Error::io("open", path))?;
        let (rows, length) = read_until(&mut file, step).map_err(Error::io("read", path))?;
        file.set_len(length).map_err(Error::io("write", path))?;
        Ok(Self { path: path.to_owned(), file, rows })
    }

    /// Adds a line. One write per line: another program that reads along sees whole lines.
    pub fn push(&mut self, row: T) -> Result<(), Error> {
        let mut line = serde_json::to_vec(&row).expect("rows are plain data");
        line.push(b'\n');
        self.file.write_all(&line).map_err(Error::io("write", &self.path))?;
        self.rows.push(row);
        Ok(())
    }

    /// All lines so far.
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    /// Forces all lines to disk.
    pub fn sync(&self) -> Result<(), Error> {
        self.file.sync_all().map_err(Error::io("write", &self.path))
    }
}

/// The lines up to `step`, and where they end. A line that was not written whole ends them too.
fn read_until<T: Dated>(file: &mut File, step: u64) -> std::io::Result<(Vec<T>, u64)> {
    let (mut rows, mut length) = (Vec::new(), 0);
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = reader.read_until(b'\n', &mut line)? as u64;
        let whole = line.last() == Some(&b'\n');
        let row = if whole { serde_json::from_slice::<T>(&line).ok() } else { None };
        let Some(row) = row.filter(|row| row.step() <= step) else {
            return Ok((rows, length));
        };
        rows.push(row);
        length += n;
    }
}

/// A number as JSON has it: `None` if it is not finite.
pub fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

/// Numbers as JSON has them.
pub fn all_finite(x: &[f64]) -> Vec<Option<f64>> {
    x.iter().copied().map(finite).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn row(step: u64) -> Row {
        Row {
            step,
            train_loss: finite(0.1 + 0.2),
            val_loss: finite(f64::NAN),
            val_sample_loss: None,
            lr: 1e-3,
            grad_norm: Some(f64::from(0.1_f32)),
            tokens_per_second: 1e5,
            elapsed_seconds: 1.5,
        }
    }

    #[test]
    fn lines_are_cut_back_to_the_step_and_read_back_with_their_bits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut log = Log::open(&path, 0).unwrap();
        (1..=5).for_each(|step| log.push(row(step)).unwrap());
        let whole = fs::read_to_string(&path).unwrap();
        assert!(whole.starts_with(
            "{\"step\":1,\"train_loss\":0.30000000000000004,\"val_loss\":null,\"lr\":0.001,\
             \"grad_norm\":0.10000000149011612,"
        ));
        let log = Log::<Row>::open(&path, 3).unwrap();
        assert_eq!(log.rows(), [row(1), row(2), row(3)]);
        let want: String = whole.split_inclusive('\n').take(3).collect();
        assert_eq!(fs::read_to_string(&path).unwrap(), want);
    }

    #[test]
    fn a_line_cut_off_by_a_crash_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        Log::open(&path, 0).unwrap().push(row(1)).unwrap();
        let mut text = fs::read_to_string(&path).unwrap();
        let whole = text.len() as u64;
        text.push_str("{\"step\":2,\"train");
        fs::write(&path, &text).unwrap();
        let mut log = Log::<Row>::open(&path, 9).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), whole);
        log.push(row(2)).unwrap();
        assert_eq!(Log::<Row>::open(&path, 9).unwrap().rows(), [row(1), row(2)]);
    }
}
