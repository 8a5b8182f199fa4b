//! Small decoders that learn a text: what the studies of settings have in common.
//!
//! An [`Entrant`] is a model with its training on windows of a [text](crate::text). [`train`] trains each
//! of them with every seed and judges it on windows that are held out.
//!
//! A training has diverged if its gradients were not finite for many steps in a row, or if it ends far
//! above the loss ln V of a model that gives every token the same probability
//! ([`DIVERGED`] times). Its loss is then NaN.

use crate::outcome::Line;
use crate::request::Request;
use crate::rows::{RowTask, Rows, judge};
use crate::statistics::Sample;
use crate::study::{Contender, Study};
use crate::text::{Encoded, Text};
use crate::trials::{Trained, seconds_of_a_step, trials};
use hearken_base::Result;
use hearken_data::tokenizer::{Kind, Training};
use hearken_nn::config::ModelConfig;
use hearken_nn::models::{self, Model, PredictsTokens};
use hearken_nn::scope::Weights;
use hearken_train::{LayerAttention, Moment, TrainConfig};

/// Generated stories have so many characters.
pub const CHARACTERS: usize = 600_000;
/// So many windows are judged at most.
pub const WINDOWS: usize = 128;
/// A loss of so many times ln V, or more, has diverged.
pub const DIVERGED: f64 = 1.5;
/// Attention is observed on so many windows.
const OBSERVED: usize = 8;

/// A model and its training on a text.
#[derive(Clone, Debug)]
pub struct Entrant<'a> {
    /// Shown while it is trained.
    pub name: String,
    /// What it learns.
    pub text: &'a Encoded,
    /// What is trained.
    pub model: ModelConfig,
    /// Tokens of a window.
    pub length: usize,
    /// How; the seed is that of the trial.
    pub training: TrainConfig,
}

/// A model that was trained.
pub struct Fitted<'a> {
    /// The model.
    pub model: &'a dyn PredictsTokens,
    /// The seed of its weights and windows.
    pub seed: u64,
    /// What its training took and came to.
    pub trained: Trained,
    /// The mean −ln p of what is held out; NaN if it diverged.
    pub loss: f64,
}

impl Entrant<'_> {
    /// The training with a seed.
    fn training(&self, seed: u64) -> TrainConfig {
        TrainConfig { seed, ..self.training.clone() }
    }

    /// The task, from fresh weights.
    pub fn task(&self, seed: u64) -> RowTask<impl Fn(Moment) -> Rows + Sync> {
        let model = models::build(&self.model, Weights::Drawn { seed });
        let (text, rows, length) = (self.text, self.training.batch_size, self.length);
        RowTask::new(model, move |at| text.windows(at, rows, length))
    }

    /// A loss, or NaN if it is that of a model that diverged.
    pub fn usable(&self, loss: f64) -> f64 {
        let most = DIVERGED * (self.model.vocabulary() as f64).ln();
        if loss < most { loss } else { f64::NAN }
    }

    fn held_out_loss(&self, model: &dyn PredictsTokens) -> f64 {
        let rows = self.text.held_out(WINDOWS, self.length, self.length);
        self.usable(judge(model, &rows).loss)
    }

    /// How a model attends on a few windows of what is held out.
    pub fn attention(&self, model: &dyn PredictsTokens) -> Attention {
        let rows = self.text.held_out(OBSERVED, self.length, self.length);
        let seen = hearken_tasks::observe::attention(|pass| {
            model.hidden(&rows.tokens(), pass);
        });
        Attention::of(&seen.attention)
    }
}

/// Entropies of attention, as shares of the highest that is possible: 1 is even attention to all that
/// is visible, 0 is attention to one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// The mean over heads and layers.
    pub mean: f64,
    /// Of the sharpest head.
    pub low: f64,
    /// Of the most even head.
    pub high: f64,
}

