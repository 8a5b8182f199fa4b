//! Means and ranges over seeds, when a difference may be called one, and slopes.
//!
//! **A difference is called one** if both sides have at least [`SEEDS`] seeds, their ranges do not
//! overlap, and the means are further apart than the wider of the two ranges. Else no difference was
//! found, which is not the same as: there is none. Who diverged with any seed is named and not ranked.

use hearken_train::Better;

/// A claim needs so many seeds.
pub const SEEDS: usize = 3;

/// One number of a contender, by seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// By seed; NaN where a training diverged.
    pub values: Vec<f64>,
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self { values: values.into_iter().collect() }
    }
}

impl Sample {
    /// NaN if there is no value, or one of them is NaN.
    pub fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }

    /// The lowest.
    pub fn low(&self) -> f64 {
        self.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The highest.
    pub fn high(&self) -> f64 {
        self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Are all values numbers?
    pub fn is_finite(&self) -> bool {
        !self.values.is_empty() && self.values.iter().all(|value| value.is_finite())
    }

    /// `1.234 (1.230–1.240)`; the mean alone, if there is one seed or all look the same; `diverged`, if
    /// a value is not finite.
    pub fn show(&self, number: impl Fn(f64) -> String) -> String {
        if !self.is_finite() {
            return "diverged".to_owned();
        }
        let [mean, low, high] = [self.mean(), self.low(), self.high()].map(number);
        if low == high { mean } else { format!("{mean} ({low}–{high})") }
    }
}

/// What two samples say of each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The first is better.
    First,
    /// The second is better.
    Second,
    /// The difference is within the spread between seeds.
    NoDifference,
    /// There are too few seeds to tell.
    TooFewSeeds,
}

/// Which of two is better.
pub fn verdict(a: &Sample, b: &Sample, better: Better) -> Verdict {
    if a.values.len() < SEEDS || b.values.len() < SEEDS {
        return Verdict::TooFewSeeds;
    }
    match (a.is_finite(), b.is_finite()) {
        (true, true) => {}
        (true, false) if b.values.iter().all(|value| value.is_nan()) => return Verdict::First,
        (false, true) if a.values.iter().all(|value| value.is_nan()) => return Verdict::Second,
        _ => return Verdict::NoDifference,
    }
    let spread = (a.high() - a.low()).max(b.high() - b.low());
    let apart = a.high() < b.low() || b.high() < a.low();
    if !apart || (a.mean() - b.mean()).abs() <= spread {
        return Verdict::NoDifference;
    }
    if better.is_better(a.mean(), b.mean(), 0.0) { Verdict::First } else { Verdict::Second }
}

/// A true sentence about who is best in `what` (with its article: "the lowest validation loss", "the
/// highest accuracy"), by the [rule](self); `number` shows a value. Says who else cannot be told apart
/// from the best, who diverged, or that too few seeds were run for a claim.
pub fn best(
    what: &str,
    better: Better,
    contenders: &[(String, Sample)],
    number: impl Fn(f64) -> String + Copy,
) -> String {
    if let [(name, sample)] = contenders {
        let shown = sample.show(number);
        return format!("{name} ran alone, with {shown}: who has {what} needs others");
    }
    let mut order: Vec<&(String, Sample)> = contenders.iter().filter(|c| c.1.is_finite()).collect();
    order.sort_by(|a, b| match better {
        Better::Lower => a.1.mean().total_cmp(&b.1.mean()),
        Better::Higher => b.1.mean().total_cmp(&a.1.mean()),
    });
    let out = diverged(contenders);
    let [(name, sample), others @ ..] = &order[..] else {
        return format!("nobody has {what}{out}");
    };
    if others.is_empty() {
        return format!("{name} has {what}, {}, as nobody else is left{out}", sample.show(number));
    }
    let verdicts = others.iter().map(|other| (verdict(sample, &other.1, better), other));
    if verdicts.clone().any(|(verdict, _)| verdict == Verdict::TooFewSeeds) {
        return too_few(what, &order, number) + &out;
    }
    let mean = number(sample.mean());
    let close = verdicts.filter(|(verdict, _)| *verdict == Verdict::NoDifference);
    let (alike, close): (Vec<&(String, Sample)>, Vec<_>) =
        close.map(|(_, other)| other).partition(|other| number(other.1.mean()) == mean);
    let who = if alike.is_empty() {
        format!("{name} has {what}, {}", sample.show(number))
    } else {
        let others = alike.iter().map(|(other, _)| other.as_str());
        let names: Vec<&str> = std::iter::once(name.as_str()).chain(others).collect();
        format!("{} share {what}, {mean}", names.join(", "))
    };
    if !close.is_empty() {
        let close: Vec<String> =
            close.iter().map(|other| format!("{} ({})", other.0, number(other.1.mean()))).collect();
        return format!("{who}, but no difference was found to {}{out}", close.join(", "));
    }
    match others.get(alike.len()) {
        Some(next) => {
            format!("{who}; the next is {} with {}{out}", next.0, next.1.show(number))
        }
        None => who + &out,
    }
}

