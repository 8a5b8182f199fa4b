//! Buffers that are used again.
//!
//! Fresh memory costs a page fault per 4 KiB, which on a CPU is dearer than the arithmetic that
//! fills it. So a buffer whose last handle drops is kept and handed out again to the next tensor
//! of its size class; from the second training step on, a step asks the system for nothing.
//!
//! A size class is a length rounded up to a sixteenth of the next power of two, so at most an eighth
//! of a buffer is unused and sequences of slightly different lengths share buffers.

use hearken_kernels::memory::{Buffer, Element};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Free<E> = Mutex<BTreeMap<usize, Vec<Buffer<E>>>>;

static FREE_F32: Free<f32> = Mutex::new(BTreeMap::new());
static FREE_U16: Free<u16> = Mutex::new(BTreeMap::new());
static IN_USE: AtomicUsize = AtomicUsize::new(0);
static KEPT: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Element types that have a pool.
pub trait PoolElement: Element {
    #[doc(hidden)]
    fn free() -> &'static Free<Self>;
}
impl PoolElement for f32 {
    fn free() -> &'static Free<f32> {
        &FREE_F32
    }
}
impl PoolElement for u16 {
    fn free() -> &'static Free<u16> {
        &FREE_U16
    }
}

fn lock<E: PoolElement>() -> MutexGuard<'static, BTreeMap<usize, Vec<Buffer<E>>>> {
    E::free().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The length of the buffer that serves `len` elements.
pub fn size_class(len: usize) -> usize {
    let granule = (len.next_power_of_two() / 16).max(16);
    len.next_multiple_of(granule)
}

/// A buffer on loan from the pool; dropping it gives it back.
#[derive(Debug)]
pub struct Pooled<E: PoolElement = f32> {
    /// Taken only by `drop`.
    buffer: Option<Buffer<E>>,
    len: usize,
}

impl<E: PoolElement> Pooled<E> {
    /// `len` elements with arbitrary content.
    pub fn take(len: usize) -> Self {
        let class = size_class(len);
        let bytes = class * size_of::<E>();
        let kept = lock::<E>().get_mut(&class).and_then(Vec::pop);
        if kept.is_some() {
            KEPT.fetch_sub(bytes, Ordering::Relaxed);
        }
        let in_use = IN_USE.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(in_use, Ordering::Relaxed);
        Self { buffer: Some(kept.unwrap_or_else(|| Buffer::zeroed(class))), len }
    }
}

impl<E: PoolElement> Drop for Pooled<E> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            let bytes = buffer.len() * size_of::<E>();
            IN_USE.fetch_sub(bytes, Ordering::Relaxed);
            KEPT.fetch_add(bytes, Ordering::Relaxed);
            lock::<E>().entry(buffer.len()).or_default().push(buffer);
        }
    }
}

impl<E: PoolElement> Deref for Pooled<E> {
    type Target = [E];
    fn deref(&self) -> &[E] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[..self.len])
    }
}

impl<E: PoolElement> DerefMut for Pooled<E> {
    fn deref_mut(&mut self) -> &mut [E] {
        self.buffer.as_mut().map_or(&mut [], |buffer| &mut buffer[..self.len])
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
        kept: KEPT.load(Ordering::Relaxed),
    }
}

/// Starts measuring [`Usage::peak`] anew.
pub fn reset_peak() {
    PEAK.store(IN_USE.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Gives the memory that waits in the pool back to the system.
pub fn release() {
    for_release::<f32>();
    for_release::<u16>();
}

fn for_release<E: PoolElement>() {
    let buffers = std::mem::take(&mut *lock::<E>());
    let elements: usize = buffers.values().flatten().map(|b| b.len()).sum();
    KEPT.fetch_sub(elements * size_of::<E>(), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_class_wastes_at_most_an_eighth() {
        for len in 1..5000 {
            let class = size_class(len);
            assert!(class >= len && (class - len) * 8 <= len.max(128), "{len} → {class}");
            assert_eq!(size_class(class), class);
        }
        assert_eq!(size_class(0), 0);
    }

    #[test]
    fn a_dropped_buffer_is_handed_out_again() {
        // A length that no other test uses, since the pool is shared by all of them.
        let first = Pooled::<f32>::take(77_777);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(Pooled::<f32>::take(77_778).as_ptr(), address);
    }
}
