//! Is a model right as often as it is sure, and which temperature makes it so?
//!
//! Examples are halved: those with even numbers fit the temperature, those with odd numbers judge the
//! model before and after, so that no answer is judged by a temperature that was fitted to it. The
//! measures are those of [`hearken_infer::calibration`]. [`Saved`] keeps a temperature in the
//! directory of its model, where `classify` and `generate` find it.

// A file from strangers is read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

use crate::open::OpenModel;
use hearken_base::{Error, Result};
use hearken_data::batches::{Batch, Examples, IGNORED};
use hearken_infer::calibration::{Bin, Binning, bins, expected_error, fit_temperature, judge};
use hearken_kernels::threads;
use hearken_nn::layers::select_rows;
use hearken_nn::models::PredictsTokens;
use hearken_nn::pass::Pass;
use hearken_show::svg::{BLUE, GREY, ORANGE};
use hearken_show::{Chart, Mark, Series};
use hearken_tensor::no_grad;
use hearken_tensor::rng::Rng;
use hearken_train::files;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Mutex;

/// Where a temperature is kept in the directory of a model.
pub const FILE: &str = "calibration.json";
/// Bytes of that file, at most.
const MOST_BYTES: u64 = 1 << 16;
/// Bins of a diagram, unless told otherwise: as in Guo et al. 2017.
pub const BINS: usize = 15;
/// Logits that are kept to fit a temperature: 200 MB. If there are more answers, a sample is kept.
const MOST_LOGITS: usize = 50_000_000;
/// Logits that are computed at a time.
const AT_ONCE: usize = 1 << 23;
/// Answers of a task of a thread.
const PER_TASK: usize = 64;

/// What is given the logits of an answer, and which of them is right.
pub type Answers<'a> = dyn FnMut(&[f32], usize) + 'a;

/// How sure a model is at a temperature, and how right.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// Logits are divided by it.
    pub temperature: f64,
    /// The mean of −ln p(right).
    pub loss: f64,
    /// The share of right answers, which no temperature changes.
    pub accuracy: f64,
    /// The mean probability of the chosen answers.
    pub confidence: f64,
    /// The expected calibration error with bins of equal width.
    pub ece: f64,
    /// The same with bins of equal mass.
    pub ece_equal_mass: f64,
    /// Bins of equal width.
    pub bins: Vec<Bin>,
    /// Bins of equal mass.
    pub bins_equal_mass: Vec<Bin>,
}

/// A model before and after its temperature was fitted.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// How many answers fitted the temperature.
    pub fitted_on: usize,
    /// How many others were judged.
    pub judged_on: usize,
    /// As trained: at temperature 1.
    pub before: Measure,
    /// At the temperature that is saved with the model, if there is one.
    pub saved: Option<Measure>,
    /// At the fitted temperature.
    pub after: Measure,
}