/// Who leads among contenders in the order of their means, where there are too few seeds for a claim;
/// together, if they look the same.
fn too_few(
    what: &str,
    order: &[&(String, Sample)],
    number: impl Fn(f64) -> String + Copy,
) -> String {
    let seeds = order.iter().map(|contender| contender.1.values.len()).min().unwrap_or(0);
    let seeds = hearken_show::number::plural(seeds, "seed");
    let best = number(order[0].1.mean());
    let alike = order.iter().take_while(|contender| number(contender.1.mean()) == best);
    let names: Vec<&str> = alike.map(|contender| contender.0.as_str()).collect();
    let (shown, have) = match names.len() {
        1 => (order[0].1.show(number), "has"),
        _ => (best, "share"),
    };
    let names = names.join(", ");
    format!("in this run {names} {have} {what}, {shown}; with {seeds} no winner is claimed")
}

/// Who diverged, to stand at the end of a sentence.
fn diverged(contenders: &[(String, Sample)]) -> String {
    let each =
        contenders.iter().filter(|contender| !contender.1.is_finite()).map(|(name, sample)| {
            let count = sample.values.iter().filter(|value| !value.is_finite()).count();
            format!(
                "; {name} diverged with {count} of {} seeds and is not ranked",
                sample.values.len()
            )
        });
    each.collect()
}

