//! `runs/NAME/`, the directory that a run leaves behind.
//!
//! ```text
//! config.toml         the configuration with all defaults filled in
//! metrics.jsonl       a line per step
//! diagnostics.jsonl   looks inside, and warnings
//! events.out.tf…      the same for TensorBoard
//! loss.svg, report.html
//! samples.txt         what the model wrote as it learned
//! checkpoints/        step-000500/, …, and best, last
//! lock                held while a process trains here
//! ```

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

use crate::error;
use crate::files;
use hearken_base::{Error, Kind, Result};
use hearken_store::disk;
use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// What a run writes.
const WRITTEN: [&str; 7] = [
    "config.toml",
    "metrics.jsonl",
    "diagnostics.jsonl",
    "loss.svg",
    "report.html",
    "samples.txt",
    "checkpoints",
];
/// Bytes of a configuration; none written by a person comes near.
const MOST_CONFIG: u64 = 16 << 20;

/// Bytes of samples: a hundred for each of a million steps, and room.
const MOST_SAMPLES: u64 = 1 << 30;

/// An open run directory. While it lives, no other process can open it.
pub struct RunDirectory {
    path: PathBuf,
    /// Is a run continued?
    resumed: bool,
    /// Was there no such directory before?
    made: bool,
    /// The lock goes with the process, however it ends.
    _lock: File,
}

impl RunDirectory {
    /// Makes a new run directory at `path`, which must not hold a run yet, nor files of others under
    /// the names that a run gives, `prepared` among them.
    pub fn create(path: &Path, prepared: &[&str]) -> Result<Self> {
        if Self::holds_run(path) && path.join("lock").exists() {
            // One that is at work is in use, and cannot be continued meanwhile.
            return Err(match Self::lock(path, true) {
                Err(error) if error.kind() == Kind::InUse => error,
                _ => Error::of(
                    Kind::Exists,
                    format!("{} already holds a run", path.display()),
                    "continue it with --resume, or choose another --out; in a program, \
                     RunDirectory::open continues it",
                ),
            });
        }
        // Where a lock is, a run has begun to prepare: the files are its own.
        let mut names = WRITTEN.iter().chain(prepared);
        if !path.join("lock").exists()
            && let Some(name) = names.find(|name| path.join(name).exists())
        {
            let file = path.join(name);
            return Err(Error::of(
                Kind::Exists,
                format!("{} is there already, and a run would overwrite it", file.display()),
                "choose another --out, a directory of its own",
            ));
        }
        check_places(path)?;
        let made = !path.exists();
        fs::create_dir_all(path.join("checkpoints")).map_err(error::io("create", path))?;
        Ok(Self { made, ..Self::lock(path, false)? })
    }

    /// Opens a run directory to continue it.
    pub fn open(path: &Path) -> Result<Self> {
        if !Self::holds_run(path) {
            return Err(nothing_to_resume(path));
        }
        check_places(path)?;
        fs::create_dir_all(path.join("checkpoints")).map_err(error::io("create", path))?;
        Self::lock(path, true)
    }

