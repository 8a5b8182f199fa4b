//! What looks wrong while training, the likely cause, and the setting to change.
//!
//! Every check compares a number with what it was before or with what it is elsewhere in the
//! model, not with an absolute limit of its own. A warning of one kind is not repeated for a
//! while, and each time for twice as long.

use crate::config::{Precision, TrainConfig};
use crate::evaluation::{Better, Metric};
use crate::metrics::{Dated, Entry, Row};
use crate::norms;
use crate::task::Observation;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};

/// What kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The loss or a gradient is NaN or infinite.
    NotFinite,
    /// The loss is far above what it was.
    LossSpike,
    /// The gradient is far larger than it was.
    GradientExploded,
    /// Some layers get next to no gradient.
    GradientVanished,
    /// A step changes a layer by a large part of its size.
    UpdateTooLarge,
    /// Steps hardly change a layer.
    UpdateTooSmall,
    /// Attention looks at one place only.
    AttentionCollapsed,
    /// An expert is chosen by next to no tokens.
    ExpertUnused,
    /// The validation metric gets worse.
    Overfitting,
    /// A batch without a target that counts.
    NoTargets,
}

/// Something that looks wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Warning {
    /// What kind.
    pub kind: Kind,
    /// What was seen, and the likely cause.
    pub message: String,
    /// The setting to change.
    pub hint: String,
}

/// Losses and norms that "before" means.
const WINDOW: usize = 64;
/// How many there must be before anything is compared with them.
const ENOUGH: usize = 16;
/// Deviations above the median that make a spike: at six, noise alone gives one in 10⁹ steps.
const SPIKE_DEVIATIONS: f64 = 6.0;
/// The deviation of a normal distribution, in units of its median absolute deviation.
const DEVIATION_PER_MAD: f64 = 1.4826;
/// Losses in a row that far up: one alone is a batch unlike the others and passes.
const SPIKE_LENGTH: u32 = 3;
/// Times as far above the median as the highest of the window.
const SPIKE_ABOVE_HIGHEST: f64 = 1.5;
/// A spike is also at least this share of the loss, however still it was before.
const LEAST_SPIKE: f64 = 0.1;
/// Times the median that make an explosion.
const EXPLOSION: f64 = 20.0;
/// Layers whose gradients (root mean square) are this much smaller than the largest get none.
const VANISHED: f64 = 1e-4;
/// ‖Δθ‖/‖θ‖ of a step: around 1e-3 is healthy; above the first weights are overwritten in a few
/// steps, below the second it takes a million steps to change them.
const LARGEST_UPDATE: f64 = 0.3;
const SMALLEST_UPDATE: f64 = 1e-6;
/// Steps at the start in which small weights may change by much.
const SETTLING: u64 = 20;
/// Entropy below this share of the most there can be is a collapse.
const COLLAPSED: f64 = 0.02;
/// Steps that a router has to find its balance.
const BALANCED: u64 = 200;
/// An expert with less than this part of an even share is not used.
const UNUSED: f64 = 0.1;
/// Choices per expert that are enough to tell: none of 40 by chance is one in e⁴⁰.
const LEAST_CHOICES: f64 = 40.0;
/// Evaluations in a row worse than the best that are overfitting, and by which share.
const RISES: u32 = 3;
const LEAST_RISE: f64 = 0.01;
/// Steps skipped in a row for f16 before it is more than the search for a loss scale.
const SEARCH: u32 = 8;
/// Steps that a kind of warning is silent for, the first time.
const SILENCE: u64 = 100;

/// Looks at every step.
pub struct Watch {
    config: TrainConfig,
    losses: VecDeque<f64>,
    norms: VecDeque<f64>,
    /// Losses in a row that were far up.
    far_up: u32,
    /// Steps in a row without finite gradients.
    skipped: u32,
    /// When a kind may speak again, and for how long it is silent then.
    silent: HashMap<Kind, (u64, u64)>,
    vanished_before: bool,
    /// The best value of the deciding validation metric.
    best: Option<f64>,
    /// Evaluations in a row that were worse.
    rises: u32,
}

/// The layers of the model after a step.
pub struct LayerFacts<'a> {
    /// Their names.
    pub names: &'a [String],
    /// Numbers in each.
    pub sizes: &'a [usize],
    /// Norm of each one's gradient.
    pub gradient_norms: &'a [f64],
    /// ‖Δθ‖/‖θ‖ of each; empty if not measured.
    pub update_ratios: &'a [f64],
}

impl Watch {
    /// Starts without a past.
    pub fn new(config: &TrainConfig) -> Self {
        Self {
            config: config.clone(),
            losses: VecDeque::new(),
            norms: VecDeque::new(),
            far_up: 0,
            skipped: 0,
            silent: HashMap::new(),
            vanished_before: false,
            best: None,
            rises: 0,
        }
    }

