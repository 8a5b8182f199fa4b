//! A thread pool for regions of microseconds.
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
//! `HEARKEN_THREADS=n` sets how many threads work (default: one per core); [`with_threads`]
//! does so for one call.

use crate::isa;
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// No more threads than this, whatever is asked for.
pub const MOST_THREADS: usize = 256;

/// Reads a value of `HEARKEN_THREADS`.
pub fn parse(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=MOST_THREADS).contains(&n) => Ok(n),
        _ => Err(format!(
            "HEARKEN_THREADS is '{text}', expected a number from 1 to {MOST_THREADS}\nhint: unset it to use every core"
        )),
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
    /// Is this thread inside a region already?
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// How many threads a region started here would use.
pub fn count() -> usize {
    if INSIDE.get() { 1 } else { FORCED.get().unwrap_or_else(process_default) }
}

/// Restores a thread-local when dropped, also when unwinding.
struct Restore<T: Copy + 'static>(&'static std::thread::LocalKey<Cell<T>>, T);
impl<T: Copy + 'static> Drop for Restore<T> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Runs `f` with regions on `n` threads, of which the calling one is the first.
pub fn with_threads<R>(n: usize, f: impl FnOnce() -> R) -> R {
    assert!((1..=MOST_THREADS).contains(&n), "threads must be 1 to {MOST_THREADS}, not {n}");
    let _restore = Restore(&FORCED, FORCED.replace(Some(n)));
    f()
}

/// How many tasks of a share are handed out, on a cache line of its own.
#[repr(align(64))]
struct Counter(AtomicUsize);

/// Most shares that tasks are cut into; further threads begin with a share that has an owner.
const MOST_SHARES: usize = 32;

