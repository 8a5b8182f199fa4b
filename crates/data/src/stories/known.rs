//! Which words the stories have.

use super::grammar::Part;
use super::words;
use std::collections::BTreeSet;

/// The words of `text` that no story has, each once, in order.
pub fn unknown_words(text: &str) -> Vec<&str> {
    let mut known = BTreeSet::new();
    collect(&words::story(), &mut known);
    let mut unknown = Vec::new();
    for word in words_of(text) {
        if !known.contains(word) && !unknown.contains(&word) {
            unknown.push(word);
        }
    }
    unknown
}

fn collect(parts: &[Part], into: &mut BTreeSet<&'static str>) {
    for part in parts {
        match part {
            Part::Text(text) => into.extend(words_of(text)),
            Part::Choose { options, .. }
            | Part::ChooseOther { options, .. }
            | Part::Say { options, .. } => {
                into.extend(options.iter().flat_map(|(text, _)| words_of(text)));
            }
            Part::Agree { words, .. } => into.extend(words.iter().flat_map(|text| words_of(text))),
            Part::Repeat { parts, .. } => collect(parts, into),
        }
    }
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_stories_are_known_and_others_are_not() {
        assert!(unknown_words(&super::super::text(1, 20_000)).is_empty());
        assert_eq!(unknown_words("Hello Mia, hello fox! Hello"), ["Hello", "hello"]);
        assert!(unknown_words("\n .,").is_empty());
    }
}
