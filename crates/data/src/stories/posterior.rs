//! The best guess at hidden words of a story, exactly (Bayes).
//!
//! A masked language model sees a row x̃ in which some words of a story x were chosen, each with the
//! probability s (15 %). Of the chosen words 80 % are hidden, 10 % replaced by a random word, 10 %
//! left as they are ([`Masking`](crate::batches::Masking)). Given w, a visible word v has the
//! probability
//!
//! ```text
//! c(v | w) = (1 − s)·[v = w] + s·(0.1·[v = w] + 0.1/N)        N ordinary words
//! ```
//! and a hidden word has the same for every w, which cancels. At a place i that was chosen, what is
//! seen has 0.1·[v = w] + 0.1/N instead, or the same for every w if it is hidden. The best that can
//! be said of the word at i is
//!
//! ```text
//! p(xᵢ = w | x̃) = Σ over stories x with xᵢ = w of p(x)·cᵢ·Π cⱼ  /  the same over all stories
//! ```
//! and no model's loss is lower on average than the mean of −ln of it. The sums are finite. A story
//! is a structure (how often somebody is asked, and the answers, whose numbers of words differ) and
//! words in slots. For each structure of the right length, the slots are independent but for those
//! that must differ from another, so that the sum over all stories is a product of sums.

use super::grammar::{self, Options, Part};
use super::{word_tokenizer, words, words_of};
use crate::batches::{IGNORED, Masking};
use crate::tokenizer::Special;

/// What the stories themselves say about hidden words.
#[derive(Clone, Debug)]
pub struct MaskedBound {
    structures: Vec<Structure>,
    mask: u32,
    /// N
    ordinary: f64,
    share: f64,
}

/// One way to put a story together, but for the words in its slots.
#[derive(Clone, Debug, Default)]
struct Structure {
    chance: f64,
    tokens: Vec<Token>,
    choices: Vec<Choice>,
    /// What is in each slot of the grammar.
    held: Vec<Held>,
}

#[derive(Clone, Debug)]
enum Token {
    Fixed(u32),
    /// The word that goes with a choice.
    Of {
        choice: usize,
        ids: Vec<u32>,
    },
}

#[derive(Clone, Debug)]
struct Choice {
    weights: Vec<f64>,
    /// The choice that it must differ from.
    not: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Held {
    #[default]
    Nothing,
    /// One of the words of a choice.
    Choice(usize),
    /// This option, since options differ in their numbers of words.
    Option(usize),
}

impl MaskedBound {
    /// For stories in words of [`word_tokenizer`], masked as `masking` says.
    pub fn new(masking: &Masking) -> Self {
        let tokenizer = word_tokenizer();
        let id = |word: &str| tokenizer.id(word).unwrap_or(IGNORED);
        let start = Structure {
            chance: 1.0,
            held: vec![Held::Nothing; words::SLOTS],
            ..Structure::default()
        };
        debug_assert!(tokenizer.special(Special::Mask) == Some(masking.mask));
        Self {
            structures: structures(vec![start], &words::story(), &id),
            mask: masking.mask,
            ordinary: (masking.vocabulary - masking.special.len()) as f64,
            share: masking.share,
        }
    }

    /// Σ −ln p(xᵢ = targetᵢ | inputs) over the targets of a row that count. The row holds one story
    /// and no other token.
    pub fn nats(&self, inputs: &[u32], targets: &[u32]) -> f64 {
        let fitting: Vec<&Structure> = self
            .structures
            .iter()
            .filter(|structure| structure.tokens.len() == inputs.len())
            .collect();
        let sum = |place: usize, word: Option<u32>| -> f64 {
            let seen = |at: usize, id: u32| {
                let wanted = at != place || word.is_none_or(|word| word == id);
                if wanted { self.seen(inputs[at], id, at == place) } else { 0.0 }
            };
            fitting.iter().map(|structure| structure.probability(&seen)).sum()
        };
        let counted = targets.iter().enumerate().filter(|(_, target)| **target != IGNORED);
        counted.map(|(at, &target)| -(sum(at, Some(target)) / sum(at, None)).ln()).sum()
    }

