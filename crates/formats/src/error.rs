//! What can be wrong with model files.

use std::path::{Path, PathBuf};

/// A file that cannot be read, written or made sense of.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The operating system said no.
    #[error("cannot {doing} {path}: {source}\nhint: {hint}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// The content is not what it should be.
    #[error("{path}: {message}\nhint: {hint}")]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        message: String,
        /// What to do.
        hint: String,
    },
}

impl FormatError {
    pub(crate) fn read(path: &Path, source: std::io::Error) -> Self {
        let hint = match source.kind() {
            std::io::ErrorKind::NotFound => {
                "check the path; a model directory has config.json and model.safetensors"
            }
            _ => "check that the file may be read",
        };
        Self::Io { doing: "read", path: path.to_owned(), source, hint }
    }

    pub(crate) fn write(path: &Path, source: std::io::Error) -> Self {
        let hint = "check that the disk has room and the directory may be written";
        Self::Io { doing: "write", path: path.to_owned(), source, hint }
    }

    pub(crate) fn content(
        path: &Path,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Content { path: path.to_owned(), message: message.into(), hint: hint.into() }
    }
}
