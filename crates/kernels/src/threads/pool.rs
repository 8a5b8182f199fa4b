//! The workers, and the boards on which they find work.
//!
//! A board holds one region at a time. There is one for parts, one for tasks outside of parts, and
//! one for the tasks of each part. A worker takes what it finds, parts before tasks. A thread that
//! has posted parts helps with the tasks of others' while it waits for the last of them.

use crate::isa;
use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Boards for tasks: the first for what is outside of parts. Parts at the same time beyond so many
/// share the others.
const BOARDS: usize = 17;

/// Where parts are posted that run in parallel.
pub(super) static PARTS: Board = Board::new();
/// Where regions of tasks are posted.
pub(super) static TASKS: [Board; BOARDS] = [const { Board::new() }; BOARDS];

static WORKERS: Workers = Workers {
    started: AtomicUsize::new(0),
    starting: Mutex::new(()),
    posts: AtomicU64::new(0),
    sleepers: AtomicUsize::new(0),
    sleep: Mutex::new(()),
    wake: Condvar::new(),
};

/// The board for the tasks of a part that thread `number` of [`PARTS`] has, or outside of parts.
pub(super) fn board_of(part: Option<usize>) -> &'static Board {
    &TASKS[part.map_or(0, |number| 1 + number % (BOARDS - 1))]
}

/// Sees to it that there are so many workers, if the system allows it; gives how many there are.
pub(super) fn start(workers: usize) -> usize {
    WORKERS.at_least(workers).min(workers)
}

/// How many tasks of a share are handed out, on a cache line of its own.
#[repr(align(64))]
struct Counter(AtomicUsize);

/// Most shares that tasks are cut into; further threads begin with a share that has an owner.
const MOST_SHARES: usize = 32;

