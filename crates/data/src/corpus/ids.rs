//! Token ids, in memory or in a mapped file, read the same way.

use hearken_kernels::mapped::MappedFile;
use std::ops::Range;
use std::sync::Arc;

/// A sequence of token ids. Copies share the memory.
#[derive(Clone, Debug)]
pub struct Ids {
    store: Store,
    /// Which of the stored ids these are.
    range: Range<usize>,
}

#[derive(Clone, Debug)]
enum Store {
    Memory(Arc<[u32]>),
    /// Little-endian ids of `width` bytes from byte `offset` on.
    File {
        map: Arc<MappedFile>,
        offset: usize,
        width: usize,
    },
}

impl Ids {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Copies the ids from `start` on. Panics beyond the end.
    #[cfg_attr(
        not(test),
        expect(clippy::indexing_slicing, reason = "the assertion has checked the range")
    )]
    pub fn read(&self, start: usize, out: &mut [u32]) {
        assert!(
            start <= self.len() && out.len() <= self.len() - start,
            "{} ids from {start} on of {} ids",
            out.len(),
            self.len()
        );
        let at = self.range.start + start;
        match &self.store {
            Store::Memory(ids) => out.copy_from_slice(&ids[at..at + out.len()]),
            Store::File { map, offset, width } => {
                let from = offset + at * width;
                let bytes = &map[from..from + out.len() * width];
                if *width == 2 {
                    let (words, _) = bytes.as_chunks::<2>();
                    out.iter_mut()
                        .zip(words)
                        .for_each(|(id, &w)| *id = u16::from_le_bytes(w).into());
                } else {
                    let (words, _) = bytes.as_chunks::<4>();
                    out.iter_mut().zip(words).for_each(|(id, &w)| *id = u32::from_le_bytes(w));
                }
            }
        }
    }

    /// The ids in `range`, as a vector.
    pub fn to_vec(&self, range: Range<usize>) -> Vec<u32> {
        let mut ids = vec![0; range.len()];
        self.read(range.start, &mut ids);
        ids
    }

    /// A part of these ids.
    pub fn part(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {}", self.len());
        let start = self.range.start;
        Self { store: self.store.clone(), range: start + range.start..start + range.end }
    }

    /// Ids of `width` bytes in a file; the caller has checked that `count` fit.
    pub(super) fn in_file(map: Arc<MappedFile>, offset: usize, width: usize, count: usize) -> Self {
        Self { store: Store::File { map, offset, width }, range: 0..count }
    }
}

impl From<Vec<u32>> for Ids {
    fn from(ids: Vec<u32>) -> Self {
        Self { range: 0..ids.len(), store: Store::Memory(ids.into()) }
    }
}
