//! What was read long ago: looking up and copying at a growing distance.
//!
//! ```text
//! lookup   k₃ v₉  k₇ v₁  …  filler filler … filler  k₇ → v₁  k₃ → v₉ …
//! copying  begin a c b a d … sep → a c b a d …
//! ```
//! A recurrent network must carry all pairs through the filler in a state of fixed size; attention looks
//! back at them, whatever the distance.

use crate::lookup::{self, AGAIN, Answers, BEGIN, PAIRS, SYMBOLS, VOCABULARY};
use crate::outcome::{Drawing, Line, Listing, Outcome};
use crate::page::seeds_in_words;
use crate::request::Request;
use crate::rows::{CURRICULUM, RowTask, Rows, growing, judge};
use crate::sizes::{decoder, nearest, parameters, training_by_muon, transformer};
use crate::statistics::{Sample, best};
use crate::study::{Contender, Study};
use crate::trials::{Watch, seconds_of_a_step, seconds_of_all, trials};
use hearken_base::Result;
use hearken_nn::config::{
    CellKind, Combine, ConvolutionConfig, FeatureMap, MechanismConfig, ModelConfig, NormConfig,
    PositionConfig, RecurrentConfig, SineOrder, StackConfig,
};
use hearken_nn::models;
use hearken_nn::scope::Weights;
use hearken_show::number::{duration, percent, thousands};
use hearken_tensor::ops::cross_entropy::IGNORED;
use hearken_tensor::rng::Rng;
use hearken_train::{Better, Moment, TrainConfig};
use serde_json::json;

/// See the [module](self).
pub(crate) const STUDY: Study = Study {
    name: "recall",
    line: "who remembers what was read long ago: lookup and copying at growing distance",
    question: "Pairs of a key and a value are read, then tokens that mean nothing, then keys whose \
               values are asked for; and strings are read that must be written again. How does the \
               share of right answers fall with the distance, at equal parameters and tokens?",
    contenders: &[
        Contender { name: "transformer", about: "two blocks of attention, rotary positions" },
        Contender { name: "lstm", about: "LSTM, two layers" },
        Contender { name: "gru", about: "GRU, two layers" },
        Contender { name: "rnn", about: "simple recurrent network (tanh), two layers" },
        Contender {
            name: "convolution",
            about: "causal convolutions, dilated until they span the longest row",
        },
        Contender {
            name: "linear",
            about: "the Transformer with linear attention (elu + 1), sinusoidal positions",
        },
    ],
    reads_text: false,
    minutes: [3.0, 16.0],
    run,
};

/// Two recurrent layers and two blocks.
const LAYERS: usize = 2;
const HEADS: usize = 2;
/// The shortest rows of the curriculum.
const SHORTEST: usize = 4;

/// What is to be learned.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Exercise {
    Lookup,
    Copying,
}

/// How large everything is.
#[derive(Clone, Debug)]
struct Scale {
    width: usize,
    rows: usize,
    steps: [u64; 2],
    /// The largest distance of training, by exercise.
    trained: [usize; 2],
    /// Distances that are judged, by exercise.
    judged: [&'static [usize]; 2],
    /// Those of them of which sentences speak.
    said: [&'static [usize]; 2],
    /// Rows that are judged at each.
    held_out: usize,
    lr: f64,
}

const QUICK: Scale = Scale {
    width: 48,
    rows: 32,
    steps: [3000, 800],
    trained: [50, 24],
    judged: [&[5, 10, 25, 50, 100], &[6, 12, 24, 48]],
    said: [&[50, 100], &[24, 48]],
    held_out: 64,
    lr: 6e-3,
};

const FULL: Scale = Scale {
    width: 48,
    rows: 32,
    steps: [8000, 4000],
    trained: [250, 64],
    judged: [&[25, 50, 100, 200, 250, 350, 500], &[8, 16, 32, 64, 128]],
    said: [&[200, 500], &[64, 128]],
    held_out: 128,
    lr: 6e-3,
};

impl Exercise {
    const ALL: [Self; 2] = [Self::Lookup, Self::Copying];

    fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Copying => "copying",
        }
    }

