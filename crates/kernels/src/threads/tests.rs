use super::*;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

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
        for_each_by_thread(threads, 200, |number, _| {
            // Held while the task runs: nobody else has this number now, or ever.
            let mut seen = seen[number].try_lock().expect("a number twice at a time");
            let me = std::thread::current().id();
            assert_eq!(*seen.get_or_insert(me), me);
            for_each_by_thread(threads, 3, |nested, _| assert_eq!(nested, 0));
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

#[test]
fn parts_run_once_with_their_regions() {
    for threads in [1, 2, 3, 4] {
        for parts in [0, 1, 2, 3, 4, 7] {
            let counts: Vec<AtomicU32> = (0..parts * 30).map(|_| AtomicU32::new(0)).collect();
            with_threads(threads, || {
                parallel_parts(parts, |part| {
                    // The last part has most to do: others come to help.
                    for round in 0..=part {
                        let seen: Vec<Mutex<()>> = (0..threads).map(|_| Mutex::new(())).collect();
                        for_each_by_thread(threads, 30, |number, i| {
                            let _alone = seen[number].try_lock().expect("a number twice at a time");
                            if round == part {
                                counts[part * 30 + i].fetch_add(1, Ordering::Relaxed);
                            }
                        });
                    }
                });
            });
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{threads} {parts}");
        }
    }
}

/// Tries until `f` has seen what it wants: other tests share the pool, so that a try may find it
/// taken, and the machine may be busy. That none of many succeeds is a fault.
fn sooner_or_later(f: impl Fn() -> bool) -> bool {
    (0..500).any(|_| f())
}

/// Waits until `done`, for 20 ms at most; says whether it is.
fn wait_until(done: impl Fn() -> bool) -> bool {
    let begin = std::time::Instant::now();
    while !done() && begin.elapsed().as_millis() < 20 {
        std::thread::yield_now();
    }
    done()
}

#[test]
fn parts_run_at_the_same_time_on_threads_of_their_own() {
    assert!(sooner_or_later(|| {
        let inside = AtomicUsize::new(0);
        let seen = Mutex::new(Vec::new());
        with_threads(2, || {
            parallel_parts(2, |_| {
                inside.fetch_add(1, Ordering::Relaxed);
                // Both are here, so each has one thread for its regions.
                if wait_until(|| inside.load(Ordering::Relaxed) == 2) {
                    let me = std::thread::current().id();
                    let alone = AtomicUsize::new(0);
                    for_each(10, |_| {
                        alone.fetch_add(
                            usize::from(std::thread::current().id() == me),
                            Ordering::Relaxed,
                        );
                    });
                    seen.lock().unwrap().push((me, count(), alone.into_inner()));
                    wait_until(|| seen.lock().unwrap().len() == 2);
                }
            });
        });
        matches!(seen.into_inner().unwrap()[..], [(a, 1, 10), (b, 1, 10)] if a != b)
    }));
}

#[test]
fn whoever_has_no_part_left_helps() {
    // Part 1 has work when part 0, on another thread, is done.
    assert!(sooner_or_later(|| {
        let first = Mutex::new(None);
        let by_others = AtomicUsize::new(0);
        with_threads(2, || {
            parallel_parts(2, |part| {
                let me = std::thread::current().id();
                if part == 0 {
                    *first.lock().unwrap() = Some(me);
                    return;
                }
                wait_until(|| count() == 2);
                let together = first.lock().unwrap().is_some_and(|first| first != me);
                for_each(2, |_| {
                    let other = std::thread::current().id() != me;
                    by_others.fetch_add(usize::from(other && together), Ordering::Relaxed);
                    // Stay, so that the other task is left for another thread.
                    wait_until(|| by_others.load(Ordering::Relaxed) > 0);
                });
            });
        });
        by_others.into_inner() == 1
    }));
}

#[test]
fn more_threads_than_parts_are_shared_out() {
    assert!(sooner_or_later(|| {
        let inside = AtomicUsize::new(0);
        let counts = Mutex::new(Vec::new());
        let threads_seen = Mutex::new(std::collections::HashSet::new());
        with_threads(4, || {
            parallel_parts(2, |_| {
                inside.fetch_add(1, Ordering::Relaxed);
                wait_until(|| inside.load(Ordering::Relaxed) == 2);
                counts.lock().unwrap().push(count());
                for_each(4, |_| {
                    threads_seen.lock().unwrap().insert(std::thread::current().id());
                    wait_until(|| threads_seen.lock().unwrap().len() == 4);
                });
                wait_until(|| counts.lock().unwrap().len() == 2);
            });
        });
        counts.into_inner().unwrap() == [2, 2] && threads_seen.into_inner().unwrap().len() == 4
    }));
}

#[test]
fn parts_of_parts_run_one_after_the_other() {
    with_threads(2, || {
        parallel_parts(2, |_| {
            let order = Mutex::new(Vec::new());
            let me = std::thread::current().id();
            parallel_parts(3, |i| order.lock().unwrap().push((i, std::thread::current().id())));
            assert_eq!(order.into_inner().unwrap(), [(0, me), (1, me), (2, me)]);
        });
    });
}

#[test]
fn a_part_may_ask_for_fewer_threads() {
    with_threads(4, || {
        parallel_parts(2, |_| {
            with_threads(1, || assert_eq!(count(), 1));
        });
    });
}

#[test]
fn a_panic_of_a_part_reaches_the_caller() {
    for _ in 0..20 {
        let result = catch_unwind(|| {
            with_threads(2, || parallel_parts(4, |i| for_each(9, |j| assert!(i * j != 6, "six"))));
        });
        assert!(result.is_err());
        parts_run_once_with_their_regions();
    }
}

#[test]
fn parts_of_several_callers_do_not_disturb_each_other() {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).for_each(|_| parts_run_once_with_their_regions()));
        }
    });
}

/// What a task panics with may panic again when it is dropped, which must not reach the pool.
#[test]
fn a_payload_that_bursts_does_no_harm() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("burst");
        }
    }
    for _ in 0..20 {
        let result = catch_unwind(|| {
            with_threads(3, || for_each(3, |_| std::panic::panic_any(Bomb)));
        });
        std::mem::forget(result.unwrap_err());
        every_task_runs_once();
    }
}