/// The task, given the number of a thread and its index.
type Task<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// One region: the task, and the tasks in even shares of neighbours, one for each thread.
struct Region {
    task: *const Task<'static>,
    tasks: usize,
    shares: usize,
    isa: Option<isa::Isa>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// The state word: generation in the high half, then whether the region is open, then how many
/// workers are inside.
const OPEN: u64 = 1 << 31;
const INSIDE_MASK: u64 = OPEN - 1;
const GENERATION: u64 = 1 << 32;

/// Holds one region at a time.
pub(super) struct Board {
    state: AtomicU64,
    region: UnsafeCell<*const Region>,
    /// How many threads may work on the region, its owner among them.
    threads: AtomicUsize,
    /// Workers with numbers below this may.
    pool: AtomicUsize,
    /// How many have joined the owner.
    joined: AtomicUsize,
    /// Tasks handed out of each share of the region.
    done: [Counter; MOST_SHARES],
    /// Tasks that are not finished, where somebody counts; see [`Board::one_finished`].
    left: AtomicUsize,
    one_at_a_time: Mutex<()>,
}

// SAFETY: `region` is written only by the holder of `one_at_a_time` while no worker is inside and
// the region is closed, and read by others only after they have joined an open one: the state word
// orders the two (release when opening, acquire when joining). The rest is Sync by itself.
unsafe impl Sync for Board {}
// SAFETY: the raw pointer is only dereferenced under the protocol above.
unsafe impl Send for Board {}

/// Rounds of spinning before a worker sleeps: about 100 µs, several times the serial gap
/// between two regions of a training step.
const SPINS: u32 = 4000;
/// Rounds of spinning before the thread that waits for the last worker lets others run.
const SPINS_BEFORE_YIELD: u32 = 2000;

impl Board {
    const fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            region: UnsafeCell::new(std::ptr::null()),
            threads: AtomicUsize::new(0),
            pool: AtomicUsize::new(0),
            joined: AtomicUsize::new(0),
            done: [const { Counter(AtomicUsize::new(0)) }; MOST_SHARES],
            left: AtomicUsize::new(0),
            one_at_a_time: Mutex::new(()),
        }
    }

    /// How many regions were posted so far (modulo 2³²).
    pub(super) fn posted(&self) -> u64 {
        self.state.load(Ordering::Relaxed) / GENERATION
    }

    /// How many tasks of the region are not finished.
    pub(super) fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    /// Counts a task of the region as finished.
    pub(super) fn one_finished(&self) {
        self.left.fetch_sub(1, Ordering::Relaxed);
    }

    /// Calls `task(number, i)` for all `i` below `tasks` on at most `threads` threads, the caller
    /// one of them; numbers are below `threads`, and no two threads have the same. The others are
    /// of the first `pool` threads, of which the caller need not be one. Gives `false`, and does
    /// nothing, if another region is on the board. A panic of a task is passed on.
    ///
    /// `helps`: does the caller look at the other boards while it waits for the last thread?
    pub(super) fn run(
        &self,
        threads: usize,
        pool: usize,
        tasks: usize,
        task: &Task<'_>,
        helps: bool,
    ) -> bool {
        let Ok(only) = self.one_at_a_time.try_lock() else { return false };
        let threads = WORKERS.at_least(threads - 1).min(threads - 1) + 1;
        let region = Region {
            #[expect(clippy::transmute_ptr_to_ptr, reason = "`as` cannot lengthen the lifetime")]
            // SAFETY: only the lifetime changes; `wait` returns after the last use, and nothing
            // before it unwinds.
            task: unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task) },
            tasks,
            shares: threads.min(MOST_SHARES),
            isa: isa::forced(),
            panic: Mutex::new(None),
        };
        self.pool.store(pool, Ordering::Relaxed);
        self.post(&region, threads, &only);
        self.wait(helps);
        drop(only);
        let panic = region.panic.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
        true
    }

    /// Opens `region` to `threads` threads, works too, and closes it.
    fn post(&self, region: &Region, threads: usize, _only: &MutexGuard<'_, ()>) {
        // Seen by whoever joins, which is after opening.
        self.threads.store(threads, Ordering::Relaxed);
        self.joined.store(0, Ordering::Relaxed);
        self.left.store(region.tasks, Ordering::Relaxed);
        for done in &self.done[..region.shares] {
            done.0.store(0, Ordering::Relaxed);
        }
        // SAFETY: the caller holds the lock, the last region is closed and empty: nobody reads.
        unsafe { *self.region.get() = region };
        let generation = (self.posted() + 1) & 0xffff_ffff;
        self.state.store(generation * GENERATION + OPEN, Ordering::SeqCst);
        WORKERS.call();
        self.work(region, 0, 0); // catches panics of the task, so that it is always closed
        self.state.fetch_and(!OPEN, Ordering::SeqCst);
    }

    /// Returns when all have left the region, which is closed.
    fn wait(&self, helps: bool) {
        let mut look = Look::new(0);
        let mut spins = 0;
        while self.state.load(Ordering::SeqCst) & INSIDE_MASK != 0 {
            if helps && look.for_work(true) {
                spins = 0;
                continue;
            }
            spins += 1;
            if spins < SPINS_BEFORE_YIELD {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Works on the region that is open, if there is one with room that this thread, number
    /// `worker` of the pool, has not seen; `seen` is the last that it has. Gives `false` if there is
    /// none, and nothing to look for before another is posted.
    fn join(&self, worker: usize, seen: &mut Option<u64>) -> bool {
        let state = self.state.load(Ordering::SeqCst);
        let generation = Some(state / GENERATION);
        let full = self.joined.load(Ordering::Relaxed) + 1 >= self.threads.load(Ordering::Relaxed);
        let outside = worker >= self.pool.load(Ordering::Relaxed);
        if state & OPEN == 0 || *seen == generation || full || outside {
            return false;
        }
        let joined =
            self.state.compare_exchange(state, state + 1, Ordering::SeqCst, Ordering::Relaxed);
        if joined.is_ok() {
            *seen = generation;
            let number = self.joined.fetch_add(1, Ordering::Relaxed) + 1; // the owner has 0
            if number < self.threads.load(Ordering::Relaxed) {
                // SAFETY: joined while open, so the owner waits for this thread to leave before it
                // changes `region` or drops what it points to.
                let region = unsafe { &**self.region.get() };
                // Its own share, if there is one.
                let own = if (1..region.shares).contains(&worker) { worker } else { number };
                self.work(region, number, own);
            }
            self.state.fetch_sub(1, Ordering::SeqCst);
        }
        true // or somebody came or went at the same time: look again
    }

    /// Takes tasks until none is left: those of its own share first, in order, so that the same
    /// rows stay in the same core's cache from region to region; then others'.
    fn work(&self, region: &Region, number: usize, first_share: usize) {
        // SAFETY: `run` keeps the closure alive until every thread has left the region.
        let task = unsafe { &*region.task };
        let result = catch_unwind(AssertUnwindSafe(|| {
            isa::with_forced(region.isa, || {
                for share in (0..region.shares).map(|n| (first_share + n) % region.shares) {
                    let cut = |share: usize| share * region.tasks / region.shares;
                    loop {
                        let done = self.done[share].0.fetch_add(1, Ordering::Relaxed);
                        if done >= cut(share + 1) - cut(share) {
                            break;
                        }
                        task(number, cut(share) + done);
                    }
                }
            });
        }));
        if let Err(payload) = result {
            for done in &self.done[..region.shares] {
                done.0.store(region.tasks, Ordering::Relaxed);
            }
            let mut first = region.panic.lock().unwrap_or_else(PoisonError::into_inner);
            match &mut *first {
                None => *first = Some(payload),
                // Dropping it could panic again, and nothing may unwind from here.
                Some(_) => std::mem::forget(payload),
            }
        }
    }
}

/// What a thread that looks for work has seen already.
struct Look {
    /// Its number in the pool, 0 for a thread that is not a worker.
    worker: usize,
    part: Option<u64>,
    tasks: [Option<u64>; BOARDS],
    /// Posts when it began to look in vain.
    posts: Option<u64>,
}

impl Look {
    fn new(worker: usize) -> Self {
        Self { worker, part: None, tasks: [None; BOARDS], posts: None }
    }

    /// Does a part, or some tasks; only tasks of parts, if it is only to help. Gives `false` if
    /// there is nothing that was not there before.
    fn for_work(&mut self, only_help: bool) -> bool {
        // First, so that what is posted while it looks is not missed.
        let posts = Some(WORKERS.posts.load(Ordering::SeqCst));
        if self.posts == posts {
            return false;
        }
        let Self { worker, ref mut part, ref mut tasks, .. } = *self;
        let mut tasks = TASKS.iter().zip(tasks).skip(usize::from(only_help));
        let found = !only_help && PARTS.join(worker, part)
            || tasks.any(|(board, seen)| board.join(worker, seen));
        self.posts = if found { None } else { posts }; // there may be more
        found
    }
}

/// The threads that look at the boards.
struct Workers {
    started: AtomicUsize,
    starting: Mutex<()>,
    /// Regions that were posted on any board.
    posts: AtomicU64,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

impl Workers {
    /// Starts workers until there are `wanted`; gives how many there are.
    fn at_least(&'static self, wanted: usize) -> usize {
        if self.started.load(Ordering::Acquire) < wanted {
            let _one = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
            for number in self.started.load(Ordering::Acquire) + 1..=wanted {
                let spawned = std::thread::Builder::new()
                    .name(format!("hearken-{number}"))
                    .spawn(move || self.work(number));
                if spawned.is_err() {
                    break; // fewer threads, same results
                }
                self.started.store(number, Ordering::Release);
            }
        }
        self.started.load(Ordering::Acquire)
    }

    fn work(&self, number: usize) {
        let mut look = Look::new(number);
        let mut spins = 0;
        loop {
            if look.for_work(false) {
                spins = 0;
                continue;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            let guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            // Whoever posted between the last look and here has seen no sleeper: look again.
            if Some(self.posts.load(Ordering::SeqCst)) == look.posts {
                drop(self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner));
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            spins = 0;
        }
    }

    /// Tells everybody that something was posted.
    fn call(&self) {
        self.posts.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
            self.wake.notify_all();
        }
    }
}
