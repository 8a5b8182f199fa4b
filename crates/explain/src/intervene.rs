//! Ablation and patching: what changes if a value inside is another.

use crate::flow::Flow;
use crate::{checked, stack_of, stack_prefix, target_at};
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
    met(&taps)?;
    Ok(f64::from(loss.mean().value().item()))
}

/// Was there a value of every name?
fn met(taps: &Taps) -> Result<()> {
    match taps.unmet().first() {
        None => Ok(()),
        Some(pattern) => Err(Error::new(
            format!("no value of this model is called '{pattern}'"),
            "'hearken inspect trace --help' lists the names",
        )),
    }
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
    let source = recorded(model, ids, other, name, places)?;
    let before = loss(model, ids, target, Taps::new())?;
    let taps = Taps::new().replace(Pattern::parse(name)?, patched(source, ids.len(), places));
    Ok(Effect {
        what: format!("{name} of the other prompt"),
        before,
        after: loss(model, ids, target, taps)?,
    })
}

/// A value of another prompt, which is of the same length.
fn recorded(
    model: &dyn Model,
    ids: &[u32],
    other: &[u32],
    name: &str,
    places: &[usize],
) -> Result<Tensor> {
    if ids.len() != other.len() || places.iter().any(|place| *place >= ids.len()) {
        return Err(Error::new(
            format!("prompts of {} and {} tokens", ids.len(), other.len()),
            "patching needs prompts of equal length, and places within them",
        ));
    }
    let seen = Arc::new(Taps::new().record(Pattern::parse(name)?));
    let pass = Pass::evaluate().watched(&seen);
    let tokens = checked(model, other)?;
    no_grad(|| models::outputs(model, &tokens, &pass));
    seen.get(name).ok_or_else(|| {
        Error::new(format!("no value is called '{name}'"), "see 'inspect trace --help'")
    })
}

/// Takes the rows of these tokens from another value; rows are tokens, whatever stands before them.
fn patched(source: Tensor, length: usize, places: &[usize]) -> impl Fn(&Var) -> Var + use<> {
    let places = places.to_vec();
    move |x: &Var| {
        let mut new: Tensor = x.value().clone();
        let width = new.shape().width();
        for (i, row) in new.data_mut().chunks_mut(width.max(1)).enumerate() {
            if places.contains(&(i % length)) {
                row.copy_from_slice(&source.data()[i * width..(i + 1) * width]);
            }
        }
        Var::constant(new)
    }
}

/// One change of what happens inside, for [`logits_with`].
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The values of these names become zero; of all columns, or of one (a neuron).
    Ablate {
        /// Which values.
        names: Pattern,
        /// Which column.
        column: Option<usize>,
    },
    /// A value becomes that of another prompt of the same length, at these tokens.
    Patch {
        /// The value.
        name: String,
        /// The other prompt.
        other: Vec<u32>,
        /// At these tokens.
        places: Vec<usize>,
    },
    /// A number of a parameter becomes another.
    Edit {
        /// The parameter.
        parameter: String,
        /// Which number of it.
        index: usize,
        /// What it becomes.
        value: f32,
    },
}

/// All logits (…, V) of a prompt, with these changes together. Weights are left as they were.
pub fn logits_with(model: &dyn Model, ids: &[u32], changes: &[Change]) -> Result<Tensor> {
    let mut taps = Taps::new();
    let mut edits = Vec::new();
    for change in changes {
        match change {
            Change::Ablate { names, column: None } => taps = taps.replace(names.clone(), zero),
            Change::Ablate { names, column: Some(column) } => {
                let column = *column;
                taps = taps.replace(names.clone(), move |x: &Var| {
                    let mut new: Tensor = x.value().clone();
                    let width = new.shape().width().max(1);
                    let rows = new.data_mut().chunks_mut(width);
                    rows.filter_map(|row| row.get_mut(column)).for_each(|x| *x = 0.0);
                    Var::constant(new)
                });
            }
            Change::Patch { name, other, places } => {
                let source = recorded(model, ids, other, name, places)?;
                taps = taps.replace(Pattern::parse(name)?, patched(source, ids.len(), places));
            }
            Change::Edit { parameter, index, value } => edits.push((parameter, *index, *value)),
        }
    }
    for (name, index, _) in &edits {
        let size = crate::parameter(model, name).map(|p| p.shape().len());
        if size.is_none_or(|size| *index >= size) {
            return Err(Error::new(
                format!("there is no number {index} of a parameter '{name}'"),
                "'hearken inspect weights' lists the weights",
            ));
        }
    }
    let tokens = checked(model, ids)?;
    let before: Vec<_> =
        edits.iter().filter_map(|(name, ..)| crate::parameter(model, name)).collect();
    let before: Vec<_> = before.into_iter().map(|p| (p, p.value())).collect();
    for ((parameter, _), (_, index, value)) in before.iter().zip(&edits) {
        let mut new = parameter.value();
        new.data_mut()[*index] = *value;
        parameter.set_value(new);
    }
    let taps = Arc::new(taps);
    let pass = Pass::evaluate().watched(&taps);
    let outputs = no_grad(|| models::outputs(model, &tokens, &pass));
    // In reverse, so that a parameter that was edited twice is what it was at first.
    for (parameter, value) in before.into_iter().rev() {
        parameter.set_value(value);
    }
    met(&taps)?;
    let logits = outputs.into_iter().find(|(name, _)| *name == "logits");
    let logits = logits.map(|(_, logits)| logits.into_value());
    logits.ok_or_else(|| Error::new("this model has no logits", "use one that predicts something"))
}

/// A head's attention against its effect.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadEffect {
    /// The block.
    pub layer: usize,
    /// The head.
    pub head: usize,
    /// The largest weight in the row of the predicting token; none where a mechanism, such as linear
    /// attention, has no weights.
    pub attention: Option<f64>,
    /// By how much the loss rises if the head is silenced.
    pub rise: f64,
}

/// Every head silenced by itself: attention is not explanation.
pub fn heads(model: &dyn Model, flow: &Flow, target: (usize, u32)) -> Result<Vec<HeadEffect>> {
    let layers = stack_of(&model.config())?.layers;
    let each = (0..layers).map(|layer| heads_of(model, flow, target, layer));
    Ok(each.collect::<Result<Vec<_>>>()?.concat())
}

/// The same for the heads of one block.
pub fn heads_of(
    model: &dyn Model,
    flow: &Flow,
    target: (usize, u32),
    layer: usize,
) -> Result<Vec<HeadEffect>> {
    let before = loss(model, &flow.ids, target, Taps::new())?;
    let own = format!("{}blocks.{layer}", stack_prefix(model));
    let weights = flow.value(&format!("{own}.attention.weights"));
    let effect = |head: usize| {
        let name = format!("{own}.attention.mixed[{head}]");
        let taps = Taps::new().replace(Pattern::parse(&name)?, zero);
        let row = weights.map(|w| crate::row(w, head * flow.ids.len() + target.0));
        let attention = row.map(|row| row.iter().copied().fold(0.0, f32::max).into());
        let rise = loss(model, &flow.ids, target, taps)? - before;
        Ok(HeadEffect { layer, head, attention, rise })
    };
    (0..stack_of(&model.config())?.heads).map(effect).collect()
}
