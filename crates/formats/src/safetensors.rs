//! Safetensors: eight bytes with the length of a JSON header, the header, then the numbers.
//!
//! The header maps each name to its type, shape and place behind the header. Everything in it is
//! checked before it is used: the length against the file, places against the data and each
//! other, shapes against places; a header is at most 100 MB. Numbers are little-endian f32, f16
//! or bf16, widened to f32 when read.

use crate::error::FormatError;
use half::{bf16, f16};
use hearken_tensor::{Shape, Tensor};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

/// Headers longer than this are refused, as the format's own reader does.
const LONGEST_HEADER: u64 = 100_000_000;

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// What a file says of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its type, as the file writes it: `F32`, `F16`, `BF16`, ….
    pub dtype: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
    start: u64,
    end: u64,
}

/// Reads the header of a file: its tensors in the order of their places.
pub fn entries(path: &Path) -> Result<Vec<Entry>, FormatError> {
    let (entries, _) = open(path)?;
    Ok(entries)
}

/// Reads all tensors of a file, widened to f32.
pub fn read(path: &Path) -> Result<Tensors, FormatError> {
    let (entries, mut data) = open(path)?;
    let mut tensors = Tensors::new();
    let mut at = 0;
    for entry in entries {
        // Places were checked to follow one another; a gap between them is skipped.
        std::io::copy(&mut (&mut data).take(entry.start - at), &mut std::io::sink())
            .map_err(|e| FormatError::read(path, e))?;
        let mut tensor = Tensor::unset(Shape::new(&entry.shape));
        fill(&mut data, &entry.dtype, tensor.data_mut()).map_err(|e| FormatError::read(path, e))?;
        at = entry.end;
        tensors.insert(entry.name, tensor);
    }
    Ok(tensors)
}

fn fill(data: &mut impl Read, dtype: &str, out: &mut [f32]) -> std::io::Result<()> {
    let mut bytes = vec![0; 1 << 16];
    let size = if dtype == "F32" { 4 } else { 2 };
    for out in out.chunks_mut(bytes.len() / size) {
        let bytes = &mut bytes[..out.len() * size];
        data.read_exact(bytes)?;
        match dtype {
            "F32" => {
                for (x, b) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *x = f32::from_le_bytes(*b);
                }
            }
            "F16" => {
                for (x, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *x = f16::from_le_bytes(*b).to_f32();
                }
            }
            _ => {
                for (x, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *x = bf16::from_le_bytes(*b).to_f32();
                }
            }
        }
    }
    Ok(())
}

