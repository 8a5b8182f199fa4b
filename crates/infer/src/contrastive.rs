//! Contrastive search (Su et al. 2022): likely tokens, but not ones whose hidden state is close to
//! that of a token before. Without any draw, and without the loops of greedy texts.
//!
//! Of the k most likely tokens v, with p(v) the model's chance and h the last hidden states,
//!
//! ```text
//! score(v) = (1 − α)·p(v) − α·maxⱼ cos(h_v, hⱼ)        j over all tokens that the model sees
//! ```
//!
//! and the best is written, of equal ones the more likely. α = 0 is greedy. Every candidate is read,
//! all k in one step, to know its hidden state; that of the chosen one is the next step's.

use crate::client::constrained;
use crate::engine::not_a_number;
use crate::generate::{Finish, Flow, Request, Step};
use crate::sampler::{Candidate, Sampling};
use hearken_base::{Error, Result};
use hearken_nn::cache::CacheKind;
use hearken_nn::constraints::Place;
use hearken_nn::models::Generates;
use hearken_nn::slot::{Feed, Slot};
use hearken_tensor::Tensor;

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contrastive {
    /// α, from 0 to 1: how much likeness to earlier tokens costs.
    pub penalty: f32,
    /// k
    pub candidates: usize,
}

impl Contrastive {
    /// Are the settings in range?
    pub fn validate(&self) -> Result<()> {
        let hint = "0.6,4 is usual";
        if !(0.0..=1.0).contains(&self.penalty) {
            let message =
                format!("the penalty of contrastive search is {}, expected 0 to 1", self.penalty);
            return Err(Error::new(message, hint));
        }
        if !(1..=1024).contains(&self.candidates) {
            let message = format!(
                "contrastive search among {} candidates, expected 1 to 1024",
                self.candidates
            );
            return Err(Error::new(message, hint));
        }
        Ok(())
    }
}

/// A vector of length 1 in the same direction, or zeros.
fn direction(row: &[f32]) -> Vec<f32> {
    let norm = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let inverse = if norm > 0.0 { 1.0 / norm } else { 0.0 };
    row.iter().map(|x| (f64::from(*x) * inverse) as f32).collect()
}

/// The largest cosine of a direction with earlier ones; 0 if there are none.
fn likeness(of: &[f32], earlier: &[Vec<f32>]) -> f64 {
    let dot =
        |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum() };
    earlier.iter().map(|other| dot(of, other)).reduce(f64::max).unwrap_or(0.0)
}

/// What the model sees of a text.
struct Seen {
    slot: Slot,
    /// Directions of the hidden states of all tokens that it sees.
    hidden: Vec<Vec<f32>>,
    /// Of the next token (V)
    logits: Tensor,
}

impl Seen {
    /// Reads `tokens` from `start` on; so many of them all are a prefix, if the model has such.
    fn read(
        model: &dyn Generates,
        kind: CacheKind,
        tokens: &[u32],
        start: usize,
        prefix: usize,
    ) -> Self {
        let mut slot = model.slot(kind);
        if model.reads_prefix() {
            slot.set_prefix(prefix.saturating_sub(start));
        }
        let rows = model.step_hidden(&mut [Feed { ids: &tokens[start..], slot: &mut slot }]);
        let width = rows.shape().width();
        let last = Tensor::new([1, width], &rows.data()[rows.data().len() - width..]);
        let hidden = rows.data().chunks_exact(width).map(direction).collect();
        Self { slot, hidden, logits: model.logits_after(&last) }
    }
}

