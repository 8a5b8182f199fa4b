//! Parts of a batch in parallel, each on a thread of its own.
//!
//! The operations of a small model are too short to be shared well: at the end of each, threads
//! wait for the slowest. Sequences of a batch have nothing to do with each other until their
//! gradients are added up, so each thread may just as well take some of them through the whole
//! graph, forward and back. [`parallel_parts`] does that: every part adds to gradients of its own,
//! which are then added up in the order of the parts. So results depend on the number of parts,
//! and not on the number of threads.

use crate::graph::{is_recording, with_recording};
use crate::half::{Storage, with_storage};
use crate::param::Param;
use crate::profile;
use hearken_kernels::{isa, threads};
use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

thread_local! {
    static PART: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The part that this thread is in, 0 outside of all.
pub(crate) fn current_part() -> usize {
    PART.get().unwrap_or(0)
}

/// Calls `part(0)`, …, `part(parts − 1)`, which compute losses and walk back from them, and gives
/// what they gave. Afterwards the gradients of all parts are added up in those of `parameters`,
/// which must be all that the parts learn. A graph that a part has built is of no use outside of it.
///
/// Each part runs on one thread, helped by those that have none. Parts of a part are computed one
/// after the other, as if they were not parts. Kernels run on the [set for batches](isa::for_batches).
pub fn parallel_parts<T: Send>(
    parts: usize,
    parameters: &[Param],
    part: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    isa::for_batches(|| run_parts(parts, parameters, part))
}

fn run_parts<T: Send>(
    parts: usize,
    parameters: &[Param],
    part: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    if parts <= 1 || PART.get().is_some() {
        return (0..parts).map(part).collect();
    }
    let results: Vec<Mutex<Option<T>>> = (0..parts).map(|_| Mutex::new(None)).collect();
    let (storage, recording) = (Storage::current(), is_recording());
    let run = |i: usize| {
        let _restore = Restore(PART.replace(Some(i)));
        let result = with_recording(recording, || with_storage(storage, || part(i)));
        *results[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    };
    if profile::is_on() {
        (0..parts).for_each(run); // times of one operation at a time
    } else {
        threads::parallel_parts(parts, run);
    }
    Param::map(parameters, Param::add_up_parts);
    let result = |slot: Mutex<Option<T>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().filter_map(result).collect() // each there: a part that panicked ends all
}

struct Restore(Option<usize>);
impl Drop for Restore {
    fn drop(&mut self) {
        PART.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Role, Tensor, checkpoint, no_grad};
    use hearken_kernels::threads::with_threads;

    /// Loss and gradients of Σᵢ (p·xᵢ)²·q in parts.
    fn run(threads: usize, parts: usize, with_checkpoint: bool) -> (Vec<f32>, Vec<Vec<f32>>) {
        let x = [0.3, -1.2, 2.0, 0.7, 1.1, -0.6];
        let p = Param::new("p", Role::Hidden, Tensor::new([2], &[0.7, -0.4]));
        let q = Param::new("q", Role::Hidden, Tensor::new([2], &[1.3, 0.1]));
        let all = [p.clone(), q.clone()];
        let losses = with_threads(threads, || {
            parallel_parts(parts, &all, |part| {
                let mut loss = 0.0;
                for x in x.chunks(6 / parts).nth(part).unwrap() {
                    let (p, q, x) = (p.clone(), q.clone(), Tensor::full([2], *x));
                    let square = move |x: &[crate::Var]| {
                        let y = &x[0] * &p.var();
                        &(&y * &y) * &q.var()
                    };
                    let x = crate::Var::constant(x);
                    let y = if with_checkpoint { checkpoint(&[&x], square) } else { square(&[x]) };
                    let sum = y.sum();
                    sum.backward();
                    loss += sum.value().item();
                }
                loss
            })
        });
        (losses, all.iter().map(|p| p.gradient().unwrap().data().to_vec()).collect())
    }

    #[test]
    fn gradients_of_all_parts_add_up_to_the_same_bits_on_any_number_of_threads() {
        let (whole, want) = run(1, 1, false);
        for parts in [2, 3, 6] {
            let (losses, gradients) = run(1, parts, false);
            assert_eq!(losses.len(), parts);
            assert!((losses.iter().sum::<f32>() - whole[0]).abs() < 1e-5);
            for (got, want) in gradients.iter().flatten().zip(want.iter().flatten()) {
                assert!((got - want).abs() < 1e-5); // another order of six additions near 10
            }
            for threads in [1, 2, 3, 4] {
                for with_checkpoint in [false, true] {
                    assert_eq!(
                        run(threads, parts, with_checkpoint),
                        (losses.clone(), gradients.clone())
                    );
                }
            }
        }
    }

    #[test]
    fn parts_see_the_surroundings_of_the_caller() {
        let p = Param::new("p", Role::Hidden, Tensor::new([1], &[1.0]));
        let seen = with_threads(2, || {
            no_grad(|| {
                with_storage(Storage::Bf16, || {
                    parallel_parts(2, &[], |_| (Storage::current(), p.var().wants_gradient()))
                })
            })
        });
        assert_eq!(seen, [(Storage::Bf16, false); 2]);
    }

    #[test]
    fn a_gradient_from_before_is_added_to() {
        let p = Param::new("p", Role::Hidden, Tensor::new([1], &[1.0]));
        p.set_gradient(Some(Tensor::scalar(5.0).reshape([1])));
        parallel_parts(2, std::slice::from_ref(&p), |_| p.var().sum().backward());
        assert_eq!(p.gradient().unwrap().data(), &[7.0]);
    }

    #[test]
    fn parts_of_a_part_belong_to_it() {
        let p = Param::new("p", Role::Hidden, Tensor::new([1], &[1.0]));
        let all = std::slice::from_ref(&p);
        for threads in [1, 2, 3] {
            p.set_gradient(None);
            with_threads(threads, || {
                parallel_parts(2, all, |_| parallel_parts(3, all, |_| p.var().sum().backward()));
            });
            assert_eq!(p.gradient().unwrap().data(), &[6.0]);
        }
    }

    #[test]
    fn a_part_that_panics_leaves_nothing_behind_a_new_gradient() {
        let p = Param::new("p", Role::Hidden, Tensor::new([1], &[1.0]));
        let all = std::slice::from_ref(&p);
        let failed = std::panic::catch_unwind(|| {
            with_threads(1, || {
                parallel_parts(3, all, |part| {
                    p.var().sum().backward();
                    assert!(part < 2, "two");
                });
            });
        });
        assert!(failed.is_err());
        p.set_gradient(None);
        parallel_parts(2, all, |_| p.var().sum().backward());
        assert_eq!(p.gradient().unwrap().data(), &[2.0]);
    }
}
