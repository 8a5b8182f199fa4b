//! Interventions: what changes if something inside is another.

use crate::Session;
use crate::ask::Ask;
use crate::encode::exact;
use hearken_base::{Error, Result};
use hearken_explain::arithmetic::softmax;
use hearken_explain::intervene::{Change, heads_of, logits_with};
use hearken_explain::{checked, stack_of, target_at};
use hearken_nn::taps::Pattern;
use hearken_tensor::Tensor;
use serde_json::{Value, json};

/// Changes at once.
const MOST_CHANGES: usize = 200;

/// The prediction at a place before and after some changes.
pub(crate) fn intervene(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let (ids, target) = (session.ids(ask)?, ask.target()?);
    if let Some((place, token)) = target {
        target_at(session.model(), ids.len(), place, token)?; // is it one?
    }
    let place = target.map_or(ids.len() - 1, |(place, _)| place);
    let changes = ask.list("changes")?;
    if changes.len() > MOST_CHANGES {
        let message = format!("{} changes at once", changes.len());
        return Err(Error::new(message, format!("at most {MOST_CHANGES}")));
    }
    let read = |value: &Value| read_change(session, Ask(value));
    let changes = changes.iter().map(read).collect::<Result<Vec<_>>>()?;
    let before = logits_with(session.model(), &ids, &[])?;
    let after = logits_with(session.model(), &ids, &changes)?;
    let (a, b) = (row_of(&before, place), row_of(&after, place));
    let loss = |row: &[f32]| {
        let (_, id) = target?;
        softmax(row, id as usize).map(|(_, p)| -p.ln())
    };
    let probability = |row: &[f32], id: u32| softmax(row, id as usize).map(|(_, p)| p);
    let side = |row: &[f32]| {
        json!({ "likeliest": super::likeliest(session, row, 8),
        "loss": loss(row) })
    };
    // The tokens that either side finds likely, on both sides.
    let mut seen: Vec<u32> = Vec::new();
    for row in [&a, &b] {
        for (id, _) in hearken_explain::attribution::likeliest(row, 8) {
            if !seen.contains(&id) {
                seen.push(id);
            }
        }
    }
    let both = seen.into_iter().map(|id| {
        json!({ "id": id, "text": super::label(session, id), "before": probability(&a, id),
            "after": probability(&b, id), "logit_before": exact(a[id as usize]),
            "logit_after": exact(b[id as usize]) })
    });
    let both: Vec<Value> = both.collect();
    Ok(json!({ "before": side(&a), "after": side(&b), "tokens": both,
        "divergence": divergence(&a, &b) }))
}

fn row_of(logits: &Tensor, place: usize) -> Vec<f32> {
    super::logit_row(logits.data(), logits.shape().width(), place).to_vec()
}

/// KL(before ‖ after) in nats.
fn divergence(a: &[f32], b: &[f32]) -> f64 {
    let log_total = |row: &[f32]| {
        let top = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        top + row.iter().map(|l| (f64::from(*l) - top).exp()).sum::<f64>().ln()
    };
    let (ta, tb) = (log_total(a), log_total(b));
    let term = |(a, b): (&f32, &f32)| {
        let (la, lb) = (f64::from(*a) - ta, f64::from(*b) - tb);
        if la.is_finite() { la.exp() * (la - lb) } else { 0.0 }
    };
    a.iter().zip(b).map(term).sum::<f64>().max(0.0)
}

/// `{"ablate": NAME, "column": N}`, `{"patch": NAME, "other": [ids], "places": […]}` or
/// `{"edit": PARAMETER, "index": N, "value": X}`.
fn read_change(session: &Session<'_>, ask: Ask<'_>) -> Result<Change> {
    if ask.get("ablate").is_some() {
        let names = Pattern::parse(ask.text("ablate")?)?;
        return Ok(Change::Ablate { names, column: ask.count("column")? });
    }
    if ask.get("patch").is_some() {
        let other = match ask.get("text") {
            Some(_) => session.encode_prompt(ask.text("text")?)?,
            None => ask.ids("other")?,
        };
        checked(session.model(), &other)?;
        let places = ask.ids("places")?.into_iter().map(|place| place as usize).collect();
        return Ok(Change::Patch { name: ask.text("patch")?.to_owned(), other, places });
    }
    if ask.get("edit").is_some() {
        let value = ask.number("value", 0.0)? as f32;
        if !value.is_finite() {
            return Err(Error::new("a weight beyond f32", "give a smaller number"));
        }
        let (parameter, index) = (ask.text("edit")?.to_owned(), ask.count_or("index", 0)?);
        return Ok(Change::Edit { parameter, index, value });
    }
    Err(Error::new("a change that is none", "write {\"ablate\": \"blocks.0.attention.mixed[1]\"}"))
}

/// Every head of a block silenced by itself, beside its largest weight.
pub(crate) fn effects(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let (ids, layer) = (session.ids(ask)?, ask.count_or("layer", 0)?);
    let none = || Error::new("there is no target", "choose what should follow");
    let target = ask.target()?.ok_or_else(none)?;
    let layers = stack_of(&session.model().config())?.layers;
    if layer >= layers {
        return Err(Error::new(
            format!("there is no block {layer}"),
            format!("there are {layers}"),
        ));
    }
    let flow = session.flow(&ids, None)?;
    let effects = heads_of(session.model(), &flow, target, layer)?.into_iter();
    let one = |e: hearken_explain::intervene::HeadEffect| json!({ "head": e.head, "attention": e.attention, "rise": e.rise });
    Ok(json!({ "layer": layer, "heads": effects.map(one).collect::<Vec<_>>() }))
}