/// Fits and judges. `see` is called with the numbers of examples and hands out the answers of each of
/// them; `saved` is the temperature that the model has been given before.
pub fn calibrate(
    examples: usize,
    at_once: usize,
    bins: usize,
    saved: Option<f64>,
    mut see: impl FnMut(&[usize], &mut Answers<'_>) -> Result<()>,
) -> Result<Calibration> {
    if bins == 0 || bins > 1000 {
        return Err(Error::new(format!("{bins} bins, expected 1 to 1000"), "15 are usual"));
    }
    let halves = |first: usize| (first..examples).step_by(2).collect::<Vec<_>>();
    let mut kept = Kept::default();
    for chunk in halves(0).chunks(at_once.max(1)) {
        see(chunk, &mut |logits, right| kept.add(logits, right))?;
    }
    if kept.rights.is_empty() || examples < 2 {
        return Err(Error::new(
            "there are too few examples: one half fits the temperature, the other judges",
            "give more data, or shorter windows with --context",
        ));
    }
    let temperature = fit_temperature(|temperature| kept.loss(temperature));
    let temperatures = [Some(1.0), saved, Some(temperature)];
    let mut tallies = temperatures.map(|t| t.map(Tally::new));
    for chunk in halves(1).chunks(at_once.max(1)) {
        see(chunk, &mut |logits, right| {
            tallies.iter_mut().flatten().for_each(|tally| tally.add(logits, right));
        })?;
    }
    let [before, saved, after] = tallies.map(|tally| tally.map(|tally| tally.measure(bins)));
    let (Some(before), Some(after)) = (before, after) else {
        return Err(Error::new("nothing was judged", "give more data"));
    };
    if !(before.loss.is_finite() && after.loss.is_finite()) {
        let message = format!("the loss is {}: the model is broken", before.loss);
        return Err(Error::new(message, "'hearken inspect weights' shows what is not finite"));
    }
    let judged_on = before.bins.iter().map(|bin| bin.count).sum();
    Ok(Calibration { fitted_on: kept.seen, judged_on, before, saved, after })
}

/// Answers with all their logits, to fit by. If there are too many, an even sample of them.
#[derive(Default)]
struct Kept {
    logits: Vec<f32>,
    rights: Vec<usize>,
    seen: usize,
    width: usize,
    rng: Option<Rng>,
}

impl Kept {
    fn add(&mut self, logits: &[f32], right: usize) {
        self.width = logits.len().max(1);
        self.seen += 1;
        let room = (MOST_LOGITS / self.width).max(1);
        if self.rights.len() < room {
            self.logits.extend_from_slice(logits);
            self.rights.push(right);
            return;
        }
        // Each of the answers so far is kept with the same probability (reservoir sampling).
        let place = self.rng.get_or_insert_with(|| Rng::new(1)).below(self.seen);
        let row = self.logits.chunks_exact_mut(self.width).nth(place);
        if let (Some(row), Some(own)) = (row, self.rights.get_mut(place)) {
            row.copy_from_slice(logits);
            *own = right;
        }
    }

    /// The mean of −ln p(right). Parts are added in their order: the same for any number of threads.
    fn loss(&self, temperature: f64) -> f64 {
        let tasks = self.rights.len().div_ceil(PER_TASK);
        let sums: Vec<Mutex<f64>> = (0..tasks).map(|_| Mutex::new(0.0)).collect();
        threads::for_each(tasks, |task| {
            let rows = self.logits.chunks_exact(self.width).zip(&self.rights);
            let rows = rows.skip(task * PER_TASK).take(PER_TASK);
            let sum: f64 = rows.map(|(logits, right)| judge(logits, *right, temperature).1).sum();
            if let Some(mut place) = sums.get(task).and_then(|place| place.lock().ok()) {
                *place = sum;
            }
        });
        let total: f64 = sums.into_iter().filter_map(|sum| sum.into_inner().ok()).sum();
        total / self.rights.len().max(1) as f64
    }
}

/// What is counted at one temperature.
struct Tally {
    temperature: f64,
    predictions: Vec<hearken_infer::calibration::Prediction>,
    loss: f64,
}

impl Tally {
    fn new(temperature: f64) -> Self {
        Self { temperature, predictions: Vec::new(), loss: 0.0 }
    }

    fn add(&mut self, logits: &[f32], right: usize) {
        let (prediction, loss) = judge(logits, right, self.temperature);
        self.predictions.push(prediction);
        self.loss += loss;
    }

    fn measure(self, count: usize) -> Measure {
        let n = self.predictions.len().max(1) as f64;
        let by_width = bins(&self.predictions, count, Binning::EqualWidth);
        let by_mass = bins(&self.predictions, count, Binning::EqualMass);
        Measure {
            temperature: self.temperature,
            loss: self.loss / n,
            accuracy: self.predictions.iter().filter(|p| p.is_right).count() as f64 / n,
            confidence: self.predictions.iter().map(|p| p.confidence).sum::<f64>() / n,
            ece: expected_error(&by_width),
            ece_equal_mass: expected_error(&by_mass),
            bins: by_width,
            bins_equal_mass: by_mass,
        }
    }
}

/// Calibrates a model that predicts tokens on windows of text.
pub fn of_tokens(
    model: &dyn PredictsTokens,
    examples: &dyn Examples,
    at_once: usize,
    bins: usize,
    saved: Option<f64>,
    progress: &mut dyn FnMut(f64),
) -> Result<Calibration> {
    let (mut done, all) = (0, examples.count());
    calibrate(all, at_once, bins, saved, |chunk, answers| {
        token_answers(model, &examples.batch_of(chunk), answers);
        done += chunk.len();
        progress(done as f64 / all.max(1) as f64);
        Ok(())
    })
}

/// The logits of every target that counts.
fn token_answers(model: &dyn PredictsTokens, batch: &Batch, answers: &mut Answers<'_>) {
    no_grad(|| {
        let hidden = model.hidden(&crate::batch::tokens(batch, false), &Pass::evaluate());
        let counted = batch.targets.iter().enumerate().filter(|(_, target)| **target != IGNORED);
        let counted: Vec<(u32, u32)> = counted.map(|(i, target)| (i as u32, *target)).collect();
        let per_part = (AT_ONCE / model.config().vocabulary().max(1)).max(1);
        for part in counted.chunks(per_part) {
            let places: Vec<u32> = part.iter().map(|(place, _)| *place).collect();
            let rows = select_rows(&hidden, &places); // (N, C)
            let logits = model.logits_of(&rows, &Pass::evaluate()).into_value(); // (N, V)
            let width = logits.shape().width().max(1);
            for (row, (_, right)) in logits.data().chunks_exact(width).zip(part) {
                answers(row, *right as usize);
            }
        }
    });
}

impl Calibration {
    /// The reliability diagram: accuracy against confidence in bins of equal width, before and after.
    /// Bins with fewer than ten answers, or less than one in a thousand, are left out: their accuracy is
    /// luck.
    pub fn chart(&self) -> Chart {
        let least = if self.judged_on < 100 { 1 } else { (self.judged_on / 1000).max(10) };
        let title = format!("Reliability (bins of {least} answers or more)");
        let mut chart = Chart::new(&title, "confidence", "accuracy");
        chart.size = (560.0, 420.0);
        chart.linear_x = true;
        let points = |measure: &Measure| -> Vec<(f64, f64)> {
            let used = measure.bins.iter().filter(|bin| bin.count >= least);
            used.map(|bin| (bin.confidence, bin.accuracy)).collect()
        };
        let name =
            |what: &str, m: &Measure| format!("{what}: T = {:.3}, ECE {:.4}", m.temperature, m.ece);
        let curve = |name, color, points, mark| Series { name, color, points, mark };
        let (before, after) = (points(&self.before), points(&self.after));
        let lowest = before.iter().chain(&after).map(|p| p.0.min(p.1)).fold(1.0, f64::min);
        let ideal = vec![(lowest, lowest), (1.0, 1.0)];
        chart
            .with(curve("right as often as sure".to_owned(), GREY, ideal, Mark::Dashes))
            .with(curve(name("before", &self.before), ORANGE, before, Mark::Dots))
            .with(curve(name("after", &self.after), BLUE, after, Mark::Dots))
    }

    /// What is to be kept with the model.
    pub fn to_save(&self) -> Saved {
        Saved {
            temperature: self.after.temperature,
            fitted_on: self.fitted_on,
            judged_on: self.judged_on,
            ece_before: self.before.ece,
            ece_after: self.after.ece,
        }
    }
}

/// A temperature that is kept with its model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Logits are divided by it.
    pub temperature: f64,
    /// How many answers fitted it.
    #[serde(default)]
    pub fitted_on: usize,
    /// How many others judged it.
    #[serde(default)]
    pub judged_on: usize,
    /// The expected calibration error at temperature 1.
    #[serde(default)]
    pub ece_before: f64,
    /// The expected calibration error at this temperature.
    #[serde(default)]
    pub ece_after: f64,
}

