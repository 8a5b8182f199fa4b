//! The gradient of a loss with respect to the vector of the first token, by their distance.
//!
//! Rows are a letter, tokens that mean nothing, and a sign after which the letter is asked for. What is
//! measured is −ln p of a letter that is drawn: the loss of the right one has no gradient left once a
//! model is sure of it.

use super::{SMALLEST, by_seed, color, factor, norm, shown};
use crate::outcome::{Drawing, Line, Listing, Outcome};
use crate::page::seeds_in_words;
use crate::request::Request;
use crate::rows::{CURRICULUM, RowTask, Rows, growing, judge};
use crate::sizes::{decoder, training, transformer};
use crate::statistics::{Sample, best, slope};
use crate::trials::{Watch, seconds_of_a_step, seconds_of_all, trials};
use hearken_base::Result;
use hearken_kernels::threads;
use hearken_nn::config::{CellKind, ModelConfig, RecurrentConfig};
use hearken_nn::models::{self, PredictsTokens};
use hearken_nn::pass::Pass;
use hearken_nn::scope::Weights;
use hearken_nn::taps::Taps;
use hearken_show::number::{percent, thousands};
use hearken_tensor::ops::cross_entropy::{IGNORED, Options};
use hearken_tensor::rng::Rng;
use hearken_train::{Better, Moment, TrainConfig};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

const NAMES: [&str; 4] = ["rnn", "gru", "lstm", "transformer"];
const LETTERS: usize = 16;
const FILLERS: usize = 8;
const ASK: u32 = (LETTERS + FILLERS) as u32;
const VOCABULARY: usize = LETTERS + FILLERS + 1;
const LAYERS: usize = 2;
const WIDTH: usize = 64;
const HEADS: usize = 2;
/// Tokens from x₀ to the loss.
const DISTANCES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Rows over which norms are averaged, and rows that are judged.
const MEASURED: usize = 32;
const JUDGED: usize = 128;
/// How long the short training is.
struct Scale {
    steps: u64,
    rows: usize,
    /// The largest distance of training.
    trained: usize,
}

const QUICK: Scale = Scale { steps: 300, rows: 16, trained: 32 };
const FULL: Scale = Scale { steps: 1500, rows: 32, trained: 64 };

/// Rows of a letter, `distance − 1` fillers and the sign; the letter is the target, or another one.
fn rows(count: usize, distance: usize, right: bool, rng: &mut Rng) -> Rows {
    let mut rows = Rows::default();
    for _ in 0..count {
        let letter = rng.below(LETTERS) as u32;
        let mut ids = vec![letter];
        ids.extend((1..distance).map(|_| (LETTERS + rng.below(FILLERS)) as u32));
        ids.push(ASK);
        let mut targets = vec![IGNORED; ids.len()];
        targets[distance] = if right { letter } else { rng.below(LETTERS) as u32 };
        rows.push(&ids, &targets);
    }
    rows
}

fn training_rows(at: Moment, config: &TrainConfig, most: usize) -> Rows {
    let mut rng = at.rng();
    let distance = growing(at, config.steps, 1..=most, &mut rng);
    rows(config.batch_size, distance, true, &mut rng)
}

fn model(contender: &str) -> ModelConfig {
    let longest = DISTANCES[DISTANCES.len() - 1] + 1;
    let recurrent = |cell| {
        let mut config: ModelConfig = RecurrentConfig::new(cell, longest, LAYERS, WIDTH).into();
        config.set_vocabulary(VOCABULARY);
        config
    };
    match contender {
        "rnn" => recurrent(CellKind::Rnn),
        "gru" => recurrent(CellKind::Gru),
        "lstm" => recurrent(CellKind::Lstm),
        _ => decoder(transformer(LAYERS, WIDTH, HEADS), VOCABULARY, longest),
    }
}

/// ‖∂L_t/∂x₀‖ at each distance, the mean over rows.
fn measure(model: &dyn PredictsTokens) -> Vec<f64> {
    let at = |distance: &usize| {
        let mut rng = Rng::at(0x6772_6164_6965_6e74, *distance as u64);
        let rows = rows(MEASURED, *distance, false, &mut rng);
        let taps = Arc::new(Taps::new().record_gradient("embedding"));
        let pass = Pass::evaluate().watched(&taps);
        let loss = model.loss(&rows.tokens(), &rows.targets, &pass, Options::default());
        loss.sum.backward();
        model.parameters().iter().for_each(|parameter| parameter.set_gradient(None));
        let gradient = taps.get("d.embedding").expect("every model has an embedding"); // (B, T, C)
        let [batch, tokens, width] = gradient.dims();
        let row = |row: usize| norm(&gradient.data()[row * tokens * width..][..width]);
        (0..batch).map(row).sum::<f64>() / batch as f64
    };
    DISTANCES.iter().map(at).collect()
}

/// What one contender came to with one seed.
struct Run {
    fresh: Vec<f64>,
    trained: Vec<f64>,
    /// Right answers at the largest distance of training.
    accuracy: f64,
}

