//! Speculative decoding: a small model drafts a few tokens, and the large one reads all of them in
//! one step and keeps as many as it would have written itself (Leviathan et al. 2023, Chen et al.
//! 2023).
//!
//! With p the large model's chances of the next token and q the draft's, both after the filters of
//! [`Sampling`](crate::sampler::Sampling), a drafted token x is kept with chance min(1, p(x)/q(x)). The first that is not kept
//! is replaced by a draw from max(p − q, 0), renormalised, and the rest of the draft is forgotten.
//! If all are kept, one more token is drawn from p for free. Then token x is written with chance
//!
//! ```text
//! q(x)·min(1, p(x)/q(x)) + (1 − Σ min(p, q))·max(p(x) − q(x), 0)/Σ max(p − q, 0) = p(x)
//! ```
//!
//! since both sums are equal: the text is drawn as if the draft did not exist. A greedy text is the
//! same text, token by token.

use crate::client::constrained;
use crate::engine::{not_a_number, window};
use crate::generate::{Finish, Flow, Request, Step};
use crate::sampler::Candidate;
use hearken_base::{Error, Result};
use hearken_kernels::attention::pages::FEW_QUERIES;
use hearken_nn::cache::CacheKind;
use hearken_nn::constraints::Place;
use hearken_nn::models::Generates;
use hearken_nn::slot::{Feed, Slot};
use hearken_tensor::Tensor;
use hearken_tensor::rng::Rng;

/// The most drafted tokens: with the one before them, as many as attention reads from the cache
/// where it lies.
pub const MOST_DRAFTED: usize = FEW_QUERIES - 1;

/// A model that drafts.
#[derive(Clone, Copy)]
pub struct Draft<'a> {
    /// The small model.
    pub model: &'a dyn Generates,
    /// How many tokens it drafts at a time, at most [`MOST_DRAFTED`].
    pub tokens: usize,
}

/// What came of the drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acceptance {
    /// Tokens that were drafted.
    pub drafted: usize,
    /// Tokens of these that were kept.
    pub kept: usize,
    /// Steps of the large model.
    pub steps: usize,
}

impl Acceptance {
    /// The share that was kept; `None` if nothing was drafted.
    pub fn rate(&self) -> Option<f64> {
        (self.drafted > 0).then(|| self.kept as f64 / self.drafted as f64)
    }
}

/// Where the decisions come from.
trait Dice {
    /// Yes with chance `p`.
    fn yes(&mut self, p: f64, position: u64) -> bool;
    /// One of these by their chances, which add up to 1.
    fn draw(&mut self, chances: &[f64], position: u64, by: Author) -> u32;
}

/// Who draws a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Author {
    Draft,
    Model,
}

/// Random numbers by seed and position.
struct Seeded(u64);

impl Dice for Seeded {
    fn yes(&mut self, p: f64, position: u64) -> bool {
        Rng::at(!self.0, position).unit() < p
    }

    fn draw(&mut self, chances: &[f64], position: u64, by: Author) -> u32 {
        let seed = match by {
            Author::Model => self.0,
            Author::Draft => self.0.rotate_left(32) ^ 0x5eed,
        };
        let at = Rng::at(seed, position).unit();
        let mut mass = 0.0;
        let mut last = 0;
        for (id, chance) in (0..).zip(chances) {
            if *chance > 0.0 {
                mass += chance;
                last = id;
                if at < mass {
                    break;
                }
            }
        }
        last // rounding may leave the sum a little below 1
    }
}

/// The chances of all tokens, after the constraints and the filters of a request.
fn chances(request: &Request, logits: &[f32], tokens: &[u32]) -> Vec<f64> {
    let mut all = vec![0.0; logits.len()];
    let written = tokens.len() - request.prompt.len();
    let place = Place { tokens, written, most: request.most_tokens };
    let logits = constrained(&request.constraints, place, logits);
    for Candidate { id, probability } in request.sampling.candidates(&logits, tokens) {
        all[id as usize] = f64::from(probability);
    }
    normalised(all)
}

fn normalised(mut all: Vec<f64>) -> Vec<f64> {
    let total: f64 = all.iter().sum();
    for x in &mut all {
        *x /= total;
    }
    all
}

