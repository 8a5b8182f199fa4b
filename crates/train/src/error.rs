//! What can go wrong while training, said so that a person can act on it.

use std::path::{Path, PathBuf};

/// An error of training. Its text ends with a line `hint: …` wherever there is something to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting that makes no sense.
    #[error("{message}\nhint: {hint}")]
    Config {
        /// What was wrong and what was expected.
        message: String,
        /// What to do.
        hint: String,
    },
    /// A file could not be read or written.
    #[error("cannot {doing} {}: {source}{}", path.display(), hint_for(source))]
    Io {
        /// What was being done, as in "cannot write".
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Another process trains in this directory.
    #[error(
        "{} is in use by another run ({owner})\nhint: wait for it, stop it, or choose another --out",
        path.display()
    )]
    InUse {
        /// The run directory.
        path: PathBuf,
        /// Who uses it.
        owner: String,
    },
    /// A new run would overwrite an old one.
    #[error(
        "{} already holds a run\nhint: continue it with --resume, or choose another --out",
        path.display()
    )]
    Exists {
        /// The run directory.
        path: PathBuf,
    },
    /// A file of somebody else lies where a run would write.
    #[error(
        "{} is there already, and a run would overwrite it\nhint: choose another --out, a directory \
         of its own",
        path.display()
    )]
    WouldOverwrite {
        /// The file.
        path: PathBuf,
    },
    /// Nothing is there to be resumed.
    #[error("{} holds no run to resume\nhint: leave --resume away to start one", path.display())]
    NothingToResume {
        /// The run directory.
        path: PathBuf,
    },
    /// A file of a checkpoint is not what was written.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The checkpoint.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Checkpoints are there, but none is whole.
    #[error(
        "no checkpoint in {} is whole: {reasons}\nhint: start again with another --out, or restore \
         the directory from a copy",
        path.display()
    )]
    NoneWhole {
        /// The directory of checkpoints.
        path: PathBuf,
        /// What is wrong with each.
        reasons: String,
    },
    /// A checkpoint of another model, optimiser or seed.
    #[error("{} does not fit this run: {what}\nhint: {hint}", path.display())]
    Mismatch {
        /// The checkpoint.
        path: PathBuf,
        /// What differs.
        what: String,
        /// What to do.
        hint: String,
    },
    /// Saving failed; what was saved before is whole.
    #[error("cannot save {}: {reason}\n{survivor}\nhint: {hint}", path.display())]
    Save {
        /// The checkpoint.
        path: PathBuf,
        /// Why.
        reason: String,
        /// Which checkpoint is left.
        survivor: String,
        /// What to do.
        hint: String,
    },
    /// Too many steps in a row without a finite gradient.
    #[error("{message}\nhint: {hint}")]
    Diverged {
        /// What was seen.
        message: String,
        /// What to change.
        hint: String,
    },
    /// Something the task does failed.
    #[error(transparent)]
    Task(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps an error of the task.
    pub fn task(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Task(error.into())
    }

    /// A setting that makes no sense.
    pub fn config(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Config { message: message.into(), hint: hint.into() }
    }

    /// For `map_err`: `cannot {doing} {path}`.
    pub fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }
}

/// A hint for the errors of the file system that people meet, with its line break.
fn hint_for(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{
        NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem, StorageFull,
    };
    match error.kind() {
        StorageFull => "\nhint: free some space, then continue with --resume",
        PermissionDenied | ReadOnlyFilesystem | NotADirectory => {
            "\nhint: choose an --out that you may write to"
        }
        NotFound => "\nhint: check the path",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_says_what_to_do() {
        let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let text = Error::io("write", Path::new("runs/a"))(source).to_string();
        assert!(text.starts_with("cannot write runs/a: "), "{text}");
        assert!(text.ends_with("hint: free some space, then continue with --resume"), "{text}");
    }
}
