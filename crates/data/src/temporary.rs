//! Files that are written beside their place and then renamed: `NAME.PID.tmp`.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

use hearken_store::files::{owner_in, sweep_leftovers};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The temporary name of `path` in this process.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

/// A new file, never one that is there or that a link leads to. It is locked, so that nobody sweeps
/// it while it is written.
pub(crate) fn create(temporary: &Path) -> io::Result<File> {
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = File::options().write(true).create_new(true).open(temporary)?;
    // Advisory, and unknown to some file systems: not getting it is no reason to stop.
    let _ = file.try_lock();
    Ok(file)
}

/// Removes what processes that were killed left beside `path`.
pub(crate) fn sweep(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let prefix = format!("{name}.");
    sweep_leftovers(folder, |name| owner_in(name, &prefix, ".tmp"));
}