/// How many of the `drafted` tokens are kept, and the token after them. `model` are the large model's
/// chances at the place of every drafted token and behind the last, `draft` those it was drawn from.
fn verify(
    model: &[Vec<f64>],
    draft: &[Vec<f64>],
    drafted: &[u32],
    dice: &mut impl Dice,
    position: u64,
) -> (usize, u32) {
    for (i, ((p, q), x)) in model.iter().zip(draft).zip(drafted).enumerate() {
        let (at, token) = (position + i as u64, *x as usize);
        if dice.yes((p[token] / q[token]).min(1.0), at) {
            continue;
        }
        let rest: Vec<f64> = p.iter().zip(q).map(|(p, q)| (p - q).max(0.0)).collect();
        // Rounding may leave nothing where p and q are all but equal.
        let rest = if rest.iter().sum::<f64>() > 0.0 { normalised(rest) } else { p.clone() };
        return (i, dice.draw(&rest, at, Author::Model));
    }
    let kept = drafted.len();
    (kept, dice.draw(&model[kept], position + kept as u64, Author::Model))
}

/// A model and what it has read.
struct Reader<'a> {
    model: &'a dyn Generates,
    /// Where what it sees begins.
    start: usize,
    /// Tokens that it reads in both directions.
    prefix: usize,
    slot: Slot,
    /// A state to go back to, of models whose states cannot be cut.
    before: Option<Slot>,
}

impl<'a> Reader<'a> {
    fn new(model: &'a dyn Generates, kind: CacheKind, tokens: usize) -> Self {
        let start = tokens.saturating_sub(model.context());
        let prefix = if model.reads_prefix() { tokens } else { 0 };
        Self { model, start, prefix, slot: model.slot(kind), before: None }
    }

    /// Forgets the older half if so many tokens are more than the model can see.
    fn make_room(&mut self, tokens: usize) {
        let start = window(self.start, tokens, self.model.context());
        if start != self.start {
            self.start = start;
            self.slot.clear();
        }
    }

    /// How many more than so many tokens it can see.
    fn room(&self, tokens: usize) -> usize {
        self.model.context().saturating_sub(tokens - self.start)
    }

    /// If it could not go back otherwise, reads the `decided` tokens but the last, whose logits are
    /// wanted, and remembers where it is: then no token is read again that it has once gone past.
    fn mark(&mut self, decided: &[u32]) {
        if self.slot.can_be_cut() {
            self.before = None;
            return;
        }
        let end = decided.len() - 1;
        // A prefix is read in one step with what follows it.
        if self.start + self.slot.len() < end && self.prefix <= end {
            self.step(&decided[..end]);
        }
        self.before = Some(self.slot.clone());
    }

    /// Reads what it has not read of `tokens`; gives the hidden states of these (new, C).
    fn step(&mut self, tokens: &[u32]) -> Tensor {
        if self.slot.is_empty() {
            self.slot.set_prefix(self.prefix.saturating_sub(self.start));
        }
        let ids = &tokens[self.start + self.slot.len()..];
        self.model.step_hidden(&mut [Feed { ids, slot: &mut self.slot }])
    }

    /// Reads what it has not read of `tokens`; gives the logits after the last `rows` (rows, V).
    fn read(&mut self, tokens: &[u32], rows: usize) -> Result<Tensor> {
        let hidden = self.step(tokens); // (new, C)
        let (all, width) = (hidden.shape().rows(), hidden.shape().width());
        let last = Tensor::new([rows, width], &hidden.data()[(all - rows) * width..]);
        let logits = self.model.logits_after(&last);
        if logits.data().iter().any(|x| x.is_nan()) {
            return Err(not_a_number());
        }
        Ok(logits)
    }

    /// Forgets what it has read beyond the first so many tokens.
    fn go_back(&mut self, tokens: usize) {
        if self.start + self.slot.len() <= tokens {
            return;
        }
        if let Some(before) = self.before.take() {
            self.slot = before;
        } else {
            let cut = self.slot.truncate(tokens - self.start);
            assert!(cut, "a state that can be cut was not");
        }
    }
}

