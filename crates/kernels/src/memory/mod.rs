//! Memory for tensors: `f32` and 16-bit buffers that start on a cache line.
//!
//! A 64-byte vector load that straddles two cache lines costs two, so buffers start on a
//! 64-byte boundary; large ones of their own start on a 2 MiB boundary, where the kernel of the
//! operating system can back them with huge pages and a fresh buffer costs one page fault instead
//! of 512.
//! Buffers that come and go, as those of tensors, are cut from larger pieces: see [`arena`].

pub mod arena;
pub mod spans;

use crate::dry::{self, Loan};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes in a cache line, and the alignment of small buffers.
const CACHE_LINE: usize = 64;
/// Bytes in a huge page, and the alignment of buffers at least that large that are not pooled.
pub const HUGE_PAGE: usize = 2 << 20;
/// Bytes from which on a buffer of the arena is cut from it: a page.
pub const SMALLEST_PIECE: usize = 4096;

/// Element types for which every bit pattern, all zeros included, is a value.
pub trait Element: Copy + Send + Sync + 'static + private::Sealed {}
impl Element for f32 {}
impl Element for u16 {}
mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for u16 {}
}

/// A fixed number of elements on aligned memory.
pub struct Buffer<E: Element = f32> {
    start: NonNull<E>,
    len: usize,
    home: Home,
}

/// Whose the memory of a buffer is.
enum Home {
    /// Its own.
    Own,
    /// The arena's.
    Pooled,
    /// That of a [dry pass](crate::dry), which gets it back when this is dropped.
    Dry(#[expect(dead_code, reason = "it is kept for as long as the buffer lives")] Loan),
    /// An arena of its own, behind which there is memory only where it is touched.
    Addresses(#[expect(dead_code, reason = "as above")] Box<arena::Arena>),
}

// SAFETY: a Buffer owns its memory alone, as a Vec does, and E is Send.
unsafe impl<E: Element> Send for Buffer<E> {}
// SAFETY: shared access only reads, and E is Sync.
unsafe impl<E: Element> Sync for Buffer<E> {}

impl<E: Element> Buffer<E> {
    fn layout(len: usize) -> Layout {
        let bytes = len.checked_mul(size_of::<E>()).expect("buffer size overflows");
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { CACHE_LINE };
        Layout::from_size_align(bytes, align).expect("buffer size overflows")
    }

    /// `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Self { start: NonNull::dangling(), len, home: Home::Own };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout is not of size zero, since len > 0 and E is not zero-sized.
        let memory = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(memory.cast::<E>()) else { handle_alloc_error(layout) };
        if layout.align() == HUGE_PAGE {
            ask_for_huge_pages(memory, layout.size());
        }
        // SAFETY: just allocated with this size; zero bits are zero in every element type.
        unsafe { memory.write_bytes(0, layout.size()) };
        Self { start, len, home: Home::Own }
    }

    /// `len` elements of arbitrary content, from the [`arena`] unless they are few.
    pub fn pooled(len: usize) -> Self {
        let bytes = Self::layout(len).size();
        if bytes < SMALLEST_PIECE {
            return Self::zeroed(len);
        }
        if let Some((start, loan)) = dry::take(bytes) {
            return Self { start: start.cast(), len, home: Home::Dry(loan) };
        }
        Self { start: arena::take(bytes).cast(), len, home: Home::Pooled }
    }

    /// `len` zeros that take memory only where they are touched: for a dry pass, outside of its books.
    pub(crate) fn addresses(len: usize) -> Self {
        let mut arena = arena::Arena::of_addresses();
        match arena.take(Self::layout(len).size().max(1)) {
            Some(start) => {
                Self { start: start.cast(), len, home: Home::Addresses(Box::new(arena)) }
            }
            None => Self::zeroed(len),
        }
    }

    /// Is it one of a [dry pass](crate::dry), whose content means nothing and should not be touched?
    pub fn is_dry(&self) -> bool {
        matches!(self.home, Home::Dry(_))
    }
}

/// Asks Linux to back the memory with pages of 2 MiB as it is first touched. A product that walks
/// down a column otherwise needs a page table walk for each row.
fn ask_for_huge_pages(memory: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        const MADV_HUGEPAGE: i32 = 14;
        unsafe extern "C" {
            fn madvise(start: *mut u8, bytes: usize, advice: i32) -> i32;
        }
        // SAFETY: `memory` starts on a huge page and `bytes` of it are inside one allocation, of
        // which whole huge pages alone are named; content does not change. A refusal is fine.
        unsafe { madvise(memory, bytes - bytes % HUGE_PAGE, MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (memory, bytes);
}

impl<E: Element> Drop for Buffer<E> {
    fn drop(&mut self) {
        match self.home {
            Home::Pooled => arena::give(self.start.cast(), Self::layout(self.len).size()),
            Home::Own if self.len > 0 => {
                // SAFETY: allocated in `zeroed` with this same layout, and freed once, here.
                unsafe { dealloc(self.start.as_ptr().cast(), Self::layout(self.len)) }
            }
            Home::Own | Home::Dry(_) | Home::Addresses(_) => {}
        }
    }
}

impl<E: Element> Deref for Buffer<E> {
    type Target = [E];
    fn deref(&self) -> &[E] {
        // SAFETY: `start` is aligned and valid for `len` initialised elements (or dangling with
        // len = 0) for as long as self lives, be it this buffer's own allocation or a part of
        // an arena that is its alone, and that lives as long as what `home` holds of it; and &self
        // keeps writers away.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<E: Element> DerefMut for Buffer<E> {
    fn deref_mut(&mut self) -> &mut [E] {
        // SAFETY: as in `deref`, and &mut self makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<E: Element> std::fmt::Debug for Buffer<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} elements)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_zeroed() {
        for len in [0, 1, 15, 16, 17, 1 << 19, (1 << 19) + 1] {
            let mut buffer = Buffer::<f32>::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|&x| x == 0.0));
            if len > 0 {
                let align = if len * 4 >= HUGE_PAGE { HUGE_PAGE } else { CACHE_LINE };
                assert_eq!(buffer.as_ptr() as usize % align, 0);
                buffer[len - 1] = 1.0;
            }
        }
    }

    #[test]
    fn pooled_buffers_are_aligned_and_apart() {
        let lens = [0, 1, 1023, 1024, 1025, 100_000, (1 << 19) + 1, 40 << 20];
        let mut buffers: Vec<Buffer<f32>> = lens.map(Buffer::pooled).into();
        let mut halves: Vec<Buffer<u16>> = lens.map(Buffer::pooled).into();
        for (i, (buffer, half)) in buffers.iter_mut().zip(&mut halves).enumerate() {
            assert_eq!((buffer.len(), half.len()), (lens[i], lens[i]));
            assert!(lens[i] == 0 || (buffer.as_ptr() as usize).is_multiple_of(CACHE_LINE));
            buffer.fill(i as f32);
            half.fill(i as u16);
        }
        for (i, (buffer, half)) in buffers.iter().zip(&halves).enumerate() {
            assert!(buffer.iter().all(|&x| x == i as f32) && half.iter().all(|&x| x == i as u16));
        }
        let first = buffers[5].as_ptr();
        drop(buffers.remove(5));
        // Other tests may take from the arena meanwhile, but nothing of this size.
        assert_eq!(Buffer::<f32>::pooled(100_000).as_ptr(), first);
    }
}
