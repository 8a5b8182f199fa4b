//! Regular files, text of bounded size, and temporary files that a killed process left behind.

use hearken_base::{Error, Kind, Result};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Opens a regular file, or a link to one. Anything else (a directory, a pipe, a device) is refused
/// before it is opened, since opening a pipe would wait for a writer.
pub fn open(path: &Path) -> Result<File> {
    let read = || Error::io("read", path);
    if !fs::metadata(path).map_err(read())?.is_file() {
        let message = format!("{} is not a regular file", path.display());
        return Err(Error::new(message, "pipes, devices and directories cannot be read here"));
    }
    File::open(path).map_err(read())
}

/// The text of a regular file of at most `most` bytes.
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    let file = open(path)?;
    let length = file.metadata().map_err(Error::io("read", path))?.len();
    let mut bytes = Vec::new();
    if length <= most {
        // A file that grows while it is read is cut off, too.
        file.take(most + 1).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    }
    let damaged = |message: String, hint| {
        Error::of(Kind::Damaged, format!("{}: {message}", path.display()), hint)
    };
    if length.max(bytes.len() as u64) > most {
        let message = format!("{length} bytes, expected at most {most}");
        return Err(damaged(message, "is it the right file?"));
    }
    let not_text = |_| damaged("not UTF-8 text".to_owned(), "get or write the file again");
    String::from_utf8(bytes).map_err(not_text)
}

/// Text of at most `most` bytes from a file, a pipe or a device that the user names: `--config <(…)`
/// is a pipe.
pub fn read_text_once(path: &Path, most: u64) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(std::io::Error::other(format!("it has more than {most} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| std::io::Error::other("it is not UTF-8 text"))
}

/// Removes temporary files in `directory` whose process is gone, and returns how many there were.
///
/// `owner` gives the process id in the name of a temporary file, and `None` for every other name.
/// A file stays if its process lives, if it is locked (by a process of another container, whose ids
/// mean nothing here), or if it is a directory. Where the system does not say which processes live,
/// a file stays for a day.
pub fn sweep_leftovers(directory: &Path, owner: impl Fn(&str) -> Option<u32>) -> usize {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let is_leftover = |name: &OsStr, path: &Path| {
        let id = name.to_str().and_then(&owner)?;
        let metadata = fs::symlink_metadata(path).ok()?;
        let gone = match lives(id) {
            Some(lives) => !lives,
            None => metadata.modified().ok()?.elapsed().ok()?.as_secs() > 24 * 60 * 60,
        };
        let free = match metadata.file_type() {
            kind if kind.is_file() => File::open(path).ok()?.try_lock().is_ok(),
            kind => kind.is_symlink(),
        };
        (gone && free).then_some(())
    };
    let found = entries.flatten().map(|entry| (entry.file_name(), entry.path()));
    found
        .filter(|(name, path)| is_leftover(name, path).is_some())
        .filter(|(_, path)| fs::remove_file(path).is_ok())
        .count()
}

/// The process id in a name of the form `{prefix}{id}{suffix}`.
pub fn owner_in(name: &str, prefix: &str, suffix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Does this process live? `None` where the system does not say.
fn lives(id: u32) -> Option<bool> {
    if id == std::process::id() {
        return Some(true);
    }
    let processes = Path::new("/proc");
    // Without our own entry it is not the list of processes.
    let listed = |id: u32| processes.join(id.to_string()).exists();
    listed(std::process::id()).then(|| listed(id))
}
