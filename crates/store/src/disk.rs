//! Changes to the disk, one by one, so that tests can let any of them fail.
//!
//! Every operation asks [`faults`] first. Outside of tests nothing is planned there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// `File::create`.
pub fn create(path: &Path) -> io::Result<File> {
    faults::point()?;
    File::create(path)
}

/// Writes all of `bytes`.
pub fn write(file: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    faults::point()?;
    file.write_all(bytes)
}

/// Hands what is buffered to the system.
pub fn flush(file: &mut impl Write) -> io::Result<()> {
    faults::point()?;
    file.flush()
}

/// Forces a file to disk.
pub fn sync(file: &File) -> io::Result<()> {
    faults::point()?;
    file.sync_all()
}

/// Forces the file at `path`, or the names in a directory, to disk.
pub fn sync_path(path: &Path) -> io::Result<()> {
    faults::point()?;
    File::open(path).and_then(|file| file.sync_all())
}

/// `fs::rename`.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    faults::point()?;
    fs::rename(from, to)
}

/// `fs::create_dir`.
pub fn create_dir(path: &Path) -> io::Result<()> {
    faults::point()?;
    fs::create_dir(path)
}

/// `fs::remove_dir_all`.
pub fn remove_dir_all(path: &Path) -> io::Result<()> {
    faults::point()?;
    fs::remove_dir_all(path)
}

/// A new file with this content.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(&mut create(path)?, bytes)
}

/// A symbolic link.
#[cfg(unix)]
pub fn link(target: &str, path: &Path) -> io::Result<()> {
    faults::point()?;
    std::os::unix::fs::symlink(target, path)
}

/// Planned faults: for tests.
pub mod faults {
    use std::cell::Cell;
    use std::io::{self, ErrorKind};

    /// What happens.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// One operation fails.
        Once(ErrorKind),
        /// From then on every operation fails, as on a full disk.
        Lasting(ErrorKind),
        /// The process dies before the operation.
        Death,
    }

    thread_local! {
        /// Operations until the fault, and the fault.
        static PLAN: Cell<Option<(u64, Fault)>> = const { Cell::new(None) };
    }

    /// Runs `f`, with a fault at operation `at` (from 0) of this thread; tells whether it was reached.
    pub fn with<R>(at: u64, fault: Fault, f: impl FnOnce() -> R) -> (R, bool) {
        PLAN.set(Some((at, fault)));
        let result = f();
        let left = PLAN.take();
        let reached = match left {
            None => true,
            Some((left, _)) => left == 0 && matches!(fault, Fault::Lasting(_)),
        };
        (result, reached)
    }

    /// An operation begins.
    pub(crate) fn point() -> io::Result<()> {
        match PLAN.get() {
            None => Ok(()),
            Some((0, Fault::Once(kind))) => {
                PLAN.set(None);
                Err(kind.into())
            }
            Some((0, Fault::Lasting(kind))) => Err(kind.into()),
            Some((0, Fault::Death)) => std::process::abort(),
            Some((left, fault)) => {
                PLAN.set(Some((left - 1, fault)));
                Ok(())
            }
        }
    }
}
