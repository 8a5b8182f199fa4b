//! Writing files so that a power cut leaves the old or the new, never half of either; and reading
//! them with an eye on what they claim.

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

use crate::error;
use hearken_base::Result;
use hearken_store::{TensorFile, disk};
use hearken_tensor::{Param, Shape, Tensor};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Replaces `path` by `content`: written beside it, forced to disk, renamed over it.
pub fn write_atomically(path: &Path, content: &[u8]) -> Result<()> {
    let temporary = beside(path);
    let written = disk::create(&temporary).and_then(|mut file| {
        disk::write(&mut file, content)?;
        disk::sync(&file)?;
        disk::rename(&temporary, path)
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
    let written = disk::write_file(&temporary, content);
    written.and_then(|()| disk::rename(&temporary, path)).map_err(|error| {
        let _ = fs::remove_file(&temporary);
        error::io("write", path)(error)
    })
}

/// What follows the name of a file in that of its successor, before the number of the process.
const TEMPORARY: &str = ".tmp-";

/// A hidden name in the same directory.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{TEMPORARY}{}", std::process::id()))
}

/// Forces the names in a directory to disk.
pub fn sync_directory(path: &Path) -> Result<()> {
    // Only Unix can open a directory as a file; elsewhere renames are durable by themselves or
    // not at all.
    if cfg!(unix) {
        disk::sync_path(path).map_err(error::io("write", path))?;
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
        disk::link(target, &temporary)
            .and_then(|()| disk::rename(&temporary, link))
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

/// The text of a regular file, which must not be larger than `most` bytes.
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    hearken_store::files::read_text(path, most).map_err(error::with_hint_of_run)
}

/// Removes what [`write_atomically`], [`replace`] and [`point`] leave behind in `directory` if they
/// are killed, and what preparing data leaves (`NAME.PID.tmp`). Nobody else may be writing there.
pub(crate) fn sweep(directory: &Path) {
    let is_id = |id: &str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
    let is_left = |name: &str| {
        let ours = name.strip_prefix('.').and_then(|name| name.rsplit_once(TEMPORARY));
        let data = name.strip_suffix(".tmp").and_then(|name| name.rsplit_once('.'));
        ours.or(data).is_some_and(|(_, id)| is_id(id))
    };
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if is_left(&entry.file_name().to_string_lossy()) {
            // One that cannot be removed does no harm.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The SHA-256 of a file, in hexadecimal.
pub fn checksum(path: &Path) -> Result<String> {
    let mut file = hearken_store::files::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = file.read(&mut buffer).map_err(error::io("read", path))?;
        if n == 0 {
            return Ok(hexadecimal(&hash.finalize()));
        }
        hash.update(buffer.get(..n).unwrap_or(&buffer));
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
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Writes named tensors as a safetensors file of f32.
pub fn write_tensors(path: &Path, tensors: &[(String, Tensor)]) -> Result<()> {
    let named = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
    hearken_store::write(path, named).map_err(error::with_hint_of_run)
}

/// The tensor of `file` called `name`, which must be f32 and have this shape.
pub fn tensor(file: &TensorFile, name: &str, shape: Shape) -> Result<Tensor> {
    let mismatch = |what: String| {
        let hint = "resume with the configuration that the run was started with";
        error::mismatch(file.path(), what, hint)
    };
    let entry = file.find(name).ok_or_else(|| mismatch(format!("it has no {name}")))?;
    let (dtype, dims) = (&entry.dtype, &entry.shape);
    if dtype != "F32" || dims != shape.dims() {
        return Err(mismatch(format!("{name} is {dtype} {dims:?}, expected F32 {shape}")));
    }
    file.tensor(name)
}

/// All tensors of `file` whose names begin with `prefix`, without it, sorted by name.
pub fn tensors_with_prefix(file: &TensorFile, prefix: &str) -> Result<Vec<(String, Tensor)>> {
    let rests = file.entries().iter().filter_map(|entry| entry.name.strip_prefix(prefix));
    let mut rests: Vec<&str> = rests.collect();
    rests.sort_unstable();
    let read = |rest: &str| Ok((rest.to_owned(), file.tensor(&format!("{prefix}{rest}"))?));
    rests.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_killed_processes_left_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let left = [".last.tmp-12", "tokenizer.json.12.tmp", "stdin.txt.3.tmp", "pipe-1.txt.9.tmp"];
        let kept = ["notes.tmp", "a.12", "b.x1.tmp", ".c.tmp-", "metrics.jsonl"];
        for name in left.iter().chain(&kept) {
            fs::write(dir.path().join(name), "").unwrap();
        }
        sweep(dir.path());
        let exists = |name: &&str| dir.path().join(name).exists();
        assert!(!left.iter().any(exists) && kept.iter().all(exists));
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
    fn tensors_come_back_only_in_their_shape() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.safetensors");
        let value = Tensor::new([2, 2], &[1.0, -0.0, f32::MIN_POSITIVE / 2.0, f32::NAN]);
        write_tensors(
            &path,
            &[("x.b".to_owned(), value.clone()), ("x.a".to_owned(), value.clone())],
        )
        .unwrap();
        let file = TensorFile::open(&path).unwrap();
        let bits = |t: &Tensor| t.data().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&tensor(&file, "x.a", value.shape()).unwrap()), bits(&value));
        let error = tensor(&file, "x.a", Shape::from([4])).unwrap_err().to_string();
        assert!(error.contains("x.a is F32 [2, 2], expected F32 (4)"), "{error}");
        assert!(tensor(&file, "b", value.shape()).is_err());
        let names: Vec<String> =
            tensors_with_prefix(&file, "x.").unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
