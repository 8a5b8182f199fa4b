//! Linear probes: what can be read off the residual stream after each layer (Alain & Bengio 2016).
//!
//! A probe is a multinomial logistic regression from the state at one token to one of N classes,
//!
//! ```text
//! p = softmax(W·(h − μ)/σ + b)        W (N, C), μ and σ of each feature over the training part
//! ```
//! trained on most stories and judged on the others. The model itself is not changed. What a probe
//! reads is there in a linear form; that the model uses it is another question.
//!
//! The state is taken right before the story says the fact again, where the model needs it. Two
//! controls show what reading nothing looks like: the embedding of a token of another story, and the
//! true states with the labels of other stories.

use crate::open::OpenModel;
use hearken_base::{Error, Result};
use hearken_data::stories::{Fact, Told};
use hearken_data::tokenizer::Tokenizer;
use hearken_nn::config::ModelConfig;
use hearken_nn::models::{PredictsTokens, Tokens};
use hearken_nn::pass::{Layout, Pass};
use hearken_nn::taps::Taps;
use hearken_show::svg::{GREY, PALETTE};
use hearken_show::{Chart, Mark, Series};
use hearken_tensor::ops::cross_entropy::{Options, cross_entropy};
use hearken_tensor::ops::linear::linear;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Role, Tensor, Var, no_grad};
use hearken_train::{DecayRule, Optimizer, OptimizerConfig};
use std::sync::Arc;

/// Stories of a pass.
const AT_ONCE: usize = 16;
/// One story in so many is held out.
const HELD_OUT: usize = 4;
/// Steps of a probe, each on all of its training part.
const STEPS: usize = 150;
const LEARNING_RATE: f64 = 0.05;
/// Keeps a probe with more features than stories from reading luck.
const DECAY: f64 = 0.01;

/// How probes are made.
#[derive(Clone, Copy, Debug)]
pub struct Probing {
    /// How many stories; a quarter of them judges.
    pub stories: usize,
    /// Of the stories, and of what is drawn.
    pub seed: u64,
}

impl Default for Probing {
    fn default() -> Self {
        Self { stories: 2000, seed: 1 }
    }
}

/// What probes of one fact read.
#[derive(Clone, Debug)]
pub struct Probed {
    /// The fact.
    pub name: &'static str,
    /// How many classes it has.
    pub classes: usize,
    /// The accuracy of always saying the most frequent class.
    pub chance: f64,
    /// The accuracy of the probe of each of [`Probes::layers`].
    pub accuracy: Vec<f64>,
    /// The accuracy on the embedding of an unrelated token.
    pub unrelated: f64,
    /// The accuracy on the best layer with the labels of other stories.
    pub shuffled: f64,
}

impl Probed {
    /// The layer that is read best, and how well.
    pub fn best(&self) -> (usize, f64) {
        let layers = self.accuracy.iter().copied().enumerate();
        // Of equal ones the first.
        layers.rev().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0))
    }
}

/// What probes of all facts read.
#[derive(Clone, Debug)]
pub struct Probes {
    /// The states that were read: `embedding`, then after each block, then `norm`.
    pub layers: Vec<String>,
    /// By fact.
    pub facts: Vec<Probed>,
    /// Stories that trained the probes.
    pub trained_on: usize,
    /// Stories that judged them.
    pub judged_on: usize,
}

/// Labels and, for each layer, the states (N, C) that belong to them.
struct Subject {
    name: &'static str,
    labels: Vec<u32>,
    states: Vec<Vec<f32>>,
}

