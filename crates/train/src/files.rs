//! Writing files so that a power cut leaves the old or the new, never half of either; and reading
//! them with an eye on what they claim.

use crate::error;
use hearken_base::Result;
use hearken_tensor::{Param, Shape, Tensor};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Replaces `path` by `content`: written beside it, forced to disk, renamed over it.
pub fn write_atomically(path: &Path, content: &[u8]) -> Result<()> {
    let temporary = beside(path);
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    });
    written.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        error::io("write", path)(error)
    })?;
    sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// As [`write_atomically`] but without forcing it to disk: for what can be made again from other
/// files, such as a report.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let temporary = beside(path);
    fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path)).map_err(|error| {
        let _ = fs::remove_file(&temporary);
        error::io("write", path)(error)
    })
}

/// A hidden name in the same directory.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp-{}", std::process::id()))
}

/// Forces the names in a directory to disk.
pub fn sync_directory(path: &Path) -> Result<()> {
    // Only Unix can open a directory as a file; elsewhere renames are durable by themselves or
    // not at all.
    if cfg!(unix) {
        File::open(path).and_then(|dir| dir.sync_all()).map_err(error::io("write", path))?;
    }
    Ok(())
}

/// Makes `link` stand for its sibling `target` in one step: a relative symbolic link on Unix, a
/// small file with the name elsewhere.
pub fn point(link: &Path, target: &str) -> Result<()> {
    #[cfg(unix)]
    {
        let temporary = beside(link);
        let _ = fs::remove_file(&temporary);
        std::os::unix::fs::symlink(target, &temporary)
            .and_then(|()| fs::rename(&temporary, link))
            .map_err(error::io("write", link))?;
        sync_directory(link.parent().unwrap_or(Path::new(".")))
    }
    #[cfg(not(unix))]
    write_atomically(link, target.as_bytes())
}

/// What [`point`] wrote; `None` if there is nothing.
pub fn pointed(link: &Path) -> Option<String> {
    if let Ok(target) = fs::read_link(link) {
        return Some(target.to_string_lossy().into_owned());
    }
    let text = read_text(link, 4096).ok()?;
    Some(text.trim().to_owned())
}

/// The text of a file, which must not be larger than `most` bytes.
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    let file = File::open(path).map_err(error::io("read", path))?;
    let mut text = String::new();
    let read = file.take(most + 1).read_to_string(&mut text).map_err(error::io("read", path))?;
    if read as u64 > most {
        return Err(error::damaged(path, format!("larger than {most} bytes")));
    }
    Ok(text)
}

/// The SHA-256 of a file, in hexadecimal.
pub fn checksum(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(error::io("read", path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = file.read(&mut buffer).map_err(error::io("read", path))?;
        if n == 0 {
            return Ok(hexadecimal(&hash.finalize()));
        }
        hash.update(&buffer[..n]);
    }
}

/// The SHA-256 of the bits of all parameters in order, in hexadecimal.
pub fn checksum_of_parameters(parameters: &[Param]) -> String {
    let mut hash = Sha256::new();
    for parameter in parameters {
        hash.update(bytemuck::cast_slice::<f32, u8>(parameter.value().data()));
    }
    hexadecimal(&hash.finalize())
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).expect("below 16");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Writes named tensors as a safetensors file of f32.
pub fn write_tensors(path: &Path, tensors: &[(String, Tensor)]) -> Result<()> {
    const { assert!(cfg!(target_endian = "little"), "safetensors are little endian") };
    let views = tensors.iter().map(|(name, tensor)| {
        let shape = tensor.shape().dims().to_vec();
        let bytes = bytemuck::cast_slice(tensor.data());
        let view = TensorView::new(Dtype::F32, shape, bytes).expect("bytes fit the shape");
        (name.as_str(), view)
    });
    safetensors::serialize_to_file(views, None, path).map_err(|error| match error {
        safetensors::SafeTensorError::IoError(error) => error::io("write", path)(error),
        other => error::io("write", path)(std::io::Error::other(other)),
    })
}

/// A safetensors file in memory.
pub struct TensorFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl TensorFile {
    /// Reads the file; its header is checked against its length before anything is made of it.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(error::io("read", path))?;
        SafeTensors::deserialize(&bytes)
            .map_err(|error| error::damaged(path, error.to_string()))?;
        Ok(Self { path: path.to_owned(), bytes })
    }

    /// The tensors, to be asked for by name.
    pub fn tensors(&self) -> Result<Tensors<'_>> {
        let file = SafeTensors::deserialize(&self.bytes)
            .map_err(|error| error::damaged(&self.path, error.to_string()))?;
        Ok(Tensors { path: &self.path, file })
    }
}