fn one(
    request: &Request,
    watch: &Watch<'_>,
    contender: &str,
    scale: &Scale,
    seed: u64,
) -> Result<Run> {
    let config = setting(request, scale, seed);
    let built = models::build(&model(contender), Weights::Drawn { seed });
    let mut task = RowTask::new(built, |at| training_rows(at, &config, scale.trained));
    let fresh = measure(task.model());
    let name = format!("{contender}, seed {seed}");
    let trained = watch.train(&name, &mut task, &config, |_, _, _| Ok(()))?;
    let mut rng = Rng::at(0x6a75_6467_6564, scale.trained as u64);
    let judged = judge(task.model(), &rows(JUDGED, scale.trained, true, &mut rng));
    let diverged = if trained.diverged { f64::NAN } else { 1.0 };
    Ok(Run {
        fresh,
        trained: measure(task.model()).into_iter().map(|norm| norm * diverged).collect(),
        accuracy: judged.accuracy * diverged,
    })
}

fn setting(request: &Request, scale: &Scale, seed: u64) -> TrainConfig {
    training(request.steps(scale.steps), scale.rows, 3e-3, seed)
}

/// Those that take part.
fn names(request: &Request) -> Vec<&'static str> {
    NAMES.into_iter().filter(|name| request.has(name)).collect()
}

/// Seconds that all of it takes, about: each is trained, and measured before and after.
pub(super) fn estimate(request: &Request, seeds: usize) -> Result<f64> {
    let scale = request.sized(&QUICK, &FULL);
    let mut all = Vec::new();
    for contender in &names(request) {
        let config = setting(request, scale, 0);
        let built = models::build(&model(contender), Weights::Drawn { seed: 0 });
        let mean = scale.trained / 3 + 1;
        let make = |at: Moment| rows(scale.rows, mean, true, &mut at.rng());
        let mut task = RowTask::new(built, make);
        let step = seconds_of_a_step(&mut task, &config)?;
        let started = Instant::now();
        threads::with_threads(1, || measure(task.model()));
        let measured = started.elapsed().as_secs_f64();
        all.extend(vec![step * config.steps as f64 + 2.0 * measured; seeds]);
    }
    Ok(seconds_of_all(&all))
}

