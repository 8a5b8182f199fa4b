//! Every reader of files, with good files to damage.

mod labelled;
mod models;
mod texts;
mod training;

use crate::mutate::Form;
use hearken_base::Result;
use std::path::Path;

/// Which files a subject stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Files of a model directory.
    Model,
    /// What training reads.
    Training,
}

/// A reader, and a directory of good files for it.
#[derive(Clone, Copy)]
pub struct Subject {
    /// Its name.
    pub name: &'static str,
    /// Which files it stands for.
    pub kind: Kind,
    /// The file that is damaged.
    pub target: &'static str,
    /// What is in it.
    pub form: Form,
    /// Writes good files into a directory.
    pub prepare: fn(&Path) -> Result<()>,
    /// Reads them, and uses what was read as a command would.
    pub read: fn(&Path) -> Result<()>,
}

impl Subject {
    /// Cases of a run for figures.
    pub fn usual_cases(&self) -> u64 {
        match self.kind {
            Kind::Model => 20_000,
            Kind::Training => 5_000,
        }
    }
}

/// All subjects.
pub fn all() -> Vec<Subject> {
    [models::subjects(), texts::subjects(), labelled::subjects(), training::subjects()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_files_are_read() {
        for subject in all() {
            let directory = tempfile::tempdir().unwrap();
            (subject.prepare)(directory.path()).unwrap();
            assert!(directory.path().join(subject.target).exists(), "{}", subject.name);
            (subject.read)(directory.path()).unwrap_or_else(|e| panic!("{}: {e}", subject.name));
        }
    }
}