    /// Remembers what a resumed run has seen before. Warnings were given then. `better` is the
    /// direction of the metric that decides.
    pub fn replay(&mut self, rows: &[Row], entries: &[Entry], sizes: &[usize], better: Better) {
        let number = |x: &Option<f64>| x.unwrap_or(f64::NAN);
        let numbers = |x: &[Option<f64>]| x.iter().map(number).collect::<Vec<f64>>();
        let mut entries = entries.iter().peekable();
        for row in rows {
            if row.counted_nothing() {
                self.no_targets(row.step);
            } else {
                self.step(row.step, number(&row.train_loss), number(&row.grad_norm), None);
            }
            if let Some(score) = row.validation.first()
                && let Some(value) = score.compared()
            {
                self.evaluation(row.step, &Metric::new(score.name.as_str(), better, value));
            }
            while let Some(entry) = entries.next_if(|entry| entry.step() <= row.step) {
                match entry {
                    Entry::Layers { step, layers, gradient_norm, update_ratio, .. }
                        if layers.len() == sizes.len() =>
                    {
                        let facts = LayerFacts {
                            names: layers,
                            sizes,
                            gradient_norms: &numbers(gradient_norm),
                            update_ratios: &numbers(update_ratio),
                        };
                        self.layers(*step, &facts);
                    }
                    // What heads and experts did is not in the file; that it was said is.
                    Entry::Warning {
                        step,
                        about: kind @ (Kind::AttentionCollapsed | Kind::ExpertUnused),
                        ..
                    } => {
                        let (message, hint) = (String::new(), String::new());
                        self.unless_silent(*step, Warning { kind: *kind, message, hint });
                    }
                    _ => {}
                }
            }
        }
    }

    /// After every step; `layers` helps to name the culprit.
    pub fn step(
        &mut self,
        step: u64,
        loss: f64,
        gradient_norm: f64,
        layers: Option<&LayerFacts<'_>>,
    ) -> Vec<Warning> {
        if !(loss.is_finite() && gradient_norm.is_finite()) {
            self.skipped += 1;
            let searching = self.config.precision == Precision::F16 && self.skipped < SEARCH;
            if searching && loss.is_finite() {
                return Vec::new();
            }
            let warning = self.not_finite(step, loss, gradient_norm, layers);
            return self.unless_silent(step, warning).into_iter().collect();
        }
        self.skipped = 0;
        let spike = self.spike(step, loss);
        let explosion = self.explosion(step, gradient_norm, layers);
        // The first ones far up may be a spike's beginning: they must not hide the rest of it.
        if !(1..SPIKE_LENGTH).contains(&self.far_up) {
            remember(&mut self.losses, loss);
        }
        remember(&mut self.norms, gradient_norm);
        [spike, explosion]
            .into_iter()
            .flatten()
            .filter_map(|w| self.unless_silent(step, w))
            .collect()
    }

    /// After a step that was skipped because no target was counted.
    pub fn no_targets(&mut self, step: u64) -> Vec<Warning> {
        let warning = Warning {
            kind: Kind::NoTargets,
            message: format!(
                "no target was counted in the batch of step {step}; the step was skipped"
            ),
            hint: "check that the data has targets, and raise train.batch_size if they are rare"
                .to_owned(),
        };
        self.unless_silent(step, warning).into_iter().collect()
    }

    fn not_finite(
        &self,
        step: u64,
        loss: f64,
        norm: f64,
        layers: Option<&LayerFacts<'_>>,
    ) -> Warning {
        let culprit = layers.and_then(|layers| {
            let bad = layers.gradient_norms.iter().position(|norm| !norm.is_finite())?;
            Some(format!(", first in {}", layers.names[bad]))
        });
        let what = if loss.is_finite() {
            format!("a gradient is {norm}{}", culprit.unwrap_or_default())
        } else {
            format!("the loss is {loss}")
        };
        let before = self.losses.back().map_or(String::new(), |l| format!(" (it was {l:.4})"));
        let hint = match self.config.precision {
            Precision::F16 if loss.is_finite() => {
                "f16 overflows at any loss scale: set train.precision = \"bf16\"".to_owned()
            }
            _ if self.config.clip == 0.0 => {
                "set train.clip = 1.0, and lower train.lr if that is not enough".to_owned()
            }
            _ => format!(
                "lower train.lr (now {:.1e}) or lengthen train.schedule.warmup (now {})",
                self.config.lr,
                self.config.schedule.warmup()
            ),
        };
        let message = format!("{what} at step {step}{before}; the step was skipped");
        Warning { kind: Kind::NotFinite, message, hint }
    }

