//! Numbers between files and parameters, a few megabytes at a time.

use super::WeightFiles;
use crate::families::names::Piece;
use hearken_base::{Error, Result};
use hearken_store::{TensorFile, Writer};
use hearken_tensor::{HalfTensor, Param, Role, Saved, Shape, Storage, Tensor, with_storage};
use std::ops::Range;

/// Numbers that a buffer holds, or a row if that is longer: 4 MB. A transposed matrix is read in so
/// many passes over its rows as this goes into it, so that it should not be small.
const BUFFER: usize = 1 << 20;

/// Reads a parameter from the pieces that make it up, into its final storage: matrices and tables in
/// `storage`, vectors in f32.
pub(crate) fn fill(
    parameter: &Param,
    pieces: &[Piece],
    files: &WeightFiles,
    storage: Storage,
) -> Result<()> {
    let shape = parameter.shape();
    if storage == Storage::F32 || parameter.role() == Role::Vector {
        let (mut value, mut scratch) = (Tensor::unset(shape), Vec::new());
        let numbers = value.data_mut();
        for piece in pieces {
            let file = file_of(files, &piece.theirs)?;
            for (start, rows) in blocks(piece) {
                #[expect(clippy::indexing_slicing, reason = "pieces were cut from this shape")]
                let out = &mut numbers[start..start + rows.len() * piece.width];
                read_block(file, piece, rows, &mut scratch, out)?;
            }
        }
        parameter.set_value(value);
    } else {
        let mut value = HalfTensor::zeros(shape, storage);
        let (mut buffer, mut scratch) = (Vec::new(), Vec::new());
        for piece in pieces {
            let file = file_of(files, &piece.theirs)?;
            for (start, rows) in blocks(piece) {
                buffer.resize(rows.len() * piece.width, 0.0);
                read_block(file, piece, rows, &mut scratch, &mut buffer)?;
                value.write(start, &buffer);
            }
        }
        parameter.set_half(value);
    }
    Ok(())
}

fn file_of<'a>(files: &'a WeightFiles, name: &str) -> Result<&'a TensorFile> {
    let gone = || Error::new(format!("{} has no tensor {name}", files.path().display()), "");
    files.find(name).ok_or_else(gone)
}

/// The rows of a piece in blocks that fit in a buffer: where the block starts in the parameter, and
/// which rows of the piece it is.
fn blocks(piece: &Piece) -> impl Iterator<Item = (usize, Range<usize>)> {
    let (first, count, width) = (piece.rows.start, piece.rows.len(), piece.width);
    let each = (BUFFER / width.max(1)).max(1);
    (0..count).step_by(each).map(move |row| {
        let rows = row..(row + each).min(count);
        ((first + row) * width, rows)
    })
}

fn read_block(
    file: &TensorFile,
    piece: &Piece,
    rows: Range<usize>,
    scratch: &mut Vec<f32>,
    out: &mut [f32],
) -> Result<()> {
    let (name, width, count) = (&piece.theirs, piece.width, piece.rows.len());
    if piece.transposed {
        // (C, R) in the file.
        let read = |start, out: &mut [f32]| file.read_range(name, start, out);
        return columns(read, (width, count), rows, scratch, out);
    }
    file.read_range(name, (piece.skipped + rows.start) * width, out)
}

/// Some columns of a matrix as the rows of `out`. `read` reads numbers of the matrix, from one on.
fn columns(
    mut read: impl FnMut(usize, &mut [f32]) -> Result<()>,
    (rows, width): (usize, usize),
    columns: Range<usize>,
    scratch: &mut Vec<f32>,
    out: &mut [f32],
) -> Result<()> {
    let each = columns.len();
    scratch.resize(rows * each, 0.0); // (rows, each)
    if each == width {
        read(0, scratch)?;
    } else {
        for (row, part) in scratch.chunks_exact_mut(each.max(1)).enumerate() {
            read(row * width + columns.start, part)?;
        }
    }
    transpose(scratch, rows, each, out);
    Ok(())
}

