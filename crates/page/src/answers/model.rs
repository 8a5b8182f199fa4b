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
    let order = blocks(session);
    let parts: Vec<Value> = parts.iter().map(|(name, own)| part_json(name, own, &order)).collect();
    let stages = session.outline.iter().map(|(name, shape)| {
        let ((sentence, _), formula) = (words(name), formula(name, &config));
        json!({ "name": name, "shape": symbolic(name, shape), "sentence": sentence,
            "formula": formula, "block": place_of(name, &order), "part": part(name) })
    });
    // What a target of one token or one label fits.
    let kind_of_target = TargetKind::of(model);
    let learns = matches!(kind_of_target, Some(TargetKind::Tokens | TargetKind::Classes(_)));
    let labels = model.classifies().map(|labels| labels.labels().to_vec());
    Ok(json!({
        "name": subject.name, "kind": kind(session), "summary": config.summary(),
        "parameters": total, "bytes": 4 * total, "parts": parts,
        "stages": stages.collect::<Vec<_>>(),
        "blocks": order.iter().map(|name| title(name)).collect::<Vec<_>>(),
        "source": subject.sources.as_ref().map(|sources| json!({ "ids": sources.source.ids(),
            "begin": sources.begin })),
        "texts": subject.texts.rows.len(),
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

/// The blocks in the order in which they are computed: `blocks.0`, or `encoder.blocks.0`, …
fn blocks(session: &Session<'_>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in session.outline.iter().filter_map(|(name, _)| block_name(name)) {
        if found.iter().all(|known| known != name) {
            found.push(name.to_owned());
        }
    }
    found
}

/// What stands before a part of a block.
fn block_name(name: &str) -> Option<&str> {
    block(name)?;
    name[..name.len() - part(name).len()].strip_suffix('.')
}

/// The number of the block of a stage or a parameter, counted over both stacks.
fn place_of(name: &str, blocks: &[String]) -> Option<usize> {
    let own = block_name(name)?;
    blocks.iter().position(|block| block == own)
}

/// `block 0`, or `encoder 0` and `decoder 0`.
fn title(block: &str) -> String {
    let number = block.rsplit('.').next().unwrap_or_default();
    match block.split_once(".blocks.") {
        Some((stack, _)) => format!("{stack} {number}"),
        None => format!("block {number}"),
    }
}

fn kind(session: &Session<'_>) -> &'static str {
    let model = session.model();
    if session.subject.sources.is_some() {
        "encoder-decoder"
    } else if model.generates().is_some() {
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

fn part_json(name: &str, own: &[&Param], blocks: &[String]) -> Value {
    let count: usize = own.iter().map(|p| p.shape().len()).sum();
    // Two operations, a product and a sum, for every number of a matrix that a token is multiplied
    // with; tables are looked up.
    let multiplied = |p: &&&Param| p.shape().rank() == 2 && p.role() != Role::Table;
    let multiplied: usize = own.iter().filter(multiplied).map(|p| p.shape().len()).sum();
    let parameters = own
        .iter()
        .map(|p| json!({ "name": p.name(), "shape": p.shape().dims(), "count": p.shape().len() }));
    let first = own.first().map_or("", |p| p.name());
    json!({ "name": name, "block": place_of(first, blocks), "count": count, "bytes": 4 * count,
        "operations": 2 * multiplied, "parameters": parameters.collect::<Vec<_>>() })
}

/// The shape with T and S for the tokens: the outline is of one token.
fn symbolic(name: &str, shape: &[usize]) -> Vec<String> {
    let square = crate::session::is_square(name);
    let mut dims: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let n = dims.len();
    let source = name.starts_with("encoder.")
        || name.ends_with("cross_attention.keys")
        || name.ends_with("cross_attention.values");
    let rows = if source { "S" } else { "T" };
    if square && n == 3 {
        (dims[1], dims[2]) = (rows.to_owned(), "S".to_owned());
    } else if n >= 2 && shape[n - 2] == 1 {
        rows.clone_into(&mut dims[n - 2]);
    }
    dims
}

/// What each token of a text, or each of these ids, is made of.
pub(crate) fn tokens(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let ids = match ask.get("text") {
        Some(_) => {
            let text = ask.text("text")?;
            match ask.get("as").and_then(Value::as_str) {
                None => session.encode(text)?,
                Some("prompt") => session.encode_prompt(text)?,
                Some("source") => session.encode_source(text)?,
                Some(other) => {
                    let message = format!("'{other}' is nothing that tokens are for");
                    return Err(Error::new(message, "write prompt or source"));
                }
            }
        }
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
    let text = session.text_of(&ids);
    let tokens: Vec<Value> = ids.iter().map(one).collect();
    Ok(json!({ "ids": ids, "kind": kind, "text": text, "tokens": tokens }))
}