    /// Adds a row of this distance.
    fn push(self, rows: &mut Rows, distance: usize, rng: &mut Rng) {
        if self == Self::Lookup {
            return lookup::push(rows, distance, Answers::Shown, rng);
        }
        let letter = || rng.below(SYMBOLS) as u32;
        let letters: Vec<u32> = std::iter::repeat_with(letter).take(distance).collect();
        let ids = [&[BEGIN], &letters[..], &[AGAIN], &letters[..]].concat();
        let mut targets = vec![IGNORED; ids.len() - 1];
        // From the sign on.
        targets[1 + distance..].copy_from_slice(&letters);
        rows.push(&ids[..ids.len() - 1], &targets);
    }

    /// Rows of one distance for a step of training: up to `most`, less at the beginning.
    fn training_rows(self, at: Moment, config: &TrainConfig, most: usize) -> Rows {
        let mut rng = at.rng();
        let distance = growing(at, config.steps, SHORTEST..=most, &mut rng);
        self.rows(config.batch_size, distance, &mut rng)
    }

    fn rows(self, count: usize, distance: usize, rng: &mut Rng) -> Rows {
        let mut rows = Rows::default();
        (0..count).for_each(|_| self.push(&mut rows, distance, rng));
        rows
    }

    /// Tokens of a row of this distance.
    fn length(self, distance: usize) -> usize {
        match self {
            Self::Lookup => lookup::length(distance, Answers::Shown),
            Self::Copying => 2 * distance + 1,
        }
    }
}

/// The model of a contender, of as many parameters as the Transformer has, or nearly.
fn model(contender: &str, scale: &Scale, longest: usize) -> ModelConfig {
    let base = transformer(LAYERS, scale.width, HEADS);
    let base_size = parameters(&decoder(base.clone(), VOCABULARY, longest));
    let recurrent = |cell| {
        nearest(base_size, 4, |width| {
            let mut config: ModelConfig = RecurrentConfig::new(cell, longest, LAYERS, width).into();
            config.set_vocabulary(VOCABULARY);
            config
        })
    };
    match contender {
        "lstm" => recurrent(CellKind::Lstm),
        "gru" => recurrent(CellKind::Gru),
        "rnn" => recurrent(CellKind::Rnn),
        "convolution" => {
            // Dilations 1, 2, 4, …: kernel 3 spans 2ⁿ⁺¹ − 1 tokens with n layers.
            let layers = (longest + 1).ilog2() as usize;
            nearest(base_size, 4, |width| {
                let mut config = ConvolutionConfig::new(longest, layers, width, 3);
                config.norm = NormConfig::rms();
                config.vocabulary = VOCABULARY;
                config.into()
            })
        }
        "linear" => {
            let stack = StackConfig {
                mechanism: MechanismConfig::Linear { map: FeatureMap::Elu },
                position: PositionConfig::Sinusoidal {
                    combine: Combine::Add,
                    order: SineOrder::Pairs,
                },
                ..base
            };
            decoder(stack, VOCABULARY, longest)
        }
        _ => decoder(base, VOCABULARY, longest),
    }
}

/// What one training came to.
struct Run {
    /// By judged distance.
    accuracy: Vec<f64>,
    seconds: f64,
    loss: f64,
}

fn train_one(
    request: &Request,
    watch: &Watch<'_>,
    contender: &str,
    exercise: Exercise,
    scale: &Scale,
    seed: u64,
) -> Result<Run> {
    let number = exercise as usize;
    let config = setting(request, exercise, scale, seed);
    let distances = scale.judged[number];
    let built = models::build(&of(contender, exercise, scale), Weights::Drawn { seed });
    let most = scale.trained[number];
    let mut task = RowTask::new(built, |at| exercise.training_rows(at, &config, most));
    let name = format!("{} by {contender}, seed {seed}", exercise.name());
    let trained = watch.train(&name, &mut task, &config, |_, _, _| Ok(()))?;
    let accuracy = distances.iter().map(|distance| {
        // Other numbers than those of training, and the same for all contenders.
        let mut rng = Rng::at(0x7265_6361_6c6c, (*distance as u64) << 32);
        let rows = exercise.rows(scale.held_out, *distance, &mut rng);
        if trained.diverged { f64::NAN } else { judge(task.model(), &rows).accuracy }
    });
    let accuracy = accuracy.collect();
    Ok(Run { accuracy, seconds: trained.seconds, loss: trained.final_loss() })
}

