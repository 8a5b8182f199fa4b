//! Buffers that are used again.
//!
//! Fresh memory costs a page fault per page, which on a CPU is dearer than the arithmetic that
//! fills it. So the memory of a tensor whose last handle drops stays with the process and serves
//! the next ones, of whatever size ([`hearken_kernels::memory::arena`]); from the second training
//! step on, a step asks the system for nothing of a page or more.

use hearken_kernels::memory::{Buffer, Element, arena};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// A buffer on loan; dropping it gives its memory back.
#[derive(Debug)]
pub struct Pooled<E: Element = f32>(Buffer<E>);

impl<E: Element> Pooled<E> {
    /// `len` elements with arbitrary content.
    pub fn take(len: usize) -> Self {
        let buffer = Buffer::pooled(len);
        if buffer.is_dry() {
            return Self(buffer); // in books of its own
        }
        let bytes = len * size_of::<E>();
        let in_use = IN_USE.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(in_use, Ordering::Relaxed);
        Self(buffer)
    }

    /// Is it one of a [dry pass](hearken_kernels::dry), whose content means nothing?
    pub(crate) fn is_dry(&self) -> bool {
        self.0.is_dry()
    }
}

impl<E: Element> Drop for Pooled<E> {
    fn drop(&mut self) {
        if self.is_dry() {
            return;
        }
        IN_USE.fetch_sub(self.0.len() * size_of::<E>(), Ordering::Relaxed);
    }
}

impl<E: Element> Deref for Pooled<E> {
    type Target = [E];
    fn deref(&self) -> &[E] {
        &self.0
    }
}

impl<E: Element> DerefMut for Pooled<E> {
    fn deref_mut(&mut self) -> &mut [E] {
        &mut self.0
    }
}

/// Bytes held by the pool's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// In tensors that are alive.
    pub in_use: usize,
    /// The most that was in use at any one time since [`reset_peak`].
    pub peak: usize,
    /// Waiting to be used again.
    pub kept: usize,
}

/// How much memory tensors take.
pub fn usage() -> Usage {
    Usage {
        in_use: IN_USE.load(Ordering::Relaxed),
        peak: PEAK.load(Ordering::Relaxed),
        kept: arena::usage().1,
    }
}

/// Starts measuring [`Usage::peak`] anew.
pub fn reset_peak() {
    PEAK.store(IN_USE.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Gives memory that waits to be used again back to the system, in the large pieces in which it
/// came; a piece on which a tensor is alive stays.
pub fn release() {
    arena::release();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_counts_what_is_alive() {
        let tensor = Pooled::<f32>::take(50_000_000);
        // Other tests use the pool too, but nothing of this size.
        assert!(usage().in_use >= 200_000_000 && usage().peak >= 200_000_000);
        drop(tensor);
        assert!(usage().kept >= 150_000_000);
    }
}
