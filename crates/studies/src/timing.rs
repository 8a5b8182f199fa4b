//! Timings that can be compared: the median, the best, and how far apart they lie.

use serde::Serialize;
use std::time::{Duration, Instant};

/// The times of a number of equal calls, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    /// How many.
    pub calls: usize,
    /// The median.
    pub median: f64,
    /// The best.
    pub min: f64,
    /// The distance between the quartiles as a share of the median.
    pub spread: f64,
}

impl Times {
    /// Sums up the seconds of some calls, at least one.
    pub fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let last = seconds.len() - 1;
        // Between two neighbours: linear.
        let quantile = |share: f64| {
            let at = share * last as f64;
            let (below, above) = (seconds[at.floor() as usize], seconds[at.ceil() as usize]);
            below + (above - below) * at.fract()
        };
        let median = quantile(0.5);
        Self {
            calls: seconds.len(),
            median,
            min: seconds[0],
            spread: (quantile(0.75) - quantile(0.25)) / median,
        }
    }
}

/// Calls `work` once to warm up, then for about `budget`, but at least three times; gives what
/// the later calls gave.
pub fn repeat<T>(budget: Duration, work: impl FnMut() -> T) -> Vec<T> {
    repeat_at_least(3, budget, work)
}

/// The same, at least so many times.
pub fn repeat_at_least<T>(least: usize, budget: Duration, mut work: impl FnMut() -> T) -> Vec<T> {
    work();
    let start = Instant::now();
    let mut results = Vec::new();
    while results.len() < least || start.elapsed() < budget {
        results.push(work());
    }
    results
}

/// The seconds that `work` takes.
pub fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_best_and_spread() {
        let times = Times::of(vec![4.0, 1.0, 2.0, 3.0, 10.0]);
        assert_eq!((times.calls, times.median, times.min), (5, 3.0, 1.0));
        assert_eq!(times.spread, (4.0 - 2.0) / 3.0);
        let one = Times::of(vec![2.0]);
        assert_eq!((one.median, one.min, one.spread), (2.0, 2.0, 0.0));
        assert_eq!(Times::of(vec![1.0, 2.0]).median, 1.5);
    }

    #[test]
    fn at_least_three_calls_after_one_that_does_not_count() {
        let mut calls = 0;
        let results = repeat(Duration::ZERO, || {
            calls += 1;
            calls
        });
        assert_eq!(results, [2, 3, 4]);
    }
}
