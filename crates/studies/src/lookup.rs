//! Rows of pairs that are looked up later, at a distance: a task for all that should reach far.
//!
//! ```text
//! begin  k₃ v₉  k₇ v₁  …  filler filler … filler  k₇ → v₁  k₃ → v₉ …
//! ```

use crate::rows::Rows;
use crate::statistics::Sample;
use hearken_show::Level;
use hearken_show::number::percent;
use hearken_tensor::ops::cross_entropy::IGNORED;
use hearken_tensor::rng::Rng;

/// Keys, values and letters: so many of each.
pub(crate) const SYMBOLS: usize = 12;
/// Pairs of a row.
pub(crate) const PAIRS: usize = 6;
/// Tokens that mean nothing.
pub(crate) const FILLERS: usize = 8;
/// Keys, then values, then fillers, then two signs.
pub(crate) const VOCABULARY: usize = 2 * SYMBOLS + FILLERS + 2;
/// The sign that begins a row.
pub(crate) const BEGIN: u32 = VOCABULARY as u32 - 2;
/// Another sign.
pub(crate) const AGAIN: u32 = VOCABULARY as u32 - 1;

/// Does the value stand behind each key that is asked for? A model that reads in both directions must
/// not see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    Shown,
    Hidden,
}

/// Adds a row with so many fillers between the pairs and the questions. The value is the target at its
/// key.
pub(crate) fn push(rows: &mut Rows, distance: usize, answers: Answers, rng: &mut Rng) {
    let (mut ids, mut asked) = (vec![BEGIN], Vec::new());
    let keys = shuffled(rng);
    let keys = &keys[..PAIRS];
    let values: Vec<u32> = keys.iter().map(|_| (SYMBOLS + rng.below(SYMBOLS)) as u32).collect();
    ids.extend(keys.iter().zip(&values).flat_map(|(k, v)| [*k, *v]));
    let filler = || (2 * SYMBOLS + rng.below(FILLERS)) as u32;
    ids.extend(std::iter::repeat_with(filler).take(distance));
    let order = shuffled(rng);
    for i in order.into_iter().map(|i| i as usize).filter(|i| *i < PAIRS) {
        asked.push((ids.len(), values[i]));
        ids.push(keys[i]);
        if answers == Answers::Shown {
            ids.push(values[i]);
        }
    }
    // Nothing is predicted behind the last value.
    let length = ids.len() - usize::from(answers == Answers::Shown);
    let mut targets = vec![IGNORED; length];
    for (at, value) in asked {
        targets[at] = value;
    }
    rows.push(&ids[..length], &targets);
}

/// Tokens of a row of this distance.
pub(crate) fn length(distance: usize, answers: Answers) -> usize {
    match answers {
        Answers::Shown => 4 * PAIRS + distance,
        Answers::Hidden => 3 * PAIRS + distance + 1,
    }
}

/// The share of right answers of who knows which values were read, but not behind which keys: he leaves
/// out those that he has been shown since, and names the most frequent of the others. With
/// [`Answers::Hidden`] none are left out.
///
/// The r values that are left are drawn evenly, so that he is right E[the largest count among r]/r of the
/// time.
pub(crate) fn without_keys(answers: Answers) -> f64 {
    match answers {
        Answers::Hidden => largest_count(PAIRS, SYMBOLS) / PAIRS as f64,
        Answers::Shown => {
            let each = (1..=PAIRS).map(|left| largest_count(left, SYMBOLS) / left as f64);
            each.sum::<f64>() / PAIRS as f64
        }
    }
}

/// That level in a chart.
pub(crate) fn level(answers: Answers) -> Level {
    Level { name: "values without keys".to_owned(), y: without_keys(answers) }
}

/// Within so much of [`without_keys`] a share counts as it.
const NEAR: f64 = 0.02;

/// A sentence about who does no better at `distance` than one who does not know whose the values are.
pub(crate) fn keyless(
    contenders: &[(String, Sample)],
    distance: usize,
    answers: Answers,
) -> String {
    let level = without_keys(answers);
    let shown = percent(level, 1);
    let rule = format!(
        "who knows which values were read, but not behind which keys, is right {shown} of the time"
    );
    let near = contenders.iter().filter(|(_, sample)| (sample.mean() - level).abs() <= NEAR);
    let near: Vec<String> =
        near.map(|(name, sample)| format!("{name} ({})", percent(sample.mean(), 1))).collect();
    let who = match near.len() {
        0 => "nobody is".to_owned(),
        1 => format!("{} is", near[0]),
        _ => format!("{} are", near.join(", ")),
    };
    format!("{rule}; at distance {distance}, {who} within {} points of that", 100.0 * NEAR)
}

