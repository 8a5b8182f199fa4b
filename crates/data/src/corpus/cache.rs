//! The file that a tokenised corpus is kept in.
//!
//! ```text
//! byte   0  "HEARKTOK"          8  magic
//!        8  version             4
//!       12  bytes per id        4  2 or 4
//!       16  ids                 8
//!       24  … for training      8  the rest are for validation
//!       32  vocabulary          8
//!       40  tokenizer           8  fingerprint
//!       48  split               8  checksum of what was asked for
//!       56  source stamp        8  checksum of names, lengths and times
//!       64  source content      8  checksum of the text
//!       72  source bytes        8
//!       80  training bytes      8  of text
//!       88  validation bytes    8  of text
//!       96  ids checksum        8
//!      104  header checksum     8  of the bytes before it
//!      128  ids, little-endian
//! ```
//! Written beside its place and renamed, so that it is there whole or not at all.

use crate::digest::Digest;
use crate::error::{self, Result};
use crate::temporary;
use hearken_kernels::mapped::MappedFile;
use std::fs::{self, File};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ids::Ids;

const MAGIC: &[u8; 8] = b"HEARKTOK";
const VERSION: u32 = 1;
/// Where the ids begin: a multiple of the cache line, with room for later fields.
const HEADER: usize = 128;
const CHECKED: usize = 104;

/// What the header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) width: u32,
    pub(super) count: u64,
    pub(super) train_count: u64,
    pub(super) vocabulary: u64,
    pub(super) tokenizer: u64,
    pub(super) split: u64,
    pub(super) stamp: u64,
    pub(super) content: u64,
    pub(super) source_bytes: u64,
    pub(super) train_bytes: u64,
    pub(super) validation_bytes: u64,
    pub(super) checksum: u64,
}

impl Header {
    fn to_bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.width.to_le_bytes());
        let fields = [
            self.count,
            self.train_count,
            self.vocabulary,
            self.tokenizer,
            self.split,
            self.stamp,
            self.content,
            self.source_bytes,
            self.train_bytes,
            self.validation_bytes,
            self.checksum,
        ];
        for (slot, field) in bytes[16..CHECKED].chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        let checksum = Digest::of(&bytes[..CHECKED]);
        bytes[CHECKED..CHECKED + 8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads and checks a header against the length of its file; says what is wrong.
    fn from_bytes(bytes: &[u8]) -> std::result::Result<Self, String> {
        let Some(header) = bytes.first_chunk::<HEADER>() else {
            return Err(format!("it has {} bytes, fewer than its header", bytes.len()));
        };
        if !header.starts_with(MAGIC) {
            return Err("it does not begin as a token file".to_owned());
        }
        let (words, _) = header.as_chunks::<8>();
        let word = |at: usize| words.get(at / 8).map_or(0, |word| u64::from_le_bytes(*word));
        let version = word(8) as u32;
        if version != VERSION {
            return Err(format!("it has version {version}, and this program writes {VERSION}"));
        }
        if word(CHECKED) != Digest::of(header.first_chunk::<CHECKED>().unwrap_or(&[0; CHECKED])) {
            return Err("its header does not match its checksum".to_owned());
        }
        let this = Self {
            width: (word(8) >> 32) as u32,
            count: word(16),
            train_count: word(24),
            vocabulary: word(32),
            tokenizer: word(40),
            split: word(48),
            stamp: word(56),
            content: word(64),
            source_bytes: word(72),
            train_bytes: word(80),
            validation_bytes: word(88),
            checksum: word(96),
        };
        let expected = this.count.checked_mul(u64::from(this.width));
        let expected = expected.and_then(|ids| ids.checked_add(HEADER as u64));
        if !matches!(this.width, 2 | 4) || this.train_count > this.count {
            return Err("its header contradicts itself".to_owned());
        }
        if expected != Some(bytes.len() as u64) {
            let expected = expected.map_or("far more".to_owned(), |bytes| bytes.to_string());
            return Err(format!("it has {} bytes instead of {expected}", bytes.len()));
        }
        Ok(this)
    }
}

