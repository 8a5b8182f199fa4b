//! Texts as a process of choices, with its probabilities, its entropy and its parser.
//!
//! A text is a list of [`Part`]s read from left to right. What was chosen is kept in slots, and
//! later parts say it again or agree with it. Three readings of the same list:
//!
//! - **Sampling** makes the choices.
//! - **Expectation.** By the chain rule the entropy of all choices is the sum over the places
//!   where one is made of P(the place is reached) · H(the choice there | what it depends on). By
//!   linearity the expected length is a sum over the parts as well. Both need the marginal
//!   distribution of each slot and nothing else, so the sums are exact, not estimates.
//! - **Parsing** goes through every way in which the choices could have made a given text, and
//!   gives the probability of each. If there is one way for every text, the text tells the
//!   choices, and the entropy of the texts is the entropy of the choices.

use hearken_tensor::rng::Rng;
use std::ops::Range;

/// Where a choice is kept.
pub(super) type Slot = usize;

/// Words to choose from, with their weights.
pub(super) type Options = &'static [(&'static str, u32)];

/// One step of the process.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// Always the same.
    Text(&'static str),
    /// One of the options, by weight.
    Choose { slot: Slot, options: Options },
    /// One of the options, by weight, but not the one in slot `not` (chosen from the same).
    ChooseOther { slot: Slot, not: Slot, options: Options },
    /// What was chosen, again.
    Say { slot: Slot, options: Options },
    /// The word that goes with what was chosen: `words[i]` with option i.
    Agree { slot: Slot, words: &'static [&'static str] },
    /// The parts, up to `most` times: each time go on with probability `again.0 / again.1`.
    Repeat { again: (u32, u32), most: usize, parts: Vec<Part> },
}

/// A sampled text.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What it says.
    pub text: String,
    /// −ln of its probability, from the choices that made it, in nats.
    pub nats: f64,
}

/// A word that was chosen, said again or agreed with, in a sampled text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mention {
    /// What was chosen is kept there.
    pub(super) slot: Slot,
    /// Which of the options it is.
    pub(super) option: usize,
    /// Does it only agree with what was chosen?
    pub(super) agrees: bool,
    /// Its bytes.
    pub(super) place: Range<usize>,
}

/// Exact expectations over all texts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Expected {
    /// H of the choices, in nats.
    pub(super) nats: f64,
    /// The length in characters.
    pub(super) length: f64,
}

/// The text of one pass through `parts`.
pub(super) fn sample(parts: &[Part], slots: usize, rng: &mut Rng) -> Sample {
    sample_mentioning(parts, slots, rng).0
}

/// The same, with all mentions of what was chosen, in order.
pub(super) fn sample_mentioning(
    parts: &[Part],
    slots: usize,
    rng: &mut Rng,
) -> (Sample, Vec<Mention>) {
    let mut out = Sample { text: String::new(), nats: 0.0 };
    let mut mentions = Vec::new();
    sample_parts(parts, &mut vec![0; slots], rng, &mut out, &mut mentions);
    (out, mentions)
}

pub(super) fn sample_parts(
    parts: &[Part],
    slots: &mut [usize],
    rng: &mut Rng,
    out: &mut Sample,
    mentions: &mut Vec<Mention>,
) {
    for part in parts {
        let start = out.text.len();
        let mut mentioned = None;
        match part {
            Part::Text(text) => out.text.push_str(text),
            Part::Choose { .. } | Part::ChooseOther { .. } => {
                let (slot, options, barred) = choice(part, slots);
                let total = weight_without(options, barred);
                let mut draw = rng.below(total as usize) as u32;
                let mut allowed = (0..options.len()).filter(|&i| Some(i) != barred);
                // The weights add up to `total`, so the draw falls within one of them.
                let chosen = allowed.find(|&i| {
                    let hit = draw < options[i].1;
                    draw = draw.saturating_sub(options[i].1);
                    hit
                });
                let index = chosen.unwrap_or_default();
                out.nats -= (f64::from(options[index].1) / f64::from(total)).ln();
                out.text.push_str(options[index].0);
                slots[slot] = index;
                mentioned = Some((slot, false));
            }
            Part::Say { slot, options } => {
                out.text.push_str(options[slots[*slot]].0);
                mentioned = Some((*slot, false));
            }
            Part::Agree { slot, words } => {
                out.text.push_str(words[slots[*slot]]);
                mentioned = Some((*slot, true));
            }
            Part::Repeat { again: (yes, total), most, parts } => {
                for _ in 0..*most {
                    let goes_on = (rng.below(*total as usize) as u32) < *yes;
                    let chance = if goes_on { *yes } else { total - yes };
                    out.nats -= (f64::from(chance) / f64::from(*total)).ln();
                    if !goes_on {
                        break;
                    }
                    sample_parts(parts, slots, rng, out, mentions);
                }
            }
        }
        if let Some((slot, agrees)) = mentioned {
            let place = start..out.text.len();
            mentions.push(Mention { slot, option: slots[slot], agrees, place });
        }
    }
}

