//! Saved states that survive power cuts and are verified when read.
//!
//! `checkpoints/step-000500/` holds the model's files (whatever
//! [`Task::save_model`](crate::Task::save_model) writes), `optimizer.safetensors` with the moments,
//! `trainer_state.json` with everything that is not a tensor, and `SHA256SUMS`, which
//! `sha256sum -c` reads too. `best` and `last` point at one of them.
//!
//! A checkpoint is written into a hidden directory, forced to disk file by file, and renamed: one
//! that has its name is whole, and an error or a power cut while saving leaves the earlier ones
//! as they were. What happens to files later shows in their checksums.

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

use crate::early_stopping::Evaluations;
use crate::error;
use crate::files;
use crate::optimizer::Counters;
use hearken_base::{Error, Kind, Result};
use hearken_store::{TensorFile, disk};
use hearken_tensor::Tensor;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Component, Path, PathBuf};

const STATE: &str = "trainer_state.json";
const TENSORS: &str = "optimizer.safetensors";
const SUMS: &str = "SHA256SUMS";
/// What a directory that is being written begins with.
const UNFINISHED: &str = ".unfinished-";
/// Limits for text files, far above what is ever written.
const MOST_TEXT: u64 = 16 << 20;

/// Bytes of another file of a checkpoint than weights; the largest are tokenizers.
const MOST_LISTED: u64 = 256 << 20;

/// The version of [`State`] that is written.
const FORMAT: u32 = 2;
/// The oldest that is read. Format 1 had no metrics but the loss; see
/// [`Best`](crate::early_stopping::Best).
const OLDEST_FORMAT: u32 = 1;

/// What every version of [`State`] has.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

/// Everything that the next step depends on and that is not a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Which version of this file.
    pub format: u32,
    /// Steps done.
    pub step: u64,
    /// The run's seed: with the step, the state of all random numbers.
    pub seed: u64,
    /// Which optimiser the tensors belong to.
    pub optimizer: String,
    /// Its counters.
    pub counters: Counters,
    /// The loss scale and the good steps at it; only for f16.
    pub loss_scale: Option<(f32, u32)>,
    /// The best evaluation and how long ago it was.
    pub evaluations: Evaluations,
    /// How often the averages were updated, if there are any.
    pub ema_updates: Option<u64>,
    /// Steps in a row that were skipped because a gradient was not finite.
    pub skipped: u32,
    /// Tokens seen.
    pub tokens: u64,
    /// Seconds of training.
    pub elapsed_seconds: f64,
    /// SHA-256 of the bits of all weights, in order.
    pub weights: String,
}

impl State {
    /// The version that this code writes.
    pub const FORMAT: u32 = FORMAT;
}

/// A checkpoint that was read and found whole.
pub struct Loaded {
    /// Where it is.
    pub path: PathBuf,
    /// Its state.
    pub state: State,
    /// The moments, and with averages also the weights.
    pub tensors: TensorFile,
}

/// A directory of checkpoints.
pub struct Checkpoints {
    directory: PathBuf,
}

impl Checkpoints {
    /// Opens the directory, which exists, and removes what a crash has left unfinished.
    pub fn open(directory: &Path) -> Result<Self> {
        for entry in fs::read_dir(directory).map_err(error::io("read", directory))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(Self { directory: directory.to_owned() })
    }

    /// The name of the checkpoint after `step` steps.
    pub fn name(step: u64) -> String {
        format!("step-{step:06}")
    }

    /// Where the checkpoint after `step` steps is or would be.
    pub fn path(&self, step: u64) -> PathBuf {
        self.directory.join(Self::name(step))
    }

