//! Rows of pairs that are looked up later, at a distance: a task for all that should reach far.
//!
//! ```text
//! begin  k₃ v₉  k₇ v₁  …  filler filler … filler  k₇ → v₁  k₃ → v₉ …
//! ```

use crate::rows::Rows;
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
