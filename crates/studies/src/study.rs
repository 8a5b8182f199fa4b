//! What a study is, and the list of them.

use crate::outcome::Outcome;
use crate::request::Request;
use crate::studies;
use hearken_base::{Error, Result};

/// One of those that are compared.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// How it is called, on the command line too: lower-case letters, digits and `-`.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
}

/// A comparison that can be run.
#[derive(Debug)]
pub struct Study {
    /// How it is called.
    pub name: &'static str,
    /// What it finds out, in a line.
    pub line: &'static str,
    /// What is asked, in a sentence or two, for the top of the report.
    pub question: &'static str,
    /// Who takes part, in the order of tables and legends.
    pub contenders: &'static [Contender],
    /// Does it read a text of the user's own, if there is one?
    pub reads_text: bool,
    /// Minutes on two cores, about: with `--quick`, and in full.
    pub minutes: [f64; 2],
    /// Runs it.
    pub run: fn(&Request) -> Result<Outcome>,
}

/// All studies, in the order in which they tell the story.
pub fn all() -> &'static [&'static Study] {
    studies::ALL
}

/// The study of this name.
pub fn find(name: &str) -> Option<&'static Study> {
    all().iter().copied().find(|study| study.name == name)
}

impl Study {
    /// The place of a contender in the list, which decides its colour.
    pub fn place(&self, contender: &str) -> usize {
        self.contenders.iter().position(|known| known.name == contender).unwrap_or(0)
    }

    /// The contenders of these names, in the study's order; all, if none is named.
    pub fn choose(&self, names: &[String]) -> Result<Vec<&'static str>> {
        let known = || self.contenders.iter().map(|contender| contender.name);
        if let Some(unknown) = names.iter().find(|name| !known().any(|known| known == **name)) {
            let list: Vec<&str> = known().collect();
            return Err(Error::new(
                format!("the study {} has no contender '{unknown}'", self.name),
                format!("its contenders are {}", list.join(", ")),
            ));
        }
        let chosen = |name: &&'static str| names.is_empty() || names.iter().any(|n| n == name);
        Ok(known().filter(chosen).collect())
    }
}