/// The tensors of a [`TensorFile`].
pub struct Tensors<'a> {
    path: &'a Path,
    file: SafeTensors<'a>,
}

impl Tensors<'_> {
    /// The f32 tensor called `name`, which must have this shape.
    pub fn get(&self, name: &str, shape: Shape) -> Result<Tensor> {
        let mismatch = |what: String| {
            let hint = "resume with the configuration that the run was started with";
            error::mismatch(self.path, what, hint)
        };
        let view = self.file.tensor(name).map_err(|_| mismatch(format!("it has no {name}")))?;
        if view.dtype() != Dtype::F32 || view.shape() != shape.dims() {
            let (dtype, dims) = (view.dtype(), view.shape());
            return Err(mismatch(format!("{name} is {dtype} {dims:?}, expected F32 {shape}")));
        }
        Ok(tensor_of(&view, shape))
    }

    /// All tensors whose names begin with `prefix`, without it, sorted by name.
    pub fn with_prefix(&self, prefix: &str) -> Result<Vec<(String, Tensor)>> {
        let mut found = Vec::new();
        for (name, view) in self.file.iter() {
            let Some(rest) = name.strip_prefix(prefix) else { continue };
            let dims = view.shape();
            if view.dtype() != Dtype::F32 || dims.len() > Shape::MOST {
                let what = format!("{name} is {} {dims:?}, expected F32", view.dtype());
                return Err(error::damaged(self.path, what));
            }
            found.push((rest.to_owned(), tensor_of(&view, Shape::from(dims))));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }
}

fn tensor_of(view: &TensorView<'_>, shape: Shape) -> Tensor {
    let mut tensor = Tensor::unset(shape);
    // The bytes need not be aligned for f32.
    for (x, bytes) in tensor.data_mut().iter_mut().zip(view.data().as_chunks::<4>().0) {
        *x = f32::from_le_bytes(*bytes);
    }
    tensor
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_base::Kind;

    #[test]
    fn writing_replaces_and_leaves_nothing_beside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn pointers_move() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("last");
        assert_eq!(pointed(&link), None);
        point(&link, "step-1").unwrap();
        point(&link, "step-2").unwrap();
        assert_eq!(pointed(&link).as_deref(), Some("step-2"));
    }

    #[test]
    fn checksums_are_those_of_sha256sum() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        fs::write(&path, "abc").unwrap();
        // The first example of FIPS 180-4.
        let want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(checksum(&path).unwrap(), want);
    }

    #[test]
    fn tensors_come_back_with_their_bits_and_only_in_their_shape() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.safetensors");
        let tensor = Tensor::new([2, 2], &[1.0, -0.0, f32::MIN_POSITIVE / 2.0, f32::NAN]);
        write_tensors(&path, &[("a".to_owned(), tensor.clone())]).unwrap();
        let file = TensorFile::read(&path).unwrap();
        let tensors = file.tensors().unwrap();
        let back = tensors.get("a", tensor.shape()).unwrap();
        let bits = |t: &Tensor| t.data().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&back), bits(&tensor));
        let error = tensors.get("a", Shape::from([4])).unwrap_err().to_string();
        assert!(error.contains("a is F32 [2, 2], expected F32 (4)"), "{error}");
        assert!(tensors.get("b", tensor.shape()).is_err());
    }

    #[test]
    fn a_header_that_promises_too_much_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.safetensors");
        let header =
            br#"{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}"#;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(&[0; 8]);
        fs::write(&path, &bytes).unwrap();
        assert_eq!(TensorFile::read(&path).err().unwrap().kind(), Kind::Damaged);
        fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
        assert_eq!(TensorFile::read(&path).err().unwrap().kind(), Kind::Damaged);
    }
}
