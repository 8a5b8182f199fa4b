//! The numbers along an axis: which range, where a number lies in it, and which ones are written.

use crate::number::thousands;

/// Beyond, numbers are drawn at the edge.
const MOST: f64 = 1e300;

/// A range of numbers, in logarithms if they are spaced so.
pub(super) struct Axis {
    low: f64,
    high: f64,
    spacing: Spacing,
}

enum Spacing {
    /// Whole steps from 0.
    Steps,
    Linear,
    /// Logarithms to the base 10.
    Decades,
    /// Logarithms to the base 2.
    Doublings,
}

impl Axis {
    /// From 0 to the largest, in whole steps.
    pub(super) fn steps(numbers: impl Iterator<Item = f64>) -> Self {
        Self { low: 0.0, high: numbers.fold(1.0, f64::max), spacing: Spacing::Steps }
    }

    /// From the smallest to the largest, in powers of two.
    pub(super) fn doublings(numbers: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extremes(numbers.map(f64::log2));
        let room = 0.03 * (high - low);
        Self { low: low - room, high: high + room, spacing: Spacing::Doublings }
    }

    /// From the smallest to the largest, without any room beside them.
    pub(super) fn exact(numbers: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extremes(numbers.map(|number| number.clamp(-MOST, MOST)));
        Self { low, high, spacing: Spacing::Linear }
    }

    /// From the smallest to the largest; with more room below if asked for.
    pub(super) fn linear(numbers: impl Iterator<Item = f64>, below: bool) -> Self {
        // Further apart, their distance would not be a number.
        let (low, high) = extremes(numbers.map(|number| number.clamp(-MOST, MOST)));
        let room = 0.05 * (high - low);
        let low = if below {
            low - 2.0 * room
        } else if low >= 0.0 {
            (low - room).max(0.0) // what is never negative does not get an axis that is
        } else {
            low - room
        };
        Self { low, high: high + room, spacing: Spacing::Linear }
    }

    /// From the smallest to the largest, in powers of ten; with more room below if asked for.
    pub(super) fn decades(numbers: impl Iterator<Item = f64>, below: bool) -> Self {
        let (low, high) = extremes(numbers.map(f64::log10));
        let room = 0.05 * (high - low);
        let low = low - if below { 2.0 * room } else { room };
        Self { low, high: high + room, spacing: Spacing::Decades }
    }

    /// Where `number` lies: 0 at the start of the axis, 1 at its end.
    pub(super) fn share(&self, number: f64) -> f64 {
        let at = match self.spacing {
            Spacing::Steps | Spacing::Linear => number.clamp(-MOST, MOST),
            Spacing::Decades => number.log10(),
            Spacing::Doublings => number.log2(),
        };
        (at - self.low) / (self.high - self.low)
    }

