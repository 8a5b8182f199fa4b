//! A thread pool for regions of microseconds, and for parts of milliseconds.
//!
//! A training step of a small model is hundreds of parallel regions of 10–100 µs, so entering
//! and leaving one must cost about a microsecond: workers spin for a while before they sleep,
//! tasks are handed out by atomic counters, nothing is allocated, and the caller works too.
//! A worker that is late finds the region closed and is not waited for.
//!
//! A thread begins with its own share of the tasks, neighbours, and then takes from others'. So
//! which thread runs which task is left to chance, and a result must depend on the index alone; then
//! results are the same bits for any number of threads. Regions inside regions run on the thread
//! that reached them.
//!
//! Even so the threads wait for each other at the end of every region. [`parallel_parts`] is for work
//! that falls into large parts, such as the sequences of a batch: a thread goes through a part with
//! all its regions by itself. Where there are more threads than parts, or than parts that are left,
//! those without one help with the regions of the others.
//!
//! `HEARKEN_THREADS=n` sets how many threads work (default: one per core); [`with_threads`]
//! does so for one call.

mod pool;
#[cfg(test)]
mod tests;

use crate::dry;
use pool::{PARTS, TASKS, board_of};
use std::cell::Cell;
use std::ops::Range;
use std::sync::OnceLock;

/// No more threads than this, whatever is asked for.
pub const MOST_THREADS: usize = 256;

/// Reads a value of `HEARKEN_THREADS`; or says what is wrong with it.
pub fn parse(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=MOST_THREADS).contains(&n) => Ok(n),
        _ => {
            Err(format!("HEARKEN_THREADS is '{text}', expected a number from 1 to {MOST_THREADS}"))
        }
    }
}

fn process_default() -> usize {
    static DEFAULT: OnceLock<usize> = OnceLock::new();
    *DEFAULT.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        std::env::var("HEARKEN_THREADS").ok().and_then(|text| parse(&text).ok()).unwrap_or(cores)
    })
}

thread_local! {
    /// Set by `with_threads`.
    static FORCED: Cell<Option<usize>> = const { Cell::new(None) };
    /// Is this thread inside a region of tasks already?
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Is it inside a part?
    static PART: Cell<Option<Part>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Part {
    /// The number of the thread among those that have parts.
    number: usize,
    /// How many threads there are for all parts.
    threads: usize,
}

impl Part {
    /// Threads for its regions: an even share, rounded up, which grows while others finish theirs.
    fn share(self) -> usize {
        self.threads.div_ceil(PARTS.left().clamp(1, self.threads))
    }
}

/// How many threads a region started here would use. Inside of a part this may change at any time.
pub fn count() -> usize {
    if INSIDE.get() {
        return 1;
    }
    let most = PART.get().map_or_else(process_default, Part::share);
    match (FORCED.get(), PART.get()) {
        (Some(forced), Some(_)) => forced.min(most),
        (forced, _) => forced.unwrap_or(most),
    }
}

/// Restores a thread-local when dropped, also when unwinding.
struct Restore<T: Copy + 'static>(&'static std::thread::LocalKey<Cell<T>>, T);
impl<T: Copy + 'static> Drop for Restore<T> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Runs `f` with regions on `n` threads, of which the calling one is the first; inside of a part or
/// a region, on at most `n`.
pub fn with_threads<R>(n: usize, f: impl FnOnce() -> R) -> R {
    assert!((1..=MOST_THREADS).contains(&n), "threads must be 1 to {MOST_THREADS}, not {n}");
    let _restore = Restore(&FORCED, FORCED.replace(Some(n)));
    f()
}

/// How many regions were shared among threads so far, by which a test can tell that something was
/// computed by more than one.
pub fn shared_regions() -> u64 {
    TASKS.iter().map(pool::Board::posted).sum()
}

/// Calls `task(0)`, …, `task(tasks − 1)`, each once, on the threads of the pool; returns when
/// all are done. A panic of a task is passed on. In a [dry pass](crate::dry) it calls none of them.
pub fn for_each(tasks: usize, task: impl Fn(usize) + Sync) {
    for_each_by_thread(count(), tasks, |_, i| task(i));
}

/// As [`for_each`], on at most `threads` threads, with the number of the thread, below `threads`,
/// as the first argument: for what a thread prepares once for all of its tasks. Tasks with the
/// same number never run at the same time. Results must not depend on it.
pub fn for_each_by_thread(threads: usize, tasks: usize, task: impl Fn(usize, usize) + Sync) {
    if dry::is_on() {
        return;
    }
    let most = threads.min(count());
    let threads = most.min(tasks);
    if threads <= 1 {
        return (0..tasks).for_each(|i| task(0, i));
    }
    let inside = |number: usize, i: usize| {
        let _restore = Restore(&INSIDE, INSIDE.replace(true));
        task(number, i);
    };
    let part = PART.get();
    let pool = part.map_or(most, |part| part.threads);
    if !board_of(part.map(|part| part.number)).run(threads, pool, tasks, &inside, false) {
        // Another region is on the board: work alone rather than wait, as inside of a region.
        (0..tasks).for_each(|i| inside(0, i));
    }
}

