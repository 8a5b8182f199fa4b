//! Ablation and patching: what changes if a value inside is another.

use crate::flow::Flow;
use crate::{checked, stack_of, target_at};
use hearken_base::{Error, Result};
use hearken_nn::models::{self, Model};
use hearken_nn::pass::Pass;
use hearken_nn::taps::{Pattern, Taps, zero};
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::{Tensor, Var, no_grad};
use std::sync::Arc;

/// The loss of a target, before and after.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// What was changed.
    pub what: String,
    /// −ln p of the target without the change.
    pub before: f64,
    /// And with it.
    pub after: f64,
}

/// The loss of `target` (place, token) in a pass with these taps.
fn loss(model: &dyn Model, ids: &[u32], target: (usize, u32), taps: Taps) -> Result<f64> {
    let targets = target_at(model, ids.len(), target.0, target.1)?;
    let taps = Arc::new(taps);
    let pass = Pass::evaluate().watched(&taps);
    let tokens = checked(model, ids)?;
    let loss = no_grad(|| models::loss(model, &tokens, &targets, &pass, Options::default()))?;
    if let Some(pattern) = taps.unmet().first() {
        return Err(Error::new(
            format!("no value of this model is called '{pattern}'"),
            "'hearken inspect trace --help' lists the names",
        ));
    }
    Ok(f64::from(loss.mean().value().item()))
}

/// Sets the values of all these names to zero, together.
pub fn ablate(
    model: &dyn Model,
    ids: &[u32],
    target: (usize, u32),
    names: &[Pattern],
) -> Result<Effect> {
    let before = loss(model, ids, target, Taps::new())?;
    let taps = names.iter().fold(Taps::new(), |taps, name| taps.replace(name.clone(), zero));
    let what: Vec<String> = names.iter().map(ToString::to_string).collect();
    Ok(Effect { what: what.join(", "), before, after: loss(model, ids, target, taps)? })
}

/// Replaces a value by that of another prompt, at these tokens alone; both prompts are of one length.
pub fn patch(
    model: &dyn Model,
    ids: &[u32],
    other: &[u32],
    target: (usize, u32),
    name: &str,
    places: &[usize],
) -> Result<Effect> {
    if ids.len() != other.len() || places.iter().any(|place| *place >= ids.len()) {
        return Err(Error::new(
            format!("prompts of {} and {} tokens", ids.len(), other.len()),
            "patching needs prompts of equal length, and places within them",
        ));
    }
    let pattern = Pattern::parse(name)?;
    let seen = Arc::new(Taps::new().record(pattern.clone()));
    let pass = Pass::evaluate().watched(&seen);
    let tokens = checked(model, other)?;
    no_grad(|| models::outputs(model, &tokens, &pass));
    let missing =
        || Error::new(format!("no value is called '{name}'"), "see 'inspect trace --help'");
    let source = seen.get(name).ok_or_else(missing)?;
    let (length, places) = (ids.len(), places.to_vec());
    let before = loss(model, ids, target, Taps::new())?;
    let taps = Taps::new().replace(pattern, move |x: &Var| {
        let mut new: Tensor = x.value().clone();
        // Rows are tokens, whatever stands before them.
        let width = new.shape().width();
        for (i, row) in new.data_mut().chunks_mut(width.max(1)).enumerate() {
            if places.contains(&(i % length)) {
                row.copy_from_slice(&source.data()[i * width..(i + 1) * width]);
            }
        }
        Var::constant(new)
    });
    Ok(Effect {
        what: format!("{name} of the other prompt"),
        before,
        after: loss(model, ids, target, taps)?,
    })
}

/// A head's attention against its effect.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadEffect {
    /// The block.
    pub layer: usize,
    /// The head.
    pub head: usize,
    /// The largest weight in the row of the predicting token.
    pub attention: f64,
    /// By how much the loss rises if the head is silenced.
    pub rise: f64,
}

/// Every head silenced by itself: attention is not explanation.
pub fn heads(model: &dyn Model, flow: &Flow, target: (usize, u32)) -> Result<Vec<HeadEffect>> {
    let config = model.config();
    let stack = stack_of(&config)?;
    let before = loss(model, &flow.ids, target, Taps::new())?;
    let mut found = Vec::new();
    for layer in 0..stack.layers {
        for head in 0..stack.heads {
            let name = format!("blocks.{layer}.attention.mixed[{head}]");
            let taps = Taps::new().replace(Pattern::parse(&name)?, zero);
            let weights = flow.value(&format!("blocks.{layer}.attention.weights"));
            let row = weights.map(|w| crate::row(w, head * flow.ids.len() + target.0));
            let attention = row.map_or(0.0, |row| row.iter().copied().fold(0.0, f32::max).into());
            let rise = loss(model, &flow.ids, target, taps)? - before;
            found.push(HeadEffect { layer, head, attention, rise });
        }
    }
    Ok(found)
}