impl Saved {
    /// That of a model directory, if it has one.
    pub fn read(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        let text = files::read_text(&path, MOST_BYTES)?;
        let hint =
            "remove it, or make it anew with 'hearken eval --calibration --save-temperature'";
        // An object: serde would read a list as the fields in their order.
        let fields: serde_json::Result<serde_json::Map<_, _>> = serde_json::from_str(&text);
        let saved: Self = fields
            .and_then(|fields| serde_json::from_value(fields.into()))
            .map_err(|error| Error::new(format!("{}: {error}", path.display()), hint))?;
        if !(0.001..=1000.0).contains(&saved.temperature) {
            let (path, given) = (path.display(), saved.temperature);
            let message = format!("{path}: a temperature of {given}, expected 0.001 to 1000");
            return Err(Error::new(message, hint));
        }
        Ok(Some(saved))
    }

    /// Keeps it in a model directory.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Error::new(format!("cannot write {FILE}: {error}"), ""))?;
        files::write_atomically(&directory.join(FILE), format!("{text}\n").as_bytes())
    }
}

impl OpenModel {
    /// The temperature that is kept with the model, if there is one.
    pub fn temperature(&self) -> Result<Option<f64>> {
        Ok(Saved::read(&self.directory)?.map(|saved| saved.temperature))
    }
}

#[cfg(test)]
mod tests;
