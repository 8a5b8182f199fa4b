//! Answers that are parts of a text, compared as SQuAD does: without capitals, punctuation, articles
//! and spare spaces.

use super::f1;
use std::collections::BTreeMap;

/// An answer as it is compared.
pub fn normalised(answer: &str) -> Vec<String> {
    let lower = answer.to_lowercase();
    let plain: String = lower.chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let words = plain.split_whitespace().filter(|word| !matches!(*word, "a" | "an" | "the"));
    words.map(str::to_owned).collect()
}

/// Is the answer one of the right ones, and the best F1 of its words with any of them.
pub fn answer_scores(said: &str, right: &[String]) -> (bool, f64) {
    let said = normalised(said);
    let scores = right.iter().map(|right| {
        let right = normalised(right);
        (right == said, overlap(&said, &right))
    });
    scores.fold((false, 0.0), |best, score| (best.0 | score.0, best.1.max(score.1)))
}

/// F1 of words; 1 if both have none.
fn overlap(said: &[String], right: &[String]) -> f64 {
    if said.is_empty() && right.is_empty() {
        return 1.0;
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for word in right {
        *counts.entry(word).or_default() += 1;
    }
    let mut both = 0;
    for word in said {
        if let Some(count) = counts.get_mut(word.as_str()).filter(|count| **count > 0) {
            *count -= 1;
            both += 1;
        }
    }
    f1(both, right.len(), said.len())
}