    /// The probability of seeing `seen` where `word` stands, up to a factor that does not depend on
    /// `word`.
    fn seen(&self, seen: u32, word: u32, chosen: bool) -> f64 {
        if seen == self.mask {
            return 1.0;
        }
        let same = f64::from(seen == word);
        let of_chosen = 0.1 * same + 0.1 / self.ordinary;
        if chosen { of_chosen } else { (1.0 - self.share) * same + self.share * of_chosen }
    }
}

impl Structure {
    /// The sum over all words in the slots of their probability times that of what is seen.
    fn probability(&self, seen: &dyn Fn(usize, u32) -> f64) -> f64 {
        let mut product = self.chance;
        // Of each choice, how well each of its options agrees with what is seen.
        let mut fits: Vec<Vec<f64>> =
            self.choices.iter().map(|choice| vec![1.0; choice.weights.len()]).collect();
        for (at, token) in self.tokens.iter().enumerate() {
            match token {
                Token::Fixed(id) => product *= seen(at, *id),
                Token::Of { choice, ids } => {
                    for (fit, id) in fits[*choice].iter_mut().zip(ids) {
                        *fit *= seen(at, *id);
                    }
                }
            }
            if product == 0.0 {
                return 0.0;
            }
        }
        for (number, choice) in self.choices.iter().enumerate() {
            if choice.not.is_some() {
                continue; // below the one that it must differ from
            }
            let dependents =
                || self.choices.iter().zip(&fits).filter(|(other, _)| other.not == Some(number));
            let total: f64 = choice.weights.iter().sum();
            let terms = choice.weights.iter().zip(&fits[number]).enumerate();
            product *= terms
                .map(|(option, (weight, fit))| {
                    let others =
                        dependents().map(|(other, fits)| mean_without(other, fits, option));
                    weight / total * fit * others.product::<f64>()
                })
                .sum::<f64>();
        }
        product
    }
}

/// The mean of `fits` over the options of a choice but one.
fn mean_without(choice: &Choice, fits: &[f64], barred: usize) -> f64 {
    let (mut sum, mut total) = (0.0, 0.0);
    for (option, (weight, fit)) in choice.weights.iter().zip(fits).enumerate() {
        if option != barred {
            sum += weight * fit;
            total += weight;
        }
    }
    sum / total
}

/// All ways to go on from `ways` with `parts`.
fn structures(
    mut ways: Vec<Structure>,
    parts: &[Part],
    id: &dyn Fn(&str) -> u32,
) -> Vec<Structure> {
    for part in parts {
        ways = ways.into_iter().flat_map(|way| go_on(way, part, id)).collect();
    }
    ways
}

fn go_on(mut way: Structure, part: &Part, id: &dyn Fn(&str) -> u32) -> Vec<Structure> {
    match part {
        Part::Text(text) => way.tokens.extend(words_of(text).map(|word| Token::Fixed(id(word)))),
        Part::Choose { slot, options } if !single(options) => {
            let total = f64::from(grammar::weight_without(options, None));
            let take = |(option, (text, weight)): (usize, &(&str, u32))| {
                let mut way = way.clone();
                way.chance *= f64::from(*weight) / total;
                way.tokens.extend(words_of(text).map(|word| Token::Fixed(id(word))));
                way.held[*slot] = Held::Option(option);
                way
            };
            return options.iter().enumerate().map(take).collect();
        }
        Part::Choose { slot, options } => way.choose(*slot, options, None, id),
        Part::ChooseOther { slot, not, options } => {
            let Held::Choice(not) = way.held[*not] else {
                unreachable!("stories bar choices of one word alone")
            };
            way.choose(*slot, options, Some(not), id);
        }
        Part::Say { slot, options } => {
            let words: Vec<&str> = options.iter().map(|option| option.0).collect();
            way.say(*slot, &words, id);
        }
        Part::Agree { slot, words } => way.say(*slot, words, id),
        Part::Repeat { again: (yes, total), most, parts } => {
            let chance = f64::from(*yes) / f64::from(*total);
            let mut ended = Vec::new();
            let mut going = vec![way];
            for _ in 0..*most {
                ended.extend(going.iter().cloned().map(|mut way| {
                    way.chance *= 1.0 - chance;
                    way
                }));
                for way in &mut going {
                    way.chance *= chance;
                }
                going = structures(going, parts, id);
            }
            ended.extend(going);
            return ended;
        }
    }
    vec![way]
}

impl Structure {
    fn choose(
        &mut self,
        slot: usize,
        options: Options,
        not: Option<usize>,
        id: &dyn Fn(&str) -> u32,
    ) {
        let weights = options.iter().map(|option| f64::from(option.1)).collect();
        self.choices.push(Choice { weights, not });
        self.held[slot] = Held::Choice(self.choices.len() - 1);
        let words: Vec<&str> = options.iter().map(|option| option.0).collect();
        self.say(slot, &words, id);
    }