/// One region: the task, and the tasks in even shares of neighbours, one for each thread.
struct Region {
    task: *const (dyn Fn(usize, usize) + Sync),
    tasks: usize,
    shares: usize,
    isa: isa::Isa,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Region {
    /// Takes tasks until none is left: those of the thread's own share first, in order, so that
    /// the same rows stay in the same core's cache from region to region; then others'.
    fn work(&self, thread: usize) {
        let _restore = Restore(&INSIDE, INSIDE.replace(true));
        // SAFETY: `run` keeps the closure alive until every thread has left the region.
        let task = unsafe { &*self.task };
        let result = catch_unwind(AssertUnwindSafe(|| {
            isa::with_isa(self.isa, || {
                for share in (0..self.shares).map(|n| (thread + n) % self.shares) {
                    let cut = |share: usize| share * self.tasks / self.shares;
                    loop {
                        let done = POOL.done[share].0.fetch_add(1, Ordering::Relaxed);
                        if done >= cut(share + 1) - cut(share) {
                            break;
                        }
                        task(thread, cut(share) + done);
                    }
                }
            });
        }));
        if let Err(payload) = result {
            for done in &POOL.done[..self.shares] {
                done.0.store(self.tasks, Ordering::Relaxed);
            }
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        }
    }
}

/// The state word: generation in the high half, then whether the region is open, then how many
/// workers are inside.
const OPEN: u64 = 1 << 31;
const INSIDE_MASK: u64 = OPEN - 1;
const GENERATION: u64 = 1 << 32;

struct Pool {
    state: AtomicU64,
    /// Workers with an index below this may join.
    limit: AtomicUsize,
    region: UnsafeCell<*const Region>,
    /// Tasks handed out of each share of the region.
    done: [Counter; MOST_SHARES],
    /// One region at a time; holds the number of workers started.
    owner: Mutex<usize>,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

// SAFETY: `region` is written only by the holder of `owner` while no worker is inside and the
// region is closed, and read by a worker only after it has joined an open one: the state word
// orders the two (release when opening, acquire when joining). The rest is Sync by itself.
unsafe impl Sync for Pool {}
// SAFETY: the raw pointer is only dereferenced under the protocol above.
unsafe impl Send for Pool {}

static POOL: Pool = Pool {
    state: AtomicU64::new(0),
    limit: AtomicUsize::new(0),
    region: UnsafeCell::new(std::ptr::null()),
    done: [const { Counter(AtomicUsize::new(0)) }; MOST_SHARES],
    owner: Mutex::new(0),
    sleepers: AtomicUsize::new(0),
    sleep: Mutex::new(()),
    wake: Condvar::new(),
};

/// Rounds of spinning before a worker sleeps: about 100 µs, several times the serial gap
/// between two regions of a training step.
const SPINS: u32 = 4000;
/// Rounds of spinning before the thread that waits for the last worker lets others run.
const SPINS_BEFORE_YIELD: u32 = 2000;

impl Pool {
    fn worker(&'static self, index: usize) {
        let mut seen = 0; // generation of the last region joined
        let mut spins = 0;
        loop {
            let state = self.state.load(Ordering::SeqCst);
            let fresh = state & OPEN != 0 && state / GENERATION != seen;
            if fresh && index < self.limit.load(Ordering::SeqCst) {
                let joined = self.state.compare_exchange(
                    state,
                    state + 1,
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                );
                if joined.is_ok() {
                    seen = state / GENERATION;
                    // SAFETY: joined while open, so the owner waits for this worker to leave
                    // before it changes `region` or drops what it points to.
                    unsafe { (**self.region.get()).work(index + 1) };
                    self.state.fetch_sub(1, Ordering::SeqCst);
                    spins = 0;
                }
                continue;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            let guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            // A region opened between the last look and here has seen no sleeper: look again.
            if self.state.load(Ordering::SeqCst) == state {
                drop(self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner));
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            spins = 0;
        }
    }

    /// Starts workers until there are `wanted`; gives how many there are.
    fn grow(started: &mut usize, wanted: usize) -> usize {
        while *started < wanted {
            let index = *started;
            let spawned = std::thread::Builder::new()
                .name(format!("hearken-{index}"))
                .spawn(move || POOL.worker(index));
            if spawned.is_err() {
                break; // fewer threads, same results
            }
            *started += 1;
        }
        wanted.min(*started)
    }

    /// Opens `region` to `helpers` workers, works too, and returns when all have left.
    fn run(&self, region: &Region, helpers: usize) {
        self.limit.store(helpers, Ordering::SeqCst);
        for done in &self.done[..region.shares] {
            done.0.store(0, Ordering::Relaxed); // seen by whoever joins, which is after opening
        }
        // SAFETY: the caller holds `owner`, the last region is closed and empty: nobody reads.
        unsafe { *self.region.get() = region };
        let generation = (self.state.load(Ordering::SeqCst) / GENERATION + 1) & 0xffff_ffff;
        self.state.store(generation * GENERATION + OPEN, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
            self.wake.notify_all();
        }
        region.work(0); // catches panics of the task, so the wait below is always reached
        self.state.fetch_and(!OPEN, Ordering::SeqCst);
        let mut spins = 0;
        while self.state.load(Ordering::SeqCst) & INSIDE_MASK != 0 {
            spins += 1;
            if spins < SPINS_BEFORE_YIELD {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// How many regions were shared among threads so far (modulo 2³²), by which a test can tell that
/// something was computed by more than one.
pub fn shared_regions() -> u64 {
    POOL.state.load(Ordering::Relaxed) / GENERATION
}

/// Calls `task(0)`, …, `task(tasks − 1)`, each once, on the threads of the pool; returns when
/// all are done. A panic of a task is passed on.
pub fn for_each(tasks: usize, task: impl Fn(usize) + Sync) {
    for_each_by_thread(tasks, |_, i| task(i));
}

/// As [`for_each`], with the number of the thread, below [`count`], as the first argument: for
/// what a thread prepares once for all of its tasks. Tasks with the same number never run at the
/// same time. Results must not depend on it.
pub fn for_each_by_thread(tasks: usize, task: impl Fn(usize, usize) + Sync) {
    let threads = count().min(tasks);
    if threads <= 1 {
        return (0..tasks).for_each(|i| task(0, i));
    }
    let Ok(mut started) = POOL.owner.try_lock() else {
        // Another thread's region is running: work alone rather than wait, as inside of a region.
        let _restore = Restore(&INSIDE, INSIDE.replace(true));
        return (0..tasks).for_each(|i| task(0, i));
    };
    let helpers = Pool::grow(&mut started, threads - 1);
    let task: &(dyn Fn(usize, usize) + Sync) = &task;
    let region = Region {
        #[expect(clippy::transmute_ptr_to_ptr, reason = "`as` cannot lengthen the lifetime")]
        // SAFETY: only the lifetime changes; `run` returns after the last use.
        task: unsafe {
            std::mem::transmute::<
                *const (dyn Fn(usize, usize) + Sync),
                *const (dyn Fn(usize, usize) + Sync),
            >(task)
        },
        tasks,
        shares: (helpers + 1).min(MOST_SHARES),
        isa: isa::current(),
        panic: Mutex::new(None),
    };
    POOL.run(&region, helpers);
    drop(started);
    let panic = region.panic.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(payload) = panic {
        resume_unwind(payload);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn every_task_runs_once() {
        // 40 is more than there are shares.
        for threads in [1, 2, 3, 4, 9, 40] {
            for tasks in [0, 1, 2, 3, 7, 100, 1000] {
                let counts: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
                with_threads(threads, || {
                    for_each(tasks, |i| {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    });
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_number_belongs_to_one_thread() {
        let check = |threads| {
            let seen: Vec<Mutex<Option<std::thread::ThreadId>>> =
                (0..threads).map(|_| Mutex::new(None)).collect();
            for_each_by_thread(200, |number, _| {
                // Held while the task runs: nobody else has this number now, or ever.
                let mut seen = seen[number].try_lock().expect("a number twice at a time");
                let me = std::thread::current().id();
                assert_eq!(*seen.get_or_insert(me), me);
                for_each_by_thread(3, |nested, _| assert_eq!(nested, 0));
            });
        };
        for threads in [1, 2, 5] {
            with_threads(threads, || (0..50).for_each(|_| check(threads)));
        }
        // Whoever does not get the pool works alone, as number 0.
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| with_threads(2, || (0..50).for_each(|_| check(2))));
            }
        });
    }

    #[test]
    fn regions_nest_and_repeat() {
        let sum = AtomicUsize::new(0);
        with_threads(4, || {
            for _ in 0..2000 {
                for_each(4, |i| {
                    for_each(3, |j| {
                        sum.fetch_add(i * j, Ordering::Relaxed);
                    });
                });
            }
        });
        assert_eq!(sum.load(Ordering::Relaxed), 2000 * 6 * 3);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        for _ in 0..20 {
            let result = catch_unwind(|| {
                with_threads(3, || for_each(50, |i| assert!(i != 17, "seventeen")));
            });
            assert!(result.is_err());
            every_task_runs_once();
        }
    }

    #[test]
    fn callers_on_several_threads_do_not_disturb_each_other() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| every_task_runs_once()));
            }
        });
    }

    #[test]
    fn column_sums_have_the_same_bits_for_any_number_of_threads() {
        let (rows, width) = (1003, 37);
        let x: Vec<f32> = (0..rows * width).map(|i| (i as f32 * 0.37).sin()).collect();
        let sums = |threads| {
            let mut out = vec![1.0; width];
            with_threads(threads, || {
                sum_over_row_chunks(rows, &mut out, crate::Write::Add, |range, partial| {
                    for row in x[range.start * width..range.end * width].chunks_exact(width) {
                        partial.iter_mut().zip(row).for_each(|(p, x)| *p += x);
                    }
                });
            });
            out
        };
        let one = sums(1);
        for threads in [2, 3, 4] {
            assert_eq!(one, sums(threads));
        }
        for (j, got) in one.iter().enumerate() {
            let want: f64 = 1.0 + (0..rows).map(|i| f64::from(x[i * width + j])).sum::<f64>();
            // 1003 terms of size below 1, each addition off by at most half an ulp of 32.
            assert!((f64::from(*got) - want).abs() < 1e-3);
        }
    }
}
