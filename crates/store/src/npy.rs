//! One array in a file, as NumPy writes it (`numpy.load` reads it).
//!
//! Version 1.0 of the format: a magic number, the length of a header that is padded to 64 bytes, the
//! header (type, order and shape as a Python literal), then the numbers.

use crate::disk;
use hearken_base::{Error, Result};
use hearken_tensor::Tensor;
use std::io::BufWriter;
use std::path::Path;

/// Writes a tensor as f32; a file that is there is overwritten.
pub fn write_npy(path: &Path, tensor: &Tensor) -> Result<()> {
    let dims: Vec<String> = tensor.shape().dims().iter().map(ToString::to_string).collect();
    // A tuple of one has a comma: (3,)
    let comma = if dims.len() == 1 { "," } else { "" };
    let shape = format!("'shape': ({}{comma}), ", dims.join(", "));
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, {shape}}}");
    // Magic, version and length take 10 bytes, the line end 1.
    let padding = (10 + header.len() + 1).next_multiple_of(64) - (10 + header.len() + 1);
    header.push_str(&" ".repeat(padding));
    header.push('\n');
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, disk::create(path)?);
        disk::write(&mut file, b"\x93NUMPY\x01\x00")?;
        disk::write(&mut file, &(header.len() as u16).to_le_bytes())?;
        disk::write(&mut file, header.as_bytes())?;
        disk::write(&mut file, bytemuck::cast_slice(tensor.data()))?;
        let file = file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        disk::sync(&file)
    };
    write().map_err(Error::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_what_numpy_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        for (shape, literal) in [(&[2, 3][..], "(2, 3)"), (&[6][..], "(6,)"), (&[][..], "()")] {
            let numbers: Vec<f32> = (0..shape.iter().product()).map(|i| i as f32).collect();
            write_npy(&path, &Tensor::new(shape, &numbers)).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes[..8], *b"\x93NUMPY\x01\x00");
            let length = u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
            assert!((10 + length).is_multiple_of(64) && bytes[9 + length] == b'\n');
            let header = std::str::from_utf8(&bytes[10..10 + length]).unwrap();
            let want = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {literal}, }}");
            assert_eq!(header.trim_end(), want);
            let stored: Vec<f32> = bytes[10 + length..]
                .chunks(4)
                .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                .collect();
            assert_eq!(stored, numbers);
        }
    }
}