/// The slope of ln y over ln x by least squares: the exponent of y ∝ xˢ. Points that are not positive
/// are left out; NaN if fewer than two are left.
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let usable = points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0);
    let logs: Vec<(f64, f64)> = usable.map(|(x, y)| (x.ln(), y.ln())).collect();
    let n = logs.len() as f64;
    let (mean_x, mean_y) =
        (logs.iter().map(|p| p.0).sum::<f64>() / n, logs.iter().map(|p| p.1).sum::<f64>() / n);
    let (mut both, mut square) = (0.0, 0.0);
    for (x, y) in &logs {
        both += (x - mean_x) * (y - mean_y);
        square += (x - mean_x) * (x - mean_x);
    }
    if square > 0.0 { both / square } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: &[f64]) -> Sample {
        values.iter().copied().collect()
    }

    #[test]
    fn a_difference_needs_three_seeds_and_more_than_the_spread() {
        let a = sample(&[1.0, 1.1, 1.2]);
        assert_eq!(verdict(&a, &sample(&[2.0, 2.1, 2.2]), Better::Lower), Verdict::First);
        assert_eq!(verdict(&a, &sample(&[2.0, 2.1, 2.2]), Better::Higher), Verdict::Second);
        // Apart, but by less than the spread.
        assert_eq!(verdict(&a, &sample(&[1.21, 1.22, 1.3]), Better::Lower), Verdict::NoDifference);
        assert_eq!(verdict(&a, &sample(&[1.1, 2.0, 3.0]), Better::Lower), Verdict::NoDifference);
        assert_eq!(verdict(&a, &sample(&[9.0, 9.0]), Better::Lower), Verdict::TooFewSeeds);
        assert_eq!(verdict(&a, &sample(&[f64::NAN; 3]), Better::Lower), Verdict::First);
        assert_eq!(verdict(&sample(&[f64::NAN; 3]), &a, Better::Higher), Verdict::Second);
        let once = sample(&[f64::NAN, 9.0, 9.0]);
        assert_eq!(verdict(&a, &once, Better::Lower), Verdict::NoDifference);
    }

    #[test]
    fn sentences_say_what_the_numbers_bear_out() {
        let number = |x: f64| format!("{x:.1}");
        let of = |name: &str, values: &[f64]| (name.to_owned(), sample(values));
        let clear = [of("a", &[1.0; 3]), of("b", &[2.0; 3]), of("c", &[f64::NAN; 3])];
        let said = best("the lowest loss", Better::Lower, &clear, number);
        assert_eq!(
            said,
            "a has the lowest loss, 1.0; the next is b with 2.0; c diverged with 3 of 3 seeds and is not \
             ranked"
        );
        let close = [of("a", &[1.0, 1.0, 2.0]), of("b", &[2.0, 1.0, 1.2]), of("c", &[9.0; 3])];
        let said = best("the lowest loss", Better::Lower, &close, number);
        assert_eq!(
            said,
            "a has the lowest loss, 1.3 (1.0–2.0), but no difference was found to b (1.4)"
        );
        let tie = [of("a", &[1.0; 3]), of("b", &[1.0, 1.0, 1.01]), of("c", &[9.0; 3])];
        let said = best("the lowest loss", Better::Lower, &tie, number);
        assert_eq!(said, "a, b share the lowest loss, 1.0; the next is c with 9.0");
        let said = best("the lowest loss", Better::Lower, &tie[..2], number);
        assert_eq!(said, "a, b share the lowest loss, 1.0");
        let one = [of("a", &[1.0]), of("b", &[2.0])];
        let said = best("the highest accuracy", Better::Higher, &one, number);
        assert_eq!(
            said,
            "in this run b has the highest accuracy, 2.0; with 1 seed no winner is claimed"
        );
        let alone = best("the lowest loss", Better::Lower, &one[..1], number);
        assert_eq!(alone, "a ran alone, with 1.0: who has the lowest loss needs others");
        let tie = [of("a", &[1.01]), of("b", &[1.0]), of("c", &[3.0])];
        let said = best("the lowest loss", Better::Lower, &tie, number);
        assert_eq!(
            said,
            "in this run b, a share the lowest loss, 1.0; with 1 seed no winner is claimed"
        );
        // A contender that diverged once is not ranked, and said to have diverged.
        let once = [of("a", &[1.0, 1.0, f64::NAN]), of("b", &[2.0; 3])];
        let said = best("the lowest loss", Better::Lower, &once, number);
        assert!(said.starts_with("b has the lowest loss, 2.0, as nobody else is left"));
        assert!(said.ends_with("; a diverged with 1 of 3 seeds and is not ranked"), "{said}");
        let none = [of("a", &[f64::NAN]), of("b", &[f64::NAN])];
        let said = best("the lowest loss", Better::Lower, &none, number);
        assert!(said.starts_with("nobody has the lowest loss; a diverged with 1 of 1"), "{said}");
    }

    #[test]
    fn slopes_are_exponents() {
        let points: Vec<(f64, f64)> =
            (1..6).map(|i| (f64::from(i), 3.0 * f64::from(i).powf(-0.5))).collect();
        assert!((slope(&points) + 0.5).abs() < 1e-12);
        assert!(slope(&[(1.0, 1.0)]).is_nan() && slope(&[]).is_nan());
        assert!((slope(&[(1.0, 1.0), (0.0, 9.0), (2.0, 4.0)]) - 2.0).abs() < 1e-12);
    }
}