    fn spike(&mut self, step: u64, loss: f64) -> Option<Warning> {
        let middle = median(&self.losses)?;
        let distances = self.losses.iter().map(|loss| (loss - middle).abs()).collect();
        let deviation = DEVIATION_PER_MAD * median(&distances)?;
        // Noise with long tails shows in how far up the highest was.
        let highest = self.losses.iter().copied().fold(middle, f64::max) - middle;
        let most = (SPIKE_DEVIATIONS * deviation)
            .max(LEAST_SPIKE * middle.abs())
            .max(SPIKE_ABOVE_HIGHEST * highest);
        self.far_up = if loss - middle > most { self.far_up + 1 } else { 0 };
        (self.far_up >= SPIKE_LENGTH).then(|| Warning {
            kind: Kind::LossSpike,
            message: format!(
                "the loss jumped to {loss:.4} before step {step}, from about {middle:.4}: the \
                 learning rate is too high, or the data changed"
            ),
            hint: format!(
                "if it does not come back by itself, lower train.lr (now {:.1e}), lower \
                 train.clip (now {}) or set train.optimizer.beta2 = 0.95",
                self.config.lr, self.config.clip
            ),
        })
    }

    fn explosion(&self, step: u64, norm: f64, layers: Option<&LayerFacts<'_>>) -> Option<Warning> {
        let middle = median(&self.norms)?;
        (norm > EXPLOSION * middle && middle > 0.0).then(|| {
            let largest = layers.and_then(|layers| {
                let norms = layers.gradient_norms;
                let i = (0..norms.len()).max_by(|&a, &b| norms[a].total_cmp(&norms[b]))?;
                Some(format!(", most of it in {}", layers.names[i]))
            });
            let hint = if self.config.clip == 0.0 {
                "set train.clip = 1.0".to_owned()
            } else {
                format!(
                    "clipping at {} keeps the step small; if it comes back often, lower train.lr \
                     (now {:.1e}) or lengthen train.schedule.warmup",
                    self.config.clip, self.config.lr
                )
            };
            Warning {
                kind: Kind::GradientExploded,
                message: format!(
                    "the gradient exploded to norm {norm:.3} at step {step}, from about \
                     {middle:.3}{}",
                    largest.unwrap_or_default()
                ),
                hint,
            }
        })
    }

    /// Now and then, after a look at every layer.
    pub fn layers(&mut self, step: u64, facts: &LayerFacts<'_>) -> Vec<Warning> {
        let vanished = Self::vanished(facts);
        // Once may be chance: the second look in a row counts.
        let again = std::mem::replace(&mut self.vanished_before, vanished.is_some());
        let update = self.update_off(step, facts);
        [vanished.filter(|_| again), update]
            .into_iter()
            .flatten()
            .filter_map(|warning| self.unless_silent(step, warning))
            .collect()
    }

    fn vanished(facts: &LayerFacts<'_>) -> Option<Warning> {
        let mean = |i: usize| facts.gradient_norms[i] / (facts.sizes[i].max(1) as f64).sqrt();
        let numbered: Vec<usize> =
            (0..facts.names.len()).filter(|&i| norms::is_numbered(&facts.names[i])).collect();
        let least = numbered.iter().copied().min_by(|&a, &b| mean(a).total_cmp(&mean(b)))?;
        let most = numbered.iter().copied().max_by(|&a, &b| mean(a).total_cmp(&mean(b)))?;
        (mean(least) < VANISHED * mean(most)).then(|| Warning {
            kind: Kind::GradientVanished,
            message: format!(
                "gradients vanish: {:.1e} on average in {}, against {:.1e} in {}",
                mean(least),
                facts.names[least],
                mean(most),
                facts.names[most]
            ),
            hint: "set model.norm.placement = \"pre\", and check model.residual_scale and \
                   model.init: signals must reach every layer at about the same size"
                .to_owned(),
        })
    }

    fn update_off(&self, step: u64, facts: &LayerFacts<'_>) -> Option<Warning> {
        if step <= SETTLING || self.config.lr == 0.0 {
            return None;
        }
        // As it would be at the full learning rate, so that the schedule's ends look the same.
        let part = self.config.schedule.factor(step.saturating_sub(1), self.config.steps);
        if part < 0.01 {
            return None;
        }
        let ratios = facts.update_ratios.iter().map(|ratio| ratio / part);
        let ratios: Vec<(usize, f64)> = ratios.enumerate().filter(|(_, r)| r.is_finite()).collect();
        let (layer, most) = *ratios.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let lr = self.config.lr;
        if most > LARGEST_UPDATE {
            return Some(Warning {
                kind: Kind::UpdateTooLarge,
                message: format!(
                    "a step changes {} by {:.0}% of its size: the learning rate is too high",
                    facts.names[layer],
                    100.0 * most
                ),
                hint: format!("lower train.lr (now {lr:.1e}) to about {:.0e}", lr * 0.01 / most),
            });
        }
        (most < SMALLEST_UPDATE).then(|| Warning {
            kind: Kind::UpdateTooSmall,
            message: format!(
                "a step changes no layer by more than {most:.0e} of its size: the learning rate \
                 is too low, or gradients are too small"
            ),
            hint: format!("raise train.lr (now {lr:.1e}); 1e-3 per step is usual"),
        })
    }