    /// The steps of all checkpoints, rising.
    pub fn steps(&self) -> Result<Vec<u64>> {
        let entries = fs::read_dir(&self.directory).map_err(error::io("read", &self.directory))?;
        let step = |name: &str| name.strip_prefix("step-")?.parse().ok();
        let mut steps: Vec<u64> = entries
            .flatten()
            .filter_map(|entry| step(&entry.file_name().to_string_lossy()))
            .collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// Saves a checkpoint; `write_model` writes the model's files into the directory it is given.
    /// When it returns, everything is on disk and `last` points at it.
    pub fn save(
        &self,
        state: &State,
        tensors: &[(String, Tensor)],
        write_model: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let name = Self::name(state.step);
        let path = self.directory.join(&name);
        let unfinished = self.unfinished(&name);
        let written = Self::write(&unfinished, state, tensors, write_model)
            .and_then(|()| self.put_in_place(&unfinished, &path))
            .and_then(|()| files::point(&self.directory.join("last"), &name));
        if let Err(error) = written {
            let _ = fs::remove_dir_all(&unfinished);
            return Err(self.saving_failed(&path, &error));
        }
        Ok(path)
    }

    fn unfinished(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{UNFINISHED}{name}-{}", std::process::id()))
    }

    fn write(
        directory: &Path,
        state: &State,
        tensors: &[(String, Tensor)],
        write_model: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let _ = fs::remove_dir_all(directory);
        disk::create_dir(directory).map_err(error::io("create", directory))?;
        write_model(directory)?;
        files::write_tensors(&directory.join(TENSORS), tensors)?;
        let path = directory.join(STATE);
        let text =
            serde_json::to_string_pretty(state).map_err(|e| error::io("write", &path)(e.into()))?;
        disk::write_file(&path, (text + "\n").as_bytes()).map_err(error::io("write", &path))?;
        let mut sums = String::new();
        for name in list(directory)? {
            let path = directory.join(&name);
            disk::sync_path(&path).map_err(error::io("write", &path))?;
            sums += &files::checksum(&path)?;
            sums += "  ";
            sums += &name;
            sums += "\n";
        }
        let path = directory.join(SUMS);
        disk::write_file(&path, sums.as_bytes())
            .and_then(|()| disk::sync_path(&path))
            .map_err(error::io("write", &path))?;
        files::sync_directory(directory)
    }

    fn put_in_place(&self, unfinished: &Path, path: &Path) -> Result<()> {
        if path.exists() {
            // Saved before, at a step that is done again after a resume.
            let old = self.unfinished("replaced");
            let _ = fs::remove_dir_all(&old);
            disk::rename(path, &old).map_err(error::io("replace", path))?;
            disk::rename(unfinished, path).map_err(error::io("write", path))?;
            let _ = fs::remove_dir_all(&old);
        } else {
            disk::rename(unfinished, path).map_err(error::io("write", path))?;
        }
        files::sync_directory(&self.directory)
    }

    /// An error of the file system, with the checkpoint that training can be continued from; other
    /// errors as they are.
    pub fn survivors(&self, error: Error) -> Error {
        match error.kind() {
            Kind::Io(_) => self.with_survivor(error.message(), &error),
            _ => error,
        }
    }

    fn saving_failed(&self, path: &Path, error: &Error) -> Error {
        self.with_survivor(&format!("cannot save {}: {}", path.display(), error.message()), error)
    }

    /// `cause` with another message, to which the checkpoint that is whole is added.
    fn with_survivor(&self, message: &str, cause: &Error) -> Error {
        let survivor = match self.last() {
            Some(path) => format!("{} is whole", path.display()),
            None => "no checkpoint was saved before".to_owned(),
        };
        let hint = cause.hint().unwrap_or("make room, then continue with --resume");
        let error = Error::of(cause.kind(), format!("{message}\n{survivor}"), hint);
        error::with_hint_of_run(error)
    }

    /// Where the newest checkpoint is.
    pub fn last(&self) -> Option<PathBuf> {
        self.steps().ok()?.last().map(|&step| self.path(step))
    }

    /// Makes `best` point at the checkpoint after `step` steps.
    pub fn set_best(&self, step: u64) -> Result<()> {
        files::point(&self.directory.join("best"), &Self::name(step))
    }

    /// The step that `best` points at.
    pub fn best(&self) -> Option<u64> {
        files::pointed(&self.directory.join("best"))?.strip_prefix("step-")?.parse().ok()
    }

    /// Removes all but the newest `keep` and the best.
    pub fn prune(&self, keep: usize) -> Result<()> {
        let best = self.best();
        let steps = self.steps()?;
        for &step in steps.iter().take(steps.len().saturating_sub(keep)) {
            if Some(step) != best {
                // Renamed first, so that none is ever there in part.
                let gone = self.unfinished(&Self::name(step));
                let path = self.path(step);
                disk::rename(&path, &gone).map_err(error::io("remove", &path))?;
                disk::remove_dir_all(&gone).map_err(error::io("remove", &gone))?;
            }
        }
        Ok(())
    }

    /// The newest checkpoint that is whole, and what is wrong with those that are newer: these
    /// are renamed to `damaged-…`. `None` if there are no checkpoints at all.
    pub fn newest(&self) -> Result<(Option<Loaded>, Vec<Error>)> {
        let mut damaged = Vec::new();
        for step in self.steps()?.into_iter().rev() {
            let path = self.path(step);
            match load(&path) {
                Ok(loaded) => {
                    for step in self.steps()?.into_iter().filter(|&newer| newer > step) {
                        let aside = self.directory.join(format!("damaged-{}", Self::name(step)));
                        let _ = fs::remove_dir_all(&aside);
                        let _ = fs::rename(self.path(step), &aside);
                    }
                    let (last, name) = (self.directory.join("last"), Self::name(step));
                    if files::pointed(&last).as_ref() != Some(&name) {
                        files::point(&last, &name)?;
                    }
                    return Ok((Some(loaded), damaged));
                }
                Err(error) if matches!(error.kind(), Kind::Damaged | Kind::Io(_)) => {
                    damaged.push(error);
                }
                Err(other) => return Err(other),
            }
        }
        if damaged.is_empty() {
            return Ok((None, damaged));
        }
        let reasons: Vec<&str> = damaged.iter().map(Error::message).collect();
        Err(Error::of(
            Kind::Damaged,
            format!(
                "no checkpoint in {} is whole: {}",
                self.directory.display(),
                reasons.join("; ")
            ),
            "start again with another --out, or restore the directory from a copy",
        ))
    }
}

/// Reads and verifies one checkpoint.
pub fn load(path: &Path) -> Result<Loaded> {
    verify(path)?;
    let text = files::read_text(&path.join(STATE), MOST_TEXT)?;
    let unreadable = |error: serde_json::Error| error::damaged(path, format!("{STATE}: {error}"));
    let Version { format } = serde_json::from_str(&text).map_err(unreadable)?;
    if !(OLDEST_FORMAT..=FORMAT).contains(&format) {
        return Err(error::mismatch(
            path,
            format!("{STATE} has format {format}, expected {OLDEST_FORMAT} to {FORMAT}"),
            "resume with the version of hearken that wrote it, or start another run with --out",
        ));
    }
    let state: State = serde_json::from_str(&text).map_err(unreadable)?;
    let tensors = TensorFile::open(&path.join(TENSORS))?;
    Ok(Loaded { path: path.to_owned(), state, tensors })
}

/// Compares every file of a checkpoint with its checksum.
pub fn verify(path: &Path) -> Result<()> {
    verify_files(path, &[STATE, TENSORS], |_| true)
}

/// Is the model in the checkpoint what was written? What only training needs is not looked at.
/// A directory without checksums, which others have made, passes.
pub fn verify_model(path: &Path) -> Result<()> {
    if !path.join(SUMS).exists() {
        return Ok(());
    }
    verify_files(path, &[], |name| ![STATE, TENSORS].contains(&name))
}

/// Checks those of the files listed that are `wanted`; all that are `required` must be listed.
fn verify_files(path: &Path, required: &[&str], wanted: impl Fn(&str) -> bool) -> Result<()> {
    let sums = match files::read_text(&path.join(SUMS), MOST_TEXT) {
        Err(error) if error.kind() == Kind::Io(std::io::ErrorKind::NotFound) => {
            return Err(error::damaged(path, format!("{SUMS} is missing")));
        }
        other => other?,
    };
    let mut missing = required.to_vec();
    for line in sums.lines() {
        let Some((sum, name)) = line.split_once("  ") else {
            return Err(error::damaged(path, format!("{SUMS} has a malformed line: {line:?}")));
        };
        if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(error::damaged(path, format!("{SUMS} names a file outside: {name:?}")));
        }
        if !wanted(name) {
            continue;
        }
        let file = path.join(name);
        if !file.is_file() {
            return Err(error::damaged(path, format!("{name} is missing")));
        }
        // A text that is far too long is refused before it is read.
        let length = fs::metadata(&file).map_err(error::io("read", &file))?.len();
        if !name.ends_with(".safetensors") && length > MOST_LISTED {
            return Err(error::damaged(path, format!("{name} has {length} bytes")));
        }
        if files::checksum(&file)? != sum {
            return Err(error::damaged(path, format!("{name} is not what was written")));
        }
        missing.retain(|required| *required != name);
    }
    match missing.first() {
        Some(name) => Err(error::damaged(path, format!("{SUMS} does not list {name}"))),
        None => Ok(()),
    }
}

/// All files below `directory`, as relative paths with `/`, sorted.
fn list(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(inner) = pending.pop() {
        let path = directory.join(&inner);
        for entry in fs::read_dir(&path).map_err(error::io("read", &path))? {
            let entry = entry.map_err(error::io("read", &path))?;
            let name = inner.join(entry.file_name());
            if entry.path().is_dir() {
                pending.push(name);
            } else {
                let parts: Vec<_> = name.iter().map(|part| part.to_string_lossy()).collect();
                names.push(parts.join("/"));
            }
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests;
