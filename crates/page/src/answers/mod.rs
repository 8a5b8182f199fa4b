//! The answers, by theme. Each takes the session and the question.

pub(crate) mod attention;
pub(crate) mod cache;
pub(crate) mod changes;
pub(crate) mod geometry;
pub(crate) mod learning;
pub(crate) mod model;
pub(crate) mod neurons;
pub(crate) mod prediction;
pub(crate) mod values;

use crate::Session;
use crate::encode::exact;
use serde_json::{Value, json};

/// The most probable tokens of a row of logits.
fn likeliest(session: &Session<'_>, logits: &[f32], count: usize) -> Vec<Value> {
    let found = hearken_explain::attribution::likeliest(logits, count).into_iter();
    let one = |(id, probability): (u32, f64)| {
        json!({ "id": id, "text": label(session, id), "probability": probability,
            "logit": exact(logits[id as usize]) })
    };
    found.map(one).collect()
}

/// The text of a token, or the name of a label.
fn label(session: &Session<'_>, id: u32) -> String {
    if session.model().predicts_tokens().is_some() {
        return session.text(id);
    }
    let labels = session.model().classifies().map(|model| model.labels().to_vec());
    let named = labels.and_then(|labels| labels.get(id as usize).cloned());
    named.unwrap_or_else(|| id.to_string())
}

/// The row of logits of a place; of a model that labels texts, its only row.
fn logit_row(logits: &[f32], width: usize, place: usize) -> &[f32] {
    let rows = logits.len() / width.max(1);
    let row = place.min(rows.saturating_sub(1));
    logits.get(row * width..(row + 1) * width).unwrap_or_default()
}
