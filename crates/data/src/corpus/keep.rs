//! Standard input and pipes can be read only once, but text is read twice: they are read to their
//! end and kept in a file.
//!
//! A thread reads, and another waits for what it brings: so progress is shown and a stop is heeded
//! also while nothing comes.

use crate::error::{self, Result};
use crate::progress::{Progress, Report, Stage};
use crate::temporary;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The most bytes that are kept of an input, unless told otherwise: an endless one has to stop
/// somewhere, and 64 GB of text are more than a CPU reads in a week of training.
pub const MOST_KEPT: u64 = 64 << 30;

/// The names of kept files: standard input, and the first eight paths if they are pipes.
pub const KEPT_FILES: [&str; 9] = [
    "stdin.txt",
    "pipe-1.txt",
    "pipe-2.txt",
    "pipe-3.txt",
    "pipe-4.txt",
    "pipe-5.txt",
    "pipe-6.txt",
    "pipe-7.txt",
    "pipe-8.txt",
];

/// Bytes read at a time, and how many such blocks wait to be written.
const BLOCK: usize = 1 << 16;
const WAITING: usize = 16;
/// How long a stop may go unheeded.
const PATIENCE: Duration = Duration::from_millis(100);

/// Asks reading to stop.
pub type Stop = Arc<AtomicBool>;

/// How input that can be read only once is kept.
#[derive(Clone, Copy, Debug)]
pub struct Keeping<'a> {
    /// Where; the files are called as in [`KEPT_FILES`].
    pub directory: &'a Path,
    /// Are files that are there already the input, read by an earlier run?
    pub again: bool,
    /// The most bytes of one input; more is an error.
    pub limit: u64,
    /// Asks to stop, here and in all reading of the source.
    pub stop: Option<&'a Stop>,
}

impl<'a> Keeping<'a> {
    /// In `directory`, anew, up to [`MOST_KEPT`] bytes.
    pub fn new(directory: &'a Path) -> Self {
        Self { directory, again: false, limit: MOST_KEPT, stop: None }
    }
}

/// The file for the path of this number, if there is a name for it.
pub(super) fn file_for(directory: &Path, number: usize, path: &Path) -> Option<PathBuf> {
    let slot = if is_stdin(path) { 0 } else { number + 1 };
    KEPT_FILES.get(slot).map(|name| directory.join(name))
}

/// Does this path stand for standard input?
pub(super) fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Is this a named pipe, or one that a shell made, as in `<(zcat book.gz)`?
pub(super) fn is_pipe(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

/// Opens standard input or a pipe; waits until somebody writes to it.
pub(super) fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    if is_stdin(path) {
        return Ok(Box::new(io::stdin()));
    }
    Ok(Box::new(File::open(path)?))
}

/// Writes all that `open` gives to the file `kept`, which is there whole or not at all.
pub(super) fn keep(
    open: impl FnOnce() -> io::Result<Box<dyn Read>> + Send + 'static,
    name: &str,
    kept: &Path,
    keeping: &Keeping<'_>,
    report: Report<'_>,
) -> Result<()> {
    if let Some(folder) = kept.parent() {
        fs::create_dir_all(folder).map_err(error::on("create", folder))?;
    }
    temporary::sweep(kept);
    let partial = Partial(temporary::beside(kept));
    let mut file = temporary::create(&partial.0).map_err(error::on("write", kept))?;
    let (sender, receiver) = mpsc::sync_channel(WAITING);
    // Not joined: after a stop it may wait for input for ever, and ends with the program.
    std::thread::spawn(move || {
        let result = open().and_then(|mut input| {
            loop {
                let mut block = Vec::with_capacity(BLOCK);
                let read = (&mut input).take(BLOCK as u64).read_to_end(&mut block)?;
                if read == 0 || sender.send(Ok(block)).is_err() {
                    return Ok(());
                }
            }
        });
        if let Err(error) = result {
            let _ = sender.send(Err(error));
        }
    });
    let mut done = 0;
    loop {
        if keeping.stop.is_some_and(|stop| stop.load(Ordering::SeqCst)) {
            return Err(error::interrupted(&format!("reading {name}")));
        }
        match receiver.recv_timeout(PATIENCE) {
            Ok(block) => {
                let block = block.map_err(|error| error::input(name, &error))?;
                done += block.len() as u64;
                if done > keeping.limit {
                    return Err(error::too_much_input(name, keeping.limit));
                }
                file.write_all(&block).map_err(error::on("write", kept))?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        report(Progress { stage: Stage::Keeping, done, total: None });
    }
    if done == 0 {
        return Err(error::empty(name));
    }
    drop(file);
    fs::rename(&partial.0, kept).map_err(error::on("write", kept))
}

/// A file that is not complete: gone when dropped, unless it was renamed.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
