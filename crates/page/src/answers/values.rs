//! The stages of a prompt, their numbers, and the sum behind one number.

use crate::Session;
use crate::ask::Ask;
use crate::encode::{Matrix, exact, floats};
use crate::session::is_square;
use hearken_base::{Error, Result};
use hearken_explain::arithmetic::{Terms, line};
use hearken_explain::{Flow, Focus, Stage, parameter};
use hearken_tensor::Tensor;
use serde_json::{Value, json};

/// A gradient norm below this share of that at the end of the stream vanishes; above its inverse it
/// explodes.
const VANISHING: f64 = 1e-3;

/// All stages, with norms; with a target also the loss and the norms of gradients.
pub(crate) fn run(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let ids = session.ids(ask)?;
    let target = ask.target()?;
    let flow = session.flow(&ids, target)?;
    let norm = |tensor: &Tensor| {
        let square = |x: &f32| f64::from(*x).powi(2);
        tensor.data().iter().filter(|x| x.is_finite()).map(square).sum::<f64>().sqrt()
    };
    // The gradient where it enters the stream: that of the last sum.
    let is_end = |stage: &&Stage| stage.part() == "residual_after";
    let end = flow.stages.iter().rev().find(is_end).and_then(Stage::gradient_norm);
    let stages = flow.stages.iter().map(|stage| {
        let gradient = target.and_then(|_| stage.gradient_norm());
        let mark = gradient.zip(end).and_then(|(own, end)| {
            let stream = stage.part().starts_with("residual") || stage.part() == "embedding";
            match own / end {
                share if stream && share < VANISHING => Some("vanishing"),
                share if stream && share > 1.0 / VANISHING => Some("exploding"),
                _ => None,
            }
        });
        json!({ "name": stage.name, "shape": stage.shape, "norm": norm(&stage.value),
            "gradient_norm": gradient, "mark": mark })
    });
    let bytes: usize = flow.stages.iter().map(|s| 4 * s.value.shape().len()).sum();
    let mut answer = json!({ "stages": stages.collect::<Vec<_>>(), "loss": target.and(flow.loss).map(exact),
        "milliseconds": session.took(&flow), "bytes": bytes, "long": session.is_long(ids.len()),
        "steps": session.updates.as_ref().map_or(0, hearken_explain::update::Updates::steps) });
    if let Some(logits) = flow.value("logits") {
        let place = target.map_or(ids.len() - 1, |(place, _)| place);
        let row = super::logit_row(logits.data(), logits.shape().width(), place);
        answer["next"] = super::likeliest(session, row, 5).into();
    }
    Ok(answer)
}

/// A value, a gradient or a parameter: which numbers, and how they lie.
struct Found {
    tensor: Tensor,
    shape: Vec<usize>,
    head: usize,
    /// Holds the tensor this head alone?
    alone: bool,
}

impl Found {
    /// The dimensions of one head.
    fn matrix(&self) -> Matrix<'_> {
        let (rows, columns) = match self.shape[..] {
            [] => (1, 1),
            [columns] => (1, columns),
            [.., rows, columns] => (rows, columns),
        };
        let size = rows * columns;
        let from = if self.alone { 0 } else { self.head * size };
        Matrix { data: &self.tensor.data()[from..from + size], rows, columns }
    }

    fn heads(&self) -> usize {
        if self.shape.len() == 3 { self.shape[0] } else { 1 }
    }
}

fn unknown(name: &str) -> Error {
    Error::new(format!("no value is called '{name}'"), "the map of the model has all names")
}