/// The slot, the options and the barred option of a choice.
fn choice(part: &Part, slots: &[usize]) -> (Slot, Options, Option<usize>) {
    match part {
        Part::ChooseOther { slot, not, options } => (*slot, options, Some(slots[*not])),
        Part::Choose { slot, options } => (*slot, options, None),
        other => unreachable!("{other:?} is no choice"),
    }
}

pub(super) fn weight_without(options: Options, barred: Option<usize>) -> u32 {
    let all: u32 = options.iter().map(|option| option.1).sum();
    all - barred.map_or(0, |index| options[index].1)
}

/// Exact expectations, by the chain rule and by linearity.
pub(super) fn expected(parts: &[Part], slots: usize) -> Expected {
    let mut out = Expected::default();
    expected_parts(parts, &mut vec![Vec::new(); slots], 1.0, &mut out);
    out
}

/// Adds what `parts` contribute when they are reached with probability `reached`; `marginals`
/// holds the distribution of each slot, given that it is reached.
fn expected_parts(parts: &[Part], marginals: &mut [Vec<f64>], reached: f64, out: &mut Expected) {
    let length = |word: &str| word.chars().count() as f64;
    for part in parts {
        match part {
            Part::Text(text) => out.length += reached * length(text),
            Part::Choose { slot, options } => {
                let total = f64::from(weight_without(options, None));
                let p: Vec<f64> = options.iter().map(|o| f64::from(o.1) / total).collect();
                out.nats += reached * entropy(&p);
                out.length += reached * mean(&p, |i| length(options[i].0));
                marginals[*slot] = p;
            }
            Part::ChooseOther { slot, not, options } => {
                // P(j) = Σᵢ P(i)·P(j | not i), and H = Σᵢ P(i)·H(· | not i).
                let mut p = vec![0.0; options.len()];
                for (barred, &chance) in marginals[*not].iter().enumerate() {
                    let total = f64::from(weight_without(options, Some(barred)));
                    let weights = options.iter().map(|o| f64::from(o.1) / total);
                    let mut given: Vec<f64> = weights.collect();
                    given[barred] = 0.0;
                    out.nats += reached * chance * entropy(&given);
                    p.iter_mut().zip(&given).for_each(|(p, g)| *p += chance * g);
                }
                out.length += reached * mean(&p, |i| length(options[i].0));
                marginals[*slot] = p;
            }
            Part::Say { slot, options } => {
                out.length += reached * mean(&marginals[*slot], |i| length(options[i].0));
            }
            Part::Agree { slot, words } => {
                out.length += reached * mean(&marginals[*slot], |i| length(words[i]));
            }
            Part::Repeat { again: (yes, total), most, parts } => {
                let p = f64::from(*yes) / f64::from(*total);
                let mut still = reached;
                for _ in 0..*most {
                    out.nats += still * entropy(&[p, 1.0 - p]);
                    still *= p;
                    expected_parts(parts, marginals, still, out);
                }
            }
        }
    }
}

fn entropy(p: &[f64]) -> f64 {
    p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum()
}

fn mean(p: &[f64], value: impl Fn(usize) -> f64) -> f64 {
    p.iter().enumerate().map(|(i, p)| p * value(i)).sum()
}