fn setting(request: &Request, exercise: Exercise, scale: &Scale, seed: u64) -> TrainConfig {
    let steps = request.steps(scale.steps[exercise as usize]);
    training_by_muon(steps, scale.rows, scale.lr, seed)
}

/// The model of a contender in an exercise.
fn of(contender: &str, exercise: Exercise, scale: &Scale) -> ModelConfig {
    let longest = scale.judged[exercise as usize].iter().max();
    model(contender, scale, exercise.length(longest.map_or(SHORTEST, |longest| *longest)))
}

/// Seconds on one core that each contender's training takes, about, summed over exercises.
fn estimate(request: &Request, scale: &Scale, seeds: usize) -> Result<f64> {
    let mut all = Vec::new();
    for exercise in Exercise::ALL {
        for contender in &request.contenders {
            let config = setting(request, exercise, scale, 0);
            let built = models::build(&of(contender, exercise, scale), Weights::Drawn { seed: 0 });
            // The mean length of a run's rows, about.
            let distance = (scale.trained[exercise as usize] as f64 * 0.4) as usize;
            let rows = |at: Moment| exercise.rows(scale.rows, distance, &mut at.rng());
            let step = seconds_of_a_step(&mut RowTask::new(built, rows), &config)?;
            all.extend(vec![step * config.steps as f64; seeds]);
        }
    }
    Ok(seconds_of_all(&all))
}

