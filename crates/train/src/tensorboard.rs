//! Event files that TensorBoard reads.
//!
//! A file is a sequence of records: the length of the data (u64), a checksum of the length, the
//! data, a checksum of the data; all little endian. The checksum is CRC-32C, turned right by 15
//! bits plus a constant, so that a checksum of data that holds checksums is not special. The data
//! of each record is an `Event` in protocol-buffer encoding:
//!
//! ```text
//! Event   { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
//! Summary { repeated Value value = 1; }
//! Value   { string tag = 1; float simple_value = 2; }
//! ```

use crate::error;
use hearken_base::Result;
use hearken_store::disk;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file of events that is written to.
pub struct EventFile {
    path: PathBuf,
    file: BufWriter<File>,
}

impl EventFile {
    /// Starts a new file in `directory`, whose name tells when, and removes those that earlier
    /// parts of the same run have left.
    pub fn create(directory: &Path, wall_time: f64) -> Result<Self> {
        const SUFFIX: &str = ".hearken";
        for entry in std::fs::read_dir(directory).map_err(error::io("read", directory))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("events.out.tfevents.") && name.ends_with(SUFFIX) {
                std::fs::remove_file(entry.path()).map_err(error::io("remove", &entry.path()))?;
            }
        }
        let name = format!("events.out.tfevents.{:010}{SUFFIX}", wall_time as u64);
        let path = directory.join(name);
        let file = disk::create(&path).map_err(error::io("create", &path))?;
        let mut events = Self { path, file: BufWriter::new(file) };
        let mut event = Vec::new();
        put_double(&mut event, 1, wall_time);
        put_bytes(&mut event, 3, b"brain.Event:2");
        events.record(&event)?;
        Ok(events)
    }

    /// Writes numbers of one step.
    pub fn scalars(&mut self, wall_time: f64, step: u64, scalars: &[(&str, f64)]) -> Result<()> {
        if scalars.is_empty() {
            return Ok(());
        }
        let mut summary = Vec::new();
        for (tag, number) in scalars {
            let mut value = Vec::new();
            put_bytes(&mut value, 1, tag.as_bytes());
            put_float(&mut value, 2, *number as f32);
            put_bytes(&mut summary, 1, &value);
        }
        let mut event = Vec::new();
        put_double(&mut event, 1, wall_time);
        put_key(&mut event, 2, VARINT);
        put_varint(&mut event, step);
        put_bytes(&mut event, 5, &summary);
        self.record(&event)
    }

    /// Hands everything to the system, so that a running TensorBoard sees it.
    pub fn flush(&mut self) -> Result<()> {
        disk::flush(&mut self.file).map_err(error::io("write", &self.path))
    }

    fn record(&mut self, data: &[u8]) -> Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        let mut record = Vec::with_capacity(data.len() + 16);
        record.extend_from_slice(&length);
        record.extend_from_slice(&masked(crc32c(&length)).to_le_bytes());
        record.extend_from_slice(data);
        record.extend_from_slice(&masked(crc32c(data)).to_le_bytes());
        self.file.write_all(&record).map_err(error::io("write", &self.path))
    }
}

// The wire types of protocol buffers.
const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const BYTES: u64 = 2;
const FOUR_BYTES: u64 = 5;

fn put_varint(out: &mut Vec<u8>, mut x: u64) {
    while x >= 0x80 {
        out.push(x as u8 | 0x80);
        x >>= 7;
    }
    out.push(x as u8);
}

fn put_key(out: &mut Vec<u8>, field: u64, wire_type: u64) {
    put_varint(out, field << 3 | wire_type);
}

fn put_double(out: &mut Vec<u8>, field: u64, x: f64) {
    put_key(out, field, EIGHT_BYTES);
    out.extend_from_slice(&x.to_le_bytes());
}

fn put_float(out: &mut Vec<u8>, field: u64, x: f32) {
    put_key(out, field, FOUR_BYTES);
    out.extend_from_slice(&x.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_key(out, field, BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit from a table of bytes.
fn crc32c(data: &[u8]) -> u32 {
    !data
        .iter()
        .fold(!0, |crc, byte| CRC_TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ crc >> 8)
}

/// The remainder of each byte. 0x82f63b78 is the polynomial 0x1edc6f41, bits reversed.
const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        // RFC 3720, B.4: 32 bytes of zeros, of ones, and ascending; and the usual check value.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    /// As TensorBoard's own reader (`EventFileLoader`) lists what this test writes:
    /// `fixtures/read_events.py` is what it was checked with.
    #[test]
    fn a_file_has_the_bytes_that_tensorboard_reads() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("events.out.tfevents.1.hearken"), "old").unwrap();
        std::fs::write(dir.path().join("events.out.tfevents.1.other"), "not ours").unwrap();
        let mut events = EventFile::create(dir.path(), 1000.0).unwrap();
        events.scalars(1001.0, 300, &[("loss", 1.5)]).unwrap();
        events.flush().unwrap();
        assert!(!dir.path().join("events.out.tfevents.1.hearken").exists());
        assert!(dir.path().join("events.out.tfevents.1.other").exists());
        let bytes =
            std::fs::read(dir.path().join("events.out.tfevents.0000001000.hearken")).unwrap();
        let second = &bytes[16 + 9 + 2 + 13..]; // past the header's record
        let mut data = vec![0x09]; // field 1, eight bytes
        data.extend_from_slice(&1001.0_f64.to_le_bytes());
        data.extend_from_slice(&[0x10, 0xac, 0x02]); // field 2, varint 300
        data.extend_from_slice(&[0x2a, 13, 0x0a, 11, 0x0a, 4]); // summary, value, tag
        data.extend_from_slice(b"loss\x15"); // then field 2, four bytes
        data.extend_from_slice(&1.5_f32.to_le_bytes());
        assert_eq!(second[..8], (data.len() as u64).to_le_bytes());
        assert_eq!(second[12..12 + data.len()], data);
        assert_eq!(second.len(), 16 + data.len());
    }
}
