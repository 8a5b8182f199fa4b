//! Working memory of kernels, kept per thread so that the steady state allocates nothing.

use crate::dry;
use crate::memory::Buffer;
use std::cell::RefCell;

thread_local! {
    static FREE: RefCell<Vec<Buffer<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` with `len` floats of working memory whose content is arbitrary.
///
/// Calls may nest; each gets memory of its own. The memory starts on a cache line.
pub fn with<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    if dry::is_on() {
        return dry::with_scratch(len, f);
    }
    let kept = FREE.with_borrow_mut(|free| pick(free, len, |buffer| buffer.len()));
    let mut buffer = match kept {
        Some(buffer) if buffer.len() >= len => buffer,
        _ => Buffer::zeroed(len.next_multiple_of(1024)),
    };
    let result = f(&mut buffer[..len]);
    FREE.with_borrow_mut(|free| free.push(buffer));
    result
}

/// Takes the smallest that fits off the list; else the largest, to be replaced, so that the list stays
/// short.
pub(crate) fn pick<T>(free: &mut Vec<T>, len: usize, len_of: impl Fn(&T) -> usize) -> Option<T> {
    let fitting = (0..free.len()).filter(|&i| len_of(&free[i]) >= len);
    let fit = fitting.min_by_key(|&i| len_of(&free[i]));
    let pick = fit.or_else(|| (0..free.len()).max_by_key(|&i| len_of(&free[i])));
    pick.map(|i| free.swap_remove(i))
}

#[cfg(test)]
mod tests {
    #[test]
    fn nested_scratch_does_not_overlap() {
        super::with(100, |a| {
            a.fill(1.0);
            super::with(5000, |b| {
                b.fill(2.0);
                super::with(10, |c| c.fill(3.0));
                assert!(b.iter().all(|&x| x == 2.0));
            });
            assert!(a.iter().all(|&x| x == 1.0));
        });
    }
}