fn check(model: &dyn Generates, draft: &Draft<'_>, request: &Request) -> Result<CacheKind> {
    let (own, other) = (model.vocabulary(), draft.model.vocabulary());
    if own != other {
        return Err(Error::new(
            format!("the draft model knows {other} tokens, and the model {own}"),
            "a draft model must have the tokenizer of the model that it drafts for",
        ));
    }
    if model.recomputes() {
        return Err(Error::new(
            "this model cannot check a draft: a later token changes what it says of earlier ones",
            "attention by a hash (lsh) reads everything again: write without a draft",
        ));
    }
    if !(1..=MOST_DRAFTED).contains(&draft.tokens) {
        return Err(Error::new(
            format!("{} drafted tokens, expected 1 to {MOST_DRAFTED}", draft.tokens),
            "4 is usual",
        ));
    }
    crate::client::check_prompt(model, &request.prompt)?;
    request.cache.ok_or_else(|| {
        Error::new("drafts are verified in a cache, and there is none", "use a cache of any kind")
    })
}

/// As [`generate`](crate::generate::generate), with tokens that `draft` proposes.
pub fn generate_with_draft(
    model: &dyn Generates,
    draft: &Draft<'_>,
    request: &Request,
    mut on_step: impl FnMut(&Step) -> Flow,
) -> Result<(Vec<u32>, Finish, Acceptance)> {
    let kind = check(model, draft, request)?;
    let Request { prompt, sampling, most_tokens, ends, .. } = request;
    let mut tokens = prompt.clone();
    let mut large = Reader::new(model, kind, tokens.len());
    let mut small = Reader::new(draft.model, kind, tokens.len());
    let mut dice = Seeded(sampling.seed);
    let mut found = Acceptance::default();
    let new = |tokens: &[u32]| tokens[prompt.len()..].to_vec();
    while tokens.len() - prompt.len() < *most_tokens {
        let left = most_tokens - (tokens.len() - prompt.len());
        large.make_room(tokens.len());
        let count = draft.tokens.min(left - 1).min(large.room(tokens.len()));
        let length = tokens.len();
        let proposals = propose(&mut small, &mut tokens, count, request, &mut dice)?;
        let drafted = tokens[length..].to_vec();
        large.mark(&tokens[..length]);
        let logits = large.read(&tokens, drafted.len() + 1)?; // (drafted + 1, V)
        let rows = logits.data().chunks_exact(model.vocabulary());
        let places = length..;
        let own: Vec<Vec<f64>> =
            rows.zip(places).map(|(row, end)| chances(request, row, &tokens[..end])).collect();
        let (kept, next) = verify(&own, &proposals, &drafted, &mut dice, length as u64);
        found.steps += 1;
        found.drafted += drafted.len();
        found.kept += kept;
        tokens.truncate(length + kept);
        large.go_back(tokens.len());
        small.go_back(tokens.len());
        tokens.truncate(length);
        for (id, own) in drafted[..kept].iter().chain([&next]).zip(&own) {
            tokens.push(*id);
            let flow = on_step(&step(*id, own));
            if ends.contains(id) {
                return Ok((new(&tokens), Finish::End, found));
            }
            if flow == Flow::Stop {
                return Ok((new(&tokens), Finish::Stopped, found));
            }
        }
    }
    Ok((new(&tokens), Finish::Length, found))
}

/// Drafts `count` tokens, or fewer if the draft model's context is short; gives the chances that each
/// was drawn from.
fn propose(
    small: &mut Reader<'_>,
    tokens: &mut Vec<u32>,
    count: usize,
    request: &Request,
    dice: &mut impl Dice,
) -> Result<Vec<Vec<f64>>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let context = small.model.context();
    // The last drafted token is not read.
    if tokens.len() + count - 1 - small.start > context {
        small.start = tokens.len().saturating_sub((context / 2).max(1));
        small.slot.clear();
    }
    let count = count.min(small.room(tokens.len()) + 1);
    small.mark(tokens);
    let mut proposals = Vec::with_capacity(count);
    for _ in 0..count {
        let logits = small.read(tokens, 1)?;
        let q = chances(request, logits.data(), tokens);
        let x = dice.draw(&q, tokens.len() as u64, Author::Draft);
        proposals.push(q);
        tokens.push(x);
    }
    Ok(proposals)
}

/// How many of the most likely a step lists.
const LIKELIEST: usize = 8;

