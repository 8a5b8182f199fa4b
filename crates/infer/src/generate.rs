//! Text from a model, token by token: the simple clients of an [engine](crate::engine), which runs
//! as long as they do.
//!
//! With a cache, the prompt goes through the model once and every new token alone; without one,
//! everything goes through every time, which is the slow and obvious way that tests compare with.
//! When the model's context is full, the older half is forgotten and the rest is read again.

use crate::beam::{BeamSearch, Found};
use crate::client::Event;
use crate::engine::with_engine;
use crate::sampler::{Candidate, Sampling};
use hearken_base::Result;
use hearken_nn::cache::CacheKind;
use hearken_nn::constraints::Constraints;
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
    /// What is not written, and what must be.
    pub constraints: Constraints,
    /// How keys and values are kept; none: not at all.
    pub cache: Option<CacheKind>,
}

impl Request {
    /// Plain sampling with seed 0 and a cache in f32, up to so many new tokens.
    pub fn new(prompt: Vec<u32>, most_tokens: usize) -> Self {
        Self {
            prompt,
            sampling: Sampling::default(),
            most_tokens,
            ends: Vec::new(),
            constraints: Constraints::default(),
            cache: Some(CacheKind::F32),
        }
    }
}

/// A new token.
#[derive(Clone, Debug)]
pub struct Step {
    /// The token.
    pub id: u32,
    /// Its chance, among all that it was chosen from.
    pub probability: f32,
    /// The few most likely of these, the most likely first.
    pub likeliest: Vec<Candidate>,
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

/// How many tokens at the beginning of a prompt a model leaves out, because its context is shorter.
pub fn left_out(model: &dyn Generates, prompt: &[u32]) -> usize {
    prompt.len().saturating_sub(model.context())
}

/// Writes; calls `on_step` with every new token, the final one included. Gives the new tokens.
pub fn generate(
    model: &dyn Generates,
    request: &Request,
    mut on_step: impl FnMut(&Step) -> Flow,
) -> Result<(Vec<u32>, Finish)> {
    with_engine(model, 1, |client| {
        let mut new = Vec::new();
        for event in client.write(request, 1)? {
            match event? {
                Event::Token { step, .. } => {
                    new.push(step.id);
                    let stop = on_step(&step) == Flow::Stop;
                    if stop && !request.ends.contains(&step.id) {
                        return Ok((new, Finish::Stopped));
                    }
                }
                Event::End { finish, .. } => return Ok((new, finish)),
            }
        }
        Ok((new, Finish::Stopped)) // not reached: the last event of a text is its end
    })
}

/// Writes `count` texts at a time, which read the prompt once and draw with the seeds from that of
/// the request on; calls `on_step` with the number of the text and every new token, the final one
/// included. Gives the new tokens of each.
pub fn generate_several(
    model: &dyn Generates,
    request: &Request,
    count: usize,
    mut on_step: impl FnMut(usize, &Step) -> Flow,
) -> Result<Vec<(Vec<u32>, Finish)>> {
    with_engine(model, count.max(1), |client| {
        let mut found: Vec<(Vec<u32>, Option<Finish>)> = vec![(Vec::new(), None); count];
        let mut texts = client.write(request, count)?;
        while let Some(event) = texts.next() {
            match event? {
                Event::Token { text, step } => {
                    let (new, finish) = &mut found[text];
                    if finish.is_some() {
                        continue; // stopped, but on its way
                    }
                    new.push(step.id);
                    if on_step(text, &step) == Flow::Stop {
                        let end = request.ends.contains(&step.id);
                        *finish = Some(if end { Finish::End } else { Finish::Stopped });
                        texts.stop(text);
                    }
                }
                Event::End { text, finish } => {
                    found[text].1.get_or_insert(finish);
                }
            }
        }
        let finished =
            |(new, finish): (_, Option<Finish>)| (new, finish.unwrap_or(Finish::Stopped));
        Ok(found.into_iter().map(finished).collect())
    })
}

/// The likeliest texts by beam search; no longer than the model's context.
pub fn beam_search(
    model: &dyn Generates,
    prompt: &[u32],
    search: &BeamSearch,
    kind: CacheKind,
) -> Result<Vec<Found>> {
    with_engine(model, search.beams, |client| client.search(prompt, search, kind))
}
