//! One error type: what went wrong, and what to do about it.
//!
//! The message names the thing, what was expected and what came; the hint says what to do. They are
//! kept apart from the place where the error is made to the place where it is shown, so that no
//! text is ever taken apart again. Code that must react to some errors asks for their [`Kind`].

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The result of anything that can fail on bad input.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, and what to do about it.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    message: String,
    hint: Option<String>,
}

/// What sort of error it is, for code that treats some of them differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A setting, a flag or the content of a file that makes no sense.
    Input,
    /// The operating system refused.
    Io(ErrorKind),
    /// A file is not what was written.
    Damaged,
    /// Something is there already and would be overwritten.
    Exists,
    /// Another process uses it.
    InUse,
    /// Training went wrong: no finite gradient for too long.
    Diverged,
}

impl Error {
    /// Bad input: what was wrong and expected; what to do.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::of(Kind::Input, message, hint)
    }

    /// An error of some kind.
    pub fn of(kind: Kind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let (message, hint) = (message.into(), hint.into());
        let hint = (!hint.is_empty()).then_some(hint);
        Self(Box::new(Inner { kind, message, hint }))
    }

    /// For `map_err`: `cannot {doing} {path}: …`, with a hint where there is a usual one.
    pub fn io(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let what = format!("cannot {doing} {}", path.display());
        move |error| {
            let hint = io_hint(error.kind());
            Self::of(Kind::Io(error.kind()), format!("{what}: {error}"), hint)
        }
    }

    /// Which sort.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What went wrong.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Another hint.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// This hint, if there is none yet.
    pub fn or_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Says where: `{place}: {message}`.
    pub fn within(mut self, place: impl fmt::Display) -> Self {
        self.0.message = format!("{place}: {}", self.0.message);
        self
    }
}

/// What to do about the errors of the file system that people meet.
fn io_hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::StorageFull => "free some space, and give the same command again",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "check the permissions, or choose another place"
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            "check the path; relative paths start at the current directory"
        }
        _ => "",
    }
}

impl fmt::Display for Error {
    /// The message, and `hint: …` on a line of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())?;
        self.hint().map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_and_hint_stay_apart() {
        let error = Error::new("width is 0, expected at least 1", "set width").within("a.toml");
        assert_eq!(error.message(), "a.toml: width is 0, expected at least 1");
        assert_eq!(error.hint(), Some("set width"));
        assert_eq!(error.to_string(), "a.toml: width is 0, expected at least 1\nhint: set width");
        assert_eq!(error.or_hint("other").with_hint("last").hint(), Some("last"));
        assert_eq!(Error::new("alone", "").to_string(), "alone");
    }

    #[test]
    fn a_full_disk_says_what_to_do() {
        let source = io::Error::from(ErrorKind::StorageFull);
        let error = Error::io("write", Path::new("runs/a"))(source);
        assert_eq!(error.kind(), Kind::Io(ErrorKind::StorageFull));
        assert!(error.message().starts_with("cannot write runs/a: "), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.starts_with("free some space")), "{error}");
    }
}