/// Finds what a question names: `name`, `head`, `gradient`, `parameter`.
fn find(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Found> {
    let name = ask.text("name")?;
    if ask.flag("parameter") {
        let found = parameter(session.model(), name).ok_or_else(|| unknown(name))?;
        let (tensor, shape) = (found.value(), found.shape().dims().to_vec());
        return Ok(Found { tensor, shape, head: 0, alone: false });
    }
    let ids = session.ids(ask)?;
    let (target, wanted) = (ask.target()?, ask.count_or("head", 0)?);
    let flow = session.flow(&ids, target)?;
    if let Some(stage) = flow.stage(name) {
        let heads = if stage.shape.len() == 3 { stage.shape[0] } else { 1 };
        let tensor = if ask.flag("gradient") {
            let hint = "choose a target first";
            let none = || Error::new(format!("{name} has no gradient"), hint);
            stage.gradient.clone().filter(|_| target.is_some()).ok_or_else(none)?
        } else {
            stage.value.clone()
        };
        let head = wanted.min(heads.saturating_sub(1));
        return Ok(Found { tensor, shape: stage.shape.clone(), head, alone: false });
    }
    on_demand(session, &ids, name, wanted)
}

/// A value of a prompt that is too long for all of them to be kept.
fn on_demand(session: &mut Session<'_>, ids: &[u32], name: &str, wanted: usize) -> Result<Found> {
    let outline = session.outline.iter().find(|(known, _)| known == name);
    let (_, shape) = outline.ok_or_else(|| unknown(name))?;
    let (heads, square) = (shape.first().copied().unwrap_or(1), is_square(name));
    if square {
        let head = wanted.min(heads.saturating_sub(1));
        let tensor = session.value(ids, &format!("{name}[{head}]"))?; // (1, T, S)
        let [_, rows, columns] = tensor.dims();
        return Ok(Found { tensor, shape: vec![heads, rows, columns], head, alone: true });
    }
    let tensor = session.value(ids, name)?;
    let shape = tensor.shape().dims().get(1..).unwrap_or_default().to_vec();
    let heads = if shape.len() == 3 { shape[0] } else { 1 };
    Ok(Found { tensor, shape, head: wanted.min(heads.saturating_sub(1)), alone: false })
}

/// A window of a value, a gradient or a parameter.
pub(crate) fn tensor(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let found = find(session, ask)?;
    let matrix = found.matrix();
    let rows = ask.range("rows", matrix.rows)?;
    let columns = ask.range("columns", matrix.columns)?;
    let mut answer = matrix.window(rows, columns);
    answer["shape"] = json!(found.shape);
    answer["heads"] = json!(found.heads());
    answer["head"] = json!(found.head);
    Ok(answer)
}

/// One number: exact, with its gradient and the sum that it comes from.
pub(crate) fn number(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let found = find(session, ask)?;
    let matrix = found.matrix();
    let row = ask.count_or("row", 0)?.min(matrix.rows.saturating_sub(1));
    let column = ask.count_or("column", 0)?.min(matrix.columns.saturating_sub(1));
    let value = *matrix.row(row).get(column).ok_or_else(|| unknown("of this place"))?;
    let mut answer = json!({ "value": exact(value), "hidden": value == f32::NEG_INFINITY,
        "row": row, "column": column, "head": found.head,
        "index": (found.head * matrix.rows + row) * matrix.columns + column });
    if ask.flag("parameter") {
        return Ok(answer);
    }
    let (ids, name) = (session.ids(ask)?, ask.text("name")?);
    let flow = session.flow(&ids, ask.target()?)?;
    let focus = Focus { head: found.head, token: row, column };
    let Some(stage) = flow.stage(name) else { return Ok(answer) };
    // A flow may have gradients from an earlier question.
    if let (Some(gradient), true) = (&stage.gradient, ask.get("target").is_some()) {
        answer["gradient"] = exact(gradient.data()[stage.at(focus).0]);
    }
    answer["arithmetic"] = arithmetic(session, &flow, stage, focus);
    Ok(answer)
}

fn arithmetic(session: &Session<'_>, flow: &Flow, stage: &Stage, focus: Focus) -> Value {
    let Some(line) = line(session.model(), flow, stage, focus) else { return Value::Null };
    let terms = match &line.terms {
        Terms::Plain => Value::Null,
        Terms::Products { names, left, right, divisor, plus } => json!({ "kind": "products",
            "names": names, "left": floats(left), "right": floats(right), "divisor": divisor,
            "plus": plus }),
        Terms::Softmax { scores, at } => {
            json!({ "kind": "softmax", "scores": floats(scores), "at": at })
        }
        Terms::Norm { x, mean, deviation, gain, bias } => json!({ "kind": "norm", "x": floats(x),
            "mean": mean, "deviation": deviation, "gain": gain, "bias": bias }),
    };
    json!({ "text": line.text, "computed": line.computed, "terms": terms })
}
