//! A dry pass: the same code as always, with the memory and without the arithmetic.
//!
//! [`Dry::run`] runs anything (a model that is built, a training step) so that
//!
//! - buffers of a page or more are addresses without memory behind them. The books that say where they
//!   are ([`Spans`](crate::memory::spans)) are those of the real arena, so that the most that was
//!   touched is what the real pass would touch, gaps included;
//! - the tasks of parallel regions ([`for_each`](crate::threads::for_each) and all that is made
//!   of it) are not run. All kernels work in such tasks, so nothing is computed, and nothing is drawn;
//! - [`count`] counts arithmetic, by the convention of the literature: a product of M×K by K×N is 2·M·N·K
//!   operations; attention 2·B·H·T·S·(D + Dv) forward, as if nothing were masked, and twice that
//!   backward.
//!
//! Code that is not in a parallel region runs as usual, on zeros: right, and slow on a large buffer, whose
//! pages then need memory, too. So loops over whole tensors belong in regions
//! ([`elementwise::fill`](crate::elementwise::fill) instead of `slice::fill`).
//!
//! The mode holds for one thread: what runs on another is not dry.

use crate::memory::Buffer;
use crate::memory::arena::Arena;
use crate::threads;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

#[derive(Clone)]
struct Current {
    books: Arc<Mutex<Books>>,
    /// How many parts that run in parallel this thread stands for.
    copies: usize,
}

/// Is this thread in a dry pass?
#[inline]
pub fn is_on() -> bool {
    IS_ON.get()
}

/// Operations, by what they depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Operations {
    /// Of products of matrices: as many for every token.
    pub products: f64,
    /// Of attention: for every token as many as there are tokens to look at.
    pub attention: f64,
}

impl Operations {
    /// All of them.
    pub fn all(self) -> f64 {
        self.products + self.attention
    }

    /// What was counted since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            products: self.products - before.products,
            attention: self.attention - before.attention,
        }
    }
}

/// What a dry pass took so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Bytes of buffers that are alive.
    pub in_use: u64,
    /// The most of these at any one time.
    pub peak: u64,
    /// Bytes of memory that the arena would hold: all that a buffer was ever on.
    pub touched: u64,
    /// The most bytes that kernels would keep for themselves, on all threads.
    pub scratch: u64,
    /// What was counted.
    pub operations: Operations,
}

struct Books {
    arena: Arena,
    /// The working memory of the kernels, as [`crate::scratch`] keeps it, with the bytes that each stands
    /// for.
    scratch: Vec<(Buffer<f32>, u64)>,
    scratch_bytes: u64,
    /// The most that the tasks of one region need, on all threads.
    in_tasks: u64,
    usage: Usage,
}

/// The books of dry passes.
#[derive(Clone)]
pub struct Dry(Arc<Mutex<Books>>);

/// There are no addresses left for what a dry pass asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Dry {
    fn default() -> Self {
        Self::new()
    }
}

impl Dry {
    /// Nothing taken yet.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Books {
            arena: Arena::of_addresses(),
            scratch: Vec::new(),
            scratch_bytes: 0,
            in_tasks: 0,
            usage: Usage::default(),
        })))
    }

    /// Runs `f` dry. Buffers that it leaves behind stay in the books until they are dropped, in another
    /// dry pass or outside of all.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> Result<R, Exhausted> {
        let current = Current { books: self.0.clone(), copies: 1 };
        // Whoever asks for a buffer cannot be told that there is none: the way out of the middle of a
        // pass is that of a panic, without its message.
        catch_unwind(AssertUnwindSafe(|| within(current, f))).map_err(|cause| {
            match cause.downcast::<Exhausted>() {
                Ok(exhausted) => *exhausted,
                Err(cause) => resume_unwind(cause),
            }
        })
    }

    /// What was taken so far.
    pub fn usage(&self) -> Usage {
        lock(&self.0).usage()
    }
}

impl Books {
    fn usage(&self) -> Usage {
        Usage { touched: self.arena.touched() as u64, ..self.usage }
    }