fn run(request: &Request) -> Result<Outcome> {
    let scale = request.sized(&QUICK, &FULL);
    let seeds = request.seeds(1, 3);
    request.announce(estimate(request, scale, seeds.len())?)?;
    let mut jobs = Vec::new();
    for exercise in Exercise::ALL {
        for contender in &request.contenders {
            jobs.extend(seeds.iter().map(|seed| (exercise, *contender, *seed)));
        }
    }
    let runs = trials(request, "recall", jobs.len(), |i, watch| {
        let (exercise, contender, seed) = jobs[i];
        train_one(request, watch, contender, exercise, scale, seed)
    })?;
    let mut outcome = Outcome { method: method(request, scale, &seeds), ..Outcome::default() };
    let mut numbers = serde_json::Map::new();
    for exercise in Exercise::ALL {
        let of = |contender: &str| -> Vec<&Run> {
            let mine = jobs.iter().zip(&runs);
            mine.filter(|(job, _)| job.0 == exercise && job.1 == contender).map(|m| m.1).collect()
        };
        let results: Vec<(&'static str, Vec<&Run>)> =
            request.contenders.iter().map(|name| (*name, of(name))).collect();
        numbers.insert(exercise.name().to_owned(), add(&mut outcome, exercise, scale, &results));
    }
    outcome.numbers = numbers.into();
    Ok(outcome)
}

/// Adds what an exercise came to, and gives its numbers.
fn add(
    outcome: &mut Outcome,
    exercise: Exercise,
    scale: &Scale,
    results: &[(&'static str, Vec<&Run>)],
) -> serde_json::Value {
    let distances = scale.judged[exercise as usize];
    let trained = scale.trained[exercise as usize];
    let color = |name: &str| STUDY.contenders.iter().position(|c| c.name == name).unwrap_or(0);
    let line = |(name, runs): &(&'static str, Vec<&Run>)| Line {
        name: (*name).to_owned(),
        color: color(name),
        points: (distances.iter().enumerate())
            .map(|(i, d)| (*d as f64, runs.iter().map(|run| run.accuracy[i]).collect()))
            .collect(),
    };
    let lines: Vec<Line> = results.iter().map(line).collect();
    let title = match exercise {
        Exercise::Lookup => "Lookup",
        Exercise::Copying => "Copying",
    };
    let mut about = format!(
        "The share of right answers by distance. Training knew distances up to {trained}; what lies \
         beyond was never seen. Guessing is right {} of the time.",
        percent(1.0 / SYMBOLS as f64, 1)
    );
    if exercise == Exercise::Lookup {
        let level = format!(
            " The level is that of a model which knows which values were read and not behind which keys: \
             right {} of the time, since values that have been shown again are left out.",
            percent(lookup::without_keys(Answers::Shown), 1)
        );
        about.push_str(&level);
    }
    let shown = |x: f64| percent(x, 1);
    let mut drawing =
        Drawing::of(title, "distance in tokens", "share of right answers", &lines, about.clone())
            .in_doublings();
    if exercise == Exercise::Lookup {
        drawing.chart.levels.push(lookup::level(Answers::Shown));
    }
    outcome.drawings.push(drawing);
    let mut listing =
        Listing::of(&format!("{title}: right answers"), thousands, &lines, shown, about);
    listing.table.columns.extend(["parameters", "time"].map(str::to_owned));
    for (row, (name, runs)) in listing.table.rows.iter_mut().zip(results) {
        let seconds: Sample = runs.iter().map(|run| run.seconds).collect();
        row.push(thousands(parameters(&of(name, exercise, scale)) as f64));
        row.push(duration(seconds.mean()));
    }
    outcome.listings.push(listing);
    let at = |wanted: usize| {
        let samples = lines.iter().filter_map(|line| {
            let point = line.points.iter().find(|point| point.0 == wanted as f64)?;
            Some((line.name.clone(), point.1.clone()))
        });
        samples.collect::<Vec<(String, Sample)>>()
    };
    for distance in scale.said[exercise as usize] {
        let what = format!("the highest share of right answers in {} at", exercise.name());
        let what = format!("{what} distance {distance}");
        outcome.findings.push(best(&what, Better::Higher, &at(*distance), shown));
    }
    if exercise == Exercise::Lookup {
        let distance = scale.said[0][0];
        outcome.findings.push(lookup::keyless(&at(distance), distance, Answers::Shown));
    }
    let entry = |(name, runs): &(&'static str, Vec<&Run>)| {
        let of = |f: fn(&Run) -> f64| runs.iter().map(|run| f(run)).collect::<Vec<f64>>();
        let accuracy: Vec<&Vec<f64>> = runs.iter().map(|run| &run.accuracy).collect();
        let size = parameters(&self::of(name, exercise, scale));
        let value = json!({
            "accuracy": accuracy, "seconds": of(|run| run.seconds), "training_loss": of(|run| run.loss),
            "parameters": size,
        });
        ((*name).to_owned(), value)
    };
    let contenders: serde_json::Map<String, serde_json::Value> =
        results.iter().map(entry).collect();
    json!({"distances": distances, "trained_to": trained, "contenders": contenders})
}

fn method(request: &Request, scale: &Scale, seeds: &[u64]) -> Vec<String> {
    let share = percent(CURRICULUM, 0);
    vec![
        format!(
            "Lookup: {PAIRS} pairs of a key and a value, out of {SYMBOLS} keys and {SYMBOLS} values, then \
             random tokens that mean nothing (their number is the distance), then all keys in another \
             order; after each the model predicts its value. Copying: random letters out of {SYMBOLS}, a \
             sign, and the same letters again; the distance is their number. Only what is asked for \
             counts in the loss."
        ),
        format!(
            "Every contender sees the same rows: {} steps of {} rows for lookup, {} for copying, with Muon \
             (learning rate {}, half a cosine, clipped at 1). In the first {share} of the steps distances \
             grow from {SHORTEST} to {} and {}. All have about as many parameters as the Transformer of {LAYERS} \
             blocks of width {}. {}.",
            thousands(request.steps(scale.steps[0]) as f64),
            scale.rows,
            thousands(request.steps(scale.steps[1]) as f64),
            scale.lr,
            scale.trained[0],
            scale.trained[1],
            scale.width,
            seeds_in_words(seeds),
        ),
        format!(
            "The time is that of training on one core. {} rows are judged at each distance, the same for \
             all{}.",
            scale.held_out,
            if request.quick { "; the full study trains longer, on longer rows" } else { "" },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_speak_of_distances_that_are_judged() {
        for scale in [&QUICK, &FULL] {
            for exercise in Exercise::ALL {
                let [judged, said] = [scale.judged, scale.said].map(|all| all[exercise as usize]);
                assert!(!said.is_empty() && said.iter().all(|distance| judged.contains(distance)));
                assert!(judged.iter().any(|distance| *distance > scale.trained[exercise as usize]));
            }
        }
    }
}
