//! Regular files, and text of bounded size.

use hearken_base::{Error, Kind, Result};
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