    fn say(&mut self, slot: usize, words: &[&str], id: &dyn Fn(&str) -> u32) {
        match self.held[slot] {
            Held::Choice(choice) => {
                let ids = words.iter().map(|word| id(word)).collect();
                self.tokens.push(Token::Of { choice, ids });
            }
            Held::Option(option) => {
                self.tokens.extend(words_of(words[option]).map(|word| Token::Fixed(id(word))));
            }
            Held::Nothing => unreachable!("nothing was chosen for slot {slot}"),
        }
    }
}

fn single(options: Options) -> bool {
    options.iter().all(|(text, _)| words_of(text).count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::key;
    use crate::stories::{nats, sample};
    use crate::tokenizer::Tokenizer;
    use hearken_tensor::rng::Rng;

    fn masking(tokenizer: &Tokenizer) -> Masking {
        let mask = tokenizer.require(Special::Mask).unwrap();
        Masking::new(mask, tokenizer.vocabulary_size(), tokenizer.special_ids(), 3)
    }

    #[test]
    fn the_structures_have_the_probabilities_of_the_stories() {
        let tokenizer = word_tokenizer();
        let bound = MaskedBound::new(&masking(&tokenizer));
        let total: f64 = bound.structures.iter().map(|structure| structure.chance).sum();
        assert!((total - 1.0).abs() < 1e-12, "{total}");
        assert_eq!(bound.structures.len(), 1 + 5 + 25);
        let mut rng = Rng::new(key(1, 2, 3));
        for _ in 0..200 {
            let story = sample(&mut rng);
            let ids = tokenizer.encode(&story.text).unwrap();
            let exactly = |at: usize, id: u32| f64::from(ids[at] == id);
            let fitting = bound.structures.iter().filter(|way| way.tokens.len() == ids.len());
            let probability: f64 = fitting.map(|way| way.probability(&exactly)).sum();
            assert!((-probability.ln() - story.nats).abs() < 1e-9, "{}", story.text);
            assert!((nats(&story.text).unwrap() - story.nats).abs() < 1e-9);
        }
    }

    /// p(word at `place` | inputs) by going through every word and, with two hidden places, every
    /// pair of words, with the probability of the whole story from the parser.
    #[test]
    fn hidden_words_have_the_probabilities_that_the_parser_gives() {
        let tokenizer = word_tokenizer();
        let masking = masking(&tokenizer);
        // Nothing is replaced here: with a share of 0, what is visible is certain.
        let bound = MaskedBound::new(&Masking { share: 0.0, ..masking.clone() });
        let mut rng = Rng::new(9);
        let words = crate::stories::vocabulary();
        for round in 0..6 {
            let story = sample(&mut rng).text;
            let told: Vec<&str> = words_of(&story).collect();
            let places = [rng.below(told.len()), rng.below(told.len())];
            let probability = |swap: &[(usize, &str)]| {
                let mut told = told.clone();
                for (place, word) in swap {
                    told[*place] = word;
                }
                // A sign follows its word without a space.
                let text = told.join(" ").replace(" .", ".").replace(" ,", ",") + "\n";
                nats(&text).map_or(0.0, |nats| (-nats).exp())
            };
            let mut inputs = tokenizer.encode(&story).unwrap();
            let mut targets = vec![IGNORED; inputs.len()];
            let right = told[places[0]];
            targets[places[0]] = inputs[places[0]];
            let hidden = if round % 2 == 0 { &places[..1] } else { &places[..] };
            for place in hidden {
                inputs[*place] = masking.mask;
            }
            let (mut joint, mut all) = (0.0, 0.0);
            for first in &words {
                for second in &words {
                    let swap = [(places[0], first.as_str()), (places[1], second.as_str())];
                    let one_place = hidden.len() == 1 || places[0] == places[1];
                    if one_place && second != first {
                        continue; // each word once
                    }
                    let p = probability(&swap[..hidden.len()]);
                    all += p;
                    joint += if first == right { p } else { 0.0 };
                }
            }
            let want = -(joint / all).ln();
            let got = bound.nats(&inputs, &targets);
            assert!((got - want).abs() < 1e-9, "{got} {want}: {story} {places:?}");
        }
    }

    #[test]
    fn the_guess_is_a_distribution_over_words() {
        let tokenizer = word_tokenizer();
        let masking = masking(&tokenizer);
        let bound = MaskedBound::new(&masking);
        let mut inputs = tokenizer.encode(&sample(&mut Rng::new(4)).text).unwrap();
        inputs[0] = masking.mask;
        inputs[5] = inputs[9]; // replaced
        for place in [0, 5, 7] {
            let total: f64 = (0..tokenizer.vocabulary_size() as u32)
                .map(|word| {
                    let mut targets = vec![IGNORED; inputs.len()];
                    targets[place] = word;
                    (-bound.nats(&inputs, &targets)).exp()
                })
                .sum();
            assert!((total - 1.0).abs() < 1e-9, "{total} at {place}");
        }
    }
}
