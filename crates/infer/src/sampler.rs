//! From logits to the next token.
//!
//! In this order: the repetition penalty, the temperature, then the filters, each on what the one
//! before has left: top-k, top-p, min-p. What remains is renormalised and drawn from. With a
//! temperature of 0 the most likely token is taken (of several equal ones the first).
//!
//! - repetition penalty r: logits of tokens that have occurred are divided by r if positive and
//!   multiplied by r if negative (Keskar et al. 2019).
//! - top-k: the k most likely tokens.
//! - top-p: the smallest set of most likely tokens whose probabilities reach p in sum.
//! - min-p: tokens at least p times as likely as the most likely one.

use hearken_base::{Error, Result};
use hearken_tensor::rng::Rng;

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it; 0 takes the most likely token.
    pub temperature: f32,
    /// Only the k most likely.
    pub top_k: Option<usize>,
    /// Only the most likely that together reach p.
    pub top_p: Option<f32>,
    /// Only those at least p times as likely as the most likely.
    pub min_p: Option<f32>,
    /// Above 1, what has occurred becomes less likely; 1 changes nothing.
    pub repetition_penalty: f32,
    /// The same seed gives the same text.
    pub seed: u64,
}

impl Default for Sampling {
    /// Plain sampling at temperature 1.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: None,
            top_p: None,
            min_p: None,
            repetition_penalty: 1.0,
            seed: 0,
        }
    }
}

/// A token that may come next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token.
    pub id: u32,
    /// Its chance, among all that remain.
    pub probability: f32,
}

impl Sampling {
    /// The most likely token, always.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Are all settings in range?
    pub fn validate(&self) -> Result<()> {
        let check = |name, value: f64, good: bool, expected, hint| {
            let message = || format!("{name} is {value}, expected {expected}");
            if good { Ok(()) } else { Err(Error::new(message(), hint)) }
        };
        let t = f64::from(self.temperature);
        check(
            "temperature",
            t,
            t.is_finite() && t >= 0.0,
            "0 or more",
            "0 is greedy, 1 is as trained",
        )?;
        if let Some(k) = self.top_k {
            check("top-k", k as f64, k > 0, "at least 1", "1 is greedy, 40 is usual")?;
        }
        for (name, p) in [("top-p", self.top_p), ("min-p", self.min_p)] {
            if let Some(p) = p.map(f64::from) {
                check(
                    name,
                    p,
                    (0.0..=1.0).contains(&p),
                    "between 0 and 1",
                    "0.9 for top-p and 0.05 for min-p are usual",
                )?;
            }
        }
        let r = f64::from(self.repetition_penalty);
        check(
            "repetition penalty",
            r,
            r.is_finite() && r > 0.0,
            "above 0",
            "1 is none, 1.1 is usual",
        )
    }

    /// What may come next, the most likely first, given the logits and the tokens so far. The
    /// probabilities add up to 1. NaN logits count as impossible; if nothing is possible, token 0
    /// is certain.
    pub fn candidates(&self, logits: &[f32], history: &[u32]) -> Vec<Candidate> {
        let mut scores: Vec<(u32, f32)> = (0..)
            .zip(logits.iter().map(|l| if l.is_nan() { f32::NEG_INFINITY } else { *l }))
            .collect();
        if self.repetition_penalty != 1.0 {
            let mut seen: Vec<u32> = history.to_vec();
            seen.sort_unstable();
            seen.dedup();
            for id in seen {
                if let Some((_, score)) = scores.get_mut(id as usize) {
                    let r = self.repetition_penalty;
                    *score = if *score > 0.0 { *score / r } else { *score * r };
                }
            }
        }
        // Most likely first; of equal ones the smaller id.
        let by_score = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        let keep = if self.temperature == 0.0 { 1 } else { self.top_k.unwrap_or(scores.len()) };
        if keep < scores.len() {
            scores.select_nth_unstable_by(keep - 1, by_score);
            scores.truncate(keep);
        }
        scores.sort_unstable_by(by_score);
        let Some(&(_, top)) = scores.first() else { return Vec::new() };
        if top == f32::NEG_INFINITY {
            return vec![Candidate { id: 0, probability: 1.0 }];
        }
        let temperature = if self.temperature == 0.0 { 1.0 } else { f64::from(self.temperature) };
        let weight = |score: f32| {
            // An infinite logit is certain; ∞ − ∞ would be NaN.
            if score == top { 1.0 } else { (f64::from(score - top) / temperature).exp() }
        };
        let mut weights: Vec<f64> = scores.iter().map(|(_, score)| weight(*score)).collect();
        if let Some(p) = self.top_p {
            let target = f64::from(p) * weights.iter().sum::<f64>();
            let mut mass = 0.0;
            let reached = weights.iter().position(|w| {
                mass += w;
                mass >= target
            });
            weights.truncate(reached.map_or(weights.len(), |last| last + 1));
        }
        if let Some(p) = self.min_p {
            let likely = weights.iter().take_while(|w| **w >= f64::from(p)).count();
            weights.truncate(likely.max(1));
        }
        let total: f64 = weights.iter().sum();
        let candidate = |((id, _), w): (&(u32, f32), &f64)| Candidate {
            id: *id,
            probability: (w / total) as f32,
        };
        scores.iter().zip(&weights).map(candidate).collect()
    }