/// Probes a model that reads stories from left to right.
pub fn stories(
    open: &OpenModel,
    tokenizer: &Tokenizer,
    probing: Probing,
    progress: &mut dyn FnMut(f64),
) -> Result<Probes> {
    let model = open.generates()?;
    if !(100..=100_000).contains(&probing.stories) {
        let message = format!("{} stories, expected 100 to 100000", probing.stories);
        return Err(Error::new(message, "2000 are usual"));
    }
    let reading = Reading::new(open, tokenizer, probing)?;
    let read = reading.states(model, &mut |share| progress(0.5 * share));
    let held = probing.stories / HELD_OUT;
    let probes = read.layers.len() + 2; // of a fact, the controls included
    let all = read.subjects.len() * probes;
    let mut done = 0;
    let mut probe = |states: &[f32], labels: &[u32]| {
        done += 1;
        progress(0.5 + 0.5 * done as f64 / all.max(1) as f64);
        accuracy(states, labels, held)
    };
    let mut facts = Vec::new();
    for subject in &read.subjects {
        let labels = &subject.labels;
        let accuracy: Vec<f64> = subject.states.iter().map(|s| probe(s, labels)).collect();
        // Of another story: the next in both parts.
        let mut others = labels.clone();
        others[..held].rotate_left(1);
        others[held..].rotate_left(1);
        let mut probed = Probed {
            name: subject.name,
            classes: classes(labels),
            chance: majority(&labels[..held]),
            accuracy,
            unrelated: probe(&read.unrelated, &others),
            shuffled: 0.0,
        };
        probed.shuffled = probe(&subject.states[probed.best().0], &others);
        facts.push(probed);
    }
    Ok(Probes { layers: read.layers, facts, trained_on: probing.stories - held, judged_on: held })
}

/// Stories as tokens, and where each fact is needed.
struct Reading {
    rows: Vec<Vec<u32>>,
    /// By fact, then by story: the class and the token at which it is read.
    facts: Vec<(&'static str, Vec<(u32, usize)>)>,
    /// By story: any token.
    unrelated: Vec<usize>,
}

impl Reading {
    fn new(open: &OpenModel, tokenizer: &Tokenizer, probing: Probing) -> Result<Self> {
        let mut rng = Rng::new(probing.seed);
        let mut reading = Self { rows: Vec::new(), facts: Vec::new(), unrelated: Vec::new() };
        reading.facts.extend(Fact::ALL.map(|fact| (fact.name(), Vec::new())));
        reading.facts.push(("parity", Vec::new()));
        for number in 0..probing.stories as u64 {
            let told = Told::draw(probing.seed, number);
            let ids = open.prompt(tokenizer, &told.text)?;
            open.check(&ids).map_err(|error| {
                error.with_hint("a probe needs a model that reads a whole story at a time")
            })?;
            let classes = Fact::ALL.map(|fact| {
                let (class, byte) = told.fact(fact);
                Ok((class as u32, last_token(open, tokenizer, &ids, &told.text[..byte])?))
            });
            let any = rng.below(ids.len());
            let classes = classes.into_iter().chain([Ok((any as u32 % 2, any))]);
            for ((_, places), found) in reading.facts.iter_mut().zip(classes) {
                places.push(found?);
            }
            reading.unrelated.push(rng.below(ids.len()));
            reading.rows.push(ids);
        }
        Ok(reading)
    }

