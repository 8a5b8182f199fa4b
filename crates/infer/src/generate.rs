//! Text from a model, token by token.
//!
//! With a cache, the prompt goes through the model once and every new token alone; without one,
//! everything goes through every time, which is the slow and obvious way that tests compare with.
//! When the model's context is full, the older half is forgotten and the rest is read again.

use crate::beam::{BeamSearch, Beams, Found};
use crate::sampler::{Candidate, Sampling};
use hearken_base::{Error, Result};
use hearken_nn::cache::{Cache, CacheKind};
use hearken_nn::models::Generates;

/// What to write.
#[derive(Clone, Debug)]
pub struct Request {
    /// The tokens to continue; at least one.
    pub prompt: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The most new tokens.
    pub most_tokens: usize,
    /// Tokens that end the text.
    pub ends: Vec<u32>,
    /// How keys and values are kept; none: not at all.
    pub cache: Option<CacheKind>,
}

/// A new token.
#[derive(Clone, Debug)]
pub struct Step {
    /// The token.
    pub id: u32,
    /// What it was chosen from, the most likely first.
    pub candidates: Vec<Candidate>,
}

/// Why writing stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The most tokens were written.
    Length,
    /// A token that ends the text came.
    End,
    /// The caller said so.
    Stopped,
}

/// What the caller wants after a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Another one.
    Continue,
    /// No more.
    Stop,
}

/// Can this prompt be continued?
fn check(model: &dyn Generates, prompt: &[u32]) -> Result<()> {
    let vocabulary = model.vocabulary();
    match prompt.iter().find(|id| **id as usize >= vocabulary) {
        Some(id) => Err(Error::new(
            format!("the prompt has token {id}, but the model knows only {vocabulary}"),
            "does the tokenizer belong to this model?",
        )),
        None if prompt.is_empty() => Err(Error::new(
            "the prompt is empty",
            "give at least one token, such as the one that begins a text",
        )),
        None => Ok(()),
    }
}

/// Writes; calls `on_step` with every new token, the final one included. Gives the new tokens.
pub fn generate(
    model: &dyn Generates,
    request: &Request,
    mut on_step: impl FnMut(&Step) -> Flow,
) -> Result<(Vec<u32>, Finish)> {
    check(model, &request.prompt)?;
    let context = model.context();
    let mut all = request.prompt.clone();
    let mut new = Vec::new();
    let mut cache = request.cache.map(|kind| model.cache(1, context, kind));
    // Where what the model sees begins; with a cache, `fed` tokens from there on are in it.
    let mut start = all.len().saturating_sub(context);
    let mut fed = 0;
    while new.len() < request.most_tokens {
        if all.len() - start > context {
            start = all.len() - (context / 2).max(1);
            fed = 0;
            if let Some(cache) = &mut cache {
                cache.truncate(0);
            }
        }
        let seen = &all[start..];
        let logits = match &mut cache {
            Some(cache) => model.step(&seen[fed..], 1, cache),
            None => model.next_logits(seen, 1),
        };
        fed = seen.len();
        let candidates = request.sampling.candidates(logits.data(), &all);
        let id = request.sampling.draw(&candidates, all.len() as u64);
        all.push(id);
        new.push(id);
        let flow = on_step(&Step { id, candidates });
        if request.ends.contains(&id) {
            return Ok((new, Finish::End));
        }
        if flow == Flow::Stop {
            return Ok((new, Finish::Stopped));
        }
    }
    Ok((new, Finish::Length))
}

/// Beams of a model, next to each other in one cache.
struct CachedBeams<'a> {
    model: &'a dyn Generates,
    prompt: &'a [u32],
    kind: CacheKind,
    cache: Option<Cache>,
}

impl Beams for CachedBeams<'_> {
    fn start(&mut self, beams: usize) -> Vec<f32> {
        let capacity = self.model.context();
        let mut cache = self.model.cache(beams, capacity, self.kind);
        let prompts = self.prompt.repeat(beams);
        let logits = self.model.step(&prompts, beams, &mut cache); // (beams, V)
        self.cache = Some(cache);
        logits.data()[..logits.shape().width()].to_vec()
    }

    fn step(&mut self, parents: &[usize], tokens: &[u32]) -> Vec<f32> {
        let Some(cache) = &mut self.cache else { return Vec::new() };
        cache.reorder(parents);
        self.model.step(tokens, tokens.len(), cache).data().to_vec()
    }
}

/// The likeliest texts by beam search; no longer than the model's context.
pub fn beam_search(
    model: &dyn Generates,
    prompt: &[u32],
    search: &BeamSearch,
    kind: CacheKind,
) -> Result<Vec<Found>> {
    check(model, prompt)?;
    let context = model.context();
    let prompt = &prompt[prompt.len().saturating_sub(context)..];
    let room = context + 1 - prompt.len(); // the last token is chosen but not read
    let search = BeamSearch { most_tokens: search.most_tokens.min(room), ..search.clone() };
    Ok(search.run(&mut CachedBeams { model, prompt, kind, cache: None }))
}