    fn note_scratch(&mut self) {
        let now = self.scratch_bytes + self.in_tasks;
        self.usage.scratch = self.usage.scratch.max(now);
    }
}

fn within<R>(current: Current, f: impl FnOnce() -> R) -> R {
    struct Restore(bool, Option<Current>);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_ON.set(self.0);
            CURRENT.set(self.1.take());
        }
    }
    let _restore = Restore(IS_ON.replace(true), CURRENT.replace(Some(current)));
    f()
}

/// The books of this thread's dry pass, and how many parts it stands for.
fn current() -> Option<Current> {
    if !is_on() {
        return None;
    }
    CURRENT.with_borrow(Clone::clone)
}

/// The memory of a buffer, on loan from the books of a dry pass.
pub(crate) struct Loan {
    books: Arc<Mutex<Books>>,
    address: usize,
    bytes: usize,
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut books = lock(&self.books);
        books.arena.give(self.address, self.bytes);
        books.usage.in_use -= self.bytes as u64;
    }
}

/// So many bytes from the books of this thread's dry pass, if it is in one: initialised, on a cache line,
/// and the caller's alone as long as the loan lives. Parts that run in parallel take theirs next to each
/// other.
pub(crate) fn take(bytes: usize) -> Option<(NonNull<u8>, Loan)> {
    let Current { books, copies } = current()?;
    let bytes = bytes.saturating_mul(copies);
    let mut open = lock(&books);
    // Beyond this nothing can be had, and sums of sizes could overflow.
    let start = if bytes < 1 << 56 { open.arena.take(bytes) } else { None };
    let Some(start) = start else {
        drop(open);
        resume_unwind(Box::new(Exhausted));
    };
    open.usage.in_use += bytes as u64;
    open.usage.peak = open.usage.peak.max(open.usage.in_use);
    drop(open);
    Some((start, Loan { books, address: start.addr().get(), bytes }))
}

/// Counts operations, if this thread is in a dry pass. Kernels that are not made of
/// [products](crate::gemm) or [attention](crate::attention) and whose work is worth counting call it.
pub fn count(operations: impl FnOnce() -> Operations) {
    if let Some(Current { books, copies }) = current() {
        let Operations { products, attention } = operations();
        let counted = &mut lock(&books).usage.operations;
        counted.products += products * copies as f64;
        counted.attention += attention * copies as f64;
    }
}

/// The dry way of [`threads::parallel_parts`]: of as many parts as run at the same time one is run, and
/// stands for all.
pub(crate) fn parallel_parts(parts: usize, part: impl Fn(usize)) {
    let Some(current) = current() else { return };
    let together = threads::count().min(parts).max(1);
    let threads_each = threads::count() / together;
    for first in (0..parts).step_by(together) {
        let copies = current.copies * together.min(parts - first);
        let current = Current { copies, ..current.clone() };
        within(current, || threads::with_threads(threads_each.max(1), || part(first)));
    }
}

/// Runs `f`, whose memory all parts that run in parallel share, as one of them does it for all. Outside of a
/// dry pass it just runs.
pub fn shared<R>(f: impl FnOnce() -> R) -> R {
    match current() {
        Some(current) => within(Current { copies: 1, ..current }, f),
        None => f(),
    }
}

/// The dry way of [`crate::scratch::with`].
pub(crate) fn with_scratch<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    let Some(Current { books, copies }) = current() else { return f(&mut vec![0.0; len]) };
    let kept = {
        let mut books = lock(&books);
        let kept = crate::scratch::pick(&mut books.scratch, len, |(buffer, _)| buffer.len());
        match kept {
            Some((buffer, bytes)) if buffer.len() < len => {
                books.scratch_bytes -= bytes;
                None
            }
            kept => kept,
        }
    };
    let (mut buffer, bytes) = kept.unwrap_or_else(|| {
        let rounded = len.next_multiple_of(1024);
        let bytes = (rounded * size_of::<f32>() * copies) as u64;
        let mut books = lock(&books);
        books.scratch_bytes += bytes;
        books.note_scratch();
        (Buffer::addresses(rounded), bytes)
    });
    let result = f(&mut buffer[..len]);
    lock(&books).scratch.push((buffer, bytes));
    result
}

