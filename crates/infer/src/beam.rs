//! Beam search: keep the `beams` likeliest texts at every step.
//!
//! A text of n new tokens scores `Σ ln p / nᵅ`; α = 0 prefers short texts, α = 1 is the mean per
//! token, above 1 prefers long ones. A text that ends with a final token leaves the race, if it is
//! among the `beams` likeliest of its step; the search stops when no running text can overtake the
//! worst of the kept finished ones, or at the token limit. With one beam it takes the likeliest token
//! of every step and stops at the first final one, as greedy decoding does.

use hearken_nn::constraints::{Constraints, Place};

/// How a sequence goes on: as a copy of sequence `parent` of the step before, with one more token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The number of the sequence.
    pub parent: usize,
    /// The token.
    pub token: u32,
}

/// What beam search needs of a model.
pub trait Beams {
    /// Runs the prompt; gives the logits of the next token (V).
    fn start(&mut self) -> Vec<f32>;
    /// Makes sequence i what `branches[i]` says; gives the logits of each (branches, V).
    fn step(&mut self, branches: &[Branch]) -> Vec<f32>;
}

/// How to search.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamSearch {
    /// How many texts are continued at a time.
    pub beams: usize,
    /// α
    pub length_penalty: f32,
    /// The most new tokens.
    pub most_tokens: usize,
    /// Tokens that end a text.
    pub ends: Vec<u32>,
    /// What is not written, and what must be. What must be adds nothing to Σ ln p.
    pub constraints: Constraints,
}

/// A text that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The new tokens, a final one included.
    pub tokens: Vec<u32>,
    /// Σ ln p
    pub log_probability: f64,
    /// Σ ln p / nᵅ
    pub score: f64,
}

/// ln softmax, in f64.
pub(crate) fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - top).exp()).sum();
    logits.iter().map(|l| f64::from(l - top) - sum.ln()).collect()
}

impl BeamSearch {
    /// With the mean per token as score, and nothing that ends a text before its limit.
    pub fn new(beams: usize, most_tokens: usize) -> Self {
        let (length_penalty, ends, constraints) = (1.0, Vec::new(), Constraints::default());
        Self { beams, length_penalty, most_tokens, ends, constraints }
    }

    fn score(&self, log_probability: f64, len: usize) -> f64 {
        log_probability / (len as f64).powf(f64::from(self.length_penalty))
    }

    /// The best texts, best first; at most `beams`.
    pub fn run(&self, model: &mut impl Beams) -> Vec<Found> {
        let mut searching = Searching::new(self.clone(), Vec::new());
        if self.most_tokens == 0 {
            return Vec::new();
        }
        let mut logits = model.start();
        loop {
            let rows: Vec<&[f32]> = logits.chunks_exact(logits.len() / searching.texts()).collect();
            let branches = searching.advance(&rows);
            if branches.is_empty() {
                return searching.found();
            }
            logits = model.step(&branches);
        }
    }
}

/// A search under way: it is given the logits of every running text, and says which to continue.
pub(crate) struct Searching {
    search: BeamSearch,
    finished: Vec<Found>,
    /// How many tokens of a text are the prompt.
    prompt: usize,
    /// Σ ln p and the tokens, the prompt included; after it there is one text.
    running: Vec<(f64, Vec<u32>)>,
}

impl Searching {
    pub(crate) fn new(search: BeamSearch, prompt: Vec<u32>) -> Self {
        assert!(search.beams > 0, "beam search needs at least one beam");
        let (finished, tokens) = (Vec::new(), prompt.len());
        Self { search, finished, prompt: tokens, running: vec![(0.0, prompt)] }
    }

    /// How many texts are running.
    pub(crate) fn texts(&self) -> usize {
        self.running.len()
    }