/// Adds what was found to the outcome, and gives the numbers.
pub(super) fn run(request: &Request, seeds: &[u64], outcome: &mut Outcome) -> Result<Value> {
    let (names, scale) = (names(request), request.sized(&QUICK, &FULL));
    if names.is_empty() {
        return Ok(json!({}));
    }
    let jobs: Vec<(&'static str, u64)> =
        names.iter().flat_map(|name| seeds.iter().map(|seed| (*name, *seed))).collect();
    let runs = trials(request, "gradients", jobs.len(), |i, watch| {
        one(request, watch, jobs[i].0, scale, jobs[i].1)
    })?;
    let of = |name: &str| -> Vec<&Run> {
        jobs.iter().zip(&runs).filter(|(job, _)| job.0 == name).map(|(_, run)| run).collect()
    };
    let lines = |norms: fn(&Run) -> &Vec<f64>| -> Vec<Line> {
        let line = |name: &&'static str| Line {
            name: (*name).to_owned(),
            color: color(name),
            points: (DISTANCES.iter().enumerate())
                .map(|(i, t)| {
                    let relative = |run: &&Run| norms(run)[i] / norms(run)[0];
                    (*t as f64, of(name).iter().map(relative).collect())
                })
                .collect(),
        };
        names.iter().map(line).collect()
    };
    outcome.method.push(method(request, scale, seeds));
    let accuracy: Vec<(String, Sample)> = (names.iter())
        .map(|name| ((*name).to_owned(), of(name).iter().map(|run| run.accuracy).collect()))
        .collect();
    let (fresh, trained) = (lines(|run| &run.fresh), lines(|run| &run.trained));
    // What lies beyond the distances of training says nothing of what was learned.
    add(outcome, "before training", &fresh, scale.trained, DISTANCES[DISTANCES.len() - 1]);
    add(outcome, "after training", &trained, scale.trained, scale.trained);
    let said: Vec<String> = (accuracy.iter())
        .map(|(name, sample)| format!("{name} {}", sample.show(|x| percent(x, 0))))
        .collect();
    outcome.findings.push(format!(
        "right answers at distance {} after this training: {}",
        scale.trained,
        said.join(", ")
    ));
    let numbers = |lines: &[Line]| -> Value {
        lines
            .iter()
            .map(|line| (line.name.clone(), line.json()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let right: serde_json::Map<String, Value> =
        accuracy.into_iter().map(|(name, sample)| (name, json!(sample.values))).collect();
    Ok(json!({
        "before": numbers(&fresh), "after": numbers(&trained),
        "accuracy": right, "trained_to": scale.trained,
    }))
}

/// Charts, a table and sentences for models in one state: `compared` at one distance, and fitted up to
/// another.
fn add(outcome: &mut Outcome, when: &str, lines: &[Line], compared: usize, fitted: usize) {
    let title = format!("By distance, {when}");
    let about = format!(
        "‖∂L_t/∂x₀‖ by the distance t, as a share of that at distance 1, {when}; a straight line would \
         be a power of the distance, a line that bends down ever more steeply a constant factor per token."
    );
    outcome.drawings.push(
        Drawing::of(&title, "distance in tokens", "share of the gradient at 1", lines, about)
            .in_doublings()
            .logarithmic(),
    );
    let about = format!(
        "‖∂L_t/∂x₀‖ as a share of that at distance 1. Behind it the factor per token and the power of the \
         distance, each fitted by least squares to the logarithms up to distance {fitted}, where the norm is \
         above {SMALLEST:.0e} of that at 1; the distance at which it is 0 is beyond what f32 holds."
    );
    let mut listing = Listing::of(&title, thousands, lines, shown, about);
    listing.table.columns.extend(["factor per token", "power"].map(str::to_owned));
    for (row, line) in listing.table.rows.iter_mut().zip(lines) {
        row.push(fit(line, fitted, factor).show(|x| format!("{x:.3}")));
        row.push(fit(line, fitted, power).show(|x| format!("{x:.2}")));
    }
    outcome.listings.push(listing);
    outcome.findings.extend(findings(when, lines, compared, fitted));
}

/// The slope in log–log.
fn power(points: &[(f64, f64)]) -> f64 {
    let usable: Vec<(f64, f64)> = points.iter().copied().filter(|(_, y)| *y > SMALLEST).collect();
    slope(&usable)
}

/// By seed, of the points up to a distance.
fn fit(line: &Line, most: usize, of: fn(&[(f64, f64)]) -> f64) -> Sample {
    let near: Vec<(f64, Sample)> =
        line.points.iter().filter(|(t, _)| *t <= most as f64).cloned().collect();
    by_seed(&near, of)
}

/// The largest of these distances that takes part in a fit.
fn reach(line: &Line, most: usize) -> f64 {
    let seen = line.points.iter().filter(|(t, sample)| {
        *t <= most as f64 && sample.values.iter().any(|norm| *norm > SMALLEST)
    });
    seen.map(|(t, _)| *t).fold(0.0, f64::max)
}

fn findings(when: &str, lines: &[Line], compared: usize, fitted: usize) -> Vec<String> {
    let at: Vec<(String, Sample)> = (lines.iter())
        .filter_map(|line| {
            let point = line.points.iter().find(|point| point.0 == compared as f64)?;
            Some((line.name.clone(), point.1.clone()))
        })
        .collect();
    let what = format!("the largest share of the gradient at distance {compared} {when}");
    let mut found = vec![best(&what, Better::Higher, &at, shown)];
    let is_recurrent = |line: &&Line| line.name != "transformer";
    let rates: Vec<String> = (lines.iter().filter(is_recurrent))
        .map(|line| {
            let rate = fit(line, fitted, factor).show(|x| format!("{x:.3}"));
            format!("{} {rate} up to distance {}", line.name, reach(line, fitted))
        })
        .collect();
    if !rates.is_empty() {
        found.push(format!(
            "{when}, the gradient of recurrent networks is multiplied with every token by (fitted as far \
             as it can be measured): {}",
            rates.join("; ")
        ));
    }
    for line in lines.iter().filter(|line| !is_recurrent(line)) {
        let power = fit(line, fitted, power).show(|x| format!("{x:.2}"));
        found.push(format!(
            "{when}, up to distance {}, the gradient of the {} goes as the distance to the power of \
             (fitted): {power}",
            reach(line, fitted),
            line.name
        ));
    }
    found
}

fn method(request: &Request, scale: &Scale, seeds: &[u64]) -> String {
    format!(
        "By distance: a letter, tokens that mean nothing, and a sign after which the letter is asked for. \
         The loss is −ln p of a letter that is drawn, at the sign alone, and x₀ the vector of the first \
         token; norms are means over {MEASURED} rows. All models have {LAYERS} layers of width {WIDTH}. The \
         training: {} steps of {} rows, distances that grow to {} in the first {} of them, AdamW (learning \
         rate 0.003). {}.",
        thousands(request.steps(scale.steps) as f64),
        scale.rows,
        scale.trained,
        percent(CURRICULUM, 0),
        seeds_in_words(seeds),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_ask_for_their_first_letter() {
        let mut rng = Rng::at(1, 2);
        for distance in [1, 2, 9] {
            let made = rows(5, distance, true, &mut rng);
            for (ids, targets) in
                made.inputs.chunks(distance + 1).zip(made.targets.chunks(distance + 1))
            {
                assert!(ids[0] < LETTERS as u32 && ids[distance] == ASK);
                assert_eq!(targets[distance], ids[0]);
                assert!(targets[..distance].iter().all(|target| *target == IGNORED));
            }
        }
    }

    #[test]
    fn what_is_measured_is_finite_and_falls_in_a_fresh_network() {
        let built = models::build(&model("rnn"), Weights::Drawn { seed: 3 });
        let norms = measure(built.predicts_tokens().unwrap());
        assert!(norms.iter().all(|norm| norm.is_finite() && *norm >= 0.0));
        assert!(norms[5] < 0.01 * norms[0], "{norms:?}");
        assert!(built.parameters().iter().all(|parameter| parameter.gradient().is_none()));
    }
}
