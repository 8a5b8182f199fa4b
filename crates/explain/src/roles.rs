//! What heads do, by measurement of where their weights go.
//!
//! | role | score: the mean weight over queries that have such a key |
//! |---|---|
//! | previous token | on the token just before |
//! | first token | on the first token, from the third query on |
//! | duplicate | on earlier occurrences of the query's own token |
//! | induction | on what followed earlier occurrences of the query's own token |
//! | who she is | from *she, he, her, his, him* to the name that the text begins with |
//! | uniform | the entropy, as a share of the most that it could be |

use crate::flow::Flow;
use crate::row;

/// What a head was measured to do.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadRole {
    /// The attention layer, such as `blocks.0.attention`.
    pub site: String,
    /// The block.
    pub layer: usize,
    /// The head.
    pub head: usize,
    /// Mean entropy of a row of weights, in nats.
    pub entropy: f64,
    /// Scores by role; `None` where no query of the prompt has such a key.
    pub scores: Vec<(&'static str, Option<f64>)>,
    /// The role whose score decided, if any reached its threshold.
    pub role: Option<(&'static str, f64)>,
}

/// From this mean weight on, a head has a role.
pub const THRESHOLD: f64 = 0.4;
/// From this share of the largest entropy on, a head mixes everything alike.
pub const UNIFORM: f64 = 0.95;

/// The roles of all heads, on the tokens of a flow.
pub fn roles(flow: &Flow) -> Vec<HeadRole> {
    roles_in(flow, None)
}

/// As [`roles`], with the texts of the tokens, in which pronouns are found.
pub fn roles_in(flow: &Flow, texts: Option<&[String]>) -> Vec<HeadRole> {
    let is_weights = |stage: &&crate::Stage| stage.part() == "attention.weights";
    let mut found = Vec::new();
    for stage in flow.stages.iter().filter(is_weights) {
        let &[heads, tokens, _] = &stage.shape[..] else { continue };
        let ids = flow.rows_of(&stage.name);
        if ids.len() != tokens || flow.mixes_keys(stage.name.trim_end_matches(".weights")) {
            continue; // of a source that is not known, or not of tokens
        }
        // The texts are those of the prompt.
        let texts = texts.filter(|_| !stage.name.starts_with("encoder."));
        for head in 0..heads {
            let weights: Vec<&[f32]> =
                (0..tokens).map(|t| row(&stage.value, head * tokens + t)).collect();
            let mut role = of_head(stage.block().unwrap_or(0), head, &weights, ids, texts);
            stage.name.trim_end_matches(".weights").clone_into(&mut role.site);
            found.push(role);
        }
    }
    found
}

/// Tokens of pronouns, and those of the name that the text begins with; nothing, if there are none.
pub fn pronouns(texts: &[String]) -> Option<(Vec<usize>, Vec<usize>)> {
    // The tokens of each word of letters.
    let mut words: Vec<(String, Vec<usize>)> = Vec::new();
    let mut inside = false;
    for (t, text) in texts.iter().enumerate() {
        for c in text.chars() {
            if c.is_alphabetic() {
                if !inside {
                    words.push((String::new(), Vec::new()));
                }
                if let Some((word, tokens)) = words.last_mut() {
                    word.push(c);
                    if tokens.last() != Some(&t) {
                        tokens.push(t);
                    }
                }
            }
            inside = c.is_alphabetic();
        }
    }
    let (_, name) = words.first().filter(|(word, _)| word.starts_with(char::is_uppercase))?;
    let is_pronoun =
        |word: &str| ["she", "he", "her", "his", "him"].contains(&word.to_lowercase().as_str());
    let found = words.iter().filter(|(word, _)| is_pronoun(word));
    let found: Vec<usize> = found.flat_map(|(_, tokens)| tokens.iter().copied()).collect();
    (!found.is_empty()).then(|| (found, name.clone()))
}

/// The role of one head with these rows of weights.
pub fn of_head(
    layer: usize,
    head: usize,
    weights: &[&[f32]],
    ids: &[u32],
    texts: Option<&[String]>,
) -> HeadRole {
    let on = |keys: &dyn Fn(usize) -> Vec<usize>| {
        let (mut sum, mut count) = (0.0, 0);
        for (t, row) in weights.iter().enumerate() {
            let keys: Vec<usize> = keys(t).into_iter().filter(|s| *s < row.len()).collect();
            if !keys.is_empty() {
                sum += keys.iter().map(|s| f64::from(row[*s])).sum::<f64>();
                count += 1;
            }
        }
        (count > 0).then(|| sum / f64::from(count))
    };
    let earlier = |t: usize| (0..t).filter(move |s| ids[*s] == ids[t]);
    let entropy_of = |row: &[f32]| {
        row.iter().map(|w| f64::from(*w)).filter(|w| *w > 0.0).map(|w| -w * w.ln()).sum::<f64>()
    };
    let entropy = weights.iter().map(|row| entropy_of(row)).sum::<f64>() / weights.len() as f64;
    let most: f64 = weights
        .iter()
        .map(|row| (row.iter().filter(|w| **w > 0.0).count().max(1) as f64).ln())
        .sum::<f64>()
        / weights.len() as f64;
    let who = texts.and_then(pronouns);
    let hero = |t: usize| match &who {
        Some((pronouns, name)) if pronouns.contains(&t) => name.clone(),
        _ => Vec::new(),
    };
    let scores = vec![
        ("previous token", on(&|t| t.checked_sub(1).into_iter().collect())),
        ("first token", on(&|t| if t >= 2 { vec![0] } else { vec![] })),
        ("duplicate", on(&|t| earlier(t).collect())),
        ("induction", on(&|t| earlier(t).map(|s| s + 1).filter(|s| *s < t).collect())),
        ("who she is", on(&hero)),
        ("uniform", (most > 0.0).then(|| entropy / most)),
    ];
    let passes = |(name, score): &&(&'static str, Option<f64>)| {
        let least = if *name == "uniform" { UNIFORM } else { THRESHOLD };
        score.is_some_and(|score| score >= least)
    };
    // Of several, the first of the largest: a uniform head has no large weight to be found by.
    let best = scores
        .iter()
        .filter(passes)
        .max_by(|a, b| a.1.unwrap_or(0.0).total_cmp(&b.1.unwrap_or(0.0)));
    let role = best.and_then(|(name, score)| Some((*name, (*score)?)));
    HeadRole { site: format!("blocks.{layer}.attention"), layer, head, entropy, scores, role }
}