    /// The numbers that are written along the axis, and how.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        match self.spacing {
            Spacing::Steps => self.whole_ticks(),
            Spacing::Linear => self.linear_ticks(),
            Spacing::Decades => self.decade_ticks(),
            Spacing::Doublings => self.doubling_ticks(),
        }
    }

    fn whole_ticks(&self) -> Vec<(f64, String)> {
        let step = nice_step(self.high, 8.0).max(1.0);
        let count = (self.high * 1.000_001 / step) as u64; // the last one may be the end itself
        (0..=count).map(|i| i as f64 * step).map(|tick| (tick, thousands(tick))).collect()
    }

    fn linear_ticks(&self) -> Vec<(f64, String)> {
        let step = nice_step(self.high - self.low, 6.0);
        let first = (self.low / step).ceil();
        let count = ((self.high / step).floor() - first) as i64;
        let digits = (-step.log10()).ceil().clamp(0.0, 12.0) as usize;
        let tiny = self.high.abs() < 0.01;
        let label = |tick: f64| match tiny {
            true if tick == 0.0 => "0".to_owned(),
            true => format!("{tick:.1e}"),
            false if step >= 1e9 => format!("{tick:.1e}"),
            false if step >= 1e6 => format!("{}M", tick / 1e6),
            false if step >= 1e3 => format!("{}k", tick / 1e3),
            false => format!("{tick:.digits$}"),
        };
        let ticks = (0..=count).map(|i| (first + i as f64) * step);
        ticks.map(|tick| (tick, label(tick))).collect()
    }

    fn decade_ticks(&self) -> Vec<(f64, String)> {
        let decades = self.high - self.low;
        let multiples: &[f64] = match decades {
            ..0.6 => &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
            ..2.5 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let every = (decades / 7.0).ceil().max(1.0) as i32;
        let mut ticks = Vec::new();
        for decade in self.low.floor() as i32..=self.high.ceil() as i32 {
            let tick = |m: &f64| m * 10.0_f64.powi(decade);
            let inside = |t: &f64| (self.low..=self.high).contains(&t.log10());
            if decade % every == 0 {
                ticks.extend(multiples.iter().map(tick).filter(inside));
            }
        }
        let label = |tick: f64| {
            if (0.001..10_000.0).contains(&tick) {
                format!("{tick}")
            } else {
                format!("{tick:.0e}")
            }
        };
        ticks.into_iter().map(|tick| (tick, label(tick))).collect()
    }

    fn doubling_ticks(&self) -> Vec<(f64, String)> {
        let every = ((self.high - self.low) / 10.0).ceil().max(1.0) as i32;
        let powers = (self.low.ceil() as i32..=self.high.floor() as i32).step_by(every as usize);
        let label = |tick: f64| if tick < 1.0 { format!("{tick}") } else { thousands(tick) };
        powers.map(|power| 2.0_f64.powi(power)).map(|tick| (tick, label(tick))).collect()
    }
}

/// The smallest and the largest, apart even if they are the same.
fn extremes(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    let wider = |(low, high): (f64, f64), x: f64| (low.min(x), high.max(x));
    let (low, high) = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), wider);
    if high - low >= 1e-9 * high.abs().max(1e-30) {
        return (low, high);
    }
    let room = if high == 0.0 { 1.0 } else { 0.1 * high.abs() };
    (low - room, high + room)
}

/// 1, 2 or 5 times a power of ten, so that a `range` has at most about `count` steps.
fn nice_step(range: f64, count: f64) -> f64 {
    let rough = (range / count).max(f64::MIN_POSITIVE);
    let power = 10.0_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|m| m * power >= rough).unwrap_or(10.0);
    step * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn steps_are_nice() {
        let got = [0.7, 1.0, 3.0, 2000.0, 1e-4].map(|range| nice_step(range, 5.0));
        let want = [0.2, 0.2, 1.0, 500.0, 2e-5];
        for (got, want) in got.into_iter().zip(want) {
            assert!((got / want - 1.0).abs() < 1e-9, "{got}, not {want}");
        }
    }

    #[test]
    fn every_spacing_is_labelled() {
        let numbers = || [64.0, 1000.0, 8192.0].into_iter();
        let powers = ["64", "128", "256", "512", "1,024", "2,048", "4,096", "8,192"];
        assert_eq!(labels(&Axis::doublings(numbers())), powers);
        let decades = labels(&Axis::decades(numbers(), false));
        assert_eq!(decades, ["100", "200", "500", "1000", "2000", "5000", "1e4"]);
        assert_eq!(labels(&Axis::steps(numbers())), ["0", "2,000", "4,000", "6,000", "8,000"]);
        assert_eq!(labels(&Axis::linear([0.0, 1.0].into_iter(), false))[..2], ["0.0", "0.2"]);
        let speeds = labels(&Axis::linear([4_900.0, 16_000.0].into_iter(), false));
        assert_eq!(speeds, ["5k", "10k", "15k"]);
        assert_eq!(labels(&Axis::doublings([1.0, 2.0].into_iter())), ["1", "2"]);
    }

    #[test]
    fn equal_ratios_are_equally_far_apart() {
        let axis = Axis::doublings([64.0, 1024.0].into_iter());
        let [a, b, c] = [64.0, 256.0, 1024.0].map(|x| axis.share(x));
        assert!((b - a - (c - b)).abs() < 1e-12 && a > 0.0 && c < 1.0, "{a} {b} {c}");
    }
}