/// What is at the place of a cache.
pub(super) enum Found {
    /// No file.
    Nothing,
    /// A file that cannot be used, and why.
    Damaged(String),
    /// A whole one; its ids are not checked yet.
    Whole(Header, Arc<MappedFile>),
}

/// Looks at a cache file.
pub(super) fn look(path: &Path) -> Result<Found> {
    let map = match MappedFile::open(path) {
        Ok(map) => map,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => {
            let hint = "remove it: it is made anew from the text";
            return Err(error::on("read", path)(error).with_hint(hint));
        }
    };
    Ok(match Header::from_bytes(&map) {
        Ok(header) => Found::Whole(header, Arc::new(map)),
        Err(reason) => Found::Damaged(reason),
    })
}

/// What is wrong with the ids, if anything: a checksum is no proof against someone who forges, and
/// an id outside the vocabulary would be a row outside of the embedding.
pub(super) fn fault_of_ids(header: &Header, map: &MappedFile) -> Option<&'static str> {
    let ids = map.get(HEADER..).unwrap_or_default();
    if Digest::of(ids) != header.checksum {
        return Some("its ids do not match their checksum");
    }
    let largest = if header.width == 2 {
        ids.as_chunks().0.iter().map(|id| u64::from(u16::from_le_bytes(*id))).max()
    } else {
        ids.as_chunks().0.iter().map(|id| u64::from(u32::from_le_bytes(*id))).max()
    };
    largest
        .is_some_and(|id| id >= header.vocabulary)
        .then_some("it has ids that are not in the vocabulary")
}

/// The training ids and the validation ids.
pub(super) fn split_ids(header: &Header, map: Arc<MappedFile>) -> (Ids, Ids) {
    let (count, train) = (header.count as usize, header.train_count as usize);
    let all = Ids::in_file(map, HEADER, header.width as usize, count);
    (all.part(0..train), all.part(train..count))
}

/// Writes ids as they come.
pub(super) struct Writer {
    path: PathBuf,
    temporary: PathBuf,
    file: Option<BufWriter<File>>,
    digest: Digest,
    width: usize,
    count: u64,
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn create(path: &Path, vocabulary: usize) -> Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(error::on("create", folder))?;
        }
        let temporary = temporary::beside(path);
        let file = temporary::create(&temporary).map_err(error::on("write", &temporary))?;
        let mut this = Self {
            path: path.to_owned(),
            temporary,
            file: Some(BufWriter::with_capacity(1 << 18, file)),
            digest: Digest::default(),
            width: if vocabulary <= 1 << 16 { 2 } else { 4 },
            count: 0,
            bytes: Vec::new(),
        };
        this.put(&[0; HEADER])?;
        Ok(this)
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn write(&mut self, ids: &[u32]) -> Result<()> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        if self.width == 2 {
            bytes.extend(ids.iter().flat_map(|&id| (id as u16).to_le_bytes()));
        } else {
            bytes.extend(ids.iter().flat_map(|&id| id.to_le_bytes()));
        }
        self.digest.update(&bytes);
        self.count += ids.len() as u64;
        let result = self.put(&bytes);
        self.bytes = bytes;
        result
    }

    /// Completes the header and gives the file its name.
    pub(super) fn finish(mut self, mut header: Header) -> Result<()> {
        header.width = self.width as u32;
        header.count = self.count;
        header.checksum = self.digest.value();
        let finish = |file: Option<BufWriter<File>>| -> std::io::Result<()> {
            let Some(file) = file else { return Ok(()) };
            let mut file = file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&header.to_bytes())?;
            file.sync_all()?;
            fs::rename(&self.temporary, &self.path)
        };
        finish(self.file.take()).map_err(error::on("write", &self.path))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(bytes).map_err(error::on("write", &self.temporary))
    }
}

impl Drop for Writer {
    /// What was not finished leaves nothing behind.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temporary);
    }
}
