//! What the model is made of, and the tokens of a text.

use crate::Session;
use crate::ask::Ask;
use hearken_base::{Error, Result};
use hearken_data::tokenizer::Tokenizer;
use hearken_explain::flow::{block, formula, part, words};
use hearken_explain::update::Updates;
use hearken_explain::{checked, stack_of};
use hearken_nn::models::TargetKind;
use hearken_tensor::{Param, Role};
use serde_json::{Value, json};

/// The map: parts with their parameters, stages with their shapes.
pub(crate) fn model(session: &Session<'_>) -> Result<Value> {
    let (model, subject) = (session.model(), session.subject);
    let config = model.config();
    let stack = stack_of(&config)?;
    let total: usize = model.parameters().iter().map(|p| p.shape().len()).sum();
    let mut parts: Vec<(String, Vec<&Param>)> = Vec::new();
    for parameter in model.parameters() {
        let name = part_of(parameter.name());
        match parts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, parameters)) => parameters.push(parameter),
            None => parts.push((name, vec![parameter])),
        }
    }
    let parts: Vec<Value> = parts.iter().map(|(name, own)| part_json(name, own)).collect();
    let stages = session.outline.iter().map(|(name, shape)| {
        let ((sentence, _), formula) = (words(name), formula(name, &config));
        json!({ "name": name, "shape": symbolic(name, shape), "sentence": sentence,
            "formula": formula, "block": block(name), "part": part(name) })
    });
    // What a target of one token or one label fits.
    let kind_of_target = TargetKind::of(model);
    let learns = matches!(kind_of_target, Some(TargetKind::Tokens | TargetKind::Classes(_)));
    let labels = model.classifies().map(|labels| labels.labels().to_vec());
    Ok(json!({
        "name": subject.name, "kind": kind(session), "summary": config.summary(),
        "parameters": total, "bytes": 4 * total, "parts": parts,
        "stages": stages.collect::<Vec<_>>(),
        "vocabulary": config.vocabulary(), "context": config.context(), "labels": labels,
        "stack": { "layers": stack.layers, "width": stack.width, "heads": stack.heads,
            "kv_heads": stack.kv_heads(), "head_width": stack.head_width(),
            "value_width": stack.value_width(), "feed_forward_width": stack.feed_forward_width(),
            "norm": format!("{:?}", stack.norm.kind).to_lowercase(),
            "placement": format!("{:?}", stack.norm.placement).to_lowercase(),
            "position": position(stack) },
        "tokenizer": session.pieces.as_ref().map(|pieces| json!({ "kind": pieces.kind(),
            "size": subject.tokenizer.as_ref().map(Tokenizer::vocabulary_size) })),
        "can": { "write": model.generates().is_some(),
            "predict": model.predicts_tokens().is_some(),
            "learn": learns },
        "start": { "ids": subject.ids,
            "target": subject.target.map(|(place, id)| json!([place, id])) },
        "update_bytes": Updates::bytes(model, 1),
        "weights_steps": session.updates.as_ref().map_or(0, Updates::steps),
    }))
}

fn kind(session: &Session<'_>) -> &'static str {
    let model = session.model();
    if model.generates().is_some() {
        "decoder"
    } else if model.encodes().is_some() {
        "encoder"
    } else {
        "model"
    }
}

/// The first word of the position's `Debug`: `Rope`, `Learned`, …
fn position(stack: &hearken_nn::config::StackConfig) -> String {
    let text = format!("{:?}", stack.position);
    text.split([' ', '{']).next().unwrap_or_default().to_lowercase()
}

/// The part of the model that a parameter belongs to: `blocks.0.attention`, `norm`, …
fn part_of(parameter: &str) -> String {
    let prefix = &parameter[..parameter.len() - part(parameter).len()];
    let own = part(parameter).split('.').next().unwrap_or_default();
    format!("{prefix}{own}")
}

fn part_json(name: &str, own: &[&Param]) -> Value {
    let count: usize = own.iter().map(|p| p.shape().len()).sum();
    // Two operations, a product and a sum, for every number of a matrix that a token is multiplied
    // with; tables are looked up.
    let multiplied = |p: &&&Param| p.shape().rank() == 2 && p.role() != Role::Table;
    let multiplied: usize = own.iter().filter(multiplied).map(|p| p.shape().len()).sum();
    let parameters = own
        .iter()
        .map(|p| json!({ "name": p.name(), "shape": p.shape().dims(), "count": p.shape().len() }));
    json!({ "name": name, "block": block(name), "count": count, "bytes": 4 * count,
        "operations": 2 * multiplied, "parameters": parameters.collect::<Vec<_>>() })
}

/// The shape with T and S for the tokens: the outline is of one token.
fn symbolic(name: &str, shape: &[usize]) -> Vec<String> {
    let square = crate::session::is_square(name);
    let mut dims: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let n = dims.len();
    if square && n == 3 {
        (dims[1], dims[2]) = ("T".to_owned(), "S".to_owned());
    } else if n >= 2 && shape[n - 2] == 1 {
        "T".clone_into(&mut dims[n - 2]);
    }
    dims
}

/// What each token of a text, or each of these ids, is made of.
pub(crate) fn tokens(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let ids = match ask.get("text") {
        Some(_) => session.encode(ask.text("text")?)?,
        None => ask.ids("ids")?,
    };
    if ids.is_empty() {
        return Err(Error::new("an empty prompt", "give at least one token"));
    }
    checked(session.model(), &ids)?;
    let one = |id: &u32| match &session.pieces {
        None => json!({ "id": id, "text": id.to_string() }),
        Some(pieces) => {
            let (start, merges) = pieces.merges(*id);
            let special = session.subject.tokenizer.as_ref().is_some_and(|t| t.is_special(*id));
            let merges = merges.iter().map(|m| json!({ "rank": m.rank, "pieces": m.pieces }));
            json!({ "id": id, "text": pieces.text(*id), "bytes": pieces.bytes(*id),
                "special": special, "start": start, "merges": merges.collect::<Vec<_>>() })
        }
    };
    let kind = session.pieces.as_ref().map(|pieces| pieces.kind().to_owned());
    Ok(json!({ "ids": ids, "kind": kind, "tokens": ids.iter().map(one).collect::<Vec<_>>() }))
}
