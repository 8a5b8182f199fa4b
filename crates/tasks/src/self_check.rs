//! Checks of a whole model that need no reference: what must hold for any weights.
//!
//! Each check asks for an ability of the model ([`Generates`], a loss, …) and is skipped, with the
//! reason, for a model that does not have it. Inputs are random tokens of a fixed seed, so that a
//! result can be repeated.
//!
//! - **weights**: every number is finite.
//! - **future**: a model that writes does not see the tokens after a place.
//! - **padding**: what padding holds changes nothing, and a padded row gives what it gives alone.
//! - **cache**: decoding token by token gives the logits of the whole sequence.
//! - **gradients**: those of a few parameters against differences of the loss.
//! - **save**: saved and loaded again, the model has the same bits and computes the same bits.

mod gradients;
#[cfg(test)]
mod tests;

use crate::open::OpenModel;
use hearken_base::{Error, Kind, Result};
use hearken_formats as formats;
use hearken_nn::cache::CacheKind;
use hearken_nn::models::{self, Generates, Model, TargetKind, Targets, Tokens};
use hearken_nn::pass::{Layout, Pass};
use hearken_nn::slot::{Feed, Slot};
use hearken_tensor::rng::Rng;
use hearken_tensor::{Tensor, no_grad};
use std::io::ErrorKind;
use std::path::Path;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not hold.
    Failed,
    /// It does not apply to this model.
    Skipped,
}

/// What a check has found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its name.
    pub check: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// The largest error that was found.
    pub error: Option<f64>,
    /// The error that is allowed; 0 means the same bits.
    pub bound: Option<f64>,
    /// What was compared, or why not.
    pub detail: String,
}

impl Finding {
    fn skipped(check: &'static str, why: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::Skipped, error: None, bound: None, detail: why.into() }
    }

    /// Passed, if the error is within its bound and all else is `well`.
    fn measured(check: &'static str, error: f64, bound: f64, well: bool, detail: String) -> Self {
        let passed = error <= bound && well; // false for NaN
        let outcome = if passed { Outcome::Passed } else { Outcome::Failed };
        Self { check, outcome, error: Some(error), bound: Some(bound), detail }
    }
}

/// Tokens of a sequence, at most.
const LENGTH: usize = 32;
/// Why a model whose attention goes by buckets cannot pass some checks.
const RECOMPUTES: &str = "buckets are cut into chunks over the whole text, so a later token changes \
                          which earlier ones meet, and everything is read again for it";
/// Tokens of a source, at most.
const SOURCE: usize = 9;
/// The other order of sums in decoding and in rows of another length, as a share of the largest
/// number: a few dozen roundings of f32 (6e-8 each) per layer.
const ORDER_OF_SUMS: f64 = 1e-4;

/// The names of all checks, in the order of [`check`].
pub const CHECKS: [&str; 6] = ["weights", "future", "padding", "cache", "gradients", "save"];