/// The longest text, in characters: an upper bound that takes the longest word everywhere.
pub(super) fn longest(parts: &[Part]) -> usize {
    let longest_word = |words: &mut dyn Iterator<Item = &&str>| {
        words.map(|word| word.chars().count()).max().unwrap_or(0)
    };
    let of = |part: &Part| match part {
        Part::Text(text) => text.chars().count(),
        Part::Choose { options, .. }
        | Part::ChooseOther { options, .. }
        | Part::Say { options, .. } => longest_word(&mut options.iter().map(|o| &o.0)),
        Part::Agree { words, .. } => longest_word(&mut words.iter()),
        Part::Repeat { most, parts, .. } => most * longest(parts),
    };
    parts.iter().map(of).sum()
}

/// Every character that a text can have.
pub(super) fn alphabet(parts: &[Part], into: &mut std::collections::BTreeSet<char>) {
    for part in parts {
        match part {
            Part::Text(text) => into.extend(text.chars()),
            Part::Choose { options, .. }
            | Part::ChooseOther { options, .. }
            | Part::Say { options, .. } => into.extend(options.iter().flat_map(|o| o.0.chars())),
            Part::Agree { words, .. } => into.extend(words.iter().flat_map(|w| w.chars())),
            Part::Repeat { parts, .. } => alphabet(parts, into),
        }
    }
}

/// Every piece of text that a text can be made of.
pub(super) fn fragments(parts: &[Part], add: &mut dyn FnMut(&str)) {
    for part in parts {
        match part {
            Part::Text(text) => add(text),
            Part::Choose { options, .. }
            | Part::ChooseOther { options, .. }
            | Part::Say { options, .. } => options.iter().for_each(|option| add(option.0)),
            Part::Agree { words, .. } => words.iter().for_each(|word| add(word)),
            Part::Repeat { parts, .. } => fragments(parts, add),
        }
    }
}

/// −ln of the probability of each way to make a text that `text` begins with, and how many bytes
/// it takes.
pub(super) fn parse(parts: &[Part], slots: usize, text: &str) -> Vec<(f64, usize)> {
    let mut found = Vec::new();
    let state = State { slots: vec![0; slots], nats: 0.0, at: 0 };
    parse_parts(parts, text, state, &mut |end| found.push((end.nats, end.at)));
    found
}

#[derive(Clone, Debug)]
struct State {
    slots: Vec<usize>,
    nats: f64,
    at: usize,
}