impl Attention {
    fn of(layers: &[LayerAttention]) -> Self {
        let share = |layer: &LayerAttention| {
            let most = f64::from(layer.most);
            layer.entropy.iter().map(|e| f64::from(*e) / most).collect::<Vec<f64>>()
        };
        let shares: Vec<f64> = layers.iter().flat_map(share).collect();
        Self {
            mean: shares.iter().sum::<f64>() / shares.len() as f64,
            low: shares.iter().copied().fold(f64::INFINITY, f64::min),
            high: shares.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// The text of a study, by characters: those of a text of the user's own that the part for training
/// does not have are read as bytes. An error, if it has no window of `longest` tokens.
pub fn by_character(request: &Request, longest: usize) -> Result<(Text, Encoded)> {
    let text = Text::of(request, CHARACTERS)?;
    let encoded = text.encoded(&characters(request))?;
    encoded.check(longest)?;
    Ok((text, encoded))
}

/// How a tokenizer of characters is learned.
pub fn characters(request: &Request) -> Training {
    Training { byte_fallback: !request.data.is_empty(), ..Training::new(Kind::Character) }
}

/// Seconds that a training of each entrant takes on one core, about.
pub fn seconds(entrants: &[Entrant<'_>]) -> Result<Vec<f64>> {
    let mut known: Vec<(&Entrant<'_>, f64)> = Vec::new();
    let mut all = Vec::new();
    for entrant in entrants {
        let alike = |other: &&(&Entrant<'_>, f64)| {
            let (a, b) = (&other.0.training, &entrant.training);
            (&other.0.model, other.0.length) == (&entrant.model, entrant.length)
                && (a.batch_size, a.optimizer.name()) == (b.batch_size, b.optimizer.name())
        };
        let found = known.iter().find(alike).map(|(_, step)| *step);
        let step = match found {
            Some(step) => step,
            None => seconds_of_a_step(&mut entrant.task(0), &entrant.training(0))?,
        };
        known.push((entrant, step));
        all.push(step * entrant.training.steps as f64);
    }
    Ok(all)
}

/// Trains every entrant with every seed: what `judge` makes of them, by entrant and by seed.
pub fn train<J: Send>(
    request: &Request,
    title: &str,
    entrants: &[Entrant<'_>],
    seeds: &[u64],
    judge: impl Fn(&Entrant<'_>, Fitted<'_>) -> Result<J> + Sync,
) -> Result<Vec<Vec<J>>> {
    let all = trials(request, title, entrants.len() * seeds.len(), |i, watch| {
        let (entrant, seed) = (&entrants[i / seeds.len()], seeds[i % seeds.len()]);
        let mut task = entrant.task(seed);
        let name = format!("{}, seed {seed}", entrant.name);
        let config = entrant.training(seed);
        let trained = watch.train(&name, &mut task, &config, |_, _, _| Ok(()))?;
        let model = task.model();
        let loss = if trained.diverged { f64::NAN } else { entrant.held_out_loss(model) };
        judge(entrant, Fitted { model, seed, trained, loss })
    })?;
    let mut all = all.into_iter();
    Ok(entrants.iter().map(|_| all.by_ref().take(seeds.len()).collect()).collect())
}

/// What came of a contender at one setting.
#[derive(Clone, Debug)]
pub struct Found<R> {
    /// Who.
    pub contender: &'static str,
    /// The setting: what stands on the horizontal axis.
    pub x: f64,
    /// By seed.
    pub runs: Vec<R>,
}

/// What came of contenders at numbered settings, whose trainings ran in this order.
pub fn by_setting<R>(
    settings: impl Iterator<Item = (&'static str, usize)>,
    runs: Vec<Vec<R>>,
) -> Vec<Found<R>> {
    let found = |((contender, x), runs)| Found { contender, x: x as f64, runs };
    settings.zip(runs).map(found).collect()
}

/// A line per contender, in the order of the study, of one number of each run.
pub fn lines<R>(study: &Study, found: &[Found<R>], of: impl Fn(&R) -> f64) -> Vec<Line> {
    let line = |contender: &Contender| {
        let mine = found.iter().filter(|found| found.contender == contender.name);
        let mut points: Vec<(f64, Sample)> =
            mine.map(|found| (found.x, found.runs.iter().map(&of).collect())).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { name: contender.name.to_owned(), color: study.place(contender.name), points }
    };
    study.contenders.iter().map(line).filter(|line| !line.points.is_empty()).collect()
}

/// What each line has at `x`, for [`statistics::best`](crate::statistics::best).
pub fn at(lines: &[Line], x: f64) -> Vec<(String, Sample)> {
    let sample = |line: &Line| line.at(x).map(|sample| (line.name.clone(), sample.clone()));
    lines.iter().filter_map(sample).collect()
}

/// The weights of a model in one of another configuration that has the same parameters: for other
/// lengths and other scalings of positions. Panics if they differ.
pub fn with_weights_of(model: &dyn PredictsTokens, config: &ModelConfig) -> Box<dyn Model> {
    let new = models::build(config, Weights::Unset);
    assert_eq!(new.parameters().len(), model.parameters().len(), "parameters of {config:?}");
    for (to, from) in new.parameters().iter().zip(model.parameters()) {
        assert_eq!((to.name(), to.shape()), (from.name(), from.shape()), "parameters differ");
        to.set_value(from.value());
    }
    new
}

/// What is the same in all studies of this kind, for the report.
pub fn method(text: &Text, encoded: &Encoded, entrant: &Entrant<'_>, seeds: &[u64]) -> Vec<String> {
    use hearken_show::number::thousands;
    let training = &entrant.training;
    vec![
        format!(
            "Decoders learn {} ({} characters, of which the last tenth is held out), as {} tokens of {} \
             kinds. Every training sees {} steps of {} windows of {} tokens, which begin anywhere; the \
             windows are the same for all contenders. {}.",
            text.name,
            thousands((text.train.chars().count() + text.held_out.chars().count()) as f64),
            thousands((encoded.train.len() + encoded.held_out.len()) as f64),
            thousands(encoded.tokenizer.vocabulary_size() as f64),
            thousands(training.steps as f64),
            training.batch_size,
            entrant.length,
            crate::page::seeds_in_words(seeds),
        ),
        format!(
            "The loss is the mean of −ln p of the next token, in nats. It is judged on {WINDOWS} windows of \
             what is held out, at most. A training counts as diverged if its gradients were not finite for \
             20 steps in a row, or if it ends above {DIVERGED} times the loss of guessing evenly."
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::{decoder, training, transformer};
    use crate::study::all;
    use hearken_train::progress::Mode;

    fn quiet() -> Request {
        let mut request = Request::new(all()[0]);
        (request.quick, request.progress) = (true, Mode::Quiet);
        request
    }

    #[test]
    fn shares_of_entropy_are_over_all_heads() {
        let layer = |entropy: &[f32], most| LayerAttention {
            layer: String::new(),
            entropy: entropy.to_vec(),
            most,
        };
        let found = Attention::of(&[layer(&[1.0, 2.0], 2.0), layer(&[1.0, 3.0], 4.0)]);
        assert_eq!(found, Attention { mean: 0.625, low: 0.25, high: 1.0 });
    }

    #[test]
    fn training_helps_and_divergence_is_seen() {
        let request = quiet();
        let text = Text::of(&request, 20_000).unwrap().encoded(&characters(&request)).unwrap();
        let model = decoder(transformer(1, 16, 2), text.tokenizer.vocabulary_size(), 16);
        let entrant = |steps, lr| Entrant {
            name: String::new(),
            text: &text,
            model: model.clone(),
            length: 16,
            training: training(steps, 8, lr, 0),
        };
        let all = [entrant(1, 1e-2), entrant(60, 1e-2), entrant(20, 1e6)];
        let losses = train(&request, "", &all, &[1, 2], |_, fitted| Ok(fitted.loss)).unwrap();
        assert_eq!(losses.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
        for seed in 0..2 {
            assert!(losses[1][seed] < losses[0][seed] - 0.2, "{losses:?}");
            assert!(losses[2][seed].is_nan(), "{losses:?}");
        }
        assert_eq!(seconds(&all).unwrap().len(), 3);
        // The same weights in a longer model see the same.
        let task = all[0].task(3);
        let mut longer = model;
        longer.set_context(64);
        let copy = with_weights_of(task.model(), &longer);
        let rows = text.held_out(4, 16, 16);
        let copied = judge(copy.predicts_tokens().unwrap(), &rows);
        assert_eq!(copied, judge(task.model(), &rows));
    }
}
