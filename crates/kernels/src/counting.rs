//! A global allocator that counts what is asked of the system, for tests of the promise that the
//! steady state allocates nothing of size.
//!
//! ```
//! use hearken_kernels::counting::Counting;
//! #[global_allocator]
//! static MEMORY: Counting = Counting::at_least(4096);
//!
//! let before = MEMORY.requests();
//! drop(vec![0_u8; 5000]);
//! assert_eq!(MEMORY.requests() - before, 1);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, counting requests of at least a given size.
pub struct Counting {
    threshold: usize,
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

impl Counting {
    /// Counts requests of `threshold` bytes and more.
    pub const fn at_least(threshold: usize) -> Self {
        Self { threshold, requests: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }

    /// How many there were.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// How many bytes they asked for.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    fn count(&self, bytes: usize) {
        if bytes >= self.threshold {
            self.requests.fetch_add(1, Ordering::SeqCst);
            self.bytes.fetch_add(bytes, Ordering::SeqCst);
        }
    }
}

// SAFETY: every request is passed to the system's allocator as it came; counting touches only
// atomics and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count(layout.size());
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.count(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory came from `System` with this layout, since all of ours does.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.count(size);
        // SAFETY: as in `dealloc`, and the caller promises that `size` is valid.
        unsafe { System.realloc(memory, layout, size) }
    }
}