/// The expected largest count among `draws` of `kinds` that are equally likely.
///
/// P(no count exceeds m) = draws!/kindsᵈʳᵃʷˢ · [xᵈʳᵃʷˢ] (1 + x + x²/2! + … + xᵐ/m!)ᵏⁱⁿᵈˢ
fn largest_count(draws: usize, kinds: usize) -> f64 {
    let within = |most: usize| {
        let mut series = vec![0.0; draws + 1];
        series[0] = 1.0;
        for _ in 0..kinds {
            let mut next = vec![0.0; draws + 1];
            for (i, a) in series.iter().enumerate() {
                let mut term = *a;
                for j in 0..=most.min(draws - i) {
                    next[i + j] += term;
                    term /= (j + 1) as f64;
                }
            }
            series = next;
        }
        let scale = (1..=draws).map(|i| i as f64 / kinds as f64).product::<f64>();
        series[draws] * scale
    };
    (0..draws).map(|most| 1.0 - within(most)).sum()
}

/// The numbers below [`SYMBOLS`] in some order.
fn shuffled(rng: &mut Rng) -> Vec<u32> {
    let mut all: Vec<u32> = (0..SYMBOLS as u32).collect();
    for i in (1..SYMBOLS).rev() {
        all.swap(i, rng.below(i + 1));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_count_is_that_of_all_draws() {
        for (draws, kinds) in [(1, 3), (2, 2), (4, 3), (5, 4)] {
            let all = (kinds as u32).pow(draws as u32);
            let largest = |mut code: u32| {
                let mut counts = vec![0; kinds];
                for _ in 0..draws {
                    counts[code as usize % kinds] += 1;
                    code /= kinds as u32;
                }
                counts.into_iter().max().unwrap_or(0)
            };
            let mean = f64::from((0..all).map(largest).sum::<i32>()) / f64::from(all);
            assert!((largest_count(draws, kinds) - mean).abs() < 1e-12, "{draws} of {kinds}");
        }
        assert!((without_keys(Answers::Shown) - 0.495).abs() < 1e-3, "by drawing 200,000 rows");
    }

    #[test]
    fn those_who_know_no_keys_are_named() {
        let of = |name: &str, share: f64| (name.to_owned(), [share].into_iter().collect());
        let all = [of("a", 0.5), of("b", 1.0), of("c", 0.48), of("d", 0.4)];
        let said = |all: &[(String, Sample)]| keyless(all, 200, Answers::Shown);
        let end = "is right 49.5 % of the time; at distance 200, a (50.0 %), c (48.0 %) are within 2 points of that";
        assert!(said(&all).ends_with(end), "{}", said(&all));
        assert!(said(&all[1..2]).ends_with("at distance 200, nobody is within 2 points of that"));
        assert!(said(&all[..2]).ends_with("a (50.0 %) is within 2 points of that"));
    }

    #[test]
    fn the_target_is_the_value_that_stood_behind_the_key() {
        for answers in [Answers::Shown, Answers::Hidden] {
            let mut rng = Rng::at(1, 2);
            let mut rows = Rows::default();
            push(&mut rows, 9, answers, &mut rng);
            push(&mut rows, 9, answers, &mut rng);
            let each = length(9, answers);
            assert_eq!((rows.rows, rows.inputs.len()), (2, 2 * each));
            for (ids, targets) in rows.inputs.chunks(each).zip(rows.targets.chunks(each)) {
                let asked: Vec<usize> = (0..each).filter(|i| targets[*i] != IGNORED).collect();
                assert_eq!(asked.len(), PAIRS);
                for at in asked {
                    let pairs = &ids[1..=2 * PAIRS];
                    let pair = pairs.chunks(2).find(|pair| pair[0] == ids[at]).unwrap();
                    assert_eq!(pair[1], targets[at]);
                    let behind = ids.get(at + 1).copied();
                    let shown = answers == Answers::Shown && at + 1 < each;
                    assert_eq!(behind == Some(targets[at]), shown, "{answers:?}");
                }
            }
        }
    }
}
