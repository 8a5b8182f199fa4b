//! The numbers of a run, one JSON object a line: `metrics.jsonl` for every step, and
//! `diagnostics.jsonl` for looks inside and warnings.
//!
//! Numbers are written with as many digits as it takes to read back the same bits. When a run is
//! resumed the files are cut back to the checkpoint's step, so that in the end they hold what an
//! uninterrupted run would have written, timings aside.

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

use crate::diagnose::Kind;
use crate::error;
use crate::evaluation::Metric;
use hearken_base::Result;
use hearken_store::disk;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// A line of `metrics.jsonl`. What was not measured, or is not finite, is `null` or missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Steps done.
    pub step: u64,
    /// Loss of the last step's batch, before its update.
    pub train_loss: Option<f64>,
    /// Metrics on the validation set after the update, the deciding one first: at the end on all of
    /// it, on the way on a sample. Each is a key `val_<name>`.
    #[serde(flatten, with = "scores")]
    pub validation: Vec<Score>,
    /// Learning rate of the last step.
    pub lr: f64,
    /// Norm of the last step's gradient, before clipping; 0 if no target was counted.
    pub grad_norm: Option<f64>,
    /// Speed of the last step, evaluation and saving aside.
    pub tokens_per_second: f64,
    /// Time since the run began, without the time between being stopped and resumed.
    pub elapsed_seconds: f64,
}

/// Of one evaluation: far above what any task has.
const MOST_METRICS: usize = 1000;

/// A validation metric in a [`Row`]. At least one of the numbers is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The metric's name.
    pub name: String,
    /// Its value on all that was looked at.
    pub value: Option<f64>,
    /// Its value on the sample, where that differs.
    pub sample: Option<f64>,
}

impl Score {
    /// `None` if neither number is finite.
    pub fn of(metric: &Metric) -> Option<Self> {
        let sample = finite(metric.sample).filter(|_| metric.sample != metric.value);
        let score = Self { name: metric.name.clone(), value: finite(metric.value), sample };
        score.is_measured().then_some(score)
    }

    /// The value that can be compared with other evaluations of the run.
    pub fn compared(&self) -> Option<f64> {
        self.sample.or(self.value)
    }

    fn is_measured(&self) -> bool {
        self.value.is_some() || self.sample.is_some()
    }
}

/// The training loss at the end: the mean of the last tenth of the steps, and how many these are. The
/// loss of one batch says little.
pub fn final_training_loss(rows: &[Row]) -> Option<(usize, f64)> {
    let last = rows.get(rows.len() - rows.len().div_ceil(10)..)?;
    let losses: Vec<f64> = last.iter().filter_map(|row| row.train_loss).collect();
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    mean.is_finite().then_some((losses.len(), mean))
}

impl Row {
    /// The validation metric of this name.
    pub fn score(&self, name: &str) -> Option<&Score> {
        self.validation.iter().find(|score| score.name == name)
    }

    /// The value of a validation metric.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.score(name)?.value
    }

    /// Was the step skipped because no target was counted? Gradients that are not finite have no norm.
    pub fn counted_nothing(&self) -> bool {
        self.train_loss.is_none() && self.grad_norm == Some(0.0)
    }
}

/// Scores as the keys `val_<name>` and, where it differs, `val_sample_<name>`. A line without scores
/// has `val_loss` still, as `null`: every line had it when there were no other metrics.
mod scores {
    use super::{MOST_METRICS, Score};
    use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
    use serde::ser::SerializeMap;
    use serde::{Deserializer, Serializer};
    use std::fmt;

