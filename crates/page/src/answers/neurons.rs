//! Neurons by the texts that excite them most.

use crate::Session;
use crate::ask::Ask;
use crate::encode::exact;
use hearken_base::{Error, Result};
use hearken_explain::neurons::{self as search, Excitement, MOST_PLACES, Neuron, Neurons};
use hearken_nn::models::Model;
use hearken_tensor::Tensor;
use serde_json::{Value, json};

/// Places that are kept of each neuron.
const KEPT: usize = 12;
/// Neurons that are listed.
const LISTED: usize = 60;
/// Tokens before an exciting one that are shown, and behind it.
const CONTEXT: [usize; 2] = [24, 8];
/// Multiply-adds that reading the texts may take: a few seconds.
const MOST_WORK: usize = 150_000_000_000;

/// `stage`: whose neurons; `neuron`: the one whose places are shown with their context; the most selective
/// one, unless given.
pub(crate) fn neurons(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let (ids, stage) = (session.ids(ask)?, ask.text("stage")?);
    let count = ask.count_or("count", 8)?.clamp(1, KEPT.min(MOST_PLACES));
    let (texts, of_texts) = texts(session, &ids, stage);
    let known = session.neurons.iter().position(|kept| of_texts && kept.stage == stage);
    let found = match known {
        Some(at) => session.neurons.swap_remove(at),
        None => search_in(session, &texts, stage)?,
    };
    let order = found.by_selectivity();
    let chosen = ask.count("neuron")?.or(order.first().copied()).unwrap_or(0);
    let missing = || {
        let hint = format!("neurons are 0 to {}", found.neurons.len().saturating_sub(1));
        Error::new(format!("there is no neuron {chosen}"), hint)
    };
    let own = found.neurons.get(chosen).ok_or_else(missing)?;
    let mut places = Vec::new();
    for place in own.places.iter().take(count) {
        let ids = texts.get(place.text).map_or(&[][..], |ids| ids);
        let values = read(session, ids, stage)?;
        places.push(place_json(session, place, ids, &values, chosen));
    }
    let listed = order.iter().take(LISTED).map(|i| (i, &found.neurons[*i]));
    let listed = listed.map(|(i, neuron)| summary(*i, neuron)).collect::<Vec<_>>();
    let mut chosen = summary(chosen, own);
    chosen["places"] = places.into();
    let rows = session.subject.texts.rows.len();
    let answer = json!({ "stage": stage, "neurons": found.neurons.len(), "tokens": found.tokens,
        "texts": texts.len(), "of_texts": of_texts.then_some(rows),
        "name": of_texts.then_some(&session.subject.texts.name), "listed": listed,
        "chosen": chosen });
    if of_texts {
        session.neurons.push(found);
    }
    Ok(answer)
}

fn summary(number: usize, neuron: &Neuron) -> Value {
    json!({ "neuron": number, "selectivity": neuron.selectivity(), "active": neuron.active,
        "rms": neuron.rms, "lowest": exact(neuron.lowest),
        "highest": neuron.places.first().map(|place| exact(place.value)) })
}

fn place_json(
    session: &Session<'_>,
    place: &Excitement,
    ids: &[u32],
    values: &Tensor,
    neuron: usize,
) -> Value {
    let from = place.place.saturating_sub(CONTEXT[0]);
    let to = (place.place + 1 + CONTEXT[1]).min(ids.len());
    let width = values.shape().width();
    let token = |t: usize| json!([session.text(ids[t]), exact(values.data()[t * width + neuron])]);
    json!({ "text": place.text, "place": place.place, "value": exact(place.value), "from": from,
        "length": ids.len(), "tokens": (from..to).map(token).collect::<Vec<_>>() })
}

/// As many of the texts as can be read in a few seconds; the prompt, where there are none, or where
/// the texts are sources and the layer reads the target. And: are they the texts?
fn texts(session: &Session<'_>, ids: &[u32], stage: &str) -> (Vec<Vec<u32>>, bool) {
    let rows = &session.subject.texts.rows;
    let encoder = stage.starts_with("encoder.");
    if rows.is_empty() || (session.subject.sources.is_some() && !encoder) {
        let own = if encoder { session.source() } else { ids.to_vec() };
        return (vec![own], false);
    }
    let weights: usize = session.model().parameters().iter().map(|p| p.shape().len()).sum();
    let mut left = MOST_WORK / weights.max(1);
    let fits = |row: &&Vec<u32>| {
        let fits = left >= row.len();
        left = left.saturating_sub(row.len());
        fits
    };
    let found: Vec<Vec<u32>> = rows.iter().take_while(fits).cloned().collect();
    // One at least.
    (if found.is_empty() { vec![rows[0].clone()] } else { found }, true)
}

fn read(session: &Session<'_>, ids: &[u32], stage: &str) -> Result<Tensor> {
    match &session.subject.sources {
        Some(sources) if stage.starts_with("encoder.") => {
            search::values_of_source(session.model(), &sources.source, ids, stage)
        }
        _ => search::values(session.model(), ids, stage),
    }
}

fn search_in(session: &Session<'_>, texts: &[Vec<u32>], stage: &str) -> Result<Neurons> {
    let model: &dyn Model = session.model();
    match &session.subject.sources {
        Some(sources) if stage.starts_with("encoder.") => {
            search::neurons_of_sources(model, &sources.source, texts, stage, KEPT, &mut |_| {})
        }
        _ => search::neurons(model, texts, stage, KEPT, &mut |_| {}),
    }
}