/// Calls `done` with the state after `parts`, once for each way to get there.
fn parse_parts(parts: &[Part], text: &str, state: State, done: &mut dyn FnMut(State)) {
    let Some((part, rest)) = parts.split_first() else {
        return done(state);
    };
    let take = |mut state: State, word: &str, done: &mut dyn FnMut(State)| {
        if text[state.at..].starts_with(word) {
            state.at += word.len();
            parse_parts(rest, text, state, done);
        }
    };
    match part {
        Part::Text(word) => take(state, word, done),
        Part::Say { slot, options } => {
            let word = options[state.slots[*slot]].0;
            take(state, word, done);
        }
        Part::Agree { slot, words } => {
            let word = words[state.slots[*slot]];
            take(state, word, done);
        }
        Part::Choose { .. } | Part::ChooseOther { .. } => {
            let (slot, options, barred) = choice(part, &state.slots);
            let total = f64::from(weight_without(options, barred));
            for (index, (word, weight)) in options.iter().enumerate() {
                if Some(index) != barred {
                    let mut state = state.clone();
                    state.slots[slot] = index;
                    state.nats -= (f64::from(*weight) / total).ln();
                    take(state, word, done);
                }
            }
        }
        Part::Repeat { again: (yes, total), most, parts } => {
            if *most == 0 {
                return parse_parts(rest, text, state, done);
            }
            let mut stop = state.clone();
            stop.nats -= (f64::from(total - yes) / f64::from(*total)).ln();
            parse_parts(rest, text, stop, done);
            let mut go_on = state;
            go_on.nats -= (f64::from(*yes) / f64::from(*total)).ln();
            let mut following =
                vec![Part::Repeat { again: (*yes, *total), most: most - 1, parts: parts.clone() }];
            following.extend_from_slice(rest);
            parse_parts(parts, text, go_on, &mut |state| {
                parse_parts(&following, text, state, done);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const PETS: Options = &[("cat", 3), ("dog", 2), ("emu", 1)];

    /// A small grammar that uses every kind of part.
    fn small() -> Vec<Part> {
        vec![
            Part::Choose { slot: 0, options: PETS },
            Part::Agree { slot: 0, words: &[" purrs", " barks", " runs"] },
            Part::Repeat {
                again: (1, 4),
                most: 2,
                parts: vec![
                    Part::Text(" at the "),
                    Part::ChooseOther { slot: 1, not: 0, options: PETS },
                ],
            },
            Part::Text(". "),
            Part::Say { slot: 0, options: PETS },
            Part::Text("!"),
        ]
    }

    /// Every text and its probability, by going through every choice.
    fn enumerate() -> BTreeMap<String, f64> {
        let mut texts = BTreeMap::new();
        let verbs = [" purrs", " barks", " runs"];
        for (hero, verb) in verbs.iter().enumerate() {
            let p = f64::from(PETS[hero].1) / 6.0;
            let others: Vec<usize> = (0..3).filter(|&i| i != hero).collect();
            let chance = |i: usize| f64::from(PETS[i].1) / (6.0 - f64::from(PETS[hero].1));
            let start = format!("{}{verb}", PETS[hero].0);
            let end = format!(". {}!", PETS[hero].0);
            *texts.entry(format!("{start}{end}")).or_default() += p * 0.75;
            for &i in &others {
                let one = format!("{start} at the {}", PETS[i].0);
                *texts.entry(format!("{one}{end}")).or_default() += p * 0.25 * chance(i) * 0.75;
                for &j in &others {
                    let two = format!("{one} at the {}{end}", PETS[j].0);
                    *texts.entry(two).or_default() += p * 0.0625 * chance(i) * chance(j);
                }
            }
        }
        texts
    }

    #[test]
    fn expectations_are_those_of_all_texts() {
        let texts = enumerate();
        let total: f64 = texts.values().sum();
        let nats: f64 = texts.values().map(|p| -p * p.ln()).sum();
        let length: f64 = texts.iter().map(|(text, p)| p * text.len() as f64).sum();
        let exact = expected(&small(), 2);
        // Sums of about 20 terms of size 1: a few roundings of 1e-16.
        assert!((total - 1.0).abs() < 1e-14);
        assert!((exact.nats - nats).abs() < 1e-13, "{} {nats}", exact.nats);
        assert!((exact.length - length).abs() < 1e-12, "{} {length}", exact.length);
        assert_eq!(longest(&small()), texts.keys().map(String::len).max().unwrap());
    }

    #[test]
    fn parsing_finds_the_one_way_and_its_probability() {
        for (text, p) in enumerate() {
            let ways = parse(&small(), 2, &text);
            assert_eq!(ways.len(), 1, "{text}");
            assert!((ways[0].0 + p.ln()).abs() < 1e-13 && ways[0].1 == text.len(), "{text}");
        }
        assert!(parse(&small(), 2, "cat purrs. dog!").is_empty());
        assert!(parse(&small(), 2, "cat purrs at the cat. cat!").is_empty());
    }

    #[test]
    fn an_ambiguous_text_has_several_ways() {
        let twice = [
            Part::Choose { slot: 0, options: &[("a", 1), ("aa", 1)] },
            Part::Choose { slot: 1, options: &[("a", 1), ("aa", 1)] },
        ];
        assert_eq!(parse(&twice, 2, "aaa").into_iter().filter(|way| way.1 == 3).count(), 2);
    }

    #[test]
    fn samples_are_as_frequent_as_they_should_be() {
        const N: usize = 60_000;
        let mut rng = Rng::new(4);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..N {
            let sample = sample(&small(), 2, &mut rng);
            let [(nats, _)] = parse(&small(), 2, &sample.text)[..] else { panic!() };
            assert!((nats - sample.nats).abs() < 1e-13);
            *counts.entry(sample.text).or_default() += 1;
        }
        for (text, p) in enumerate() {
            let share = *counts.get(&text).unwrap_or(&0) as f64 / N as f64;
            // Five standard deviations of a share p of N.
            assert!(
                (share - p).abs() < 5.0 * (p * (1.0 - p) / N as f64).sqrt(),
                "{text}: {share} {p}"
            );
        }
    }
}
