//! What every crate needs: [`Error`], which says what went wrong and what to do about it, and
//! [`settings`], which reads configurations with errors that name the key and the line.

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod error;
pub mod settings;

pub use error::{Error, Kind, Result};

/// The candidate nearest to `word`, if it is near enough to be a slip: few letters differ, or one of
/// the two begins with the other.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let is_near = |edits: usize, candidate: &str| {
        let begins = candidate.starts_with(word) || word.starts_with(candidate);
        edits <= 1 + candidate.len() / 3 || begins && word.len().min(candidate.len()) >= 3
    };
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(edits, candidate)| is_near(*edits, candidate))
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = ["heads", "width", "layers"];
        assert_eq!(nearest("haeds", names), Some("heads"));
        assert_eq!(nearest("wdth", names), Some("width"));
        assert_eq!(nearest("vocabulary", names), None);
        assert_eq!(nearest("epsilon", ["eps", "kind"]), Some("eps"));
        assert_eq!(nearest("size", ["kind"]), None);
        assert_eq!(nearest("x", []), None);
    }
}
