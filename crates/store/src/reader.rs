//! Tensors of a file, on demand.

use crate::files;
use crate::header::{self, Entry};
use half::{bf16, f16};
use hearken_base::{Error, Kind, Result, nearest};
use hearken_tensor::{Shape, Tensor};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const _: () = assert!(cfg!(target_endian = "little"), "safetensors are little endian");

/// 16-bit numbers are widened in pieces of this many.
const PIECE: usize = 1 << 15;
/// Names that are looked at for the nearest to one that is not there: it takes the product of the
/// lengths for each.
const CANDIDATES: usize = 1000;
/// Longer names are not compared.
const LONGEST_NAME: usize = 200;

/// An open safetensors file. Its header was checked; numbers are read when they are asked for.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    /// Where the data begins.
    data: u64,
    /// Reading moves its position.
    file: Mutex<File>,
}

impl TensorFile {
    /// Opens a regular file and checks its header against its length.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = files::open(path)?;
        let size = file.metadata().map_err(Error::io("read", path))?.len();
        if size < 8 {
            return Err(damaged(path, &format!("{size} bytes are too few for a header")));
        }
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(Error::io("read", path))?;
        let length = u64::from_le_bytes(length);
        if length > header::LONGEST || length > size - 8 {
            let message = format!("a header of {length} bytes does not fit in a file of {size}");
            return Err(damaged(path, &message));
        }
        let mut text = vec![0; length as usize];
        file.read_exact(&mut text).map_err(Error::io("read", path))?;
        let data = 8 + length;
        let entries = header::parse(&text, size - data).map_err(|what| damaged(path, &what))?;
        let by_name = entries.iter().enumerate().map(|(i, entry)| (entry.name.clone(), i));
        let by_name = by_name.collect();
        Ok(Self { path: path.to_owned(), entries, by_name, data, file: Mutex::new(file) })
    }

    /// Which file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All tensors, in the order of their places.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What the file says of a tensor, if it is there.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.by_name.get(name).and_then(|i| self.entries.get(*i))
    }

    /// What the file says of a tensor; an error with the nearest name if it is not there.
    pub fn entry(&self, name: &str) -> Result<&Entry> {
        self.find(name).ok_or_else(|| {
            let names = self.entries.iter().map(|entry| entry.name.as_str());
            let names = names.filter(|name| name.len() <= LONGEST_NAME).take(CANDIDATES);
            let hint = match nearest(name, names) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("it has {} tensors of other names", self.entries.len()),
            };
            Error::new(format!("{} has no tensor {name}", self.path.display()), hint)
        })
    }

    /// The dimensions of a tensor.
    pub fn shape(&self, name: &str) -> Result<&[usize]> {
        self.entry(name).map(|entry| &entry.shape[..])
    }

    /// Reads a whole tensor into `out`, as f32. Panics if `out` has another length.
    pub fn read_into(&self, name: &str, out: &mut [f32]) -> Result<()> {
        let entry = self.entry(name)?;
        assert_eq!(out.len(), entry.len(), "{name} has {:?} numbers", entry.shape);
        self.read_range(name, 0, out)
    }

    /// Reads the numbers of a tensor from number `start` on, counted row by row, as many as `out`
    /// takes, as f32. Panics if there are not so many.
    pub fn read_range(&self, name: &str, start: usize, out: &mut [f32]) -> Result<()> {
        let entry = self.entry(name)?;
        let within = start.checked_add(out.len()).is_some_and(|end| end <= entry.len());
        assert!(within, "{} numbers from {start} on of {name} {:?}", out.len(), entry.shape);
        let widen = match self.kind_of(entry)? {
            NumberKind::F32 => {
                let place = entry.start + 4 * start as u64;
                return self.read_bytes(place, bytemuck::cast_slice_mut(out));
            }
            NumberKind::F16 => widen_f16,
            NumberKind::Bf16 => widen_bf16,
        };
        let mut bytes = vec![0; 2 * out.len().min(PIECE)];
        let mut place = entry.start + 2 * start as u64;
        for out in out.chunks_mut(PIECE) {
            bytes.truncate(2 * out.len()); // the last piece may be shorter
            self.read_bytes(place, &mut bytes)?;
            widen(&bytes, out);
            place += bytes.len() as u64;
        }
        Ok(())
    }

    /// How the numbers of a tensor are stored, if they can be read as f32.
    fn kind_of(&self, entry: &Entry) -> Result<NumberKind> {
        match entry.dtype.as_str() {
            "F32" => Ok(NumberKind::F32),
            "F16" => Ok(NumberKind::F16),
            "BF16" => Ok(NumberKind::Bf16),
            other => {
                let message = format!("{} is {other}, expected F32, F16 or BF16", entry.name);
                let hint = "convert it to one of these types first";
                Err(Error::new(message, hint).within(self.path.display()))
            }
        }
    }

    fn read_bytes(&self, place: u64, out: &mut [u8]) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let from = SeekFrom::Start(self.data + place);
        file.seek(from).and_then(|_| file.read_exact(out)).map_err(Error::io("read", &self.path))
    }

    /// A whole tensor, as f32.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let entry = self.entry(name)?;
        self.kind_of(entry)?; // before memory is taken for it
        let shape = &entry.shape[..];
        if shape.len() > Shape::MOST {
            let (got, most) = (shape.len(), Shape::MOST);
            let message = format!("{name} has {got} dimensions, expected at most {most}");
            return Err(Error::new(message, "").within(self.path.display()));
        }
        let mut tensor = Tensor::unset(Shape::new(shape));
        self.read_into(name, tensor.data_mut())?;
        Ok(tensor)
    }
}

/// A type of numbers that can be read as f32.
#[derive(Clone, Copy)]
enum NumberKind {
    F32,
    F16,
    Bf16,
}

fn widen_f16(bytes: &[u8], out: &mut [f32]) {
    for (x, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *x = f16::from_le_bytes(*b).to_f32();
    }
}

fn widen_bf16(bytes: &[u8], out: &mut [f32]) {
    for (x, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *x = bf16::from_le_bytes(*b).to_f32();
    }
}

fn damaged(path: &Path, message: &str) -> Error {
    let message = format!("{}: {message}", path.display());
    Error::of(Kind::Damaged, message, "the file is damaged or not safetensors: get it again")
}
