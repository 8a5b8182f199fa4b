//! A file seen as bytes without being read into memory: the operating system brings in the pages
//! that are touched and may drop them again, so a corpus of 10 GB needs no 10 GB of memory.

use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// The bytes of a file, read-only.
///
/// The file is expected to stay as it is while it is mapped, as files do that are only ever
/// replaced by renaming (every file that Hearken writes) and never changed in place: a mapping
/// keeps the replaced file's bytes. A shared lock tells other programs that ask.
#[derive(Debug)]
pub struct MappedFile {
    /// `None` for an empty file, which cannot be mapped.
    bytes: Option<Mmap>,
    /// Holds the lock.
    _file: File,
}

impl MappedFile {
    /// Maps the file at `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Asked before it is opened, since opening a pipe would wait for a writer.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        // Advisory, and unknown to some file systems: not getting it is no reason to stop.
        let _ = file.try_lock_shared();
        if metadata.len() == 0 {
            return Ok(Self { bytes: None, _file: file });
        }
        // SAFETY: the mapping is private to this value, read-only, and of a regular file; `Mmap`
        // unmaps it when dropped, and the slices handed out borrow from `self`. What the type
        // system cannot rule out is another process changing the file in place: the type's
        // contract, stated above, is that such files are not given to it. Every bit pattern is a
        // valid `u8`, so no invariant of the element type is at stake.
        let bytes = unsafe { Mmap::map(&file) }?;
        Ok(Self { bytes: Some(bytes), _file: file })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("hearken-mapped-{}-{name}", std::process::id()))
    }

    #[test]
    fn bytes_are_those_of_the_file_even_after_it_is_replaced() {
        let (path, other) = (temporary("file"), temporary("other"));
        std::fs::write(&path, b"listen").unwrap();
        std::fs::write(&other, b"silent, and longer").unwrap();
        let mapped = MappedFile::open(&path).unwrap();
        assert_eq!(&*mapped, b"listen");
        if cfg!(unix) {
            std::fs::rename(&other, &path).unwrap();
            assert_eq!(&*mapped, b"listen");
        }
        drop(mapped);
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_file(&other);
    }

    #[test]
    fn empty_missing_and_directories() {
        let path = temporary("empty");
        std::fs::write(&path, b"").unwrap();
        assert!(MappedFile::open(&path).unwrap().is_empty());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(MappedFile::open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(MappedFile::open(&std::env::temp_dir()).is_err());
    }
}
