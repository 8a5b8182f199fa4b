//! The memory that tensors are cut from: chunks of addresses from the system, with [`Spans`] to
//! say which part is whose.
//!
//! Compared with `malloc`, memory stays with the process until [`release`], so that a training
//! step causes no page faults; and a chunk lies on huge pages, however small the tensors on it
//! are. Where pages are virtual twice over, as on most rented machines, looking one up is dear.

use super::spans::Spans;
use super::{HUGE_PAGE, ask_for_huge_pages};
use memmap2::{MmapMut, MmapOptions};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Up to this alignment zeroed memory comes from `calloc`, which leaves fresh pages untouched.
const CALLOC_ALIGN: usize = 16;

pub(crate) struct Arena {
    /// The books, in which chunks follow each other in the order in which they came, wherever the
    /// system has put them: so a program takes the same places in every run.
    spans: Spans,
    source: Source,
    /// Place in the books → address of the part of a chunk that starts on a huge page.
    addresses: BTreeMap<usize, usize>,
    /// That address → the whole chunk.
    chunks: BTreeMap<usize, Chunk>,
}

/// Where chunks come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Memory on huge pages.
    Memory,
    /// Addresses alone: the system puts zeros behind those that are read, and memory behind those that
    /// are written, as that happens. A dry pass does neither, so that they may be far more than the
    /// machine has.
    Addresses,
}

struct Chunk {
    memory: Memory,
    /// In the books.
    place: usize,
}

enum Memory {
    Allocated { start: NonNull<u8>, layout: Layout },
    Mapped(MmapMut),
}

// SAFETY: a Memory owns what it points to, and is only used to find and to free it.
unsafe impl Send for Memory {}

impl Memory {
    fn start(&mut self) -> NonNull<u8> {
        match self {
            Self::Allocated { start, .. } => *start,
            Self::Mapped(map) => {
                NonNull::new(map.as_mut_ptr()).expect("a mapping does not start at address 0")
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Self::Allocated { start, layout } = self {
            // SAFETY: allocated in `Memory::allocate` with this layout, and freed once, here.
            unsafe { dealloc(start.as_ptr(), *layout) };
        }
    }
}

static ARENA: Mutex<Arena> = Mutex::new(Arena::new(Source::Memory));

/// The only panic while it is locked, of a size that overflows, comes before anything is changed.
fn arena() -> MutexGuard<'static, Arena> {
    ARENA.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many bytes of initialised memory of arbitrary content, on a cache line. They are the
/// caller's alone until [`give`].
pub(super) fn take(bytes: usize) -> NonNull<u8> {
    arena().take(bytes).expect("without memory the process has ended")
}

/// Gives back what [`take`] gave for `bytes`.
pub(super) fn give(start: NonNull<u8>, bytes: usize) {
    arena().give(start.addr().get(), bytes);
}

/// Bytes of memory that stand behind tensors, and how many of these are free.
pub fn usage() -> (usize, usize) {
    let arena = arena();
    (arena.spans.touched(), arena.spans.kept())
}

/// Gives chunks on which nothing is in use back to the system.
pub fn release() {
    let mut arena = arena();
    for range in arena.spans.remove_free_chunks() {
        if let Some(address) = arena.addresses.remove(&range.start) {
            arena.chunks.remove(&address);
        }
    }
}

impl Arena {
    const fn new(source: Source) -> Self {
        Self { spans: Spans::new(), source, addresses: BTreeMap::new(), chunks: BTreeMap::new() }
    }

    /// An arena of addresses, behind which there is memory only where it is touched.
    pub(crate) const fn of_addresses() -> Self {
        Self::new(Source::Addresses)
    }

    /// So many bytes of initialised memory of arbitrary content, on a cache line. They are the
    /// caller's alone until [`Arena::give`], as long as the arena lives. `None` if the system has no
    /// addresses left.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let start = if let Some(start) = self.spans.take(bytes) {
            start
        } else {
            self.grow(bytes)?;
            self.spans.take(bytes).expect("a chunk was added that is large enough")
        };
        let (place, address) =
            self.addresses.range(..=start).next_back().expect("a span has a chunk");
        let memory = self.chunks.get_mut(address).expect("an address has a chunk").memory.start();
        // SAFETY: the books give places in chunks that `grow` has entered alone, and each of these
        // lies inside the allocation of its `memory`, from `address` on.
        Some(unsafe { memory.add(address - memory.addr().get() + (start - place)) })
    }

    /// Gives back what [`Arena::take`] gave for `bytes`, from its address.
    pub(crate) fn give(&mut self, start: usize, bytes: usize) {
        let (address, chunk) = self.chunks.range(..=start).next_back().expect("`take` gave it");
        let place = chunk.place + (start - address);
        self.spans.give(place, bytes);
    }

    /// Bytes that were ever in use.
    pub(crate) fn touched(&self) -> usize {
        self.spans.touched()
    }

    fn grow(&mut self, bytes: usize) -> Option<()> {
        let size = Spans::chunk_for(bytes, HUGE_PAGE);
        // A huge page more, so that the chunk can start on one. Aligned memory would not do: the
        // system's allocator writes its zeros, where untouched pages are zero by themselves.
        let layout =
            Layout::from_size_align(size + HUGE_PAGE, CALLOC_ALIGN).expect("buffer size overflows");
        let mut memory = match self.source {
            Source::Memory => Memory::allocate(layout),
            Source::Addresses => {
                let map = MmapOptions::new().len(layout.size()).no_reserve_swap().map_anon();
                Memory::Mapped(map.ok()?)
            }
        };
        let start = memory.start();
        let skipped = start.align_offset(HUGE_PAGE);
        // SAFETY: less than a huge page, by which the allocation is longer than `size`.
        let start = unsafe { start.add(skipped) };
        if self.source == Source::Memory {
            ask_for_huge_pages(start.as_ptr(), size);
        }
        let (address, place) = (start.addr().get(), self.spans.append_chunk(size));
        self.addresses.insert(place, address);
        self.chunks.insert(address, Chunk { memory, place });
        Some(())
    }
}

impl Memory {
    fn allocate(layout: Layout) -> Self {
        // SAFETY: the size is not zero: a chunk is at least a huge page.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Self::Allocated { start, layout }
    }
}
