//! What a story tells, and where a reader needs to know it: for probes of hidden states.

use super::grammar::{self, Mention};
use super::words;
use crate::batches::key;
use hearken_tensor::rng::Rng;

const FACT_SITE: u64 = 0x6661_6374_7300_0000; // "facts"

/// A fact that every story tells early and says again at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The hero.
    Who,
    /// The animal that the hero is, which its verb agrees with.
    Animal,
    /// The colour of what was lost.
    Colour,
    /// What was lost.
    What,
    /// Where it was found.
    Where,
}

impl Fact {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Who, Self::Animal, Self::Colour, Self::What, Self::Where];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Who => "who",
            Self::Animal => "animal",
            Self::Colour => "colour",
            Self::What => "what",
            Self::Where => "where",
        }
    }

    fn slot(self) -> usize {
        match self {
            Self::Who => words::HERO,
            Self::Animal => words::ANIMAL,
            Self::Colour => words::COLOUR,
            Self::What => words::THING,
            Self::Where => words::PLACE,
        }
    }
}

/// A story and its facts.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The story, its line end included.
    pub text: String,
    mentions: Vec<Mention>,
}

impl Told {
    /// The story of this number.
    pub fn draw(seed: u64, number: u64) -> Self {
        let mut rng = Rng::new(key(seed, number, FACT_SITE));
        let (sample, mentions) =
            grammar::sample_mentioning(&words::story(), words::SLOTS, &mut rng);
        Self { text: sample.text, mentions }
    }

    /// Which of its options a fact is, and the byte before which a reader must know it: where it is
    /// said again, or where the verb agrees with it.
    pub fn fact(&self, fact: Fact) -> (usize, usize) {
        let known = |mention: &&Mention| {
            // The pronouns of the hero come later than the name, but tell less.
            mention.slot == fact.slot() && (fact == Fact::Animal || !mention.agrees)
        };
        let last = self.mentions.iter().rfind(known);
        last.map_or((0, 0), |mention| (mention.option, mention.place.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_needed_where_they_are_said_again() {
        for number in 0..200 {
            let told = Told::draw(1, number);
            for fact in Fact::ALL {
                let (_, at) = told.fact(fact);
                let (before, after) = told.text.split_at(at);
                let word: String = after.chars().take_while(|c| c.is_alphabetic()).collect();
                // All but the verb, which only agrees with its animal, have been said before.
                let said = before.split(|c: char| !c.is_alphabetic()).any(|known| known == word);
                assert!(said || fact == Fact::Animal, "{}: {word}", told.text);
                assert!(before.ends_with(' '), "{before:?}");
                assert!(before.contains(". So"), "{before:?}");
            }
        }
        assert_ne!(Told::draw(1, 0), Told::draw(2, 0));
    }
}
