//! Entities in tagged words: whole ones count, with the right kind and the right ends.
//!
//! Tags are BIO: `B-WHO` begins an entity, `I-WHO` continues it, `O` is none. An `I` that continues
//! nothing begins an entity, as in CoNLL's evaluation. A tag without such a prefix, other than `O`,
//! is an entity of its own kind that goes on while it is repeated.

use super::f1;
use std::collections::BTreeMap;
use std::ops::Range;

/// A kind and the words that it consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// The words.
    pub words: Range<usize>,
    /// The tag without its prefix.
    pub kind: String,
}

/// The entities of a sentence, in order.
pub fn entities<'a>(tags: impl IntoIterator<Item = &'a str>) -> Vec<Entity> {
    let mut found: Vec<Entity> = Vec::new();
    let mut open = false;
    for (word, tag) in tags.into_iter().enumerate() {
        let (begins, kind) = match tag.split_once('-') {
            Some(("B" | "S" | "U", kind)) => (true, kind),
            Some(("I" | "E" | "L", kind)) => (false, kind),
            _ if tag == "O" => {
                open = false;
                continue;
            }
            _ => (false, tag),
        };
        match found.last_mut().filter(|last| open && !begins && last.kind == kind) {
            Some(last) => last.words.end = word + 1,
            None => found.push(Entity { words: word..word + 1, kind: kind.to_owned() }),
        }
        open = true;
    }
    found
}

/// How many entities were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityScore {
    /// Of each kind: found rightly, there, and said to be there.
    counts: BTreeMap<String, [usize; 3]>,
}

impl EntityScore {
    /// Counts the entities of a sentence.
    pub fn add(&mut self, right: &[Entity], said: &[Entity]) {
        for (list, place) in [(right, 1), (said, 2)] {
            for entity in list {
                self.counts.entry(entity.kind.clone()).or_default()[place] += 1;
            }
        }
        for entity in right.iter().filter(|entity| said.contains(entity)) {
            self.counts.entry(entity.kind.clone()).or_default()[0] += 1;
        }
    }

    /// F1 of all entities together.
    pub fn f1(&self) -> f64 {
        let mut sum = [0; 3];
        for count in self.counts.values() {
            sum.iter_mut().zip(count).for_each(|(sum, count)| *sum += count);
        }
        f1(sum[0], sum[1], sum[2])
    }

    /// Each kind with its F1 and how many there are.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, f64, usize)> {
        self.counts
            .iter()
            .map(|(kind, &[both, right, said])| (kind.as_str(), f1(both, right, said), right))
    }
}
