//! From the residual stream to logits, and from logits to a token.

use crate::Session;
use crate::ask::Ask;
use crate::encode::{exact, floats};
use hearken_base::{Error, Result};
use hearken_explain::attribution::{Glimpse, contributions, lens_at};
use hearken_infer::sampler::Sampling;
use hearken_tensor::Tensor;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Rows of the sampling table.
const ROWS: usize = 40;
/// Multiply-adds that a lens of all tokens may take: about a second.
const MOST_LENS: usize = 20_000_000_000;

/// The stream of one token: norms, the lens and what each part adds to a logit.
pub(crate) fn stream(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let ids = session.ids(ask)?;
    let place = ask.count_or("place", ids.len() - 1)?;
    let flow = session.flow(&ids, None)?;
    let glimpses = lens_at(session.model(), &flow, &[place], 5)?;
    let one = |glimpse: &Glimpse| glimpse_json(session, glimpse);
    let glimpses: Vec<Value> = glimpses.iter().flatten().map(one).collect();
    let best = glimpses.last().and_then(|last| last["likeliest"][0]["id"].as_u64());
    let token = match ask.count("token")? {
        Some(token) => u32::try_from(token).unwrap_or(u32::MAX),
        None => best.and_then(|id| u32::try_from(id).ok()).unwrap_or(0),
    };
    // A long prompt has no `mixed` at hand.
    let parts = if session.is_long(ids.len()) {
        None
    } else {
        let parts = contributions(session.model(), &flow, place, token)?.into_iter();
        Some(parts.map(|c| json!({ "part": c.part, "logit": c.logit })).collect::<Vec<_>>())
    };
    let logits = logits_of(session, &flow, place)?;
    Ok(json!({ "place": place, "token": { "id": token, "text": session.text(token) },
        "glimpses": glimpses, "contributions": parts,
        "logit": logits.get(token as usize).map(|l| exact(*l)) }))
}

/// The lens of all tokens at every half-layer: only the most likely token of each.
pub(crate) fn lens(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let ids = session.ids(ask)?;
    let config = session.model().config();
    let stack = hearken_explain::stack_of(&config)?;
    let rows = ids.len() * (1 + 2 * stack.layers);
    if rows * config.vocabulary() * stack.width > MOST_LENS {
        return Ok(
            json!({ "refused": "too many tokens for this vocabulary: the lens above shows one" }),
        );
    }
    let flow = session.flow(&ids, None)?;
    let places: Vec<usize> = (0..ids.len()).collect();
    let all = lens_at(session.model(), &flow, &places, 1)?;
    let row = |glimpses: &Vec<Glimpse>| {
        let cells = glimpses.iter().map(|g| {
            let (id, probability) = g.likeliest.first().copied().unwrap_or((0, 0.0));
            json!([id, session.text(id), probability, g.norm])
        });
        let stage = glimpses.first().map(|g| g.stage.clone());
        json!({ "stage": stage, "cells": cells.collect::<Vec<_>>() })
    };
    Ok(json!({ "rows": all.iter().map(row).collect::<Vec<_>>() }))
}

fn glimpse_json(session: &Session<'_>, glimpse: &Glimpse) -> Value {
    let likeliest = glimpse.likeliest.iter();
    let likeliest =
        likeliest.map(|(id, p)| json!({ "id": id, "text": session.text(*id), "probability": p }));
    json!({ "stage": glimpse.stage, "norm": glimpse.norm,
        "likeliest": likeliest.collect::<Vec<_>>() })
}

/// The logits at a place.
fn logits_of(
    session: &Session<'_>,
    flow: &hearken_explain::Flow,
    place: usize,
) -> Result<Vec<f32>> {
    let none = || Error::new("this model has no logits", "use one that predicts something");
    let logits: &Tensor = flow.value("logits").ok_or_else(none)?;
    let width = session.model().config().outputs().max(logits.shape().width());
    Ok(super::logit_row(logits.data(), width, place).to_vec())
}

/// The logits that the next token is drawn from, all of them.
pub(crate) fn logits(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let ids = session.ids(ask)?;
    let flow = session.flow(&ids, None)?;
    let logits = logits_of(session, &flow, ids.len() - 1)?;
    let first = hearken_explain::attribution::likeliest(&logits, 200).into_iter();
    let texts = first.map(|(id, _)| json!([id, super::label(session, id)]));
    Ok(json!({ "logits": floats(&logits), "texts": texts.collect::<Vec<_>>() }))
}

/// Temperature and filters, step by step, and the token that is drawn.
pub(crate) fn sample(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let ids = session.ids(ask)?;
    let number = |key: &str| -> Result<Option<f32>> {
        Ok(ask.get(key).map(|_| ask.number(key, 1.0)).transpose()?.map(|x| x as f32))
    };
    let full = Sampling {
        temperature: number("temperature")?.unwrap_or(1.0),
        top_k: ask.count("top_k")?,
        top_p: number("top_p")?,
        min_p: number("min_p")?,
        seed: ask.count_or("seed", 0)? as u64,
        ..Sampling::default()
    };
    full.validate()?;
    let flow = session.flow(&ids, None)?;
    let logits = logits_of(session, &flow, ids.len() - 1)?;
    let only = Sampling { top_k: None, top_p: None, min_p: None, ..full };
    let top_k = Sampling { top_k: full.top_k, ..only };
    let top_p = Sampling { top_p: full.top_p, ..top_k };
    let of = |sampling: &Sampling| -> HashMap<u32, f32> {
        let candidates = sampling.candidates(&logits, &ids);
        candidates.into_iter().map(|c| (c.id, c.probability)).collect()
    };
    let [warm, by_k, by_p, last] = [only, top_k, top_p, full].map(|sampling| of(&sampling));
    let divisor = if full.temperature == 0.0 { 1.0 } else { full.temperature };
    let rows = hearken_explain::attribution::likeliest(&logits, ROWS).into_iter().map(|(id, p)| {
        let removed = match id {
            id if !by_k.contains_key(&id) && warm.contains_key(&id) => Some("top-k"),
            id if !by_p.contains_key(&id) && by_k.contains_key(&id) => Some("top-p"),
            id if !last.contains_key(&id) && by_p.contains_key(&id) => Some("min-p"),
            id if !last.contains_key(&id) => Some("temperature 0"),
            _ => None,
        };
        json!({ "id": id, "text": super::label(session, id), "logit": exact(logits[id as usize]),
            "scaled": logits[id as usize] / divisor, "plain": p, "warm": warm.get(&id),
            "probability": last.get(&id), "removed": removed })
    });
    let rows: Vec<Value> = rows.collect();
    let chosen = full.choose(&logits, &ids, ids.len() as u64 - 1);
    Ok(json!({ "rows": rows, "of": logits.len(),
        "left": { "temperature": warm.len(), "top_k": by_k.len(), "top_p": by_p.len(),
            "min_p": last.len() },
        "chosen": { "id": chosen.id, "text": super::label(session, chosen.id),
            "probability": chosen.probability } }))
}
