//! Errors of training are [`hearken_base::Error`]s. Those of the file system get hints that fit a
//! run, and after a failed write they say which checkpoint is whole
//! ([`Checkpoints::survivors`](crate::checkpoint::Checkpoints::survivors)).

use hearken_base::{Error, Kind};
use std::io::{self, ErrorKind};
use std::path::Path;

/// For `map_err`: `cannot {doing} {path}: …`, with a hint that fits a run.
pub fn io(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let to_error = Error::io(doing, path);
    move |error| with_hint_of_run(to_error(error))
}

/// An error of the file system with the hint that fits a run, if there is one; others as they are.
pub(crate) fn with_hint_of_run(error: Error) -> Error {
    let hint = match error.kind() {
        Kind::Io(ErrorKind::StorageFull) => "free some space, then continue with --resume",
        Kind::Io(
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotADirectory,
        ) => "choose an --out that you may write to",
        Kind::Io(ErrorKind::NotFound) => "check the path",
        _ => return error,
    };
    error.with_hint(hint)
}

/// A file is not what was written.
pub(crate) fn damaged(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::of(Kind::Damaged, format!("{} is damaged: {what}", path.display()), "")
}

/// A checkpoint of another model, optimiser or seed.
pub(crate) fn mismatch(path: &Path, what: impl std::fmt::Display, hint: &str) -> Error {
    Error::new(format!("{} does not fit this run: {what}", path.display()), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_says_what_to_do() {
        let source = io::Error::from(ErrorKind::StorageFull);
        let error = io("write", Path::new("runs/a"))(source);
        assert!(error.message().starts_with("cannot write runs/a: "), "{error}");
        assert_eq!(error.hint(), Some("free some space, then continue with --resume"));
        assert_eq!(error.kind(), Kind::Io(ErrorKind::StorageFull));
    }

    #[test]
    fn hints_of_other_errors_stay() {
        let error = Error::new("no such layer", "layers are 0 to 3");
        assert_eq!(with_hint_of_run(error).hint(), Some("layers are 0 to 3"));
        let error = Error::io("read", Path::new("a"))(ErrorKind::Interrupted.into());
        assert_eq!(with_hint_of_run(error).hint(), None);
    }
}