/// Runs all checks. `scratch` is an empty directory with room for the model; `go_on` is given the
/// name of each check before it starts, and stops everything if it says no. Weights and gradients are
/// left as they were.
pub fn check(
    open: &OpenModel,
    scratch: &Path,
    go_on: &mut dyn FnMut(&'static str) -> bool,
) -> Result<Vec<Finding>> {
    let model = open.model.as_ref();
    let mut found: Vec<Finding> = Vec::new();
    for check in CHECKS {
        if !go_on(check) {
            let kind = Kind::Io(ErrorKind::Interrupted);
            return Err(Error::of(kind, "the checks were interrupted", "start them again"));
        }
        if found.first().is_some_and(|weights| weights.outcome == Outcome::Failed) {
            // NaN would make every other check fail for the same reason.
            found.push(Finding::skipped(check, "some weights are not finite"));
            continue;
        }
        found.push(match check {
            "weights" => weights(model),
            "future" => future(model),
            "padding" => padding(model),
            "cache" => cache(model),
            "gradients" => gradients::check(model, &sample(model, 1, length(model)))?,
            _ => save(open, scratch)?,
        });
    }
    Ok(found)
}

fn length(model: &dyn Model) -> usize {
    model.config().context().min(LENGTH)
}

/// B rows of random tokens, and what they should be answered with.
struct Sample {
    ids: Vec<u32>,
    rows: usize,
    targets: Option<Targets>,
}

fn sample(model: &dyn Model, rows: usize, length: usize) -> Sample {
    let mut rng = Rng::new(20);
    let vocabulary = model.config().vocabulary();
    let mut below = |n: usize, count: usize| -> Vec<u32> {
        (0..count).map(|_| rng.below(n.max(1)) as u32).collect()
    };
    let ids = below(vocabulary, rows * length);
    let targets = TargetKind::of(model).map(|kind| match kind {
        TargetKind::Tokens => Targets::Tokens(below(vocabulary, rows * length)),
        TargetKind::Tags(n) => Targets::Tokens(below(n, rows * length)),
        TargetKind::Classes(n) => Targets::Classes(below(n, rows)),
        TargetKind::Several(n) => {
            Targets::Several(below(2, rows * n).into_iter().map(|x| x as f32).collect())
        }
        TargetKind::Numbers(n) => {
            Targets::Numbers(below(5, rows * n).into_iter().map(|x| x as f32 - 2.0).collect())
        }
        TargetKind::Spans => {
            Targets::Spans { starts: below(length, rows), ends: below(length, rows) }
        }
    });
    Sample { ids, rows, targets }
}

// What depends on how a model is fed is in the next three functions alone, so that a kind of model
// that needs more than its own tokens (a source, say) is given it here.

/// The model as one that writes.
fn writer(model: &dyn Model) -> Option<&dyn Generates> {
    model.generates().or_else(|| model.translates().map(|model| model as &dyn Generates))
}

/// A source for each row, of a model that reads one; the same for all.
fn sources(model: &dyn Model, rows: usize) -> Vec<u32> {
    let length = length(model).min(SOURCE);
    let vocabulary = model.config().vocabulary().max(1);
    let one = (0..length).map(|i| ((3 * i + 1) % vocabulary) as u32);
    one.cycle().take(rows * length).collect()
}

/// Runs `f` on B rows of tokens as the model reads them.
fn fed<R>(
    model: &dyn Model,
    ids: &[u32],
    rows: usize,
    layout: Layout,
    f: impl FnOnce(&Tokens<'_>) -> R,
) -> R {
    let tokens = Tokens::new(ids, rows).laid_out(layout);
    if model.translates().is_none() {
        return f(&tokens);
    }
    let sources = sources(model, rows);
    f(&tokens.about(&Tokens::new(&sources, rows)))
}

/// The state of a sequence that has not begun.
fn slot(model: &dyn Model, writer: &dyn Generates) -> Slot {
    let begun = model.translates().map(|model_with_source| {
        model_with_source.begin(&Tokens::new(&sources(model, 1), 1), CacheKind::F32).remove(0)
    });
    begun.unwrap_or_else(|| writer.slot(CacheKind::F32))
}

fn outputs(
    model: &dyn Model,
    ids: &[u32],
    rows: usize,
    layout: Layout,
) -> Vec<(&'static str, Tensor)> {
    let found = fed(model, ids, rows, layout, |tokens| {
        no_grad(|| models::outputs(model, tokens, &Pass::evaluate()))
    });
    found.into_iter().map(|(name, value)| (name, value.into_value())).collect()
}

/// The logits (1, T, V) of one row.
fn logits(model: &dyn Model, writer: &dyn Generates, ids: &[u32]) -> Tensor {
    fed(model, ids, 1, Layout::default(), |tokens| writer.logits(tokens))
}

/// The largest difference of two lists of numbers; two numbers of the same bits have none.
fn difference(a: &[f32], b: &[f32]) -> f64 {
    let one = |(a, b): (&f32, &f32)| {
        if a.to_bits() == b.to_bits() { 0.0 } else { (f64::from(*a) - f64::from(*b)).abs() }
    };
    let worst = |most: f64, x: f64| if x.is_nan() || x > most { x } else { most };
    a.iter().zip(b).map(one).fold(0.0, worst)
}

fn largest(numbers: &[f32]) -> f64 {
    numbers.iter().filter(|x| x.is_finite()).fold(0.0, |most, x| f64::from(x.abs()).max(most))
}

fn weights(model: &dyn Model) -> Finding {
    let (mut count, mut most, mut wrong) = (0, 0.0_f64, Vec::new());
    for parameter in model.parameters() {
        let value = parameter.value();
        count += value.shape().len();
        most = most.max(largest(value.data()));
        if value.data().iter().any(|x| !x.is_finite()) {
            wrong.push(parameter.name());
        }
    }
    let detail = match wrong[..] {
        [] => format!("all {} numbers are finite, the largest is {most:.3}", grouped(count)),
        [first, ..] => format!(
            "{} of {} parameters hold NaN or ∞, the first is {first}",
            wrong.len(),
            model.parameters().len()
        ),
    };
    let outcome = if wrong.is_empty() { Outcome::Passed } else { Outcome::Failed };
    Finding { check: "weights", outcome, error: None, bound: None, detail }
}

fn grouped(count: usize) -> String {
    hearken_show::number::thousands(count as f64)
}

/// Changes the tokens from several places on: no logit before may change, and some logit after must.
fn future(model: &dyn Model) -> Finding {
    const NAME: &str = "future";
    let Some(writer) = writer(model) else {
        return Finding::skipped(NAME, "the model reads in both directions");
    };
    if writer.recomputes() {
        return Finding::skipped(NAME, RECOMPUTES);
    }
    let (length, vocabulary) = (length(model), writer.vocabulary());
    if length < 2 || vocabulary < 2 {
        return Finding::skipped(NAME, "one token has no future");
    }
    let ids = sample(model, 1, length).ids;
    let before = logits(model, writer, &ids); // (1, T, V)
    let (mut worst, mut seen) = (0.0_f64, true);
    let mut places = vec![length / 4, length / 2, length - 1];
    places.retain(|place| *place > 0);
    places.dedup();
    for place in &places {
        let mut changed = ids.clone();
        for id in changed.iter_mut().skip(*place) {
            *id = (*id + 1) % vocabulary as u32;
        }
        let after = logits(model, writer, &changed);
        let split = place * vocabulary;
        let error = difference(&before.data()[..split], &after.data()[..split]);
        worst = if error.is_nan() { error } else { worst.max(error) };
        seen &= before.data()[split..] != after.data()[split..];
    }
    let detail = if seen {
        format!(
            "tokens from place {} on changed: logits before them keep their bits",
            places.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        )
    } else {
        "the model does not react to its input: other tokens give the same logits".to_owned()
    };
    Finding::measured(NAME, worst, 0.0, seen, detail)
}

/// Two rows, the second padded to the length of the first.
fn padding(model: &dyn Model) -> Finding {
    const NAME: &str = "padding";
    let (length, vocabulary) = (length(model), model.config().vocabulary());
    let short = length / 2;
    if short == 0 || vocabulary < 2 {
        return Finding::skipped(NAME, "the context has no room for padding");
    }
    let ids = sample(model, 2, length).ids;
    let lengths = [length, short];
    let run = |ids: &[u32]| outputs(model, ids, 2, Layout::padded(&lengths));
    let before = run(&ids);
    if before.is_empty() {
        return Finding::skipped(NAME, "the model reads no rows of tokens");
    }
    let mut changed = ids.clone();
    for id in &mut changed[length + short..] {
        *id = (*id + 1) % vocabulary as u32;
    }
    let after = run(&changed);
    let alone = outputs(model, &ids[length..length + short], 1, Layout::default());
    let (mut leaked, mut apart) = (0.0_f64, 0.0_f64);
    for (((name, before), (_, after)), (_, alone)) in before.iter().zip(&after).zip(&alone) {
        let (own, [first, second]) = (alone.data(), visible(name, before, &lengths));
        let [new_first, new_second] = visible(name, after, &lengths);
        leaked = leaked.max(difference(first, new_first)).max(difference(second, new_second));
        apart = apart.max(difference(second, own) / largest(own).max(1e-6));
    }
    let detail = format!(
        "{} padded tokens changed: what is visible keeps its bits; a padded row differs from the \
         row alone by {apart:.1e} of its largest number (bound {ORDER_OF_SUMS:.0e})",
        length - short
    );
    Finding::measured(NAME, leaked, 0.0, apart <= ORDER_OF_SUMS, detail)
}

/// What is visible of each of two rows: a number per token (B, T, …), but for the padding, or a
/// result per row (B, …).
fn visible<'a>(name: &str, value: &'a Tensor, lengths: &[usize; 2]) -> [&'a [f32]; 2] {
    let shape = value.shape();
    let dims = shape.dims();
    let per_token = dims.len() == 3 || name.ends_with("_logits");
    let each = value.data().len() / 2;
    let rows = [&value.data()[..each], &value.data()[each..]];
    // What has another length is of the source, which has no padding.
    if !per_token || dims[1] != lengths[0] {
        return rows;
    }
    let width = each / dims[1].max(1);
    [&rows[0][..lengths[0] * width], &rows[1][..lengths[1] * width]]
}

/// Half of a sequence as a prompt, the rest token by token.
fn cache(model: &dyn Model) -> Finding {
    const NAME: &str = "cache";
    let Some(writer) = writer(model) else {
        return Finding::skipped(NAME, "the model does not write token by token");
    };
    if writer.recomputes() {
        return Finding::skipped(NAME, RECOMPUTES);
    }
    let length = length(model);
    let ids = sample(model, 1, length).ids;
    let whole = logits(model, writer, &ids); // (1, T, V)
    let error = no_grad(|| cache_error(slot(model, writer), writer, &ids, &whole));
    let detail = format!(
        "a prompt of {} and then token by token, against the whole sequence at once",
        (length / 2).max(1)
    );
    Finding::measured(NAME, error, ORDER_OF_SUMS, true, detail)
}

fn cache_error(mut slot: Slot, writer: &dyn Generates, ids: &[u32], whole: &Tensor) -> f64 {
    let vocabulary = writer.vocabulary();
    let (prompt, rest) = ids.split_at((ids.len() / 2).max(1));
    let mut worst = 0.0_f64;
    let mut done = 0;
    for new in std::iter::once(prompt).chain(rest.chunks(1)) {
        let got = writer.step(&mut [Feed { ids: new, slot: &mut slot }]); // (1, V)
        done += new.len();
        let want = &whole.data()[(done - 1) * vocabulary..done * vocabulary];
        let error = difference(got.data(), want) / largest(want).max(1e-6);
        worst = if error.is_nan() { return error } else { worst.max(error) };
    }
    worst
}

/// Saves the model, loads it again and compares parameters and results bit by bit.
fn save(open: &OpenModel, scratch: &Path) -> Result<Finding> {
    let model = open.model.as_ref();
    let family = formats::save(scratch, model, &open.special)?;
    let again = formats::load(scratch)?;
    let pairs = || model.parameters().iter().zip(again.model.parameters());
    let same_parameters = model.parameters().len() == again.model.parameters().len()
        && pairs().all(|(a, b)| a.name() == b.name() && a.shape() == b.shape());
    let mut error =
        pairs().map(|(a, b)| difference(a.value().data(), b.value().data())).fold(0.0, f64::max);
    let (ids, length) = (sample(model, 1, length(model)).ids, length(model));
    let results = |model: &dyn Model| outputs(model, &ids, 1, Layout::default());
    let (before, after) = (results(model), results(again.model.as_ref()));
    for ((_, before), (_, after)) in before.iter().zip(&after) {
        error = error.max(difference(before.data(), after.data()));
    }
    let well = same_parameters && before.len() == after.len();
    let detail = format!(
        "written as {} and read again: {} parameters and the results of {length} tokens",
        family.model_type,
        model.parameters().len()
    );
    Ok(Finding::measured("save", error, 0.0, well, detail))
}