    /// The states at all of these places.
    fn states(&self, model: &dyn PredictsTokens, progress: &mut dyn FnMut(f64)) -> States {
        let subject = |(name, places): &(&'static str, Vec<(u32, usize)>)| Subject {
            name,
            labels: places.iter().map(|(class, _)| *class).collect(),
            states: Vec::new(),
        };
        let mut out = States {
            layers: Vec::new(),
            subjects: self.facts.iter().map(subject).collect(),
            unrelated: Vec::new(),
        };
        for first in (0..self.rows.len()).step_by(AT_ONCE) {
            let stories = first..self.rows.len().min(first + AT_ONCE);
            let values = residual_stream(model, &self.rows[stories.clone()]);
            let length = self.rows[stories.clone()].iter().map(Vec::len).max().unwrap_or(0);
            out.layers = values.iter().map(|(name, _)| shown(name)).collect();
            for (row, story) in stories.enumerate() {
                let state = |value: &Tensor, place: usize| {
                    let width = value.shape().width();
                    let start = (row * length + place) * width;
                    value.data()[start..start + width].to_vec()
                };
                for (subject, (_, places)) in out.subjects.iter_mut().zip(&self.facts) {
                    subject.states.resize(values.len(), Vec::new());
                    for (states, (_, value)) in subject.states.iter_mut().zip(&values) {
                        states.extend(state(value, places[story].1));
                    }
                }
                if let Some((_, embedding)) = values.first() {
                    out.unrelated.extend(state(embedding, self.unrelated[story]));
                }
            }
            progress((first + AT_ONCE) as f64 / self.rows.len().max(1) as f64);
        }
        out
    }
}

/// What was read of all stories.
struct States {
    layers: Vec<String>,
    subjects: Vec<Subject>,
    /// (N, C)
    unrelated: Vec<f32>,
}

/// The last token of `ids` that lies within the beginning `prefix` of its text.
fn last_token(open: &OpenModel, tokenizer: &Tokenizer, ids: &[u32], prefix: &str) -> Result<usize> {
    // Where a token covers the end of the prefix and what follows, the two differ from there on.
    let own = open.prompt(tokenizer, prefix)?;
    let common = own.iter().zip(ids).take_while(|(a, b)| a == b).count();
    Ok(common.saturating_sub(1))
}

/// The residual stream (B, T, C) before the first block, after each, and after the last norm; of
/// recurrent models the states of each layer.
fn residual_stream(model: &dyn PredictsTokens, rows: &[Vec<u32>]) -> Vec<(String, Tensor)> {
    let length = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut ids = vec![0; rows.len() * length];
    for (row, padded) in rows.iter().zip(ids.chunks_exact_mut(length.max(1))) {
        padded[..row.len()].copy_from_slice(row);
    }
    let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
    // With positions, where they are added.
    let decoder = matches!(model.config(), ModelConfig::Decoder(_));
    let first = if decoder { "blocks.0.residual_before" } else { "embedding" };
    let taps = Taps::new().record(first).record("blocks.*.residual_after").record("layers.*.out");
    let taps = Arc::new(taps.record("norm"));
    no_grad(|| {
        let tokens = Tokens::new(&ids, rows.len()).laid_out(Layout::padded(&lengths));
        model.hidden(&tokens, &Pass::evaluate().watched(&taps));
    });
    taps.take()
}

/// A layer for people.
fn shown(name: &str) -> String {
    if name == "blocks.0.residual_before" {
        return "embedding".to_owned();
    }
    let layer = name.trim_end_matches(".residual_after").trim_end_matches(".out");
    layer.replace("blocks.", "block ").replace("layers.", "layer ")
}

fn classes(labels: &[u32]) -> usize {
    labels.iter().max().map_or(1, |most| *most as usize + 1)
}

/// The share of the most frequent label.
fn majority(labels: &[u32]) -> f64 {
    let count = |label: usize| labels.iter().filter(|own| **own as usize == label).count();
    let most = (0..classes(labels)).map(count).max().unwrap_or(0);
    most as f64 / labels.len().max(1) as f64
}

/// Trains a probe on all but the first `held` states and gives the share of those that it reads.
fn accuracy(states: &[f32], labels: &[u32], held: usize) -> f64 {
    let width = states.len() / labels.len().max(1);
    let (judged, trained) = states.split_at(held * width);
    let scale = Scale::of(trained, width);
    let part = |states: &[f32]| {
        let rows = states.len() / width.max(1);
        Var::constant(Tensor::new([rows, width], &scale.apply(states)))
    };
    let (inside, outside) = (part(trained), part(judged));
    let classes = classes(labels);
    let weight = Param::new("weight", Role::Head, Tensor::zeros([classes, width]));
    let bias = Param::new("bias", Role::Vector, Tensor::zeros([classes]));
    let adam = OptimizerConfig::AdamW {
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: DECAY,
        beta2_warmup: None,
    };
    let parameters = [weight.clone(), bias.clone()];
    let mut optimizer = Optimizer::new(adam, DecayRule::Matrices, parameters);
    for step in 0..STEPS {
        let logits = linear(&inside, &weight.var(), Some(&bias.var())); // (N, classes)
        cross_entropy(logits, &labels[held..], Options::default()).backward();
        // Down to 0 in half a cosine.
        let share = 0.5 + 0.5 * (std::f64::consts::PI * step as f64 / STEPS as f64).cos();
        optimizer.step(LEARNING_RATE * share, 1.0);
        optimizer.zero_gradients();
    }
    let logits = no_grad(|| linear(&outside, &weight.var(), Some(&bias.var())));
    let rows = logits.value().data().chunks_exact(classes).zip(labels);
    let right = rows.filter(|(logits, label)| {
        let best = (0..classes).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
        best == Some(**label as usize)
    });
    right.count() as f64 / held.max(1) as f64
}

/// Mean and deviation of each feature.
struct Scale {
    mean: Vec<f32>,
    factor: Vec<f32>,
}

impl Scale {
    fn of(states: &[f32], width: usize) -> Self {
        let n = (states.len() / width.max(1)).max(1) as f64;
        let mut sums = vec![(0.0_f64, 0.0_f64); width];
        for row in states.chunks_exact(width.max(1)) {
            for (sum, x) in sums.iter_mut().zip(row) {
                sum.0 += f64::from(*x);
                sum.1 += f64::from(*x).powi(2);
            }
        }
        let mean = sums.iter().map(|sum| (sum.0 / n) as f32).collect();
        let factor = sums.iter().map(|(sum, squares)| {
            let variance = (squares / n - (sum / n).powi(2)).max(0.0);
            // A feature that never changes tells nothing: rounding must not be blown up.
            let still = variance <= 1e-10 * squares / n;
            if still { 0.0 } else { variance.sqrt().recip() as f32 }
        });
        Self { mean, factor: factor.collect() }
    }