    /// Takes the logits after each running text; gives the texts that run on, none at the end.
    pub(crate) fn advance(&mut self, logits: &[&[f32]]) -> Vec<Branch> {
        let Self { search, finished, prompt, running } = self;
        let written = running.first().map_or(0, |(_, tokens)| tokens.len() - *prompt);
        let length = written + 1;
        let mut next: Vec<(f64, usize, u32)> = Vec::new();
        for (beam, ((sum, tokens), logits)) in running.iter().zip(logits).enumerate() {
            let mut row = log_softmax(logits);
            search.constraints.apply(Place { tokens, written, most: search.most_tokens }, &mut row);
            next.extend((0..).zip(row).map(|(token, ln_p)| (sum + ln_p, beam, token)));
        }
        // Of equal ones the earlier beam and the smaller token, so that results are stable.
        let better = |a: &(f64, usize, u32), b: &(f64, usize, u32)| {
            b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2))
        };
        // Even if all the best end here, enough remain to run on.
        let wanted = (search.beams * (1 + search.ends.len())).min(next.len());
        if wanted < next.len() {
            next.select_nth_unstable_by(wanted, better);
            next.truncate(wanted);
        }
        next.sort_unstable_by(better);
        let (mut grown, mut branches) = (Vec::new(), Vec::new());
        for (rank, (log_probability, parent, token)) in next.into_iter().enumerate() {
            if log_probability == f64::NEG_INFINITY || log_probability.is_nan() {
                continue;
            }
            let tokens: Vec<u32> = [running[parent].1.as_slice(), &[token]].concat();
            if search.ends.contains(&token) {
                if rank < search.beams {
                    let score = search.score(log_probability, length);
                    let tokens = tokens[*prompt..].to_vec();
                    finished.push(Found { tokens, log_probability, score });
                }
            } else if grown.len() < search.beams {
                grown.push((log_probability, tokens));
                branches.push(Branch { parent, token });
            }
        }
        finished.sort_by(|a, b| b.score.total_cmp(&a.score));
        finished.truncate(search.beams);
        let Some((best, _)) = grown.first() else { return Vec::new() };
        // A sum only falls as a text grows; its score is best at whichever length the penalty
        // favours: now, or at the very end.
        let reachable = search.score(*best, length).max(search.score(*best, search.most_tokens));
        let settled = finished.len() == search.beams
            && finished.last().is_some_and(|worst| search.beams == 1 || worst.score >= reachable);
        if settled {
            return Vec::new();
        }
        if length >= search.most_tokens {
            finished.extend(grown.into_iter().map(|(log_probability, tokens)| Found {
                score: search.score(log_probability, length),
                tokens: tokens[*prompt..].to_vec(),
                log_probability,
            }));
            return Vec::new();
        }
        *running = grown;
        branches
    }

    /// The best texts, best first.
    pub(crate) fn found(&mut self) -> Vec<Found> {
        let mut found = std::mem::take(&mut self.finished);
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        found.truncate(self.search.beams);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model whose next token depends on the last one: `table[last][next]` are logits.
    struct Chain {
        table: Vec<Vec<f32>>,
    }

    impl Beams for Chain {
        fn start(&mut self) -> Vec<f32> {
            self.table[0].clone()
        }
        fn step(&mut self, branches: &[Branch]) -> Vec<f32> {
            branches.iter().flat_map(|branch| self.table[branch.token as usize].clone()).collect()
        }
    }

    fn ln(p: &[f64]) -> Vec<f32> {
        p.iter().map(|p| p.ln() as f32).collect()
    }

    /// Greedy goes to 1 (0.6) and then can only get 0.5; the best text goes through 2.
    fn garden_path() -> Chain {
        let table = vec![
            ln(&[0.0, 0.6, 0.4, 0.0]),
            ln(&[0.5, 0.0, 0.0, 0.5]),
            ln(&[0.05, 0.0, 0.0, 0.95]),
            ln(&[0.25, 0.25, 0.25, 0.25]),
        ];
        Chain { table }
    }

    #[test]
    fn finds_what_greedy_misses() {
        let search =
            |beams| BeamSearch { length_penalty: 0.0, ends: vec![3], ..BeamSearch::new(beams, 2) };
        assert_eq!(search(1).run(&mut garden_path())[0].tokens[0], 1);
        let best = &search(2).run(&mut garden_path())[0];
        assert_eq!(best.tokens, [2, 3]);
        assert!((best.log_probability - (0.4_f64 * 0.95).ln()).abs() < 1e-6);
    }

    #[test]
    fn one_beam_is_greedy_whatever_the_penalty() {
        // An end of 0.4 beside 0.6, and after a likely end a text that would score better per token.
        let table = vec![ln(&[0.0, 0.6, 0.4]), ln(&[0.45, 0.0, 0.55]), ln(&[1.0, 0.0, 0.0])];
        for length_penalty in [-1.0, 0.0, 1.0, 3.0] {
            let search = BeamSearch { length_penalty, ends: vec![2], ..BeamSearch::new(1, 9) };
            let found = search.run(&mut Chain { table: table.clone() });
            assert_eq!(found.len(), 1, "{length_penalty}");
            assert_eq!(found[0].tokens, [1, 2], "{length_penalty}");
        }
    }

    #[test]
    fn equals_exhaustive_search_when_nothing_is_pruned() {
        let mut table = Vec::new();
        for i in 0..3_u32 {
            let p: Vec<f64> = (0..3).map(|j| f64::from(1 + (i * 5 + j * 7 + i * j) % 6)).collect();
            let sum: f64 = p.iter().sum();
            table.push(ln(&p.iter().map(|p| p / sum).collect::<Vec<_>>()));
        }
        let mut best = (f64::NEG_INFINITY, Vec::new());
        for code in 0..27_u32 {
            let tokens = [code / 9, code / 3 % 3, code % 3];
            let mut last = 0;
            let mut sum = 0.0;
            for t in tokens {
                sum += log_softmax(&table[last as usize])[t as usize];
                last = t;
            }
            if sum > best.0 {
                best = (sum, tokens.to_vec());
            }
        }
        let search = BeamSearch { length_penalty: 0.0, ..BeamSearch::new(9, 3) };
        let found = search.run(&mut Chain { table });
        assert_eq!(found[0].tokens, best.1);
        assert!((found[0].log_probability - best.0).abs() < 1e-9);
    }

    #[test]
    fn the_length_penalty_decides_between_short_and_long() {
        // Ending at once costs ln 0.4; going on costs ln 0.6 and then ln 0.6 twice before ending.
        let table = vec![ln(&[0.0, 0.6, 0.4]), ln(&[0.0, 0.6, 0.4]), ln(&[1.0, 0.0, 0.0])];
        let run = |length_penalty| {
            let search = BeamSearch { length_penalty, ends: vec![2], ..BeamSearch::new(2, 4) };
            search.run(&mut Chain { table: table.clone() })[0].tokens.clone()
        };
        assert_eq!(run(0.0), [2]);
        assert!(run(2.0).len() > 2);
    }
}
