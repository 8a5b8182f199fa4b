//! Embeddings as points.

use crate::Session;
use crate::ask::Ask;
use hearken_base::{Error, Result};
use hearken_explain::geometry::{self, table};
use hearken_tensor::Tensor;
use serde_json::{Value, json};

/// Points that the plane is fitted to, at most.
const FITTED: usize = 1500;
/// Points that are shown beside those of the prompt.
const SHOWN: usize = 300;
/// Terms of a sum of tokens.
const MOST_TERMS: usize = 16;

/// The tokens nearest to a sum `[[factor, id], …]`.
pub(crate) fn nearest(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let table = table(session.model())?;
    let wrong = || Error::new("'sum' should be [[factor, token], …]", "as in [[1, 5], [-1, 7]]");
    let term = |value: &Value| {
        let factor = value.get(0).and_then(Value::as_f64).filter(|f| f.abs() <= 1e3)?;
        let id = u32::try_from(value.get(1)?.as_u64()?).ok()?;
        ((id as usize) < table.shape().rows()).then_some((factor as f32, id))
    };
    let sum: Option<Vec<(f32, u32)>> = ask.list("sum")?.iter().map(term).collect();
    let sum = sum.filter(|sum| (1..=MOST_TERMS).contains(&sum.len())).ok_or_else(wrong)?;
    let count = ask.count_or("count", 12)?.min(100);
    let found = geometry::nearest(&table, &sum, count).into_iter();
    let one = |n: geometry::Neighbour| {
        json!({ "id": n.id, "text": session.text(n.id), "cosine": n.cosine,
            "distance": n.distance })
    };
    Ok(json!({ "nearest": found.map(one).collect::<Vec<_>>() }))
}

fn evenly(rows: usize, most: usize) -> Vec<u32> {
    let step = rows.div_ceil(most).max(1);
    (0..rows as u32).step_by(step).collect()
}

/// A map of the embeddings: their first two principal components.
pub(crate) fn plane(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let table: Tensor = table(session.model())?;
    let rows = table.shape().rows();
    let own = ask.ids("ids")?;
    if own.iter().any(|id| *id as usize >= rows) {
        return Err(Error::new("a token that the model does not have", "tokens count from 0"));
    }
    let plane = match session.plane.take() {
        Some(plane) => plane,
        None => geometry::plane(&table, &evenly(rows, FITTED)),
    };
    let width = table.shape().width();
    let mut shown = evenly(rows, SHOWN);
    shown.extend(own.iter().filter(|id| !shown.contains(id)).copied().collect::<Vec<_>>());
    shown.dedup();
    let points = shown.into_iter().map(|id| {
        let [x, y] = plane.place(&table.data()[id as usize * width..(id as usize + 1) * width]);
        json!([id, session.text(id), x, y, own.contains(&id)])
    });
    let points: Vec<Value> = points.collect();
    let explained = plane.explained;
    session.plane = Some(plane);
    Ok(json!({ "points": points, "explained": explained, "of": rows }))
}