    fn apply(&self, states: &[f32]) -> Vec<f32> {
        let features = self.mean.iter().zip(&self.factor).cycle();
        states.iter().zip(features).map(|(x, (mean, factor))| (x - mean) * factor).collect()
    }
}

impl Probes {
    /// Accuracy by layer, a curve for each fact.
    pub fn chart(&self) -> Chart {
        let blocks = self.layers.iter().filter(|name| name.starts_with("block ")).count();
        let axis =
            format!("0: embedding, 1 to {blocks}: after each block, then: after the last norm");
        let mut chart = Chart::new("What can be read after each layer", &axis, "accuracy");
        chart.size = (680.0, 420.0);
        let last = self.layers.len().saturating_sub(1) as f64;
        for (fact, color) in self.facts.iter().zip(PALETTE.iter().cycle()) {
            let points = fact.accuracy.iter().enumerate().map(|(i, y)| (i as f64, *y)).collect();
            let name = fact.name.to_owned();
            chart.series.push(Series { name, color, points, mark: Mark::Dots });
        }
        // Of what has more than two classes: others are right half of the time.
        let many: Vec<f64> =
            self.facts.iter().filter(|fact| fact.classes > 2).map(|fact| fact.unrelated).collect();
        let control = many.iter().sum::<f64>() / many.len().max(1) as f64;
        chart.series.push(Series {
            name: "an unrelated token (mean without parity)".to_owned(),
            color: GREY,
            points: vec![(0.0, control), (last, control)],
            mark: Mark::Dashes,
        });
        chart
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clouds of four classes, or noise that has nothing to do with them.
    fn clouds(distance: f64) -> (Vec<f32>, Vec<u32>) {
        let mut rng = Rng::new(4);
        let labels: Vec<u32> = (0..400).map(|_| rng.below(4) as u32).collect();
        let states = labels.iter().flat_map(|label| {
            let mut row: Vec<f32> = (0..10).map(|_| rng.normal_one() as f32).collect();
            row[*label as usize] += distance as f32;
            row[9] = 3.0; // never changes
            row
        });
        (states.collect(), labels.clone())
    }

    #[test]
    fn a_probe_reads_what_is_there_and_nothing_else() {
        let (states, labels) = clouds(8.0);
        assert!(accuracy(&states, &labels, 100) > 0.98);
        let (noise, labels) = clouds(0.0);
        let read = accuracy(&noise, &labels, 100);
        assert!((0.1..0.45).contains(&read), "{read}");
        let still = vec![3.0; 4000];
        let read = accuracy(&still, &labels, 100);
        assert!(read <= majority(&labels[..100]) + 1e-12, "{read}");
    }

    #[test]
    fn features_are_standardised_by_the_training_part() {
        let scale = Scale::of(&[1.0, 5.0, 3.0, 5.0], 2);
        assert_eq!(scale.apply(&[3.0, 5.0, 5.0, 7.0]), [1.0, 0.0, 3.0, 0.0]);
    }
}
