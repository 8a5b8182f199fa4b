//! Beam search: keep the `beams` likeliest texts at every step.
//!
//! A text of n new tokens scores `Σ ln p / nᵅ`; α = 0 prefers short texts, α = 1 is the mean per
//! token, above 1 prefers long ones. A text that ends with a final token leaves the race; the
//! search stops when no running text can overtake the worst of the kept finished ones, or at the
//! token limit.

/// What beam search needs of a model: `beams` sequences in one batch.
pub trait Beams {
    /// Runs the prompt in every beam; gives the logits of the next token (V).
    fn start(&mut self, beams: usize) -> Vec<f32>;
    /// Makes beam i continue `parents[i]` with `tokens[i]`; gives the logits of each (beams, V).
    fn step(&mut self, parents: &[usize], tokens: &[u32]) -> Vec<f32>;
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
fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - top).exp()).sum();
    logits.iter().map(|l| f64::from(l - top) - sum.ln()).collect()
}

impl BeamSearch {
    fn score(&self, log_probability: f64, len: usize) -> f64 {
        log_probability / (len as f64).powf(f64::from(self.length_penalty))
    }

    /// The best texts, best first; at most `beams`.
    pub fn run(&self, model: &mut impl Beams) -> Vec<Found> {
        assert!(self.beams > 0, "beam search needs at least one beam");
        let mut finished: Vec<Found> = Vec::new();
        // (parent beam, Σ ln p, tokens); after the prompt there is one text in all beams.
        let mut running = vec![(0.0, Vec::new())];
        let mut logits = model.start(self.beams);
        for length in 1..=self.most_tokens {
            let vocabulary = logits.len() / running.len().max(1);
            let mut next: Vec<(f64, usize, u32)> = Vec::new();
            for (beam, (sum, _)) in running.iter().enumerate() {
                let row = log_softmax(&logits[beam * vocabulary..(beam + 1) * vocabulary]);
                next.extend((0..).zip(row).map(|(token, ln_p)| (sum + ln_p, beam, token)));
            }
            // Of equal ones the earlier beam and the smaller token, so that results are stable.
            let better = |a: &(f64, usize, u32), b: &(f64, usize, u32)| {
                b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2))
            };
            // Even if all the best end here, enough remain to run on.
            let wanted = (self.beams * (1 + self.ends.len())).min(next.len());
            if wanted < next.len() {
                next.select_nth_unstable_by(wanted, better);
                next.truncate(wanted);
            }
            next.sort_unstable_by(better);
            let mut grown = Vec::new();
            for (log_probability, beam, token) in next {
                if log_probability == f64::NEG_INFINITY || log_probability.is_nan() {
                    continue;
                }
                let tokens: Vec<u32> = [running[beam].1.as_slice(), &[token]].concat();
                if self.ends.contains(&token) {
                    let score = self.score(log_probability, length);
                    finished.push(Found { tokens, log_probability, score });
                } else if grown.len() < self.beams {
                    grown.push((beam, log_probability, tokens));
                }
            }
            finished.sort_by(|a, b| b.score.total_cmp(&a.score));
            finished.truncate(self.beams);
            let Some((_, best, _)) = grown.first() else { break };
            // A sum only falls as a text grows; its score is best at whichever length the penalty
            // favours: now, or at the very end.
            let reachable = self.score(*best, length).max(self.score(*best, self.most_tokens));
            let settled = finished.len() == self.beams
                && finished.last().is_some_and(|worst| worst.score >= reachable);
            if settled || length == self.most_tokens {
                if !settled {
                    finished.extend(grown.into_iter().map(|(_, log_probability, tokens)| Found {
                        score: self.score(log_probability, tokens.len()),
                        tokens,
                        log_probability,
                    }));
                }
                break;
            }
            // Fewer texts than beams: the last one stands in for the missing, and is dropped.
            let fill = |i: usize| grown.get(i).or(grown.last());
            let parents: Vec<usize> =
                (0..self.beams).filter_map(|i| fill(i).map(|g| g.0)).collect();
            let tokens: Vec<u32> =
                (0..self.beams).filter_map(|i| fill(i).and_then(|g| g.2.last().copied())).collect();
            logits = model.step(&parents, &tokens);
            logits.truncate(logits.len() / self.beams * grown.len());
            running = grown.into_iter().map(|(_, sum, tokens)| (sum, tokens)).collect();
        }
        finished.sort_by(|a, b| b.score.total_cmp(&a.score));
        finished.truncate(self.beams);
        finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model whose next token depends on the last one: `table[last][next]` are logits.
    struct Chain {
        table: Vec<Vec<f32>>,
        last: Vec<u32>,
    }

    impl Beams for Chain {
        fn start(&mut self, beams: usize) -> Vec<f32> {
            self.last = vec![0; beams];
            self.table[0].clone()
        }
        fn step(&mut self, _: &[usize], tokens: &[u32]) -> Vec<f32> {
            self.last = tokens.to_vec();
            tokens.iter().flat_map(|t| self.table[*t as usize].clone()).collect()
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
        Chain { table, last: Vec::new() }
    }

    #[test]
    fn finds_what_greedy_misses() {
        let search =
            |beams| BeamSearch { beams, length_penalty: 0.0, most_tokens: 2, ends: vec![3] };
        assert_eq!(search(1).run(&mut garden_path())[0].tokens[0], 1);
        let best = &search(2).run(&mut garden_path())[0];
        assert_eq!(best.tokens, [2, 3]);
        assert!((best.log_probability - (0.4_f64 * 0.95).ln()).abs() < 1e-6);
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
        let search = BeamSearch { beams: 9, length_penalty: 0.0, most_tokens: 3, ends: vec![] };
        let found = search.run(&mut Chain { table, last: Vec::new() });
        assert_eq!(found[0].tokens, best.1);
        assert!((found[0].log_probability - best.0).abs() < 1e-9);
    }

    #[test]
    fn the_length_penalty_decides_between_short_and_long() {
        // Ending at once costs ln 0.4; going on costs ln 0.6 and then ln 0.6 twice before ending.
        let table = vec![ln(&[0.0, 0.6, 0.4]), ln(&[0.0, 0.6, 0.4]), ln(&[1.0, 0.0, 0.0])];
        let run = |length_penalty| {
            let search = BeamSearch { beams: 2, length_penalty, most_tokens: 4, ends: vec![2] };
            search.run(&mut Chain { table: table.clone(), last: Vec::new() })[0].tokens.clone()
        };
        assert_eq!(run(0.0), [2]);
        assert!(run(2.0).len() > 2);
    }
}
