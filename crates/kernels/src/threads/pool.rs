//! The workers, and the boards on which they find work.

use crate::isa;
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Where regions of tasks are posted.
pub(super) static TASKS: Board = Board::new();
/// Where parts are posted that run side by side; whoever has one may post tasks.
pub(super) static PARTS: Board = Board::new();

static WORKERS: Workers = Workers {
    started: AtomicUsize::new(0),
    starting: Mutex::new(()),
    sleepers: AtomicUsize::new(0),
    sleep: Mutex::new(()),
    wake: Condvar::new(),
};

thread_local! {
    /// 0 for a thread that is not a worker, else 1, 2, ….
    static NUMBER: Cell<usize> = const { Cell::new(0) };
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
    isa: isa::Isa,
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
    /// How many threads may join, the owner among them.
    threads: AtomicUsize,
    /// The number of the thread that opened the region.
    owner: AtomicUsize,
    /// Tasks handed out of each share of the region.
    done: [Counter; MOST_SHARES],
    /// Threads that may still have tasks.
    busy: AtomicUsize,
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
            owner: AtomicUsize::new(0),
            done: [const { Counter(AtomicUsize::new(0)) }; MOST_SHARES],
            busy: AtomicUsize::new(0),
            one_at_a_time: Mutex::new(()),
        }
    }

    /// How many regions were posted so far (modulo 2³²).
    pub(super) fn posted(&self) -> u64 {
        self.state.load(Ordering::Relaxed) / GENERATION
    }

    /// How many threads may still have tasks of the region.
    pub(super) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Calls `task(number, i)` for all `i` below `tasks` on at most `threads` threads, the caller
    /// one of them; numbers are below `threads`. Gives `false`, and does nothing, if another
    /// region is on the board. A panic of a task is passed on.
    ///
    /// With `meanwhile`, the caller helps there while it waits for the last of the others.
    pub(super) fn run(
        &self,
        threads: usize,
        tasks: usize,
        task: &Task<'_>,
        meanwhile: Option<&Board>,
    ) -> bool {
        let Ok(only) = self.one_at_a_time.try_lock() else { return false };
        let threads = WORKERS.at_least(threads - 1).min(threads - 1) + 1;
        let region = Region {
            #[expect(clippy::transmute_ptr_to_ptr, reason = "`as` cannot lengthen the lifetime")]
            // SAFETY: only the lifetime changes; `post` returns after the last use.
            task: unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task) },
            tasks,
            shares: threads.min(MOST_SHARES),
            isa: isa::current(),
            panic: Mutex::new(None),
        };
        self.post(&region, threads, &only, meanwhile);
        drop(only);
        let panic = region.panic.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
        true
    }

    /// Opens `region` to `threads` threads, works too, and returns when all have left.
    fn post(
        &self,
        region: &Region,
        threads: usize,
        _only: &MutexGuard<'_, ()>,
        meanwhile: Option<&Board>,
    ) {
        self.threads.store(threads, Ordering::SeqCst);
        self.owner.store(NUMBER.get(), Ordering::SeqCst);
        self.busy.store(threads.min(region.tasks), Ordering::Relaxed);
        for done in &self.done[..region.shares] {
            done.0.store(0, Ordering::Relaxed); // seen by whoever joins, which is after opening
        }
        // SAFETY: the caller holds the lock, the last region is closed and empty: nobody reads.
        unsafe { *self.region.get() = region };
        let generation = (self.posted() + 1) & 0xffff_ffff;
        self.state.store(generation * GENERATION + OPEN, Ordering::SeqCst);
        WORKERS.wake();
        self.work(region, 0); // catches panics of the task, so the wait below is always reached
        self.state.fetch_and(!OPEN, Ordering::SeqCst);
        let (mut spins, mut seen) = (0, None);
        while self.state.load(Ordering::SeqCst) & INSIDE_MASK != 0 {
            if meanwhile.is_some_and(|board| board.join(&mut seen)) {
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

    /// Works on the region that is open, if there is one that this thread has not seen and may
    /// join. `seen` is the last that it did.
    fn join(&self, seen: &mut Option<u64>) -> bool {
        let state = self.state.load(Ordering::SeqCst);
        if state & OPEN == 0 || *seen == Some(state / GENERATION) {
            return false;
        }
        let (me, owner) = (NUMBER.get(), self.owner.load(Ordering::SeqCst));
        // The owner is number 0 of its region; who else would be takes the owner's.
        let number = if me == 0 { owner } else { me };
        if me == owner || number >= self.threads.load(Ordering::SeqCst) {
            return false;
        }
        let joined =
            self.state.compare_exchange(state, state + 1, Ordering::SeqCst, Ordering::Relaxed);
        if joined.is_ok() {
            *seen = Some(state / GENERATION);
            // SAFETY: joined while open, so the owner waits for this thread to leave before it
            // changes `region` or drops what it points to.
            self.work(unsafe { &**self.region.get() }, number);
            self.state.fetch_sub(1, Ordering::SeqCst);
        }
        joined.is_ok()
    }

    /// Takes tasks until none is left: those of the thread's own share first, in order, so that
    /// the same rows stay in the same core's cache from region to region; then others'.
    fn work(&self, region: &Region, number: usize) {
        // SAFETY: `run` keeps the closure alive until every thread has left the region.
        let task = unsafe { &*region.task };
        let result = catch_unwind(AssertUnwindSafe(|| {
            isa::with_isa(region.isa, || {
                for share in (0..region.shares).map(|n| (number + n) % region.shares) {
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
            region.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        }
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The threads that look at the boards.
struct Workers {
    started: AtomicUsize,
    starting: Mutex<()>,
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
        NUMBER.set(number);
        let (mut part, mut task) = (None, None); // the last regions joined
        let mut spins = 0;
        loop {
            let states = || [&PARTS, &TASKS].map(|board| board.state.load(Ordering::SeqCst));
            let before = states();
            if PARTS.join(&mut part) || TASKS.join(&mut task) {
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
            // A region opened between the last look and here has seen no sleeper: look again.
            if states() == before {
                drop(self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner));
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            spins = 0;
        }
    }

    fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
            self.wake.notify_all();
        }
    }
}