    /// Takes away what [`Self::create`] made, and the files called `prepared`, for a run that cannot
    /// begin. A directory that was there before, or has other files, stays.
    pub fn abandon(self, prepared: &[&str]) {
        if self.made {
            // What cannot be removed does no harm: the next run may begin in the same place.
            for name in prepared.iter().chain(&["lock"]) {
                let _ = fs::remove_file(self.path.join(name));
            }
            let _ = fs::remove_dir(self.path.join("checkpoints"));
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Has a run begun in `path`?
    pub fn holds_run(path: &Path) -> bool {
        path.join("config.toml").exists() || path.join("metrics.jsonl").exists()
    }

    /// The configuration that the run at `path` was started with.
    pub fn read_config(path: &Path) -> Result<String> {
        if !Self::holds_run(path) {
            return Err(nothing_to_resume(path));
        }
        files::read_text(&path.join("config.toml"), MOST_CONFIG)
    }

    fn lock(path: &Path, resumed: bool) -> Result<Self> {
        check_places(path)?;
        let name = path.join("lock");
        let mut lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&name)
            .map_err(error::io("open", &name))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let _ = lock.take(100).read_to_string(&mut owner);
                let owner = if owner.is_empty() { "process unknown" } else { owner.trim() };
                return Err(Error::of(
                    Kind::InUse,
                    format!("{} is in use by another run ({owner})", path.display()),
                    "wait for it, stop it, or choose another --out",
                ));
            }
            Err(TryLockError::Error(error)) => return Err(error::io("lock", &name)(error)),
        }
        // For people and for the message above; the lock itself is the system's.
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "process {}", std::process::id()))
            .map_err(error::io("write", &name))?;
        // The lock is ours: what looks unfinished is of a process that was killed.
        files::sweep(path);
        files::sweep(&path.join("checkpoints"));
        Ok(Self { path: path.to_owned(), resumed, made: false, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Is an earlier run continued?
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Where checkpoints are.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Replaces one of its files by one that can be made again.
    pub fn replace(&self, name: &str, content: &str) -> Result<()> {
        files::replace(&self.file(name), content.as_bytes())
    }

    /// Replaces one of its files and forces it to disk.
    pub fn write(&self, name: &str, content: &str) -> Result<()> {
        files::write_atomically(&self.file(name), content.as_bytes())
    }
}

/// Files that a run changes where they are, and the directory in which it deletes: they must be its
/// own. A run from elsewhere may hold links in their places, which would lead to files of the user.
fn check_places(path: &Path) -> Result<()> {
    for name in ["lock", "metrics.jsonl", "diagnostics.jsonl", "checkpoints"] {
        let place = path.join(name);
        let Ok(metadata) = fs::symlink_metadata(&place) else { continue };
        let (fits, expected) = match name {
            "checkpoints" => (metadata.is_dir(), "a directory"),
            _ => (metadata.is_file(), "a regular file"),
        };
        if !fits {
            let found = if metadata.is_symlink() { "a link" } else { "something else" };
            return Err(Error::new(
                format!("{} is {found}, expected {expected}", place.display()),
                "remove it; a run on another disk is a link to the whole run directory",
            ));
        }
    }
    Ok(())
}

fn nothing_to_resume(path: &Path) -> Error {
    let message = format!("{} holds no run to resume", path.display());
    Error::new(message, "omit --resume to start one")
}

/// `samples.txt`: what the model wrote, each under a line that says when.
pub struct Samples {
    path: PathBuf,
    samples: Vec<(u64, String)>,
}

impl Samples {
    /// Reads what is there and keeps what was written up to `step`.
    pub fn open(path: &Path, step: u64) -> Result<Self> {
        let mut samples = Self::read(path)?;
        samples.retain(|(at, _)| *at <= step);
        let samples = Self { path: path.to_owned(), samples };
        samples.write()?;
        Ok(samples)
    }

    /// All samples of a file, with their steps; none if there is no file.
    pub fn read(path: &Path) -> Result<Vec<(u64, String)>> {
        let text =
            if path.exists() { files::read_text(path, MOST_SAMPLES)? } else { String::new() };
        let mut samples: Vec<(u64, String)> = Vec::new();
        for line in text.lines() {
            if let Some(step) = step_of_heading(line) {
                samples.push((step, String::new()));
            } else if let Some((_, sample)) = samples.last_mut() {
                // A heading inside a sample is indented by one space when written.
                let line = if is_escaped(line) { &line[1..] } else { line };
                sample.push_str(line);
                sample.push('\n');
            }
        }
        for (_, sample) in &mut samples {
            sample.truncate(sample.trim_end_matches('\n').len());
        }
        Ok(samples)
    }

    /// Adds a sample.
    pub fn push(&mut self, step: u64, sample: &str) -> Result<()> {
        self.samples.push((step, sample.trim_end_matches('\n').to_owned()));
        self.write()
    }

    /// Forces all samples to disk.
    pub fn sync(&self) -> Result<()> {
        disk::sync_path(&self.path).map_err(error::io("write", &self.path))
    }

    /// All samples so far, with their steps.
    pub fn all(&self) -> &[(u64, String)] {
        &self.samples
    }

    fn write(&self) -> Result<()> {
        let mut text = String::new();
        for (step, sample) in &self.samples {
            text.push_str(&heading(*step));
            for line in sample.lines() {
                if step_of_heading(line).is_some() || is_escaped(line) {
                    text.push(' ');
                }
                text.push_str(line);
                text.push('\n');
            }
            text.push('\n');
        }
        files::replace(&self.path, text.as_bytes())
    }
}

fn heading(step: u64) -> String {
    format!("=== step {step} ===\n")
}

fn step_of_heading(line: &str) -> Option<u64> {
    line.strip_prefix("=== step ")?.strip_suffix(" ===")?.parse().ok()
}

fn is_escaped(line: &str) -> bool {
    line.starts_with(' ') && step_of_heading(line.trim_start_matches(' ')).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_used_by_one_run_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs/a");
        let first = RunDirectory::create(&path, &[]).unwrap();
        first.write("config.toml", "x = 1\n").unwrap();
        let me = format!("in use by another run (process {})", std::process::id());
        for again in [RunDirectory::open(&path), RunDirectory::create(&path, &[])] {
            let Err(error) = again else { panic!("opened twice") };
            let text = error.to_string();
            assert!(text.contains(&me) && text.contains("hint: "), "{text}");
        }
        drop(first);
        assert_eq!(RunDirectory::read_config(&path).unwrap(), "x = 1\n");
        RunDirectory::open(&path).unwrap();
    }

    #[test]
    fn runs_are_not_overwritten_and_not_made_up() {
        let dir = tempfile::tempdir().unwrap();
        let error = RunDirectory::open(dir.path()).err().unwrap();
        assert!(error.message().ends_with("holds no run to resume"), "{error}");
        let run = RunDirectory::create(dir.path(), &[]).unwrap();
        run.write("config.toml", "").unwrap();
        drop(run);
        let error = RunDirectory::create(dir.path(), &[]).err().unwrap();
        assert_eq!(error.kind(), Kind::Exists, "{error}");
    }

    #[test]
    #[cfg(unix)]
    fn links_in_a_run_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        for name in ["lock", "metrics.jsonl", "diagnostics.jsonl", "checkpoints"] {
            let run = dir.path().join(format!("run-{name}"));
            fs::create_dir(&run).unwrap();
            fs::write(run.join("config.toml"), "").unwrap();
            fs::write(&victim, "mine").unwrap();
            std::os::unix::fs::symlink(&victim, run.join(name)).unwrap();
            for opened in [RunDirectory::open(&run), RunDirectory::create(&run, &[])] {
                let error = opened.err().unwrap();
                assert!(error.hint().is_some(), "{error}");
            }
            assert_eq!(fs::read(&victim).unwrap(), b"mine", "{name}");
        }
    }

    #[test]
    fn files_of_others_are_not_overwritten() {
        for name in ["config.toml", "samples.txt", "report.html", "tokenizer.json", "checkpoints"] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(name), "mine").unwrap();
            fs::write(dir.path().join("notes.txt"), "mine too").unwrap();
            let Err(error) = RunDirectory::create(dir.path(), &["tokenizer.json"]) else {
                panic!("{name} would be overwritten")
            };
            assert!(error.kind() == Kind::Exists && error.message().contains(name), "{error}");
            fs::remove_file(dir.path().join(name)).unwrap();
            // What a run has prepared that was killed is its own.
            drop(RunDirectory::create(dir.path(), &["tokenizer.json"]).unwrap());
            fs::write(dir.path().join("tokenizer.json"), "of the run").unwrap();
            RunDirectory::create(dir.path(), &["tokenizer.json"]).unwrap();
        }
    }

    #[test]
    fn samples_are_cut_back_and_may_look_like_headings() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples.txt");
        let mut samples = Samples::open(&path, 0).unwrap();
        let odd = "one\n\n=== step 7 ===\n  === step 8 ===\n two";
        samples.push(100, odd).unwrap();
        samples.push(200, "later").unwrap();
        let back = Samples::open(&path, 200).unwrap();
        assert_eq!(back.all(), [(100, odd.to_owned()), (200, "later".to_owned())]);
        assert_eq!(Samples::open(&path, 150).unwrap().all().len(), 1);
        assert!(!fs::read_to_string(&path).unwrap().contains("later"));
    }
}
