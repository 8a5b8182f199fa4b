//! Regular expressions from files: what they cost, judged by their text.

use regex::RegexBuilder;

/// What all patterns of a tokenizer may weigh together: some 10 MB once compiled. Published ones
/// weigh a few thousand.
pub(super) const HEAVIEST: u64 = 500_000;
/// A class of characters, compiled, is about this many times as large as a letter.
const CLASS: u64 = 100;

/// About how large a pattern is once compiled, in letters: `\p{L}{1,16}` is 16 classes.
pub(super) fn weight(pattern: &str) -> u64 {
    let mut characters = pattern.chars().peekable();
    // The sums of the groups that are open, and the atom that a repetition would repeat.
    let mut open = Vec::new();
    let (mut sum, mut atom) = (0_u64, 0_u64);
    while let Some(character) = characters.next() {
        let next = match character {
            '\\' => match characters.next() {
                Some('p' | 'P') => {
                    // \p{Letter}, or \pL.
                    if characters.next() == Some('{') {
                        characters.by_ref().find(|c| *c == '}');
                    }
                    CLASS
                }
                Some('w' | 'W' | 's' | 'S' | 'd' | 'D') => CLASS,
                _ => 1,
            },
            '[' => {
                let mut depth = 1;
                let mut length = 0;
                while depth > 0 {
                    match characters.next() {
                        Some('\\') => drop(characters.next()),
                        Some('[') => depth += 1,
                        Some(']') => depth -= 1,
                        Some(_) => {}
                        None => break,
                    }
                    length += 1;
                }
                CLASS + length
            }
            '(' => {
                open.push(sum + atom);
                (sum, atom) = (0, 0);
                continue;
            }
            ')' => {
                let group = sum.saturating_add(atom);
                sum = open.pop().unwrap_or_default();
                atom = group.max(1);
                continue;
            }
            '{' => {
                let mut inside = String::new();
                while let Some(c) = characters.next_if(|c| c.is_ascii_digit() || *c == ',') {
                    inside.push(c);
                }
                characters.next_if(|c| *c == '}');
                let counts = inside.split(',').map(|count| count.parse().unwrap_or(0));
                atom = atom.saturating_mul(counts.max().unwrap_or(0).max(1));
                continue;
            }
            _ => 1,
        };
        sum = sum.saturating_add(atom);
        atom = next;
    }
    // Groups that are not closed count, too: the library will say what is wrong with them.
    open.into_iter().fold(sum.saturating_add(atom), u64::saturating_add)
}

/// May the pattern match at a place without taking a character? It is tried on a few texts;
/// patterns that look around count as if they did.
pub(super) fn may_match_nothing(pattern: &str) -> bool {
    const TEXTS: [&str; 6] = ["", "a", "Ab c", "x1. ", "\n\n", "é…, 漢\t"];
    let compiled = RegexBuilder::new(pattern).size_limit(1 << 20).build();
    let Ok(regex) = compiled else { return true };
    TEXTS.iter().any(|text| regex.find_iter(text).any(|found| found.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_multiply() {
        assert_eq!(weight("abc"), 3);
        assert_eq!(weight(r"a{3}\{"), 4);
        assert_eq!(weight(r"\p{L}{1,16}\pN+x"), 16 * CLASS + CLASS + 2);
        assert_eq!(weight("a{3}{4}"), 12);
        assert_eq!(weight("((ab){10}){10}"), 200);
        assert_eq!(weight(r"[a-z\]x]{2}"), 2 * (CLASS + 6));
        assert!(weight(r"(((((\w{99}){99}){99}){99}){99}){99}") > HEAVIEST);
        assert!(weight(super::super::assemble::WORDS) < HEAVIEST / 4);
        assert_eq!(weight("(((a"), 1);
    }

    #[test]
    fn empty_matches_are_found() {
        for pattern in ["a*", "^", "$", r"\b", "(?=x)", "(", "x|"] {
            assert!(may_match_nothing(pattern), "{pattern}");
        }
        for pattern in [" {2,}", r"\s+", "``", r"\p{L}+"] {
            assert!(!may_match_nothing(pattern), "{pattern}");
        }
    }
}