/// Tells a dry pass that each of `tasks` tasks of a region takes so many floats of working memory, which
/// it cannot see, since it does not run them.
pub(crate) fn scratch_in_tasks(len: usize, tasks: usize) {
    if let Some(Current { books, copies }) = current() {
        let at_once = threads::count().min(tasks) * copies;
        let mut books = lock(&books);
        books.in_tasks = books.in_tasks.max((len * size_of::<f32>() * at_once) as u64);
        books.note_scratch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{Epilogue, Matrix, gemm};
    use crate::threads::{parallel_parts, with_threads};
    use crate::{Write, elementwise};

    #[test]
    fn buffers_are_counted_and_not_touched() {
        let dry = Dry::new();
        let (len, bytes) = (1 << 38, 1_u64 << 40); // a terabyte
        let buffer = dry.run(|| Buffer::<f32>::pooled(len)).unwrap();
        assert!(buffer.is_dry() && buffer.len() == len);
        assert_eq!((dry.usage().in_use, dry.usage().peak), (bytes, bytes));
        drop(buffer);
        assert_eq!((dry.usage().in_use, dry.usage().peak), (0, bytes));
        // The next one fits where it was.
        let touched = dry.usage().touched;
        drop(dry.run(|| Buffer::<f32>::pooled(len / 2)).unwrap());
        assert_eq!(dry.usage().touched, touched);
        assert!(!is_on() && !Buffer::<f32>::pooled(10_000).is_dry());
    }

    #[test]
    fn more_than_there_are_addresses_for_is_an_error() {
        let dry = Dry::new();
        let all =
            dry.run(|| (0..1_000).map(|_| Buffer::<f32>::pooled(1 << 42)).collect::<Vec<_>>());
        assert_eq!(all.err(), Some(Exhausted));
        assert_eq!(dry.usage().in_use, 0, "what was taken has been given back");
        assert!(dry.run(|| Buffer::<f32>::pooled(10_000)).is_ok());
    }

    #[test]
    fn nothing_is_computed_and_products_are_counted() {
        let dry = Dry::new();
        let mut out = vec![1.0_f32; 6];
        dry.run(|| {
            elementwise::fill(&mut out, 5.0);
            let (a, b) = ([1.0; 8], [1.0; 12]);
            let (a, b) = (Matrix::new(&a, 2, 4), Matrix::new(&b, 4, 3));
            gemm(a, b, &mut out, 3, Write::Set, Epilogue::default());
        })
        .unwrap();
        assert_eq!(out, [1.0; 6]);
        assert_eq!(dry.usage().operations, Operations { products: 48.0, attention: 0.0 });
    }

    #[test]
    fn parts_in_parallel_take_as_much_as_run_at_once() {
        for (threads, parts, at_once) in [(1, 4, 1), (2, 4, 2), (3, 4, 3), (8, 4, 4)] {
            let dry = Dry::new();
            let one = || Operations { products: 1.0, attention: 0.0 };
            with_threads(threads, || {
                dry.run(|| {
                    parallel_parts(parts, |_| {
                        drop(Buffer::<f32>::pooled(10_000));
                        count(one);
                    });
                })
            })
            .unwrap();
            assert_eq!(dry.usage().peak, at_once * 40_000, "{parts} parts on {threads} threads");
            assert_eq!(dry.usage().operations.products, parts as f64);
        }
    }

    #[test]
    fn what_parts_share_is_counted_once() {
        let dry = Dry::new();
        let part = |_| drop(shared(|| Buffer::<f32>::pooled(10_000)));
        with_threads(2, || dry.run(|| parallel_parts(2, part))).unwrap();
        assert_eq!(dry.usage().peak, 40_000);
    }

    #[test]
    fn a_panic_goes_on_and_ends_the_mode() {
        let dry = Dry::new();
        let result = catch_unwind(AssertUnwindSafe(|| dry.run(|| panic!("a bug"))));
        assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"a bug"));
        assert!(!is_on());
    }
}
