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
                side_by_side(parts, |part| {
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

#[test]
fn whoever_has_no_part_left_helps() {
    // Others' tests share the pool, so a try may find it taken; that none of many helps is a fault.
    let helped = (0..200).any(|_| {
        let by_another = AtomicUsize::new(0);
        with_threads(2, || {
            side_by_side(2, |part| {
                if part == 1 {
                    let me = std::thread::current().id();
                    let until = std::time::Instant::now() + std::time::Duration::from_millis(20);
                    while by_another.load(Ordering::Relaxed) == 0 && until.elapsed().is_zero() {
                        for_each(50, |_| {
                            std::hint::spin_loop();
                            if std::thread::current().id() != me {
                                by_another.fetch_add(1, Ordering::Relaxed);
                            }
                        });
                    }
                }
            });
        });
        by_another.into_inner() > 0
    });
    assert!(helped);
}

#[test]
fn with_more_threads_than_parts_all_share_the_regions() {
    with_threads(3, || side_by_side(2, |_| assert_eq!(count(), 3)));
    // A part that falls into parts does them one after the other.
    with_threads(2, || side_by_side(2, |_| side_by_side(2, |_| assert!(count() <= 2))));
}

#[test]
fn a_panic_of_a_part_reaches_the_caller() {
    for _ in 0..20 {
        let result = catch_unwind(|| {
            with_threads(2, || side_by_side(4, |i| for_each(9, |j| assert!(i * j != 6, "six"))));
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
