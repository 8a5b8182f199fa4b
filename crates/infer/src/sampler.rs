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

/// How many of the most likely a [`Chosen`] lists.
const LIKELIEST: usize = 8;

/// A token that was drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The token.
    pub id: u32,
    /// Its chance, among all that remained.
    pub probability: f32,
    /// The few most likely of what it was chosen from, the most likely first.
    pub likeliest: Vec<Candidate>,
}

/// Tokens with their scores, of which as many are in order as were asked for: the most likely
/// first, of equal ones the smaller id.
struct Ranking {
    scores: Vec<(u32, f32)>,
    /// So many, at the front, are in order, and all others come after them.
    ranked: usize,
    /// The filters left so many of the most likely.
    kept: usize,
    /// The largest score.
    top: f32,
    temperature: f64,
    /// The sum of the weights of what is kept.
    total: f64,
}

impl Ranking {
    /// The probability relative to that of the most likely token.
    fn weight(&self, score: f32) -> f64 {
        // An infinite logit is certain; ∞ − ∞ would be NaN.
        if score == self.top { 1.0 } else { (f64::from(score - self.top) / self.temperature).exp() }
    }

    /// Puts the `count` most likely in order, at the front.
    fn rank(&mut self, count: usize) {
        let count = count.min(self.scores.len());
        if count <= self.ranked {
            return;
        }
        let by_score = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        let rest = &mut self.scores[self.ranked..];
        let more = count - self.ranked;
        if more < rest.len() {
            rest.select_nth_unstable_by(more - 1, by_score);
        }
        rest[..more].sort_unstable_by(by_score);
        self.ranked = count;
    }

    /// The `i`-th most likely. They are put in order a few at first, then more and more.
    fn ranked(&mut self, i: usize) -> (u32, f32) {
        if i >= self.ranked {
            self.rank((4 * self.ranked).max(i + 1).max(64).min(self.kept));
        }
        self.scores[i]
    }

    /// Keeps the `count` most likely only.
    fn keep(&mut self, count: usize) {
        self.rank(count);
        self.kept = count.min(self.kept);
        self.total = self.scores[..self.kept].iter().map(|(_, score)| self.weight(*score)).sum();
    }

    /// Keeps the fewest of the most likely whose weights reach `target` in sum; all, if even these
    /// do not.
    fn keep_mass(&mut self, target: f64) {
        let mut mass = 0.0;
        for i in 0..self.kept {
            let (_, score) = self.ranked(i);
            mass += self.weight(score);
            if mass >= target {
                self.kept = i + 1;
                self.total = mass;
                return;
            }
        }
    }

    fn candidate(&self, (id, score): (u32, f32)) -> Candidate {
        Candidate { id, probability: (self.weight(score) / self.total) as f32 }
    }

    /// The `count` most likely, or all that are kept.
    fn first(&mut self, count: usize) -> Vec<Candidate> {
        let count = count.min(self.kept);
        self.rank(count);
        self.scores[..count].iter().map(|score| self.candidate(*score)).collect()
    }