    /// Now and then, after a look at attention.
    pub fn attention(&mut self, step: u64, seen: &Observation) -> Vec<Warning> {
        let collapsed = seen.attention.iter().find_map(|layer| {
            let most = f64::from(layer.most);
            let low = |entropy: &&f32| f64::from(**entropy) < COLLAPSED * most;
            let heads = layer.entropy.iter().filter(low).count();
            // A head that copies the token before is sharp and healthy; most of a layer's are not.
            (most > 0.0 && 2 * heads > layer.entropy.len()).then(|| Warning {
                kind: Kind::AttentionCollapsed,
                message: format!(
                    "attention collapsed in {}: {heads} of {} heads look at one place only, \
                     whatever the text (entropy below {:.2} of {most:.2} nats)",
                    layer.layer,
                    layer.entropy.len(),
                    COLLAPSED * most
                ),
                hint: format!(
                    "lower train.lr (now {:.1e}), lengthen train.schedule.warmup, or set \
                     model.init.query_key_scale = 0.5",
                    self.config.lr
                ),
            })
        });
        collapsed.and_then(|warning| self.unless_silent(step, warning)).into_iter().collect()
    }

    /// Now and then, after a look at the use of experts.
    pub fn experts(&mut self, step: u64, seen: &Observation) -> Vec<Warning> {
        if step < BALANCED {
            return Vec::new();
        }
        let unused = seen.experts.iter().find_map(|layer| {
            let count = layer.shares.len();
            let even = 1.0 / count.max(1) as f64;
            // With few choices, an expert may have none by chance.
            let enough = layer.choices as f64 * even >= LEAST_CHOICES;
            let little = layer.shares.iter().filter(|share| **share < UNUSED * even).count();
            (enough && little > 0).then(|| Warning {
                kind: Kind::ExpertUnused,
                message: format!(
                    "{little} of {count} experts in {} are chosen by next to no tokens: they take \
                     memory and learn nothing",
                    layer.layer
                ),
                hint: "raise model.experts.balance, or lower train.lr".to_owned(),
            })
        });
        unused.and_then(|warning| self.unless_silent(step, warning)).into_iter().collect()
    }

    /// After every evaluation, with the metric that decides; its value on the sample is compared.
    pub fn evaluation(&mut self, step: u64, metric: &Metric) -> Vec<Warning> {
        let Metric { name, sample: value, better, .. } = metric;
        let best = self.best.unwrap_or(better.worst());
        if better.is_better(*value, best, 0.0) {
            self.best = Some(*value);
        }
        // The first is compared with infinity, whose hundredth is infinite too.
        let least = if best.is_finite() { LEAST_RISE * best.abs() } else { 0.0 };
        let is_worse = better.is_better(best, *value, least);
        self.rises = if is_worse { self.rises + 1 } else { 0 };
        let Some(train) = median(&self.losses) else { return Vec::new() };
        // Nothing is learned by heart whose training loss is no lower. Other metrics do not compare.
        let is_no_lower = name == Metric::LOSS && train >= *value;
        if self.rises < RISES || is_no_lower {
            return Vec::new();
        }
        let way = match better {
            Better::Lower => "rises",
            Better::Higher => "falls",
        };
        let warning = Warning {
            kind: Kind::Overfitting,
            message: format!(
                "the validation {name} {way} ({value:.4}, best {best:.4}) while the training loss is \
                 {train:.4}: the model learns the training set by heart"
            ),
            hint: "use checkpoints/best; next time more data, a smaller model, model.dropout, or \
                   train.early_stopping"
                .to_owned(),
        };
        self.unless_silent(step, warning).into_iter().collect()
    }

    fn unless_silent(&mut self, step: u64, warning: Warning) -> Option<Warning> {
        let (until, silence) = self.silent.entry(warning.kind).or_insert((0, SILENCE));
        if step < *until {
            return None;
        }
        *until = step + *silence;
        *silence *= 2;
        Some(warning)
    }
}

fn remember(window: &mut VecDeque<f64>, x: f64) {
    if window.len() == WINDOW {
        window.pop_front();
    }
    window.push_back(x);
}

/// The middle one; `None` if there are not enough.
fn median(window: &VecDeque<f64>) -> Option<f64> {
    if window.len() < ENOUGH {
        return None;
    }
    let mut sorted: Vec<f64> = window.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    Some(sorted[sorted.len() / 2])
}

#[cfg(test)]
mod tests;