    pub(super) fn serialize<S: Serializer>(scores: &[Score], to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        if scores.is_empty() {
            map.serialize_entry("val_loss", &None::<f64>)?;
        }
        for Score { name, value, sample } in scores {
            map.serialize_entry(&format!("val_{name}"), value)?;
            if sample.is_some() {
                map.serialize_entry(&format!("val_sample_{name}"), sample)?;
            }
        }
        map.end()
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Score>, D::Error> {
        from.deserialize_map(Keys)
    }

    struct Keys;
    impl<'de> Visitor<'de> for Keys {
        type Value = Vec<Score>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("metrics by name")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut scores: Vec<Score> = Vec::new();
            while let Some(key) = map.next_key::<String>()? {
                let Some(name) = key.strip_prefix("val_") else {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                };
                let number = map.next_value::<Option<f64>>()?;
                let (name, is_sample) = match name.strip_prefix("sample_") {
                    Some(name) => (name, true),
                    None => (name, false),
                };
                let known = scores.iter().position(|score| score.name == name);
                let mut score = match known {
                    Some(i) => scores.remove(i),
                    None => Score { name: name.to_owned(), value: None, sample: None },
                };
                *if is_sample { &mut score.sample } else { &mut score.value } = number;
                scores.insert(known.unwrap_or(scores.len()), score);
                if scores.len() > MOST_METRICS {
                    return Err(A::Error::custom(format!("more than {MOST_METRICS} metrics")));
                }
            }
            scores.retain(Score::is_measured);
            Ok(scores)
        }
    }
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
    pub fn open(path: &Path, step: u64) -> Result<Self> {
        if path.exists() {
            hearken_store::files::open(path)?; // a regular file, or reading might never end
        }
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(error::io("open", path))?;
        let (rows, length) = read_until(&mut file, step).map_err(error::io("read", path))?;
        file.set_len(length).map_err(error::io("write", path))?;
        Ok(Self { path: path.to_owned(), file, rows })
    }

    /// All whole lines of `path`, which is left as it is.
    pub fn read(path: &Path) -> Result<Vec<T>> {
        let mut file = hearken_store::files::open(path)?;
        let (rows, _) = read_until(&mut file, u64::MAX).map_err(error::io("read", path))?;
        Ok(rows)
    }

    /// Adds a line. One write per line: another program that reads along sees whole lines.
    pub fn push(&mut self, row: T) -> Result<()> {
        let line = serde_json::to_vec(&row);
        let mut line = line.map_err(|e| error::io("write", &self.path)(e.into()))?;
        line.push(b'\n');
        disk::write(&mut self.file, &line).map_err(error::io("write", &self.path))?;
        self.rows.push(row);
        Ok(())
    }

    /// All lines so far.
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    /// Forces all lines to disk.
    pub fn sync(&self) -> Result<()> {
        disk::sync(&self.file).map_err(error::io("write", &self.path))
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
    use crate::evaluation::Better;
    use std::fs;

    fn row(step: u64) -> Row {
        Row {
            step,
            train_loss: finite(0.1 + 0.2),
            validation: Score::of(&Metric::loss(f64::NAN)).into_iter().collect(),
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
    fn metrics_are_keys_and_come_back_in_their_order() {
        let metrics = [
            Metric::loss(2.5).with_sample(2.25),
            Metric::new("accuracy", Better::Higher, 0.5),
            Metric::new("bleu", Better::Higher, f64::NAN),
            Metric::new("ece", Better::Lower, f64::NAN).with_sample(0.125),
        ];
        let validation: Vec<Score> = metrics.iter().filter_map(Score::of).collect();
        let row = Row { validation, ..row(3) };
        let text = serde_json::to_string(&row).unwrap();
        let keys = "\"val_loss\":2.5,\"val_sample_loss\":2.25,\"val_accuracy\":0.5,\"val_ece\":null,\
                    \"val_sample_ece\":0.125,\"lr\"";
        assert!(text.contains(keys), "{text}");
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), row);
        assert_eq!(
            (row.value("accuracy"), row.value("bleu"), row.value("ece")),
            (Some(0.5), None, None)
        );
        assert_eq!(row.score("loss").unwrap().compared(), Some(2.25));
    }

    #[test]
    fn lines_from_when_there_was_only_the_loss_are_read() {
        let line = |rest: &str| {
            let end =
                "\"lr\":1e-3,\"grad_norm\":1.0,\"tokens_per_second\":1.0,\"elapsed_seconds\":1.0}";
            let text = format!("{{\"step\":7,\"train_loss\":2.0,{rest}{end}");
            serde_json::from_str::<Row>(&text).unwrap().validation
        };
        assert_eq!(line("\"val_loss\":null,"), []);
        assert_eq!(line("\"val_loss\":3.0,"), [Score::of(&Metric::loss(3.0)).unwrap()]);
        let both = Score::of(&Metric::loss(3.0).with_sample(4.0)).unwrap();
        assert_eq!(line("\"val_loss\":3.0,\"val_sample_loss\":4.0,"), [both]);
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