/// Calls `part(0)`, …, `part(parts − 1)`, each once, as many at a time as there are threads, each on
/// one thread, with the others' help if there are more threads than parts. A panic of a part is
/// passed on. Parts of parts run one after the other, and so do the parts of a second caller at the
/// same time. In a [dry pass](crate::dry), one of those that would run at the same time stands for all.
pub fn parallel_parts(parts: usize, part: impl Fn(usize) + Sync) {
    if dry::is_on() {
        return dry::parallel_parts(parts, part);
    }
    let together = PART.get().is_none() && count().min(parts) > 1;
    let threads = if together { pool::start(count() - 1) + 1 } else { 1 };
    let inside = |number: usize, index: usize| {
        let _restore = Restore(&PART, PART.replace(Some(Part { number, threads })));
        let _forced = Restore(&FORCED, FORCED.take()); // it holds for all parts together
        part(index);
        PARTS.one_finished();
    };
    if !(together && PARTS.run(threads.min(parts), threads, parts, &inside, true)) {
        (0..parts).for_each(part);
    }
}

/// A slice that tasks write disjoint parts of.
#[derive(Clone, Copy)]
pub(crate) struct SharedMut<'a, T = f32> {
    start: *mut T,
    len: usize,
    life: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `range`, whose caller promises that ranges do not overlap.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}
// SAFETY: as above, and T is Send.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Self { start: data.as_mut_ptr(), len: data.len(), life: std::marker::PhantomData }
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// While the result lives, no other overlapping part may be taken.
    #[expect(clippy::mut_from_ref, reason = "the point of the type; see Safety")]
    pub(crate) unsafe fn range(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the slice borrowed by `new`; the caller keeps ranges apart.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// A pointer to the first element of `range`, all of which is inside; for kernels that write
    /// some of it, such as a block of a matrix, in between what others write.
    pub(crate) fn pointer(&self, range: Range<usize>) -> *mut T {
        assert!(range.start <= range.end && range.end <= self.len);
        self.start.wrapping_add(range.start)
    }
}

/// Cuts `rows` into chunks of `chunk` rows and calls `f(range of rows, [part of each output])`
/// for each, in parallel. Every output comes with its width: row `i` is
/// `out[i · width..(i + 1) · width]`.
///
/// `chunk` must depend on the shape alone if `f` reduces over its rows.
pub fn for_row_chunks<T: Send, const N: usize>(
    rows: usize,
    chunk: usize,
    outputs: [(&mut [T], usize); N],
    f: impl Fn(Range<usize>, [&mut [T]; N]) + Sync,
) {
    let chunk = chunk.max(1);
    let shared = outputs.map(|(out, width)| {
        assert_eq!(out.len(), rows * width, "an output of {rows} rows × {width} was expected");
        (SharedMut::new(out), width)
    });
    for_each(rows.div_ceil(chunk), |i| {
        let range = i * chunk..((i + 1) * chunk).min(rows);
        let parts = std::array::from_fn(|k| {
            let (out, width) = &shared[k];
            // SAFETY: chunks of rows are disjoint, and each is handed out once.
            unsafe { out.range(range.start * width..range.end * width) }
        });
        f(range, parts);
    });
}

/// Rows per chunk so that a chunk of `width` floats per row is worth a thread's attention: about
/// 16 thousand elements. Depends on the shape alone.
pub fn rows_per_chunk(width: usize) -> usize {
    (16 * 1024 / width.max(1)).max(1)
}

/// A column reduction with the same bits for any number of threads: `f(rows, partial)` adds the
/// contribution of its rows to `partial` (zeroed, as long as `out`); the partials of fixed
/// chunks are then added up in order and written to `out`.
pub fn sum_over_row_chunks(
    rows: usize,
    out: &mut [f32],
    write: crate::Write,
    f: impl Fn(Range<usize>, &mut [f32]) + Sync,
) {
    let width = out.len();
    if write == crate::Write::Set {
        out.fill(0.0);
    }
    // At most 16 partials, so that the scratch stays small; at least a chunk's worth of rows.
    let chunk = rows_per_chunk(width).max(rows.div_ceil(16));
    let chunks = rows.div_ceil(chunk);
    if chunks == 0 || width == 0 {
        return;
    }
    crate::scratch::with(chunks * width, |partials| {
        for_row_chunks(chunks, 1, [(&mut *partials, width)], |i, [partial]| {
            partial.fill(0.0);
            f(i.start * chunk..(i.end * chunk).min(rows), partial);
        });
        let partials = &*partials;
        // Columns in parallel, chunks in order.
        for_row_chunks(width, 4096, [(out, 1)], |columns, [out]| {
            for partial in partials.chunks_exact(width) {
                for (out, x) in out.iter_mut().zip(&partial[columns.clone()]) {
                    *out += x;
                }
            }
        });
    });
}
