//! Where text comes from: files, directories, JSON lines, standard input and pipes.

use super::keep::{self, Keeping, Stop};
use super::read::Chunks;
use crate::error::{self, Result};
use crate::progress::Report;
use crate::tokenizer::CutRule;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

/// Text to be read, found and measured but not yet read.
#[derive(Clone, Debug)]
pub struct Source {
    pub(super) files: Vec<Entry>,
    pub(super) field: String,
    documents: bool,
    /// Asks to stop reading.
    stop: Option<Stop>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    pub(super) json_lines: bool,
    length: u64,
    /// Nanoseconds since 1970.
    modified: u64,
}

/// A piece of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// What it says.
    pub text: String,
    /// Does the document end here?
    pub ends_document: bool,
}

impl Source {
    /// Text files, directories (all files in them, by name, hidden ones and training runs left out)
    /// and JSON lines (`.jsonl`, `.ndjson`: one object per line, whose `field` is the text).
    /// Pipes are refused, since they can be read only once; see [`Self::open_keeping`].
    pub fn open(paths: &[PathBuf], field: &str) -> Result<Self> {
        Self::collect(paths, field, &mut |_, path| {
            if keep::is_pipe(path) { Err(error::pipe(path)) } else { Ok(None) }
        })
    }

    /// As [`Self::open`]; standard input (`-`) and pipes are read to their end, and kept in files as
    /// `keeping` says.
    pub fn open_keeping(
        paths: &[PathBuf],
        field: &str,
        keeping: &Keeping<'_>,
        report: Report<'_>,
    ) -> Result<Self> {
        let mut source = Self::collect(paths, field, &mut |number, path| {
            let kept = keep::file_for(keeping.directory, number, path);
            let earlier = kept.as_ref().filter(|kept| keeping.again && kept.exists());
            if earlier.is_some() {
                return Ok(kept);
            }
            let (is_stdin, is_pipe) = (keep::is_stdin(path), keep::is_pipe(path));
            if !is_stdin && !is_pipe {
                return Ok(None);
            }
            let kept = kept.ok_or_else(|| error::pipe(path))?;
            let name = if is_stdin { "stdin" } else { "the pipe" };
            let path = path.to_owned();
            keep::keep(move || keep::open(&path), name, &kept, keeping, report)?;
            Ok(Some(kept))
        })?;
        source.stop = keeping.stop.cloned();
        Ok(source)
    }

    /// The files of every path. `once` is given its number, and gives the file where it is kept if
    /// it can be read only once.
    fn collect(
        paths: &[PathBuf],
        field: &str,
        once: &mut dyn FnMut(usize, &Path) -> Result<Option<PathBuf>>,
    ) -> Result<Self> {
        let mut files = Vec::new();
        let mut documents = paths.len() > 1;
        for (number, path) in paths.iter().enumerate() {
            if let Some(kept) = once(number, path)? {
                let metadata = fs::metadata(&kept).map_err(error::on("read", &kept))?;
                let json_lines = is_json_lines(path);
                files.push(Entry { json_lines, ..Entry::new(kept, &metadata) });
                continue;
            }
            let metadata = fs::metadata(path).map_err(error::on("read", path))?;
            if metadata.is_dir() {
                documents = true;
                let before = files.len();
                collect(path, &mut files)?;
                if files.len() == before {
                    return Err(error::empty(&path.display().to_string()));
                }
            } else if metadata.is_file() {
                files.push(Entry::new(path.clone(), &metadata));
            } else {
                return Err(error::device(path));
            }
        }
        documents |= files.iter().any(|file| file.json_lines);
        if files.iter().all(|file| file.length == 0) {
            let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            return Err(error::empty(&names.join(", ")));
        }
        Ok(Self { files, field: field.to_owned(), documents, stop: None })
    }

    /// One file or directory, with the text of JSON lines in `text`.
    pub fn from_path(path: &Path) -> Result<Self> {
        Self::open(&[path.to_owned()], "text")
    }

    /// All of `input`, called `name` in messages, kept in the file `kept`, since it is read twice.
    pub fn from_reader(
        input: impl Read + Send + 'static,
        name: &str,
        kept: &Path,
        keeping: &Keeping<'_>,
        report: Report<'_>,
    ) -> Result<Self> {
        keep::keep(move || Ok(Box::new(input) as Box<dyn Read>), name, kept, keeping, report)?;
        let source = Self::from_path(kept)?;
        Ok(Self { stop: keeping.stop.cloned(), ..source })
    }

    /// Was reading asked to stop?
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::SeqCst))
    }

    /// The files' bytes; JSON lines are counted whole.
    pub fn length(&self) -> u64 {
        self.files.iter().map(|file| file.length).sum()
    }

    /// The files, in the order in which they are read.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// Is this more than one stream of text, so that documents should be told apart?
    pub fn has_documents(&self) -> bool {
        self.documents
    }

    /// All the text, in chunks that end where `rule` allows.
    pub fn chunks(&self, rule: CutRule) -> Chunks<'_> {
        Chunks::new(self, rule)
    }

    /// All the text, to learn a tokenizer from.
    pub fn texts(&self) -> impl Iterator<Item = Result<String>> + Send + '_ {
        self.chunks(CutRule::BeforeSpace).map(|chunk| chunk.map(|chunk| chunk.text))
    }

    /// What tells one source from another without reading it: names, lengths and times.
    pub(super) fn stamp(&self) -> u64 {
        let mut digest = crate::Digest::default();
        digest.update(self.field.as_bytes());
        for file in &self.files {
            let path = fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
            digest.update(path.as_os_str().as_encoded_bytes());
            digest.update(&file.length.to_le_bytes());
            digest.update(&file.modified.to_le_bytes());
        }
        digest.value()
    }
}

impl Entry {
    fn new(path: PathBuf, metadata: &fs::Metadata) -> Self {
        let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self {
            json_lines: is_json_lines(&path),
            length: metadata.len(),
            modified: since.map_or(0, |since| since.as_nanos() as u64),
            path,
        }
    }
}

fn is_json_lines(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jsonl" || extension == "ndjson")
}

/// Is this the directory of a training run, as `hearken_train::RunDirectory` makes it? Checkpoints
/// are no text, and samples should not be learned from.
fn is_run(folder: &Path) -> bool {
    folder.join("checkpoints").is_dir() && folder.join("lock").is_file()
}

/// The files under `folder`, depth first, by name. Runs in it are passed over.
fn collect(folder: &Path, files: &mut Vec<Entry>) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(error::on("read", folder))?;
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(error::on("read", folder))?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    for path in paths {
        // A link to a folder could lead back here; a link to a file is as good as the file.
        let link = fs::symlink_metadata(&path).map_err(error::on("read", &path))?.is_symlink();
        let metadata = fs::metadata(&path).map_err(error::on("read", &path))?;
        if metadata.is_dir() && !link {
            if !is_run(&path) {
                collect(&path, files)?;
            }
        } else if metadata.is_file() {
            files.push(Entry::new(path, &metadata));
        }
    }
    Ok(())
}
