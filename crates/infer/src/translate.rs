//! Translations: texts that are written in view of a source.
//!
//! A translation is handed to an engine whole and comes back whole, so that any number of them can be
//! handed in at once: the engine reads sources together and decodes as many at a time as it has room
//! for. Greedy decoding is sampling at temperature 0, and equal to a beam search with one beam.

use crate::beam::{BeamSearch, Branch, Found, Searching, log_softmax};
use crate::client::{Client, Limits, Search, stopped};
use crate::engine::{Job, Outcome, Reader, Submission};
use crate::sampler::Sampling;
use hearken_base::{Error, Result};
use hearken_nn::cache::CacheKind;
use hearken_nn::constraints::{Constraints, Place};
use std::marker::PhantomData;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

/// How translations are found.
#[derive(Clone, Debug)]
pub struct Translating {
    /// The token that begins targets.
    pub begin: u32,
    /// Tokens that end them.
    pub ends: Vec<u32>,
    /// What is not written, and what must be.
    pub constraints: Constraints,
    /// The most tokens of a translation.
    pub most_tokens: usize,
    /// α: a translation of n tokens scores Σ ln p / nᵅ.
    pub length_penalty: f32,
    /// How keys and values are kept.
    pub cache: CacheKind,
    /// How tokens are chosen.
    pub strategy: Strategy,
}

/// How the tokens of translations are chosen.
#[derive(Clone, Copy, Debug)]
pub enum Strategy {
    /// One by one; at temperature 0 the likeliest. So many translations of each source, with seeds
    /// from that of the sampling on.
    Sampled(Sampling, usize),
    /// By beam search.
    Beams(usize),
}

impl Strategy {
    fn sequences(self) -> usize {
        match self {
            Self::Sampled(_, count) | Self::Beams(count) => count,
        }
    }
}

/// A translation that is being made.
#[derive(Debug)]
pub struct Pending<'a> {
    result: Receiver<Result<Vec<Found>>>,
    /// Dropped, it tells the engine that nobody waits any more.
    _alive: Arc<()>,
    /// The engine runs at least as long as there is a client.
    client: PhantomData<&'a Client>,
}

impl Pending<'_> {
    /// The translations, best first; of samples, by their score.
    pub fn wait(self) -> Result<Vec<Found>> {
        self.result.recv().map_err(|_| stopped())?
    }
}

impl Client {
    /// Translates a source, whose tokens the model's encoder reads as they are. The engine must be
    /// that of a model that translates ([`with_translator`](crate::engine::with_translator)).
    pub fn translate(&self, source: &[u32], how: &Translating) -> Result<Pending<'_>> {
        let Limits { vocabulary, context } = self.limits();
        check(source, how, vocabulary, context)?;
        let (result, found) = channel();
        let alive = Arc::new(());
        let reader = Arc::downgrade(&alive);
        // The token that begins targets takes a place of the context; the last one is not read.
        let most_tokens = how.most_tokens.min(context);
        let job: Box<dyn Job> = match how.strategy {
            Strategy::Beams(beams) => {
                let search = BeamSearch {
                    beams,
                    length_penalty: how.length_penalty,
                    most_tokens,
                    ends: how.ends.clone(),
                    constraints: how.constraints.clone(),
                };
                let searching = Searching::new(search, vec![how.begin]);
                Box::new(Search { searching, result, reader })
            }
            Strategy::Sampled(sampling, count) => Box::new(Samples {
                running: (0..count).map(|number| (number as u64, 0.0)).collect(),
                finished: Vec::new(),
                sampling,
                how: Translating { most_tokens, ..how.clone() },
                result,
                reader,
            }),
        };
        self.submit(Submission {
            job,
            prompt: vec![how.begin],
            source: Some(source.to_vec()),
            cache: Some(how.cache),
            most_sequences: how.strategy.sequences(),
            most_tokens,
        })?;
        Ok(Pending { result: found, _alive: alive, client: PhantomData })
    }
}

fn check(source: &[u32], how: &Translating, vocabulary: usize, context: usize) -> Result<()> {
    if source.is_empty() || source.len() > context {
        let message = format!("a source of {} tokens, expected 1 to {context}", source.len());
        return Err(Error::new(message, "the model's context is the most that it reads"));
    }
    if let Some(id) = source.iter().chain([&how.begin]).find(|id| **id as usize >= vocabulary) {
        let message = format!("token {id} is in the source, but the model knows only {vocabulary}");
        return Err(Error::new(message, "does the tokenizer belong to this model?"));
    }
    if how.strategy.sequences() == 0 {
        return Err(Error::new("no translation is asked for", "ask for one or more"));
    }
    Ok(())
}

/// Several translations of one source, token by token.
struct Samples {
    /// Number and Σ ln p of those that go on, in the order of their sequences.
    running: Vec<(u64, f64)>,
    finished: Vec<Found>,
    sampling: Sampling,
    how: Translating,
    result: Sender<Result<Vec<Found>>>,
    /// Does the client still wait?
    reader: Weak<()>,
}

impl Job for Samples {
    fn advance(&mut self, outcomes: &[Outcome<'_>]) -> Vec<Branch> {
        let Self { running, finished, sampling, how, .. } = self;
        let mut branches = Vec::new();
        let mut sequence = 0..outcomes.len();
        running.retain_mut(|(number, sum)| {
            // All begin as the one sequence of the first token.
            let parent = sequence.next().unwrap_or(0);
            let Some(Outcome { logits, tokens }) = outcomes.get(parent) else { return false };
            let seed = sampling.seed.wrapping_add(*number);
            let place = Place { tokens, written: tokens.len() - 1, most: how.most_tokens };
            let (mut logits, mut log_p) = (logits.to_vec(), log_softmax(logits));
            how.constraints.apply(place, &mut logits);
            how.constraints.apply(place, &mut log_p);
            let chosen =
                Sampling { seed, ..*sampling }.choose(&logits, tokens, tokens.len() as u64);
            *sum += log_p[chosen.id as usize];
            let mut new = tokens[1..].to_vec(); // without the token that begins targets
            new.push(chosen.id);
            if how.ends.contains(&chosen.id) || new.len() >= how.most_tokens {
                let score = *sum / (new.len() as f64).powf(f64::from(how.length_penalty));
                finished.push(Found { tokens: new, log_probability: *sum, score });
                return false;
            }
            branches.push(Branch { parent, token: chosen.id });
            true
        });
        if branches.is_empty() {
            let mut found = std::mem::take(finished);
            found.sort_by(|a, b| b.score.total_cmp(&a.score));
            // Who has left does not want to know.
            let _ = self.result.send(Ok(found));
        }
        branches
    }

    fn fail(&mut self, error: Error) {
        let _ = self.result.send(Err(error));
    }

    fn reader(&mut self) -> Reader {
        if self.reader.strong_count() == 0 { Reader::Gone } else { Reader::Ready }
    }
}
