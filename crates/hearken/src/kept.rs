//! A private directory for what a command keeps while it runs: gone at its end, also after Ctrl-C.

use crate::failure::Failure;
use crate::terminal::say;
use hearken::train::interrupt::EXIT_CODE;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::TempDir;

/// The directory that is there now: one at most.
static DIRECTORY: Mutex<Option<PathBuf>> = Mutex::new(None);

/// A directory of a name that nobody can foresee, readable by its owner alone.
pub(crate) struct Kept {
    directory: TempDir,
    stop: Arc<AtomicBool>,
}

impl Kept {
    /// In the system's directory for temporary files. From now on Ctrl-C asks to stop while there
    /// is a directory, and ends the program at once, without it, the second time or when there is
    /// none.
    pub(crate) fn new(prefix: &str) -> Result<Self, Failure> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(prefix);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o700));
        }
        let directory = builder.tempdir().map_err(|error| {
            let message = format!("cannot create a temporary directory: {error}");
            Failure::input(message, "set TMPDIR to a directory with free space")
        })?;
        *lock() = Some(directory.path().to_owned());
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        // Where that is not possible, Ctrl-C ends the program as ever.
        let _ = ctrlc::set_handler(move || {
            let directory = lock().clone();
            if directory.is_some() && !asked.swap(true, SeqCst) {
                say!("\nstopping; again to stop at once");
                return;
            }
            if let Some(directory) = directory {
                let _ = std::fs::remove_dir_all(directory);
            }
            say!("");
            std::process::exit(EXIT_CODE);
        });
        Ok(Self { directory, stop })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Is set by Ctrl-C.
    pub(crate) fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Was there a Ctrl-C?
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.directory.path());
        *lock() = None;
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<PathBuf>> {
    DIRECTORY.lock().unwrap_or_else(PoisonError::into_inner)
}