/// `from` (rows, columns) into `to` (columns, rows), in squares that stay in the cache.
#[expect(clippy::indexing_slicing, reason = "both have rows · columns numbers")]
fn transpose(from: &[f32], rows: usize, columns: usize, to: &mut [f32]) {
    const SIDE: usize = 32;
    for row in (0..rows).step_by(SIDE) {
        for column in (0..columns).step_by(SIDE) {
            for i in row..(row + SIDE).min(rows) {
                for j in column..(column + SIDE).min(columns) {
                    to[j * rows + i] = from[i * columns + j];
                }
            }
        }
    }
}

/// Writes a piece of a parameter as the next tensor of a file.
#[expect(clippy::indexing_slicing, reason = "a piece lies within its parameter")]
pub(crate) fn write(parameter: &Param, piece: &Piece, writer: &mut Writer) -> Result<()> {
    // What is kept in 16 bits is widened in parts; f32 is not rounded, whatever is current.
    let weight = with_storage(Storage::F32, || parameter.weight());
    let from = piece.rows.start * piece.width;
    let read = |start: usize, out: &mut [f32]| {
        let range = from + start..from + start + out.len();
        match weight.stored() {
            Saved::Whole(value) => out.copy_from_slice(&value.data()[range]),
            Saved::Half(half) => half.widen_range(range, out),
        }
        Ok(())
    };
    let shape = (piece.rows.len(), piece.width);
    // Rows of the file, which are columns of ours if it is transposed.
    let (count, width) = if piece.transposed { (shape.1, shape.0) } else { shape };
    let each = (BUFFER / width.max(1)).max(1);
    let (mut buffer, mut scratch) = (Vec::new(), Vec::new());
    if piece.skipped > 0 {
        writer.write(&vec![0.0; piece.skipped * width])?;
    }
    for row in (0..count).step_by(each) {
        let rows = row..(row + each).min(count);
        buffer.resize(rows.len() * width, 0.0);
        if piece.transposed {
            columns(read, shape, rows, &mut scratch, &mut buffer)?;
        } else {
            read(row * width, &mut buffer)?;
        }
        writer.write(&buffer)?;
    }
    Ok(())
}

/// A piece of a tensor, as a tensor of theirs.
#[expect(clippy::indexing_slicing, reason = "a piece lies within its parameter")]
pub(crate) fn cut(tensor: &Tensor, piece: &Piece) -> Tensor {
    let start = piece.rows.start * piece.width;
    let data = &tensor.data()[start..start + piece.rows.len() * piece.width];
    let mut theirs = Tensor::unset(Shape::new(&piece.shape));
    if piece.skipped > 0 {
        let (skipped, rest) = theirs.data_mut().split_at_mut(piece.skipped * piece.width);
        skipped.fill(0.0);
        rest.copy_from_slice(data);
    } else if piece.transposed {
        transpose(data, piece.rows.len(), piece.width, theirs.data_mut());
    } else {
        theirs.data_mut().copy_from_slice(data);
    }
    theirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_rows_in_blocks_of_any_size() {
        let (rows, width) = (45, 37);
        let matrix: Vec<f32> = (0..rows * width).map(|i| i as f32).collect();
        let read = |start: usize, out: &mut [f32]| {
            out.copy_from_slice(&matrix[start..start + out.len()]);
            Ok(())
        };
        for range in [0..37, 0..1, 5..36, 36..37] {
            let mut out = vec![f32::NAN; range.len() * rows];
            columns(read, (rows, width), range.clone(), &mut Vec::new(), &mut out).unwrap();
            for (i, x) in out.iter().enumerate() {
                let (column, row) = (range.start + i / rows, i % rows);
                assert_eq!(*x, (row * width + column) as f32);
            }
        }
    }
}