/// The checked header and the file behind it.
fn open(path: &Path) -> Result<(Vec<Entry>, BufReader<File>), FormatError> {
    let bad = |message: String| {
        FormatError::content(path, message, "the file is damaged or not safetensors: get it again")
    };
    let io = |e| FormatError::read(path, e);
    let file = File::open(path).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    let mut file = BufReader::new(file);
    if size < 8 {
        return Err(bad(format!("{size} bytes are too few for a header")));
    }
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(io)?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST_HEADER || length > size - 8 {
        return Err(bad(format!("a header of {length} bytes does not fit in a file of {size}")));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(io)?;
    let header: Map<String, Value> =
        serde_json::from_slice(&header).map_err(|e| bad(format!("the header is not JSON: {e}")))?;
    let room = size - 8 - length;
    let mut entries = Vec::new();
    for (name, value) in header {
        if name != "__metadata__" {
            entries.push(entry(name, &value, room).map_err(bad)?);
        }
    }
    entries.sort_by_key(|e| (e.start, e.end));
    let mut last = 0;
    for entry in &entries {
        if entry.start < last {
            return Err(bad(format!("{} overlaps the tensor before it", entry.name)));
        }
        last = entry.end;
    }
    Ok((entries, file))
}

fn entry(name: String, value: &Value, room: u64) -> Result<Entry, String> {
    let numbers = |key: &str| -> Option<Vec<u64>> {
        value.get(key)?.as_array()?.iter().map(Value::as_u64).collect()
    };
    let (Some(dtype), Some(shape), Some(place)) =
        (value.get("dtype").and_then(Value::as_str), numbers("shape"), numbers("data_offsets"))
    else {
        return Err(format!("{name} lacks a dtype, shape or data_offsets"));
    };
    let size: u64 = match dtype {
        "F32" => 4,
        "F16" | "BF16" => 2,
        other => return Err(format!("{name} is of type {other}, expected F32, F16 or BF16")),
    };
    if shape.len() > Shape::MOST {
        return Err(format!(
            "{name} has {} dimensions, expected at most {}",
            shape.len(),
            Shape::MOST
        ));
    }
    let bytes = shape.iter().try_fold(size, |n, d| n.checked_mul(*d));
    let [start, end] = place[..] else { return Err(format!("{name} has no start and end")) };
    if start > end || end > room || bytes != Some(end - start) {
        return Err(format!(
            "{name} of shape {shape:?} does not lie at {start}..{end} of {room} bytes"
        ));
    }
    let shape = shape.into_iter().map(|d| d as usize).collect();
    Ok(Entry { name, dtype: dtype.to_owned(), shape, start, end })
}

/// Writes tensors in the given order, as f32.
pub fn write<'a>(
    path: &Path,
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
) -> Result<(), FormatError> {
    let tensors: Vec<(&str, &Tensor)> = tensors.into_iter().collect();
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!({ "format": "pt" }));
    let mut at = 0_u64;
    for (name, tensor) in &tensors {
        let end = at + 4 * tensor.data().len() as u64;
        let shape = tensor.shape();
        let entry = json!({ "dtype": "F32", "shape": shape.dims(), "data_offsets": [at, end] });
        header.insert((*name).to_owned(), entry);
        at = end;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' '); // numbers start on eight bytes
    let io = |e| FormatError::write(path, e);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(io)?);
    file.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
    file.write_all(&header).map_err(io)?;
    let mut bytes = Vec::with_capacity(1 << 16);
    for (_, tensor) in &tensors {
        for chunk in tensor.data().chunks(1 << 14) {
            bytes.clear();
            bytes.extend(chunk.iter().flat_map(|x| x.to_le_bytes()));
            file.write_all(&bytes).map_err(io)?;
        }
    }
    let file = file.into_inner().map_err(|e| io(e.into_error()))?;
    file.sync_all().map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_tensor::rng::Rng;

    fn temporary(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("hearken-safetensors-{}-{name}", std::process::id()))
    }

    #[test]
    fn what_is_written_is_read_to_the_bit() {
        let path = temporary("round-trip");
        let (a, b) = (Rng::new(1).normal([3, 50_000], 1.0), Tensor::new([2], &[f32::NAN, -0.0]));
        write(&path, [("a", &a), ("b", &b), ("scalar", &Tensor::scalar(7.0))]).unwrap();
        let back = read(&path).unwrap();
        assert_eq!(back.len(), 3);
        for (name, want) in [("a", &a), ("b", &b)] {
            let bits = |t: &Tensor| t.data().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(back[name].shape(), want.shape());
            assert_eq!(bits(&back[name]), bits(want));
        }
        assert_eq!(back["scalar"].item(), 7.0);
        std::fs::remove_file(path).unwrap();
    }

    fn raw(name: &str, header: &str, data: &[u8]) -> std::path::PathBuf {
        let path = temporary(name);
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn sixteen_bit_numbers_are_widened() {
        let header = r#"{"h":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},
            "b":{"dtype":"BF16","shape":[1],"data_offsets":[2,4]}}"#;
        let data = [f16::from_f32(1.5).to_le_bytes(), bf16::from_f32(-3.0).to_le_bytes()].concat();
        let path = raw("halves", header, &data);
        let tensors = read(&path).unwrap();
        assert_eq!((tensors["h"].item(), tensors["b"].item()), (1.5, -3.0));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn damaged_files_are_errors_and_never_large_allocations() {
        let one = |entry: &str| format!("{{\"a\":{entry}}}");
        let headers = [
            "not json".to_owned(),
            one("3"),
            one(r#"{"dtype":"F32","shape":[1]}"#),
            one(r#"{"dtype":"I64","shape":[1],"data_offsets":[0,8]}"#),
            one(r#"{"dtype":"F32","shape":[9999999999999],"data_offsets":[0,8]}"#),
            one(r#"{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}"#),
            one(r#"{"dtype":"F32","shape":[2],"data_offsets":[0,800]}"#),
            one(r#"{"dtype":"F32","shape":[2],"data_offsets":[8,0]}"#),
            one(r#"{"dtype":"F32","shape":[1,1,1,1,1,1],"data_offsets":[0,4]}"#),
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#
                .to_owned(),
        ];
        for (i, header) in headers.iter().enumerate() {
            let path = raw(&format!("bad-{i}"), header, &[0; 8]);
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("hint: "), "{error}");
            std::fs::remove_file(path).unwrap();
        }
        for (i, bytes) in [&b""[..], b"short", &u64::MAX.to_le_bytes()].into_iter().enumerate() {
            let path = temporary(&format!("stub-{i}"));
            std::fs::write(&path, bytes).unwrap();
            assert!(read(&path).is_err());
            std::fs::remove_file(path).unwrap();
        }
        assert!(read(Path::new("no-such-file")).unwrap_err().to_string().contains("no-such-file"));
    }
}
