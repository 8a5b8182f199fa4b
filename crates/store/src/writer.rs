//! Tensors into a file, piece by piece, as f32.

use crate::disk;
use crate::header;
use hearken_base::{Error, Result};
use hearken_tensor::Tensor;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// A safetensors file that is being written: the header first, then the numbers of its tensors in
/// the same order, in pieces of any size.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    /// Numbers that are still to come.
    rest: usize,
}

impl Writer {
    /// Starts a file of tensors of these names and shapes; one that is there is overwritten.
    pub fn create(path: &Path, tensors: &[(String, Vec<usize>)]) -> Result<Self> {
        let file = disk::create(path).map_err(Error::io("write", path))?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let listed = tensors.iter().map(|(name, shape)| (name.as_str(), &shape[..]));
        disk::write(&mut file, &header::of(listed)).map_err(Error::io("write", path))?;
        let rest = tensors.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        Ok(Self { path: path.to_owned(), file, rest })
    }

    /// Writes the next numbers. Panics if there are more than the header says.
    pub fn write(&mut self, numbers: &[f32]) -> Result<()> {
        let rest = self.rest.checked_sub(numbers.len());
        self.rest = rest.unwrap_or_else(|| panic!("more numbers than the header says"));
        let bytes: &[u8] = bytemuck::cast_slice(numbers);
        disk::write(&mut self.file, bytes).map_err(Error::io("write", &self.path))
    }

    /// Forces everything to disk. Panics if there are fewer numbers than the header says.
    pub fn finish(self) -> Result<()> {
        assert_eq!(self.rest, 0, "fewer numbers than the header says");
        let file = self.file.into_inner().map_err(std::io::IntoInnerError::into_error);
        file.and_then(|file| disk::sync(&file)).map_err(Error::io("write", &self.path))
    }
}

/// Writes whole tensors in the given order.
pub fn write<'a>(
    path: &Path,
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
) -> Result<()> {
    let tensors: Vec<(&str, &Tensor)> = tensors.into_iter().collect();
    let listed = tensors.iter().map(|(name, t)| ((*name).to_owned(), t.shape().dims().to_vec()));
    let mut writer = Writer::create(path, &listed.collect::<Vec<_>>())?;
    for (_, tensor) in &tensors {
        writer.write(tensor.data())?;
    }
    writer.finish()
}
