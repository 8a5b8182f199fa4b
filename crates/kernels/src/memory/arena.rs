//! The memory that tensors are cut from: chunks of addresses from the system, with [`Spans`] to
//! say which part is whose.
//!
//! Compared with `malloc`, memory stays with the process until [`release`], so that a training
//! step causes no page faults; and a chunk lies on huge pages, however small the tensors on it
//! are. Where pages are virtual twice over, as on most rented machines, looking one up is dear.

use super::spans::Spans;
use super::{HUGE_PAGE, ask_for_huge_pages};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Up to this alignment zeroed memory comes from `calloc`, which leaves fresh pages untouched.
const CALLOC_ALIGN: usize = 16;

struct Arena {
    /// The books, in which chunks follow each other in the order in which they came, wherever the
    /// system has put them: so a program takes the same places in every run.
    spans: Spans,
    /// Place in the books → address of the part of a chunk that starts on a huge page.
    addresses: BTreeMap<usize, usize>,
    /// That address → the whole chunk.
    chunks: BTreeMap<usize, Chunk>,
}

struct Chunk {
    memory: NonNull<u8>,
    layout: Layout,
    /// In the books.
    place: usize,
}

// SAFETY: a Chunk owns its memory, and is only used to give it back.
unsafe impl Send for Chunk {}

static ARENA: Mutex<Arena> =
    Mutex::new(Arena { spans: Spans::new(), addresses: BTreeMap::new(), chunks: BTreeMap::new() });

/// The only panic while it is locked, of a size that overflows, comes before anything is changed.
fn arena() -> MutexGuard<'static, Arena> {
    ARENA.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many bytes of initialised memory of arbitrary content, on a cache line. They are the
/// caller's alone until [`give`].
pub(super) fn take(bytes: usize) -> NonNull<u8> {
    let mut arena = arena();
    let start = arena.spans.take(bytes).or_else(|| {
        arena.grow(bytes);
        arena.spans.take(bytes)
    });
    let start = start.expect("a chunk was added that is large enough");
    let (place, address) = arena.addresses.range(..=start).next_back().expect("a span has a chunk");
    let memory = arena.chunks[address].memory;
    // SAFETY: the books give places in chunks that `grow` has entered alone, and each of these
    // lies inside the allocation of its `memory`, from `address` on.
    unsafe { memory.add(address - memory.addr().get() + (start - place)) }
}

/// Gives back what [`take`] gave for `bytes`.
pub(super) fn give(start: NonNull<u8>, bytes: usize) {
    let mut arena = arena();
    let start = start.addr().get();
    let (address, chunk) = arena.chunks.range(..=start).next_back().expect("`take` gave it");
    let place = chunk.place + (start - address);
    arena.spans.give(place, bytes);
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
        let address = arena.addresses.remove(&range.start);
        if let Some(chunk) = address.and_then(|address| arena.chunks.remove(&address)) {
            // SAFETY: allocated in `grow` with this layout and freed once, since it is off the
            // list; nothing on it is in use.
            unsafe { dealloc(chunk.memory.as_ptr(), chunk.layout) };
        }
    }
}

impl Arena {
    fn grow(&mut self, bytes: usize) {
        let size = Spans::chunk_for(bytes, HUGE_PAGE);
        // A huge page more, so that the chunk can start on one. Aligned memory would not do: the
        // system's allocator writes its zeros, where untouched pages are zero by themselves.
        let layout =
            Layout::from_size_align(size + HUGE_PAGE, CALLOC_ALIGN).expect("buffer size overflows");
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        let skipped = memory.align_offset(HUGE_PAGE);
        // SAFETY: less than a huge page, by which the allocation is longer than `size`.
        let start = unsafe { memory.add(skipped) };
        ask_for_huge_pages(start.as_ptr(), size);
        let (address, place) = (start.addr().get(), self.spans.append_chunk(size));
        self.addresses.insert(place, address);
        self.chunks.insert(address, Chunk { memory, layout, place });
    }
}