/// As [`generate`](crate::generate::generate), by contrastive search; the request's sampling is not
/// used.
pub fn contrastive_search(
    model: &dyn Generates,
    search: &Contrastive,
    request: &Request,
    mut on_step: impl FnMut(&Step) -> Flow,
) -> Result<(Vec<u32>, Finish)> {
    search.validate()?;
    crate::client::check_prompt(model, &request.prompt)?;
    if model.context() < 2 {
        let message = "contrastive search reads a token after another, and the context is 1";
        return Err(Error::new(message, "use another model"));
    }
    if model.recomputes() {
        return Err(Error::new(
            "contrastive search compares with what the model made of earlier tokens, and in this model a \
             later token changes that",
            "attention by a hash (lsh) reads everything again: draw tokens, or search with beams",
        ));
    }
    let Some(kind) = request.cache else {
        return Err(Error::new(
            "contrastive search reads its candidates after a cache, and there is none",
            "use a cache of any kind",
        ));
    };
    let Request { prompt, most_tokens, ends, .. } = request;
    let mut tokens = prompt.clone();
    let start = prompt.len().saturating_sub(model.context());
    let mut seen = Seen::read(model, kind, &tokens, start, prompt.len());
    // The most likely first; all of them have their chance among all tokens.
    let all = Sampling::default();
    for written in 1..=*most_tokens {
        if seen.logits.data().iter().any(|x| x.is_nan()) {
            return Err(not_a_number());
        }
        if seen.slot.len() >= model.context() {
            // No room to read a candidate: the older half is forgotten, as of any text.
            let start = tokens.len() - (model.context() / 2).max(1);
            seen = Seen::read(model, kind, &tokens, start, prompt.len());
        }
        let place = Place { tokens: &tokens, written: written - 1, most: *most_tokens };
        let logits = constrained(&request.constraints, place, seen.logits.data());
        let mut candidates = all.candidates(&logits, &tokens);
        // What is not allowed is not searched.
        candidates.retain(|candidate| logits[candidate.id as usize] > f32::NEG_INFINITY);
        candidates.truncate(search.candidates);
        let mut slots: Vec<Slot> = candidates.iter().map(|_| seen.slot.clone()).collect();
        let ids: Vec<[u32; 1]> = candidates.iter().map(|candidate| [candidate.id]).collect();
        let feeds = slots.iter_mut().zip(&ids).map(|(slot, id)| Feed { ids: id, slot });
        let rows = model.step_hidden(&mut feeds.collect::<Vec<_>>()); // (k, C)
        let width = rows.shape().width();
        let mut best: Option<(f64, usize, Vec<f32>)> = None;
        let alpha = f64::from(search.penalty);
        for (i, (row, candidate)) in rows.data().chunks_exact(width).zip(&candidates).enumerate() {
            let own = direction(row);
            let chance = f64::from(candidate.probability);
            let score = (1.0 - alpha) * chance - alpha * likeness(&own, &seen.hidden);
            if best.as_ref().is_none_or(|(most, ..)| score > *most) {
                best = Some((score, i, own));
            }
        }
        let Some((_, chosen, own)) = best else { return Err(not_a_number()) };
        let Candidate { id, probability } = candidates[chosen];
        tokens.push(id);
        let flow = on_step(&Step { id, probability, likeliest: candidates });
        let finish = if ends.contains(&id) {
            Finish::End
        } else if flow == Flow::Stop {
            Finish::Stopped
        } else if written == *most_tokens {
            Finish::Length
        } else {
            seen.slot = slots.swap_remove(chosen);
            seen.hidden.push(own);
            let row = &rows.data()[chosen * width..(chosen + 1) * width];
            seen.logits = model.logits_after(&Tensor::new([1, width], row));
            continue;
        };
        return Ok((tokens[prompt.len()..].to_vec(), finish));
    }
    Ok((Vec::new(), Finish::Length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likeness_is_the_largest_cosine() {
        let earlier = [direction(&[1.0, 0.0]), direction(&[3.0, 4.0])];
        assert!((likeness(&direction(&[0.0, 2.0]), &earlier) - 0.8).abs() < 1e-6);
        assert_eq!(likeness(&direction(&[0.0, 2.0]), &[]), 0.0);
        assert_eq!(direction(&[0.0, 0.0]), [0.0, 0.0]);
    }

    #[test]
    fn settings_out_of_range_are_errors() {
        let with = |penalty, candidates| Contrastive { penalty, candidates }.validate();
        assert!(with(0.6, 4).is_ok());
        for bad in [with(-0.1, 4), with(1.1, 4), with(f32::NAN, 4), with(0.5, 0)] {
            assert!(bad.unwrap_err().to_string().contains("hint: 0.6,4 is usual"));
        }
    }
}