    /// Draws one of `candidates`; the draw depends on the seed and `position` alone.
    pub fn draw(&self, candidates: &[Candidate], position: u64) -> u32 {
        let at = Rng::at(self.seed, position).unit();
        let mut mass = 0.0;
        for candidate in candidates {
            mass += f64::from(candidate.probability);
            if at < mass {
                return candidate.id;
            }
        }
        // Rounding may leave the sum a little below 1.
        candidates.last().map_or(0, |candidate| candidate.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 5] = [1.0, 3.0, 2.0, 3.0, -1.0];

    fn ids(sampling: Sampling, history: &[u32]) -> Vec<u32> {
        sampling.candidates(&LOGITS, history).iter().map(|c| c.id).collect()
    }

    #[test]
    fn greedy_takes_the_first_of_the_most_likely() {
        assert_eq!(ids(Sampling::greedy(), &[]), [1]);
    }

    #[test]
    fn probabilities_are_the_softmax() {
        let all = Sampling::default().candidates(&LOGITS, &[]);
        let total: f64 = LOGITS.iter().map(|l| f64::from(*l).exp()).sum();
        for c in &all {
            let want = f64::from(LOGITS[c.id as usize]).exp() / total;
            assert!((f64::from(c.probability) - want).abs() < 1e-7);
        }
        assert_eq!(all.iter().map(|c| c.id).collect::<Vec<_>>(), [1, 3, 2, 0, 4]);
    }

    #[test]
    fn filters_keep_the_smallest_set_that_qualifies() {
        let with = |f: fn(&mut Sampling)| {
            let mut s = Sampling::default();
            f(&mut s);
            ids(s, &[])
        };
        assert_eq!(with(|s| s.top_k = Some(2)), [1, 3]);
        assert_eq!(with(|s| s.top_k = Some(50)).len(), 5);
        // Probabilities 0.397, 0.397, 0.146, 0.054, 0.007.
        assert_eq!(with(|s| s.top_p = Some(0.39)), [1]);
        assert_eq!(with(|s| s.top_p = Some(0.5)), [1, 3]);
        assert_eq!(with(|s| s.top_p = Some(1.0)).len(), 5);
        assert_eq!(with(|s| s.top_p = Some(0.0)), [1]);
        assert_eq!(with(|s| s.min_p = Some(0.3)), [1, 3, 2]); // e⁻¹ ≈ 0.37 of the best
        assert_eq!(with(|s| s.min_p = Some(1.0)), [1, 3]);
    }

    #[test]
    fn a_low_temperature_sharpens_and_a_penalty_demotes() {
        let first = |temperature| {
            let s = Sampling { temperature, ..Sampling::default() };
            s.candidates(&[1.0, 0.0], &[])[0].probability
        };
        assert!(first(0.5) > first(1.0) && first(1.0) > first(2.0));
        let s = Sampling { repetition_penalty: 2.0, ..Sampling::greedy() };
        assert_eq!(s.candidates(&LOGITS, &[1])[0].id, 3);
        assert_eq!(s.candidates(&[-1.0, -1.5], &[0])[0].id, 1); // −1·2 is below −1.5
    }

    #[test]
    fn draws_follow_the_probabilities_and_the_seed() {
        let s = Sampling { seed: 7, ..Sampling::default() };
        let candidates = s.candidates(&[0.0, 1.0], &[]);
        let ones = (0..10_000).filter(|i| s.draw(&candidates, *i) == 1).count();
        // Binomial: 7311 ± 4 · 44.
        assert!((7134..7488).contains(&ones), "{ones}");
        assert_eq!(s.draw(&candidates, 3), s.draw(&candidates, 3));
    }

    #[test]
    fn strange_logits_have_defined_results() {
        let s = Sampling::default();
        assert_eq!(s.candidates(&[f32::NEG_INFINITY; 3], &[])[0].id, 0);
        assert_eq!(s.candidates(&[f32::NAN, 1.0], &[])[0].id, 1);
        let certain = s.candidates(&[1.0, f32::INFINITY], &[]);
        assert_eq!((certain[0].id, certain[0].probability), (1, 1.0));
        assert!(s.candidates(&[], &[]).is_empty());
    }

    #[test]
    fn settings_out_of_range_are_named() {
        for bad in [
            Sampling { temperature: -1.0, ..Sampling::default() },
            Sampling { temperature: f32::NAN, ..Sampling::default() },
            Sampling { top_k: Some(0), ..Sampling::default() },
            Sampling { top_p: Some(1.5), ..Sampling::default() },
            Sampling { min_p: Some(-0.1), ..Sampling::default() },
            Sampling { repetition_penalty: 0.0, ..Sampling::default() },
        ] {
            let text = bad.validate().unwrap_err().to_string();
            assert!(text.contains("expected") && text.contains("hint: "), "{text}");
        }
        assert!(Sampling::default().validate().is_ok());
    }
}
