//! All heads of one attention layer: small pictures, entropy, roles.

use crate::Session;
use crate::ask::Ask;
use crate::encode::{Matrix, floats};
use hearken_base::{Error, Result};
use hearken_explain::flow::block;
use hearken_explain::roles;
use serde_json::{Value, json};

/// Pixels of a small picture.
const SIDE: usize = 48;

/// The heads of `site`, such as `blocks.0.attention`.
pub(crate) fn heads(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let (ids, site) = (session.ids(ask)?, ask.text("site")?);
    let name = format!("{site}.weights");
    let unknown = || Error::new(format!("there is no attention '{site}'"), "see the map");
    let shape = session.outline.iter().find(|(known, _)| *known == name).map(|(_, shape)| shape);
    let heads = *shape.and_then(|shape| shape.first()).ok_or_else(unknown)?;
    let mixes = format!("{site}.mixed_keys");
    let mixed = session.outline.iter().any(|(known, _)| *known == mixes);
    let flow = session.flow(&ids, None)?;
    let ids_of_rows = flow.rows_of(&name);
    let texts: Vec<String> = ids_of_rows.iter().map(|id| session.text(*id)).collect();
    let texts = session.pieces.is_some().then_some(&texts[..]);
    let whole = flow.value(&name).cloned();
    let alone = if whole.is_some() { Vec::new() } else { session.all_heads(&ids, &name)? };
    let mut found = Vec::new();
    for head in 0..heads {
        let (tensor, from) = match (&whole, alone.get(head)) {
            (Some(tensor), _) => (tensor, head),
            (None, Some(tensor)) => (tensor, 0),
            (None, None) => return Err(unknown()),
        };
        let dims = tensor.shape();
        let (rows, columns) = (dims.dims()[dims.rank() - 2], dims.width());
        let data = &tensor.data()[from * rows * columns..(from + 1) * rows * columns];
        let matrix = Matrix { data, rows, columns };
        let each: Vec<&[f32]> = (0..rows).map(|row| matrix.row(row)).collect();
        // Roles are about one sequence that attends to itself.
        let crossed = site.ends_with("cross_attention");
        let own = !crossed && rows == ids_of_rows.len() && columns == rows && !mixed;
        let layer = block(site).unwrap_or(0);
        let role = own.then(|| roles::of_head(layer, head, &each, ids_of_rows, texts));
        let entropies: Vec<f32> = each.iter().map(|row| entropy(row)).collect();
        let mean = entropies.iter().copied().map(f64::from).sum::<f64>() / rows.max(1) as f64;
        let scores = role.iter().flat_map(|role| &role.scores);
        let scores = scores.map(|(name, score)| json!({ "name": name, "score": score }));
        found.push(json!({ "head": head, "picture": matrix.thumbnail(SIDE),
            "entropy": role.as_ref().map_or(mean, |role| role.entropy), "entropies": floats(&entropies),
            "role": role.as_ref().and_then(|role| role.role.map(|(name, _)| name)),
            "score": role.as_ref().and_then(|role| role.role.map(|(_, score)| score)),
            "scores": scores.collect::<Vec<_>>() }));
    }
    Ok(json!({ "site": site, "heads": found, "threshold": roles::THRESHOLD,
        "uniform": roles::UNIFORM }))
}

fn entropy(row: &[f32]) -> f32 {
    let terms = row.iter().map(|w| f64::from(*w)).filter(|w| *w > 0.0).map(|w| -w * w.ln());
    terms.sum::<f64>() as f32
}
