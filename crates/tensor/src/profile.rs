//! Where the time of a step goes, by operation.
//!
//! Forward: an operation is charged the time since the operation before it ended (they run one
//! after the other, so that is its own time and the little glue before it). Backward: the time of
//! its [`Backward`](crate::Backward). When nobody profiles, this costs one relaxed load per
//! operation.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

static ENABLED: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<Option<State>> = Mutex::new(None);

struct State {
    last: Instant,
    spent: BTreeMap<&'static str, Spent>,
}

/// Time of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// In forward.
    pub forward: Duration,
    /// In backward.
    pub backward: Duration,
    /// How many forwards and backwards there were.
    pub calls: usize,
}

/// Starts profiling, from zero.
pub fn start() {
    let fresh = State { last: Instant::now(), spent: BTreeMap::new() };
    *STATE.lock().unwrap_or_else(PoisonError::into_inner) = Some(fresh);
    ENABLED.store(true, Ordering::Relaxed);
}

/// Stops profiling; gives what was spent, by operation.
pub fn stop() -> Vec<(&'static str, Spent)> {
    ENABLED.store(false, Ordering::Relaxed);
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner).take();
    state.map_or_else(Vec::new, |state| state.spent.into_iter().collect())
}

/// Is somebody profiling?
pub(crate) fn is_on() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Charges the time since the last mark to `name`, which is not an operation of the graph: an
/// optimiser's step, say.
pub fn mark(name: &'static str) {
    charge(name, |spent| &mut spent.forward);
}

pub(crate) fn forward<B>() {
    if is_on() {
        charge(name::<B>(), |spent| &mut spent.forward);
    }
}

/// Resets the clock before a backward, so that only its own time is charged.
pub(crate) fn begin_backward() {
    if is_on() {
        charge("(graph)", |spent| &mut spent.backward);
    }
}

pub(crate) fn backward(name: &'static str) {
    if is_on() {
        charge(name, |spent| &mut spent.backward);
    }
}

fn charge(name: &'static str, phase: fn(&mut Spent) -> &mut Duration) {
    if !is_on() {
        return;
    }
    if let Some(state) = STATE.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        let now = Instant::now();
        let spent = state.spent.entry(name).or_default();
        *phase(spent) += now - state.last;
        spent.calls += 1;
        state.last = now;
    }
}

/// The operation's name: that of the module its backward lives in.
pub(crate) fn name<B: ?Sized>() -> &'static str {
    let path = std::any::type_name::<B>();
    let path = path.split('<').next().unwrap_or(path);
    path.rsplit("::").nth(1).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use crate::{Tensor, Var};

    #[test]
    fn operations_are_charged_by_name() {
        super::start();
        let x = Var::leaf(Tensor::full([64, 64], 1.0));
        (&x * &x).sum().backward();
        let spent = super::stop();
        let find = |name: &str| spent.iter().find(|(n, _)| *n == name).map(|(_, s)| *s);
        let mul = find("mul").expect("mul was run");
        assert!(
            mul.forward > std::time::Duration::ZERO && mul.backward > std::time::Duration::ZERO
        );
        assert!(find("mean").is_some());
    }
}