    /// The first candidate up to which the probabilities exceed `at`.
    fn at(&mut self, at: f64) -> Candidate {
        let mut mass = 0.0;
        let mut last = Candidate { id: 0, probability: 0.0 };
        for i in 0..self.kept {
            let score = self.ranked(i);
            last = self.candidate(score);
            mass += f64::from(last.probability);
            if at < mass {
                break;
            }
        }
        last // rounding may leave the sum a little below 1
    }
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
        let mut ranking = self.ranking(logits, history);
        ranking.first(ranking.kept)
    }

    /// The token at `position`, as [`Sampling::draw`] draws it from all
    /// [candidates](Sampling::candidates), without putting those in order that nobody looks at.
    pub fn choose(&self, logits: &[f32], history: &[u32], position: u64) -> Chosen {
        let mut ranking = self.ranking(logits, history);
        let chosen = ranking.at(self.unit(position));
        Chosen {
            id: chosen.id,
            probability: chosen.probability,
            likeliest: ranking.first(LIKELIEST),
        }
    }

    /// What remains after all filters.
    fn ranking(&self, logits: &[f32], history: &[u32]) -> Ranking {
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
        let top = scores.iter().map(|(_, score)| *score).max_by(f32::total_cmp);
        let top = top.unwrap_or(f32::NEG_INFINITY);
        if top == f32::NEG_INFINITY {
            scores.truncate(1); // token 0 is certain, if there is one
        }
        let greedy = self.temperature == 0.0;
        let temperature = if greedy { 1.0 } else { f64::from(self.temperature) };
        let kept = scores.len();
        let mut ranking = Ranking { scores, ranked: 0, kept, top, temperature, total: 0.0 };
        let most = if greedy { 1 } else { self.top_k.unwrap_or(kept) };
        if most < kept {
            ranking.keep(most);
        } else {
            ranking.total = ranking.scores.iter().map(|(_, score)| ranking.weight(*score)).sum();
        }
        if let Some(p) = self.top_p {
            ranking.keep_mass(f64::from(p) * ranking.total);
        }
        if let Some(p) = self.min_p {
            let weight = |(_, score): &(u32, f32)| ranking.weight(*score);
            let kept = &ranking.scores[..ranking.kept];
            let likely = kept.iter().filter(|score| weight(score) >= f64::from(p)).count();
            ranking.keep(likely.max(1));
        }
        ranking
    }

    /// The random number of a position, from 0 to 1.
    fn unit(&self, position: u64) -> f64 {
        Rng::at(self.seed, position).unit()
    }

    /// Draws one of `candidates`; the draw depends on the seed and `position` alone.
    pub fn draw(&self, candidates: &[Candidate], position: u64) -> u32 {
        let at = self.unit(position);
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

    /// All put in order first: what the filters and the draw are held against.
    fn sorted(s: &Sampling, logits: &[f32]) -> Vec<Candidate> {
        let mut scores: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
        scores.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        scores.truncate(s.top_k.unwrap_or(usize::MAX));
        let top = scores[0].1;
        let weight = |score: f32| (f64::from(score - top) / f64::from(s.temperature)).exp();
        let mut weights: Vec<f64> = scores.iter().map(|(_, score)| weight(*score)).collect();
        if let Some(p) = s.top_p {
            let target = f64::from(p) * weights.iter().sum::<f64>();
            let mut mass = 0.0;
            let count = weights.iter().take_while(|w| {
                let before = mass;
                mass += **w;
                before < target
            });
            let count = count.count().max(1);
            weights.truncate(count);
        }
        if let Some(p) = s.min_p {
            weights.retain(|w| *w >= f64::from(p));
        }
        let total: f64 = weights.iter().sum();
        let chance = |w: &f64| (w / total) as f32;
        let all = scores.iter().zip(&weights);
        all.map(|((id, _), w)| Candidate { id: *id, probability: chance(w) }).collect()
    }

    #[test]
    fn selecting_gives_what_sorting_everything_gives() {
        for (vocabulary, scale) in [(5, 1.0), (300, 0.1), (300, 4.0), (5000, 2.0)] {
            // Rounded to halves, so that many are equal.
            let mut rng = Rng::new(vocabulary as u64);
            let logits: Vec<f32> = (0..vocabulary)
                .map(|_| ((2.0 * scale * rng.normal_one()).round() / 2.0) as f32)
                .collect();
            let plain = Sampling { temperature: 0.7, seed: 3, ..Sampling::default() };
            for s in [
                plain,
                Sampling { top_k: Some(1), ..plain },
                Sampling { top_k: Some(70), ..plain },
                Sampling { top_p: Some(0.3), ..plain },
                Sampling { top_p: Some(0.95), ..plain },
                Sampling { min_p: Some(0.02), ..plain },
                Sampling { top_k: Some(100), top_p: Some(0.9), min_p: Some(0.05), ..plain },
            ] {
                let want = sorted(&s, &logits);
                let got = s.candidates(&logits, &[]);
                assert_eq!(got.len(), want.len(), "{s:?}");
                for (got, want) in got.iter().zip(&want) {
                    assert_eq!(got.id, want.id, "{s:?}");
                    // A sum in another order: the last bit.
                    let off = (got.probability - want.probability).abs();
                    assert!(off <= f32::EPSILON * want.probability, "{s:?}");
                }
                for position in 0..200 {
                    let chosen = s.choose(&logits, &[], position);
                    assert_eq!(chosen.id, s.draw(&got, position), "{s:?}");
                    let own = got.iter().find(|c| c.id == chosen.id).unwrap();
                    assert_eq!(chosen.probability, own.probability);
                    assert_eq!(chosen.likeliest, got[..got.len().min(LIKELIEST)]);
                }
            }
        }
        let nothing = Sampling::default().choose(&[], &[], 0);
        assert_eq!((nothing.id, nothing.likeliest.len()), (0, 0));
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
