//! One gradient against differences, and the optimiser's steps.

use crate::Session;
use crate::ask::Ask;
use crate::encode::exact;
use hearken_base::{Error, Result};
use hearken_explain::difference::{Effort, check_value, check_weight};
use hearken_explain::parameter;
use hearken_explain::update::{BETAS, DECAY, EPSILON, Updates, WeightStep};
use serde_json::{Value, json};
use std::time::Instant;

/// Products of parameters and tokens above which a check makes do with fewer points.
const LARGE: usize = 200_000_000;
/// So many steps can be taken back, if there is memory for them.
const MOST_STEPS: usize = 20;

fn target(ask: Ask<'_>) -> Result<(usize, u32)> {
    ask.target()?.ok_or_else(|| Error::new("there is no target", "choose what should follow"))
}

/// The gradient of one number of a value or of a parameter, against differences of the loss.
pub(crate) fn check(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let (ids, target, name) = (session.ids(ask)?, target(ask)?, ask.text("name")?);
    let index = ask.count_or("index", 0)?;
    let model = session.model();
    let weights: usize = model.parameters().iter().map(|p| p.shape().len()).sum();
    let large = weights.saturating_mul(ids.len()) > LARGE;
    let effort = if large { Effort::QUICK } else { Effort::THOROUGH };
    let start = Instant::now();
    let found = if ask.flag("parameter") {
        check_weight(model, &ids, target, name, index, effort)?
    } else {
        let flow = session.flow(&ids, Some(target))?;
        check_value(model, &flow, target, name, index, effort)?
    };
    Ok(json!({ "gradient": found.gradient, "slope": found.slope, "rounding": found.rounding,
        "hidden": found.is_hidden(), "error": found.error(), "losses": effort.losses(),
        "milliseconds": start.elapsed().as_secs_f64() * 1e3 }))
}

/// `action`: `step`, `undo`, `reset`, or nothing for a look. With `name` and `index`, what the last
/// step did to that weight.
pub(crate) fn update(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let model = session.model();
    let rate = ask.number("lr", 1e-3)?;
    if !(rate > 0.0 && rate <= 10.0) {
        return Err(Error::new(format!("a learning rate of {rate}"), "0.001 is usual"));
    }
    let one = Updates::bytes(model, 1);
    let each = Updates::bytes(model, 2).saturating_sub(one);
    let affordable = session.subject.most_bytes.map_or(MOST_STEPS as u64, |most| {
        if most < one { 0 } else { 1 + (most - one) / each.max(1) }
    });
    let most_steps = (affordable as usize).min(MOST_STEPS);
    let mut step = None;
    match ask.get("action").and_then(Value::as_str) {
        None => {}
        Some("step") => {
            let (ids, target) = (session.ids(ask)?, target(ask)?);
            let mut updates = match session.updates.take() {
                Some(updates) => updates,
                None => {
                    Updates::new(model, rate, 1.0, most_steps.max(1), session.subject.most_bytes)?
                }
            };
            let full = updates.steps() >= most_steps;
            updates.set_rate(rate);
            let taken = if full { None } else { Some(updates.step(&ids, target)) };
            session.updates = Some(updates);
            session.forget();
            let hint = "take some back first";
            let none = || Error::new(format!("{most_steps} steps are the most that fit"), hint);
            step = Some(taken.ok_or_else(none)??);
        }
        Some("undo") => {
            session.updates.as_mut().map(Updates::undo);
            session.forget();
        }
        Some("reset") => {
            if let Some(updates) = &mut session.updates {
                while updates.undo() {}
            }
            session.updates = None; // with its moments
            session.forget();
        }
        Some(other) => {
            let message = format!("'{other}' is no action");
            return Err(Error::new(message, "write step, undo or reset"));
        }
    }
    let updates = session.updates.as_ref();
    let mut answer = json!({ "steps": updates.map_or(0, Updates::steps), "bytes": one,
        "bytes_per_step": each, "most_steps": most_steps, "lr": rate,
        "betas": BETAS, "epsilon": EPSILON, "decay": DECAY });
    if let Some(step) = step {
        answer["step"] = json!({ "before": step.before, "after": step.after,
            "gradient_norm": step.gradient_norm, "clip_factor": step.clip_factor });
    }
    if ask.get("name").is_some() {
        let (name, index) = (ask.text("name")?, ask.count_or("index", 0)?);
        let missing = || {
            let hint = "the map of the model lists the parameters";
            Error::new(format!("there is no number {index} of a parameter '{name}'"), hint)
        };
        let own = parameter(model, name).ok_or_else(missing)?;
        let value = *own.value().data().get(index).ok_or_else(missing)?;
        answer["weight"] = json!({ "name": name, "index": index, "value": exact(value),
            "shape": own.shape().dims(),
            "change": updates.and_then(|u| u.of_weight(name, index)).map(|step| change(&step)) });
    }
    Ok(answer)
}

fn change(step: &WeightStep) -> Value {
    json!({ "before": exact(step.before), "after": exact(step.after),
        "gradient": exact(step.gradient), "clip_factor": step.clip_factor,
        "first": step.first.map(exact), "second": step.second.map(exact),
        "corrections": step.corrections, "decay": step.decay, "lr": step.rate, "t": step.step,
        "computed": step.computed() })
}