fn step(id: u32, chances: &[f64]) -> Step {
    let mut likeliest: Vec<Candidate> = (0..)
        .zip(chances)
        .filter(|(_, chance)| **chance > 0.0)
        .map(|(id, chance)| Candidate { id, probability: *chance as f32 })
        .collect();
    let better = |a: &Candidate, b: &Candidate| b.probability.total_cmp(&a.probability);
    if likeliest.len() > LIKELIEST {
        likeliest.select_nth_unstable_by(LIKELIEST - 1, better);
        likeliest.truncate(LIKELIEST);
    }
    likeliest.sort_by(better);
    Step { id, probability: chances[id as usize] as f32, likeliest }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: usize = 16;

    /// Follows one path of decisions after the other, until all have been followed.
    #[derive(Default)]
    struct Every {
        /// Of each decision: which way, of how many.
        path: Vec<(usize, usize)>,
        at: usize,
        probability: f64,
    }

    impl Every {
        fn choose(&mut self, chances: &[f64]) -> usize {
            if self.at == self.path.len() {
                self.path.push((0, chances.len()));
            }
            let way = self.path[self.at].0;
            self.at += 1;
            self.probability *= chances[way];
            way
        }

        /// The next path; false if there is none.
        fn next(&mut self) -> bool {
            while let Some((way, count)) = self.path.pop() {
                if way + 1 < count {
                    self.path.push((way + 1, count));
                    return true;
                }
            }
            false
        }
    }

    impl Dice for Every {
        fn yes(&mut self, p: f64, _: u64) -> bool {
            self.choose(&[p, 1.0 - p]) == 0
        }

        fn draw(&mut self, chances: &[f64], _: u64, _: Author) -> u32 {
            self.choose(chances) as u32
        }
    }

    /// Chances of the next token by the last: some are 0, as after filters.
    fn table(seed: u64, zeros: usize) -> Vec<Vec<f64>> {
        let mut rng = Rng::new(seed);
        let mut row = || {
            let mut row: Vec<f64> = (0..V).map(|_| (2.0 * rng.normal_one()).exp()).collect();
            (0..zeros).for_each(|_| row[rng.below(V)] = 0.0);
            normalised(row)
        };
        (0..V).map(|_| row()).collect()
    }

    /// What one round writes after `last`, with its probability.
    fn round(last: u32, p: &[Vec<f64>], q: &[Vec<f64>], count: usize) -> Vec<(Vec<u32>, f64)> {
        let mut every = Every::default();
        let mut found = Vec::new();
        loop {
            (every.at, every.probability) = (0, 1.0);
            let (mut texts, mut draft) = (vec![last], Vec::new());
            for _ in 0..count {
                let chances = &q[*texts.last().unwrap() as usize];
                texts.push(every.draw(chances, 0, Author::Draft));
                draft.push(chances.clone());
            }
            if every.probability > 0.0 {
                let model: Vec<_> = texts.iter().map(|t| p[*t as usize].clone()).collect();
                let (kept, next) = verify(&model, &draft, &texts[1..], &mut every, 0);
                let written = [&texts[1..=kept], &[next]].concat();
                found.push((written, every.probability));
            }
            if !every.next() {
                return found;
            }
        }
    }

    #[test]
    fn every_token_is_written_with_the_chance_of_the_large_model() {
        for zeros in [0, 6] {
            let (p, q) = (table(1, zeros), table(2, zeros));
            let rounds: Vec<_> = (0..V as u32).map(|last| round(last, &p, &q, 2)).collect();
            let mut single = vec![vec![0.0; V]; V];
            for (last, found) in rounds.iter().enumerate() {
                let total: f64 = found.iter().map(|(_, probability)| probability).sum();
                assert!((total - 1.0).abs() < 1e-9, "{total}");
                for (written, probability) in found {
                    single[last][written[0] as usize] += probability;
                }
            }
            for (last, found) in rounds.iter().enumerate() {
                // The next two tokens: both of this round, or the second of another one.
                let mut pairs = vec![vec![0.0; V]; V];
                for (written, probability) in found {
                    match written[..] {
                        [a, b, ..] => pairs[a as usize][b as usize] += probability,
                        [a] => (0..V).for_each(|b| {
                            pairs[a as usize][b] += probability * single[a as usize][b];
                        }),
                        [] => unreachable!("a round writes at least one token"),
                    }
                }
                for a in 0..V {
                    for b in 0..V {
                        let want = p[last][a] * p[a][b];
                        assert!((pairs[a][b] - want).abs() < 1e-6, "{last}, {a}, {b}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_draft_that_is_the_model_is_always_kept() {
        let p = table(3, 4);
        for (written, probability) in round(5, &p, &p, 2) {
            assert!(written.len() == 3 || probability < 1e-12, "{written:?}: {probability}");
        }
    }
}
